"""Manifests, read and written: one JSON object per line, one line per utterance.

Fields (times in seconds, paths relative to the manifest or absolute):

- `audio_filepath`: the recording; or `parts`: [{"audio_filepath", "gap_s"}, ...], recordings to be
  joined, each followed by `gap_s` of silence
- `text`: the reference as written; "" where nobody speaks
- `id`, optional: the file's stem otherwise (with `parts` it is needed)
- `duration`, optional: read from the file's header otherwise
- `offset`, optional: the begin of a part of the recording, which lasts `duration`
- `speaker`, `language` (or `lang`), optional
- `words`, optional: [[word, start, end], ...]
- `biasing`, optional: the words that B-WER counts
- `prompt`, optional: of this recording, in place of the setting
- `noise`, optional: {"kind", "snr_db", "seed"}, mixed in at loading
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from streaming_asr.corpora.audio import Composed, Cut, File, duration_s
from streaming_asr.corpora.noise import Noisy
from streaming_asr.corpora.rows import MOST, Time, check_new, json_row, text_rows
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.references import problems
from streaming_asr.schemas import schema_of, violation
from streaming_asr.text.languages import UNNAMED, language_code
from streaming_asr.utterance import MAX_TEXT, TimedWord, Utterance

DAY_S = 86400
Name = Annotated[str, Meta(min_length=1, description="name the recording's file")]
Label = Annotated[str | int | None, Meta(description="write a text")]


class Part(Struct, kw_only=True):
    """One of several recordings that are joined."""

    audio_filepath: Name
    gap_s: Annotated[
        float,
        Meta(ge=0, le=DAY_S, description="write the silence after the recording in seconds"),
    ] = 0


class Noise(Struct, kw_only=True):
    """Noise that is mixed in at loading."""

    kind: str
    snr_db: Annotated[float, Meta(ge=-200, le=200)]
    seed: Annotated[int, Meta(ge=0)]


class Line(Struct, kw_only=True):
    """A line; a field's description states what to write in its place."""

    audio_filepath: Name | UnsetType = UNSET
    parts: (
        Annotated[
            list[Part],
            Meta(
                min_length=1,
                description="`parts` must be a list of objects with an `audio_filepath`",
            ),
        ]
        | UnsetType
    ) = UNSET
    text: Annotated[
        str,
        Meta(
            max_length=MAX_TEXT,
            description=f'write the reference, of {MAX_TEXT:,} letters at most, or "" where '
            "nobody speaks",
        ),
    ]
    id: (
        Annotated[
            Annotated[str, Meta(min_length=1)] | int,
            Meta(description="a line needs a text or a whole number that names it"),
        ]
        | UnsetType
    ) = UNSET
    duration: Annotated[
        Annotated[float, Meta(ge=0, le=DAY_S)] | None,
        Meta(description="write the length in seconds, a day at most"),
    ] = None
    speaker: Label = None
    language: Label = None
    offset: Annotated[
        Annotated[float, Meta(ge=0, le=MOST)] | None,
        Meta(description="write the begin of the part in seconds"),
    ] = None
    channel_selector: Annotated[
        Literal["average"] | None,
        Meta(
            description="all channels are read as their mean; write the channel to a file of "
            "its own"
        ),
    ] = None
    words: Annotated[
        list[tuple[str, Time, Time]] | None,
        Meta(description="write a list of [word, start, end], times in seconds"),
    ] = None
    biasing: Annotated[
        list[Annotated[str, Meta(min_length=1)]] | None,
        Meta(description="write a list of the words that B-WER counts"),
    ] = None
    prompt: Annotated[str | None, Meta(description="write a text")] = None
    noise: Annotated[
        Noise | None,
        Meta(description='write {"kind": "white", "snr_db": 10, "seed": 1}'),
    ] = None

    def __post_init__(self) -> None:
        if self.audio_filepath is UNSET and (self.parts is UNSET or self.offset):
            raise ValueError("lacks `audio_filepath`")
        if self.offset and self.duration is None:
            raise ValueError("lacks `duration`")
        if self.parts is not UNSET and self.id is UNSET:
            raise ValueError("lacks `id`")


SCHEMA = schema_of(
    "One line of a manifest; a field's description states what to write in its place",
    Line,
    **{
        "if": {"required": ["parts"]},
        "then": {"required": ["id"]},
        "else": {"required": ["audio_filepath"]},
        "allOf": [
            {
                "if": {
                    "properties": {"offset": {"type": "number", "exclusiveMinimum": 0}},
                    "required": ["offset"],
                },
                "then": {"properties": {"duration": {"type": "number"}}, "required": ["duration"]},
            }
        ],
    },
)
"""The JSON Schema of a line, which manifest.schema.json holds."""


class _Outline(Struct):
    """What `outlines` reads of a line, or of one of its parts; `Line` checks the values."""

    audio_filepath: str = ""
    id: Any = ""
    language: Any = None
    lang: Any = None
    offset: float | None = None
    duration: float | None = None
    parts: list[_Outline] = []


class Outline(NamedTuple):
    """An utterance's id, its recordings as the line names them, and its language as Whisper's
    code."""

    id: str
    files: list[str]
    language: str | None


def read_manifest(path: str | Path) -> list[Utterance]:
    """Return a manifest's utterances; audio is checked to exist, not read. Raises UserError."""
    path = Path(path)
    utterances: list[Utterance] = []
    for each in scan_manifest(path):
        if isinstance(each, UserError):
            raise each
        utterances.append(each)
    if not utterances:
        raise UserError(f"{path}: no utterance in it; write one JSON object per line.")
    return utterances


def scan_manifest(
    path: Path,
    chosen: Collection[int] | None = None,
    *,
    folder: Path | None = None,
    text_key: str = "text",
    language: str | None = None,
) -> Iterator[Utterance | UserError]:
    """Yield the utterance of each line, or a UserError in the place of a line with a fault.

    chosen: the numbers of the only lines, blank ones not counted. folder: relative paths start
    there, None: next to the manifest. text_key: the field with the reference. language: of lines
    that name none.
    """
    place_of: dict[str, str] = {}  # "file, line n" by id
    for n, (where, line) in enumerate(text_rows(path)):
        if chosen is not None and n not in chosen:
            continue
        try:
            row = _row(line, where, text_key)
            utterance = _utterance(row, folder or path.parent, where, language)
            rule = "ids must differ: give each line its own `id`."
            check_new(place_of, f"id {utterance.id!r}", where, rule)
        except UserError as error:
            yield error
        else:
            yield utterance


def write_manifest(utterances: Iterable[Utterance], path: Path) -> int:
    """Write the utterances as a manifest that `read_manifest` reads; return their number.

    A recording that is a file is named by its absolute path. Any other audio (a part of a file,
    noisy, joined) is written as 16-bit FLAC into a folder named after the manifest. Raises
    UserError where there is a manifest already, or no utterance.
    """
    import soundfile

    if path.exists():
        raise UserError(f"{path}: is there already; remove it or name another file")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
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
            "words": None if utterance.words is None else word_rows(utterance.words),
            "biasing": utterance.biasing,
            "prompt": utterance.prompt,
        }
        rows.append({key: value for key, value in row.items() if value is not None})
    if not rows:
        raise UserError("data: no utterance to write; choose another split")
    write_rows(path, rows)
    return len(rows)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a line for each row, all or nothing. Raises UserError."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def word_rows(words: Iterable[TimedWord]) -> list[list[Any]]:
    """Return the words as a line has them."""
    return [[word.text, round(word.start, 4), round(word.end, 4)] for word in words]


def outlines(path: Path) -> list[Outline] | None:
    """Return what can be known of each line in a few microseconds; None where a line has a fault
    or an id is there twice, which `scan_manifest` reports. Raises UserError for no text file."""
    try:
        rows = [msgspec.json.decode(line, type=_Outline) for _, line in text_rows(path)]
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None
    names = [
        _part_name(row.audio_filepath, row.offset, row.duration) if row.id == "" else str(row.id)
        for row in rows
    ]
    if len(set(names)) < len(names) or "" in names:
        return None
    return [
        Outline(
            name,
            [part.audio_filepath for part in row.parts or (row,)],
            _code(row.language or row.lang),
        )
        for name, row in zip(names, rows, strict=True)
    ]


def _row(line: str, where: str, text_key: str) -> dict[str, Any]:
    """Return the JSON object of a line, checked by `Line`. Raises UserError, which ends with the
    description of the field that is wrong."""
    row = json_row(line, where)
    if text_key != "text":
        if not isinstance(row.get(text_key), str):
            raise UserError(f"{where}: no `{text_key}`; name another with data.text_key=")
        row["text"] = row[text_key]
    row["language"] = row.get("language") or row.get("lang")
    if (fault := violation(row, Line)) is None:
        return row
    if fault.place:
        field = str(fault.place[0])
        problem = f"`{fault.name}` is {repr(fault.value)[:60]}"
    else:  # of the whole line: a field is missing
        field = fault.rule.removeprefix("lacks ").strip("`")
        named = [name for name in row if row[name] is not None]
        names = ", ".join(f"`{name}`" for name in named[:8]) or "nothing"
        problem = f"no `{field}`; it has {names}"
    remedy = SCHEMA["$defs"]["Line"]["properties"][field]["description"]
    raise UserError(f"{where}: {problem}; {remedy}.")


def _files(row: dict[str, Any], folder: Path, where: str) -> list[tuple[Path, float]]:
    """Return the row's recordings, each with the silence after it in seconds. Raises UserError for
    one that is missing."""
    files: list[tuple[Path, float]] = []
    for part in row.get("parts", [row]):
        name = part["audio_filepath"]
        file = folder / name
        if not os.path.isfile(file):  # False for a name too long to be one, too
            raise UserError(
                f"{where}: {name!r} points nowhere ({file}); paths are relative to the manifest."
            )
        files.append((file, float(part.get("gap_s", 0.0)) if "parts" in row else 0.0))
    return files


def _utterance(row: dict[str, Any], folder: Path, where: str, language: str | None) -> Utterance:
    """Return the utterance of a checked line, in `language` where it names none. Raises UserError
    for audio that is missing, and for word times that do not fit the text or the duration."""
    files = _files(row, folder, where)
    first_file = files[0][0]
    length_s = row.get("duration")
    if length_s is None:
        length_s = sum(duration_s(file) + gap_s for file, gap_s in files)
    begin_s = row.get("offset")
    audio: Composed | Cut | File | Noisy
    audio = Composed(tuple(files)) if "parts" in row else File(first_file)
    if begin_s is not None and length_s:
        audio = Cut(first_file, float(begin_s), float(begin_s + length_s))
    if (noise := row.get("noise")) is not None:
        audio = Noisy(audio, noise["kind"], float(noise["snr_db"]), int(noise["seed"]))
    utterance = Utterance(
        id=_name(row, "id") or _part_name(row["audio_filepath"], begin_s, row.get("duration")),
        text=row["text"],
        audio=audio,
        duration_s=float(length_s),
        speaker=_name(row, "speaker"),
        language=_code(row["language"]) or language,
        words=_words(row["words"]) if row.get("words") is not None else None,
        biasing=None if row.get("biasing") is None else tuple(row["biasing"]),
        prompt=row.get("prompt") or None,
        audio_path=None if "parts" in row else str(first_file),
    )
    if problem := next(problems(utterance), None):
        raise UserError(
            f"{where}: {utterance.id}: {problem}; correct the line, or leave `words` out."
        )
    return utterance


def _name(row: dict[str, Any], key: str) -> str | None:
    """Return a name as a text; LibriSpeech's speakers are numbers, and some ids."""
    value = row.get(key)
    return None if value is None else str(value)


def _part_name(file: str, begin_s: float | None, length_s: float | None) -> str:
    """Return the id of a line that has none: the recording's name, of a part with its times."""
    stem = Path(file).stem
    if begin_s is None:
        return stem
    return f"{stem}-{round(begin_s * 1000):08d}-{round((length_s or 0) * 1000):06d}"


def _code(language: str | int | None) -> str | None:
    code = language_code(str(language or ""))
    return None if code in UNNAMED else code


def _words(rows: list[tuple[str, float, float]]) -> tuple[TimedWord, ...]:
    return tuple(TimedWord(text, float(start), float(end)) for text, start, end in rows)
