"""Experiment tracking; wandb is imported only when it is asked for.

    with tracker(config, folder=cell) as track:
        track.log({"loss": 2.1}, step=10)        # a training curve
        track.summary({"wer": 4.2})              # the final numbers
        track.series("ufal, mini clean")         # what panels group a cell by
        track.events(Path("events.jsonl"))       # the log as an artifact
        track.report(Path("report.html"))        # the HTML report with its timelines, as media

A result never depends on the tracker: whatever goes wrong in it (not installed, a service that
dies, a server out of reach) is one warning with its reason, and the run goes on without it.
The tracker's files lie in `folder`/wandb.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streaming_asr.chunking import parse_duration
from streaming_asr.errors import check_one_of

FINISH_TIMEOUT_S = 300  # for a server that went away while a run's files were being sent
PROJECT = "streaming-asr"
UNNAMED = "default"  # `name` of conf/run.yaml
CHUNK = "chunk_ms"
INIT_TIMEOUT_S = 30  # wandb's own 90 s would stall every cell of a sweep while a server is away


_announced: set[Path] = set()  # sweeps whose upload has been announced


class TrackerWarning(UserWarning):
    """The tracker failed; the run goes on without it."""


class Tracker:
    """Sends a run's numbers to W&B; without a run of W&B (`tracker=none`) it does nothing.

    The first failure is a warning and ends the tracking.
    """

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._curves: set[str] = set()
        self.alive = run is not None
        """Whether what is sent arrives anywhere."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Add one point to each named curve at a training step."""

        def send() -> None:
            # An x axis of our own: wandb's step must only grow, and a resumed training repeats.
            if not self._curves:
                self._run.define_metric("step", hidden=True)
            for name in values.keys() - self._curves:
                self._run.define_metric(name, step_metric="step", summary=_summary_of(name))
                self._curves.add(name)
            self._run.log({**values, "step": step})

        self._guard("log", send)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Keep the final scalars of this run, leaving out None (not measured)."""

        def send() -> None:
            numbers = {name: value for name, value in values.items() if value is not None}
            for name in numbers:
                self._run.define_metric(name, summary=_summary_of(name))
            self._run.summary.update(numbers)

        self._guard("summary", send)

    def series(self, name: str) -> None:
        """Keep what all chunks of a method share, by which panels can group the runs: method,
        settings, model and data, as tables call them."""
        self._guard(
            "series", lambda: self._run.config.update({"series": name}, allow_val_change=True)
        )

    def events(self, log: Path) -> None:
        """Keep the log of events as an artifact: every figure can be computed again of it."""

        def send() -> None:
            from wandb import Artifact

            artifact = Artifact(f"events-{self._run.id}", type="events")
            artifact.add_file(str(log))
            self._run.log_artifact(artifact)

        self._guard("events", send)

    def report(self, page: Path) -> None:
        """Log the HTML report, with its timelines and their sound, as a panel of this W&B run."""

        def send() -> None:
            from wandb import Html

            # inject would add W&B's own stylesheet, which changes the page.
            self._run.log({"report": Html(str(page), inject=False)})

        self._guard("report", send)

    def finish(self, sweep: Path, *, failed: bool) -> None:
        """Close the run; where it was not sent, print the command that uploads it and the other
        runs of its `sweep`, once for all of them."""
        if self._run is None:
            return
        offline = self._run.offline
        self.alive = True  # after a failed call too: what arrived before it is worth keeping
        self._guard("finish", lambda: self._run.finish(exit_code=int(failed)))
        if (offline or not self.alive) and sweep not in _announced:
            _announced.add(sweep)
            command = f"streaming-asr sync {shlex.quote(str(sweep))}"
            print(f"W&B runs are kept offline; to upload them: {command}")

    def _guard(self, what: str, send: Callable[[], None]) -> None:
        if not self.alive:
            return
        try:
            send()
        except Exception as error:  # the run's result must not depend on any of them
            self.alive = False
            _warn(f"{what} failed", error)


@contextlib.contextmanager
def tracker(
    config: Any,
    *,
    folder: Path | str,
    experiment: str | None = None,
    cell: str | None = None,
) -> Iterator[Tracker]:
    """Yield the tracker that `config.tracker` names and close it on every way out.

    config: the resolved configuration of the run in plain containers; its `tracker` holds
    name (none | wandb), project, mode (offline | online), entity and tags.
    The run's configuration also gets `chunk_ms`, a number, and its type of job is the method.
    experiment: the group the run belongs to; default the configuration's `name`.
    WANDB_PROJECT, WANDB_RUN_GROUP and WANDB_TAGS are taken where no project, name or tags are set.
    cell: the run's name; default the folder's. W&B's own name of it has WANDB_RUN_ID, if that is
    set, and the folder.
    WANDB_MODE=disabled is tracker=none, WANDB_MODE=offline is mode=offline.
    """
    settings = config.get("tracker") or {}
    if isinstance(settings, str):
        settings = {"name": settings}
    name = settings.get("name") or "none"
    check_one_of(("none", "wandb"), tracker=name)
    folder = Path(folder)
    track = Tracker()
    if name == "wandb" and os.environ.get("WANDB_MODE") != "disabled":
        group = experiment or config.get("name")
        if group in (None, UNNAMED):
            group = os.environ.get("WANDB_RUN_GROUP") or group
        track = Tracker(_start(config, settings, folder, group, cell or folder.name))
    failed = True
    try:
        yield track
        failed = False
    finally:
        track.finish(folder.parent, failed=failed)


def _start(
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    folder: Path,
    group: str | None,
    name: str,
) -> Any:
    """Return a run of W&B, or None where there can be none, with a warning."""
    try:
        import wandb
    except Exception as error:  # not installed, or installed and broken
        _warn("import wandb failed (pip install wandb, or tracker=none)", error)
        return None
    # To ask of each value whether it is a data frame, wandb would import pandas: half a second.
    # Else it asks by the name of the value's type.
    with contextlib.suppress(AttributeError):
        wandb.util.pd_available = False
    first_mode: Any = settings.get("mode") or "offline"
    if os.environ.get("WANDB_MODE") in ("offline", "dryrun"):
        first_mode = "offline"
    # An unreachable server still leaves a run that can be uploaded later.
    for mode in (first_mode,) if first_mode == "offline" else (first_mode, "offline"):
        try:
            return wandb.init(
                project=settings.get("project") or os.environ.get("WANDB_PROJECT") or PROJECT,
                entity=settings.get("entity"),
                tags=list(settings.get("tags") or _default_tags()),
                mode=mode,
                group=group,
                name=name,
                id=_run_id(folder),
                dir=str(folder),
                config={**config, **_numbers(config)},
                job_type=(config.get("method") or {}).get("name"),
                reinit="finish_previous",
                settings=wandb.Settings(
                    init_timeout=INIT_TIMEOUT_S,
                    silent=True,
                    console="off",
                    disable_code=True,
                    disable_git=True,
                    x_save_requirements=False,  # the log has the versions that count
                    x_disable_stats=True,  # its sampling would run during the timed steps
                    # Without it a run waits for ever for a server that is gone.
                    finish_timeout=FINISH_TIMEOUT_S,
                    finish_timeout_raises=True,
                ),
            )
        except Exception as error:
            _warn(f"wandb.init(mode={mode}) failed", error)
    return None


def _default_tags() -> list[str]:
    return [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag]


def _run_id(folder: Path) -> str | None:
    """Return WANDB_RUN_ID with the cell's folder in it, so that cells are runs of their own; None
    where it is not set."""
    if not (run_id := os.environ.get("WANDB_RUN_ID")):
        return None
    return f"{run_id}-{hashlib.sha256(str(folder.absolute()).encode()).hexdigest()[:8]}"


def _numbers(config: Mapping[str, Any]) -> dict[str, int]:
    """Return the chunk in milliseconds, for the axis of a panel."""
    from streaming_asr.score.results import is_whole

    has_chunk = config.get("chunk") and not is_whole((config.get("method") or {}).get("name"))
    return {CHUNK: parse_duration(config["chunk"])} if has_chunk else {}


def _summary_of(name: str) -> str | None:
    """Return what wandb keeps of a curve: a metric's best value; None is its default, the last."""
    from streaming_asr.metrics import METRICS

    better = METRICS[name].better if name in METRICS else None
    return {"lower": "min", "higher": "max", None: None}[better]


def _warn(what: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warnings.warn(
        f"tracker: {what}: {reason}; the run goes on without it", TrackerWarning, stacklevel=3
    )
