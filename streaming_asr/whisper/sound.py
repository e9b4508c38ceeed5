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
MARGIN_FRAMES = 250  # 5 s before and after a word, with whose levels its own are compared
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
        """Add the levels of (n,) more samples of the stream."""
        samples = np.concatenate([self._rest, audio])
        n_frames = len(samples) // FRAME_SAMPLES
        whole, self._rest = np.split(samples, [n_frames * FRAME_SAMPLES])
        power = (whole.reshape(n_frames, FRAME_SAMPLES).astype(np.float64) ** 2).mean(1)
        levels = np.concatenate([self.levels_db, 10 * np.log10(power + 1e-12)])
        self.levels_db = levels[-KEPT_FRAMES:]
        self.first += len(levels) - len(self.levels_db)

    def without_pauses(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Return the times of a word without the pauses in them.

        A word with a pause inside it keeps its longest part. A word that lies in a pause moves to
        the nearest sound within 5 s (`_nearest_edge`). A word whose audio is gone, or has no sound
        near it, keeps its times.
        """
        first, stop = round(start_s / FRAME_S), round(end_s / FRAME_S)
        begin = max(first - MARGIN_FRAMES, self.first)
        around_db = self.levels_db[begin - self.first : stop + MARGIN_FRAMES - self.first]
        sounds = [(a + begin, b + begin) for a, b in _sounds(around_db)]
        has_audio = self.first <= first < begin + len(around_db)
        if not sounds or not has_audio:
            return start_s, end_s
        in_word = [(max(a, first), min(b, stop)) for a, b in sounds if a < stop and b > first]
        if (first, stop) in in_word:  # no pause
            return start_s, end_s
        longest_first, longest_stop = max(in_word, key=lambda ab: ab[1] - ab[0], default=(0, 0))
        if longest_stop - longest_first < CLICK_FRAMES:
            edge = _nearest_edge(sounds, first, stop)
            return (start_s, end_s) if edge is None else (edge * FRAME_S, edge * FRAME_S)
        # Times that no pause changes are not rounded to frames.
        return (
            longest_first * FRAME_S if longest_first > first else start_s,
            longest_stop * FRAME_S if longest_stop < stop else end_s,
        )


def _nearest_edge(sounds: list[tuple[int, int]], first: int, stop: int) -> int | None:
    """Return the frame to which a word at frames `first` to `stop`, in a pause, moves: the end of
    the sound before it or the start of the sound after it; None where there is neither.

    The nearer one; the one before where the word reaches into the first frames of the sound after
    it, which belong to the next word.
    """
    before = max((b for _, b in sounds if b < first + CLICK_FRAMES), default=None)
    after = min((a for a, _ in sounds if a > stop - CLICK_FRAMES), default=None)
    if before is None or after is None:
        return after if before is None else before
    return before if after < stop or first - before <= after - stop else after


def _sounds(levels_db: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the (first, stop) frames of the parts of (frames,) levels that are no pauses."""
    if len(levels_db) <= CLICK_FRAMES:
        return []
    # Without the loudest three frames, which may be a click.
    quiet, loud = np.quantile(levels_db, 0.1), np.sort(levels_db)[-1 - CLICK_FRAMES]
    if loud - quiet < LEAST_RANGE_DB:
        return []
    threshold = max(loud - PAUSE_DB, quiet + QUIET_SHARE * (loud - quiet))
    edges = np.diff(np.concatenate([[0], levels_db > threshold, [0]]).astype(np.int8))
    firsts, stops = np.nonzero(edges == 1)[0], np.nonzero(edges == -1)[0]
    sounds: list[tuple[int, int]] = []
    for first, stop in zip(firsts, stops, strict=True):
        if sounds and first - sounds[-1][1] < PAUSE_FRAMES:  # too short for a pause
            sounds[-1] = (sounds[-1][0], int(stop))
        else:
            sounds.append((int(first), int(stop)))
    return [(first, stop) for first, stop in sounds if stop - first >= CLICK_FRAMES]
