"""What WhisperRT knows about one stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming_asr.method import Samples, Word
from streaming_asr.methods.whisperrt.hypothesis import WindowHypothesis
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.window import BlockWindow


@dataclass(slots=True, kw_only=True)
class WhisperRTState(BlockWindow):
    """One stream."""

    encoder: StreamingEncoder
    cache: DecoderCache
    prompt: list[int]

    ready: list[int] = field(default_factory=list)
    """Ends of blocks whose mel frames are there, not yet encoded."""
    hypotheses: list[WindowHypothesis] = field(default_factory=lambda: [WindowHypothesis()])
    """Best first; one when greedy."""
    decoded: int = 0
    """Frame of the stream up to which the text has been decoded."""
    floor: int = 0
    """Tokens of the window that will not change any more."""
    emitted: list[str] = field(default_factory=list)
    """Committed words that lie in the window, in order."""
    goes_on: bool = False
    """Committed text lies before the window, so that its first word wants a space."""
    partial: tuple[Word, ...] = ()

    @property
    def more_to_come(self) -> bool:
        """Return whether another block will be encoded."""
        return not self.ended or self.block_is_there()

    def take_blocks(self, audio: Samples, last: bool, limit: int) -> None:
        """Take in samples; turn each block that is complete into mel frames of the window.

        A block that would end past frame `limit` of the window waits. last: no samples follow.
        """
        self.arrive(audio, last)
        while self.block_is_there() and self.next_end - self.window_start <= limit:
            self.ready.append(self.take_block())
