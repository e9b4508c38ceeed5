"""Decoders that fail in every way: a module `av` that the decoding process imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import av
import pytest

from streaming_asr.corpora import decoder

# What `av.open` does, and the message that it becomes.
FAULTS = {
    "ValueError('a fault')": r"not readable as audio \(a fault\)",
    "MemoryError()": r"not readable as audio \(MemoryError\)",
    "SystemError('bad call')": r"not readable as audio \(bad call\)",
    "crash": r"is damaged: it makes a decoder crash \(exit status -11\); record or export it again",
    "abort": r"is damaged: it makes a decoder crash \(exit status -6\)",
    "exit": r"is damaged: it makes a decoder crash \(exit status 3\)",
    "hang": r"is damaged: it takes a decoder over 2 s",
    "memory": r"not readable as audio \(.*allocate",
}
_ACTIONS = {
    "crash": "os.kill(os.getpid(), 11)",
    "abort": "os.abort()",
    "exit": "os._exit(3)",
    "hang": "time.sleep(600)",
    "memory": "numpy.ones(2**33)",
}


@contextmanager
def broken_decoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> Iterator[None]:
    """Within the block the decoding process has a fault (a key of FAULTS)."""
    assert av.open  # this process keeps the real one
    (tmp_path / "broken" / "av").mkdir(parents=True)
    action = _ACTIONS.get(fault, f"raise {fault}")
    (tmp_path / "broken" / "av" / "__init__.py").write_text(
        f"import numpy, os, time\nFFmpegError = OSError\ndef open(*_, **__):\n    {action}\n"
    )
    decoder.end()
    with monkeypatch.context() as patched:
        patched.syspath_prepend(tmp_path / "broken")
        if fault == "hang":
            patched.setattr(decoder, "WAIT_S", 2.0)
        yield
    decoder.end()
