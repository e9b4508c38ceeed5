"""ChunkFormer (masked chunking Conformer) as a method.

mode=stream: small chunks, no right context or a fixed look-ahead; each chunk is encoded once, with
cached left context, and decoded by greedy CTC. A word is committed when the next one begins.

mode=longform: large chunks with left and right context, equal to one pass over the recording, at
constant memory (endless decoding); with batch > 1 recordings of any lengths share their passes
without padding (masked batch). It makes no promise on latency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.method import NULL, Recorder, Samples, Update, Word
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.ctc import FRAME_S, Greedy, best_path
from streaming_asr.methods.chunkformer.encoder import EndlessCache, encoder_flops
from streaming_asr.methods.chunkformer.features import (
    HOP_SAMPLES,
    WINDOW_SAMPLES,
    StreamingFbank,
)
from streaming_asr.methods.chunkformer.layers import RECEPTIVE, STRIDE
from streaming_asr.methods.chunkformer.load import TRAIN, load
from streaming_asr.whisper.together import SharedPasses

FRAME_SAMPLES = STRIDE * HOP_SAMPLES  # 80 ms
LOOKAHEAD_SAMPLES = (RECEPTIVE - STRIDE) * HOP_SAMPLES + WINDOW_SAMPLES - HOP_SAMPLES
"""Audio past the end of an encoder frame that it depends on: 70 ms of subsampling, 15 of window."""
STREAM_LEFT, LONGFORM = 50, Context(64, 128, 128)


@dataclass(slots=True)
class ChunkFormerState:
    """One stream; frames are encoder frames of 80 ms."""

    recorder: Recorder
    fbank: StreamingFbank
    cache: EndlessCache
    mel: Tensor  # (k, n_mels) frames that are not subsampled yet
    frames: Tensor  # (k, d) frames that are not encoded yet
    greedy: Greedy
    closed: bool = False  # its last frames have been handed to the encoder
    committed: list[Word] = field(default_factory=list)  # in this step


class ChunkFormer(SharedPasses):
    """The method. Weights and settings; what belongs to a stream is in its `ChunkFormerState`."""

    def __init__(
        self,
        *,
        weights: str | None,
        device: str,
        dtype: str,
        chunk_s: float,
        mode: str,
        chunk_frames: int | None,
        left_frames: int | None,
        right_frames: int | None,
        total_duration_s: float,
    ) -> None:
        """Load the network from the folder `weights`, a trained or a published one.

        mode: stream or longform. chunk_frames, left_frames, right_frames: the context in frames of
        80 ms; default 64, 128, 128 in longform, and in stream the frames that fit into `chunk_s`,
        50 and 0. There, right_frames is a look-ahead that is the same in all layers.
        total_duration_s: audio of all recordings together that goes through the encoder in one pass
        (longform). Raises UserError on settings out of range and on what `load` refuses.
        """
        if weights in (None, "none"):
            raise UserError(
                "method.weights=none: chunkformer has a network of its own and cannot do without; "
                f"train one with `{TRAIN}` or name a checkpoint with method.weights=<folder>"
            )
        check_one_of(("stream", "longform"), mode=mode)
        stream = mode == "stream"
        # In milliseconds, since 0.24 // 0.08 is 2.
        n_fit = max(1, int(round(chunk_s * 1000) // round(FRAME_S * 1000)))
        default = Context(n_fit, STREAM_LEFT, 0) if stream else LONGFORM
        chunk = default.chunk if chunk_frames is None else chunk_frames
        left = default.left if left_frames is None else left_frames
        right = default.right if right_frames is None else right_frames
        check_range(1, chunk_frames=chunk)
        check_range(0, left_frames=left, right_frames=right)
        self._pass_frames = int(total_duration_s / FRAME_S)
        if self._pass_frames < chunk:
            raise UserError(
                f"total_duration_s={total_duration_s:g}: less than one chunk of {chunk} frames, "
                f"{chunk * FRAME_S:g} s; raise it or lower chunk_frames"
            )
        loaded = load(weights, device=device, dtype=dtype)
        self._network, self._tokens = loaded.network, loaded.tokens
        self._stream, self._chunk = stream, chunk
        self._context = Context(chunk + right, left, 0) if stream else Context(chunk, left, right)
        self._positions: list[Tensor] = []
        self._positions_chunk = 0
        self.lookahead_samples = LOOKAHEAD_SAMPLES + right * FRAME_SAMPLES if stream else 0
        self.samples_together = None if stream else self._pass_frames * FRAME_SAMPLES

    # ---- the protocol -----------------------------------------------------------------------

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> ChunkFormerState:
        """Return the state of a new stream; `language` changes nothing: the network knows one."""
        encoder = self._network.encoder
        new = encoder.after_norm.weight.new_zeros
        n_mels = self._network.shape.n_mels
        return ChunkFormerState(
            recorder=recorder,
            fbank=StreamingFbank(n_mels, encoder.device),
            cache=EndlessCache.empty(encoder),
            mel=torch.zeros(0, n_mels, device=encoder.device),
            frames=new(0, encoder.d),
            greedy=Greedy(self._tokens),
        )

    @torch.inference_mode()
    def step_many(
        self, states: Sequence[ChunkFormerState], audio: Sequence[Samples], *, last: Sequence[bool]
    ) -> list[Update]:
        """Take in new audio of each stream, (n_i,), and return what changed in each.

        The streams may be of any age. All that are complete share the passes of the encoder.
        """
        if not states:
            return []
        recorder = states[0].recorder
        with recorder.part("feature"):
            for state, samples in zip(states, audio, strict=True):
                mel = state.fbank.push(np.asarray(samples, dtype=np.float32))
                state.mel = torch.cat([state.mel, mel])
        with recorder.part("encode"):
            embedded = self._network.encoder.subsample([state.mel for state in states])
        for state, frames in zip(states, embedded, strict=True):
            state.mel = state.mel[STRIDE * len(frames) :]
            state.frames = torch.cat([state.frames, frames])
        while self._pass(states, last):
            pass
        updates = []
        for state, is_last in zip(states, last, strict=True):
            if is_last:
                with state.recorder.part("finalise"):
                    state.committed += state.greedy.finish()
            updates.append(Update(tuple(state.committed), state.greedy.open_word()))
            state.committed = []
        return updates

    # ---- one pass ---------------------------------------------------------------------------

    def _pass(self, states: Sequence[ChunkFormerState], last: Sequence[bool]) -> bool:
        """Encode and decode one pass of what came in; return False where nothing is left to do.

        In stream mode a pass has the next chunk of every stream that has one, with its look-ahead;
        in longform mode at most `total_duration_s` of all recordings together.
        """
        active, frames, closes, again = [], [], [], []
        n_room = self._pass_frames
        for state, is_last in zip(states, last, strict=True):
            if self._stream:
                n = min(self._context.chunk, len(state.frames))
                ready = n == self._context.chunk or (is_last and n > 0)
                # Each chunk is an end for the encoder, which waits for nothing; the frames of its
                # look-ahead come again with the next chunk.
                closed, n_again = True, max(0, n - self._chunk)
            else:
                n = min(n_room, len(state.frames))
                closed, n_again = is_last and n == len(state.frames), 0
                # Without new frames a pass is for those that the encoder holds back until the end.
                ready = n > 0 or (closed and not state.closed)
                n_room -= n
            if ready:
                active.append(state)
                frames.append(state.frames[:n])
                closes.append(closed)
                again.append(n_again)
                state.frames, state.closed = state.frames[n - n_again :], closed
        if not active:
            return False
        longest = max(
            len(new) + max(state.cache.n_held, default=0)
            for state, new in zip(active, frames, strict=True)
        )
        with active[0].recorder.part("encode"):
            encoded = self._network.encoder.advance(
                self._context,
                self._positions_for(longest),
                [state.cache for state in active],
                frames,
                closes,
                again,
            )
        for state, new, n_again, out in zip(active, frames, again, encoded, strict=True):
            n_chunks = -(-len(out) // self._chunk)
            self._count(state, len(new), len(new) - n_again, n_chunks)
        self._decode(active, encoded)
        return True

    def _positions_for(self, longest: int) -> list[Tensor]:
        """Return the encoder's positions for chunks of up to `longest` frames, each layer's.

        A chunk may be set longer than every recording. So positions are made only for the chunks
        that have come, rounded up to a power of two, and kept.
        """
        chunk = min(self._context.chunk, max(64, 1 << (longest - 1).bit_length()))
        if chunk > self._positions_chunk:
            context = replace(self._context, chunk=chunk)
            self._positions = self._network.encoder.positions(context)
            self._positions_chunk = chunk
        return self._positions

    def _decode(self, states: Sequence[ChunkFormerState], encoded: Sequence[Tensor]) -> None:
        """Decode each stream's new encoded frames (n_i, d); add finished words to `committed`."""
        with states[0].recorder.part("decode"):
            logits = self._network.ctc(torch.cat(list(encoded)))
            best, log_probs = best_path(logits)
            begin = 0
            for state, frames in zip(states, encoded, strict=True):
                end = begin + len(frames)
                state.committed += state.greedy.push(best[begin:end], log_probs[begin:end])
                begin = end

    def _count(self, state: ChunkFormerState, n_computed: int, n_real: int, n_chunks: int) -> None:
        """Report the encoder's work on `n_computed` frames, of which `n_real` are new audio."""
        shape, context = self._network.shape, self._context
        if not self._stream and n_chunks == 1:
            context = replace(context, chunk=min(context.chunk, max(1, n_computed)))
        state.recorder.count(
            frames_real=n_real,
            frames_computed=n_computed,
            encoder_flops=encoder_flops(shape, context, n_computed, n_chunks),
        )
