"""A training on a GPU that is there for minutes: its parts, its clock, and a rehearsal on a CPU."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import time

import numpy as np
import pytest
import soundfile
from tiny import noise, tiny_folder
from toy_corpus import toy_corpus

from experiments.real import lease
from experiments.real.lease import LeaseError, Parts, Run, Stage, main, receive
from streaming_asr.corpora.shards import read_shards
from streaming_asr.methods.u2.branch_files import ADAPTER_FILES, sha256_of


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr(lease, "LOOK_S", 0.02)
    monkeypatch.setattr(lease.os, "environ", dict(lease.os.environ))


def manifest(folder, ids, *, words=True, seconds=1.3):
    """A manifest of utterances that say the same."""
    folder.mkdir(parents=True)
    rows = []
    for i, key in enumerate(ids):
        soundfile.write(folder / f"{i}.wav", noise(seconds, seed=i), 16_000)
        row = {"id": key, "audio_filepath": f"{i}.wav", "text": "The quick fox.", "speaker": "a"}
        times = [["The", 0.1, 0.4], ["quick", 0.4, 0.7], ["fox.", 0.7, 1.1]]
        rows.append(row | ({"words": times} if words else {}))
    file = folder / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def packed(tmp_path, *more):
    """Parts of 0.25 MiB with a model of 0.6 MB, two manifests and one of sound."""
    model = tmp_path / "toy"
    model.mkdir()
    (model / "model.bin").write_bytes(np.random.default_rng(0).bytes(600_000))
    (model / "config.json").write_text("{}")
    speech = manifest(tmp_path / "a", ["one", "174-50561-0000", "two"])  # 174 is a test reader
    sound = manifest(tmp_path / "b", ["three"], words=False)
    dev = manifest(tmp_path / "dev", ["dev"])
    out = tmp_path / "parts"
    given = ["--speech", str(speech), "--sound", str(sound), "--dev", str(dev), "--out", str(out)]
    options = ["--model", str(model), "--part_mib", "0.25", *more]
    return main(["pack", *given, *options]), out


def test_parts_keep_to_their_size_and_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(1)
    files = {f"f/{i}": rng.bytes(int(rng.integers(0, 80_000))) for i in range(40)}
    files["large"] = rng.bytes(250_000)
    parts = Parts(tmp_path, 100_000)
    for name, content in files.items():
        parts.add({name: content})
    parts.close()
    sizes = [(tmp_path / name).stat().st_size for name in parts.names]
    assert max(sizes) <= 100_000 and parts.pieces == {"large": parts.pieces["large"]}
    assert len(sizes) < 1.9 * sum(map(len, files.values())) / 100_000
    for name in parts.names:
        with tarfile.open(tmp_path / name) as tar:
            tar.extractall(tmp_path / "back", filter="data")
        lease._join(tmp_path / "back", parts.pieces)
    for name, content in files.items():
        assert (tmp_path / "back" / name).read_bytes() == content
    assert not list((tmp_path / "back").glob("*piece*"))


def test_speech_is_packed_without_test_readers_and_decoded_into_shards(tmp_path, capsys):
    code, out = packed(tmp_path)
    assert code == 0
    printed = capsys.readouterr()
    assert "the test list clean-10" in printed.err and "3 utterances" in printed.out
    index = json.loads((out / "index.json").read_text())
    assert index["model"] == "toy" and len(index["parts"]) > 2
    assert index["pieces"].keys() == {"model/toy/model.bin"}
    assert receive(out, tmp_path / "work", 0) == tmp_path / "work" / "shards"
    items = read_shards(tmp_path / "work" / "shards")
    assert [(item.id, len(item.words)) for item in items] == [("one", 3), ("two", 3), ("three", 0)]
    assert all(abs(item.n_samples - 1.3 * 16_000) <= 1 for item in items)
    model = tmp_path / "work" / "files" / "model" / "toy"
    assert (model / "model.bin").read_bytes() == (tmp_path / "toy" / "model.bin").read_bytes()
    receive(out, tmp_path / "work", 0)  # again: nothing is decoded twice
    assert len(read_shards(tmp_path / "work" / "shards")) == 3


def test_long_clips_and_a_group_that_cannot_be_read_are_left_out(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(lease, "PER_JOB", 1)  # so that each is a group
    short = manifest(tmp_path / "short", ["short"], words=False, seconds=0.2)
    bad = manifest(tmp_path / "bad", ["bad"], words=False)
    long = manifest(tmp_path / "long", ["long"], words=False, seconds=31)
    (bad.parent / "0.opus").write_text("no Opus")
    bad.write_text(bad.read_text().replace("0.wav", "0.opus"))
    model = tmp_path / "toy"
    model.mkdir()
    (model / "config.json").write_text("{}")
    given = ["--sound", str(short), str(bad), str(long), "--dev", str(short)]
    out = tmp_path / "parts"
    assert main(["pack", *given, "--model", str(model), "--out", str(out)]) == 0
    assert "2 utterances" in (printed := capfd.readouterr().out) and "1 of more than" in printed
    receive(out, tmp_path / "work", 0)
    (item,) = read_shards(tmp_path / "work" / "shards")
    assert (item.id, item.n_samples) == ("short", 3200)


def test_what_can_be_used_is_used_while_later_parts_are_on_their_way(tmp_path):
    _, out = packed(tmp_path)
    names = [part["name"] for part in json.loads((out / "index.json").read_text())["parts"]]
    arrived = tmp_path / "arrived"
    arrived.mkdir()
    with pytest.raises(LeaseError, match=r"index\.json: is not there after 0 s"):
        receive(arrived, tmp_path / "work", 0)
    shutil.copy(out / "index.json", arrived)
    for name in names[:-1]:
        shutil.copy(out / name, arrived)
    half = (out / names[-1]).read_bytes()[:1000]
    (arrived / names[-1]).write_bytes(half)
    with pytest.raises(LeaseError, match=rf"{names[-1]}: is not there as a whole"):
        receive(arrived, tmp_path / "work", 0.05)
    assert (tmp_path / "work" / "files" / "model" / "toy" / "config.json").is_file()
    assert {file.name for file in (tmp_path / "work" / "received").iterdir()} == set(names[:-1])
    size = (out / names[-1]).stat().st_size
    (arrived / names[-1]).write_bytes(half.ljust(size, b"x"))
    with pytest.raises(LeaseError, match="is damaged"):
        receive(arrived, tmp_path / "work", 0)
    shutil.copy(out / names[-1], arrived)
    receive(arrived, tmp_path / "work", 0)
    assert len(read_shards(tmp_path / "work" / "shards")) == 3


def test_what_cannot_be_packed_is_refused_before_anything_is_written(tmp_path, capsys):
    dev = manifest(tmp_path / "dev", ["dev"])
    given = ["pack", "--dev", str(dev), "--out", str(tmp_path / "out")]
    assert main([*given, "--model", str(tmp_path / "none")]) == 2
    assert "--model" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").touch()
    assert main([*given, "--model", str(tmp_path / "dev")]) == 2
    assert "holds files already" in capsys.readouterr().err


# -- the clock ----------------------------------------------------------------------------------

LEAVES = """
import json, pathlib, sys, time
work, name, seconds, code = sys.argv[1:]
training = pathlib.Path(work, "outputs/training/toy/whisperrt", name)
done = pathlib.Path(work, "outputs/train/toy/whisperrt", name)
training.mkdir(parents=True)
(training / "checkpoint.pt").write_text(name)
(training / "curve.jsonl").write_text(json.dumps({"step": 1}) + "\\n")
print("begins", flush=True)
time.sleep(float(seconds))
if code != "0":
    sys.exit("out of memory")
done.mkdir(parents=True)
(done / "adapter").write_text(name)
"""


def run_of(tmp_path, monkeypatch, stages, seconds):
    """Runs stages of which each is (name, how long it takes, its exit status, its starts)."""
    made = [Stage(name, "whisperrt", 1.0, starts) for name, _, _, starts in stages]
    behaviour = {name: (str(takes), str(code)) for name, takes, code, _ in stages}
    monkeypatch.setattr(lease, "STAGES", made)
    begun = {}

    def command(self, stage, start, share):
        begun[stage.name] = (start and start.name, share)
        return [sys.executable, "-c", LEAVES, str(self.work), stage.name, *behaviour[stage.name]]

    monkeypatch.setattr(Run, "command", command)
    (tmp_path / "work").mkdir()
    run = Run(tmp_path / "work", tmp_path / "out", time.monotonic() + seconds, "toy")
    run.all(made)
    return run.rows, begun


def test_a_stage_that_fails_stops_no_other_and_gives_its_minutes_to_them(tmp_path, monkeypatch):
    stages = [
        ("first", 0, 0, ("given",)),
        ("second", 0, 1, ("first",)),
        ("third", 0, 0, ("second", "first")),
        ("fourth", 0, 0, ("second",)),
    ]
    rows, begun = run_of(tmp_path, monkeypatch, stages, 3600)
    assert [row["ended"] for row in rows] == [
        "well",
        "failed (1): out of memory",
        "well",
        "nothing to start from: second left no weights",
    ]
    assert begun["first"][0] is None and begun["third"][0] == "first" and "fourth" not in begun
    assert begun["third"][1] > 1.2 * begun["first"][1]  # of what is left: a half, not a quarter
    names = {file.name for file in (tmp_path / "out").iterdir()}
    names.discard("second.partial.tar")  # where its checkpoint was seen before it ended
    assert names == {"first.tar", "second.failed.tar", "third.tar", "report.json"}
    with tarfile.open(tmp_path / "out" / "third.tar") as tar:
        inside = {member.name for member in tar if member.isfile()}
        assert inside == {"weights/adapter", "curve.jsonl", "log.txt"}
    assert json.loads((tmp_path / "out" / "report.json").read_text()) == rows


def test_a_stage_that_the_clock_cuts_off_leaves_its_checkpoint(tmp_path, monkeypatch):
    checkpoint = tmp_path / "work/outputs/training/toy/whisperrt/first/checkpoint.pt"

    class Clock:
        """Stands still until there is a checkpoint, and then the time is over."""

        sleep = time.sleep

        def monotonic(self):
            return 1e9 if checkpoint.is_file() else time_before

    time_before = time.monotonic()
    monkeypatch.setattr(lease, "time", Clock())
    stages = [("first", 1e6, 0, ()), ("second", 1e6, 0, ())]
    rows, begun = run_of(tmp_path, monkeypatch, stages, 1000)
    assert rows[1]["ended"] == "no time left" and list(begun) == ["first"]
    assert rows[0]["ended"] == "cut off by the clock" and rows[0]["last"] == {"step": 1}
    with tarfile.open(tmp_path / "out" / "first.partial.tar") as tar:
        assert tar.extractfile("checkpoint.pt").read() == b"first"
        assert tar.extractfile("log.txt").read() == b"begins\n"


def test_no_stage_begins_without_time(tmp_path, monkeypatch):
    rows, begun = run_of(tmp_path, monkeypatch, [("first", 0, 0, ())], 0.5)
    assert [row["ended"] for row in rows] == ["no time left"] and not begun


def test_an_unknown_stage_is_refused(tmp_path, capsys):
    places = ["--parts", str(tmp_path), "--work", str(tmp_path), "--out", str(tmp_path)]
    assert main(["train", *places, "--minutes", "1", "--stages", "ear"]) == 2
    assert "--stages ear: no such stage; there are encoder, decoder" in capsys.readouterr().err


def test_a_packed_branch_goes_on_behind_another_adapter(tmp_path):
    run = Run(tmp_path, tmp_path / "out", 0.0, "toy")
    adapter, packed = tmp_path / "adapter", tmp_path / "files" / "branch"
    adapter.mkdir()
    for name in ADAPTER_FILES:
        (adapter / name).write_text(f"the new {name}")
    assert run._branch_behind(adapter) == adapter
    packed.mkdir(parents=True)
    (packed / "branch.safetensors").write_text("the branch")
    (packed / "branch.json").write_text('{"rank": 64, "adapter": "of the old one"}')
    folder = run._branch_behind(adapter)
    assert (folder / "branch.safetensors").read_text() == "the branch"
    assert (folder / ADAPTER_FILES[0]).read_text() == f"the new {ADAPTER_FILES[0]}"
    card = json.loads((folder / "branch.json").read_text())
    assert card == {"rank": 64, "adapter": sha256_of(adapter)}


# -- the rehearsal ------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_stage_runs_on_a_cpu_from_the_packed_parts(tmp_path):
    corpus = toy_corpus(tmp_path)
    rows = []
    for i, item in enumerate(read_shards(corpus)):
        soundfile.write(tmp_path / f"{i}.wav", item.samples(), 16_000)
        row = {"id": f"u{i}", "audio_filepath": f"{i}.wav", "text": item.text}
        rows.append(row | {"speaker": item.speaker, "words": item.words})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "parts"
    speech = ["--speech", str(tmp_path / "train.jsonl"), "--dev", str(corpus / "dev.jsonl")]
    assert main(["pack", "--model", str(tiny_folder()), *speech, "--out", str(out)]) == 0
    places = ["--parts", str(out), "--work", str(tmp_path / "work")]
    small = ["recipe.target.batch=2", "recipe.target.n_dev=1", "recipe.fit.max_steps=2"]
    small += ["++recipe.fit.mixed_precision=no", "recipe.fit.log_every=1"]
    options = ["--minutes", "60", "--rank", "4", "--workers", "1", "--settings", *small]
    assert main(["train", *places, "--out", str(tmp_path / "results"), *options]) == 0
    report = json.loads((tmp_path / "results" / "report.json").read_text())
    assert {row["stage"]: row["ended"] for row in report} == {
        stage.name: "well" for stage in lease.STAGES
    }
    assert all(row["last"]["step"] == 2 for row in report)
    weights = {}
    for stage in lease.STAGES:
        with tarfile.open(tmp_path / "results" / f"{stage.name}.tar") as tar:
            weights[stage.name] = {member.name for member in tar}
            card = json.load(tar.extractfile("weights/training.json"))
        start = {"encoder": None, "decoder": "encoder", "joint": "decoder", "u2": "joint"}
        start |= {"hush_word": None, "segmenter": "joint", "star": "segmenter"}
        assert card.get("start") == start[stage.name]
    assert "weights/adapter_model.safetensors" in weights["decoder"]
    assert "weights/branch.safetensors" in weights["u2"]
    assert "weights/hush_word.safetensors" in weights["hush_word"]
    assert "weights/star.safetensors" in weights["star"]
