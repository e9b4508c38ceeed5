"""U2-Whisper: CTC first pass, attention rescoring."""

from streaming_asr.methods.u2.stream import U2

__all__ = ["U2"]
