"""Holds what all wire formats share: what a message changes, connections, limits, refusals."""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np

from streaming_asr.errors import UserError, parts_of_url
from streaming_asr.method import Samples
from streaming_asr.text.subtitles import PUNCTUATION
from streaming_asr.text.tokens import pieces

CONNECT_S = 10.0
CLOSE_S = 2.0
SEND_S = 10.0  # that a server may leave what is sent unread, once no buffer takes more
MOST_BYTES = 1_000_000  # of a message: an hour of text has a tenth of it
BACK_S = 1.0  # a server's times may overlap by so much
MARKS = frozenset(PUNCTUATION) - {"—"}  # a dash is between two words
T = TypeVar("T")


class Change(NamedTuple):
    """A message's effect: words now final, the guess after them, final words taken back."""

    committed: tuple[str, ...] = ()  # as appended to the text, blanks included
    partial: tuple[str, ...] = ()
    retracted: int = 0
    endpoint: bool = False  # the server reports the turn over and its text final


class Wire(Protocol):
    """A connection to a server. All may raise OSError and UserError.

    `method.protocol=module.Class` takes one of your own, for a server with another protocol.
    `Class(url, language, served, token)` connects: url, served: the settings of the method;
    language: a code, or None; token: that of the environment, or None. `changes` runs in a thread
    of its own. `Deepgram` is an example.
    """

    def send(self, samples: Samples) -> None:
        """Send audio, (n,) at 16 kHz."""

    def end(self) -> None:
        """Send the end of the audio."""

    def changes(self) -> Iterator[Change]:
        """Yield what comes, waiting for it, to the end of the server's answer."""

    def close(self) -> None:
        """Close the connection; `changes` ends."""


def apart(text: str) -> str:
    """Return the text with a blank before it, which some servers leave out. Marks at its start that
    are a word of their own belong to the word before it."""
    is_own = text[:1].isspace() or set(text.partition(" ")[0]) <= MARKS
    return text if is_own else f" {text}"


def grown(last_word: str, text: str) -> tuple[tuple[str, ...], str]:
    """Return the words that `text` completes, where it follows `last_word` and carries its own
    blanks, and the word at its end, which the next text may go on with; a blank where none may."""
    if last_word.isspace() and text[:1].isspace():
        last_word = ""
    words = pieces(last_word + text)
    if (last_word + text)[-1:].isspace():
        return words, " "
    return words[:-1], words[-1] if words else ""


def pcm16(samples: Samples) -> bytes:
    """Return samples in [-1, 1], (n,), as little-endian 16-bit PCM."""
    return (np.clip(samples, -1.0, 1.0) * 32767).round().astype("<i2").tobytes()


def connected(url: str, **settings: Any) -> tuple[Any, ExitStack]:
    """Return a WebSocket, and the stack that closes it. Raises UserError where no server answers.

    settings: further arguments of `websockets.sync.client.connect`.
    """
    try:
        from websockets.exceptions import InvalidHandshake
        from websockets.sync.client import connect
    except ModuleNotFoundError as error:
        raise UserError("method=remote: needs websockets; pip install -e '.[live]'") from error
    settings |= {"max_size": MOST_BYTES, "compression": None, "ping_timeout": None}
    closing = ExitStack()
    try:
        socket = connect(url, open_timeout=CONNECT_S, close_timeout=CLOSE_S, **settings)
        with suppress(OSError):  # a server that refuses has closed it; reading gives the reason
            limit_sending(socket.socket)
        return closing.enter_context(socket), closing
    except (OSError, InvalidHandshake, TimeoutError) as error:
        raise unreachable(url, error) from error


def limit_sending(connection: socket.socket) -> None:
    """Let a send of a blocking socket fail after SEND_S in which the server reads nothing.

    Python's own timeout would also end reading, and a server may be silent for long.
    """
    if sys.platform != "win32":  # where the option has another form
        seconds = struct.pack("ll", int(SEND_S), round(SEND_S % 1 * 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)


def unreachable(url: str, error: Exception) -> UserError:
    """Return the error for an address at which no such server answers."""
    url = url.partition("?")[0]  # settings follow it
    is_other = "HTTP " in str(error)
    remedy = "that is no such server; correct the path" if is_other else "start the server there"
    return UserError(f"method.url={url}: cannot be reached ({error}); {remedy}")


def first_message(url: str, connection: Any) -> dict[str, Any]:
    """Return the message with which a server greets. Raises UserError for none and for an error."""
    from websockets.exceptions import ConnectionClosed

    try:
        message = decoded(connection.recv(timeout=CONNECT_S))
    except TimeoutError as error:
        raise UserError(
            f"method.url={url}: connected, but the server sent nothing within {CONNECT_S:g} s; "
            "is it of this method.protocol?"
        ) from error
    except ConnectionClosed as error:
        raise UserError(f"method.url={url}: closed at once ({error}); see its log") from error
    if is_error(message):
        raise UserError(f"method.url={url}: {report(message)}")
    return message


def messages(connection: Any) -> Iterator[dict[str, Any]]:
    """Yield the messages of a WebSocket to its end. Raises UserError for what is no JSON object,
    and for an error, in the form of any protocol: the server may be of another one."""
    for content in connection:
        if is_error(message := decoded(content)):
            raise UserError(report(message))
        yield message


def is_error(message: dict[str, Any]) -> bool:
    """Return whether a message is a server's error."""
    return str(message.get("type", "error" if "error" in message else "")).lower() == "error"


def decoded(message: str | bytes) -> dict[str, Any]:
    """Return a message as an object. Raises UserError for what is none."""
    try:
        row = msgspec.json.decode(message)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise UserError(f"the server sent what is no JSON object: {message[:80]!r}")
    return row


def read(message: dict[str, Any], kind: type[T]) -> T:
    """Return what is read of a message. Raises UserError where its fields are of other types."""
    try:
        return msgspec.convert(message, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"the server sent {str(message)[:80]!r}: {error}") from error


def report(message: dict[str, Any]) -> str:
    """Return in words the error of a message: a text, or an object with one."""
    error = message.get("error") or message.get("description")
    message_text = error.get("message") if isinstance(error, dict) else error
    return f"the server reports: {message_text}"


class EndTimes:
    """The times that a server gives its final texts, which must not go back."""

    def __init__(self) -> None:
        self.end_s = 0.0

    def advance(self, start_s: float, end_s: float) -> None:
        """Take the times of the next text. Raises UserError where they go back."""
        if start_s < self.end_s - BACK_S or end_s < start_s:
            raise UserError(
                f"the server's times go back: a text from {start_s:g} to {end_s:g} s after one "
                f"that ended at {self.end_s:g} s; its order is unknown"
            )
        self.end_s = max(self.end_s, end_s)


def check_url(url: str, protocol: str) -> None:
    """Raise UserError for an address that the protocol does not speak to."""
    schemes = ("tcp",) if protocol == "whisper_online" else ("ws", "wss")
    address = parts_of_url(url, f"method.url={url}")
    if "." in protocol and address.hostname:  # one's own, which has its own rules
        return
    if address.scheme not in schemes or not address.hostname:
        example = "tcp://127.0.0.1:43007" if schemes == ("tcp",) else "ws://127.0.0.1:8000"
        raise UserError(
            f"method.url={url}: {protocol} goes by {' or '.join(schemes)}, as in {example}"
        )
