"""Speaks the Realtime formats of OpenAI and of vLLM over a WebSocket.

Deltas are final; the last word of a delta is final once the next one begins, since it may go on.
The text that ends an item (`completed`, `done`) has the last word on it: where it differs, words
are taken back.

openai  A server that offers `streaming_asr.steps` (ours) sends whole words and its guess, and these
        are taken instead. With `natural` the server finds the turns (`server_vad`), and each item
        that it completes ends one.
vllm    `/v1/realtime` of vLLM, after its public description: `session.update` has only the model,
        a commit begins the transcription and one with `final` ends it; `transcription.delta` and
        `transcription.done` come back. 16 kHz.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from streaming_asr.corpora.audio import Resampler
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples, revise
from streaming_asr.methods.remote.wire import (
    Change,
    apart,
    connected,
    first_message,
    grown,
    messages,
    pcm16,
    read,
    report,
)
from streaming_asr.text.tokens import common_prefix, pieces

STEPS = "streaming_asr.steps"
TRANSCRIPTION = "conversation.item.input_audio_transcription."


class _Steps(msgspec.Struct):
    delta: str
    partial: str
    retracted: Annotated[int, msgspec.Meta(ge=0)]


class _Delta(msgspec.Struct):
    delta: str


class _Done(msgspec.Struct):
    text: str


class _Completed(msgspec.Struct):
    transcript: str


class _Items:
    """A connection whose deltas add up to items."""

    def _connect(self, url: str, token: str | None) -> dict[str, Any]:
        """Connect and return the server's description of the session."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection, self._closing = connected(url, additional_headers=headers)
        self._words: list[str] = []  # final ones of the item
        self._open = ""  # a final word that may go on
        try:
            return first_message(url, self._connection)
        except BaseException:
            self.close()
            raise

    def _tell(self, kind: str, **fields: Any) -> None:
        self._connection.send(json.dumps({"type": kind, **fields}))

    def send(self, samples: Samples) -> None:
        if len(samples):
            audio = base64.b64encode(pcm16(samples)).decode()
            self._tell("input_audio_buffer.append", audio=audio)

    def _grown(self, delta: str) -> Change:
        """Return what a delta changes: all words but the last, which may go on, become final."""
        words, self._open = grown(self._open, delta)
        self._words += words
        return Change(words, pieces(self._open))

    def _completed(self, text: str) -> Change:
        """Return what the text of the whole item changes, and begin the next item.

        Words that differ from the final ones so far, and those after them, are taken back.
        """
        item_words = pieces(text)
        n_same = common_prefix(
            [word.strip() for word in self._words], [word.strip() for word in item_words]
        )
        n_retracted = len(self._words) - n_same
        self._words, self._open = [], ""
        return Change(tuple(map(apart, item_words[n_same:])), (), n_retracted)

    def close(self) -> None:
        self._closing.close()


class VLLMRealtime(_Items):
    """See the module's docstring."""

    def __init__(self, url: str, served: str | None, token: str | None) -> None:
        self._connect(url, token)
        self._tell("session.update", **({} if served is None else {"model": served}))
        self._tell("input_audio_buffer.commit", final=False)

    def end(self) -> None:
        self._tell("input_audio_buffer.commit", final=True)

    def changes(self) -> Iterator[Change]:
        """See `Wire`: deltas, to the end of the only item."""
        for event in messages(self._connection):
            kind = event.get("type", "")
            if kind == "transcription.delta":
                yield self._grown(read(event, _Delta).delta)
            elif kind == "transcription.done":
                yield self._completed(read(event, _Done).text)
                return


class OpenAIRealtime(_Items):
    """See the module's docstring."""

    def __init__(
        self,
        url: str,
        language: str | None,
        served: str | None,
        rate: int,
        token: str | None,
        natural: bool = False,
    ) -> None:
        """Connect and describe the session. See `Remote` for served, rate and token.

        natural: the server finds the turns.
        """
        session = self._connect(url, token).get("session")
        extensions = session.get("extensions") if isinstance(session, dict) else None
        self._natural = natural
        self._resampler = None if rate == SAMPLE_RATE else Resampler(rate)
        self._tells_steps = isinstance(extensions, list) and STEPS in extensions
        transcription = {"model": served, "language": language}
        options: dict[str, Any] = {
            "format": {"type": "audio/pcm", "rate": rate},
            "turn_detection": {"type": "server_vad"} if natural else None,
            "transcription": {k: v for k, v in transcription.items() if v is not None},
        }
        update: dict[str, Any] = {"type": "transcription", "audio": {"input": options}}
        if self._tells_steps:
            update["include"] = [STEPS]
        self._tell("session.update", session=update)

    def send(self, samples: Samples) -> None:
        if self._resampler is not None:
            samples = self._resampler.of_samples(samples, SAMPLE_RATE)
        super().send(samples)

    def end(self) -> None:
        if self._natural:  # the server has committed all words
            self._connection.close()
            return
        if self._resampler is not None:
            super().send(self._resampler.of_frame(None))
        self._tell("input_audio_buffer.commit")

    def changes(self) -> Iterator[Change]:
        """See `Wire`: steps or deltas, to the end of the first item, or with `natural` of all."""
        for event in messages(self._connection):
            kind = event.get("type", "")
            if kind == f"{TRANSCRIPTION}failed":
                raise UserError(report(event))
            if kind == STEPS:
                step = read(event, _Steps)
                words = pieces(step.delta)
                if step.retracted > len(self._words):
                    fault = f"took back {step.retracted} of {len(self._words)} final words"
                    raise UserError(f"the server {fault}")
                revise(self._words, step.retracted, words)
                yield Change(words, pieces(step.partial), step.retracted)
            # A server that sends steps sends deltas too: the words would count twice.
            elif kind == f"{TRANSCRIPTION}delta" and not self._tells_steps:
                yield self._grown(read(event, _Delta).delta)
            elif kind == f"{TRANSCRIPTION}completed":
                change = self._completed(read(event, _Completed).transcript)
                yield change._replace(endpoint=self._natural)
                if not self._natural:
                    return
