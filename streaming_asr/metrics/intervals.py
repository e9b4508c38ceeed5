"""Intervals and tests over speakers: a cluster bootstrap, and sign flips for paired differences.

The words of one speaker are right and wrong together, so speakers (else recordings) are drawn, not
utterances: Bisani and Ney 2004, "Bootstrap estimates for confidence intervals in ASR performance
evaluation", drew utterances; Liu et al. 2020, "Statistical testing on ASR performance via blockwise
bootstrap", show what that underestimates. A draw is a row of counts, how often each cluster was
drawn; a statistic maps counts (B, n_clusters) to values (B,). Paired systems see the same counts.

Two runs often differ in a few clusters only. A bootstrap then draws what little there is as if it
were all there could be; a sign-flip test (Fisher 1935) is exact there, and so it judges errors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

# Whole numbers: float32 holds them exactly up to 2^24, and multiplies fastest.
Counts: TypeAlias = npt.NDArray[np.float32]
Values: TypeAlias = npt.NDArray[np.float64]
Statistics: TypeAlias = Callable[[Counts], Mapping[Any, Values]]

N_RESAMPLES = 10_000
LEVEL = 0.95
MIN_CLUSTERS = 10  # speakers or recordings that are drawn; of fewer, their utterances are
# Of fewer clusters there is no interval and no p-value: where two runs differ in five, no signs
# give p below 0.05 (2 / 2**5 is 0.06).
LEAST = 6
MAX_EXACT = 14  # clusters of which all 2**14 signs are tried; of more, N_RESAMPLES are drawn
BLOCK = 1_000  # draws held at once
NORMAL = NormalDist()


@dataclass(frozen=True)
class Clusters:
    """Which cluster each utterance is in: `of` (n_utterances,), numbers below `n`."""

    kind: str  # what is drawn: speaker, recording or utterance
    of: npt.NDArray[np.int64]
    n: int
    note: str = ""  # why utterances are drawn though there are speakers

    def __str__(self) -> str:
        return f"{self.n} {self.kind}s" + (f" ({self.note})" if self.note else "")


def clusters(
    speakers: Sequence[Hashable | None], recordings: Sequence[Hashable | None]
) -> Clusters:
    """Return the clusters that a bootstrap draws: the speakers; if they do not serve, the
    recordings; if these do not either, the utterances.

    speakers, recordings: one of each utterance, None if unknown. They serve if all are known, some
    utterances share one, and there are MIN_CLUSTERS or more.
    """
    note = ""
    for kind, keys in (("speaker", speakers), ("recording", recordings)):
        n = len(set(keys))
        # If each utterance has a speaker of its own, drawing speakers is drawing utterances.
        if None in keys or n == len(keys):
            continue
        if n >= MIN_CLUSTERS:
            number_of = {key: number for number, key in enumerate(dict.fromkeys(keys))}
            return Clusters(kind, np.array([number_of[key] for key in keys]), n)
        few = f"{n} {kind}{'s' if n > 1 else ''}, fewer than {MIN_CLUSTERS}: too few to draw"
        note = note or few
    return Clusters("utterance", np.arange(len(speakers)), len(speakers), note)


@dataclass(frozen=True)
class Estimate:
    """A statistic of the whole, its interval, and for a difference the evidence for it.

    low, high: None where there is no interval, since all draws are equal, or fewer than
    LEAST clusters are there or differ.
    p_value: two-sided, that the truth is 0; None where there is no interval.
    n_differ: of a difference, the clusters in which the two runs differ.
    """

    value: float
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    n_differ: int | None = None

    @property
    def is_sure(self) -> bool:
        """Whether the test rejects that the truth is 0."""
        return self.p_value is not None and self.p_value < 1 - LEVEL


def bootstrap(
    statistics: Statistics,
    n_clusters: int,
    *,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[Any, Estimate | None]:
    """Return each statistic with its BCa interval (Efron 1987), or None if it is undefined.

    statistics: computes them from how often each cluster is drawn, (n_draws, n_clusters). A draw in
    which a statistic is NaN (no cluster drawn has a word) is left out of that statistic.
    """
    whole = statistics(np.ones((1, n_clusters), dtype=np.float32))
    values = {name: float(of_whole[0]) for name, of_whole in whole.items()}
    if n_clusters < LEAST:
        return {
            name: Estimate(value) if np.isfinite(value) else None for name, value in values.items()
        }
    rng = np.random.default_rng(seed)
    drawn = _in_blocks(statistics, n_resamples, lambda draws: _draw(rng, len(draws), n_clusters))
    # The jackknife: how much each single cluster moves a statistic.
    without = _in_blocks(statistics, n_clusters, lambda omitted: _leaving_out(omitted, n_clusters))
    return {name: _bca(value, drawn[name], without[name], level) for name, value in values.items()}


def _draw(rng: np.random.Generator, n_draws: int, n: int) -> Counts:
    """Return how often each of n clusters is among n that are drawn with replacement,
    (n_draws, n)."""
    # The offset n * row lets one bincount count all rows.
    picks = rng.integers(n, size=(n_draws, n)) + n * np.arange(n_draws)[:, None]
    return np.bincount(picks.ravel(), minlength=n_draws * n).reshape(n_draws, n).astype(np.float32)


def _leaving_out(omitted: npt.NDArray[np.int64], n: int) -> Counts:
    """Return counts (len(omitted), n) that hold each of n clusters once, but in each row leave out
    the cluster whose number is in `omitted`."""
    counts = np.ones((len(omitted), n), dtype=np.float32)
    counts[np.arange(len(omitted)), omitted] = 0
    return counts


def _in_blocks(
    statistics: Statistics, n: int, counts_of: Callable[[npt.NDArray[np.int64]], Counts]
) -> dict[Any, Values]:
    """Return the statistics of n draws, (n,) each. `counts_of` makes the counts of the draws with
    these numbers; it gets BLOCK draws at a time, since the counts of all would fill the memory."""
    blocks = [
        statistics(counts_of(np.arange(begin, min(begin + BLOCK, n))))
        for begin in range(0, n, BLOCK)
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _bca(value: float, drawn: Values, without: Values, level: float) -> Estimate | None:
    """Return the bias-corrected and accelerated interval (BCa) and the p-value that it implies;
    None if the statistic is undefined.

    value: the statistic of the whole sample. drawn: of each draw, (n_draws,). without: of the
    sample without each cluster, (n_clusters,). level: of the interval, as 0.95.
    """
    drawn, without = drawn[np.isfinite(drawn)], without[np.isfinite(without)]
    if not np.isfinite(value) or not len(drawn):
        return None
    if drawn.min() == drawn.max():  # all draws are equal, which bounds nothing
        return Estimate(value)
    # The acceleration: the skewness of the statistic with one cluster left out.
    deviation = without.mean() - without if len(without) else np.zeros(1)
    spread = float(np.sum(deviation**2))
    acceleration = float(np.sum(deviation**3)) / (6 * spread**1.5) if spread > 0 else 0.0

    def z_of(bound: float) -> float:
        """Return the normal quantile of the share of draws below `bound`, kept finite."""
        least = 1 / (2 * len(drawn))
        return NORMAL.inv_cdf(min(max(_share_below(drawn, bound), least), 1 - least))

    bias = z_of(value)  # Efron's z0: 0 if half of the draws are below the value

    def share(z: float) -> float:
        """Return the share of draws below the corrected end of an interval at quantile `z`."""
        corrected = bias + (bias + z) / (1 - acceleration * (bias + z))
        return NORMAL.cdf(corrected)

    z = _expanded(NORMAL.inv_cdf((1 + level) / 2), len(without))
    low, high = np.quantile(drawn, (share(-z), share(z)))
    # The p-value is 1 minus the level of the interval that ends at 0: `share` is solved for z.
    w = z_of(0.0) - bias
    is_reached = 1 + acceleration * w > 0
    z_at_zero = w / (1 + acceleration * w) - bias if is_reached else np.copysign(np.inf, w)
    one_sided = NORMAL.cdf(_expanded(z_at_zero, len(without), back=True))
    p_value = max(2 * min(one_sided, 1 - one_sided), 1 / (len(drawn) + 1))
    return Estimate(value, float(low), float(high), p_value)


def _expanded(z: float, n: int, *, back: bool = False) -> float:
    """Widen a normal quantile for a spread that is estimated from n clusters (Hesterberg 2015).

    Return t * sqrt(n / (n - 1)), where t is the quantile of Student's t with n - 1 degrees of
    freedom at z's level, approximated as by Wallace 1959. back: return the z of a widened one.
    """
    if n < 3 or not np.isfinite(z):
        return z
    widening, freedom = np.sqrt(n / (n - 1)), n - 1
    wallace = (8 * freedom + 1) / (8 * freedom + 3)
    if back:
        t = z / widening
        return float(np.copysign(wallace * np.sqrt(freedom * np.log1p(t**2 / freedom)), z))
    t = np.sqrt(freedom * np.expm1((z / wallace) ** 2 / freedom))
    return float(np.copysign(widening * t, z))


def _share_below(drawn: Values, value: float) -> float:
    """Return the share of draws below `value`, counting half of those that are equal."""
    return float((drawn < value).mean() + (drawn == value).mean() / 2)


def flip(
    differences: Values,
    weights: Values,
    *,
    n_resamples: int = N_RESAMPLES,
) -> Estimate | None:
    """Return sum of `differences` / sum of `weights`, (n_clusters,) each, with the p-value and the
    interval of the sign-flip test; None where no weight is above 0.

    If two runs were alike, each cluster's difference could as well have the other sign: p is the
    share of sign patterns under which the sum is at least as far from 0 as the sum that was
    measured. The interval inverts that test: it holds every rate r such that the test does not
    reject `differences - r * weights`.
    """
    total, weight = float(differences.sum()), float(weights.sum())
    if weight <= 0:
        return None
    differing = differences[differences != 0]
    if len(differing) < LEAST:
        return Estimate(total / weight, n_differ=len(differing))
    p_value = sign_flip_p(differing, n_resamples=n_resamples)
    # A sign pattern splits the clusters into those that keep their sign and those that change it.
    # With the rate r subtracted, its sum is at least as far from 0 as the measured sum exactly if
    # r lies between the rates of the two groups.
    group_total, group_weight = _group_sums(np.column_stack([differences, weights]), n_resamples).T
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.array(
            [group_total / group_weight, (total - group_total) / (weight - group_weight)]
        )
    # If one group has no weight, the other is the whole sample: its sum is the measured one.
    is_whole = ~np.isfinite(rates).all(axis=0)
    lows = np.sort(np.where(is_whole, -np.inf, rates.min(axis=0)))
    highs = np.sort(np.where(is_whole, np.inf, rates.max(axis=0)))
    # The test rejects r if at most this many patterns are as far from 0.
    n_rejected = int((1 - LEVEL) * len(group_total))
    low, high = float(lows[n_rejected]), float(highs[-1 - n_rejected])
    return Estimate(total / weight, low, high, p_value, len(differing))


def sign_flip_p(differences: Values, *, n_resamples: int = N_RESAMPLES) -> float:
    """Return the two-sided p-value of the `differences` (n,), if above 0 is as likely as below 0:
    the share of sign patterns under which their sum is at least as far from 0 as it is."""
    total = float(differences.sum())
    positive = _group_sums(differences[:, None], n_resamples)[:, 0]
    # The others change their sign, so the sum is positive - (total - positive).
    flipped_totals = 2 * positive - total
    rounding = 1e-9 * float(np.abs(differences).sum())
    return float((np.abs(flipped_totals) >= abs(total) - rounding).mean())


def _group_sums(values: Values, n_resamples: int) -> Values:
    """Return the sums of `values` (n, columns) over groups of the n rows, (n_groups, columns).

    The groups are all 2**n if n is at most MAX_EXACT; else the group of all rows and random ones,
    `n_resamples` together.
    """
    n = len(values)
    if n <= MAX_EXACT:
        groups = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.int8)
    else:
        rng = np.random.default_rng(0)
        groups = rng.integers(2, size=(n_resamples, n), dtype=np.int8)
        groups[0] = 1  # what was measured is one of the patterns, so that p is never 0
    blocks = (groups[begin : begin + BLOCK] for begin in range(0, len(groups), BLOCK))
    return np.concatenate([block.astype(np.float64) @ values for block in blocks])


def sums(values: Sequence[float], clusters: Clusters) -> Values:
    """Return the sum over each cluster's utterances, (n_clusters,)."""
    total: Values = np.zeros(clusters.n)
    np.add.at(total, clusters.of, np.asarray(values, dtype=np.float64))
    return total


def rate(counts: Counts, numerator: Values, denominator: Values) -> Values:
    """Return sum of numerator / sum of denominator over the clusters of each draw, (B,); NaN if the
    denominator is 0.

    counts: (B, n_clusters). numerator, denominator: (n_clusters,).
    """
    denominators = counts @ denominator
    rates: Values = np.full(len(counts), np.nan)
    np.divide(counts @ numerator, denominators, out=rates, where=denominators != 0)
    return rates


class Pool:
    """Values that belong to clusters, and their quantiles in bootstrap draws.

    A draw weights each value by how often its cluster was drawn. The sorted values are cut into
    blocks; one matrix product gives the weight up to every block's end in every draw, so that a
    quantile is searched for in one block only. It equals numpy.percentile of the drawn values.

    values, cluster_of: (n_values,) each; the clusters are numbers below `n_clusters`.
    """

    def __init__(self, values: Sequence[float], cluster_of: Sequence[int], n_clusters: int) -> None:
        order = np.argsort(np.asarray(values, dtype=np.float64), kind="stable")
        n = len(order)
        self._values = np.asarray(values, dtype=np.float64)[order]  # (n_values,), ascending
        sorted_clusters = np.asarray(cluster_of, dtype=np.int64)[order]
        self._block_size = max(int(np.sqrt(n)), 1)
        n_blocks = -(-n // self._block_size)
        # The last block is filled up with a cluster that is never drawn.
        padded = np.full(n_blocks * self._block_size, n_clusters)
        padded[:n] = sorted_clusters
        self._clusters = padded.reshape(n_blocks, self._block_size)
        n_values = np.zeros((n_clusters, n_blocks), dtype=np.float32)
        np.add.at(n_values, (sorted_clusters, np.arange(n) // self._block_size), 1)
        # How many values of each cluster lie up to the end of each block, (n_clusters, n_blocks).
        self._n_up_to = np.cumsum(n_values, axis=1)

    def quantiles(self, counts: Counts, shares: Sequence[float]) -> list[Values]:
        """Return, for each share q, the q-quantile of every draw, interpolated linearly, (B,); NaN
        in a draw without values.

        counts: how often each cluster is drawn, (B, n_clusters).
        """
        if not len(self._values):
            return [np.full(len(counts), np.nan) for _ in shares]
        n_up_to = counts @ self._n_up_to  # of the drawn values, (B, n_blocks)
        n = n_up_to[:, -1].astype(np.int64)
        last = np.maximum(n - 1, 0)
        quantiles = []
        for q in shares:
            rank = last * q
            lower_rank = np.floor(rank).astype(np.int64)
            lower = self._at(counts, n_up_to, lower_rank)
            upper = self._at(counts, n_up_to, np.minimum(lower_rank + 1, last))
            quantile = lower + (rank - lower_rank) * (upper - lower)
            quantiles.append(np.where(n > 0, quantile, np.nan))
        return quantiles

    def _at(self, counts: Counts, n_up_to: Counts, rank: npt.NDArray[np.int64]) -> Values:
        """Return the value with `rank` among the drawn values of each draw, (B,).

        n_up_to: drawn values up to the end of each block, (B, n_blocks). rank: (B,), from 0.
        """
        rows = np.arange(len(counts))
        block = np.minimum((n_up_to <= rank[:, None]).sum(axis=1), n_up_to.shape[1] - 1)
        n_before_block = np.where(block > 0, n_up_to[rows, block - 1], 0)
        # The column of zeros is the cluster that fills the last block up.
        padded = np.concatenate([counts, np.zeros((len(counts), 1), np.float32)], axis=1)
        weights = padded[rows[:, None], self._clusters[block]]  # (B, block_size)
        n_up_to_value = np.cumsum(weights, axis=1) + n_before_block[:, None]
        index_in_block = (n_up_to_value <= rank[:, None]).sum(axis=1)
        index = np.minimum(block * self._block_size + index_in_block, len(self._values) - 1)
        values: Values = self._values[index]
        return values


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values adjusted for their number (Holm 1979): the smallest times n, the next
    times n - 1 and so on, at most 1 and never less than the one before.

    Of the tests whose adjusted value is below alpha, the probability that any is wrongly called
    significant is below alpha. A test without a p-value (None) counts in n and stays None.
    """
    n = len(p_values)
    order = sorted(range(n), key=lambda test: _or_one(p_values[test]))
    adjusted: list[float | None] = [None] * n
    largest = 0.0
    for rank, test in enumerate(order):
        largest = max(largest, min(_or_one(p_values[test]) * (n - rank), 1.0))
        if p_values[test] is not None:
            adjusted[test] = largest
    return adjusted


def _or_one(p_value: float | None) -> float:
    return 1.0 if p_value is None else p_value
