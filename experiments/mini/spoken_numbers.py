"""How numbers, times, dates and money are written and voiced (one voicing per written form)."""

from __future__ import annotations

# fmt: off
_ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth",
    "nine": "ninth", "twelve": "twelfth",
}
# Letters that the synthesisers read alike when given their names; H, I, O, U, W, Y are left out.
LETTERS = {
    "A": "eigh", "B": "bee", "C": "see", "D": "dee", "E": "ee", "F": "ef", "G": "gee", "J": "jay",
    "K": "kay", "L": "el", "M": "em", "N": "en", "P": "pee", "Q": "cue", "R": "ar", "S": "ess",
    "T": "tee", "V": "vee", "X": "ex", "Z": "zee",
}
# fmt: on


def cardinal(n: int) -> tuple[str, ...]:
    """347 -> three hundred forty seven; `n` from 0 to 999,999."""
    if not 0 <= n < 1_000_000:
        raise ValueError(f"{n} is outside 0 to 999,999")
    if n >= 1000:
        return (*cardinal(n // 1000), "thousand", *(cardinal(n % 1000) if n % 1000 else ()))
    if n >= 100:
        return (_ONES[n // 100], "hundred", *(cardinal(n % 100) if n % 100 else ()))
    if n >= 20:
        return (_TENS[n // 10 - 2], *((_ONES[n % 10],) if n % 10 else ()))
    return (_ONES[n],)


def write_cardinal(n: int) -> str:
    """Below ten in letters, from ten in digits, with a comma from 1,000: as Whisper writes."""
    return _ONES[n] if n < 10 else f"{n:,}"


def ordinal(n: int) -> tuple[str, ...]:
    """23 -> twenty third."""
    *head, last = cardinal(n)
    if last in _ORDINALS:
        last = _ORDINALS[last]
    elif last.endswith("y"):
        last = last[:-1] + "ieth"
    else:
        last += "th"
    return (*head, last)


def write_ordinal(n: int) -> str:
    """23 -> 23rd; below ten in letters is `ordinal`'s own word."""
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def year(n: int) -> tuple[str, ...]:
    """1984 -> nineteen eighty four; 1905 -> nineteen oh five; 2004 -> two thousand four."""
    if 2000 <= n < 2010:
        return cardinal(n)
    century, rest = divmod(n, 100)
    if rest == 0:
        return (*cardinal(century), "hundred")
    return (*cardinal(century), *(("oh",) if rest < 10 else ()), *cardinal(rest))


def decade(n: int) -> tuple[str, ...]:
    """1980 -> nineteen eighties."""
    century, rest = divmod(n, 100)
    return (*cardinal(century), _TENS[rest // 10 - 2][:-1] + "ies")


def clock(hour: int, minute: int) -> tuple[str, ...]:
    """7:45 -> seven forty five; 7:05 -> seven oh five."""
    return (*cardinal(hour), *(("oh",) if minute < 10 else ()), *cardinal(minute))


def digits(text: str) -> tuple[str, ...]:
    """555-0142 -> five five five oh one four two."""
    return tuple("oh" if c == "0" else _ONES[int(c)] for c in text if c.isdigit())


def decimal(tenths: int) -> tuple[str, ...]:
    """35 -> three point five."""
    return (*cardinal(tenths // 10), "point", _ONES[tenths % 10])


def money(dollars: int, cents: int = 0) -> tuple[str, ...]:
    """(4, 50) -> four dollars and fifty cents; 0 cents are left out."""
    spoken = (*cardinal(dollars), "dollar" if dollars == 1 else "dollars")
    if not cents:
        return spoken
    return (*spoken, "and", *cardinal(cents), "cent" if cents == 1 else "cents")


def write_money(dollars: int, cents: int = 0) -> str:
    """(4, 5) -> $4.05; (1200, 0) -> $1,200."""
    return f"${dollars:,}.{cents:02d}" if cents else f"${dollars:,}"
