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
    """Return the places in the final text at which one step's words end and another's begin.

    text: the normalised words. Place j is before word j; the start and the end of the text are no
    boundaries. The places one word before and after each are returned too, since a client may hold
    back the last word of a step's text, which may be unfinished.
    """
    cuts: set[int] = set()
    committed = ""
    for step in trace.steps:
        if step.committed != committed:
            committed = step.committed
            cuts.add(common_prefix(trace.normalise.words(committed), tuple(text)))
    cuts -= {0, len(text)}
    places = cuts | {cut - 1 for cut in cuts} | {cut + 1 for cut in cuts}
    return {place for place in places if 0 < place < len(text)}


def blocks(trace: Trace, reference: Sequence[str]) -> list[ErrorBlock]:
    """Return the blocks of errors of a trace's final text against the normalised `reference`; they
    hold as many errors as WER counts. The first of these rules that fits names an error's part
    (PARTS)."""
    text = trace.normalise.words(trace.hypothesis)
    cuts = boundaries(trace, text)
    on_silence = inserted_on_nonspeech(trace, text) or set()
    # The part of each word that repeats the phrase before it. One copy that begins at a boundary
    # comes from decoding the same audio in two steps.
    part_of_copy: dict[int, str] = {}
    for begin, end, size in copies(text):
        is_doubled = begin in cuts and end - begin == size
        for j in range(begin, end):
            part_of_copy[j] = "boundary" if is_doubled else "repeated"
    result = []
    for i0, i1, j0, j1, edits in spans(reference, text):
        part_of_block = None
        if trace.error is not None:
            part_of_block = "failed"
        elif _forms(reference[i0:i1]) & _forms(text[j0:j1]):
            part_of_block = "formats"
        elif is_switched(text[j0:j1], reference, trace.language):
            part_of_block = "language"
        is_last = i1 == len(reference) and j1 == len(text)
        n_tail = abs((i1 - i0) - (j1 - j0)) if is_last else 0  # words too few or too many
        errors: list[Error] = []
        # From the end on, so that the last of the lost or added words are those of the tail.
        for kind, i, j in reversed(edits):
            is_lost, is_added = kind == "lost", kind == "added"
            if part_of_block is not None:
                part = part_of_block
            elif is_added and j in on_silence:
                part = "silence"
            elif is_lost and not is_last and any(j0 <= cut <= j1 for cut in cuts):
                part = "boundary"
            elif not is_lost and j in part_of_copy:
                part = part_of_copy[j]
            elif (is_lost or is_added) and n_tail:
                part, n_tail = "tail", n_tail - 1
            else:
                part = "middle"
            errors.append(Error(part, i, j))
        result.append(ErrorBlock(i0, i1, j0, j1, tuple(reversed(errors))))
    return result


def spans(
    reference: Sequence[str], text: Sequence[str]
) -> list[tuple[int, int, int, int, list[tuple[str, int, int]]]]:
    """Return (i0, i1, j0, j1, edits) of each block of errors: reference[i0:i1] became text[j0:j1].

    An edit is (kind, i, j): kind is lost, added or wrong, and i reference words and j words of the
    text precede it.
    """
    spans = []
    edits: list[tuple[str, int, int]] = []
    i0 = j0 = 0  # where the block begins, right after the last right word
    i = 0  # reference words that the alignment has passed

    def close(i1: int, j1: int) -> None:
        if edits:
            spans.append((i0, i1, j0, j1, list(edits)))
            edits.clear()

    for j, word in enumerate(place(reference, text)):
        edits += [("lost", k, j) for k in range(i, word.n_before)]
        i = word.n_before
        if word.is_right:
            close(i, j)
            i0, j0 = i + 1, j + 1
        else:
            edits.append(("added" if word.is_inserted else "wrong", i, j))
        if not word.is_inserted:
            i += 1
    edits += [("lost", k, len(text)) for k in range(i, len(reference))]
    close(len(reference), len(text))
    return spans


def _forms(words: Sequence[str]) -> set[str]:
    """Return the ways to pronounce the words, each written without blanks, MOST_FORMS at most; none
    for no word. Spans with a common form are the same words in another spelling."""
    forms_of_words = [["".join(form) for form in readings(word)] or [word] for word in words]
    return {"".join(forms) for forms in islice(product(*forms_of_words), MOST_FORMS)} - {""}


def is_switched(words: Sequence[str], reference: Sequence[str], language: str | None) -> bool:
    """Return whether `words` of a text are of another language than the recording.

    They are if most of their letters are of a script that the reference does not have. In the same
    script LEAST_SWITCHED or more words are needed: two must be frequent words of one other
    language, and less than half may be frequent words of `language` or words of the reference.
    """
    scripts_of_words, scripts_of_reference = scripts(words), scripts(reference)
    if not scripts_of_words or not scripts_of_reference:
        return False
    script = scripts_of_words.most_common(1)[0][0]
    # Japanese mixes the scripts of HAN, so one of them does not exclude another.
    is_han = script in HAN and bool(scripts_of_reference.keys() & HAN)
    if script not in scripts_of_reference and not is_han:
        return True
    if len(words) < LEAST_SWITCHED:
        return False
    code = language_code(language or "en")
    expected = _FREQUENT.get(code, frozenset()) | frozenset(reference)
    n_expected = sum(word in expected for word in words)
    n_of_others = [
        sum(word in frequent - expected for word in words)
        for other, frequent in _FREQUENT.items()
        if other != code
    ]
    return max(n_of_others) >= 2 and n_expected < len(words) / 2


def counts(blocks: Sequence[ErrorBlock]) -> dict[str, int]:
    """Return the errors of each part."""
    parts = [error.part for block in blocks for error in block.errors]
    return {part: parts.count(part) for part in PARTS}
