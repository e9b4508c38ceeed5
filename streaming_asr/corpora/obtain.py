"""The speech of the frozen lists, cloned from public repositories by git.

Of each repository only the commit that the list names is fetched, and of that, where the server can
filter, only the recordings of the list and the files with their texts. What was checked against the
list lies in <cache>/speech/<list>: the recordings, named after their ids, and manifest.jsonl.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from streaming_asr.corpora.audio import duration_s
from streaming_asr.corpora.lists import SpeechList, place_of, speech_list, text_hash
from streaming_asr.corpora.manifest import write_rows
from streaming_asr.corpora.published import is_split, named_rows
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError
from streaming_asr.files import make_once

HOST = "https://github.com/"
MANIFEST = "manifest.jsonl"
TEXTS = ("*.trans.txt", "validated.tsv")
AUDIO = ("flac", "mp3", "opus", "wav")


def fetch_speech(name: str) -> Path:
    """Return the folder of a list's speech, obtained on first use. Raises UserError."""
    return make_once(place_of(name), partial(_make, speech_list(name)))


def _make(listed: SpeechList, target: Path) -> None:
    """Clone the sources of a list, and write its recordings and their manifest into the new folder
    `target`. Raises UserError where a source cannot be cloned, and where a recording or a text is
    missing or is not the listed one."""
    target.mkdir()
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folders = [Path(scratch) / str(i) for i in range(len(listed.head["source"]))]
        for source, folder in zip(listed.head["source"], folders, strict=True):
            _clone(source, folder, listed)
        files = [file for folder in folders for file in sorted(folder.rglob("*"))]
        recordings = {file.stem: file for file in files if file.suffix[1:].lower() in AUDIO}
        texts = dict(_texts(folders))
        rows = []
        for name, row in listed.rows.items():
            if name not in recordings or name not in texts:
                what = "recording" if name not in recordings else "text"
                raise UserError(
                    f"{listed.name}: its sources hold no {what} of {name}; {_instead(listed)}"
                )
            digest = hashlib.sha256(recordings[name].read_bytes()).hexdigest()
            form = next((form for form, expected in row.files.items() if expected == digest), None)
            if form is None or text_hash(texts[name]) != row.text:
                raise UserError(
                    f"{listed.name}: {recordings[name].name} or its text is not the one that is "
                    f"listed (sha256 {digest[:12]}...); {_instead(listed)}"
                )
            file = target / f"{name}.{form}"
            shutil.copyfile(recordings[name], file)
            line = {
                "id": name,
                "audio_filepath": file.name,
                "duration": round(duration_s(file), 4),
                "text": texts[name],
                "speaker": row.speaker,
                "language": listed.head["language"][0],
            }
            rows.append(line)
        write_rows(target / MANIFEST, rows)


def _clone(source: str, folder: Path, listed: SpeechList) -> None:
    """Clone what the list needs of `owner/name@commit:path`, a folder or a file, into `folder`."""
    path = source.rpartition(":")[2]
    names = [*(f"{name}.*" for name in listed.rows), *TEXTS]
    patterns = [f"/{path}"] if path.endswith(".tsv") else [f"/{path}/**/{name}" for name in names]
    clone(source, patterns, folder, listed.name, _instead(listed))


def clone_once(source: str, paths: Sequence[str], place: Path, name: str, instead: str) -> None:
    """Do as `clone`, into the folder `place`, which appears when it is complete; nothing where it
    exists."""
    make_once(place, lambda scratch: clone(source, paths, scratch, name, instead))


def clone(source: str, paths: Sequence[str], folder: Path, name: str, instead: str) -> None:
    """Clone of `source`, owner/name@commit:path, the files that match git's patterns `paths` into
    the new `folder`, without history.

    Raises UserError, which begins with `name` and ends with `instead` (what to do), where git is
    missing or cannot fetch the commit.
    """
    repository, _, rest = source.partition("@")
    commit = rest.partition(":")[0]
    folder.mkdir(parents=True)
    for command, standard_input in (
        (["init", "--quiet"], None),
        (["remote", "add", "origin", f"{HOST}{repository}.git"], None),
        (["sparse-checkout", "set", "--no-cone", "--stdin"], "\n".join(paths)),
        (["fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit], None),
        (["checkout", "--quiet", "FETCH_HEAD"], None),
    ):
        try:
            done = subprocess.run(
                ["git", *command],
                cwd=folder,
                input=standard_input,
                capture_output=True,
                text=True,
                errors="replace",
                env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},  # else it waits for a password
            )
            last_line = done.stderr.strip().rpartition("\n")[2]
            reason = last_line if done.returncode else None
        except FileNotFoundError:
            reason = "there is no git on this machine"
        if reason is not None:
            raise UserError(
                f"{name}: git cannot fetch {HOST}{repository} at {commit[:7]} ({reason}); {instead}"
            )


def _instead(listed: SpeechList) -> str:
    return (
        f"where the corpus is already, give {listed.origin} data.ids={listed.name} "
        "data.path=<its folder, or one with manifests of these recordings>"
    )


def _texts(folders: list[Path]) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of LibriSpeech's `.trans.txt` files, of Common Voice's tables, and of other
    tables, whose first two columns are these."""
    for folder in folders:
        for file in sorted(folder.rglob("*.trans.txt")):
            for line in text_lines(file):
                name, _, text = line.partition(" ")
                yield name, text
        for file in sorted(folder.rglob("*.tsv")):
            if is_split(file):
                for _, row in named_rows(file):
                    yield row["path"].removesuffix(".mp3"), row["sentence"]
                continue
            for line in text_lines(file):
                name, text, *_ = [*line.split("\t"), ""]
                yield name, text
