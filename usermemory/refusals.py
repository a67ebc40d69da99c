"""What may not be remembered (S43, S44). Pure: a key and a value in, the code of a refusal out.

Best effort, and made to let ordinary facts pass: a number is a card when checksum, issuer and grouping fit, a password
when it is called one and looks like one, an order when it is spoken to the assistant. Text is compared without accents,
case, widths and invisible characters, so that none of them hides anything.

Every repetition in a pattern has an upper limit, or gives nothing back (``++``): work grows with the text, no faster.
"""

import base64
import binascii
from collections.abc import Iterator
from itertools import accumulate

import regex
from stdnum import iban, luhn

from memorygw import keys, user_tokens
from usermemory.orders import gives_orders
from usermemory.spelling import phrases, plain


def refusal(key: str, value: str) -> str:
    """Why a fact may not be remembered, whoever says so: a code, or "". Ask before a value is cut to its limit."""
    key, value = plain(key), plain(value)
    text = f"{key}\n{value}"
    if _TOKEN.search(text) or any(map(_is_basic_login, _BASIC.findall(text))) or _says_secret(key, value):
        return "secret_detected"
    return "payment_data" if _has_payment_data(text) else ""


def tool_refusal(key: str, value: str) -> str:
    """As `refusal`, and what a model may not save on its own: hidden text, and text that gives orders."""
    if code := refusal(key, value):
        return code
    if _HIDDEN.search(key) or _HIDDEN.search(value):
        return "control_chars"
    return "instruction_like" if gives_orders(key) or gives_orders(value) else ""


# --- secrets

# What issuers document for scanners like this one: a prefix, and how many characters follow at least.
_BASE58 = "[1-9A-HJ-NP-Za-km-z]"
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
    | (?:5[HJK]{_BASE58}{{49}} | [KL]{_BASE58}{{51}})(?![A-Za-z0-9])              # Bitcoin
    | [t-z]prv{_BASE58}{{100}} | nsec1[a-z0-9]{{58}}
    | otpauth(?:-migration)?://[^\s]{{0,300}}?(?:secret|data)=
    ) | BEGIN\ (?:[A-Z0-9]{{2,10}}\ ){{0,3}}PRIVATE\ KEY
    | ://[^\s:/@]{{0,100}}+:[^\s/@]{{1,200}}+@                                    # a password inside an address
    | AccountKey=[A-Za-z0-9+/]{{40}}""",
    regex.VERBOSE,
)

_PASSWORDS = (
    r"(?:(?<!1)pass[ -]?(?:word|wort|phrase|code)|\bpasswd|\bpsw?d\b|\b(?:wi-?fi|wlan|hotspot|router|log-?in|user"
    r"|account|admin|root|sudo|e-?mail|database|db|netflix) pass\b|(?:kenn|losungs)wort|wachtwoord|lösenord"
    r"|adgangskode|passord|salasana|mot de passe|\bmdp\b|contraseña|\bsenha|palavra passe|\bhas[lł]o\b|\bheslo\b"
    r"|jelszó|\bşifre(?:m|si)?\b|\bparolam\b|mật khẩu|kata sandi|(?:seed|recovery) phrase|\bpwd?\b|парол[ья]|密码"
    r"|密碼|口令|パスワード|暗証番号|비밀번호|암호|كلمة (?:المرور|السر)|סיסמ[הא]|पासवर्ड|รหัสผ่าน)"
)
_API_KEY = (
    r"(?<![^\W_])(?:(?:api|secret|access|private|auth|encryption)[ _-]?keys?|client[ _-]?secret"
    r"|(?:access|auth|bearer|refresh|api)[ _-]?token|api[ -]?schlüssel|clé (?:d )?api"
    r"|authorization ?: ?(?:bearer|basic))\b"
)
_OPAQUE_LABEL = (
    r"(?<![^\W_])(?:secret|token|bearer|cookie|j?sess(?:ion)?[ _-]?(?:id|key|token|cookie)?|(?:php|asp)sessid|sid|2fa"
    r"|mfa|totp|otp|authenticator)(?:[ _-](?:secret|seed|key|token|setup key))?"
)
# Long, letters and digits mixed, no blank: no word. What 0x and 40 digits name on a block chain is public.
_OPAQUE = (
    r"""["'`]?(?:(?!0x[0-9a-f]{40}\b)(?=[a-z+/_=]{0,60}+\d)(?=[\d+/_=]{0,60}+[a-z])[a-z0-9+/_=]{16}"""
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
_BASE32_IN_GROUPS = r"(?=[a-z -]{0,40}+[2-7])[a-z2-7]{4}(?:[ -][a-z2-7]{4}){3}"
_SPARE_CODES = (
    r"(?:\b(?:recovery|backup|back-up|rescue|emergency|scratch|one[ -]?time|verification|wiederherstellungs|sicherungs"
    r"|notfall)[ -]?(?:codes?|keys?|schlüssel)|\b(?:2fa|mfa|otp) codes?|\botp|\bcod(?:e|igo|ic)[seio]{0,2} d[ei] "
    r"(?:récupération|secours|recuperación|respaldo|recuperação|recupero|backup|riserva)|код[ыа]? восстановления"
    r"|(?:回復|リカバリー?|バックアップ)コード|(?:恢复|备份)(?:代码|码)|(?:रिकवरी|बैकअप) कोड)"
)
_SPARE_CODE = (
    r"(?!(?:19|20)\d\d(?!\d))(?:(?=[a-z-]{0,24}+\d)[a-z0-9]{3,12}(?:-[a-z0-9]{3,12}){1,7}+"
    r"|\d{4,8}(?: \d{3,5}){0,3}+|(?=[a-z]{0,24}+\d)(?=\d{0,24}+[a-z])[a-z0-9]{6,24}+)(?![\w%])"
)
_ACCESS_CODE = (
    r"(?:\b(?:wi-?fi|wlan|network|access)[ -]?(?:key|code)|(?:zugangs|zugriffs)code"
    r"|(?:netzwerk|wlan|sicherheits)-?schlüssel|code d accès|code daccès|código de acceso|codice di accesso"
    r"|código de acesso)"
)
# A password where the word before it may mean something else, like a ski pass: letters and digits or signs in it.
_MIXED = (
    r"(?![\w.+-]{1,64}+@[\w-]{1,64}\.)(?:(?=[a-z][^\s\d]{0,40}+\d)[!-~]{6}|[^\s@#$%^&*=~|]{1,30}+[@#$%^&*=~|][^\s]{2})"
)
_USER = r"\b(?:user(?:name)?|log-?in|account|benutzer(?:name)?|konto|utilisateur|usuario|utente|usuário)"
_LOGIN = (
    r"(?:\bcredentials?|\bcreds|\bbasic auth|zugangsdaten|anmeldedaten|identifiants|credenciales|credenziali"
    r"|credenciais|учетные данные|登录信息|ログイン情報)"
)
_NAME_AND = r"""["']?[\w.@+-]{1,64}+["']?"""
# Words that hold a sentence together and are in no list of words for seeds.
_JOINS = r"(?:the|and|for|from|her|his|she|him|was|are|has|had|not|but|who|our|its|their|were|too|very|stored|kept)"
_SEED_WORD = rf"(?!{_JOINS}\b)[a-z]{{3,8}}"
_PHRASE_WORD = rf"(?!{_JOINS}\b)\p{{L}}{{3,16}}+"
_SEED = (
    r"(?:\b(?:seed|mnemonic|bip-?39)|\b(?:recovery|backup|wallet) (?:phrase|words|seed)|wiederherstellungsphrase"
    r"|phrase de récupération|frase (?:semilla|de recuperación)|frase seme|ニーモニック|助记词)"
)
_SOCIAL_SECURITY = (
    r"(?:\bsocial (?:security|insurance)(?: (?:number|no|nr|card|id))?|\bssn|\bnational insurance(?: (?:number|no))?"
    r"|sozialversicherungsn(?:ummer|r)|\bsv-n(?:ummer|r)|ahv-n(?:ummer|r)|sécurité sociale|seguridad social"
    r"|segurança social|\baadhaa?r(?: (?:number|no|card))?|आधार(?: (?:संख्या|नंबर|कार्ड))?|マイナンバー|身份证号?码?)"
)
_PIN = r"(?:\b(?:pin|пин|passcode|geheimzahl)(?:[ -]?(?:code|код|number|nummer|no|nr))?\b)"
# "1972 olympic" is no code, "4711 for the bank" is.
_NO_NOUN = r"(?! (?!(?:for|and|on|at|of|to|since|but|so|with|für|und|et|pour|y|para|e|per)\b)[^\W\d])"
_NO_YEAR = r"(?!(?:19|20)\d\d[ -](?:[^\W\d]|(?:19|20)\d\d))"
# "for the wifi", "of my bank"
_OF_WHAT = (
    r"(?: (?:for|of|to|at|on|für|fürs|vom|von|zum|zur|des|der|du|de|del|da|do|para|per|pour|van|voor|от)"
    r"(?: [^\W_]{1,20}+){1,3})?"
)
_IS = (
    r"(?: ?(?:[:=]{1,2}>?|->|→|是|为|為|は|는|은) ?|(?:['’]s| (?:is|was|are|were|ist|war|sind|lautet|heisst|est"
    r"|sont|es|son|e|sono|este|jest|ar|er|هي|is set to|[-–—]))[:=]? (?:still |now |jetzt )?)"
)
_CREDENTIAL_LIKE = (
    r"""["'`„“«(]?(?:(?=[^\s\d]{0,40}+\d)(?=\d{0,40}+[^\s\d.,;:!?)"'])[!-~\p{Latin}\p{Cyrillic}]{5}|\d{4,20}+(?!\w)"""
    r"""|[^\s@#$%^&*_+=~|]{1,30}+[@#$%^&*_+=~|][^\s]{2}|["'„“«][^"'“”»\n]{3,64}+["'”“»])"""
)
# One plain word that ends the sentence, unless it tells how the password is rather than what it is.
_LONE_WORD = (
    r"""["'`„“«]?(?!(?:weak|strong|(?:in)?secure|(?:un)?safe|long|short|old|new|unknown|lost|forgotten|required|expired"""
    r"|reset|changed|compromised|leaked|stolen|secret|private|hidden|complicated|simple|easy|hard|difficult|important"
    r"|temporary|wrong|correct|outdated|none|unique|random|default|it|that|this|what|not|(?:un)?sicher|schwach|stark"
    r"|lang|kurz|alt|neu|vergessen|geheim|abgelaufen|geändert|falsch|unbekannt|kompliziert|einfach|faible|fort|oublie"
    r"|expire|segur[ao]|débil|olvidada|nueva|inválido|cambiada|debole|sicura|zwak|sterk|vergeten|ongeldig|gewijzigd"
    r"|galt|(?:in)?valide?|incorrecte?|niepoprawne|changé)\b)"
    r"""[\p{Latin}\p{Cyrillic}\p{Greek}\p{Arabic}\p{Hebrew}-]{3,64}+["'`“”»]?(?:[.,;!?]|$)"""
)
_SAID = (
    phrases(
        rf"{_PASSWORDS}(?:{_OF_WHAT}{_IS}(?:{_CREDENTIAL_LIKE}|{_LONE_WORD})| (?:to|auf) {_CREDENTIAL_LIKE}"
        r"| (?=[^\s\d]{1,40}+\d)[!-~]{7}| \d{6,20}+(?!\w))"
    ),
    phrases(rf"{_API_KEY}{_OF_WHAT}(?:{_IS}| )(?=[^\s\d]{{0,40}}+\d)[!-~]{{8}}"),
    phrases(rf"{_PIN}{_OF_WHAT}(?:{_IS}{_NO_YEAR}\d(?:[ -]?\d){{3,7}}+{_NO_NOUN}| (?!19|20)\d{{4}})(?![\w-])"),
    phrases(  # "hunter2 is my password"
        r"(?<![^\s])(?=[^\s\d]{0,40}+\d)(?=\d{0,40}+[^\s\d])[!-~]{5,64}+ (?:is|as|ist|als|est|es) "
        r"(?:(?:my|the|his|her|their|a|mein|das|dein|sein|ihr|mon|le|mi|la) )?(?:[^\W_]{1,16}+ )?"
        rf"{_PASSWORDS}\W{{0,3}}$"
    ),
    phrases(
        rf"{_OPAQUE_LABEL}(?:{_OF_WHAT}[\"']?{_IS}| ){_OPAQUE}",
        rf"{_OPAQUE_LABEL}(?:{_OF_WHAT}{_IS}| ){_BASE32_IN_GROUPS}\b",
        rf"{_SPARE_CODES}{_OF_WHAT}(?:{_IS}| )(?:\w{{1,8}} )?{_SPARE_CODE}",
        rf"{_SOCIAL_SECURITY}{_OF_WHAT}(?:{_IS}|\W{{1,3}})(?:[a-z]{{0,2}}[ ./-]?\d){{8,15}}+(?!\d)",
    ),
    phrases(
        rf"\bpass ?[:=] ?{_MIXED}|\b(?:clave|chave){_OF_WHAT}{_IS}{_MIXED}",
        rf"{_ACCESS_CODE}{_OF_WHAT}{_IS}(?:{_MIXED}|{_SPARE_CODE})",
        rf"{_USER}\W{{1,3}}{_NAME_AND}\W{{1,3}}(?:and |und |et |y |e )?(?:pass|pw?)\W{{1,3}}{_MIXED}",
        rf"{_LOGIN}{_OF_WHAT}(?:{_IS}| )(?:{_NAME_AND} ?[:/|] ?)?{_MIXED}[^\s]{{0,64}}+\W{{0,3}}$",
        rf"{_LOGIN}{_OF_WHAT}{_IS}{_NAME_AND}:[^\s/]{{4,64}}+$",
        rf"{_USER}\W{{1,3}}{_NAME_AND}(?: / |:){_MIXED}",
    ),
    phrases(
        rf"{_SEED}(?: (?:phrase|words?|key))?\W{{1,3}}(?:\w{{1,10}}\W{{1,3}}){{0,3}}?"
        rf"(?:{_SEED_WORD}\W{{1,3}}(?:\d\d?\W{{1,3}})?){{11}}{_SEED_WORD}\b",
        rf"pass[ -]?phrase{_OF_WHAT}{_IS}[\"'“„«]?(?:{_PHRASE_WORD}[ -]){{2,11}}{_PHRASE_WORD}[\"'”“»]?(?:[.,;!?]|$)",
    ),
)
_PASSWORD_KEY, _PIN_KEY = phrases(rf"{_PASSWORDS}{_OF_WHAT}$"), phrases(rf"{_PIN}{_OF_WHAT}$")
_PIN_VALUE = regex.compile(r"\W{0,3}\d(?:[ -]?\d){3,7}\W{0,3}")
_HOW_IT_IS = phrases(
    rf"(?!{_LONE_WORD})[^\W\d]{{1,64}}+\W{{0,3}}$",
    r"(?:written|stored|saved|kept|hidden|noted|printed) (?:down|in|on|at|by|with|under)\b",
)
_PROSE_WORDS = 5
_PLACE = (
    "(?:on|in|at|under|behind|inside|with|by|from|auf|im|am|unter|bei|beim|sur|dans|sous|chez|en|sobre|con|sul|nel"
    "|sotto)"
)
_HIS = "(?:the|an?|my|our|his|her|their|de[mnr]|eine[mr]?|meine[mr]?|l[aeo]s?|une?|mon|ma|el|il)"
# Where it is or whom to ask. Sets of signs that nobody types passwords in say something too.
_SENTENCE = phrases(
    rf"(?:{_PLACE}|written|stored|saved|kept|hidden|taped|printed|noted|shared|same|ask(?:s|ed)?|see|changed|reset"
    r"|expire[sd]|rotated|updated|lost|forgot|he|she|they|not|none|never|steht"
    r"|klebt|liegt|hängt|wie|frag|siehe|gespeichert|notiert|écrit|noté|voir|demande[rz]?|même|le même|escrit[oa]"
    r"|apuntad[oa]|anotad[oa]|guardad[oa]|igual|la misma|scritt[oa]|salvat[oa]|attaccat[oa]|come|stess[ao]|chiedi"
    r"|лежит|записан) .",
    rf".{{1,60}}? {_PLACE} {_HIS} ",
    r"(?=[^\W_])[^\d\p{Latin}\p{Cyrillic}\p{Greek}\p{Arabic}\p{Hebrew}]{1,200}+$",
)
_KEY_JOINT = regex.compile(r"[\s_./-]++|(?<=\p{Ll})(?=\p{Lu})")


def _says_secret(key: str, value: str) -> bool:
    """Whether a password, a PIN or a token is called so, by the key or in a sentence."""
    label, said = _KEY_JOINT.sub(" ", key).casefold().strip(), value.casefold()
    if _PASSWORD_KEY.search(label) and not _is_about_password(label, said):
        return True
    if _PIN_KEY.search(label) and _PIN_VALUE.fullmatch(said):
        return True
    return any(pattern.search(f"{label}: {said}") for pattern in _SAID)


def _is_about_password(label: str, said: str) -> bool:
    """Whether the value of a key that names a password tells something about it: a sentence, "forgotten", nothing."""
    if not said or _HOW_IT_IS.match(said):
        return True
    is_sentence = len(said.split()) >= _PROSE_WORDS or bool(_SENTENCE.match(said))
    return is_sentence and "phrase" not in label and not any(map(str.isdigit, said))


_BASIC = regex.compile(r"\b[Bb]asic ([A-Za-z0-9+/]{8,400}+={0,2})")


def _is_basic_login(encoded: str) -> bool:
    """Whether it is what HTTP sends for "name:password"."""
    try:
        name, colon, password = base64.b64decode(encoded).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return bool(colon and password) and (name + password).isprintable()


# --- payment data

_NUMBER = regex.compile(r"(?<![\d+])\d++(?![A-Za-z])(?:(?:[\s._/·–—-]{1,2}+|,)\d++(?![A-Za-z]))*+")
# "0.4221165755827173": the digits behind a point are not a number of their own.
_DECIMAL = regex.compile(r"(?<!\d)(?:(?<!\d\.)\d++\.\d++(?!\.\d)|(?<!\d,)\d{1,3}+,\d{6,}+(?!,\d))")
_CARD = regex.compile(
    r"4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}"  # Visa, Mastercard
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}(?:\d{2})?|35(?:2[89]|[3-8]\d)\d{12}"  # American Express, Diners, JCB
    r"|6(?:011|4[4-9]\d|5\d\d)\d{12}(?:\d{3})?|62\d{14,17}|(?:60|8[12])\d{14}"  # Discover, UnionPay, RuPay
    r"|(?:50[123]8|5020|5893|6304|6759|676[1-3])\d{9,15}|220[0-4]\d{12,15}|9792\d{12}"  # Maestro, Mir, Troy
)
_LONGEST_CARD = 19
# Where the groups on a card end, but for the last one.
_PRINTED = ({4, 8, 12}, {4, 10})
_IBAN = regex.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}[ ._/·-]?\d\d(?:[ ._/·-]?[A-Za-z0-9]){11,30}+")
_CARD_CODE = phrases(
    r"(?:\bcv[vc]2?(?:[ -]?(?:code|number|nummer))?|\bsecurity code|prüfnummer|kartenprüfziffer|sicherheitscode"
    r"|code de sécurité|cryptogramme(?: visuel)?|código de (?:seguridad|segurança)|codice di sicurezza|beveiligingscode"
    r"|код безопасности|セキュリティコード|安全码|보안 ?코드|सुरक्षा कोड)"
    rf"(?:(?: (?:is|ist|lautet|est|es|e))?\W{{1,3}}|[は是]\W{{0,3}}){_NO_YEAR}\d{{3,4}}(?!\w)"
)


def _has_payment_data(text: str) -> bool:
    return (
        any(map(luhn.is_valid, _card_numbers(_DECIMAL.sub(";", text))))
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
    """Groups of one size, the last perhaps shorter; or those of a print, whole or in pieces of two digits at least."""
    ends = set(accumulate(sizes[:-1]))
    in_pieces = min(sizes) > 1 and any(print_ <= ends for print_ in _PRINTED)
    return in_pieces or (set(sizes[:-1]) <= {sizes[0]} and sizes[-1] <= sizes[0])


def _begins_with_iban(text: str) -> bool:
    """Whether the first groups are an IBAN of its country's length: other words may follow."""
    return any(iban.is_valid(start, check_country=False) for start in accumulate(regex.split("[ ._/·-]", text)))


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
