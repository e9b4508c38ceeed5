"""The columns that a command line names, and a metric of one's own among them, as `mine.py:pauses`:
a function from a trace to a number.

The file is code that runs, so only a command line can name it; no folder of results does.
"""

from __future__ import annotations

import importlib.util
import math
import numbers
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import EVENTS
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.metrics import METRICS, Metric, Trace, biasing, live, traces
from streaming_asr.metrics.table import next_to_wer
from streaming_asr.score.columns import Column, column_of, metric_named
from streaming_asr.score.results import Result
from streaming_asr.score.sample import Rate, Sample, intervals

SETS = {"live": live.COLUMNS, "biasing": biasing.COLUMNS}  # names of several columns
FORM = "give a Python file and a function in it, as mine.py:pauses"


@dataclass(frozen=True)
class Own:
    """A metric of one's own. of: returns its value for a trace, None where it has none."""

    metric: Metric
    of: Callable[[Trace], Any]
    text: str  # as given

    def rate(self, trace: Trace) -> tuple[float, float]:
        """Return (value, 1), (0, 0) where there is no value. Raises UserError where the function
        fails, and for what is no finite number."""
        try:
            value = self.of(trace)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise UserError(f"{self.text}: fails on recording {trace.utt}: {problem}") from error
        if value is None:
            return 0.0, 0.0
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise UserError(
                f"{self.text}: returns {value!r} for recording {trace.utt}; return a finite "
                "number, or None to leave the recording out"
            )
        return float(value), 1.0


def is_own(name: str) -> bool:
    """Return whether a name of --metrics is that of a function in a file."""
    return ".py:" in name


def own_metric(text: str, option: str) -> Own:
    """Return the metric that `text` names. Raises UserError if the file or the function is missing
    or fails to load, and for the name of a metric of METRICS."""
    path, _, name = text.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise UserError(f"{option} {text}: there is no file {path}; {FORM}")
    spec = importlib.util.spec_from_file_location(f"own_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UserError(f"{option} {text}: {path} is no Python file; {FORM}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks its module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UserError(f"{option} {text}: {path} cannot be loaded: {problem}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UserError(f"{option} {text}: {path} has no function {name or 'without a name'}")
    if name in METRICS:
        raise UserError(f"{option} {text}: {name} is a metric already; rename the function")
    definition = " ".join((function.__doc__ or "").split())
    metric = Metric(name, "", None, definition, path, frozenset(), alone=False)
    return Own(metric, function, text)


def chosen_columns(text: str, option: str) -> tuple[list[Column], list[Own]]:
    """Return the columns that `text` names, each once, and the metrics of one's own. Raises
    UserError for an unknown name, with `option`."""
    columns: dict[str, Column] = {}
    owns: list[Own] = []
    for name in filter(None, map(str.strip, text.split(","))):
        if is_own(name):
            owns.append(own_metric(name, option))
            columns[owns[-1].metric.name] = column_of(owns[-1].metric)
        else:
            metrics = SETS.get(name) or [metric_named(name, option)]
            columns |= {each: column_of(each) for each in metrics}
    if len({each.metric.name for each in owns}) < len(owns):
        raise UserError(f"{option} {text}: two functions have one name; rename one")
    wer = {name: column_of(name) for name in next_to_wer([*columns]) if name == "wer"}
    return [*(wer | columns).values()], owns


def with_own(
    results: Sequence[Result], owns: Sequence[Own], normaliser: str | None = None
) -> list[Result]:
    """Return the results with the means of these metrics over their recordings, and the intervals.
    Nothing is written. normaliser: default that of each run. Raises UserError where a function
    fails."""
    return [_with(each, owns, normaliser) if owns and each.metrics else each for each in results]


def _with(result: Result, owns: Sequence[Own], normaliser: str | None) -> Result:
    log = read_log(result.folder / EVENTS)
    rates: dict[str, Rate] = {each.metric.name: each.rate for each in owns}
    sample = Sample.of(traces(log, normaliser), log=log, rates=rates)
    values = {}
    for name, pairs in sample.rates.items():
        n = sum(weight for _, weight in pairs)
        values[name] = sum(value for value, _ in pairs) / n if n else None
    bounds = intervals(replace(sample, latencies=None))["metrics"]
    drawn = {name: bounds[name] for name in values if name in bounds}
    metrics = {**result.metrics, **values}
    before = result.document["intervals"]
    of_own = {"metrics": metrics, "intervals": {**before, "metrics": before["metrics"] | drawn}}
    return replace(result, metrics=metrics, document={**result.document, **of_own})
