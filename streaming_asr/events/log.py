"""events.jsonl: the contract between running and scoring (docs/events.md, events.schema.json).

One JSON object per line. A header, then for each utterance a line that opens it, one line per
step and a line that closes it. What is written is on disk line by line, so a run that is killed
leaves a log that `read_log` reads and `resume` continues.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import UNSET

from streaming_asr.chunking import parse_duration
from streaming_asr.errors import UserError
from streaming_asr.events.check import InvalidLog, step_of, violation
from streaming_asr.events.invariants import broken, too_early
from streaming_asr.events.record import Opening, Step, UtteranceLog, committed_words
from streaming_asr.files import check_file
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import TimedWord

__all__ = [
    "SCHEMA",
    "SLIP_S",
    "EventWriter",
    "Log",
    "Step",
    "UtteranceLog",
    "committed_words",
    "read_log",
    "resume",
]

SCHEMA = 1  # raised whenever a reader of the old form would misread the new one
SLIP_S = 0.1  # a chunk of the feed realtime that is fed later than this marks its stream


@dataclass(slots=True)
class Log:
    header: dict[str, Any]
    utterances: list[UtteranceLog]  # those that are closed, in the order of the log


class EventWriter:
    """Appends to a log, line by line; continues after the last closed utterance if there is one.

    `closed` holds the ids of the utterances already in the log. Use as a context manager.
    """

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        """Open the log, with `header` where it is new. Raises UserError where it cannot."""
        self.path = Path(path)
        self.closed: set[str] = resume(self.path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 (closed by close())
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written ({error.strerror}); choose another output folder "
                "or change its permissions."
            ) from error
        if self._file.tell() == 0:
            try:
                self._write({"kind": "header", "schema": SCHEMA, **header})
            except BaseException:
                self.close()
                raise

    def open_utterance(self, utterance: UtteranceLog) -> None:
        """Write the line that opens `utterance` (its steps and result are not looked at)."""
        fields = {
            name: getattr(utterance, name) for name in Opening.__struct_fields__ if name != "kind"
        }
        if utterance.audio_path is None:
            del fields["audio_path"]
        self._write({"kind": "utterance", **fields})

    def step(self, utt: str, step: Step) -> None:
        """Write the line of one step; its counts are among the other fields."""
        fields = {name: getattr(step, name) for name in Step.__struct_fields__}
        for name, value in list(fields.items()):
            if value is UNSET or (value is None and name in ("memory_bytes", "language")):
                del fields[name]
        self._write({"kind": fields.pop("kind"), "utt": utt, **fields})

    def close_utterance(
        self,
        utt: str,
        *,
        error: str | None = None,
        memory_peak_bytes: int | None = None,
        commit_violations: int = 0,
        pacing_slip_s: float | None = None,
    ) -> None:
        """Write the line that closes an utterance, failed where there is an `error`."""
        slip = {} if pacing_slip_s is None else {"pacing_slip_s": round(pacing_slip_s, 4)}
        self._write(
            {
                "kind": "end",
                "utt": utt,
                "status": "ok" if error is None else "failed",
                "error": error,
                "memory_peak_bytes": memory_peak_bytes,
                "commit_violations": commit_violations,
                **slip,
            }
        )
        self.closed.add(utt)
        try:  # a machine that goes down loses no utterance that was reported as done
            os.fsync(self._file.fileno())
        except OSError as failure:
            raise self._full(failure) from failure

    def write_utterance(self, utterance: UtteranceLog) -> None:
        """Write a whole utterance at once."""
        self.open_utterance(utterance)
        for step in utterance.steps:
            self.step(utterance.utt, step)
        self.close_utterance(
            utterance.utt,
            error=utterance.error,
            memory_peak_bytes=utterance.memory_peak_bytes,
            commit_violations=utterance.commit_violations,
            pacing_slip_s=utterance.pacing_slip_s,
        )

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = memoryview(text.encode() + b"\n")
        try:
            while data:  # an unbuffered write may take only a part, on a disk that is nearly full
                data = data[self._file.write(data) :]
        except OSError as error:
            raise self._full(error) from error

    def _full(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path}: cannot be written any further ({error.strerror}); the events written "
            "so far are kept: make room and give the same command again to continue."
        )


def _lines(path: Path, only: frozenset[str] | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number, offset of the line's end in bytes, the line), leaving out a torn last
    line. Raises UserError where the first line is not the header of this schema.

    only: the header and the lines of these utterances.
    """
    offset = 0
    # A line may spell an id with or without escapes.
    kinds = {
        json.dumps(utt, ensure_ascii=is_ascii)[1:-1].encode()
        for utt in only or ()
        for is_ascii in (True, False)
    }
    check_file(path)
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                offset += len(line)
                if not line.endswith(b"\n"):
                    return  # the writer was killed within it
                if number == 1:
                    _check_header(_row(path, number, line), path)
                elif only is not None:
                    named = _UTT.search(line)
                    if named is None or named[1] not in kinds:
                        continue
                yield number, offset, line
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a log's path.") from error


def _row(path: Path, number: int, line: bytes) -> Any:
    """Return the line decoded. Raises InvalidLog for one that is not JSON."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLog(path, [f"line {number}: not JSON ({error})"]) from error


# The id of a line without decoding it: of a long log a page reads few utterances.
_UTT = re.compile(rb'"utt":\s*"((?:[^"\\]|\\.)*)"')


def _check_header(row: Any, path: Path) -> None:
    if not isinstance(row, dict) or row.get("kind") != "header":
        raise UserError(f"{path}: its first line is no header; is this an events.jsonl?")
    if row.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: written in schema {row.get('schema')}, this version reads schema {SCHEMA}; "
            "use the version that wrote it, or run again."
        )


def resume(path: str | Path) -> set[str]:
    """Cut a log after its last closed utterance and return the ids of those closed.

    A torn last line and an utterance without an end go; where not even the header is whole, all
    goes. A path without a file gives the empty set. Raises UserError for a damaged log.
    """
    path = Path(path)
    if not path.is_file():
        return set()
    closed: set[str] = set()
    keep = 0
    for number, end, line in _lines(path):
        # Only what opens and closes is looked at: steps are checked where the log is scored.
        row = _row(path, number, line)
        kind = row.get("kind") if isinstance(row, dict) else None
        if kind not in ("header", "end"):
            continue
        if (problem := violation(row)) is not None:
            raise InvalidLog(path, [f"line {number}: {problem}"])
        if kind == "end":
            closed.add(row["utt"])
        keep = end
    if keep < path.stat().st_size:
        try:
            os.truncate(path, keep)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror}); change its permissions or choose "
                "another output folder."
            ) from error
    return closed


def read_log(path: str | Path, *, only: Collection[str] | None = None) -> Log:
    """Return the closed utterances of a log, leaving out one that is still open at its end.

    only: read just these utterances, which is much faster; what is wrong with others stays
    unseen. Raises UserError for a file that is no log or of another schema, and InvalidLog, which
    lists what is wrong, for one that breaks the published schema or one of events.invariants.
    """
    path = Path(path)
    collecting = gc.isenabled()
    gc.disable()  # nothing here is garbage, and looking for it takes half of the time
    try:
        return _read(path, None if only is None else frozenset(only))
    finally:
        if collecting:
            gc.enable()


def _schedule(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return chunk and first chunk of a run in samples; None where a header does not have them, or
    the method took whole recordings."""
    config = header.get("config") or {}
    if header.get("longform") or "knows" in header or not config.get("first_chunk"):
        return None, None
    try:
        first, chunk = (
            parse_duration(str(config.get(key)), key) * SAMPLE_RATE // 1000
            for key in ("first_chunk", "chunk")
        )
    except UserError:  # of another program
        return None, None
    return chunk, first


def _read(path: Path, only: frozenset[str] | None) -> Log:
    header: dict[str, Any] | None = None
    utterances: list[UtteranceLog] = []
    current: UtteranceLog | None = None
    seen: set[str] = set()
    violations: list[str] = []
    places: list[int] = []  # the lines of the utterance that is open
    n_before = 0  # violations as it was opened
    chunk = first_chunk = None
    is_imported = False
    for number, _, line in _lines(path, only):
        if (step := step_of(line)) is not None:
            kind, problem = None, None
            if current is None or current.utt != step.utt:
                problem = "a step of an utterance that is not open"
            else:
                places.append(number)
                current.steps.append(step)
        else:
            row = _row(path, number, line)
            problem = violation(row)
            kind = None if problem else row.pop("kind")
        if kind == "utterance":
            if current is not None:
                problem = f"utterance {current.utt!r} is still open"
            elif row["utt"] in seen:
                problem = f"utterance {row['utt']!r} is in the log already"
            words = row.pop("words", None)
            current = UtteranceLog(
                **row,
                words=words and [TimedWord(*word) for word in words],
                chunk_samples=chunk,
                first_chunk_samples=first_chunk,
                is_imported=is_imported,
            )
            seen.add(current.utt)
            places, n_before = [number], len(violations)
        elif kind == "end":
            if current is None or current.utt != row.pop("utt"):
                problem = "the end of an utterance that is not open"
            else:
                for name, value in row.items():
                    setattr(current, name, value)
                utterances.append(current)
                if len(violations) == n_before:  # a line that was left out breaks others
                    places.append(number)
                    violations += [f"line {places[at]}: {fault}" for at, fault in broken(current)]
            current = None
        elif kind == "header":
            if header is not None:
                problem = "a second header"
            header = row
            chunk, first_chunk = _schedule(row)
            is_imported = "imported" in (row.get("config") or {})
        if problem is not None:
            violations.append(f"line {number}: {problem}")
    if not violations and not is_imported and only is None and (fault := too_early(utterances)):
        violations.append(f"the whole log: {fault}")
    if violations:
        raise InvalidLog(path, violations)
    if header is None:
        raise UserError(f"{path}: empty; run again to fill it.")
    return Log(header, utterances)
