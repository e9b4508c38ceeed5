"""What every loader of a published corpus shares.

A loader says what stands on disk (`scan`); this class chooses, adds durations and word times, and
refuses a corpus that is not whole. How to write one: docs/new_corpus.md.
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
from typing import TYPE_CHECKING, Any, ClassVar

from streaming_asr.corpora.alignments import Alignments, with_words
from streaming_asr.corpora.audio import File, duration_s
from streaming_asr.corpora.join import clips_of, join, joined_as
from streaming_asr.corpora.lists import obtained, of_ids
from streaming_asr.corpora.noise import with_noise
from streaming_asr.errors import UserError, check_range
from streaming_asr.references import problems
from streaming_asr.text.languages import UNNAMED, language_code
from streaming_asr.utterance import MAX_TEXT, Utterance

if TYPE_CHECKING:
    Split = str
else:
    Split = str | list  # `Loader` joins the names of a list
"""Of a corpus whose `data.split` may be a list."""

CHECK = "`streaming-asr data check` names every one"


def in_order_of_limit(utterances: Sequence[Utterance]) -> list[Utterance]:
    """Return the utterances in the order in which a growing limit takes them."""
    return sorted(utterances, key=lambda u: hashlib.sha256(u.id.encode()).digest())


def choose(utterances: Sequence[Utterance], limit: int | None) -> list[Utterance]:
    """Return `limit` of the utterances, in their order; None takes all.

    They are those with the smallest hashes of their ids: corpora are sorted by speaker, so the
    first ones would be the voice of one person. A larger limit contains every smaller one.
    """
    if limit is None or limit >= len(utterances):
        return list(utterances)
    if limit < 1:
        raise UserError(f"limit={limit}: it must be 1 or more; leave it out to take everything.")
    chosen = {utterance.id for utterance in in_order_of_limit(utterances)[:limit]}
    return [utterance for utterance in utterances if utterance.id in chosen]


def _first_of_each(utterances: Sequence[Utterance], n: int) -> list[Utterance]:
    """Return the first `n` utterances of each speaker, in their order."""
    seen: Counter[str | None] = Counter()
    chosen = []
    for utterance in utterances:
        seen[utterance.speaker] += 1
        if seen[utterance.speaker] <= n:
            chosen.append(utterance)
    return chosen


@dataclass(kw_only=True, eq=False)
class Loader(ABC):
    """A corpus on disk. A subclass says what it is `called`, and gives `scan`.

    path: the corpus's folder (or file). split: one of its parts, named as the corpus names it.
    A corpus whose `split` is a `Split` takes a list too, and reads one after the other.
    ids: the utterances of a list (`lists.py`) or of a file of ids, of which the others choose.
    limit: takes so many, the same ones whatever their order (`choose`).
    alignments: a file or folder of word times; without it they are taken from beside the audio.
    align: where words still have no times, `auto` makes them once with the aligner model of the
    corpus's language, `ctc` with the package's CTC model of English, a model's name or folder with
    that model; None leaves them. Who reads the
    corpus hands in what makes them, `time` (`align.auto.give_times`).
    join_s: joins each speaker's clips to recordings of so many seconds (`join.join`).
    per_speaker: of each speaker only the first so many recordings, of which `limit` takes its own.
    snr_db, noise: see `noise.with_noise`.
    audio_track: of recordings that are files, counted from 1; None is the default one.
    """

    kind: ClassVar[str] = ""  # what a corpus is called that has one name

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
    audio_track: int | None = None
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

        settings: dict[str, Any] = {"data.audio_track": self.audio_track}
        check_range(1, **settings)

    def called(self) -> str:
        """Return the corpus's name in results, where none is given."""
        return self.kind or self.path.parent.name or self.path.name

    @abstractmethod
    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield every utterance of the split, in the corpus's order; in place of one that is not
        whole, the error that names it. A duration that only the audio's header tells is left 0.

        Raises UserError where the corpus or the split is not there at all.
        """

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        """Return the utterances. Raises UserError where any of the split is missing or broken."""
        scan = self._scanned
        problems = [each for each in scan if isinstance(each, UserError)]
        if problems:
            others = f" ({len(problems)} such problems; {CHECK})" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{others}")
        whole = [each for each in scan if isinstance(each, Utterance)]
        if self.join_s is not None:
            whole = join([self._lasting(each) for each in whole], self.join_s)
        if self.per_speaker is not None:
            whole = _first_of_each(whole, self.per_speaker)
        chosen = choose(whole, self.limit if limit is None else limit)
        # Word times belong to clips, so joined recordings are taken apart and joined again.
        clips = [self._timed(clip) for utterance in chosen for clip in clips_of(utterance)]
        if self.time is not None:
            clips = [_speakable(clip) for clip in self.time(clips)]
        if self.join_s is not None:
            rest = iter(clips)
            clips = [joined_as(u.id, [next(rest) for _ in clips_of(u)]) for u in chosen]
        return with_noise(clips, snr_db=self.snr_db, noise=self.noise)

    def languages(self) -> set[str]:
        """Return the languages that the utterances name."""
        return {u.language for u in self._scanned if isinstance(u, Utterance) and u.language}

    def check(self) -> Iterator[Utterance | UserError]:
        """Yield all there is, with word times; problems in their places."""
        for each in self._scanned:
            try:
                yield self._timed(each) if isinstance(each, Utterance) else each
            except UserError as error:
                yield error

    def data_hash(self) -> str:
        digest = hashlib.sha256()
        for each in self._scanned:
            if isinstance(each, UserError):
                continue
            file = Path(each.audio_path) if each.audio_path else None
            size = file.stat().st_size if file is not None and file.is_file() else 0
            digest.update(f"{each.id}\0{each.text}\0{each.duration_s}\0{size}\0".encode())
        for file in self._beside():
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        digest.update(self._track.encode())
        return digest.hexdigest()

    @property
    def _track(self) -> str:
        """Return what a hash of the data has more where another track than the default is read."""
        return "" if self.audio_track is None else f"\0track {self.audio_track}"

    def _of_track(self, utterance: Utterance) -> Utterance:
        """Return the utterance with the audio track that was asked for, and its length."""
        if self.audio_track is None or not isinstance(utterance.audio, File):
            return utterance
        audio = File(utterance.audio.path, self.audio_track)
        length_s = duration_s(audio.path, self.audio_track) or utterance.duration_s
        return replace(utterance, audio=audio, duration_s=length_s)

    @cached_property
    def _scanned(self) -> list[Utterance | UserError]:
        scanned: list[Utterance | UserError] = []
        split_of: dict[str, str] = {}
        for split, each in self._of_each_split():
            if isinstance(each, Utterance) and each.id in split_of:
                if split_of[each.id] != split:
                    raise UserError(
                        f"data.split=[{', '.join(self._several)}]: {split_of[each.id]} and {split} "
                        f"both hold {each.id}; give splits that have no utterance in common"
                    )
                each = UserError(f"{self.path}: id {each.id!r} is there twice; ids must differ")
            elif isinstance(each, Utterance):
                split_of[each.id] = split
                each = _writable(self._of_track(_with_code(each)))
            scanned.append(each)
        if not scanned:
            raise UserError(f"{self.path}: no utterance in split {self.split!r} of {self.name}")
        return scanned if self.ids is None else of_ids(scanned, self.ids)

    def _of_each_split(self) -> Iterator[tuple[str, Utterance | UserError]]:
        for split in self._several or [self.split]:
            part = copy.copy(self)  # `scan` knows of one split only
            part.split = split
            yield from ((split, each) for each in part.scan())

    def _beside(self) -> list[Path]:
        """Return the files of word times that were named."""
        return self._alignments.files if self._alignments else []

    @cached_property
    def _alignments(self) -> Alignments | None:
        return None if self.alignments is None else Alignments(self.alignments)

    def _timed(self, utterance: Utterance) -> Utterance:
        timed = with_words(self._lasting(utterance), self._alignments)
        if problem := next(problems(timed), None):
            source = f", by {self.alignments}" if self.alignments else ""
            raise UserError(f"{timed.id}{source}: {problem}")
        return timed

    @staticmethod
    def _lasting(utterance: Utterance) -> Utterance:
        if utterance.duration_s or not utterance.audio_path:
            return utterance
        return replace(utterance, duration_s=duration_s(utterance.audio_path))


def _with_code(utterance: Utterance) -> Utterance:
    """Return the utterance with its language as Whisper's code, however the corpus spells it."""
    if not isinstance(utterance.language, str):
        return utterance
    code = language_code(utterance.language)
    return replace(utterance, language=None if code in UNNAMED else code)


def _speakable(utterance: Utterance) -> Utterance:
    """Return an utterance that was aligned just now; without word times where nobody can say the
    words in them: then the text is not what was spoken, or the aligner lost its place."""
    if (problem := next(problems(utterance), None)) is None:
        return utterance
    print(f"{utterance.id}: the aligner's word times are not used: {problem}")
    return replace(utterance, words=None)


def _writable(utterance: Utterance) -> Utterance | UserError:
    """Return the utterance, or what is wrong where its strings cannot be written as UTF-8, or its
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
    """Return the names where `split` is a list of them, else none. Raises UserError for an empty
    list, and for a name that stands there twice."""
    if not isinstance(split, list | tuple):
        return []
    names = list(map(str, split))
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice or not names:
        what = f"{twice[0]} is there twice" if twice else "names no split"
        raise UserError(f"data.split=[{', '.join(names)}]: {what}; give each split once")
    return names


def need_folder(path: Path, what: str, inner: str = "") -> Path:
    """Return `path`, which must be a folder, or the folder `inner` in it where there is one."""
    if not path.is_dir():
        remedy = f"{inner}, or of the folder that holds it" if inner else "that folder"
        raise UserError(f"{path}: no such folder, and {what} has one; give the path of {remedy}")
    return path / inner if (path / inner).is_dir() else path


def need_split(folder: Path, split: str, splits: Iterable[str], what: str) -> None:
    """Raise UserError, with what there is, where `split` is not `there`."""
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
    """Return the utterance of a recording, named as its file or `name`; where the recording or its
    text is not there, the error that says so. fields: of the utterance, as `Utterance` has them."""
    if not is_there(file):
        return missing(file, where)
    text = " ".join(text.split())
    if not text:
        return UserError(f"{where}: {name or file.stem} has no text; mend or remove the line")
    values = {"audio": File(file), "duration_s": 0.0, **fields}
    return Utterance(id=name or file.stem, text=text, audio_path=str(file), **values)


def is_there(file: Path) -> bool:
    """Return whether the recording exists with content: a broken extraction leaves empty files."""
    try:
        return file.stat().st_size > 0
    except (OSError, ValueError):  # ValueError: its name holds a NUL
        return False
