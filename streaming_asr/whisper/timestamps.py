"""Segments with timestamps, by which Whisper transcribes what is longer than its context.

Without timestamps it ends a full window after a sentence or two, and the words after them are
lost; with them it gives the end of each segment, and the next window begins there. The rules are
those of `ApplyTimestampRules` in decoding.py of OpenAI's whisper.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.search import Guide, Hypothesis

LATEST_START = 50
"""Steps of 0.02 s: the first segment begins in the window's first second."""


class Timestamps(Guide):
    """Text in segments, each between two timestamps. For a model that has timestamps."""

    def __init__(self, whisper: Whisper) -> None:
        assert whisper.first_timestamp is not None
        self._eot, self._first = whisper.eot, whisper.first_timestamp
        self.bias = whisper.suppressed.clone()
        self.bias[self._first : self._first + whisper.context_frames + 1] = 0.0

    def revise(self, live: Sequence[Hypothesis], log_probs: torch.Tensor) -> torch.Tensor:
        """Return (hypotheses, vocabulary): none for what the rules forbid, the rest sums to one."""
        revised = log_probs.clone()
        for row, hypothesis in zip(revised, live, strict=True):
            self._forbid(row, hypothesis.tokens)
        return revised.log_softmax(-1)

    def _forbid(self, row: torch.Tensor, tokens: Sequence[int]) -> None:
        first = self._first
        if not tokens:  # a segment's start
            row[:first] = -torch.inf
            row[first + LATEST_START + 1 :] = -torch.inf
            return
        after_stamp = tokens[-1] >= first
        after_two = after_stamp and (len(tokens) < 2 or tokens[-2] >= first)
        if after_two:  # text, or the end
            row[first:] = -torch.inf
        elif after_stamp:  # a segment has ended: another starts, or the end
            row[: self._eot] = -torch.inf
        earlier = [token for token in tokens if token >= first]
        # A segment may begin where the last one ended, but must end later than it began.
        least = earlier[-1] + (0 if after_stamp and not after_two else 1)
        row[first:least] = -torch.inf  # time does not go back, and no segment is empty
        if row[first:].logsumexp(0) > row[:first].max():  # likelier than any one token of text
            row[:first] = -torch.inf


def segmented(tokens: Sequence[int], first_timestamp: int) -> tuple[list[int], int, int | None]:
    """Return the indices of the tokens of text, how many of these are in segments that have ended,
    and the frame at which the last of these ends, None where none has.

    A timestamp after text ends a segment."""
    at: list[int] = []
    n_complete, end = 0, None
    for i, token in enumerate(tokens):
        if token < first_timestamp:
            at.append(i)
        elif len(at) > n_complete:
            n_complete, end = len(at), token - first_timestamp
    return at, n_complete, end
