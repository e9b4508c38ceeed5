"""The wire formats of servers, and the rule by which each one's text becomes final and guessed.

openai_realtime  Deltas are final; the last word of a delta is final once the next one begins, since
                 it may go on. `completed` is the last word on its item: where it differs, words are
                 taken back. A server that offers `streaming_asr.steps` (ours) tells whole words and
                 its guess, and these are taken instead.
whisper_online   The TCP lines `beg_ms end_ms text` of ufal/whisper_streaming, or SimulStreaming's
                 JSON lines. Every line is final as it comes; nothing is guessed. These servers
                 leave out what they would say after the end of the audio.
simulstream      `new` is shown after what `deleted` took off the end. Nothing says what is final,
                 so all is a guess until the server ends.
"""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import numpy as np

from streaming_asr.corpora.audio import Resampler
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples, revise
from streaming_asr.text.normalise import common_prefix, pieces

CONNECT_S = 10.0
CLOSE_S = 2.0
STEPS = "streaming_asr.steps"
TRANSCRIPTION = "conversation.item.input_audio_transcription."
LINE = re.compile(r"(-?\d+) (-?\d+) ?(.*)")


class Change(NamedTuple):
    """A message's effect: words now final, the guess after them, final words taken back."""

    committed: tuple[str, ...] = ()  # as appended to the text, blanks included
    partial: tuple[str, ...] = ()
    retracted: int = 0


class Wire(Protocol):
    """A connection to a server. All may raise OSError and UserError."""

    def send(self, samples: Samples) -> None:
        """Send audio, (n,) at 16 kHz."""

    def end(self) -> None:
        """Say that no more audio comes."""

    def changes(self) -> Iterator[Change]:
        """Yield what comes, waiting for it, to the end of the server's answer."""

    def close(self) -> None:
        """Close the connection; `changes` ends."""


def apart(text: str) -> str:
    """Return the text with a blank before it, which some servers leave out."""
    return text if not text or text[0].isspace() else f" {text}"


def pcm16(samples: Samples) -> bytes:
    return (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()


def _connected(url: str, **settings: Any) -> tuple[Any, ExitStack]:
    """Return a WebSocket and what closes it."""
    try:
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect
    except ModuleNotFoundError as error:
        raise UserError(
            "method=remote: needs websockets; pip install 'streaming-asr[live]'"
        ) from error
    fixed: dict[str, Any] = {"max_size": None, "compression": None, "ping_timeout": None}
    closing = ExitStack()
    try:
        made = connect(url, open_timeout=CONNECT_S, close_timeout=CLOSE_S, **fixed, **settings)
        return closing.enter_context(made), closing
    except (OSError, InvalidHandshake, TimeoutError) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> UserError:
    return UserError(f"method.url={url}: cannot be reached ({error}); start the server there")


def _messages(connection: Any) -> Iterator[Any]:
    """Yield the messages of a WebSocket as JSON to its end."""
    for message in connection:
        try:
            yield json.loads(message)
        except ValueError as error:
            raise UserError(f"the server sent what is no JSON: {message[:80]!r}") from error


class OpenAIRealtime:
    """See the module's docstring."""

    def __init__(
        self, url: str, language: str | None, served: str | None, rate: int, token: str | None
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection, self._closing = _connected(url, additional_headers=headers)
        self._rate = rate
        self._resampler = None if rate == SAMPLE_RATE else Resampler(rate)
        created = json.loads(self._connection.recv(timeout=CONNECT_S))
        if created.get("type") == "error":
            raise UserError(f"{url}: the server says: {created['error'].get('message')}")
        session = created.get("session") or {}
        self._tells_steps = STEPS in (session.get("extensions") or ())
        transcription = {"model": served, "language": language}
        given: dict[str, Any] = {
            "format": {"type": "audio/pcm", "rate": rate},
            "turn_detection": None,
            "transcription": {k: v for k, v in transcription.items() if v is not None},
        }
        update: dict[str, Any] = {"type": "transcription", "audio": {"input": given}}
        if self._tells_steps:
            update["include"] = [STEPS]
        self._tell("session.update", session=update)
        self._words: list[str] = []  # final ones of the item
        self._open = ""  # a final word that may go on

    def _tell(self, kind: str, **fields: Any) -> None:
        self._connection.send(json.dumps({"type": kind, **fields}))

    def send(self, samples: Samples) -> None:
        if self._resampler is not None:
            samples = self._resampler.of_samples(samples, SAMPLE_RATE)
        self._append(samples)

    def _append(self, samples: Samples) -> None:
        if len(samples):
            audio = base64.b64encode(pcm16(samples)).decode()
            self._tell("input_audio_buffer.append", audio=audio)

    def end(self) -> None:
        if self._resampler is not None:
            self._append(self._resampler.of_frame(None))
        self._tell("input_audio_buffer.commit")

    def changes(self) -> Iterator[Change]:
        for event in _messages(self._connection):
            kind = event.get("type", "")
            if kind == "error" or kind == f"{TRANSCRIPTION}failed":
                raise UserError(f"the server says: {event['error'].get('message')}")
            if kind == STEPS:
                words = pieces(event["delta"])
                retracted = event["retracted"]
                revise(self._words, retracted, words)
                yield Change(words, pieces(event["partial"]), retracted)
            # A server that tells steps sends deltas too: the words would count twice.
            elif kind == f"{TRANSCRIPTION}delta" and not self._tells_steps:
                *whole, self._open = pieces(self._open + event["delta"]) or ("",)
                self._words += whole
                yield Change(tuple(whole), (self._open,) if self._open else ())
            elif kind == f"{TRANSCRIPTION}completed":
                yield self._completed(pieces(event["transcript"]))
                return

    def _completed(self, final: tuple[str, ...]) -> Change:
        mine, theirs = ([word.strip() for word in words] for words in (self._words, final))
        kept = common_prefix(mine, theirs)
        retracted = len(self._words) - kept
        return Change(tuple(map(apart, final[kept:])), (), retracted)

    def close(self) -> None:
        self._closing.close()


class Simulstream:
    """See the module's docstring."""

    def __init__(self, url: str, language: str | None) -> None:
        self._connection, self._closing = _connected(url)
        about = {"sample_rate": SAMPLE_RATE}
        spoken = {} if language is None else {"source_lang": language, "target_lang": language}
        self._connection.send(json.dumps(about | spoken))
        self._shown = ""

    def send(self, samples: Samples) -> None:
        if len(samples):
            self._connection.send(pcm16(samples))

    def end(self) -> None:
        self._connection.send(json.dumps({"end_of_stream": True}))

    def changes(self) -> Iterator[Change]:
        for message in _messages(self._connection):
            if message.get("end_of_processing"):
                yield Change(pieces(self._shown))
                return
            deleted = message.get("deleted", "").strip()
            if deleted and self._shown.rstrip().endswith(deleted):
                self._shown = self._shown.rstrip().removesuffix(deleted).rstrip()
            elif deleted:
                words = pieces(self._shown)
                self._shown = "".join(words[: len(words) - len(deleted.split())])
            self._shown += apart(message.get("new", ""))
            yield Change((), pieces(self._shown))

    def close(self) -> None:
        self._closing.close()


class WhisperOnline:
    """See the module's docstring."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        try:
            self._socket = socket.create_connection(
                (address.hostname, address.port or 43007), timeout=CONNECT_S
            )
        except OSError as error:
            raise _unreachable(url, error) from error
        # The timeout was for connecting; a server may be silent as long as the speaker is.
        self._socket.settimeout(None)

    def send(self, samples: Samples) -> None:
        self._socket.sendall(pcm16(samples))

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def changes(self) -> Iterator[Change]:
        with self._socket.makefile("rb") as lines:
            for line in lines:
                # Packets may be filled up with zeros.
                text = line.decode("utf-8", errors="replace").strip("\0\r\n")
                if not text.strip():
                    continue
                match = LINE.fullmatch(text)
                if text.startswith("{"):
                    said = str(json.loads(text).get("text", ""))
                elif match is not None:
                    said = match[3]
                else:
                    raise UserError(f"the server sent what is no line of its: {text[:80]!r}")
                yield Change(pieces(apart(said)))

    def close(self) -> None:
        self._socket.close()


def check_url(url: str, protocol: str) -> None:
    """Raise UserError for an address that the protocol does not speak to."""
    schemes = ("tcp",) if protocol == "whisper_online" else ("ws", "wss")
    address = urlsplit(url)
    if address.scheme not in schemes or not address.hostname:
        example = "tcp://127.0.0.1:43007" if schemes == ("tcp",) else "ws://127.0.0.1:8000"
        raise UserError(
            f"method.url={url}: {protocol} goes by {' or '.join(schemes)}, as in {example}"
        )
