"""Reference methods that are not streaming: one-shot and re-encoding."""

from __future__ import annotations


class Offline:
    lookahead_samples = 0

    def __init__(
        self,
        model_path: str,
        device: str = "cpu",
        dtype: str = "float32",
        adapter: str | None = "none",
        beam: int = 0,
        max_tokens: int | None = None,
    ) -> None:
        raise NotImplementedError


class Reencode:
    lookahead_samples = 0

    def __init__(
        self,
        model_path: str,
        device: str = "cpu",
        dtype: str = "float32",
        chunk_s: float = 0.3,
        first_chunk_s: float = 0.6,
        adapter: str | None = "none",
        max_tokens: int | None = None,
    ) -> None:
        raise NotImplementedError
