"""What may not be remembered (S43, S44). Pure: a key and a value in, the code of a refusal out.

Best effort, and made to let ordinary facts pass: a number is a card when checksum, issuer and grouping fit, a password
when it is called one and looks like one, an order when it is spoken to the assistant. Text is compared without accents,
case, widths and invisible characters, so that none of them hides anything.

Every repetition in a pattern has an upper limit, or gives nothing back (``++``): work grows with the text, no faster.
"""

import base64
import binascii
import html
import unicodedata
from collections.abc import Iterator
from itertools import accumulate
from urllib.parse import unquote

import regex
from stdnum import iban, luhn

from memorygw import keys, user_tokens


def refusal(key: str, value: str) -> str:
    """Why a fact may not be remembered, whoever says so: a code, or "". Ask before a value is cut to its limit."""
    key, value = _plain(key), _plain(value)
    if _TOKEN.search(f"{key}\n{value}") or _says_password(key, value):
        return "secret_detected"
    return "payment_data" if _has_payment_data(f"{key}\n{value}") else ""


def tool_refusal(key: str, value: str) -> str:
    """As `refusal`, and what a model may not save on its own: hidden text, and text that gives orders."""
    if code := refusal(key, value):
        return code
    if _HIDDEN.search(key) or _HIDDEN.search(value):
        return "control_chars"
    return "instruction_like" if _gives_orders(key) or _gives_orders(value) else ""


# --- one spelling for all

_INVISIBLE = regex.compile(r"[[\p{M}\p{Cf}\p{Cc}\p{Default_Ignorable_Code_Point}]--\s]++", regex.V1)
_OTHER_DIGIT = regex.compile(r"[\p{Nd}--0-9]", regex.V1)


def _plain(text: str) -> str:
    """``text`` without accents, widths and invisible characters, digits as 0–9, one blank between words."""
    return _single_blanks(_OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0], digit[0])), _bare(text)))


def _bare(text: str) -> str:
    # Marks go before the decomposition too: to sort a long run of them takes quadratic time.
    return _INVISIBLE.sub("", unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)))


def _single_blanks(text: str) -> str:
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _words(*alternatives: str) -> regex.Pattern[str]:
    """A pattern for plain, case-folded text, written in small letters: a blank is any white space, accents are none."""
    return regex.compile(_bare("|".join(alternatives)).replace(" ", r"\s"), regex.MULTILINE)


# --- secrets

# What issuers document for scanners like this one: a prefix, and how many characters follow at least.
_TOKEN = regex.compile(
    rf"""(?<![A-Za-z0-9])(?:
    {keys.SCHEME}[\w:-]{{20}} | {user_tokens.SCHEME}[\w:-]{{20}}
    | (?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{{16}}(?![A-Za-z0-9])            # Amazon
    | gh[opsur]_[A-Za-z0-9]{{36}} | github_pat_\w{{40}} | gl[a-z]{{2,5}}-[\w-]{{20}} # GitHub, GitLab
    | xox[a-z]-[\w-]{{10}} | xapp-\d-[\w-]{{10}} | hooks\.slack\.com/services/T\w{{5,12}}/B\w{{5,12}}/\w{{16}}
    | [rs]k_(?:live|test)_[A-Za-z0-9]{{16}} | whsec_[A-Za-z0-9+/]{{24}}            # Stripe
    | AIza[\w-]{{35}} | ya29\.[\w-]{{20}} | GOCSPX-[\w-]{{20}}                     # Google
    | sk-(?:[a-z0-9]{{2,10}}-){{0,3}}(?=[A-Za-z_-]{{0,40}}+\d)[A-Za-z0-9_]{{16}}   # OpenAI, Anthropic, OpenRouter
    | (?:gsk|hf|npm|glsa|lin_api|ntn|r8|nvapi|xai|pplx|dckr_pat|dop_v1|dapi)[_-]?(?=[A-Za-z_-]{{0,40}}+\d)[\w-]{{30}}
    | shp(?:at|ca|pa|ss)_[0-9a-f]{{32}} | sq0[a-z]{{3}}-[\w-]{{22}} | ATATT3[\w-]{{20}} | hv[sb]\.[\w-]{{24}}
    | pypi-AgE[\w-]{{40}} | SG\.[\w-]{{16,32}}\.[\w-]{{32}} | SK[0-9a-f]{{32}} | key-[0-9a-f]{{32}}
    | [0-9a-f]{{32}}-us\d                                                         # Mailchimp
    | \d{{8,10}}:AA[\w-]{{33}} | [MNO][\w-]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27}}        # Telegram, Discord
    | AGE-SECRET-KEY-1[A-Z0-9]{{50}} | PuTTY-User-Key-File-\d
    | eyJ[\w-]{{10,1000}}+\.[\w-]{{10}}                                           # JSON web tokens
    ) | BEGIN\ (?:[A-Z0-9]{{2,10}}\ ){{0,3}}PRIVATE\ KEY
    | ://[^\s:/@]{{0,100}}+:[^\s/@]{{1,200}}+@                                    # a password inside an address
    | AccountKey=[A-Za-z0-9+/]{{40}}""",
    regex.VERBOSE,
)

_PASSWORDS = (
    r"(?:(?<!1)pass[ -]?(?:word|wort|phrase|code)|(?:kenn|losungs)wort|wachtwoord|lösenord|adgangskode|passord|salasana"
    r"|mot de passe|\bmdp\b|contraseña|\bsenha|palavra passe|\bhas[lł]o\b|\bheslo\b|jelszó|\bşifre(?:m|si)?\b"
    r"|\bparolam\b|mật khẩu|kata sandi|(?:seed|recovery) phrase|\bpwd?\b|парол[ья]|密码|密碼|口令|パスワード|暗証番号"
    r"|비밀번호|كلمة (?:المرور|السر)|סיסמ[הא]|पासवर्ड|รหัสผ่าน)"
)
_API_KEY = (
    r"(?<![^\W_])(?:(?:api|secret|access|private|auth|encryption)[ _-]?keys?|client[ _-]?secret"
    r"|(?:access|auth|bearer|refresh|api)[ _-]?token|api[ -]?schlüssel|clé (?:d )?api"
    r"|authorization ?: ?(?:bearer|basic))\b"
)
_PIN = r"\b(?:pin|passcode|geheimzahl)(?:[ -]?(?:code|number|nummer|no|nr))?\b"
# "for the wifi", "of my bank"
_OF_WHAT = (
    r"(?: (?:for|of|to|at|on|für|fürs|vom|von|zum|zur|des|der|du|de|del|da|do|para|per|pour|van|voor|от)"
    r"(?: [^\W_]{1,20}+){1,3})?"
)
_IS = (
    r"(?: ?(?:[:=]{1,2}>?|->|→|是|为|為|は|는|은) ?"
    r"|(?:['’]s| (?:is|was|ist|war|lautet|heisst|est|es|e|este|jest|ar|er|هي|is set to|[-–—]))[:=]? "
    r"(?:still |now |jetzt )?)"
)
_CREDENTIAL_LIKE = (
    r"""["'`„“«(]?(?:(?=[^\s\d]{0,40}+\d)(?=\d{0,40}+[^\s\d.,;:!?)"'])[!-~\p{Latin}\p{Cyrillic}]{5}|\d{4,20}+(?!\w)"""
    r"""|[^\s@#$%^&*_+=~|]{1,30}+[@#$%^&*_+=~|][^\s]{2}|["'„“«][^"'“”»\n]{3,64}+["'”“»])"""
)
# One plain word that ends the sentence, unless it tells how the password is rather than what it is.
_LONE_WORD = (
    r"""["'`„“«]?(?!(?:weak|strong|(?:in)?secure|(?:un)?safe|long|short|old|new|unknown|lost|forgotten|required|expired"""
    r"|reset|changed|compromised|leaked|stolen|secret|private|hidden|complicated|simple|easy|hard|difficult|important"
    r"|temporary|wrong|correct|outdated|none|unique|random|default|it|that|this|what|not|(?:un)?sicher|schwach|stark|lang"
    r"|kurz|alt|neu|vergessen|geheim|abgelaufen|geändert|falsch|unbekannt|kompliziert|einfach|faible|fort|oublie|expire"
    r"|segur[ao]|débil|olvidada|nueva|inválido|cambiada|debole|sicura|zwak|sterk|vergeten|ongeldig|gewijzigd|galt"
    r"|(?:in)?valide?|incorrecte?|niepoprawne|changé)\b)"
    r"""[\p{Latin}\p{Cyrillic}\p{Greek}\p{Arabic}\p{Hebrew}-]{3,64}+["'`“”»]?(?:[.,;!?]|$)"""
)
_SAID = (
    _words(
        rf"{_PASSWORDS}(?:{_OF_WHAT}{_IS}(?:{_CREDENTIAL_LIKE}|{_LONE_WORD})| (?:to|auf) {_CREDENTIAL_LIKE}"
        r"| (?=[^\s\d]{1,40}+\d)[!-~]{7}| \d{6,20}+(?!\w))"
    ),
    _words(rf"{_API_KEY}{_OF_WHAT}(?:{_IS}| )(?=[^\s\d]{{0,40}}+\d)[!-~]{{8}}"),
    _words(rf"{_PIN}{_OF_WHAT}(?:{_IS}\d(?:[ -]?\d){{3,7}}+| (?!19|20)\d{{4}})(?![\w-])"),
    _words(  # "hunter2 is my password"
        r"(?<![^\s])(?=[^\s\d]{0,40}+\d)(?=\d{0,40}+[^\s\d])[!-~]{5,64}+ (?:is|as|ist|als|est|es) "
        r"(?:(?:my|the|his|her|their|a|mein|das|dein|sein|ihr|mon|le|mi|la) )?(?:[^\W_]{1,16}+ )?"
        rf"{_PASSWORDS}\W{{0,3}}$"
    ),
    _words(r"(?:seed|recovery|mnemonic) phrase\W{1,3}(?:\w{1,10}\W{1,3}){0,3}?(?:[a-z]{3,8} ){11}[a-z]{3,8}\b"),
)
_PASSWORD_KEY, _PIN_KEY = _words(rf"{_PASSWORDS}{_OF_WHAT}$"), _words(rf"{_PIN}{_OF_WHAT}$")
_PIN_VALUE = regex.compile(r"\W{0,3}\d(?:[ -]?\d){3,7}\W{0,3}")
_HOW_IT_IS = _words(rf"(?!{_LONE_WORD})[^\W\d]{{1,64}}+\W{{0,3}}$")
_PROSE_WORDS = 5
_KEY_JOINT = regex.compile(r"[\s_./-]++|(?<=\p{Ll})(?=\p{Lu})")


def _says_password(key: str, value: str) -> bool:
    """Whether a password, a PIN or an API key is called so, by the key or in a sentence."""
    label, said = _KEY_JOINT.sub(" ", key).casefold().strip(), value.casefold()
    if _PASSWORD_KEY.search(label) and not _is_about_password(label, said):
        return True
    if _PIN_KEY.search(label) and _PIN_VALUE.fullmatch(said):
        return True
    return any(pattern.search(f"{label}: {said}") for pattern in _SAID)


def _is_about_password(label: str, said: str) -> bool:
    """Whether the value of a key that names a password tells something about it: a sentence, "forgotten", nothing."""
    is_sentence = len(said.split()) >= _PROSE_WORDS and "phrase" not in label and not any(map(str.isdigit, said))
    return not said or is_sentence or bool(_HOW_IT_IS.match(said))


# --- payment data

_NUMBER = regex.compile(r"(?<![\d+])\d++(?![A-Za-z])(?:[\s./–—-]{1,2}+\d++(?![A-Za-z]))*+")
_CARD = regex.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"  # Visa, Mastercard
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}(?:\d{2})?|35(?:2[89]|[3-8]\d)\d{12}"  # American Express, Diners, JCB
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?|62\d{14,17}|(?:60|8[12])\d{14}"  # Discover, UnionPay, RuPay
    r"|(?:50[123]8|5020|5893|6304|6759|676[1-3])\d{9,15}|220[0-4]\d{12,15}|9792\d{12}"  # Maestro, Mir, Troy
)
_LONGEST_CARD = 19
_GROUPS_OF_SHORT_CARDS = {(4, 6, 5), (4, 6, 4)}
_IBAN = regex.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[ -]?\d\d(?:[ -]?[A-Za-z0-9]){11,30}+")
_CARD_CODE = _words(r"\bcv[vc]2?(?:[ -]?(?:code|number|nummer))?(?: (?:is|ist|est|es))?\W{1,3}\d{3,4}(?!\w)")


def _has_payment_data(text: str) -> bool:
    return (
        any(map(luhn.is_valid, _card_numbers(text)))
        or any(map(_begins_with_iban, _IBAN.findall(text, overlapped=True)))
        or bool(_CARD_CODE.search(text.casefold()))
    )


def _card_numbers(text: str) -> Iterator[str]:
    """Numbers as issuers give them, grouped as people group them. At most 19 are looked at from one group on."""
    for run in _NUMBER.findall(text):
        groups = regex.findall(r"\d+", run)
        for start in range(len(groups)):
            for end, digits in enumerate(accumulate(groups[start : start + _LONGEST_CARD]), start + 1):
                if len(digits) > _LONGEST_CARD:
                    break
                if _CARD.fullmatch(digits) and _is_grouped_like_a_card([len(group) for group in groups[start:end]]):
                    yield digits


def _is_grouped_like_a_card(sizes: list[int]) -> bool:
    """Groups of one size, the last perhaps shorter; or as 15 and 14 digits are printed."""
    return tuple(sizes) in _GROUPS_OF_SHORT_CARDS or (set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0])


def _begins_with_iban(text: str) -> bool:
    """Whether the first groups are an IBAN of its country's length: other words may follow."""
    return any(iban.is_valid(start, check_country=False) for start in accumulate(regex.split("[ -]", text)))


# --- hidden text

# Allowed are joiners and selectors where a script or an emoji needs one, marks of direction, and flags made of tags.
# The character comes first and what stands before it second: text without any is looked at once.
_HIDDEN = regex.compile(
    r"""[[\p{Cc}\p{Cs}]--[\t\n\r]]
    | [\u034f\u115f\u1160\u180e\u200b\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]
    | \u200c(?<![[\p{L}\p{M}]--[\p{Latin}\p{Cyrillic}\p{Greek}]]\u200c)
    | \u200d(?<![[\p{L}\p{M}\p{Emoji}]--[\p{Latin}\p{Cyrillic}\p{Greek}\p{Nd}]]\u200d)
    | [\ufe00-\ufe0f](?<![\p{S}\p{P}\p{N}\p{Han}\p{Mongolian}\p{Myanmar}][\ufe00-\ufe0f])
    | [\U000e0100-\U000e01ef](?<!\p{Han}[\U000e0100-\U000e01ef])
    | [\U000e0000-\U000e007f](?<!\U0001f3f4[\U000e0020-\U000e007f]{1,7})""",
    regex.VERBOSE | regex.V1,
)


# --- orders

_MARKUP = _words(
    r"< ?/? ?(?:user[_ ]?memory|conversation[_ ]?notes|system|assistant|developer|instructions?|prompt|memory)\b",
    r"< ?/? ?(?:(?:tool|function)(?:_calls?|_results?)?|invoke|script|iframe|img|svg|style|a href|!--)",
    r"<\|[^|\n]{1,40}+\|>|<<sys>>|\[ ?/?(?:inst|sys|system|assistant|user)\b",
    r"```|~~~|^#{1,6} (?!of\b)[^\W\d]|^#{2,6}\w",
    r"[-=#*]{3} ?(?:begin|end|start|stop|new|system|ignore|override)|\[ ?(?:begin|end|start|new|override)\b",
    r"^(?:begin|end)(?: of)? (?:new |system |user )?(?:instructions|prompt|context|memory|system)\b",
    r"https?://|\bs?ftp://|\bfile://|\bwww\.\w|\bdata:\w{2,12}/\w|\bjavascript:|!\[|\]\(|^\[[^\]\n]{1,40}+\]:",
    r'"(?:role|tool_calls?|function_call|arguments)" ?:|\n(?:human|user|tool) ?:',
    r"(?:^|[.!?;>)\]*] )(?:system|assistant|developer|sistema|système|система|系统|系統|システム) ?:",
    r"\b(?:system|developer|admin) ?(?:prompt|message|instruction|override|note|notice|nachricht|anweisung)s? ?[:=]",
    r"(?:remember|forget)_user_fact|\bmemory_(?:save|recall|search|forget|delete|update|store)\b",
)

_WORD = r"[^\W_]{1,20}+ "
# To forget, whose, what, in families of languages: "ignore all previous instructions".
_OVERRIDES = (
    (
        "ignore|disregard|forget|override|overrule|bypass|do not follow|dont follow|stop following",
        "all|any|every|previous|prior|above|earlier|preceding|foregoing|former|existing|your|system|safety",
        "instruction|prompt|rule|guideline|directi|command|constraint|restriction|polic|safeguard|programming",
    ),
    (
        "ignoriere?|ignoriert|ignorieren sie|vergiss|vergesst|vergessen sie|missachte|übergehe|verwirf|überschreibe",
        "all|vorherig|bisherig|vorangegangen|obig|vorig|früher|dein|ihre|eure|system",
        "anweisung|instruktion|regel|vorgabe|befehl|richtlinie|prompt|einschränkung",
    ),
    (
        "ignore[zr]?|oublie[zr]?|ne tiens pas compte d|ne tenez pas compte d|fais abstraction d",
        "tout|précédent|antérieur|ci[ -]dessus|tes|vos|système",
        "instruction|consigne|règle|directive|ordre",
    ),
    (
        "ignor[ae]|olvid[ae]|omite|descarta|desconsidere|esqueça|no sigas|dimentica|non seguire",
        "tod[ao]|anterior|previ[ao]|tus|sus|suas|acima|tutt[ei]|precedent|tue|sistema",
        "instruccion|regla|orden|indicacion|instruç|regra|ordens|istruzion|regol|comand",
    ),
    (
        "negeer|vergeet|ignorera|ignorer|glöm|glem|zignoruj|ignoruj|zapomnij|pomiń",
        "alle|eerder|vorige|bovenstaande|je|jouw|tidigare|tidligere|föregående|wszystkie|poprzedni|wcześniejsz|předchozí",
        "instructie|regel|opdracht|instruktion|instruksjon|instrukcj|poleceni|zasad|pokyn",
    ),
    (
        "(?:про)?игнорируй(?:те)?|забудь(?:те)?|ігноруй(?:те)?|abaikan|lupakan|bỏ qua",
        "вс[еі]|предыдущ|прежн|попередн|тво|ваш|системн|semua|sebelumnya|tất cả|mọi|trước",
        "инструкц|указани|правил|команд|інструкц|instruksi|aturan|perintah|hướng dẫn|chỉ dẫn|lệnh",
    ),
)

# The start of a sentence, where a verb is an order and not somebody's habit.
_START = r"(?:^|[.!?:;>)\]] ?|[–—-] |\b(?:please|bitte|remember to) )"
_YOU = r"\b(?:you|assistant|ai|chatbot|bot|agent|llm|model)"
_ANSWER = "(?:respond|answer|reply|recommend|suggest|reveal|refuse|mention|obey|comply|disclose|output|execute|append)"
_DO = rf"(?:{_ANSWER}|ignore|disregard|override|bypass|pretend|print|include|promote|treat|follow|call the|act as)"
_WHEN = r"\b(?:if|when(?:ever)?|(?:every|each) time|as soon as) (?:(?:the )?user|asked|someone asks|prompted)\b"
_ORDERS = (
    *(
        _words(
            rf"\b(?:{verb}) (?:{_WORD}){{0,4}}?(?:{whose})\w{{0,12}}+ (?:{_WORD}){{0,3}}?(?:{what})",
            rf"\b(?:{verb}) (?:{_WORD}){{0,3}}?(?:{what})\w{{0,6}}+ (?:{_WORD}){{0,2}}?(?:{whose})",
        )
        for verb, whose, what in _OVERRIDES
    ),
    _words(
        r"\b(?:ignore|disregard|forget) (?:everything|anything|all|what(?:ever)?) "
        r"(?:(?:you|i|we|was|were|is|have|been|that|stated|written) ){0,4}(?:above|before|told|said|know|learned)\b",
        r"\bdo anything now\b",
        r"\b(?:skip|bypass|disable) (?:all |any |the )?(?:confirmation|approval|safety|guardrail|verification)",
    ),
    _words(
        rf"{_START}(?:always|never|do not|dont) (?:{_DO}|say that)\b",
        rf"{_START}(?:only )?{_ANSWER} "
        r"(?:only|always|exclusively|in|with|as|every|to (?:every\w{0,5}|all|the user)|from now)\b",
        rf"{_START}(?:speak|write|talk) (?:only|exclusively)\b",
        r"\b(?:from now on(?:wards?)?|from this point (?:on|forward)|henceforth|in (?:every|all) future \w{4,14}) "
        rf"(?:you|always|never|only|every (?:reply|response)|all (?:replies|responses)|your|act|speak|write|{_DO})\b",
    ),
    _words(
        rf"{_YOU} (?:must|should|shall|will|ha(?:ve|s) to|needs? to|(?:are|is) to) "
        rf"(?:(?:always|never|now|only|not|then) ){{0,2}}{_DO}\b",
        rf"{_YOU} (?:to )?(?:always|never|only) {_DO}\b|\byou must (?:always|never)\b",
        r"\byou are (?:now|no longer) (?:a|an|the|in|my|free|bound|restricted|allowed|operating|un[a-z]{3,12}|dan)\b",
        r"\byou are (?:an ai|dan)\b|\bas an ai (?:you|language|assistant)\b",
        r"\byou (?:respond|answer|reply) (?:only|always|in)\b",
        r"\byour (?:new|real|only) (?:name|role|task|job|goal|mission|instructions?|rules?) (?:is|are)\b",
    ),
    _words(
        rf"{_START}(?:(?:act|behave|role ?play) (?:as|like) (?:if|a|an|my|the|you)|pretend (?:you|to be|that you))\b",
        rf"{_START}(?:enable|enter|activate|switch to) (?:the )?(?:dan|god|developer|debug|admin|unrestricted) mode\b",
    ),
    _words(
        rf"\b(?:reveal|print|show|output|repeat|leak|dump|disclose|display|tell me|give me|send) (?:{_WORD}){{0,4}}?"
        r"(?:(?:system|initial|hidden|original|developer) ?(?:prompt|message|instruction)|your (?:prompt|instruction))",
        r"\byour system ?prompt\b",
        rf"{_START}(?:send|forward|post|upload|email|delete|erase|share|save|store|write) (?:{_WORD}){{0,5}}?"
        r"(?:conversation|chat history|(?:to|your) memor(?:y|ies)|user data|secrets?|passwords?|api keys?)\b",
        r"\b(?:do not|dont|never|without) (?:ask|tell|inform|notify|warn|alert)(?:ing)? (?:the )?user\b",
        rf"\b(?:keep|hide|conceal) (?:{_WORD}){{0,4}}?from the user\b",
    ),
    _words(rf"{_WHEN}[^.\n]{{0,80}}? (?:{_DO}|reply|send|run|(?<!\b(?:they|he|she|i|we) )say)\b"),
    _words(
        rf"{_START}(?:call|invoke|run|execute|use) (?:[\w-]{{1,40}}+ ){{0,4}}?(?:tool|function|plugin|command)\b",
        r"\b(?:note|message|instructions?|reminder|hint|attention|dear|hey) (?:to |for )?(?:the |all )?"
        r"(?:assistant|ai|model|llm|chatbot|chatgpt|language model)s?\b",
        r"\b(?:new|updated|actual|following|hidden|important|neue|nouvelles?|nuevas?|nuove|новые) "
        r"(?:instructions?|prompt|directives?|role|persona|anweisung(?:en)?|instrucciones|istruzioni|инструкции) ?:",
    ),
    _words(  # German
        r"\b(?:ab (?:jetzt|sofort|heute)|von (?:jetzt|nun) an|künftig|fortan) (?:jede antwort|ignorier"
        r"|(?:du|immer|nur|stets|bist|musst|sollst|wirst|antworte|sprich|empfiehl|schreib|tu so)\b)",
        r"\b(?:du (?:musst|sollst|darfst|wirst)|der assistent (?:muss|soll|darf)) "
        r"(?:immer|nie(?:mals)?|nur|stets|keine|jede)\b",
        r"\bdu bist (?:jetzt|nun|ab (?:jetzt|sofort)) (?:ein|kein|der|im)|\bvergiss alles\b",
        rf"{_START}(?:antworte(?:n sie)?|erwähne|verrate|empfiehl) (?:ab|immer|nie(?:mals)?|nur|stets|auf|mit|jede)\b",
        rf"{_START}(?:tu so als|verhalte dich|gib dich als)\b",
        r"\bwenn der (?:be)?nutzer [^.\n]{1,80}? (?:empfiehl|antworte|sag|nenne)\b",
        rf"\b(?:gib|zeig|nenne|verrate) (?:{_WORD}){{0,3}}?(?:system ?prompt|deine (?:anweisung|instruktion|regel))",
    ),
    _words(  # French, Spanish, Italian, Portuguese, Dutch
        r"\b(?:à partir de maintenant|désormais|dorénavant|(?:a partir de|desde) (?:ahora|agora)|(?:d ?|da )ora in poi"
        r"|vanaf nu) (?:tu|vous|réponds|répondez|responde|debes|eres|ignora|devi|sei|rispondi|responda|você|ben je"
        r"|moet je|antwoord)\b",
        r"\b(?:tu dois|vous devez|debes|tienes que|devi|você deve|je moet|u moet) (?:toujours|jamais|ignorer|répondre"
        r"|siempre|nunca|ignorar|responder|sempre|mai|ignorare|rispondere|altijd|nooit|negeren)\b",
        rf"{_START}(?:ne )?(?:réponds|répondez|mentionnez?|responda|rispondi|antwoord) "
        r"(?:toujours|jamais|uniquement|seulement|sempre|só|solo|apenas|altijd|alleen|en|in)\b",
        rf"{_START}(?:responde )?(?:siempre|solo|nunca) (?:responde|respondas|en|con)\b",
    ),
    _words(  # Russian, Polish, Turkish
        r"\b(?:всегда|никогда не|только) (?:отвечай|рекомендуй|говори|упоминай)|\bс этого момента (?:ты|вы|отвечай)",
        r"\b(?:ты|вы) долж(?:ен|на|ны) (?:всегда|никогда)|\bzawsze odpowiadaj|\bod teraz (?:jesteś|odpowiadaj|musisz)",
        r"\b(?:önceki|tüm) (?:\w{1,12}+ ){0,2}(?:talimat|kural|komut)\w{0,8}+ (?:yok say|unut|görmezden|dikkate alma)",
    ),
    _words(  # Chinese, Japanese, Korean, Arabic, Hebrew, Hindi
        r"(?:忽略|无视|無視|忘记|忘記|不要遵守)[^。\n]{0,12}?(?:指令|指示|提示|规则|規則|说明)",
        r"从现在(?:开始|起)[^。\n]{0,3}(?:你|必须|总是)|你(?:必须(?:总是|始终)|现在是)",
        r"(?:指示|命令|ルール|プロンプト)[^。\n]{0,8}?(?:無視し|忘れ)|これからは[^。\n]{0,10}?(?:答え|回答)",
        r"(?:システムプロンプト|系统提示|시스템 ?프롬프트)[^。.\n]{0,8}?(?:表示|見せ|出力|显示|输出|보여|출력)",
        r"(?:지시|명령|규칙|프롬프트)[^.\n]{0,16}?(?:무시|잊)",
        r"(?:تجاهل|انس) (?:\w{1,15}+ ){0,3}?(?:التعليمات|الأوامر|القواعد|تعليمات)",
        r"התעלם (?:\w{1,15}+ ){0,3}?(?:מההוראות|הוראות|ההוראות)|(?:निर्देश|नियम)[^।\n]{0,20}?(?:अनदेखा|नज़रअंदाज़|भूल)",
    ),
)
# Short ones alone: Python refuses to read a number of thousands of digits.
_ENTITY = regex.compile(r"&#?\w{1,8}+;?")
_DECORATION = str.maketrans('"`“”„*_~,', " " * 9, "'’‘")
# Letters of other alphabets that look Latin.
_LOOKALIKES = str.maketrans("аеорсухіјѕԁһɡӏαορυικντχ", "aeopcyxijsdhglaopuikvtx")
_ENCODED = regex.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{16,}+")


def _gives_orders(text: str) -> bool:
    """Whether it speaks to the assistant, or carries what a prompt is built of: roles, our tags and tools, links."""
    plain = _plain(unquote(_ENTITY.sub(lambda entity: html.unescape(entity[0]), text)))
    said = plain.casefold()
    if _MARKUP.search(said) or any(map(_is_encoded_text, _ENCODED.findall(plain))):
        return True
    said = _single_blanks(said.translate(_DECORATION))
    return any(pattern.search(spelt) for spelt in {said, said.translate(_LOOKALIKES)} for pattern in _ORDERS)


def _is_encoded_text(word: str) -> bool:
    """Whether a long word is Base64 of something to read: no fact needs that."""
    padded = word.translate(str.maketrans("-_", "+/")) + "=" * (-len(word) % 4)
    try:
        text = base64.b64decode(padded).decode()
    except (binascii.Error, UnicodeDecodeError):
        return False
    return " " in text and text.isprintable()
