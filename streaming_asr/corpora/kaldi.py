"""A data folder of Kaldi.

    wav.scp   recording  path      (or a pipe that only decodes: `sph2pipe -f wav x.sph |`)
    text      utterance  words
    segments  utterance  recording  begin_s  end_s (-1: to the end)          optional
    utt2spk   utterance  speaker;   utt2lang  utterance  language            optional
    ctm       word times, by utterance or recording                          optional

Pipes are not run: a data folder should not be able to run programs. Those that only decode a file
name it, and that file is read. Relative paths are looked for from `root`, by default the working
directory, as Kaldi does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.corpora.audio import SUFFIXES, Cut, duration_s
from streaming_asr.corpora.loader import Loader, need_folder, recorded
from streaming_asr.corpora.rows import MOST, text_lines
from streaming_asr.errors import UserError
from streaming_asr.utterance import Utterance

# Programs of pipes that only decode a file, and their options that do more than that.
DECODERS: dict[str, set[str]] = {
    "sph2pipe": {"-c", "-t", "-s"},
    "flac": {"--skip", "--until"},
    "cat": set(),
}
READ = (*SUFFIXES, ".sph")
TO_THE_END = -1.0  # the end of a segment that lasts as long as its recording


@dataclass(kw_only=True, eq=False)
class Kaldi(Loader):
    """`path` is the data folder; its name is the split."""

    kind = "kaldi"

    language: str | None = None
    root: str | Path = "."

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.name
        if self.alignments is None and (self.path / "ctm").is_file():
            self.alignments = self.path / "ctm"

    def scan(self) -> Iterator[Utterance | UserError]:
        need_folder(self.path, "Kaldi")
        recordings = table(self.path / "wav.scp")
        texts = table(self.path / "text")
        speakers, languages = self._optional("utt2spk"), self._optional("utt2lang")
        cuts = self._segments()
        for name, text in texts.items():
            recording, times = cuts.get(name, (name, None))
            source = recordings.get(recording)
            if cuts and name not in cuts:
                yield UserError(f"{self.path / 'segments'}: has no line for {name} of text")
                continue
            if source is None:
                yield UserError(f"{self.path / 'wav.scp'}: has no recording {recording} of {name}")
                continue
            file = self._file(source)
            if file is None:
                yield UserError(
                    f"{self.path / 'wav.scp'}: {recording} is a pipe, {source!r}, and pipes are "
                    "not run; write its audio to a file and name that"
                )
                continue
            cut: dict[str, Any] = {}
            if times:
                begin_s, end_s = times
                end_s = duration_s(file) if end_s == TO_THE_END else end_s
                if end_s <= begin_s:
                    yield UserError(
                        f"{self.path / 'segments'}: {name} begins at {begin_s:g} s of a recording "
                        f"of {end_s:g} s"
                    )
                    continue
                audio = Cut(file, begin_s, end_s, recording=recording)
                cut = {"audio": audio, "duration_s": end_s - begin_s}
            yield recorded(
                file,
                text,
                f"{self.path / 'wav.scp'}, {recording}",
                name=name,
                speaker=speakers.get(name),
                language=languages.get(name) or self.language,
                **cut,
            )
        for name in (cuts or recordings).keys() - texts.keys():
            yield UserError(f"{self.path / 'text'}: has no line for {name}")

    def _segments(self) -> dict[str, tuple[str, tuple[float, float] | None]]:
        path = self.path / "segments"
        cuts: dict[str, tuple[str, tuple[float, float] | None]] = {}
        for name, rest in self._optional("segments").items():
            try:
                recording, begin, end = rest.split()
                begin_s, end_s = float(begin), float(end)
                is_whole = end_s == TO_THE_END and begin_s <= MOST
                if begin_s < 0 or not (is_whole or begin_s < end_s <= MOST):
                    raise ValueError
            except ValueError as error:
                raise UserError(
                    f"{path}: {name} {rest!r}; a line is `utterance recording begin end`, in "
                    "seconds, the end after the begin"
                ) from error
            cuts[name] = recording, (begin_s, end_s)
        return cuts

    def _optional(self, name: str) -> dict[str, str]:
        path = self.path / name
        return table(path) if path.is_file() else {}

    def _file(self, source: str) -> Path | None:
        """Return the audio file of a line of wav.scp; None for a pipe that does more."""
        if not source.endswith("|"):
            return Path(self.root).expanduser() / source
        words = source.removesuffix("|").split()
        files = [w for w in words[1:] if Path(w).suffix.lower() in READ]
        decodes = bool(words) and Path(words[0]).name in DECODERS and "|" not in words
        if not decodes or len(files) != 1 or DECODERS[Path(words[0]).name] & set(words):
            return None
        return Path(self.root).expanduser() / files[0]


def table(path: Path) -> dict[str, str]:
    """Return what follows the name that begins each line of a file of Kaldi.

    Raises UserError for a name that stands there twice.
    """
    rows: dict[str, str] = {}
    line_of: dict[str, int] = {}
    for number, line in enumerate(text_lines(path), start=1):
        if line.strip():
            name, *rest = line.split(maxsplit=1)
            if (before := line_of.setdefault(name, number)) != number:
                raise UserError(
                    f"{path}, line {number}: {name} is in line {before} already; give each its "
                    "own name"
                )
            rows[name] = rest[0].strip() if rest else ""
    return rows
