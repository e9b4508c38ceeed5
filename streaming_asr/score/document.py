"""Reads what running and scoring left of a cell, as far as the report relies on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from streaming_asr.cells import folder as folders
from streaming_asr.files import check_file, yaml_of
from streaming_asr.metrics import METRICS
from streaming_asr.schemas import violation

# The least and the most that a metric can be, by its name or its unit; of the others 0 is the
# least. What lies outside was never measured.
BOUNDS = {
    "word_latency_coverage": (0.0, 100.0),
    "padding_share": (-1.0, 1.0),
    "beam1_share": (0.0, 1.0),
    "%": (0.0, 1e6),
    "s": (-1e6, 1e6),
    "ms": (-1e9, 1e9),
    "s/s": (-1e6, 1e6),
    "MiB/min": (-1e9, 1e9),
}
MOST = 1e18


class Line(msgspec.Struct):
    """A line of utterances.jsonl, as far as it is read."""

    utt: str
    hypothesis: str
    audio_s: Annotated[float, msgspec.Meta(ge=0)]
    wer: Annotated[float, msgspec.Meta(ge=0)] | None = None
    speaker: str | None = None
    errors: Annotated[int, msgspec.Meta(ge=0)] = 0
    n_words: Annotated[int, msgspec.Meta(ge=0)] = 0
    latency: dict[str, float | None] = {}


_Number = Annotated[int, msgspec.Meta(ge=0, le=10**9)] | None
_Pair = Annotated[list[float], msgspec.Meta(min_length=2, max_length=2)]


class Model(msgspec.Struct):
    name: str | None = None


class Method(Model):
    split: str | None = None


class Data(Method):
    snr_db: float | None = None


class Configuration(msgspec.Struct):
    """A run's configuration, as far as the report relies on it."""

    model: Model | None = None
    method: Method | None = None
    data: Data | None = None
    batch: float | None = None
    feed: str | None = None


class Task(msgspec.Struct):
    """What was transcribed and how it is scored; see task.py."""

    id: str | msgspec.UnsetType = msgspec.UNSET


class Intervals(msgspec.Struct):
    metrics: dict[str, _Pair | None] = {}
    n_drawn: Any = msgspec.UNSET
    drawn: Any = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.n_drawn is not msgspec.UNSET and self.drawn is msgspec.UNSET:
            raise ValueError("must have `drawn` next to `n_drawn`")


class Document(msgspec.Struct):
    """A metrics.json, as far as the report relies on it; the rest is shown as it is."""

    metrics: dict[str, float | None]
    n_utterances: _Number = None
    n_failed: _Number = None
    n_silent: _Number = None
    n_slipped: _Number = None
    invalid: list[str] = []
    experiment: str | None = None
    hashes: dict[str, Any] | None = None
    task: Task | None = None
    normaliser: list[str] | None = None
    unit: list[Literal["word", "character"]] | None = None
    warnings: list[str] | None = None
    config: Configuration | msgspec.UnsetType = msgspec.UNSET
    intervals: Intervals | None = None


def lines_of(folder: Path) -> list[Line]:
    """Return the lines of a cell's utterances.jsonl; [] if it is missing or damaged."""
    path = folder / folders.UTTERANCES
    try:
        check_file(path)
        return msgspec.json.Decoder(Line).decode_lines(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return []


def document_of(path: Path) -> dict[str, Any]:
    """Return the content of a metrics.json. Raises ValueError for one that the report cannot show,
    or whose numbers no run can have."""
    check_file(path)
    document: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    if fault := violation(document, Document):
        raise ValueError(fault.text("the document"))
    intervals = (document.get("intervals") or {}).get("metrics") or {}
    for name, value in document["metrics"].items():
        low, high = _bounds(name)
        for number in (value, *(intervals.get(name) or ())):
            if number is not None and not low <= number <= high:
                raise ValueError(f"{name} is {number:g}, which is not from {low:g} to {high:g}")
    for name, interval in intervals.items():
        if interval and interval[0] > interval[1]:
            raise ValueError(f"the interval of {name} is from {interval[0]:g} to {interval[1]:g}")
    counts = {what: document.get(f"n_{what}") or 0 for what in ("utterances", "failed", "silent")}
    if max(counts["failed"], counts["silent"]) > counts["utterances"]:
        raise ValueError(f"of {counts['utterances']} utterances {counts} are counted")
    return document


def _bounds(name: str) -> tuple[float, float]:
    """Return the lowest and the highest value that a metric can have, in its unit."""
    unit = METRICS[name].unit if name in METRICS else None
    if unit is None:  # a metric of another version
        return -MOST, MOST
    return BOUNDS.get(name) or BOUNDS.get(unit) or (0.0, MOST)


def saved_config(folder: Path) -> Mapping[str, Any]:
    """Return the configuration that a run saved before it began, which a failed run leaves too; {}
    if it is missing or damaged."""
    path = folders.saved_configuration(folder)
    config = None if path is None else yaml_of(path)
    return config if isinstance(config, dict) and not violation(config, Configuration) else {}
