"""What Simul-Whisper knows about one stream: audio in the window and its text.

The window is the encoder's input: the last seconds of audio, at most the model's context. Its
text is everything decoded of it and is forced on the decoder at every step. A word whose audio has
left the window is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streaming_asr.method import FRAME_S, Samples, Word
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.window import StreamState
from streaming_asr.whisper.words import Detokenizer, TokenWord, probability_of

LONGEST_TOKEN_S = 1.0
LATE_FRAMES = 4
"""A token is taken from this many frames behind its end. Chosen among 0 to 6 by the fewest starts
and ends that are more than 0.3 s off: 83 of 490, 111 with 0, on 245 words of mini's dev with
tiny.en."""


@dataclass(slots=True, kw_only=True)
class SimulWhisperState(StreamState):
    """One stream. Frames (20 ms) count from the start of the stream, so nothing shifts them."""

    detokenizer: Detokenizer
    cache: DecoderCache
    prompt: list[int] = field(default_factory=list)
    """The tokens before the text: of names, if there are any, and the control tokens."""
    window: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    window_start: int = 0
    """Frame at which the window begins."""
    tokens: list[int] = field(default_factory=list)
    """Text of the window: never changed, only added to and dropped from the front."""
    log_probs: list[float] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    """The frame each token is taken from."""
    n_committed: int = 0
    """Tokens of the window whose words are committed."""
    last_attended: int | None = None

    @property
    def n_pending(self) -> int:
        """Return the samples received that no window has held yet."""
        return sum(piece.size for piece in self.pending)

    @property
    def n_frames(self) -> int:
        """Return the whole frames in the window."""
        return self.window.size // FRAME_SAMPLES

    def slide(self, n_new: int, buffer_samples: int) -> list[Word]:
        """Move `n_new` pending samples into the window, and the oldest out beyond `buffer_samples`.

        Returns the words that are committed because their audio has left the window.
        """
        joined = np.concatenate([self.window, *self.pending])
        end = self.window.size + n_new
        rest = joined[end:]
        self.pending = [rest] if rest.size else []
        # Whole frames, so that frame numbers of the stream stay exact.
        n_dropped = max(0, -(-(end - buffer_samples) // FRAME_SAMPLES))
        self.window = joined[n_dropped * FRAME_SAMPLES : end]
        self.window_start += n_dropped
        n_words = 0
        for word in self._words():
            if self.frames[word.stop - 1] >= self.window_start:
                break
            n_words += 1
        return self.forget(n_words)

    def forget(self, n_words: int) -> list[Word]:
        """Forget the first `n_words` of the window; return those committed only now."""
        if not n_words:
            return []
        words = self._words()[:n_words]
        committed = self._emit(words)
        self._drop(words[-1].stop)
        return committed

    def _drop(self, n_tokens: int) -> None:
        del self.tokens[:n_tokens]
        del self.log_probs[:n_tokens]
        del self.frames[:n_tokens]
        self.n_committed = max(0, self.n_committed - n_tokens)

    def forget_until(self, n_tokens: int) -> list[Word]:
        """Forget whole words until at most `n_tokens` are left; return those committed only now."""
        n_surplus = len(self.tokens) - n_tokens
        if n_surplus <= 0:
            return []
        words = self._words()
        if not words:  # the tokens are only blanks
            self._drop(n_surplus)
        return self.forget(sum(word.start < n_surplus for word in words))

    def n_kept_without_last_word(self, tokens: Sequence[int]) -> int:
        """Return how many of the new `tokens` stay when the last word of the text is dropped.

        Of a word that an earlier step began, only the new tokens are dropped. An unfinished
        character at the end of the text counts as the last word.
        """
        text = [*self.tokens, *tokens]
        words = self.detokenizer.words(text, language=self.language)
        if not words:
            return 0
        # Tokens after the last word spell none: bytes of an unfinished character, or a lone space.
        last = words[-1]
        stop = last.start if last.stop == len(text) else last.stop
        return max(0, stop - len(self.tokens))

    def add(
        self, tokens: Sequence[int], log_probs: Sequence[float], window_frames: Sequence[int]
    ) -> None:
        """Append tokens; of the other two, in frames of the window, only as many entries count."""
        self.tokens += tokens
        self.log_probs += log_probs[: len(tokens)]
        self.frames += [self.window_start + frame for frame in window_frames[: len(tokens)]]

    def commit(self, *, everything: bool) -> list[Word]:
        """Commit the words that a further token follows, or `everything`; return the new ones."""
        return self._emit(
            [word for word in self._words() if everything or word.stop < len(self.tokens)]
        )

    def partial(self) -> tuple[Word, ...]:
        """Return the words that are not committed."""
        return self.emitter.partial(
            word.text for word in self._words() if word.start >= self.n_committed
        )

    def _words(self) -> list[TokenWord]:
        return self.detokenizer.words(self.tokens, language=self.language)

    def _emit(self, words: Sequence[TokenWord]) -> list[Word]:
        """Commit those of `words` that are not committed; return them, their times in order."""
        committed = []
        for word in words:
            if word.start < self.n_committed:
                continue
            # A token's frame is near its end, so the first token begins where the word before
            # ended, but at most a second before its own end.
            first_token_end_s = max(0, self.frames[word.start] - LATE_FRAMES) * FRAME_S
            earliest_s = max(self.emitter.last_end_s, first_token_end_s - LONGEST_TOKEN_S)
            start_s = min(first_token_end_s, earliest_s)
            end_s = max(0, self.frames[word.stop - 1] + 1 - LATE_FRAMES) * FRAME_S
            probability = probability_of(word, self.log_probs)
            committed.append(
                self.emitter.emit(
                    word.text, start_s, end_s, self.heard_s, probability, overlap=True
                )
            )
            self.n_committed = word.stop
        return committed
