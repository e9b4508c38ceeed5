"""Streaming WhisperRT without thrift: what the published code recomputes, recomputed.

Written from a description of the published code, as a baseline. Per chunk it
  runs both convolutions over all the mel so far and keeps the new frames,
  keeps the encoder's keys and values (by concatenation, as there),
and per token
  runs the decoder over prompt and text from the first token on, nothing cached,
  projects the cross-attention's keys and values of every frame so far,
  projects every position to the whole vocabulary and filters each one,
  multiplies out every low-rank update (A @ B) in every projection that has one.

It computes what `WhisperRT` computes on the same merged weights: from each adapted weight an
update is taken off, which the low-rank path adds again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from experiments.bench.settings import n_text_tokens
from streaming_asr.method import Recorder, Samples
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES, StreamingLogMel
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.masks import mask_from_ends

RANK = 32  # of the paper's adapters for base


@dataclass(slots=True)
class NaiveState:
    """One stream: (1, n, d) keys and values per encoder layer, (1, n, d) frames encoded."""

    features: StreamingLogMel
    mel: torch.Tensor
    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    hidden: torch.Tensor
    n_samples: int = 0
    tokens: list[int] = field(default_factory=list)


class Projection:
    """A linear layer with a low-rank update that is never merged."""

    def __init__(self, linear: Any, random: torch.Generator) -> None:
        d_out, d_in = linear.weight.shape
        weight = linear.weight
        self.lora_a = _normal((d_in, RANK), d_in**-0.5, random).to(weight)
        self.lora_b = _normal((RANK, d_out), 0.01, random).to(weight)
        self.weight = weight - (self.lora_a @ self.lora_b).T
        self.bias = linear.bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias) + x @ (self.lora_a @ self.lora_b)


class Attention:
    """Four adapted projections and attention written out."""

    def __init__(self, layer: Any, random: torch.Generator) -> None:
        self.n_heads: int = layer.num_heads
        self.query = Projection(layer.q_proj, random)
        self.key = Projection(layer.k_proj, random)
        self.value = Projection(layer.v_proj, random)
        self.out = Projection(layer.out_proj, random)

    def attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """(1, n, d) queries over (1, m, d) keys; mask (n, m) is added to the scores."""
        q, k, v = (x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for x in (q, k, v))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores + mask
        return self.out((scores.float().softmax(-1).to(v) @ v).transpose(1, 2).flatten(-2))


class Naive:
    """The baseline. Weights only; a stream is a `NaiveState`."""

    def __init__(self, whisper: Whisper, seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)
        self.whisper = whisper
        self.encoder = whisper.model.model.encoder
        self.decoder = whisper.model.model.decoder
        self.output = whisper.model.proj_out.weight
        self.self_attention = [Attention(x.self_attn, random) for x in self.decoder.layers]
        self.cross_attention = [Attention(x.encoder_attn, random) for x in self.decoder.layers]
        self.encoder_attention = [Attention(x.self_attn, random) for x in self.encoder.layers]
        self.prompt = whisper.prompt()
        self.suppressed = whisper.suppressed.isneginf().nonzero()[:, 0]
        context = whisper.max_tokens
        self.causal = torch.full((context, context), -torch.inf, device=whisper.device).triu_(1)

    @torch.inference_mode()
    def at(self, audio: Samples, ends: list[int], tokens: list[int]) -> NaiveState:
        """The state of a stream whose blocks ended at `ends` and whose text is `tokens`."""
        width, device = self.encoder.embed_positions.weight.shape[1], self.whisper.device
        none = torch.zeros(1, 0, width, device=device)
        state = NaiveState(
            features=StreamingLogMel(self.whisper.n_mels, device=device),
            mel=torch.zeros(1, self.whisper.n_mels, 0, device=device),
            keys=[none] * len(self.encoder.layers),
            values=[none] * len(self.encoder.layers),
            hidden=none,
            tokens=list(tokens),
        )
        for end in ends:
            self._take_in(state, audio, end)
        visible = mask_from_ends(ends, device)
        mask = torch.zeros(visible.shape, device=device).masked_fill_(~visible, -torch.inf)
        self._encode(state, ends[-1], mask)
        return state

    @torch.inference_mode()
    def step(self, state: NaiveState, audio: Samples, end: int, recorder: Recorder) -> None:
        """Take in the stream's `audio` up to frame `end` and bring the text up to date."""
        with recorder.part("feature"):
            self._take_in(state, audio, end)
        with recorder.part("encode"):
            self._encode(state, end)
        with recorder.part("decode"):
            while True:
                log_probs = self._decode(state)
                if len(state.tokens) >= n_text_tokens(end):  # here the end is predicted
                    return
                log_probs[self.whisper.eot] = -torch.inf
                state.tokens.append(int(log_probs.argmax()))

    def _take_in(self, state: NaiveState, audio: Samples, end: int) -> None:
        stop = end * FRAME_SAMPLES + LOOKAHEAD_SAMPLES
        new = torch.from_numpy(audio[state.n_samples : stop])[None]
        state.mel = torch.cat([state.mel, state.features.push(new)], dim=-1)
        state.n_samples = stop

    def _encode(self, state: NaiveState, end: int, mask: torch.Tensor | None = None) -> None:
        encoder, start = self.encoder, state.hidden.shape[1]
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(state.mel)))).transpose(1, 2)[:, start:end]
        x = x + encoder.embed_positions.weight[start:end]
        for i, (layer, attention) in enumerate(
            zip(encoder.layers, self.encoder_attention, strict=True)
        ):
            h = layer.self_attn_layer_norm(x)
            state.keys[i] = torch.cat([state.keys[i], attention.key(h)], dim=1)
            state.values[i] = torch.cat([state.values[i], attention.value(h)], dim=1)
            x = x + attention.attend(attention.query(h), state.keys[i], state.values[i], mask)
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        state.hidden = torch.cat([state.hidden, encoder.layer_norm(x)], dim=1)

    def _decode(self, state: NaiveState) -> torch.Tensor:
        """Log-probabilities of the token that follows the text, (vocabulary,)."""
        ids = torch.tensor([self.prompt + state.tokens], device=self.whisper.device)
        n = ids.shape[1]
        x = self.decoder.embed_tokens.weight[ids] + self.decoder.embed_positions.weight[:n]
        for layer, self_cache, cross in zip(
            self.decoder.layers, self.self_attention, self.cross_attention, strict=True
        ):
            h = layer.self_attn_layer_norm(x)
            x = x + self_cache.attend(
                self_cache.query(h), self_cache.key(h), self_cache.value(h), self.causal[:n, :n]
            )
            h = layer.encoder_attn_layer_norm(x)
            frames = state.hidden
            x = x + cross.attend(cross.query(h), cross.key(frames), cross.value(frames))
            x = x + layer.fc2(F.gelu(layer.fc1(layer.final_layer_norm(x))))
        logits = F.linear(self.decoder.layer_norm(x), self.output).float()
        logits[..., self.suppressed] = -torch.inf
        return logits[0, -1].log_softmax(-1)


def _normal(shape: tuple[int, int], std: float, random: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=random) * std
