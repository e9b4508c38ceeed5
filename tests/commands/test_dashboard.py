"""`dashboard`: what a stand-in for W&B's server is sent, and what is written without a login."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from wandb_server import records, stand_in, written

from streaming_asr.commands import dashboard

pytest.importorskip("wandb_workspaces")
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic V1 style:DeprecationWarning")
LATENCY = "word_latency_committed_p50_ca_s"
LINES = {  # title -> axis, metric
    "WER by chunk": ("chunk_ms", "by_chunk/wer"),
    "WER by latency": (LATENCY, "by_latency/wer"),
    "Median latency by chunk": ("chunk_ms", f"by_chunk/{LATENCY}"),
    "Cost by chunk": ("chunk_ms", "by_chunk/rtf_total"),
}


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Two finished cells, and no login."""
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / name.lower()))
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_ENTITY", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    folder = tmp_path / "my sweep"
    for method, wer in (("ufal", 5.0), ("whisperrt", 4.0)):
        cell = folder / f"method={method},chunk=300ms"
        cell.mkdir(parents=True)
        config = {"name": "grid", "chunk": "300ms", "method": {"name": method}}
        config["tracker"] = {"name": "wandb", "project": "mine"}
        metrics = {"wer": wer, LATENCY: 1.0, "rtf_total": 0.5}
        document = {"schema": 1, "metrics_version": 1, "config": config, "metrics": metrics}
        (cell / "metrics.json").write_text(json.dumps(document))
    return folder


def panels_of(specification):
    """Every panel of a workspace's or a report's specification."""
    if isinstance(specification, dict):
        own = [specification] if "viewType" in specification else []
        return own + [p for each in specification.values() for p in panels_of(each)]
    nested = specification if isinstance(specification, list) else []
    return [panel for each in nested for panel in panels_of(each)]


def check_panels(specification):
    lines = {
        panel["config"]["chartTitle"]: panel["config"]
        for panel in panels_of(specification)
        if panel["viewType"] == "Run History Line Plot"
    }
    assert {t: (c["xAxis"], *c["metrics"]) for t, c in lines.items()} == LINES
    assert {config["groupBy"] for config in lines.values()} == {"series.value"}
    kinds = {panel["viewType"] for panel in panels_of(specification)}
    assert kinds == {"Run History Line Plot", "Scatter Plot", "Bar Chart", "Weave"}


def rows_of(log):
    (table,) = log.parent.glob("files/media/table/cells*.json")
    content = json.loads(table.read_text())
    columns = [content["columns"].index(name) for name in ("series", "chunk_ms", "wer")]
    return [[row[i] for i in columns] for row in content["data"]]


def test_without_a_login_the_specification_is_written(sweep, capsys):
    assert dashboard.main([str(sweep)]) == 0
    written()
    shown = capsys.readouterr().out
    file = sweep / "dashboard/specification.json"
    assert f"{file}: the dashboard's specification; nothing was sent" in shown
    assert f"streaming-asr sync '{sweep}' --entity ENTITY" in shown
    specification = json.loads(file.read_text())
    assert (specification["project"], specification["group"]) == ("mine", "grid")
    check_panels(specification["workspace"])
    assert "grid" in json.dumps(specification["workspace"]["section"]["runSets"])
    (log,) = sweep.glob("dashboard/wandb/offline-run-*/*.wandb")
    runs = [r.run for r in records(log) if r.WhichOneof("record_type") == "run"]
    assert (runs[0].run_group, runs[0].job_type) == ("grid", "sweep")
    assert sorted(rows_of(log)) == [["ufal", 300, 5.0], ["whisperrt", 300, 4.0]]


class Server:
    """Takes views and answers as W&B does; keeps what it is sent."""

    def __init__(self) -> None:
        self.views = []

    def __call__(self, query: str, variables: dict[str, Any]) -> Any:
        project = {
            "id": "UHJvamVjdDox", "internalId": "1", "name": "streaming-asr", "entityName": "me",
            "createdAt": "2026-11-27T00:00:00", "isBenchmark": False, "user": None,
        }  # fmt: skip
        if "upsertView" in query or "UpsertView2" in query:
            self.views.append(variables)
            view = {"id": "Vmlldzox", "name": "nw-abc-v", "type": "runs", "project": project,
                    "displayName": variables["displayName"], "description": "",
                    "spec": variables["spec"], "updatedAt": "2026-11-27T00:00:00"}  # fmt: skip
            return {"upsertView": {"view": view, "inserted": True}}
        page = {"endCursor": None, "hasNextPage": False}
        projects = {"edges": [{"node": project, "cursor": ""}], "pageInfo": page}
        viewer = {"id": "1", "entity": "me", "username": "me", "flags": "{}", "admin": False,
                  "name": "me", "email": "", "apiKeys": None, "teams": {"edges": []}}  # fmt: skip
        return {
            "project": project,
            "models": projects,
            "viewer": viewer,
            "serverInfo": None,
        }


def test_workspace_and_report_are_saved(sweep, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    sent = []
    monkeypatch.setattr(dashboard, "_send_cells", lambda *given, mode: sent.append((*given, mode)))
    server = Server()
    with stand_in(server) as address:
        monkeypatch.setenv("WANDB_BASE_URL", address)
        for _ in range(2):
            assert dashboard.main([str(sweep), "--entity", "me"]) == 0, capsys.readouterr().err
    written()
    workspace, report, *again = server.views
    # The second call names the views of the first, so that W&B updates them.
    assert ("id" in workspace, report["id"]) == (False, None)
    assert [view["id"] for view in again] == ["Vmlldzox", "Vmlldzox"]
    assert again[0]["name"] == "nw-abc-v"
    assert (workspace["type"], report["type"]) == ("project-view", "runs")
    for view in server.views:
        assert (view["entityName"], view["projectName"]) == ("me", "mine")
        check_panels(json.loads(view["spec"]))
    assert workspace["displayName"] == "grid"
    (grid,) = [b for b in json.loads(report["spec"])["blocks"] if b["type"] == "panel-grid"]
    assert "grid" in json.dumps(grid["metadata"]["runSets"])
    assert [given[-1] for given in sent] == ["online", "online"]
    shown = capsys.readouterr().out
    assert "workspace: http" in shown and "report: http" in shown


def test_a_server_that_refuses_is_one_sentence(sweep, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    monkeypatch.setattr(dashboard, "_send_cells", lambda *_, mode: None)

    class Refusing:
        def save(self) -> None:
            raise ConnectionError("no answer\nand more")

    monkeypatch.setattr(dashboard, "_workspace", lambda *_: Refusing())
    monkeypatch.setattr(dashboard, "_specification", lambda *_: "{}")
    assert dashboard.main([str(sweep), "--entity", "me"]) == 2
    error = capsys.readouterr().err
    assert "W&B did not take the dashboard (ConnectionError: no answer); its" in error
    assert (sweep / "dashboard/specification.json").read_text() == "{}"


def test_what_cannot_be_made_is_said_before_anything_is_sent(sweep, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "disabled")
    assert dashboard.main([str(sweep)]) == 2
    assert "WANDB_MODE=disabled: switches W&B off" in capsys.readouterr().err
    monkeypatch.delenv("WANDB_MODE")
    other = sweep / "other"
    other.mkdir()
    document = {"schema": 1, "metrics_version": 1, "config": {"name": "two"}, "metrics": {}}
    (other / "metrics.json").write_text(json.dumps(document))
    assert dashboard.main([str(sweep)]) == 2
    assert "holds several sweeps (grid, two); name the folder of one" in capsys.readouterr().err
    document["config"]["name"] = "grid"
    (other / "metrics.json").write_text(json.dumps(document))
    assert dashboard.main([str(sweep)]) == 2
    assert "of several projects (mine, streaming-asr); name one with" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
    assert dashboard.main([str(sweep / "method=ufal,chunk=300ms")]) == 2
    assert "pip install -e '.[dashboard]'" in capsys.readouterr().err
