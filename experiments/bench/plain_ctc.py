"""CTC prefix beam search in its plain form: one dictionary per frame, one prefix at a time.

The baseline of `bench methods u2_search` and the reference that the tests hold ours against.
"""

from __future__ import annotations

import math

import numpy as np

Spans = tuple[tuple[int, int], ...]
Prefix = tuple[int, ...]
Path = tuple[float, Spans]

INF = math.inf


class PlainPrefixBeamSearch:
    """What `methods.u2.ctc.PrefixBeamSearch` computes, from NumPy log-probabilities."""

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
            (prefix, _add(sums[0], sums[1]), max(sums[2], sums[3])[1])
            for prefix, sums in self._beams.items()
        ]

    def _frame(self, tried: dict[int, float]) -> None:
        t = self.n_frames
        grown: dict[Prefix, list] = {}
        for prefix, (in_blank, in_token, best_blank, best_token) in self._beams.items():
            total, best = _add(in_blank, in_token), max(best_blank, best_token)
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
                    entry[where] = _add(entry[where], mass + lp)
                    entry[where + 2] = max(entry[where + 2], path)
        ranked = sorted(grown.items(), key=lambda item: -_add(item[1][0], item[1][1]))
        self._beams = dict(ranked[: self.beam])


def _add(a: float, b: float) -> float:
    if max(a, b) == -INF:
        return -INF
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))
