"""What U2 knows about one stream: its audio window, its caches and its first pass."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_asr.method import Word
from streaming_asr.methods.u2.ctc import PrefixBeamSearch
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.window import FRAME_S, BlockWindow


@dataclass(slots=True, kw_only=True)
class StreamState(BlockWindow):
    """One stream; the window holds the open segment."""

    encoder: StreamingEncoder
    cache: DecoderCache
    search: PrefixBeamSearch
    prompt: list[int]
    language: str | None

    silent_run: int = 0
    """Silent frames that the window ends with."""
    has_text: bool = False
    """Words have been committed, so that the next one wants a space."""
    last_end_s: float = 0.0

    def move_window(self, start: int) -> list[int]:
        """Let the window begin at its frame `start`, with a search of its own; ends of the blocks
        to encode anew, the first of them a chunk or longer."""
        self.silent_run = 0
        self.search = PrefixBeamSearch(self.search.blank, self.search.beam, self.search.top)
        return self.shift(start, self.chunk_frames)

    def timed(self, text: str, start: int, end: int, probability: float | None) -> Word:
        """A committed word at frames of the window: times inside the audio heard, in order."""
        times = ((self.window_start + frame) * FRAME_S for frame in (start, end))
        start_s, end_s = (min(max(t, self.last_end_s), self.heard_s) for t in times)
        end_s = max(start_s, end_s)
        self.last_end_s = end_s
        return Word(text, start_s, end_s, probability)
