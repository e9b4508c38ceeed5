"""Audio beyond the model's context: where to cut, so that no word is lost at the seam.

Two seconds before the context is full, the window is cut after the last committed word whose end
(by alignment heads) is at least one second old; where there is none, the last five seconds are
kept. For contexts shorter than 15 s the three times shrink in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming_asr.errors import UserError

FRAMES_PER_S = 50


@dataclass(frozen=True, slots=True)
class Seam:
    """The rule's lengths, in frames of 20 ms."""

    limit: int
    """A window is cut before it grows past this."""
    age: int
    keep: int

    @classmethod
    def of(
        cls,
        context_frames: int,
        chunk_frames: int,
        first_chunk_frames: int,
        margin_s: float | None = None,
    ) -> Seam:
        """For a model's context; `margin_s` in place of the two seconds before it is full.

        Raises UserError where the chunk leaves no room.
        """
        share = min(1.0, context_frames / (15 * FRAMES_PER_S))
        margin = round((2 * share if margin_s is None else margin_s) * FRAMES_PER_S)
        seam = cls(
            limit=context_frames - margin,
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

    def cut(
        self, word_ends: Sequence[float], n_committed: int, position: int, chunk_frames: int
    ) -> tuple[int, int]:
        """Frame at which the next window begins, and how many words lie before it.

        word_ends: end of each word in seconds of the window, in order, the first `n_committed`
        committed; position: frames in the window.
        """
        frames = [round(end * FRAMES_PER_S) for end in word_ends]
        for i in range(n_committed - 1, -1, -1):
            if 0 < frames[i] <= position - self.age:
                if position - frames[i] + chunk_frames <= self.limit:
                    return frames[i], i + 1
                break
        start = max(position - self.keep, 0)
        n_before = 0
        while n_before < len(frames) and frames[n_before] <= start:
            n_before += 1
        return start, n_before
