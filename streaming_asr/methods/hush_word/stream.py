"""WhisperFlow (Wang, Xu, Lin 2025, MobiSys): UFAL's policy over a cheaper Whisper.

Each chunk the buffer is transcribed again and what two hypotheses in a row agree on is final, as in
UFAL; the policy, its buffer, prompt and trimming are UFAL's own. What is new is in the
transcription: a hush word instead of padding (`padding.py`), and a search that follows the last
round's text (`search.py`). Commit 12931f89 has the encoder parallel to the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass

from streaming_asr.errors import check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.hush_word.padding import PaddedEncoder, make_padding
from streaming_asr.methods.hush_word.recogniser import StreamRecogniser, Transcriber
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.online import BufferedStream, OnlineBuffer, OnlinePolicy
from streaming_asr.whisper.settings import Chunked
from streaming_asr.whisper.together import Passes, SharedPasses


@dataclass(slots=True, kw_only=True)
class HushState(BufferedStream):
    """One stream."""

    recogniser: StreamRecogniser


@dataclass(kw_only=True, eq=False)
class HushWord(SharedPasses, Chunked):
    """The method. Weights and settings; a stream's own things are in its `HushState`.

    weights: folder of the hush word. padding: full, none, zeros, noise or hush; padding_s: of
    zeros and noise, default 0.5 s. beam: 0 or 1 is greedy. prune: follow the last round's text at
    width 1. n: hypotheses that must agree. trim_s: buffer length in seconds beyond which it is
    trimmed, default 15 or half the model's context. guard: see `whisper/guard.py`. Raises
    UserError on settings out of range and on a model or hush word that cannot be loaded.
    """

    weights: str | None
    padding: str
    padding_s: float | None
    beam: int
    prune: bool
    n: int
    trim_s: float | None
    guard: str
    prompt: str | None = None

    lookahead_samples = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(0, beam=self.beam)
        check_one_of(GUARDS, guard=self.guard)
        whisper = self.load()
        tail = make_padding(self.padding, whisper, length_s=self.padding_s, weights=self.weights)
        self._shared = Transcriber(
            whisper,
            PaddedEncoder(whisper, tail),
            beam=self.beam,
            prune=self.prune,
            guard=self.guard,
        )
        self._policy = OnlinePolicy.of(
            whisper.context_s, self._shared.context_s, n=self.n, trim_s=self.trim_s
        )

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> HushState:
        """Return the state of a new stream; an unknown language is refused here."""
        recogniser = StreamRecogniser(self._shared)
        recogniser.check_language(language)
        return HushState(
            buffer=OnlineBuffer(
                recogniser, self._policy, language, recorder, prompt or self.prompt
            ),
            recogniser=recogniser,
            language=language,
            recorder=recorder,
            next_decode=self._first,
        )

    def _step(self, state: HushState, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio`; transcribe the buffer once there is a chunk or more of new audio."""
        state.buffer.insert(audio)
        is_due = state.hear(audio, self._chunk)
        # The last round also where all of it has been transcribed: the search of that round stopped
        # earlier.
        state.recogniser.is_last = last
        words: list[Word] = []
        if (is_due or last) and state.buffer.audio.size:
            yield from state.recogniser.transcribe_ahead(
                state.buffer.audio,
                prompt=state.buffer.prompt() or None,
                language=state.language,
                recorder=state.recorder,
            )
            words = state.buffer.process()
        if last:
            words += state.buffer.finish()
        return Update(state.given_out(words), () if last else state.partial_words())
