"""language=detect: streams that detect their language in their first seconds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Method, Recorder, Samples, Update, step_of
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import window_pass

SURE = 0.8
"""The probability from which a language is taken at once."""
LONGEST_S = 5
"""After so much audio the likeliest is taken, sure or not."""


@dataclass
class Undecided:
    """A stream whose method begins once its language is known; until then its audio is held."""

    recorder: Recorder
    inner: Any = None
    held: list[Samples] = field(default_factory=list)
    n_held: int = 0
    n_tried: int = 0
    """Whole seconds that detection has processed."""


class DetectsLanguage:
    """Any method; a stream that names no language is given the likeliest after
    <|startoftranscript|> (Radford et al. 2022, section 2.3), and keeps it.

    After every second of audio Whisper is asked, until it is sure (0.8 or more) or has had 5 s.
    A method that decodes nothing before the end (`hears_all`) waits for all of the audio. The step
    that decides gives the language in its update and processes all audio held back.
    """

    def __init__(self, method: Method[Any], whisper: Whisper) -> None:
        """Wrap `method`. Raises UserError for an English-only model."""
        languages = getattr(whisper.generation, "lang_to_id", None) or {}
        if not whisper.multilingual or not languages:
            raise UserError(
                "language=detect: this model knows only English; leave language out, or take a "
                "multilingual model"
            )
        self.method, self.whisper = method, whisper
        self.lookahead_samples = method.lookahead_samples
        self._waits = bool(getattr(method, "hears_all", False))
        self._decoder = Decoder(whisper)
        self._names = {int(token): name.strip("<|>") for name, token in languages.items()}
        bias = torch.full((whisper.config.vocab_size,), -torch.inf, device=whisper.device)
        bias[list(self._names)] = 0.0
        self._bias = bias

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Undecided:
        """Return the state of a new stream; a `language` that is named is taken."""
        state = Undecided(recorder)
        if language is not None:
            state.inner = self.method.start(language=language, recorder=recorder)
        return state

    def step(self, state: Undecided, audio: Samples, *, last: bool) -> Update:
        """Advance the method's own stream, which begins with the step that knows the language."""
        if state.inner is not None:
            return step_of(self.method, state.inner, audio, last=last)
        state.held.append(np.asarray(audio, np.float32))
        state.n_held += len(audio)
        seconds = state.n_held // SAMPLE_RATE
        if not last and (self._waits or seconds == state.n_tried):
            return Update()
        state.n_tried = seconds
        heard, language = np.concatenate(state.held), None
        if len(heard):  # an empty stream has no language
            language, probability = self.detect(heard, state.recorder)
            if probability < SURE and seconds < LONGEST_S and not last:
                state.held = [heard]
                return Update()
        state.held.clear()
        state.inner = self.method.start(language=language, recorder=state.recorder)
        update = step_of(self.method, state.inner, heard, last=last)
        return replace(update, language=language)

    @torch.inference_mode()
    def detect(self, audio: Samples, recorder: Recorder = NULL) -> tuple[str, float]:
        """Return the language code of (n,) samples, n > 0, and its probability.

        Audio longer than the model's context goes window by window until one language is sure; the
        probabilities are weighted by their lengths.
        """
        size = self.whisper.context_frames * FRAME_SAMPLES
        total = torch.zeros(self.whisper.config.vocab_size, device=self.whisper.device)
        for begin in range(0, len(audio), size):
            window = audio[begin : begin + size]
            total += self._probabilities(window, recorder) * len(window)
            probability, best = (total / min(begin + size, len(audio))).max(0)
            if probability >= SURE:
                break
        return self._names[int(best)], float(probability)

    def _probabilities(self, audio: Samples, recorder: Recorder) -> torch.Tensor:
        """Return (vocabulary,): of each language's token for one window, 0 of all others."""
        cache = DecoderCache(self._decoder)
        alone(window_pass(self.whisper, self._decoder, cache, audio, recorder), recorder)
        with recorder.part("decode"):
            frames = self.whisper.context_frames
            out = self._decoder.run(cache, [[self.whisper.sot]], [0], frames)
            return self._decoder.log_probs(out, self._bias)[0, -1].exp()


class Untold:
    """Any method without a given language: the corpus only chooses the normaliser of scores."""

    def __init__(self, method: Method[Any]) -> None:
        self.method, self.lookahead_samples = method, method.lookahead_samples

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Any:
        """Return the state of a new stream; `language` is not looked at."""
        return self.method.start(recorder=recorder)

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        """Make the method's step."""
        return step_of(self.method, state, audio, last=last)
