"""Starts the server: settings, methods, the inference thread, uvicorn; and ends it in order."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import signal
import socket
from collections.abc import Sequence
from datetime import datetime
from types import FrameType
from typing import Any

from streaming_asr.config.command_line import OF_A_CORPUS, CommandLine
from streaming_asr.errors import UserError
from streaming_asr.run.obtain import planned
from streaming_asr.serve.settings import ServerSettings

CLOSE_S = 5.0  # after a session's end, unsent messages are dropped after so long
HEAD_S = 10.0  # a client has so long to send the head of a request
MOST_LINES = 60  # of the log, in a minute


class Few(logging.Filter):
    """Passes the first `MOST_LINES` messages of a minute, so that no client fills the disk."""

    _minute = 0
    _n_lines = 0  # of that minute

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the message is logged; the last one of a minute mentions the limit."""
        minute = int(record.created // 60)
        self._n_lines = self._n_lines + 1 if minute == self._minute else 1
        self._minute = minute
        if self._n_lines == MOST_LINES:
            record.msg = f"{record.getMessage()} (the rest of this minute is left out)"
            record.args = ()
        return self._n_lines <= MOST_LINES


def serve(argv: Sequence[str]) -> int:
    """Serve until a signal ends it, and return the exit status. Raises UserError, before weights
    load, for wrong settings, a port that is taken and methods that cannot run."""
    line = CommandLine(["-m", *argv])
    settings = ServerSettings.of(line)
    line.refuse(OF_A_CORPUS, "serve")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError(f"serve: needs {error.name}; pip install -e '.[live]'") from error
    listening = bound(settings)
    try:
        return _serve(settings, line, listening)
    finally:
        listening.close()


def bound(settings: ServerSettings) -> socket.socket:
    """Return a socket bound to the settings' address and listening. Raises UserError where the
    address is taken or not this machine's."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(128)  # so that a second server finds the port taken while this one loads
    except OSError as error:
        listener.close()
        reason = f"cannot be had ({error.strerror})"
        if error.errno == errno.EADDRINUSE:
            reason = "is taken by another program"
        raise UserError(
            f"host={settings.host} port={settings.port}: {reason}; give another, as in "
            f"port={min(settings.port + 1, 65_535)}"
        ) from error
    return listener


def _serve(settings: ServerSettings, line: CommandLine, listening: socket.socket) -> int:
    """Load the methods and serve on the socket `listening` until a signal; return exit status 0."""
    from streaming_asr.live.cells import cells_of
    from streaming_asr.live.worker import Worker
    from streaming_asr.serve.app import application
    from streaming_asr.serve.service import Service

    name = f"'serve/{datetime.now():%Y%m%d-%H%M%S}'"
    line.default_methods(1)
    line.default(name=name, tracker="none", gate="speech")
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(Few())
    cells = cells_of(planned(line))
    for cell in cells:
        cell.folder.rmdir()  # it was made as a check; each session has its own
    gc.collect()
    gc.freeze()  # the collector skips what is loaded, so it is fast and frees sessions sooner
    with Worker() as worker:
        service = Service(settings, cells, worker)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        print(f"serving {', '.join(service.cells)} at http://{host}:{settings.port}", flush=True)
        print(f"logs: {service.root}", flush=True)
        server = make_server(service, application(service))
        asyncio.run(server.serve(sockets=[listening]))
    print("stopped", flush=True)
    return 0


def make_server(service, app):  # type: ignore[no-untyped-def]
    """Return uvicorn's server for the application, with limits that uvicorn lacks. After SIGTERM or
    Ctrl-C it waits for open sessions; a second Ctrl-C ends it at once."""
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    from streaming_asr.serve.service import Refused

    settings = service.settings
    # More than clients need, and well below the number of files that a process may open.
    max_connections = 4 * settings.max_sessions + 64

    class Http(H11Protocol):
        def send_400_response(self, msg: str) -> None:
            """Answer a malformed request and close the connection.

            uvicorn's own method raises where the answer has begun before the request is read
            completely, and lets the application answer a second time.
            """
            may_answer = self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            if may_answer:
                body = json.dumps({"error": Refused("invalid_http", msg).body}).encode()
                headers = [
                    ("content-type", "application/json"),
                    ("content-length", str(len(body))),
                    ("connection", "close"),
                ]
                for event in (
                    h11.Response(status_code=400, reason=b"Bad Request", headers=headers),
                    h11.Data(data=body),
                    h11.EndOfMessage(),
                ):
                    self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def handle_websocket_upgrade(self, event: h11.Request) -> None:
            """Refuse an upgrade that is no handshake: uvicorn would wait and never answer it."""
            names = {name for name, _ in event.headers}
            has_body = names & {b"transfer-encoding", b"content-length"}
            if event.method != b"GET" or has_body:
                self.send_400_response("A WebSocket begins with a GET without a body.")
            else:
                super().handle_websocket_upgrade(event)

        # uvicorn limits requests, but neither connections nor the time until a request's head.
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > max_connections:
                transport.abort()
            self._expect_request(None)

        def on_response_complete(self) -> None:
            answered = self.cycle
            super().on_response_complete()
            self._expect_request(answered)

        def _expect_request(self, last_cycle: object) -> None:
            """Close the connection if no request follows `last_cycle` within HEAD_S."""
            self.loop.call_later(HEAD_S, self._close_if_idle, last_cycle)

        def _close_if_idle(self, last_cycle: object) -> None:
            is_http = self.transport.get_protocol() is self  # and not a WebSocket by now
            if self.cycle is last_cycle and is_http and not self.transport.is_closing():
                self.transport.abort()

    class Protocol(WebSocketsSansIOProtocol):
        def send_receive_event_to_app(self) -> None:
            if self.curr_msg_data_type == "text":  # uvicorn logs a traceback where it is no UTF-8
                text = b"".join(self.frames).decode(errors="replace")
                self.frames = [text.encode()]
            super().send_receive_event_to_app()

        async def send(self, message: Any) -> None:
            await super().send(message)
            is_last = not message.get("more_body", False)
            if message["type"] == "websocket.http.response.body" and is_last:
                # A refusal completes the handshake, too; else uvicorn logs an error.
                self.handshake_complete = True

        async def run_asgi(self) -> None:
            await super().run_asgi()
            # close() would wait forever for a client that never reads.
            self.loop.call_later(CLOSE_S, self.transport.abort)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if service.draining:  # the second signal
                super().handle_exit(sig, frame)
                return
            service.draining = True
            if sig == signal.SIGINT:
                print("stopping; Ctrl-C again does not wait for open sessions", flush=True)
            self._loop.call_soon_threadsafe(self._begin_drain)

        def _begin_drain(self) -> None:
            self._drain = self._loop.create_task(self._drained())

        async def _drained(self) -> None:
            await service.drain()
            self.should_exit = True

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            self._loop = asyncio.get_running_loop()
            await super().startup(sockets)

    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=Http,
        ws=Protocol,
        ws_max_size=settings.max_message_bytes,
        ws_per_message_deflate=False,
        # A client's pong comes after audio that is not read yet, so pings have no time limit;
        # `idle_s` ends the session of a client that is gone.
        ws_ping_timeout=None,
        timeout_graceful_shutdown=5,
        limit_concurrency=None,
        backlog=128,
    )
    return Server(config)
