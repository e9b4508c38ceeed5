"""Checks each line of a log by the Struct of its kind, and publishes them as events.schema.json.

Rules about several lines of an utterance are in events.invariants. That an utterance is opened once
and closed once is checked by `events.log.read_log`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.json import Decoder

from streaming_asr import schemas
from streaming_asr.errors import UserError
from streaming_asr.events.record import Ending, Header, Opening, StepLine

STEP_KINDS = ("audio", "endpoint", "flush")
N_LISTED = 20  # violations in a message; a fault is often in every line


class InvalidLog(UserError):
    """A log that breaks its schema or an invariant; nothing is computed from it."""

    def __init__(self, path: Path, violations: list[str]) -> None:
        more = len(violations) - N_LISTED
        listed = violations[:N_LISTED] + ([f"and {more} more"] if more > 0 else [])
        super().__init__(
            f"{path}: the log is invalid, so nothing is computed from it; remove it and run or "
            "import again:\n  " + "\n  ".join(listed)
        )
        self.violations = violations


_STEP = Decoder(StepLine)  # most lines are steps: checked and decoded in one pass
_STRUCTS = {
    "header": Header,
    "utterance": Opening,
    **dict.fromkeys(STEP_KINDS, StepLine),
    "end": Ending,
}
SCHEMA = schemas.schema_of("One line of events.jsonl, schema 1", Header, Opening, StepLine, Ending)


def step_of(line: bytes) -> StepLine | None:
    """Return the step of a line; None for a line of another kind, or one against the schema."""
    try:
        step = _STEP.decode(line)
    except (ValueError, RecursionError):
        return None
    return step if "wall" in step.compute_ns else None


def violation(row: Any) -> str | None:
    """Return how a decoded line breaks the schema, or None. A step is only passed here if `step_of`
    has refused it, so it always has a fault."""
    kind = row.get("kind") if isinstance(row, dict) else None
    if not isinstance(kind, str) or kind not in _STRUCTS:
        return f"no line of a log: {repr(row)[:60]}; its `kind` must be that of a line"
    if (fault := schemas.violation(row, _STRUCTS[kind])) is not None:
        return fault.text("the line")
    if kind not in STEP_KINDS:
        return None
    if "wall" not in row["compute_ns"]:
        return "compute_ns lacks `wall`"
    # `schemas.violation` accepts 3.0 as a whole number, `step_of` does not.
    return (
        "`audio_samples` and `retracted` are whole numbers, as are the times of `compute_ns`; "
        "write them without a point"
    )
