"""CTC prefix beam search over a stream, with the frames of every token.

The search of Graves (2006) as first pass of U2 (arXiv 2012.05481): a beam of token prefixes, each
with the log-probability of all its alignments that end in blank and of all that end in its last
token. Per frame only the most probable tokens are tried (first beam), and of the prefixes that
result the best are kept (second beam). All of one frame is computed for the whole beam at once.

The search also keeps the best single alignment of each prefix, which gives the token times.

With a language model (shallow fusion) prefixes are ranked by their alignments' log-probability plus
what the model adds for each token; the score of a hypothesis stays that of its alignments only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from streaming_asr.whisper.ngram import Fusion

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROOT = 0  # the empty prefix
NONE = -1  # the empty chain of spans


@dataclass(frozen=True, slots=True)
class CtcHypothesis:
    """A prefix, the log-probability of its alignments, and where its tokens lie."""

    tokens: tuple[int, ...]
    score: float
    spans: tuple[tuple[int, int], ...]
    """(first frame, end frame) of each token on the best alignment."""


class PrefixBeamSearch:
    """One search, from the first frame of a segment on; `advance` takes any number of frames.

    beam: prefixes kept after a frame. top: tokens tried per frame, blank included (default beam).
    fusion: a language model that ranks them too.
    """

    def __init__(
        self, blank: int, beam: int = 10, top: int | None = None, fusion: Fusion | None = None
    ) -> None:
        self.blank = blank
        self.beam = beam
        self.top = top or beam
        self.fusion = fusion
        self.n_frames = 0
        # Every prefix ever kept has one number, so that a prefix that comes back is recognised.
        self._parent = [NONE]
        self._token = [NONE]
        self._child: dict[tuple[int, int], int] = {}
        # What the language model has added to each prefix and to each growth that was tried, and
        # its state behind each prefix.
        self._added = [0.0]
        self._gains: dict[tuple[int, int], float] = {}
        self._states: list[Any] = [None if fusion is None else fusion.model.start()]
        # Spans are chains that share their beginnings: (chain before, first frame, end frame).
        self._chains: list[tuple[int, int, int]] = []

        self._prefix: Ints = np.array([ROOT])
        self._last: Ints = np.array([NONE])
        self._above: Ints = np.array([NONE])
        self._sum_blank: Floats = np.zeros(1)
        self._sum_token: Floats = np.full(1, -np.inf)
        self._best_blank: Floats = np.zeros(1)
        self._best_token: Floats = np.full(1, -np.inf)
        self._chain_blank: Ints = np.array([NONE])
        self._chain_token: Ints = np.array([NONE])

    def anew(self) -> PrefixBeamSearch:
        """Return a search with the same settings, at its start."""
        return PrefixBeamSearch(self.blank, self.beam, self.top, self.fusion)

    def advance(self, log_probs: torch.Tensor) -> None:
        """Take in log-probabilities (frames, classes)."""
        top = log_probs.topk(min(self.top, log_probs.shape[-1]), dim=-1)
        values = top.values.double().cpu().numpy()
        tokens = top.indices.cpu().numpy()
        with np.errstate(invalid="ignore", divide="ignore"):
            for frame_tokens, frame_values in zip(tokens, values, strict=True):
                self._frame(frame_tokens, frame_values)

    def hypotheses(self, n: int | None = None) -> list[CtcHypothesis]:
        """Return the `n` best prefixes (default all of the beam), best first."""
        scores = np.logaddexp(self._sum_blank, self._sum_token)
        in_blank = self._best_blank > self._best_token
        chains = np.where(in_blank, self._chain_blank, self._chain_token)
        return [
            CtcHypothesis(
                self._spell(int(self._prefix[i])),
                float(scores[i]),
                self._spans(int(chains[i])),
            )
            for i in range(len(scores))[:n]
        ]

    def best_tokens(self) -> tuple[int, ...]:
        """Return the tokens of only the best prefix, for the text shown after every chunk."""
        return self._spell(int(self._prefix[0]))

    def _frame(self, tokens: Ints, log_probs: Floats) -> None:
        """Take in a frame: `tokens` (top,) are tried, with `log_probs` (top,); sort the beam."""
        frame = self.n_frames
        self.n_frames += 1
        # The blank may not be among the frame's best; prefixes then cannot stay by it.
        is_blank = tokens == self.blank
        blank = log_probs[is_blank][0] if is_blank.any() else -np.inf
        tokens, log_probs = tokens[~is_blank], log_probs[~is_blank]
        total = np.logaddexp(self._sum_blank, self._sum_token)
        in_blank = self._best_blank > self._best_token
        best = np.where(in_blank, self._best_blank, self._best_token)
        chain = np.where(in_blank, self._chain_blank, self._chain_token)

        # A prefix stays what it is: by blank, or by its last token once more.
        repeats = tokens[None, :] == self._last[:, None]  # (beam, top)
        tried = repeats.any(1)
        column_of_last = repeats.argmax(1) if tokens.size else np.zeros_like(self._last)
        again = np.where(tried, log_probs[column_of_last] if tokens.size else 0.0, -np.inf)
        stay_blank = total + blank
        stay_token = self._sum_token + again
        best_stay = self._best_token + again

        # It grows by a token; by its last one only where a blank is between.
        grow = np.where(repeats, self._sum_blank[:, None], total[:, None]) + log_probs
        best_grow = np.where(repeats, self._best_blank[:, None], best[:, None]) + log_probs

        # What grows into a prefix that is in the beam already is added to it.
        is_above = self._above[:, None] == self._prefix[None, :]
        above = is_above.argmax(1)
        (into,) = np.nonzero(tried & is_above.any(1))
        cells = above[into], column_of_last[into]
        stay_token[into] = np.logaddexp(stay_token[into], grow[cells])
        entered = np.zeros(len(total), bool)
        entered[into] = best_grow[cells] > best_stay[into]
        best_stay[into] = np.maximum(best_stay[into], best_grow[cells])
        grow[cells] = -np.inf

        # The best of what stays and what grows.
        n_old = len(total)
        candidates = np.concatenate([np.logaddexp(stay_blank, stay_token), grow.ravel()])
        ranks = candidates if self.fusion is None else candidates + self._fused(tokens)
        picks = np.argsort(-ranks, kind="stable")[: self.beam]
        picks = picks[candidates[picks] > -np.inf]
        old = picks < n_old
        source, column = np.divmod(picks - n_old, max(1, tokens.size))
        source = np.where(old, picks, source)

        prefixes, chains = self._prefix[source], np.full(picks.size, NONE)
        last, above_kept = self._last[source], self._above[source]
        best_token = best_stay[source]
        for i, (p, is_old) in enumerate(zip(source.tolist(), old.tolist(), strict=True)):
            if not is_old:
                repeated = repeats[p, column[i]]
                last[i] = tokens[column[i]]
                above_kept[i] = prefixes[i]
                prefixes[i] = self._grown(int(prefixes[i]), int(last[i]))
                best_token[i] = best_grow[p, column[i]]
                chains[i] = self._chain(self._chain_blank[p] if repeated else chain[p], frame)
            elif entered[p]:
                q = above[p]
                repeated = repeats[q, column_of_last[p]]
                chains[i] = self._chain(self._chain_blank[q] if repeated else chain[q], frame)
            elif best_stay[p] > -np.inf:
                before, first, _ = self._chains[self._chain_token[p]]
                chains[i] = self._chain(before, first, frame + 1)
        self._prefix, self._last, self._above = prefixes, last, above_kept
        self._sum_blank = np.where(old, stay_blank[source], -np.inf)
        self._sum_token = np.where(old, stay_token[source], candidates[picks])
        self._best_blank = np.where(old, best[source] + blank, -np.inf)
        self._best_token = best_token
        self._chain_blank = np.where(old, chain[source], NONE)
        self._chain_token = chains

    def _fused(self, tokens: Ints) -> Floats:
        """Return what the language model adds to each prefix as it is (beam,), then to each grown
        by each of `tokens`, one row a prefix."""
        prefixes, tried = self._prefix.tolist(), tokens.tolist()
        old = [self._added[prefix] for prefix in prefixes]
        grown = [
            added + self._gain(prefix, token)
            for prefix, added in zip(prefixes, old, strict=True)
            for token in tried
        ]
        return np.array(old + grown)

    def _gain(self, prefix: int, token: int) -> float:
        assert self.fusion is not None
        gain = self._gains.get((prefix, token))
        if gain is None:
            log_prob = self.fusion.model.score(self._states[prefix], token)
            gain = self.fusion.weight * log_prob + self.fusion.bonus
            self._gains[prefix, token] = gain
        return gain

    def _chain(self, before: int, first: int, end: int | None = None) -> int:
        self._chains.append((int(before), first, first + 1 if end is None else end))
        return len(self._chains) - 1

    def _grown(self, prefix: int, token: int) -> int:
        child = self._child.get((prefix, token))
        if child is None:
            child = self._child[prefix, token] = len(self._parent)
            self._parent.append(prefix)
            self._token.append(token)
            if self.fusion is not None:
                self._added.append(self._added[prefix] + self._gain(prefix, token))
                self._states.append(self.fusion.model.after(self._states[prefix], token))
        return child

    def _spell(self, prefix: int) -> tuple[int, ...]:
        tokens = []
        while prefix != ROOT:
            tokens.append(self._token[prefix])
            prefix = self._parent[prefix]
        return tuple(reversed(tokens))

    def _spans(self, chain: int) -> tuple[tuple[int, int], ...]:
        spans = []
        while chain != NONE:
            chain, first, end = self._chains[chain]
            spans.append((first, end))
        return tuple(reversed(spans))
