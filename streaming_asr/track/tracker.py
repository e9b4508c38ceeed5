"""Experiment tracking; wandb is imported only when it is asked for.

    with tracker(config, folder=cell) as track:
        track.log({"loss": 2.1}, step=10)        # a training curve
        track.summary({"wer": 4.2})              # the final numbers of a cell
        track.utterances(rows)                   # one row per utterance
        track.report(Path("report.html"))        # the HTML report with its timelines, as media

A result never depends on the tracker: whatever goes wrong in it (not installed, a service that
dies, a server out of reach) is one warning with its reason, and the run goes on without it.
The tracker's files lie in `folder`/wandb.
"""

from __future__ import annotations

import contextlib
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

FINISH_TIMEOUT_S = 300  # for a server that went away while a run's files were being sent
INIT_TIMEOUT_S = 30  # wandb's own 90 s would stall every cell of a sweep while a server is away


_told: set[Path] = set()  # sweeps whose upload has been told of


class TrackerWarning(UserWarning):
    """The tracker failed; the run goes on without it."""


class Tracker:
    """The tracker that does nothing: `tracker=none`, and what is left after a failure."""

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        """Add one point to each named curve at a training step."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Keep the final scalars of this run, leaving out None (not measured)."""

    def utterances(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep a table, one row per utterance; nested values become columns `outer.inner`."""

    def report(self, page: Path) -> None:
        """Keep the HTML report, with its timelines and their sound, as a medium of this run."""


class WandbTracker(Tracker):
    """Calls into one wandb run; the first failure is told and ends the tracking."""

    def __init__(self, wandb: Any, run: Any, sweep: Path = Path("outputs")) -> None:
        self._sweep = sweep
        self._wandb = wandb
        self._run = run
        self._curves: set[str] = set()
        self._alive = True

    def log(self, values: Mapping[str, float], *, step: int) -> None:
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
        def send() -> None:
            known = {name: value for name, value in values.items() if value is not None}
            for name in known:
                self._run.define_metric(name, summary=_summary_of(name))
            self._run.summary.update(known)

        self._guard("summary", send)

    def utterances(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return

        def send() -> None:
            flat = [_flat(row) for row in rows]
            columns = list(dict.fromkeys(name for row in flat for name in row))
            data = [[row.get(name) for name in columns] for row in flat]
            table = self._wandb.Table(columns=columns, data=data, allow_mixed_types=True)
            self._run.log({"utterances": table})

        self._guard("utterances", send)

    def report(self, page: Path) -> None:
        def send() -> None:
            self._run.log({"report": self._wandb.Html(str(page), inject=False)})

        self._guard("report", send)

    def finish(self, *, failed: bool) -> None:
        """Close the run; where it was not sent, print the command that uploads it and the other
        runs of its sweep, once for all of them."""
        offline = self._run.offline
        # Even after a failed call: what did arrive before it is worth keeping.
        self._alive = True
        closed = self._guard("finish", lambda: self._run.finish(exit_code=int(failed)))
        if (offline or not closed) and self._sweep not in _told:
            _told.add(self._sweep)
            command = f"streaming-asr sync {shlex.quote(str(self._sweep))}"
            print(f"W&B runs are kept offline; to upload them: {command}")

    def _guard(self, what: str, send: Callable[[], None]) -> bool:
        if not self._alive:
            return False
        try:
            send()
        except Exception as error:  # the run's result must not depend on any of them
            self._alive = False
            _warn(f"{what} failed", error)
        return self._alive


@contextlib.contextmanager
def tracker(
    config: Any, *, folder: Path | str, experiment: str | None = None, cell: str | None = None
) -> Iterator[Tracker]:
    """Yield the tracker that `config.tracker` names and close it on every way out.

    config: the resolved configuration of the run in plain containers; its `tracker` holds
    name (none | wandb), project, mode (offline | online), entity and tags.
    experiment: the group the run belongs to; default the configuration's `name`.
    cell: the run's name; default the folder's.
    """
    settings = config.get("tracker") or {}
    if isinstance(settings, str):
        settings = {"name": settings}
    name = settings.get("name") or "none"
    if name not in ("none", "wandb"):
        from streaming_asr.errors import UserError

        raise UserError(f"tracker={name}: a tracker is none or wandb; pass tracker=none")
    folder = Path(folder)
    started = (
        _start(config, settings, folder, experiment or config.get("name"), cell or folder.name)
        if name == "wandb"
        else None
    )
    if started is None:
        yield Tracker()
        return
    failed = True
    try:
        yield started
        failed = False
    finally:
        started.finish(failed=failed)


def _start(
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    folder: Path,
    group: str | None,
    name: str,
) -> WandbTracker | None:
    try:
        import wandb
    except Exception as error:  # not installed, or installed and broken
        _warn("import wandb failed (pip install wandb, or tracker=none)", error)
        return None
    wanted: Any = settings.get("mode") or "offline"
    # Of newer versions alone; without it a run waits for a server that is gone for ever.
    patience = {"finish_timeout": FINISH_TIMEOUT_S, "finish_timeout_raises": True}
    known = getattr(wandb.Settings, "model_fields", {})
    extra: dict[str, Any] = {name: value for name, value in patience.items() if name in known}
    # An unreachable server still leaves a run that can be uploaded later.
    for mode in dict.fromkeys((wanted, "offline")):
        try:
            run = wandb.init(
                project=settings.get("project") or "streaming-asr",
                entity=settings.get("entity"),
                tags=list(settings.get("tags") or ()),
                mode=mode,
                group=group,
                name=name,
                dir=str(folder),
                config=dict(config),
                reinit="finish_previous",
                settings=wandb.Settings(
                    init_timeout=INIT_TIMEOUT_S,
                    silent=True,
                    console="off",
                    disable_code=True,
                    disable_git=True,
                    x_disable_stats=True,  # its sampling would run beside the timed steps
                    **extra,
                ),
            )
        except Exception as error:
            _warn(f"wandb.init(mode={mode}) failed", error)
        else:
            return WandbTracker(wandb, run, folder.parent)
    return None


def _summary_of(name: str) -> str | None:
    """Return what wandb keeps of a curve: a metric's best value; None is its default, the last."""
    from streaming_asr.metrics import METRICS

    metric = METRICS.get(name)
    if metric is None or metric.better is None:
        return None
    return {"lower": "min", "higher": "max"}[metric.better]


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value) if isinstance(value, (list, tuple)) else value
    return flat


def _warn(what: str, error: Exception) -> None:
    reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warnings.warn(
        f"tracker: {what}: {reason}; the run goes on without it", TrackerWarning, stacklevel=3
    )
