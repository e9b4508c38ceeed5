"""Transcribes a stream's buffer again and again: short encoder, pruned search, word times."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import torch

from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples
from streaming_asr.methods.hush_word.padding import PaddedEncoder
from streaming_asr.methods.hush_word.pipeline import EncoderWorker, Prefill, Worker
from streaming_asr.methods.hush_word.search import ReferenceGuide, punctuation
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.recogniser import BufferTranscript, sentence_ends_s
from streaming_asr.whisper.together import Passes, Wanted, alone
from streaming_asr.whisper.transcribe import (
    SHORTEST_SAMPLES,
    DecodedWindow,
    WindowDecoder,
    transcribe_buffer,
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """`n_samples` of audio, encoded: `hidden` (1, frames, d) here, or the worker's `prefill`.

    n_frames: of the encoder, the padding's frames included.
    """

    n_samples: int
    n_frames: int
    hidden: torch.Tensor | None = None
    prefill: Prefill | None = None

    @classmethod
    def of(cls, prefill: Prefill) -> Self:
        """Return what the worker has encoded."""
        return cls(prefill.n_samples, prefill.n_frames, prefill=prefill)

    @property
    def n_audio_frames(self) -> int:
        """Return the frames that hold audio."""
        return -(-self.n_samples // FRAME_SAMPLES)


class Transcriber(WindowDecoder):
    """The model and its settings, shared by all streams."""

    def __init__(
        self,
        whisper: Whisper,
        encoder: PaddedEncoder,
        *,
        beam: int,
        prune: bool,
        guard: str = "none",
    ) -> None:
        # Whisper keeps the other half of the positions for the text before.
        super().__init__(whisper, beam, whisper.max_tokens // 2, guard=guard)
        self._last_search = replace(self.search, early_stopping=False)  # see `search.py`
        self.encoder = encoder
        self.limit_samples = encoder.limit_samples
        self._prune = prune
        self._skips = punctuation(whisper)

    @property
    def context_s(self) -> float:
        """Return the longest audio that is transcribed at once, in seconds."""
        return self.limit_samples / SAMPLE_RATE

    def encoding(self, audio: Samples, recorder: Recorder) -> Passes[Encoded]:
        """Encode (n,) samples, at least one frame and at most the context."""
        with recorder.part("feature"):
            mel = self.encoder.mel(audio)
        with recorder.part("encode"):
            part = self.encoder.part(mel)
        hidden = yield Wanted("encode", self.encoder.encode_parts, part)
        encoded = Encoded(audio.size, hidden.shape[1], hidden)
        self.count(encoded, recorder)
        return encoded

    def count(self, encoded: Encoded, recorder: Recorder) -> None:
        """Report what was encoded."""
        recorder.count(
            frames_real=encoded.n_audio_frames,
            frames_computed=encoded.n_frames,
            encoder_flops=encoder_flops(self.whisper.config, encoded.n_frames),
        )

    def follow(
        self,
        encoded: Encoded,
        cache: DecoderCache,
        language: str | None,
        previous: list[int],
        reference: list[int],
        recorder: Recorder,
        *,
        last: bool,
    ) -> Passes[DecodedWindow]:
        """Decode an encoded window, with `previous`, tokens of earlier text, in the prompt.

        reference: tokens of the round before, which the search follows; none for the plain search.
        last: no round comes after this one. cache: its row 0 is overwritten. Word times lie in the
        frames of the audio.
        """
        prefill, log_probs = encoded.prefill, None
        with recorder.part("encode"):
            if encoded.hidden is not None:
                self.decoder.append_frames(cache, encoded.hidden, 0)
            if prefill is not None:
                prefill.put_frames(cache)
                # Words may have left the buffer since, which the prompt then has.
                if prefill.prompt == self.prompt_of(language, previous):
                    log_probs = prefill.put_prompt(cache)
        guide = None
        if self._prune and reference:
            guide = ReferenceGuide(reference, self._skips)
        return (
            yield from self.search_window(
                cache,
                encoded.n_frames,
                encoded.n_audio_frames,
                language,
                recorder,
                previous,
                guide,
                search=self._last_search if last else self.search,
                prefilled=log_probs,
            )
        )

    def halves(self, audio: Samples) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return the two halves of a pipelined round of (n,) samples, to be timed: what the worker
        does, and the decoding.

        The decoding follows the text of a round before, as most do.
        """
        worker = Worker(self.whisper, self.encoder)
        prompt = self.prompt_of(None, [])
        encoded = Encoded.of(worker.prefill(0, audio, prompt))
        cache = DecoderCache(self.decoder, rows=self.search.beam)

        def decode(reference: list[int]) -> list[int]:
            step = self.follow(encoded, cache, None, [], reference, NULL, last=False)
            return alone(step, NULL).tokens

        text = decode([])

        def prepare() -> None:
            worker.prefill(0, audio, prompt)
            worker.token_times(0, prompt, text, encoded.n_audio_frames)

        return prepare, partial(decode, text)

    def prompt_of(self, language: str | None, previous: list[int]) -> tuple[int, ...]:
        """Return the tokens that the decoding begins with, after those of the text before."""
        return tuple(self.whisper.prompt(language, previous=previous))


class StreamRecogniser:
    """A stream's own recogniser, as the online policy asks for one (`whisper/recogniser.py`).

    It keeps the text of its last round, which the next decoding follows. With a `worker` this round
    is encoded and its prompt prefilled there while the round before is decoded here; then the
    worker times that round's words. What `transcribe` returns is one round old, until `is_last`,
    which is set before the stream's last round.
    """

    def __init__(self, shared: Transcriber, worker: EncoderWorker | None = None) -> None:
        self.context_s = shared.context_s
        self.is_last = False
        self._shared = shared
        self._worker = worker
        self._cache: DecoderCache | None = None
        self._reference: list[int] = []
        self._pending: Encoded | None = None
        self._ahead: BufferTranscript | None = None

    @property
    def pending_samples(self) -> int:
        """Return the length of the audio that is encoded and not yet decoded, 0 for none."""
        return 0 if self._pending is None else self._pending.n_samples

    def check_language(self, language: str | None) -> None:
        self._shared.whisper.prompt(language)

    def prefetch(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> None:
        """Encode a first round in the worker; audio longer than the context is left for later."""
        self._pending = self._collect(self._submit(audio, prompt, language), recorder)

    def transcribe_ahead(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> Passes[None]:
        """Transcribe, in passes that streams may share, what the next `transcribe` returns.

        The online buffer calls `transcribe` itself and cannot wait there for a shared pass.
        """
        self._ahead = yield from self._whole(audio, None, prompt, language, recorder)

    def drop(self) -> None:
        """Forget what is encoded: the buffer has been cut meanwhile."""
        self._pending = None

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        """Return the words of (n,) samples; while pipelined, those of one round before."""
        if self._ahead is not None:
            transcript, self._ahead = self._ahead, None
            return transcript
        pending, self._pending = self._pending, None
        # At the end of the stream audio may have come that the worker did not encode: all is
        # decoded at once then.
        if pending is None or (self.is_last and pending.n_samples != audio.size):
            return alone(self._whole(audio, None, prompt, language, recorder), recorder)
        # Submitted before the decoding, so that the two run side by side.
        submitted = None if self.is_last else self._submit(audio, prompt, language)
        encoded_audio = audio[: pending.n_samples]
        passes = self._whole(encoded_audio, pending, prompt, language, recorder)
        transcript = alone(passes, recorder)
        self._pending = self._collect(submitted, recorder)
        return transcript

    def _whole(
        self,
        audio: Samples,
        encoded: Encoded | None,
        prompt: str | None,
        language: str | None,
        recorder: Recorder,
    ) -> Passes[BufferTranscript]:
        """Transcribe all of `audio`; `encoded` is the first window of it, or None."""
        shared = self._shared
        if self._cache is None:
            self._cache = DecoderCache(shared.decoder, rows=shared.search.beam)
        cache = self._cache
        pending = [] if encoded is None else [encoded]  # for the first call of `decode`

        def decode(samples: Samples, previous: list[int]) -> Passes[DecodedWindow]:
            if pending:
                window = pending.pop()
            else:
                window = yield from shared.encoding(samples, recorder)
            text = yield from shared.follow(
                window,
                cache,
                language,
                previous,
                self._reference,
                recorder,
                last=self.is_last,
            )
            if window.prefill is not None and self._worker is not None:
                with recorder.part("decode"):
                    number = window.prefill.number
                    text.token_times = self._worker.token_times(
                        number, text.prompt, text.tokens, text.n_frames
                    )
            return text

        words, tokens = yield from transcribe_buffer(
            shared, audio, prompt, language, recorder, decode
        )
        # All of the text, the unconfirmed end too: most of it comes again in the next round.
        self._reference = tokens
        return BufferTranscript(tuple(words), sentence_ends_s(words))

    def _submit(
        self, audio: Samples, prompt: str | None, language: str | None
    ) -> Future[Prefill] | None:
        """Let the worker begin with (n,) samples; None where there is none or it cannot take them.

        It cannot take less than the shortest audio that has words, nor more than one window.
        """
        shared = self._shared
        if self._worker is None or not SHORTEST_SAMPLES <= audio.size <= shared.limit_samples:
            return None
        previous = shared.whisper.tokens_before(prompt)
        return self._worker.submit(audio, shared.prompt_of(language, previous))

    def _collect(self, submitted: Future[Prefill] | None, recorder: Recorder) -> Encoded | None:
        """Wait for the worker and return what it encoded; only the waiting counts as time."""
        if submitted is None:
            return None
        with recorder.part("encode"):
            prefill = submitted.result()
        encoded = Encoded.of(prefill)
        self._shared.count(encoded, recorder)
        return encoded
