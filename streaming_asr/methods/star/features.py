"""Feature frames of 20 ms as a stream: from the frozen causal Whisper encoder.

An extractor takes a window's samples block by block, and can begin a new window within the old one,
whose kept frames it then encodes again. `EXTRACTORS` takes others; experiments/star has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from streaming_asr.whisper.batched import encode_windows
from streaming_asr.whisper.encoder import Part, StreamingEncoder, encode_parts
from streaming_asr.whisper.features import (
    LOOKAHEAD_SAMPLES,
    StreamingLogMel,
    log_mel,
    mel_of_frames,
)
from streaming_asr.whisper.flops import block_flops
from streaming_asr.whisper.load import Whisper

EXTRACTORS: dict[str, Callable[[str, Whisper], Any]] = {}
"""By the name that `features=` gives: called with a folder or hub name, and the Whisper; makes a
torch module with the methods of `WhisperFeatures` and, for weights of its own, `parts()` (tensors
of star.safetensors), `save(folder)` (all others) and `train_weights(wanted)`."""


class _WhisperState:
    def __init__(self, whisper: Whisper) -> None:
        self.encoder = StreamingEncoder(whisper.model)
        self.features = StreamingLogMel(whisper.n_mels, device=whisper.device)
        # Two mel frames an encoder frame, and the one after, which the last needs.
        room = 2 * whisper.context_frames + 1
        self.mel = torch.zeros(1, whisper.n_mels, room, device=whisper.device)
        self.n_mel = 0
        self.position = 0


class WhisperFeatures:
    """The block-causal Whisper encoder after its last norm; its weights are frozen.

    lookahead_samples: past a frame's end, that the frame needs. context_frames: the longest window.
    """

    lookahead_samples = LOOKAHEAD_SAMPLES

    def __init__(self, whisper: Whisper) -> None:
        self._whisper = whisper
        self.context_frames = whisper.context_frames

    def start(self) -> _WhisperState:
        """Return the state of a new stream."""
        return _WhisperState(self._whisper)

    @torch.inference_mode()
    def take(self, state: _WhisperState, samples: Tensor) -> None:
        """Take in (n,) new samples of the window: the part of the work done sample by sample."""
        frames = state.features.push(samples[None])
        stop = state.n_mel + frames.shape[-1]
        state.mel[:, :, state.n_mel : stop] = frames
        state.n_mel = stop

    def encode(self, state: _WhisperState, ends: Sequence[int]) -> Part:
        """Request the next frames, as blocks that end at `ends` (frames of the window).

        An extractor returns the frames (n, d), or as here a part of a pass of the Whisper encoder
        that gives them and may be shared with other streams.
        """
        start = state.position
        mel = mel_of_frames(state.mel, start, ends[-1])
        state.position = ends[-1]
        return state.encoder.part(mel, start, ends)

    def run(self, parts: Sequence[Part]) -> list[Tensor]:
        """Return the frames (1, n, d) of each part of a pass."""
        return encode_parts(self._whisper.model, parts)

    @torch.inference_mode()
    def move(self, state: _WhisperState, start: int) -> None:
        """Let the window begin at its frame `start`; all later frames are to be encoded again."""
        n_mel = state.n_mel - 2 * start  # two mel frames an encoder frame
        state.mel[:, :, :n_mel] = state.mel[:, :, 2 * start : state.n_mel].clone()
        state.n_mel, state.position = n_mel, 0

    def flops(self, start: int, ends: Sequence[int]) -> float:
        """Return the FLOPs of encoding the blocks from frame `start` on."""
        return block_flops(self._whisper.config, start, ends)

    def windows(self, audio: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the frames of whole windows, (ends[i][-1], d) each, equal to those of a stream.

        audio: (n_i,) samples each; ends: where the blocks of each window end, in frames.
        """
        n_mels = self._whisper.n_mels
        mels = [
            log_mel(samples, n_mels, block_ends=block_ends)
            for samples, block_ends in zip(audio, ends, strict=True)
        ]
        return encode_windows(self._whisper.model, mels, ends)
