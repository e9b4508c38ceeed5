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
        root = need_folder(self.path, "TED-LIUM", "TEDLIUM_release-3")
        folders = {f.name: f for f in (root / "legacy").glob("*") if (f / "stm").is_dir()}
        if (root / "data" / "stm").is_dir():
            folders["train"] = root / "data"
        need_split(root, self.split, folders, "TED-LIUM 3")
        folder = folders[self.split]
        files = sorted((folder / "stm").glob("*.stm"))
        for stm in files:
            talk = folder / "sph" / f"{stm.stem}.sph"
            if not is_there(talk):
                yield missing(talk, stm.name)
                continue
            try:
                spoken = [
                    each
                    for parts in segments(stm).values()
                    for each in parts
                    if each.speaker != GAP and each.text.lower() != IGNORED
                ]
            except UserError as error:
                yield error
                continue
            yield from self._cuts(talk, spoken)
        stems = {file.stem for file in files}
        for talk in sorted((folder / "sph").glob("*.sph")):
            if talk.stem not in stems:
                yield UserError(f"{talk}: has no stm/{talk.stem}.stm; extract the archive again")

    def _cuts(self, talk: Path, spoken: Sequence[Segment]) -> Iterator[Utterance | UserError]:
        parts = [[segment] for segment in spoken] if self.form == "short" else [spoken]
        if not spoken:
            yield UserError(f"{talk}: its STM has no segment with text; extract the archive again")
            return
        for part in parts:
            start_s, end_s = part[0].start_s, max(segment.end_s for segment in part)
            name = talk.stem
            if self.form == "short":
                name += f"-{round(start_s * 100):07d}-{round(end_s * 100):07d}"
            text = " ".join(filter(None, (plain(segment.text) for segment in part)))
            if text:  # a segment of noises alone has no reference
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


def plain(text: str) -> str:
    """Return the words of an STM line without `<unk>`, `{noise}` and a pronunciation's `(2)`."""
    text = re.sub(r"<unk>|\{[^}]*\}|(?<=\w)\(\d+\)", " ", text)
    return " ".join(text.split())
