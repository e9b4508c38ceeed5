"""A recording by POST, as OpenAI's /v1/audio/transcriptions takes it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.background import BackgroundTask
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Message, Receive

from streaming_asr.corpora.audio import Reader, duration_s
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.live.cells import Cell, timed_words
from streaming_asr.method import SAMPLE_RATE, Samples, display_text
from streaming_asr.serve.service import Refused, Service
from streaming_asr.serve.settings import Settings
from streaming_asr.text.spoken import whole_words

GRANULARITIES = "timestamp_granularities[]"
HONOURED = "file", "model", "language", "response_format", "stream", GRANULARITIES
ENVELOPE_BYTES = 10_000  # of a form, around its recording

T = TypeVar("T")


class _Upload:
    """A recording that is being transcribed; it counts as a session."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.cell: Cell | None = None
        self.texts: asyncio.Queue[str | None] = asyncio.Queue()  # ends with None

    def close(self) -> None:
        """Nothing: a recording ends by itself."""

    def begin(self, service: Service, name: str, samples: Samples, language: str | None) -> Cell:
        self.cell = service.open(
            self.id, name, self.id, language=language, grows=False, on_step=self._step,
            on_end=partial(self._end, service, samples),
        )  # fmt: skip
        self.cell.stream.feed(samples)
        self.cell.stream.end()
        return self.cell

    def _step(self, cell: Cell) -> None:
        if (step := cell.take_unsent()) is None:
            return
        delta = "".join(step[0].step.committed)
        if delta:
            self.texts.put_nowait(delta.lstrip() if step[1] else delta)

    def _end(self, service: Service, samples: Samples, cell: Cell) -> None:
        with suppress(UserError):  # a full disk ends the logging, not the answer
            cell.write()
        service.keep(cell, samples)
        self.texts.put_nowait(None)

    async def leave(self, service: Service) -> None:
        service.leave(self.id)
        if self.cell is not None:
            self.cell.stream.abandon()


async def transcribe(service: Service, request: Request) -> Response:
    """Answer multipart with `file` and, as OpenAI has them, `model`, `language`, `response_format`
    (json, text, verbose_json), `timestamp_granularities[]` (word) and `stream`. Raises Refused.

    A client whose recording is not here yet holds no session, and one that leaves ends its own.
    """
    receive = _limited(request, service.settings)
    # Told of its app, starlette would answer a bad form itself, in another format.
    scope = {key: value for key, value in request.scope.items() if key != "app"}
    try:
        async with Request(scope, receive).form(max_files=1) as form:
            wanted = _wanted(service, form)
            upload = service.admit(_Upload)
            assert isinstance(upload, _Upload)
            try:
                work = _transcribed(service, upload, *wanted)
                response = await _unless_left(request.receive, work)
            except BaseException:
                await upload.leave(service)
                raise
    except MultiPartException as error:
        raise Refused(400, "invalid_form", error.message) from error
    except ClientDisconnect as error:
        raise Refused(499, "client_left", "the client left before its recording") from error
    response.background = BackgroundTask(upload.leave, service)
    return response


def _limited(request: Request, settings: Settings) -> Receive:
    """Return what receives the body: `max_file_bytes` at most, a piece of it every `idle_s`."""
    most, n = settings.max_file_bytes, 0

    def count(n_bytes: int) -> None:
        nonlocal n
        n += n_bytes
        if n > most + ENVELOPE_BYTES:
            told = f"more than {most} bytes; send a shorter recording"
            raise Refused(413, "file_too_large", told)

    async def counted() -> Message:
        try:
            message = await asyncio.wait_for(request.receive(), settings.idle_s)
        except TimeoutError as error:
            told = f"nothing came for {settings.idle_s:g} s; send the recording again"
            raise Refused(408, "no_body", told) from error
        count(len(message.get("body", b"")))
        return message

    count(int(request.headers.get("content-length") or 0))
    n = 0
    return counted


def _wanted(service: Service, form: FormData) -> tuple[UploadFile, str, str | None, str]:
    """Return the file, the method, the language and the form of the answer. Raises Refused, by name
    for what is not honoured."""
    file = form.get("file")
    try:
        if not isinstance(file, UploadFile):
            raise UserError("file: none; send a recording as `file`")
        if odd := next((key for key, given in form.items() if given and key not in HONOURED), None):
            raise UserError(f"{odd[:100]}: is not honoured here; leave it out")
        given = {key: text for key, text in form.items() if isinstance(text, str) and text}
        kind, streams = given.get("response_format", "json"), given.get("stream", "false").lower()
        check_one_of(("json", "text", "verbose_json"), response_format=kind)
        check_one_of(("true", "false", "1", "0"), stream=streams)
        for each in form.getlist(GRANULARITIES):
            check_one_of(("word",), **{GRANULARITIES: each})
        if GRANULARITIES in given and kind != "verbose_json":
            raise UserError(f"{GRANULARITIES}: needs response_format=verbose_json")
        if streams in ("true", "1") and kind == "verbose_json":
            raise UserError("stream=true: comes as json; leave response_format out")
    except UserError as error:
        raise Refused(400, "invalid_form", str(error)) from error
    (name, *_), language = service.chosen(given.get("model")), given.get("language")
    service.check_language([name], language)
    return file, name, language, "stream" if streams in ("true", "1") else kind


async def _unless_left(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` gives; end it and raise Refused where the client leaves before."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    made, left = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({made, left}, return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            raise Refused(499, "client_left", "the client left before its text")
        return made.result()
    finally:
        made.cancel()
        left.cancel()


async def _transcribed(
    service: Service, upload: _Upload, file: UploadFile, name: str, language: str | None, form: str
) -> Response:
    samples = await asyncio.to_thread(_decoded, file, service.settings.max_session_s)
    cell = upload.begin(service, name, samples, language)
    delta = await upload.texts.get()
    while delta is not None and form != "stream":
        delta = await upload.texts.get()
    if delta is None and cell.log.error is not None:  # of a stream too, before its first word
        raise Refused(500, "failed", cell.log.error)
    if form == "stream":
        return StreamingResponse(_streamed(upload, cell, delta), media_type="text/event-stream")
    answer: dict[str, Any] = {"text": display_text(cell.committed)}
    if form == "text":
        return PlainTextResponse(answer["text"])
    if form == "verbose_json":
        timed = whole_words(timed_words(cell.log))
        words = [(word.text.strip(), word.start, word.end) for word in timed]
        answer |= {
            "task": "transcribe",
            "language": cell.language or cell.default_language,
            "duration": round(cell.log.duration_s, 3),
            "words": [dict(zip(("word", "start", "end"), each, strict=True)) for each in words],
        }
    return JSONResponse(answer)


async def _streamed(upload: _Upload, cell: Cell, delta: str | None) -> AsyncIterator[str]:
    while delta is not None:
        yield _event({"type": "transcript.text.delta", "delta": delta})
        delta = await upload.texts.get()
    if cell.log.error is not None:
        yield _event({"error": Refused(500, "failed", cell.log.error).told})
    else:
        yield _event({"type": "transcript.text.done", "text": display_text(cell.committed)})


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _decoded(file: UploadFile, most_s: int) -> Samples:
    """Return the samples of an uploaded recording, of which no more than `most_s` are decoded.

    Raises Refused where it is none, or longer.
    """
    most = most_s * SAMPLE_RATE
    with tempfile.NamedTemporaryFile() as copy:  # the content tells the format, not the name
        while piece := file.file.read(2**20):
            copy.write(piece)
        copy.flush()
        try:
            is_short = duration_s(copy.name) <= most_s  # by its header, which need not be true
            samples = Reader(copy.name).read(most + 1) if is_short else None
            if samples is None or len(samples) > most:
                told = f"more than {most_s} s of audio; send a shorter recording"
                raise Refused(413, "audio_too_long", told)
            if not len(samples):
                raise UserError(f"{copy.name}: holds 0 samples; send a recording with sound")
            return samples
        except UserError as error:
            told = str(error).replace(copy.name, file.filename or "file")
            raise Refused(400, "invalid_audio", told) from error
