"""Transcribes recordings as they would be heard: text as it comes, then the transcript.

    streaming-asr transcribe talk.m4a                       # WhisperRT at 300 ms on tiny.en
    streaming-asr transcribe *.mp3 --srt --out subtitles    # talk.srt for each
    streaming-asr transcribe interviews method=ufal chunk=1s model=base language=de

On a terminal committed words are solid and the guess after them is dim; stdout gets the transcript.
A file that cannot be read is named and makes the exit status 1; the others are still transcribed.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from omegaconf import DictConfig, OmegaConf

from streaming_asr.cells.folder import check_writable
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Folder
from streaming_asr.corpora.audio import load_audio
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE, Samples, Word, display_text
from streaming_asr.models.find import is_english_only
from streaming_asr.run.cell import method_of
from streaming_asr.run.obtain import obtain_models
from streaming_asr.streaming import stream
from streaming_asr.terminal import command_parser, exit_status
from streaming_asr.text.subtitles import add_timed, cues, srt, vtt

FORMATS = ("srt", "vtt", "json")
EPILOG = "settings: those of `streaming-asr run`, as method=ufal, chunk=1s, model=base, language=de"


@dataclass(frozen=True)
class Transcript:
    """What was heard in one recording. words: timed, in seconds."""

    file: str
    duration_s: float
    words: list[Word]

    @property
    def text(self) -> str:
        return display_text(self.words)

    def written(self, form: str, **about: Any) -> str:
        """Return it as srt, vtt or json; `about`: what json tells besides."""
        shown = cues(self.words)
        if form != "json":
            return srt(shown) if form == "srt" else vtt(shown)
        row = {
            "file": self.file,
            "duration_s": round(self.duration_s, 3),
            **about,
            "text": self.text,
            "segments": [{"start": c.start, "end": c.end, "text": c.text} for c in shown],
            "words": [
                {"text": w.text, "start": w.start, "end": w.end, "probability": w.probability}
                for w in self.words
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
    argv = list(sys.argv[1:] if argv is None else argv)

    def transcribe() -> int:
        CommandLine(argv)  # refuses a setting that is written as an option
        return _transcribe(parser.parse_intermixed_args(argv))

    return exit_status(transcribe)


def _transcribe(given: argparse.Namespace) -> int:
    names = [a for a in given.arguments if "=" not in a or Path(a).exists()]
    if not names:
        raise UserError("no recording given; name a file or a folder, as in transcribe talk.m4a")
    forms = [form for form in FORMATS if getattr(given, form)]
    files, failed = _files(names)
    stems = [file.stem for file in files]
    if forms and len(set(stems)) < len(stems):
        twice = next(stem for stem in stems if stems.count(stem) > 1)
        raise UserError(f"{twice}.{forms[0]}: two recordings are called {twice}; rename one")
    if not files:
        return 1
    if forms:
        check_writable(given.out, "--out")  # before the work, not after it
    overrides = [*(a for a in given.arguments if a not in names), "tracker=none"]
    config = compose(overrides)
    method: Any = None
    for file in files:
        samples = None
        try:
            samples = load_audio(file)
            if method is None:  # nothing is obtained for recordings that cannot be read
                if obtain_models([config]):
                    config = compose(overrides)
                _adapt(config, timed=bool(forms))
                chosen = OmegaConf.to_container(config.method)
                about = {"model": config.model.name, "chunk": config.chunk, "method": chosen}
                method = method_of(config)[0]
            began = perf_counter()
            with _Screen() as screen:
                told = transcript(method, samples, file, config, screen.show)
        except UserError as error:
            if samples is not None and method is None:
                raise  # a setting is at fault, not this recording
            failed.append(str(error))
            print(f"error: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{file}:\n{told.text}\n" if len(files) + len(failed) > 1 else told.text, flush=True)
        took = f"{told.duration_s:.1f} s of audio in {perf_counter() - began:.1f} s"
        print(f"{took}, {about['model']}, chunk={config.chunk}", file=sys.stderr)
        for form in forms:
            text = told.written(form, **about)
            print(f"wrote {write_text(given.out / f'{file.stem}.{form}', text)}", file=sys.stderr)
    if failed:
        total = len(files) + len([f for f in names if not Path(f).exists()])
        print(f"{len(failed)} of {total} recordings could not be transcribed", file=sys.stderr)
    return int(bool(failed))


def _files(names: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the recordings that the names stand for, and what is wrong with the other names."""
    files: list[Path] = []
    failed: list[str] = []
    for name in names:
        try:
            files += Folder(Path(name)).files()
        except UserError as error:
            failed.append(str(error))
            print(f"error: {error}", file=sys.stderr)
    return list(dict.fromkeys(files)), failed


def _adapt(config: DictConfig, *, timed: bool) -> None:
    """Let a model of many languages detect them where none is named, and a method that can align
    its words do so where they are to be timed."""
    if timed and config.method.get("word_times") == "emission":
        config.method.word_times = "alignment"
    path = config.model.get("path")
    if config.language is None and path and not is_english_only(path):
        config.language = "detect"


def transcript(
    method: Any,
    samples: Samples,
    file: Path,
    config: DictConfig,
    show: Callable[[list[Word], Sequence[Word]], None] = lambda committed, partial: None,
) -> Transcript:
    """Return what `method` hears; `show(committed, partial)` is called after every step.

    A word that the method does not time begins where the one before ended and ends with the audio
    heard when it became final. Raises UserError for a method that fails.
    """
    language = None if config.language == "detect" else config.language
    updates = stream(method, samples, SAMPLE_RATE, chunk=config.chunk,
                     first_chunk=config.first_chunk, language=language)  # fmt: skip
    words: list[Word] = []
    try:
        for update in updates:
            add_timed(words, update.retracted, update.committed, updates.heard_s)
            show(words, update.partial)
    except UserError:
        raise
    except Exception as error:  # one recording does not keep the others from their text
        logging.getLogger(__name__).debug("%s failed", file, exc_info=True)
        raise UserError(f"{file}: {type(error).__name__}: {error}") from error
    return Transcript(str(file), len(samples) / SAMPLE_RATE, words)


class _Screen:
    """The text so far on a terminal: committed words solid, the guess dim; nothing elsewhere."""

    def __enter__(self) -> _Screen:
        from rich.console import Console
        from rich.live import Live

        stderr = Console(stderr=True)
        self._live = Live(console=stderr, transient=True) if stderr.is_terminal else None
        if self._live is not None:
            self._live.start()
        return self

    def show(self, committed: Sequence[Word], partial: Sequence[Word]) -> None:
        if self._live is not None:
            from rich.text import Text

            guess = "".join(word.text for word in partial)
            shown = Text.assemble(display_text(committed), (guess, "dim italic"))
            self._live.update(shown if committed else Text(guess.lstrip(), "dim italic"))

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
