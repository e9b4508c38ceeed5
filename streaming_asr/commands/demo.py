"""Streams real speech through real Whisper, with the best that can be had on this machine.

    python -m streaming_asr demo                      # what `make run` does
    python -m streaming_asr demo chunk=1s limit=10    # settings of `run` in place of its own

It obtains tiny.en and the telephone prompts, then runs WhisperRT on them. Where the prompts cannot
be had it takes the voices in the package, and where the weights cannot, the embedded toy world.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from streaming_asr.errors import UserError
from streaming_asr.run.obtain import REAL

SPEECH = "prompts"
OVERRIDES = ("method=whisperrt", "chunk=300ms", "tracker=none", "name=demo")
LIMIT = {"prompts": 40, "voices": 20, "mini": 60}  # about two minutes of two cores each


def choose(obtain: Callable[[str], object]) -> tuple[list[str], list[str]]:
    """Return the overrides that name model and data, and a sentence for each thing done without.

    obtain: called with the name of what is wanted; raises UserError where it cannot be had.
    """
    missing: list[str] = []

    def can_be_had(name: str, instead: str) -> bool:
        try:
            obtain(name)
        except UserError as error:
            missing.append(f"{name} cannot be had here ({error}); this run takes {instead}.")
            return False
        return True

    if not can_be_had(REAL, "mini, a toy model that hears its own synthetic voices alone"):
        return ["model=mini", "data=mini", f"limit={LIMIT['mini']}"], missing
    data = SPEECH if can_be_had(SPEECH, "the natural synthetic voices of the package") else "voices"
    return [f"model={REAL}", f"data={data}", f"limit={LIMIT[data]}"], missing


def main(argv: Sequence[str] | None = None) -> int:
    """Obtain model and speech, run, and return the exit status of `run`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(given):
        print(__doc__)
        return 0
    from streaming_asr.run import command as run
    from streaming_asr.run.obtain import table

    known = table()
    overrides, missing = choose(lambda name: known[name]())
    for sentence in missing:
        print(sentence, file=sys.stderr, flush=True)
    command = [*OVERRIDES, *overrides, *given]
    print(f"python -m streaming_asr.run {' '.join(command)}", flush=True)
    return run.main(command)
