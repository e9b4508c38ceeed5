"""What every loader of a published corpus shares.

A loader says what stands on disk (`scan`); this class chooses, adds durations and word times, and
refuses a corpus that is not whole. How to write one: docs/corpora.md.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from streaming_asr.data.alignments import Alignments, with_words
from streaming_asr.data.audio import duration_s
from streaming_asr.data.corpora import choose
from streaming_asr.data.noise import noise_files, with_noise
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

CHECK = "`python -m streaming_asr.data check` names every one"


@dataclass(kw_only=True, eq=False)
class Loader(ABC):
    """A corpus on disk. A subclass says what it is `called`, and gives `scan`.

    path: the corpus's folder (or file). split: one of its parts, named as the corpus names it.
    alignments: a file or folder of word times; without it they are taken from beside the audio.
    snr_db, noise: see `noise.with_noise`.
    """

    path: Path
    split: str = ""
    name: str = ""
    limit: int | None = None
    alignments: str | Path | None = None
    snr_db: float | None = None
    noise: str | None = None

    def __post_init__(self) -> None:
        self.path = Path(self.path).expanduser()
        self.name = self.name or self.called()

    def called(self) -> str:
        """The corpus's name in results, where none is given."""
        return self.path.parent.name or self.path.name

    @abstractmethod
    def scan(self) -> Iterator[Utterance | UserError]:
        """Every utterance of the split, in the corpus's order; in place of one that is not whole,
        the error that names it. A duration that only the audio's header tells is left 0.

        Raises UserError where the corpus or the split is not there at all.
        """

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        """The utterances. Raises UserError where any of the split is missing or broken."""
        found = self._scanned
        problems = [each for each in found if isinstance(each, UserError)]
        if problems:
            others = f" ({len(problems)} such problems; {CHECK})" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{others}")
        whole = [each for each in found if isinstance(each, Utterance)]
        chosen = choose(whole, self.limit if limit is None else limit)
        timed = [self._timed(utterance) for utterance in chosen]
        return with_noise(timed, snr_db=self.snr_db, noise=self.noise)

    def check(self) -> Iterator[Utterance | UserError]:
        """All there is, with word times; problems in their places."""
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
        noise = noise_files(self.noise) if self.noise else []
        for file in [*noise, *(self._alignments.files if self._alignments else ())]:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        return digest.hexdigest()

    @cached_property
    def _scanned(self) -> list[Utterance | UserError]:
        found: list[Utterance | UserError] = []
        ids: set[str] = set()
        for each in self.scan():
            if isinstance(each, Utterance) and each.id in ids:
                each = UserError(f"{self.path}: id {each.id!r} stands there twice; ids must differ")
            elif isinstance(each, Utterance):
                ids.add(each.id)
            found.append(each)
        if not found:
            raise UserError(f"{self.path}: no utterance in split {self.split!r} of {self.name}")
        return found

    @cached_property
    def _alignments(self) -> Alignments | None:
        return None if self.alignments is None else Alignments(self.alignments)

    def _timed(self, utterance: Utterance) -> Utterance:
        if not utterance.duration_s and utterance.audio_path:
            utterance = replace(utterance, duration_s=duration_s(utterance.audio_path))
        return with_words(utterance, self._alignments)


def need_folder(path: Path, what: str, remedy: str) -> Path:
    """`path`, which must be a folder."""
    if not path.is_dir():
        raise UserError(f"{path}: no such folder, and {what} has one; {remedy}")
    return path


def need_split(folder: Path, split: str, there: Iterable[str], what: str) -> None:
    """Raises UserError, with what there is, where `split` is not `there`."""
    names = sorted(there)
    if split not in names:
        raise UserError(
            f"data.split={split}: {folder} has no such split of {what}; there are: "
            f"{', '.join(names) or 'none: is the archive extracted, and data.path its folder?'}"
        )


def missing(file: Path, where: str) -> UserError:
    """The error for a recording that the transcripts name and the folder lacks."""
    return UserError(f"{where}: {file} is missing or empty; extract or download the archive again")


def is_there(file: Path) -> bool:
    """Whether the recording exists and has content: a broken extraction leaves empty files."""
    try:
        return file.stat().st_size > 0
    except OSError:
        return False
