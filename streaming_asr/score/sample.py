"""What intervals and differences need of one run, utterance by utterance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from streaming_asr.events.log import Log
from streaming_asr.metrics import METRICS, Trace, biasing, live
from streaming_asr.metrics import intervals as statistics
from streaming_asr.metrics.accuracy import Errors, aligned, word_errors
from streaming_asr.metrics.intervals import Clusters, Counts, Estimate, Pool, Statistics, Values
from streaming_asr.metrics.latency import timed
from streaming_asr.score.columns import COMMIT

# (numerator, denominator) of a recording: a rate is the ratio of their sums over the corpus.
Rate: TypeAlias = Callable[[Trace], tuple[float, float]]
LATENCY = {q: COMMIT.format(name, "{clock}") for q, name in ((0.5, "p50"), (0.9, "p90"))}


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
    # (numerator, denominator) of each utterance, by metric
    rates: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        traces: Sequence[Trace],
        *,
        log: Log | None = None,
        clock: str = "ca",
        rates: Mapping[str, Rate] | None = None,
    ) -> Sample:
        """Return the sample of these traces.

        log: it names the recording of each utterance, as several may come from one. clock: `ca` or
        `cu`, of the latencies. rates: metrics that are drawn, too, as of RATES.
        """
        recordings = {each.utt: each.audio_path for each in log.utterances} if log else {}
        word_times = [timed(trace) for trace in traces]
        n_spoken = sum(len(words.spoken) for words in word_times if words)
        latencies = [words.latencies("committed", clock) if words else [] for words in word_times]
        has_latency = n_spoken > 0 and all(trace.batch == 1 for trace in traces)
        return cls(
            utts=[trace.utt for trace in traces],
            speakers=[trace.speaker for trace in traces],
            recordings=[recordings.get(trace.utt) for trace in traces],
            errors=[word_errors(trace, trace.normalise) for trace in traces],
            latencies=latencies if has_latency else None,
            coverage=sum(map(len, latencies)) / n_spoken if n_spoken else None,
            clock=clock,
            rates={name: [of(trace) for trace in traces] for name, of in (rates or {}).items()},
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
            rates={name: [pairs[k] for k in order] for name, pairs in self.rates.items()},
        )

    def parts(self, metric: str) -> Sequence[Any]:
        """Return what a metric other than WER is computed from, of each utterance."""
        return self.rates.get(metric, self.latencies or ())

    def statistics(self, clusters: Clusters) -> Statistics:
        """Return the function that computes, of bootstrap draws, the metrics of each draw: WER,
        `rates` and the quantiles of word latency in seconds, by name.

        The function takes how often each cluster is drawn, (n_draws, n_clusters), and returns
        arrays of (n_draws,).
        """
        of_errors = [(each.errors, each.words) for each in self.errors]
        sums = {  # numerators and denominators, (n_clusters,) each
            name: [statistics.sums(part, clusters) for part in zip(*pairs, strict=True)]
            for name, pairs in {"wer": of_errors, **self.rates}.items()
            if pairs
        }
        pool = None
        if self.latencies is not None:
            pooled = [latency_s for of_words in self.latencies for latency_s in of_words]
            n_words = [len(of_words) for of_words in self.latencies]
            clusters_of_words = np.repeat(clusters.of, n_words)
            pool = Pool(pooled, clusters_of_words.tolist(), clusters.n)

        def metrics_of_draws(counts: Counts) -> dict[str, Values]:
            metrics = {
                name: _scale(name) * statistics.rate(counts, numerator, denominator)
                for name, (numerator, denominator) in sums.items()
            }
            if pool is not None:
                quantiles = pool.quantiles(counts, tuple(LATENCY))
                for name, values in zip(LATENCY.values(), quantiles, strict=True):
                    metrics[name.format(clock=self.clock)] = values
            return metrics

        return metrics_of_draws


def _on_grid(trace: Trace) -> tuple[float, float]:
    """Return errors and words of arwer_grid_ca; (0, 0) without word times."""
    return aligned(trace).on_grid("ca") if timed(trace) else (0.0, 0.0)


def _covered(trace: Trace) -> tuple[float, float]:
    """Return the words with a latency and the spoken words; (0, 0) without word times."""
    words = timed(trace)
    return (len(words.hits), len(words.spoken)) if words else (0.0, 0.0)


def _scale(name: str) -> float:
    return 100.0 if name in METRICS and METRICS[name].unit == "%" else 1.0


def _rate(of: Callable[[Trace], Mapping[str, tuple[float, float]]], name: str) -> Rate:
    """Return the rate `name` of those that `of` gives for a trace."""
    return lambda trace: of(trace)[name]


# Metrics that are a ratio of sums over the corpus.
RATES: dict[str, Rate] = {
    "arwer_grid_ca": _on_grid,
    "word_latency_coverage": _covered,
    **{name: _rate(module.pairs, name) for module in (biasing, live) for name in module.RATES},
}
# Metrics of a run that have an interval.
DRAWN = {"wer", *(name.format(clock="ca") for name in LATENCY.values()), *RATES}


def intervals(sample: Sample) -> dict[str, Any]:
    """Return the `intervals` of metrics.json: the 95 % intervals of WER, word latency and the rates
    of the sample, and what was drawn. Without utterances no metric has an interval."""
    clusters = sample.clusters
    estimates = statistics.bootstrap(sample.statistics(clusters), clusters.n) if clusters.n else {}
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
    for name, estimate in statistics.bootstrap(differences_of_draws, clusters.n).items():
        if estimate is not None:
            pairs = zip(first.parts(name), second.parts(name), clusters.of, strict=True)
            n_differ = len({int(cluster) for part, other, cluster in pairs if part != other})
            if n_differ < statistics.LEAST:  # too few for an interval or a p-value
                estimate = Estimate(estimate.value)
            estimate = replace(estimate, n_differ=n_differ)
        differences[name] = estimate
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
