"""Speaks the formats of ufal/whisper_streaming, SimulStreaming and simulstream.

whisper_online   The TCP lines `beg_ms end_ms text` of ufal/whisper_streaming, whole words that are
                 final as they come, or SimulStreaming's JSON lines, whose texts carry their own
                 blanks and may end within a word: the last word is held back until the next one
                 begins. Nothing is guessed. These servers leave out the text after the end of the
                 audio.
simulstream      `new`, with its own blanks, is shown after what `deleted` took off the end. Nothing
                 marks what is final, so all is a guess until the server ends.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.methods.remote import wire
from streaming_asr.methods.remote.wire import (
    MOST_BYTES,
    Change,
    EndTimes,
    T,
    apart,
    connected,
    decoded,
    grown,
    messages,
    pcm16,
    read,
    unreachable,
)
from streaming_asr.text.tokens import pieces

LINE = re.compile(r"(-?\d+) (-?\d+) ?(.*)")


class _Shown(msgspec.Struct):
    new: str = ""
    deleted: str = ""
    end_of_processing: bool = False


class _Line(msgspec.Struct):
    text: str = ""
    start: float | None = None
    end: float | None = None


def _read(message: dict[str, Any], kind: type[T]) -> T:
    """Return what is read of a message, in which null is as good as no field."""
    return read({key: value for key, value in message.items() if value is not None}, kind)


class Simulstream:
    """See the module's docstring."""

    def __init__(self, url: str, language: str | None) -> None:
        self._connection, self._closing = connected(url)
        settings: dict[str, Any] = {"sample_rate": SAMPLE_RATE}
        if language is not None:
            settings |= {"source_lang": language, "target_lang": language}
        self._connection.send(json.dumps(settings))
        self._text = ""  # as the server shows it

    def send(self, samples: Samples) -> None:
        if len(samples):
            self._connection.send(pcm16(samples))

    def end(self) -> None:
        self._connection.send(json.dumps({"end_of_stream": True}))

    def changes(self) -> Iterator[Change]:
        """See `Wire`: the whole text as a guess, final when the server ends."""
        for message in messages(self._connection):
            row = _read(message, _Shown)
            if row.end_of_processing:
                yield Change(pieces(self._text))
                return
            new, deleted = row.new if self._text else apart(row.new), row.deleted
            if self._text.endswith(deleted):
                self._text = self._text.removesuffix(deleted)
            elif deleted.strip():  # spelled otherwise than before: as many words are taken off
                words = pieces(self._text)
                self._text = "".join(words[: len(words) - len(deleted.split())])
                new = apart(new)
            self._text += new
            yield Change((), pieces(self._text))

    def close(self) -> None:
        self._closing.close()


class WhisperOnline:
    """See the module's docstring."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        try:
            self._socket = socket.create_connection(
                (address.hostname, address.port or 43007), timeout=wire.CONNECT_S
            )
        except OSError as error:
            raise unreachable(url, error) from error
        # The timeout was for connecting; a server may be silent as long as the speaker is.
        self._socket.settimeout(None)
        wire.limit_sending(self._socket)

    def send(self, samples: Samples) -> None:
        self._socket.sendall(pcm16(samples))

    def end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def changes(self) -> Iterator[Change]:
        """See `Wire`: the final words of each line, of either form."""
        end_times = EndTimes()
        last_word = ""  # which the next JSON line may go on with
        with self._socket.makefile("rb") as lines:
            while line := lines.readline(MOST_BYTES):
                if len(line) == MOST_BYTES:
                    raise UserError(f"the server sent a line of {MOST_BYTES:,} bytes or more")
                # Packets may be filled up with zeros.
                text = line.decode("utf-8", errors="replace").strip("\0\r\n")
                if not text.strip():
                    continue
                match = LINE.fullmatch(text)
                if text.startswith("{"):
                    row = _read(decoded(text), _Line)
                    if row.start is not None and row.end is not None:
                        end_times.advance(row.start, row.end)
                    words, last_word = grown(last_word, row.text)
                elif match is not None:
                    begin_ms, end_ms, transcript = match.groups()
                    end_times.advance(int(begin_ms) / 1000, int(end_ms) / 1000)
                    words, last_word = (*pieces(last_word), *pieces(apart(transcript))), ""
                else:
                    raise UserError(f"the server sent what is no line of its: {text[:80]!r}")
                yield Change(words)
        yield Change(pieces(last_word))

    def close(self) -> None:
        self._socket.close()
