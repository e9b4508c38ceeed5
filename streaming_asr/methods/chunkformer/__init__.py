"""ChunkFormer: a chunked Conformer with CTC, streaming and for recordings of any length."""

from streaming_asr.methods.chunkformer.stream import ChunkFormer

__all__ = ["ChunkFormer"]
