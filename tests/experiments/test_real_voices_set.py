"""The speech of many voices: manifests of what repositories hold, or of a folder."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from corpora_layouts import text_grid

from experiments.real.voices_set import ENGLISH, SOURCES, program, write
from streaming_asr.corpora.lists import speaker_hash
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.obtain import HOST
from streaming_asr.errors import UserError

CLIENT = "ab" * 64


def sound(file):
    file.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(file, np.zeros(8000, np.float32), 16_000)


def git(folder, *command):
    name = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    done = subprocess.run(["git", *name, *command], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode().strip()


@pytest.fixture
def hosted(tmp_path, monkeypatch):
    """Makes each source a small repository of the right form, which git takes for its own."""
    host = tmp_path / "host"
    for name, path in (
        ("common_voice", "en"), ("common_voice_v1", "asr/data"), ("librispeech_train_251", "audio"),
        ("librispeech_train_4", "audio"), ("clean_speech", "clean"),
        ("librispeech_train_clean_5", "LibriSpeech/train-clean-5"), ("cathy", "data"),
        ("ljspeech_part", "LJSpeech-1.1"), ("alphanumeric", "*data*"),
    ):  # fmt: skip
        held_at = path if "*" not in path else "audio_data"
        root = host / "owner" / f"{name}.git" / held_at
        root.mkdir(parents=True)
        if name == "common_voice":
            sound(root / "clips" / "common_voice_en_1.mp3")
            clips = [("common_voice_en_1.mp3", "So it is."), ("common_voice_en_2.mp3", "No.")]
            lines = [f"{CLIENT}\t{clip}\t{text}\tUS\n" for clip, text in clips]
            head = "client_id\tpath\tsentence\taccents\n"
            (root / "validated.tsv").write_text(head + "".join(lines))
        elif name == "common_voice_v1":
            clip = root / "cv-valid-dev" / "cv-valid-dev" / "sample-000000.mp3"
            sound(clip)
            content = clip.read_bytes()  # as most clips there, it states no length:
            clip.write_bytes(content[content.index(content[:2], 40) :])  # its first frame does
            line = "cv-valid-dev/sample-000000.mp3,be careful,1,0,,,us,"
            head = "filename,text,up_votes,down_votes,age,gender,accent,duration"
            (root / "cv-valid-dev.csv").write_text(f"{head}\n{line}\n")
        elif name == "clean_speech":
            sound(root / "clnsp1.wav")
        elif name == "librispeech_train_clean_5":
            chapter = root / "1088" / "134315"
            for i in range(2):  # the first with a text
                sound(chapter / f"1088-134315-000{i}.flac")
            (chapter / "1088-134315.trans.txt").write_text("1088-134315-0000 AS YOU KNOW\n")
        elif name == "cathy":
            for take in ("arctic_a0001_1", "arctic_a0002_2"):  # the first with a text
                soundfile.write(root / f"{take}.wav", np.zeros((24_000, 2)), 48_000)
            (root / "arctic_a0001_1.txt").write_text("Author of the danger trail.\n")
        elif name == "ljspeech_part":
            sound(root / "wavs" / "LJ001-0001.wav")
            lines = ["LJ001-0001|in 1455,|in fourteen fifty-five,", "LJ001-0002|so|so"]
            (root / "metadata.csv").write_text("\n".join(lines) + "\n")
        elif name == "alphanumeric":
            for kind in ("Names", "Numbers", "Addresses"):
                sound(root / kind / "R_1.wav")
            (root / "Addresses" / "R_1.wav").write_text("no audio")
            head = "Response_ID,file_name,Native Language,Name,Number,Address"
            lines = [
                f"R_1,audio_data/{kind}/R_1.wav,Marathi,Saffron Robles,8885112931,48 Ridge Road 407"
                for kind in ("Names", "Numbers", "Addresses")
            ]
            (root.parent / "metadata.csv").write_text("\n".join([head, *lines]) + "\n")
            (root.parent / "code").mkdir()
            (root.parent / "code" / "x.py").write_text("")  # not fetched
        else:
            sound(root / "103-1240-0000.flac")
            if name == "librispeech_train_4":
                sound(root / "103-1240-0001.flac")
                for i, second in enumerate(("upon", "<unk>")):
                    words = [("once", 0.0, 0.2), (second, 0.2, 0.5)]
                    text_grid(root / f"103-1240-000{i}.TextGrid", words, 0.5)
        work = host / "owner" / f"{name}.git"
        git(work, "init", "--quiet")
        git(work, "add", ".")
        git(work, "commit", "--quiet", "-m", "speech")
        source = f"owner/{name}@{git(work, 'rev-parse', 'HEAD')}:{path}"
        n = 2 if name == "ljspeech_part" else 1  # two repositories hold the same recording
        monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], repositories=(source,) * n))
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{host}/"]\n    insteadOf = {HOST}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))


def test_git_fetches_each_source_and_each_form_is_read(hosted, tmp_path, capsys):
    out = tmp_path / "out"
    program(["--out", str(out)])
    printed = capsys.readouterr()
    assert "CC BY 4.0" in printed.out and "1 written, 1 have no recording there" in printed.out
    assert "left out: " in printed.err and "Addresses/R_1.wav" in printed.err
    found = {name: read_manifest(out / name / "train.jsonl") for name in ENGLISH}
    assert found["common_voice_v1"][0].duration_s == pytest.approx(0.5, abs=0.15)
    assert {name: [(u.id, u.text, u.speaker) for u in each] for name, each in found.items()} == {
        "common_voice": [("common_voice_en_1", "So it is.", speaker_hash(CLIENT))],
        "common_voice_v1": [("sample-000000", "be careful", None)],
        "librispeech_train_251": [("103-1240-0000", "", "103")],
        "librispeech_train_4": [
            ("103-1240-0000", "once upon", "103"),
            ("103-1240-0001", "", "103"),
        ],
        "clean_speech": [("clnsp1", "", None)],
        "librispeech_train_clean_5": [
            ("1088-134315-0000", "AS YOU KNOW", "1088"),
            ("1088-134315-0001", "", "1088"),
        ],
        "cathy": [("arctic_a0001_1", "Author of the danger trail.", "cathy")],
        "ljspeech_part": [("LJ001-0001", "in fourteen fifty-five,", "LJ")],
        "alphanumeric": [("Names_R_1", "", "R_1"), ("Numbers_R_1", "", "R_1")],
    }
    (cathy,) = found["cathy"]  # two channels at 48 kHz
    assert cathy.duration_s == 0.5 and cathy.load().shape == (8000,)
    rows = (out / "alphanumeric" / "train.jsonl").read_text().splitlines()
    assert [json.loads(row)["said"] for row in rows] == ["Saffron Robles", "8885112931"]
    assert not list(out.glob("alphanumeric/source/0/code"))
    assert found["librispeech_train_251"][0].duration_s == 0.5
    assert found["librispeech_train_4"][0].words == (("once", 0.0, 0.2), ("upon", 0.2, 0.5))
    program(["--out", str(out)])  # again: nothing is written
    assert "written" not in capsys.readouterr().out


def test_german_is_read_as_german(tmp_path):
    sound(tmp_path / "de" / "clips" / "x.wav")
    line = f"client_id\tpath\tsentence\taccent\n{CLIENT}\tx.wav\tJa.\t\n"
    (tmp_path / "de" / "validated.tsv").write_text(line)
    sound(tmp_path / "verified" / "a.flac")
    (tmp_path / "verified" / "metadata.csv").write_text("a|Für immer.\nb|Nie.\n")
    found = {}
    for name in ("kerstin", "common_voice_de"):
        manifest = tmp_path / name / "train.jsonl"
        write(SOURCES[name].rows(tmp_path), manifest, SOURCES[name].language)
        found[name] = [(u.id, u.text, u.speaker, u.language) for u in read_manifest(manifest)]
    assert found == {
        "kerstin": [("a", "Für immer.", "kerstin", "de")],
        "common_voice_de": [("x", "Ja.", speaker_hash(CLIENT), "de")],
    }


def test_where_git_cannot_fetch_one_message_says_what_to_do(tmp_path, monkeypatch):
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{tmp_path}/nowhere/"]\n    insteadOf = {HOST}\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    with pytest.raises(UserError, match=r"git cannot fetch[\s\S]*--from FOLDER"):
        program(["--out", str(tmp_path / "out"), "--only", "common_voice_v1"])
    assert not (tmp_path / "out" / "common_voice_v1" / "source" / "0").exists()


def test_a_folder_gives_the_same_and_speech_without_texts_gets_empty_ones(tmp_path):
    folder = tmp_path / "speech" / "librispeech_train_251"
    sound(folder / "audio" / "19-198-0000.flac")
    row = {"id": "19-198-0000", "audio_filepath": "audio/19-198-0000.flac", "speaker": "19"}
    (folder / "manifest.jsonl").write_text(json.dumps(row) + "\n")
    given = ["--only", "librispeech_train_251", "--from", str(tmp_path / "speech")]
    program(["--out", str(tmp_path / "out"), *given])
    (found,) = read_manifest(tmp_path / "out" / "librispeech_train_251" / "train.jsonl")
    assert (found.id, found.text, found.speaker, found.language) == ("19-198-0000", "", "19", "en")


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(None, "correct the folder"), ("[]\n", "line 1"), ('{"text": "so"}\n', "audio_filepath")],
)
def test_a_folder_without_a_good_manifest_is_refused(tmp_path, content, wrong):
    folder = tmp_path / "common_voice"
    folder.mkdir()
    if content is not None:
        (folder / "train.jsonl").write_text(content)
    given = ["--only", "common_voice", "--from", str(tmp_path)]
    with pytest.raises(UserError, match=wrong):
        program(["--out", str(tmp_path / "out"), *given])
