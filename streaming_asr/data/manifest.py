"""Manifests, read and written: one JSON object per line, one line per utterance.

Fields (times in seconds, paths relative to the manifest or absolute):

- `audio_filepath`: the recording; or `parts`: [{"audio_filepath", "gap_s"}, ...], recordings to be
  joined, each followed by `gap_s` of silence
- `text`: the reference as written; "" where nothing is said
- `id`, optional: the file's stem otherwise (with `parts` it is needed)
- `duration`, optional: read from the file's header otherwise
- `speaker`, `language`, optional
- `words`, optional: [[word, start, end], ...]
- `noise`, optional: {"kind", "snr_db", "seed"}, mixed in at loading
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from streaming_asr.data.audio import Composed, File, duration_s
from streaming_asr.data.noise import Noisy
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import TimedWord, Utterance


def read_manifest(path: str | Path) -> list[Utterance]:
    """Return the utterances of a manifest, in its order; audio is checked to exist, not read.

    Raises UserError, with the line number, for a line that is not a JSON object, lacks a field or
    points nowhere.
    """
    path = Path(path)
    utterances: list[Utterance] = []
    for each in scan_manifest(path):
        if isinstance(each, UserError):
            raise each
        utterances.append(each)
    if not utterances:
        raise UserError(f"{path}: no utterance in it; write one JSON object per line.")
    return utterances


def scan_manifest(path: Path) -> Iterator[Utterance | UserError]:
    """Yield each line's utterance, or the error that says what is wrong with the line."""
    first_line: dict[str, int] = {}
    for number, line in enumerate(manifest_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            utterance = _utterance(_json_object(line, where), path.parent, where)
        except UserError as error:
            yield error
            continue
        if utterance.id in first_line:
            yield UserError(
                f"{where}: id {utterance.id!r} stands in line {first_line[utterance.id]} already; "
                "ids must differ: give each line its own `id`."
            )
            continue
        first_line[utterance.id] = number
        yield utterance


def manifest_text(path: Path) -> str:
    """Return the text of a manifest. Raises UserError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such manifest; correct the path.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not readable as a UTF-8 text file ({error}).") from error


def write_manifest(utterances: Iterable[Utterance], path: Path) -> int:
    """Write the utterances as a manifest that `read_manifest` reads; return their number.

    Recordings in files of their own are named by their absolute paths. What is a part of a
    recording, noisy or not in a file is written as 16-bit FLAC into a folder named after the
    manifest. Raises UserError where there is a manifest already, or no utterance.
    """
    import soundfile

    if path.exists():
        raise UserError(f"{path}: is there already; remove it or name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for i, utterance in enumerate(utterances):
        if isinstance(utterance.audio, File):
            file = Path(utterance.audio.path).absolute()
            name = str(file)
        else:
            file = path.parent / path.stem / f"{i:06d}.flac"
            name = f"{path.stem}/{file.name}"
            file.parent.mkdir(exist_ok=True)
            soundfile.write(file, utterance.load(), SAMPLE_RATE, subtype="PCM_16")
        row = {
            "id": utterance.id,
            "audio_filepath": name,
            "duration": round(utterance.duration_s or duration_s(file), 4),
            "text": utterance.text,
            "speaker": utterance.speaker,
            "language": utterance.language,
            "words": [[w.text, round(w.start, 4), round(w.end, 4)] for w in utterance.words]
            if utterance.words is not None
            else None,
        }
        kept = {key: value for key, value in row.items() if value is not None}
        lines.append(json.dumps(kept, ensure_ascii=False) + "\n")
    if not lines:
        raise UserError("data: no utterance to write; choose another split")
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def audio_files(path: Path) -> list[Path]:
    """Return every audio file that a manifest names, without repetition, in its order."""
    files: dict[Path, None] = {}
    for number, line in enumerate(manifest_text(path).splitlines(), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            for file, _ in _files(_json_object(line, where), path.parent, where):
                files[file] = None
    return list(files)


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{where}: not JSON ({error}): {line[:60]!r}; write one JSON object per line."
        ) from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: {line[:60]!r} is JSON, but not an object {{...}}.")
    return row


def _files(row: dict[str, Any], folder: Path, where: str) -> list[tuple[Path, float]]:
    """Return the row's recordings, each with the silence after it in seconds."""
    parts = row.get("parts", [row])
    if not isinstance(parts, list) or not parts or not all(isinstance(p, dict) for p in parts):
        raise UserError(f"{where}: `parts` must be a list of objects with an `audio_filepath`.")
    files: list[tuple[Path, float]] = []
    for part in parts:
        name = part.get("audio_filepath")
        if not isinstance(name, str) or not name:
            raise UserError(f"{where}: no `audio_filepath`; name the recording's file.")
        file = folder / name
        if not file.is_file():
            raise UserError(
                f"{where}: {name!r} points nowhere ({file}); paths are relative to the manifest."
            )
        files.append((file, float(part.get("gap_s", 0.0)) if "parts" in row else 0.0))
    return files


def _utterance(row: dict[str, Any], folder: Path, where: str) -> Utterance:
    files = _files(row, folder, where)
    composed = "parts" in row
    text, name = row.get("text"), row.get("id", None if composed else files[0][0].stem)
    if not isinstance(text, str):
        raise UserError(f'{where}: no `text`; write the reference, or "" where nothing is said.')
    if not isinstance(name, str) or not name:
        raise UserError(f"{where}: `id` is {name!r}; a line needs a text that names it.")
    length_s = row.get("duration")
    if length_s is None:
        length_s = sum(duration_s(file) + gap_s for file, gap_s in files)
    elif isinstance(length_s, bool) or not isinstance(length_s, int | float) or length_s < 0:
        raise UserError(f"{where}: `duration` is {length_s!r}; write the length in seconds.")
    clean = Composed(tuple(files)) if composed else File(files[0][0])
    noise = row.get("noise")
    return Utterance(
        id=name,
        text=text,
        audio=clean if noise is None else _noisy(clean, noise, where),
        duration_s=float(length_s),
        speaker=_optional_text(row, "speaker", where),
        language=_optional_text(row, "language", where),
        words=_words(row["words"], where) if row.get("words") is not None else None,
        audio_path=None if composed else str(files[0][0]),
    )


def _noisy(clean: File | Composed, noise: Any, where: str) -> Noisy:
    try:
        return Noisy(clean, str(noise["kind"]), float(noise["snr_db"]), int(noise["seed"]))
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f'{where}: `noise` is {noise!r}; write {{"kind": "white", "snr_db": 10, "seed": 1}}.'
        ) from error


def _optional_text(row: dict[str, Any], key: str, where: str) -> str | None:
    value = row.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # LibriSpeech's speakers are numbers
    if value is not None and not isinstance(value, str):
        raise UserError(f"{where}: `{key}` is {value!r}; write a text.")
    return value


def _words(rows: Any, where: str) -> tuple[TimedWord, ...]:
    try:
        words = tuple(TimedWord(str(text), float(start), float(end)) for text, start, end in rows)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{where}: `words` must be a list of [word, start, end], times in seconds."
        ) from error
    for word in words:
        if not 0.0 <= word.start <= word.end:
            raise UserError(
                f"{where}: the word {word.text!r} runs from {word.start} to {word.end} s; "
                "a word starts at 0 or later and ends after it starts."
            )
    return words
