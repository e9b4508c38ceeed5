"""STAR: streaming transduction with anchor compression."""

from streaming_asr.methods.star.stream import Star

__all__ = ["Star"]
