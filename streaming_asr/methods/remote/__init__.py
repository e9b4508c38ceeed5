"""Anybody's server as a method: audio paced by the wall clock goes out, its words come back."""

from streaming_asr.methods.remote.stream import Remote

__all__ = ["Remote"]
