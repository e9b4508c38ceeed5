"""The HTML page: one file, no network, everything it shows in one JSON block."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import EVENTS
from streaming_asr.errors import UserError
from streaming_asr.events.log import UtteranceLog, committed_words
from streaming_asr.files import write_text
from streaming_asr.method import Word, display_text
from streaming_asr.report.budget import for_page
from streaming_asr.report.marks import read_marks
from streaming_asr.report.timelines import choose, timeline
from streaming_asr.report.verdict import extremes, verdict
from streaming_asr.score.front import ceiling, front
from streaming_asr.score.results import Cell, read_cells
from streaming_asr.score.table import HEADLINE
from streaming_asr.terminal import shown
from streaming_asr.text.subtitles import cues

HERE = Path(__file__).parent
PALETTE = (HERE / "palette.css").read_text(encoding="utf-8")  # the live page's too
# What browsers play; anything else would be a player that stays silent.
MEDIA = {
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".mp4": "audio/mp4",
    ".webm": "audio/webm",
}
MAX_AUDIO_BYTES = 24_000_000  # of all audio in a page; base64 adds a third


def build(folder: Path | str, out: Path | str | None = None, *, marks: Path | None = None) -> Path:
    """Write the page of the results under `folder` to `out` (default `folder`/report.html).

    marks: published numbers, see `read_marks`. Raises UserError where `folder` holds no result.
    """
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    root = Path(folder)
    data = page_data(root, marks)
    audio = data.pop("audio")
    template = Environment(loader=FileSystemLoader(HERE), autoescape=True).get_template(
        "page.html.j2"
    )
    n_failed = sum(cell["error"] is not None for cell in data["cells"])
    page = template.render(
        title=data["title"],
        subtitle=_subtitle(data["cells"], n_failed),
        verdicts=data["verdicts"],
        css=Markup(PALETTE + (HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        budget_script=Markup((HERE / "budget.js").read_text(encoding="utf-8")),
        data=Markup(_script_safe(data)),
        licences=data["licences"],
        # Apart from the rest, so that sound is read when it is played and not when the page opens.
        audio=audio,
    )
    path = Path(out) if out is not None else root / "report.html"
    return write_text(path, page)


def page_data(folder: Path | str, marks: Path | None = None) -> dict[str, Any]:
    """Return all that the page shows: columns, cells, timelines, audio, published numbers."""
    from streaming_asr.metrics import METRICS

    cells = read_cells(folder)
    headline = [name for name, _, _ in HEADLINE]
    others = [name for name in METRICS if name not in headline]
    headings = {name: heading.replace("-\n", "") for name, heading, _ in HEADLINE}
    digits = {name: n for name, _, n in HEADLINE}
    columns = [
        {
            "name": name,
            "heading": headings.get(name) or words_of(name),
            "group": group_of(name),
            "digits": digits.get(name),
            "better": METRICS[name].better if name in METRICS else None,
            "title": _definition(METRICS.get(name), name),
            "headline": name in headline,
        }
        for name in (*headline, *others)
    ]
    timelines, audio = _timelines(cells)
    fronts = front(cells)
    names = {cell.document.get("experiment") for cell in cells} - {None}
    title = names.pop() if len(names) == 1 else Path(folder).resolve().name
    return {
        "title": str(title),
        "columns": columns,
        "cells": [_cell(cell, fronts.get(cell.folder), digits) for cell in cells],
        "verdicts": _verdicts(cells),
        "shown_first": [
            cells.index(cell)
            for split in dict.fromkeys(cell.split for cell in cells)
            for cell in extremes([cell for cell in cells if cell.split == split])
        ],
        "budget": for_page(cells),
        "timelines": timelines,
        "audio": audio,
        "ceilings": {
            split: ceiling([cell for cell in cells if cell.split == split])
            for split in {cell.split for cell in cells}
        },
        "licences": _licences(cells),
        "marks": [asdict(mark) for mark in read_marks(folder, marks)],
    }


def _subtitle(cells: list[dict[str, Any]], n_failed: int) -> str:
    told = f"{len(cells)} {'run' if len(cells) == 1 else 'runs'}"
    told += f", {n_failed} failed" if n_failed else ""
    models = {cell["model"] for cell in cells} - {""}
    return f"{told} · {models.pop()}" if len(models) == 1 else told


def _verdicts(cells: list[Cell]) -> list[str]:
    """Return the page's first sentences, one of each data."""
    splits = list(dict.fromkeys(cell.split for cell in cells))
    told = {split: verdict([cell for cell in cells if cell.split == split]) for split in splits}
    named = {split: f"{split}: " if len(splits) > 1 and split else "" for split in splits}
    return [f"{named[split]}{text}" for split, text in told.items() if text]


GROUPS = {
    "Accuracy": ("wer", "cer", "rwer"),
    "What is on screen": ("arwer",),
    "When words come": ("first", "word", "finalise"),
    "Lagging": ("al", "laal", "yaal", "dal", "ap"),
    "Compute": ("rtf", "rtfx", "step", "queue", "headroom"),
    "Stability": ("normalised", "light", "unstable", "commit", "retracted"),
}
CLOCKS = {"ca": "with compute", "cu": "audio alone"}


def group_of(metric: str) -> str:
    """Return what a metric is about, in words."""
    first = metric.partition("_")[0]
    return next((group for group, names in GROUPS.items() if first in names), "Work and memory")


def words_of(metric: str) -> str:
    """Return a metric's name in words: `al_ca_ms` is "AL, ms, with compute"."""
    parts = metric.split("_")
    clock = [CLOCKS[part] for part in parts if part in CLOCKS]
    units = [parts.pop()] if parts[-1] in ("s", "ms") else []
    acronyms = {*GROUPS["Lagging"], *GROUPS["Accuracy"], "arwer", "rtf", "rtfx"}
    name = " ".join(p.upper() if p in acronyms else p for p in parts if p not in CLOCKS)
    return ", ".join([name, *units, *clock])


def _licences(cells: list[Cell]) -> list[str]:
    """Licence and attribution of the corpora that state one, each once."""
    corpora = [(cell.document.get("config") or {}).get("data") or {} for cell in cells]
    return sorted({str(corpus["licence"]) for corpus in corpora if corpus.get("licence")})


def _cell(cell: Cell, on_front: bool | None, digits: Mapping[str, int]) -> dict[str, Any]:
    document = {key: value for key, value in cell.document.items() if key != "metrics"}
    return {
        "name": cell.name,
        "method": cell.method,
        "variant": cell.variant,
        "label": cell.label,
        "chunk_s": cell.chunk_s,
        "chunk": cell.chunk,
        "split": cell.split,
        "model": cell.model,
        "labelled": cell.is_labelled,
        "error": cell.error,
        "notes": list(cell.notes),
        "odd": cell.is_odd,
        "front": on_front,  # null where it has no place among the others
        "metrics": {name: _number(value) for name, value in cell.metrics.items()},
        # As the terminal shows them: a number that two programs round is not always one number.
        "texts": {name: shown(cell.metrics.get(name), n) for name, n in digits.items()},
        **_intervals(cell),
        "details": document,
    }


def _intervals(cell: Cell) -> dict[str, Any]:
    """Return the 95 % intervals by metric and what was drawn for them; results scored before there
    were any have none."""
    found = cell.document.get("intervals") if cell.metrics else None
    if not isinstance(found, Mapping):
        return {"intervals": {}, "drawn": ""}
    note = f" ({found['note']})" if found.get("note") else ""
    return {
        "intervals": {
            str(name): [_number(bound) for bound in bounds]
            for name, bounds in (found.get("metrics") or {}).items()
            if bounds is not None
        },
        "drawn": f"{found.get('n_drawn')} {found.get('drawn')}s{note}",
    }


def _timelines(cells: list[Cell]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the chosen utterances of every cell, and the audio files they name, each once.

    A cell whose log cannot be read is replaced in `cells` by one with a note.
    """
    from streaming_asr.events.log import read_log
    from streaming_asr.metrics import trace

    chosen = choose(cells)
    drawn: list[dict[str, Any]] = []
    audio: dict[str, str] = {}
    refused: dict[str, str] = {}
    room = MAX_AUDIO_BYTES
    for at, cell in enumerate(cells):
        wanted = chosen.get(cell.folder, {})
        log_path = cell.folder / EVENTS
        if not wanted or not log_path.is_file():
            continue
        try:
            log = read_log(log_path, only=wanted)
        except UserError as error:  # the numbers stand; only the pictures are missing
            cells[at] = replace(cell, notes=(*cell.notes, f"no timelines: {error}"))
            continue
        # The room for sound goes to the remarkable ones first.
        for logged in sorted(log.utterances, key=lambda each: not wanted[each.utt]):
            name = logged.audio_path
            if name and name not in audio and name not in refused:
                url, reason = _audio(Path(name), cell.folder, room)
                if url is None:
                    refused[name] = reason
                else:
                    audio[name] = url
                    room -= len(url) * 3 // 4
            drawn.append(
                {
                    "cell": at,
                    "why": wanted[logged.utt],
                    "audio": name if name in audio else None,
                    "silent": refused.get(name or "", None if name else "no single audio file"),
                    **timeline(trace(logged)),
                    "said": _said(logged),
                }
            )
    return drawn, audio


def _said(log: UtteranceLog) -> list[tuple[float | None, str]]:
    """Return the final text in pieces with the second each begins at, by the method's own times;
    whole where it has none.

    The times may be those of blocks, whose gaps are no pauses, so a word lasts until the next.
    """
    words = [Word(text, *times) for text, times in committed_words(log.steps)]
    if any(word.start is None or word.end is None for word in words):
        return [(None, display_text(words))]
    lasting = [replace(word, end=after.start) for word, after in pairwise(words)] + words[-1:]
    return [(round(each.start, 2), each.text) for each in cues(lasting)]


def _audio(path: Path, folder: Path, room: int) -> tuple[str | None, str]:
    """Return the file as a data URL, or None and why not."""
    found = next((p for p in (path, folder / path) if p.is_file()), None)
    if found is None:
        return None, "the audio file is not on this machine"
    media = MEDIA.get(found.suffix.lower())
    if media is None:
        return None, f"browsers do not play {found.suffix}"
    if found.stat().st_size > room:
        return None, "the page is full of audio already"
    encoded = base64.b64encode(found.read_bytes()).decode("ascii")
    return f"data:{media};base64,{encoded}", ""


def _definition(metric: Any, name: str) -> str:
    return f"{name} ({metric.unit}): {metric.definition}" if metric else name


def _number(value: Any) -> float | None:
    """Return `value`; None where it is no finite number, as JSON has no NaN."""
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _script_safe(data: Any) -> str:
    """Return JSON that no text in it can leave: `</script>` and `<!--` need the `<`."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
