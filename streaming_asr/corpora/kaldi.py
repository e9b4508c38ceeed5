"""A data folder of Kaldi.

    wav.scp   recording  path      (or a pipe that only decodes: `sph2pipe -f wav x.sph |`)
    text      utterance  words
    segments  utterance  recording  begin_s  end_s (-1: to the end)          optional
    utt2spk   utterance  speaker;   utt2lang  utterance  language            optional
    ctm       word times, by utterance or recording                          optional

Pipes are not run: a data folder should not be able to run programs. Where a pipe only decodes a
file, that file is read. Relative paths are relative to `root`, by default the working directory, as
in Kaldi.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.corpora.audio import SUFFIXES, Cut, duration_s
from streaming_asr.corpora.loader import Loader, need_folder, recorded
from streaming_asr.corpora.rows import MOST, check_new, text_rows
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
        """Yield an utterance for each line of `text`; it may be a segment of its recording."""
        need_folder(self.path, "Kaldi")
        wav_scp = self.path / "wav.scp"
        sources = table(wav_scp)  # paths and pipes by recording
        texts = table(self.path / "text")
        speakers, languages = self._optional("utt2spk"), self._optional("utt2lang")
        segments = self._segments()
        for name, text in texts.items():
            if segments and name not in segments:
                yield UserError(f"{self.path / 'segments'}: has no line for {name} of text")
                continue
            recording, times_s = segments.get(name, (name, None))
            source = sources.get(recording)
            if source is None:
                yield UserError(f"{wav_scp}: has no recording {recording} of {name}")
                continue
            file = self._file(source)
            if file is None:
                yield UserError(
                    f"{wav_scp}: {recording} is a pipe, {source!r}, and pipes are not run; write "
                    "its audio to a file and name that"
                )
                continue
            fields: dict[str, Any] = {}
            if times_s is not None:
                begin_s, end_s = times_s
                end_s = duration_s(file) if end_s == TO_THE_END else end_s
                if end_s <= begin_s:
                    yield UserError(
                        f"{self.path / 'segments'}: {name} begins at {begin_s:g} s of a recording "
                        f"of {end_s:g} s"
                    )
                    continue
                fields["audio"] = Cut(file, begin_s, end_s, recording=recording)
                fields["duration_s"] = end_s - begin_s
            yield recorded(
                file,
                text,
                f"{wav_scp}, {recording}",
                name=name,
                speaker=speakers.get(name),
                language=languages.get(name) or self.language,
                **fields,
            )
        for name in (segments or sources).keys() - texts.keys():
            yield UserError(f"{self.path / 'text'}: has no line for {name}")

    def _segments(self) -> dict[str, tuple[str, tuple[float, float] | None]]:
        """Return {utterance: (recording, (begin, end) in seconds)} of the file `segments`, {} where
        there is none. Raises UserError for a line of another form."""
        path = self.path / "segments"
        segments: dict[str, tuple[str, tuple[float, float] | None]] = {}
        for name, rest in self._optional("segments").items():
            try:
                recording, begin, end = rest.split()
                begin_s, end_s = float(begin), float(end)
                # Written this way round, the conditions refuse NaN, too.
                is_to_the_end = end_s == TO_THE_END and begin_s <= MOST
                if begin_s < 0 or not (is_to_the_end or begin_s < end_s <= MOST):
                    raise ValueError
            except ValueError as error:
                raise UserError(
                    f"{path}: {name} {rest!r}; a line is `utterance recording begin end`, in "
                    "seconds, the end after the begin"
                ) from error
            segments[name] = recording, (begin_s, end_s)
        return segments

    def _optional(self, name: str) -> dict[str, str]:
        path = self.path / name
        return table(path) if path.is_file() else {}

    def _file(self, source: str) -> Path | None:
        """Return the audio file that a line of wav.scp names, a path or a pipe of DECODERS; None
        for a pipe that does more than decode one file."""
        root = Path(self.root).expanduser()
        if not source.endswith("|"):
            return root / source
        words = source.removesuffix("|").split()
        program = Path(words[0]).name if words else ""
        if program not in DECODERS or "|" in words or DECODERS[program] & set(words):
            return None
        files = [word for word in words[1:] if Path(word).suffix.lower() in READ]
        return root / files[0] if len(files) == 1 else None


def table(path: Path) -> dict[str, str]:
    """Return {first word: rest} of the lines of a file of Kaldi.

    Raises UserError where two lines have the same first word.
    """
    rest_of: dict[str, str] = {}
    place_of: dict[str, str] = {}
    for where, line in text_rows(path):
        name, *rest = line.split(maxsplit=1)
        check_new(place_of, name, where, "give each its own name")
        rest_of[name] = rest[0].strip() if rest else ""
    return rest_of
