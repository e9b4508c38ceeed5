"""Small files with the key names and layouts of published weights, and a hub that serves them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from loopback_hub import Hub, serving
from pytest import MonkeyPatch

from streaming_asr.config import weights as config_weights
from streaming_asr.files import file_sha256
from streaming_asr.run import obtain
from streaming_asr.whisper.load import load_whisper

WHISPERRT = "MLSpeech/CarelessWhisper-Streaming"
CHUNKFORMER = "khanld/chunkformer-large-en-libri-960h"
CARD = b"---\nlicense: cc-by-nc-4.0\n---\n# Weights\n"


@contextmanager
def only_hub(tmp_path: Path, monkeypatch: MonkeyPatch) -> Iterator[Hub]:
    """A hub, an empty cache, and no token."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for key in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE", "HF_TOKEN"):
        monkeypatch.delenv(key, raising=False)
        monkeypatch.delenv(key.lower(), raising=False)
    monkeypatch.setattr("huggingface_hub.file_download.HTTP_RETRY_WAIT_S", 0, raising=False)
    with serving() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        yield served


def saved(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def checkpoint(folder: Path, **dims: int) -> bytes:
    """A checkpoint of WhisperRT's authors, for the Whisper in a folder."""
    config = load_whisper(folder).config
    torch.manual_seed(0)
    d, state = config.d_model, {}
    for name in ("query", "key", "value", "out"):
        layer = f"model.encoder.blocks.0.attn.{name}"
        state[f"{layer}.lora_layer.lora_A"] = 0.1 * torch.randn(d, 4)
        state[f"{layer}.lora_layer.lora_B"] = 0.1 * torch.randn(4, d)
    state["model.encoder.blocks.0.attn.query.base_layer.weight"] = torch.zeros(d, d)
    sizes = {"n_vocab": config.vocab_size, "n_audio_state": d, "n_mels": config.num_mel_bins}
    return saved({"dims": sizes | dims, "cfg": {"rank": 4, "gran": 15}, "state_dict": state})


def use_toy_detectors(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """Let git fetch toys of width 32, with their hashes, in place of the published detectors."""
    for module in (obtain, config_weights):
        monkeypatch.setattr(module, "detectors_folder", lambda: tmp_path / "detectors/cif_models")
    hashes = dict(obtain.DETECTORS_SHA256)

    def clone(source: str, wanted: object, place: Path, *_: str) -> None:
        (place / "cif_models").mkdir(parents=True)
        for name in hashes:
            file = place / "cif_models" / name
            torch.save({"weight": torch.ones(1, 32), "bias": torch.ones(1)}, file)
            hashes[name] = file_sha256(file)

    monkeypatch.setattr(obtain, "DETECTORS_SHA256", hashes)
    monkeypatch.setattr(obtain, "clone_once", clone)
