"""What is measured, and where in the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming_asr.chunking import first_chunk_ms, parse_duration
from streaming_asr.errors import UserError

FRAME_MS = 20
TOKENS_PER_S = 4
"""Text tokens per second of audio, 1.2 per chunk of 300 ms: brisk English speech."""
AROUND = 2
"""A chunk's figure is the mean over it and so many on either side (six tokens at 300 ms)."""


def n_text_tokens(n_frames: int) -> int:
    """Length of the text when `n_frames` of 20 ms have been heard."""
    return n_frames * FRAME_MS * TOKENS_PER_S // 1000


@dataclass(frozen=True)
class StepSettings:
    """Settings of `bench step`. Chunk k, counted from 1, ends k chunk lengths into the stream."""

    models: tuple[str, ...]
    chunk_frames: int
    first_frames: int
    at: tuple[int, ...]
    threads: int
    repeats: int
    device: str

    @classmethod
    def parse(
        cls,
        models: Sequence[str],
        chunk: str,
        at: str,
        threads: int = 1,
        repeats: int = 3,
        device: str = "cpu",
    ) -> StepSettings:
        """Settings from the command line's words. Raises UserError where they make no sense."""
        for name, value in (("--threads", threads), ("--repeats", repeats)):
            if value < 1:
                raise UserError(f"{name} {value}: must be 1 or more")
        try:
            points = tuple(sorted({int(k) for k in at.split(",")}))
        except ValueError as error:
            raise UserError(
                f"--at {at}: whole numbers with commas between them, as in --at 5,30,97"
            ) from error
        settings = cls(
            models=tuple(dict.fromkeys(models)),
            chunk_frames=parse_duration(chunk, "--chunk") // FRAME_MS,
            first_frames=first_chunk_ms(chunk) // FRAME_MS,
            at=points,
            threads=threads,
            repeats=repeats,
            device=device,
        )
        if points[0] - AROUND <= settings.first_chunk:
            raise UserError(
                f"--at {at}: chunk {settings.first_chunk} is the first that is decoded here and "
                f"{AROUND} on either side are measured; begin at "
                f"{settings.first_chunk + AROUND + 1} or later"
            )
        return settings

    @property
    def first_chunk(self) -> int:
        """The chunk at whose end the first block of the encoder is complete."""
        return self.first_frames // self.chunk_frames

    def ends(self, last_chunk: int) -> list[int]:
        """Frames at which the blocks up to `last_chunk` end."""
        return [k * self.chunk_frames for k in range(self.first_chunk, last_chunk + 1)]

    def points_within(self, context_frames: int) -> list[int]:
        """The chunks of `at` that a model reaches before its window is full."""
        return [k for k in self.at if (k + AROUND + 1) * self.chunk_frames <= context_frames]
