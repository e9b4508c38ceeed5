"""Wires for servers whose protocols `method=remote` does not have.

`method=remote method.protocol=experiments.others.servers.WhisperLive`; README.md starts them.
Neither server answers to the end of the audio: silence follows it, and the text is over once the
server has sent nothing new for `QUIET_S`.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.methods.remote.wire import Change, apart, connected, messages, pcm16, read
from streaming_asr.text.tokens import pieces

QUIET_S = 10.0
SILENCE = np.zeros(SAMPLE_RATE // 10, np.float32)


class _Server:
    """A `Wire` that closes once the server is quiet."""

    def __init__(self, url: str, language: str | None, served: str | None, token: str | None):
        self._connection, self._closing = connected(url)
        self._last_s = time.monotonic()  # of new text, by the clock

    def _packed(self, samples: Samples) -> bytes:
        raise NotImplementedError

    def send(self, samples: Samples) -> None:
        if len(samples):
            self._connection.send(self._packed(samples))

    def end(self) -> None:
        self._last_s = time.monotonic()
        threading.Thread(target=self._fade, daemon=True).start()

    def _fade(self) -> None:
        try:
            while time.monotonic() - self._last_s < QUIET_S:
                self.send(SILENCE)
                time.sleep(len(SILENCE) / SAMPLE_RATE)
            self._connection.close()
        except Exception:  # the stream is closed already, and its reader has the reason
            return

    def changes(self) -> Iterator[Change]:
        guess: tuple[str, ...] = ()
        for message in messages(self._connection):
            change = self._change(message)
            if change is None:
                continue
            if change.committed or change.partial != guess:
                self._last_s = time.monotonic()
                guess = change.partial
                yield change
        yield Change(guess)  # what the server never marked as final

    def _change(self, message: dict[str, Any]) -> Change | None:
        raise NotImplementedError

    def close(self) -> None:
        self._closing.close()


class WhisperLive(_Server):
    """collabora/WhisperLive: float32 samples in, the last segments out."""

    def __init__(self, url: str, language: str | None, served: str | None, token: str | None):
        super().__init__(url, language, served, token)
        hello = {
            "uid": str(uuid.uuid4()),
            "language": language,
            "task": "transcribe",
            "model": served,
            "use_vad": True,
        }
        self._connection.send(json.dumps(hello))
        self._final_s = 0.0  # the end of the last segment that is final
        for message in messages(self._connection):  # while it loads
            if message.get("status") in ("WAIT", "ERROR"):
                raise UserError(f"the server reports: {message.get('message')}")
            if message.get("message") == "SERVER_READY":
                return
        raise UserError("the server closed the connection before it was ready; see its log")

    def _packed(self, samples: Samples) -> bytes:
        return samples.astype("<f4").tobytes()

    def _change(self, message: dict[str, Any]) -> Change | None:
        if "segments" not in message:
            return None
        final, guess = "", ""
        for segment in read(message["segments"], list[dict[str, Any]]):
            text = apart(str(segment.get("text", "")).strip())
            if not segment.get("completed"):
                guess += text
            elif float(segment["start"]) >= self._final_s - 0.01:  # it sends the last ten again
                final += text
                self._final_s = float(segment["end"])
        return Change(pieces(final), pieces(guess))


class RealtimeSTT(_Server):
    """KoljaB/RealtimeSTT's stt-server, its data port: 16-bit samples in, sentences out."""

    def _packed(self, samples: Samples) -> bytes:
        head = json.dumps({"sampleRate": SAMPLE_RATE}).encode()
        return len(head).to_bytes(4, "little") + head + pcm16(samples)

    def _change(self, message: dict[str, Any]) -> Change | None:
        text = pieces(apart(str(message.get("text", "")).strip()))
        if message.get("type") == "fullSentence":
            return Change(text)
        return Change((), text) if message.get("type") == "realtime" else None
