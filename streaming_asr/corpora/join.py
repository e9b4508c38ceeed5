"""A speaker's clips joined into longer recordings, with pauses between them.

Clips of two seconds hide what goes wrong in a stream: text that repeats, words lost at a boundary.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streaming_asr.corpora.noise import Noisy
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.utterance import TimedWord, Utterance

PAUSE_S = (0.3, 0.8)


@dataclass(frozen=True, slots=True)
class Joined:
    """Clips and the times in seconds at which they begin in the joined recording."""

    clips: tuple[Utterance, ...]
    begins_s: tuple[float, ...]

    def __call__(self) -> Samples:
        """Return the clips with silence between them, (n,) float32 mono 16 kHz."""
        end_s = self.begins_s[-1] + self.clips[-1].duration_s
        joined = np.zeros(round(end_s * SAMPLE_RATE), dtype=np.float32)
        for clip, begin_s in zip(self.clips, self.begins_s, strict=True):
            begin = round(begin_s * SAMPLE_RATE)
            # A clip may be a sample longer than its corpus states.
            samples = clip.load()[: len(joined) - begin]
            joined[begin : begin + len(samples)] = samples
        return joined


def clips_of(utterance: Utterance) -> tuple[Utterance, ...]:
    """Return the clips that a joined utterance was made of; of any other, itself only."""
    return utterance.audio.clips if isinstance(utterance.audio, Joined) else (utterance,)


def join(utterances: Sequence[Utterance], join_s: float) -> list[Utterance]:
    """Return recordings of at most `join_s` seconds made of each speaker's clips; a longer clip is
    a recording by itself.

    The clips follow in the order of the hashes of their ids. The k-th recording of a speaker is
    named <speaker>-<join_s>s-<k>; each speaker's last one has the remaining clips and may be short.
    Raises UserError where an utterance has no speaker, no known duration, or noise of its own.
    """
    clips_of_speaker: dict[str, list[Utterance]] = {}
    for utterance in utterances:
        if utterance.speaker is None:
            raise UserError(
                f"data.join_s={join_s:g}: {utterance.id} names no speaker, and the clips of one "
                "speaker are joined; name the speakers, or leave data.join_s out"
            )
        if not utterance.duration_s:
            raise UserError(
                f"data.join_s={join_s:g}: the duration of {utterance.id} cannot be read "
                f"({utterance.audio_path}); `streaming-asr data check` reports why"
            )
        if isinstance(utterance.audio, Noisy):
            raise UserError(
                f"data.join_s={join_s:g}: {utterance.id} has noise of its own, which would stop in "
                "the pauses; join a corpus without noise and add it with data.snr_db="
            )
        clips_of_speaker.setdefault(utterance.speaker, []).append(utterance)
    recordings = []
    for speaker, clips in clips_of_speaker.items():
        groups: list[list[Utterance]] = []
        # In the corpus's order the sentences of one book would follow each other.
        for clip in sorted(clips, key=lambda clip: _hash(clip.id)):
            extended = [*groups[-1], clip] if groups else [clip]
            if groups and _begins_s(extended)[-1] + clip.duration_s <= join_s:
                groups[-1].append(clip)
            else:
                groups.append([clip])
        for k, group in enumerate(groups):
            recordings.append(joined_as(f"{speaker}-{join_s:g}s-{k:02d}", group))
    return recordings


def joined_as(name: str, clips: Sequence[Utterance]) -> Utterance:
    """Return the clips joined to one utterance of the id `name`. It has word times only where every
    clip with a text has them."""
    begins_s = _begins_s(clips)
    words: list[TimedWord] | None = None
    if not any(clip.words is None and clip.text for clip in clips):
        words = []
        for clip, begin_s in zip(clips, begins_s, strict=True):
            for text, start, end in clip.words or ():
                words.append(TimedWord(text, begin_s + start, begin_s + end))
    return replace(
        clips[0],
        id=name,
        text=" ".join(clip.text for clip in clips if clip.text),
        audio=Joined(tuple(clips), tuple(begins_s)),
        duration_s=begins_s[-1] + clips[-1].duration_s,
        words=None if words is None else tuple(words),
        audio_path=None,
    )


def _begins_s(clips: Sequence[Utterance]) -> list[float]:
    """Return the times in seconds at which the clips begin in their joined recording, with pauses
    whose lengths are spread evenly over PAUSE_S."""
    begins_s = [0.0]
    for before, after in itertools.pairwise(clips):
        # The hash of both ids is the draw, so a pause stays the same whatever else is joined.
        draw = int.from_bytes(_hash(f"{before.id}\0{after.id}")[:8]) / 2**64  # in [0, 1)
        pause_s = round(PAUSE_S[0] + draw * (PAUSE_S[1] - PAUSE_S[0]), 3)
        begins_s.append(begins_s[-1] + before.duration_s + pause_s)
    return begins_s


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
