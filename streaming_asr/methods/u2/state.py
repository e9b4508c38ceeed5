"""What U2 knows about one stream: its audio window, its caches and its first pass."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_asr.methods.u2.ctc import PrefixBeamSearch
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.window import BlockWindow


@dataclass(slots=True, kw_only=True)
class StreamState(BlockWindow):
    """One stream; the window holds the open segment."""

    encoder: StreamingEncoder
    cache: DecoderCache
    search: PrefixBeamSearch
    prompt: list[int]

    silent_run: int = 0
    """Silent frames that the window ends with."""

    def move_window(self, start: int) -> list[int]:
        """Let the window begin at its frame `start`, with a search of its own.

        Returns ends of the blocks to encode anew, the first of them a chunk or longer.
        """
        self.silent_run = 0
        self.search = PrefixBeamSearch(self.search.blank, self.search.beam, self.search.top)
        return self.shift(start, self.chunk_frames)
