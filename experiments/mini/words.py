"""Word lists of the `mini` corpus: reads words.ini and lexicon.ini, which explain themselves."""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from pathlib import Path

Entry = tuple[tuple[str, tuple[str, ...]], ...]
"""The written words of an entry, each with the words that voice it."""


def _read(name: str) -> configparser.ConfigParser:
    """The lists of one file in this folder, by section and name."""
    lists = configparser.ConfigParser(interpolation=None)
    lists.read_string((Path(__file__).with_name(name)).read_text(encoding="utf-8"), source=name)
    return lists


_WORDS = _read("words.ini")
_PLURALS = dict(_WORDS["plurals"])


def plural(word: str) -> str:
    """Plural of a noun, also third person of a verb."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def _forms(verb: str) -> dict[str, str]:
    """The four forms of `base`, `base+` (doubles its last letter), `base/past[/ing]`."""
    base, *endings = verb.rstrip("+").split("/")
    stem = base + base[-1] if verb.endswith("+") else base
    past = endings[0] if endings else stem + "ed"
    if base.endswith("e") and not base.endswith("ee"):
        stem = base[:-1]
    elif base in {"run", "sit", "swim", "forget"}:
        stem = base + base[-1]
    ing = endings[1] if len(endings) > 1 else stem + "ing"
    third = base + "s" if base.endswith("oo") else plural(base)
    return {"base": base, "past": past, "ing": ing, "s": third}


def _entry(text: str) -> Entry:
    """`St._Louis=saint_louis` -> (("St.", ("saint",)), ("Louis", ("louis",)))."""
    written, _, spoken = text.partition("=")
    voices = (spoken or written.lower()).split("_")
    return tuple((w, (s,)) for w, s in zip(written.split("_"), voices, strict=True))


_NOUNS = ("animal", "body", "job", "place", "relative", "thing", "vehicle")


def _lists(nouns: Mapping[str, str], verbs: Mapping[str, str]) -> dict[str, list[Entry]]:
    texts = {name: words.split() for name, words in nouns.items()}
    for name in _NOUNS:
        if name in texts:
            texts[name + "s"] = [plural(t) for t in texts[name]]
    for name, words in verbs.items():
        table = [_forms(v) for v in words.split()]
        for form in ("base", "past", "ing", "s"):
            texts[f"{name}_{form}"] = [row[form] for row in table]
    return {name: [_entry(t) for t in entries] for name, entries in texts.items()}


TRAIN = _lists(_WORDS["train"], _WORDS["train verbs"])
HELD_OUT = _lists(_WORDS["held out"], _WORDS["held out verbs"])
FINANCE = _lists(_WORDS["finance"], {})
_LEXICON = _read("lexicon.ini")["lexicon"]
SCRAMBLED_WORDS = _LEXICON["words"].split()
SCRAMBLED_NAMES = _LEXICON["names"].split()
