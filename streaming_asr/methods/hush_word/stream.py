"""WhisperFlow (Wang, Xu, Lin 2025, MobiSys): UFAL's policy over a cheaper Whisper.

Each chunk the buffer is transcribed again and what two hypotheses in a row agree on is final, as in
UFAL; the policy, its buffer, prompt and trimming are UFAL's own. What is new is in the
transcription: a hush word instead of padding (`padding.py`), a search that follows the last round's
text (`search.py`), and the encoder parallel to the decoder (`pipeline.py`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch

from streaming_asr.corpora.audio import load_audio
from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.files import HERE
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.hush_word.padding import PaddedEncoder, make_padding
from streaming_asr.methods.hush_word.pipeline import EncoderWorker, parse_split, profile
from streaming_asr.methods.hush_word.recogniser import StreamRecogniser, Transcriber
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.online import BufferedStream, OnlineBuffer, OnlinePolicy
from streaming_asr.whisper.quantise import check_device
from streaming_asr.whisper.settings import Chunked
from streaming_asr.whisper.together import Passes, SharedPasses

CLIP = HERE / "data" / "voices" / "audio" / "af_jessica-0.ogg"
"""4.7 s of speech, on which `pipeline=auto` compares splits."""


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
    trimmed, default 15 or half the model's context. pipeline: none, or threads of encoder and
    decoder as in 1:1; encoder, prompt and word times are then the work of a process of its own, on
    encoder_device, and the text comes a round later; auto chooses the split (`_split`). guard: see
    `whisper/guard.py`. Raises UserError on settings out of range and on a model or hush word that
    cannot be loaded.
    """

    weights: str | None
    padding: str
    padding_s: float | None
    beam: int
    prune: bool
    n: int
    trim_s: float | None
    pipeline: str
    encoder_device: str | None
    guard: str
    prompt: str | None = None

    lookahead_samples = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(0, beam=self.beam)
        check_one_of(GUARDS, guard=self.guard)
        split = (1, 1) if self.pipeline == "auto" else parse_split(self.pipeline)
        if split is None and self.encoder_device is not None:
            raise UserError(
                f"encoder_device={self.encoder_device} with pipeline=none: the encoder has a "
                "device of its own only in the pipeline; give pipeline=1:1 or leave it out"
            )
        check_device(self.dtype, self.encoder_device)
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
        self._worker = None
        if split is not None:
            if self.pipeline == "auto":
                split = self._split()
            # Else both processes take all cores and wait for each other.
            torch.set_num_threads(split[1])
            self._worker = EncoderWorker(
                self.model_path,
                device=self.encoder_device or self.device,
                dtype=self.dtype,
                threads=split[0],
                padding=tail,
            )

    def _split(self) -> tuple[int, int]:
        """Return the threads of the encoder's worker and of the decoding, for `pipeline=auto`.

        They are all threads in use, divided as a round of one of the package's clips was fastest.
        A worker on a GPU gets one.
        """
        n_threads = torch.get_num_threads()
        if torch.device(self.encoder_device or self.device).type != "cpu":
            return 1, max(1, n_threads - 1)
        clip = load_audio(CLIP)[: self._shared.limit_samples]
        split = profile(self._shared.halves(clip), n_threads)
        print(f"pipeline=auto: {split[0]}:{split[1]}", file=sys.stderr)
        return split

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> HushState:
        """Return the state of a new stream; an unknown language is refused here."""
        recogniser = StreamRecogniser(self._shared, self._worker)
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
        words: list[Word] = []
        if last:
            words = yield from self._finish(state)
        elif is_due:
            words = yield from self._round(state)
        return Update(state.given_out(words), () if last else state.partial_words())

    def close(self) -> None:
        """End the encoder's process, where there is one."""
        if self._worker is not None:
            self._worker.close()

    def _round(self, state: HushState) -> Passes[list[Word]]:
        """Run one round; in the pipeline the words are those of the round before."""
        buffer, recogniser = state.buffer, state.recogniser
        if self._worker is None:
            yield from self._transcribe_ahead(state)
            return buffer.process()
        if not recogniser.pending_samples:
            recogniser.prefetch(
                buffer.audio,
                prompt=buffer.prompt() or None,
                language=state.language,
                recorder=state.recorder,
            )
            if recogniser.pending_samples:
                return []
        start_s = buffer.start_s
        words = buffer.process()
        if buffer.start_s != start_s:
            # The buffer was cut: what the worker encoded begins before it.
            recogniser.drop()
        return words

    def _finish(self, state: HushState) -> Passes[list[Word]]:
        """Transcribe the buffer for the last time and commit all; return the new words."""
        buffer, recogniser = state.buffer, state.recogniser
        words: list[Word] = []
        if self._worker is not None and buffer.audio.size:
            # First the round that the worker has encoded, as a hypothesis of local agreement.
            if 0 < recogniser.pending_samples < buffer.audio.size:
                words += yield from self._round(state)
            recogniser.is_last = True
            words += buffer.process()
        elif buffer.audio.size:
            # Also where all of it has been transcribed: the search of that round stopped earlier.
            recogniser.is_last = True
            yield from self._transcribe_ahead(state)
            words = buffer.process()
        return words + buffer.finish()

    def _transcribe_ahead(self, state: HushState) -> Passes[None]:
        """Transcribe the buffer for the call of `buffer.process` that follows."""
        buffer = state.buffer
        yield from state.recogniser.transcribe_ahead(
            buffer.audio,
            prompt=buffer.prompt() or None,
            language=state.language,
            recorder=state.recorder,
        )
