"""The words and their times: in segments, a new one after every long pause, and as subtitles.

Subtitles follow Netflix's Timed Text Style Guide (English; general requirements): a cue has at most
two lines of 42 characters and lasts from 5/6 s to 7 s; lines break after punctuation, the lower
one the longer. Where cues break it leaves open; `cues` states the rule.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, pairwise

from streaming_asr.method import Word, revise
from streaming_asr.text.spoken import whole_words

SILENCE_S = 0.5  # a gap of this length between two words ends a segment
LONG_SILENCE_S = 1.0  # no cue holds a gap of this length
LINE_CHARACTERS = 42
CUE_S = 7.0
LEAST_CUE_S = 5 / 6
SENTENCE_ENDS = tuple(".?!…。？！")
PUNCTUATION = (*SENTENCE_ENDS, *",;:—，、；：")


@dataclass(frozen=True, slots=True)
class Segment:
    """Words without a long pause between them; seconds from the start of the recording."""

    start: float
    end: float
    text: str


def add_timed(words: list[Word], retracted: int, committed: Iterable[Word], heard_s: float) -> int:
    """Revise `words` by a step that ends at `heard_s` of audio, give times to those without, and
    return how many in front are unchanged.

    Words without times share, by their letters, the audio since the one before them. Where
    nothing was, as in the flush after the last chunk, they share that one's time with it.
    """
    revise(words, retracted, ())
    n_same = len(words)
    for is_timed, group in groupby(committed, lambda word: None not in (word.start, word.end)):
        group_words = list(group)
        if not is_timed:
            begin = (words[-1].end or 0.0) if words else 0.0
            if words and heard_s <= begin:
                group_words.insert(0, words.pop())
                n_same = min(n_same, len(words))
                begin = group_words[0].start or 0.0
            group_words = _sharing(group_words, begin, max(begin, heard_s))
        words += group_words
    return n_same


def _sharing(words: Sequence[Word], begin: float, end: float) -> list[Word]:
    """Return the words with the time from `begin` to `end` shared among them by their letters."""
    letters = list(accumulate((len(word.text) or 1 for word in words), initial=0))
    cuts = [begin + (end - begin) * n / letters[-1] for n in letters[:-1]] + [end]
    pairs = zip(words, pairwise(cuts), strict=True)
    return [replace(word, start=a, end=b) for word, (a, b) in pairs]


def segments(words: Sequence[Word], silence_s: float = SILENCE_S) -> list[Segment]:
    """Return timed words in segments; a new one begins after every gap of `silence_s` or more.

    Raises ValueError for a word without times.
    """
    words = whole_words(words)
    cuts = [i for i, gap in enumerate(_gaps(words)) if i and gap >= silence_s - 1e-6]
    cuts = [0, *cuts, len(words)] if words else []
    return [_segment(words[a:b]) for a, b in pairwise(cuts)]


def cues(words: Sequence[Word]) -> list[Segment]:
    """Return timed words as subtitles, those of the least cost in total.

    A cue costs 1, and 4 more if it holds one or two words. A sentence's end, or a gap of
    `SILENCE_S` or more, costs 2 inside a cue. A break costs 1 after other punctuation and 3 in
    mid-phrase, 4 more where the next cue begins within `LEAST_CUE_S`. The square of a cue's share
    of the 84 characters is added, so that cues are of like lengths. A word that is longer than a
    cue may be has one of its own. For how long each is shown see `lasting`.
    Raises ValueError for a word without times.
    """
    words = whole_words(words)
    gaps = [*_gaps(words), LONG_SILENCE_S]
    texts = [word.text.rstrip() for word in words]
    closes = [  # whether a cue should end with the word
        text.rstrip("\"'”’)»").endswith(SENTENCE_ENDS) or gap >= SILENCE_S - 1e-6
        for text, gap in zip(texts, gaps[1:], strict=True)
    ]
    best: list[tuple[float, int]] = [(0.0, 0)]  # of the first n words: cost, where the last begins
    for n in range(1, len(words) + 1):
        last = 0.0 if closes[n - 1] else 1.0 if texts[n - 1].endswith(PUNCTUATION) else 3.0
        choices = []
        for first in range(n - 1, -1, -1):
            cue = _segment(words[first:n])
            inside = sum(closes[first : n - 1])
            too_long = lines(cue.text).count("\n") > 1 or cue.end - cue.start > CUE_S + 1e-6
            if n - first > 1 and (too_long or gaps[first + 1] >= LONG_SILENCE_S - 1e-6):
                break
            fill = (len(cue.text) / (2 * LINE_CHARACTERS)) ** 2
            hurried = n < len(words) and (words[n].start or 0.0) - cue.start < LEAST_CUE_S
            cost = 1 + 4 * (n - first < 3) + 2 * inside + last + 4 * hurried + fill
            choices.append((best[first][0] + cost, first))
        best.append(min(choices))
    cuts = [len(words)]
    while cuts[0]:
        cuts.insert(0, best[cuts[0]][1])
    return lasting([_segment(words[a:b]) for a, b in pairwise(cuts)])


def lasting(cues: Sequence[Segment]) -> list[Segment]:
    """Return the cues, in order of their starts, each shown for `LEAST_CUE_S` or more and none
    while another is.

    A cue never ends before it did. A short one is shown into the pause after it; where that is too
    short, the next one begins later.
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
            raise ValueError(f"{word} has no times; segments are made of timed words")
    ends = [word.end or 0.0 for word in words]
    return [0.0 if i == 0 else (word.start or 0.0) - ends[i - 1] for i, word in enumerate(words)]


def _segment(words: Sequence[Word]) -> Segment:
    text = "".join(word.text for word in words).strip()
    return Segment(words[0].start or 0.0, max(word.end or 0.0 for word in words), text)


def lines(text: str) -> str:
    """Return a cue's text in one or two lines of at most 42 characters, more where it is longer."""
    words = text.split()
    pairs = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    fitting = [pair for pair in pairs if max(map(len, pair)) <= LINE_CHARACTERS]
    if len(text) <= LINE_CHARACTERS or not fitting:
        return textwrap.fill(text, LINE_CHARACTERS)

    def unevenness(pair: tuple[str, str]) -> float:
        upper, lower = map(len, pair)
        return abs(lower - upper) + (upper > lower) - 20 * pair[0].endswith(PUNCTUATION)

    best = min(fitting, key=unevenness)
    return "\n".join(best)


def srt(cues: Sequence[Segment]) -> str:
    """Return subtitles as SubRip has them."""
    return "\n".join(
        f"{n}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n{lines(cue.text)}\n"
        for n, cue in enumerate(cues, 1)
    )


def vtt(cues: Sequence[Segment]) -> str:
    """Return subtitles as WebVTT has them."""
    texts = [lines(cue.text) for cue in cues]
    escaped = [text.replace("&", "&amp;").replace("<", "&lt;") for text in texts]
    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start)} --> {clock(cue.end)}\n{text}\n"
        for cue, text in zip(cues, escaped, strict=True)
    )


def clock(seconds: float, point: str = ".") -> str:
    """Return a time as `00:01:02.345`."""
    ms = round(seconds * 1000)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"
