"""The author's package `chunkformer`, where it is installed: the encoder with the same weights.

    pip install --no-deps chunkformer==1.2.2

What the package imports for training and for reading audio (torchaudio and others) need not be
there: empty modules replace it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from streaming_asr.methods.chunkformer.context import SIDE, Context
from streaming_asr.methods.chunkformer.encoder import Network, Shape


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
