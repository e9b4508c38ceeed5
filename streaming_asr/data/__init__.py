"""Utterances, manifests and corpora. Nothing here imports torch."""

from streaming_asr.data.audio import load_audio
from streaming_asr.data.corpora import Corpus, Folder, Manifest, Mini
from streaming_asr.data.manifest import read_manifest
from streaming_asr.utterance import TimedWord, Utterance

__all__ = [
    "Corpus",
    "Folder",
    "Manifest",
    "Mini",
    "TimedWord",
    "Utterance",
    "load_audio",
    "read_manifest",
]
