"""Is a stream as good as the same recogniser's batch mode, and where does it lose?

Both are logs of the same recordings. Errors are counted against the reference, or against batch's
text where there is none; every error belongs to one of metrics.losses.PARTS, so that the parts add
up to the difference.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.events.log import UtteranceLog, committed_words, read_log
from streaming_asr.metrics import Trace, compute, traces
from streaming_asr.metrics.intervals import Clusters, Estimate, flip, sums
from streaming_asr.metrics.losses import PARTS, ErrorBlock, blocks, boundaries, counts
from streaming_asr.metrics.ordinary import place
from streaming_asr.score.compare import check_lengths, check_same, read_runs
from streaming_asr.score.folder import EVENTS
from streaming_asr.utterance import TimedWord

N_PLACES = 10
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
    as 20 utterances. metrics: of the stream. gaps: the share of gaps between words that are within
    a word of a boundary of steps.
    n_failed: recordings that failed in the stream and in batch."""

    total: PartErrors
    parts: list[PartErrors]
    drawn: str
    is_labelled: bool
    places: list[Place]
    metrics: dict[str, float | None]
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
    stream_log, batch_log = read_log(stream / EVENTS), read_log(batch / EVENTS)
    logged = {each.utt: each for each in batch_log.utterances}
    for each in stream_log.utterances:
        check_lengths(each, logged[each.utt], ("stream", "batch"))
    normaliser = (stream_log.header.get("config") or {}).get("normaliser")
    of_batch = {each.utt: each for each in traces(batch_log, normaliser)}
    pairs = [(each, of_batch[each.utt]) for each in traces(stream_log, normaliser)]
    is_labelled = any(trace.reference.strip() for trace, _ in pairs)
    if not is_labelled:
        pairs = [_against_batch(*pair, logged[pair[0].utt]) for pair in pairs]
    return _audit(pairs, runs[0].sample.clusters, is_labelled)


def _against_batch(stream: Trace, batch: Trace, log: UtteranceLog) -> tuple[Trace, Trace]:
    """Return both traces with batch's text as their reference, and its word times where all of its
    words have them; `log`: of batch."""
    entries = [(text.strip(), times[0], times[1]) for text, times in committed_words(log.steps)]
    words = [TimedWord(t, s, e) for t, s, e in entries if s is not None and e is not None]
    changes: dict[str, Any] = {"reference": batch.hypothesis, "words": None}
    if words and len(words) == len(entries):
        changes["words"] = tuple(words)
    return replace(stream, **changes), replace(batch, **changes)


def _audit(pairs: Sequence[tuple[Trace, Trace]], clusters: Clusters, is_labelled: bool) -> Audit:
    """Return the audit of the traces of stream and batch, a pair for each recording."""
    streams, batches = ([pair[side] for pair in pairs] for side in (0, 1))
    references = [each.normalise.words(each.reference) for each in streams]
    texts = [each.normalise.words(each.hypothesis) for each in streams]
    stream_blocks, batch_blocks = (
        list(map(blocks, side, references)) for side in (streams, batches)
    )
    stream_counts, batch_counts = (
        list(map(counts, side)) for side in (stream_blocks, batch_blocks)
    )
    n_words = [len(words) for words in references]
    if not sum(n_words):
        n = sum(sum(each.values()) for each in stream_counts)
        raise UserError(
            f"no speech: neither reference nor batch has a word, the stream has {n}; give "
            "recordings with speech"
        )

    def row(name: str, parts: Sequence[str]) -> PartErrors:
        """Return the errors of some parts together, as one row."""
        of_stream, of_batch = (
            np.array([sum(each[part] for part in parts) for each in side], dtype=np.float64)
            for side in (stream_counts, batch_counts)
        )
        points = 100 * sums(list(of_stream - of_batch), clusters)
        difference = flip(points, sums(n_words, clusters))
        assert difference is not None
        stream, batch = (
            100 * float(errors.sum()) / sum(n_words) for errors in (of_stream, of_batch)
        )
        return PartErrors(name, stream, batch, difference)

    n_cuts = sum(len(boundaries(*each)) for each in zip(streams, texts, strict=True))
    n_gaps = sum(max(len(words) - 1, 0) for words in texts)
    places = (
        _places(*each) for each in zip(pairs, references, stream_blocks, batch_blocks, strict=True)
    )
    return Audit(
        total=row("errors", tuple(PARTS)),
        parts=[row(part, [part]) for part in PARTS],
        drawn=f"{clusters.n} {clusters.kind}s",
        is_labelled=is_labelled,
        places=sorted(chain.from_iterable(places), key=lambda each: -each.n)[:N_PLACES],
        metrics=compute(streams),
        gaps=n_cuts / n_gaps if n_gaps else 0.0,
        n_failed=(_n_failed(streams), _n_failed(batches)),
    )


def _n_failed(side: Sequence[Trace]) -> int:
    return sum(trace.error is not None for trace in side)


def _places(
    pair: tuple[Trace, Trace],
    reference: Sequence[str],
    stream_blocks: Sequence[ErrorBlock],
    batch_blocks: Sequence[ErrorBlock],
) -> Iterator[Place]:
    """Yield the places of one recording where the stream makes errors that batch does not make."""
    stream, batch = (each.normalise.words(each.hypothesis) for each in pair)
    batch_places = place(reference, batch)
    batch_errors = [error.i for block in batch_blocks for error in block.errors]
    for block in stream_blocks:
        n = len(block.errors) - sum(block.i0 <= i <= block.i1 for i in batch_errors)
        if n <= 0:
            continue
        i0, i1 = max(block.i0 - AROUND, 0), block.i1 + AROUND
        parts = [error.part for error in block.errors]
        start, end = _times(pair[0], block)
        yield Place(
            utt=pair[0].utt,
            start=start,
            end=end,
            part=max(dict.fromkeys(parts), key=parts.count),
            n=n,
            reference=" ".join(reference[i0:i1]),
            stream=" ".join(stream[max(block.j0 - AROUND, 0) : block.j1 + AROUND]),
            batch=" ".join(
                word for word, at in zip(batch, batch_places, strict=True) if i0 <= at.n_before < i1
            ),
        )


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
