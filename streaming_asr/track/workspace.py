"""The comparison of an experiment's runs on W&B, laid out by code: a saved workspace.

    python -m streaming_asr.track.workspace mini --entity ME
    python -m streaming_asr.track.workspace mini --entity ME --print > payload.json

Error rate against latency, the other headline metrics as bars, the utterances and the reports of
all runs whose group is the experiment. Needs the extra `workspaces` (wandb-workspaces).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.metrics import METRICS
from streaming_asr.score.front import FRONT
from streaming_asr.score.table import HEADLINE, heading_of
from streaming_asr.terminal import command_parser, exit_status

MAX_RUNS = 100  # of a panel; the library's own 10 would hide most of a grid
# A column of the configuration is addressed through the envelope {"value": ...} that W&B keeps
# around each top-level key, so `value` stands after the first part; a summary has none
# (wandb-workspaces, reports.v2.Runset, "Column format").
PINNED = ("config:method.value.name", "config:chunk.value", "config:data.value.split")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Save a W&B workspace that compares the runs of an experiment."
    parser = command_parser("python -m streaming_asr.track.workspace", about)
    parser.add_argument("experiment", help="the runs' name=, which is their group")
    parser.add_argument("--entity", required=True, help="the user or team that owns the project")
    parser.add_argument("--project", default="streaming-asr", help="default: %(default)s")
    parser.add_argument(
        "--print", action="store_true", help="print what would be saved; nothing is sent"
    )
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _lay_out(arguments))


def _lay_out(arguments: argparse.Namespace) -> None:
    laid_out = workspace(arguments.experiment, entity=arguments.entity, project=arguments.project)
    if arguments.print:
        print(json.dumps(payload(laid_out), indent=1))
    else:
        print(f"workspace: {_save(laid_out)}")


def workspace(experiment: str, *, entity: str, project: str) -> Any:
    """Return the workspace, not saved yet. Raises UserError where wandb-workspaces is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own, about itself
            import wandb_workspaces.reports.v2 as panels
            import wandb_workspaces.workspaces as ws
    except ImportError as error:
        raise UserError(
            f"wandb-workspaces cannot be imported ({error}); install it: "
            "pip install 'streaming-asr[workspaces]'"
        ) from error

    def summary(name: str) -> Any:
        return panels.SummaryMetric(name)

    x, y = FRONT
    sections = [
        ws.Section(
            "Comparison",
            is_open=True,
            panels=[
                panels.ScatterPlot(
                    title="Word error rate against word latency", x=summary(x), y=summary(y)
                ),
                *(
                    panels.BarPlot(title=_title(name), metrics=[summary(name)])
                    for name, _, _ in HEADLINE
                ),
            ],
        ),
        ws.Section(
            "Utterances",
            is_open=True,
            panels=[panels.WeavePanelSummaryTable(table_name="utterances")],
        ),
        ws.Section("Timelines", is_open=True, panels=[panels.MediaBrowser(media_keys=["report"])]),
    ]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"{experiment}: comparison",
        sections=sections,
        settings=ws.WorkspaceSettings(max_runs=MAX_RUNS),
        runset_settings=ws.RunsetSettings(
            filters=ws.And(ws.Metric("Group") == experiment),
            pinned_columns=[*PINNED, *(f"summary:{name}" for name, _, _ in HEADLINE)],
        ),
    )


def payload(laid_out: Any) -> dict[str, Any]:
    """Return what `save` sends: the view, with its specification as an object."""
    view = laid_out._to_model()
    return dict(json.loads(view.model_dump_json(by_alias=True, exclude_none=True)))


def _save(laid_out: Any) -> str:
    try:
        laid_out.save()
    except Exception as error:  # whatever the server and the way to it come up with
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"W&B did not take the workspace ({reason}); log in (wandb login) and check --entity "
            "and --project"
        ) from error
    return str(laid_out.url)


def _title(name: str) -> str:
    better = METRICS[name].better
    text = (heading_of(name) or (name, 0))[0]
    return f"{text} ({better} is better)" if better else text


if __name__ == "__main__":
    sys.exit(main())
