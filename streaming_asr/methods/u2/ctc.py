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
        self._parent = [NONE]  # by number: the number of the prefix without its last token
        self._token = [NONE]  # by number: its last token
        self._child: dict[tuple[int, int], int] = {}  # number of (prefix, next token)
        # What the language model has added to each prefix and to each growth that was tried, and
        # its state behind each prefix.
        self._added = [0.0]
        self._gains: dict[tuple[int, int], float] = {}
        self._states: list[Any] = [None if fusion is None else fusion.model.start()]
        # Spans are chains that share their beginnings: (chain before, first frame, end frame).
        self._chains: list[tuple[int, int, int]] = []

        # The beam, best first, (beam,) each: the number of a prefix, its last token, the number of
        # the prefix without it.
        self._prefix: Ints = np.array([ROOT])
        self._last: Ints = np.array([NONE])
        self._parent_prefix: Ints = np.array([NONE])
        # Of the alignments that end in blank, and of those that end in the last token: the
        # log-probability of all together and of the best one, and the chain of the best one.
        self._sum_blank: Floats = np.zeros(1)
        self._sum_token: Floats = np.full(1, -np.inf)
        self._best_blank: Floats = np.zeros(1)
        self._best_token: Floats = np.full(1, -np.inf)
        self._chain_blank: Ints = np.array([NONE])
        self._chain_token: Ints = np.array([NONE])

    def restarted(self) -> PrefixBeamSearch:
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
        ends_in_blank = self._best_blank > self._best_token
        chains = np.where(ends_in_blank, self._chain_blank, self._chain_token)
        return [
            CtcHypothesis(self._spell(int(prefix)), float(score), self._spans(int(chain)))
            for prefix, score, chain in list(zip(self._prefix, scores, chains, strict=True))[:n]
        ]

    def best_tokens(self) -> tuple[int, ...]:
        """Return the tokens of only the best prefix, for the text shown after every chunk."""
        return self._spell(int(self._prefix[0]))

    def _frame(self, tokens: Ints, log_probs: Floats) -> None:
        """Take in a frame: `tokens` (top,) are tried, with `log_probs` (top,); sort the beam.

        Rows of all arrays are the prefixes of the beam, columns the tokens without the blank.
        """
        frame = self.n_frames
        self.n_frames += 1
        # The blank may not be among the frame's best; prefixes then cannot stay by it.
        is_blank = tokens == self.blank
        blank = log_probs[is_blank][0] if is_blank.any() else -np.inf
        tokens, log_probs = tokens[~is_blank], log_probs[~is_blank]
        total = np.logaddexp(self._sum_blank, self._sum_token)
        ends_in_blank = self._best_blank > self._best_token
        best = np.where(ends_in_blank, self._best_blank, self._best_token)
        chain = np.where(ends_in_blank, self._chain_blank, self._chain_token)

        # A prefix stays what it is: by blank, or by its last token once more.
        is_last = tokens[None, :] == self._last[:, None]
        has_last = is_last.any(1)
        last_column = is_last.argmax(1) if tokens.size else np.zeros_like(self._last)
        last_log_prob = np.where(has_last, log_probs[last_column] if tokens.size else 0.0, -np.inf)
        stay_blank = total + blank
        stay_token = self._sum_token + last_log_prob
        best_stay = self._best_token + last_log_prob

        # It grows by a token; by its last one only where a blank is between.
        grow = np.where(is_last, self._sum_blank[:, None], total[:, None]) + log_probs
        best_grow = np.where(is_last, self._best_blank[:, None], best[:, None]) + log_probs

        # A prefix is also reached from its parent, where that is in the beam: the parent grown by
        # the prefix's last token is added to the prefix, and is no candidate of its own.
        is_parent = self._parent_prefix[:, None] == self._prefix[None, :]
        parent_row = is_parent.argmax(1)
        (reached,) = np.nonzero(has_last & is_parent.any(1))
        cells = parent_row[reached], last_column[reached]
        stay_token[reached] = np.logaddexp(stay_token[reached], grow[cells])
        best_from_parent = np.zeros(len(total), bool)
        best_from_parent[reached] = best_grow[cells] > best_stay[reached]
        best_stay[reached] = np.maximum(best_stay[reached], best_grow[cells])
        grow[cells] = -np.inf  # so that no prefix is in the beam twice

        # The best of what stays and what grows: row of the old beam, and column where it grows.
        n_old = len(total)
        candidates = np.concatenate([np.logaddexp(stay_blank, stay_token), grow.ravel()])
        ranks = candidates if self.fusion is None else candidates + self._fused(tokens)
        picks = np.argsort(-ranks, kind="stable")[: self.beam]
        picks = picks[candidates[picks] > -np.inf]
        stays = picks < n_old
        rows, columns = np.divmod(picks - n_old, max(1, tokens.size))
        rows = np.where(stays, picks, rows)

        prefixes, last, parents = self._prefix[rows], self._last[rows], self._parent_prefix[rows]
        best_token, chains = best_stay[rows], np.full(picks.size, NONE)
        for i, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
            source = row  # where the best alignment that ends in the last token comes from
            if not stays[i]:
                last[i] = tokens[column]
                parents[i] = prefixes[i]
                prefixes[i] = self._grown(int(prefixes[i]), int(last[i]))
                best_token[i] = best_grow[row, column]
            elif best_from_parent[row]:
                source, column = parent_row[row], last_column[row]
            else:
                if best_stay[row] > -np.inf:  # its last token lasts a frame longer
                    before, first, _ = self._chains[self._chain_token[row]]
                    chains[i] = self._chain(before, first, frame + 1)
                continue
            before = self._chain_blank[source] if is_last[source, column] else chain[source]
            chains[i] = self._chain(before, frame, frame + 1)
        self._prefix, self._last, self._parent_prefix = prefixes, last, parents
        # What has just grown ends in its token: no alignment of it ends in blank yet.
        self._sum_blank = np.where(stays, stay_blank[rows], -np.inf)
        self._sum_token = np.where(stays, stay_token[rows], candidates[picks])
        self._best_blank = np.where(stays, best[rows] + blank, -np.inf)
        self._best_token = best_token
        self._chain_blank = np.where(stays, chain[rows], NONE)
        self._chain_token = chains

    def _fused(self, tokens: Ints) -> Floats:
        """Return what the language model adds to the log-probability of each candidate.

        First each prefix as it is, (beam,), then each grown by each token, (beam * tokens,).
        """
        unchanged = [self._added[prefix] for prefix in self._prefix.tolist()]
        grown = []
        for prefix in self._prefix.tolist():
            for token in tokens.tolist():
                grown.append(self._added[prefix] + self._gain(prefix, token))
        return np.array(unchanged + grown)

    def _gain(self, prefix: int, token: int) -> float:
        """Return what the language model adds for a token behind a prefix, computed once."""
        assert self.fusion is not None
        gain = self._gains.get((prefix, token))
        if gain is None:
            log_prob = self.fusion.model.score(self._states[prefix], token)
            gain = self.fusion.weight * log_prob + self.fusion.bonus
            self._gains[prefix, token] = gain
        return gain

    def _chain(self, before: int, first: int, end: int) -> int:
        """Return the number of a new chain: chain `before`, then a token in frames first..end-1."""
        self._chains.append((int(before), first, end))
        return len(self._chains) - 1

    def _grown(self, prefix: int, token: int) -> int:
        """Return the index, in `_parent` and `_token`, of `prefix` followed by `token`; the first
        call for it adds it there."""
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
