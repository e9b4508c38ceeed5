"""Nemotron ASR Streaming: a Conformer with caches and an RNN-T (arXiv 2312.17279).

A block is a chunk of r + 1 frames of 80 ms, of which the earlier frames see the later ones; each
is computed once. Greedy tokens are final. Two classes: one for English, one for 40 locales, whose
language is given or found by the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, Recorder
from streaming_asr.methods.native.base import Mel, Native, NativeState, Placed, together
from streaming_asr.models.native import Kind

FRAME_S = 0.08


@dataclass
class NemotronState(NativeState):
    """One stream: caches of the encoder, and of the prediction network with its newest token."""

    mel: Any = None
    keys_values: Any = None
    padding: Any = None
    prompt: Any = None  # (1,) index of the language
    prediction: Any = None
    token: int = 0
    n_frames: int = 0  # decoded
    tokens: list[int] = field(default_factory=list)


class Nemotron(Native):
    """The method. Weights and settings; a stream's own things are in its `NemotronState`."""

    def __init__(self, folder: Path, kind: Kind, placed: Placed) -> None:
        """Load the model; `placed.chunk_ms` is one that `models.native.check` allows."""
        super().__init__(folder, kind, placed)
        config = self.model.config
        self._frames = placed.chunk_ms // 80
        self._factor = config.encoder_config.subsampling_factor
        self._blank = config.blank_token_id
        self._max_symbols = config.max_symbols_per_step

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> NemotronState:
        """Return the state of a new stream. Raises UserError for an unknown language."""
        from transformers import DynamicCache
        from transformers.models.nemotron_asr_streaming import (
            generation_nemotron_asr_streaming as generation,
        )
        from transformers.models.nemotron_asr_streaming import (
            modeling_nemotron_asr_streaming as modeling,
        )

        config = self.model.config
        return NemotronState(
            recorder,
            self.writer(language),
            mel=Mel(self.processor.feature_extractor),
            keys_values=DynamicCache(config=config.encoder_config),
            padding=modeling.NemotronAsrStreamingEncoderCausalConvPaddingCache(),
            prompt=self._prompt(language),
            prediction=generation.NemotronAsrStreamingRNNTDecoderCache(config),
            token=self._blank,
        )

    def _prompt(self, language: str | None) -> Tensor | None:
        """Return the index (1,) of a language for the model, None for the English one.

        A language without a region gets the first of its locales. Raises UserError.
        """
        indices = getattr(self.processor, "prompt_dictionary", None)
        if indices is None:
            if language not in (None, "en"):
                raise UserError(
                    f"language={language}: this Nemotron knows English only; leave language out, "
                    "or give model.path=nvidia/nemotron-3.5-asr-streaming-0.6b"
                )
            return None
        name = language or "auto"
        locales = sorted(key for key in indices if key.partition("-")[0] == name)
        if name not in indices and not locales:
            raise UserError(
                f"language={language}: this Nemotron has no such language; leave language out, "
                "and the model finds it out"
            )
        locale = name if name in indices else locales[0]
        return torch.tensor([indices[locale]], device=self.device)

    def close(self, state: NemotronState) -> None:
        """Pad the audio with silence, so that the last block has all frames that see audio."""
        n_mel = state.n_samples // self.processor.feature_extractor.hop_length + 1
        n_blocks = 1
        while self._n_mel(n_blocks) < n_mel:
            n_blocks += 1
        state.mel.pad(self._n_mel(n_blocks) - self._n_mel(state.n_blocks))

    def _n_mel(self, n_blocks: int) -> int:
        """Return the mel frames of so many blocks; the first has fewer, of silence before it."""
        return max(0, self._factor * (self._frames * n_blocks - 1) + 1)

    def block(self, state: NemotronState) -> Tensor | None:
        """Return the mel frames of the next block, (1, n, mels), None where they are not there."""
        return state.mel.take(self._n_mel(state.n_blocks + 1) - self._n_mel(state.n_blocks))

    def run(self, states: Sequence[NemotronState], blocks: Tensor) -> None:
        """Encode the next block of each stream and decode its frames."""
        recorder, options = states[0].recorder, {}
        if states[0].prompt is not None:
            options["prompt_ids"] = torch.cat([state.prompt for state in states])
        with (
            recorder.part("encode"),
            together([state.keys_values for state in states]) as keys_values,
            together([state.padding for state in states]) as padding,
        ):
            output = self.model.get_audio_features(
                blocks.to(self.device, self.dtype),
                past_key_values=keys_values,
                padding_cache=padding,
                num_lookahead_tokens=self._frames - 1,
                use_cache=True,
                **options,
            )
        for state, frames in zip(states, output.pooler_output, strict=True):
            state.n_blocks += 1
            state.recorder.count(frames_real=len(frames), frames_computed=len(frames))
            with state.recorder.part("decode"):
                self._decode(state, frames)

    def _decode(self, state: NemotronState, frames: Tensor) -> None:
        """Decode new frames, (n, d), greedily: of each tokens until a blank, or the limit."""
        from transformers.models.nemotron_asr_streaming import modeling_nemotron_asr_streaming

        encoder_output = modeling_nemotron_asr_streaming.NemotronAsrStreamingEncoderModelOutput
        for i in range(len(frames)):
            start_s = state.n_frames * FRAME_S
            state.n_frames += 1
            for _ in range(self._max_symbols):
                output = self.model(
                    decoder_input_ids=torch.tensor([[state.token]], device=self.device),
                    decoder_cache=state.prediction,
                    encoder_outputs=encoder_output(pooler_output=frames[None, i : i + 1]),
                )
                state.recorder.count(decode_steps=1, beam_sum=1)
                state.token = int(output.logits.argmax())
                if state.token == self._blank:
                    break
                state.tokens.append(state.token)
                state.recorder.count(tokens=1)
                state.committed += state.writer.push(
                    state.token, state.heard_s, start_s, start_s + FRAME_S
                )
