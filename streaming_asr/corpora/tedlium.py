"""TED-LIUM 3 (Hernandez et al. 2018; openslr.org/51): talks in SPHERE files, segments in STM.

    TEDLIUM_release-3/legacy/{train,dev,test}/{sph,stm}/<talk>.{sph,stm}
    TEDLIUM_release-3/data/{sph,stm}/<talk>.{sph,stm}               release 3's training set

`form: short` gives each segment of the STM as an utterance. `form: long` gives each talk as one,
from the start of its first segment to the end of its last, as Whisper's paper evaluates it
(appendix D.1), the texts joined.

The text is TED-LIUM's: lower case, clitics apart ("it 's"), which the normaliser joins again;
`<unk>`, noises in braces and the marks of pronunciations, "word(2)", are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.corpora.audio import Cut
from streaming_asr.corpora.loader import (
    Loader,
    is_there,
    missing,
    need_folder,
    need_split,
    recorded,
)
from streaming_asr.corpora.nist import Segment, segments
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.utterance import Utterance

FORMS = ("short", "long")
IGNORED = "ignore_time_segment_in_scoring"
GAP = "inter_segment_gap"


@dataclass(kw_only=True, eq=False)
class TedLium(Loader):
    """English talks. Splits dev and test are those of every release; train is release 3's."""

    split: str = "test"
    form: str = "short"

    def __post_init__(self) -> None:
        check_one_of(FORMS, **{"data.form": self.form})
        super().__post_init__()

    def called(self) -> str:
        return "tedlium3" if self.form == "short" else "tedlium3_long"

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield the utterances of every talk, and a UserError for a talk without its other file."""
        root = need_folder(self.path, "TED-LIUM", "TEDLIUM_release-3")
        legacy_folders = [each for each in (root / "legacy").glob("*") if (each / "stm").is_dir()]
        folder_of = {folder.name: folder for folder in legacy_folders}
        if (root / "data" / "stm").is_dir():
            folder_of["train"] = root / "data"
        need_split(root, self.split, folder_of, "TED-LIUM 3")
        folder = folder_of[self.split]
        stm_files = sorted((folder / "stm").glob("*.stm"))
        for stm_file in stm_files:
            talk = folder / "sph" / f"{stm_file.stem}.sph"
            if not is_there(talk):
                yield missing(talk, stm_file.name)
                continue
            try:
                yield from self._utterances(talk, _speech(stm_file))
            except UserError as error:
                yield error
        stems = {file.stem for file in stm_files}
        for talk in sorted((folder / "sph").glob("*.sph")):
            if talk.stem not in stems:
                yield UserError(f"{talk}: has no stm/{talk.stem}.stm; extract the archive again")

    def _utterances(self, talk: Path, speech: Sequence[Segment]) -> Iterator[Utterance | UserError]:
        """Yield a talk's segments of speech, each as an utterance or all as one, by `form`."""
        if not speech:
            yield UserError(f"{talk}: its STM has no segment with text; extract the archive again")
            return
        parts = [[segment] for segment in speech] if self.form == "short" else [speech]
        for part in parts:
            start_s, end_s = part[0].start_s, max(segment.end_s for segment in part)
            name = talk.stem
            if self.form == "short":
                name += f"-{round(start_s * 100):07d}-{round(end_s * 100):07d}"
            text = " ".join(filter(None, (plain(segment.text) for segment in part)))
            if text:  # a segment of noises only has no reference
                yield recorded(
                    talk,
                    text,
                    str(talk),
                    name=name,
                    audio=Cut(talk, start_s, end_s),
                    duration_s=end_s - start_s,
                    speaker=talk.stem,
                    language="en",
                )


def _speech(stm_file: Path) -> list[Segment]:
    """Return the segments of an STM file in which the text is spoken. Raises UserError."""
    return [
        segment
        for recording_segments in segments(stm_file).values()
        for segment in recording_segments
        if segment.speaker != GAP and segment.text.lower() != IGNORED
    ]


def plain(text: str) -> str:
    """Return the words of an STM line without `<unk>`, `{noise}` and a pronunciation's `(2)`."""
    text = re.sub(r"<unk>|\{[^}]*\}|(?<=\w)\(\d+\)", " ", text)
    return " ".join(text.split())
