"""What every loader of a published corpus shares.

A loader lists what is on disk (`scan`). This class chooses utterances, adds durations and word
times, and refuses a corpus of which something is missing. How to write one: docs/new_corpus.md.
"""

from __future__ import annotations

import copy
import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from streaming_asr.corpora.alignments import Alignments, with_words
from streaming_asr.corpora.audio import File, duration_s
from streaming_asr.corpora.join import clips_of, join, joined_as
from streaming_asr.corpora.lists import obtained, of_ids
from streaming_asr.corpora.manifest import Outline
from streaming_asr.corpora.noise import with_noise
from streaming_asr.errors import UserError
from streaming_asr.references import problems
from streaming_asr.text.languages import UNNAMED, language_code
from streaming_asr.utterance import MAX_TEXT, Utterance

if TYPE_CHECKING:
    Split = str
else:
    Split = str | list  # `Loader` joins the names of a list
"""The type of `data.split` in a corpus that takes a list, too."""

CHECK = "`streaming-asr data check` names every one"


Named = TypeVar("Named", Utterance, Outline)  # what a limit chooses by its id


def in_order_of_limit(utterances: Sequence[Named]) -> list[Named]:
    """Return the utterances in the order in which a growing limit takes them."""
    return sorted(utterances, key=lambda u: hashlib.sha256(u.id.encode()).digest())


def choose(utterances: Sequence[Utterance], limit: int | None) -> list[Utterance]:
    """Return at most `limit` of the utterances, in their order; None takes all.

    The chosen ones have the smallest hashes of their ids: corpora are sorted by speaker, so the
    first ones would be the voice of one person. What a smaller limit chooses is part of what a
    larger one does. Raises UserError for a limit below 1.
    """
    if limit is None or limit >= len(utterances):
        return list(utterances)
    if limit < 1:
        raise UserError(f"limit={limit}: it must be 1 or more; leave it out to take everything.")
    chosen = {utterance.id for utterance in in_order_of_limit(utterances)[:limit]}
    return [utterance for utterance in utterances if utterance.id in chosen]


def _first_of_each_speaker(utterances: Sequence[Utterance], n: int) -> list[Utterance]:
    """Return the first `n` utterances of each speaker, in their order."""
    n_of_speaker: Counter[str | None] = Counter()
    chosen = []
    for utterance in utterances:
        n_of_speaker[utterance.speaker] += 1
        if n_of_speaker[utterance.speaker] <= n:
            chosen.append(utterance)
    return chosen


@dataclass(kw_only=True, eq=False)
class Loader(ABC):
    """A corpus on disk. A subclass sets `kind` or defines `called`, and defines `scan`.

    path: the corpus's folder (or file).
    split: one of its parts, named as the corpus names it. A corpus whose `split` is a `Split` also
    takes a list, and reads its splits one after the other.
    ids: the name of a list (`lists.py`) or a file of ids. Only these utterances are read; the
    settings below choose among them.
    limit: the greatest number of utterances (`choose`).
    alignments: a file or folder of word times; without it they are read from files next to the
    audio.
    align: what times words that have no times yet: `auto` the aligner model of the corpus's
    language, `ctc` the package's CTC model of English, a name or folder that model; None
    nothing. The caller sets `time`, the function that does it (`align.auto.give_times`).
    join_s: joins each speaker's clips to recordings of at most so many seconds (`join.join`).
    per_speaker: the greatest number of recordings of a speaker; `limit` chooses among these.
    snr_db, noise: see `noise.with_noise`.
    """

    kind: ClassVar[str] = ""  # the name in results of a corpus that has one name only

    path: Path
    split: str = ""
    name: str = ""
    ids: str | None = None
    limit: int | None = None
    alignments: str | Path | None = None
    align: str | None = None
    join_s: float | None = None
    per_speaker: int | None = None
    snr_db: float | None = None
    noise: str | None = None
    time: Callable[[Sequence[Utterance]], list[Utterance]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.path = Path(obtained(self.ids) if self.path is None else self.path).expanduser()
        self._several = several_splits(self.split)
        self.split = "+".join(self._several) or self.split
        self.name = self.name or self.called()
        if self.join_s is not None and not 0 < self.join_s < float("inf"):
            raise UserError(f"data.join_s={self.join_s}: a length in seconds, as in data.join_s=20")
        if self.per_speaker is not None and self.per_speaker < 1:
            raise UserError(f"data.per_speaker={self.per_speaker}: 1 or more, or null for all")

    def called(self) -> str:
        """Return the corpus's name in results, where the settings have no `name`."""
        return self.kind or self.path.parent.name or self.path.name

    @abstractmethod
    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield every utterance of the split in the corpus's order, or a UserError in the place of
        one that is incomplete. A duration that is only in the audio's header is left 0.

        Raises UserError where the corpus or the split is not there at all.
        """

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        """Return the chosen utterances with their word times, joined and noisy as the settings ask.

        limit: takes the place of the setting. Raises UserError where any utterance of the split is
        missing or broken.
        """
        problems = [entry for entry in self._scanned if isinstance(entry, UserError)]
        if problems:
            others = f" ({len(problems)} such problems; {CHECK})" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{others}")
        recordings = [entry for entry in self._scanned if isinstance(entry, Utterance)]
        if self.join_s is not None:
            recordings = join([self._with_duration(clip) for clip in recordings], self.join_s)
        if self.per_speaker is not None:
            recordings = _first_of_each_speaker(recordings, self.per_speaker)
        recordings = choose(recordings, self.limit if limit is None else limit)
        # Word times belong to clips, so joined recordings are taken apart and joined again.
        clips = [self._with_times(clip) for recording in recordings for clip in clips_of(recording)]
        if self.time is not None:
            clips = [_without_impossible_times(clip) for clip in self.time(clips)]
        if self.join_s is None:
            recordings = clips
        else:
            next_clips = iter(clips)
            recordings = [
                joined_as(recording.id, [next(next_clips) for _ in clips_of(recording)])
                for recording in recordings
            ]
        return with_noise(recordings, snr_db=self.snr_db, noise=self.noise)

    def languages(self) -> set[str]:
        """Return the languages that the utterances name."""
        return {u.language for u in self._scanned if isinstance(u, Utterance) and u.language}

    def check(self) -> Iterator[Utterance | UserError]:
        """Yield every utterance of the split with its word times, or a UserError in the place of
        one that has a problem."""
        for entry in self._scanned:
            try:
                yield self._with_times(entry) if isinstance(entry, Utterance) else entry
            except UserError as error:
                yield error

    def data_hash(self) -> str:
        """Return the sha256 of the utterances' ids, texts, durations and sizes of audio in bytes,
        and of the names and sizes of the alignment files."""
        digest = hashlib.sha256()
        for entry in self._scanned:
            if isinstance(entry, UserError):
                continue
            file = Path(entry.audio_path) if entry.audio_path else None
            n_bytes = file.stat().st_size if file is not None and file.is_file() else 0
            digest.update(f"{entry.id}\0{entry.text}\0{entry.duration_s}\0{n_bytes}\0".encode())
        for file in self._alignment_files():
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        return digest.hexdigest()

    @cached_property
    def _scanned(self) -> list[Utterance | UserError]:
        """The utterances and problems of all splits, those of `ids` only where it is set."""
        entries: list[Utterance | UserError] = []
        split_of: dict[str, str] = {}  # of an utterance's id
        for split, entry in self._scan_splits():
            if isinstance(entry, UserError):
                entries.append(entry)
            elif entry.id not in split_of:
                split_of[entry.id] = split
                entries.append(_checked(_with_language_code(entry)))
            elif split_of[entry.id] == split:
                problem = f"{self.path}: id {entry.id!r} is there twice; ids must differ"
                entries.append(UserError(problem))
            else:
                raise UserError(
                    f"data.split=[{', '.join(self._several)}]: {split_of[entry.id]} and {split} "
                    f"both hold {entry.id}; give splits that have no utterance in common"
                )
        if not entries:
            raise UserError(f"{self.path}: no utterance in split {self.split!r} of {self.name}")
        return entries if self.ids is None else of_ids(entries, self.ids)

    def _scan_splits(self) -> Iterator[tuple[str, Utterance | UserError]]:
        """Yield what `scan` yields for each split, with the name of the split."""
        for split in self._several or [self.split]:
            part = copy.copy(self)  # `scan` reads one split only
            part.split = split
            yield from ((split, entry) for entry in part.scan())

    def _alignment_files(self) -> list[Path]:
        """Return the files of word times that the setting `alignments` names."""
        return self._alignments.files if self._alignments else []

    @cached_property
    def _alignments(self) -> Alignments | None:
        return None if self.alignments is None else Alignments(self.alignments)

    def _with_times(self, utterance: Utterance) -> Utterance:
        """Return the utterance with its duration, and with word times from files where there are
        any. Raises UserError where the word times do not fit its text or its duration."""
        timed = with_words(self._with_duration(utterance), self._alignments)
        if problem := next(problems(timed), None):
            source = f", by {self.alignments}" if self.alignments else ""
            raise UserError(f"{timed.id}{source}: {problem}")
        return timed

    @staticmethod
    def _with_duration(utterance: Utterance) -> Utterance:
        """Return the utterance with the duration of its file's header, where it has none yet."""
        if utterance.duration_s or not utterance.audio_path:
            return utterance
        return replace(utterance, duration_s=duration_s(utterance.audio_path))


def _with_language_code(utterance: Utterance) -> Utterance:
    """Return the utterance with its language as Whisper's code, or None for a language that has no
    name, however the corpus spells it."""
    if not isinstance(utterance.language, str):
        return utterance
    code = language_code(utterance.language)
    return replace(utterance, language=None if code in UNNAMED else code)


def _without_impossible_times(utterance: Utterance) -> Utterance:
    """Return an utterance that an aligner has timed, without its word times where nobody can speak
    the words in them. Then another text was spoken, or the aligner failed. Prints the problem."""
    if (problem := next(problems(utterance), None)) is None:
        return utterance
    print(f"{utterance.id}: the aligner's word times are not used: {problem}")
    return replace(utterance, words=None)


def _checked(utterance: Utterance) -> Utterance | UserError:
    """Return the utterance; a UserError where one of its strings cannot be written as UTF-8, or its
    text is longer than a day of speech."""
    if len(utterance.text) > MAX_TEXT:
        return UserError(
            f"{utterance.id}: its text has {len(utterance.text)} letters, {MAX_TEXT} at most; give "
            "only what is spoken in this recording"
        )
    for key in ("id", "text", "speaker", "language", "audio_path"):
        try:
            (getattr(utterance, key) or "").encode()
        except UnicodeEncodeError:
            return UserError(
                f"{utterance.id!r}: its {key} {getattr(utterance, key)!r} is no UTF-8 text; rename "
                "the file, or write the text in UTF-8"
            )
    return utterance


def several_splits(split: Any) -> list[str]:
    """Return the names of the splits where `split` is a list; [] where it is one name. Raises
    UserError for an empty list, and for one that repeats a name."""
    if not isinstance(split, list | tuple):
        return []
    names = list(map(str, split))
    repeated = [name for name, n in Counter(names).items() if n > 1]
    if repeated or not names:
        fault = f"{repeated[0]} is there twice" if repeated else "names no split"
        raise UserError(f"data.split=[{', '.join(names)}]: {fault}; give each split once")
    return names


def need_folder(path: Path, what: str, inner: str = "") -> Path:
    """Return the folder `inner` in `path` where there is one, else `path`. `what`: the corpus's
    name. Raises UserError where `path` is no folder."""
    if not path.is_dir():
        remedy = f"{inner}, or of the folder that holds it" if inner else "that folder"
        raise UserError(f"{path}: no such folder, and {what} has one; give the path of {remedy}")
    return path / inner if (path / inner).is_dir() else path


def need_split(folder: Path, split: str, splits: Iterable[str], what: str) -> None:
    """Raise UserError, which lists `splits`, where `split` is none of them. `what`: the corpus."""
    names = sorted(splits)
    if split not in names:
        raise UserError(
            f"data.split={split}: {folder} has no such split of {what}; there are: "
            f"{', '.join(names) or 'none: is the archive extracted, and data.path its folder?'}"
        )


def missing(file: Path, where: str) -> UserError:
    """Return the error for a recording that the transcripts name and the folder lacks."""
    return UserError(f"{where}: {file} is missing or empty; extract or download the archive again")


def recorded(
    file: Path, text: str, where: str, *, name: str | None = None, **fields: Any
) -> Utterance | UserError:
    """Return the utterance of a recording; a UserError where the file or its text is missing.

    where: the file and line that list the recording, for the error. name: the utterance's id,
    by default the file's stem. fields: the other fields of `Utterance`.
    """
    if not is_there(file):
        return missing(file, where)
    text = " ".join(text.split())
    if not text:
        return UserError(f"{where}: {name or file.stem} has no text; correct or remove the line")
    values = {"audio": File(file), "duration_s": 0.0, **fields}
    return Utterance(id=name or file.stem, text=text, audio_path=str(file), **values)


def is_there(file: Path) -> bool:
    """Return whether the recording exists with content: a broken extraction leaves empty files."""
    try:
        return file.stat().st_size > 0
    except (OSError, ValueError):  # ValueError: its name holds a NUL
        return False
