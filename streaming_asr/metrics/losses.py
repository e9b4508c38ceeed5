"""Where a text's word errors lie: every error of WER belongs to exactly one of PARTS.

Errors are those of a Levenshtein alignment (`ordinary.place`), in blocks: errors with no right word
between them. A block's errors belong to the first part that fits, in the order of PARTS. An error
of a failed recording is `failed`, one that no other part takes is `middle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

from streaming_asr.metrics.ordinary import copies, inserted_on_nonspeech, place
from streaming_asr.metrics.trace import Trace
from streaming_asr.text.languages import language_code
from streaming_asr.text.numerals import readings
from streaming_asr.text.scripts import HAN, scripts
from streaming_asr.text.tokens import common_prefix

PARTS = {
    "failed": "recording failed",
    "formats": "numbers and compounds written otherwise",
    "language": "in another language",
    "silence": "invented in silence",
    "boundary": "lost or doubled at a boundary",
    "repeated": "repeated",
    "tail": "lost or invented at the tail",
    "middle": "wrong, lost or added elsewhere",
}
MOST_FORMS = 64  # readings of a block that are compared
LEAST_SWITCHED = 3  # words of a block that may be of another language in the same script
# Frequent words, by which languages of Latin script are known.
FREQUENT = {
    "en": "the and of to in is that it was for you with on are this not have be at",
    "de": "der die das und ist nicht ich ein eine zu mit den von auf sie wir dem im",
    "fr": "le la les et est que des une un pas pour dans il je vous nous qui sur",
    "es": "el la los las y es que de un una no en por con para se su muy",
    "it": "il la che di è non un una per con sono si del le gli ma questo",
    "pt": "o os as que de é não um uma para com se do da em por mais",
    "nl": "de het een en is van niet ik dat te je op met zijn voor",
}
_FREQUENT = {code: frozenset(words.split()) for code, words in FREQUENT.items()}


class Error(NamedTuple):
    """One error: its part, the reference words before it and the words of the text before it."""

    part: str
    i: int
    j: int


class ErrorBlock(NamedTuple):
    """Errors with no right word between them: reference[i0:i1] became text[j0:j1]."""

    i0: int
    i1: int
    j0: int
    j1: int
    errors: tuple[Error, ...]


def boundaries(trace: Trace, text: Sequence[str]) -> set[int]:
    """Return the places in the normalised final text where the words of one step end and those of
    another begin, and the place a word before and behind each: a client may keep the last word of
    a delta back, since it may go on. Start and end of the text are none."""
    cuts, before = set(), ""
    for step in trace.steps:
        if step.committed != before:
            before = step.committed
            cuts.add(common_prefix(trace.normalise.words(before), tuple(text)))
    cuts -= {0, len(text)}
    return {near for cut in cuts for near in (cut - 1, cut, cut + 1) if 0 < near < len(text)}


def blocks(trace: Trace, reference: Sequence[str]) -> list[ErrorBlock]:
    """Return the blocks of errors of a trace's final text against the normalised `reference`; they
    hold as many errors as WER counts."""
    text = trace.normalise.words(trace.hypothesis)
    spans = _spans(reference, text)
    cuts = boundaries(trace, text)
    quiet = inserted_on_nonspeech(trace, text) or set()
    copied = {
        j: begin in cuts and end - begin == size
        for begin, end, size in copies(text)
        for j in range(begin, end)
    }
    result = []
    for i0, i1, j0, j1, edits in spans:
        whole = None
        if trace.error is not None:
            whole = "failed"
        elif _forms(reference[i0:i1]) & _forms(text[j0:j1]):
            whole = "formats"
        elif is_switched(text[j0:j1], reference, trace.language):
            whole = "language"
        is_last = i1 == len(reference) and j1 == len(text)
        n_tail = abs((i1 - i0) - (j1 - j0)) if is_last else 0
        errors: list[Error] = []
        for kind, i, j in reversed(edits):
            is_lost, is_added = kind == "lost", kind == "added"
            if whole is not None:
                part = whole
            elif is_added and j in quiet:
                part = "silence"
            elif is_lost and not is_last and any(j0 <= cut <= j1 for cut in cuts):
                part = "boundary"
            elif not is_lost and j in copied:
                part = "boundary" if copied[j] else "repeated"
            elif (is_lost or is_added) and n_tail:
                part, n_tail = "tail", n_tail - 1
            else:
                part = "middle"
            errors.append(Error(part, i, j))
        result.append(ErrorBlock(i0, i1, j0, j1, tuple(reversed(errors))))
    return result


def _spans(
    reference: Sequence[str], text: Sequence[str]
) -> list[tuple[int, int, int, int, list[tuple[str, int, int]]]]:
    """Return i0, i1, j0, j1 and the errors of each block: (lost, added or wrong, i, j)."""
    spans = []
    edits: list[tuple[str, int, int]] = []
    i = i0 = j0 = 0

    def close(i1: int, j1: int) -> None:
        if edits:
            spans.append((i0, i1, j0, j1, list(edits)))
            edits.clear()

    for j, each in enumerate(place(reference, text)):
        edits += [("lost", k, j) for k in range(i, each.n_before)]
        i = each.n_before
        if each.is_right:
            close(i, j)
            i0, j0 = i + 1, j + 1
        else:
            edits.append(("added" if each.is_inserted else "wrong", i, j))
        i += not each.is_inserted
    edits += [("lost", k, len(text)) for k in range(i, len(reference))]
    close(len(reference), len(text))
    return spans


def _forms(words: Sequence[str]) -> set[str]:
    """Return the ways to speak the words, without blanks; none for no word."""
    ways = [["".join(each) for each in readings(word)] or [word] for word in words]
    return {"".join(way) for way in islice(product(*ways), MOST_FORMS)} - {""}


def is_switched(words: Sequence[str], reference: Sequence[str], language: str | None) -> bool:
    """Return whether words are of another language than their reference: of another script, or,
    LEAST_SWITCHED or more of them, with more frequent words of another language than of its own."""
    (mine, spoken) = (scripts(each) for each in (words, reference))
    if not mine or not spoken:
        return False
    script = mine.most_common(1)[0][0]
    if script not in spoken and not (script in HAN and spoken.keys() & HAN):
        return True
    if len(words) < LEAST_SWITCHED:
        return False
    code = language_code(language or "en")
    usual = _FREQUENT.get(code, frozenset()) | frozenset(reference)
    n_usual = sum(word in usual for word in words)
    others = (
        sum(word in of_other - usual for word in words)
        for other, of_other in _FREQUENT.items()
        if other != code
    )
    return max(others) >= 2 and n_usual < len(words) / 2


def counts(blocks: Sequence[ErrorBlock]) -> dict[str, int]:
    """Return the errors of each part."""
    parts = [error.part for block in blocks for error in block.errors]
    return {part: parts.count(part) for part in PARTS}
