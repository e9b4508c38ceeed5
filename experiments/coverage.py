"""How honest p-values and intervals of paired differences are where few clusters differ, simulated.

    python -m experiments.coverage

Two runs are compared over n clusters of 5 to 40 words. In `differing` of them, drawn again each
time, their errors differ by one or a few. Level: no run is better, so that p < 0.05 is wrong; it is
to be 5 at most. Coverage: one run is the worse in four of five clusters that differ, and each
cluster differs by chance; the intervals are to hold the true difference in 95 %. Latency: words
come after delays that a cluster's words share in part, and the difference is that of two medians;
"unlike" gives one run three times the spread at the same median. One run: clusters of 20 to 60
words differ in their error rate, 10 % in the mean. Writes docs/coverage.tsv and
docs/coverage_medians.tsv, which docs/statistics.md shows on the site.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from experiments.tables import NONE
from streaming_asr.files import write_text
from streaming_asr.metrics.intervals import Counts, Estimate, Pool, Values, bootstrap, flip, rate
from streaming_asr.terminal import exit_status

DOCS = Path(__file__).parent.parent / "docs"
N = 500  # simulated comparisons of a cell of the table
DRAWS = 400  # of each
CASES = (
    *((n, n) for n in (2, 4, 8, 10)),
    *((20, m) for m in (3, 6, 12, 20)),
    *((60, m) for m in (3, 6, 12, 20, 60)),
)
DRAWN = (6, 8, 10, 20, 60)
Rng = np.random.Generator
Found = tuple[Estimate | None, float]
"""What was estimated, and the truth."""


def errors(rng: Rng, n: int, differing: int, *, worse: float) -> tuple[Values, Values, float]:
    """Differences in errors and words of n clusters, and the true difference per word.

    worse: the share of differing clusters in which the first run has more errors. At one half
    exactly so many differ, else so many in the mean."""
    words = rng.integers(5, 41, size=n).astype(float)
    differs = rng.permutation(n) < differing
    if worse != 0.5:
        differs = rng.random(n) < differing / n
    size = 1 + rng.poisson(0.5, size=n)
    sign = np.where(rng.random(n) < worse, 1, -1)
    return differs * size * sign * 1.0, words, differing / n * 1.5 * (2 * worse - 1) / 22.5


def by_flips(differences: Values, words: Values) -> Estimate | None:
    return flip(differences, words, n_resamples=DRAWS)


def by_bootstrap(differences: Values, words: Values) -> Estimate | None:
    def of_draws(counts: Counts) -> dict[str, Values]:
        return {"": rate(counts, differences, words)}

    return bootstrap(of_draws, len(words), n_resamples=DRAWS)[""]


def of_errors(
    n: int, differing: int, worse: float, way: Callable[[Values, Values], Estimate | None]
) -> Iterator[Found]:
    for seed in range(N):
        differences, words, truth = errors(np.random.default_rng(seed), n, differing, worse=worse)
        yield way(differences, words), truth


def of_medians(n: int, spread: float) -> Iterator[Found]:
    """The difference of two medians, whose truth is 0, over n clusters of 4 to 12 words."""
    for seed in range(N):
        rng = np.random.default_rng(seed)
        owners = np.repeat(np.arange(n), rng.integers(4, 13, size=n))
        shared = rng.normal(size=n)[owners]
        pools = [
            Pool(scale * (shared + rng.normal(size=len(owners))), owners.tolist(), n)
            for scale in (1.0, spread)
        ]

        def of_draws(counts: Counts, pools: list[Pool] = pools) -> dict[str, Values]:
            first, second = (pool.quantiles(counts, (0.5,))[0] for pool in pools)
            return {"": first - second}

        yield bootstrap(of_draws, n, n_resamples=DRAWS)[""], 0.0


def of_rate(n: int) -> Iterator[Found]:
    """The error rate of one run over n clusters."""
    for seed in range(N):
        rng = np.random.default_rng(seed)
        words = rng.integers(20, 61, size=n)
        wrong = rng.binomial(words, rng.beta(4, 36, size=n))
        yield by_bootstrap(wrong.astype(float), words.astype(float)), 0.1


def level(pairs: Iterator[Found]) -> str:
    """The share of p-values below 0.05, in percent; no p-value is none."""
    return _percent(
        [e is not None and e.p_value is not None and e.p_value < 0.05 for e, _ in pairs]
    )


def coverage(pairs: Iterator[Found]) -> tuple[str, str]:
    """Of all comparisons the share with an interval, of these the share that holds the truth."""
    held = [
        e.low <= truth <= e.high if e and e.low is not None and e.high is not None else None
        for e, truth in pairs
    ]
    intervals = [each for each in held if each is not None]
    return _percent([each is not None for each in held]), _percent(intervals)


def _percent(values: list[bool]) -> str:
    return f"{100 * np.mean(values):.1f}" if len(values) >= N / 20 else NONE


def errors_table() -> list[list[str]]:
    """Of two runs' errors, by clusters."""
    heading = ["clusters", "differing", "level, flips", "level, bootstrap", "with an interval"]
    rows = [[*heading, "coverage, flips", "coverage, bootstrap"]]
    for n, differing in CASES:
        share, held = coverage(of_errors(n, differing, 0.8, by_flips))
        rows.append([
            str(n), str(differing),
            level(of_errors(n, differing, 0.5, by_flips)),
            level(of_errors(n, differing, 0.5, by_bootstrap)),
            share, held,
            coverage(of_errors(n, differing, 0.8, by_bootstrap))[1],
        ])  # fmt: skip
    return rows


def medians_table() -> list[list[str]]:
    """Of the difference of two p50 of latency, and of the WER of one run, by the bootstrap."""
    return [["clusters", "level, alike", "level, unlike", "coverage, WER"]] + [
        [str(n), level(of_medians(n, 1.0)), level(of_medians(n, 3.0)), coverage(of_rate(n))[1]]
        for n in DRAWN
    ]


def main() -> int:
    """The command line; returns the exit status."""

    def job() -> None:
        for name, rows in (("coverage", errors_table()), ("coverage_medians", medians_table())):
            text = "".join("\t".join(row) + "\n" for row in rows)
            write_text(DOCS / f"{name}.tsv", text)
            print(text)

    return exit_status(job)


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    sys.exit(main())
