"""What live systems get wrong: words lost at pauses, speech without text, and partial text.

A word of the reference is dropped if the final text has too few words where the two differ, and is
nearer to the reference without this word (`dropped`). Pauses are those of PAUSE_S or more, and
what is lost at one is looked for in EDGE_S of speech on either side. All of it needs word times.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics import latency
from streaming_asr.metrics.losses import spans
from streaming_asr.metrics.ordinary import words_of
from streaming_asr.metrics.table import CLOCKS
from streaming_asr.metrics.trace import Trace
from streaming_asr.metrics.turns import final_text
from streaming_asr.text.growing import Growing, Words
from streaming_asr.utterance import TimedWord

PAUSE_S = 0.5  # a shorter pause is part of the speech
EDGE_S = 1.0  # of speech after and before a pause
LONG_S = 5.0  # of speech without new text, after which a reader thinks that it has stopped
AFTER_MS = (200, 500, 1000)  # after the end of speech, when a partial text is acted on
MOST_TRIED = 8  # dropped words of one place, of which every smaller number is tried too
NEARER = 0.5  # of a dropped word's letters: by so many the rest must at least be nearer to the text
Pair: TypeAlias = tuple[float, float]  # a recording's part of the numerator and the denominator

AT_EDGES = ("first_words_dropped", "words_dropped_after_pauses", "words_dropped_before_pauses")
# The columns of `score --metrics live`.
COLUMNS = (
    "wer",
    *AT_EDGES,
    "last_words_dropped",
    "textless_speech_ca_s",
    "textless_over_5s_ca",
    *(f"final_shown_{ms}ms_ca" for ms in AFTER_MS),
    *(f"final_gain_{ms}ms_ca_s" for ms in AFTER_MS),
    "stable_before_commit_mean_ca_s",
)
# Those of this file that are a ratio of sums over the recordings, and so have an interval.
RATES = tuple(name for name in COLUMNS if name not in ("wer", "last_words_dropped"))


def figures(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the metrics of this file over a corpus."""
    values: dict[str, float | None] = {}
    for name in (*RATES, "textless_speech_cu_s", "textless_over_5s_cu"):
        sums = np.sum([pairs(trace)[name] for trace in traces] or [(0.0, 0.0)], axis=0)
        scale = 1.0 if name.endswith("_s") else 100.0
        values[name] = float(scale * sums[0] / sums[1]) if sums[1] else None
    for clock in CLOCKS:
        summary = latency.summary([gap for trace in traces for gap in held_back_s(trace, clock)])
        for figure in ("mean", "p50", "p90"):
            values[f"stable_before_commit_{figure}_{clock}_s"] = summary[figure]
    return values


def pairs(trace: Trace) -> dict[str, Pair]:
    """Return what a trace adds to the numerator and the denominator of each rate, computed once;
    zeros without word times."""
    if "live" not in trace.derived:
        of_trace: dict[str, Pair] = dict(zip(AT_EDGES, edges(trace), strict=True))
        for clock in CLOCKS:
            longest = textless_s(trace, clock)
            is_known = longest is not None
            of_trace[f"textless_speech_{clock}_s"] = (longest or 0.0, is_known)
            of_trace[f"textless_over_5s_{clock}"] = ((longest or 0.0) > LONG_S, is_known)
        for ms in AFTER_MS:
            gain = gain_s(trace, ms / 1000)
            of_trace[f"final_shown_{ms}ms_ca"] = (gain is not None, bool(trace.words))
            of_trace[f"final_gain_{ms}ms_ca_s"] = (gain or 0.0, gain is not None)
        gaps = held_back_s(trace, "ca")
        of_trace["stable_before_commit_mean_ca_s"] = (sum(gaps), len(gaps))
        trace.derived["live"] = of_trace
    live: dict[str, Pair] = trace.derived["live"]
    return live


# -- words lost at pauses -----------------------------------------------------------------------


def edges(trace: Trace) -> tuple[Pair, Pair, Pair]:
    """Return (with dropped words, all) of: recordings, by the first EDGE_S of their speech; pauses,
    by the speech after them; pauses, by the speech before them."""
    reference: list[str] = []
    places = []  # of each stretch: its words at the beginning and at the end
    for stretch in _stretches(trace):
        texts = [word.text for word in stretch]
        n_first = sum(word.start < stretch[0].start + EDGE_S for word in stretch)
        n_last = sum(word.end > stretch[-1].end - EDGE_S for word in stretch)
        # Each stretch is normalised by itself, so that no word is joined across a pause.
        begin, end = len(reference), len(reference) + len(_words(trace, texts))
        reference += _words(trace, texts)
        last = end - len(_words(trace, texts[-n_last:]))
        places.append((range(begin, begin + len(_words(trace, texts[:n_first]))), range(last, end)))
    lost = dropped(reference, words_of(trace.hypothesis, trace.normalise))
    has_lost = [[not lost.isdisjoint(at) for at in of_stretch] for of_stretch in places]
    first = (has_lost[0][0], 1) if has_lost else (0, 0)
    n_pauses = max(len(has_lost) - 1, 0)
    after, before = ([each[k] for each in has_lost] for k in (0, 1))
    return first, (sum(after[1:]), n_pauses), (sum(before[:-1]), n_pauses)


def _words(trace: Trace, texts: Sequence[str]) -> tuple[str, ...]:
    return words_of(" ".join(texts), trace.normalise)


def _stretches(trace: Trace) -> Iterator[Sequence[TimedWord]]:
    """Yield the words of the reference between two pauses."""
    words, begin, speech_end_s = trace.words or (), 0, 0.0
    for i, word in enumerate(words):
        if i > begin and word.start - speech_end_s >= PAUSE_S:
            yield words[begin:i]
            begin = i
        speech_end_s = max(speech_end_s, word.end)  # words may overlap
    if words:
        yield words[begin:]


def dropped(reference: Sequence[str], text: Sequence[str]) -> set[int]:
    """Return the indices of the words of `reference` that `text` lacks.

    Where the alignment (`losses.spans`) has n words of the reference too many, at most n words that
    follow each other are dropped: those without which the rest, written without blanks, is nearest
    to the text by Levenshtein distance, where each dropped letter counts NEARER; of several the
    fewest and first. A word that the text has in another form, or another word in its place, is
    not dropped.
    """
    lost: set[int] = set()
    for i0, i1, j0, j1, _ in spans(reference, text):
        n_lacking = (i1 - i0) - (j1 - j0)
        if n_lacking <= 0:
            continue
        spoken, written = reference[i0:i1], "".join(text[j0:j1])
        sizes = range(n_lacking + 1) if n_lacking <= MOST_TRIED else (0, n_lacking)
        _, size, first = min(
            (_distance(spoken, k, n, written), n, k)
            for n in sizes
            for k in range(len(spoken) - n + 1)
        )
        lost.update(range(i0 + first, i0 + first + size))
    return lost


def _distance(spoken: Sequence[str], first: int, n: int, written: str) -> float:
    """Return the distance of the words without `n` of them to the text, and what these add."""
    rest = "".join((*spoken[:first], *spoken[first + n :]))
    n_letters = sum(map(len, spoken[first : first + n]))
    return Levenshtein.distance(rest, written) + NEARER * n_letters


# -- speech without text ------------------------------------------------------------------------


def textless_s(trace: Trace, clock: str) -> float | None:
    """Return the most seconds of speech between two moments at which a new word was shown, the
    start of the recording and its end included; None without word times.

    Pauses do not count. A failed recording has all its speech without text.
    """
    stretches = list(_stretches(trace))
    if not stretches:
        return None
    ends = [(each[0].start, max(word.end for word in each)) for each in stretches]
    # Seconds of speech up to each start and end, as a function of time.
    times = np.array(ends).ravel()
    lengths = np.diff(times)
    lengths[1::2] = 0.0  # the pauses
    spoken = np.concatenate([[0.0], np.cumsum(lengths)])
    moments = [0.0, *_news(trace, clock), max(times[-1], trace.duration_s)]
    return float(np.diff(np.interp(np.maximum.accumulate(moments), times, spoken)).max())


def _news(trace: Trace, clock: str) -> Iterator[float]:
    """Yield when a word was shown that the display before did not have in its place."""
    times = trace.times(clock)
    words: Words = Growing.of(())
    for k, text in trace.displays:
        words_before, words = words, trace.light(text)
        if words.shared(words_before) < len(words):
            yield times[k]


# -- partial text -------------------------------------------------------------------------------


def gain_s(trace: Trace, after_s: float) -> float | None:
    """Return how much earlier than the final text the text was known that was shown `after_s` after
    the last word, on the compute clock, at least 0; None if it was not the final one.

    Texts are compared under the light key; an empty one is not the final one.
    """
    final = final_text(trace)
    if final is None or not trace.words:
        return None
    at_s = trace.words[-1].end + after_s
    times = [step.finished_s for step in trace.steps]
    last_step = bisect_right(times, at_s + 1e-9) - 1  # the last step by then
    final_words = trace.light(trace.final).all()
    is_final = (
        last_step >= 0 and trace.light(trace.steps[last_step].displayed_text).all() == final_words
    )
    return max(final[1] - after_s, 0.0) if is_final else None


def held_back_s(trace: Trace, clock: str) -> list[float]:
    """Return for each right word how long all displays had had it when it was committed."""
    words = latency.timed(trace)
    if words is None:
        return []
    times, steps = trace.times(clock), words.steps
    return [times[steps.committed[hit.word]] - times[steps.stable[hit.word]] for hit in words.hits]
