"""events.jsonl: the contract between running and scoring (docs/events.md, events.schema.json).

One JSON object per line: a header, then for each utterance a line that opens it, one line per step
and a line that closes it. Each line is written at once, so a run that is killed leaves a log that
`read_log` reads and `resume` continues.
"""

from __future__ import annotations

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
from streaming_asr.events.invariants import broken
from streaming_asr.events.record import Opening, Step, StepLine, UtteranceLog, committed_words
from streaming_asr.files import check_file, replacing
from streaming_asr.machine import one_collection
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
    "forget_failed",
    "read_log",
    "resume",
]

SCHEMA = 1  # increased whenever a reader of the old form would misread the new one
SLIP_S = 0.1  # a stream of the feed realtime has a warning if a chunk is fed later than this


@dataclass(slots=True)
class Log:
    header: dict[str, Any]
    utterances: list[UtteranceLog]  #: those that are closed, in the order of the log


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
        """Write the line that opens `utterance`, without its steps and its result."""
        fields = {
            name: getattr(utterance, name) for name in Opening.__struct_fields__ if name != "kind"
        }
        for name in ("audio_path", "prompt", "biasing"):
            if fields[name] is None:
                del fields[name]
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
        try:  # if the machine crashes, no utterance is lost that was reported as done
            os.fsync(self._file.fileno())
        except OSError as failure:
            raise self._full(failure) from failure

    def write_utterance(self, utterance: UtteranceLog) -> None:
        """Write all lines of an utterance."""
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
        """Write one line at once. Raises UserError where the disk is full."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        data = memoryview(text.encode() + b"\n")
        try:
            while data:  # an unbuffered write may write only a part, on a disk that is nearly full
                n_written = self._file.write(data)
                data = data[n_written:]
        except OSError as error:
            raise self._full(error) from error

    def _full(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path}: cannot be written any further ({error.strerror}); the events written "
            "so far are kept: make room and give the same command again to continue."
        )


def _lines(path: Path, only: frozenset[str] | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Yield (line number from 1, end of the line in bytes of the file, line) of the complete lines.

    only: of the header and the lines of these utterances. Raises UserError where the first line is
    not the header of this schema.
    """
    end = 0
    encoded_ids = set()  # an id may be written with or without escapes
    for utt in only or ():
        encoded_ids.add(json.dumps(utt, ensure_ascii=True)[1:-1].encode())
        encoded_ids.add(json.dumps(utt, ensure_ascii=False)[1:-1].encode())
    check_file(path)
    try:
        with open(path, "rb") as file:
            for number, line in enumerate(file, start=1):
                end += len(line)
                if not line.endswith(b"\n"):
                    return  # the writer was killed while it wrote the line
                if number == 1:
                    _check_header(_row(path, number, line), path)
                elif only is not None:
                    id_match = _UTT.search(line)
                    if id_match is None or id_match[1] not in encoded_ids:
                        continue
                yield number, end, line
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a log's path.") from error


def _row(path: Path, number: int, line: bytes) -> Any:
    """Return the line decoded. Raises InvalidLog for one that is not JSON."""
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        raise InvalidLog(path, [f"line {number}: not JSON ({error})"]) from error


# The id of a line, found without decoding the line: a page reads few utterances of a long log.
_UTT = re.compile(rb'"utt":\s*"((?:[^"\\]|\\.)*)"')


def _check_header(row: Any, path: Path) -> None:
    """Raise UserError for a first line that is no header, or one of another schema."""
    if not isinstance(row, dict) or row.get("kind") != "header":
        raise UserError(f"{path}: its first line is no header; is this an events.jsonl?")
    if row.get("schema") != SCHEMA:
        raise UserError(
            f"{path}: written in schema {row.get('schema')}, this version reads schema {SCHEMA}; "
            "use the version that wrote it, or run again."
        )


def resume(path: str | Path) -> set[str]:
    """Cut a log off after its last closed utterance, and return the ids of the closed ones.

    An incomplete last line and an utterance without an end are removed; without a complete header,
    everything is. A path without a file gives the empty set. Raises UserError for a damaged log.
    """
    path = Path(path)
    if not path.is_file():
        return set()
    closed: set[str] = set()
    n_bytes_to_keep = 0
    for number, end, line in _lines(path):
        # Only headers and ends are checked; steps are checked where the log is scored.
        row = _row(path, number, line)
        kind = row.get("kind") if isinstance(row, dict) else None
        if kind not in ("header", "end"):
            continue
        if (problem := violation(row)) is not None:
            raise InvalidLog(path, [f"line {number}: {problem}"])
        if kind == "end":
            closed.add(row["utt"])
        n_bytes_to_keep = end
    if n_bytes_to_keep < path.stat().st_size:
        try:
            os.truncate(path, n_bytes_to_keep)
        except OSError as error:
            raise UserError(
                f"{path}: cannot be written ({error.strerror}); change its permissions or choose "
                "another output folder."
            ) from error
    return closed


def forget_failed(path: Path) -> int:
    """Remove the utterances that failed from a log, so that a run tries them again, and return how
    many they were. Raises UserError for a damaged log."""
    content: list[bytes] = []
    of_utterance: list[bytes] = []
    n_failed = 0
    for number, _, line in _lines(path) if path.is_file() else ():
        of_utterance.append(line)
        # Steps are most of the lines, and need not be decoded.
        row = None if step_of(line) is not None else _row(path, number, line)
        row = row if isinstance(row, dict) else {}
        kind = row.get("kind")
        if kind == "end" and row.get("status") == "failed":
            n_failed += 1
            of_utterance = []
        elif kind in ("header", "end"):
            content += of_utterance
            of_utterance = []
    if n_failed:
        with replacing(path) as scratch:
            scratch.write_bytes(b"".join(content))
    return n_failed


@one_collection()
def read_log(path: str | Path, *, only: Collection[str] | None = None) -> Log:
    """Return the header and the closed utterances of a log, without one that is open at its end.

    only: read only these utterances, which is much faster; faults of others are not found. Raises
    UserError for a file that is no log or of another schema, and InvalidLog, which lists the
    faults, for one that breaks the published schema or one of events.invariants.
    """
    return _Reader(Path(path), None if only is None else frozenset(only)).read()


def _schedule(header: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return (chunk, first chunk) of a run in samples; (None, None) for a header without them, and
    for a method that takes whole recordings."""
    config = header.get("config") or {}
    if header.get("longform") or "knows" in header or not config.get("first_chunk"):
        return None, None
    try:
        chunk_ms = parse_duration(str(config.get("chunk")), "chunk")
        first_chunk_ms = parse_duration(str(config.get("first_chunk")), "first_chunk")
    except UserError:  # of another program
        return None, None
    return chunk_ms * SAMPLE_RATE // 1000, first_chunk_ms * SAMPLE_RATE // 1000


class _Reader:
    """Reads a log line by line, and collects the utterances and the violations.

    A method that takes a line returns what is wrong with it, or None.
    """

    def __init__(self, path: Path, only: frozenset[str] | None) -> None:
        self._path, self._only = path, only
        self._header: dict[str, Any] | None = None
        self._is_imported = False
        self._chunk_samples: int | None = None
        self._first_chunk_samples: int | None = None
        self._planned_feed: str | None = None
        self._utterances: list[UtteranceLog] = []
        self._ids: set[str] = set()  # of utterances that were opened
        self._violations: list[str] = []
        self._open: UtteranceLog | None = None
        self._open_lines: list[int] = []  # the line numbers of the open utterance
        self._n_violations_before = 0  # when it was opened

    def read(self) -> Log:
        """Return the log. Raises as `read_log` does."""
        for number, _, line in _lines(self._path, self._only):
            if (step := step_of(line)) is not None:
                problem = self._step(step, number)
            else:
                row = _row(self._path, number, line)
                problem = violation(row) or self._row(row, number)
            if problem is not None:
                self._violations.append(f"line {number}: {problem}")
        if self._violations:
            raise InvalidLog(self._path, self._violations)
        if self._header is None:
            raise UserError(f"{self._path}: empty; run again to fill it.")
        return Log(self._header, self._utterances)

    def _step(self, step: StepLine, number: int) -> str | None:
        if self._open is None or self._open.utt != step.utt:
            return "a step of an utterance that is not open"
        self._open_lines.append(number)
        self._open.steps.append(step)
        return None

    def _row(self, row: dict[str, Any], number: int) -> str | None:
        kind = row.pop("kind")
        if kind == "utterance":
            return self._opening(row, number)
        return self._ending(row, number) if kind == "end" else self._take_header(row)

    def _take_header(self, row: dict[str, Any]) -> str | None:
        problem = None if self._header is None else "a second header"
        self._header = row
        self._chunk_samples, self._first_chunk_samples = _schedule(row)
        config = row.get("config") or {}
        self._is_imported = "imported" in config
        is_live = isinstance(data := config.get("data"), dict) and data.get("name") == "live"
        has_feed = not is_live and "knows" not in row  # not texts of another program
        self._planned_feed = config.get("feed") if has_feed else None
        return problem

    def _opening(self, row: dict[str, Any], number: int) -> str | None:
        """Open an utterance; a fault is that another one is open, or that the id is not new."""
        problem = None
        if self._open is not None:
            problem = f"utterance {self._open.utt!r} is still open"
        elif row["utt"] in self._ids:
            problem = f"utterance {row['utt']!r} is in the log already"
        words = row.pop("words", None)
        self._open = UtteranceLog(
            **row,
            words=words and [TimedWord(*word) for word in words],
            chunk_samples=self._chunk_samples,
            first_chunk_samples=self._first_chunk_samples,
            planned_feed=self._planned_feed,
            is_imported=self._is_imported,
        )
        self._ids.add(self._open.utt)
        self._open_lines, self._n_violations_before = [number], len(self._violations)
        return problem

    def _ending(self, row: dict[str, Any], number: int) -> str | None:
        """Close the open utterance, and check its invariants."""
        utterance, self._open = self._open, None
        if utterance is None or utterance.utt != row.pop("utt"):
            return "the end of an utterance that is not open"
        for name, value in row.items():
            setattr(utterance, name, value)
        self._utterances.append(utterance)
        # Where a line has a fault, it is not in the utterance: the invariants would report more.
        if len(self._violations) == self._n_violations_before:
            self._open_lines.append(number)
            for place, fault in broken(utterance):
                self._violations.append(f"line {self._open_lines[place]}: {fault}")
        return None
