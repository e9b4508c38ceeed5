"""Timed words as subtitles.

They follow Netflix's Timed Text Style Guide (English; general requirements): a cue has at most
two lines of 42 characters (Chinese and Korean 16, Japanese 13 full-width ones) and lasts from 5/6 s
to 7 s; lines break after punctuation, the lower one is longer. The guide does not state where a
cue ends; `cues` has our rule.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import accumulate, groupby, pairwise
from unicodedata import east_asian_width

from streaming_asr.method import Word, revise
from streaming_asr.text.spoken import whole_words

SILENCE_S = 0.5  # a gap of this length between two words, at which a cue should end
LONG_SILENCE_S = 1.0  # no cue holds a gap of this length
LINE_CHARACTERS = 42
WIDE_LETTERS, JAPANESE_LETTERS = 16, 13
CUE_S = 7.0
LEAST_CUE_S = 5 / 6
SENTENCE_ENDS = tuple(".?!…。？！")
PUNCTUATION = (*SENTENCE_ENDS, *",;:—，、；：")
KANA = re.compile("[\u3041-\u30ff]")
NO_FIRST = frozenset(
    "".join(PUNCTUATION) + "」』）】》〉”’ーぁぃぅぇぉっゃゅょァィゥェォッャュョ々%％"
)
NO_LAST = frozenset("「『（【《〈“‘")


@dataclass(frozen=True, slots=True)
class Segment:
    """Words that are shown together; seconds from the start of the recording."""

    start: float
    end: float
    text: str


def add_timed(
    words: list[Word], retracted: int, committed: Iterable[Word], received_s: float
) -> int:
    """Apply a step to the committed `words`, give times to new words that have none, and return how
    many words at the start are unchanged.

    received_s: the audio up to the step's end. Words without times share, in proportion to their
    letters, the audio since the end of the word before them. Where there is none, as in the flush
    after the last chunk, they share the time of the word before with it, which changes that word.
    """
    revise(words, retracted, ())
    n_unchanged = len(words)
    for is_timed, group in groupby(committed, lambda word: None not in (word.start, word.end)):
        group_words = list(group)
        if not is_timed:
            begin_s = (words[-1].end or 0.0) if words else 0.0
            if words and received_s <= begin_s:
                group_words.insert(0, words.pop())
                n_unchanged = min(n_unchanged, len(words))
                begin_s = group_words[0].start or 0.0
            group_words = _sharing(group_words, begin_s, max(begin_s, received_s))
        words += group_words
    return n_unchanged


def _sharing(words: Sequence[Word], begin_s: float, end_s: float) -> list[Word]:
    """Return the words with shares of the time from `begin_s` to `end_s`, in proportion to their
    letters."""
    n_before = list(accumulate((len(word.text) or 1 for word in words), initial=0))  # letters
    n_letters = n_before.pop()
    starts_s = [begin_s + (end_s - begin_s) * n / n_letters for n in n_before]
    spans_s = zip(words, pairwise([*starts_s, end_s]), strict=True)
    return [replace(word, start=start_s, end=stop_s) for word, (start_s, stop_s) in spans_s]


def cues(words: Sequence[Word]) -> list[Segment]:
    """Return timed words as subtitles: the division into cues with the least total cost, found by
    dynamic programming.

    A cue costs 1, and 4 more if it has one or two words. The end of a sentence, or a gap of
    `SILENCE_S` or more, costs 2 inside a cue. A cue that ends after other punctuation costs 1 more,
    in mid-phrase 3, and 4 more where the next cue begins within `LEAST_CUE_S` of its start. The
    square of its share of the two lines is added, so that cues have similar lengths. A word
    that is longer than a cue may be is a cue by itself. `lasting` sets how long each is shown.
    Raises ValueError for a word without times.
    """
    words = whole_words(words)
    gaps_s = [*_gaps(words), LONG_SILENCE_S]
    texts = [word.text.rstrip() for word in words]
    closes = [  # whether a cue should end with the word
        text.rstrip("\"'”’)»").endswith(SENTENCE_ENDS) or gap_s >= SILENCE_S - 1e-6
        for text, gap_s in zip(texts, gaps_s[1:], strict=True)
    ]
    # best[n]: the least cost of cues of the first n words, and the first word of the last cue.
    best: list[tuple[float, int]] = [(0.0, 0)]
    for n in range(1, len(words) + 1):
        end_cost = 1 if texts[n - 1].endswith(PUNCTUATION) else 3
        if closes[n - 1]:
            end_cost = 0
        choices = []
        for first in range(n - 1, -1, -1):  # the last cue has the words from `first` to n - 1
            cue = _segment(words[first:n])
            too_long = lines(cue.text).count("\n") > 1 or cue.end - cue.start > CUE_S + 1e-6
            if n - first > 1 and (too_long or gaps_s[first + 1] >= LONG_SILENCE_S - 1e-6):
                break
            cost = 1 + end_cost + 2 * sum(closes[first : n - 1])
            if n - first < 3:
                cost += 4
            if n < len(words) and (words[n].start or 0.0) - cue.start < LEAST_CUE_S:
                cost += 4
            fill = (width(cue.text) / (2 * line_width(cue.text))) ** 2
            choices.append((best[first][0] + (cost + fill), first))
        best.append(min(choices))
    bounds = [len(words)]
    while bounds[0]:
        bounds.insert(0, best[bounds[0]][1])
    return lasting([_segment(words[begin:end]) for begin, end in pairwise(bounds)])


def lasting(cues: Sequence[Segment]) -> list[Segment]:
    """Return the cues, in the order of their starts, each shown for `LEAST_CUE_S` or more, and only
    one at a time.

    A cue never ends earlier than before. A short one is also shown in the pause after it. Where
    that is too short, the next cue begins later.
    """
    result: list[Segment] = []
    for cue in cues:
        start = max(cue.start, result[-1].end if result else cue.start)
        result.append(replace(cue, start=start, end=max(cue.end, start + LEAST_CUE_S)))
    return result


def _gaps(words: Sequence[Word]) -> list[float]:
    """Return the silence before each word in seconds, 0 before the first."""
    for word in words:
        if word.start is None or word.end is None:
            raise ValueError(f"{word} has no times; subtitles are made of timed words")
    ends = [word.end or 0.0 for word in words]
    return [0.0 if i == 0 else (word.start or 0.0) - ends[i - 1] for i, word in enumerate(words)]


def _segment(words: Sequence[Word]) -> Segment:
    text = "".join(word.text for word in words).strip()
    return Segment(words[0].start or 0.0, max(word.end or 0.0 for word in words), text)


def width(text: str) -> int:
    """Return the width of a text, of which a full-width letter takes 2 (Unicode Annex 11)."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def line_width(text: str) -> int:
    """Return the width that a line of the text may have, by its script."""
    if width(text) == len(text):
        return LINE_CHARACTERS
    return 2 * (JAPANESE_LETTERS if KANA.search(text) else WIDE_LETTERS)


def lines(text: str) -> str:
    """Return a cue's text in one line or two of at most `line_width`; in more where it is longer.

    Two lines are as equal as possible. A break after punctuation counts like 20 characters less of
    difference; of two equal breaks the one with the longer lower line is taken.
    """
    most = line_width(text)
    if width(text) <= most:
        return text
    breaks = [i for i in range(1, len(text)) if _may_break(text, i)]
    pairs = [(text[:i].rstrip(), text[i:].lstrip()) for i in breaks]
    fitting = [pair for pair in pairs if max(map(width, pair)) <= most]
    if not fitting:
        return textwrap.fill(text, most) if most == LINE_CHARACTERS else _filled(text, most)

    def cost(pair: tuple[str, str]) -> float:
        upper, lower = map(width, pair)
        longer_upper = 1 if upper > lower else 0
        bonus = 20 if pair[0].endswith(PUNCTUATION) else 0
        return abs(lower - upper) + longer_upper - bonus

    best = min(fitting, key=cost)
    return "\n".join(best)


def _may_break(text: str, i: int) -> bool:
    """Return whether a line may end before letter i: at a blank, and between letters of a script
    that has no blanks."""
    before, after = text[i - 1], text[i]
    if before == " ":
        return True
    is_wide = "W" in (east_asian_width(before), east_asian_width(after))
    is_wide = is_wide and not re.match("[\uac00-\ud7a3]", after)  # Korean has blanks
    return is_wide and after not in NO_FIRST and after != " " and before not in NO_LAST


def _filled(text: str, most: int) -> str:
    """Return the text in lines that are as full as possible."""
    filled: list[str] = []
    while width(text) > most:
        fits = [i for i in range(1, len(text)) if width(text[:i].rstrip()) <= most]
        i = max((i for i in fits if _may_break(text, i)), default=fits[-1])
        filled.append(text[:i].rstrip())
        text = text[i:].lstrip()
    return "\n".join([*filled, text])


def srt(cues: Sequence[Segment]) -> str:
    """Return subtitles in the format SubRip (.srt)."""
    return "\n".join(
        f"{n}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n{lines(cue.text)}\n"
        for n, cue in enumerate(cues, 1)
    )


def vtt(cues: Sequence[Segment]) -> str:
    """Return subtitles in the format WebVTT (.vtt)."""
    texts = [lines(cue.text) for cue in cues]
    escaped = [escape(text, quote=False) for text in texts]  # `-->` would begin a cue
    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start)} --> {clock(cue.end)}\n{text}\n"
        for cue, text in zip(cues, escaped, strict=True)
    )


def clock(seconds: float, point: str = ".") -> str:
    """Return a time as `00:01:02.345`."""
    ms = round(seconds * 1000)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
