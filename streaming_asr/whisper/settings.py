"""The settings that all methods on a Whisper have, as conf/method/ gives them."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_asr.models.hub import on_this_machine
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.window import FRAME_SAMPLES, frames_of


@dataclass(kw_only=True, eq=False)
class OnWhisper:
    """A method on the Whisper at `model_path`. Raises UserError on settings out of range."""

    model_path: str
    device: str
    dtype: str

    def load(self, adapter: str | None = None, scale: float = 1.0) -> Whisper:
        """Return the model with `scale` of the adapter's change merged; adapter: a folder, a file,
        a name of the hub, or none. Raises UserError where one is missing."""
        return load_whisper(
            self.model_path,
            device=self.device,
            dtype=self.dtype,
            adapter=trained(adapter),
            adapter_scale=scale,
        )


@dataclass(kw_only=True, eq=False)
class Chunked(OnWhisper):
    """A method that processes audio in chunks; both lengths in seconds, multiples of 0.02."""

    chunk_s: float
    first_chunk_s: float

    def __post_init__(self) -> None:
        self._chunk_frames = frames_of(self.chunk_s, "chunk_s")
        self._first_frames = frames_of(self.first_chunk_s, "first_chunk_s")
        self._chunk = self._chunk_frames * FRAME_SAMPLES
        self._first = self._first_frames * FRAME_SAMPLES


def trained(weights: str | None) -> str | None:
    """Return the folder or file that a `weights` setting names, downloaded where the name is one
    of the hub; None for `none`. Raises UserError where it cannot be downloaded.
    """
    return None if weights in (None, "none") else on_this_machine(str(weights))
