"""Intervals over clusters, quantiles of draws, Holm: known answers and scipy's."""

import numpy as np
import pytest

from streaming_asr.metrics.intervals import (
    Estimate,
    Pool,
    bootstrap,
    clusters,
    flip,
    holm,
    rate,
    sign_flip_p,
    sums,
)


def a_rate(numerator, denominator):
    return lambda counts: {"rate": rate(counts, numerator, denominator)}


def estimate(statistics, n, **options):
    (found,) = bootstrap(statistics, n, **options).values()
    assert found is not None
    return found


# -- what is drawn ---------------------------------------------------------------------------


def test_speakers_are_drawn_where_ten_or_more_are_known():
    speakers = [f"s{k % 12}" for k in range(40)]
    made = clusters(speakers, [None] * 40)
    assert (made.kind, made.n, str(made)) == ("speaker", 12, "12 speakers")
    assert sums(np.ones(40), made).tolist() == [4] * 4 + [3] * 8


def test_below_ten_speakers_utterances_are_drawn_and_it_is_said():
    made = clusters([f"s{k % 9}" for k in range(40)], [None] * 40)
    assert (made.kind, made.n) == ("utterance", 40)
    assert str(made) == "40 utterances (9 speakers, fewer than 10: too few to draw)"


def test_recordings_stand_in_for_speakers_and_utterances_for_both():
    recordings = [f"r{k // 2}" for k in range(40)]
    assert clusters([None] * 40, recordings).kind == "recording"
    # One utterance without a speaker: its words could be anyone's.
    assert clusters([None, *["a", "b"] * 19, "c"], recordings).kind == "recording"
    alone = clusters([None] * 40, list(range(40)))
    assert (alone.kind, alone.note) == ("utterance", "")


# -- the interval ----------------------------------------------------------------------------


def test_the_interval_is_that_of_scipy():
    from scipy import stats

    rng = np.random.default_rng(3)
    words = rng.integers(50, 400, size=30).astype(float)
    errors = rng.binomial(words.astype(int), rng.beta(2, 20, size=30)).astype(float)
    ours = estimate(a_rate(errors, words), 30)
    theirs = stats.bootstrap(
        (errors, words),
        lambda e, w, axis: e.sum(axis) / w.sum(axis),
        paired=True,
        method="BCa",
        n_resamples=20_000,
        vectorized=True,
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.value == errors.sum() / words.sum()
    assert ours.low == pytest.approx(theirs.low, abs=0.05 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.05 * width)


def test_the_same_seed_gives_the_same_interval():
    statistics = a_rate(np.arange(12.0), np.full(12, 100.0))
    assert bootstrap(statistics, 12) == bootstrap(statistics, 12)
    assert bootstrap(statistics, 12) != bootstrap(statistics, 12, seed=1)


def test_the_intervals_hold_the_truth_about_as_often_as_they_say():
    # 25 speakers of 40 words each, error rates around 10 %, differing by speaker.
    rng = np.random.default_rng(11)
    held = 0
    for seed in range(200):
        errors = rng.binomial(40, rng.beta(4, 36, size=25)).astype(float)
        found = estimate(a_rate(errors, np.full(25, 40.0)), 25, n_resamples=1000, seed=seed)
        held += found.low <= 0.1 <= found.high
    assert 0.88 <= held / 200 <= 0.99


def test_the_p_value_is_the_level_at_which_the_interval_touches_zero():
    rng = np.random.default_rng(2)
    differences, words = rng.normal(1.2, 3.0, size=20), np.ones(20)
    p_value = estimate(a_rate(differences, words), 20).p_value
    assert 0.01 < p_value < 0.5
    touching = estimate(a_rate(differences, words), 20, level=1 - p_value)
    assert touching.low == pytest.approx(0.0, abs=0.02)


def test_draws_that_all_say_the_same_bound_nothing():
    assert estimate(a_rate(np.zeros(15), np.ones(15)), 15) == Estimate(0.0)


def test_what_is_undefined_has_no_interval():
    assert bootstrap(a_rate(np.zeros(5), np.zeros(5)), 5) == {"rate": None}
    assert estimate(a_rate(np.arange(5.0), np.ones(5)), 5) == Estimate(2.0)  # fewer than six
    # Nine of ten clusters have no words: the draws without the tenth are left out.
    only = np.eye(10)[0]
    assert estimate(a_rate(only, only * 4), 10).value == 0.25


def test_clusters_that_move_together_make_a_wider_interval_than_their_utterances():
    rng = np.random.default_rng(4)
    errors = np.repeat(rng.integers(0, 10, size=12), 20).astype(float)
    words = np.full(240, 10.0)
    by_speaker = clusters([f"s{k // 20}" for k in range(240)], [None] * 240)
    whole = estimate(a_rate(errors, words), 240)
    held = estimate(a_rate(sums(errors, by_speaker), sums(words, by_speaker)), 12)
    assert held.value == whole.value
    assert held.high - held.low > 3 * (whole.high - whole.low)


# -- paired differences ----------------------------------------------------------------------


def differing(n, *values):
    """Differences of n clusters, of which the first have these and the others none."""
    return np.array([*values, *[0.0] * (n - len(values))])


@pytest.mark.parametrize(
    ("values", "p_value"),
    [
        ((1, 1, 1), 2 / 8),
        ((1, 1, -1), 1.0),  # 1 or 3, above or below: none is nearer to 0
        ((1, 1, 1, 1, 1, -1), 14 / 64),  # 2 of all six alike, 12 of five
        ((3, 2, 1, 1, 1, 1), 2 / 64),
    ],
)
def test_p_is_the_share_of_signs_whose_sum_is_as_far_from_zero(values, p_value):
    assert sign_flip_p(np.array(values, dtype=float)) == p_value
    assert sign_flip_p(differing(12, *values)) == p_value  # what does not differ has no say


def test_a_p_value_of_all_signs_is_that_of_scipy():
    from scipy import stats

    differences = np.random.default_rng(5).normal(0.5, 1.0, size=11)
    theirs = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip_p(differences) == pytest.approx(theirs.pvalue)


def test_of_many_signs_some_are_drawn():
    # 15 of 20 coins: 2 * sum of C(20, k) for k of 15 to 20, over 2**20, is 0.0414.
    p_value = sign_flip_p(np.array([1.0] * 15 + [-1.0] * 5))
    assert p_value == pytest.approx(0.0414, abs=0.006)


def test_where_few_clusters_differ_there_is_neither_p_nor_interval():
    words = np.full(60, 10.0)
    assert flip(differing(60), words) == Estimate(0.0, n_differ=0)
    assert flip(differing(60, 1, 1, 1), words) == Estimate(3 / 600, n_differ=3)
    assert flip(differing(60, *[1] * 5), words) == Estimate(5 / 600, n_differ=5)
    found = flip(differing(60, *[1] * 6), words)
    assert found is not None and found.low is not None and found.high is not None
    assert (found.p_value, found.n_differ) == (2 / 64, 6)
    assert 0 < found.low < 0.01 < found.high
    assert flip(np.zeros(3), np.zeros(3)) is None


def test_the_flipped_interval_holds_zero_just_where_p_does_not_reject_it():
    rng = np.random.default_rng(8)
    n_apart = 0
    for _ in range(100):
        differences, words = rng.normal(0.6, 1.0, size=10), rng.integers(5, 40, size=10)
        found = flip(differences, words * 1.0)
        assert found is not None and found.low is not None and found.high is not None
        assert found.low < found.value < found.high
        assert (found.low <= 0 <= found.high) == (found.p_value > 0.05)
        n_apart += found.p_value <= 0.05
    assert 20 < n_apart < 80


# -- quantiles -------------------------------------------------------------------------------


@pytest.mark.parametrize("n_values", [1, 2, 7, 300])
def test_a_quantile_of_a_draw_is_numpys_of_the_values_drawn(n_values):
    rng = np.random.default_rng(n_values)
    values = np.round(rng.normal(size=n_values), 1)  # ties on purpose
    owners = rng.integers(6, size=n_values)
    pool = Pool(values, owners, 6)
    counts = rng.multinomial(6, np.full(6, 1 / 6), size=50).astype(np.float32)
    shares = (0.0, 0.5, 0.9, 1.0)
    found = pool.quantiles(counts, shares)
    for row, drawn in enumerate(counts.astype(int)):
        everything = np.repeat(values, drawn[owners])
        for q, answers in zip(shares, found, strict=True):
            if len(everything):
                assert answers[row] == pytest.approx(np.quantile(everything, q))
            else:
                assert np.isnan(answers[row])


def test_a_pool_of_nothing_has_no_quantile():
    (found,) = Pool([], [], 3).quantiles(np.ones((2, 3), np.float32), (0.5,))
    assert np.isnan(found).all()


# -- many comparisons ------------------------------------------------------------------------


def test_holm_multiplies_by_what_is_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_comparison_without_p_counts_among_those_corrected_for():
    assert holm([0.01, None, 0.03]) == [pytest.approx(0.03), None, pytest.approx(0.06)]
