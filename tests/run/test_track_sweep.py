"""W&B's sweeps and uploads: its own command line against a stand-in for its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import HANG_S, ROOT
from run_fakes import arguments
from wandb_server import records, stand_in

from streaming_asr.commands import sync
from streaming_asr.run import command as run
from streaming_asr.track.tracker import tracker

SWEEP = ROOT / "docs" / "wandb_sweep.yaml"
WANDB = Path(sys.executable).with_name("wandb")


class Sweep:
    """The server's side: keeps the sweep it is given, hands out its first cell, then ends."""

    def __init__(self, cell: dict[str, str]) -> None:
        self.cell = cell
        self.config = ""
        self.n_beats = 0

    def __call__(self, query: str, variables: dict[str, Any]) -> Any:
        if "UpsertSweep" in query:
            self.config = variables["config"]
            project = {"id": "1", "name": "p", "entity": {"id": "1", "name": "me"}}
            return {"upsertSweep": {"sweep": {"name": "abc", "project": project},
                                    "configValidationWarnings": []}}  # fmt: skip
        if "CreateAgent" in query:
            return {"createAgent": {"agent": {"id": "agent"}}}
        if "Heartbeat" in query:
            self.n_beats += 1
            args = {name: {"value": value} for name, value in self.cell.items()}
            run = {"type": "run", "run_id": "run1", "program": "streaming_asr.run", "args": args}
            is_running = "run1" in json.loads(variables["runState"])
            orders = [run] if self.n_beats == 1 else [] if is_running else [{"type": "exit"}]
            return {"agentHeartbeat": {"agent": {"id": "agent"}, "commands": json.dumps(orders)}}
        if "SweepWithRuns" in query:
            return {"project": {"sweep": {
                "id": "1", "name": "abc", "method": "grid", "state": "RUNNING",
                "config": self.config, "createdAt": "", "heartbeatAt": "", "updatedAt": "",
                "earlyStopJobRunning": False, "bestLoss": None, "controller": None,
                "scheduler": None, "runs": {"edges": []},
            }}}  # fmt: skip
        return {"viewer": {"id": "1", "entity": "me", "username": "me", "flags": "{}",
                           "teams": {"edges": []}}}  # fmt: skip


@pytest.mark.slow
def test_the_documented_sweep_is_made_and_its_agent_runs_a_cell(tmp_path):
    flag, conf, *settings = arguments(tmp_path, "limit=1")
    sweep = yaml.safe_load(SWEEP.read_text())
    # The documented file, with a method without weights and kept offline.
    kept = [each for each in settings if not each.startswith(("chunk=", "tracker="))]
    sweep["command"][4:4] = [flag, conf]
    at = sweep["command"].index("tracker.mode=online")
    sweep["command"][at : at + 1] = [*kept, "tracker.mode=offline"]
    sweep["command"][1] = sys.executable  # ${interpreter} is the python of the path
    sweep["parameters"].pop("method")
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep))
    environment = {
        **os.environ,
        **{
            f"WANDB_{name}_DIR": str(tmp_path / name.lower())
            for name in ("CACHE", "CONFIG", "DATA")
        },
        "WANDB_DIR": str(tmp_path),
        "WANDB_API_KEY": "a" * 40,
        "WANDB_ERROR_REPORTING": "false",
    }
    with stand_in(Sweep({"chunk": "300ms"})) as address:
        environment["WANDB_BASE_URL"] = address
        for command in (["sweep", "--project", "p", str(file)], ["agent", "me/p/abc"]):
            done = subprocess.run([WANDB, *command], cwd=tmp_path, env=environment, timeout=HANG_S,
                                  capture_output=True, text=True)  # fmt: skip
            assert done.returncode == 0, done.stderr
    found = [path.parent for path in tmp_path.glob("outputs/wandb_sweep/*/metrics.json")]
    assert found, done.stdout + done.stderr
    (cell,) = found
    assert "chunk=300ms" in cell.name
    wer = json.loads((cell / "metrics.json").read_text())["metrics"]["wer"]
    (log,) = cell.glob("wandb/offline-run-*/*.wandb")
    runs = [r.run for r in records(log) if r.WhichOneof("record_type") == "run"]
    assert (runs[0].sweep_id, runs[0].run_id) == ("abc", "run1")
    sent = {
        item.key: json.loads(item.value_json)
        for record in records(log)
        if record.WhichOneof("record_type") == "summary"
        for item in record.summary.update
        if item.key
    }
    assert sent["wer"] == wer
    live = [
        json.loads(item.value_json)
        for record in records(log)
        if record.WhichOneof("record_type") == "history"
        for item in record.history.item
        if item.nested_key == ["wer_so_far"]
    ]
    assert live == [wer]


def test_a_sweep_goes_up_in_one_command(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    sweep = tmp_path / "mini"
    projects = {"one": "mine", "two": None}
    for cell, project in projects.items():
        (sweep / cell).mkdir(parents=True)
        settings = {"name": "wandb", "project": project}
        with tracker({"name": "mini", "tracker": settings}, folder=sweep / cell) as track:
            track.summary({"wer": 4.25})
        (sweep / cell / "metrics.json").write_text("{}")
    for cell in ("two.old-1", "broken off"):  # set aside; without a result
        (sweep / cell).mkdir()
        with tracker({"name": "mini", "tracker": "wandb"}, folder=sweep / cell) as track:
            track.summary({"wer": 90.0})
    (sweep / "two.old-1" / "metrics.json").write_text("{}")
    names = []
    summaries = []
    sent = {}

    def answer(query, variables):
        if "createRunFiles" in query:
            return 400  # it takes the runs, and none of their files
        if "upsertBucket" not in query:
            return {"viewer": {"id": "1", "entity": "me", "flags": "{}", "teams": {"edges": []}}}
        names.append(variables.get("displayName") or "")
        sent[names[-1]] = variables.get("project")
        summaries.append(variables.get("summaryMetrics") or "")
        project = {"id": "p", "name": "streaming-asr", "entity": {"id": "e", "name": "me"}}
        bucket = {"id": "1", "name": variables["name"], "displayName": "", "project": project,
                  "description": "", "config": "{}", "historyLineCount": 0}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}

    with stand_in(answer) as address:
        monkeypatch.setenv("WANDB_BASE_URL", address)
        assert sync.main([str(sweep), "--entity", "me"]) == 0
        assert {"one", "two"} <= set(names)
        assert (sent["one"], sent["two"]) == ("mine", "streaming-asr")
        assert not {"two.old-1", "broken off"} & set(names)
        assert sync.main([str(sweep)]) == 0  # nothing is left to upload
    shown = capfd.readouterr().out
    assert "0 of 2 runs to upload (2 of unfinished or replaced results left out)" in shown


def test_a_folder_without_offline_runs_is_refused(tmp_path, capsys):
    assert sync.main([str(tmp_path)]) == 2
    assert "holds no offline run" in capsys.readouterr().err


def test_a_refused_server_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    url = "method.url=ws://127.0.0.1:1/x"
    command = arguments(tmp_path, "method=remote", url, "feed=realtime", "tracker=wandb")
    assert run.main(command) == 2
    shown = capsys.readouterr()
    assert f"error: {url}: cannot be reached" in shown.err and "upload" not in shown.out
    assert [path.name for path in tmp_path.iterdir()] == ["conf"]


@pytest.mark.parametrize(
    "wrong", ["feed=fixed", "method.url=x", "method.rate=3", "method.protocol=own"]
)
def test_settings_of_a_server_are_checked_before_the_corpus(wrong, tmp_path, capsys):
    url = "method.url=ws://127.0.0.1:1/x"
    assert run.main(arguments(tmp_path, "method=remote", url, "feed=realtime", wrong)) == 2
    shown = capsys.readouterr()
    assert wrong.partition("=")[0] in shown.err and "loading" not in shown.out + shown.err
