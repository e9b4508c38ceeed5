"""Streams real speech through real Whisper, with the best that can be had on this machine.

    python -m streaming_asr demo                      # what `make run` does
    python -m streaming_asr demo chunk=1s limit=10    # settings of `run` in place of its own

It obtains tiny.en and the telephone prompts, then runs WhisperRT on them. Where the prompts cannot
be had it takes the voices in the package, and where the weights cannot, the embedded toy world.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.run.obtain import REAL, get_prompts, get_real
from streaming_asr.terminal import with_settings

OVERRIDES = ("method=whisperrt", "chunk=300ms", "tracker=none", "name=demo")


def choose() -> list[str]:
    """Return the overrides that name model, data and how much of it is about two minutes of two
    cores; say in a sentence what is done without."""
    try:
        get_real()
    except UserError as error:
        _say(f"{REAL} cannot be had here ({error}); this run takes mini, a toy on toy speech.")
        return ["model=mini", "data=mini", "limit=60"]
    try:
        get_prompts("en")
    except UserError as error:
        _say(f"the prompts cannot be had here ({error}); this run takes the package's voices.")
        return [f"model={REAL}", "data=voices", "limit=20"]
    return [f"model={REAL}", "data=prompts", "data.split=dev", "limit=40"]


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Obtain model and speech, run, and return the exit status of `run`."""
    return with_settings(__doc__, _demo, argv)


def _demo(argv: list[str]) -> int:
    from streaming_asr.run import command as run

    line = CommandLine(argv)
    settings = dict(setting.split("=") for setting in (*OVERRIDES, *choose()))
    if line.get("data") not in (None, settings["data"]):
        settings.pop("data.split", None)  # of our corpus, not of the one that was asked for
    line.default(**settings)
    print(f"python -m streaming_asr.run {' '.join(line.settings)}", flush=True)
    return run.main(line.argv)
