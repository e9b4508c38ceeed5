"""Cuts of Lhotse (needs the package: pip install lhotse).

`path` is a cut manifest, cuts.jsonl.gz or any other form that CutSet.from_file reads. A cut of one
stretch of one file is read by this project's own reader; any other (several channels mixed, noise
mixed in, audio in an archive, features alone) by Lhotse. Word times come from the supervision's
alignment "word".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.corpora.audio import Cut, to_mono_16k
from streaming_asr.corpora.loader import Loader, is_there, missing
from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.utterance import TimedWord, Utterance


@dataclass(frozen=True, slots=True)
class LoadedByLhotse:
    """The audio of a cut that is more than a stretch of a file."""

    cut: Any

    def __call__(self) -> Samples:
        try:
            data = np.atleast_2d(self.cut.load_audio())
        except Exception as error:  # Lhotse's own errors have no common class
            raise UserError(f"{self.cut.id}: Lhotse cannot read its audio ({error})") from error
        return to_mono_16k(data.T, int(self.cut.sampling_rate), self.cut.id)


@dataclass(kw_only=True, eq=False)
class LhotseCuts(Loader):
    """One cut is one utterance; a cut with several supervisions has their texts joined."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.split = self.split or self.path.name.partition(".")[0]

    def scan(self) -> Iterator[Utterance | UserError]:
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
        supervisions = sorted(cut.supervisions, key=lambda s: s.start)
        text = " ".join(s.text.strip() for s in supervisions if s.text)
        if not text:
            return UserError(
                f"{self.path}: cut {cut.id} has no supervision with text; filter it out"
            )
        if not getattr(cut, "has_recording", False):
            return UserError(f"{self.path}: cut {cut.id} has no recording, only features")
        file = _plain_file(cut)
        if file is not None and not is_there(file):
            return missing(file, f"{self.path}, cut {cut.id}")
        speakers = {s.speaker for s in supervisions} - {None}
        languages = {s.language for s in supervisions} - {None}
        # Supervisions move with their cut, their alignments stay in the recording's time. A mix of
        # several recordings has no such time.
        words = [
            TimedWord(item.symbol, max(0.0, item.start - cut.start), item.end - cut.start)
            for s in (supervisions if getattr(cut, "recording", None) is not None else ())
            for item in (s.alignment or {}).get("word", ())
            if item.end > cut.start
        ]
        return Utterance(
            id=cut.id,
            text=" ".join(text.split()),
            audio=LoadedByLhotse(cut) if file is None else Cut(file, cut.start, cut.end),
            duration_s=float(cut.duration),
            speaker=speakers.pop() if len(speakers) == 1 else None,
            language=_code(languages.pop()) if len(languages) == 1 else None,
            words=tuple(words) or None,
            audio_path=None if file is None else str(file),
        )


def _plain_file(cut: Any) -> Path | None:
    """Return the file of which the cut is a stretch and nothing more; None for any other cut."""
    recording = getattr(cut, "recording", None)
    if recording is None or recording.transforms or len(recording.sources) != 1:
        return None
    channels = cut.channel if isinstance(cut.channel, list) else [cut.channel]
    source = recording.sources[0]
    whole = source.type == "file" and len(channels) == len(recording.channel_ids)
    return Path(source.source) if whole else None


def _code(language: str) -> str:
    """Return a language's code: Lhotse's recipes write its English name as often."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    return str(TO_LANGUAGE_CODE.get(language.lower(), language.partition("-")[0].lower()))
