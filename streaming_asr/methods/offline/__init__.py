"""Whole-audio references: `Offline` in one shot, `Reencode` the whole prefix at every chunk."""

from streaming_asr.methods.offline.stream import Offline, Reencode

__all__ = ["Offline", "Reencode"]
