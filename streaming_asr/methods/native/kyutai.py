"""Kyutai's speech-to-text: the codec Mimi and a language model that outputs a token each 80 ms.

Audio at 24 kHz becomes 32 codes each 80 ms; a token's input is the token before it and the codes of
80 ms. Text comes a fixed delay behind the audio, which is padded with silence for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streaming_asr.corpora.audio import Resampler
from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples
from streaming_asr.methods.native.base import Native, NativeState, Placed, together
from streaming_asr.models.native import Kind

AFTER_S = 1.0  # silence behind the audio and the delay, as the model's own extractor adds


@dataclass
class KyutaiState(NativeState):
    """One stream: audio at 24 kHz that is no whole frame, caches, and the newest token."""

    resampler: Any = None
    audio: Samples = field(default_factory=lambda: np.zeros(0, dtype=np.float32))
    codec_keys_values: Any = None
    codec_padding: Any = None
    keys_values: Any = None
    token: int = 0
    tokens: list[int] = field(default_factory=list)


class Kyutai(Native):
    """The method. Weights and settings; a stream's own things are in its `KyutaiState`."""

    lookahead_samples = 16
    """The resampler's filter, at 16 kHz."""

    def __init__(self, folder: Path, kind: Kind, placed: Placed) -> None:
        """Load the model. Raises UserError for one whose audio has another rate."""
        super().__init__(folder, kind, placed)
        extractor = self.processor.feature_extractor
        if extractor.sampling_rate != kind.rate:
            raise UserError(
                f"model.path={folder}: takes audio at {extractor.sampling_rate} Hz, and "
                f"{kind.name} is for {kind.rate} Hz; download it again"
            )
        self._rate = kind.rate
        self._frame_samples = int(self.model.config.frame_size)
        self._frame_s = self._frame_samples / self._rate
        self._silence_before_s = extractor.audio_silence_prefix_seconds
        self._delay_s = extractor.audio_delay_seconds
        config = self.model.config
        # Tokens without text. 0 ends a pause, which the pad token fills.
        self._silent = {0, config.pad_token_id, *self.processor.tokenizer.all_special_ids}

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> KyutaiState:
        """Return the state of a new stream; the model finds the language out."""
        from transformers import DynamicCache

        config = self.model.config
        state = KyutaiState(
            recorder,
            self.writer(language),
            resampler=Resampler(self._rate),
            keys_values=DynamicCache(config=config),
            token=config.bos_token_id,
        )
        self._add(state, np.zeros(int(self._silence_before_s * self._rate), dtype=np.float32))
        return state

    @staticmethod
    def _add(state: KyutaiState, audio: Samples) -> None:
        """Append audio, (n,) at 24 kHz."""
        state.audio = np.concatenate([state.audio, audio])

    def take_in(self, state: KyutaiState, audio: Samples) -> None:
        """Resample new audio, (n,), and keep it."""
        self._add(state, state.resampler.of_samples(audio, SAMPLE_RATE))

    def close(self, state: KyutaiState) -> None:
        """Pad the audio with the silence that the delay of the text needs."""
        self._add(state, state.resampler.of_frame(None))
        n = int((self._delay_s + AFTER_S) * self._rate)
        n += -(len(state.audio) + n) % self._frame_samples  # to whole frames
        self._add(state, np.zeros(n, dtype=np.float32))

    def block(self, state: KyutaiState) -> Tensor | None:
        """Return the audio of the next frame, (1, n) at 24 kHz."""
        n = self._frame_samples
        if not state.n_samples or len(state.audio) < n:
            return None
        frame, state.audio = state.audio[:n], state.audio[n:]
        return torch.from_numpy(frame)[None]

    def run(self, states: Sequence[KyutaiState], blocks: Tensor) -> None:
        """Encode a frame of each stream, blocks (n, samples), and output the token of it.

        The codec runs once for each stream, since its caches cannot be joined.
        """
        config, codec, codes = self.model.config, self.model.codec_model, []
        for state, audio in zip(states, blocks.to(self.device), strict=True):
            with state.recorder.part("encode"):
                output = codec.encode(
                    audio[None, None],
                    encoder_past_key_values=state.codec_keys_values,
                    padding_cache=state.codec_padding,
                    use_streaming=True,
                )
                state.codec_keys_values = output.encoder_past_key_values
                state.codec_padding = output.padding_cache
                codes.append(output.audio_codes[..., : config.num_codebooks, :].transpose(1, 2))
                state.recorder.count(frames_real=1, frames_computed=1)
        with (
            states[0].recorder.part("decode"),
            together([state.keys_values for state in states]) as keys_values,
        ):
            joined = torch.cat(codes)
            if states[0].n_blocks == 0:  # the first token comes before any audio
                bos = torch.full_like(joined, config.audio_bos_token_id)
                self._advance(states, bos, keys_values)
            self._advance(states, joined, keys_values)
        for state in states:
            state.n_blocks += 1

    def _advance(self, states: Sequence[KyutaiState], codes: Tensor, keys_values: Any) -> None:
        """Output the next token of each stream, of audio codes (n, 1, codebooks)."""
        tokens = torch.tensor([[[state.token]] for state in states], device=self.device)
        output = self.model(
            input_ids=torch.cat([tokens, codes], dim=-1),
            past_key_values=keys_values,
            use_cache=True,
        )
        for state, token in zip(states, output.logits[:, -1].argmax(-1).tolist(), strict=True):
            state.recorder.count(decode_steps=1, beam_sum=1)
            state.token = token
            state.tokens.append(token)
            if token in self._silent:
                continue
            state.recorder.count(tokens=1)
            # Token 0 comes before any audio, and token i follows i frames.
            behind_s = self._silence_before_s + self._delay_s
            start_s = max(0.0, (len(state.tokens) - 2) * self._frame_s - behind_s)
            state.committed += state.writer.push(
                token, state.heard_s, start_s, start_s + self._frame_s
            )
