"""When words appeared: first token, every word, the end, and the lagging family.

Every time is on a clock: "cu" (step k happens when its audio is there, a_k) or "ca" (when
its computation is done, f_k). Words are compared by the light key of `text.normalise`; a language
without spaces has characters in their place (`text.units`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile

import numpy as np
from rapidfuzz.distance import LCSseq, Levenshtein

from streaming_asr.metrics.trace import Trace, ratio
from streaming_asr.text.growing import Growing, Words
from streaming_asr.text.normalise import light_key

SHORT = 32  # words of a display behind those of the final text, as most have
SEEN = ("shown", "stable", "committed")


class WordTimes:
    """At which step each word of the final text was first shown, last appeared, and was committed.

    words: of the final text, under the light key. The others are step indices, one per word,
    computed when they are first read.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._whole = trace.light(trace.final)
        self.words = self._whole.all()

    @property
    def shown(self) -> list[int]:
        """The first display that has the word."""
        return self._shown_and_stable[0]

    @property
    def stable(self) -> list[int]:
        """The first display from which on all displays have the word."""
        return self._shown_and_stable[1]

    @cached_property
    def committed(self) -> list[int]:
        """The first step from which on the word and all before it are final."""
        committed = [-1] * len(self.words)  # -1: not yet
        n_agreed = 0
        for k, text in self._trace.commits:
            n_agreed_before, n_agreed = n_agreed, self._trace.light(text).shared(self._whole)
            # After words were taken back, n_agreed is less; they get their step when they return.
            for i in range(n_agreed_before, n_agreed):
                committed[i] = k
        return committed

    @cached_property
    def _shown_and_stable(self) -> tuple[list[int], list[int]]:
        final, whole = self.words, self._whole
        places: dict[str, list[int]] = {}  # of each word in the final text
        for i, word in enumerate(final):
            places.setdefault(word, []).append(i)
        first_shown, stable = [-1] * len(final), [-1] * len(final)  # -1: not yet
        # What the display before had of the final text: its first words, and some behind them.
        n_before, behind_before = 0, frozenset[int]()
        for k, text in self._trace.displays:
            words = self._trace.light(text)
            n = words.shared(whole)
            behind = _behind(words.behind(n), n, final, places)
            for i in {*range(n, n_before), *behind_before} - behind:
                if i >= n:  # gone again: stable starts over, the first display stays
                    stable[i] = -1
            for i in (*range(n_before, n), *behind):
                if stable[i] < 0:
                    stable[i] = k
                    if first_shown[i] < 0:
                        first_shown[i] = k
            n_before, behind_before = n, behind
        # If committed and partial text ran together into one word, no display had the word itself.
        first_shown = [c if k < 0 else k for k, c in zip(first_shown, self.committed, strict=True)]
        stable = [c if k < 0 else k for k, c in zip(stable, self.committed, strict=True)]
        return first_shown, stable


@dataclass(frozen=True)
class Hit:
    """A final word that is right: its index in the final text, and when it was spoken, in s."""

    word: int
    start_s: float
    end_s: float


class WordLatency:
    """The times of one utterance's words against when they were spoken.

    Needs word times: raises ValueError where the trace has none.
    """

    def __init__(self, trace: Trace) -> None:
        if trace.words is None:
            raise ValueError(f"{trace.utt} has no word times; word latency needs them")
        self._trace = trace
        self.spoken = [word for word in trace.words if light_key(word.text)]
        self.steps = WordTimes(trace)

    @cached_property
    def hits(self) -> tuple[Hit, ...]:
        """The words that the Levenshtein alignment of final text and reference finds equal."""
        reference = [light_key(word.text) for word in self.spoken]
        hits = []
        for block in Levenshtein.opcodes(reference, self.steps.words):
            if block.tag == "equal":
                for i in range(block.src_start, block.src_end):
                    word = self.spoken[i]
                    index = block.dest_start + i - block.src_start
                    hits.append(Hit(index, word.start, word.end))
        return tuple(hits)

    def latencies(self, seen: str, clock: str) -> list[float]:
        """Return the seconds from the end of each hit to when it was shown, stable or committed.

        seen: one of SEEN. clock: `cu` or `ca`.
        """
        times = self._trace.times(clock)
        steps: list[int] = getattr(self.steps, seen)
        return [times[steps[hit.word]] - hit.end_s for hit in self.hits]

    def first_correct_s(self, clock: str) -> float | None:
        """Return when the first right word of the final text was shown, in seconds; None without
        one."""
        times = self._trace.times(clock)
        return min((times[self.steps.shown[hit.word]] for hit in self.hits), default=None)

    def last_word_s(self, clock: str) -> float | None:
        """Return the seconds from the end of the last spoken word to the commit of the last final
        word; None without words."""
        if not self.steps.words or not self.spoken:
            return None
        return self._trace.times(clock)[self.steps.committed[-1]] - self.spoken[-1].end


def timed(trace: Trace) -> WordLatency | None:
    """Return the word latency of a trace, computed once; None where its words have no times."""
    if trace.words is None:
        return None
    if "timed" not in trace.derived:
        trace.derived["timed"] = WordLatency(trace)
    words: WordLatency = trace.derived["timed"]
    return words


def first_token_s(trace: Trace, clock: str) -> float | None:
    """Return the first time anything is displayed; None where nothing ever is."""
    for k, text in trace.displays:
        if len(text):
            return trace.times(clock)[k]
    return None


def summary(latencies: Sequence[float]) -> dict[str, float | None]:
    """Return mean and percentiles (linear interpolation) of pooled latencies, None for none."""
    if not latencies:
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99"))
    values = np.asarray(latencies)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(values, (50, 90, 95, 99)))
    return {"mean": float(values.mean()), "p50": p50, "p90": p90, "p95": p95, "p99": p99}


def commit_steps(trace: Trace) -> list[int]:
    """Return the step that committed each unit of the final text: whitespace token or character.

    A unit counts as committed since the step from which the committed text always held it in its
    place, whatever its case and the punctuation at its edges: where a method takes a word back,
    the word that replaces it has the time of its own step.
    """
    steps: list[int] = []
    tokens: Words = Growing.of(())
    for k, text in trace.commits:
        tokens_before, tokens = tokens, trace.written(text)
        n_same = tokens.shared(tokens_before)
        pairs = zip(tokens_before.behind(n_same), tokens.behind(n_same), strict=False)
        n_same += sum(1 for _ in takewhile(lambda pair: _key(pair[0]) == _key(pair[1]), pairs))
        steps[n_same:] = [k] * (len(tokens) - n_same)
    return steps


def _key(token: str) -> str:
    return light_key(token) or token  # a token of only punctuation has an empty light key


def commit_delays_ms(trace: Trace, clock: str) -> list[float]:
    """Return d_i, when each unit of the final text was committed, in milliseconds."""
    times = trace.times(clock)
    return [times[k] * 1000.0 for k in commit_steps(trace)]


def token_delays_ms(trace: Trace, clock: str) -> list[float]:
    """Return d_i, when each token became final, in ms; empty where the method counts none."""
    times = trace.times(clock)
    counts = [int(step.count("tokens")) for step in trace.steps]
    return [time * 1000.0 for time, n in zip(times, counts, strict=True) for _ in range(n)]


def average_lagging(delays: Sequence[float], n_reference: int, duration: float) -> float | None:
    """Return AL (Ma et al. 2019, STACL, equation 7) as SimulEval's ALScorer computes it: the mean
    lag behind an oracle that emits `n_reference` words evenly over the duration.

    `delays` and `duration` share a unit, which is the answer's. Words after the first one at or
    past the end do not count. None without words, reference or duration.
    """
    if not delays or n_reference == 0 or duration <= 0:
        return None
    # If all words come after the end, SimulEval gives the first one's delay.
    if delays[0] > duration:
        return delays[0]
    lags = []
    for i, delay in enumerate(delays):
        lags.append(delay - i * duration / n_reference)
        if delay >= duration:
            break
    return sum(lags) / len(lags)


def length_adaptive_average_lagging(
    delays: Sequence[float], n_reference: int, duration: float
) -> float | None:
    """Return LAAL (Papi et al. 2022; Polak et al. 2022), AL at the pace of the longer text."""
    return average_lagging(delays, max(len(delays), n_reference), duration)


def yet_another_average_lagging(
    delays: Sequence[float],
    n_reference: int,
    duration: float,
    recording_end: float | None = None,
) -> float | None:
    """Return YAAL (Polak et al. 2025, arXiv 2509.17349) as OmniSTEval's YAALScorer computes it.

    This is LAAL over only the words emitted before `duration`. For a sentence of a long recording
    (LongYAAL) it is over those emitted before `recording_end`, the end of the recording counted
    from the sentence's start. None if there is no such word.
    """
    if duration <= 0:
        return None
    end = duration if recording_end is None else recording_end
    pace = duration / max(len(delays), n_reference, 1)
    lags = [
        delay - i * pace for i, delay in enumerate(takewhile(lambda delay: delay < end, delays))
    ]
    return sum(lags) / len(lags) if lags else None


def differentiable_average_lagging(delays: Sequence[float], duration: float) -> float | None:
    """Return DAL (Arivazhagan et al. 2019, eq. 13): a word takes at least duration / n_words."""
    if not delays or duration <= 0:
        return None
    pace = duration / len(delays)
    lags, earliest = [], 0.0
    for i, delay in enumerate(delays):
        adjusted = max(delay, earliest)
        lags.append(adjusted - i * pace)
        earliest = adjusted + pace
    return sum(lags) / len(lags)


def average_proportion(delays: Sequence[float], n_reference: int, duration: float) -> float | None:
    """Return AP (Cho and Esipova 2016), mean delay over duration, per reference word."""
    return ratio(sum(delays), n_reference * duration) if delays else None


def _behind(
    rest: Sequence[str], n: int, final: Sequence[str], places: Mapping[str, Sequence[int]]
) -> frozenset[int]:
    """Return the words of the final text from the `n`-th on, as indices, that the `rest` of a
    display has: those of a longest common subsequence whose words match as early as they can.

    places: the ascending indices of each word in `final`.
    """
    # Only words of both can match, and of an hour few are in the rest. Of these, those are enough
    # at which so many words match for the first time.
    ends = [n - 1]  # the least index by which so many words match
    first = set()
    for word in rest if len(rest) <= SHORT else ():
        indices = places.get(word, ())
        for k in reversed(range(len(ends))):
            at = bisect_right(indices, ends[k])
            if at < len(indices) and (k + 1 == len(ends) or indices[at] < ends[k + 1]):
                ends[k + 1 : k + 2] = [indices[at]]
                first.add(indices[at])
    if len(rest) > SHORT:
        first.update(i for word in set(rest) for i in _from(places.get(word, ()), n))
    of_both = sorted(first)
    if not of_both:
        return frozenset()
    # rapidfuzz would match a common suffix first, and so the latest words. Two different marks at
    # the ends prevent it: an early "the" is the first "the" of the final text.
    blocks = LCSseq.opcodes([*rest, "\0"], [*(final[i] for i in of_both), "\1"])
    return frozenset(
        of_both[i]
        for block in blocks
        if block.tag == "equal"
        for i in range(block.dest_start, block.dest_end)
    )


def _from(indices: Sequence[int], n: int) -> Sequence[int]:
    """Return those of ascending indices that are `n` or more."""
    return indices[bisect_left(indices, n) :]
