"""Lines of text files, read and written with errors that name the place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streaming_asr.errors import UserError
from streaming_asr.files import check_file, write_text

AUDIO_SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a")
MOST = 1e9  # the largest time that is read: 31 years in seconds, 11 days in milliseconds
Time = Annotated[float, msgspec.Meta(ge=0, le=MOST)]


def text_of(path: Path) -> str:
    """Return the text of a UTF-8 file, its line ends as line feeds. Raises UserError."""
    check_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); correct the path.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: no UTF-8 text ({error}); convert it first.") from error


def text_lines(path: Path) -> list[str]:
    """Return the lines of a text file. Raises UserError as `text_of` does."""
    text = text_of(path)
    # Not splitlines(): a transcript may hold U+2028 and its like.
    return text.removesuffix("\n").split("\n") if text else []


def text_rows(path: Path) -> Iterator[tuple[str, str]]:
    """Yield ("file, line n", line) of every line that is not blank. Raises UserError."""
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip():
            yield f"{path}, line {number}", line


def json_row(line: str, where: str) -> dict[str, Any]:
    """Return the JSON object of a line. Raises UserError, which begins with `where`, for a line
    that is none, also for one with NaN or Infinity, which JSON lacks."""
    remedy = "write one JSON object per line, and cut a torn last line off"
    return _json_object(line, where, remedy)


def json_file(path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises UserError, which ends with `remedy`."""
    return _json_object(text_of(path), str(path), remedy)


def _json_object(text: str, where: str, remedy: str) -> dict[str, Any]:
    try:
        row = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:  # half of a UTF-16 pair is JSON, but no text
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}): {text[:60]!r}; {remedy}.") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: {text[:60]!r} is JSON, but not an object {{...}}; {remedy}.")
    return row


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("file, line n", object) of a file of one JSON object per line, or raise UserError."""
    return ((where, json_row(line, where)) for where, line in text_rows(path))


def drop_torn_line(path: Path) -> None:
    """Drop a last line without its end, which a process that was killed left half written."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        path.write_bytes(whole)


def numbers(values: Any, where: str) -> list[float]:
    """Return `values` as numbers from 0 to MOST."""
    try:
        as_floats = [float(value) for value in values]
    except OverflowError as error:
        raise UserError(f"{where}: a number is too large; times are {MOST:g} at most.") from error
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {str(values)[:60]} is no list of numbers.") from error
    for value in as_floats:
        if not 0.0 <= value <= MOST:  # nor NaN
            raise UserError(f"{where}: {value} is no time; times are from 0 to {MOST:g}.")
    return as_floats


def files(path: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return `path`, or the files with one of `suffixes` in it where it is a folder, in order."""
    if not path.is_dir():
        return [path]
    inside = sorted(file for file in path.iterdir() if file.suffix in suffixes)
    if not inside:
        raise UserError(f"{path}: no {' or '.join(suffixes)} file in it; one per recording.")
    return inside


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write `lines`; raises UserError where that fails."""
    return write_text(path, "".join(f"{line}\n" for line in lines))


def names_of(source: str) -> tuple[str, ...]:
    """Return what the recording of a path may be called: path, path without suffix, stem."""
    # Other tools name a recording by its path, some without the ending.
    plain = source
    for suffix in AUDIO_SUFFIXES:
        plain = plain.removesuffix(suffix)
    names = (source, plain, source.rsplit("/", 1)[-1], plain.rsplit("/", 1)[-1])
    # Best last for a log without references: the stem is what the other formats call it.
    return tuple(dict.fromkeys(names))
