"""Where a stream sounds, so that word times leave out the pauses around a word.

The path of an alignment leaves no frame out: a pause belongs to the word before it or to the word
after it, and what comes before the first word is a part of that word. A pause is a run of quiet
frames of `PAUSE_FRAMES` or more; shorter runs, as before a plosive, are a part of speech.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from streaming_asr.method import FRAME_S, FRAME_SAMPLES, Samples

KEPT_FRAMES = 4500  # 90 s: more than a window and a step, so that all words to come lie in them
MARGIN_FRAMES = 250  # of the sound around a word with which its own is compared
PAUSE_FRAMES = 10
CLICK_FRAMES = 3
"""A sound of fewer frames between two pauses is no word."""
PAUSE_DB = 30.0
"""So far below the loudest frames nobody speaks."""
QUIET_SHARE = 1 / 3
"""Of the way from the quietest frames to the loudest: what is below counts as noise."""
LEAST_RANGE_DB = 10.0
"""Where the loudest frames are no more above the quietest, no pause can be seen."""


@dataclass(slots=True)
class Sound:
    """The level of each 20 ms frame of a stream's last 90 s."""

    levels_db: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """(frames,)"""
    first: int = 0
    """The frame of the stream at which `levels_db` begins."""
    _rest: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    """Less than a frame."""

    def hear(self, audio: Samples) -> None:
        """Take in (n,) more samples of the stream."""
        audio = np.concatenate([self._rest, audio])
        n_frames = len(audio) // FRAME_SAMPLES
        whole, self._rest = np.split(audio, [n_frames * FRAME_SAMPLES])
        power = (whole.reshape(n_frames, FRAME_SAMPLES).astype(np.float64) ** 2).mean(1)
        levels = np.concatenate([self.levels_db, 10 * np.log10(power + 1e-12)])
        self.levels_db = levels[-KEPT_FRAMES:]
        self.first += len(levels) - len(self.levels_db)

    def without_pauses(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the times of a word without the pauses in them.

        A word with a pause inside it keeps its longest part. A word that lies in a pause moves to
        the nearest sound within 5 s: to the end of that before it, also where the word ends with
        the first frames of that after it, which are the next word's. Times of which no audio is
        known stay.
        """
        first, stop = round(start_s / FRAME_S), round(end_s / FRAME_S)
        begin = max(first - MARGIN_FRAMES, self.first)
        around = self.levels_db[begin - self.first : stop + MARGIN_FRAMES - self.first]
        parts = [(a + begin, b + begin) for a, b in _parts(around)]
        if not parts or not self.first <= first < begin + len(around):
            return start_s, end_s
        inside = [(max(a, first), min(b, stop)) for a, b in parts if a < stop and b > first]
        if (first, stop) in inside:
            return start_s, end_s
        a, b = max(inside, key=lambda part: part[1] - part[0], default=(0, 0))
        if b - a < CLICK_FRAMES:
            before = max((b for _, b in parts if b < first + CLICK_FRAMES), default=None)
            after = min((a for a, _ in parts if a > stop - CLICK_FRAMES), default=None)
            is_before = before is not None and (
                after is None or after < stop or first - before <= after - stop
            )
            edge = before if is_before else after
            return (start_s, end_s) if edge is None else (edge * FRAME_S, edge * FRAME_S)
        return (a * FRAME_S if a > first else start_s), (b * FRAME_S if b < stop else end_s)


def _parts(levels_db: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return what sounds of (frames,) levels, between pauses: (first, stop) of each part."""
    if len(levels_db) <= CLICK_FRAMES:
        return []
    # (the loudest frames but a few, so that a click is none)
    quiet, loud = np.quantile(levels_db, 0.1), np.sort(levels_db)[-1 - CLICK_FRAMES]
    if loud - quiet < LEAST_RANGE_DB:
        return []
    threshold = max(loud - PAUSE_DB, quiet + QUIET_SHARE * (loud - quiet))
    edges = np.diff(np.concatenate([[0], levels_db > threshold, [0]]).astype(np.int8))
    parts: list[tuple[int, int]] = []
    for first, stop in zip(np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0], strict=True):
        if parts and first - parts[-1][1] < PAUSE_FRAMES:
            parts[-1] = (parts[-1][0], int(stop))
        else:
            parts.append((int(first), int(stop)))
    return [(first, stop) for first, stop in parts if stop - first >= CLICK_FRAMES]
