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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
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
T = TypeVar("T")


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


def _connected(url: str, greet: Callable[[Any], None], **settings: Any) -> tuple[Any, ExitStack]:
    """Return a WebSocket that was greeted, and what closes it."""
    try:
        from websockets.exceptions import WebSocketException
        from websockets.sync.client import connect
    except ModuleNotFoundError as error:
        raise UserError(
            "method=remote: needs websockets; pip install 'streaming-asr[live]'"
        ) from error
    fixed: dict[str, Any] = {"max_size": None, "compression": None, "ping_timeout": None}
    try:
        with ExitStack() as closing:
            made = connect(url, open_timeout=CONNECT_S, close_timeout=CLOSE_S, **fixed, **settings)
            greet(closing.enter_context(made))
            return made, closing.pop_all()
    except (OSError, WebSocketException) as error:
        raise _unreachable(url, error) from error


def _unreachable(url: str, error: Exception) -> UserError:
    return UserError(f"method.url={url}: cannot be reached ({error}); start the server there")


# What is read of a server's messages; what else they hold is theirs.


class _Failure(msgspec.Struct):
    message: str | None = None


class _Error(msgspec.Struct):
    error: _Failure


class _Steps(msgspec.Struct):
    delta: str
    partial: str
    retracted: Annotated[int, msgspec.Meta(ge=0)]


class _Delta(msgspec.Struct):
    delta: str


class _Completed(msgspec.Struct):
    transcript: str


class _Shown(msgspec.Struct):
    new: str = ""
    deleted: str = ""
    end_of_processing: bool = False


class _Line(msgspec.Struct):
    text: str = ""


def _object(message: str | bytes) -> dict[str, Any]:
    """Return a message as a JSON object. Raises UserError for what is none."""
    try:
        row = msgspec.json.decode(message)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the server sent what is no JSON: {message[:80]!r}") from error
    if not isinstance(row, dict):
        raise UserError(f"the server sent no JSON object: {message[:80]!r}")
    return row


def _read(row: dict[str, Any], kind: type[T]) -> T:
    """Return what is read of a message. Raises UserError where its fields are of other types."""
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"the server sent {str(row)[:80]!r}: {error}") from error


class OpenAIRealtime:
    """See the module's docstring."""

    def __init__(
        self, url: str, language: str | None, served: str | None, rate: int, token: str | None
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._resampler = None if rate == SAMPLE_RATE else Resampler(rate)
        self._words: list[str] = []  # final ones of the item
        self._open = ""  # a final word that may go on
        self._tells_steps = False
        transcription = {"model": served, "language": language}
        given: dict[str, Any] = {
            "format": {"type": "audio/pcm", "rate": rate},
            "turn_detection": None,
            "transcription": {k: v for k, v in transcription.items() if v is not None},
        }
        update: dict[str, Any] = {"type": "transcription", "audio": {"input": given}}

        def greet(connection: Any) -> None:
            self._connection = connection
            created = _object(connection.recv(timeout=CONNECT_S))
            if created.get("type") == "error":
                raise UserError(f"{url}: the server says: {_read(created, _Error).error.message}")
            session = created.get("session")
            extensions = session.get("extensions") if isinstance(session, dict) else None
            if isinstance(extensions, list) and STEPS in extensions:
                self._tells_steps = True
                update["include"] = [STEPS]
            self._tell("session.update", session=update)

        _, self._closing = _connected(url, greet, additional_headers=headers)

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
        for event in map(_object, self._connection):
            kind = event.get("type", "")
            if kind in ("error", f"{TRANSCRIPTION}failed"):
                raise UserError(f"the server says: {_read(event, _Error).error.message}")
            if kind == STEPS:
                step = _read(event, _Steps)
                words = pieces(step.delta)
                if step.retracted > len(self._words):
                    told = f"took back {step.retracted} of {len(self._words)} final words"
                    raise UserError(f"the server {told}")
                revise(self._words, step.retracted, words)
                yield Change(words, pieces(step.partial), step.retracted)
            # A server that tells steps sends deltas too: the words would count twice.
            elif kind == f"{TRANSCRIPTION}delta" and not self._tells_steps:
                *whole, self._open = pieces(self._open + _read(event, _Delta).delta) or ("",)
                self._words += whole
                yield Change(tuple(whole), (self._open,) if self._open else ())
            elif kind == f"{TRANSCRIPTION}completed":
                yield self._completed(pieces(_read(event, _Completed).transcript))
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
        about = {"sample_rate": SAMPLE_RATE}
        spoken = {} if language is None else {"source_lang": language, "target_lang": language}
        self._connection, self._closing = _connected(
            url, lambda connection: connection.send(json.dumps(about | spoken))
        )
        self._shown = ""

    def send(self, samples: Samples) -> None:
        if len(samples):
            self._connection.send(pcm16(samples))

    def end(self) -> None:
        self._connection.send(json.dumps({"end_of_stream": True}))

    def changes(self) -> Iterator[Change]:
        for message in map(_object, self._connection):
            shown = _read(message, _Shown)
            if shown.end_of_processing:
                yield Change(pieces(self._shown))
                return
            deleted = shown.deleted.strip()
            if deleted and self._shown.rstrip().endswith(deleted):
                self._shown = self._shown.rstrip().removesuffix(deleted).rstrip()
            elif deleted:
                words = pieces(self._shown)
                self._shown = "".join(words[: len(words) - len(deleted.split())])
            self._shown += apart(shown.new)
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
                    said = _read(_object(text), _Line).text
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
