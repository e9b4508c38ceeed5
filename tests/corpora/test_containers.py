"""Recordings of phones and browsers: read as they sound, refused by name where they are broken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from containers import write_container

from streaming_asr.corpora import Folder
from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.errors import UserError

T = np.arange(3 * 16_000) / 16_000
TONE = (0.3 * np.sin(2 * np.pi * 440 * T)).astype(np.float32)


@pytest.mark.parametrize(
    ("name", "called"),
    [("a.m4a", ""), ("a.mp4", ""), ("a.webm", ""), ("a.mp4", "a.wav"), ("a.webm", "a.mp3")],
)
def test_a_container_sounds_as_what_was_recorded(tmp_path: Path, name: str, called: str) -> None:
    path = write_container(tmp_path / name, TONE)
    path = path.rename(tmp_path / (called or name))
    heard = load_audio(path)
    assert abs(len(heard) - len(TONE)) < 1600 and abs(duration_s(path) - 3) < 0.1
    spectrum = np.abs(np.fft.rfft(heard[8000:40_000]))
    assert np.argmax(spectrum) * 16_000 / 32_000 == pytest.approx(440, abs=1)
    assert np.std(heard[8000:40_000]) == pytest.approx(0.3 / np.sqrt(2), rel=0.03)
    in_pieces = Reader(path)
    assert np.array_equal(np.concatenate([in_pieces.read(7000) for _ in range(8)]), heard)


def test_a_part_of_a_container_is_the_same_part_of_the_whole(tmp_path: Path) -> None:
    path = write_container(tmp_path / "a.webm", TONE)
    assert np.array_equal(load_audio(path, 0.5, 1.0), load_audio(path)[8000:16_000])


@pytest.mark.parametrize(
    ("name", "keep", "message"),
    [
        ("a.m4a", 0.3, "not readable as audio"),
        ("a.webm", 0.5, r"is cut off.* of 3.0\d s"),
        ("a.webm", 0.9, r"is cut off.* 2.\d\d of 3.0\d s"),
        ("a.mkv", 0.9, r"is cut off.* 2.\d\d of 3.0\d s"),
    ],
)
def test_a_container_that_is_cut_off_is_refused(
    tmp_path: Path, name: str, keep: float, message: str
) -> None:
    path = write_container(tmp_path / name, TONE)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    with pytest.raises(UserError, match=message) as refused:
        load_audio(path)
    assert "ffmpeg" not in str(refused.value) and str(path) in str(refused.value)


def test_frames_that_are_lost_where_no_length_is_stated_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_container(tmp_path / "a.mp2", TONE)
    assert abs(len(load_audio(path)) - len(TONE)) < 1600 and not caplog.text
    content = path.read_bytes()
    kept = len(content) * 9 // 10
    path.write_bytes(content[:kept] + content[kept:].replace(b"\xff\xfd", b"\x00\x00"))
    assert abs(len(load_audio(path)) - 0.9 * len(TONE)) < 1600
    assert "a.mp2: is damaged: 0." in caplog.text and "s of it cannot be decoded" in caplog.text


def test_a_folder_and_a_single_file_are_corpora(tmp_path: Path) -> None:
    path = write_container(tmp_path / "talk.m4a", TONE)
    (tmp_path / "talk.txt").write_text("a tone")
    for corpus in (Folder(tmp_path), Folder(path)):
        (found,) = corpus.utterances()
        assert (found.id, found.text) == ("talk", "a tone")
        assert abs(len(found.load()) - len(TONE)) < 1600
