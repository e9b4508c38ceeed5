"""Sentences to be spoken, which are spoken as they are written.

Sources: addresses on the State of the Union (public domain) and the example sentences of WordNet.
A sentence with anything that is read in more than one way, or not as it is written, is left out:
digits, signs, abbreviations, words in capitals, single letters, brackets, quotation marks, and
hyphens, which the addresses put for dashes as well.
One sentence in twenty, by a hash of its words, is kept for tests and never trained on.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path

MIN_WORDS, MAX_WORDS = 4, 32
# Written short and spoken long; Whisper's normalizer writes them out.
TITLES = ("Mr.", "Mrs.", "Dr.")
PLAIN = re.compile(r"[A-Za-z' ,;:.?!]+")
WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*'?[,;:]?")
END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
# What a full stop follows without ending a sentence; a sentence that ends so is a torn one.
SHORT = {"gen", "hon", "st", "no", "sec", "art", "vol", "messrs", "gov", "col", "capt", "lt"} | {
    *("sen", "rep", "jr", "sr", "co", "inc", "etc", "prof", "rev", "ft", "mt", "vs", "viz", "mo"),
    *("jan", "feb", "mar", "apr", "aug", "sept", "oct", "nov", "dec", "dept", "bros", "al", "op"),
}
SIGNS = str.maketrans({"’": "'", "‘": "'", "`": "'", "“": '"', "”": '"', "‑": "-"})
DASH = re.compile(r"\s*(?:--+|—|–)\s*|\s+-\s+")


def split(text: str) -> list[str]:
    """The sentences of running text, with dashes as commas."""
    plain = " ".join(DASH.sub(", ", text.translate(SIGNS)).split())
    for title in TITLES:
        plain = plain.replace(f"{title} ", f"{title}\0")
    return [sentence.replace("\0", " ").strip() for sentence in END.split(plain)]


def said_as_written(sentence: str) -> bool:
    """Whether every word of the sentence is spoken as it is written, and it is one sentence."""
    if not PLAIN.fullmatch(sentence) or not sentence[0].isupper() or sentence[-1] not in ".?!":
        return False
    words = sentence.split()
    if not MIN_WORDS <= len(words) <= MAX_WORDS:
        return False
    *body, last = [word for word in words if word not in TITLES]
    last = last[:-1]
    return (
        words[-1] not in TITLES
        and all(WORD.fullmatch(word) for word in (*body, last))
        and last.lower() not in SHORT
        and not any(_capitals(word) for word in (*body, last))
    )


def _capitals(word: str) -> bool:
    """NATO, XIV, B: spelt or read as a number. Not I and A."""
    letters = re.sub(r"'s$|[^A-Za-z]", "", word)
    if len(letters) == 1:
        return letters not in "IAa"
    return sum(letter.isupper() for letter in letters) > 1 and letters.isupper()


def words_of(sentence: str) -> str:
    """Its words in small letters without signs: what two spellings of a sentence share."""
    return " ".join(re.sub(r"[^a-z' ]", " ", sentence.lower()).split())


def reserved(sentence: str) -> bool:
    """Whether the sentence is kept for tests."""
    return zlib.crc32(words_of(sentence).encode()) % 20 == 0


def addresses(package: Path) -> dict[int, list[str]]:
    """The usable sentences of each year's addresses, in order. `package`: the unpacked npm one."""
    years: dict[int, list[str]] = {}
    for file in sorted((package / "package/data").glob("*.txt")):
        texts = [s for s in split(file.read_text("utf-8")) if said_as_written(s)]
        years.setdefault(int(file.name[:4]), []).extend(texts)
    return years


def examples(package: Path) -> list[str]:
    """The usable example sentences of WordNet. `package`: the unpacked npm one."""
    texts = []
    for file in sorted((package / "package/dict").glob("data.*")):
        for line in file.read_text("utf-8", errors="replace").splitlines():
            gloss = line.partition("|")[2]
            for quoted in re.findall(r'"([^"]+)"', gloss):
                text = " ".join(DASH.split(quoted)[0].translate(SIGNS).split())
                if text and text[-1] not in ".?!":
                    text += "."
                texts.append(text[:1].upper() + text[1:])
    return [sentence for sentence in texts if said_as_written(sentence)]


def for_training(sentences: Iterable[str]) -> list[str]:
    """Each sentence once, sorted, without those kept for tests."""
    by_words = {words_of(sentence): sentence for sentence in sorted(sentences)}
    return sorted(sentence for sentence in by_words.values() if not reserved(sentence))
