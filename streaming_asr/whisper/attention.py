"""Which attention computes: `model.attention=eager|sdpa`, as transformers' attn_implementation.

All passes of this project go through torch's scaled_dot_product_attention, for which torch chooses
a kernel by device, dtype and mask: that is `sdpa`. `eager` is the product written out: torch's
math kernel there, and transformers' own eager layers where a whole module of theirs is called. It
is slower and takes the memory of the whole map; it rules a kernel out where figures look wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch.nn.attention import SDPBackend, sdpa_kernel

_chosen: ContextVar[str | None] = ContextVar("attention", default=None)


@contextmanager
def attention(name: str | None) -> Iterator[None]:
    """Let models loaded and passes run inside attend so; None: as torch and transformers choose.

    name: checked by `config.check_attention`. The kernels are a setting of the whole process.
    """
    if name is None:
        yield
        return
    before = _chosen.set(name)
    try:
        if name == "eager":
            with sdpa_kernel(SDPBackend.MATH):
                yield
        else:
            yield
    finally:
        _chosen.reset(before)


def loading() -> dict[str, Any]:
    """Return what transformers' `from_pretrained` is told beside the model."""
    name = _chosen.get()
    return {} if name is None else {"attn_implementation": name}
