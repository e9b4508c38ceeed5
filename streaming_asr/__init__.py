"""Compares methods of streaming speech recognition on equal terms."""

from __future__ import annotations

from typing import Any

__version__ = "0.2.0"
__all__ = ["load_method", "stream"]


def __getattr__(name: str) -> Any:
    """Return what programs use, imported when it is asked for: it brings the configuration in."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("streaming_asr.streaming"), name)
