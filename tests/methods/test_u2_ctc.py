"""Prefix beam search against a plain dictionary form and against all alignments written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from experiments.bench.plain_ctc import PlainPrefixBeamSearch
from streaming_asr.methods.u2.ctc import PrefixBeamSearch

INF = math.inf


def posteriors(n_frames: int, n_classes: int, seed: int, sharpness: float = 2.0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.normal(0, sharpness, (n_frames, n_classes))).log_softmax(-1)


def add(a: float, b: float) -> float:
    if max(a, b) == -INF:
        return -INF
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def plain_search(log_probs: np.ndarray, blank: int, beam: int, top: int):
    search = PlainPrefixBeamSearch(blank, beam, top)
    search.advance(log_probs)
    return search.hypotheses()


def collapse(path, blank):
    return tuple(u for u, _ in itertools.groupby(path) if u != blank)


def spans_of(path, blank):
    spans, t = [], 0
    for u, run in itertools.groupby(path):
        n = len(list(run))
        if u != blank:
            spans.append((t, t + n))
        t += n
    return tuple(spans)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("beam", "top"), [(1, 1), (3, 3), (10, 10), (10, 4)])
def test_the_search_equals_the_plain_one(seed: int, beam: int, top: int) -> None:
    log_probs = posteriors(60, 12, seed)
    search = PrefixBeamSearch(blank=11, beam=beam, top=top)
    search.advance(log_probs)
    found = search.hypotheses()
    wanted = plain_search(log_probs.numpy(), 11, beam, top)
    assert [h.tokens for h in found] == [tokens for tokens, _, _ in wanted]
    assert [h.score for h in found] == pytest.approx([score for _, score, _ in wanted], abs=1e-9)
    assert [h.spans for h in found] == [spans for _, _, spans in wanted]
    assert search.best_tokens() == wanted[0][0]


def test_few_classes_make_prefixes_that_leave_and_come_back_and_are_still_merged() -> None:
    for seed in range(30):
        log_probs = posteriors(40, 3, seed, sharpness=0.7)
        search = PrefixBeamSearch(blank=0, beam=4)
        search.advance(log_probs)
        wanted = plain_search(log_probs.numpy(), 0, 4, 4)
        found = search.hypotheses()
        assert [h.tokens for h in found] == [tokens for tokens, _, _ in wanted], seed
        assert [h.score for h in found] == pytest.approx([s for _, s, _ in wanted], abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_without_pruning_the_score_is_the_sum_over_all_alignments(seed: int) -> None:
    n_frames, n_classes, blank = 5, 3, 2
    log_probs = posteriors(n_frames, n_classes, seed)
    sums: dict[tuple[int, ...], float] = {}
    best: dict[tuple[int, ...], tuple[float, tuple]] = {}
    for path in itertools.product(range(n_classes), repeat=n_frames):
        log_prob = sum(float(log_probs[t, u]) for t, u in enumerate(path))
        tokens = collapse(path, blank)
        sums[tokens] = add(sums.get(tokens, -INF), log_prob)
        best[tokens] = max(best.get(tokens, (-INF, ())), (log_prob, spans_of(path, blank)))
    search = PrefixBeamSearch(blank, beam=1000, top=n_classes)
    search.advance(log_probs)
    found = {h.tokens: h for h in search.hypotheses()}
    assert set(found) == set(sums)
    for tokens, hypothesis in found.items():
        assert hypothesis.score == pytest.approx(sums[tokens], abs=1e-9)
        assert hypothesis.spans == best[tokens][1]


@pytest.mark.parametrize("piece", [1, 7, 50])
def test_pieces_of_any_size_give_what_one_pass_gives(piece: int) -> None:
    log_probs = posteriors(50, 20, seed=3)
    whole, streamed = PrefixBeamSearch(0), PrefixBeamSearch(0)
    whole.advance(log_probs)
    for part in log_probs.split(piece):
        streamed.advance(part)
    assert streamed.hypotheses() == whole.hypotheses()
    assert streamed.n_frames == 50
    assert whole.hypotheses(3) == whole.hypotheses()[:3]


def test_a_minute_of_certain_blank_stays_the_empty_text() -> None:
    log_probs = torch.full((3000, 4), -1e4)
    log_probs[:, 3] = 0.0
    search = PrefixBeamSearch(blank=3)
    search.advance(log_probs)
    assert search.best_tokens() == ()
    assert search.hypotheses(1)[0].score == 0.0
