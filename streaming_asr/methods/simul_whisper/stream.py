"""Simul-Whisper (arXiv 2406.10052): an offline Whisper, stopped by where it looks.

Per chunk the whole window is encoded, padded to the context as in training, and decoded from the
text so far. AlignAtt ends the text where the decoder looks at the end of the audio
(`alignatt`), truncation detection leaves out a last word that was cut (`truncation`). The rest
is never changed.

Committed are the words whose successor has begun; the tail is shown as partial. At the end of the
stream nothing waits and all is committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.method import FRAME_S, NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.simul_whisper.alignatt import AlignAtt, AlignAttPolicy, decoder_place
from streaming_asr.methods.simul_whisper.state import SimulWhisperState
from streaming_asr.methods.simul_whisper.truncation import load_detector
from streaming_asr.whisper.alignment import HeadRows
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.search import TOKENS_PER_SECOND, BeamSearch, Hypothesis
from streaming_asr.whisper.settings import Chunked, trained
from streaming_asr.whisper.together import Passes, SharedPasses
from streaming_asr.whisper.transcribe import window_pass

REWIND_SHARE = 4 / 30  # the reference's 4 s in a context of 30 s
TRUNCATIONS = ("cif", "never", "always")


@dataclass(kw_only=True, eq=False)
class SimulWhisper(SharedPasses, Chunked):
    """The method. Weights and settings; what belongs to a stream is in its `SimulWhisperState`.

    weights: the detector for truncation=cif. truncation: drop the last word of a step's text
    `never`, `always`, or unless the detector finds that it ended (`cif`); None: cif where `weights`
    names one, else never. frame_threshold: a token taken from so few frames before the end of the
    audio waits; last_frame_threshold: the same at the end of the stream. rewind_frames: looking
    back further drops the step's text (default 4 s of 30 s of context). beam: 0 or 1 greedy. guard:
    see `whisper/guard.py`. Raises UserError on a missing part or a setting out of range.
    """

    truncation: str | None
    weights: str | None
    frame_threshold: int
    last_frame_threshold: int
    rewind_frames: int | None
    beam: int
    guard: str
    prompt: str | None = None

    lookahead_samples = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        detector = trained(self.weights)
        truncation = self.truncation or ("never" if detector is None else "cif")
        check_one_of(TRUNCATIONS, truncation=truncation)
        check_range(0, frame_threshold=self.frame_threshold)
        check_range(0, last_frame_threshold=self.last_frame_threshold)
        check_range(0, rewind_frames=self.rewind_frames, beam=self.beam)
        check_one_of(GUARDS, guard=self.guard)
        if truncation == "cif" and detector is None:
            raise UserError(
                "truncation=cif wants a truncation detector, and there is none: train one with "
                "`python -m streaming_asr.train method=simul_whisper entry=any_chunk`, which "
                "method.weights=auto finds, or name a folder or published file, or do without by "
                "truncation=never"
            )
        self._whisper = whisper = self.load()
        self._decoder = Decoder(whisper)
        self._truncation = truncation
        self._detector = None
        if truncation == "cif" and detector is not None:
            self._detector = load_detector(detector, whisper.config.d_model, whisper.device)
        self._buffer_samples = whisper.context_frames * FRAME_SAMPLES
        rewind_frames = self.rewind_frames
        if rewind_frames is None:
            rewind_frames = round(REWIND_SHARE * whisper.context_frames)
        self._search = BeamSearch(self._decoder, whisper.eot, max(1, self.beam), self.guard)
        self._policy = AlignAttPolicy(
            self.frame_threshold, self.last_frame_threshold, rewind_frames
        )
        self._heads = whisper.alignment_heads

    # ---- the protocol -----------------------------------------------------------------------

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> SimulWhisperState:
        """Return the state of a new stream; only multilingual models take another `language`."""
        whisper = self._whisper
        cache = DecoderCache(self._decoder, rows=self._search.beam)
        return SimulWhisperState(
            language=language,
            recorder=recorder,
            detokenizer=whisper.detokenizer,
            prompt=whisper.prompt(language, whisper.tokens_before(prompt or self.prompt)),
            cache=cache,
        )

    def _step(self, state: SimulWhisperState, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio`; decode once a chunk of it is pending, or the `last` of the stream.

        More than half of the buffer at once is taken in portions, so that no audio leaves the
        window before it was decoded.
        """
        state.take_in(audio)
        is_first = state.window.size == 0
        n_due = self._first if is_first else self._chunk
        committed: list[Word] = []
        if last or state.n_pending >= n_due:
            most = max(FRAME_SAMPLES, self._buffer_samples // 2)
            while True:
                n_new = min(most, state.n_pending)
                at_end = last and n_new == state.n_pending
                committed += yield from self._round(state, n_new, at_end=at_end)
                if not state.n_pending:
                    break
        return Update(tuple(committed), () if last else state.partial())

    # ---- one round --------------------------------------------------------------------------

    @torch.inference_mode()
    def _round(self, state: SimulWhisperState, n_new: int, *, at_end: bool) -> Passes[list[Word]]:
        """Move `n_new` samples into the window, encode and decode it; return the words committed.

        at_end: the stream ends with these samples, so that no text waits and all is committed.
        """
        with state.recorder.part("policy"):
            committed = state.slide(n_new, self._buffer_samples)
            committed += self._make_room(state)
        if state.n_frames:
            (hidden,) = yield from window_pass(
                self._whisper, self._decoder, state.cache, state.window, state.recorder
            )
            hypothesis = yield from self._decode(state, at_end=at_end)
            with state.recorder.part("policy"):
                n_kept = len(hypothesis.tokens)
                if n_kept and not at_end and self._cut_off(hidden[: state.n_frames]):
                    n_kept = state.n_kept_without_last_word(hypothesis.tokens)
                state.add(hypothesis.tokens[:n_kept], hypothesis.log_probs, hypothesis.frames)
        with state.recorder.part("finalise" if at_end else "policy"):
            return committed + state.commit(everything=at_end)

    def _decode(self, state: SimulWhisperState, *, at_end: bool) -> Passes[Hypothesis]:
        """Return the text of the window that follows `state.tokens`; update the decoder's place."""
        forced = [*state.prompt, *state.tokens]
        attended = None  # the decoder's place, as a frame of the window
        if state.last_attended is not None:
            attended = state.last_attended - state.window_start
        # The audio after that place holds the new text.
        n_new_frames = state.n_frames - max(0, attended or 0)
        guide = AlignAtt(
            self._policy,
            HeadRows(self._decoder, state.cache, self._heads, self._whisper.context_frames),
            state.n_frames,
            after_text=bool(state.tokens),
            last_attended=attended,
            last=at_end,
            first_row=state.prompt.index(self._whisper.sot),
        )
        max_new = TOKENS_PER_SECOND * math.ceil(max(n_new_frames, 1) * FRAME_S)
        hypothesis = yield from self._search.passes(
            state.cache,
            forced,
            self._whisper.context_frames,
            max_new,
            state.recorder,
            guide,
            n_new_frames,
        )
        if hypothesis.last_attended is None:
            # Every hypothesis was rewound: the next search may look anywhere.
            state.last_attended = None
        elif hypothesis.frames:
            before = () if attended is None else (attended,)
            place = decoder_place((*before, *hypothesis.frames))
            state.last_attended = None if place is None else state.window_start + place
        return hypothesis

    def _cut_off(self, hidden: torch.Tensor) -> bool:
        """Return whether the audio ends inside its last word, by its encoder frames (n, d)."""
        if self._detector is not None:
            return not self._detector.ends_with_a_word(hidden)
        return self._truncation == "always"

    # ---- room in the decoder ----------------------------------------------------------------

    def _make_room(self, state: SimulWhisperState) -> list[Word]:
        """Free a quarter of the decoder's positions for new tokens; return the words committed."""
        n_free = self._whisper.max_tokens // 4
        n_most = self._whisper.max_tokens - len(state.prompt) - n_free
        return state.forget_until(max(0, n_most))
