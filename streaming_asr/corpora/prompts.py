"""Debian's telephone prompts: human speech with transcripts that a package registry gives.

The packages asterisk-core-sounds-<language> (transcripts) and -g722 (audio, 16 kHz) are downloaded
by apt-get and unpacked by dpkg-deb, both without root and without a change to the system: the
package lists are the system's, or read into a folder of their own. What is kept lies in
<cache>/prompts/<language>: prompts.jsonl (a manifest), FLAC, the copyright file, source.json.

Transcripts are as they were shipped. Left out is a clip without a recording, one whose transcript
has fewer than three words (between spaces), and one whose transcript begins with a bracket: it is a
note on a tone or on silence. That leaves 272 English, 232 Spanish, 272 French, 300 Italian and
260 Russian clips of 1.6.1-1, each language of one speaker.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from streaming_asr.corpora import Manifest, choose, hash_of
from streaming_asr.corpora.audio import load_audio
from streaming_asr.corpora.manifest import write_rows
from streaming_asr.corpora.rows import text_of
from streaming_asr.errors import UserError
from streaming_asr.files import cache_root, make_once
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import Utterance

LANGUAGES = ("en", "es", "fr", "it", "ru")
VERSION = "1.6.1-1"
MIN_WORDS = 3
N_TEST = 60  # clips, the protocol's (experiments/real/results.md)
SPLITS = ("all", "test", "dev")
N_BYTES = 90_000_000  # while it is made
SOUNDS = Path("usr/share/asterisk/sounds")
MANIFEST, SOURCE, COPYRIGHT = "prompts.jsonl", "source.json", "copyright"


def packages(language: str) -> tuple[str, str]:
    """Return the Debian packages of a language: transcripts, audio. Raises UserError."""
    if language not in LANGUAGES:
        raise UserError(
            f"language={language}: the prompts are in {', '.join(LANGUAGES)}; choose one of them"
        )
    name = f"asterisk-core-sounds-{language}"
    return name, f"{name}-g722"


def place_of(language: str) -> Path:
    """Return where the prompts of a language are kept once they are there."""
    return cache_root() / "prompts" / language


def fetch_prompts(language: str) -> Path:
    """Return the folder of the prompts, which is made completely or not at all on first use.

    They are from the packages unpacked in <cache>/prompts/unpacked, else from those installed, else
    downloaded. Raises UserError where they cannot be had.
    """
    names = packages(language)
    return make_once(place_of(language), partial(_make, language, names), n_bytes=N_BYTES)


def _make(language: str, names: Sequence[str], target: Path) -> None:
    """Write the prompts of a language, from the Debian packages `names`, into the new folder
    `target`. Raises UserError where they cannot be had."""
    unpacked_by_hand = cache_root() / "prompts" / "unpacked"
    for root in (unpacked_by_hand, Path("/")):
        if _transcripts(root, language).is_file() and _audio(root, language):
            write(root, language, target)
            return
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        root = Path(scratch) / "root"
        for file in _download(names, Path(scratch), unpacked_by_hand):
            done = _run("dpkg-deb", "-x", str(file), str(root))
            if done.returncode:
                raise UserError(
                    f"{file.name}: is no whole Debian package ({_reason(done)}); give the command "
                    "again, which downloads it again"
                )
        write(root, language, target)


def _download(names: Sequence[str], folder: Path, unpacked_by_hand: Path) -> list[Path]:
    """Download the Debian packages `names` with apt-get into `folder`, and return the .deb files.

    Tries VERSION with the system's package lists, then with new lists, then the version of another
    release of Debian. Raises UserError, which states how to unpack them by hand.
    """
    instead = (
        f"where there is a Debian or Ubuntu, `apt-get download {' '.join(names)}`, then "
        f"`dpkg-deb -x FILE {unpacked_by_hand}` with both files"
    )
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UserError(f"data=prompts: there is no {program} on this machine; {instead}")
    cache = folder / "cache"
    (cache / "archives" / "partial").mkdir(parents=True)
    (folder / "lists" / "partial").mkdir(parents=True)
    options = ["-o", f"Dir::Cache={cache}", "-o", "APT::Sandbox::User=root"]
    options += ["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=30"]
    pinned = [f"{name}={VERSION}" for name in names]
    done = _run("apt-get", *options, "download", *pinned, cwd=folder)
    if done.returncode:  # the system has no package lists, or old ones
        options += ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", "Debug::NoLocking=1"]
        _run("apt-get", *options, "update")
        done = _run("apt-get", *options, "download", *pinned, cwd=folder)
    if done.returncode and "was not found" in done.stderr:  # another release of Debian
        done = _run("apt-get", *options, "download", *names, cwd=folder)
    files = sorted(folder.glob("*.deb"))
    if done.returncode or len(files) != len(names):
        raise UserError(f"data=prompts: apt-get cannot download it ({_reason(done)}); {instead}")
    return files


def _run(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return a program's last error message, else the last line of standard error, else the status
    with which it ended."""
    lines = [line.strip() for line in done.stderr.split("\n") if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "dpkg-deb:"))]
    return (errors or lines or [f"status {done.returncode}"])[-1]


def _transcripts(root: Path, language: str) -> Path:
    name = packages(language)[0]
    return root / "usr/share/doc" / name / f"core-sounds-{language}.txt.gz"


def _audio(root: Path, language: str) -> Path | None:
    """Return the folder of the voice, as en_US_f_Allison: the first one that has recordings."""
    voices = sorted((root / SOUNDS).glob(f"{language}_*"))
    return next((voice for voice in voices if any(voice.rglob("*.g722"))), None)


def texts(content: str) -> dict[str, str]:
    """Return {clip: transcript} of lines `clip: transcript`, without notes and short ones."""
    text_of_clip = {}
    for line in content.removeprefix("\ufeff").split("\n"):
        name, colon, text = line.partition(":")
        text = text.strip()
        is_note = text.startswith(("(", "[", "<"))
        if colon and not line.startswith(";") and not is_note and len(text.split()) >= MIN_WORDS:
            text_of_clip[name.strip()] = text
    return text_of_clip


def write(root: Path, language: str, target: Path) -> None:
    """Write the prompts of the packages unpacked below `root` into `target`: FLAC, a manifest, the
    copyright, and the hash of what was read. Raises UserError where a part is missing."""
    import soundfile

    transcripts, voice = _transcripts(root, language), _audio(root, language)
    if not transcripts.is_file() or voice is None:
        raise UserError(
            f"{' and '.join(packages(language))}: hold no {transcripts.name} or no .g722 files; "
            f"take version {VERSION}"
        )
    content = gzip.decompress(transcripts.read_bytes())
    digest, rows = hashlib.sha256(content), []
    for name, text in texts(content.decode("utf-8")).items():
        recording = voice / f"{name}.g722"
        if not recording.is_file():
            continue
        digest.update(recording.read_bytes())
        samples = (load_audio(recording) * 32768).astype(np.int16)  # as G.722 has them
        file = target / "audio" / f"{name}.flac"
        file.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(file, samples, SAMPLE_RATE, subtype="PCM_16")
        row = {
            "id": name,
            "audio_filepath": f"audio/{name}.flac",
            "duration": len(samples) / SAMPLE_RATE,
            "text": text,
            "speaker": voice.name.rpartition("_")[2],
            "language": language,
        }
        rows.append(row)
    if not rows:
        raise UserError(f"{voice}: has no recording of {transcripts.name}; take version {VERSION}")
    shutil.copy(transcripts.with_name(COPYRIGHT), target / COPYRIGHT)
    write_rows(target / MANIFEST, rows)
    source = {"packages": packages(language), "sha256": digest.hexdigest(), "clips": len(rows)}
    (target / SOURCE).write_text(json.dumps(source, indent=1) + "\n", encoding="utf-8")


def licence(copyright_file: Path, language: str) -> str:
    """Return licence and attribution of a language, from the package's copyright file (DEP 5): that
    of its files, else that of all files."""
    terms_of: dict[str, dict[str, str]] = {}  # by the pattern of a stanza's files
    for stanza in copyright_file.read_text(encoding="utf-8").split("\n\n"):
        fields = [line for line in stanza.split("\n") if ": " in line and line[0] != " "]
        terms = dict(field.split(": ", 1) for field in fields)
        if "Files" in terms:
            terms_of[terms["Files"]] = terms
    terms = terms_of.get(f"{language}-*") or terms_of.get("*", {})
    return (
        f"{terms.get('License', 'see the copyright file')}, copyright "
        f"{terms.get('Copyright', 'of its authors')} (Debian package {packages(language)[0]})"
    )


@dataclass(kw_only=True, eq=False)
class Prompts(Manifest):
    """The prompts of one language, obtained on first use.

    language: one of `LANGUAGES`; None and `detect` take English.
    split: `test`, the clips that `limit=60` chooses of all; `dev`, the others; `all`. In results
    the names are en-test, en-dev and en, by the language.
    """

    path: Path = field(default=Path(), init=False)
    split: str = "all"
    language: str | None = None

    def __post_init__(self) -> None:
        self._spoken = "en" if self.language in (None, "detect") else str(self.language)
        packages(self._spoken)  # raises UserError for another language
        self._part = self.split  # as in the settings; `split` is the name in results
        if self._part not in SPLITS:
            raise UserError(
                f"data.split={self._part}: the prompts have {', '.join(SPLITS)}; choose one of "
                "them, and the language as in language=fr"
            )
        self.split = self._spoken if self._part == "all" else f"{self._spoken}-{self._part}"
        self.path = place_of(self._spoken) / MANIFEST
        self.name = self.name or "prompts"
        super().__post_init__()

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield the prompts of the split, obtained first where they are not there."""
        self._folder()
        if self._part == "all":
            yield from super().scan()
            return
        entries = list(super().scan())
        utterances = [entry for entry in entries if isinstance(entry, Utterance)]
        test_ids = {utterance.id for utterance in choose(utterances, N_TEST)}
        is_test = self._part == "test"
        for entry in entries:
            if isinstance(entry, UserError) or (entry.id in test_ids) == is_test:
                yield entry

    def data_hash(self) -> str:
        """Return the hash of what was read of the packages, and of the alignment files."""
        source = json.loads(text_of(self._folder() / SOURCE))
        return hash_of(str(source["sha256"]), self._alignment_files())

    def licence(self) -> str:
        """Return licence and attribution, as the package states them."""
        return licence(self._folder() / COPYRIGHT, self._spoken)

    def _folder(self) -> Path:
        return fetch_prompts(self._spoken)
