"""Compares three methods on real speech with real Whisper; this is what `make run` does.

    streaming-asr demo
    streaming-asr demo limit=40                  # more recordings
    streaming-asr demo method=ufal chunk=1s      # one method, with settings of `run`

It downloads tiny.en and recorded telephone announcements. Then it runs the offline pass, WhisperRT
in chunks of 300 ms and the hush word in chunks of 1 s. Without the announcements it takes the
voices in the package, and without the weights the toy model.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.run.obtain import REAL, get_prompts, get_real
from streaming_asr.terminal import end_if_stopped, with_settings

if TYPE_CHECKING:
    from streaming_asr.run.command import Present

SWEEPS = (  # each method at a chunk that it keeps up with
    {"method": "offline,whisperrt", "chunk": "300ms"},
    {"method": "hush_word", "chunk": "1s"},
)
ONE = {"method": "whisperrt", "chunk": "300ms"}  # where a method or a chunk is named


def choose() -> list[str]:
    """Return the overrides that name model, data and how much of it is about two minutes of two
    cores; print in a sentence what is done without."""
    try:
        get_real()
    except UserError as error:
        _say(f"{REAL} cannot be had here ({error}); this run takes mini, a toy on toy speech.")
        return ["model=mini", "data=mini", "limit=15"]
    try:
        get_prompts("en")
    except UserError as error:
        _say(f"the prompts cannot be had here ({error}); this run takes the package's voices.")
        return [f"model={REAL}", "data=voices", "limit=15"]
    return [f"model={REAL}", "data=prompts", "data.split=dev", "limit=15"]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Obtain model and speech, run, and return the exit status of `run`."""
    return with_settings(__doc__, _demo, argv)


def _demo(argv: list[str]) -> int:
    from streaming_asr.run import command as run

    settings = dict(setting.split("=") for setting in choose())
    line = CommandLine(argv)
    if line.get("data") not in (None, settings["data"]):
        settings.pop("data.split", None)  # of our corpus, not of the one that is named
    settings |= {"tracker": "none", "name": "demo"}
    if line.asks or line.multirun or line.get("method") or line.get("chunk"):
        return _run(argv, ONE | settings)
    status = 0
    for sweep in SWEEPS:
        present = run.show if sweep is SWEEPS[-1] else _nothing
        status = max(status, _run(["-m", *argv], sweep | settings, present))
        end_if_stopped(status)
    return status


def _run(argv: Sequence[str], settings: dict[str, str], *present: Present) -> int:
    from streaming_asr.run import command as run

    line = CommandLine(argv)
    line.default(**settings)
    print(f"streaming-asr run {' '.join(line.argv)}", flush=True)
    return run.main(line.argv, *present)


def _nothing(folder: Path, audio_from: Sequence[Path]) -> None:
    """Present no table yet: the last sweep's has the cells of all."""
