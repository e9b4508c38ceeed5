"""A recording by POST, as OpenAI's /v1/audio/transcriptions takes it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import tempfile
import threading
import zlib
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.background import BackgroundTask
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Message, Receive

from streaming_asr.corpora import audio, headers, media
from streaming_asr.corpora.audio import Reader
from streaming_asr.corpora.decoder import apart
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.live.cells import LiveCell, timed_words
from streaming_asr.live.streams import LiveStep
from streaming_asr.method import SAMPLE_RATE, Samples, Word, display_text
from streaming_asr.serve.service import Refused, Service
from streaming_asr.serve.settings import ServerSettings
from streaming_asr.text.spoken import whole_words
from streaming_asr.text.subtitles import Segment, cues, srt, vtt

FORMS = "json", "text", "srt", "vtt", "verbose_json"
GRANULARITIES = re.compile(r"timestamp_granularities(\[\d*\])?")  # clients spell it in all ways
SUPPORTED = frozenset(
    {"file", "model", "language", "response_format", "stream", "temperature", "prompt"}
)
ENVELOPE_BYTES = 10_000  # of a form, around its recording

T = TypeVar("T")

_decoding = threading.Lock()


@dataclass(frozen=True)
class _FormOptions:
    """The options of a form."""

    file: UploadFile
    method: str
    language: str | None
    prompt: str | None
    form: str  # of the answer: one of FORMS, or `stream`
    granularities: frozenset[str]  # of `verbose_json`: segment, word


class _Upload:
    """A recording that is being transcribed; it counts as a session. `texts`: committed text, an
    entry for each step with any, and None at the end."""

    def __init__(self, service: Service) -> None:
        """Raises Refused where the service takes no more sessions."""
        self.id = service.admit()
        self.cell: LiveCell | None = None
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()

    def begin(self, service: Service, samples: Samples, options: _FormOptions) -> LiveCell:
        """Start to transcribe the samples, (n,) at 16 kHz."""
        self.cell = service.open(
            self.id, options.method, self.id, language=options.language, prompt=options.prompt,
            grows=False, on_step=self._step, on_end=self._end,
        )  # fmt: skip
        self.cell.stream.feed(samples)
        self.cell.stream.end()
        return self.cell

    def _step(self, _: LiveCell, live_step: LiveStep) -> None:
        """Add the text that a step has committed to `texts`."""
        if live_step.text:
            self.texts.put_nowait(live_step.text)

    def _end(self, cell: LiveCell) -> None:
        with suppress(UserError):  # a full disk ends the logging, not the answer
            cell.write()
        self.texts.put_nowait(None)

    async def leave(self, service: Service) -> None:
        service.leave(self.id)
        if self.cell is not None:
            self.cell.stream.abandon()


async def transcribe(service: Service, request: Request) -> Response:
    """Answer a multipart form with a recording, `file`, and OpenAI's fields `model`, `language`,
    `response_format` (one of FORMS), `timestamp_granularities[]` (segment, word), `temperature`
    (0), `prompt` and `stream`. Raises Refused.

    The session begins when the form has come completely, and ends when the client leaves.
    """
    receive = _limited(request, service.settings)
    # With its app in the scope, starlette would answer a bad form itself, in another format.
    scope = {key: value for key, value in request.scope.items() if key != "app"}
    try:
        async with Request(scope, receive).form(max_files=1) as form:
            options = _options(service, form)
            upload = _Upload(service)
            try:
                work = _transcribed(service, upload, options)
                response = await _unless_left(request.receive, work)
            except BaseException:
                await upload.leave(service)
                raise
    except MultiPartException as error:
        raise Refused("invalid_form", error.message) from error
    except ClientDisconnect as error:
        raise Refused("client_left", "the client left before its recording", 499) from error
    response.background = BackgroundTask(upload.leave, service)
    return response


def _limited(request: Request, settings: ServerSettings) -> Receive:
    """Return an ASGI `receive` for the body that raises Refused where it has over `max_file_bytes`
    (with the form around the recording), or where no piece of it comes for `idle_s`."""
    most = settings.max_file_bytes
    n_received = 0

    def check(n_bytes: int) -> None:
        if n_bytes > most + ENVELOPE_BYTES:
            reason = f"more than {most} bytes; send a shorter recording"
            raise Refused("file_too_large", reason, 413)

    async def receive() -> Message:
        """Return the next message of the request."""
        nonlocal n_received
        try:
            message = await asyncio.wait_for(request.receive(), settings.idle_s)
        except TimeoutError as error:
            reason = f"nothing came for {settings.idle_s:g} s; send the recording again"
            raise Refused("no_body", reason, 408) from error
        n_received += len(message.get("body", b""))
        check(n_received)
        return message

    check(int(request.headers.get("content-length") or 0))
    return receive


def _options(service: Service, form: FormData) -> _FormOptions:
    """Return the options of a form. Raises Refused for a wrong value, and for a field that is not
    supported."""
    file = form.get("file")
    try:
        if not isinstance(file, UploadFile):
            raise UserError("file: none; send a recording as `file`, with a file name")
        texts = [(key, text) for key, text in form.multi_items() if isinstance(text, str) and text]
        fields = dict(texts)
        granularities = [text for key, text in texts if GRANULARITIES.fullmatch(key)]
        for key in fields:
            if key not in SUPPORTED and not GRANULARITIES.fullmatch(key):
                raise UserError(f"{key[:100]}: is not supported here; leave it out")
        response_format = fields.get("response_format", "json")
        stream = fields.get("stream", "false").lower()
        check_one_of(FORMS, response_format=response_format)
        check_one_of(("true", "false", "1", "0"), stream=stream)
        _check_temperature(fields.get("temperature", "0"))
        for granularity in granularities:
            check_one_of(("segment", "word"), timestamp_granularities=granularity)
        if granularities and response_format != "verbose_json":
            raise UserError("timestamp_granularities: needs response_format=verbose_json")
        is_stream = stream in ("true", "1")
        if is_stream and response_format not in ("json", "text"):
            raise UserError("stream=true: comes as json; leave response_format out")
    except UserError as error:
        raise Refused("invalid_form", str(error)) from error
    methods = service.chosen(fields.get("model"))[:1]
    return _FormOptions(
        file=file,
        method=methods[0],
        language=service.language(methods, fields.get("language")),
        prompt=service.prompt("prompt", methods, fields.get("prompt")),
        form="stream" if is_stream else response_format,
        granularities=frozenset(granularities or ["segment"]),
    )


def _check_temperature(text: str) -> None:
    """Raise UserError for a temperature other than 0: no method samples."""
    try:
        is_zero = float(text) == 0
    except ValueError:
        is_zero = False
    if not is_zero:
        raise UserError(f"temperature={text[:100]}: only 0 is supported; leave it out")


async def _unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it and raise Refused where the client leaves first."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    answer, departure = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({answer, departure}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refused("client_left", "the client left before its text", 499)
        return answer.result()
    finally:
        answer.cancel()
        departure.cancel()


async def _transcribed(service: Service, upload: _Upload, options: _FormOptions) -> Response:
    """Decode and transcribe a recording, and return the answer: at its end, or for a stream as soon
    as there is text. Raises Refused for a bad recording, and where the method fails."""
    most_s = service.settings.max_session_s
    samples, remarks = await asyncio.to_thread(_decoded, options.file, most_s)
    warnings = {"warnings": remarks} if remarks else {}  # this server's own field
    cell = upload.begin(service, samples, options)
    delta = await upload.texts.get()
    while delta is not None and options.form != "stream":
        delta = await upload.texts.get()
    # A stream that fails before its first text also gets an HTTP error.
    if delta is None and cell.log.error is not None:
        raise Refused("failed", cell.log.error, 500)
    if options.form == "stream":
        return StreamingResponse(
            _streamed(upload, cell, delta, warnings), media_type="text/event-stream"
        )
    text = display_text(cell.committed)
    if options.form == "json":
        return JSONResponse({"text": text, **warnings})
    if options.form == "text":
        return PlainTextResponse(text)
    words = timed_words(cell.log)
    subtitles = await asyncio.to_thread(cues, words)
    if options.form in ("srt", "vtt"):
        return PlainTextResponse(srt(subtitles) if options.form == "srt" else vtt(subtitles))
    answer: dict[str, Any] = {
        "task": "transcribe",
        "language": cell.language or cell.default_language,
        "duration": round(cell.log.duration_s, 3),
        "text": text,
        **warnings,
    }
    if "segment" in options.granularities:
        answer["segments"] = _segments(subtitles, answer["duration"])
    if "word" in options.granularities:
        answer["words"] = _words(whole_words(words))
    return JSONResponse(answer)


def _segments(subtitles: Sequence[Segment], duration_s: float) -> list[dict[str, Any]]:
    """Return cues in the form of OpenAI's segments, which end with the recording at the latest.

    Whisper's own figures, which a streaming method does not have, are 0 or empty: clients with
    types need the fields.
    """
    return [
        {
            "id": i,
            "start": round(cue.start, 3),
            "end": round(min(cue.end, duration_s), 3),
            "text": cue.text,
            "seek": 0,
            "tokens": [],
            "temperature": 0.0,
            "avg_logprob": 0.0,
            "compression_ratio": _compression_ratio(cue.text),
            "no_speech_prob": 0.0,
        }
        for i, cue in enumerate(subtitles)
    ]


def _compression_ratio(text: str) -> float:
    """Return Whisper's measure of repetition: the size of a text in bytes of UTF-8, divided by its
    size when compressed by zlib."""
    encoded = text.encode()
    return round(len(encoded) / len(zlib.compress(encoded)), 3)


def _words(words: Sequence[Word]) -> list[dict[str, Any]]:
    return [{"word": word.text.strip(), "start": word.start, "end": word.end} for word in words]


async def _streamed(
    upload: _Upload, cell: LiveCell, delta: str | None, warnings: dict[str, list[str]]
) -> AsyncIterator[str]:
    """Yield the server-sent events of a stream. delta: its first text, taken already."""
    while delta is not None:
        yield _event({"type": "transcript.text.delta", "delta": delta})
        delta = await upload.texts.get()
    if cell.log.error is not None:
        yield _event({"error": Refused("failed", cell.log.error, 500).body})
    else:
        text = display_text(cell.committed)
        yield _event({"type": "transcript.text.done", "text": text, **warnings})


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _decoded(file: UploadFile, most_s: int) -> tuple[Samples, list[str]]:
    """Return the samples of an uploaded recording, (n,) at 16 kHz, and the remarks about it. Raises
    Refused where it cannot be decoded, is empty, or lasts over `most_s` seconds (later audio is not
    decoded)."""
    name = (file.filename or "file")[:100]
    max_samples = most_s * SAMPLE_RATE
    # The content decides the format, not the name. One process decodes for all clients.
    with tempfile.NamedTemporaryFile() as copy, _decoding, _remarks(copy.name, name) as remarks:
        while piece := file.file.read(2**20):
            copy.write(piece)
        copy.flush()
        try:
            # The header may state a wrong duration, so the samples are counted, too.
            is_short = next(apart("audio:duration_s", copy.name)) <= most_s
            reader = Reader(copy.name, is_apart=True)
            samples = reader.read(max_samples + 1) if is_short else None
            if samples is None or len(samples) > max_samples:
                reason = f"more than {most_s} s of audio; send a shorter recording"
                raise Refused("audio_too_long", reason, 413)
            return samples, remarks
        except UserError as error:
            raise Refused("invalid_audio", str(error).replace(copy.name, name)) from error


@contextmanager
def _remarks(path: str, name: str) -> Iterator[list[str]]:
    """Put `name` in place of `path` into what the readers log, and collect it."""
    remarks: list[str] = []

    def rename(record: logging.LogRecord) -> bool:
        if path in (message := record.getMessage()):
            record.msg, record.args = message.replace(path, name), ()
            remarks.append(record.msg)
        return True

    for module in (audio, headers, media):
        module.log.addFilter(rename)
    try:
        yield remarks
    finally:
        for module in (audio, headers, media):
            module.log.removeFilter(rename)
