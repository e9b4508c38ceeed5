"""How many live sessions a core carries, and what sessions that are cut off leave behind.

`python -m experiments.bench serve`. The server is a process of its own, kept to one core where the
system allows it; the clients are in this one. Each client plays the package's voices at their own
speed, with the beginnings spread over a second. Lag is what the server tells of each step: from the
arrival of its newest audio to its text. The number of sessions doubles until the 95th percentile of
the lag passes a second, and is then halved in. Sessions that need more than three times the length
of their speech do not fit and are ended, so a method takes at most some minutes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psutil

from experiments.bench.frame import verdict
from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.terminal import console

LAG_S = 1.0
RSS_GROWTH = 0.05
PIECE_S = 0.1
START_S = 180.0
SLOWEST = 3.0  # times the speech's length; sessions that take longer are ended


def bench(
    methods: Sequence[str], model: str, chunk: str, seconds: float, most: int, cut: int
) -> dict[str, Any]:
    """Return the figures of each method: seconds of speech in a session, most sessions at once,
    sessions cut. Raises UserError where a server does not start."""
    speech = _speech(seconds)
    measured: dict[str, Any] = {}
    for method in methods:
        with _server(method, model, chunk, most) as (address, process):
            measured[method] = {
                "lag": _capacity(address, speech, most),
                "cut": _cut(address, process, speech, cut),
            }
    return {"model": model, "chunk": chunk, "methods": measured}


def _speech(seconds: float) -> Samples:
    voices = build(compose(["data=voices", "model=tiny.en", "tracker=none"]).data)
    n, parts = round(seconds * SAMPLE_RATE), []
    for utterance in voices.utterances():
        parts += [utterance.load(), np.zeros(SAMPLE_RATE // 3, np.float32)]
        if sum(map(len, parts)) >= n:
            break
    return np.concatenate(parts)[:n]


@contextmanager
def _server(method: str, model: str, chunk: str, most: int) -> Iterator[tuple[str, psutil.Process]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        *(sys.executable, "-m", "streaming_asr.serve", f"method={method}"),
        *(f"model={model}", f"chunk={chunk}", f"port={port}", "idle_s=600"),
        f"max_sessions={max(most, 64) * 2}",
    ]
    with tempfile.TemporaryDirectory() as place:
        path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
        server = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL)
        process = psutil.Process(server.pid)
        if hasattr(process, "cpu_affinity"):
            process.cpu_affinity(process.cpu_affinity()[:1])
        address = f"127.0.0.1:{port}"
        end = time.monotonic() + START_S
        while True:
            with suppress(OSError), urllib.request.urlopen(f"http://{address}/healthz"):
                break
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                raise UserError(f"method={method}: the server did not start; its reason is above")
            time.sleep(0.2)
        try:
            yield address, process
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=60)


def _capacity(address: str, speech: Samples, most: int) -> dict[str, Any]:
    """Return the largest number of sessions found whose p95 lag is below `LAG_S`, and all tried."""
    tried: dict[int, float] = {}

    def fits(n: int) -> bool:
        most_s = SLOWEST * len(speech) / SAMPLE_RATE + LAG_S
        lags: list[float] = []
        with suppress(TimeoutError):  # a server that is so slow does not fit
            lags = asyncio.run(asyncio.wait_for(_sessions(address, speech, n), most_s))
        tried[n] = float(np.percentile(lags, 95)) if lags else float("inf")
        console(130).print(f"  {n} sessions: p95 lag {tried[n]:.2f} s")
        return tried[n] < LAG_S

    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return {"sessions": low, "at_most": most, "p95_s": tried}


async def _sessions(address: str, speech: Samples, n: int) -> list[float]:
    lags: list[float] = []
    delays = random.Random(n).choices(range(1000), k=n)
    await asyncio.gather(*(_session(address, speech, ms / 1000, lags) for ms in delays))
    return lags


async def _session(
    address: str, speech: Samples, delay_s: float, lags: list[float], cut_s: float | None = None
) -> None:
    """Play the speech; where `cut_s` is given, without pacing, and vanish after so many seconds of
    it."""
    from websockets.asyncio.client import connect

    await asyncio.sleep(delay_s)
    async with connect(f"ws://{address}/v1/realtime", compression=None) as wire:
        audio_format = {"input": {"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}}}
        session = {
            "type": "transcription",
            "audio": audio_format,
            "include": ["streaming_asr.steps"],
        }
        await wire.send(json.dumps({"type": "session.update", "session": session}))

        async def play() -> None:
            began, size = time.perf_counter(), round(PIECE_S * SAMPLE_RATE)
            for begin in range(0, len(speech), size):
                if cut_s is None:
                    due = began + (begin + size) / SAMPLE_RATE
                    await asyncio.sleep(max(0.0, due - time.perf_counter()))
                elif begin / SAMPLE_RATE >= cut_s:
                    wire.transport.abort()
                    return
                data = (speech[begin : begin + size] * 32767).astype("<i2").tobytes()
                audio = base64.b64encode(data).decode()
                append = {"type": "input_audio_buffer.append", "audio": audio}
                await wire.send(json.dumps(append))
            await wire.send(json.dumps({"type": "input_audio_buffer.commit"}))

        playing = asyncio.create_task(play())
        async for message in wire:
            event = json.loads(message)
            if event["type"] == "streaming_asr.steps":
                lags.append(event["behind_s"])
            elif event["type"] == "error":
                raise UserError(f"the server reports: {event['error']['message']}")
            elif event["type"] == "streaming_asr.logged":
                break
        await playing


def _cut(address: str, process: psutil.Process, speech: Samples, n: int) -> dict[str, Any]:
    """Open `n` sessions, cut them at random points, and return what was held before and after.

    The first fifth fills what any session fills (memory of the allocator, caches) and is not
    counted.
    """
    chance = random.Random(0)

    async def some(n_some: int) -> None:
        n_missing = n_some
        while n_missing:
            group = min(8, n_missing)
            n_missing -= group
            cuts = [chance.uniform(0, min(3.0, len(speech) / SAMPLE_RATE)) for _ in range(group)]
            await asyncio.gather(
                *(_session(address, speech, 0.0, [], cut_s) for cut_s in cuts),
                return_exceptions=True,
            )

    def held() -> dict[str, int]:
        end = time.monotonic() + 60
        while _open_sessions(address) and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(6)  # connections that were cut are dropped by then
        return {
            "rss": process.memory_info().rss,
            "files": process.num_fds(),
            "threads": process.num_threads(),
            "sessions": _open_sessions(address),
        }

    asyncio.run(some(max(16, n // 5)))
    before = held()
    asyncio.run(some(n))
    return {"n": n, "before": before, "after": held()}


def _open_sessions(address: str) -> int:
    with urllib.request.urlopen(f"http://{address}/healthz") as answer:
        return int(json.load(answer)["sessions"])


def show(result: dict[str, Any]) -> None:
    """Print what was found and whether it meets the targets."""
    lines = []
    for method, figures in result["methods"].items():
        lag, cut = figures["lag"], figures["cut"]
        before, after = cut["before"], cut["after"]
        growth = after["rss"] / before["rss"] - 1
        is_steady = after["files"] <= before["files"] and after["threads"] <= before["threads"]
        lines += [
            f"{method}, {result['model']}, {result['chunk']}: {lag['sessions']} sessions on a core "
            f"with p95 lag below {LAG_S:g} s (at most {lag['at_most']} tried)",
            verdict(
                growth < RSS_GROWTH and is_steady and not after["sessions"],
                f"{method}: after {cut['n']} sessions that were cut, RSS {growth:+.1%}, files "
                f"{before['files']} to {after['files']}, threads {before['threads']} to "
                f"{after['threads']}, open sessions {after['sessions']}",
            ),
        ]
    console(130).print(*lines, sep="\n", soft_wrap=True)
