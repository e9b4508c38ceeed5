"""Corpora: named sets of utterances that conf/data/*.yaml chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from streaming_asr.data.audio import SUFFIXES, File, duration_s
from streaming_asr.data.manifest import audio_files, manifest_text, read_manifest, scan_manifest
from streaming_asr.data.noise import noise_files, with_noise
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

if TYPE_CHECKING:
    from streaming_asr.data.alignments import Alignments

MINI = Path(__file__).parent.parent / "mini"


class Corpus(Protocol):
    """What `run` needs of a corpus."""

    name: str
    split: str

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        """The utterances; `limit` takes that many of them, see `choose`."""

    def data_hash(self) -> str:
        """Changes when the references or the sizes of the audio files change."""


def choose(utterances: Sequence[Utterance], limit: int | None) -> list[Utterance]:
    """`limit` of the utterances, in their order; None takes all.

    Those with the smallest hashes of their ids: corpora are sorted by speaker, so the first ones
    would be the voice of one person. A larger limit contains every smaller one.
    """
    if limit is None or limit >= len(utterances):
        return list(utterances)
    if limit < 1:
        raise UserError(f"limit={limit}: it must be 1 or more; leave it out to take everything.")
    ranked = sorted(utterances, key=lambda u: hashlib.sha256(u.id.encode()).digest())
    chosen = {utterance.id for utterance in ranked[:limit]}
    return [utterance for utterance in utterances if utterance.id in chosen]


class Manifest:
    """The utterances of one manifest file; see `manifest.py` for its fields."""

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        split: str | None = None,
        limit: int | None = None,
        snr_db: float | None = None,
        noise: str | None = None,
        alignments: str | Path | None = None,
    ) -> None:
        """`snr_db` and `noise`: see `noise.with_noise`; `alignments` replace the words' times."""
        self.path = Path(path).expanduser()
        self.alignments = alignments
        self.split = split or self.path.stem
        self.name = name or self.path.parent.name or "manifest"
        self.limit = limit
        self.snr_db = snr_db
        self.noise = noise

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        utterances = with_noise(read_manifest(self.path), snr_db=self.snr_db, noise=self.noise)
        chosen = choose(utterances, self.limit if limit is None else limit)
        return chosen if self.alignments is None else _aligned(chosen, self.alignments)

    def check(self) -> Iterator[Utterance | UserError]:
        """Every line's utterance; in place of a broken one the error that names it."""
        yield from _checked(scan_manifest(self.path), self.alignments)

    def data_hash(self) -> str:
        files = audio_files(self.path) + (noise_files(self.noise) if self.noise else [])
        found = _read(self.alignments)
        return _hash(manifest_text(self.path), [*files, *(found.files if found else ())])


class Mini(Manifest):
    """The embedded corpus of synthetic speech, with exact word times."""

    def __init__(
        self,
        split: str = "clean",
        limit: int | None = None,
        snr_db: float | None = None,
        noise: str | None = None,
        alignments: str | Path | None = None,
    ) -> None:
        path = MINI / f"{split}.jsonl"
        if not path.is_file():
            there = ", ".join(sorted(file.stem for file in MINI.glob("*.jsonl"))) or "none"
            raise UserError(f"data.split={split}: mini has no such split; there are: {there}.")
        super().__init__(
            path,
            name="mini",
            split=split,
            limit=limit,
            snr_db=snr_db,
            noise=noise,
            alignments=alignments,
        )


class Folder:
    """A folder of recordings, each with its text beside it (talk.wav, talk.txt) or none with one.

    Ids are the paths below the folder without the ending. Without texts nothing can be scored for
    accuracy, but latency and cost can.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        limit: int | None = None,
        snr_db: float | None = None,
        noise: str | None = None,
        language: str | None = None,
        alignments: str | Path | None = None,
    ) -> None:
        """`snr_db`, `noise`: see `noise.with_noise`; `alignments`: else those beside the audio."""
        self.path = Path(path).expanduser()
        self.language, self.alignments = language, alignments
        self.name = name or self.path.name or "folder"
        self.split = "all"
        self.limit = limit
        self.snr_db = snr_db
        self.noise = noise

    def utterances(self, limit: int | None = None) -> list[Utterance]:
        utterances = []
        for each in self._scan():
            if isinstance(each, UserError):
                raise each
            utterances.append(each)
        utterances = with_noise(utterances, snr_db=self.snr_db, noise=self.noise)
        return _aligned(choose(utterances, self.limit if limit is None else limit), self.alignments)

    def check(self) -> Iterator[Utterance | UserError]:
        """Every recording; in place of one without its text the error that names it."""
        yield from _checked(self._scan(), self.alignments)

    def _scan(self) -> Iterator[Utterance | UserError]:
        files = self._files()
        without = {file for file in files if not file.with_suffix(".txt").is_file()}
        for file in files:
            text = file.with_suffix(".txt")
            if file in without and len(without) < len(files):
                yield UserError(
                    f"{file}: no text beside it, though others have one; add {text.name} (empty "
                    "where nothing is said)."
                )
                continue
            yield Utterance(
                id=file.relative_to(self.path).with_suffix("").as_posix(),
                text="" if file in without else " ".join(manifest_text(text).split()),
                audio=File(file),
                duration_s=duration_s(file),
                language=self.language,
                audio_path=str(file),
            )

    def data_hash(self) -> str:
        files = self._files()
        texts = [file.with_suffix(".txt") for file in files]
        noise = noise_files(self.noise) if self.noise else []
        said = "\0".join(manifest_text(text) for text in texts if text.is_file())
        found = _read(self.alignments)
        return _hash(said, [*files, *noise, *(found.files if found else ())])

    def _files(self) -> list[Path]:
        if not self.path.is_dir():
            raise UserError(f"{self.path}: no such folder; give the folder that holds the audio.")
        files = sorted(file for file in self.path.rglob("*") if file.suffix.lower() in SUFFIXES)
        if not files:
            raise UserError(f"{self.path}: no audio in it; endings read: {', '.join(SUFFIXES)}.")
        by_stem: dict[Path, Path] = {}
        for file in files:
            other = by_stem.setdefault(file.with_suffix(""), file)
            if other != file:
                raise UserError(f"{file}: {other.name} has the same name; rename one of them.")
        return files


def _aligned(utterances: Sequence[Utterance], alignments: str | Path | None) -> list[Utterance]:
    from streaming_asr.data.alignments import with_words

    found = _read(alignments)
    return [with_words(utterance, found) for utterance in utterances]


def _checked(
    scanned: Iterable[Utterance | UserError], alignments: str | Path | None
) -> Iterator[Utterance | UserError]:
    from streaming_asr.data.alignments import with_words

    found = _read(alignments)
    for each in scanned:
        try:
            yield with_words(each, found) if isinstance(each, Utterance) else each
        except UserError as error:
            yield error


def _read(alignments: str | Path | None) -> Alignments | None:
    from streaming_asr.data.alignments import Alignments

    return None if alignments is None else Alignments(alignments)


def _hash(text: str, files: Iterable[Path]) -> str:
    """Over the references and the files' names and sizes: reading all audio would be slow."""
    digest = hashlib.sha256(text.encode())
    for file in files:
        digest.update(f"\0{file.name}\0{file.stat().st_size}".encode())
    return digest.hexdigest()
