"""U2-Whisper: Whisper made streaming by two passes over a causal encoder (Zhou et al. 2025).

Per chunk: log-mel of the new samples, the block-causal encoder on the new frames (exact: every
frame once, no padding at chunk borders), the CTC head or branch and a step of its prefix beam
search, whose best text is shown as partial. Where a segment ends (see `endpoint`) the decoder
scores the best texts again in one pass, and the winner is committed.

No audio is lost between segments. After a pause the next window begins in the pause. A segment
that has grown too long is cut as all methods cut windows: after a word that ended a while ago; what
follows is encoded and searched again in the next window, so a word at the cut is encoded whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.u2.ctc import PrefixBeamSearch
from streaming_asr.methods.u2.endpoint import EndpointRules, Reason
from streaming_asr.methods.u2.first_pass import FirstPassStream, load_first_pass
from streaming_asr.methods.u2.rescoring import rescore
from streaming_asr.whisper.alignment import alignment_times
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder
from streaming_asr.whisper.features import LOOKAHEAD_SAMPLES, StreamingLogMel, mel_of_frames
from streaming_asr.whisper.flops import block_flops
from streaming_asr.whisper.ngram import fusion_of, load_ngram
from streaming_asr.whisper.seam import Seam
from streaming_asr.whisper.settings import Chunked, trained
from streaming_asr.whisper.together import Passes, SharedPasses, Wanted
from streaming_asr.whisper.window import FRAME_S, BlockWindow
from streaming_asr.whisper.words import probability_of

SEARCH = (10, 6)
"""Prefixes of the first pass and hypotheses that the decoder scores, as in the paper."""
FUSED_SEARCH = (32, 32)
"""With a language model, which the paper lacks: for it ten prefixes are too few."""


@dataclass(frozen=True, slots=True)
class SegmentWord:
    """A word of the open segment; frames of the window."""

    text: str
    start: int
    end: int
    probability: float | None


@dataclass(slots=True, kw_only=True)
class U2State(BlockWindow):
    """One stream; the window holds the open segment."""

    encoder: StreamingEncoder
    cache: DecoderCache
    first: FirstPassStream
    search: PrefixBeamSearch
    prompt: list[int]

    silent_run: int = 0
    """Silent frames that the window ends with."""

    def move_window(self, start: int) -> list[int]:
        """Let the window begin at its frame `start`, with a search of its own.

        Returns ends of the blocks to encode again, the first of them a chunk or longer.
        """
        self.silent_run = 0
        self.search = self.search.restarted()
        return self.shift(start, self.chunk_frames)


@dataclass(kw_only=True, eq=False)
class U2(SharedPasses, Chunked):
    """The method. Weights and settings; what belongs to a stream is in its `U2State`.

    weights: a folder with a CTC head and what else was trained, or with a CTC branch.
    beam: prefixes of the first pass. lm: a language model of its classes (none, auto: next to the
    weights, or a folder), which ranks them too, with lm_weight times its log-probability and
    lm_bonus for each token. rescore: how many of them the decoder scores, 0 for none. None: the
    paper's `SEARCH`, with a language model `FUSED_SEARCH`. word_times:
    alignment (cross-attention of the committed text, one more pass) or ctc (where the first pass
    emitted). Times of endpoints: see `endpoint`; max_delay_s by default 12 s scaled to the
    context.
    With dtype=int8 head and branch are in 8 bits too. Raises UserError on settings out of range and
    where there is no head.
    """

    weights: str | None
    beam: int | None
    lm: str | None
    lm_weight: float
    lm_bonus: float
    rescore: int | None
    attention_weight: float
    ctc_weight: float
    trailing_silence_s: float
    no_speech_s: float
    max_delay_s: float | None
    blank_threshold: float
    word_times: str
    prompt: str | None = None

    lookahead_samples = LOOKAHEAD_SAMPLES

    def __post_init__(self) -> None:
        check_one_of(("alignment", "ctc"), word_times=self.word_times)
        beam, rescore = FUSED_SEARCH if self.lm not in (None, "none") else SEARCH
        check_range(1, beam=self.beam)
        self._beam = beam if self.beam is None else self.beam
        check_range(0, self._beam, rescore=self.rescore)
        self._rescore = min(rescore, self._beam) if self.rescore is None else self.rescore
        super().__post_init__()
        folder = trained(self.weights)
        if folder is None:
            raise UserError(
                "method.weights=none: U2 needs a CTC head trained for this model; train one with "
                "`python -m streaming_asr.train method=u2` and name its folder with method.weights="
            )
        ngram = load_ngram(self.lm, folder)
        self._first_pass = load_first_pass(
            self.model_path, folder, device=self.device, dtype=self.dtype
        )
        self._whisper, self._tokenizer = self._first_pass.whisper, self._first_pass.tokenizer
        spellings = self._tokenizer.spellings()
        self._fusion = fusion_of(ngram, spellings, self.lm_weight, self.lm_bonus)
        self._decoder = Decoder(self._whisper)
        longest = max(self._chunk_frames, self._first_frames)
        self._rules = EndpointRules.of(
            self._whisper.context_frames,
            longest,
            self.trailing_silence_s,
            self.no_speech_s,
            self.max_delay_s,
            self.blank_threshold,
        )
        # As `Seam.of` for a window of the longest segment, of which a cut leaves enough.
        share = min(1.0, self._whisper.context_s / 15)
        delay = self._rules.max_delay
        self._seam = Seam(
            limit=delay - 1 + longest,
            age=min(round(50 * share), delay // 4),
            keep=min(round(250 * share), delay // 2),
        )

    # ---- the protocol -----------------------------------------------------------------------

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> U2State:
        """Return the state of a new stream. `language` is for multilingual models (default en)."""
        whisper = self._whisper
        shape = (whisper.n_mels, 2 * whisper.context_frames + 1)
        return U2State(
            encoder=StreamingEncoder(whisper.model),
            cache=DecoderCache(self._decoder, rows=max(1, self._rescore)),
            mel=torch.zeros(shape, device=whisper.device),
            features=StreamingLogMel(whisper.n_mels, device=whisper.device),
            first=self._first_pass.start(),
            search=PrefixBeamSearch(self._tokenizer.blank, self._beam, fusion=self._fusion),
            prompt=whisper.prompt(language, whisper.tokens_before(prompt or self.prompt)),
            language=language,
            recorder=recorder,
            chunk_frames=self._chunk_frames,
            next_end=self._first_frames,
        )

    def _step(self, state: U2State, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio`; a step that completes no chunk changes nothing."""
        state.arrive(audio, last)
        committed: list[Word] = []
        closed = False
        while state.block_is_there():
            with state.recorder.part("feature"):
                end = state.take_block()
            yield from self._encode(state, [end])
            if state.ended and not state.block_is_there():
                break  # all that is left is committed below
            reason = self._rules.reason(
                state.position, state.silent_run, bool(state.search.best_tokens())
            )
            if reason is not None:
                closed = True
                committed += yield from self._close(state, reason)
        if last:
            closed = True
            with state.recorder.part("finalise"):
                committed += self._commit(state, self._second_pass(state))
                state.move_window(state.position)
        with state.recorder.part("policy"):
            tokens = self._tokenizer.written(state.search.best_tokens())
            words = self._whisper.detokenizer.words(tokens, language=state.language)
            partial = state.emitter.partial(word.text for word in words)
        return Update(tuple(committed), partial, endpoint=closed)

    # ---- first pass -------------------------------------------------------------------------

    def _encode(self, state: U2State, ends: Sequence[int]) -> Passes[None]:
        """Encode and search the window's blocks that end at `ends`, mel frames in place."""
        start = state.position
        with state.recorder.part("encode"):
            mel = mel_of_frames(state.mel, start, ends[-1])[None]
            part = state.encoder.part(mel, start, ends)
        output = yield Wanted("encode", self._first_pass.encode, part)
        with state.recorder.part("encode"):
            self._decoder.append_frames(state.cache, output.frames, start)
            log_probs = state.first.advance(output.states, start, ends)
        flops = block_flops(self._whisper.config, start, ends) + self._first_pass.flops(start, ends)
        state.encoded(ends, flops)
        with state.recorder.part("decode"):
            state.search.advance(log_probs)
            blank = log_probs[:, self._tokenizer.blank].repeat_interleave(self._first_pass.stride)
            state.silent_run = self._rules.silent_run(blank, state.silent_run)

    # ---- second pass ------------------------------------------------------------------------

    def _close(self, state: U2State, reason: Reason) -> Passes[list[Word]]:
        """End the segment, move the window to the next one and return the words committed.

        After silence all words of the segment are committed. A segment that has grown too long is
        cut; what follows the cut is encoded and searched again.
        """
        with state.recorder.part("finalise"):
            words = self._second_pass(state)
            if reason is not Reason.DELAY:
                committed = self._commit(state, words)
                state.move_window(state.position - self._rules.overlap(state.silent_run))
                return committed
            start, n_words = self._seam.cut(
                [word.end * FRAME_S for word in words],
                len(words),
                state.position,
                self._chunk_frames,
            )
            committed = self._commit(state, words[:n_words])
            ends = state.move_window(start)
        yield from self._encode(state, ends)
        return committed

    def _second_pass(self, state: U2State) -> list[SegmentWord]:
        """Return the words of the open segment, chosen by both passes.

        The segment ends with it: the first pass flushes what waits for more frames.
        """
        state.search.advance(state.first.flush())
        hypotheses = state.search.hypotheses(max(1, self._rescore))
        candidates = [self._tokenizer.retokenise(hypothesis) for hypothesis in hypotheses]
        best, log_probs = candidates[0], None
        if self._rescore and any(candidate.tokens for candidate in candidates):
            scored = rescore(
                self._decoder,
                state.cache,
                state.prompt,
                candidates,
                state.position,
                state.recorder,
                attention=self.attention_weight,
                ctc=self.ctc_weight,
            )
            if scored is not None:
                best, log_probs = scored.candidate, scored.log_probs
        spans = best.spans
        # The alignment is a pass of the decoder: a text with more tokens than positions has none.
        fits = len(state.prompt) + len(best.tokens) <= self._whisper.max_tokens
        if self.word_times == "alignment" and best.tokens and fits:
            times = alignment_times(
                self._decoder,
                state.cache,
                self._whisper.alignment_heads,
                state.prompt,
                best.tokens,
                state.position,
            )
            spans = tuple((round(begin / FRAME_S), round(end / FRAME_S)) for begin, end in times)
        return [
            SegmentWord(
                word.text,
                spans[word.start][0],
                spans[word.stop - 1][1],
                None if log_probs is None else probability_of(word, log_probs),
            )
            for word in self._whisper.detokenizer.words(best.tokens, language=state.language)
        ]

    def _commit(self, state: U2State, words: Sequence[SegmentWord]) -> list[Word]:
        return [state.emit(word.text, word.start, word.end, word.probability) for word in words]
