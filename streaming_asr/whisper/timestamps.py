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
        """Return log-probabilities (hypotheses, vocabulary): -inf for tokens that the rules forbid,
        the others' probabilities sum to one."""
        revised = log_probs.clone()
        for row, hypothesis in zip(revised, live, strict=True):
            self._forbid(row, hypothesis.tokens)
        return revised.log_softmax(-1)

    def _forbid(self, log_probs: torch.Tensor, tokens: Sequence[int]) -> None:
        """Set what may not follow `tokens` to -inf in log_probs (vocabulary,), in place.

        Timestamps are the last ids, from self._first on; text lies before self._eot.
        """
        first = self._first
        if not tokens:  # a segment starts
            log_probs[:first] = -torch.inf
            log_probs[first + LATEST_START + 1 :] = -torch.inf
            return
        is_after_stamp = tokens[-1] >= first
        is_after_start = is_after_stamp and (len(tokens) < 2 or tokens[-2] >= first)
        is_after_end = is_after_stamp and not is_after_start
        if is_after_start:  # text follows, or the end
            log_probs[first:] = -torch.inf
        elif is_after_end:  # another segment starts, or the end
            log_probs[: self._eot] = -torch.inf
        # Time does not go back. A segment may begin where the last one ended, but must end later
        # than it began.
        last_stamp = next(token for token in reversed(tokens) if token >= first)
        earliest = last_stamp if is_after_end else last_stamp + 1
        log_probs[first:earliest] = -torch.inf
        # If the timestamps together are likelier than any token of text, one of them follows.
        if log_probs[first:].logsumexp(0) > log_probs[:first].max():
            log_probs[:first] = -torch.inf


def segmented(tokens: Sequence[int], first_timestamp: int) -> tuple[list[int], int, int | None]:
    """Return the indices of the tokens of text, how many of these are in segments that have ended,
    and the frame of the window at which the last such segment ends, None where none has.

    first_timestamp: the id of <|0.00|>, which the others follow. A timestamp after text ends a
    segment."""
    text_indices: list[int] = []
    n_complete, end_frame = 0, None
    for i, token in enumerate(tokens):
        if token < first_timestamp:
            text_indices.append(i)
        elif len(text_indices) > n_complete:
            n_complete, end_frame = len(text_indices), token - first_timestamp
    return text_indices, n_complete, end_frame
