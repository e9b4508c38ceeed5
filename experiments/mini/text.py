"""Sentences of the `mini` corpus: what is spoken, and the transcript as Whisper writes it.

python -m experiments.mini.text    prints how many templates and words there are
"""

from __future__ import annotations

import argparse
import itertools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from experiments.mini import spoken_numbers as say
from experiments.mini import templates, words

MIN_SPOKEN, MAX_SPOKEN = 6, 22  # 2 to 9 s at an ordinary rate
JOINED = 0.3  # share of utterances of two sentences, where both are short enough
ABBREVIATIONS = {"a.m.", "p.m.", "mr.", "mrs.", "ms.", "dr.", "st."}
SCRAMBLED = "scrambled"  # in place of a template's id


@dataclass(frozen=True)
class Unit:
    """One written word (whitespace token, punctuation attached) and the words that voice it."""

    written: str
    spoken: tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """One utterance: its units, the ids of its templates, whether it holds held-out material."""

    units: tuple[Unit, ...]
    template: str
    heldout: bool

    @property
    def written(self) -> str:
        return " ".join(u.written for u in self.units)

    @property
    def spoken(self) -> str:
        return " ".join(itertools.chain.from_iterable(u.spoken for u in self.units))


def _number(low: int, high: int, step: int = 1) -> Callable[[random.Random], list[Unit]]:
    def draw(rng: random.Random) -> list[Unit]:
        n = rng.randrange(low, high, step)
        return [Unit(say.write_cardinal(n), say.cardinal(n))]

    return draw


def _year(rng: random.Random) -> list[Unit]:
    n = rng.randint(1700, 2029)
    return [Unit(str(n), say.year(n))]


def _decade(rng: random.Random) -> list[Unit]:
    n = rng.choice((17, 18, 19)) * 100 + rng.randrange(20, 100, 10)
    return [Unit(f"{n}s", say.decade(n))]


def _clock(rng: random.Random) -> list[Unit]:
    hour, minute = rng.randint(1, 12), rng.randint(1, 59)
    return [Unit(f"{hour}:{minute:02d}", say.clock(hour, minute))]


def _ampm(rng: random.Random) -> list[Unit]:
    return [rng.choice((Unit("a.m.", ("eigh", "em")), Unit("p.m.", ("pee", "em"))))]


def _price(rng: random.Random) -> list[Unit]:
    kind = rng.random()
    if kind < 0.4:
        dollars, cents = rng.randint(1, 99), rng.randint(1, 99)
    elif kind < 0.8:
        dollars, cents = rng.randint(2, 999), 0
    else:
        dollars, cents = rng.randrange(1100, 20_000, 100), 0
    return [Unit(say.write_money(dollars, cents), say.money(dollars, cents))]


def _percent(rng: random.Random) -> list[Unit]:
    n = rng.randint(2, 99)
    return [Unit(f"{n}%", (*say.cardinal(n), "percent"))]


def _tenths(rng: random.Random) -> int:
    return rng.randint(0, 19) * 10 + rng.randint(1, 9)


def _percent1(rng: random.Random) -> list[Unit]:
    n = _tenths(rng)
    return [Unit(f"{n // 10}.{n % 10}%", (*say.decimal(n), "percent"))]


def _decimal(rng: random.Random) -> list[Unit]:
    n = _tenths(rng)
    return [Unit(f"{n // 10}.{n % 10}", say.decimal(n))]


def _ordinal(rng: random.Random) -> list[Unit]:
    n = rng.randint(2, 99)
    spoken = say.ordinal(n)
    return [Unit(spoken[0] if n < 10 else say.write_ordinal(n), spoken)]


def _dayth(rng: random.Random) -> list[Unit]:
    n = rng.randint(1, 28)  # a date of any month
    return [Unit(say.write_ordinal(n), say.ordinal(n))]


def _phone(rng: random.Random) -> list[Unit]:
    text = f"{rng.randint(200, 999)}-{rng.randint(0, 9999):04d}"
    return [Unit(text, say.digits(text))]


def _letters(rng: random.Random, n: int) -> tuple[str, tuple[str, ...]]:
    letters = rng.choices(tuple(say.LETTERS), k=n)
    return "".join(letters), tuple(say.LETTERS[c] for c in letters)


def _code(rng: random.Random) -> list[Unit]:
    letters, spoken = _letters(rng, 2)
    number = str(rng.randint(100, 999))
    return [Unit(letters + number, spoken + say.digits(number))]


def _seat(rng: random.Random) -> list[Unit]:
    letter, spoken = _letters(rng, 1)
    n = rng.randint(10, 99)
    return [Unit(f"{letter}{n}", spoken + say.cardinal(n))]


def _ticker(rng: random.Random) -> list[Unit]:
    return [Unit(*_letters(rng, 3))]


def _millions(rng: random.Random) -> list[Unit]:
    scale = rng.choice(("million", "million", "billion"))
    n = _tenths(rng) if rng.random() < 0.6 else rng.randint(2, 950) * 10
    whole = n % 10 == 0
    written = f"${n // 10}" if whole else f"${n // 10}.{n % 10}"
    spoken = say.cardinal(n // 10) if whole else say.decimal(n)
    return [Unit(written, spoken), Unit(scale, (scale, "dollars"))]


NUMBERS: dict[str, Callable[[random.Random], list[Unit]]] = {
    "small": _number(2, 10),
    "num": _number(10, 100),
    "bignum": _number(100, 1000),
    "big": _number(20, 990),
    "points": _number(10, 400, 5),
    "thousands": _number(1100, 30_000, 100),
    "house": _number(11, 999),
    "year": _year,
    "decade": _decade,
    "clock": _clock,
    "ampm": _ampm,
    "price": _price,
    "percent": _percent,
    "percent1": _percent1,
    "decimal": _decimal,
    "nth": _ordinal,
    "place_nth": _ordinal,
    "dayth": _dayth,
    "phone": _phone,
    "code": _code,
    "seat": _seat,
    "ticker": _ticker,
    "millions": _millions,
}


@dataclass(frozen=True)
class _Part:
    """One template token: a slot or a fixed unit, and the punctuation that follows it."""

    slot: str | None
    unit: Unit | None
    punctuation: str


@dataclass(frozen=True)
class _Template:
    id: str
    weight: float
    parts: tuple[_Part, ...]
    heldout_slots: tuple[int, ...]  # parts that have held-out words


def _parse(prefix: str, text: str) -> list[_Template]:
    parsed = []
    for i, line in enumerate(text.strip().splitlines(), 1):
        weight, _, body = line.rpartition("*")
        parts = []
        for token in body.split():
            slot = re.fullmatch(r"\{(\w+)\}(\W*)", token)
            if slot:
                parts.append(_Part(slot[1], None, slot[2]))
                continue
            written, _, spoken = token.partition("=")
            bare = written if spoken else written.rstrip(".,?!")
            unit = Unit(bare, (spoken or bare.lower(),))
            parts.append(_Part(None, unit, written[len(bare) :]))
        heldout = tuple(k for k, part in enumerate(parts) if part.slot in words.HELD_OUT)
        parsed.append(_Template(f"{prefix}{i:02d}", float(weight or 1), tuple(parts), heldout))
    return parsed


TRAIN = _parse("t", templates.TRAIN)
HELD_OUT = _parse("h", templates.HELD_OUT)
FINANCE = _parse("f", templates.FINANCE)
_LISTS = {**words.TRAIN, **words.FINANCE}
_TRAIN_WITH_SLOTS = [t for t in TRAIN if t.heldout_slots]
_CUMULATIVE = {
    id(group): list(itertools.accumulate(t.weight for t in group))
    for group in (TRAIN, HELD_OUT, FINANCE, _TRAIN_WITH_SLOTS)
}
_SILENT_H = ("honest", "hour")
_LIKE_YOU = ("one", "uni", "use", "ukulele", "eu")


def _article(next_word: str) -> str:
    if next_word.startswith(_SILENT_H):
        return "an"
    vowel = next_word[0] in "aeiou" and not next_word.startswith(_LIKE_YOU)
    return "an" if vowel else "a"


def _capitalised(unit: Unit) -> Unit:
    return Unit(unit.written[0].upper() + unit.written[1:], unit.spoken)


def _fill(rng: random.Random, template: _Template, heldout_parts: frozenset[int]) -> list[Unit]:
    units: list[Unit] = []
    used: set[object] = set()
    for k, part in enumerate(template.parts):
        if part.unit is not None:
            drawn = [part.unit]
        elif part.slot in NUMBERS:
            drawn = NUMBERS[part.slot](rng)
        else:
            assert part.slot is not None
            entries = (words.HELD_OUT if k in heldout_parts else _LISTS)[part.slot]
            entry = rng.choice(entries)
            while entry in used:
                entry = rng.choice(entries)
            used.add(entry)
            drawn = [Unit(written, spoken) for written, spoken in entry]
        if part.punctuation:
            last = drawn[-1]
            drawn = [*drawn[:-1], Unit(last.written + part.punctuation, last.spoken)]
        units += drawn
    for k, unit in enumerate(units[:-1]):
        if unit.written in ("a", "A"):
            article = _article(units[k + 1].spoken[0])
            units[k] = Unit(article, (article,))
    units[0] = _capitalised(units[0])
    return units


def _pick(rng: random.Random, group: list[_Template]) -> _Template:
    return rng.choices(group, cum_weights=_CUMULATIVE[id(group)])[0]


def _n_spoken(units: list[Unit]) -> int:
    return sum(len(u.spoken) for u in units)


def sentence(rng: random.Random, *, domain: str = "general", heldout: bool = False) -> Sentence:
    """Draw one utterance of 6 to 22 spoken words.

    A held-out one has a held-out template (half of the time) or at least one held-out word in a
    training template. `domain` is general or finance, which has nothing held out.
    """
    plain = FINANCE if domain == "finance" else TRAIN
    while True:
        chosen: frozenset[int] = frozenset()
        if heldout:
            group = HELD_OUT if rng.random() < 0.5 else _TRAIN_WITH_SLOTS
            template = _pick(rng, group)
            chosen = frozenset(k for k in template.heldout_slots if rng.random() < 0.5)
            if group is _TRAIN_WITH_SLOTS and not chosen:
                chosen = frozenset([rng.choice(template.heldout_slots)])
        else:
            template = _pick(rng, plain)
        units, name = _fill(rng, template, chosen), template.id
        n = _n_spoken(units)
        if n < MIN_SPOKEN or rng.random() < JOINED:
            second = _pick(rng, plain)
            more = _fill(rng, second, frozenset())
            if n + _n_spoken(more) <= MAX_SPOKEN:
                units, name = units + more, f"{name}+{second.id}"
        if MIN_SPOKEN <= _n_spoken(units) <= MAX_SPOKEN:
            return Sentence(tuple(units), name, heldout)


def scrambled(rng: random.Random) -> Sentence:
    """Draw words in no order: half of lexicon.ini, half pieces of ordinary sentences."""
    units: list[Unit] = []
    n_wanted = rng.randint(MIN_SPOKEN, MAX_SPOKEN - 4)
    while _n_spoken(units) < n_wanted:
        kind = rng.random()
        if kind < 0.5:
            word = rng.choice(words.SCRAMBLED_WORDS if kind < 0.35 else words.SCRAMBLED_NAMES)
            units.append(Unit(word, (word.lower(),)))
            continue
        # not the first unit: nobody knows whether its capital is the sentence's or its own
        ordinary = sentence(rng).units[1:]
        first = rng.randrange(len(ordinary))
        for unit in ordinary[first : first + rng.randint(1, 4)]:
            bare = unit.written.rstrip(",?!")
            if bare.lower() not in ABBREVIATIONS:
                bare = bare.rstrip(".")
            units.append(Unit(bare, unit.spoken))
    if _n_spoken(units) > MAX_SPOKEN:
        return scrambled(rng)
    units[0] = _capitalised(units[0])
    end = units[-1]
    if not end.written.endswith("."):
        units[-1] = Unit(end.written + ".", end.spoken)
    return Sentence(tuple(units), SCRAMBLED, False)


def _letters_only(written: str) -> str:
    return re.sub(r"[^a-z']", "", written.lower())


def vocabulary(domain: str = "general", *, heldout: bool = False) -> set[str]:
    """Written words without digits that can occur, lower-case; `heldout`: those in no train one."""
    if heldout:
        words_found = {w for entries in words.HELD_OUT.values() for e in entries for w, _ in e}
        words_found |= {p.unit.written for t in HELD_OUT for p in t.parts if p.unit}
        return {_letters_only(w) for w in words_found} - vocabulary()
    words_found = {say.write_cardinal(n) for n in range(2, 10)}
    words_found |= {say.ordinal(n)[0] for n in range(2, 10)}
    for template in FINANCE if domain == "finance" else TRAIN:
        for part in template.parts:
            if part.unit:
                words_found.add(part.unit.written)
            elif part.slot not in NUMBERS:
                words_found |= {w for entry in _LISTS[part.slot or ""] for w, _ in entry}
    return {_letters_only(w) for w in words_found}


def main() -> None:
    """Print how many templates and words there are."""
    general, finance = vocabulary(), vocabulary("finance")
    print(f"templates: train {len(TRAIN)}, held out {len(HELD_OUT)}, finance {len(FINANCE)}")
    print(f"words: train {len(general)}, held out {len(vocabulary(heldout=True))}")
    further = len(words.SCRAMBLED_WORDS) + len(words.SCRAMBLED_NAMES)
    print(f"words: only in scrambled sentences {further}")
    print(f"words: finance {len(finance)}, of these not in train {len(finance - general)}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    main()
