"""The HTML page: one file, no network, everything it shows in one JSON block."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import EVENTS
from streaming_asr.errors import UserError
from streaming_asr.events.log import UtteranceLog, committed_words, read_log
from streaming_asr.files import HERE as PACKAGE
from streaming_asr.files import cache_root, write_text
from streaming_asr.method import Word, display_text
from streaming_asr.metrics import METRICS, trace
from streaming_asr.metrics.table import CLOCKS
from streaming_asr.report.timelines import choose, timeline
from streaming_asr.score.columns import HEADLINE, on_clock, parts_of
from streaming_asr.score.ranking import (
    best_of,
    best_values,
    ceiling,
    clock_of,
    extremes,
    front,
    ranked,
    sentence,
)
from streaming_asr.score.results import Result, read_results
from streaming_asr.score.table import missing_intervals, model_of_all, remarks_of, shared_settings
from streaming_asr.terminal import format_number
from streaming_asr.text.subtitles import cues

HERE, DATA = Path(__file__).parent, PACKAGE / "data"
PALETTE = (HERE / "palette.css").read_text(encoding="utf-8")  # the live page's too
SCRIPT = ("state", "table", "figures", "player", "page")  # each imports only from those before it
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


def build(
    folder: Path | str, out: Path | str | None = None, audio_from: Iterable[Path] = ()
) -> Path:
    """Write the page of the results under `folder` to `out` (default `folder`/report.html).

    audio_from: whose sound the page may have, too (`sound_file`). Raises UserError where `folder`
    holds no result.
    """
    from markupsafe import Markup

    root = Path(folder)
    data = page_data(root, audio_from)
    audio = data.pop("audio")
    page = render(
        "page.html.j2",
        title=data["title"],
        subtitle=" · ".join([_subtitle(data["cells"]), *data["shared"]]),
        verdicts=data["verdicts"],
        clock=data["clock"],
        script=Markup(script()),
        data=Markup(_script_safe(data)),
        remarks=data["remarks"],
        has_best=any(cell["best"] for cell in data["cells"]),
        licences=data["licences"],
        # Apart from the rest, so that sound is read when it is played and not when the page opens.
        audio=audio,
    )
    path = Path(out) if out is not None else root / "report.html"
    return write_text(path, page)


def render(template: str, **fields: Any) -> str:
    """Return a page of a template of this folder, with the style of all pages."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    css = Markup(PALETTE + (HERE / "page.css").read_text(encoding="utf-8"))
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True)
    return environment.get_template(template).render(css=css, **fields)


def script() -> str:
    """Return the parts of the page's script as one module, which needs no import and no export."""
    parts = [(HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPT]
    return re.sub(r"^import [^;]*;\n|^export ", "", "".join(parts), flags=re.MULTILINE)


def page_data(folder: Path | str, audio_from: Iterable[Path] = ()) -> dict[str, Any]:
    """Return all that the page shows: columns, cells, timelines, audio. See `build`."""
    results = ranked(read_results(folder))
    shared = shared_settings(results)  # by all runs: shown once, above
    results = [
        replace(r, variant=" ".join(word for word in r.variant.split() if word not in shared))
        for r in results
    ]
    clock = clock_of(results)
    headline = {each.metric: each for each in on_clock(HEADLINE, clock)}
    digits = {name: each.digits for name, each in headline.items()}
    columns: list[dict[str, Any]] = [
        {
            "name": name,
            "heading": headline[name].heading if name in headline else words_of(name),
            "group": group_of(name),
            "digits": digits.get(name),
            "better": METRICS[name].better,
            "title": f"{name} ({METRICS[name].unit}): {METRICS[name].definition}",
            "headline": name in headline,
        }
        for name in (*headline, *(name for name in METRICS if name not in headline))
    ]
    timelines, audio = _timelines(results, [Path(folder), *audio_from])
    by_data: dict[str, list[Result]] = {}
    for result in results:
        by_data.setdefault(result.split, []).append(result)
    sentences = {split: sentence(here, clock) for split, here in by_data.items()}
    fronts, best = front(results, clock), best_of(results)
    winners = best_values(results, [each["name"] for each in columns])
    return {
        "title": _title(results),
        "clock": clock,
        "shared": [*sorted(model_of_all(results)), *sorted(shared)],
        "columns": columns,
        "cells": [
            _row(result, fronts.get(result.folder), digits)
            | {
                "best": result in best,
                "wins": [name for folder, name in winners if folder == result.folder],
            }
            for result in results
        ],
        "verdicts": [
            f"{split}: {text}" if len(by_data) > 1 and split else text
            for split, text in sentences.items()
            if text
        ],
        "shown_first": [
            results.index(result) for here in by_data.values() for result in extremes(here, clock)
        ],
        "timelines": timelines,
        "audio": audio,
        "ceilings": {split: ceiling(here, clock=clock) for split, here in by_data.items()},
        "farthest": {split: ceiling(here, axis=0, clock=clock) for split, here in by_data.items()},
        "remarks": [*remarks_of(results), *missing_intervals(results)],
        "licences": _licences(results),
    }


def _title(results: Sequence[Result]) -> str:
    """Return the experiment's name where it is a sentence, else the methods and the data."""
    names = {str(result.document.get("experiment")) for result in results}
    if len(names) == 1 and " " in (name := names.pop()):
        return name
    parts = []
    for field, what in (("method", "methods"), ("split", "data sets")):
        texts = dict.fromkeys(filter(None, (getattr(result, field) for result in results)))
        parts.append(", ".join(texts) if len(texts) < 4 else f"{len(texts)} {what}")
    return " on ".join(filter(None, parts))


def _subtitle(results: list[dict[str, Any]]) -> str:
    n_failed = sum(result["error"] is not None for result in results)
    text = f"{len(results)} {'run' if len(results) == 1 else 'runs'}"
    text += f", {n_failed} failed" if n_failed else ""
    splits = {result["split"] for result in results} - {""}
    return f"{text} · {splits.pop()}" if len(splits) == 1 else text


LIVE = ("textless", "final", "stable", "words", "first_words", "last", "turn", "turns", "pauses")
GROUPS = {  # what the names of its metrics begin with
    "Accuracy": ("wer", "cer", "rwer", "b", "u", "repeated"),
    "What is on screen": ("arwer",),
    "Live systems": LIVE,
    "When words come": ("first", "word", "finalise"),
    "Lagging": ("al", "laal", "yaal", "dal", "ap"),
    "Compute": ("rtf", "rtfx", "step", "queue", "headroom"),
    "Stability": ("normalised", "light", "unstable", "commit", "retracted"),
}


def group_of(metric: str) -> str:
    """Return what a metric is about, in words."""
    for group, names in GROUPS.items():
        if f"{metric}_".startswith(tuple(f"{name}_" for name in names)):
            return group
    return "Work and memory"


def words_of(metric: str) -> str:
    """Return a metric's name in words: `al_ca_ms` is "AL, ms, with compute"."""
    unit = METRICS[metric].unit
    parts = parts_of(metric, unit)
    clock = [CLOCKS[part].label for part in parts if part in CLOCKS]
    units = [unit] if unit else []
    acronyms = {*GROUPS["Lagging"], *GROUPS["Accuracy"], "arwer", "rtf", "rtfx"}
    name = " ".join(p.upper() if p in acronyms else p for p in parts if p not in CLOCKS)
    return ", ".join([name, *units, *clock])


def _licences(results: list[Result]) -> list[str]:
    """Return licence and attribution of the corpora that state one, once each."""
    corpora = [(result.document.get("config") or {}).get("data") or {} for result in results]
    return sorted({str(corpus["licence"]) for corpus in corpora if corpus.get("licence")})


def _row(result: Result, on_front: bool | None, digits: Mapping[str, int]) -> dict[str, Any]:
    document = {key: value for key, value in result.document.items() if key != "metrics"}
    return {
        **result.row(),
        "labelled": result.is_labelled,
        "odd": result.is_odd,
        "front": on_front,  # null where it has no place among the others
        # As the terminal shows them: a number that two programs round is not always one number.
        "texts": {name: format_number(result.metrics.get(name), n) for name, n in digits.items()},
        "details": document,
    }


def _timelines(
    results: list[Result], audio_from: Sequence[Path]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the chosen utterances of every cell, and the audio files they name, each once.

    A cell whose log cannot be read is replaced in `results` by one with a note. audio_from: see
    `sound_file`.
    """
    chosen = choose(results)
    drawn: list[dict[str, Any]] = []
    audio: dict[str, str] = {}
    refused: dict[str, str] = {}
    room = MAX_AUDIO_BYTES
    for at, result in enumerate(results):
        reasons = chosen.get(result.folder, {})
        log_path = result.folder / EVENTS
        if not reasons or not log_path.is_file():
            continue
        try:
            log = read_log(log_path, only=reasons)
        except UserError as error:  # the numbers are valid; only the pictures are missing
            results[at] = replace(result, notes=(*result.notes, f"no timelines: {error}"))
            continue
        # The room for sound goes to the remarkable ones first, and the page opens with the first.
        place = {utt: i for i, utt in enumerate(reasons)}
        for logged in sorted(log.utterances, key=lambda each: place[each.utt]):
            name = logged.audio_path
            if name and name not in audio and name not in refused:
                url, reason = _audio(name, result.folder, audio_from, room)
                if url is None:
                    refused[name] = reason
                else:
                    audio[name] = url
                    room -= len(url) * 3 // 4  # the file's bytes, of which base64 makes 4 of 3
            drawn.append(
                {
                    "cell": at,
                    "why": reasons[logged.utt],
                    "audio": name if name in audio else None,
                    "silent": refused.get(name or "", None if name else "no single audio file"),
                    **timeline(trace(logged)),
                    "detected": logged.detected,
                    "said": _said(logged),
                }
            )
    return drawn, audio


def _said(log: UtteranceLog) -> list[tuple[float | None, str]]:
    """Return the final text in pieces with the second each begins at, by the method's own times;
    whole where it has none.

    Where words have no duration, the times are those of blocks, whose gaps are no pauses: a word
    then lasts until the next.
    """
    words = [Word(text, *times) for text, times in committed_words(log.steps)]
    if any(word.start is None or word.end is None for word in words):
        return [(None, display_text(words))]
    if 2 * sum(word.start == word.end for word in words) > len(words):
        words = [replace(word, end=after.start) for word, after in pairwise(words)] + words[-1:]
    return [(round(each.start, 2), each.text) for each in cues(words)]


def sound_file(name: str, folder: Path, audio_from: Iterable[Path]) -> tuple[Path | None, str]:
    """Return the file that a log in `folder` names as its sound; None, and why, where it is not
    there or may not be shown.

    A log may be a stranger's and name any recording of this machine, and a page is passed on. So
    the file must lie, links followed, in `folder`, in the package, among what was downloaded, or
    in one of `audio_from`: folders, or files such as a manifest, whose folders count.
    """
    path = Path(name)
    file = next((p for p in (path, folder / path) if p.is_file()), None)
    if file is None:
        return None, "the audio file is not on this machine"
    roots = [each.parent if each.is_file() else each for each in audio_from]
    for root in (folder, DATA, cache_root(), *roots):
        if file.resolve().is_relative_to(root.resolve()):
            return file, ""
    return None, "it lies outside of the results; give --audio FOLDER to have it in the page"


def _audio(
    name: str, folder: Path, audio_from: Iterable[Path], room: int
) -> tuple[str | None, str]:
    """Return the file that a log in `folder` names as a data URL, or None and why not."""
    file, reason = sound_file(name, folder, audio_from)
    if file is None:
        return None, reason
    media = MEDIA.get(file.suffix.lower())
    if media is None:
        return None, f"browsers do not play {file.suffix}"
    if file.stat().st_size > room:
        return None, "the page is full of audio already"
    encoded = base64.b64encode(file.read_bytes()).decode("ascii")
    return f"data:{media};base64,{encoded}", ""


def _script_safe(data: Any) -> str:
    """Return JSON that no text in it can leave: `</script>` and `<!--` need the `<`."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
