"""The routes: the page, the WebSocket, recordings by POST, models, health, logs."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from dataclasses import replace
from html import escape
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from streaming_asr.events.log import read_log
from streaming_asr.live.cells import timed_words
from streaming_asr.method import display_text
from streaming_asr.report.page import PALETTE
from streaming_asr.serve.realtime import RealtimeSession
from streaming_asr.serve.service import Refused, Service
from streaming_asr.serve.upload import transcribe
from streaming_asr.text.subtitles import Segment, cues, lasting, srt

PAGE = Path(__file__).with_name("page.html")
PALETTE_HERE, PRIVACY_HERE = "/* palette.css of the report */", "PRIVACY"
SCRIPT, SCRIPT_HERE = Path(__file__).with_name("page.js"), "/* page.js */"
FILES = "events.jsonl", "text.txt", "subtitles.srt"
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' blob:; "
    "worker-src blob:; connect-src 'self' ws: wss: blob:; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)

log = logging.getLogger("streaming_asr.serve")


def application(service: Service) -> Starlette:
    """Return the ASGI application."""

    async def page(request: Request) -> Response:
        check_host(request)
        text = PAGE.read_text(encoding="utf-8").replace(PALETTE_HERE, PALETTE)
        text = text.replace(PRIVACY_HERE, escape(service.privacy))
        text = text.replace(SCRIPT_HERE, SCRIPT.read_text(encoding="utf-8"))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    async def health(request: Request) -> Response:
        status = "stopping" if service.draining else "ok"
        body = {"status": status, "sessions": len(service.sessions)}
        return JSONResponse(body, 503 if service.draining else 200)

    async def models(request: Request) -> Response:
        check(request)
        served = [service.model(name, name) for name in service.cells]
        return JSONResponse({"object": "list", "data": served})

    async def model(request: Request) -> Response:
        check(request)
        name = request.path_params["name"]
        if (method := service.method_of(name)) is None:
            served = ", ".join(service.cells)
            raise Refused("model_not_found", f"{name[:100]}: served are {served}", 404)
        return JSONResponse(service.model(name, method))

    async def written(request: Request) -> Response:
        check(request)
        session, name, file = (request.path_params[key] for key in ("session", "method", "file"))
        path = service.log_of(session, name)
        if path is None or file not in FILES:
            raise Refused("not_found", "no such log; a session's is written as an item ends", 404)
        # All of it at once: a file sent in pieces came once as headers without a body.
        saved_as = {"Content-Disposition": f'attachment; filename="{session}-{name}-{file}"'}
        return PlainTextResponse(await asyncio.to_thread(_content, path, file), headers=saved_as)

    def check_host(connection: Request | WebSocket) -> None:
        if not service.settings.answers(connection.headers.get("host", "")):
            raise Refused("invalid_host", f"{connection.url.path}: Invalid host header")

    def check(connection: Request | WebSocket) -> None:
        check_host(connection)
        if (refused := service.settings.refusal(connection.headers)) is not None:
            code = "unauthorized" if refused[0] == 401 else "origin_not_allowed"
            raise Refused(code, refused[1], refused[0])

    async def realtime(socket: WebSocket) -> None:
        try:
            check(socket)
            models = service.chosen(socket.query_params.get("model"))
            session = RealtimeSession(service, socket, models)
        except Refused as error:
            log.warning("%s: %s", socket.client and socket.client.host, error)
            await _refuse(socket, error)
            return
        try:
            await _accept(socket)
            await session.run()
        except asyncio.CancelledError:  # the server has stopped and waits no longer
            log.warning("%s: cut off by the server's end", session.id)
        finally:
            service.leave(session.id)

    async def elsewhere(socket: WebSocket) -> None:
        await _refuse(socket, Refused("not_found", "the WebSocket is at /v1/realtime", 404))

    async def transcriptions(request: Request) -> Response:
        check(request)
        return await transcribe(service, request)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/healthz", health),
            Route("/v1/models", models),
            Route("/v1/models/{name:path}", model),
            Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
            Route("/v1/sessions/{session}/{method}/{file}", written),
            WebSocketRoute("/v1/realtime", realtime),
            WebSocketRoute("/{path:path}", elsewhere),
        ],
        middleware=[
            Middleware(
                CORSMiddleware,
                allow_origins=service.settings.pages,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=["Content-Disposition"],
            ),
            # Here and not below, or starlette would answer outside of CORSMiddleware.
            Middleware(ExceptionMiddleware, handlers={Exception: _fault}),
        ],
        exception_handlers={Refused: _answer, HTTPException: _answer},
    )


async def _answer(request: Request, error: Exception) -> Response:
    """Return an error in the form of OpenAI's, also of what starlette raises, as for a path that is
    no route."""
    if isinstance(error, HTTPException):
        reason = f"{request.url.path[:100]}: {error.detail}"
        refused = Refused("invalid", reason, error.status_code)
        return JSONResponse({"error": refused.body}, error.status_code, error.headers)
    assert isinstance(error, Refused)
    log.warning("%s %s: %s", request.method, request.url.path, error)
    return JSONResponse({"error": error.body}, error.status)


async def _fault(connection: Request | WebSocket, error: Exception) -> Response:
    """Log an exception that no route catches, and return the answer."""
    if not isinstance(connection, Request):
        raise error
    log.error("%s %s", connection.method, connection.url.path, exc_info=error)
    reason = f"a fault of this server, see its log ({type(error).__name__})"
    return JSONResponse({"error": Refused("internal_error", reason, 500).body}, 500)


def _content(path: Path, file: str) -> bytes:
    """Return one of FILES of a log: the log itself, its text, or its subtitles. The items of a
    session follow one another, and the subtitles count from the start of the first."""
    if file == "events.jsonl":
        return path.read_bytes()
    texts: list[str] = []
    all_cues: list[Segment] = []
    begin_s = 0.0
    for log in read_log(path).utterances:
        words = timed_words(log)
        texts.append(display_text(words))
        for cue in cues(words):
            all_cues.append(replace(cue, start=begin_s + cue.start, end=begin_s + cue.end))
        begin_s += log.duration_s
    if file == "text.txt":
        return (" ".join(texts) + "\n").encode()
    return srt(lasting(all_cues)).encode()


async def _accept(socket: WebSocket) -> None:
    offered = socket.scope.get("subprotocols") or []
    await socket.accept("realtime" if "realtime" in offered else None)


async def _refuse(socket: WebSocket, error: Refused) -> None:
    """Refuse a WebSocket. A browser does not show a page the body of a refused handshake. So a
    client that has the right to connect is accepted, gets the error as an event, and is closed."""
    if error.status in (401, 403, 404) or error.code == "invalid_host":
        await socket.send_denial_response(JSONResponse({"error": error.body}, error.status))
        return
    await _accept(socket)
    event = {"type": "error", "event_id": f"event_{secrets.token_hex(8)}", "error": error.body}
    await socket.send_text(json.dumps(event))
    await socket.close(1013 if error.status == 503 else 1008, error.code)
