"""WhisperRT (arXiv 2508.12301): a causal Whisper that decodes in step with the audio.

Per chunk: log-mel of the new samples, the block-causal encoder on the new frames, then one
verification pass of the decoder over the text so far and cached steps for what is new.

What is committed is in `commit.py`: by default whole words among the tokens older than the last n,
which are never verified again; with commit=paper a crop may take words back, counted in
`Update.retracted`.

At the end of the stream the last block is filled up with zeros, decoded, and all is committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch

from streaming_asr.config.weights import scale_of
from streaming_asr.errors import check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.whisperrt.beam import decode_beam
from streaming_asr.methods.whisperrt.commit import Committer
from streaming_asr.methods.whisperrt.greedy import decode_greedy
from streaming_asr.methods.whisperrt.hypothesis import (
    Audio,
    DecodingSettings,
    WhisperRTState,
    WindowHypothesis,
)
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import StreamingEncoder, encode_parts
from streaming_asr.whisper.features import LOOKAHEAD_SAMPLES, StreamingLogMel, mel_of_frames
from streaming_asr.whisper.flops import block_flops
from streaming_asr.whisper.guard import GUARDS
from streaming_asr.whisper.seam import Seam
from streaming_asr.whisper.search import TOKENS_PER_SECOND
from streaming_asr.whisper.settings import Chunked, trained
from streaming_asr.whisper.together import Passes, SharedPasses, Wanted

WORD_TIMES = ("chunk", "alignment")


@dataclass(kw_only=True, eq=False)
class WhisperRT(SharedPasses, Chunked):
    """The method. Weights and settings; what belongs to a stream is in its `WhisperRTState`.

    weights: folder of an adapter to merge, or none. adapter_scale: share of its change: dev, as dev
    chose for the chunk, or a number; 1 is the paper. beam: 0 or 1 greedy, else the beam's
    width b. n: last tokens verified per chunk. commit: see `commit.py`. decoder_cache: keep the
    decoder's self-attention of tokens older than n (VI-B), an approximation. guard: repeats or
    none, see `whisper/guard.py`. word_times: alignment, by cross-attention as a pass more of each
    chunk that commits words; chunk or None, the chunks in which a word appeared. Raises UserError
    on settings out of range.
    """

    weights: str | None
    adapter_scale: str | float
    beam: int
    n: int
    commit: str
    decoder_cache: bool
    guard: str
    word_times: str | None = None
    prompt: str | None = None

    lookahead_samples = LOOKAHEAD_SAMPLES

    def __post_init__(self) -> None:
        check_one_of(("stable", "paper"), commit=self.commit)
        check_one_of(GUARDS, guard=self.guard)
        if self.word_times is not None:
            check_one_of(WORD_TIMES, word_times=self.word_times)
        check_range(0, n=self.n, beam=self.beam)
        super().__post_init__()
        folder = trained(self.weights)
        whisper = self._whisper = self.load(
            folder, scale_of(self.adapter_scale, folder, self.chunk_s)
        )
        self._decoder = Decoder(whisper)
        self._seam = Seam.of(whisper.context_frames, self._chunk_frames, self._first_frames)
        self._commit_stable = self.commit == "stable"
        self._words = Committer(
            whisper,
            self._decoder,
            self.n,
            stable=self._commit_stable,
            aligns=self.word_times == "alignment",
        )
        self._settings = DecodingSettings(
            self._decoder,
            whisper.eot,
            n=self.n,
            # A quarter of the positions, so that a model that never ends its text leaves room.
            max_new=min(TOKENS_PER_SECOND * math.ceil(self.chunk_s), whisper.max_tokens // 4),
            beam=max(self.beam, 1),
            keep_cache=self.decoder_cache,
            guard=GUARDS[self.guard],
            chunk_frames=self._chunk_frames,
        )

    # ---- the protocol -----------------------------------------------------------------------

    def start(
        self,
        *,
        language: str | None = None,
        recorder: Recorder = NULL,
        prompt: str | None = None,
    ) -> WhisperRTState:
        """Return the state of a new stream. `language` is for multilingual models (default en)."""
        whisper = self._whisper
        n_mel_frames = 2 * whisper.context_frames + 1
        return WhisperRTState(
            encoder=StreamingEncoder(whisper.model),
            cache=DecoderCache(self._decoder, rows=self._settings.beam),
            mel=torch.zeros(whisper.n_mels, n_mel_frames, device=whisper.device),
            prompt=whisper.prompt(language, whisper.tokens_before(prompt or self.prompt)),
            language=language,
            recorder=recorder,
            features=StreamingLogMel(whisper.n_mels, device=whisper.device),
            chunk_frames=self._chunk_frames,
            next_end=self._first_frames,
        )

    @torch.inference_mode()
    def _step(self, state: WhisperRTState, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio` and decode the blocks that it completes; commit all after the `last`.

        A late delivery may hold more blocks than the window has room for: each round encodes and
        decodes those that fit, then cuts the window.
        """
        committed: list[Word] = []
        n_retracted = 0
        while True:
            with state.recorder.part("feature"):
                state.take_blocks(audio, last, self._seam.limit)
            audio = audio[:0]  # the state has it now
            if not state.ready:
                break
            n_chunks = len(state.ready)
            yield from self._encode(state)
            yield from self._decode(state, n_chunks)
            with state.recorder.part("policy"):
                words, n_words_retracted = self._words.settle(state)
            committed += words
            n_retracted += n_words_retracted
            if self._window_is_full(state):
                committed += yield from self._cut(state)
        if last:
            with state.recorder.part("finalise"):
                words, n_words_retracted = self._words.finish(state)
            committed += words
            n_retracted += n_words_retracted
        return Update(tuple(committed), state.partial, retracted=n_retracted)

    # ---- one round --------------------------------------------------------------------------

    def _encode(self, state: WhisperRTState, *, again: bool = False) -> Passes[None]:
        """Encode the blocks that are ready and give their frames to the decoder's cross-attention.

        again: the window was moved, and these frames were encoded at their old places.
        """
        start, ends, state.ready = state.position, state.ready, []
        with state.recorder.part("encode"):
            mel = mel_of_frames(state.mel, start, ends[-1])[None]
            part = state.encoder.part(mel, start, ends)
        hidden = yield Wanted("encode", partial(encode_parts, self._whisper.model), part)
        with state.recorder.part("encode"):
            self._decoder.append_frames(state.cache, hidden, start)
        state.encoded(ends, block_flops(self._whisper.config, start, ends), again=again)

    def _decode(self, state: WhisperRTState, n_chunks: int) -> Passes[None]:
        """Bring the hypotheses up to date with the window, which has `n_chunks` new chunks."""
        recorder, end = state.recorder, state.window_start + state.position
        audio = Audio(state.position, end, n_new=end - state.decoded, n_chunks=n_chunks)
        state.decoded = end
        if self._settings.beam == 1:
            yield from decode_greedy(
                self._settings,
                state.cache,
                state.hypotheses[0],
                state.prompt,
                state.floor,
                audio,
                recorder,
            )
            return
        with recorder.part("decode"):
            state.hypotheses = decode_beam(
                self._settings,
                state.cache,
                state.hypotheses,
                state.prompt,
                state.floor,
                audio,
                recorder,
                raise_floor=self._commit_stable,
                last=not state.more_to_come,
            )

    # ---- beyond the context -----------------------------------------------------------------

    def _tokens_are_full(self, state: WhisperRTState, n_dropped: int = 0) -> bool:
        """Return whether the decoder lacks positions for another chunk once `n_dropped` tokens are
        dropped."""
        n_positions = len(state.prompt) + len(state.hypotheses[0].tokens) - n_dropped
        return n_positions + self._settings.max_new > self._whisper.max_tokens

    def _window_is_full(self, state: WhisperRTState) -> bool:
        """Return whether another chunk follows that needs more frames or tokens than there are."""
        if not state.more_to_come:
            return False
        next_end = state.next_end - state.window_start
        return next_end > self._seam.limit or self._tokens_are_full(state)

    def _cut(self, state: WhisperRTState) -> Passes[list[Word]]:
        """Move the window past a word's end and encode again what stays in it.

        Returns the words committed because their audio leaves the window.
        """
        with state.recorder.part("policy"):
            words = self._words.spell(state)
            times = self._words.align(state)
            word_ends_s = [times[word.stop - 1][1] for word in words]
            start, n_before = self._seam.cut(
                word_ends_s, len(state.emitted), state.position, self._chunk_frames
            )
            n_tokens_of = [0, *(word.stop for word in words)]  # of the first i words
            # A loop of the decoder may fill all positions with words that never age: they go too.
            while n_before < len(words) and self._tokens_are_full(state, n_tokens_of[n_before]):
                n_before += 1
            committed = self._words.emit(state, words, n_before)
            n_dropped = n_tokens_of[n_before]
            del state.hypotheses[1:]  # the other hypotheses may differ in what is dropped
            hypothesis: WindowHypothesis = state.hypotheses[0]
            hypothesis.drop(n_dropped)
            state.floor = max(0, state.floor - n_dropped)
            del state.emitted[:n_before]
            state.goes_on = state.goes_on or n_before > 0
            # A first block shorter than in training would have less audio than the model ever had.
            state.ready = state.shift(start, state.block_ends[0])
            state.partial = tuple(
                Word(word.text) for word in self._words.spell(state)[len(state.emitted) :]
            )
        # Positions are absolute, so what is kept has to be encoded at its new place.
        yield from self._encode(state, again=True)
        return committed
