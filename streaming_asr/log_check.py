"""Whether a log may be scored: each line by the published schema, all of them by what must hold.

The schema (events.schema.json) says what a line may hold. `Invariants` says what no single line
shows: audio never goes back, an utterance is opened once and ends once, and committed words go
only where a step declares that it takes them back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.method import COUNTS

SCHEMA_FILE = Path(__file__).with_name("events.schema.json")
STEP_KINDS = ("audio", "endpoint", "flush")
N_LISTED = 20


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


class Invariants:
    """Follows a log line by line; each call takes a line that obeys the schema and returns what
    is wrong with it, None where nothing is."""

    def __init__(self) -> None:
        self.utt: str | None = None  # the utterance that is open
        self._seen: set[str] = set()
        self._heard = self._n_committed = 0
        self._flushed = False

    def opens(self, row: Mapping[str, Any]) -> str | None:
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

    def steps(self, row: Mapping[str, Any], *, is_last: bool) -> str | None:
        if row["utt"] != self.utt:
            return "a step of an utterance that is not open"
        heard, retracted = row["audio_samples"], row.get("retracted", 0)
        committed, words = row["committed"], row.get("words")
        if type(heard) is not int or type(retracted) is not int:
            return "`audio_samples` and `retracted` are whole numbers, written without a point"
        if heard < self._heard:
            return f"`audio_samples` goes back from {self._heard} to {heard}"
        if self._flushed:
            return "a step after the flush, which is the last"
        if retracted > self._n_committed:
            return f"{retracted} words are retracted where {self._n_committed} were committed"
        if words is not None and len(words) != len(committed):
            return f"{len(words)} `words` for {len(committed)} committed ones"
        self._heard = heard
        self._n_committed += len(committed) - retracted
        self._flushed = is_last
        return None

    def ends(self, row: Mapping[str, Any]) -> str | None:
        open_utt, self.utt = self.utt, None
        if row["utt"] != open_utt:
            return "the end of an utterance that is not open"
        if row["status"] == "ok" and row.get("error") is not None:
            return "`status` is ok beside an `error`"
        return None


def schema_violation(row: Any) -> str | None:
    """Return how a line breaks the published schema, None where it does not."""
    try:
        _validators()[row["kind"]](row)
    except (KeyError, TypeError):
        return f"no line of a log: {repr(row)[:60]}; its `kind` says what it is"
    except ValueError as error:  # fastjsonschema.JsonSchemaValueException
        value = "" if getattr(error, "rule", "") == "required" else f": {_value(error)}"
        return str(error).removeprefix("data.").replace("data ", "the line ", 1)[:200] + value
    return None


def _value(error: ValueError) -> str:
    return repr(getattr(error, "value", None))[:60]


def unknown_counts(counts: Mapping[str, Any]) -> str | None:
    """Return which names among the counts of a step method.COUNTS does not hold, None for none."""
    unknown = sorted(counts.keys() - COUNTS.keys())
    return f"{', '.join(unknown)}: no such count" if unknown else None


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
