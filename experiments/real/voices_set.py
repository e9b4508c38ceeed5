"""Human speech of many voices to train on: manifests of what public repositories hold.

    python -m experiments.real.voices_set --out outputs/real/voices [--only NAME ...]
        [--from FOLDER]

OUT/NAME/train.jsonl is what data=manifest reads. git fetches each repository at a pinned commit
into OUT/NAME/source. Where it cannot, --from takes the speech from FOLDER/NAME, which holds it with
a manifest (train.jsonl or manifest.jsonl). A source that lies there already is left as it is.
Word times and, for what has no text, texts are the next commands' (experiments/real/training.md).
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streaming_asr.corpora.alignments import UNKNOWN, read_textgrid
from streaming_asr.corpora.audio import duration_s, load_audio
from streaming_asr.corpora.lists import speaker_hash
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.obtain import clone_once
from streaming_asr.corpora.published import is_split, named_rows
from streaming_asr.corpora.rows import text_lines, text_of, text_rows
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.terminal import exit_status

MANIFESTS = ("train.jsonl", "manifest.jsonl")

Row = dict[str, Any]
"""A line of a manifest whose `audio_filepath` is a Path."""


def of_tables(folder: Path) -> Iterator[Row]:
    """The clips of Common Voice's tables below `folder` that lie there too."""
    for table in sorted(folder.rglob("validated.tsv")):
        if not is_split(table):
            continue
        for _, row in named_rows(table):
            yield {
                "audio_filepath": table.parent / "clips" / row["path"],
                "text": row["sentence"],
                "speaker": speaker_hash(row["client_id"]),
                "accent": row.get("accents", row.get("accent", "")),
            }


def of_first_version(folder: Path) -> Iterator[Row]:
    """The clips of Common Voice's first version, whose table names no speakers."""
    for table in sorted(folder.rglob("*.csv")):
        for row in csv.DictReader(text_lines(table)):
            file = table.parent / table.stem / row["filename"]
            yield {"audio_filepath": file, "text": row["text"], "accent": row.get("accent", "")}


def of_readers(folder: Path) -> Iterator[Row]:
    """LibriSpeech's recordings, named reader-chapter-number.

    Text and word times are those of a TextGrid of the same name. Without one, or where it does not
    know a word, there are no times, and the text is that of the chapter's `.trans.txt`, if any.
    """
    aligned = {grid.stem: grid for grid in folder.rglob("*.TextGrid")}
    lines = (line for file in folder.rglob("*.trans.txt") for line in text_lines(file))
    texts = {name: text for name, _, text in (line.strip().partition(" ") for line in lines)}
    for file in sorted(folder.rglob("*.flac")):
        words = read_textgrid(aligned[file.stem]) if file.stem in aligned else []
        if any(word in UNKNOWN for word, _, _ in words):
            words = []
        text = " ".join(word for word, _, _ in words) or texts.get(file.stem, "")
        row = {"audio_filepath": file, "text": text}
        timed = {"words": words} if words else {}
        yield {**row, **timed, "speaker": file.stem.partition("-")[0]}


def of_sound(folder: Path) -> Iterator[Row]:
    """Recordings of which neither text nor speaker is known: only for their sound."""
    for file in sorted(folder.rglob("*.wav")):
        yield {"audio_filepath": file, "text": ""}


def of_one_voice(folder: Path) -> Iterator[Row]:
    """Recordings of one speaker, each next to a `.txt` of the same name with its text."""
    for file in sorted(folder.rglob("*.wav")):
        text = file.with_suffix(".txt")
        if text.is_file():
            yield {"audio_filepath": file, "text": text_of(text).strip(), "speaker": "cathy"}


def of_table(folder: Path, *, table: str, sound: str, speaker: str) -> Iterator[Row]:
    """Recordings of one speaker next to a table of lines `id|text`, or `id|as printed|as read`,
    which writes numbers and abbreviations as words in its last column.

    table, sound: the names of the table and, with {id}, of a recording next to it. A line without
    its recording is left out.
    """
    for path in sorted(folder.rglob(table)):
        for line in text_lines(path):
            name, *texts = line.split("|")
            file = path.parent / sound.format(id=name)
            if file.is_file():
                yield {"audio_filepath": file, "text": texts[-1].strip(), "speaker": speaker}


SAID_OF = {"Names": "Name", "Numbers": "Number", "Addresses": "Address"}
"""Folders of the alphanumeric recordings, and the column that has what the speaker got to read."""


def of_alphanumeric(folder: Path) -> Iterator[Row]:
    """Names spelled by their letters, telephone numbers and addresses.

    The table has what was to be read, not which words were spoken (`48` may be two digits), so it
    is in the field `said`, and `text` is empty.
    """
    for table in sorted(folder.rglob("metadata.csv")):
        for row in csv.DictReader(text_lines(table)):
            kind = Path(row["file_name"]).parent.name
            speaker = row["Response_ID"]
            yield {
                "id": f"{kind}_{speaker}",
                "audio_filepath": table.parent / row["file_name"],
                "text": "",
                "said": row[SAID_OF[kind]],
                "speaker": speaker,
                "native_language": row["Native Language"],
            }


@dataclass(frozen=True)
class Source:
    """Speech of `repositories`, each owner/name@commit:path, a folder or a file in
    whose path git's * is allowed; `rows` reads what git fetched."""

    repositories: Sequence[str]
    rows: Callable[[Path], Iterator[Row]]
    licence: str
    language: str = "en"


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
    "librispeech_train_clean_5": Source(
        (
            "zhangrui0712/Voice-Age@c13f844098b754edb9c60b8deb1aa586bc461d8a:"
            "LibriSpeech/train-clean-5",
        ),
        of_readers,
        "CC BY 4.0",
    ),
    "cathy": Source(
        ("rhasspy/dataset-voice-cathy@c51cb971036a127359b43c621f26ca5081eab13e:data",),
        of_one_voice,
        "CC0",
    ),
    "ljspeech_part": Source(
        (
            "PrernaSocity/lj_speech_dataset_part_1@328134a60409b5d1060f411fde6fa0eb20b22150:"
            "LJSpeech-1.1",
            "PhilippMatthes/dc_tts@5f20e75b5c454b22f9f7dcaa2f7282bada93c1eb:LJSpeech-1.1",
        ),
        partial(of_table, table="*.csv", sound="wavs/{id}.wav", speaker="LJ"),
        "public domain",
    ),
    "alphanumeric": Source(
        (
            "Sakshee5/alphanumeric-audio-dataset@6c9a38ed7e590a45410fdc33a548005a30f03552:*data*",
        ),  # audio_data and metadata.csv
        of_alphanumeric,
        "MIT",
    ),
    "kerstin": Source(
        ("rhasspy/dataset-voice-kerstin@f73127135cf80d6ef52aef6af58c49774f4fd625:verified",),
        partial(of_table, table="metadata.csv", sound="{id}.flac", speaker="kerstin"),
        "CC0",
        "de",
    ),
    "common_voice_de": Source(
        (
            "omnilingo/rsample-100-cv-corpus-6.1-2020-12-11@"
            "6785f863fec9770151abfe50a5e3e3787fd20ba2:de",
        ),
        of_tables,
        "CC0",
        "de",
    ),
}
ENGLISH = [name for name, source in sorted(SOURCES.items()) if source.language == "en"]


def fetched(name: str, folder: Path) -> Iterator[Row]:
    """The rows of a source, from the repositories cloned below `folder`."""
    source = SOURCES[name]
    for i, repository in enumerate(source.repositories):
        place = folder / str(i)
        instead = f"copy the speech with a manifest to FOLDER/{name} and give --from FOLDER"
        path = repository.rpartition(":")[2]
        clone_once(repository, [f"/{path}"], place, name, instead)
        yield from source.rows(place)


def copied(name: str, folder: Path) -> Iterator[Row]:
    """The rows of a source of which `folder` holds the speech and a manifest.

    Raises UserError where there is none, or a line names no recording."""
    manifests = [folder / name / file for file in MANIFESTS]
    manifest = next((file for file in manifests if file.is_file()), None)
    if manifest is None:
        raise UserError(
            f"--from {folder}: no {manifests[0]}, nor {manifests[1].name}; correct the folder"
        )
    for where, line in text_rows(manifest):
        try:
            row = json.loads(line)
            row["audio_filepath"] = manifest.parent / row["audio_filepath"]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f"{where}: {line[:60]!r}; a line is a JSON object with `audio_filepath`"
            ) from error
        yield {"text": "", **row}


def write(rows: Iterator[Row], manifest: Path, language: str) -> tuple[int, int]:
    """Writes the rows whose recordings are there; returns their number and that of the others.

    A recording that cannot be read is named on standard error and counts among the others. Of rows
    with the same id, as two repositories of one corpus may hold, the first is written.
    """
    lines: dict[str, str] = {}
    missing = 0
    for row in rows:
        file = row["audio_filepath"].absolute()
        try:  # the header of an MP3 may state no length
            length_s = duration_s(file) or len(load_audio(file)) / SAMPLE_RATE
        except UserError as error:
            missing += 1
            if file.is_file():
                print(f"left out: {error}", file=sys.stderr)
            continue
        read = {"id": file.stem, "duration": round(length_s, 3), "language": language}
        line = {**read, **row, "audio_filepath": str(file)}
        lines.setdefault(line["id"], json.dumps(line, ensure_ascii=False))
    manifest.parent.mkdir(parents=True, exist_ok=True)
    write_text(manifest, "".join(f"{line}\n" for line in lines.values()))
    return len(lines), missing


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the speech")
    parser.add_argument("--only", nargs="+", choices=sorted(SOURCES), default=ENGLISH)
    parser.add_argument("--from", type=Path, dest="folder", help="where the speech lies already")
    options = parser.parse_args(argv)
    for name in options.only:
        manifest = options.out / name / "train.jsonl"
        print(f"{name}: {SOURCES[name].licence}", flush=True)
        if not manifest.is_file():
            rows = (
                fetched(name, options.out / name / "source")
                if options.folder is None
                else copied(name, options.folder)
            )
            n, missing = write(rows, manifest, SOURCES[name].language)
            print(f"  {n} written, {missing} have no recording there that can be read")
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
