"""The routes: the page, the WebSocket, recordings by POST, models, health, measurements, logs."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket

from streaming_asr.corpora.audio import SUFFIXES, load_audio
from streaming_asr.errors import UserError
from streaming_asr.live.cells import Cell
from streaming_asr.method import Samples, display_text
from streaming_asr.report.page import PALETTE
from streaming_asr.serve.realtime import RealtimeSession
from streaming_asr.serve.service import Refused, Service

PAGE = Path(__file__).with_name("page.html")
PALETTE_HERE = "/* palette.css of the report */"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' blob:; "
    "worker-src blob:; connect-src 'self' ws: wss: blob:; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("streaming_asr.serve")


def application(service: Service) -> Starlette:
    """Return the ASGI application."""

    async def page(request: Request) -> Response:
        text = PAGE.read_text(encoding="utf-8").replace(PALETTE_HERE, PALETTE)
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    async def health(request: Request) -> Response:
        status = "stopping" if service.draining else "ok"
        body = {"status": status, "sessions": len(service.sessions)}
        return JSONResponse(body, 503 if service.draining else 200)

    async def measurements(request: Request) -> Response:
        check(request)
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)

    async def models(request: Request) -> Response:
        check(request)
        made = [{"id": name, "object": "model", "owned_by": "local"} for name in service.cells]
        return JSONResponse({"object": "list", "data": made})

    async def events(request: Request) -> Response:
        check(request)
        session, name = request.path_params["session"], request.path_params["method"]
        path = service.log_of(session, name)
        if path is None:
            raise Refused(404, "not_found", "no such log; a session's is written as an item ends")
        # All of it at once: a file sent in pieces came once as headers without a body.
        saved_as = {"Content-Disposition": f'attachment; filename="{session}-{name}.jsonl"'}
        return PlainTextResponse(await asyncio.to_thread(path.read_bytes), headers=saved_as)

    def check(connection: Request | WebSocket) -> None:
        if (refused := service.settings.refusal(connection.headers)) is not None:
            code = "unauthorized" if refused[0] == 401 else "origin_not_allowed"
            service.refused.labels(code).inc()
            raise Refused(refused[0], code, refused[1])

    async def realtime(socket: WebSocket) -> None:
        try:
            check(socket)
            names = service.chosen(socket.query_params.get("model"))
            session = service.admit(lambda name: RealtimeSession(service, socket, name, names))
        except Refused as error:
            log.warning("%s: %s", socket.client and socket.client.host, error)
            await _refuse(socket, error)
            return
        assert isinstance(session, RealtimeSession)
        try:
            offered = socket.scope.get("subprotocols") or []
            await socket.accept("realtime" if "realtime" in offered else None)
            await session.run()
        except asyncio.CancelledError:  # the server has stopped and waits no longer
            log.warning("%s: cut off by the server's end", session.id)
        finally:
            service.leave(session.id)

    async def transcriptions(request: Request) -> Response:
        check(request)
        return await transcribe(service, request)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/healthz", health),
            Route("/metrics", measurements),
            Route("/v1/models", models),
            Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
            Route("/v1/sessions/{session}/{method}/events.jsonl", events),
            WebSocketRoute("/v1/realtime", realtime),
        ],
        exception_handlers={Refused: _answer},
    )


async def _answer(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    log.warning("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"error": _told(error)}, error.status)


def _told(error: Refused) -> dict[str, Any]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"type": kind, "code": error.code, "message": str(error), "param": None}


async def _refuse(socket: WebSocket, error: Refused) -> None:
    """Refuse a WebSocket. A browser sees no body of a refused handshake, so those that may know
    the reason are let in for one event."""
    if error.status in (401, 403):
        await socket.send_denial_response(JSONResponse({"error": _told(error)}, error.status))
        return
    offered = socket.scope.get("subprotocols") or []
    await socket.accept("realtime" if "realtime" in offered else None)
    event = {"type": "error", "event_id": f"event_{secrets.token_hex(8)}", "error": _told(error)}
    await socket.send_text(json.dumps(event))
    await socket.close(1013 if error.status == 503 else 1008, error.code)


# -- a recording by POST ----------------------------------------------------------------------


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


async def transcribe(service: Service, request: Request) -> Response:
    """Answer POST /v1/audio/transcriptions: multipart with `file` and, as OpenAI has them, `model`,
    `language`, `response_format` (json or text) and `stream`. Raises Refused."""
    most, n = service.settings.max_file_bytes, 0
    too_large = Refused(413, "file_too_large", f"more than {most} bytes; send a shorter recording")
    receive = request.receive

    async def counted() -> Message:
        nonlocal n
        message = await receive()
        n += len(message.get("body", b""))
        if n > most + 10_000:
            raise too_large
        return message

    if int(request.headers.get("content-length") or 0) > most + 10_000:
        raise too_large
    upload = service.admit(_Upload)
    assert isinstance(upload, _Upload)
    handed_on = False
    try:
        try:
            async with Request(request.scope, counted).form(max_files=1) as form:
                file, language = form.get("file"), form.get("language")
                if not isinstance(file, UploadFile):
                    raise Refused(400, "invalid_form", "file: none; send a recording as `file`")
                wanted = form.get("response_format") or "json"
                if wanted not in ("json", "text"):
                    told = f"response_format={wanted}: json or text"
                    raise Refused(400, "invalid_form", told)
                names = service.chosen(str(form.get("model") or ""))
                streams = str(form.get("stream", "")).lower() in ("true", "1")
                samples = await asyncio.to_thread(_decoded, file)
        except MultiPartException as error:
            raise Refused(400, "invalid_form", str(error)) from error
        cell = upload.begin(service, names[0], samples, str(language) if language else None)
        if streams:
            handed_on = True
            return StreamingResponse(_streamed(service, upload), media_type="text/event-stream")
        while await upload.texts.get() is not None:
            pass
        if cell.log.error is not None:
            raise Refused(500, "failed", cell.log.error)
        text = display_text(cell.committed)
        return PlainTextResponse(text) if wanted == "text" else JSONResponse({"text": text})
    finally:
        if not handed_on:
            _close(service, upload)


async def _streamed(service: Service, upload: _Upload) -> AsyncIterator[str]:
    cell = upload.cell
    assert cell is not None
    try:
        while (delta := await upload.texts.get()) is not None:
            yield _event({"type": "transcript.text.delta", "delta": delta})
        if cell.log.error is not None:
            yield _event({"error": _told(Refused(500, "failed", cell.log.error))})
        else:
            text = display_text(cell.committed)
            yield _event({"type": "transcript.text.done", "text": text})
    finally:
        _close(service, upload)


def _close(service: Service, upload: _Upload) -> None:
    service.leave(upload.id)
    if upload.cell is not None:
        upload.cell.stream.abandon()


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"


def _decoded(file: UploadFile) -> Samples:
    """Return the samples of an uploaded recording. Raises Refused where it is none."""
    suffix = Path(file.filename or "").suffix.lower()
    with tempfile.NamedTemporaryFile(suffix=suffix if suffix in SUFFIXES else ".wav") as copy:
        while piece := file.file.read(2**20):
            copy.write(piece)
        copy.flush()
        try:
            return load_audio(copy.name)
        except UserError as error:
            told = str(error).replace(copy.name, file.filename or "file")
            raise Refused(400, "invalid_audio", told) from error
