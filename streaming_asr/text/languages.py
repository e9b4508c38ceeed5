"""Language tags: every usual spelling of a language as the one code that Whisper has for it.

Corpora, logs and clients write a language as a code of ISO 639-1, -2 or -3 ("en", "eng"), as a tag
of BCP 47 or POSIX ("en-US", "zh_Hans_CN", "de_DE.UTF-8"), or as its English name ("English").
"""

from __future__ import annotations

import re
from functools import lru_cache

# One language a line: Whisper's code, then other codes (ISO 639-1, -2/B, -2/T and -3, where the
# standard's macrolanguage has one usual member also that one's), then English names.
_TABLE = """
af afr : Afrikaans
am amh : Amharic
ar ara arb : Arabic, Standard Arabic, Modern Standard Arabic
as asm : Assamese
az aze azj : Azerbaijani, Azeri
ba bak : Bashkir
be bel : Belarusian
bg bul : Bulgarian
bn ben : Bengali, Bangla
bo bod tib : Tibetan
br bre : Breton
bs bos : Bosnian
ca cat : Catalan, Valencian
cs ces cze : Czech
cy cym wel : Welsh
da dan : Danish
de deu ger : German
el ell gre : Greek
en eng : English
es spa : Spanish, Castilian
et est ekk : Estonian
eu eus baq : Basque
fa fas per pes : Persian, Farsi
fi fin : Finnish
fo fao : Faroese
fr fra fre : French
gl glg : Galician
gu guj : Gujarati
ha hau : Hausa
haw : Hawaiian
he heb iw : Hebrew
hi hin : Hindi
hr hrv scr : Croatian
ht hat : Haitian Creole, Haitian
hu hun : Hungarian
hy hye arm : Armenian
id ind in : Indonesian
is isl ice : Icelandic
it ita : Italian
ja jpn : Japanese
jw jv jav : Javanese
ka kat geo : Georgian
kk kaz : Kazakh
km khm : Khmer
kn kan : Kannada
ko kor : Korean
la lat : Latin
lb ltz : Luxembourgish, Letzeburgesch
ln lin : Lingala
lo lao : Lao
lt lit : Lithuanian
lv lav lvs : Latvian
mg mlg plt : Malagasy
mi mri mao : Maori, Māori
mk mkd mac : Macedonian
ml mal : Malayalam
mn mon khk : Mongolian
mr mar : Marathi
ms msa may zsm : Malay
mt mlt : Maltese
my mya bur : Burmese, Myanmar
ne nep npi : Nepali
nl nld dut : Dutch, Flemish
nn nno : Nynorsk, Norwegian Nynorsk
no nor nb nob : Norwegian, Bokmål, Bokmal
oc oci : Occitan
pa pan : Punjabi, Panjabi
pl pol : Polish
ps pus pbu : Pashto, Pushto
pt por : Portuguese
ro ron rum mo mol : Romanian, Moldavian, Moldovan
ru rus : Russian
sa san : Sanskrit
sd snd : Sindhi
si sin : Sinhala, Sinhalese
sk slk slo : Slovak
sl slv : Slovenian, Slovene
sn sna : Shona
so som : Somali
sq sqi alb als : Albanian
sr srp scc : Serbian
su sun : Sundanese
sv swe : Swedish
sw swa swh : Swahili, Kiswahili
ta tam : Tamil
te tel : Telugu
tg tgk : Tajik
th tha : Thai
tk tuk : Turkmen
tl tgl fil : Tagalog, Filipino
tr tur : Turkish
tt tat : Tatar
uk ukr : Ukrainian
ur urd : Urdu
uz uzb uzn : Uzbek
vi vie : Vietnamese
yi yid ydd ji : Yiddish
yo yor : Yoruba
yue zh-yue : Cantonese, Chinese (Cantonese), Cantonese Chinese, Chinese Cantonese
zh zho chi cmn : Chinese, Mandarin
"""


def _codes_and_names() -> tuple[dict[str, str], dict[str, str]]:
    """Return Whisper's code by every code of a language, and by every name in lower case."""
    code_of_code: dict[str, str] = {}
    code_of_name: dict[str, str] = {}
    for line in _TABLE.strip().splitlines():
        codes, _, names = line.partition(" : ")
        whisper_code = codes.split()[0]
        code_of_code |= dict.fromkeys(codes.split(), whisper_code)
        code_of_name |= dict.fromkeys(names.lower().split(", "), whisper_code)
    return code_of_code, code_of_name


_CODES, _NAMES = _codes_and_names()
UNNAMED = frozenset({"", "und"})  # tags of no language, the latter of BCP 47
LANGUAGES = frozenset(_CODES.values())  # Whisper's; its large models from v3 on have yue too


@lru_cache(maxsize=4096)
def language_code(tag: str) -> str:
    """Return Whisper's code of a language in any usual spelling: "EN", "en-US", "eng" and "English"
    are "en"; "zh_Hans_CN", "cmn" and "Mandarin" are "zh".

    A tag's script, region and variants are dropped. For a language that Whisper lacks, the first
    part of its tag is returned in lower case ("ga-IE" is "ga"); other text is returned in lower
    case. So compare with LANGUAGES where the language must be one of Whisper's.
    """
    text = " ".join(tag.lower().split())
    if text in _NAMES:
        return _NAMES[text]
    subtags = re.split(r"[-_.@]", text)
    code = subtags[0]
    if subtags[:2] in (["zh", "yue"], ["zho", "yue"]):  # BCP 47's older form of yue
        return "yue"
    if code in _CODES:
        return _CODES[code]
    if re.fullmatch("[a-z]{2,3}", code):
        return code
    # "Spanish (Mexico)", "Chinese, Simplified", "Brazilian Portuguese", "English-US"
    name = re.split(r"[(,;/\-_]", text)[0].strip()
    words = name.split() or [""]
    for candidate in (name, words[-1], words[0]):
        if candidate in _NAMES:
            return _NAMES[candidate]
    return text
