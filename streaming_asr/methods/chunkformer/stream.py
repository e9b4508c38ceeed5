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
from streaming_asr.methods.chunkformer.encoder import encoder_flops
from streaming_asr.methods.chunkformer.endless import EndlessCache, advance
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
        fits = max(1, int(round(chunk_s * 1000) // round(FRAME_S * 1000)))
        default = Context(fits, STREAM_LEFT, 0) if stream else LONGFORM
        settings = (chunk_frames, left_frames, right_frames)
        chunk, left, right = (
            size if value is None else value
            for value, size in zip(
                settings, (default.chunk, default.left, default.right), strict=True
            )
        )
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
        """Advance each stream by one step, wherever each is; without a whole chunk none changes."""
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
        for state, ends in zip(states, last, strict=True):
            if ends:
                with state.recorder.part("finalise"):
                    state.committed += state.greedy.finish()
            updates.append(Update(tuple(state.committed), state.greedy.open_word()))
            state.committed = []
        return updates

    # ---- one pass ---------------------------------------------------------------------------

    def _pass(self, states: Sequence[ChunkFormerState], last: Sequence[bool]) -> bool:
        """Encode and decode the next chunk of every stream that has one, or at most
        `total_duration_s` of what came in; False where none is left.
        """
        room, active, frames, closes, again = self._pass_frames, [], [], [], []
        for state, ends in zip(states, last, strict=True):
            most = self._context.chunk if self._stream else room
            n = min(most, len(state.frames))
            done = ends and n == len(state.frames)
            if self._stream:
                # A chunk is computed as it is, and what follows it is computed again.
                ready, n_again, done = n == most or (ends and n), max(0, n - self._chunk), True
            else:
                ready, n_again = n or (done and not state.closed), 0
                room -= n
            if ready:
                active.append(state)
                frames.append(state.frames[:n])
                closes.append(done)
                again.append(n_again)
                state.frames, state.closed = state.frames[n - n_again :], done
        if not active:
            return False
        longest = max(
            len(part) + max(state.cache.n_held, default=0)
            for state, part in zip(active, frames, strict=True)
        )
        with active[0].recorder.part("encode"):
            encoded = advance(
                self._network.encoder,
                self._context,
                self._positions_for(longest),
                [state.cache for state in active],
                frames,
                closes,
                again,
            )
        for state, part, n_again, out in zip(active, frames, again, encoded, strict=True):
            n_chunks = -(-len(out) // self._chunk)
            self._count(state, len(part), len(part) - n_again, n_chunks)
        self._decode(active, encoded)
        return True

    def _positions_for(self, longest: int) -> list[Tensor]:
        """Return the positions of chunks of up to `longest` frames. A chunk may be as long as all
        recordings, so its positions are made for those that came so far, in steps of two."""
        chunk = min(self._context.chunk, max(64, 1 << (longest - 1).bit_length()))
        if chunk > self._positions_chunk:
            context = replace(self._context, chunk=chunk)
            self._positions = self._network.encoder.positions(context)
            self._positions_chunk = chunk
        return self._positions

    def _decode(self, states: Sequence[ChunkFormerState], encoded: Sequence[Tensor]) -> None:
        with states[0].recorder.part("decode"):
            logits = self._network.ctc(torch.cat(list(encoded)))
            best, log_probs = best_path(logits)
            begin = 0
            for state, part in zip(states, encoded, strict=True):
                end = begin + len(part)
                state.committed += state.greedy.push(best[begin:end], log_probs[begin:end])
                begin = end

    def _count(self, state: ChunkFormerState, n_computed: int, n_real: int, n_chunks: int) -> None:
        shape, context = self._network.shape, self._context
        if not self._stream and n_chunks == 1:
            context = replace(context, chunk=min(context.chunk, max(1, n_computed)))
        state.recorder.count(
            frames_real=n_real,
            frames_computed=n_computed,
            encoder_flops=encoder_flops(shape, context, n_computed, n_chunks),
        )
