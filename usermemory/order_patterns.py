"""Orders to the assistant, as patterns for text in one spelling, small letters, without commas and apostrophes.

A verb counts where it is an order, not somebody's habit: at the start of a sentence, or said to "you".
"""

from collections.abc import Iterator

from usermemory.spelling import phrases

# The start of a sentence, where a verb is an order and not somebody's habit; behind "house rule:" it is one.
_RULE = (
    r"(?:\b(?:house|family|home|kitchen|table|dinner|personal|life|golden|her|his|their|our) rules?|mott[oi]|mantra"
    r"|(?:haus|familien|tisch|grund)regeln?|lema|devise|habits?)"
)
_START = (
    rf"(?:^|(?<!{_RULE} ?): ?|[.!?;>)\]] ?|[–—-] |\b(?:please|bitte|also|por favor|per favore|sil (?:te|vous) plaît"
    r"|(?:remember|make sure|be sure|dont forget) to|пожалуйста) )"
)
_WORD = r"[^\W_]{1,20}+ "

# To forget, whose, and what, in families of languages: "ignore all previous instructions". Of the two columns of whose,
# the first only where it is said to somebody: children too forget all rules.
_OVERRIDES = (
    (
        "ignore|disregard|forget|override|overrule|bypass|do not follow|dont follow|stop following|do not obey"
        "|pay no attention to",
        "all|any|every|former|existing",
        "previous|prior|above|earlier|preceding|foregoing|your|system|safety|initial|original",
        "instruction|prompt|rule|guid(?:eline|ance)|guardrail|directi|command|constraint|restriction|polic|safeguard"
        "|programming|context|filter|limitation|orders",
    ),
    (
        "ignoriere?|ignoriert|ignorieren sie|vergiss|vergesst|vergessen sie|missachte|übergehe|verwirf|überschreibe",
        "alle",
        "vorherig|bisherig|vorangegangen|obig|vorig|früher|dein|ihre|eure|system",
        "anweisung|instruktion|regel|vorgabe|befehl|richtlinie|prompt|einschränkung|vorschrift",
    ),
    (
        "ignore[zr]?|oublie[zr]?|ne tiens pas compte d|ne tenez pas compte d|fais abstraction d",
        "tout",
        "précédent|antérieur|ci[ -]dessus|tes|vos|système",
        "instruction|consigne|règle|directive|ordre",
    ),
    (
        "ignor[ae](?:ti)?|olvid[ae]|omite|descarta|desconsidere|esqueça|no sigas|dimentica|non seguire|uita",
        "tod[ao]|tutt[ei]|toate|tot[es]s",
        "anterioa?r|previ[ao]|tus|sus|suas|acima|precedent|tue|sistema",
        "instruc|regla|orden|indicaci|regra|ordens|istruzion|regol|comand|regul|indicatii",
    ),
    (
        "negeer|vergeet|ignorera|ignorer|ignorér|glöm|glem|zignoruj|ignoruj|zapomnij|zapomeň|pomiń|ignoriraj|zanemari|ohita|unohda",
        "alle|wszystkie|všechny|všetky|sve|kaikki",
        "eerder|vorige|bovenstaande|je|jouw|tidigare|tidligere|föregående|poprzedni|wcześniejsz|předchozí|predchádz"
        "|predošl|prethodn|aiemmat|edelliset",
        "instructie|regel|opdracht|instruktion|instruks|instrukcj|poleceni|zasad|pokyn|uput|naredb|ohjee?t|säännöt",
    ),
    (
        "(?:про)?игнорируй(?:те)?|забудь(?:те)?|ігноруй(?:те)?|игнорирай(?:те)?|abaikan|lupakan|bỏ qua|quên",
        "вс[еі]|усі|всички|semua|tất cả|mọi",
        "предыдущ|прежн|попередн|предишн|тво|ваш|системн|sebelumnya|trước",
        "инструкц|указани|правил|команд|інструкц|instruksi|arahan|aturan|perintah|hướng dẫn|chỉ dẫn|lệnh",
    ),
    (
        "αγνόησε|αγνοήστε|αγνόησέ|ξέχνα|ξεχάστε|παράκαμψε",
        "όλ",
        "προηγούμεν|παραπάνω|σου|σας",
        "οδηγί|εντολ|κανόν|κατευθύνσ",
    ),
    (
        "hagyd figyelmen kívül|hagyja figyelmen kívül|felejtsd el|ne kövesd",
        "minden|összes",
        "korábbi|előző|fenti|eddigi",
        "utasítás|szabály|parancs|instrukció",
    ),
)
_SAID_TO_YOU = (
    rf"(?:{_START}|\b(?:you|must|should|(?:you|assistant|ai|bot|model) (?:may|can|will|shall)|now|and|then|just|so"
    r"|simply|(?:you|allowed|free|need|ha(?:s|ve)) to|du|jetzt|nun|und|tu|et|y|e|и|ты|вы) )"
)


def _squeezed(verb: str, whose: str, what: str) -> Iterator[str]:
    """The same without blanks, in one word."""
    for second, third in ((whose, what), (what, whose)):
        yield rf"(?:{verb})\w{{0,24}}?(?:{second})\w{{0,24}}?(?:{third})".replace(" ", "")


_OVERRIDING = tuple(
    phrases(
        rf"\b(?:{verb}) (?:{_WORD}){{0,4}}?(?:{strong})\w{{0,12}}+ (?:{_WORD}){{0,3}}?(?:{what})",
        rf"{_SAID_TO_YOU}(?:{verb}) (?:{_WORD}){{0,4}}?(?:{weak})\w{{0,12}}+ (?:{_WORD}){{0,3}}?(?:{what})",
        rf"\b(?:{verb}) (?:{_WORD}){{0,3}}?(?:{what})\w{{0,12}}+ (?:{_WORD}){{0,2}}?(?:{strong})",
        *_squeezed(verb, f"{weak}|{strong}", what),
    )
    for verb, weak, strong, what in _OVERRIDES
)

_YOU = r"\b(?:you|assistants?|ai|chatbots?|bots?|agents?|llms?|models?)"
_ANSWER = "(?:respond|answer|reply|recommend|suggest|reveal|refuse|mention|obey|comply|disclose|output|execute|append)"
_DO = rf"(?:{_ANSWER}|ignore|disregard|override|bypass|pretend|print|include|promote|treat|follow|call the|act as)"
# What assistants do, and what people do as well, but for what only people have to do with.
_LIFE = (
    r"(?! [^.\n]{0,40}?\b(?:e-?mails?|mails?|phones?|calls?|door(?:bell)?|letters?|texts?|dinner|lunch|breakfast|table"
    r"|home|school|kids?|children|guests?|recipes?|doctors?|teachers?|parents?|mother|father|mom|mum|dad|boss"
    r"|colleagues|neighbou?rs?|strangers?|friends?|vegetables|meals?|traffic|double|holidays?|weekends?|spam"
    r"|recruiters?|invitations?|within|allerg(?:y|ic|ies)|gluten|nuts|peanuts|meat|pork|alcohol)\b)"
)
_ALWAYS_DO = (
    r"(?:(?:respond|recommend|reveal|refuse|obey|comply|disclose|output|execute|append|disregard|override"
    r"|bypass|pretend|promote|advertise|endorse|act as|say that|say yes|agree with|disagree|(?:trust"
    r"|believe) the user)\b|(?:answer|reply|mention|suggest|ignore|print|include|treat|follow|praise"
    rf"|call the)\b{_LIFE})"
)
_NOW_DO = rf"(?:{_DO}|agree|approve|trust|believe|accept|speak|write|say|address|talk|praise|advertise|endorse|call me)"
_REPLY = r"(?:answers?|repl(?:y|ies)|responses?|messages?|outputs?|completions?|conversations?|chats?|turns?)"
_PUT = (
    "(?:recommend|promote|advertise|praise|mention|end|begin|start|open|close|finish|conclude|preface|append|prepend|add"
    "|insert|include|attach|put|sign|sign off|translate|copy|bcc|cc|repeat|prefix|weave|slip|plug|link|cite)"
)
_EACH_REPLY = rf"(?:every|each|all|any|your) (?:of )?(?!my\b)(?:{_WORD}){{0,2}}?{_REPLY}\b"
_ASKED = (
    r"\b(?:if|when(?:ever)?|(?:every|each|any) ?time|as soon as|in case) "
    r"(?:(?:the )?user|(?:(?:you are|youre|you get) )?asked|you (?:answer|reply|respond|recommend)|(?:recommending"
    r"|answering|replying|responding)|(?:some|any)(?:one|body) asks|people ask|prompted)\b"
)
_PICK = (
    r"(?<!\b(?:to|(?:s?he|i|we|they)d|(?:s?he|i|we|they)ll|would|could|can|will|he|she|they|i|we|who|what|which"
    r"|friends|kids|people) )"
    r"(?:choose|pick|name|prefer|give|list|offer|direct|push|insist|claim|decline|deny|link|say|tell|praise|steer)"
)
_SAFETY = (
    r"(?:(?:safety|content|security|ethical|moderation)[ -]?(?:filter|rule|check|guideline|polic|measure|setting|limit"
    r"|restriction|guard|protocol|feature)(?:s|y|ies)?|content moderation|guardrails?|safeguards?)"
)
_ADMIN = r"(?:admin\w{0,10}|root|sudo|superuser|developer|elevated|unrestricted|unlimited)"
_CHATS = (
    r"(?:chats?|conversations?|messages|history|transcripts?|logs?|memor(?:y|ies)|facts|(?:user|personal|private) data"
    r"|prompts?|answers|replies|responses|everything)"
)
_IN_ENGLISH = (
    phrases(
        r"\b(?:ignore|disregard|forget) (?:everything|anything|all|what(?:ever)?) "
        r"(?:(?:you|i|we|was|were|is|have|been|that|stated|written) ){0,4}(?:above|before|told|said|know|learned)\b",
        r"\bdo anything now\b",
        r"\b(?:skip|bypass|disable) (?:all |any |the )?(?:confirmation|approval|safety|guardrail|verification)",
        rf"{_SAID_TO_YOU}(?:skip|bypass|omit) (?:all |any |the )?(?:{_WORD})?(?:checks?|validation|authori[sz]ation"
        r"|permissions?|warnings?|disclaimers?)\b",
        rf"\b(?:do not|dont|never|no longer|stop|without) (?:{_WORD}){{0,2}}?(?:apply|use|follow|enforce|obey|respect"
        rf"|run|perform|observe|honou?r|applying|using|following|enforcing) (?:{_WORD}){{0,3}}?{_SAFETY}",
        rf"{_SAID_TO_YOU}(?:disable|deactivate|remove|lift|turn off|switch off|drop) (?:{_WORD}){{0,3}}?{_SAFETY}",
        rf"{_SAFETY} (?:(?:is|are|was|were|ha(?:s|ve) been) )?(?:(?:now|all|hereby|currently) )?(?:disabled"
        r"|deactivated|off|lifted|suspended|removed|void|waived|no longer|turned off|switched off|do not apply"
        r"|dont apply)\b",
        rf"\bno {_SAFETY} (?:apply|are|is|exist)\b",
        rf"{_START}(?:drop|discard|abandon|lift|remove|break|violate) (?:all|any|your|every"
        rf"|the) (?:{_WORD})?(?:restriction|rule|guideline|guardrail|limitation|safeguard|filter)",
        r"\b(?:allowed|authori[sz]ed|permitted|entitled) to (?:bypass|override|ignore|skip|disable) (?:all |any |the )?"
        r"(?:checks?|rules?|safety|security|confirmation|approval)",
    ),
    phrases(
        rf"{_START}(?:always|never|do not|dont) {_ALWAYS_DO}",
        rf"{_START}(?:only )?{_ANSWER} (?:only|always|exclusively|every|to (?:every\w{{0,5}}|all|the user)"
        rf"|from now){_LIFE}",
        rf"{_START}(?:only )?{_ANSWER} (?:with|as)\b(?! (?:an? )?(?:short|brief|concise|bullet|simple|plain|few|one"
        r"|detail|example|source|code|emoji|humou?r|number|list|table|step|kind|warm|respect|honest))",
        rf"{_START}(?:speak|write|talk) (?:only|exclusively)\b{_LIFE}",
        r"\b(?:from now on(?:wards?)?|from this point (?:on|forward)|henceforth|in (?:every|all) future \w{4,14}) "
        rf"(?:you|every (?:reply|response)|all (?:replies|responses)|your|act|(?:(?:always|never|only) )?{_NOW_DO})\b",
    ),
    phrases(
        rf"{_START}(?:always |never )?{_PUT} (?:[^\s.]{{1,40}}+ ){{0,8}}?{_EACH_REPLY}",
        rf"\b(?:in|into|to|at the (?:end|start|beginning|top|bottom) of) {_EACH_REPLY} (?:{_PUT}|say|write|use)\b",
        rf"\b{_EACH_REPLY} (?:must|should|shall|will|ha(?:s|ve) to|needs? to|(?:is|are) to) (?!be\b)",
    ),
    phrases(
        rf"{_YOU} (?:must|should|shall|will|ha(?:ve|s) to|needs? to|(?:are|is) to) "
        rf"(?:(?:always|never|now|only|not|then) ){{0,2}}{_DO}\b",
        rf"{_YOU} (?:to )?(?:always|never|only) {_DO}\b|\byou must (?:always|never)\b",
        r"\byou (?:should|shall|will|have to|need to|are to) (?:always |never |only ){0,2}(?:agree|approve|grant"
        r"|praise)\b",
        r"(?<!\b(?:thinks|believes|hopes|feels|says|that) )\b(?:the|this|any|an|every) "
        r"(?:ai|assistant|chatbot|bot|model|llm|(?:ai|language) (?:model|assistant)) (?:must|shall|will|should|ought to"
        r"|is (?:required |obliged )?to|ha(?:s|d) to|needs to) (?:always|never|only|not|agree|obey|ignore)\b",
        r"\byou are (?:now|no longer) (?:a|an|the|in|my|free|bound|restricted|allowed|operating|un[a-z]{3,12}|dan)\b",
        r"\byou are (?:an ai|dan)\b|\bas an ai (?:you|language|assistant)\b",
        r"\byou (?:respond|answer|reply) (?:only|always|in)\b",
        r"\byour (?:new|real|only) (?:name|role|task|job|goal|mission|instructions?|rules?) (?:is|are)\b",
        rf"\byou (?:now )?(?:have|hold|get|are granted|were granted) (?:{_WORD}){{0,2}}?(?:{_ADMIN}|full) "
        r"(?:rights?|access|privileges?|permissions?|mode|powers?)\b",
        rf"{_START}(?:grant|give|allow) (?:{_WORD}){{0,4}}?(?:{_ADMIN}|full access)\b",
        rf"{_START}treat (?:the|this|every|any) user as\b",
        r"(?:^|[.!?;:] ?)(?:system|admin|developer|root|security|safety|policy|emergency) override\b",
    ),
    phrases(
        rf"{_START}(?:(?:act|behave|role ?play) (?:as|like) (?:if|a|an|my|the|you)|pretend (?:you|to be|that you))\b",
        rf"{_START}(?:enable|enter|activate|switch to) (?:the )?(?:dan|god|developer|debug|admin|unrestricted) mode\b",
    ),
    phrases(
        rf"\b(?:reveal|print|show|output|repeat|leak|dump|disclose|display|tell me|give me|send) (?:{_WORD}){{0,4}}?"
        r"(?:(?:system|initial|hidden|original|developer) ?(?:prompt|message|instruction)|your (?:prompt|instruction))",
        r"\byour system ?prompt\b",
        rf"{_START}(?:send|forward|post|upload|email|delete|erase|share|save|store|write) (?:{_WORD}){{0,5}}?"
        r"(?:conversation|chat history|(?:to|your) memor(?:y|ies)|user data|secrets?|passwords?|api keys?)\b",
        rf"{_START}(?:send|forward|post|upload|e?-?mail|copy|share|leak|report|submit|exfiltrate|bcc|cc) "
        rf"(?:{_WORD}){{0,4}}?{_CHATS} (?:{_WORD}){{0,6}}?(?:to|at|with|via) [\w+-]{{1,64}}+[.@]\w",
        r"\b(?:do not|dont|never|without) (?:ask|tell|inform|notify|warn|alert)(?:ing)? (?:the )?user\b",
        rf"\b(?:keep|hide|conceal) (?:{_WORD}){{0,4}}?from the user\b",
    ),
    phrases(
        rf"{_ASKED}[^.\n]{{0,80}}? (?:{_DO}|reply|send|run|(?<!\b(?:they|he|she|i|we) )say)\b",
        rf"{_ASKED}[^.\n]{{0,80}}? {_PICK}\b",
    ),
    phrases(
        rf"{_START}(?:call|invoke|run|execute|use(?! (?:an?|my|his|her)\b)) (?:[\w-]{{1,40}}+ ){{0,4}}?"
        r"(?:tool|function|plugin|command)\b",
        r"\b(?:note|message|instructions?|reminder|hint|attention|dear|hey) (?:to |for )?(?:the |all )?"
        r"(?:assistant|ai|model|llm|chatbot|chatgpt|language model)s?\b",
        r"\b(?:new|updated|actual|following|hidden|important|neue|nouvelles?|nuevas?|nuove|новые) "
        r"(?:instructions?|prompt|directives?|role|persona|anweisung(?:en)?|instrucciones|istruzioni|инструкции) ?:",
    ),
)
_GERMAN = phrases(
    r"\b(?:ab (?:jetzt|sofort|heute)|von (?:jetzt|nun) an|künftig|fortan) (?:jede antwort|ignorier"
    r"|(?:du|bist|musst|sollst|wirst|antworte|sprich|empfiehl|schreib|tu so)\b"
    rf"|(?:immer|nur|stets|nie) (?:{_WORD}){{0,4}}?(?:antwort|empfehl|empfiehl|schreib|sprech|sprich|erwähn|sag|lob))",
    r"\b(?:du (?:musst|sollst|darfst|wirst)|(?:der assistent|die ki|der (?:chat)?bot|das (?:sprach)?modell) (?:muss"
    r"|soll|sollte|darf|hat)) (?:dem (?:be)?nutzer )?(?:immer|nie(?:mals)?|nur|stets|keine|jede)\b",
    r"\bdu bist (?:jetzt|nun|ab (?:jetzt|sofort)) (?:ein|kein|der|im)|\bvergiss alles\b",
    rf"{_START}(?:antworte(?:n sie)?|erwähne|verrate|empfiehl) (?:ab|immer|nie(?:mals)?|nur|stets|jede)\b",
    rf"{_START}(?:tu so als|verhalte dich|gib dich als)\b",
    rf"{_START}(?:beende|beginne|starte|schliesse|füge|hänge|setze|empfiehl|erwähne|nenne|bewirb|lobe|schreibe?) "
    rf"(?:{_WORD}){{0,6}}?(?:jede[rmns]?|alle[nr]?) (?:{_WORD}){{0,2}}?(?:antwort|nachricht|ausgabe)",
    rf"\b(?:in|an|zu) (?:jeder?|allen?) antwort(?:en)? (?:{_WORD}){{0,4}}?(?:empfiehl|empfehl|erwähn|füge|musst"
    r"|sollst)",
    rf"\b(?:wenn|falls) (?:der (?:be)?nutzer|(?:du )?(?:{_WORD}){{0,5}}?gefragt|jemand) [^.\n]{{0,80}}?"
    r"\b(?:empfiehl|antworte|sag|nenne|wähle?|nimm|erwähne|schlage?)\b",
    rf"\b(?:gib|zeig|nenne|verrate) (?:{_WORD}){{0,3}}?(?:system ?prompt|deine (?:anweisung|instruktion|regel))",
    rf"\b(?:wende|nutze|beachte|befolge) (?:{_WORD}){{0,2}}?(?:keine?|nicht) (?:{_WORD}){{0,2}}?sicherheits",
    r"\bsicherheits(?:filter|regel|prüfung|richtlinie|vorgabe)n? (?:sind|ist|wurden?) (?:jetzt |alle )?"
    r"(?:deaktiviert|aus|aufgehoben|abgeschaltet|ausser)",
    rf"{_START}(?:sende|schicke?|leite|übermittle|maile) (?:{_WORD}){{0,4}}?(?:chats?|gespräche?|nachrichten"
    rf"|unterhaltung(?:en)?|daten|verlauf) (?:{_WORD}){{0,3}}?an [\w.+-]{{1,64}}+@",
    r"\bdu hast (?:jetzt |volle )?(?:admin|root|vollzugriff)|\büberspringe? (?:alle )?(?:prüfung|bestätigung"
    r"|sicherheit)",
)
# French, Spanish, Italian, Portuguese, Romanian, Dutch. Apostrophes are gone: "lassistant", "napplique".
_ROMANCE = (
    phrases(
        r"\b(?:à partir de maintenant|désormais|dorénavant|(?:a partir de|desde) (?:ahora|agora)|(?:d ?|da )ora in poi"
        r"|vanaf nu) (?:tu|vous|réponds|répondez|responde|debes|eres|ignora|devi|sei|rispondi|responda|você|ben je"
        r"|moet je|antwoord)\b",
        r"\b(?:tu dois|vous devez|debes|tienes que|devi|você deve|je moet|u moet) (?:toujours|jamais|ignorer|répondre"
        r"|siempre|nunca|ignorar|responder|sempre|mai|ignorare|rispondere|altijd|nooit|negeren)\b",
        rf"{_START}(?:ne )?(?:réponds|répondez|mentionnez?|responda|rispondi|antwoord) "
        r"(?:toujours|jamais|uniquement|seulement|sempre|só|solo|apenas|altijd|alleen)\b",
        rf"{_START}(?:responde (?:siempre|solo|nunca) (?:en|con|que)|(?:siempre|solo|nunca) (?:respondas"
        r"|responde (?:en|con|que)))\b",
    ),
    phrases(
        rf"{_START}(?:termine[zr]?|finis(?:sez)?|commence[zr]?|débute[zr]?|ajoute[zr]?|recommande[zr]?|conclus?"
        r"|mentionne[zr]?|insère[zr]?|inclus|conseille[zr]?|termina|acaba|empieza|comienza|añade|agrega|recomienda"
        r"|menciona|incluye|inserta|concludi|inizia|comincia|aggiungi|consiglia|raccomanda|menziona|includi|inserisci"
        r"|chiudi|comece|inicie|adicione|acrescente|recomende|mencione|inclua|conclua|începe|încheie|adaugă|recomandă"
        r"|begin|eindig|beëindig|voeg|raad) "
        rf"(?:{_WORD}){{0,6}}?(?:chaque|cada|ogni|tou(?:te)?s (?:les|tes|vos)|tod[ao]s (?:l[ao]s|[ao]s|tus|[st]uas)"
        rf"|tutte le|fiecare|elke?|ieder) (?:{_WORD})?(?:réponse|respuesta|rispost[ae]|resposta|răspuns|antwoord)",
        r"\b(?:si on te demande|si lutilisateur|si quelquun demande|si te (?:preguntan|piden)|si el usuario"
        r"|si alguien pregunta|se ti (?:chiedono|viene chiesto)|se lutente|se (?:te )?perguntarem|se o (?:usuário"
        r"|utilizador)|als (?:de gebruiker|je (?:gevraagd )?wordt)) [^.\n]{0,80}?\b(?:choisis|recommande|réponds"
        r"|dis|propose|conseille|elige|recomienda|responde|di|escoge|scegli|consiglia|raccomanda|rispondi|escolha"
        r"|recomende|responda|diga|kies|antwoord|zeg|raad)\b",
        r"\b(?:lia|lassistant|le (?:chat)?bot|la ia|el asistente|lassistente|a ia|o assistente|de ai|de assistent"
        r"|le modèle|el modelo|il modello) (?:doit|debe|deve|moet|tiene que|devrait|debería|dovrebbe"
        r"|deveria) (?:toujours|jamais|siempre|nunca|sempre|mai|altijd|nooit)\b",
        r"\b(?:napplique[zr]?|ne respecte[zr]?|no apliques?|no sigas|no respetes|non applicare|non seguire"
        r"|não aplique|não siga)"
        rf" (?:{_WORD}){{0,3}}?(?:filtr|règle|regla|regol|regra|limit|contr)\w{{0,10}}+ d[ei] (?:sécurité|seguridad"
        r"|sicurezza|segurança)",
        r"\b(?:filtr|règle|regla|regol|regra)\w{0,4}+ d[ei] (?:sécurité|seguridad|sicurezza|segurança) "
        r"(?:sont|están|sono|estão|ont été|han sido) (?:dés|des|sus|disa|sosp|levé|elimin|rimoss|annul)",
        rf"{_START}(?:envoie[zr]?|transmets|transfère|envía|manda|reenvía|invia|inoltra|envie|encaminhe"
        rf"|stuur) (?:{_WORD}){{0,3}}?"
        rf"(?:chats?|conversa\w{{0,9}}|messages|mensajes|messaggi|mensagens|gesprek\w{{0,4}}|historique|historial) "
        rf"(?:{_WORD}){{0,4}}?(?:à|a|para|al|naar) [\w.+-]{{1,64}}+@",
        r"\b(?:tu as|vous avez|tienes|hai|você tem|je hebt) (?:maintenant |ahora )?(?:les |des |i |los )?(?:droits?"
        r"|derechos|permisos|diritti|permessi|direitos|permissões|accès|acceso"
        r"|accesso) (?:d[aei]l? ?)?(?:d?a[dm]{1,2}ini|root|total)",
    ),
)
_SLAVIC_TURKISH = phrases(
    r"\b(?:всегда|никогда не|только) (?:отвечай|рекомендуй|говори|упоминай)|\bс этого момента (?:ты|вы|отвечай)",
    r"\b(?:ты|вы|ассистент|помощник|ии|бот|модель) долж(?:ен|на|ны) (?:всегда|никогда)",
    rf"\b(?:заканчивай|завершай|начинай|добавляй|рекомендуй|упоминай|советуй)(?:те)? (?:{_WORD}){{0,6}}?"
    rf"(?:кажд|все)\w{{0,4}} (?:{_WORD})?(?:ответ|сообщени)",
    r"\bесли (?:тебя |вас |пользователь )?(?:спро|спраш)[^.\n]{0,80}?\b(?:выбери|посоветуй|рекомендуй|отвечай|скажи"
    r"|назови)",
    r"\bне применяй(?:те)? (?:\w{1,15}+ ){0,2}?фильтр|\b(?:правила|фильтры) безопасности (?:отключены|сняты|отменены"
    r"|не)",
    rf"\b(?:отправляй|отправь|пересылай|перешли)(?:те)? (?:{_WORD}){{0,4}}?(?:чат|сообщени|переписк|разговор)",
    r"\b(?:у тебя|у вас) (?:есть |теперь )?(?:полные )?права? (?:админ|root)",
    r"\bzawsze odpowiadaj|\bod teraz (?:jesteś|odpowiadaj|musisz)",
    r"\b(?:kończ|zaczynaj|dodawaj|polecaj|zakończ) (?:\w{1,15}+ ){0,6}?każd\w{1,3} (?:odpow|wiadom)",
    r"\b(?:önceki|tüm) (?:\w{1,12}+ ){0,2}(?:talimat|kural|komut)\w{0,8}+ (?:yok say|unut|görmezden|dikkate alma)",
    r"\bher (?:cevab|cevap|yanıt)\w{0,5} (?:\w{1,15}+ ){0,5}?(?:bitir|başla|ekle|öner)",
)
_OF_ASIA_AND_AFRICA = phrases(
    r"(?:忽略|无视|無視|忘记|忘記|不要遵守)[^。\n]{0,12}?(?:指令|指示|提示|规则|規則|说明)",
    r"从现在(?:开始|起)[^。\n]{0,3}(?:你|必须|总是)|你(?:必须(?:总是|始终)|现在是|(?:拥?有|具有|获得)了?管理员)",
    r"(?:每(?:一?个|一?次|一?条)?|所有)的?(?:回答|回复|回覆|答案|消息|答复)[^。\n]{0,12}?(?:推荐|加上|添加|结尾|开头"
    r"|提到|写|附上|必须|都要)",
    r"(?:如果|当|若)[^。\n]{0,8}?(?:问|询问|要求)[^。\n]{0,16}?(?:推荐|回答|选择|说)|(?:ai|助手|模型|机器人)(?:必须"
    r"|应该?|要)(?:总是|始终|永远|一直)",
    r"安全(?:过滤|规则|限制|检查)[^。\n]{0,8}?(?:关闭|禁用|停用|取消|失效|解除)|不要?(?:应用|使用"
    r"|遵守)[^。\n]{0,4}?安全",
    r"(?:聊天|对话|消息)[^。\n]{0,8}?发送?[到给至] ?[a-z0-9]",
    r"(?:指示|命令|ルール|プロンプト)[^。\n]{0,8}?(?:無視し|忘れ)|これからは[^。\n]{0,10}?(?:答え|回答)",
    r"(?:(?:すべて|全て|全部|毎回|各|あらゆる)の?|毎回)(?:回答|返答|返信|応答|メッセージ|答え)[^。\n]{0,24}?"
    r"(?:付け|つけ|加え|追加|始め|終え|終わ|勧め|すすめ|推薦|入れ|締め)",
    r"(?:聞かれ|尋ねられ|質問され|頼まれ)たら[^。\n]{0,24}?(?:勧めて|すすめて|選んで|答えて|言って|推薦)",
    r"(?:ai|アシスタント|モデル|ボット)は[^。\n]{0,4}?(?:常に|必ず|いつも|決して)[^。\n]{0,24}?(?:べき|なければ|こと"
    r"|ください)",
    r"安全(?:フィルター?|規則|ルール|チェック)[^。\n]{0,4}?(?:無効|適用し|使わ|解除)|あなた(?:は"
    r"|には)[^。\n]{0,2}管理者",
    r"(?:チャット|会話|メッセージ|履歴)を ?[a-z0-9][^。\n]{0,60}?(?:に|へ|宛てに) ?(?:送|転送)",
    r"(?:システムプロンプト|系统提示|시스템 ?프롬프트)[^。.\n]{0,8}?(?:表示|見せ|出力|显示|输出|보여|출력)",
    r"(?:지시|명령|규칙|프롬프트)[^.\n]{0,16}?(?:무시|잊)|(?:모든|매) ?(?:답변|응답|대답|메시지)[^.\n]{0,16}?(?:추가"
    r"|추천|끝내|시작|붙여|넣)",
    r"(?:تجاهل|انس) (?:\w{1,15}+ ){0,3}?(?:التعليمات|الأوامر|القواعد|تعليمات)",
    r"\b(?:أضف|أنه|ابدأ|اختم|أوص|أوصي) (?:\w{1,15}+ ){0,4}?\w?(?:كل|جميع) (?:رد|إجاب|جواب|رسال|الردود|الإجابات)",
    r"(?:دستور|قوانین|قواعد)\w{0,8}+ (?:\w{1,12}+ ){0,4}?(?:نادیده|فراموش)|ہدایات (?:\w{1,12}+ ){0,3}?نظر ?انداز",
    r"התעלם (?:\w{1,15}+ ){0,3}?(?:מההוראות|הוראות|ההוראות)",
    r"(?:निर्देश|नियम|আদেশ|নির্দেশ)[^।\n]{0,20}?(?:अनदेखा|नज़रअंदाज़|भूल|উপেক্ষা)",
    r"(?:हर|प्रत्येक|सभी) (?:एक )?(?:जवाब|उत्तर|संदेश)[^।\n]{0,40}?(?:सिफारिश|सुझा|जोड़|लिख|शुरू|खत्म|समाप्त|बता)",
    r"(?:अगर|यदि|जब) [^।\n]{0,40}?पूछ[^।\n]{0,40}?(?:बताओ|बताना|बताएं|चुन|सुझा|कहो|कहना)",
    r"(?:\bai|एआई|सहायक)(?: को)? (?:हमेशा|कभी)[^।\n]{0,40}?चाहिए|सुरक्षा (?:नियम|फ़िल्टर|जांच)[^।\n]{0,20}?(?:बंद|अक्षम|न करें"
    r"|मत|हटा)",
    r"(?:सभी|सारी|सारे) (?:चैट|बातचीत|संदेश)[^।\n]{0,40}?@[^।\n]{0,40}?भेज|(?:आपके|तुम्हारे) पास (?:एडमिन|प्रशासक|व्यवस्थापक)",
    r"(?:เพิกเฉย|ละเลย|ลืม|ไม่ต้องสนใจ)[^\n]{0,12}?(?:คำสั่ง|กฎ)|(?:puuza|sahau) (?:maagizo|maelekezo|amri)"
    r"|huwag (?:mong )?pansinin (?:\w{1,10}+ ){0,4}?(?:tagubilin|utos)",
)
ORDERS = (*_OVERRIDING, *_IN_ENGLISH, _GERMAN, *_ROMANCE, _SLAVIC_TURKISH, _OF_ASIA_AND_AFRICA)
