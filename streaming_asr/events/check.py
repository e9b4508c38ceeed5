"""Checks each line of a log by the published schema, events.schema.json.

What no single line shows is in events.invariants, and that an utterance is opened once and ends
once is seen by who reads the lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct
from msgspec.json import Decoder

from streaming_asr.errors import UserError
from streaming_asr.method import COUNTS, PARTS

SCHEMA_FILE = Path(__file__).with_name("events.schema.json")
STEP_KINDS = ("audio", "endpoint", "flush")
# What `compute_ns` may hold: the step's time, its lag, its CPU time, and the parts measured in it.
_TIMES = ("wall", "lag", "cpu", *PARTS)
N_LISTED = 20  # violations in a message; a log broken once is often broken in every line


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


_Whole = Annotated[int, Meta(ge=0, le=10**15)]
_Second = Annotated[float, Meta(ge=-1e6, le=1e6)] | None
_Count = Annotated[int, Meta(ge=0, le=10**18)] | Annotated[float, Meta(ge=0, le=1e18)] | UnsetType


# Most lines are steps, so msgspec checks and decodes them in one pass; the validator of the schema
# sees only the other kinds, and what msgspec refused, to report what is wrong with it.
class _Step(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a step as the schema has them, without its counts."""

    kind: Literal["audio", "endpoint", "flush"]
    utt: str
    audio_samples: Annotated[int, Meta(ge=0, le=9_676_800_000)]
    compute_ns: dict[Literal[_TIMES], _Whole]  # type: ignore[valid-type]
    committed: list[str]
    partial: list[str]
    words: list[Annotated[list[_Second], Meta(min_length=3, max_length=3)]] | None = None
    retracted: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    memory_bytes: Annotated[int, Meta(ge=0, le=10**18)] | None = None
    language: Annotated[str, Meta(min_length=1)] | None = None

    def counts(self) -> dict[str, float]:
        """Return the counts that the line gives."""
        counts = {name: getattr(self, name) for name in COUNTS}
        return {name: value for name, value in counts.items() if value is not UNSET}


# A line with its counts.
StepLine = defstruct("StepLine", [(name, _Count, UNSET) for name in COUNTS], bases=(_Step,))
_STEP: Decoder[_Step] = Decoder(StepLine)


def step_of(line: bytes) -> _Step | None:
    """Return the step of a line; None for another line and one that breaks the schema."""
    try:
        step = _STEP.decode(line)
    except (ValueError, RecursionError):
        return None
    return step if "wall" in step.compute_ns else None


def violation(row: Any) -> str | None:
    """Return how a line breaks the schema, or None; steps come here that `step_of` did not take."""
    try:
        _validators()[row["kind"]](row)
    except (KeyError, TypeError):
        return f"no line of a log: {repr(row)[:60]}; its `kind` must be that of a line"
    except ValueError as error:  # fastjsonschema.JsonSchemaValueException
        literal = repr(getattr(error, "value", None))[:60]
        value = "" if getattr(error, "rule", "") == "required" else f": {literal}"
        return str(error).removeprefix("data.").replace("data ", "the line ", 1)[:200] + value
    if row["kind"] not in STEP_KINDS:
        return None
    if unknown := sorted(row.keys() - set(StepLine.__struct_fields__)):
        return f"{', '.join(unknown)}: no such count"
    return (
        "`audio_samples` and `retracted` are whole numbers, as are the times of `compute_ns`; "
        "write them without a point"
    )


@cache
def _validators() -> dict[str, Callable[[Any], Any]]:
    """Return what checks a line, by its kind."""
    import fastjsonschema

    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    of_name = {
        name: fastjsonschema.compile(
            {"$schema": schema["$schema"], "$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}
        )
        for name in ("header", "utterance", "step", "end")
    }
    return of_name | dict.fromkeys(STEP_KINDS, of_name["step"])
