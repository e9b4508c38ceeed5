"""WhisperRT (arXiv 2508.12301): block-causal encoder, time-synchronous decoding."""

from __future__ import annotations


class WhisperRT:
    lookahead_samples = 200

    def __init__(
        self,
        model_path: str,
        device: str = "cpu",
        dtype: str = "float32",
        chunk_s: float = 0.3,
        first_chunk_s: float = 0.6,
        adapter: str | None = "auto",
        beam: int = 0,
        n: int = 2,
        commit: str = "stable",
        decoder_cache: bool = False,
        max_tokens_per_chunk: int | None = None,
        ban_first_eot: bool = False,
        word_times: str = "emission",
    ) -> None:
        raise NotImplementedError
