"""What greedy and beam decoding share: a hypothesis, a decoder with its settings, a stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streaming_asr.method import Samples, Word
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.guard import Guard, no_guard
from streaming_asr.whisper.window import BlockWindow


class Audio(NamedTuple):
    """The audio of one decoding; a late delivery holds many chunks. Frames last 20 ms."""

    n_frames: int
    """Frames of the window."""
    end: int
    """Frame of the stream at which they end."""
    n_new: int
    """Frames that no decoding has had before."""
    n_chunks: int = 1
    """Chunks in them."""


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """The decoder, and the settings of its decoding of one chunk."""

    decoder: Decoder
    eot: int
    n: int
    """Last tokens verified when a chunk arrives."""
    max_new: int
    """Decoder passes for the audio of a chunk at most; stops a model that never predicts the
    end."""
    beam: int = 1
    keep_cache: bool = False
    """Keep self-attention keys and values from chunk to chunk (WhisperRT VI-B)."""
    guard: Guard = no_guard
    """Which of the newest tokens are a copy that no speech supports (`whisper/guard.py`)."""
    chunk_frames: int = 0

    def max_passes(self, audio: Audio) -> int:
        """Return the most decoder passes for this audio: `max_new` for each of its chunks.

        Half of the decoder's positions are the limit of many chunks, as in Whisper: they hold the
        text of a whole window.
        """
        for_all_chunks = min(audio.n_chunks * self.max_new, self.decoder.max_tokens // 2)
        return max(self.max_new, for_all_chunks)

    def spoken_from(self, audio: Audio) -> int:
        """Return the frame of the stream from which on a new token can have been spoken."""
        return audio.end - max(audio.n_new, self.chunk_frames)

    def n_copied(self, hypothesis: WindowHypothesis, end: int, floor: int) -> int:
        """Return how many of the last tokens are a copy of earlier ones that no speech supports.

        end: stream frame at which the audio ends. The first `floor` tokens are committed and do not
        count.
        """
        n_revisable = max(0, len(hypothesis.tokens) - floor)
        # The guard asks in how many frames of audio token i can have been spoken.
        copy = self.guard(hypothesis.tokens, lambda i: end - hypothesis.spoken_from[i])
        return min(copy.n_tokens, n_revisable) if copy else 0

    def best_allowed(
        self, hypothesis: WindowHypothesis, candidates: Sequence[tuple[int, float]]
    ) -> tuple[int, float]:
        """Return the first of the next tokens that completes no short phrase used too often.

        Candidates are (token, log-probability), best first; the best is returned where none will
        do. A copy that came too fast is no reason here: `n_copied` lets it wait for audio.
        """
        for token, log_prob in candidates:
            # Infinitely many frames: only the number of repetitions counts, not their speed.
            copy = self.guard([*hypothesis.tokens, token], lambda i: math.inf)
            if token == self.eot or not (copy and copy.is_short):
                return token, log_prob
        return candidates[0]


@dataclass(slots=True)
class WindowHypothesis:
    """Text tokens of the window (no prompt, no end) and what is known of each."""

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    """For each token, its log-probability given the audio when it was last evaluated."""
    predicted_at: list[int] = field(default_factory=list)
    """For each token, the stream frame at which the audio ended when it was predicted."""
    spoken_from: list[int] = field(default_factory=list)
    """For each token, the stream frame from which on it can have been spoken."""
    filled: int = 0
    """Decoder positions (prompt included) whose cached keys belong to these tokens."""

    def crop(self, n_tokens: int, n_prompt: int) -> None:
        """Keep the first `n_tokens`, in the cache too."""
        for values in (self.tokens, self.log_probs, self.predicted_at, self.spoken_from):
            del values[n_tokens:]
        self.filled = min(self.filled, n_prompt + n_tokens)

    def append(self, token: int, log_prob: float, predicted_at: int, spoken_from: int) -> None:
        """Add a token; see the fields for the two frames of the stream."""
        self.tokens.append(token)
        self.log_probs.append(log_prob)
        self.predicted_at.append(predicted_at)
        self.spoken_from.append(spoken_from)

    def drop(self, n_tokens: int) -> None:
        """Forget the first `n_tokens`: their audio has left the window."""
        for values in (self.tokens, self.log_probs, self.predicted_at, self.spoken_from):
            del values[:n_tokens]
        self.filled = 0

    def copy(self) -> WindowHypothesis:
        return replace(
            self,
            tokens=list(self.tokens),
            log_probs=list(self.log_probs),
            predicted_at=list(self.predicted_at),
            spoken_from=list(self.spoken_from),
        )


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
