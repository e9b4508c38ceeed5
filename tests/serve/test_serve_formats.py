"""Recordings of any format, by POST: the content tells the format, and a bad one is an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from containers import EVERY_S, Track, write_recording
from served import post, served


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Any]:
    with served(tmp_path / "served") as made:
        yield made


@pytest.mark.parametrize(
    ("ending", "form", "codec"),
    [("m4a", "ipod", "aac"), ("webm", "webm", "libopus"), ("mp3", "mp3", "libmp3lame"),
     ("aac", "adts", "aac"), ("flac", "flac", "flac")],
)  # fmt: skip
def test_the_content_of_a_recording_tells_its_format(
    service: Any, tmp_path: Path, ending: str, form: str, codec: str
) -> None:
    track = Track(codec, 44_100 if codec != "libopus" else 48_000)
    path = write_recording(tmp_path / f"a.{ending}", [track], form=form)
    for name in ("talk", "talk.wav", "talk.mp4"):
        answer = post(service, path.read_bytes(), name=name, response_format="verbose_json")
        assert answer.status_code == 200, answer.text
        assert answer.json()["duration"] == pytest.approx(4 * EVERY_S, abs=0.1)


def test_a_recording_whose_rate_changes_is_transcribed_to_its_end(
    service: Any, tmp_path: Path
) -> None:
    joined = b""
    for n, (rate, channels) in enumerate(((44_100, 1), (24_000, 2))):
        track = Track("aac", rate, channels=channels)
        joined += write_recording(tmp_path / f"{n}.aac", [track], form="adts").read_bytes()
    answer = post(service, joined, response_format="verbose_json")
    assert answer.status_code == 200
    assert answer.json()["duration"] == pytest.approx(8 * EVERY_S, abs=0.2)
