"""The frozen lists of utterances: test sets and dev sets, which no training may use.

Each is a table of corpora/lists. Its head states where the speech is from, its licence, and the
known forms of its recordings. A row has
- `id`, `speaker` (of Common Voice the first 12 digits of the sha256 of the client id),
- `seconds` (of the copy at hand; compression adds up to a tenth of a second),
- `text`: the first 16 digits of the sha256 of the reference, normalised as Whisper's scores are,
  which is the same for capitals and for written text,
- for each form, as `flac` or `mp3`, the sha256 of the file; a file is named after its form.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from streaming_asr.corpora.audio import duration_s
from streaming_asr.corpora.rows import check_new, text_rows
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
"""Lists that are parts of another: its name, and how many utterances of each speaker are taken,
those whose ids have the smallest hashes."""

DIGITS_OF_SPEAKER = 12
DIGITS_OF_TEXT = 16
OTHER_LENGTH_S = 0.3
"""A recording in an unknown form that differs more in length is another recording."""
LEAST_WORDS = 4
"""Shorter texts are spoken by chance, and are no sign of a test set."""
N_NAMED = 5  # ids in a message
USES = ("test", "dev")

# LibriSpeech's and MLS's ids: reader-chapter-number, reader_book_number. Both count LibriVox's
# readers, so a reader's number is the same person in both.
OF_READER = re.compile(r"(?<!\d)(\d+)(?:-\d+-\d{4}|_\d+_\d{6})(?!\d)")


@dataclass(frozen=True, slots=True)
class ListedUtterance:
    """An utterance of a list. `speaker` and `text` as the table has them, the latter as a hash;
    `files`: the sha256 of its recording in each known form."""

    id: str
    speaker: str
    seconds: float
    text: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class SpeechList:
    """A frozen list. `head`: the values of each key in the head of its table. `rows`: by id."""

    name: str
    head: Mapping[str, Sequence[str]]
    rows: Mapping[str, ListedUtterance]

    @property
    def use(self) -> str:
        """Return what the list is for: `test` or `dev`."""
        return self.head["use"][0]

    @property
    def origin(self) -> str:
        """Return the settings of the corpus and the split on a command line."""
        return f"data={self.head['corpus'][0]} data.split={self.head['split'][0]}"


def list_names() -> list[str]:
    """Return the names of the lists, parts of others among them."""
    return sorted([*(file.stem for file in FOLDER.glob("*.tsv")), *PARTS])


def whole_list(name: str) -> str:
    """Return the name of the list that has all speech of the list `name`: its own, except for one
    of PARTS."""
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
        larger_name, per_speaker = PARTS[name]
        larger = speech_list(larger_name)
        return SpeechList(name, larger.head, _some_of_each(larger.rows.values(), per_speaker))
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
            row = dict(zip(columns, cells, strict=True))
            rows[row["id"]] = ListedUtterance(
                id=row["id"],
                speaker=row["speaker"],
                seconds=float(row["seconds"]),
                text=row["text"],
                files={form: row[form] for form in columns[4:] if row[form]},
            )
    return SpeechList(name, head, rows)


def _some_of_each(rows: Iterable[ListedUtterance], per_speaker: int) -> dict[str, ListedUtterance]:
    """Return, by id, the `per_speaker` rows of each speaker whose ids have the smallest hashes."""
    by_hash = sorted(rows, key=lambda row: hashlib.sha256(row.id.encode()).digest())
    n_of_speaker: Counter[str] = Counter()
    chosen = {}
    for row in by_hash:
        n_of_speaker[row.speaker] += 1
        if n_of_speaker[row.speaker] <= per_speaker:
            chosen[row.id] = row
    return chosen


def text_hash(text: str) -> str:
    """Return the hash that a list has for this reference."""
    return hashlib.sha256(normaliser("en")(text).encode()).hexdigest()[:DIGITS_OF_TEXT]


def speaker_hash(client_id: str) -> str:
    """Return the name that the lists have for a speaker of Common Voice."""
    return hashlib.sha256(client_id.encode()).hexdigest()[:DIGITS_OF_SPEAKER]


def place_of(name: str) -> Path:
    """Return where `streaming_asr.run.obtain` keeps the speech of a list."""
    return cache_root() / "speech" / whole_list(name)


def obtained(ids: str | None) -> Path:
    """Return the folder with the speech of the list `ids`, which takes the place of `data.path`.
    Raises UserError where it was not obtained, and where `ids` is None or no list."""
    problem = "data.path: has no default; give data.path=<the corpus's folder>"
    if ids is None or ids not in list_names():
        raise UserError(problem)
    if not place_of(ids).is_dir():
        raise UserError(f"{problem}; `streaming-asr get {whole_list(ids)}` obtains that of {ids}")
    return place_of(ids)


# -- data.ids= ------------------------------------------------------------------------------


def chosen_ids(ids: str) -> list[str]:
    """Return the ids of a list, or those in a file: the first word of each line that is no comment.
    Raises UserError where `ids` is neither, and for a file without ids or with one twice."""
    file = Path(os.path.expanduser(ids))
    # os.path.isfile is False for text that no file can be named by, such as ids of a whole corpus
    if ids in list_names() or not os.path.isfile(file):
        return list(speech_list(ids).rows)
    place_of: dict[str, str] = {}
    names = []
    for where, line in text_rows(file):
        name = line.split()[0]  # `text_rows` leaves out blank lines
        if not name.startswith("#"):
            check_new(place_of, f"id {name!r}", where, "remove one")
            names.append(name)
    if not names:
        raise UserError(f"data.ids={ids}: no id in it; write one on each line")
    return names


def of_ids(utterances: Sequence[Utterance | UserError], ids: str) -> list[Utterance | UserError]:
    """Return those of the utterances that `ids` names, in the corpus's order, and the errors that
    name one of them.

    An utterance of a frozen list is compared with the list; one with another text or recording is
    replaced by an error. How many recordings have a form that the list does not know is printed on
    standard error. If utterances are missing, the first entry is an error that names them.
    """
    chosen_names = chosen_ids(ids)
    missing = dict.fromkeys(chosen_names)  # a set in order
    listed = speech_list(ids) if ids in list_names() else None
    chosen: list[Utterance | UserError] = []
    n_of_unknown_form: Counter[str] = Counter()
    for entry in utterances:
        if isinstance(entry, UserError):
            if name := _named_in(str(entry), chosen_names):
                chosen.append(entry)
                missing.pop(name, None)
        elif entry.id in missing:
            chosen.append(entry if listed is None else _as_listed(entry, listed, n_of_unknown_form))
            del missing[entry.id]
    if missing:
        origin = f" of {listed.origin}" if listed else ""
        problem = UserError(
            f"data.ids={ids}: {len(missing)} of its utterances{origin} are not there: "
            f"{_some(list(missing))}; give the split and the folder that hold them all"
        )
        chosen.insert(0, problem)
    for form, n in n_of_unknown_form.items():
        print(
            f"warning: {ids}: {n} recordings are {form or 'without a file'}, which is not one of "
            "the known copies, so only their lengths were compared with the list",
            file=sys.stderr,
        )
    return chosen


def _named_in(problem: str, ids: Iterable[str]) -> str | None:
    """Return the first of `ids` that the message `problem` has as a whole word, or None."""
    for name in ids:
        if name in problem and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", problem):
            return name
    return None


def _as_listed(
    utterance: Utterance, listed: SpeechList, n_of_unknown_form: Counter[str]
) -> Utterance | UserError:
    """Return the utterance with the list's speaker; a UserError where its text or its recording is
    another one than the list's.

    A recording in a form (ending of the file) that the list does not know is counted in
    `n_of_unknown_form`, and only its length is compared.
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
        n_of_unknown_form[form] += 1
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


# -- what no training may use ---------------------------------------------------------------


@dataclass(frozen=True)
class _Index:
    """The name of the list by utterance id, by speaker and by hash of a text."""

    ids: Mapping[str, str]
    speakers: Mapping[str, str]
    texts: Mapping[str, str]


@cache
def _index(uses: tuple[str, ...]) -> _Index:
    """Return the index of all lists whose use, test or dev, is among `uses`."""
    ids, speakers, texts = {}, {}, {}
    for file in sorted(FOLDER.glob("*.tsv")):
        listed = speech_list(file.stem)
        if listed.use in uses:
            for row in listed.rows.values():
                ids[row.id] = speakers[row.speaker] = texts[row.text] = listed.name
    return _Index(ids, speakers, texts)


class SpokenText(Protocol):
    """What is looked up in the lists: an utterance of a corpus, or one of training shards."""

    @property
    def id(self) -> str: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def text(self) -> str: ...
    @property
    def language(self) -> str | None: ...


def held_by(utterance: SpokenText, uses: Sequence[str] = USES) -> tuple[str, str] | None:
    """Return (name of a frozen list, what it has of the utterance: its id, its speaker or its
    text); None where no list has any of these.

    A speaker whose name is a number is only compared where the id has the form of LibriSpeech's or
    MLS's, or is empty, as in old shards: other corpora number their speakers too. Texts of fewer
    than LEAST_WORDS words or in other languages than English are not compared.
    uses: of the lists that are searched, test or dev or both.
    """
    index, speaker = _index(tuple(uses)), utterance.speaker or ""
    if utterance.id in index.ids:
        return index.ids[utterance.id], f"utterance {utterance.id}"
    reader = OF_READER.search(utterance.id)
    speaker_names = [reader[1]] if reader else []
    if not speaker.isdigit() or not utterance.id:
        speaker_names.append(speaker)
    if len(speaker) > DIGITS_OF_SPEAKER:  # Common Voice's, whole
        speaker_names.append(speaker_hash(speaker))
    for name in speaker_names:
        if name in index.speakers:
            return index.speakers[name], f"speaker {name}"
    is_english = (utterance.language or "en") == "en"
    if is_english and len(normaliser("en").words(utterance.text)) >= LEAST_WORDS:
        list_name = index.texts.get(text_hash(utterance.text))
        if list_name is not None:
            return list_name, f"text {utterance.text[:60]!r}"
    return None


def without_listed(utterances: Iterable[Utterance]) -> Iterator[Utterance]:
    """Yield the utterances of which no frozen list has anything (`held_by`), for training. At the
    end, print on standard error how many each list has, and the first of them."""
    omissions: dict[str, list[str]] = {}
    for utterance in utterances:
        held = held_by(utterance)
        if held is None:
            yield utterance
            continue
        list_name, what = held
        reason = "" if what == f"utterance {utterance.id}" else f" ({what})"
        omissions.setdefault(list_name, []).append(f"{utterance.id}{reason}")
    for list_name, omitted in sorted(omissions.items()):
        print(
            f"left out: {len(omitted)} utterances that the {speech_list(list_name).use} list "
            f"{list_name} holds: {_some(omitted)}",
            file=sys.stderr,
        )


def refuse_listed(
    utterances: Iterable[SpokenText], where: str, remedy: str, uses: Sequence[str] = USES
) -> None:
    """Raise UserError where a frozen list has anything of an utterance (`held_by`).

    where: the setting with the utterances, as `train_data=FOLDER`. remedy: what to do about it.
    """
    matches = [held_by(utterance, uses) for utterance in utterances]
    hits = [match for match in matches if match is not None]
    if hits:
        n_of_list = Counter(name for name, _ in hits)
        counts = ", ".join(f"{n} of {name}" for name, n in n_of_list.items())
        name, what = hits[0]
        raise UserError(
            f"{where}: {what} is in the frozen {speech_list(name).use} list {name}, which no "
            f"training may use ({counts} in all); {remedy}"
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:N_NAMED]) + (" ..." if len(names) > N_NAMED else "")
