from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakes
import numpy as np
import pytest
import soundfile

from streaming_asr import corpora
from streaming_asr.corpora import Folder, Manifest, Mini
from streaming_asr.corpora.audio import load_audio
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord


def tone(rate: int, seconds: float = 1.0, hz: float = 440.0) -> np.ndarray[Any, Any]:
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)


def write_manifest(folder: Path, *rows: Any, name: str = "test.jsonl") -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def write_audio(path: Path, samples: Any = None, rate: int = 16_000) -> Path:
    data = tone(rate) if samples is None else samples
    soundfile.write(path, data, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
    return path


# -- audio ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_every_rate_becomes_16_khz(tmp_path: Path, rate: int) -> None:
    audio = load_audio(write_audio(tmp_path / "a.wav", rate=rate, samples=tone(rate)))
    assert audio.dtype == np.float32 and audio.shape == (16_000,)
    inner = slice(800, -800)  # the filter rings at the edges
    np.testing.assert_allclose(audio[inner], tone(16_000)[inner], atol=2e-3)


def test_channels_are_averaged(tmp_path: Path) -> None:
    both = np.stack([np.full(400, 0.5), np.full(400, -0.25)], axis=1)
    assert load_audio(write_audio(tmp_path / "a.wav", both)).tolist() == [0.125] * 400


@pytest.mark.parametrize("suffix", [".flac", ".ogg"])
def test_compressed_audio_is_read(tmp_path: Path, suffix: str) -> None:
    audio = load_audio(write_audio(tmp_path / f"a{suffix}"))
    assert audio.shape == (16_000,) and 0.45 < np.abs(audio).max() < 0.6


def test_overshoot_is_clipped_to_full_scale(tmp_path: Path) -> None:
    audio = load_audio(write_audio(tmp_path / "a.wav", np.array([0.0, 1.2, -1.2])))
    assert audio.tolist() == [0.0, 1.0, -1.0]


def empty(path: Path) -> None:
    write_audio(path, np.zeros(0))


def with_nan(path: Path) -> None:
    write_audio(path, np.array([0.0, np.nan, 0.1]))


def integers(path: Path) -> None:
    write_audio(path, np.array([0.0, 20_000.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (empty, "holds 0 samples"),
        (with_nan, "NaN"),
        (integers, "divided by 32768"),
        (lambda path: path.write_bytes(b"this is no audio"), "not readable as audio"),
        (lambda path: path.mkdir(), "is a folder, not a recording"),
        (lambda path: None, "no such audio file"),
    ],
    ids=["empty", "nan", "integers", "text", "folder", "missing"],
)
def test_bad_audio_is_refused_with_its_name(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "talk.wav")
    with pytest.raises(UserError, match=message) as caught:
        load_audio(tmp_path / "talk.wav")
    assert "talk.wav" in str(caught.value)


# -- manifests ------------------------------------------------------------------------------


def test_a_manifest_line_becomes_an_utterance(tmp_path: Path) -> None:
    (tmp_path / "audio").mkdir()
    file = write_audio(tmp_path / "audio" / "a1.wav")
    row = {
        "audio_filepath": "audio/a1.wav",
        "duration": 1.0,
        "text": "Hello, 3.",
        "speaker": 84,
        "language": "en",
        "words": [["Hello,", 0.1, 0.4], ["3.", 0.4, 0.9]],
    }
    (utterance,) = read_manifest(write_manifest(tmp_path, row, ""))
    assert (utterance.id, utterance.text, utterance.duration_s) == ("a1", "Hello, 3.", 1.0)
    assert (utterance.speaker, utterance.language) == ("84", "en")
    assert utterance.words == (TimedWord("Hello,", 0.1, 0.4), TimedWord("3.", 0.4, 0.9))
    assert utterance.audio_path == str(file)
    np.testing.assert_array_equal(utterance.load(), load_audio(file))


def test_a_duration_that_is_not_given_is_read_from_the_file(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", tone(8000, 0.75), 8000)
    row = {"audio_filepath": str(tmp_path / "a.wav"), "text": ""}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    assert utterance.duration_s == 0.75 and utterance.words is None


@pytest.mark.parametrize("tag", ["", " ", "und", "und-Latn", "UND"])
def test_a_tag_that_names_no_language_is_none(tmp_path: Path, tag: str) -> None:
    write_audio(tmp_path / "a.wav")
    path = write_manifest(tmp_path, {**GOOD, "language": tag})
    assert read_manifest(path)[0].language is None
    assert Folder(tmp_path / "a.wav", language=tag).utterances()[0].language is None


@pytest.mark.parametrize("number", [0, 7, -1])
def test_a_whole_number_as_an_id_is_its_digits(tmp_path: Path, number: int) -> None:
    write_audio(tmp_path / "a.wav")
    row = {"id": number, "audio_filepath": "a.wav", "text": "x"}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    assert utterance.id == str(number)
    times = tmp_path / "times.jsonl"
    times.write_text(json.dumps({"id": number, "words": [["x", 0.1, 0.2]]}))
    (timed,) = Manifest(tmp_path / "test.jsonl", alignments=times).utterances()
    assert timed.words == (TimedWord("x", 0.1, 0.2),)


def test_parts_are_joined_with_their_pauses(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav", np.full(1600, 0.5))
    write_audio(tmp_path / "b.wav", np.full(800, -0.5))
    parts = [{"audio_filepath": "a.wav", "gap_s": 0.2}, {"audio_filepath": "b.wav", "gap_s": 0.0}]
    row = {"id": "long1", "parts": parts, "text": "x"}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    audio = utterance.load()
    assert audio.dtype == np.float32
    assert audio.tolist() == [0.5] * 1600 + [0.0] * 3200 + [-0.5] * 800
    assert utterance.duration_s == pytest.approx(len(audio) / 16_000)
    assert utterance.audio_path is None


def test_noise_is_mixed_in_when_the_audio_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float, int]] = []

    def mix(samples: Any, kind: str, snr_db: float, seed: int) -> Any:
        asked.append((kind, snr_db, seed))
        return samples * 0.5

    monkeypatch.setattr("streaming_asr.corpora.noise.mix", mix)
    write_audio(tmp_path / "a.wav", np.full(100, 0.5))
    row = {"audio_filepath": "a.wav", "text": "x"}
    path = write_manifest(tmp_path, {**row, "noise": {"kind": "pink", "snr_db": 7.5, "seed": 3}})
    (utterance,) = Manifest(path).utterances()
    assert asked == []
    assert utterance.load().tolist() == [0.25] * 100
    Manifest(path, snr_db=0.0).utterances()[0].load()
    Manifest(path, noise="hum").utterances()[0].load()
    assert asked == [("pink", 7.5, 3), ("pink", 0.0, 3), ("hum", 7.5, 3)]


GOOD = {"audio_filepath": "a.wav", "text": "x"}
NOISE = {"kind": "white", "snr_db": 10, "seed": 1}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{audio: a.wav}", "not JSON"),
        ("[1, 2]", "not an object"),
        ({"text": "x"}, "no `audio_filepath`"),
        ({**GOOD, "audio_filepath": "b.wav"}, "'b.wav' points nowhere"),
        ({"audio_filepath": "a.wav"}, "no `text`"),
        ({**GOOD, "text": None}, "`text` is None; write the reference"),
        ({**GOOD, "duration": "long"}, "`duration` is 'long'"),
        ({**GOOD, "id": 3.5}, "`id` is 3.5; a line needs a text or a whole number"),
        ({**GOOD, "id": True}, "`id` is True"),
        ({**GOOD, "id": ""}, "`id` is ''"),
        ({**GOOD, "audio_filepath": "a\0.wav"}, "points nowhere"),
        ({**GOOD, "speaker": ["a"]}, "`speaker`"),
        ({**GOOD, "words": [["x", 1.0]]}, "list of"),
        ({**GOOD, "words": [["x", 1.0, 0.5]]}, "from 1.0 to 0.5 s"),
        ({**GOOD, "noise": {"kind": "white"}}, "`noise`"),
        ({**GOOD, "parts": []}, "`parts` must be"),
        ({"parts": [GOOD], "text": "x"}, "no `id`; a line needs"),
        ({**GOOD, "id": "first"}, "is in line 1 already"),
        ({**GOOD, "duration": float("nan")}, "line 3: not JSON .NaN is no number of JSON"),
        ({**GOOD, "text": float("nan")}, "not JSON .NaN is no number"),
        ({**GOOD, "duration": float("inf")}, "not JSON .Infinity is no number"),
        ({**GOOD, "duration": 1e308}, "`duration` is 1e[+]308"),
        ({**GOOD, "duration": -1}, "`duration` is -1"),
        ({"id": "l", "text": "x", "parts": [{**GOOD, "gap_s": 90_000}]}, "gap_s` is 90000"),
        ({**GOOD, "words": [["x", 0.0, float("inf")]]}, "not JSON .Infinity is no number"),
        ({**GOOD, "words": [["x", float("nan"), 1.0]]}, "not JSON .NaN is no number"),
        ({**GOOD, "noise": {**NOISE, "snr_db": float("nan")}}, "not JSON .NaN is no number"),
        ({**GOOD, "noise": {**NOISE, "snr_db": float("-inf")}}, "not JSON .-Infinity is no number"),
        (
            {"id": "l", "text": "x", "parts": [{**GOOD, "gap_s": float("nan")}]},
            "not JSON .NaN is no number",
        ),
        ({**GOOD, "text": "\ud800"}, "not JSON .*surrogates not allowed"),
    ],
)
def test_a_bad_manifest_line_is_refused_with_its_number(
    tmp_path: Path, row: Any, message: str
) -> None:
    write_audio(tmp_path / "a.wav")
    path = write_manifest(tmp_path, {**GOOD, "id": "first"}, "", row)
    with pytest.raises(UserError, match=message) as caught:
        read_manifest(path)
    assert "test.jsonl, line 3" in str(caught.value)


def test_a_manifest_that_cannot_be_read_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_manifest(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        read_manifest(tmp_path / "binary.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="no utterance"):
        read_manifest(tmp_path / "empty.jsonl")


# -- corpora --------------------------------------------------------------------------------


def test_a_limit_takes_the_same_utterances_whatever_their_order() -> None:
    utterances = [fakes.utterance(f"u{i}", seconds=0.1) for i in range(40)]
    few, more = corpora.choose(utterances, 5), corpora.choose(utterances, 12)
    assert len(few) == 5 and len(more) == 12
    assert {u.id for u in few} < {u.id for u in more}
    assert {u.id for u in corpora.choose(utterances[::-1], 5)} == {u.id for u in few}
    assert [u.id for u in more] == [u.id for u in utterances if u in more]
    assert corpora.choose(utterances, None) == corpora.choose(utterances, 99) == utterances
    with pytest.raises(UserError, match="1 or more"):
        corpora.choose(utterances, 0)


def test_the_data_hash_follows_references_and_audio(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav")
    first = Manifest(write_manifest(tmp_path, GOOD)).data_hash()
    assert Manifest(write_manifest(tmp_path, GOOD)).data_hash() == first
    assert Manifest(write_manifest(tmp_path, {**GOOD, "text": "y"})).data_hash() != first
    write_audio(tmp_path / "a.wav", tone(16_000, 1.1))
    assert Manifest(write_manifest(tmp_path, GOOD)).data_hash() != first


def test_a_folder_gives_its_recordings_and_their_texts(tmp_path: Path) -> None:
    (tmp_path / "day1").mkdir()
    for name in ("b.flac", "a.wav", "day1/a.wav"):
        write_audio(tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text(f"text of\n{name}\n")
    folder = Folder(tmp_path)
    utterances = folder.utterances()
    assert [u.id for u in utterances] == ["a", "b", "day1/a"]
    assert [u.text for u in utterances] == ["text of a.wav", "text of b.flac", "text of day1/a.wav"]
    assert [u.duration_s for u in utterances] == [1.0] * 3
    before = folder.data_hash()
    (tmp_path / "a.txt").unlink()
    assert folder.data_hash() != before
    with pytest.raises(UserError, match=r"a\.txt"):
        Folder(tmp_path).utterances()


def test_a_folder_without_texts_can_be_run(tmp_path: Path) -> None:
    write_audio(tmp_path / "a.wav")
    assert [u.text for u in Folder(tmp_path).utterances(limit=1)] == [""]


def test_a_folder_that_holds_no_audio_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no audio in it"):
        Folder(tmp_path).utterances()
    with pytest.raises(UserError, match="no such folder"):
        Folder(tmp_path / "none").utterances()
    for name in ("a.wav", "a.flac"):
        write_audio(tmp_path / name)
    with pytest.raises(UserError, match="the same name"):
        Folder(tmp_path).utterances()


def test_an_unknown_split_of_mini_is_answered_with_those_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "MINI", tmp_path)
    write_audio(tmp_path / "a.wav")
    write_manifest(tmp_path, GOOD, name="clean.jsonl")
    with pytest.raises(UserError, match=r"data\.split=cleen: .* there are: clean"):
        Mini("cleen")
    mini = Mini("clean", limit=1)
    assert (mini.name, mini.split, len(mini.utterances())) == ("mini", "clean", 1)
