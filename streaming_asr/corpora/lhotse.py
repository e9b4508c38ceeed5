"""Cuts of Lhotse (needs the package: pip install lhotse).

`path` is a cut manifest, cuts.jsonl.gz or any other form that CutSet.from_file reads. Lhotse reads
the audio; word times come from the supervision's alignment "word".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streaming_asr.corpora.alignments import match
from streaming_asr.corpora.audio import to_mono_16k
from streaming_asr.corpora.loader import Loader
from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.text.units import joined, unit_of
from streaming_asr.utterance import TimedWord, Utterance

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
        try:
            cuts = iter(CutSet.from_file(self.path))
            for cut in cuts:
                yield self._utterance(cut)
        except (ValueError, KeyError, TypeError, AssertionError, OSError) as error:
            raise UserError(
                f"{self.path}: no manifest of cuts that Lhotse reads ({error})"
            ) from error

    def _utterance(self, cut: Any) -> Utterance | UserError:
        """Return a cut as an utterance: the texts of its supervisions in the order of time, and
        their words if all are timed; a UserError for a cut that cannot be used."""
        if not getattr(cut, "has_recording", False):
            return UserError(f"{self.path}: cut {cut.id} has no recording, only features")
        supervisions = sorted(_supervisions(cut), key=lambda pair: pair[0].start)
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
    items = (supervision.alignment or {}).get("word") or ()
    aligned = [TimedWord(item.symbol, item.start + shift_s, item.end + shift_s) for item in items]
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
