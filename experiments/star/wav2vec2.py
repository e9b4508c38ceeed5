"""A wav2vec 2.0 front end made truly causal, as STAR's second feature extractor.

    python -m experiments.star.wav2vec2 train method=star recipe.target.features=wav2vec2 \
        recipe.target.wav2vec2=facebook/wav2vec2-base-960h recipe.target.stage=plain
    python -m experiments.star.wav2vec2 run method=star method.weights=FOLDER

This is `streaming_asr.commands.cli`, which then knows features=wav2vec2.

The paper (and the code) "adds a causal mask" to wav2vec 2.0. So two looks ahead remain: the
positional convolution sees 64 frames of the future, and the group norm of the first convolution is
taken over the whole recording. Here the positional convolution is moved to the past (the same
kernel, no frame to its right) and the group norm's mean and variance are those of all audio
so far. Frames are 20 ms; frame i needs samples 320 i .. 320 i + 400.

Weights are transformers' Wav2Vec2Model, with norms after the layers (base) or before (large). The
feature extractor's own normalisation, over a whole recording, is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.commands.cli import main as streaming_asr_main
from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_SAMPLES
from streaming_asr.methods.star.features import EXTRACTORS
from streaming_asr.whisper.encoder import merge_heads, split_heads
from streaming_asr.whisper.load import Whisper

RECEPTIVE_SAMPLES = 400


class _State:
    """What a window keeps; sums of the cumulative norm outlive it."""

    def __init__(self, network: CausalWav2Vec2) -> None:
        self.held: list[Tensor | None] = [None] * len(network.convolutions)
        self.n, self.sums, self.squares = 0, torch.zeros(0), torch.zeros(0)
        self.frames = torch.zeros(0, network.n_channels)
        """(n, channels): the convolutions' output in this window."""
        self.position = 0
        self.renew(network)

    def renew(self, network: CausalWav2Vec2) -> None:
        """Forget what is of the window."""
        weight = network.model.encoder.layer_norm.weight
        d, heads = weight.shape[0], network.heads
        self.past = weight.new_zeros(network.kernel - 1, d)
        self.keys = [weight.new_empty(heads, 0, d // heads)] * len(network.layers)
        self.values = list(self.keys)


class CausalWav2Vec2(nn.Module):
    """Features (n, d) of wav2vec 2.0 as a stream, projected to the decoder's width."""

    lookahead_samples = RECEPTIVE_SAMPLES - FRAME_SAMPLES

    def __init__(self, model: Any, d_out: int, context_frames: int) -> None:
        super().__init__()
        config = model.config
        product = 1
        for stride in config.conv_stride:
            product *= stride
        if product != FRAME_SAMPLES:
            raise UserError(
                f"this wav2vec 2.0 has frames of {product} samples; only {FRAME_SAMPLES} "
                "(20 ms, as all published ones) fit the rest of the model"
            )
        self.model = model.eval()
        self.model.requires_grad_(True)
        self.context_frames = context_frames
        self.heads: int = config.num_attention_heads
        self.kernel: int = config.num_conv_pos_embeddings
        self.n_channels: int = config.conv_dim[-1]
        self.norm_first: bool = config.do_stable_layer_norm
        self.project = nn.Linear(config.hidden_size, d_out)

    def parts(self) -> dict[str, Tensor]:
        """Return what star.safetensors holds: the projection."""
        return dict(self.project.state_dict(prefix="project."))

    def save(self, folder: Path) -> None:
        """Write the Wav2Vec2Model."""
        self.model.save_pretrained(folder)

    def train_weights(self, trainable: bool) -> None:
        """Let all weights have gradients or none; what masks training audio never has any."""
        self.requires_grad_(trainable)
        if getattr(self.model, "masked_spec_embed", None) is not None:
            self.model.masked_spec_embed.requires_grad_(False)

    @property
    def convolutions(self) -> Any:
        return self.model.feature_extractor.conv_layers

    @property
    def layers(self) -> Any:
        return self.model.encoder.layers

    # ---- the extractor -----------------------------------------------------------------------

    def start(self) -> _State:
        """Return the state of a new stream."""
        return _State(self)

    @torch.inference_mode()
    def take(self, state: _State, samples: Tensor) -> None:
        """(n,) new samples through the convolutions."""
        state.frames = torch.cat([state.frames.to(samples), self._convolve(samples, state)])

    @torch.inference_mode()
    def encode(self, state: _State, ends: Sequence[int]) -> Tensor:
        """Return the frames up to ends[-1] of the window, causal whatever the blocks."""
        new = state.frames[state.position : ends[-1]]
        state.position = ends[-1]
        return self._transform(new, state)

    def move(self, state: _State, start: int) -> None:
        """The window begins at its frame `start`; the norm keeps its sums."""
        state.frames = state.frames[start:]
        state.position = 0
        state.renew(self)

    def flops(self, start: int, ends: Sequence[int]) -> float:
        """Only those of the transformer layers."""
        config, total = self.model.config, 0.0
        for a, b in zip([start, *ends[:-1]], ends, strict=True):
            d, hidden, n = config.hidden_size, config.intermediate_size, b - a
            total += len(self.layers) * (2 * n * (4 * d * d + 2 * d * hidden) + 4 * n * b * d)
        return total

    def windows(self, audio: Sequence[Tensor], ends: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return all frames of each window in one pass, with gradients."""
        return [self._whole(each, e[-1]) for each, e in zip(audio, ends, strict=True)]

    def _whole(self, audio: Tensor, n_frames: int) -> Tensor:
        n_wanted = n_frames * FRAME_SAMPLES + self.lookahead_samples
        audio = F.pad(audio, (0, max(0, n_wanted - audio.shape[0])))[:n_wanted]
        state = _State(self)
        return self._transform(self._convolve(audio, state), state, grow=False)

    # ---- its parts ---------------------------------------------------------------------------

    def _convolve(self, samples: Tensor, state: _State) -> Tensor:
        x = samples[None, None]
        for i, layer in enumerate(self.convolutions):
            conv = layer.conv
            held = state.held[i]
            x = x if held is None else torch.cat([held, x], dim=-1)
            kernel, stride = conv.kernel_size[0], conv.stride[0]
            n_out = max(0, (x.shape[-1] - kernel) // stride + 1)
            state.held[i] = x[..., n_out * stride :].detach()
            if n_out == 0:
                return samples.new_zeros(0, self.n_channels)
            x = conv(x)
            if isinstance(getattr(layer, "layer_norm", None), nn.GroupNorm):
                x = self._cumulative_norm(x, layer.layer_norm, state)
            elif getattr(layer, "layer_norm", None) is not None:
                x = layer.layer_norm(x.transpose(-2, -1)).transpose(-2, -1)
            x = layer.activation(x)
        frames: Tensor = x[0].T
        return frames

    def _cumulative_norm(self, x: Tensor, norm: nn.GroupNorm, state: _State) -> Tensor:
        """Each position of x (1, c, n) by the mean and variance of all positions up to it."""
        double = x.double()
        if state.n == 0:
            state.sums = state.squares = double.new_zeros(1, x.shape[1], 1)
        sums = state.sums + double.cumsum(-1)
        squares = state.squares + double.square().cumsum(-1)
        count = state.n + torch.arange(1, x.shape[-1] + 1, device=x.device)
        mean = sums / count
        variance = (squares / count - mean.square()).clamp(min=0.0)
        state.n += x.shape[-1]
        state.sums, state.squares = sums[..., -1:].detach(), squares[..., -1:].detach()
        y = ((double - mean) * (variance + norm.eps).rsqrt()).to(x.dtype)
        return y * norm.weight[None, :, None] + norm.bias[None, :, None]

    def _transform(self, frames: Tensor, state: _State, grow: bool = True) -> Tensor:
        x = self.model.feature_projection(frames[None])[0][0]
        embed = self.model.encoder.pos_conv_embed
        padded = torch.cat([state.past, x])
        state.past = padded[padded.shape[0] - (self.kernel - 1) :].detach()
        conv = embed.conv
        position = F.conv1d(padded.T[None], conv.weight, conv.bias, groups=conv.groups)
        x = x + embed.activation(position)[0].T
        return self._layers(x, state if grow else None)

    def _layers(self, x: Tensor, state: _State | None) -> Tensor:
        encoder = self.model.encoder
        start = state.keys[0].shape[1] if state is not None and state.keys else 0
        n = x.shape[0]
        index = torch.arange(start + n, device=x.device)
        mask = index[None] <= index[start:, None]
        if not self.norm_first:
            x = encoder.layer_norm(x)
        for i, layer in enumerate(self.layers):
            h = layer.layer_norm(x) if self.norm_first else x
            attention = layer.attention
            q, k, v = (
                split_heads(project(h)[None], self.heads)[0]
                for project in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            if state is not None:
                k = state.keys[i] = torch.cat([state.keys[i], k], dim=1)
                v = state.values[i] = torch.cat([state.values[i], v], dim=1)
            h = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)
            x = x + attention.out_proj(merge_heads(h)[0])
            if self.norm_first:
                x = x + layer.feed_forward(layer.final_layer_norm(x))
            else:
                x = layer.layer_norm(x)
                x = layer.final_layer_norm(x + layer.feed_forward(x))
        if self.norm_first:
            x = encoder.layer_norm(x)
        projected: Tensor = self.project(x)
        return projected


def load_wav2vec2(path: str, whisper: Whisper) -> CausalWav2Vec2:
    """Return a Wav2Vec2Model from a Hugging Face folder or hub name; raises UserError."""
    from transformers import Wav2Vec2Model

    if path.startswith((".", "/", "~")) and not (Path(path).expanduser() / "config.json").is_file():
        raise UserError(
            f"wav2vec2={path}: no folder with a config.json there; give a folder or a hub name "
            "such as facebook/wav2vec2-base-960h"
        )
    try:
        model = Wav2Vec2Model.from_pretrained(str(Path(path).expanduser()))
    except (OSError, ValueError) as error:
        raise UserError(f"wav2vec2={path}: {str(error).splitlines()[0]}") from error
    return CausalWav2Vec2(model, whisper.config.d_model, whisper.context_frames)


EXTRACTORS["wav2vec2"] = load_wav2vec2

if __name__ == "__main__":
    sys.exit(streaming_asr_main())
