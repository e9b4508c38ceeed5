"""Lines of text files, read and written with errors that name the place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from streaming_asr.errors import UserError
from streaming_asr.files import check_file

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
        is_wide = path.read_bytes()[:2] in (b"\xff\xfe", b"\xfe\xff")
        why = "its bytes are UTF-16" if is_wide else str(error)
        raise UserError(f"{path}: no UTF-8 text ({why}); convert it to UTF-8 first.") from error


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


def check_new(place_of: dict[str, str], name: str, where: str, remedy: str) -> None:
    """Note in `place_of` the place of a name, "file, line n". Raises UserError, which ends with
    `remedy`, where it has another place already."""
    if (first := place_of.setdefault(name, where)) != where:
        line = first.rpartition(", ")[2]
        raise UserError(f"{where}: {name} is in {line} already; {remedy}")


def json_row(line: str, where: str) -> dict[str, Any]:
    """Return the JSON object of a line. Raises UserError, which begins with `where`, for any other
    line, also for one with NaN or Infinity, which are no JSON."""
    remedy = "write one JSON object per line, and cut a torn last line off"
    return _json_object(line, where, remedy)


def json_file(path: Path, remedy: str) -> dict[str, Any]:
    """Return the JSON object that a file holds. Raises UserError, which ends with `remedy`."""
    return _json_object(text_of(path), str(path), remedy)


def _json_object(text: str, where: str, remedy: str) -> dict[str, Any]:
    """Return the JSON object in `text`. Raises UserError, which has `where` and `remedy`."""
    try:
        row = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:  # half of a UTF-16 pair is JSON, but cannot be encoded
            json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}): {text[:60]!r}; {remedy}.") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: {text[:60]!r} is JSON, but not an object {{...}}; {remedy}.")
    return row


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("file, line n", object) of a file of one JSON object per line. Raises UserError."""
    return ((where, json_row(line, where)) for where, line in text_rows(path))


def drop_torn_line(path: Path) -> None:
    """Remove a last line that does not end with a line feed: a process that was killed wrote only
    a part of it."""
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if len(complete) < len(content):
        path.write_bytes(complete)


def numbers(values: Any, where: str) -> list[float]:
    """Return `values`, numbers or texts, as floats from 0 to MOST. Raises UserError for others."""
    try:
        as_floats = [float(value) for value in values]
    except OverflowError as error:
        raise UserError(f"{where}: a number is too large; times are {MOST:g} at most.") from error
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {str(values)[:60]} is no list of numbers.") from error
    for value in as_floats:
        if not 0.0 <= value <= MOST:  # true for NaN, too
            raise UserError(f"{where}: {value} is no time; times are from 0 to {MOST:g}.")
    return as_floats


def names_of(source: str) -> tuple[str, ...]:
    """Return the names that other tools may have for a recording, each once: its path, the path
    without the ending, the file's name, its stem. The stem is last: for a log without references
    the last name is taken, and other formats use the stem."""
    without_ending = source
    for suffix in AUDIO_SUFFIXES:
        without_ending = without_ending.removesuffix(suffix)
    stem = without_ending.rpartition("/")[2]
    names = (source, without_ending, source.rpartition("/")[2], stem)
    return tuple(dict.fromkeys(names))
