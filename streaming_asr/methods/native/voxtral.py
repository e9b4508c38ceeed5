"""Voxtral Realtime: a causal audio encoder and a language model that outputs a token each 80 ms.

A token's input is the token before it plus the encoder's vector of its 80 ms. Text comes a fixed
delay behind the audio, an input of the model. The audio begins and ends with silence, as in the
model's own preprocessing (mistral-common): 32 tokens before it, the delay and 11 tokens after it.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streaming_asr.errors import UserError
from streaming_asr.files import json_of
from streaming_asr.method import NULL, Recorder
from streaming_asr.methods.native.base import Mel, Native, NativeState, Placed, ends_of, together
from streaming_asr.methods.native.words import Writer
from streaming_asr.models.native import Kind

TOKEN_S = 0.08
TOKEN_SAMPLES = 1280
AFTER = 11  # tokens of silence behind the audio and the delay: the longest word, and one
DELAYS = range(3, 31)  # tokens: 0.24 to 2.4 s


@dataclass
class VoxtralState(NativeState):
    """One stream: caches of the encoder and the language model, and the newest token."""

    mel: Any = None
    encoder_keys_values: Any = None
    padding: Any = None
    keys_values: Any = None
    token: int = 0
    is_done: bool = False  # the model has ended its text
    tokens: list[int] = field(default_factory=list)


class Voxtral(Native):
    """The method. Weights and settings; a stream's own things are in its `VoxtralState`."""

    reader = "AutoFeatureExtractor"  # the processor wants mistral-common for its templates

    def __init__(self, folder: Path, kind: Kind, placed: Placed, delay_s: float | None) -> None:
        """Load the model. delay_s: of the text behind the audio. Raises UserError."""
        delay = None  # in tokens
        if delay_s is not None:
            delay = round(delay_s / TOKEN_S)
            if delay not in DELAYS or not math.isclose(delay * TOKEN_S, delay_s):
                raise UserError(f"delay_s={delay_s}: must be 0.24 to 2.4 in steps of {TOKEN_S}")
        self._tekken = Tekken(folder / "tekken.json")
        super().__init__(folder, kind, placed)
        config = self.model.config
        self._delay = config.default_num_delay_tokens if delay is None else delay
        delays = torch.full((1,), self._delay, device=self.device, dtype=self.dtype)
        self._condition = self.model.model.time_embedding(delays)[None]
        self._n_mel = config.audio_length_per_tok
        self._ends = ends_of(config.text_config.eos_token_id)
        before = self._tekken.n_left + self._delay
        self._prompt = [self._tekken.begin, *(self._tekken.pad for _ in range(before))]
        # The middle of a token's last mel frame lies a hop before its end.
        self.lookahead_samples = self.processor.n_fft // 2 - self.processor.hop_length

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> VoxtralState:
        """Return the state of a new stream; the model finds the language out."""
        from transformers import DynamicCache
        from transformers.models.voxtral_realtime import modeling_voxtral_realtime as modeling

        config = self.model.config
        mel = Mel(self.processor, drops_last=True)
        mel.push(np.zeros(self._tekken.n_left * TOKEN_SAMPLES, dtype=np.float32))
        return VoxtralState(
            recorder,
            Writer(self._tekken.spell, self._tekken.begins, language),
            mel=mel,
            encoder_keys_values=DynamicCache(config=config.audio_config),
            padding=modeling.VoxtralRealtimeConv1dPaddingCache(),
            keys_values=DynamicCache(config=config.text_config),
        )

    def close(self, state: VoxtralState) -> None:
        """Pad the audio with the silence that the delay of the text needs."""
        n_audio_tokens = -(-state.n_samples // TOKEN_SAMPLES)
        n_tokens = self._tekken.n_left + n_audio_tokens + self._delay + AFTER
        state.mel.pad(self._n_mel * (n_tokens - state.n_blocks))

    def block(self, state: VoxtralState) -> Tensor | None:
        """Return the mel frames, (1, mels, n), of all tokens whose audio has come.

        At first it waits for the audio of all tokens of the prompt. None where no token is complete
        or the model has ended its text.
        """
        n_tokens = state.mel.n_ready // self._n_mel
        least = len(self._prompt) if state.n_blocks == 0 else 1
        if n_tokens < least:
            return None
        mel: Tensor = state.mel.take(n_tokens * self._n_mel)
        return None if state.is_done else mel

    def run(self, states: Sequence[VoxtralState], blocks: Tensor) -> None:
        """Encode the audio of some tokens of each stream and output these one after another.

        The first pass of a stream takes the whole prompt. `n_blocks` counts tokens of audio.
        """
        recorder = states[0].recorder
        with (
            recorder.part("encode"),
            together([state.encoder_keys_values for state in states]) as encoder_keys_values,
            together([state.padding for state in states]) as padding,
        ):
            output = self.model.get_audio_features(
                blocks.to(self.device, self.dtype),
                past_key_values=encoder_keys_values,
                padding_cache=padding,
                use_cache=True,
            )
        n_frames = output.last_hidden_state.shape[1]
        for state in states:
            state.recorder.count(frames_real=n_frames, frames_computed=n_frames)
        audio = output.pooler_output  # (n, tokens, d)
        begin, n_tokens = 0, audio.shape[1]
        with (
            recorder.part("decode"),
            together([state.keys_values for state in states]) as keys_values,
        ):
            while begin < n_tokens:
                if states[0].n_blocks == 0:
                    end, ids = len(self._prompt), [self._prompt] * len(states)
                else:
                    end, ids = begin + 1, [[state.token] for state in states]
                inputs = torch.tensor(ids, device=self.device)
                tokens = self._next(inputs, audio[:, begin:end], keys_values)
                for state, token in zip(states, tokens, strict=True):
                    state.n_blocks += end - begin
                    self._take(state, token)
                begin = end

    def _next(self, ids: Tensor, audio: Tensor, keys_values: Any) -> list[int]:
        """Return the best next token of each row, of token ids (n, k) and audio (n, k, d)."""
        output = self.model.model.language_model(
            inputs_embeds=self.model.get_input_embeddings()(ids) + audio,
            past_key_values=keys_values,
            use_cache=True,
            t_cond=self._condition,
        )
        best: list[int] = self.model.lm_head(output.last_hidden_state[:, -1]).argmax(-1).tolist()
        return best

    def _take(self, state: VoxtralState, token: int) -> None:
        """Take in the token after `state.n_blocks` tokens of audio; commit finished words."""
        state.recorder.count(decode_steps=1, beam_sum=1)
        state.token = token
        state.is_done = state.is_done or token in self._ends
        if state.is_done:
            return
        state.tokens.append(token)
        if self._tekken.is_text(token):
            state.recorder.count(tokens=1)
            # Its audio lies the delay before, counted from the end of the silence in front.
            audio_token = state.n_blocks - 1 - self._tekken.n_left - self._delay
            start_s = max(0, audio_token) * TOKEN_S
            state.committed += state.writer.push(token, state.heard_s, start_s, start_s + TOKEN_S)


class Tekken:
    """The vocabulary in tekken.json, as far as tokens become text."""

    def __init__(self, file: Path) -> None:
        """Raises UserError where the file cannot be read or is another vocabulary's."""
        content = json_of(file)
        try:
            self._n_special = int(content["config"]["default_num_special_tokens"])
            self._bytes = [base64.b64decode(entry["token_bytes"]) for entry in content["vocab"]]
            special = {
                entry["token_str"]: int(entry["rank"]) for entry in content["special_tokens"]
            }
            self.begin, self.pad = special["<s>"], special["[STREAMING_PAD]"]
            self.n_left = int(content["audio"]["streaming_n_left_pad_tokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{file}: is no vocabulary of a Voxtral Realtime ({error!r}); download it again"
            ) from error

    def is_text(self, token: int) -> bool:
        """Return whether a token spells anything."""
        return self._n_special <= token < self._n_special + len(self._bytes)

    def begins(self, token: int) -> bool:
        """Return whether a token begins with a space."""
        return self._bytes[token - self._n_special].startswith(b" ")

    def spell(self, tokens: Sequence[int]) -> str:
        """Return the text of text tokens; U+FFFD for a part of a character."""
        joined = b"".join(self._bytes[token - self._n_special] for token in tokens)
        return joined.decode(errors="replace")
