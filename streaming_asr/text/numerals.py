"""Numerals as they are spoken, in English words."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMERAL = re.compile(r"([$€£]?)(\d+|\d{1,3}(?:,\d{3})+)(?:\.(\d+))?(%?)")
_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_ONES = _BELOW_TWENTY.split()
_ABOVE = "twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = _ABOVE.split()
_SCALES = ((10**9, "billion"), (10**6, "million"), (1000, "thousand"), (100, "hundred"))
_CURRENCIES = {"$": "dollars", "€": "euros", "£": "pounds"}


def cardinal(number: int) -> list[str]:
    """Return the words of a number from 0 to 10^12 - 1: 1234 -> one thousand two hundred thirty
    four."""
    for size, name in _SCALES:
        if number >= size:
            count, rest = divmod(number, size)
            words = [*cardinal(count), name]
            return [*words, *cardinal(rest)] if rest else words
    if number < len(_ONES):
        return [_ONES[number]]
    tens, ones = divmod(number, 10)
    word = _TENS[tens - 2]
    return [word, _ONES[ones]] if ones else [word]


NUMBER_WORDS = frozenset((*_ONES, *_TENS, *(name for _, name in _SCALES), "point", "percent",
                          *_CURRENCIES.values()))  # fmt: skip


def in_digits(words: Sequence[str]) -> list[str]:
    """Return the digits of a number that is spoken digit by digit (["one", "two"] -> ["1", "2"]);
    any other words as they are."""
    is_digits = all(word in _ONES[:10] for word in words)
    return [str(_ONES.index(word)) for word in words] if is_digits else list(words)


def spoken(text: str) -> list[str]:
    """Return the spoken words of a written word that is no numeral: "thirty-four" are two, "oh" is
    "zero". Other words with a hyphen are one."""
    parts = [_letters(part) for part in text.split("-")]
    if not all(part in NUMBER_WORDS for part in parts):
        parts = [_letters(text)]
    return ["zero" if part in ("o", "oh") else part for part in parts if part]


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def readings(text: str) -> list[list[str]]:
    """Return the ways to speak a numeral, each as a list of words; [] for other text.

    573 is five hundred seventy three, or five seven three; 1990 nineteen ninety too; $2.50 is two
    dollars fifty, 5% five percent.
    """
    match = _NUMERAL.fullmatch(text.strip().strip(".,;:!?\"'()[]"))
    if match is None:
        return []
    currency, integer_part, decimals, percent = match.groups()
    digits = integer_part.replace(",", "")
    ways = [cardinal(int(digits))] if len(digits) <= 12 else []
    ways.append([_ONES[int(digit)] for digit in digits])
    # In pairs, as years and house numbers; a pair that begins with 0 is not spoken so.
    if digits == integer_part and len(digits) in (4, 6, 8) and "0" not in digits[::2]:
        pairs = re.findall("..", digits)
        ways.append([word for pair in pairs for word in cardinal(int(pair))])
    ending = [_CURRENCIES[currency]] if currency else []
    if decimals and currency:
        ending += cardinal(int(decimals[:2]))
    elif decimals:
        ending += ["point", *(_ONES[int(digit)] for digit in decimals)]
    if percent:
        ending.append("percent")
    return [way + ending for way in ways]
