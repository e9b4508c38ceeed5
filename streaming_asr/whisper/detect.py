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
    """A stream whose method begins once its language is known; until then its audio waits."""

    recorder: Recorder
    options: dict[str, Any] = field(default_factory=dict)
    """Others that the method's stream is started with, as `prompt`."""
    inner: Any = None
    """The state of the method's own stream; None before it begins."""
    waiting: list[Samples] = field(default_factory=list)
    n_waiting: int = 0
    n_tried_s: int = 0
    """Whole seconds that detection has processed."""


class DetectsLanguage:
    """Wraps any method: a stream that names no language gets the one that Whisper finds likeliest
    after <|startoftranscript|> (Radford et al. 2022, section 2.3), and keeps it.

    Detection runs after every second of audio, until the probability is 0.8 or more or 5 s have
    come. A method that decodes nothing before the end (`hears_all`) waits for all of the audio. The
    step that decides gives the language in its update and processes all audio that waited.
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
        self._needs_all_audio = bool(getattr(method, "hears_all", False))
        self._decoder = Decoder(whisper)
        self._codes = {int(token): name.strip("<|>") for name, token in languages.items()}
        """Language codes by token id."""
        # Added to the logits, so that only language tokens have a probability.
        bias = torch.full((whisper.config.vocab_size,), -torch.inf, device=whisper.device)
        bias[list(self._codes)] = 0.0
        self._language_bias = bias

    def start(
        self, *, language: str | None = None, recorder: Recorder = NULL, **options: Any
    ) -> Undecided:
        """Return the state of a new stream; with a `language` nothing is detected. options: others
        of the method, as `prompt`."""
        state = Undecided(recorder, options)
        if language is not None:
            state.inner = self.method.start(language=language, recorder=recorder, **options)
        return state

    def step(self, state: Undecided, audio: Samples, *, last: bool) -> Update:
        """Make a step of the method, or detect the language of the (n,) samples so far.

        An undecided stream returns an empty update, and its audio waits.
        """
        if state.inner is not None:
            return step_of(self.method, state.inner, audio, last=last)
        state.waiting.append(np.asarray(audio, np.float32))
        state.n_waiting += len(audio)
        whole_s = state.n_waiting // SAMPLE_RATE
        if not last and (self._needs_all_audio or whole_s == state.n_tried_s):
            return Update()
        state.n_tried_s = whole_s
        so_far, language = np.concatenate(state.waiting), None
        if len(so_far):  # an empty stream has no language
            language, probability = self.detect(so_far, state.recorder)
            if probability < SURE and whole_s < LONGEST_S and not last:
                state.waiting = [so_far]
                return Update()
        state.waiting.clear()
        state.inner = self.method.start(language=language, recorder=state.recorder, **state.options)
        update = step_of(self.method, state.inner, so_far, last=last)
        return replace(update, language=language)

    @torch.inference_mode()
    def detect(self, audio: Samples, recorder: Recorder = NULL) -> tuple[str, float]:
        """Return the language code of (n,) samples, n > 0, and its probability.

        Audio longer than the model's context is processed window by window until the mean
        probability of one language, weighted by the windows' lengths, is 0.8 or more.
        """
        window_samples = self.whisper.context_frames * FRAME_SAMPLES
        total = torch.zeros(self.whisper.config.vocab_size, device=self.whisper.device)
        for begin in range(0, len(audio), window_samples):
            window = audio[begin : begin + window_samples]
            total += self._probabilities(window, recorder) * len(window)
            probability, token = (total / (begin + len(window))).max(0)
            if probability >= SURE:
                break
        return self._codes[int(token)], float(probability)

    def _probabilities(self, audio: Samples, recorder: Recorder) -> torch.Tensor:
        """Return (vocabulary,): the probability of each language token after one window of (n,)
        samples; 0 for all other tokens."""
        cache = DecoderCache(self._decoder)
        alone(window_pass(self.whisper, self._decoder, cache, audio, recorder), recorder)
        with recorder.part("decode"):
            n_frames = self.whisper.context_frames
            hidden = self._decoder.run(cache, [[self.whisper.sot]], [0], n_frames)
            return self._decoder.log_probs(hidden, self._language_bias)[0, -1].exp()


class IgnoresLanguage:
    """Wraps any method: the corpus' language only chooses the normaliser of scores."""

    def __init__(self, method: Method[Any]) -> None:
        self.method, self.lookahead_samples = method, method.lookahead_samples

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> Any:
        """Return the state of a new stream without a language, whatever `language` is."""
        return self.method.start(recorder=recorder)

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        """Make the method's step."""
        return step_of(self.method, state, audio, last=last)
