"""A server on loopback with the methods of fakes.py, and what its clients send."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
from fakes import BatchedTicker, Ticker
from places import HANG_S
from websockets.sync.client import ClientConnection, connect

from streaming_asr.live.cells import LiveCell
from streaming_asr.live.streams import Engine
from streaming_asr.live.worker import Worker
from streaming_asr.method import Samples
from streaming_asr.serve.app import application
from streaming_asr.serve.command import bound, make_server
from streaming_asr.serve.service import Service
from streaming_asr.serve.settings import ServerSettings

HEADER = {"config": {"data": {"name": "live"}}, "versions": {}, "machine": {}, "metrics_version": 2}


@contextmanager
def served(
    folder: Path,
    methods: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    cells: list[LiveCell] | None = None,
    **settings: Any,
) -> Iterator[Any]:
    """The service of a running server; `service.address` is http://... cells: of real methods."""
    header = HEADER | {"config": HEADER["config"] | (config or {})}
    methods = methods or {"ticker": BatchedTicker(), "slow": Ticker(lag=3)}
    wanted = ServerSettings(**{"idle_s": HANG_S} | settings)
    listening = bound(replace(wanted, port=0))
    wanted = replace(wanted, port=listening.getsockname()[1])
    cells = cells or [
        LiveCell(folder / "logs" / f"method={n}", Engine(n, m, 4800, 9600), header, n)
        for n, m in methods.items()
    ]
    with Worker() as worker:
        service: Any = Service(wanted, cells, worker)
        service.address = f"http://127.0.0.1:{wanted.port}"
        server = make_server(service, application(service))
        service.terminate = lambda: server.handle_exit(signal.SIGTERM, None)  # as from a shell
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        until(lambda: server.started)
        try:
            yield service
        finally:
            server.should_exit = True
            thread.join()
            listening.close()


def until(condition: Any) -> None:
    """Wait until `condition()` holds."""
    end = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.01)


@contextmanager
def client(service: Any, query: str = "", **settings: Any) -> Iterator[ClientConnection]:
    address = service.address.replace("http", "ws") + "/v1/realtime" + query
    patient = {"open_timeout": HANG_S, "ping_interval": None}
    with connect(address, compression=None, **patient, **settings) as made:
        yield made


def get(address: str, **settings: Any) -> httpx.Response:
    return httpx.get(address, timeout=HANG_S, **settings)


def wav(samples: Samples, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def post(service: Any, content: bytes, name: str = "talk.wav", **fields: str) -> httpx.Response:
    return httpx.post(
        f"{service.address}/v1/audio/transcriptions",
        files={"file": (name, content)},
        data={"model": "ticker", **fields},
        timeout=HANG_S,
    )


def pcm(samples: Samples) -> bytes:
    return (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def append(socket: ClientConnection, data: bytes) -> None:
    send(socket, "input_audio_buffer.append", audio=base64.b64encode(data).decode())


def set_up(socket: ClientConnection, *include: str, rate: int = 16_000, **wanted: Any) -> None:
    given = {"format": {"type": "audio/pcm", "rate": rate}, "transcription": wanted}
    session = {"type": "transcription", "audio": {"input": given}, "include": list(include)}
    send(socket, "session.update", session=session)


def events(socket: ClientConnection, last: str, n: int = 1) -> list[dict[str, Any]]:
    """What comes up to the n-th event whose type ends with `last`."""
    found: list[dict[str, Any]] = []
    while n:
        found.append(json.loads(socket.recv(timeout=HANG_S)))
        n -= found[-1]["type"].endswith(last)
    return found
