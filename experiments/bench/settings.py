"""What is measured, and where in the stream."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_asr.chunking import first_chunk_ms, parse_duration
from streaming_asr.errors import UserError

FRAME_MS = 20
TOKENS_PER_S = 4
"""Text tokens per second of audio, 1.2 per chunk of 300 ms: brisk English speech."""
AROUND = 2
"""A chunk's figure is the mean over it and so many on either side (six tokens at 300 ms)."""


def n_text_tokens(n_frames: int) -> int:
    """Length of the text after `n_frames` of 20 ms."""
    return n_frames * FRAME_MS * TOKENS_PER_S // 1000


@dataclass(frozen=True)
class StepSettings:
    """Settings of `bench step`. Chunk k, counted from 1, ends k chunk lengths into the stream.

    Raises UserError where the first of `at` comes before what can be measured.
    """

    model: tuple[str, ...]
    chunk: str = "300ms"
    at: tuple[int, ...] = (5, 30, 97)
    threads: int = 1
    repeats: int = 3
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.at[0] - AROUND <= self.first_chunk:
            raise UserError(
                f"--at {self.at[0]}: chunk {self.first_chunk} is the first that is decoded here "
                f"and {AROUND} on either side are measured; begin at "
                f"{self.first_chunk + AROUND + 1} or later"
            )

    @property
    def chunk_frames(self) -> int:
        return parse_duration(self.chunk, "--chunk") // FRAME_MS

    @property
    def first_frames(self) -> int:
        """Frames of the encoder's first block."""
        return first_chunk_ms(self.chunk) // FRAME_MS

    @property
    def first_chunk(self) -> int:
        """The chunk at whose end the first block of the encoder is complete."""
        return self.first_frames // self.chunk_frames

    def ends(self, last_chunk: int) -> list[int]:
        """Frames at which the blocks up to `last_chunk` end."""
        return [k * self.chunk_frames for k in range(self.first_chunk, last_chunk + 1)]

    def points_within(self, context_frames: int) -> list[int]:
        """The chunks of `at` that a model reaches before its window is full. Raises UserError
        where it reaches none."""
        points = [k for k in self.at if (k + AROUND + 1) * self.chunk_frames <= context_frames]
        if not points:
            most = context_frames // self.chunk_frames - AROUND - 1
            raise UserError(
                f"--at {','.join(map(str, self.at))}: the model's window is "
                f"{context_frames * FRAME_MS / 1000:g} s, so that {most} is the last chunk that "
                "can be measured; name an earlier one"
            )
        return points
