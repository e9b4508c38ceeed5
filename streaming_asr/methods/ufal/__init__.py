"""Local agreement over a buffer that is transcribed again and again (UFAL whisper_streaming)."""

from streaming_asr.methods.ufal.stream import Ufal

__all__ = ["Ufal"]
