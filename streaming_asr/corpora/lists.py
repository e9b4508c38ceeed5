"""The frozen lists of utterances: test sets, which no training hears, and dev sets.

Each is a table of corpora/lists. Its head says where the speech is from, under which licence,
and in which forms its recordings are known. A row has
- `id`, `speaker` (of Common Voice the first 12 digits of the sha256 of the client id),
- `seconds` (of the copy at hand; compression adds up to a tenth of a second),
- `text`: the first 16 digits of the sha256 of the reference, normalised as Whisper's scores are,
  which is the same for capitals and for written text,
- for each form, as `flac` or `mp3`, the sha256 of the file; a file is named after its form.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from streaming_asr.corpora.audio import duration_s
from streaming_asr.corpora.rows import text_rows
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import cache_root
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import Utterance

FOLDER = Path(__file__).parent / "lists"
PARTS = {
    "clean-10-150": ("clean-10", 15),
    "clean-dev-100": ("clean-dev", 10),
    "cv-dev-2": ("cv-dev", 2),
    "cv-native-2": ("cv-native", 2),
}
"""Lists that are so many utterances of each speaker of another, those with the smallest hashes."""

DIGITS_OF_SPEAKER = 12
DIGITS_OF_TEXT = 16
OTHER_LENGTH_S = 0.3
"""A recording in an unknown form that differs more in length is another recording."""
LEAST_WORDS = 4
"""Shorter texts are said by chance, and are no sign of a test set."""
NAMED = 5
USES = ("test", "dev")

# LibriSpeech's and MLS's ids: reader-chapter-number, reader_book_number. Both count LibriVox's
# readers, so a reader's number is the same person in both.
OF_READER = re.compile(r"(?<!\d)(\d+)(?:-\d+-\d{4}|_\d+_\d{6})(?!\d)")


@dataclass(frozen=True, slots=True)
class ListedUtterance:
    """An utterance of a list; `files`: the sha256 of its recording in each known form."""

    id: str
    speaker: str
    seconds: float
    text: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class SpeechList:
    """A frozen list. `use`: test or dev. `head`: what its table says of the speech."""

    name: str
    head: Mapping[str, Sequence[str]]
    rows: Mapping[str, ListedUtterance]

    @property
    def use(self) -> str:
        """Return what the list is for: `test` or `dev`."""
        return self.head["use"][0]

    @property
    def origin(self) -> str:
        """Return the corpus and the split as they are given on a command line."""
        return f"data={self.head['corpus'][0]} data.split={self.head['split'][0]}"


def list_names() -> list[str]:
    """Return the names of the lists, parts of others among them."""
    return sorted([*(file.stem for file in FOLDER.glob("*.tsv")), *PARTS])


def whole_list(name: str) -> str:
    """Return the list that holds the speech of the list `name`: itself but for a part."""
    return PARTS[name][0] if name in PARTS else name


@cache
def speech_list(name: str) -> SpeechList:
    """Return a list by its name. Raises UserError for a name that is none."""
    if name not in list_names():
        raise UserError(
            f"data.ids={name}: no list of this name and no file{did_you_mean(name, list_names())}; "
            f"there are {', '.join(list_names())}, or give a file with an id on each line"
        )
    if name in PARTS:
        whole, per_speaker = speech_list(PARTS[name][0]), PARTS[name][1]
        return SpeechList(name, whole.head, _some_of_each(whole.rows.values(), per_speaker))
    head: dict[str, list[str]] = {}
    rows: dict[str, ListedUtterance] = {}
    columns: list[str] = []
    for line in (FOLDER / f"{name}.tsv").read_text(encoding="utf-8").splitlines():
        cells = line.split("\t")
        if line.startswith("#"):
            head.setdefault(cells[0].removeprefix("# "), []).append(cells[1])
        elif not columns:
            columns = cells
        else:
            named = dict(zip(columns, cells, strict=True))
            files = {form: named[form] for form in columns[4:] if named[form]}
            seconds = float(named["seconds"])
            rows[named["id"]] = ListedUtterance(
                named["id"], named["speaker"], seconds, named["text"], files
            )
    return SpeechList(name, head, rows)


def _some_of_each(rows: Iterable[ListedUtterance], per_speaker: int) -> dict[str, ListedUtterance]:
    by_hash = sorted(rows, key=lambda row: hashlib.sha256(row.id.encode()).digest())
    taken: Counter[str] = Counter()
    chosen = set()
    for row in by_hash:
        taken[row.speaker] += 1
        if taken[row.speaker] <= per_speaker:
            chosen.add(row.id)
    return {row.id: row for row in by_hash if row.id in chosen}


def text_hash(text: str) -> str:
    """Return the hash that stands in a list for this reference."""
    return hashlib.sha256(normaliser("en")(text).encode()).hexdigest()[:DIGITS_OF_TEXT]


def speaker_hash(client_id: str) -> str:
    """Return what the lists call a speaker of Common Voice."""
    return hashlib.sha256(client_id.encode()).hexdigest()[:DIGITS_OF_SPEAKER]


def place_of(name: str) -> Path:
    """Return where `streaming_asr.run.obtain` keeps the speech of a list."""
    return cache_root() / "speech" / whole_list(name)


def obtained(ids: str | None) -> Path:
    """Return the folder of the speech of the list `ids`. Raises UserError where it is not there."""
    if ids in list_names() and place_of(str(ids)).is_dir():
        return place_of(str(ids))
    get = f"; `streaming-asr get {whole_list(str(ids))}` obtains that of {ids}"
    raise UserError(
        "data.path: has no default; give data.path=<the corpus's folder>"
        + (get if ids in list_names() else "")
    )


# -- data.ids= ------------------------------------------------------------------------------


def chosen_ids(ids: str) -> list[str]:
    """Return the ids of a list, or of a file that begins each line with one. Raises UserError."""
    file = Path(ids).expanduser()
    if ids in list_names() or not file.is_file():
        return list(speech_list(ids).rows)
    first: dict[str, str] = {}
    for where, line in text_rows(file):
        name = line.split()[0]
        if name.startswith("#"):
            continue
        if name in first:
            raise UserError(f"{where}: id {name!r} is in {first[name]} already; remove one")
        first[name] = where.rpartition(", ")[2]
    if not first:
        raise UserError(f"data.ids={ids}: no id in it; write one on each line")
    return list(first)


def of_ids(utterances: Sequence[Utterance | UserError], ids: str) -> list[Utterance | UserError]:
    """Return those of the utterances that `ids` names, in the corpus's order, and the problems that
    concern them.

    Of a frozen list the text and the recording are compared with the list; in place of another one
    stands the error that names it. A form of the recording that the list does not know is told on
    standard error. One error more names the utterances that are missing.
    """
    everyone = chosen_ids(ids)
    missing = dict.fromkeys(everyone)
    listed = speech_list(ids) if ids in list_names() else None
    chosen: list[Utterance | UserError] = []
    unknown: Counter[str] = Counter()
    for each in utterances:
        if isinstance(each, UserError):
            if concerned := _named_in(str(each), everyone):
                chosen.append(each)
                missing.pop(concerned, None)
        elif each.id in missing:
            chosen.append(each if listed is None else _as_listed(each, listed, unknown))
            del missing[each.id]
    if missing:
        whence = f" of {listed.origin}" if listed else ""
        problem = UserError(
            f"data.ids={ids}: {len(missing)} of its utterances{whence} are not there: "
            f"{_some(list(missing))}; give the split and the folder that hold them all"
        )
        chosen.insert(0, problem)
    for form, n in unknown.items():
        print(
            f"warning: {ids}: {n} recordings are {form or 'without a file'}, which is not one of "
            "the known copies, so only their lengths were compared with the list",
            file=sys.stderr,
        )
    return chosen


def _named_in(problem: str, ids: Iterable[str]) -> str | None:
    """Return the first of `ids` that `problem` names as a whole word."""
    for name in ids:
        if name in problem and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", problem):
            return name
    return None


def _as_listed(
    utterance: Utterance, listed: SpeechList, unknown: Counter[str]
) -> Utterance | UserError:
    """Return the utterance with the list's speaker, or how it is another one than the list's.

    Counts a form that the list does not know in `unknown`.
    """
    row, name = listed.rows[utterance.id], utterance.id
    if text_hash(utterance.text) != row.text:
        return UserError(
            f"{name}: its text {utterance.text[:60]!r} is not the one of {listed.name}; take the "
            f"corpus's own, {listed.origin}"
        )
    file = Path(utterance.audio_path) if utterance.audio_path else None
    form = file.suffix[1:].lower() if file else ""
    if file and form in row.files:
        if hashlib.sha256(file.read_bytes()).hexdigest() != row.files[form]:
            return UserError(
                f"{file}: other audio than {name} of {listed.name}, whose {form} has the sha256 "
                f"{row.files[form][:12]}...; take the right file, or all from "
                f"`streaming-asr get {whole_list(listed.name)}`"
            )
    else:
        unknown[form] += 1
        length_s = utterance.duration_s or (duration_s(file) if file else 0.0)
        if abs(length_s - row.seconds) > OTHER_LENGTH_S:
            return UserError(
                f"{file or name}: lasts {length_s:.2f} s, and {name} of {listed.name} "
                f"{row.seconds:.2f} s; it is another recording under this id"
            )
    return replace(
        utterance,
        speaker=row.speaker,
        language=utterance.language or listed.head["language"][0],
    )


# -- what no training hears -----------------------------------------------------------------


@dataclass(frozen=True)
class _Index:
    ids: Mapping[str, str]
    speakers: Mapping[str, str]
    texts: Mapping[str, str]


@cache
def _index(uses: tuple[str, ...]) -> _Index:
    ids, speakers, texts = {}, {}, {}
    for file in sorted(FOLDER.glob("*.tsv")):
        listed = speech_list(file.stem)
        if listed.use in uses:
            for row in listed.rows.values():
                ids[row.id] = speakers[row.speaker] = texts[row.text] = listed.name
    return _Index(ids, speakers, texts)


class Said(Protocol):
    """What is looked up: an utterance of a corpus, or one of training shards."""

    @property
    def id(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def text(self) -> str: ...
    @property
    def language(self) -> str | None: ...


def held_by(utterance: Said, uses: Sequence[str] = USES) -> tuple[str, str] | None:
    """Return the frozen list that holds the utterance, its speaker or its text, and which of them;
    None where none does.

    A speaker whose name is a number is a reader of LibriSpeech where the id begins with it as
    LibriSpeech's and MLS's do, or where there is no id, as in shards of old: other corpora number
    their speakers too. Texts of fewer than four words are not compared, nor are those that are not
    English. uses: of the lists that are looked at.
    """
    index, speaker = _index(tuple(uses)), utterance.speaker or ""
    if utterance.id in index.ids:
        return index.ids[utterance.id], f"utterance {utterance.id}"
    reader = OF_READER.search(utterance.id)
    people = [reader[1]] if reader else []
    if not speaker.isdigit() or not utterance.id:
        people.append(speaker)
    if len(speaker) > DIGITS_OF_SPEAKER:
        people.append(speaker_hash(speaker))
    for person in people:
        if person in index.speakers:
            return index.speakers[person], f"speaker {person}"
    if (utterance.language or "en") == "en" and len(
        normaliser("en").words(utterance.text)
    ) >= LEAST_WORDS:
        name = index.texts.get(text_hash(utterance.text))
        if name is not None:
            return name, f"text {utterance.text[:60]!r}"
    return None


def without_listed(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield the utterances that no frozen list holds, for training; how many others there were,
    and the first of them, is told on standard error at the end."""
    omissions: dict[str, list[str]] = {}
    for utterance in utterances:
        held = held_by(utterance)
        if held is None:
            yield utterance
        else:
            why = "" if held[1] == f"utterance {utterance.id}" else f" ({held[1]})"
            omissions.setdefault(held[0], []).append(f"{utterance.id}{why}")
    for name, those in sorted(omissions.items()):
        print(
            f"left out: {len(those)} utterances that the {speech_list(name).use} list {name} "
            f"holds: {_some(those)}",
            file=sys.stderr,
        )


def refuse_listed(
    utterances: Iterable[Said], where: str, remedy: str, uses: Sequence[str] = USES
) -> None:
    """Raise UserError where a frozen list holds any of what is `said`.

    where: what holds it, as `train_data=FOLDER`. remedy: what to do about it.
    """
    hits = [held for one in utterances if (held := held_by(one, uses)) is not None]
    if hits:
        lists = Counter(name for name, _ in hits)
        counts = ", ".join(f"{n} of {name}" for name, n in lists.items())
        name, what = hits[0]
        raise UserError(
            f"{where}: {what} is in the frozen {speech_list(name).use} list {name}, which no "
            f"training may use ({counts} in all); {remedy}"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (" ..." if len(names) > NAMED else "")
