"""Transcribes a stream's buffer again and again: short encoder, pruned search, word times."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streaming_asr.method import SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.methods.hush_word.padding import PaddedEncoder
from streaming_asr.methods.hush_word.pipeline import EncoderWorker
from streaming_asr.methods.hush_word.search import PrunedSearch, Reference, punctuation
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.recogniser import Hypothesis, sentence_ends_s
from streaming_asr.whisper.transcribe import SEAM_S, Window, as_words
from streaming_asr.whisper.words import refuse_other_than_english


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoder output of `n_samples` of audio: (1, frames, d), the padding's frames included."""

    n_samples: int
    hidden: torch.Tensor

    @property
    def n_heard(self) -> int:
        """Frames that hold audio."""
        return -(-self.n_samples // FRAME_SAMPLES)


class Transcriber:
    """The model and its settings, shared by all streams."""

    def __init__(
        self,
        whisper: Whisper,
        encoder: PaddedEncoder,
        *,
        beam: int,
        prune: bool,
        reenter: bool,
        max_tokens: int | None,
    ) -> None:
        self.whisper = whisper
        self.encoder = encoder
        self.prune = prune
        self.decoder = Decoder(whisper)
        self.search = PrunedSearch(
            self.decoder,
            eot=whisper.eot,
            beam=beam,
            max_tokens=whisper.max_tokens // 2 if max_tokens is None else max_tokens,
            reenter=reenter,
        )
        self.skips = punctuation(whisper)

    @property
    def context_s(self) -> float:
        """The longest audio that is transcribed at once."""
        return self.encoder.limit_samples / SAMPLE_RATE

    def encode(self, audio: Samples, recorder: Recorder) -> Encoded:
        """(n,) samples, at least one frame and at most the context."""
        with recorder.part("feature"):
            mel = self.encoder.mel(audio)
        with recorder.part("encode"):
            encoded = Encoded(audio.size, self.encoder.encode(mel))
        self.count(encoded, recorder)
        return encoded

    def count(self, encoded: Encoded, recorder: Recorder) -> None:
        """Report what was encoded."""
        n_frames = encoded.hidden.shape[1]
        recorder.count(
            frames_real=encoded.n_heard,
            frames_computed=n_frames,
            encoder_flops=encoder_flops(self.whisper.config, n_frames),
        )

    @torch.inference_mode()
    def decode(
        self,
        encoded: Encoded,
        cache: DecoderCache,
        language: str | None,
        previous: list[int],
        reference: list[int],
        recorder: Recorder,
    ) -> tuple[Window, list[tuple[float, float]]]:
        """The text after that of the tokens `previous`, and (start, end) of its words in seconds.

        reference: tokens of the round before, none for the plain search. Word times look at the
        frames of the audio alone.
        """
        prompt = self.whisper.prompt(language, previous=previous)
        with recorder.part("decode"):
            self.decoder.append_frames(cache, encoded.hidden, 0, slice(0, 1))
            followed = Reference(reference, self.skips) if self.prune and reference else None
            found = self.search.run(cache, prompt, encoded.hidden.shape[1], recorder, followed)
            tokens = list(found.tokens)
            words = self.whisper.detokenizer.words(tokens, language=language)
            times = alignment_times(
                self.decoder,
                cache,
                self.whisper.alignment_heads,
                prompt,
                tokens,
                encoded.n_heard,
                0,
                0,
            )
        window = Window(cache, prompt, tokens, list(found.log_probs), words)
        return window, [(times[word.start][0], times[word.stop - 1][1]) for word in words]

    def tokens(self, text: str) -> list[int]:
        """The last tokens of `text`, at most half of the decoder's positions, as Whisper does."""
        if not text.strip():
            return []
        ids = self.whisper.tokenizer.encode(" " + text.strip(), add_special_tokens=False)
        return list(ids)[-(self.whisper.max_tokens // 2 - 1) :]


class StreamRecogniser:
    """A stream's own recogniser, as the online policy asks for one (`ufal/recogniser.py`).

    It keeps the text of its last round, which the next decoding follows. With a `worker` the
    encoder of this round runs there while the round before is decoded here: what `transcribe`
    returns is one round old, until `draining`.
    """

    def __init__(self, shared: Transcriber, worker: EncoderWorker | None = None) -> None:
        self.context_s = shared.context_s
        self.draining = False
        self._shared = shared
        self._worker = worker
        self._cache: DecoderCache | None = None
        self._reference: list[int] = []
        self._pending: Encoded | None = None

    @property
    def pending_samples(self) -> int:
        """Length of the audio that is encoded and not yet decoded, 0 for none."""
        return 0 if self._pending is None else self._pending.n_samples

    def check_language(self, language: str | None) -> None:
        if not self._shared.whisper.multilingual:
            refuse_other_than_english(language)
        self._shared.whisper.prompt(language)

    def prefetch(self, audio: Samples, recorder: Recorder) -> None:
        """Encode a first round in the worker; audio longer than the context is left for later."""
        self._pending = self._collect(self._submit(audio), recorder)

    def drop(self) -> None:
        """Forget what is encoded: the buffer has been cut meanwhile."""
        self._pending = None

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> Hypothesis:
        """Words of (n,) samples; of fewer than those, one round old, while pipelined."""
        pending, self._pending = self._pending, None
        if pending is None or (self.draining and pending.n_samples != audio.size):
            return self._whole(audio, None, prompt, language, recorder)
        submitted = None if self.draining else self._submit(audio)
        heard = audio[: pending.n_samples]
        hypothesis = self._whole(heard, pending, prompt, language, recorder)
        self._pending = self._collect(submitted, recorder)
        return hypothesis

    def _whole(
        self,
        audio: Samples,
        encoded: Encoded | None,
        prompt: str | None,
        language: str | None,
        recorder: Recorder,
    ) -> Hypothesis:
        """Window by window where it is longer than the context, cut where words end."""
        shared = self._shared
        limit = shared.encoder.limit_samples
        if self._cache is None:
            self._cache = DecoderCache(shared.decoder, rows=shared.search.beam, streams=1)
        words: list[Word] = []
        tokens: list[int] = []
        text = prompt or ""
        previous = shared.tokens(text)
        start = 0
        while audio.size - start >= FRAME_SAMPLES:
            if encoded is None:
                encoded = shared.encode(audio[start : start + limit], recorder)
            window, times = shared.decode(
                encoded, self._cache, language, previous, self._reference, recorder
            )
            is_last = audio.size - start <= limit
            step, n_words = audio.size - start, len(times)
            if not is_last:
                step, n_words = _seam(times, limit / SAMPLE_RATE)
            words += as_words(
                window,
                n_words,
                times,
                start / SAMPLE_RATE,
                audio.size / SAMPLE_RATE,
                goes_on=bool(words),
                language=language,
            )
            tokens += window.tokens[: window.words[n_words - 1].stop if n_words else 0]
            start += max(step, FRAME_SAMPLES)
            encoded = None
            if words and not is_last:
                previous = shared.tokens(text + "".join(word.text for word in words))
        self._reference = tokens
        return Hypothesis(tuple(words), sentence_ends_s(words))

    def _submit(self, audio: Samples) -> object | None:
        shared = self._shared
        if self._worker is None or not FRAME_SAMPLES <= audio.size <= shared.encoder.limit_samples:
            return None
        return self._worker.submit(audio)

    def _collect(self, submitted: object | None, recorder: Recorder) -> Encoded | None:
        """Wait for the worker; its time shows as far as the decoding did not cover it."""
        if submitted is None or self._worker is None:
            return None
        with recorder.part("encode"):
            n_samples, hidden = self._worker.collect(submitted)
            encoded = Encoded(n_samples, hidden.to(self._shared.decoder.embedding))
        self._shared.count(encoded, recorder)
        return encoded


def _seam(times: list[tuple[float, float]], window_s: float) -> tuple[int, int]:
    """Where a full window is cut: (samples, words before the cut).

    At the end of the last word that ends two seconds (an eighth of a short window) before the
    window does; where there is none, before the first word or at those two seconds.
    """
    limit_s = window_s - min(SEAM_S, window_s / 8)
    n_before = sum(1 for _, end in times if end <= limit_s)
    if n_before and times[n_before - 1][1] > 0:
        return round(times[n_before - 1][1] * SAMPLE_RATE), n_before
    return round(min([limit_s, *(start for start, _ in times[:1] if start > 0)]) * SAMPLE_RATE), 0
