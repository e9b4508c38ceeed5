"""Models that decode the audio of a segment again at every chunk: which of the text is final.

A chunk is `chunk_ms` of audio, wherever steps end. Its decoding begins with the text that is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streaming_asr.method import SAMPLE_RATE, Samples, Word
from streaming_asr.methods.native.base import Native, NativeState


@dataclass
class Redecoded(NativeState):
    """A stream: audio that no chunk has yet, the newest tokens, and how many of them are final.

    Final tokens spell whole words, which are committed.
    """

    waiting: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    tokens: list[int] = field(default_factory=list)
    n_final: int = 0


class Redecoder(Native):
    """A subclass decodes (`hypothesis`) and returns how many tokens should stay (`n_stable`)."""

    def hypothesis(self, state: Any, audio: Samples) -> list[int]:
        """Return the tokens of the segment with new audio, (n,), the final ones first."""
        raise NotImplementedError

    def n_stable(self, state: Any, before: Sequence[int]) -> int:
        """Return how many of `state.tokens` are stable; `before`: the tokens before the chunk."""
        raise NotImplementedError

    def n_hidden(self, state: Any) -> int:
        """Return how many tokens at the start are no text."""
        return 0

    def take_in(self, state: Any, audio: Samples) -> None:
        """Keep new audio, (n,)."""
        state.waiting = np.concatenate([state.waiting, audio])

    def close(self, state: Any) -> None:
        """The last chunk may be shorter: `block` returns what there is."""

    def block(self, state: Any) -> Tensor | None:
        """Return the next chunk, (1, n) samples; the last one may be shorter."""
        n = self.chunk_ms * SAMPLE_RATE // 1000
        if len(state.waiting) < n and not (state.is_closed and len(state.waiting)):
            return None
        chunk, state.waiting = state.waiting[:n], state.waiting[n:]
        return torch.from_numpy(chunk)[None]

    def run(self, states: Sequence[Any], blocks: Tensor) -> None:
        """Decode the segments again with a chunk more, one stream after another."""
        for state, audio in zip(states, blocks.numpy(), strict=True):
            before = state.tokens
            state.tokens = self.hypothesis(state, audio)
            state.n_blocks += 1
            with state.recorder.part("policy"):
                self.commit(state, self.n_stable(state, before))

    def commit(self, state: Any, n: int) -> None:
        """Commit the words that are complete within the first `n` tokens; their tokens are final.

        A word is complete when one of these tokens begins the next word, or when `n` is all tokens.
        """
        begin = max(state.n_final, self.n_hidden(state))
        for i, token in enumerate(state.tokens[begin:], start=begin):
            words = state.writer.push(token, state.heard_s)
            if words and i < n:
                state.committed += words
                state.n_final = i
        # The open word is finished in any case: the writer begins again at the first token that is
        # not final.
        last_word = state.writer.finish(state.heard_s)
        if n >= len(state.tokens):
            state.committed += last_word
            state.n_final = len(state.tokens)

    def finish(self, state: Any) -> None:
        """Commit the newest decoding."""
        self.commit(state, len(state.tokens))

    def partial(self, state: Any) -> tuple[Word, ...]:
        """Return the words of the tokens that are not final."""
        writer = state.writer
        words: list[Word] = []
        for token in state.tokens[max(state.n_final, self.n_hidden(state)) :]:
            words += writer.push(token, state.heard_s)
        return (*words, *writer.finish(state.heard_s))
