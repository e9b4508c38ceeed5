"""Small files with the key names and layouts of published weights, and a hub that serves them."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
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


# -- The hub --


COMMIT = "c" * 40


@dataclass
class Hub:
    """Repositories by name, each a dictionary of files; what a test makes of them, and a log.

    gated: their files need a token. lies: files whose announced size is so many bytes too large.
    breaks: files whose first answers end after so many bytes, one entry an answer. answer: what a
    mirror answers about a repository in place of the hub's JSON.
    """

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_secret"
    lies: dict[str, int] = field(default_factory=dict)
    breaks: dict[str, list[int]] = field(default_factory=dict)
    answer: str | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def ranges(self, name: str) -> list[str | None]:
        """Return the range that each GET of a file asked for; None for all of it."""
        return [r for method, path, r in self.requests if method == "GET" and path.endswith(name)]


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a hub for the duration of the context."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append((self.command, path, self.headers.get("Range")))
            parts = path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            owner_name, rest = parts[2:4] if is_api else parts[:2], parts[4:] if is_api else parts
            name = "/".join(owner_name)
            if name not in hub.repositories:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            elif is_api and rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
            elif is_api:
                siblings = [{"rfilename": file} for file in hub.repositories[name]]
                content = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}
                text = json.dumps(content) if hub.answer is None else hub.answer
                self._send(text.encode(), body, {"Content-Type": "application/json"})
            else:
                self._file(name, "/".join(parts[4:]), body)

        def _file(self, name: str, file: str, body: bool) -> None:
            if name in hub.gated and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
                return
            content = hub.repositories[name].get(file)
            if content is None:
                self._refuse(404, "EntryNotFound", "Entry not found")
                return
            headers = {
                "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            if file in hub.lies:
                headers["X-Linked-Size"] = str(len(content) + hub.lies[file])
            self._send(content, body, headers, file)

        def _send(
            self, content: bytes, body: bool, headers: dict[str, str], file: str = ""
        ) -> None:
            start, status = 0, 200
            if asked := self.headers.get("Range"):
                start, status = int(asked.removeprefix("bytes=").partition("-")[0]), 206
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if body:
                lengths = hub.breaks.get(file)
                length = lengths.pop(0) if lengths else len(content)
                self.wfile.write(content[start : start + length])
                if start + length < len(content):
                    self.close_connection = True

        def _refuse(self, status: int, code: str, message: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
