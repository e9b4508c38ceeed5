"""Recordings that are cut off, damaged, or claim what cannot be: each fails alone, by name."""

import json
import logging
import os
import struct

import numpy as np
import pytest
import soundfile
from corpora_layouts import sound, write

from streaming_asr.corpora import Folder
from streaming_asr.corpora.alignments import read_textgrid
from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.rows import text_of
from streaming_asr.errors import UserError
from streaming_asr.models.hash import model_hash

SEPARATORS = "one\u2028two\x85three\x1cfour"  # what splitlines() takes for ends of lines


def make(path, **kind):
    rng = np.random.default_rng(1)
    soundfile.write(path, rng.uniform(-0.5, 0.5, 6 * 16_000), 16_000, **kind)
    return path


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: 6 * len(content) // 10])


def damage(path):
    """Overwrites a stretch in the middle."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(range(200))
    path.write_bytes(content)


def claim_rate(path):
    """A WAV whose header states 2^31 - 1 Hz."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<I", content, 24, 2**31 - 1)
    path.write_bytes(content)


def chain(path):
    """Two recordings one after the other in a file."""
    path.write_bytes(2 * path.read_bytes())


OPUS = {"format": "OGG", "subtype": "OPUS"}


@pytest.mark.parametrize(
    ("name", "kind", "spoil", "message"),
    [
        ("a.wav", {}, cut, "is cut off: it ends after 3.60 s"),
        ("a.aiff", {}, cut, "is cut off"),
        ("a.au", {}, cut, "is cut off"),
        ("a.ogg", {}, cut, "is cut off"),
        ("a.opus", OPUS, cut, "is cut off"),
        ("a.flac", {}, cut, "not readable as audio"),
        ("a.mp3", {}, cut, r"is cut off or damaged: 3.\d\d of 6.00 s can be decoded"),
        ("a.ogg", {}, damage, r"is damaged: the checksum of its Ogg page at byte \d+ differs"),
        ("a.opus", OPUS, damage, r"is damaged: the checksum of its Ogg page at byte \d+ differs"),
        ("a.wav", {}, claim_rate, "states 2147483647 Hz"),
        ("a.wav", {}, chain, "holds 2 WAVs one after another"),
    ],
)
def test_what_is_not_whole_is_refused(tmp_path, name, kind, spoil, message):
    path = make(tmp_path / name, **kind)
    assert len(load_audio(path)) == 96_000
    spoil(path)
    with pytest.raises(UserError, match=message):
        load_audio(path)
    with pytest.raises(UserError, match=message):  # in pieces, as long recordings are read
        reader = Reader(path)
        while len(reader.read(16_000)):
            pass


@pytest.mark.parametrize("kind", [{}, OPUS])
def test_a_flipped_bit_in_any_page_of_an_ogg_is_refused(tmp_path, kind):
    path = make(tmp_path / "a.ogg", **({"format": "OGG"} | kind))
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in (*range(0, 64), *rng.integers(64, len(whole), 40)):
        content = bytearray(whole)
        content[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"is damaged|is cut off|not readable as audio"):
            load_audio(path)


def header(**changes):
    """A second of a WAV of 16 kHz with other statements in its header."""
    stated = {"tag": 1, "channels": 1, "rate": 16_000, "per_s": 32_000, "block": 2, "bits": 16}
    stated |= {"riff": 36 + 32_000, "data": 32_000} | changes
    head = struct.pack("<4sI4s4sI", b"RIFF", stated["riff"], b"WAVE", b"fmt ", 16)
    about = [stated[key] for key in ("tag", "channels", "rate", "per_s", "block", "bits")]
    sound = np.full(16_000, 8192, "<i2").tobytes()
    return head + struct.pack("<HHIIHH4sI", *about, b"data", stated["data"]) + sound


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 3}, "contradicts itself: 3 channels of 16 bits are 6 bytes, it states 2"),
        ({"bits": 24}, "contradicts itself: 1 channels of 24 bits are 3 bytes, it states 2"),
        ({"tag": 7}, "contradicts itself: 1 channels of 8 bits are 1 bytes, it states 2"),
        ({"rate": 48_000}, "contradicts itself: 48000 Hz of 2 .* 32000, as of 16000 Hz"),
        ({"rate": 767_999, "per_s": 2 * 767_999}, "states 767999 Hz, .* share a large factor"),
        ({"block": 7}, None),  # two of three statements agree
        ({"block": 0}, None),
        ({"per_s": 5}, None),
    ],
)
def test_a_wav_whose_header_states_what_cannot_be_is_refused(tmp_path, changes, message):
    path = tmp_path / "a.wav"
    path.write_bytes(header(**changes))
    if message is None:
        assert load_audio(path).tolist() == [0.25] * 16_000
        return
    with pytest.raises(UserError, match=message):
        load_audio(path)


@pytest.mark.parametrize("data", [0, 2, 8000, 31_000])
@pytest.mark.parametrize("riff", [0, 36, 36 + 8000, 36 + 32_000, 2**32 - 1])
def test_the_samples_behind_an_unfinished_header_are_read(tmp_path, caplog, data, riff):
    path = tmp_path / "a.wav"
    path.write_bytes(header(data=data, riff=riff))
    is_short = data < 16_000
    n = len(load_audio(path))
    assert n == 16_000 if is_short else n in (15_500, 16_000)
    assert ("samples go on behind the end" in caplog.text) == is_short
    assert duration_s(path) in (0.0, n / 16_000)


@pytest.mark.parametrize("behind", [b"LIST\4\0\0\0INFO", bytes(50_000), b"TAG" + bytes(125), b"\0"])
def test_what_is_no_sound_behind_a_wav_is_left_out(tmp_path, caplog, behind):
    path = tmp_path / "a.wav"
    path.write_bytes(header() + behind)
    assert load_audio(path).tolist() == [0.25] * 16_000
    assert not caplog.text


@pytest.mark.parametrize("size", [2**32 - 1, 36 + 32_008, 36 + 32_044])
def test_a_size_that_is_a_little_too_high_cuts_nothing_off(tmp_path, size):
    path = tmp_path / "a.wav"
    path.write_bytes(header(riff=size, data=size - 36 if size < 2**31 else size))
    assert len(load_audio(path)) == 16_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.wav", "GSM610"), ("a.aiff", "GSM610"), ("a.wav", "G721_32"), ("a.au", "G721_32"),
     ("a.wav", "MS_ADPCM"), ("a.wav", "ALAW")],
)  # fmt: skip
def test_codecs_of_which_some_cannot_seek(tmp_path, name, kind):
    t = np.arange(48_000) / 16_000
    tone = np.sin(2 * np.pi * 300 * t) / 2
    soundfile.write(tmp_path / name, tone, 16_000, subtype=kind)
    heard = load_audio(tmp_path / name)
    assert len(heard) == pytest.approx(48_000, abs=1000)
    assert np.corrcoef(heard[:48_000], tone)[0, 1] > 0.99
    part = load_audio(tmp_path / name, 1.0, 2.0)
    np.testing.assert_allclose(part, heard[16_000:32_000], atol=1e-4)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"is cut off|is damaged"):
        load_audio(tmp_path / name)


def test_an_ogg_that_ends_with_a_whole_page_is_read_with_a_warning(tmp_path, caplog):
    path = make(tmp_path / "a.ogg")
    content = path.read_bytes()
    path.write_bytes(content[: content.rfind(b"OggS")])
    with caplog.at_level(logging.WARNING):
        load_audio(path)
    assert "has no last Ogg page" in caplog.text


@pytest.mark.parametrize("rate", [16_000, 44_100, 8_000])  # MPEG 2, 1 and 2.5
@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
def test_an_mp3_without_a_stated_length_is_read_whole(tmp_path, mode, rate):
    """A length estimated from the first frame's bit rate is wrong: a loud start, a quiet end."""
    samples = np.zeros(6 * rate)
    samples[: 2 * rate] = np.random.default_rng(1).uniform(-0.5, 0.5, 2 * rate)
    path = tmp_path / "a.mp3"
    soundfile.write(path, samples, rate, bitrate_mode=mode, compression_level=0.5)
    assert len(load_audio(path)) == 96_000
    content = path.read_bytes()
    headless = content[content.index(content[:2], 40) :]  # without the first frame, which counts
    path.write_bytes(b"ID3\4\0\0\0\0\1\2" + bytes(130) + headless)
    assert len(load_audio(path)) == pytest.approx(96_000, abs=3200)
    assert duration_s(path) == 0.0  # unknown


@pytest.mark.parametrize(
    ("name", "kind"),
    [("a.ogg", {}), ("a.opus", OPUS), ("a.flac", {}), ("a.oga", {"format": "OGG"}), ("a.mp3", {})],
)  # fmt: skip
def test_recordings_that_follow_one_another_in_a_file_are_all_read(tmp_path, name, kind):
    path = make(tmp_path / name, **kind)
    once = load_audio(path)
    chain(path)
    both = load_audio(path)
    assert len(both) == pytest.approx(2 * len(once), abs=3200)
    for part in (both[: len(once)], both[-len(once) :]):
        shift = np.argmax(np.correlate(part[1000:9000], once[1500:8500])) - 500
        assert abs(shift) <= 1200  # an MP3 has a frame of delay more
        assert np.std(part) == pytest.approx(np.std(once), rel=0.05)


@pytest.mark.parametrize("stated_s", [5.4, 6.6])
def test_a_duration_that_is_not_the_recordings_is_refused(tmp_path, stated_s):
    make(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav", "text": "x", "duration": stated_s}
    (utterance,) = read_manifest(write(tmp_path / "m.jsonl", json.dumps(row)))
    with pytest.raises(UserError, match=rf"a: lasts 6.00 s, {stated_s:.2f} s are stated"):
        utterance.load()
    row["duration"] = 6.05
    (utterance,) = read_manifest(write(tmp_path / "m.jsonl", json.dumps(row)))
    assert len(utterance.load()) == 96_000


# -- texts and names ------------------------------------------------------------------------


def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    make(tmp_path / "a.wav")
    row = {"audio_filepath": "a.wav", "text": SEPARATORS}
    line = json.dumps(row, ensure_ascii=False).replace("\\u001c", "\x1c").replace("\x1c", "")
    (utterance,) = read_manifest(write(tmp_path / "m.jsonl", line))
    assert utterance.text == SEPARATORS.replace("\x1c", "")
    windows = write(tmp_path / "w.jsonl", line + "\r")
    assert read_manifest(windows)[0].text == utterance.text


def test_a_name_that_is_no_utf_8_is_read_by_an_escape(tmp_path):
    sound(tmp_path / "a.wav")
    strange = tmp_path / "b\udcff.wav"
    try:
        sound(tmp_path / "x.wav").rename(strange)
    except (OSError, UnicodeEncodeError):
        pytest.skip("this file system has UTF-8 names only")
    folder = Folder(tmp_path)
    assert {u.id: len(u.load()) for u in folder.utterances()} == {"a": 8000, r"b\xff": 8000}
    assert len(folder.data_hash()) == 64
    assert all(u.audio_path.encode() for u in folder.utterances())


@pytest.mark.parametrize("name", ["a.wav", "a.webm", "a.txt", "a.TextGrid", "m.jsonl"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path, name):
    make(tmp_path / "b.wav")
    os.mkfifo(tmp_path / name)
    reads = {
        "a.txt": text_of,
        "a.TextGrid": read_textgrid,
        "m.jsonl": read_manifest,
    }
    with pytest.raises(UserError, match="is a pipe or a device; save"):
        reads.get(name, load_audio)(tmp_path / name)
    assert duration_s(tmp_path / name) == 0.0
    with pytest.raises(UserError, match="is a pipe or a device; save"):
        Folder(tmp_path / name).utterances()


def test_a_length_that_no_recording_has_counts_as_unknown(tmp_path):
    soundfile.write(tmp_path / "a.au", np.zeros(700_000), 16_000)
    content = bytearray((tmp_path / "a.au").read_bytes())
    struct.pack_into(">I", content, 16, 1)  # one sample a second: 8 days
    (tmp_path / "a.au").write_bytes(content)
    assert duration_s(tmp_path / "a.au") == 0.0


def test_a_text_of_more_than_a_day_of_speech_is_refused(tmp_path):
    make(tmp_path / "a.wav")
    (tmp_path / "a.txt").write_text("word " * 400_001)
    with pytest.raises(UserError, match="its text has 2000004 letters, 2000000 at most"):
        Folder(tmp_path).utterances()


def test_weights_of_the_root_folder_are_refused(tmp_path):
    for k in range(1001):
        (tmp_path / f"{k}").touch()
    with pytest.raises(UserError, match="holds more than 1000 files; name the folder that holds"):
        model_hash({"method": {"weights": str(tmp_path)}})


def test_what_only_has_the_name_of_a_recording_fails_alone(tmp_path):
    make(tmp_path / "good.wav")
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "nowhere.wav").symlink_to("none.wav")
    (tmp_path / "loop.wav").symlink_to("circle.wav")
    (tmp_path / "circle.wav").symlink_to("loop.wav")
    (tmp_path / "itself").symlink_to(".")
    (tmp_path / "._good.m4a").write_bytes(b"\0\5\x16\7Mac OS X")
    (tmp_path / ".Trash-0").mkdir()
    make(tmp_path / ".Trash-0" / "old.wav")
    os.mkfifo(tmp_path / "pipe.wav")
    folder = Folder(tmp_path)
    assert len(folder.data_hash()) == 64
    told = {}
    for utterance in folder.utterances():
        try:
            told[utterance.id] = len(utterance.load())
        except UserError as error:
            told[utterance.id] = str(error).partition(": ")[2].partition(";")[0]
    assert told == {
        "good": 96_000,
        "folder": "is a folder, not a recording",
        "nowhere": "no such audio file",
        "loop": "no such audio file",
        "circle": "no such audio file",
        "pipe": "is a pipe or a device",
    }
