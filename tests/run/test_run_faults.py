"""Several processes, signals and lost folders: nothing is run twice, and nothing good is lost."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack

import pytest
import run_fakes
from places import HANG_S
from run_fakes import RUN, arguments, cu_scores, errors_of, program, texts

from streaming_asr.cells import folder as cells
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR, HERE
from streaming_asr.run import command as run
from streaming_asr.run.plan import plan

AXES = ("chunk=100ms,300ms", "seed=1,2")


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def planned(command):
    return [cell.folder for cell in plan(CommandLine(command)).cells]


# -- two processes ----------------------------------------------------------------------------


def test_a_sweep_passes_over_a_cell_that_another_process_holds_and_leaves_no_trace_there(
    tmp_path, capsys
):
    command = ["-m", *arguments(tmp_path, *AXES, "data.n=1")]
    held, *free = planned(command)
    with cells.lock(held):
        assert run.main(command) == 0
    assert "another process is writing it; passed over" in capsys.readouterr().out
    assert not list(held.iterdir())
    assert all((folder / "metrics.json").exists() for folder in free)

    assert run.main(command) == 0
    assert (held / "metrics.json").exists()
    assert not list((tmp_path / "outputs").rglob("failed.json"))


@pytest.mark.slow
def test_two_processes_on_one_sweep_run_every_cell_once(tmp_path):
    counters = {name: tmp_path / f"steps-{name}" for name in ("both", "one")}

    def command(name):
        given = (*AXES, f"method.counter={counters[name]}", f"name={name}", "data.n=40")
        return ["-m", *arguments(tmp_path, *given)]

    both = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, *command("both")],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=HANG_S)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert run.main(command("one")) == 0
    assert counters["both"].stat().st_size == counters["one"].stat().st_size
    assert len(list((tmp_path / "outputs" / "both").glob("*/metrics.json"))) == 4
    assert not list((tmp_path / "outputs").rglob("failed.json"))


def test_a_process_that_waits_gets_the_cell_when_the_other_one_is_done(tmp_path):
    first = ExitStack()
    first.enter_context(cells.lock(tmp_path / "cell"))
    with (
        cells.lock(tmp_path / "cell", on_wait=first.close),
        pytest.raises(cells.Busy),
        cells.lock(tmp_path / "cell"),
    ):
        pass


def test_a_process_that_waited_for_a_folder_that_was_set_aside_locks_the_new_one(tmp_path):
    folder, first = tmp_path / "cell", ExitStack()
    first.enter_context(cells.lock(folder))

    def leave():
        cells.set_aside(folder)
        first.close()

    with cells.lock(folder, on_wait=leave), pytest.raises(cells.Busy), cells.lock(folder):
        pass
    with cells.lock(tmp_path / "cell.old-1"):
        pass


def test_the_lock_of_a_killed_process_is_no_obstacle_and_no_lock_leaves_a_file(tmp_path):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from streaming_asr.cells import folder as cells\n"
        "with cells.lock(Path(sys.argv[1])):\n    print('held', flush=True); os.read(0, 1)"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "cell")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert killed.stdout is not None and killed.stdout.readline() == "held\n"
    with pytest.raises(cells.Busy), cells.lock(tmp_path / "cell"):
        pass
    killed.kill()
    killed.communicate()
    with cells.lock(tmp_path / "cell"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["cell"]


def test_a_good_cell_does_not_keep_the_failure_of_another_process(tmp_path):
    command = arguments(tmp_path, "data.n=1")
    assert run.main(command) == 0
    (folder,) = (tmp_path / "outputs" / "default").iterdir()
    (folder / "failed.json").write_text('{"status": "failed", "error": "locked"}')
    assert run.main(command) == 0
    assert not (folder / "failed.json").exists()


# -- killed -----------------------------------------------------------------------------------

KILL_20 = """
import os, signal, sys
from streaming_asr.run.command import main
killed = 0
for life in range(200):
    child = os.fork()
    if not child:
        # Far enough for the utterance that was left open, and its warm-up, to end in most lives.
        os.environ["KILL_AT"] = str(15 + 7 * life % 23 if killed < 20 else 0)
        status = main()
        sys.stdout.flush()
        os._exit(status)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        killed += 1
    else:
        break
print("killed", killed, "then", os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
def test_a_sweep_of_4_cells_killed_20_times_inside_them_gives_the_unbroken_result(tmp_path):
    command = ["-m", *arguments(tmp_path, *AXES, "data.n=12")]
    done = program(tmp_path, KILL_20, *command)
    assert done.stdout.splitlines()[-1] == "killed 20 then 0", done.stderr
    assert run.main([*command, "name=unbroken"]) == 0
    broken, unbroken = (
        sorted((tmp_path / "outputs" / name).glob("*/metrics.json"))
        for name in ("default", "unbroken")
    )
    assert [path.parent.name for path in broken] == [path.parent.name for path in unbroken]
    assert len(broken) == 4
    for one, other in zip(broken, unbroken, strict=True):
        assert texts(one.parent) == texts(other.parent)
        assert cu_scores(one.parent) == cu_scores(other.parent)
    assert not list((tmp_path / "outputs").rglob("failed.json"))


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_that_stops_a_run_is_named_with_the_way_to_go_on(name, status, tmp_path):
    # Heeded, though the tests themselves may run under nohup.
    heeded = f"import signal; signal.signal(signal.{name}, signal.SIG_DFL); {RUN}"
    stopped = program(tmp_path, heeded, *arguments(tmp_path), KILL_AT="17", KILL_BY=name)
    assert stopped.returncode == status
    assert (
        errors_of(stopped.stderr)
        == f"stopped by {name}; the same command goes on from what is done\n"
    )
    assert "of 5 utterances are done" in stopped.stdout


def test_a_hangup_that_nohup_ignores_stops_nothing(tmp_path):
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); " + RUN
    done = program(tmp_path, ignored, *arguments(tmp_path), KILL_AT="17", KILL_BY="SIGHUP")
    assert done.returncode == 0, done.stderr


def test_a_folder_that_vanishes_during_the_run_is_said(tmp_path, monkeypatch, capsys):
    begin = run_fakes.Parrot.start
    started = []

    def start(self, **settings):
        started.append(True)
        if len(started) == 3:
            shutil.rmtree(tmp_path / "outputs")
        return begin(self, **settings)

    monkeypatch.setattr(run_fakes.Parrot, "start", start)
    assert run.main(arguments(tmp_path)) == 2
    err = capsys.readouterr().err
    assert "events.jsonl: was removed or moved during the run" in err
    assert "give the same command again" in err


# -- configurations ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("name=${oc.env:NOPE}", "name: its ${...} cannot be filled in (there is no variable NOPE)"),
        ("name=${name}", "name: its ${...} cannot be filled in (it names itself, or nothing)"),
        (
            "chunk=${oc.env:NOPE}",
            "chunk: its ${...} cannot be filled in (there is no variable NOPE)",
        ),
        ("method=null", "method=null: method is one name of conf/method/, as method=chunkformer"),
        (f"seed={2**70}", f"seed={2**70}: must be 0 to 4294967295"),
        ("seed=-1", "seed=-1: must be 0 to 4294967295"),
        ("threads=1000000", "threads=1000000: must be 1 to 1024"),
        ("model.path=[1]", "model.path=[1]: must be one value, no list and no mapping"),
        ("+foo=1", "foo=1: no such key; run has batch, "),
        ("+chunks=1s", "chunks=1s: no such key; did you mean chunk?"),
        ("+method.foo=1", "foo=1: Parrot has no such setting; it has chunk_s, "),
        ("method.wrong_every=x", "wrong_every=x: must be a whole number"),
        ("data.n=x", "n=x: must be a whole number"),
        ("data.n=true", "n=True: must be a whole number"),
        ("method._target_=run_fakes.Nobody", "_target_=run_fakes.Nobody: cannot be built"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_without_a_traceback(override, told, tmp_path, capsys):
    try:
        status = run.main(arguments(tmp_path, override))
    except SystemExit as left:
        status = left.code
    err = capsys.readouterr().err
    assert status == 2
    assert errors_of(err).startswith("error: ")
    assert told in err
    assert "Traceback" not in err


def test_a_target_in_a_result_or_a_checkpoint_is_never_built(tmp_path):
    from experiments.figures.tables import write_table
    from streaming_asr.config.build import build
    from streaming_asr.methods.chunkformer.load import load
    from streaming_asr.report import build as page
    from streaming_asr.score import score_folder

    trap = tmp_path / "built"
    node = {"_target_": "run_fakes.touch", "path": str(trap)}
    build(node)
    assert trap.exists()
    trap.unlink()
    assert run.main(arguments(tmp_path, "limit=1")) == 0
    (cell,) = (tmp_path / "outputs" / "default").iterdir()
    header, *lines = (cell / "events.jsonl").read_text().splitlines()
    result = (cell / "metrics.json").read_text()
    header, result = (
        json.dumps(row | {"config": row["config"] | {"method": node, "data": node}})
        for row in map(json.loads, (header, result))
    )
    (cell / "events.jsonl").write_text("\n".join([header, *lines, ""]))
    (cell / "metrics.json").write_text(result)
    (cell / ".hydra" / "config.yaml").write_text(json.dumps({"method": node}))
    score_folder(cell)
    page(cell)
    write_table(cell, tmp_path / "table.md")
    checkpoint = tmp_path / "chunkformer"
    checkpoint.mkdir()
    (checkpoint / "config.yaml").write_text(
        f"!!python/object/apply:pathlib.Path.touch [!!python/object/apply:pathlib.Path [{trap}]]\n"
    )
    with pytest.raises(UserError):
        load(checkpoint)
    assert not trap.exists()


# -- Code that changes during a run --


COMMAND = "run model=mini method=ufal chunk=1s limit=3 tracker=none gate=speech threads=1"
COMMAND += " method.backend=torch"


@pytest.mark.slow
def test_a_cell_of_a_changed_commit_rule_runs_again(tmp_path):
    copy = tmp_path / "package" / "streaming_asr"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("data", "conf", "__pycache__"))
    (copy / "data").symlink_to(HERE / "data")
    shutil.copytree(CONF_DIR, copy / "conf")
    environment = os.environ | {"PYTHONPATH": str(copy.parent)}

    def run():
        ended = subprocess.run(
            [sys.executable, "-m", "streaming_asr", *COMMAND.split()],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == 0, ended.stderr
        return " ".join(ended.stdout.split())

    def delay(*folders):
        results = [json.loads((folder / "metrics.json").read_text()) for folder in folders]
        return [result["metrics"]["word_latency_committed_p50_cu_s"] for result in results]

    run()
    assert "finished earlier, skipped" in run()
    file = copy / "text" / "tokens.py"
    source = file.read_text()
    file.write_text(source + "\n# The same program.\n")
    assert "finished earlier, skipped" in run()
    file.write_text(source + "\n\ndef common_prefix(a, b):\n    return 0\n")
    output = run()
    assert "code (text.tokens) changed; the old results are now" in output
    (old,) = (tmp_path / "outputs").rglob("*.old-1")
    before, now = delay(old, old.with_name(old.name.removesuffix(".old-1")))
    assert before < now  # nothing agrees, so all words wait for the end
