"""A stand-in for W&B's server, and the records that an offline run leaves."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any


def written() -> None:
    """Wait until wandb's service, which writes on for some ms after finish(), has ended."""
    import wandb

    wandb.teardown()


@contextmanager
def stand_in(answer: Callable[[str, dict[str, Any]], Any]) -> Iterator[str]:
    """The address of a server; `answer` maps a query and its variables to the data of the answer,
    or to an HTTP status to fail with."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            given = answer(asked.get("query", ""), asked.get("variables") or {})
            body = b"" if isinstance(given, int) else json.dumps({"data": given}).encode()
            self.send_response(given if isinstance(given, int) else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def records(path: Path) -> Iterator[Any]:
    """The records of an offline run: a 7-byte header, then LevelDB's log format (32 KiB blocks)."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a full record, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""
