"""UFAL whisper_streaming (Macháček et al. 2023, arXiv 2307.14743): an offline Whisper, online.

Each chunk the whole buffer is transcribed again; what two hypotheses in a row agree on is final.
The agreement is in `whisper/agreement.py`, buffer, prompt and trimming in `whisper/online.py`, what
transcribes in `faster.py` and `backbone.py`.

It mends what loses or doubles words in ufal/whisper_streaming (1f25a1a); commit 12931f89 has that
program's policy unmended, and experiments/others runs the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.online import BufferedStream, OnlineBuffer, OnlinePolicy
from streaming_asr.whisper.recogniser import Recogniser
from streaming_asr.whisper.settings import Chunked


@dataclass(kw_only=True, eq=False)
class Ufal(Chunked):
    """The method. Weights and settings; a stream's own things are in its state.

    backend: faster_whisper (converts the model on first use into `cache`) or torch. compute_type:
    CTranslate2's, e.g. int8; default as dtype. temperatures: see `faster.py`; torch decodes at 0.
    n: hypotheses that must agree. trim_s: buffer length in seconds beyond which it is trimmed,
    default 15 or half the model's context. guard: see `whisper/guard.py`.
    Raises UserError on settings out of range and on models that cannot be loaded.
    """

    backend: str
    compute_type: str | None
    beam: int
    temperatures: Sequence[float]
    n: int
    trim_s: float | None
    cache: str | None
    guard: str
    prompt: str | None = None

    lookahead_samples = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of(("faster_whisper", "torch"), backend=self.backend)
        check_range(0, beam=self.beam)
        check_one_of(GUARDS, guard=self.guard)
        if not self.temperatures:
            raise UserError("temperatures=[]: at least one; [0] searches only by beam")
        # Settings first: loading takes seconds, and a slip is answered before it.
        self._recogniser = self._load_recogniser()
        context_s = self._recogniser.context_s
        self._policy = OnlinePolicy.of(context_s, context_s, n=self.n, trim_s=self.trim_s)

    def _load_recogniser(self) -> Recogniser:
        """Return one of the two backends; each is imported only when asked for."""
        if self.backend == "faster_whisper":
            from streaming_asr.methods.ufal.faster import FasterWhisper

            return FasterWhisper(
                self.model_path,
                device=self.device,
                compute_type=self.compute_type or self.dtype,
                beam=max(self.beam, 1),
                temperatures=self.temperatures,
                threads=torch.get_num_threads(),
                cache=self.cache,
                guard=self.guard,
            )
        from streaming_asr.methods.ufal.backbone import Backbone

        return Backbone(self.load(), self.beam, guard=self.guard)

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> BufferedStream:
        """Return the state of a new stream; an unknown language is refused here."""
        self._recogniser.check_language(language)
        return BufferedStream(
            buffer=OnlineBuffer(
                self._recogniser, self._policy, language, recorder, prompt or self.prompt
            ),
            language=language,
            recorder=recorder,
            next_decode=self._first,
        )

    def step(self, state: BufferedStream, audio: Samples, *, last: bool) -> Update:
        """Take in `audio`; transcribe the buffer once when it has a chunk or more of new audio."""
        is_due = state.hear(audio, self._chunk)
        state.buffer.insert(audio)
        words: list[Word] = []
        if last:
            words = state.buffer.finish()
        elif is_due:
            words = state.buffer.process()
        return Update(state.given_out(words), () if last else state.partial_words())
