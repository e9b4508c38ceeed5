"""WhisperRT: a causal Whisper (arXiv 2508.12301)."""

from streaming_asr.methods.whisperrt.stream import WhisperRT

__all__ = ["WhisperRT"]
