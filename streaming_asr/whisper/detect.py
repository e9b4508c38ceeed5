"""language=detect: streams that find out their language from the first audio they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, Method, Recorder, Samples, Update
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import window_pass


@dataclass
class Undecided:
    """A stream whose method begins once its language is known."""

    recorder: Recorder
    inner: Any = None
    language: str | None = None


class DetectsLanguage:
    """Any method; each stream's language is the likeliest after <|startoftranscript|> (Radford et
    al. 2022, section 2.3), heard in the first delivery that has audio, and stays.

    What the corpus says of the language is not looked at; it chooses the normaliser of the scores.
    """

    def __init__(self, method: Method[Any], whisper: Whisper) -> None:
        """Wrap `method`. Raises UserError for an English-only model."""
        known = getattr(whisper.generation, "lang_to_id", None) or {}
        if not whisper.multilingual or not known:
            raise UserError(
                "language=detect: this model knows English alone; leave language out, or take a "
                "multilingual model"
            )
        self.method, self.whisper = method, whisper
        self.lookahead_samples = method.lookahead_samples
        self._decoder = Decoder(whisper)
        self._names = {int(token): name.strip("<|>") for name, token in known.items()}
        bias = torch.full((whisper.config.vocab_size,), -torch.inf, device=whisper.device)
        bias[list(self._names)] = 0.0
        self._bias = bias

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Undecided:
        """Return the state of a new stream; `language` is not looked at."""
        return Undecided(recorder)

    def step(self, state: Undecided, audio: Samples, *, last: bool) -> Update:
        """Advance the method's own stream, which begins with the first step that brings audio."""
        if state.inner is None:
            # (an empty delivery has no language)
            if len(audio) == 0 and not last:
                return Update()
            if len(audio):
                state.language = self.detect(audio, state.recorder)
            state.inner = self.method.start(language=state.language, recorder=state.recorder)
        return self.method.step(state.inner, audio, last=last)

    @torch.inference_mode()
    def detect(self, audio: Samples, recorder: Recorder = NULL) -> str:
        """Return the language code of (n,) samples, of which the model's context is heard."""
        whisper = self.whisper
        n_context = whisper.context_frames * FRAME_SAMPLES
        cache = DecoderCache(self._decoder)
        heard = audio[:n_context]
        alone(window_pass(whisper, self._decoder, cache, heard, recorder), recorder)
        with recorder.part("decode"):
            out = self._decoder.run(cache, [[whisper.sot]], [0], whisper.context_frames)
            best = int(self._decoder.log_probs(out, self._bias)[0, -1].argmax())
        return self._names[best]
