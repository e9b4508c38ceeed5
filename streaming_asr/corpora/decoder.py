"""Decodes in another process, so that a decoder that crashes ends only that process.

A process does one job at a time and is kept for the next one. It makes its next result when it is
asked for it, so that only a part of a recording is in memory.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_asr.errors import UserError

MOST_BYTES = 3 * 2**30  # of address space; decoding takes some 0.5 GB
WAIT_S = 60.0  # for a decoder, and a quarter of the length of what it has decoded
MOST_IDLE = 4  # `data check` reads so many files at once
PIECE_S = 60  # shorter blocks are sent together, up to so much,
PIECE_VALUES = 2**25  # or up to so many samples of all channels
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from {} import serve; serve()"

_idle: list[_Process] = []
_is_decoder = False  # whether this is such a process


class Block(NamedTuple):
    """Samples, (n, channels) float32 in about [-1, 1], at `rate` Hz."""

    data: NDArray[np.float32]
    rate: int


def apart(job: str, path: str | Path, *arguments: Any) -> Iterator[Any]:
    """Yield what the function `job` (module:function of this package) returns for a recording, or
    yields, each a `Block` or a number, from another process.

    Raises UserError where the job does, where its process is killed, and where it takes too long.
    """
    if _is_decoder:
        yield from _results(job, path, *arguments)
        return
    process = _idle.pop() if _idle else _Process(path)
    try:
        yield from process.results(path, [job, os.path.abspath(path), *arguments])
    finally:
        process.put_back()


class _Process:
    """A process that runs `serve`."""

    def __init__(self, path: str | Path) -> None:
        program, paths = _PROGRAM.format(__name__), json.dumps(sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
        except OSError as error:
            raise UserError(
                f"{path}: no process to decode it can be started ({error.strerror}); end others"
            ) from error

    def results(self, path: str | Path, job: list[Any]) -> Iterator[Any]:
        """Yield the results of a job, whose second entry is the absolute path."""
        request: list[Any] | None = job
        left_s = WAIT_S
        while True:
            began_s = time.monotonic()
            reply, content = self._ask(request, left_s, path)
            for name, level, message in reply["logs"]:
                logging.getLogger(name).log(level, "%s", message.replace(job[1], str(path)))
            if reply["error"] is not None:
                raise UserError(reply["error"].replace(job[1], str(path)))
            if reply["is_end"]:
                return
            result = reply["result"]
            if reply["rate"] is not None:
                data = np.frombuffer(content, np.float32).reshape(-1, result)
                result = Block(data, reply["rate"])
                left_s += len(data) / result.rate / 4
            left_s -= time.monotonic() - began_s
            request = None
            yield result

    def _ask(self, request: Any, left_s: float, path: str | Path) -> tuple[Any, bytes]:
        """Send a line and return the reply to it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        limit = threading.Timer(max(left_s, 0.0), self._process.kill)
        limit.daemon = True
        limit.start()
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            reply = json.loads(self._process.stdout.readline())
            content = self._process.stdout.read(reply["n_bytes"])
            if len(content) < reply["n_bytes"]:
                raise EOFError
            return reply, content
        except (OSError, ValueError, EOFError) as error:  # it has ended
            has_ended = limit.is_alive()
            self._process.kill()
            status = self._process.wait()
            reason = f"makes a decoder crash (exit status {status})"
            if not has_ended:
                reason = f"takes a decoder over {WAIT_S:.0f} s"
            raise UserError(
                f"{path}: is damaged: it {reason}; record or export it again"
            ) from error
        finally:
            limit.cancel()

    def put_back(self) -> None:
        """Keep the process for the next job, or end it."""
        if self._process.poll() is None and len(_idle) < MOST_IDLE:
            _idle.append(self)
        else:
            self.end()

    def end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()


@atexit.register
def end() -> None:
    """End the idle process; the next job starts another."""
    while _idle:
        _idle.pop().end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # the process is the parent's


# -- in the other process -------------------------------------------------------------------


def serve() -> None:
    """Read jobs, and requests for their next results, until the input ends."""
    global _is_decoder
    _is_decoder = True
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library may print something
    _limit()
    logs: list[tuple[str, int, str]] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: logs.append((record.name, record.levelno, record.getMessage()))  # type: ignore
    logging.getLogger().addHandler(handler)
    job: Iterator[Any] = iter(())
    path = ""
    for line in sys.stdin.buffer:
        if (request := json.loads(line)) is not None:
            name, path, *arguments = request
            job = _joined(_results(name, path, *arguments))
        reply: dict[str, Any] = {"error": None, "is_end": False, "result": None, "rate": None}
        content = b""
        try:
            reply["result"] = result = next(job)
            if isinstance(result, Block):
                content = np.ascontiguousarray(result.data, np.float32).tobytes()
                reply |= {"rate": result.rate, "result": result.data.shape[1]}
        except StopIteration:
            reply["is_end"] = True
        except UserError as error:
            reply["error"] = str(error)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            reply["error"] = f"{path}: cannot be decoded ({reason}); record or export it again"
        header = json.dumps(reply | {"n_bytes": len(content), "logs": logs})
        replies.write(header.encode() + b"\n" + content)
        replies.flush()
        logs.clear()


def _limit() -> None:
    """Limit this process's memory, and leave Ctrl-C to the other one, which ends this one."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, ValueError, OSError):  # there is none on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _results(job: str, path: str | Path, *arguments: Any) -> Iterator[Any]:
    """Yield what the function `job` yields, or the one value that it returns."""
    module, _, function = job.partition(":")
    result = getattr(import_module(f"{__package__}.{module}"), function)(path, *arguments)
    yield from result if isinstance(result, Iterator) else [result]


def _joined(results: Iterable[Any]) -> Iterator[Any]:
    """Yield results, with short blocks of one rate and width that follow one another joined."""
    pending: list[Block] = []
    n_values = 0
    for result in chain(results, [None]):
        form = (result.rate, result.data.shape[1]) if isinstance(result, Block) else None
        if pending:
            rate, width = pending[0].rate, pending[0].data.shape[1]
            if form != (rate, width) or n_values >= min(PIECE_S * rate * width, PIECE_VALUES):
                yield Block(np.concatenate([block.data for block in pending]), rate)
                pending, n_values = [], 0
        if form is not None:
            pending.append(result)
            n_values += result.data.size
        elif result is not None:
            yield result
