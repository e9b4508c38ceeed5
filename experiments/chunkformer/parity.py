"""Compares this ChunkFormer with its author's package on the same random weights and audio.

    python -m experiments.chunkformer.parity            # prints the differences
    python -m experiments.chunkformer.parity --write    # and writes tests/fixtures/chunkformer.json

It needs `chunkformer==1.2.2` and `kaldi-native-fbank==1.22.5` next to this project's packages, best
in an environment of their own (`pip install --no-deps` is enough). Features are compared with
kaldi-native-fbank, which computes what the package asks of torchaudio.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from streaming_asr.methods.chunkformer.context import SIDE, Context
from streaming_asr.methods.chunkformer.encoder import Network, Shape
from streaming_asr.methods.chunkformer.endless import EndlessCache, advance
from streaming_asr.methods.chunkformer.features import fbank

FIXTURE = Path(__file__).parents[2] / "tests" / "fixtures" / "chunkformer.json"
SHAPE = Shape(d=32, heads=2, layers=4, hidden=64, vocabulary=12)
CONTEXTS = (
    Context(4, 6, 0),
    Context(4, 6, 3),
    Context(8, 16, 16),
    Context(16, 8, 5),
    Context(3, 5, 2),
)
LENGTHS = (500, 15, 231)  # mel frames of the batch
ENDLESS_MEL = 1500
WINDOW_FRAMES = 24
"""Of endless decoding: at most so many, a multiple of the chunk."""
STORED = 101
"""The fixture keeps every so manieth value."""


def delay_frames(context: Context, layers: int) -> int:
    """Frames past a chunk's end that must be known before `advance` gives it out (equation 5).

    A layer's convolution sees up to seven of the right context, its attention all of it, each
    counted from the end of a chunk; equation 5 counts only the attention.
    """
    side = min(context.right, SIDE)
    delay = 0
    for _ in range(layers):
        delay = -(-delay // context.chunk) * context.chunk + side
        delay = -(-delay // context.chunk) * context.chunk + context.right
    return delay


def network(seed: int = 0) -> Network:
    """Random weights, drawn by numpy so that they stay the same in all versions of torch."""
    random = np.random.default_rng(seed)
    theirs = Network(SHAPE)
    with torch.no_grad():
        for name, weight in sorted(theirs.named_parameters()):
            scale = weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.2
            drawn = torch.from_numpy(random.standard_normal(tuple(weight.shape)) * scale).float()
            weight.copy_(drawn + 1 if "norm" in name and name.endswith("weight") else drawn)
        theirs.encoder.global_cmvn.mean += 14
        theirs.encoder.global_cmvn.istd *= 0.2
    return theirs.eval().requires_grad_(False)


def audio() -> np.ndarray:
    """A second of white noise, (16000,)."""
    return np.random.default_rng(1).uniform(-0.5, 0.5, 16_000).astype(np.float32)


def mels() -> list[Tensor]:
    random = np.random.default_rng(2)
    return [
        torch.from_numpy(random.normal(14, 5, (n, SHAPE.n_mels)).astype(np.float32))
        for n in (*LENGTHS, ENDLESS_MEL)
    ]


# -- ours -------------------------------------------------------------------------------------


@torch.inference_mode()
def our_batch(theirs: Network, context: Context) -> Tensor:
    """Encoded frames of the whole batch, joined."""
    return torch.cat(theirs.encoder(theirs.encoder.subsample(mels()[:-1]), context))


@torch.inference_mode()
def our_endless(theirs: Network, context: Context) -> Tensor:
    encoder = theirs.encoder
    (frames,) = encoder.subsample(mels()[-1:])
    cache, positions = EndlessCache.empty(encoder), encoder.positions(context)
    parts = frames.split(WINDOW_FRAMES)
    return torch.cat(
        [
            advance(encoder, context, positions, [cache], [part], [i == len(parts) - 1])[0]
            for i, part in enumerate(parts)
        ]
    )


# -- theirs -----------------------------------------------------------------------------------


class _Absent(MetaPathFinder, Loader):
    """Replaces packages that are not installed by names without content."""

    NAMES = (
        *("torchaudio", "pydub", "librosa", "sentencepiece", "langid", "textgrid"),
        *("pandas", "colorama", "deepspeed", "tensorboard", "tensorboardX"),
    )

    class _Module(ModuleType):
        __path__: list[str] = []  # noqa: RUF012

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {})

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.split(".")[0] in self.NAMES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def author_encoder(network: Network) -> Any:
    """The package's encoder with the weights of `network`, whose names must be the same."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.append(_Absent())
    from chunkformer.modules.cmvn import GlobalCMVN  # type: ignore[import-not-found]
    from chunkformer.modules.encoder import ChunkFormerEncoder  # type: ignore[import-not-found]

    shape, cmvn = network.shape, network.encoder.global_cmvn
    encoder = ChunkFormerEncoder(
        shape.n_mels,
        shape.d,
        shape.heads,
        shape.hidden,
        shape.layers,
        cnn_module_norm="layer_norm",
        dynamic_conv=True,
        global_cmvn=GlobalCMVN(cmvn.mean, cmvn.istd),
    )
    encoder.load_state_dict(network.encoder.state_dict())
    return encoder.eval()


def no_caches(shape: Shape, context: Context) -> dict[str, Tensor]:
    """The caches of a recording's begin, as the package takes them."""
    width = 2 * shape.d // shape.heads
    return {
        "att_cache": torch.zeros(shape.layers, context.left, shape.heads, width),
        "cnn_cache": torch.zeros(shape.layers, shape.d, SIDE),
    }


@torch.inference_mode()
def author_batch(
    encoder: Any, shape: Shape, mels: Sequence[Tensor], context: Context
) -> list[Tensor]:
    """The package's masked batch: mel frames of each audio -> its encoded frames, (n_i, d)."""
    chunks, lengths, n_chunks, *_ = encoder.forward_parallel_chunk(
        list(mels),
        torch.tensor([len(mel) for mel in mels]),
        context.chunk,
        context.left,
        context.right,
        truncated_context_size=0,
        offset=torch.zeros(len(mels), dtype=torch.long),
        **no_caches(shape, context),
    )
    per_audio = zip(chunks.split(n_chunks), lengths.tolist(), strict=True)
    return [part.flatten(0, 1)[:n] for part, n in per_audio]


def their_batch(encoder: Any, context: Context) -> Tensor:
    return torch.cat(author_batch(encoder, SHAPE, mels()[:-1], context))


def their_future(context: Context) -> int:
    """Frames past a window that the package computes: equation 5, at least 7 a layer."""
    side = max(context.right, 7)
    return side + max(context.chunk, side) * (SHAPE.layers - 1)


@torch.inference_mode()
def their_endless(encoder: Any, context: Context, future: int) -> Tensor:
    """Windows with caches, `future` frames past each recomputed."""
    mel = mels()[-1]
    c = context.chunk
    n_samples = WINDOW_FRAMES // c * c
    caches, offset, parts = no_caches(SHAPE, context), torch.zeros(1, dtype=torch.long), []
    for start in range(0, len(mel), n_samples * 8):
        window = mel[start : start + n_samples * 8 + 7 + 8 * future]
        chunks, lengths, _, att_cache, cnn_cache, offset = encoder.forward_parallel_chunk(
            [window],
            torch.tensor([len(window)]),
            c,
            context.left,
            context.right,
            truncated_context_size=n_samples,
            offset=offset,
            **caches,
        )
        last = start + n_samples * 8 + 8 * future >= len(mel)
        parts.append(chunks.flatten(0, 1)[: int(lengths[0]) if last else n_samples])
        if last:
            break
        caches = {"att_cache": att_cache, "cnn_cache": cnn_cache}
    return torch.cat(parts)


def their_features() -> np.ndarray:
    import kaldi_native_fbank  # type: ignore[import-not-found]

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0.0
    options.mel_opts.num_bins = SHAPE.n_mels
    options.energy_floor = 0.0
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(16_000, (audio() * 32768).tolist())
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])


# -- the program ------------------------------------------------------------------------------


def main() -> int:
    """Prints the comparison; returns 1 where a difference is above 1e-4, 2 without the package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the fixture of the tests")
    arguments = parser.parse_args()
    for name in ("chunkformer", "kaldi_native_fbank"):
        if importlib.util.find_spec(name) is None:
            print(f"error: {name} is not installed; see the head of {__file__}", file=sys.stderr)
            return 2
    theirs = network()
    encoder = author_encoder(theirs)
    features = their_features()
    worst_features = float(np.abs(features - fbank(torch.from_numpy(audio())).numpy()).max())
    worst = worst_features
    print("| context c, l, r | masked batch | endless, all it depends on | endless, equation 5 |")
    print("| --- | ---: | ---: | ---: |")
    fixture: dict[str, Any] = {"features": _some(torch.from_numpy(features)), "encoded": []}
    for context in CONTEXTS:
        ours = our_batch(theirs, context), our_endless(theirs, context)
        batch = their_batch(encoder, context)
        endless = their_endless(encoder, context, delay_frames(context, SHAPE.layers))
        paper = their_endless(encoder, context, their_future(context))
        differences = [
            float((a - b).abs().max())
            for a, b in zip((ours[0], ours[1], ours[1]), (batch, endless, paper), strict=True)
        ]
        worst = max(worst, *differences[:2])
        name = f"{context.chunk}, {context.left}, {context.right}"
        print(f"| {name} | " + " | ".join(f"{d:.1e}" for d in differences) + " |")
        fixture["encoded"].append(
            {
                "context": [context.chunk, context.left, context.right],
                "batch": _some(batch),
                "endless": _some(endless),
            }
        )
    print(f"features of white noise: {worst_features:.1e}")
    if arguments.write:
        FIXTURE.write_text(json.dumps(fixture) + "\n", encoding="utf-8")
        print(f"written: {FIXTURE}")
    return int(worst > 1e-4)


def _some(values: Tensor) -> list[float]:
    return [round(float(v), 5) for v in values.flatten()[::STORED]]


if __name__ == "__main__":
    sys.exit(main())
