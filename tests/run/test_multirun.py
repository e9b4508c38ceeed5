"""Sweeps: killed and completed, cells that fail, launchers, experiment files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import run_fakes
from places import ROOT
from run_fakes import RUN, arguments, cu_scores, program, texts

from experiments import slurm
from experiments.slurm import PROGRAMS
from streaming_asr.config.build import by_hydra
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.machine import memory_remedy, ran_out_of_memory
from streaming_asr.run import command as run
from streaming_asr.run.plan import plan
from streaming_asr.score.results import read_results
from streaming_asr.terminal import exit_status

AXES = ("chunk=100ms,200ms,300ms",)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def results(folder):
    return sorted(path.parent for path in folder.glob("*/metrics.json"))


def test_a_sweep_killed_in_the_middle_and_completed_equals_an_unbroken_one(tmp_path, capsys):
    command = ["-m", *arguments(tmp_path, *AXES)]
    killed = program(tmp_path, RUN, *command, KILL_AT="85")  # in the second cell
    assert killed.returncode == -9
    broken = tmp_path / "outputs" / "default"
    assert 0 < len(results(broken)) < 3

    assert run.main(command) == 0
    told = capsys.readouterr().out
    assert "finished earlier, skipped" in told and "goes on after" in told

    assert run.main([*command, "name=unbroken"]) == 0
    unbroken = tmp_path / "outputs" / "unbroken"
    assert [cell.name for cell in results(broken)] == [cell.name for cell in results(unbroken)]
    assert len(results(broken)) == 3
    for one, other in zip(results(broken), results(unbroken), strict=True):
        assert texts(one) == texts(other)
        assert cu_scores(one) == cu_scores(other)


def test_after_a_sweep_the_table_of_all_cells_and_the_page_are_there(tmp_path, capsys):
    assert run.main(["-m", *arguments(tmp_path, "chunk=100ms,300ms", "name=two", "limit=1")]) == 0
    out = capsys.readouterr().out
    assert "100 ms" in out
    assert "300 ms" in out
    assert (tmp_path / "outputs" / "two" / "report.html").is_file()


def test_a_cell_has_one_folder_in_a_sweep_and_alone(tmp_path, capsys):
    assert run.main([*arguments(tmp_path, "limit=1"), "-m", "chunk=100ms,1s"]) == 0
    assert run.main(arguments(tmp_path, "limit=1", "chunk=1000ms")) == 0
    assert "finished earlier, skipped" in capsys.readouterr().out
    assert len(results(tmp_path / "outputs" / "default")) == 2


def test_a_cell_that_fails_does_not_lose_the_others_and_the_exit_status_tells(tmp_path, capsys):
    command = [
        "-m",
        *arguments(tmp_path, "method.fail=broken,null", "chunk=100ms,300ms", "limit=1"),
    ]
    assert run.main(command) == 1
    folder = tmp_path / "outputs" / "default"
    assert len(results(folder)) == 2
    assert len(list(folder.glob("*/failed.json"))) == 2
    err = capsys.readouterr().err
    assert "2 of 4 cells failed" in err
    assert "RuntimeError: broken" in err


def test_a_cell_that_ran_out_of_memory_says_what_makes_room_and_the_rest_go_on(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("KILL_BY", "MEMORY")
    monkeypatch.setattr(run_fakes.Parrot, "steps", 0)
    command = ["-m", *arguments(tmp_path, "method.kill_at=12,null", "chunk=300ms")]
    assert run.main(command) == 1
    (failed,) = (tmp_path / "outputs" / "default").glob("*/failed.json")
    reason = json.loads(failed.read_text())["error"]
    assert reason.startswith(
        "out of memory on cpu (CUDA out of memory. Tried to allocate 2 GiB); end other programs"
    )
    assert "a smaller model=" in reason and "the same command goes on from there" in reason
    assert len(results(tmp_path / "outputs" / "default")) == 1
    assert "1 of 2 cells failed" in capsys.readouterr().err

    monkeypatch.delenv("KILL_BY")
    assert run.main(command) == 0  # the utterance that failed was left open, and is run again
    assert "goes on after" in capsys.readouterr().out
    assert not failed.exists()
    log = read_log(failed.with_name("events.jsonl"))
    assert [utterance.error for utterance in log.utterances] == [None] * 5


@pytest.mark.parametrize(
    ("batch", "device", "dtype", "room"),
    [
        (8, "cuda", "float32", "try batch=4, dtype=float16, a smaller model=, device=cpu;"),
        (1, "cuda", "float16", "try a smaller model=, device=cpu;"),
        (1, "cpu", "float32", "try a smaller model=;"),
    ],
)
def test_the_remedies_fit_the_settings(batch, device, dtype, room):
    told = memory_remedy(MemoryError(), batch=batch, device=device, dtype=dtype)
    assert room in told
    assert f"out of memory on {device} (MemoryError)" in told


def test_only_a_lack_of_memory_is_taken_for_one():
    class OutOfMemoryError(RuntimeError):
        """As torch names its own."""

    assert ran_out_of_memory(OutOfMemoryError("HIP"))
    assert ran_out_of_memory(RuntimeError("CUDA failed with error out of memory"))  # CTranslate2
    assert ran_out_of_memory(MemoryError())
    assert not ran_out_of_memory(RuntimeError("CUDA error: device-side assert triggered"))
    assert not ran_out_of_memory(ValueError("out of memory"))


def test_a_cell_that_failed_is_tried_again(tmp_path):
    command = ["-m", *arguments(tmp_path, "chunk=100ms,300ms", "limit=1")]
    (tmp_path / "outputs" / "default").mkdir(parents=True)
    planned = plan(CommandLine(command)).cells
    planned[0].folder.mkdir()
    (planned[0].folder / "failed.json").write_text('{"status": "failed", "error": "disk full"}')
    assert run.main(command) == 0
    assert not list((tmp_path / "outputs" / "default").glob("*/failed.json"))


def test_every_cell_is_checked_before_the_first_one_runs(tmp_path, capsys):
    assert run.main(["-m", *arguments(tmp_path, "chunk=100ms,310ms")]) == 2
    assert "chunk=310ms: not a multiple of 20 ms" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_missing_adapter_fails_its_own_cells_and_the_others_run(tmp_path, capsys):
    command = ["-m", *arguments(tmp_path, "method=parrot,trained", "limit=1")]
    conf = tmp_path / "conf" / "method"
    (conf / "trained.yaml").write_text((conf / "parrot.yaml").read_text() + "weights: auto\n")
    assert run.main(command) == 1
    root = tmp_path / "outputs" / "default"
    told = capsys.readouterr()
    assert "1 of 2 cells failed" in told.err and "has no trained weights of trained" in told.err
    finished, failed = read_results(root)
    assert (failed.method, failed.chunk_s, failed.split) == ("trained", 0.3, finished.split)
    assert failed.error is not None and "has no trained weights of trained" in failed.error
    assert (root / "report.html").is_file()


def test_where_no_cell_has_its_adapter_nothing_is_begun(tmp_path, capsys):
    command = ["-m", *arguments(tmp_path, "method=trained", "chunk=100ms,300ms")]
    conf = tmp_path / "conf" / "method"
    (conf / "trained.yaml").write_text((conf / "parrot.yaml").read_text() + "weights: auto\n")
    assert run.main(command) == 2
    assert "has no trained weights of trained" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_the_offline_pass_has_one_cell_for_all_chunks(tmp_path):
    sweep = ["method=offline,reencode", "chunk=300ms,1s", "model=mini", f"output={tmp_path}"]

    def folders():
        planned = plan(CommandLine(["-m", *sweep]))
        assert [note.partition(":")[0] for note in planned.notes] == ["offline"]
        return [cell.folder.name.rpartition(",model")[0] for cell in planned.cells]

    streaming = ["method=reencode,chunk=300ms", "method=reencode,chunk=1s"]
    assert folders() == ["method=offline,chunk=300ms", *streaming]
    # An earlier result is taken.
    earlier = tmp_path / "default" / "method=offline,chunk=1s,model=mini" / "metrics.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}")
    assert folders() == ["method=offline,chunk=1s", *streaming]
    single = plan(CommandLine(["method=offline", "chunk=2s", "first_chunk=3s", *sweep[2:]]))
    assert [cell.folder for cell in single.cells] == [earlier.parent]
    assert single.cells[0].config.chunk == single.cells[0].config.first_chunk == "1s"


def test_cells_whose_names_differ_in_other_signs_have_two_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    for path in ("x/y.jsonl", "x_y.jsonl"):
        (tmp_path / path).write_text("")
    sweep = ["-m", "method=offline", "model=mini", "data=manifest", "data.path=x/y.jsonl,x_y.jsonl"]
    names = [[cell.folder.name for cell in plan(CommandLine(sweep)).cells] for _ in range(2)]
    assert names[0] == names[1] and len({*names[0]}) == 2
    assert names[0][0] == "method=offline,chunk=300ms,data=manifest,data.path=x_y.jsonl,model=mini"
    with pytest.raises(UserError, match="have one folder"):
        plan(CommandLine([*sweep, "hydra/launcher=joblib"]))


@pytest.mark.slow
def test_other_launchers_have_one_offline_pass_too(tmp_path):
    sweep = ("-m", *arguments(tmp_path, "model=mini", "limit=1"), "hydra/launcher=joblib")
    for methods, chunks in (("offline,parrot", "300ms,1s"), ("offline", "2s")):
        done = program(tmp_path, RUN, *sweep, f"method={methods}", f"chunk={chunks}")
        assert done.returncode == 0, done.stderr
        folders = (tmp_path / "outputs" / "default").iterdir()
        names = {folder.name.partition(",data")[0] for folder in folders if folder.is_dir()}
        chunks = ("300ms", "1s")
        assert names == {"method=offline,chunk=300ms"} | {
            f"method=parrot,chunk={c}" for c in chunks
        }


def test_an_experiment_file_is_a_sweep_of_its_own_name(tmp_path):
    command = arguments(tmp_path, "experiment=grid")
    planned = plan(CommandLine(command)).cells
    assert len(planned) == 8
    assert {cell.folder.parent for cell in planned} == {Path("outputs/grid")}
    assert len({cell.folder for cell in planned}) == 8
    (one,) = {cell.config.chunk for cell in plan(CommandLine([*command, "chunk=1s"])).cells}
    assert one == "1s"


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ([], "hush_word,simul_whisper"),
        (["model=tiny.en"], "hush_word,simul_whisper"),
        (["model=base", "language=en"], "hush_word,simul_whisper"),
        (["model=base"], "simul_whisper,ufal"),
        (["model=base", "language=fr"], "simul_whisper,ufal"),
        (["model=small", "language=en"], "simul_whisper,ufal"),
    ],
)
def test_without_a_method_the_hush_word_comes_first_where_the_package_has_one_for_the_language(
    settings, method
):
    line = CommandLine(settings)
    line.default_methods(2)
    assert (line.get("method"), line.get("chunk")) == (method, "1s")


def test_the_planned_folders_are_those_that_are_written(tmp_path):
    command = arguments(tmp_path, "experiment=grid", "limit=1", "chunk=100ms")
    planned = plan(CommandLine(command)).cells
    assert run.main(command) == 0
    assert results(Path("outputs/grid")) == sorted(cell.folder for cell in planned)


def test_several_values_without_m_are_refused_with_the_remedy(tmp_path):
    line = CommandLine(arguments(tmp_path, "chunk=100ms,300ms"))
    with pytest.raises(UserError, match=r"chunk=100ms,300ms: several values .* add -m"):
        plan(line)


def test_where_slurm_is_absent_nothing_is_begun(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run.main(["-m", *arguments(tmp_path, "hydra/launcher=slurm")]) == 2
    assert "hydra/launcher=slurm: there is no sbatch here" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_sweeper_gets_the_wer_of_each_run_as_a_number(tmp_path):
    returned = []
    sweep = ["-m", *arguments(tmp_path, "method.wrong_every=0,1", "limit=2")]
    by_hydra("run", lambda config: returned.append(run.job(config)), sweep, "run")
    assert returned == [0.0, 100.0]


def test_a_launcher_without_a_sweep_is_refused_before_the_cell_runs(tmp_path, capsys):
    assert run.main(arguments(tmp_path, "hydra/launcher=joblib")) == 2
    assert "hydra/launcher=joblib: starts a sweep's jobs; add -m" in capsys.readouterr().err
    assert not list(tmp_path.glob("outputs/**/*.json*"))


def test_the_sweep_on_slurm_says_what_it_needs(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert exit_status(slurm.main) == 2
    assert "missing: slurmctld, slurmd, sbatch" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "options"),
    [("joblib", ["hydra.launcher.n_jobs=2"]), ("submitit_local", [])],
)
def test_a_sweep_runs_under_other_launchers_which_the_result_names(launcher, options, tmp_path):
    command = ["-m", *arguments(tmp_path, "chunk=100ms,300ms", "limit=1")]
    done = program(tmp_path, RUN, *command, f"hydra/launcher={launcher}", *options)
    assert done.returncode == 0, done.stderr
    folders = results(tmp_path / "outputs" / "default")
    assert len(folders) == 2
    for folder in folders:
        machine = json.loads((folder / "metrics.json").read_text())["machine"]
        assert machine["launcher"] == launcher


def test_garbage_is_collected_after_a_cell_that_failed_alone(tmp_path, monkeypatch):
    collected = []
    monkeypatch.setattr(run.machine, "give_back_memory", lambda: collected.append(1))
    axes = ("method.fail=broken,null", "chunk=100ms,300ms,400ms", "limit=1")
    assert run.main(["-m", *arguments(tmp_path, *axes)]) == 1
    assert len(collected) == 3


# -- Slurm --


HERE = all(map(shutil.which, PROGRAMS)) and os.geteuid() == 0


@pytest.mark.slow
@pytest.mark.skipif(not HERE, reason="no Slurm to start here: as root, make slurm installs it")
def test_a_sweep_killed_on_slurm_equals_one_without():
    # In a process of its own, since it sets Slurm's variables in the environment.
    done = subprocess.run([sys.executable, "-m", "experiments.slurm"], cwd=ROOT, check=False)
    assert done.returncode == 0
