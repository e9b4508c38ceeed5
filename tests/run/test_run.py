"""One cell: written, skipped, resumed, renamed, refused. The method is a fake without torch."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import fakes
import pytest
import run_fakes
from omegaconf import OmegaConf
from report_cells import write_cell
from run_fakes import RUN, arguments, cu_scores, errors_of, program, texts

from streaming_asr.cells import folder as cells
from streaming_asr.cells import hashes
from streaming_asr.config.settle import compose, time_words_by_default
from streaming_asr.errors import UserError
from streaming_asr.events.log import forget_failed, read_log
from streaming_asr.models.hash import model_hash
from streaming_asr.run import cell as run_cell
from streaming_asr.run import command as run
from streaming_asr.run.progress import EVERY_S, Progress, show

CELL = "method=parrot,chunk=300ms,data=phrases,model=none"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cell(folder, name="default"):
    return folder / "outputs" / name / CELL


def test_a_run_writes_its_log_its_scores_and_its_configuration(tmp_path, capsys):
    assert run.main(arguments(tmp_path, "limit=2", "name=first")) == 0
    folder = tmp_path / "outputs" / "first" / f"{CELL.replace('model', 'limit=2,model')}"
    result = json.loads((folder / "metrics.json").read_text())
    assert (result["experiment"], result["cell"]) == ("first", folder.name)
    assert result["n_utterances"] == 2
    assert result["config"]["method"]["name"] == "parrot"
    assert result["config"]["first_chunk"] == "600ms"
    assert set(result["hashes"]) == {"config", "code", "model", "data"}
    assert {"python", "numpy"} <= set(result["versions"])
    assert {"cpu", "cores", "launcher"} <= set(result["machine"])
    assert result["metrics"]["wer"] > 0  # the fake mishears every third word
    assert len((folder / "utterances.jsonl").read_text().splitlines()) == 2
    assert "chunk: 300ms" in (folder / ".hydra" / "config.yaml").read_text()
    assert (folder / "report.html").is_file()
    out = capsys.readouterr().out
    assert "report.html" in out
    assert "parrot" in out


def test_a_finished_cell_is_skipped(tmp_path, capsys):
    counter = tmp_path / "steps"
    command = arguments(tmp_path, f"method.counter={counter}")
    assert run.main(command) == 0
    n_steps = counter.stat().st_size
    assert n_steps > 0
    assert run.main(command) == 0
    assert counter.stat().st_size == n_steps
    assert "finished earlier, skipped" in capsys.readouterr().out


@pytest.fixture
def sound_that_may_be_missing(monkeypatch):
    """A recording of phrases cannot be read while a file with its name is there."""
    utterances = run_fakes.Phrases.utterances

    def of_disk(self, limit=None):
        def read(each):
            if Path(each.id).exists():
                raise OSError("the disk is away")
            return each.load()

        return [replace(each, audio=partial(read, each)) for each in utterances(self, limit)]

    monkeypatch.setattr(run_fakes.Phrases, "utterances", of_disk)


@pytest.mark.parametrize("pieces", ["1", "2"])
@pytest.mark.parametrize("missing", [(1,), (0, 1, 2, 3, 4)])
@pytest.mark.usefixtures("sound_that_may_be_missing")
def test_failed_recordings_are_tried_again_and_no_other(missing, pieces, tmp_path, capsys):
    command = arguments(tmp_path, *([] if pieces == "1" else [f"pieces={pieces}"]))
    files = [Path(f"phrase-{k}") for k in missing]
    for file in files:
        file.touch()
    assert run.main(command) == 1
    before = {each.utt: each.steps for each in read_log(cell(tmp_path) / "events.jsonl").utterances}
    for file in files:
        file.unlink()
    capsys.readouterr()
    assert run.main(command) == 0
    assert "failed earlier and are tried again" in capsys.readouterr().out
    log = read_log(cell(tmp_path) / "events.jsonl").utterances
    assert {each.utt: each.status for each in log} == dict.fromkeys(before, "ok")
    for each in log:  # with the same times: no other was computed again
        assert (each.steps == before[each.utt]) == (each.utt not in [file.name for file in files])
    assert json.loads((cell(tmp_path) / "metrics.json").read_text())["n_failed"] == 0
    assert run.main(command) == 0
    assert "skipped" in capsys.readouterr().out


@pytest.mark.usefixtures("sound_that_may_be_missing")
def test_a_run_killed_while_it_tries_failed_recordings_again_is_not_finished(tmp_path):
    Path("phrase-1").touch()
    assert run.main(arguments(tmp_path)) == 1
    Path("phrase-1").unlink()
    assert forget_failed(cell(tmp_path) / "events.jsonl") == 1
    assert forget_failed(cell(tmp_path) / "events.jsonl") == 0
    (cell(tmp_path) / "metrics.json").unlink()
    assert run.main(arguments(tmp_path)) == 0
    assert len(read_log(cell(tmp_path) / "events.jsonl").utterances) == 5


def test_a_cell_of_another_metrics_version_is_scored_again_and_not_computed(tmp_path, capsys):
    command = arguments(tmp_path, f"method.counter={tmp_path / 'steps'}", "name=v")
    assert run.main(command) == 0
    result = next(tmp_path.rglob("v/*/metrics.json"))
    scores, n_steps = json.loads(result.read_text()), Path("steps").stat().st_size
    result.write_text(json.dumps(scores | {"metrics_version": 1, "metrics": {"wer": 99.0}}))
    capsys.readouterr()
    assert run.main(command) == 0
    assert "every recording is in its log, which is scored again" in capsys.readouterr().out
    assert json.loads(result.read_text()) == scores
    assert Path("steps").stat().st_size == n_steps


def test_tracker_and_experiment_name_do_not_change_the_configuration_hash():
    plain = {"chunk": "300ms", "tracker": {"name": "none"}, "name": "a", "output": "outputs"}
    other = plain | {"tracker": {"name": "wandb"}, "name": "b", "output": "/elsewhere"}
    assert hashes.config_hash(plain) == hashes.config_hash(other)
    assert hashes.config_hash(plain) != hashes.config_hash(plain | {"chunk": "1s"})


def test_word_times_that_a_run_leaves_open_do_not_change_the_configuration_hash():
    config = compose(["method=whisperrt", "model=mini", "chunk=1s"])
    plain = OmegaConf.to_container(config)
    assert isinstance(plain, dict) and plain["method"]["word_times"] is None
    before = {key: value for key, value in plain["method"].items() if key != "word_times"}
    assert hashes.config_hash(plain | {"method": before}) == hashes.config_hash(plain)
    time_words_by_default(config)  # as in transcribe, live and serve
    assert config.method.word_times == "alignment"
    config.method.word_times = "chunk"
    time_words_by_default(config)
    assert config.method.word_times == "chunk"
    other = compose(["method=offline", "model=mini", "chunk=1s"])
    time_words_by_default(other)
    assert "word_times" not in other.method


def test_the_aligner_counts_and_not_how_it_was_chosen():
    def of(align, word_times=None):
        return hashes.config_hash({"data": {"align": align, "word_times": word_times}})

    assert of("auto", "ctc-tiny.en 4") == of("ctc", "ctc-tiny.en 4")
    assert of("auto", "whisper-tiny.en 2") == of("tiny.en", "whisper-tiny.en 2")
    assert of("auto", "ctc-tiny.en 4") != of("auto", "whisper-tiny.en 2")
    assert of("auto") != of(None)


def test_an_edit_of_a_model_file_changes_the_model_hash(tmp_path):
    model, adapter = tmp_path / "model", tmp_path / "adapter"
    for folder in (model, adapter):
        folder.mkdir()
        (folder / "weights").write_bytes(b"1")
    plain = {"model": {"path": str(model)}, "method": {"weights": str(adapter)}}
    before = model_hash(plain)
    (adapter / "weights").write_bytes(b"2")
    assert model_hash(plain) != before
    fused = {"model": {"path": str(model)}, "method": {"lm": str(adapter)}}
    before = model_hash(fused)
    (adapter / "weights").write_bytes(b"3")
    assert model_hash(fused) != before
    assert model_hash({"method": {"lm": "none"}}) == model_hash({"method": {}})
    assert model_hash({"model": {"path": "a/hub"}}) != model_hash({"model": {"path": "a/nother"}})


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("data", "data changed"),
        ("code", "code (run_fakes) changed"),
        ("config", "config (method.wrong_every 3 -> 2) changed"),
    ],
)
def test_when_something_changed_the_old_cell_is_renamed_never_overwritten(
    what, named, tmp_path, monkeypatch, capsys
):
    command = arguments(tmp_path)
    assert run.main(command) == 0
    before = (cell(tmp_path) / "events.jsonl").read_bytes()
    if what == "data":
        monkeypatch.setattr(run_fakes.Phrases, "data_hash", lambda self: "other")
    elif what == "code":
        code = run_cell.modules("run_fakes.Parrot") | {"run_fakes": "other"}
        monkeypatch.setattr(run_cell, "modules", lambda target: code)
    else:
        file = tmp_path / "conf" / "method" / "parrot.yaml"
        file.write_text(file.read_text().replace("wrong_every: 3", "wrong_every: 2"))
    assert run.main(command) == 0
    assert f"{named}; the old results are now" in " ".join(capsys.readouterr().out.split())
    old = cell(tmp_path).with_name(f"{CELL}.old-1")
    assert (old / "events.jsonl").read_bytes() == before
    assert (old / "metrics.json").is_file()
    assert (cell(tmp_path) / "metrics.json").is_file()


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        (["limit=null", "seed=0", "method.wrong_every=3"], CELL),
        (["guard=repeats", "first_chunk=null"], CELL),
        (["method.wrong_every=2"], f"{CELL.replace('model', 'method.wrong_every=2,model')}"),
    ],
)
def test_a_default_that_is_spelled_out_names_no_other_cell(settings, folder, tmp_path, capsys):
    assert run.main(arguments(tmp_path)) == 0
    assert run.main([*arguments(tmp_path), *settings]) == 0
    is_same = folder == CELL
    assert ("finished earlier, skipped" in capsys.readouterr().out) == is_same
    folders = {path.parent.name for path in (tmp_path / "outputs").rglob("metrics.json")}
    assert folders == {CELL, folder}


def test_a_run_that_was_killed_goes_on_and_equals_an_unbroken_one(tmp_path, capsys):
    command = arguments(tmp_path)
    killed = program(tmp_path, RUN, *command, KILL_AT="17")
    assert killed.returncode == -9
    n_closed = len(read_log(cell(tmp_path) / "events.jsonl").utterances)
    assert 0 < n_closed < 5
    assert not (cell(tmp_path) / "metrics.json").exists()

    assert run.main(command) == 0
    assert f"goes on after {n_closed} of 5 utterances" in capsys.readouterr().out

    assert run.main(arguments(tmp_path, "name=unbroken")) == 0
    unbroken = cell(tmp_path, "unbroken")
    assert texts(cell(tmp_path)) == texts(unbroken)
    assert cu_scores(cell(tmp_path)) == cu_scores(unbroken)


def test_ctrl_c_says_how_to_go_on_and_exits_with_130(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run_fakes.Parrot, "steps", 0)
    monkeypatch.setenv("KILL_BY", "INT")
    assert run.main(arguments(tmp_path, "method.kill_at=17")) == 130
    told = capsys.readouterr()
    assert "of 5 utterances are done" in told.out
    assert errors_of(told.err) == "stopped by SIGINT; the same command goes on from what is done\n"


def test_an_output_that_is_no_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert run.main(arguments(tmp_path, f"output={tmp_path / 'file'}")) == 2
    err = capsys.readouterr().err
    assert "results cannot be written there" in err
    assert "output=<folder>" in err


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cells.tempfile, "TemporaryFile", refuse)  # root may write anywhere
    with pytest.raises(UserError, match=r"Permission denied.*output=<folder>"):
        cells.check_writable(tmp_path)


def test_on_a_full_disk_the_events_so_far_survive_and_the_run_goes_on_later(tmp_path, capsys):
    """The file size limit of the process stands for the disk's: both fail in `write`."""
    command = arguments(tmp_path)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (7000, 7000)); "
        f"from streaming_asr.run.command import main; sys.exit(main({command!r}))"
    )
    full = program(tmp_path, code)
    assert full.returncode == 2, full.stderr
    assert "cannot be written any further" in full.stderr
    assert "Traceback" not in full.stderr
    n_closed = len(read_log(cell(tmp_path) / "events.jsonl").utterances)
    assert 0 < n_closed < 5
    assert run.main(command) == 0
    assert f"goes on after {n_closed} of 5 utterances" in capsys.readouterr().out
    assert json.loads((cell(tmp_path) / "metrics.json").read_text())["n_utterances"] == 5


def test_two_processes_cannot_write_one_cell(tmp_path):
    with (
        cells.lock(tmp_path),
        pytest.raises(UserError, match="another process is writing there"),
        cells.lock(tmp_path),
    ):
        pass


def test_a_method_that_breaks_leaves_its_error_in_the_folder(tmp_path, capsys):
    assert run.main(arguments(tmp_path, "method.fail=broken")) == 1
    (failed,) = (tmp_path / "outputs" / "default").glob("*/failed.json")
    assert json.loads(failed.read_text()) == {"status": "failed", "error": "RuntimeError: broken"}
    assert "RuntimeError: broken" in capsys.readouterr().err


def test_tracker_none_runs_without_wandb_and_a_fake_method_without_torch(tmp_path):
    code = (
        "import sys; sys.modules['wandb'] = None; sys.modules['torch'] = None; "
        f"from streaming_asr.run.command import main; sys.exit(main({arguments(tmp_path)!r}))"
    )
    done = program(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert (cell(tmp_path) / "metrics.json").is_file()


# -- Progress --


def test_a_recording_that_failed_is_not_one_without_words(tmp_path, capsys):
    texts = {"a": ("", "good morning"), "b": ("", ""), "c": ("", "")}
    cell = write_cell(tmp_path / "method=ufal,chunk=300ms", texts=texts)
    path = cell / "metrics.json"
    document = json.loads(path.read_text())
    document |= {"n_failed": 1, "failed": [{"utt": "b", "error": "not readable"}]}
    path.write_text(json.dumps(document))
    show(cell)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[:3] in ("a: ", "b: ", "c: ")] == [
        "a: good morning",
        "b: (failed)",
        "c: (no words)",
    ]


def test_progress_is_audio_heard():
    long = replace(fakes.utterance("long"), duration_s=3600.0)
    short = replace(fakes.utterance("short"), duration_s=60.0)
    with Progress("a cell", [long, short]) as progress:
        assert progress.description() == "0 of 2 recordings, 0:00:00 of 1:01:00"
        progress.heard(long, 1200.0)
        progress.heard(long, 1800.0)
        assert progress.description() == "0 of 2 recordings, 0:30:00 of 1:01:00"
        progress.closed(short)
        assert progress.description() == "1 of 2 recordings, 0:31:00 of 1:01:00"
        progress.heard(long, 0.0)  # run again by itself
        progress.closed(long, earlier=True)
        assert progress.description() == "2 of 2 recordings, 1:01:00 of 1:01:00"


def test_a_pipe_gets_a_line_after_the_first_recording_and_then_one_now_and_then(
    monkeypatch, capsys
):
    now_s = 1000.0
    monkeypatch.setattr("streaming_asr.run.progress.perf_counter", lambda: now_s)
    many = [replace(fakes.utterance(f"u{k}"), duration_s=60.0) for k in range(10)]
    with Progress("a cell", many) as progress:
        assert progress.left_s() is None
        progress.closed(many[0], earlier=True)
        assert capsys.readouterr().err == ""
        now_s += 5.0
        progress.closed(many[1])
        # 60 s of audio took 5 s, 480 s are left.
        told = "a cell: 2 of 10 recordings, 0:02:00 of 0:10:00, about 0:00:40 left\n"
        assert capsys.readouterr().err == told
        progress.closed(many[2])
        assert capsys.readouterr().err == ""
        now_s += EVERY_S
        progress.heard(many[3], 30.0)
        assert capsys.readouterr().err.startswith("a cell: 3 of 10 recordings, 0:03:30")
        for each in many[3:]:
            progress.closed(each)
        assert capsys.readouterr().err == ""
