"""When a segment ends: after a pause, after nothing but silence, or when it has grown too long.

Silence is what the first pass calls blank: a frame is silent where the blank's probability is above
a threshold. The rules are looked at after every chunk (WeNet's endpointer; times of the paper).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch

from streaming_asr.errors import UserError, check_range

FRAMES_PER_S = 50
OVERLAP_FRAMES = 25
"""Of a pause so much is encoded again in the next segment: its first word may begin there."""


class Reason(Enum):
    """Why a segment ended."""

    PAUSE = "pause"
    SILENCE = "silence"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """Lengths in encoder frames of 20 ms."""

    trailing: int
    """Silence after speech that ends a segment."""
    no_speech: int
    """Silence without any speech that ends one."""
    max_delay: int
    """A segment that is so long is ended where it is."""
    blank_log_prob: float

    @classmethod
    def of(
        cls,
        context_frames: int,
        longest_chunk: int,
        trailing_silence_s: float,
        no_speech_s: float,
        max_delay_s: float | None,
        blank_threshold: float,
    ) -> EndpointRules:
        """Return the rules for a model's context.

        longest_chunk: frames of the longer one of the first and the later chunks. max_delay_s:
        default 12 s, in proportion where the context is shorter than 30 s. Raises UserError where a
        setting is out of range or a segment would outgrow the context.
        """
        if max_delay_s is None:
            max_delay_s = 12 * min(1.0, context_frames / (30 * FRAMES_PER_S))
        delay = round(max_delay_s * FRAMES_PER_S)
        check_range(0, 1, above=True, blank_threshold=blank_threshold)
        times_s = {"trailing_silence_s": trailing_silence_s, "no_speech_s": no_speech_s}
        check_range(0, above=True, **times_s, max_delay_s=delay / FRAMES_PER_S)
        # The rules are applied after each chunk: a segment grows to at most one frame less than the
        # delay and a chunk more. And one chunk must fit behind the overlap.
        if max(delay - 1, OVERLAP_FRAMES) + longest_chunk > context_frames:
            raise UserError(
                f"max_delay_s={delay / FRAMES_PER_S:g} and a chunk of "
                f"{longest_chunk / FRAMES_PER_S:g} s do not fit into this model's context of "
                f"{context_frames / FRAMES_PER_S:g} s; "
                "choose a shorter chunk or a shorter max_delay_s"
            )
        return cls(
            trailing=round(trailing_silence_s * FRAMES_PER_S),
            # Silence longer than a segment may be ends with the segment.
            no_speech=min(round(no_speech_s * FRAMES_PER_S), delay),
            max_delay=delay,
            blank_log_prob=math.log(blank_threshold),
        )

    def silent_run(self, blank_log_probs: torch.Tensor, before: int) -> int:
        """Return how many silent frames the stream ends with after these.

        blank_log_probs: (n,) of the new frames; before: silent frames in front of them.
        """
        speech = (blank_log_probs <= self.blank_log_prob).nonzero()
        n = blank_log_probs.shape[0]
        return before + n if speech.numel() == 0 else n - 1 - int(speech[-1])

    def reason(self, n_frames: int, silent_run: int, has_text: bool) -> Reason | None:
        """Return why a segment of `n_frames` with `silent_run` silent frames at its end ends.

        None where it goes on. has_text: the first pass has found a token in it.
        """
        if has_text and silent_run >= self.trailing:
            return Reason.PAUSE
        if not has_text and silent_run >= self.no_speech:
            return Reason.SILENCE
        return Reason.DELAY if n_frames >= self.max_delay else None

    def overlap(self, silent_run: int) -> int:
        """Return how many of the silent frames at a segment's end the next segment has again."""
        return min(silent_run // 2, OVERLAP_FRAMES)
