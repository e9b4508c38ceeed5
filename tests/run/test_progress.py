"""The bar of a run counts audio: what was heard of each recording, however it ends."""

from __future__ import annotations

from dataclasses import replace

import fakes
import pytest

from streaming_asr.run.progress import Progress


class Told:
    """A tracker that keeps what is logged."""

    def __init__(self) -> None:
        self.points: list[tuple[int, dict[str, float]]] = []

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.points.append((step, values))


def test_progress_is_audio_heard() -> None:
    long = replace(fakes.utterance("long"), duration_s=3600.0)
    short = replace(fakes.utterance("short"), duration_s=60.0, text="two words one")
    track = Told()
    with Progress("a cell", [long, short], track, "whisper") as progress:
        assert progress.told() == "0 of 2 recordings, 0:00:00 of 1:01:00"
        progress.heard(long, 1200.0)
        progress.heard(long, 1800.0)
        assert progress.told() == "0 of 2 recordings, 0:30:00 of 1:01:00"
        progress.closed(short, " Two words, one strange")
        assert progress.told() == "1 of 2 recordings, 0:31:00 of 1:01:00"
        progress.heard(long, 0.0)  # run again by itself
        progress.closed(long)  # by an earlier process
        assert progress.told() == "2 of 2 recordings, 1:01:00 of 1:01:00"
    (point,) = track.points  # three words of the reference, one too many
    assert point == (1, {"utterances_done": 1, "wer_so_far": pytest.approx(100 / 3)})
