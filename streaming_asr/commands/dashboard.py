"""Makes a dashboard of W&B for a sweep: a workspace, a report, and one run for the whole sweep.

    streaming-asr dashboard outputs/mini --entity ME

Panels show WER by chunk, WER by latency, latency and cost by chunk, one line for each method with
its settings, and a table of all cells. Given again, it updates the same workspace and report.
Without a login the specification is written to a file, and nothing is sent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.machine import has_login
from streaming_asr.metrics.table import METRICS
from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import command_parser, exit_status
from streaming_asr.track.tracker import (
    BY_CHUNK,
    BY_LATENCY,
    CHUNK,
    LATENCY,
    PANELS,
    SERIES,
    default_project,
    group_of,
    tracker,
)

FOLDER = "dashboard"  # in that of the sweep
SPECIFICATION = "specification.json"
TABLE = "cells"
SAVED = "saved.json"  # W&B's names of the workspace and the report


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = command_parser("streaming-asr dashboard", __doc__)
    parser.add_argument("folder", type=Path, help="a sweep, e.g. outputs/mini")
    parser.add_argument("--entity", help="the user or team that owns the project")
    parser.add_argument("--project", help="default: that of the runs, as tracker.project= named it")
    parser.add_argument(
        "--offline", action="store_true", help="write the specification and send nothing"
    )
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _make(arguments))


def _make(arguments: argparse.Namespace) -> None:
    cells = read_results(arguments.folder)
    group = _group(cells, arguments.folder)
    arguments.project = arguments.project or _project(cells, arguments.folder)
    try:
        import wandb_workspaces.workspaces  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"dashboard: the package wandb-workspaces is missing ({error}); install it with "
            "`pip install -e '.[dashboard]'`"
        ) from error
    mode = os.environ.get("WANDB_MODE", "online")
    if mode == "disabled":
        raise UserError("WANDB_MODE=disabled: switches W&B off; unset it to make a dashboard")
    is_offline = arguments.offline or mode in ("offline", "dryrun") or not has_login()
    entity = arguments.entity or os.environ.get("WANDB_ENTITY")
    place = arguments.folder / FOLDER
    if place.is_symlink():
        raise UserError(f"{place}: is a link; remove it")
    place.mkdir(exist_ok=True)
    file = place / SPECIFICATION
    if is_offline:
        _send_cells(cells, group, arguments, entity, mode="offline")
        write_text(file, _specification(group, entity or "ENTITY", arguments.project))
        folder = shlex.quote(str(arguments.folder))
        print(
            f"{file}: the dashboard's specification; nothing was sent. To send it:\n"
            f"  wandb login\n  streaming-asr sync {folder} --entity ENTITY\n"
            f"  streaming-asr dashboard {folder} --entity ENTITY"
        )
        return
    try:
        entity = entity or _default_entity()
        write_text(file, _specification(group, entity, arguments.project))
        _send_cells(cells, group, arguments, entity, mode="online")
        workspace, report = _save(place / SAVED, group, entity, arguments.project)
    except Exception as error:  # of the client: a server that is away, refuses or answers badly
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{arguments.folder}: W&B did not take the dashboard ({reason}); its specification is "
            f"{file}; run the same command again"
        ) from error
    print(f"workspace: {workspace.url}\nreport: {report.url}")


def _group(cells: Sequence[Result], folder: Path) -> str:
    """Return the group that the runs of these cells have in W&B. Raises UserError for several."""
    names = sorted({str(cell.config["name"]) for cell in cells if cell.config.get("name")})
    if len(names) > 1:
        raise UserError(
            f"{folder}: holds several sweeps ({', '.join(names)}); name the folder of one"
        )
    return group_of(names[0]) or names[0] if names else folder.resolve().name


def _project(cells: Sequence[Result], folder: Path) -> str:
    """Return the project that the runs of these cells have in W&B. Raises UserError for several."""
    trackers = [cell.config.get("tracker") or {} for cell in cells]
    names = {str(tracker.get("project") or default_project()) for tracker in trackers}
    if len(names) > 1:
        raise UserError(
            f"{folder}: its runs are of several projects ({', '.join(sorted(names))}); name one "
            "with --project"
        )
    return names.pop() if names else default_project()


def _default_entity() -> str:
    from wandb import Api

    return str(Api().default_entity)


def _send_cells(
    cells: Sequence[Result],
    group: str,
    arguments: argparse.Namespace,
    entity: str | None,
    *,
    mode: str,
) -> None:
    """Keep one run for the sweep: a table of its cells and its report. A later one replaces it."""
    settings = {"name": "wandb", "project": arguments.project, "entity": entity, "mode": mode}
    config = {"tracker": settings, "method": {"name": "sweep"}, "name": group}
    run_id = f"sweep-{hashlib.sha256(group.encode()).hexdigest()[:12]}"
    rows = [
        {
            SERIES: cell.series,
            CHUNK: cell.chunk_ms,
            "split": cell.split,
            "model": cell.model,
            **{name: cell.metrics.get(name) for name in PANELS},
            "error": cell.error,
        }
        for cell in cells
    ]
    folder = arguments.folder / FOLDER
    page = arguments.folder / "report.html"
    with tracker(config, folder=folder, cell=f"{group}: all cells", run_id=run_id) as track:
        track.table(TABLE, rows)
        if page.is_file():
            track.report(page)


# -- what is shown --------------------------------------------------------------------------


def _panels() -> list[Any]:
    """Return the panels, one line or bar for each series."""
    import wandb_workspaces.reports.v2 as wr

    series, full = wr.Config(SERIES), wr.Layout(w=24, h=12)
    errors, latency, cost = (_label(name) for name in ("wer", LATENCY, "rtf_total"))
    by_chunk = [
        wr.LinePlot(
            title=f"{title} by chunk", x=CHUNK, y=[f"{BY_CHUNK}/{name}"], groupby=series,
            title_x="chunk, ms", title_y=label,
        )
        for title, name, label in (
            ("WER", "wer", errors),
            ("Median latency", LATENCY, latency),
            ("Cost", "rtf_total", cost),
        )
    ]  # fmt: skip
    by_latency = wr.LinePlot(
        title="WER by latency", x=LATENCY, y=[f"{BY_LATENCY}/wer"], groupby=series,
        title_x=latency, title_y=errors,
    )  # fmt: skip
    runs = wr.ScatterPlot(
        title="WER and latency, one point a run",
        x=wr.SummaryMetric(LATENCY), y=wr.SummaryMetric("wer"),
    )  # fmt: skip
    bars = wr.BarPlot(
        title="Cost by method",
        metrics=[wr.SummaryMetric("rtf_total")],
        groupby=series,
        title_x=cost,
    )
    table = wr.WeavePanelSummaryTable(table_name=TABLE, layout=full)
    return [by_chunk[0], by_latency, *by_chunk[1:], runs, bars, table]


def _label(name: str) -> str:
    return f"{name}, {METRICS[name].unit}" if METRICS[name].unit else name


def _workspace(group: str, entity: str, project: str) -> Any:
    """Return the workspace: the runs of the sweep by series, and the panels."""
    import wandb_workspaces.workspaces as ws
    from wandb_workspaces import expr

    return ws.Workspace(
        entity=entity,
        project=project,
        name=group,
        sections=[ws.Section(name=group, panels=_panels(), is_open=True)],
        runset_settings=ws.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == group),
            groupby=[expr.Config(SERIES)],
            pinned_columns=[f"summary:{name}" for name in PANELS],
        ),
    )


def _report(group: str, entity: str, project: str) -> Any:
    """Return the report: the same panels over the runs of the sweep."""
    import wandb_workspaces.reports.v2 as wr
    from wandb_workspaces import expr

    runs = wr.Runset(
        entity=entity, project=project, name=group, groupby=[f"config.{SERIES}"],
        filters=expr.And(expr.Metric("Group") == group),
    )  # fmt: skip
    text = "Each line is a method with its settings, each run a cell. Latency counts computing."
    return wr.Report(
        entity=entity,
        project=project,
        title=f"{group}: streaming methods compared",
        blocks=[wr.P(text=text), wr.PanelGrid(runsets=[runs], panels=_panels())],
        width="fluid",
    )


def _save(file: Path, group: str, entity: str, project: str) -> tuple[Any, Any]:
    """Save workspace and report and return them; those of an earlier call are updated, whose names
    are in `file`."""
    workspace, report = _workspace(group, entity, project), _report(group, entity, project)
    place = f"{entity}/{project}/{group}"
    saved = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    if saved.get("place") == place:
        workspace._internal_name, workspace._internal_id = saved["workspace"]
        report.id = saved["report"]
    workspace.save()
    report.save()
    names = [workspace._internal_name, workspace._internal_id]
    write_text(file, json.dumps({"place": place, "workspace": names, "report": report.id}))
    return workspace, report


def _specification(group: str, entity: str, project: str) -> str:
    """Return the workspace as W&B takes it, as JSON; the report has the same panels over the same
    runs, which only W&B can name."""
    view = _workspace(group, entity, project)._to_model()
    workspace = json.loads(view.spec.model_dump_json(by_alias=True, exclude_none=True))
    head = {"entity": entity, "project": project, "group": group}
    return json.dumps({**head, "workspace": workspace}, indent=1)
