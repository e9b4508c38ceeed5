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
        """Return the sample of these traces.

        clock: `ca` or `cu`, of the latencies. recordings: the recording of each utterance by the
        utterance's name, as several utterances may come from one recording.
        """
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
        """The clusters (speakers, recordings or utterances) that a bootstrap draws from."""
        return statistics.clusters(self.speakers, self.recordings)

    def in_order_of(self, utts: Sequence[str]) -> Sample:
        """Return the same utterances in the order of `utts`."""
        index_of = {utt: k for k, utt in enumerate(self.utts)}
        order = [index_of[utt] for utt in utts]
        latencies = None if self.latencies is None else [self.latencies[k] for k in order]
        return replace(
            self,
            utts=list(utts),
            speakers=[self.speakers[k] for k in order],
            recordings=[self.recordings[k] for k in order],
            errors=[self.errors[k] for k in order],
            latencies=latencies,
        )

    def statistics(self, clusters: Clusters) -> Statistics:
        """Return the function that computes, of bootstrap draws, the metrics of each draw: WER in
        percent and the quantiles of word latency in seconds, by name.

        The function takes how often each cluster is drawn, (n_draws, n_clusters), and returns
        arrays of (n_draws,).
        """
        errors = statistics.sums([each.errors for each in self.errors], clusters)
        words = statistics.sums([each.words for each in self.errors], clusters)
        pool = None
        if self.latencies is not None:
            pooled = [latency_s for of_words in self.latencies for latency_s in of_words]
            n_words = [len(of_words) for of_words in self.latencies]
            clusters_of_words = np.repeat(clusters.of, n_words)
            pool = Pool(pooled, clusters_of_words.tolist(), clusters.n)

        def metrics_of_draws(counts: Counts) -> dict[str, Values]:
            metrics = {"wer": 100.0 * statistics.rate(counts, errors, words)}
            if pool is not None:
                quantiles = pool.quantiles(counts, tuple(LATENCY))
                for name, values in zip(LATENCY.values(), quantiles, strict=True):
                    metrics[name.format(clock=self.clock)] = values
            return metrics

        return metrics_of_draws


def shares(traces: Sequence[Trace]) -> dict[str, list[tuple[float, float]]]:
    """Return, for two metrics that are a ratio of sums over the corpus, the pair (numerator,
    denominator) of each utterance, by the metric's name; (0, 0) if its words have no times.

    For `arwer_grid_ca` errors and words on the grid, for `word_latency_coverage` words with a
    latency and spoken words.
    """
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
    """Return the `intervals` of metrics.json: the 95 % intervals of WER, word latency and `rates`
    (pairs as of `shares`), and what was drawn. Without utterances no metric has an interval."""
    clusters = sample.clusters
    statistics_of_sample = sample.statistics(clusters)
    sums = {}  # numerators and denominators, (n_clusters,) each
    for name, pairs in (rates or {}).items():
        if pairs:
            numerators, denominators = zip(*pairs, strict=True)
            sums[name] = (
                statistics.sums(numerators, clusters),
                statistics.sums(denominators, clusters),
            )

    def metrics_of_draws(counts: Counts) -> Mapping[str, Values]:
        metrics = dict(statistics_of_sample(counts))
        for name, (numerator, denominator) in sums.items():
            metrics[name] = 100.0 * statistics.rate(counts, numerator, denominator)
        return metrics

    estimates = statistics.bootstrap(metrics_of_draws, clusters.n) if clusters.n else {}
    return {
        "level": statistics.LEVEL,
        "drawn": clusters.kind,
        "n_drawn": clusters.n,
        "note": clusters.note,
        "metrics": {
            name: [estimate.low, estimate.high]
            for name, estimate in estimates.items()
            if estimate is not None and estimate.low is not None
        },
    }


def difference(clusters: Clusters, first: Sample, second: Sample) -> dict[str, Estimate | None]:
    """Return `first` minus `second` by metric, for the metrics that both have: WER in points, with
    a test by sign flips, and word latency in seconds, by the bootstrap.

    Both have the same utterances in the same order, and `clusters` are of these. Each draw is the
    same for both, so that recordings that are hard for both add no variance.
    """
    first_statistics, second_statistics = first.statistics(clusters), second.statistics(clusters)

    def differences_of_draws(counts: Counts) -> dict[str, Values]:
        metrics, other_metrics = first_statistics(counts), second_statistics(counts)
        return {
            name: values - other_metrics[name]
            for name, values in metrics.items()
            if name in other_metrics and name != "wer"
        }

    differences = {"wer": _wer_difference(clusters, first, second)}
    latency_estimates = statistics.bootstrap(differences_of_draws, clusters.n)
    differing_clusters: set[int] = set()
    if first.latencies is not None and second.latencies is not None:
        for latencies, other_latencies, cluster in zip(
            first.latencies, second.latencies, clusters.of, strict=True
        ):
            if latencies != other_latencies:
                differing_clusters.add(int(cluster))
    n_differ = len(differing_clusters)
    for name, estimate in latency_estimates.items():
        if estimate is None:
            differences[name] = None
            continue
        if n_differ < statistics.LEAST:  # too few for an interval or a p-value
            estimate = Estimate(estimate.value)
        differences[name] = replace(estimate, n_differ=n_differ)
    return differences


def _wer_difference(clusters: Clusters, first: Sample, second: Sample) -> Estimate | None:
    """Return the difference of WER in points; None without a reference word.

    The two may count different numbers of reference words, if they have different normalisers.
    The second's errors are therefore scaled to the first's words: the sum of the differences over
    the first's words is then exactly the difference of the two rates.
    """
    words = statistics.sums([each.words for each in first.errors], clusters)
    errors = statistics.sums([each.errors for each in first.errors], clusters)
    other_words = statistics.sums([each.words for each in second.errors], clusters)
    other_errors = statistics.sums([each.errors for each in second.errors], clusters)
    if not other_words.sum():
        return None
    scale = words.sum() / other_words.sum()
    return statistics.flip(100.0 * (errors - other_errors * scale), words)
