"""The hush word of WhisperFlow (Wang, Xu, Lin 2025): a short encoder and a pruned beam search."""

from streaming_asr.methods.hush_word.stream import HushWord

__all__ = ["HushWord"]
