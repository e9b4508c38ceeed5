"""Transcribes a stream's buffer again and again: short encoder, pruned search, word times."""

from __future__ import annotations

from dataclasses import replace

from streaming_asr.method import SAMPLE_RATE, Recorder, Samples
from streaming_asr.methods.hush_word.padding import PaddedEncoder
from streaming_asr.methods.hush_word.search import ReferenceGuide, punctuation
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.recogniser import BufferTranscript, sentence_ends_s
from streaming_asr.whisper.together import Passes, Wanted, alone
from streaming_asr.whisper.transcribe import DecodedWindow, WindowDecoder, transcribe_buffer


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

    def follow(
        self,
        audio: Samples,
        cache: DecoderCache,
        language: str | None,
        previous: list[int],
        reference: list[int],
        recorder: Recorder,
        *,
        last: bool,
    ) -> Passes[DecodedWindow]:
        """Encode and decode (n,) samples, at least one frame and at most the context.

        previous: tokens of earlier text, in the prompt. reference: tokens of the round before,
        which the search follows; none for the plain search. last: no round comes after this one.
        cache: its row 0 is overwritten. Word times lie in the frames of the audio.
        """
        with recorder.part("feature"):
            mel = self.encoder.mel(audio)
        with recorder.part("encode"):
            part = self.encoder.part(mel)
        hidden = yield Wanted("encode", self.encoder.encode_parts, part)
        n_frames, n_audio_frames = hidden.shape[1], -(-audio.size // FRAME_SAMPLES)
        recorder.count(
            frames_real=n_audio_frames,
            frames_computed=n_frames,
            encoder_flops=encoder_flops(self.whisper.config, n_frames),
        )
        with recorder.part("encode"):
            self.decoder.append_frames(cache, hidden, 0)
        guide = None
        if self._prune and reference:
            guide = ReferenceGuide(reference, self._skips)
        return (
            yield from self.search_window(
                cache,
                n_frames,
                n_audio_frames,
                language,
                recorder,
                previous,
                guide,
                search=self._last_search if last else self.search,
            )
        )


class StreamRecogniser:
    """A stream's own recogniser, as the online policy asks for one (`whisper/recogniser.py`).

    It keeps the text of its last round, which the next decoding follows. `is_last` is set before
    the stream's last round.
    """

    def __init__(self, shared: Transcriber) -> None:
        self.context_s = shared.context_s
        self.is_last = False
        self._shared = shared
        self._cache: DecoderCache | None = None
        self._reference: list[int] = []
        self._ahead: BufferTranscript | None = None

    def check_language(self, language: str | None) -> None:
        self._shared.whisper.prompt(language)

    def transcribe_ahead(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> Passes[None]:
        """Transcribe, in passes that streams may share, what the next `transcribe` returns.

        The online buffer calls `transcribe` itself and cannot wait there for a shared pass.
        """
        self._ahead = yield from self._whole(audio, prompt, language, recorder)

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        """Return the words of (n,) samples."""
        transcript, self._ahead = self._ahead, None
        if transcript is None:
            return alone(self._whole(audio, prompt, language, recorder), recorder)
        return transcript

    def _whole(
        self, audio: Samples, prompt: str | None, language: str | None, recorder: Recorder
    ) -> Passes[BufferTranscript]:
        """Transcribe all of `audio`."""
        shared = self._shared
        if self._cache is None:
            self._cache = DecoderCache(shared.decoder, rows=shared.search.beam)
        cache = self._cache

        def decode(samples: Samples, previous: list[int]) -> Passes[DecodedWindow]:
            reference, last = self._reference, self.is_last
            return shared.follow(samples, cache, language, previous, reference, recorder, last=last)

        words, tokens = yield from transcribe_buffer(
            shared, audio, prompt, language, recorder, decode
        )
        # All of the text, the unconfirmed end too: most of it comes again in the next round.
        self._reference = tokens
        return BufferTranscript(tuple(words), sentence_ends_s(words))
