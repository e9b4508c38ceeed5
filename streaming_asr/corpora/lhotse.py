"""Cuts of Lhotse (needs the package: pip install lhotse).

`path` is a cut manifest in JSON lines, also compressed. Lhotse reads the audio, which
must be in files; word times come from the supervision's alignment "word".
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.corpora.alignments import match
from streaming_asr.corpora.audio import to_mono_16k
from streaming_asr.corpora.loader import Loader, is_there
from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.text.units import joined, unit_of
from streaming_asr.utterance import TimedWord, Utterance

DAY_S = 24 * 3600
# File names of formats that Lhotse reads by a shell command, into which it writes the name.
SHELL_NAMES = {".sph": r"[\w@%+=:,./-]+", ".opus": r"[^']+"}
EDGE_S = 0.05  # a supervision may end so much outside its cut: Lhotse rounds times


@dataclass(kw_only=True, eq=False)
class LhotseCuts(Loader):
    """One cut is one utterance; a cut with several supervisions has their texts joined."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.name.partition(".")[0]

    def scan(self) -> Iterator[Utterance | UserError]:
        """Yield each cut as an utterance. Raises UserError where Lhotse cannot read the file."""
        try:
            from lhotse import CutSet
        except ImportError as error:
            raise UserError(
                f"{self.path}: Lhotse's cuts need its package; pip install lhotse"
            ) from error
        if not self.path.is_file():
            raise UserError(f"{self.path}: no such cut manifest; correct data.path=")
        for number, row in enumerate(_rows(self.path.absolute()), start=1):
            where = f"{self.path}: cut {number}"
            if problem := _refused(row):
                yield UserError(f"{where}: {problem}")
                continue
            try:
                (cut,) = CutSet.from_dicts([row])
                entry = self._utterance(cut)
            except Exception as error:  # Lhotse's own errors have no common class
                reason = " ".join(str(error).split()) or repr(error)
                entry = UserError(f"{where}: is no cut that Lhotse reads ({reason})")
            yield entry

    def _utterance(self, cut: Any) -> Utterance | UserError:
        """Return a cut as an utterance: the texts of its supervisions in the order of time, and
        their words if all are timed; a UserError for a cut that cannot be used."""
        if not getattr(cut, "has_recording", False):
            return UserError(f"{self.path}: cut {cut.id} has no recording, only features")
        if not 0 < cut.duration <= DAY_S:
            return UserError(f"{self.path}: cut {cut.id} lasts {cut.duration} s; a day at most")
        supervisions = sorted(_supervisions(cut), key=lambda pair: pair[0].start)
        for supervision, _ in supervisions:
            labels = (supervision.text, supervision.speaker, supervision.language)
            for label in (cut.id, *labels, *(item.symbol for item in _items(supervision))):
                if not isinstance(label, str | None):
                    return UserError(
                        f"{self.path}: cut {cut.id}, supervision {supervision.id}: {label!r} is no "
                        f'text; write "{label}"'
                    )
        texts: list[str] = []
        words: list[TimedWord] = []
        all_timed = True
        for supervision, shift_s in supervisions:
            part = _part(cut, supervision, shift_s)
            if isinstance(part, str):
                return UserError(f"{self.path}: cut {cut.id}, supervision {supervision.id}: {part}")
            text, timed_words = part
            if text:
                texts.append(text)
                words += timed_words or ()
                all_timed = all_timed and timed_words is not None
        if not texts:
            return UserError(
                f"{self.path}: cut {cut.id} has no supervision with text; filter it out"
            )
        # Where people speak at once, the words of their texts are not in the order of time.
        in_order = all(a.start <= b.start for a, b in itertools.pairwise(words))
        speakers = {supervision.speaker for supervision, _ in supervisions} - {None}
        languages = {supervision.language for supervision, _ in supervisions} - {None}
        return Utterance(
            id=cut.id,
            text=" ".join(texts),
            audio=partial(_load, cut),
            duration_s=float(cut.duration),
            speaker=speakers.pop() if len(speakers) == 1 else None,
            language=languages.pop() if len(languages) == 1 else None,
            words=tuple(words) if words and all_timed and in_order else None,
        )


def _rows(path: Path) -> Iterator[Any]:
    """Yield what a manifest in JSON lines has for each cut, as plain containers. Raises UserError
    where it cannot be read to its end."""
    from lhotse.serialization import extension_contains, load_jsonl

    if not extension_contains(".jsonl", path):
        raise UserError(
            f"{path}: cuts are read from JSON lines; convert them: lhotse copy {path.name} "
            "cuts.jsonl.gz"
        )
    try:
        yield from load_jsonl(path)
    except (ValueError, OSError, EOFError, zlib.error, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: no manifest of cuts that Lhotse reads ({reason})") from error


def _refused(row: Any) -> str | None:
    """Return why a cut is not read, by the sources of its audio; None if it may be.

    Lhotse would run a source of type `command` in a shell and download one of type `url`, also in
    tracks and in transforms. The paths of files are made absolute in the row.
    """
    nodes = [row]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        if not isinstance(node, dict):
            continue
        nodes += [value for key, value in node.items() if key != "custom"]  # which is not loaded
        sources = node.get("sources")
        for source in sources if isinstance(sources, list) else ():
            if problem := _refused_source(source):
                return problem
    return None


def _refused_source(source: Any) -> str | None:
    """Return why a source of audio is not read; None if it may be. Make its path absolute."""
    kind = source.get("type") if isinstance(source, dict) else None
    if kind == "memory":
        return None
    place = source.get("source") if isinstance(source, dict) else source
    if kind != "file" or not isinstance(place, str):
        return (
            f"its audio is of type {kind}, {str(place)[:80]!r}; only files are read, commands are "
            "not run and nothing is downloaded; write the audio to a file and name that"
        )
    file = Path(place).absolute()
    if not is_there(file):
        return f"{place} is missing or empty; paths are relative to the folder of the command"
    if not re.fullmatch(SHELL_NAMES.get(file.suffix.lower(), r"(?s).*"), str(file)):
        return f"Lhotse reads {file.suffix} by a shell, which the name {place!r} upsets; rename it"
    source["source"] = str(file)
    return None


def _items(supervision: Any) -> Any:
    return (supervision.alignment or {}).get("word") or ()


def _supervisions(cut: Any) -> Iterator[tuple[Any, float]]:
    """Yield (supervision, shift in seconds) of a cut.

    The supervision's own times count from the start of the cut, those of its alignment from the
    start of the recording. The shift, added to the latter, makes them count from the cut's start.
    A padded or mixed cut has a track for each recording.
    """
    for track in getattr(cut, "tracks", None) or ():
        for supervision in track.cut.supervisions:
            yield supervision.with_offset(track.offset), track.offset - track.cut.start
    if not hasattr(cut, "tracks"):
        for supervision in cut.supervisions:
            yield supervision, -cut.start


def _part(cut: Any, supervision: Any, shift_s: float) -> tuple[str, list[TimedWord] | None] | str:
    """Return the part of a supervision that lies in the cut: its text, and its words in seconds
    from the cut's start (None without an alignment); or, as one text, what is wrong with it.

    shift_s: is added to the times of the alignment.
    """
    text = " ".join((supervision.text or "").split())
    aligned = [
        TimedWord(item.symbol, item.start + shift_s, item.end + shift_s)
        for item in _items(supervision)
    ]
    unit = unit_of(supervision.language)
    words = match(text, aligned, unit) if aligned else None
    if aligned and words is None:
        return "its alignment `word` is of another text; align it again"
    is_inside = supervision.start >= -EDGE_S and supervision.end <= cut.duration + EDGE_S
    if words is None:
        if is_inside:
            return text, None
        return (
            f"lasts from {supervision.start:g} to {supervision.end:g} s of a cut of "
            f"{cut.duration:g} s, and which of its words are in the cut is not known; cut at "
            "supervisions (trim_to_supervisions), or align the words"
        )
    if not is_inside:
        words = tuple(w for w in words if 0 <= (w.start + w.end) / 2 < cut.duration)
        text = joined((word.text for word in words), unit)
    return text, [
        TimedWord(word.text, max(0.0, word.start), min(word.end, float(cut.duration)))
        for word in words
    ]


def _load(cut: Any) -> Samples:
    """Return the audio of a cut, (n,) float32 mono 16 kHz. Raises UserError."""
    try:
        data = np.atleast_2d(cut.load_audio())
    except Exception as error:  # Lhotse's own errors have no common class
        raise UserError(f"{cut.id}: Lhotse cannot read its audio ({error})") from error
    return to_mono_16k(data.T, int(cut.sampling_rate), cut.id)
