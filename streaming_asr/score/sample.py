"""What intervals and differences need of one run, utterance by utterance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streaming_asr.metrics import Trace
from streaming_asr.metrics import intervals as statistics
from streaming_asr.metrics.accuracy import AlignedWordErrors, Errors, word_errors
from streaming_asr.metrics.intervals import Clusters, Counts, Estimate, Pool, Statistics, Values
from streaming_asr.metrics.latency import timed

LATENCY = {0.5: "word_latency_committed_p50_{clock}_s", 0.9: "word_latency_committed_p90_{clock}_s"}


@dataclass(frozen=True)
class Sample:
    """One run's utterances: their errors, and the latencies of their words, (n_utterances,) each.

    A failed or silent utterance is in it, with its reference words as errors and no latency.
    """

    utts: list[str]
    speakers: list[str | None]
    recordings: list[str | None]
    errors: list[Errors]
    # seconds from the end of each right word to its commit; None where streams shared their steps
    # or no words are timed
    latencies: list[list[float]] | None = None
    coverage: float | None = None  # share of the spoken words that have a latency
    clock: str = "ca"

    @classmethod
    def of(
        cls,
        traces: Sequence[Trace],
        *,
        clock: str = "ca",
        recordings: Mapping[str, str | None] | None = None,
    ) -> Sample:
        """Return the sample of these traces; `recordings` names the recording of an utterance where
        several come from one."""
        word_times = [timed(trace) for trace in traces]
        n_spoken = sum(len(words.spoken) for words in word_times if words)
        latencies = [words.latencies("committed", clock) if words else [] for words in word_times]
        has_latency = n_spoken > 0 and all(trace.batch == 1 for trace in traces)
        return cls(
            utts=[trace.utt for trace in traces],
            speakers=[trace.speaker for trace in traces],
            recordings=[(recordings or {}).get(trace.utt) for trace in traces],
            errors=[word_errors(trace, trace.normalise) for trace in traces],
            latencies=latencies if has_latency else None,
            coverage=sum(map(len, latencies)) / n_spoken if n_spoken else None,
            clock=clock,
        )

    @property
    def clusters(self) -> Clusters:
        """What a draw draws of this run."""
        return statistics.clusters(self.speakers, self.recordings)

    def in_order_of(self, utts: Sequence[str]) -> Sample:
        """Return the same utterances in the order of `utts`."""
        at = {utt: k for k, utt in enumerate(self.utts)}
        order = [at[utt] for utt in utts]
        moved = {
            name: None if (values := getattr(self, name)) is None else [values[k] for k in order]
            for name in ("utts", "speakers", "recordings", "errors", "latencies")
        }
        return replace(self, **moved)  # type: ignore[arg-type]

    def statistics(self, clusters: Clusters) -> Statistics:
        """Return what maps draws of `clusters` to WER in % and the quantiles of word latency, by
        metric name."""
        errors = statistics.sums([each.errors for each in self.errors], clusters)
        words = statistics.sums([each.words for each in self.errors], clusters)
        pool = None
        if self.latencies is not None:
            pooled = [value for values in self.latencies for value in values]
            owners = np.repeat(clusters.of, [len(values) for values in self.latencies])
            pool = Pool(pooled, owners.tolist(), clusters.n)

        def of_draws(counts: Counts) -> dict[str, Values]:
            draws = {"wer": 100.0 * statistics.rate(counts, errors, words)}
            if pool is not None:
                quantiles = pool.quantiles(counts, tuple(LATENCY))
                for name, values in zip(LATENCY.values(), quantiles, strict=True):
                    draws[name.format(clock=self.clock)] = values
            return draws

        return of_draws


def shares(traces: Sequence[Trace]) -> dict[str, list[tuple[float, float]]]:
    """Return, for metrics that are a share of the whole corpus, numerator and denominator of each
    utterance by name; (0, 0) where its words are not timed."""
    pairs: dict[str, list[tuple[float, float]]] = {
        "arwer_grid_ca": [],
        "word_latency_coverage": [],
    }
    for trace in traces:
        grid, spoken = (0.0, 0.0), (0.0, 0.0)
        if (words := timed(trace)) is not None:
            aligned = AlignedWordErrors(trace, trace.normalise).on_grid("ca")
            grid = (aligned.errors, aligned.words)
            spoken = (len(words.hits), len(words.spoken))
        pairs["arwer_grid_ca"].append(grid)
        pairs["word_latency_coverage"].append(spoken)
    return pairs


def intervals(
    sample: Sample, rates: Mapping[str, Sequence[tuple[float, float]]] | None = None
) -> dict[str, Any]:
    """Return what metrics.json says of one run: the 95 % intervals of WER, word latency and `rates`
    (see `shares`), and what was drawn; empty where there is nothing to draw from."""
    clusters = sample.clusters
    base = sample.statistics(clusters)
    sums = {
        name: [statistics.sums(column, clusters) for column in zip(*pairs, strict=True)]
        for name, pairs in (rates or {}).items()
        if pairs
    }

    def of_draws(counts: Counts) -> Mapping[str, Values]:
        ranges = dict(base(counts))
        for name, (above, below) in sums.items():
            ranges[name] = 100.0 * statistics.rate(counts, above, below)
        return ranges

    ranges = statistics.bootstrap(of_draws, clusters.n) if clusters.n else {}
    return {
        "level": statistics.LEVEL,
        "drawn": clusters.kind,
        "n_drawn": clusters.n,
        "note": clusters.note,
        "metrics": {
            name: [estimate.low, estimate.high]
            for name, estimate in ranges.items()
            if estimate is not None and estimate.low is not None
        },
    }


def difference(clusters: Clusters, first: Sample, second: Sample) -> dict[str, Estimate | None]:
    """Return the first minus the second, for the metrics that both have: WER by sign flips, word
    latency by the bootstrap.

    Both hold the same utterances in the same order, which `clusters` are of, and see the same
    draws: what is hard for both cancels.
    """
    ours, theirs = (each.statistics(clusters) for each in (first, second))

    def of_draws(counts: Counts) -> dict[str, Values]:
        above, below = ours(counts), theirs(counts)
        return {
            name: value - below[name]
            for name, value in above.items()
            if name in below and name != "wer"
        }

    differences = {"wer": _wer_difference(clusters, first, second)}
    late = statistics.bootstrap(of_draws, clusters.n)
    pairs = zip(first.latencies or (), second.latencies or (), clusters.of, strict=False)
    n_differ = len({int(cluster) for mine, other, cluster in pairs if mine != other})
    for name, estimate in late.items():
        if estimate is not None and n_differ < statistics.LEAST:
            estimate = Estimate(estimate.value)
        differences[name] = estimate and replace(estimate, n_differ=n_differ)
    return differences


def _wer_difference(clusters: Clusters, first: Sample, second: Sample) -> Estimate | None:
    """Return the difference in points. Another normaliser may count the reference's words anew."""
    words, other_words = (
        statistics.sums([each.words for each in sample.errors], clusters)
        for sample in (first, second)
    )
    ours, theirs = (
        statistics.sums([each.errors for each in sample.errors], clusters)
        for sample in (first, second)
    )
    if not other_words.sum():
        return None
    return statistics.flip(100.0 * (ours - theirs * (words.sum() / other_words.sum())), words)
