"""The faster-whisper backend: CTranslate2 on a converted model, of any context and vocabulary.

faster-whisper takes a few things for granted that hold only for OpenAI's models: 3000 mel frames,
448 text positions, that a small vocabulary means an English-only model, and that signs such as the
colon never occur in a transcript. Here the model is asked instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.feature_extractor import FeatureExtractor
from faster_whisper.transcribe import Segment

from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_SAMPLES, NULL, SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.methods.ufal.convert import converted
from streaming_asr.models.find import Found, find
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.guard import GUARDS, even
from streaming_asr.whisper.model_files import settings_of
from streaming_asr.whisper.recogniser import BufferTranscript
from streaming_asr.whisper.words import refuse_other_than_english

NO_SPEECH = 0.9
"""Segments whose probability of no speech is higher are left out, as the reference does."""


class _Multilingual:
    """A CTranslate2 model that claims to be multilingual, whatever the size of its vocabulary."""

    is_multilingual = True

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class _Features(FeatureExtractor):  # type: ignore[misc]
    """faster-whisper's log-mel for a context of `n_frames` encoder frames, its time recorded."""

    recorder: Recorder = NULL

    def __init__(self, n_mels: int, n_frames: int) -> None:
        super().__init__(feature_size=n_mels)
        self.n_samples = n_frames * FRAME_SAMPLES
        self.nb_max_frames = 2 * n_frames

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self.recorder.part("feature"):
            return super().__call__(*args, **options)


@dataclass(frozen=True, slots=True)
class _NoText:
    """A window's decoding, as far as faster-whisper reads it, with no token in it."""

    no_speech_prob: float
    sequences_ids: tuple[tuple[int, ...], ...] = ((),)


class Model(WhisperModel):  # type: ignore[misc]
    """faster-whisper within the model's own context, its work recorded.

    `recorder` is that of the call in progress. A window of silence gets an empty
    text, so that it is passed over as a whole. That is a window whose text is only timestamps:
    faster-whisper would advance by these, about 0.2 s each, and encode a full context each time,
    again in every round. And it is a window in which the model finds no speech and repeats itself:
    faster-whisper drops a text without speech only where the text is improbable, and a loop is
    probable.
    """

    recorder: Recorder = NULL
    model: Any

    def __init__(self, source: Found, folder: Path, **options: Any) -> None:
        """source: the model; folder: in CTranslate2's form."""
        super().__init__(str(folder), local_files_only=True, **options)
        self.config, settings = settings_of(source)
        # faster-whisper assumes 448.
        self.max_length = self.config.max_target_positions
        no_timestamps = self.hf_tokenizer.token_to_id("<|notimestamps|>")
        self.has_timestamps: bool = self.config.vocab_size > no_timestamps + 1
        self.feature_extractor = _Features(
            self.config.num_mel_bins, self.config.max_source_positions
        )
        suppressed = settings.suppress_tokens
        self.suppressed: list[int] = [-1] if suppressed is None else list(suppressed)
        if settings.is_multilingual and not self.model.is_multilingual:
            self.model = _Multilingual(self.model)

    def transcribe(self, *args: Any, **options: Any) -> Any:
        """Transcribe as faster-whisper, but suppress the tokens that the generation config names.

        OpenAI's configs name those that faster-whisper suppresses by default. A model that was
        trained to write 12:23 must be allowed its colon: what follows it would be lost.
        """
        options.setdefault("suppress_tokens", self.suppressed)
        return super().transcribe(*args, **options)

    def encode(self, features: np.ndarray) -> Any:
        """Encode features (..., n_mels, 3000), of which the context holds the first frames.

        faster-whisper pads to 30 s; no segment is longer than the model's context.
        """
        n_frames = self.config.max_source_positions
        self.recorder.count(
            frames_computed=n_frames, encoder_flops=encoder_flops(self.config, n_frames)
        )
        with self.recorder.part("encode"):
            return super().encode(np.ascontiguousarray(features[..., : 2 * n_frames]))

    def generate_with_fallback(
        self, encoder_output: Any, prompt: list[int], tokenizer: Any, options: Any
    ) -> Any:
        """Decode a window as faster-whisper; a text of silence is empty (see the class)."""
        with self.recorder.part("decode"):
            results = super().generate_with_fallback(encoder_output, prompt, tokenizer, options)
        result, log_prob, temperature, compression_ratio = results
        tokens = result.sequences_ids[0]
        # CTranslate2 does not report how many steps it took: those of its text and the end.
        n_steps = len(tokens) + 1
        self.recorder.count(decode_steps=n_steps, beam_sum=n_steps * options.beam_size)
        is_blank = min(tokens, default=0) >= tokenizer.timestamp_begin  # only timestamps
        loops_on_silence = (
            compression_ratio > options.compression_ratio_threshold
            and result.no_speech_prob > options.no_speech_threshold
        )
        if is_blank or loops_on_silence:
            result = _NoText(result.no_speech_prob)
        return result, log_prob, temperature, compression_ratio

    def add_word_timestamps(self, *args: Any, **options: Any) -> Any:
        with self.recorder.part("decode"):
            return super().add_word_timestamps(*args, **options)


class FasterWhisper:
    """Beam search, segments by timestamps, word times by alignment heads, as faster-whisper.

    A model whose vocabulary ends with <|notimestamps|> gives one segment per window.
    """

    def __init__(
        self,
        model_path: str,
        *,
        device: str = "cpu",
        compute_type: str = "float32",
        beam: int = 5,
        temperatures: Sequence[float] = (0.0,),
        threads: int = 0,
        cache: str | None = None,
        guard: str = "none",
    ) -> None:
        """Load the model, converted on first use.

        temperatures: those after the first are tried in turn where a text looks wrong; above 0 they
        draw at random, and the same audio need not give the same text twice. threads: 0 leaves them
        to CTranslate2. cache: where converted models are kept (see `convert`). guard: see
        `whisper/guard.py`.

        Raises UserError on a missing model, or a device or type that CTranslate2 lacks here.
        """
        source = find(model_path)
        folder = converted(source, cache)
        name, _, index = device.partition(":")
        try:
            self.model = Model(
                source,
                folder,
                device=name,
                device_index=int(index or 0),
                compute_type=compute_type,
                cpu_threads=threads,
            )
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"device={device!r}, compute_type={compute_type!r}: CTranslate2 answers: {error}"
            ) from error
        self._guard = GUARDS[guard]
        self._beam = beam
        self._temperatures = list(temperatures)
        frames = self.model.config.max_source_positions
        self.context_s: float = frames * FRAME_SAMPLES / SAMPLE_RATE

    def check_language(self, language: str | None) -> None:
        """Raise UserError for a language that the model does not have."""
        if not self.model.model.is_multilingual:
            refuse_other_than_english(language)
            return
        if language is None:
            return
        if self.model.hf_tokenizer.token_to_id(f"<|{language}|>") is None:
            raise UserError(f"language {language!r}: this model's tokenizer does not have it")

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        """See `Recogniser`; less audio than one encoder frame has no words."""
        if audio.size < FRAME_SAMPLES:
            return BufferTranscript()
        model = self.model
        model.recorder = model.feature_extractor.recorder = recorder
        recorder.count(frames_real=-(-audio.size // FRAME_SAMPLES))
        decoded, _ = model.transcribe(
            audio,
            language=(language or "en") if model.model.is_multilingual else "en",
            initial_prompt=prompt,
            beam_size=self._beam,
            temperature=self._temperatures,
            word_timestamps=True,
            without_timestamps=not model.has_timestamps,
            condition_on_previous_text=True,
        )
        segments = [self._guarded(segment) for segment in decoded]
        words = tuple(
            Word(word.word, float(word.start), float(word.end), float(word.probability))
            for segment in segments
            if segment.no_speech_prob <= NO_SPEECH
            for word in segment.words or ()
        )
        return BufferTranscript(words, tuple(float(segment.end) for segment in segments))

    def _guarded(self, segment: Segment) -> Segment:
        """Return the segment without its unsupported copies of earlier text, by the guard's rule.

        CTranslate2 searches by itself, so that the guard cannot steer it. A short copy is taken out
        of the finished text, and the text ends before a long one.
        """
        tokenizer = self.model.hf_tokenizer
        eot = tokenizer.token_to_id("<|endoftext|>")
        tokens = [token for token in segment.tokens if token < eot]
        n_frames = (segment.end - segment.start) * SAMPLE_RATE / FRAME_SAMPLES
        survivors: list[int] = []  # indices of the tokens that stay
        for i in range(len(tokens)):
            survivors.append(i)
            copy = self._guard([tokens[j] for j in survivors], even(len(survivors), n_frames))
            if copy:
                del survivors[-copy.n_tokens :]
                if not copy.is_short:
                    break
        if len(survivors) == len(tokens):
            return segment
        # A word stays where the token stays that holds its last letter. Ends are in characters.
        token_ends = [len(tokenizer.decode(tokens[: i + 1])) for i in range(len(tokens))]
        words, word_end = [], 0
        for word in segment.words or ():
            word_end += len(word.word)
            # The last words may end behind the last token, whose text is decoded by itself.
            last_token = min(bisect_left(token_ends, word_end), len(token_ends) - 1)
            if last_token in survivors:
                words.append(word)
        return replace(segment, words=words)
