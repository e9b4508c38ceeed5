"""Uploads to W&B: its own command line against a stand-in for its server."""

from __future__ import annotations

import pytest
from run_fakes import arguments
from wandb_server import stand_in

from streaming_asr.commands import sync
from streaming_asr.run import command as run
from streaming_asr.track.tracker import tracker


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
