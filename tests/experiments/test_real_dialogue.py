"""Human speech out of games: their files' forms, and which utterances are taken."""

from __future__ import annotations

import io
import json
import struct
import sys

import numpy as np
import pytest
import soundfile

from experiments.real import dialogue
from experiments.real.dialogue import cut, join, kept_for_dev, utterances
from experiments.real.games import RATE, Line, amazon_queen, steel_sky
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError

# Writes what it reads without the four bytes of a packed file's name.
UNPACK = "import sys; open(sys.argv[3], 'wb').write(open(sys.argv[2], 'rb').read()[4:])"


def mp3(n, rate=RATE):
    file = io.BytesIO()
    sound = 0.3 * np.sin(np.arange(n) / 9, dtype=np.float32)
    soundfile.write(file, sound, rate, format="MP3", subtype="MPEG_LAYER_III")
    return file.getvalue()


def queen(folder, files, compression=1):
    start = 15 + 21 * len(files)
    table, content = b"", b""
    for name, data in files.items():
        table += struct.pack(">12sBII", name.encode(), 1, start + len(content), len(data))
        content += data
    head = b"QTBLCEM10\0\0\0" + bytes([compression]) + struct.pack(">H", len(files))
    (folder / "queen.1c").write_bytes(head + table + content)


def sky(folder, files):
    index, data = struct.pack("<I", len(files)), b""
    for number, content in files.items():
        data += bytes(-len(data) % 16)
        far = number % 2  # these offsets are in units of 16 bytes
        offset = len(data) >> 4 | 0x800000 if far else len(data)
        packed = bytes(22) + b"RNC\1" + content
        index += struct.pack("<H", number) + offset.to_bytes(3, "little")
        index += (len(packed) | 0x800000).to_bytes(3, "little")
        data += packed
    (folder / "sky.dnr").write_bytes(index)
    (folder / "sky.dsk").write_bytes(data)


def line(name, speaker="s", sentence=None, seconds=2.0):
    return Line(name, speaker, sentence or name, np.ones(int(seconds * RATE), np.float32))


def test_lines_of_amazon_queen_have_speaker_and_sentence_of_their_names(tmp_path):
    sound = mp3(3 * RATE)
    queen(tmp_path, {"020001P2.SB": sound, "020001P1.SB": sound, "X.CUT": sound})
    first, second = amazon_queen(tmp_path)
    assert (first.name, first.speaker, first.sentence) == ("queen-020001P1", "queen02P", "020001P")
    assert (second.name, second.sentence) == ("queen-020001P2", "020001P")
    assert abs(len(first.samples) / RATE - 3) < 0.2


def test_the_game_without_speech_is_refused(tmp_path):
    queen(tmp_path, {}, compression=0)
    with pytest.raises(UserError, match="talking version"):
        next(amazon_queen(tmp_path))


def test_lines_of_steel_sky_are_found_at_near_and_far_offsets(tmp_path):
    sky(tmp_path, {50001: bytes([128, 255, 0]), 50002: bytes([192] * 5), 60001: bytes(9)})
    one, two = steel_sky(tmp_path, [sys.executable, "-c", UNPACK])
    assert (one.name, one.speaker) == ("sky-50001", "sky3125")
    np.testing.assert_array_equal(one.samples, np.float32([0, 127 / 128, -1]))
    np.testing.assert_array_equal(two.samples, np.full(5, 0.5, np.float32))


def test_a_program_that_cannot_unpack_names_the_file(tmp_path):
    sky(tmp_path, {50001: bytes(4)})
    with pytest.raises(UserError, match="file 50001: not unpacked"):
        list(steel_sky(tmp_path, [sys.executable, "-c", "import sys; sys.exit(1)"]))


def test_lines_of_one_speaker_are_joined_to_twenty_seconds():
    lines = [line(f"a{i}", seconds=6.5) for i in range(4)]
    lines += [line("b", "other"), line("c", "other", seconds=0.5)]
    joined = join(reversed(lines))
    assert [[each.name for each in j.lines] for j in joined] == [
        ["b"],
        ["a0", "a1"],
        ["a2", "a3"],
    ]  # three of 6.5 s and two pauses would last 20.7 s
    samples, spans = joined[1].samples()
    assert [span[0] for span in spans] == ["a0", "a1"]
    assert spans[0][1:] == (0.3, pytest.approx(6.8, abs=1e-3))
    assert spans[1][1:] == (pytest.approx(7.4, abs=1e-3), pytest.approx(13.9, abs=1e-3))
    assert len(samples) / 16_000 == pytest.approx(14.2, abs=1e-3)
    assert np.abs(samples).max() == pytest.approx(0.6, rel=0.1)


def test_parts_of_a_sentence_are_one_utterance_and_its_times_count_from_its_start():
    spans = [("A", 0.3, 2.0), ("A", 2.15, 4.0), ("B", 4.6, 6.0)]
    words = [
        (" Yes,", 0.4, 1.0, 0.9),
        (" my", 1.0, 1.5, 0.9),
        (" lord.", 2.2, 3.0, 0.9),
        (" No,", 4.3, 5.0, 0.8),  # begins in the pause
        (" sir.", 5.0, 5.9, 0.6),
    ]
    first, second = cut(spans, words, 6.3)
    assert first[:3] == (0, pytest.approx(0.15), 4.2)
    assert first[3] == [("Yes,", 0.25, 0.85), ("my", 0.85, 1.35), ("lord.", 2.05, 2.85)]
    assert second[:3] == (1, pytest.approx(4.45), pytest.approx(6.2))
    assert second[3:] == ([("No,", 0.15, 0.55), ("sir.", 0.55, 1.45)], pytest.approx(0.7))


@pytest.mark.parametrize(
    "words",
    [
        [],
        [(" No.", 1.0, 2.0, 0.5)],  # unsure
        [(" No.", 0.5, 2.6, 0.9)],  # a word of more than 2 s
        [(" a", 1.0, 1.1, 0.9)] * 20,  # more than anyone says in 2.7 s
    ],
)
def test_an_utterance_that_cannot_be_right_is_left_out(words):
    assert list(cut([("A", 0.3, 3.0)], words, 4.0)) == []


def test_dev_has_the_surest_of_speakers_that_nothing_is_trained_on(tmp_path, monkeypatch):
    speakers = [f"s{i}" for i in range(60)]
    apart = {name for name in speakers if kept_for_dev(name)}
    assert 0 < len(apart) < 20
    monkeypatch.setattr(dialogue, "N_DEV", len(apart) - 1)
    joined = join(line(f"{name}-1", name, seconds=4.0) for name in speakers)
    unsure = sorted(apart)[0]
    labels = {
        n: {
            "words": [
                [" Well,", 1.0, 2.0, 0.7 if each.speaker == unsure else 0.9],
                [" then", 2.0, 3.0, 0.9],
                [" go.", 3.0, 4.0, 0.9],
                [" Now.", 4.0, 4.2, 0.9],
            ],
            "compression": 3.0 if each.speaker == "s59" else 1.0,
        }
        for n, each in enumerate(joined)
    }
    utterances(joined, labels, tmp_path)
    dev = read_manifest(tmp_path / "dev.jsonl")
    train = read_manifest(tmp_path / "train.jsonl")
    assert {u.speaker for u in dev} == apart - {unsure, "s59"}
    assert {u.speaker for u in train} == set(speakers) - apart - {"s59"}
    assert train[0].text == "Well, then go. Now."
    row = json.loads((tmp_path / "dev.jsonl").read_text().splitlines()[0])
    assert row["duration"] == pytest.approx(4.35)
