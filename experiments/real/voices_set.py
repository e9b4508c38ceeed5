"""Human speech of many voices to train on: manifests of what public repositories hold.

    python -m experiments.real.voices_set --out outputs/real/voices [--only NAME ...]
        [--from FOLDER]

OUT/NAME/train.jsonl is what data=manifest reads. git fetches each repository at a pinned commit
into OUT/NAME/source. Where it cannot, --from takes the speech from FOLDER/NAME, which holds it with
a manifest (train.jsonl or manifest.jsonl). A source that lies there already is left as it is.
Word times and, for what has no text, texts are the next commands' (experiments/real/speech.md).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.corpora.alignments import UNKNOWN, read_textgrid
from streaming_asr.corpora.audio import duration_s
from streaming_asr.corpora.common_voice import is_split, rows
from streaming_asr.corpora.lists import speaker_hash
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.obtain import clone_once
from streaming_asr.corpora.rows import text_lines, text_rows
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.terminal import exit_status

MANIFESTS = ("train.jsonl", "manifest.jsonl")

Row = dict[str, Any]
"""A line of a manifest whose `audio_filepath` is a Path."""


def of_tables(folder: Path) -> Iterator[Row]:
    """The clips of Common Voice's tables below `folder` that lie there too."""
    for table in sorted(folder.rglob("validated.tsv")):
        if not is_split(table):
            continue
        for row in rows(table):
            yield {
                "audio_filepath": table.parent / "clips" / row["path"],
                "text": row["sentence"],
                "speaker": speaker_hash(row["client_id"]),
                "accent": row.get("accents", ""),
            }


def of_first_version(folder: Path) -> Iterator[Row]:
    """The clips of Common Voice's first version, whose table names no speakers."""
    for table in sorted(folder.rglob("*.csv")):
        for row in csv.DictReader(text_lines(table)):
            file = table.parent / table.stem / row["filename"]
            yield {"audio_filepath": file, "text": row["text"], "accent": row.get("accent", "")}


def of_readers(folder: Path) -> Iterator[Row]:
    """LibriSpeech's recordings, named reader-chapter-number.

    Text and word times are those of a TextGrid of the same name; without one, or where it does not
    know a word, there are none.
    """
    aligned = {grid.stem: grid for grid in folder.rglob("*.TextGrid")}
    for file in sorted(folder.rglob("*.flac")):
        words = read_textgrid(aligned[file.stem]) if file.stem in aligned else []
        if any(word in UNKNOWN for word, _, _ in words):
            words = []
        row = {"audio_filepath": file, "text": " ".join(word for word, _, _ in words)}
        timed = {"words": words} if words else {}
        yield {**row, **timed, "speaker": file.stem.partition("-")[0]}


def of_sound(folder: Path) -> Iterator[Row]:
    """Recordings of which neither text nor speaker is known: for sound alone."""
    for file in sorted(folder.rglob("*.wav")):
        yield {"audio_filepath": file, "text": ""}


@dataclass(frozen=True)
class Source:
    """Speech of `repositories`, each owner/name@commit:path, where git's * may stand in the path;
    `rows` reads what git fetched."""

    repositories: Sequence[str]
    rows: Callable[[Path], Iterator[Row]]
    licence: str


SOURCES = {
    "common_voice": Source(
        (
            "korliu/whisper@d03c14561ed7e5e354d76259a7606df7b6e68b0c:dataset",
            "shubhra-cv/17@c6eb4f89ac49c509366afc829ba503cc93aad8a2:"
            "cv-corpus-20.0-delta-2024-12-06/en",
            "shubhra-cv/18@4ca775acc03a0f21aed07c3d2570fcb3e39fabab:"
            "cv-corpus-18.0-delta-2024-06-14/en",
            "shubhra-cv/19@497ac20ecec581d1bbb9c700b99ad2750db7aa67:"
            "cv-corpus-19.0-delta-2024-09-13/en",
        ),
        of_tables,
        "CC0",
    ),
    "common_voice_v1": Source(
        ("leeyide96/transcription-generator@7139829445492a9ec7807f8d95894cfc2989d587:asr/data",),
        of_first_version,
        "CC0",
    ),
    "librispeech_train_251": Source(
        (
            "resemble-ai/Resemblyzer@15d828edebe06bc72b9cabc8ef8ca5ab2cb457ce:"
            "audio_data/librispeech_train-clean-100",
        ),
        of_readers,
        "CC BY 4.0",
    ),
    "librispeech_train_4": Source(
        (
            "Jenny-Smolensky/LibriSpeechFilesParser@ffd91057493367281266af400119f64ab4cd81ab:"
            "sample_data_libriSpeech/a*",  # audio and alignment, a third of what lies there
        ),
        of_readers,
        "CC BY 4.0",
    ),
    "clean_speech": Source(
        (
            "haroitman/nsnet_implementation@9335f8a8069f737e37b31fe980f8097dd39495fc:"
            "CleanSpeech_training",
        ),
        of_sound,
        "CC BY 4.0 (Edinburgh's 56 speakers) and ODbL 1.0 (PTDB-TUG)",
    ),
}


def fetched(name: str, folder: Path) -> Iterator[Row]:
    """The rows of a source, from the repositories cloned below `folder`."""
    source = SOURCES[name]
    for i, repository in enumerate(source.repositories):
        place = folder / str(i)
        instead = f"copy the speech with a manifest to FOLDER/{name} and give --from FOLDER"
        path = repository.rpartition(":")[2]
        clone_once(repository, [f"/{path}/"], place, name, instead)
        yield from source.rows(place)


def copied(name: str, folder: Path) -> Iterator[Row]:
    """The rows of a source of which `folder` holds the speech and a manifest.

    Raises UserError where there is none, or a line names no recording."""
    known = [folder / name / file for file in MANIFESTS]
    manifest = next((file for file in known if file.is_file()), None)
    if manifest is None:
        raise UserError(f"--from {folder}: no {known[0]}, nor {known[1].name}; correct the folder")
    for where, line in text_rows(manifest):
        try:
            row = json.loads(line)
            row["audio_filepath"] = manifest.parent / row["audio_filepath"]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{where}: {line[:60]!r}; a line is a JSON object with `audio_filepath`"
            ) from error
        yield {"text": "", **row}


def write(found: Iterator[Row], manifest: Path) -> tuple[int, int]:
    """Writes the rows whose recordings are there; returns their number and that of the others."""
    lines, missing = [], 0
    for row in found:
        file = row["audio_filepath"].absolute()
        if not file.is_file():
            missing += 1
            continue
        told = {"id": file.stem, "duration": round(duration_s(file), 3), "language": "en"}
        lines.append(json.dumps({**told, **row, "audio_filepath": str(file)}, ensure_ascii=False))
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_text(manifest, "".join(f"{line}\n" for line in lines))
    return len(lines), missing


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the speech")
    parser.add_argument("--only", nargs="+", choices=sorted(SOURCES), default=sorted(SOURCES))
    parser.add_argument("--from", type=Path, dest="folder", help="where the speech lies already")
    given = parser.parse_args(argv)
    for name in given.only:
        manifest = given.out / name / "train.jsonl"
        print(f"{name}: {SOURCES[name].licence}", flush=True)
        if not manifest.is_file():
            found = (
                fetched(name, given.out / name / "source")
                if given.folder is None
                else copied(name, given.folder)
            )
            n, missing = write(found, manifest)
            print(f"  {n} written, {missing} have no recording there")
        utterances = read_manifest(manifest)
        hours = sum(each.duration_s for each in utterances) / 3600
        speakers = len({each.speaker for each in utterances} - {None})
        texts = sum(bool(each.text) for each in utterances)
        print(
            f"  {manifest}: {len(utterances)} recordings, {hours:.2f} h, "
            f"{speakers or 'unknown'} speakers, {texts} with texts"
        )


if __name__ == "__main__":
    sys.exit(exit_status(program))
