"""Recordings without texts: the offline model writes them down, and an adapter learns from it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import jiwer
import numpy as np
import pytest
import soundfile
from safetensors import safe_open
from tiny import tiny_folder

from streaming_asr import train
from streaming_asr.align import teacher
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import MINI
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.shards import read_shards
from streaming_asr.text.normalise import normaliser


def test_a_text_is_doubtful_where_the_model_is_unsure_repeats_itself_or_says_nothing():
    assert teacher.doubtful("The train leaves at nine.", [-0.1, -0.9]) is None
    assert teacher.doubtful("The train leaves at nine.", [-0.1, -2.1]) == "unsure"
    assert teacher.doubtful("the estimate, " * 20, [-0.1]) == "repeating"
    assert teacher.doubtful("", []) == "without words"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Clips of mini's dev: two alone, six joined to 29 s, 4 s of silence, and a broken file."""
    folder = tmp_path_factory.mktemp("recordings")
    clips = [u for u in read_manifest(MINI / "dev.jsonl")][:8]
    for i in (0, 1):
        soundfile.write(folder / f"alone{i}.wav", clips[i].load(), 16_000)
    soundfile.write(folder / "long.flac", np.concatenate([c.load() for c in clips[2:]]), 16_000)
    soundfile.write(folder / "silence.wav", np.zeros(4 * 16_000), 16_000)
    (folder / "torn.wav").write_bytes(b"RIFF no more")
    return folder, clips


def prepare(folder, output, *more):
    overrides = ["model=mini", "data=folder", f"data.path={folder}", "data.align=mini", *more]
    config = compose_raw(overrides, config_name="train")
    return teacher.prepare(config.data, config.model, output)


def test_mini_writes_recordings_down_times_the_words_and_keeps_what_it_is_sure_of(
    recordings, tmp_path, monkeypatch, capsys
):
    folder, clips = recordings
    shards, dev = prepare(folder, tmp_path)
    told, warned = capsys.readouterr()
    assert "torn.wav" in told and "1 without words" in told and "min of recordings" in warned
    items, held_out = read_shards(shards), read_manifest(dev)
    assert len(held_out) == 1 and len(items) >= 4
    assert all(item.words and item.n_samples <= 15 * 16_000 for item in items)
    assert {item.language for item in items} == {"en"}
    lines = (shards.parent.parent / "transcripts.jsonl").read_text().splitlines()
    pieces = {row["id"]: row["pieces"] for row in map(json.loads, lines)}
    ends = [0] + [stop for _, stop, *_ in pieces["long"]]
    assert [start for start, *_ in pieces["long"]] == ends[:-1]  # nothing lost, nothing twice
    assert ends[-1] == sum(len(clip.load()) for clip in clips[2:])
    normalise = normaliser("en")
    heard = " ".join(text for _, _, text, _ in pieces["long"])
    said = " ".join(clip.text for clip in clips[2:])
    assert jiwer.wer(normalise(said), normalise(heard)) < 0.2

    # killed in the middle of a line, and again: what stands there is not heard again
    path = shards.parent.parent / "transcripts.jsonl"
    for shard in shards.iterdir():
        shard.unlink()
    shards.rmdir()
    path.write_text("\n".join(lines) + '\n{"id": "tor')
    monkeypatch.setattr(teacher, "Teacher", None)
    again, _ = prepare(folder, tmp_path)
    assert [item.text for item in read_shards(again)] == [item.text for item in items]
    assert prepare(folder, tmp_path)[0] == again


def test_the_next_piece_begins_where_the_segments_of_a_full_window_end(monkeypatch):
    made = teacher.Teacher(str(tiny_folder(seed=0, max_tokens=256)))
    limit = made._windows.limit_samples
    ends, heard = [150, 170, None], []

    def decode(samples, language):
        heard.append(len(samples))
        word = SimpleNamespace(text=f" {len(heard)}")
        return SimpleNamespace(words=[word], log_probs=[0.0], end=ends[len(heard) - 1])

    monkeypatch.setattr(made, "_decode", decode)
    monkeypatch.setattr(made._windows, "times", lambda window: [(0.1, 0.5)])
    n = 320 * (150 + 170) + limit // 2
    pieces = list(made.pieces(np.zeros(n, np.float32), "en"))
    assert [(p.start, p.stop, p.text) for p in pieces] == [
        (0, 320 * 150, "1"),
        (320 * 150, 320 * 320, "2"),
        (320 * 320, n, "3"),
    ]
    assert heard == [limit, limit, limit // 2]


def test_one_command_transcribes_and_distils(recordings, tmp_path, monkeypatch, capsys):
    folder, _ = recordings
    settings = ["model=mini", "data=folder", f"data.path={folder}", "data.align=mini"]
    settings.append(f"output={tmp_path}")
    fit = ["recipe.fit.max_steps=1", "recipe.target.batch=2", "tracker=none"]
    monkeypatch.setattr("sys.argv", ["train", "method=whisperrt", *settings, *fit])
    train.main()
    told = capsys.readouterr().out
    assert "to transcribe them and to time the words takes some" in told
    assert "the training itself: 18 min at most" in told
    made = tmp_path / "train/mini/whisperrt/300ms"
    card = json.loads((made / "training.json").read_text())
    assert card["distil"] == "frames" and card["n_dev"] == 1
    with safe_open(made / "adapter_model.safetensors", "np") as tensors:
        assert any(".lora_B." in name for name in tensors.keys())  # noqa: SIM118


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (["data.path={empty}"], "no audio in it"),
        (["data.path={empty}/none"], "no such folder"),
        ([], "data.path: has no default; give data.path=<value>"),
        (["data.path={texts}"], "a has a text; the model transcribes files without texts here"),
        (["data.path={folder}", "train_data=x"], "data=, train_data=: both name"),
        (["data.path={folder}", "method=u2"], "data=: recordings without texts train method=whis"),
        (["data.path={folder}", "data.language=fr"], "knows English only, and the recordings are"),
        (["data.path={folder}", "data.align=nowhere/none"], "data.align=nowhere/none: "),
        (
            ["data.path={folder}", "model=whisper", "model.path={multilingual}"],
            "name that of the recordings, as data.language=fr",
        ),
    ],
)
def test_what_cannot_be_trained_on_is_refused_before_weights_load(
    recordings, tmp_path, monkeypatch, capsys, settings, wrong
):
    places = {"folder": recordings[0], "empty": tmp_path / "empty", "texts": tmp_path / "texts"}
    places["empty"].mkdir()
    places["texts"].mkdir()
    soundfile.write(places["texts"] / "a.wav", np.zeros(16_000), 16_000)
    (places["texts"] / "a.txt").write_text("a text")
    places["multilingual"] = tiny_folder(multilingual=True)
    given = [each.format(**places) for each in settings]
    monkeypatch.setattr(teacher, "Teacher", None)
    monkeypatch.setattr(
        "sys.argv", ["train", "data=folder", *given, f"output={tmp_path}", "tracker=none"]
    )
    assert train.main() == 2
    assert wrong in capsys.readouterr().err


def test_silence_alone_leaves_nothing_to_train_on(tmp_path, monkeypatch, capsys):
    for i in range(2):
        soundfile.write(tmp_path / f"{i}.wav", np.zeros(16_000), 16_000)
    settings = ["model=mini", "data=folder", f"data.path={tmp_path}", "data.align=mini"]
    settings.append(f"output={tmp_path}/out")
    monkeypatch.setattr("sys.argv", ["train", *settings, "tracker=none"])
    assert train.main() == 2
    assert "0 pieces are left of 2 recordings, and two are needed (2 without words)" in (
        capsys.readouterr().err
    )
