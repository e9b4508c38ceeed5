"""Speaks the formats of ufal/whisper_streaming, SimulStreaming and simulstream.

whisper_online   The TCP lines `beg_ms end_ms text` of ufal/whisper_streaming, or SimulStreaming's
                 JSON lines. Every line is final as it comes; nothing is guessed. These servers
                 leave out the text after the end of the audio.
simulstream      `new` is shown after what `deleted` took off the end. Nothing marks what is final,
                 so all is a guess until the server ends.
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
    apart,
    connected,
    decoded,
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
            row = read(message, _Shown)
            if row.end_of_processing:
                yield Change(pieces(self._text))
                return
            deleted = row.deleted.strip()
            if deleted and self._text.rstrip().endswith(deleted):
                self._text = self._text.rstrip().removesuffix(deleted).rstrip()
            elif deleted:
                # Spelled otherwise than before: as many words are taken off.
                words = pieces(self._text)
                self._text = "".join(words[: len(words) - len(deleted.split())])
            self._text += apart(row.new)
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
                    row = decoded(text)
                    transcript = str(row.get("text", ""))
                    if "start" in row and "end" in row:
                        end_times.advance(float(row["start"]), float(row["end"]))
                elif match is not None:
                    begin_ms, end_ms, transcript = match.groups()
                    end_times.advance(int(begin_ms) / 1000, int(end_ms) / 1000)
                else:
                    raise UserError(f"the server sent what is no line of its: {text[:80]!r}")
                yield Change(pieces(apart(transcript)))

    def close(self) -> None:
        self._socket.close()
