"""Simul-Whisper: an offline Whisper that stops where its cross-attention nears the audio's end."""

from streaming_asr.methods.simul_whisper.stream import SimulWhisper

__all__ = ["SimulWhisper"]
