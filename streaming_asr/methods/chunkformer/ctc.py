"""Greedy CTC: the best token of each frame, repeats merged, blanks dropped, joined into words.

The last token is carried from window to window, so one that spans a border is one token.
A word is complete when the next one begins: tokens that begin one start with "▁".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from streaming_asr.method import Word

BLANK = 0
FRAME_S = 0.08
SPACE = "▁"


@dataclass(slots=True)
class Greedy:
    """The decoding of one stream; `push` its frames in order, `finish` it once."""

    tokens: Sequence[str]
    """The text of each token, by id."""
    n_frames: int = 0
    _previous: int = BLANK
    """Token of the frame before."""
    _pieces: list[str] = field(default_factory=list)
    """Of the word that may still grow, as the fields below."""
    _log_probs: list[float] = field(default_factory=list)
    _start: int = 0
    _stop: int = 0

    def push(self, best: Sequence[int], log_probs: Sequence[float]) -> list[Word]:
        """Take in each new frame's best token and its log-probability; return completed words."""
        complete: list[Word] = []
        frames = zip(best, log_probs, strict=True)
        for frame, (token, log_prob) in enumerate(frames, start=self.n_frames):
            is_repeated = token == self._previous
            self._previous = token
            text = self.tokens[token]
            is_special = text.startswith("<") and text.endswith(">")  # <unk>, <sos/eos>
            if token == BLANK or is_special:
                continue
            if is_repeated:
                self._stop = frame + 1
                continue
            if text.startswith(SPACE):
                complete += self.finish()
            if not self._pieces:
                self._start = frame
            self._pieces.append(text)
            self._log_probs.append(log_prob)
            self._stop = frame + 1
        self.n_frames += len(best)
        return complete

    def open_word(self) -> tuple[Word, ...]:
        """Return the word that may still grow, () where there is none."""
        text = "".join(self._pieces).replace(SPACE, " ")
        if not text.strip():
            return ()
        mean = sum(self._log_probs) / len(self._log_probs)
        probability = float(torch.tensor(mean).exp())
        start_s, end_s = self._start * FRAME_S, self._stop * FRAME_S
        return (Word(text, start=start_s, end=end_s, probability=probability),)

    def finish(self) -> tuple[Word, ...]:
        """Return the open word as final, () where there is none; the next token begins another."""
        word = self.open_word()
        self._pieces, self._log_probs = [], []
        return word


def best_path(logits: Tensor) -> tuple[list[int], list[float]]:
    """Return the best token of each frame of (n, vocabulary) logits, and its log-probability."""
    log_probs, tokens = logits.float().log_softmax(-1).max(-1)
    return tokens.tolist(), log_probs.tolist()
