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
    speakers: Sequence[Hashable | None],
    recordings: Sequence[Hashable | None],
    minimum: int = MIN_CLUSTERS,
) -> Clusters:
    """Return the clusters to draw: speakers where every utterance has one, else recordings where
    several utterances share one, else utterances; utterances too where there are fewer than
    `minimum` of the others."""
    note = ""
    # Not where each utterance has a speaker of its own: drawing those is drawing utterances.
    for kind, keys in (("speaker", speakers), ("recording", recordings)):
        n = len(set(keys))
        if None in keys or n == len(keys):
            continue
        if n >= minimum:
            number = {key: at for at, key in enumerate(dict.fromkeys(keys))}
            return Clusters(kind, np.array([number[key] for key in keys]), n)
        note = note or f"{n} {kind}{'s' if n > 1 else ''}, fewer than {minimum}: too few to draw"
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


def bootstrap(
    statistics: Statistics,
    n_clusters: int,
    *,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> dict[Any, Estimate | None]:
    """Return each statistic with its BCa interval (Efron 1987), or None where it is undefined.

    Draws in which a statistic is not a number (nobody drawn had a word) are left out of it.
    """
    whole = statistics(np.ones((1, n_clusters), dtype=np.float32))
    if n_clusters < LEAST:
        estimates = {name: float(values[0]) for name, values in whole.items()}
        return {
            name: Estimate(one) if np.isfinite(one) else None for name, one in estimates.items()
        }
    rng = np.random.default_rng(seed)
    drawn = _in_blocks(statistics, n_resamples, lambda at: _draw(rng, len(at), n_clusters))
    # The jackknife: how much each single cluster moves a statistic.
    without = _in_blocks(statistics, n_clusters, lambda at: _leaving_out(at, n_clusters))
    return {name: _bca(float(whole[name][0]), drawn[name], without[name], level) for name in whole}


def _draw(rng: np.random.Generator, size: int, n: int) -> Counts:
    picks = rng.integers(n, size=(size, n)) + n * np.arange(size)[:, None]
    return np.bincount(picks.ravel(), minlength=size * n).reshape(size, n).astype(np.float32)


def _leaving_out(at: npt.NDArray[np.int64], n: int) -> Counts:
    counts = np.ones((len(at), n), dtype=np.float32)
    counts[np.arange(len(at)), at] = 0
    return counts


def _in_blocks(
    statistics: Statistics, n: int, counts_of: Callable[[npt.NDArray[np.int64]], Counts]
) -> dict[Any, Values]:
    """Return the statistics (n,) of n draws, whose counts are made and held BLOCK at a time."""
    blocks = [
        statistics(counts_of(np.arange(begin, min(begin + BLOCK, n))))
        for begin in range(0, n, BLOCK)
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _bca(value: float, drawn: Values, without: Values, level: float) -> Estimate | None:
    """Return the bias-corrected and accelerated interval: z0 comes from the share of draws below
    the value, the acceleration from the skewness of the statistic with one cluster left out."""
    drawn, without = drawn[np.isfinite(drawn)], without[np.isfinite(without)]
    if not np.isfinite(value) or not len(drawn):
        return None
    if drawn.min() == drawn.max():  # all draws are equal, which bounds nothing
        return Estimate(value)
    deviation = without.mean() - without if len(without) else np.zeros(1)
    spread = float(np.sum(deviation**2))
    skew = float(np.sum(deviation**3)) / (6 * spread**1.5) if spread > 0 else 0.0
    least = 1 / (2 * len(drawn))
    z0 = NORMAL.inv_cdf(min(max(_share_below(drawn, value), least), 1 - least))

    def share(z: float) -> float:
        moved = z0 + (z0 + z) / (1 - skew * (z0 + z))
        return NORMAL.cdf(moved)

    z = _expanded(NORMAL.inv_cdf((1 + level) / 2), len(without))
    low, high = np.quantile(drawn, (share(-z), share(z)))
    # The same map, inverted: at which z the interval's end would be 0.
    w = NORMAL.inv_cdf(min(max(_share_below(drawn, 0.0), least), 1 - least)) - z0
    touching = w / (1 + skew * w) - z0 if 1 + skew * w > 0 else np.copysign(np.inf, w)
    one_sided = NORMAL.cdf(_expanded(touching, len(without), back=True))
    p_value = max(2 * min(one_sided, 1 - one_sided), 1 / (len(drawn) + 1))
    return Estimate(value, float(low), float(high), p_value)


def _expanded(z: float, n: int, *, back: bool = False) -> float:
    """Widen a normal quantile for a spread that is estimated from n clusters (Hesterberg 2015).

    Return t * sqrt(n / (n - 1)), where t is the quantile of Student's t with n - 1 degrees of
    freedom at z's level, approximated as by Wallace 1959. back: return the z of a widened one.
    """
    if n < 3 or not np.isfinite(z):
        return z
    of_n, free = np.sqrt(n / (n - 1)), n - 1
    shrunk = (8 * free + 1) / (8 * free + 3)
    if back:
        return float(np.copysign(shrunk * np.sqrt(free * np.log1p((z / of_n) ** 2 / free)), z))
    return float(np.copysign(of_n * np.sqrt(free * np.expm1((z / shrunk) ** 2 / free)), z))


def _share_below(drawn: Values, value: float) -> float:
    return float((drawn < value).mean() + (drawn == value).mean() / 2)


def flip(
    differences: Values,
    weights: Values,
    *,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
) -> Estimate | None:
    """Return sum of `differences` / sum of `weights`, (n_clusters,) each, with the p-value and the
    interval of the sign-flip test; None where no weight is above 0.

    If two runs were alike, each cluster's difference could as well have the other sign: p is the
    share of signs under which the sum is as far from 0 as it is. The interval is that test
    inverted: it holds every rate r such that the test does not reject `differences - r * weights`.
    """
    total, weight = float(differences.sum()), float(weights.sum())
    if weight <= 0:
        return None
    differing = differences[differences != 0]
    if len(differing) < LEAST:
        return Estimate(total / weight, n_differ=len(differing))
    p_value = sign_flip_p(differing, n_resamples=n_resamples, seed=seed)
    # Signs split the clusters into two groups, and are as far as the whole under just those rates
    # that lie between the rates of the groups.
    over, under = _group_sums(np.column_stack([differences, weights]), n_resamples, seed).T
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.array([over / under, (total - over) / (weight - under)])
    # A group without weight: the other is the whole, which is as far as itself under every rate.
    is_whole = ~np.isfinite(rates).all(axis=0)
    lows = np.sort(np.where(is_whole, -np.inf, rates.min(axis=0)))
    highs = np.sort(np.where(is_whole, np.inf, rates.max(axis=0)))
    rejected = int((1 - level) * len(over))
    low, high = float(lows[rejected]), float(highs[-1 - rejected])
    return Estimate(total / weight, low, high, p_value, len(differing))


def sign_flip_p(differences: Values, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> float:
    """Return the two-sided p-value that the `differences` (n,) are as likely above 0 as below: the
    share of all signs, or of those drawn, under which their sum is as far from 0."""
    total = float(differences.sum())
    over = _group_sums(differences[:, None], n_resamples, seed)[:, 0]
    rounding = 1e-9 * float(np.abs(differences).sum())
    return float((np.abs(2 * over - total) >= abs(total) - rounding).mean())


def _group_sums(values: Values, n_resamples: int, seed: int) -> Values:
    """Return the sums of `values` (n, columns) over groups of the n: over every group where n is at
    most MAX_EXACT, else over the whole and drawn ones; (n_groups, columns)."""
    n = len(values)
    if n <= MAX_EXACT:
        groups = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(np.int8)
    else:
        rng = np.random.default_rng(seed)
        groups = rng.integers(2, size=(n_resamples, n), dtype=np.int8)
        groups[0] = 1
    blocks = (groups[begin : begin + BLOCK] for begin in range(0, len(groups), BLOCK))
    return np.concatenate([block.astype(np.float64) @ values for block in blocks])


def sums(values: Sequence[float], clusters: Clusters) -> Values:
    """Return the sum over each cluster's utterances, (n_clusters,)."""
    total: Values = np.zeros(clusters.n)
    np.add.at(total, clusters.of, np.asarray(values, dtype=np.float64))
    return total


def rate(counts: Counts, numerator: Values, denominator: Values) -> Values:
    """Return sum of numerator / sum of denominator of each draw, (B,); NaN where that is 0."""
    below = counts @ denominator
    values: Values = np.full(len(counts), np.nan)
    np.divide(counts @ numerator, below, out=values, where=below != 0)
    return values


class Pool:
    """Values that belong to clusters, and the quantiles of what each draw pools.

    A draw weights each value by how often its cluster was drawn. The sorted values are cut into
    blocks; one matrix product gives the weight up to every block's end in every draw, and a
    quantile is then searched for in one block only. It equals numpy.percentile of the drawn values.
    """

    def __init__(self, values: Sequence[float], cluster_of: Sequence[int], n_clusters: int) -> None:
        order = np.argsort(np.asarray(values, dtype=np.float64), kind="stable")
        self._values = np.asarray(values, dtype=np.float64)[order]
        owners = np.asarray(cluster_of, dtype=np.int64)[order]
        self._size = max(int(np.sqrt(len(order))), 1)
        n_blocks = -(-len(order) // self._size)
        # Past the end is a cluster that is never drawn.
        padded = np.full(n_blocks * self._size, n_clusters)
        padded[: len(order)] = owners
        self._owners = padded.reshape(n_blocks, self._size)
        held = np.zeros((n_clusters, n_blocks), dtype=np.float32)
        np.add.at(held, (owners, np.arange(len(order)) // self._size), 1)
        self._up_to = np.cumsum(held, axis=1)

    def quantiles(self, counts: Counts, shares: Sequence[float]) -> list[Values]:
        """Return, for each share q, the q-quantile of every draw, interpolated linearly, (B,); it
        is not a number in a draw without values."""
        if not len(self._values):
            return [np.full(len(counts), np.nan) for _ in shares]
        weight = counts @ self._up_to  # (B, n_blocks)
        n = weight[:, -1].astype(np.int64)
        quantiles = []
        for q in shares:
            place = np.maximum(n - 1, 0) * q
            lower = np.floor(place).astype(np.int64)
            below = self._at(counts, weight, lower)
            above = self._at(counts, weight, np.minimum(lower + 1, np.maximum(n - 1, 0)))
            quantiles.append(np.where(n > 0, below + (place - lower) * (above - below), np.nan))
        return quantiles

    def _at(self, counts: Counts, weight: Counts, rank: npt.NDArray[np.int64]) -> Values:
        """Return the value at `rank` (B,), counted from 0, of each draw."""
        rows = np.arange(len(counts))
        block = np.minimum((weight <= rank[:, None]).sum(axis=1), weight.shape[1] - 1)
        before = np.where(block > 0, weight[rows, block - 1], 0)
        padded = np.concatenate([counts, np.zeros((len(counts), 1), np.float32)], axis=1)
        inside = np.cumsum(padded[rows[:, None], self._owners[block]], axis=1) + before[:, None]
        place = (inside <= rank[:, None]).sum(axis=1)
        values: Values = self._values[np.minimum(block * self._size + place, len(self._values) - 1)]
        return values


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return the p-values adjusted for their number (Holm 1979): the i-th smallest times what is
    left, never falling. A value below alpha may be called significant with the error of the whole
    family below alpha. A test without a p-value (None) counts among them and stays without."""
    order = sorted(range(len(p_values)), key=lambda at: _or_one(p_values[at]))
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, at in enumerate(order):
        least = max(least, min(_or_one(p_values[at]) * (len(order) - rank), 1.0))
        if p_values[at] is not None:
            adjusted[at] = least
    return adjusted


def _or_one(p_value: float | None) -> float:
    return 1.0 if p_value is None else p_value
