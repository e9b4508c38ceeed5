"""Cuts of Lhotse (needs the package: pip install lhotse).

`path` is a cut manifest, cuts.jsonl.gz or any other form that CutSet.from_file reads. Lhotse reads
the audio; word times come from the supervision's alignment "word".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from streaming_asr.corpora.audio import to_mono_16k
from streaming_asr.corpora.loader import Loader
from streaming_asr.errors import UserError
from streaming_asr.method import Samples
from streaming_asr.utterance import TimedWord, Utterance


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
            audio=partial(_load, cut),
            duration_s=float(cut.duration),
            speaker=speakers.pop() if len(speakers) == 1 else None,
            language=_code(languages.pop()) if len(languages) == 1 else None,
            words=tuple(words) or None,
        )


def _load(cut: Any) -> Samples:
    try:
        data = np.atleast_2d(cut.load_audio())
    except Exception as error:  # Lhotse's own errors have no common class
        raise UserError(f"{cut.id}: Lhotse cannot read its audio ({error})") from error
    return to_mono_16k(data.T, int(cut.sampling_rate), cut.id)


def _code(language: str) -> str:
    """Return a language's code: Lhotse's recipes write its English name as often."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE

    return str(TO_LANGUAGE_CODE.get(language.lower(), language.partition("-")[0].lower()))
