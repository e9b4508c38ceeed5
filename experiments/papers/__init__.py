"""The tables of the papers, as printed: the YAML files of this folder, read and typed.

A file holds each number as text and states for each label of a row (model, method, chunk) what
that label means in the configuration of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError

HERE = Path(__file__).resolve().parent

PATTERNS = "*?[!"  # in a value that means several
NONE = "~"  # in the data: nothing printed, or nothing of that kind in this project
Selector = Mapping[str, Any]
"""Override key -> value, or a list of accepted ones; a value may be a pattern, or !value."""


@dataclass(frozen=True)
class PaperRow:
    """One row of a printed table.

    labels, values: as printed. select: what a cell's configuration must hold. named: what of it the
    row's own labels ask for. more: what the command names besides. missing: the label that this
    project has nothing for, if any. slip: what is known to be wrong with the row.
    """

    labels: Mapping[str, str]
    values: Mapping[str, str]
    select: Selector
    named: Selector
    more: Mapping[str, str] = field(default_factory=dict)
    missing: str | None = None
    slip: str | None = None

    def command(self) -> str | None:
        """Return the command that runs this row; None where no run can. DIR is where the corpus
        lies."""
        if self.missing or "method" not in self.select:
            return None
        settings = dict(self.more)
        for key, accepted in self.select.items():
            names = accepted if isinstance(accepted, list) else [accepted]
            if exact := [name for name in names if not any(mark in name for mark in PATTERNS)]:
                settings[key] = exact[0]
        if "data" in settings:
            settings.setdefault("data.path", "DIR")
        parts = (f"{key}={settings[key]}" for key in sorted(settings, key=_order))
        return "python -m streaming_asr.run " + " ".join(parts)


@dataclass(frozen=True)
class Metric:
    """unit of the paper's number; ours: its name in metrics.json, times `scale` in that unit."""

    unit: str = ""
    ours: str | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Table:
    """One printed table.

    comparable: False for settings. missing: why nobody else can run it. show: settings of a cell
    that are printed next to it, since the rows leave them open.
    """

    name: str
    where: str
    about: str
    labels: tuple[str, ...]
    metrics: Mapping[str, Metric]
    rows: tuple[PaperRow, ...]
    comparable: bool
    missing: str | None
    show: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """protocol: where papers differ (normaliser, clock ...). text: numbers outside of tables."""

    name: str
    source: str
    protocol: Mapping[str, str]
    tables: tuple[Table, ...]
    text: tuple[Mapping[str, str], ...]


# -- reading --------------------------------------------------------------------------------


def papers() -> dict[str, Path]:
    """Return the file of every paper there is, by name."""
    return {path.stem: path for path in sorted(HERE.glob("*.yaml"))}


def read_paper(name: str) -> Paper:
    """Return the paper of this name or file. Raises UserError for an unknown or malformed one."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else papers().get(name)
    if path is None:
        raise UserError(
            f"paper {name!r}: not one of {', '.join(papers())}; give one, or a YAML file"
        )
    import yaml

    try:
        # BaseLoader keeps every number as the text it is printed as: 30.60 has two decimals
        raw = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
        return Paper(
            name=raw["paper"],
            source=raw["source"],
            protocol=raw.get("protocol", {}),
            tables=tuple(_table(table, raw) for table in raw["tables"]),
            text=tuple(raw.get("text", ())),
        )
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path}: not a paper's tables ({type(error).__name__}: {error}); "
            f"write it as {HERE.name}/whisperrt.yaml is written"
        ) from error


def _table(raw: Mapping[str, Any], paper: Mapping[str, Any]) -> Table:
    labels, values = tuple(raw["labels"]), tuple(raw["values"])
    rows = []
    for cells in raw["rows"]:
        if len(cells) != len(labels) + len(values):
            raise ValueError(f"table {raw['table']}, row {cells}: {len(labels + values)} expected")
        of_labels = dict(zip(labels, cells, strict=False))
        select, named, missing = _select(of_labels, raw, paper["select"])
        more = {key[1:]: value for key, value in select.items() if key.startswith("+")}
        slips = [
            slip["text"] for slip in raw.get("slips", ()) if slip["at"].items() <= of_labels.items()
        ]
        rows.append(
            PaperRow(
                labels=of_labels,
                values=dict(zip(values, cells[len(labels) :], strict=True)),
                select={key: value for key, value in select.items() if not key.startswith("+")},
                named=named,
                more=more,
                missing=missing,
                slip="; ".join(slips) or None,
            )
        )
    metric_names = paper["metrics"]
    metrics = {name: _metric(metric_names.get(name, {})) for name in values}
    return Table(
        name=raw["table"],
        where=raw["where"],
        about=raw["about"],
        labels=labels,
        metrics=metrics,
        rows=tuple(rows),
        comparable=any(name in metric_names for name in values),
        missing=raw.get("missing"),
        show=tuple(raw.get("show", ())),
    )


def _metric(raw: Mapping[str, str]) -> Metric:
    ours = raw.get("ours", NONE)
    return Metric(raw.get("unit", ""), None if ours == NONE else ours, float(raw.get("scale", 1)))


def _select(
    labels: Mapping[str, str], table: Mapping[str, Any], metrics: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return what a cell must hold for these labels, what of it the labels ask for, and the first
    label that no cell can have. `{chunk}`, `{ms}` and `{model}` in a value are the row's chunk,
    its milliseconds and its model; a key with a + is the command's only."""
    named: dict[str, Any] = {}
    missing = None
    for label, value in labels.items():
        meaning = metrics.get(label, NONE)
        if value == NONE:
            continue
        if isinstance(meaning, str) and meaning != NONE:  # the label's value is the setting's
            # "8 s" is 8 where the setting counts seconds
            text = value.removesuffix(" s") if meaning.endswith("_s") else value
            named[meaning] = text.replace(" ", "")
        elif isinstance(meaning, Mapping) and isinstance(meaning.get(value), Mapping):
            named |= meaning[value]
        else:
            missing = missing or f"{label} {value}"
    of_method = table.get("select_method", {}).get(labels.get("method"), {})
    settings = {**table.get("select", {}), **named, **of_method}
    filled = {key: _filled(value, labels) for key, value in settings.items() if value != NONE}
    return {key: filled[key] for key in sorted(filled, key=_order)}, named, missing


def _filled(value: Any, labels: Mapping[str, str]) -> Any:
    if isinstance(value, list):
        return [_filled(each, labels) for each in value]
    chunk = labels.get("chunk", NONE)
    model = labels.get("model", NONE)
    value = value.replace("{chunk}", chunk).replace("{ms}", chunk.removesuffix("ms"))
    return value.replace("{model}", model)


def _order(key: str) -> tuple[int, str]:
    first = (
        "method",
        "model",
        "model.path",
        "data",
        "data.path",
        "data.split",
        "language",
        "chunk",
    )
    return (first.index(key) if key in first else len(first), key)
