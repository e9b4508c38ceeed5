"""Audio beyond the model's context: where to cut, so that no word is lost at the seam.

A window is cut after the last word that is final and whose end (by alignment heads) is old enough;
where there is none, before a word that reaches into the newest audio, or at that audio's start.
A stream is cut two seconds before the context is full, after a committed word whose end is at least
one second old, else five seconds are kept; for contexts shorter than 15 s the three times shrink in
proportion. A full window whose text was decoded at once is cut at words that end two seconds before
its end, or an eighth of a short window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from streaming_asr.errors import UserError
from streaming_asr.whisper.features import FRAMES_PER_S


@dataclass(frozen=True, slots=True)
class Seam:
    """The rule's lengths, in frames of 20 ms."""

    limit: int
    """A window is cut before it grows longer than this."""
    age: int
    """The word before the cut ended at least so long before the window's end."""
    keep: int
    """Newest audio that the next window has where there is no such word."""

    @classmethod
    def of(cls, context_frames: int, chunk_frames: int, first_chunk_frames: int) -> Seam:
        """Return a stream's rule. Raises UserError where a chunk is too long for the context."""
        share = min(1.0, context_frames / (15 * FRAMES_PER_S))
        seam = cls(
            limit=context_frames - round(2 * share * FRAMES_PER_S),
            age=round(FRAMES_PER_S * share),
            keep=round(5 * FRAMES_PER_S * share),
        )
        longest = max(chunk_frames, first_chunk_frames)
        if seam.keep + longest > seam.limit:
            raise UserError(
                f"chunk of {longest / FRAMES_PER_S:g} s: with a context of "
                f"{context_frames / FRAMES_PER_S:g} s a chunk is at most "
                f"{(seam.limit - seam.keep) / FRAMES_PER_S:g} s; choose a shorter chunk"
            )
        return seam

    @classmethod
    def of_full(cls, window_frames: int) -> Seam:
        """Return the rule for a full window of that length."""
        margin = min(2 * FRAMES_PER_S, -(-window_frames // 8))
        return cls(limit=window_frames, age=margin, keep=margin)

    def cut(
        self,
        word_ends: Sequence[float],
        n_committed: int,
        position: int,
        chunk_frames: int = 0,
        first_start: float = math.inf,
    ) -> tuple[int, int]:
        """Return the frame at which the next window begins, and how many words end before it.

        word_ends: end of each word in seconds of the window, in order, the first `n_committed`
        committed; position: frames in the window; chunk_frames: frames that come next;
        first_start: start of the first word in seconds, given where the next window may begin with
        it.
        """
        end_frames = [round(end_s * FRAMES_PER_S) for end_s in word_ends]
        for i in range(n_committed - 1, -1, -1):
            # The newest words may change when more audio comes, and their times even more.
            if 0 < end_frames[i] <= position - self.age:
                # (an earlier word would leave an even longer window)
                if position - end_frames[i] + chunk_frames <= self.limit:
                    return end_frames[i], i + 1
                break
        # No such word: silence, or a loop. The newest audio is transcribed again in any case.
        start = max(position - self.keep, 0)
        if 0 < first_start * FRAMES_PER_S < start:
            start = round(first_start * FRAMES_PER_S)
        n_before = len(list(takewhile(lambda end_frame: end_frame <= start, end_frames)))
        return start, n_before
