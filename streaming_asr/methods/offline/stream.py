"""References that do not stream: the whole audio in one shot, and all of it again per chunk.

Both run the offline (bidirectional, padded) model. Audio longer than its context is taken in
windows and decoded with timestamps, as Whisper does: the next window begins where the last segment
that is complete ends; where none is, at a word's end two seconds before the window is full.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streaming_asr.errors import check_one_of, check_range
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update, Word
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.settings import Chunked, OnWhisper
from streaming_asr.whisper.together import Passes, SharedPasses
from streaming_asr.whisper.transcribe import DecodedWindow, Times, WindowDecoder, emit_window
from streaming_asr.whisper.window import StreamState


@dataclass(slots=True, kw_only=True)
class WholeAudio(StreamState):
    """State of one stream: the audio that is not yet committed."""

    next_decode: int = 0
    """Samples of the stream at which it is decoded again."""
    start: int = 0
    """Sample at which the open window begins."""
    partial: tuple[Word, ...] = ()
    previous: list[int] = field(default_factory=list)
    """Tokens of the prompt."""

    def window(self) -> Samples:
        """Return all samples (n,) of the open window."""
        if len(self.pending) != 1:
            self.pending = [np.concatenate([np.zeros(0, np.float32), *self.pending])]
        return self.pending[0]

    def move(self, n_samples: int) -> None:
        """Let the open window begin `n_samples` later."""
        self.pending = [self.window()[n_samples:]]
        self.start += n_samples


@dataclass(kw_only=True, eq=False)
class _Whole(SharedPasses, OnWhisper):
    """weights: an adapter, or none. max_tokens: of text per window, default the model's. guard: see
    `whisper/guard.py`."""

    weights: str | None
    max_tokens: int | None
    guard: str
    prompt: str | None = None

    lookahead_samples = 0
    _first = 0

    def _load_decoder(self, beam: int) -> None:
        check_range(0, beam=beam)
        check_range(1, max_tokens=self.max_tokens)
        check_one_of(GUARDS, guard=self.guard)
        whisper = self.load(self.weights)
        self._decoder = WindowDecoder(whisper, beam, self.max_tokens, guard=self.guard)

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> WholeAudio:
        """Return the state of a new stream."""
        whisper = self._decoder.whisper
        whisper.prompt(language)  # an unknown language is refused here
        return WholeAudio(
            language=language,
            recorder=recorder,
            next_decode=self._first,
            previous=whisper.tokens_before(prompt or self.prompt),
        )

    def _close_full_windows(self, state: WholeAudio) -> Passes[list[Word]]:
        """Decode and move past windows while the open one holds more audio than the context.

        Returns their words, which are committed.
        """
        committed: list[Word] = []
        max_samples = self._decoder.limit_samples
        while state.window().size > max_samples:
            audio = state.window()[:max_samples]
            window = yield from self._decoder.decoding(
                audio, state.language, state.recorder, state.previous, in_segments=True
            )
            with state.recorder.part("policy"):
                times = self._decoder.times(window)
                n_samples, n_words = self._decoder.seam(times, window.end)
                committed += self._words(state, window, n_words, times)
                state.move(n_samples)
        return committed

    def _words(
        self, state: WholeAudio, window: DecodedWindow, n_words: int, times: Times
    ) -> list[Word]:
        """Return the first `n_words` of a decoded window, with times of the stream."""
        start_s = state.start / SAMPLE_RATE
        return emit_window(state.emitter, window, n_words, times, start_s, state.heard_s)

    def _finish(self, state: WholeAudio) -> Passes[list[Word]]:
        """Decode all audio that is left and return its words, which are committed."""
        committed = yield from self._close_full_windows(state)
        if state.window().size:
            # After a first window the text begins within the recording, as in training only with
            # timestamps.
            audio, later = state.window(), state.start > 0
            window = yield from self._decoder.decoding(
                audio, state.language, state.recorder, state.previous, in_segments=later
            )
            with state.recorder.part("finalise"):
                times = self._decoder.times(window)
                committed += self._words(state, window, len(times), times)
        state.partial = ()
        return committed


@dataclass(kw_only=True, eq=False)
class Offline(_Whole):
    """All audio, padded, decoded once when the stream has ended; nothing is shown before.

    beam: 0 or 1 greedy, else its width. max_tokens: of text per window, default the model's.
    Raises UserError on a missing model or adapter and on settings out of range.
    """

    beam: int

    hears_all = True  # before it decodes

    def __post_init__(self) -> None:
        self._load_decoder(self.beam)

    def _step(self, state: WholeAudio, audio: Samples, last: bool) -> Passes[Update]:
        """Keep `audio`; after the last of it, decode."""
        state.take_in(audio)
        return Update(tuple((yield from self._finish(state)))) if last else Update()


@dataclass(kw_only=True, eq=False)
class Reencode(_Whole, Chunked):
    """A baseline: at every chunk the whole prefix, padded, encoded and decoded again, greedily.

    The text is shown as partial and committed at the end (or when the context is full).
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._load_decoder(0)

    def _step(self, state: WholeAudio, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio`; decode all of it again when it completes a chunk."""
        rest = np.asarray(audio, dtype=np.float32)
        committed: list[Word] = []
        # Chunk by chunk, whatever the delivery, so that the text depends only on the schedule.
        while state.n_samples + rest.size >= state.next_decode:
            n = state.next_decode - state.n_samples
            state.take_in(rest[:n])
            rest = rest[n:]
            state.next_decode += self._chunk
            if rest.size == 0 and last:
                break  # the final decoding has the same audio
            committed += yield from self._show(state)
        state.take_in(rest)
        if last:
            committed += yield from self._finish(state)
        return Update(tuple(committed), state.partial)

    def _show(self, state: WholeAudio) -> Passes[list[Word]]:
        """Decode the audio so far and set the partial words; return the words of full windows."""
        committed = yield from self._close_full_windows(state)
        window = yield from self._decoder.decoding(
            state.window(), state.language, state.recorder, state.previous
        )
        with state.recorder.part("policy"):
            state.partial = state.emitter.partial(word.text for word in window.words)
        return committed
