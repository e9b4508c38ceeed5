"""STAR: a stream is cut into segments, each compressed into one anchor, each good for one token.

Tan et al., arXiv 2402.01172, grafted on a causal Whisper; the authors' code has no streaming
inference. Per chunk: features of the new frames, the segmenter's scores and their running sum, the
semantic encoder on the new frames, cross-attention keys and values of the new anchors, and one
token for every anchor once there are `wait_k` of them. After the end (the last frame is an anchor)
the rest is decoded.

Token t sees the anchors 0 .. t + wait_k - 1, no more, even where more have come in the same chunk:
the text follows only from the audio's blocks, and a stream gives what one pass over everything
gives. Tokens never change, so every whole word is committed.

At inference the scores are not rescaled: the published code scales them by the length of the
reference, which no stream knows.

Recordings beyond the context are cut by the rule of all methods: after a word that ended a while
ago, by cross-attention; what follows it is encoded again in the next window, its tokens forced.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from streaming_asr.errors import check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.star.compressors import CompressorState
from streaming_asr.methods.star.decoder import AnchorCache, AnchorDecoder, seen
from streaming_asr.methods.star.network import load_star
from streaming_asr.whisper.encoder import StreamingEncoder, encode_parts
from streaming_asr.whisper.features import LOOKAHEAD_SAMPLES, StreamingLogMel, mel_of_frames
from streaming_asr.whisper.flops import block_flops
from streaming_asr.whisper.seam import Seam
from streaming_asr.whisper.settings import Chunked, trained
from streaming_asr.whisper.together import Passes, SharedPasses, Wanted
from streaming_asr.whisper.window import FRAME_S, BlockWindow
from streaming_asr.whisper.words import TokenWord, probability_of

TOKENS_PER_SEGMENT, SPARE_TOKENS = 1.25, 10
"""A window has at most 10 tokens more than 1.25 for each segment, which is good for one, and which
algorithm 1 loses a sixth of: a text that goes on repeats itself."""


@dataclass(slots=True, kw_only=True)
class StarState(BlockWindow):
    """One stream. Frames are of 20 ms; positions in the window unless noted."""

    encoder: StreamingEncoder
    compressor: CompressorState
    cache: AnchorCache
    prompt: list[int]

    ready: list[int] = field(default_factory=list)
    """For each segment, the vectors the decoder has when it is complete."""
    ends: list[int] = field(default_factory=list)
    """For each segment, its end."""

    tokens: list[int] = field(default_factory=list)
    n_fed: int = 0
    """Positions of prompt and tokens that are in the decoder's cache."""
    log_probs: list[float] = field(default_factory=list)
    n_committed: int = 0
    """Words of the window that are committed."""
    finished: bool = False


@dataclass(kw_only=True, eq=False)
class Star(SharedPasses, Chunked):
    """The method. Weights and settings; what belongs to a stream is in its `StarState`.

    weights: a folder of the network; None: untrained, for trials. wait_k: anchors before the first
    token. compressor: star | none, checked against the network's. Raises UserError on settings out
    of range and where the network does not fit.
    """

    weights: str | None
    wait_k: int
    compressor: str | None

    lookahead_samples = LOOKAHEAD_SAMPLES

    def __post_init__(self) -> None:
        check_range(1, wait_k=self.wait_k)
        super().__post_init__()
        self._whisper, network = load_star(
            self.model_path,
            trained(self.weights),
            device=self.device,
            dtype=self.dtype,
            compressor=self.compressor,
        )
        self._compressor = network.compressor
        self._decoder = AnchorDecoder(self._whisper.model)
        self._seam = Seam.of(self._whisper.context_frames, self._chunk_frames, self._first_frames)

    # ---- the protocol -----------------------------------------------------------------------

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> StarState:
        """Return the state of a new stream. `language` is for multilingual models (default en)."""
        whisper = self._whisper
        shape = (whisper.n_mels, 2 * whisper.context_frames + 1)
        return StarState(
            encoder=StreamingEncoder(whisper.model),
            mel=torch.zeros(shape, device=whisper.device),
            features=StreamingLogMel(whisper.n_mels, device=whisper.device),
            compressor=self._compressor.start(),
            cache=AnchorCache(self._decoder),
            prompt=whisper.prompt(language),
            language=language,
            recorder=recorder,
            chunk_frames=self._chunk_frames,
            next_end=self._first_frames,
        )

    @torch.inference_mode()
    def _step(self, state: StarState, audio: Samples, last: bool) -> Passes[Update]:
        """Take in `audio`; a step that completes no chunk changes nothing."""
        state.arrive(audio, last)
        committed: list[Word] = []
        while state.block_is_there():
            length = self._chunk_frames if state.n_taken else self._first_frames
            if state.position + length > self._seam.limit:
                yield from self._next_window(state)
            with state.recorder.part("feature"):
                end = state.take_block()
            yield from self._encode(state, [end])
            self._decode(state)
            committed += self._commit(state, everything=False)
        if last:
            self._compress(state, None, last=True)
            self._decode(state, ended=True)
            committed += self._commit(state, everything=True)
        rest = self._words(state)[state.n_committed :]
        partial = state.emitter.partial(word.text for word in rest)
        state.recorder.count(decoder_cache_bytes=state.cache.n_bytes)
        return Update(tuple(committed), partial, endpoint=last)

    # ---- audio ------------------------------------------------------------------------------

    def _encode(self, state: StarState, ends: Sequence[int]) -> Passes[None]:
        """Encode the window's blocks that end at `ends`, and compress their frames into anchors."""
        start, stop = state.position, ends[-1]
        with state.recorder.part("encode"):
            mel = mel_of_frames(state.mel, start, stop)[None]
            part = state.encoder.part(mel, start, ends)
        (x,) = yield Wanted("encode", partial(encode_parts, self._whisper.model), part)
        state.encoded(ends, block_flops(self._whisper.config, start, ends))
        # The last block is filled up with zeros, which no anchor may hold.
        n_real = max(0, min(state.n_real, stop) - start)
        self._compress(state, x[:n_real] if state.ended else x, last=False)

    def _compress(self, state: StarState, x: torch.Tensor | None, *, last: bool) -> None:
        """Compress the next frames (n, d), None for no new ones, into anchors for the decoder."""
        if last and state.position == 0:
            return  # no audio
        with state.recorder.part("encode"):
            if x is None:
                x = self._decoder.embedding.new_zeros(0, self._decoder.embedding.shape[1])
            compressed = self._compressor.push(state.compressor, x, last=last)
        with state.recorder.part("decode"):
            self._decoder.append(state.cache, compressed.vectors, compressed.scores)
        state.ready += compressed.ready
        state.ends += compressed.ends
        state.recorder.count(anchors=compressed.vectors.shape[0])

    # ---- decoding ---------------------------------------------------------------------------

    def _decode(self, state: StarState, *, ended: bool = False) -> None:
        """Decode greedily: token t once there are t + wait_k segments, all tokens once `ended`.

        ended: no more audio comes, or none into this window.
        """
        n_prompt = len(state.prompt)
        n_expected = math.ceil(TOKENS_PER_SEGMENT * len(state.ready))
        max_tokens = min(self._decoder.max_tokens - n_prompt, SPARE_TOKENS + n_expected)
        with state.recorder.part("decode"):
            while state.ready and not state.finished and len(state.tokens) < max_tokens:
                if not ended and len(state.ready) < len(state.tokens) + self.wait_k:
                    return
                # The first pass feeds the prompt, later ones one token each.
                sequence = [*state.prompt, *state.tokens]
                visible = [
                    seen(position, n_prompt, self.wait_k, state.ready)
                    for position in range(state.n_fed, len(sequence))
                ]
                hidden = self._decoder.step(state.cache, sequence[state.n_fed :], visible)
                state.n_fed = len(sequence)
                state.recorder.count(decode_steps=1, beam_sum=1)
                logits = self._decoder.next_logits(hidden).float() + self._whisper.suppressed
                best = int(logits.argmax())
                if best == self._whisper.eot and ended:
                    state.finished = True
                    return
                log_probs = logits.log_softmax(-1)
                if best == self._whisper.eot:
                    # The text cannot end before the audio, and each anchor is for a token: the
                    # second best.
                    log_probs[best] = -torch.inf
                    best = int(log_probs.argmax())
                state.tokens.append(best)
                state.log_probs.append(float(log_probs[best]))
                state.recorder.count(tokens=1)

    def _words(self, state: StarState) -> list[TokenWord]:
        return self._whisper.detokenizer.words(state.tokens, language=state.language)

    def _commit(self, state: StarState, *, everything: bool) -> list[Word]:
        """Commit the words that can no longer grow, or `everything`; return the new ones.

        Token t lies in segment t; tokens beyond the last segment lie in that one.
        """
        words = self._words(state)
        # The next token may still belong to the newest word.
        n_whole = len(words) if everything else sum(w.stop < len(state.tokens) for w in words)
        committed = []
        for word in words[state.n_committed : n_whole]:
            first_segment = min(word.start, len(state.ends) - 1)
            last_segment = min(word.stop, len(state.ends)) - 1
            start = state.ends[first_segment - 1] if first_segment else 0
            probability = probability_of(word, state.log_probs)
            committed.append(state.emit(word.text, start, state.ends[last_segment], probability))
        state.n_committed = max(state.n_committed, n_whole)
        return committed

    # ---- beyond the context -----------------------------------------------------------------

    def _next_window(self, state: StarState) -> Passes[None]:
        """Begin a new window within this one, so that no word is lost at the seam.

        The frames after the seam are encoded and compressed again, and their tokens forced on the
        decoder.
        """
        with state.recorder.part("finalise"):
            start, first_token, n_before = self._cut(state)
            n_frames_again = state.position - start
            ends = state.shift(start, self._chunk_frames)
            state.compressor = self._compressor.start()
            state.cache = AnchorCache(self._decoder)
            state.ready, state.ends, state.n_fed = [], [], 0
            state.tokens = state.tokens[first_token:]
            state.log_probs = state.log_probs[first_token:]
            state.n_committed -= n_before
            # The window's rest may have ended its text; the next window has one of its own.
            state.finished = False
        if n_frames_again:
            yield from self._encode(state, ends)
            self._decode(state)

    def _cut(self, state: StarState) -> tuple[int, int, int]:
        """Return the next window's first frame and token, and the committed words before them.

        All are counted in this window.
        """
        words = self._words(state)
        first_anchors = self._decoder.align(
            state.cache, self._whisper.alignment_heads, state.prompt, state.tokens
        )
        token_ends = self._ends_of(state, first_anchors)
        start, n_before = self._seam.cut(
            [token_ends[word.stop - 1] * FRAME_S for word in words],
            state.n_committed,
            state.position,
            self._chunk_frames,
        )
        # Words that are not committed stay: the next window begins with their tokens.
        n_before = min(n_before, state.n_committed)
        if not words:
            return start, 0, n_before
        first = words[n_before].start if n_before < len(words) else len(state.tokens)
        return start, first, n_before

    def _ends_of(self, state: StarState, first_vectors: Sequence[int]) -> list[int]:
        """Return the frame of the window at which each token ends.

        first_vectors: index of each token's first vector, from `align`. A token has the vectors up
        to the next token's first, at least one, and ends with the segment that has the last.
        """
        ends = []
        # The last token has all vectors to the end.
        next_vectors = [*first_vectors[1:], state.ready[-1]] if first_vectors else []
        for first, next_first in zip(first_vectors, next_vectors, strict=True):
            n_vectors = max(first + 1, next_first)  # up to the token's end
            # The first segment with as many; `ready` never falls.
            segment = bisect_left(state.ready, n_vectors)
            ends.append(state.ends[min(segment, len(state.ends) - 1)])
        return ends
