"""Transcribes recordings as in a live session: text as it comes, then the transcript.

    streaming-asr transcribe talk.m4a                       # the hush word at 1 s on tiny.en
    streaming-asr transcribe *.mp3 --srt --out subtitles    # talk.srt for each
    streaming-asr transcribe interviews method=whisperrt chunk=300ms

On a terminal committed words are solid and the guess after them is dim; stdout gets the transcript,
a pipe or a file as its words become final. Files of subtitles and JSON grow as well. A command that
was killed goes on where it was when it is given again.
Only speech is transcribed, unless gate=none is given.
A file that cannot be read is named and makes the exit status 1; the others are still transcribed.
Files of a folder keep their folders below --out. What a file replaces is kept as talk.srt.bak.
"""

from __future__ import annotations

import argparse
import errno
import json
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import DictConfig, OmegaConf

from streaming_asr.cells.folder import check_writable
from streaming_asr.commands.journal import Journal
from streaming_asr.config.command_line import OF_A_CORPUS, CommandLine, check_options
from streaming_asr.config.settle import compose, detect_by_default, time_words_by_default
from streaming_asr.config.weights import unheard
from streaming_asr.corpora import Folder
from streaming_asr.corpora.audio import File, by_channel, doubts
from streaming_asr.corpora.headers import check_no_url, is_url
from streaming_asr.errors import UserError
from streaming_asr.files import in_utf_8, replacing, write_text
from streaming_asr.method import SAMPLE_RATE, Samples, Word, display_text
from streaming_asr.run.method import method_of
from streaming_asr.run.obtain import obtain_models
from streaming_asr.streaming import stream
from streaming_asr.terminal import FULL, add_config_dir, command_parser, exit_status, loading
from streaming_asr.text.spoken import WordsAlone, whole_words
from streaming_asr.text.subtitles import add_timed, cues, srt, vtt
from streaming_asr.whisper.words import spaced

FORMATS = ("srt", "vtt", "json")
GROWS_S = (
    30.0  # files are written again after so much more audio, or a tenth more if that is longer
)
EPILOG = """\
settings: those of `streaming-asr run`, as method=whisperrt, chunk=300ms, model=base; channel=1 or
channel=each takes one channel, or each by itself; default: their mean"""


@dataclass
class Transcript:
    """The words of one recording so far. words: timed, in seconds."""

    file: str
    duration_s: float
    words: list[Word] = field(default_factory=list)
    partial: tuple[Word, ...] = ()
    heard_s: float = 0.0
    language: str | None = None

    @property
    def text(self) -> str:
        return display_text(self.words)

    def written(self, form: str, **about: Any) -> str:
        """Return it as srt, vtt or json; `about`: what json tells besides."""
        lines = cues(self.words)
        if form != "json":
            return srt(lines) if form == "srt" else vtt(lines)
        row = {
            "file": self.file,
            "duration_s": round(self.duration_s, 3),
            "heard_s": round(self.heard_s, 3),
            "language": self.language,
            **about,
            "text": self.text,
            "segments": [{"start": c.start, "end": c.end, "text": c.text} for c in lines],
            "words": [
                {"text": w.text, "start": w.start, "end": w.end, "probability": w.probability}
                for w in whole_words(self.words)
            ],
        }
        return json.dumps(row, ensure_ascii=False, indent=1) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 1 where a file could not be transcribed."""
    parser = command_parser("streaming-asr transcribe", __doc__, EPILOG)
    parser.add_argument("arguments", nargs="+", metavar="FILE|FOLDER|key=value")
    for form in FORMATS:
        parser.add_argument(f"--{form}", action="store_true", help=f"also write FILE.{form}")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder of these; default .")
    add_config_dir(parser)
    argv = list(sys.argv[1:] if argv is None else argv)
    if "--" in argv:  # names follow
        at = argv.index("--")
        argv[at:] = [f"./{name}" if name.startswith("-") else name for name in argv[at + 1 :]]

    def transcribe() -> int:
        for name in argv:
            if name.startswith("-") and os.path.exists(name):
                raise UserError(f"{name}: begins as an option does; write ./{name}")
        check_options(
            [a for a in argv if not os.path.exists(a)],
            (*FORMATS, "out", "config-dir", "help"),
        )
        return _transcribe(parser.parse_intermixed_args(argv))

    return exit_status(transcribe)


def _transcribe(arguments: argparse.Namespace) -> int:
    names = [a for a in arguments.arguments if "=" not in a or is_url(a) or os.path.exists(a)]
    if not names:
        raise UserError("no recording given; name a file or a folder, as in transcribe talk.m4a")
    if len(names) > 1 and os.path.exists(whole := " ".join(names)):
        raise UserError(f"{whole}: came in {len(names)} parts; quote a path that holds blanks")
    forms = [form for form in FORMATS if getattr(arguments, form)]
    settings = [a for a in arguments.arguments if a not in names]
    line = CommandLine([*arguments.config_dir, *settings])
    files, failed = _files(names, line.pop("channel"))
    total = len(files) + len(failed)
    if forms:
        targets = Counter(file.target for file in files)
        for target in (target for target, n in targets.items() if n > 1):
            raise UserError(f"{target}.{forms[0]}: of two recordings; rename one of them")
    if not files:
        return 1
    if forms:
        check_writable(arguments.out, "--out")  # before the work, not after it
    line.refuse((*OF_A_CORPUS, "name", "output", "normaliser", "tracker"), "transcribe")
    line.settings.append("tracker=none")
    line.default_methods(1)
    line.default(gate="speech")
    many = total > 1
    job = _Job(line, forms, arguments.out, many)
    for file in files:
        try:
            job.transcribe(file)
        except UserError as error:
            if job.method is None and job.samples is not None:
                raise  # a setting is at fault, not this recording
            failed.append(str(error))
            print(f"error: {error}", file=sys.stderr, flush=True)
    if failed:
        print(f"{len(failed)} of {total} recordings could not be transcribed", file=sys.stderr)
    return int(bool(failed))


@dataclass
class _Job:
    """What the recordings of a command share; `many`: each is reported under its name."""

    line: CommandLine
    forms: Sequence[str]
    out: Path
    many: bool
    config: DictConfig = field(init=False)
    method: Any = None
    samples: Samples | None = None

    def __post_init__(self) -> None:
        self.config = self._composed()
        method = self.line.get("method")
        loading(f"{method} on {self.config.model.name}")

    def _composed(self) -> DictConfig:
        return compose(self.line.settings, config_dir=self.line.config_dir)

    def transcribe(self, recording: _Recording) -> None:
        """Transcribe one recording and print its text. Raises UserError."""
        self.samples = None
        self.samples = samples = recording.audio()
        file = recording.name
        if (doubt := doubts(samples)) is not None:
            _say(f"{file}: {doubt}")
        if self.method is None:  # nothing is obtained for recordings that cannot be read
            self._load()
        began = perf_counter()
        plain: Any = OmegaConf.to_container(self.config)
        journal = Journal(plain, samples)
        written_s = 0.0
        # What a resumed command replaces is its own.
        replaced = {} if journal.words_so_far()[1] else self._kept(recording)

        def grow(result: Transcript) -> None:
            nonlocal written_s
            display.show(result)
            if result.heard_s - written_s >= max(GROWS_S, result.heard_s / 10):
                self._write(recording, result)
                written_s = result.heard_s

        with _Shown(f"{file}:\n" if self.many else "") as display:
            result = transcript(self.method, samples, Path(file), self.config, grow, journal)
            display.end(result)
        if not result.words and samples.any():  # just an empty text would look like a failure
            remedy = "" if self.config.gate == "none" else "; gate=none lets other sounds through"
            _say(f"{file}: no words were found{remedy}")
        took = f"{result.duration_s:.1f} s of audio in {perf_counter() - began:.1f} s"
        method = self.line.get("method")
        _say(f"{file}: {took}, {method}, {self.config.model.name}, chunk={self.config.chunk}")
        for path in self._write(recording, result):
            note = ""
            if (backup := replaced.get(path)) is not None:
                note = f" (replaced; the old one is {backup.name})"
                if backup.read_bytes() == path.read_bytes():
                    backup.unlink()
                    note = ""
            _say(f"wrote {path}{note}")
        journal.remove()

    def _load(self) -> None:
        """Obtain the model and load the method. Raises UserError."""
        if obtain_models([self.config]):
            self.config = self._composed()
        config = self.config
        detect_by_default(config)
        time_words_by_default(config)
        if warning := unheard(config, {config.language or "en"} - {"detect"}):
            _say(warning)
        self.method = method_of(config)[0]

    def _places(self, recording: _Recording) -> dict[str, Path]:
        return {form: self.out / f"{recording.target}.{form}" for form in self.forms}

    def _kept(self, recording: _Recording) -> dict[Path, Path]:
        """Copy the files that will be replaced, and return the copy of each. Raises UserError."""
        copies = {}
        for path in self._places(recording).values():
            if path.is_file():
                names = (path.with_name(f"{path.name}.bak{n or ''}") for n in count())
                copies[path] = next(name for name in names if not name.exists())
                with replacing(copies[path]) as scratch:
                    shutil.copyfile(path, scratch)
        return copies

    def _write(self, recording: _Recording, result: Transcript) -> list[Path]:
        """Write what was transcribed in every form that is asked for; return the files."""
        method: Any = OmegaConf.to_container(self.config.method)
        about = {"model": self.config.model.name, "chunk": self.config.chunk, "method": method}
        return [
            write_text(path, result.written(form, **about))
            for form, path in self._places(recording).items()
        ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class _Recording:
    """A recording, or one channel of it. target: of its files below --out, without the ending."""

    name: str
    target: Path
    audio: File


def _files(names: Sequence[str], channel: str | None) -> tuple[list[_Recording], list[str]]:
    """Return the recordings that the names mean, and what is wrong with the other names."""
    targets: dict[Path, Path] = {}
    failed: list[str] = []
    for name in names:
        try:
            check_no_url(name)
            root = Path(name) if os.path.isdir(name) else Path(name).parent
            for file in Folder(Path(name)).files():
                targets.setdefault(file, file.relative_to(root).with_suffix(""))
        except UserError as error:
            failed.append(str(error))
            print(f"error: {error}", file=sys.stderr)
    if len(set(targets.values())) < len(targets):  # files of one name in several folders
        shared = os.path.commonpath([os.path.abspath(file.parent) for file in targets])
        for file in targets:
            targets[file] = Path(os.path.relpath(file, shared)).with_suffix("")
    recordings = []
    for file, target in targets.items():
        name = in_utf_8(file)
        for audio, suffix in by_channel(File(file), channel, "channel"):
            part = Path(in_utf_8(target) + suffix)
            about = f", channel {audio.channel}" if suffix else ""
            recordings.append(_Recording(name + about, part, audio))
    return recordings, failed


def transcript(
    method: Any,
    samples: Samples,
    file: Path,
    config: DictConfig,
    show: Callable[[Transcript], None] = lambda result: None,
    journal: Journal | None = None,
) -> Transcript:
    """Return what `method` outputs; `show` is called after every step with what is there.

    Words that the method does not time get theirs by `add_timed`. journal: what an earlier command
    output, and where each step is noted. Raises UserError for a method that fails.
    """
    language = None if config.language == "detect" else config.language
    result = Transcript(str(file), len(samples) / SAMPLE_RATE, language=language)
    at_s = 0.0
    if journal is not None:
        result.words, at_s = journal.words_so_far()
    n_kept = len(result.words)
    if n_kept:
        _say(f"{file}: resumes at {at_s:.1f} s, where an earlier command stopped")
        show(result)
    try:
        updates = stream(method, samples[round(at_s * SAMPLE_RATE) :], SAMPLE_RATE,
                         chunk=config.chunk, first_chunk=config.first_chunk,
                         language=language)  # fmt: skip
        words_alone = WordsAlone()
        for update in map(words_alone.of, updates):
            n = len(result.words) - update.retracted
            result.heard_s, result.partial = at_s + updates.heard_s, update.partial
            new = [_later(word, at_s) for word in update.committed]
            if new and n == n_kept > 0:  # it was the first word of its stream
                new[0] = replace(new[0], text=spaced(new[0].text, result.language))
            n = add_timed(result.words, update.retracted, new, result.heard_s)
            if journal is not None and (update.committed or update.retracted):
                journal.write(result.words, n)
            if update.language not in (None, result.language):
                result.language = update.language
                _say(_found(file, config, update.language))
            show(result)
    except UserError:
        raise
    except Exception as error:  # one recording does not keep the others from their text
        if isinstance(error, OSError) and error.errno in (errno.EPIPE, *FULL):
            raise  # nobody reads the output, or there is no room for it
        logging.getLogger(__name__).debug("%s failed", file, exc_info=True)
        raise UserError(f"{file}: {type(error).__name__}: {error}") from error
    return result


def _later(word: Word, at_s: float) -> Word:
    """Return the word of a stream that begins at `at_s` of the recording with times in it."""
    if word.start is None or word.end is None:
        return word
    return replace(word, start=word.start + at_s, end=word.end + at_s)


def _found(file: Path, config: DictConfig, language: str) -> str:
    """Return the line that tells a detected language."""
    warning = unheard(config, {language})
    message = f"{file}: language {language}, detected; language=<code> names another"
    return message if warning is None else f"{message}. {warning}"


class _Shown:
    """The text so far: on a terminal committed words solid and the guess dim, and on stdout, word
    by word unless that is the terminal, too. `title` comes before the text."""

    def __init__(self, title: str) -> None:
        self._title, self._n, self._is_whole = title, 0, False
        self._newest: Word | None = None
        self._grows = not (sys.stdout.isatty() and sys.stderr.isatty())

    def __enter__(self) -> _Shown:
        from rich.console import Console
        from rich.live import Live

        stderr = Console(stderr=True)
        live = Live(console=stderr, transient=True, redirect_stdout=False)
        self._live = live if stderr.is_terminal else None
        if self._live is not None:
            self._live.start()
        return self

    def show(self, result: Transcript) -> None:
        if self._grows:
            self._print(result.words)
        if self._live is not None:
            from rich.text import Text

            guess = "".join(word.text for word in result.partial)
            text = Text.assemble(result.text, (guess, "dim italic"))
            self._live.update(text if result.words else Text(guess.lstrip(), "dim italic"))

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if self._n and not self._is_whole:
            print(flush=True)

    def end(self, result: Transcript) -> None:
        """Print what is not there yet of the whole transcript."""
        self._is_whole = True
        if self._live is not None:
            self._live.stop()
        self._print(result.words)
        if not self._n:  # there are no words
            sys.stdout.write(self._title)
        print("\n" if self._title else "", flush=True)

    def _print(self, words: Sequence[Word]) -> None:
        """Print the words that are new; all of them again where some were taken back."""
        if self._n and (len(words) < self._n or words[self._n - 1] is not self._newest):
            print(flush=True)
            self._n = 0
        new = "".join(word.text for word in words[self._n :])
        if not self._n:
            new = self._title + new.lstrip()
        if words:
            sys.stdout.write(new)
            sys.stdout.flush()
            self._n, self._newest = len(words), words[-1]
