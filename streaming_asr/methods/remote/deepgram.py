"""Speaks Deepgram's live format, which WhisperLiveKit and others serve too, over a WebSocket.

`Results` with `is_final` are final and the others a guess; a guess that comes late, for audio whose
text is final, is passed over. `speech_final` and `UtteranceEnd` end a turn. Settings of the server
are in its address: `ws://127.0.0.1:8000/v1/listen?endpointing=300`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.methods.remote.wire import (
    Change,
    EndTimes,
    apart,
    connected,
    messages,
    pcm16,
)
from streaming_asr.text.tokens import pieces

ROUNDING_S = 0.01  # of times on the wire


class Deepgram:
    """See the module's docstring."""

    def __init__(
        self, url: str, language: str | None, served: str | None, token: str | None
    ) -> None:
        """Connect. served: the model to ask for. token: the key for the server, if it has one."""
        address = urlsplit(url)
        query: dict[str, Any] = {
            "encoding": "linear16",
            "sample_rate": SAMPLE_RATE,
            "interim_results": "true",
        }
        if language is not None:
            query["language"] = language
        if served is not None:
            query["model"] = served
        query |= parse_qsl(address.query)  # settings in the address come first
        headers = {} if token is None else {"Authorization": f"Token {token}"}
        url = address._replace(query=urlencode(query)).geturl()
        self._connection, self._closing = connected(url, additional_headers=headers)
        self._end_times = EndTimes()
        self._has_words = False  # since the last turn's end

    def send(self, samples: Samples) -> None:
        if len(samples):
            self._connection.send(pcm16(samples))

    def end(self) -> None:
        self._connection.send(json.dumps({"type": "CloseStream"}))

    def changes(self) -> Iterator[Change]:
        """See `Wire`: results, and the ends of turns that have words."""
        for message in messages(self._connection):
            kind = message.get("type")
            if kind == "UtteranceEnd" and self._has_words:
                self._has_words = False
                yield Change(endpoint=True)
            elif kind == "Results":
                change = self._result(message)
                if change is not None:
                    yield change

    def _result(self, message: dict[str, Any]) -> Change | None:
        """Return what a result changes, None for a guess at audio whose text is final.

        Raises UserError where the times of final texts go back.
        """
        words = pieces(apart(message["channel"]["alternatives"][0]["transcript"] or ""))
        start_s = float(message["start"])
        end_s = start_s + float(message["duration"])
        if not message.get("is_final"):
            final_s = self._end_times.end_s
            is_late = start_s < final_s - ROUNDING_S and end_s <= final_s + ROUNDING_S
            return None if is_late else Change((), words)
        if words:
            self._end_times.advance(start_s, end_s)
            self._has_words = True
        # A turn without words is none.
        is_over = bool(message.get("speech_final")) and self._has_words
        if is_over:
            self._has_words = False
        return Change(words, endpoint=is_over)

    def close(self) -> None:
        self._closing.close()
