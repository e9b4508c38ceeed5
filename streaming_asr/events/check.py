"""Checks whether a log may be scored: each line by the published schema, all by what must hold.

The schema (events.schema.json) says what a line may hold. `Invariants` says what no single line
shows: audio never goes back, an utterance is opened once and ends once, and committed words go
only where a step declares that it takes them back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
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
# sees only the other kinds, and what msgspec refused, to say what is wrong with it.
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


# A line with its counts beside them.
StepLine = defstruct("StepLine", [(name, _Count, UNSET) for name in COUNTS], bases=(_Step,))
_STEP: Decoder[_Step] = Decoder(StepLine)


class Invariants:
    """Follows a log line by line; each call returns what is wrong with its line, else None."""

    def __init__(self) -> None:
        self.utt: str | None = None  # the utterance that is open
        self._seen: set[str] = set()

    def opens(self, row: Mapping[str, Any]) -> str | None:
        """Take the line that opens an utterance."""
        before, self.utt = self.utt, row["utt"]
        self._heard = self._n_committed = 0
        self._flushed = False
        if before is not None:
            return f"utterance {before!r} is still open"
        if self.utt in self._seen:
            return f"utterance {self.utt!r} stands in the log already"
        self._seen.add(row["utt"])
        for word, start, end in row.get("words") or ():
            if start > end:
                return f"the word {word!r} ends at {end} s before it starts at {start} s"
        return None

    def steps(self, line: _Step) -> str | None:
        """Take the line of a step."""
        heard, retracted = line.audio_samples, line.retracted
        if line.utt != self.utt:
            return "a step of an utterance that is not open"
        if heard < self._heard:
            return f"`audio_samples` goes back from {self._heard} to {heard}"
        if self._flushed:
            return "a step after the flush, which is the last"
        if retracted > self._n_committed:
            return f"{retracted} words are retracted where {self._n_committed} were committed"
        if line.words is not None and len(line.words) != len(line.committed):
            return f"{len(line.words)} `words` for {len(line.committed)} committed ones"
        self._heard = heard
        self._n_committed += len(line.committed) - retracted
        self._flushed = line.kind == "flush"
        return None

    def ends(self, row: Mapping[str, Any]) -> str | None:
        """Take the line that closes an utterance."""
        open_utt, self.utt = self.utt, None
        if row["utt"] != open_utt:
            return "the end of an utterance that is not open"
        if row["status"] == "ok" and row.get("error") is not None:
            return "`status` is ok beside an `error`"
        return None


def step_of(line: bytes) -> _Step | None:
    """Return the step that a line tells; None for another line and one that breaks the schema."""
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
        return f"no line of a log: {repr(row)[:60]}; its `kind` says what it is"
    except ValueError as error:  # fastjsonschema.JsonSchemaValueException
        told = repr(getattr(error, "value", None))[:60]
        value = "" if getattr(error, "rule", "") == "required" else f": {told}"
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
