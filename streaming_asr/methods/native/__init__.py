"""Models built for streaming, each with a step loop and a state of its own."""

from streaming_asr.methods.native.build import native

__all__ = ["native"]
