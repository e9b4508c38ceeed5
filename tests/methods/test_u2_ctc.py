"""Prefix beam search against a plain dictionary form and against all alignments written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from streaming_asr.methods.u2.ctc import PrefixBeamSearch
from streaming_asr.whisper.ngram import Fusion

Spans = tuple[tuple[int, int], ...]
Prefix = tuple[int, ...]
Path = tuple[float, Spans]

INF = math.inf


def posteriors(n_frames: int, n_classes: int, seed: int, sharpness: float = 2.0) -> torch.Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.normal(0, sharpness, (n_frames, n_classes))).log_softmax(-1)


def add(a: float, b: float) -> float:
    if max(a, b) == -INF:
        return -INF
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


class PlainPrefixBeamSearch:
    """`PrefixBeamSearch` in its plain form: a dictionary per frame, one prefix at a time."""

    def __init__(self, blank: int, beam: int, top: int) -> None:
        self.blank, self.beam, self.top = blank, beam, top
        self.n_frames = 0
        # prefix -> (sum in blank, sum in token, best alignment in blank, best in token)
        self._beams: dict[Prefix, list] = {(): [0.0, -INF, (0.0, ()), (-INF, ())]}

    def advance(self, log_probs: np.ndarray) -> None:
        """Take in log-probabilities (frames, classes)."""
        for row in log_probs:
            best = np.argpartition(-row, min(self.top, len(row) - 1))[: self.top]
            self._frame({int(u): float(row[u]) for u in best})
            self.n_frames += 1

    def hypotheses(self) -> list[tuple[Prefix, float, Spans]]:
        """(tokens, score, spans) of the beam, best first."""
        return [
            (prefix, add(sums[0], sums[1]), max(sums[2], sums[3])[1])
            for prefix, sums in self._beams.items()
        ]

    def _frame(self, tried: dict[int, float]) -> None:
        t = self.n_frames
        grown: dict[Prefix, list] = {}
        for prefix, (in_blank, in_token, best_blank, best_token) in self._beams.items():
            total, best = add(in_blank, in_token), max(best_blank, best_token)
            for u, lp in tried.items():
                moves: list[tuple[Prefix, int, float, Path]]
                if u == self.blank:
                    moves = [(prefix, 0, total, (best[0] + lp, best[1]))]
                elif prefix and u == prefix[-1]:
                    spans = best_token[1]
                    longer = (*spans[:-1], (spans[-1][0], t + 1)) if spans else ()
                    again = (best_blank[0] + lp, (*best_blank[1], (t, t + 1)))
                    moves = [
                        (prefix, 1, in_token, (best_token[0] + lp, longer)),
                        ((*prefix, u), 1, in_blank, again),
                    ]
                else:
                    after = (best[0] + lp, (*best[1], (t, t + 1)))
                    moves = [((*prefix, u), 1, total, after)]
                for new, where, mass, path in moves:
                    entry = grown.setdefault(new, [-INF, -INF, (-INF, ()), (-INF, ())])
                    entry[where] = add(entry[where], mass + lp)
                    entry[where + 2] = max(entry[where + 2], path)
        ranked = sorted(grown.items(), key=lambda item: -add(item[1][0], item[1][1]))
        self._beams = dict(ranked[: self.beam])


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


# -- with a language model ------------------------------------------------------------------------


class Table:
    """Stands for an n-gram model: p(token | the last one), by a table."""

    def __init__(self, probabilities: dict[tuple[int | None, int], float]) -> None:
        self.probabilities = probabilities

    def start(self) -> None:
        return None

    def score(self, state: int | None, token: int) -> float:
        return math.log(self.probabilities[state, token])

    def after(self, state: int | None, token: int) -> int:
        return token


def fused(table: Table, weight: float, bonus: float) -> Fusion:
    return Fusion(table, weight, bonus)  # type: ignore[arg-type]


def random_table(n_tokens: int, seed: int) -> Table:
    random = np.random.default_rng(seed)
    rows = {state: random.dirichlet(np.ones(n_tokens)) for state in (None, *range(n_tokens))}
    return Table(
        {(state, u): float(row[u]) for state, row in rows.items() for u in range(n_tokens)}
    )


def added(table: Table, tokens: tuple[int, ...], weight: float, bonus: float) -> float:
    pairs = itertools.pairwise((None, *tokens))
    return sum(weight * table.score(state, token) + bonus for state, token in pairs)


@pytest.mark.parametrize(
    ("weight", "bonus", "best"),
    [
        # One frame: a 0.5, b 0.4, blank 0.1; the model gives a 0.1 and b 0.9.
        (0.0, 0.0, (0,)),  # a: 0.5
        (1.0, 0.0, (1,)),  # b: 0.4 * 0.9 = 0.36, blank 0.1, a 0.05
        (20.0, 0.0, ()),  # blank: 0.1, b: 0.4 * 0.9 ** 20 = 0.05
        (20.0, 1.0, (1,)),  # blank: 0.1, b: 0.05 * e = 0.13
    ],
)
def test_the_model_ranks_and_the_score_stays_that_of_the_alignments(weight, bonus, best) -> None:
    table = Table({(None, 0): 0.1, (None, 1): 0.9})
    search = PrefixBeamSearch(2, beam=3, fusion=fused(table, weight, bonus))
    search.advance(torch.tensor([[0.5, 0.4, 0.1]]).log())
    assert search.best_tokens() == best
    scores = {h.tokens: math.exp(h.score) for h in search.hypotheses()}
    assert scores == pytest.approx({(0,): 0.5, (1,): 0.4, (): 0.1}, rel=1e-6)


def test_the_model_sees_what_stands_before_a_token() -> None:
    # Behind a stands b, behind b a: "ab" beats "aa" that the frames prefer.
    table = Table(
        {(None, 0): 0.5, (None, 1): 0.5, (0, 0): 0.1, (0, 1): 0.9, (1, 0): 0.9, (1, 1): 0.1}
    )
    frames = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.6, 0.35, 0.05]]).log()
    plain, ranked = PrefixBeamSearch(2), PrefixBeamSearch(2, fusion=fused(table, 1.0, 0.0))
    for search in (plain, ranked):
        search.advance(frames)
    assert plain.best_tokens() == (0, 0)
    assert ranked.best_tokens() == (0, 1)


@pytest.mark.parametrize("seed", range(3))
def test_without_pruning_the_order_is_that_of_both_sums(seed: int) -> None:
    n_frames, n_classes, blank, weight, bonus = 5, 3, 2, 0.7, 0.4
    log_probs, table = posteriors(n_frames, n_classes, seed), random_table(2, seed)
    sums: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(n_classes), repeat=n_frames):
        log_prob = sum(float(log_probs[t, u]) for t, u in enumerate(path))
        tokens = collapse(path, blank)
        sums[tokens] = add(sums.get(tokens, -INF), log_prob)
    search = PrefixBeamSearch(blank, 1000, n_classes, fused(table, weight, bonus))
    search.advance(log_probs)
    found = [h.tokens for h in search.hypotheses()]
    assert found == sorted(sums, key=lambda u: -(sums[u] + added(table, u, weight, bonus)))
    scores = {h.tokens: h.score for h in search.hypotheses()}
    assert scores == pytest.approx(sums, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_model_that_adds_nothing_changes_nothing(seed: int) -> None:
    log_probs = posteriors(60, 12, seed)
    plain = PrefixBeamSearch(11, beam=6)
    silent = PrefixBeamSearch(11, beam=6, fusion=fused(random_table(11, seed), 0.0, 0.0))
    for search in (plain, silent):
        search.advance(log_probs)
    assert silent.hypotheses() == plain.hypotheses()


@pytest.mark.parametrize("piece", [1, 7, 50])
def test_with_a_model_pieces_of_any_size_give_what_one_pass_gives(piece: int) -> None:
    log_probs = posteriors(50, 20, seed=3)
    fusion = fused(random_table(19, 3), 0.7, 1.0)
    whole = PrefixBeamSearch(19, fusion=fusion)
    whole.advance(log_probs)
    streamed = whole.restarted()
    assert streamed.best_tokens() == () and streamed.n_frames == 0
    for part in log_probs.split(piece):
        streamed.advance(part)
    assert streamed.hypotheses() == whole.hypotheses()
    plain = PrefixBeamSearch(19)
    plain.advance(log_probs)
    assert plain.best_tokens() != whole.best_tokens()
