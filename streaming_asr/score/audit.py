"""Is a stream as good as the same recogniser's batch mode, and where does it lose?

Both are logs of the same recordings. Errors are counted against the reference, or against batch's
text where there is none; every error belongs to one of metrics.losses.PARTS, so that the parts add
up to the difference.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.events.log import committed_words, read_log
from streaming_asr.metrics import Trace, compute, traces
from streaming_asr.metrics.intervals import Clusters, Estimate, flip, sums
from streaming_asr.metrics.latency import timed
from streaming_asr.metrics.losses import PARTS, ErrorBlock, blocks, boundaries, counts
from streaming_asr.metrics.ordinary import place
from streaming_asr.score.compare import check_lengths, check_same, read_runs
from streaming_asr.score.folder import EVENTS
from streaming_asr.utterance import TimedWord

N_PLACES = 10
LONG_S = 30.0  # of a recording in which the lag has a trend
AROUND = 3  # words that are shown on either side of a place


@dataclass(frozen=True)
class PartErrors:
    """A part: its errors per 100 words in the stream and in batch, and the difference in points."""

    name: str
    stream: float
    batch: float
    difference: Estimate


@dataclass(frozen=True)
class Place:
    """Where the stream loses against batch, in seconds of the recording."""

    utt: str
    start: float
    end: float
    part: str
    n: int  # errors of the stream that batch does not make
    reference: str
    stream: str
    batch: str


@dataclass(frozen=True)
class Audit:
    """total: all errors. parts: those of PARTS, which add up to it. drawn: what intervals are over,
    as 20 utterances. metrics: of the stream. growth: of the lag, in seconds per minute of a
    recording. gaps: the share of gaps between words that are within a word of a boundary of steps.
    n_failed: recordings that failed in the stream and in batch."""

    total: PartErrors
    parts: list[PartErrors]
    drawn: str
    is_labelled: bool
    places: list[Place]
    metrics: dict[str, float | None]
    growth: float | None
    gaps: float
    n_failed: tuple[int, int]

    def is_worse(self, margin: float) -> bool:
        """Return whether the stream's whole interval is worse than batch by more points."""
        low = self.total.difference.low
        return low is not None and low > margin

    def verdict(self, margin: float) -> str:
        """Return the answer in one sentence."""
        total = self.total.difference
        points = f"{total.value:+.1f} points"
        if total.low is None and total.value == 0 and not total.n_differ:
            return "The stream has the errors of batch, neither more nor fewer."
        if total.low is None:
            return (
                f"The stream does not differ significantly from batch: {points}, in only "
                f"{total.n_differ} of {self.drawn}."
            )
        bounds = f"95 % interval {total.low:+.1f} to {total.high:+.1f}"
        if total.high is not None and total.high < 0:
            return f"The stream has fewer errors than batch: {points} ({bounds})."
        if not self.is_worse(margin):
            by = f" by more than {margin:g}" if margin else " than batch"
            return f"The stream is not surely worse{by}: {points} ({bounds})."
        most = max(self.parts, key=lambda row: row.difference.value)
        return (
            f"The stream is worse than batch by {points} ({bounds}), most of it: "
            f"{PARTS[most.name]} ({most.difference.value:+.1f})."
        )


def audit(stream: Path, batch: Path) -> Audit:
    """Return what a cell loses against another of the same recordings.

    Raises UserError for logs of different recordings, lengths or tasks, and where no word can be
    compared.
    """
    runs = read_runs([str(stream), str(batch)])
    check_same(runs[0], runs[1])
    ours = read_log(stream / EVENTS)
    theirs = read_log(batch / EVENTS)
    logged = {each.utt: each for each in theirs.utterances}
    for each in ours.utterances:
        check_lengths(each, logged[each.utt], ("stream", "batch"))
    kind = (ours.header.get("config") or {}).get("normaliser")
    mine = traces(ours, kind)
    other = {each.utt: each for each in traces(theirs, kind)}
    is_labelled = any(each.reference.strip() for each in mine)
    pairs: list[tuple[Trace, Trace]] = []
    for trace in mine:
        base = other[trace.utt]
        if not is_labelled:
            heard = committed_words(logged[trace.utt].steps)
            times = [(text.strip(), at[0], at[1]) for text, at in heard]
            words = [TimedWord(t, s, e) for t, s, e in times if s is not None and e is not None]
            timed_words = tuple(words) if words and len(words) == len(times) else None
            changes: dict[str, Any] = {"reference": base.hypothesis, "words": timed_words}
            trace, base = replace(trace, **changes), replace(base, **changes)
        pairs.append((trace, base))
    return _audit(pairs, runs[0].sample.clusters, is_labelled)


def _audit(pairs: Sequence[tuple[Trace, Trace]], clusters: Clusters, is_labelled: bool) -> Audit:
    references = [trace.normalise.words(trace.reference) for trace, _ in pairs]
    n_words = [len(words) for words in references]
    both_blocks = [
        (blocks(trace, words), blocks(base, words))
        for (trace, base), words in zip(pairs, references, strict=True)
    ]
    both = [[counts(each) for each in side] for side in zip(*both_blocks, strict=True)]
    if not sum(n_words):
        n = [sum(sum(each.values()) for each in side) for side in both]
        raise UserError(
            f"no speech: neither reference nor batch has a word, the stream has {n[0]}; give "
            "recordings with speech"
        )

    def row(name: str, parts: Sequence[str]) -> PartErrors:
        errors = [
            np.array([sum(each[part] for part in parts) for each in side], dtype=np.float64)
            for side in both
        ]
        weights = sums(n_words, clusters)
        difference = flip(100 * sums(list(errors[0] - errors[1]), clusters), weights)
        assert difference is not None
        rates = [100 * float(each.sum()) / sum(n_words) for each in errors]
        return PartErrors(name, rates[0], rates[1], difference)

    stream = [trace for trace, _ in pairs]
    texts = [trace.normalise.words(trace.hypothesis) for trace in stream]
    n_cuts = sum(len(boundaries(t, words)) for t, words in zip(stream, texts, strict=True))
    n_gaps = sum(max(len(words) - 1, 0) for words in texts)
    return Audit(
        total=row("errors", tuple(PARTS)),
        parts=[row(part, [part]) for part in PARTS],
        drawn=f"{clusters.n} {clusters.kind}s",
        is_labelled=is_labelled,
        places=_places(pairs, references, both_blocks),
        metrics=compute(stream),
        growth=growth(stream),
        gaps=n_cuts / n_gaps if n_gaps else 0.0,
        n_failed=tuple(sum(t.error is not None for t in side) for side in zip(*pairs, strict=True)),  # type: ignore[arg-type]
    )


def growth(streams: Sequence[Trace]) -> float | None:
    """Return how fast the lag of right words grows within a recording, in seconds per minute: the
    slope of least squares, each recording about its own mean. None without word times and without
    a recording of LONG_S."""
    over = under = 0.0
    for trace in streams:
        words = timed(trace)
        if words is None or len(words.hits) < 2 or trace.batch > 1 or trace.duration_s < LONG_S:
            continue
        at = np.array([hit.end_s / 60 for hit in words.hits])
        lag = np.array(words.latencies("committed", "ca"))
        at -= at.mean()
        over, under = over + float(at @ (lag - lag.mean())), under + float(at @ at)
    return over / under if under else None


def _places(
    pairs: Sequence[tuple[Trace, Trace]],
    references: Sequence[tuple[str, ...]],
    both_blocks: Sequence[tuple[list[ErrorBlock], list[ErrorBlock]]],
) -> list[Place]:
    places = []
    for (trace, base), words, (mine, others) in zip(pairs, references, both_blocks, strict=True):
        texts = [each.normalise.words(each.hypothesis) for each in (trace, base)]
        of_batch = place(words, texts[1])
        for block in mine:
            usual = sum(block.i0 <= e.i <= block.i1 for each in others for e in each.errors)
            if (n := len(block.errors) - usual) <= 0:
                continue
            i0, i1 = max(block.i0 - AROUND, 0), block.i1 + AROUND
            near = [w for w, p in zip(texts[1], of_batch, strict=True) if i0 <= p.n_before < i1]
            heard = texts[0][max(block.j0 - AROUND, 0) : block.j1 + AROUND]
            parts = [error.part for error in block.errors]
            part = max(dict.fromkeys(parts), key=parts.count)
            spoken = (words[i0:i1], heard, near)
            times = _times(trace, block)
            places.append(Place(trace.utt, *times, part, n, *(" ".join(w) for w in spoken)))
    return sorted(places, key=lambda each: -each.n)[:N_PLACES]


def _times(trace: Trace, block: ErrorBlock) -> tuple[float, float]:
    """Return when a block was spoken: by the reference's words, else by the step of its text."""
    if trace.words:
        ends = list(accumulate(len(trace.normalise.words(word.text)) for word in trace.words))
        first, last = (min(bisect(ends, i), len(ends) - 1) for i in (block.i0, block.i1))
        return trace.words[first].start, trace.words[last].end
    for step in trace.steps:
        if len(trace.normalise.words(step.committed)) > block.j0:
            return max(step.audio_s - 3.0, 0.0), step.audio_s
    return max(trace.duration_s - 3.0, 0.0), trace.duration_s
