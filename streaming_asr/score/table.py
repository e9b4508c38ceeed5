"""The table of results: a row a cell, metrics in columns, notes below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.config.defaults import ALIGNER_ERRORS_MS
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST
from streaming_asr.score.columns import (
    HEADLINE,
    LATENCY,
    SPARE,
    Column,
    column_of,
    metric_named,
    on_clock,
)
from streaming_asr.score.ranking import (
    FEW,
    best_of,
    best_values,
    clock_of,
    conclusions,
    n_recordings,
    ranked,
)
from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import Grid, console, format_number, wrapped

if TYPE_CHECKING:
    from rich.console import Group

COMMIT = LATENCY.format("ca")
SORT_HELP = "the metric that sorts the rows, the best first, as final_after_p50; default wer"
WIDE_HELP = "show all columns, in several tables on a narrow screen"
MANY, SEVERAL = 8, 4  # more columns than MANY, of at most SEVERAL runs, are shown as rows


def table(
    results: Path | str | Sequence[Result],
    *,
    wide: bool = False,
    sort: str | None = None,
    columns: Sequence[Column] = (),
) -> Group:
    """Return results as a table, a row for each cell, with remarks below.

    results: or their folder. wide: all columns of HEADLINE, in several tables if needed; else as
    many as the screen has room for. sort: the metric whose best value comes first within each
    corpus. columns: in place of HEADLINE, with the number of recordings and 95 % intervals. The
    title has the settings that all rows share. Word latency counts from the end of the word, with
    compute (the FIFO clock), or without where the machine was busy. Raises UserError if a folder
    holds no result.
    """
    from rich.console import Group
    from rich.text import Text

    names = {each.metric for each in columns}
    metric = sort if sort in names else metric_named(sort or "wer", "--sort")
    if columns and sort is None:
        metric = columns[0].metric
    cells = read_results(results) if isinstance(results, Path | str) else results
    cells = ranked(cells, metric)
    clock = clock_of(cells)
    chosen = [*columns] if columns else _with_numbers(on_clock(HEADLINE, clock), cells)
    if metric not in {column.metric for column in chosen}:
        chosen += _with_numbers([column_of(metric)], cells)
    shared = shared_settings(cells)
    splits = {result.split for result in cells}
    has_several = len(splits) > 1
    best = best_of(cells, metric)
    notes, numbers_of = numbered_notes(cells)
    rows = []
    for result in cells:
        label = [result.method, *(word for word in result.variant.split() if word not in shared)]
        if result in best:
            label.append("*")
        if numbers := numbers_of[result.folder]:
            label.append(f"[{numbers}]")
        head = [" ".join(label), *([result.split] if has_several else []), result.chunk]
        if columns:
            head.append(str(result.document.get("n_utterances", "–")))
        values = [_value(result, column, bool(columns)) for column in chosen]
        if result.error and values:
            values[0] = "failed"
        rows.append([*head, *values])
    heads = ["method", *(["data"] if has_several else []), "chunk", *(["n"] if columns else [])]
    column_at = {column.metric: k for k, column in enumerate(chosen, start=len(heads))}
    title = [*model_of_all(cells), *sorted(shared)]
    if not has_several:
        title = [*splits, *title]
    winners = best_values(cells, [*column_at])
    legend = {column_at[c.metric]: c.meaning for c in chosen if c.meaning}
    more = {1: "`score --list` describes each metric"} if columns else {}
    grid = Grid(
        [*heads, *(column.heading for column in chosen)],
        rows,
        text_columns=range(1 + has_several),
        title=" · ".join(filter(None, title)),
        spare=()
        if wide or columns
        else [
            column_at[name]
            for each in SPARE
            if (name := each.replace("_ca", f"_{clock}")) in column_at and name != metric
        ],
        legend={0: _directions(chosen, metric, bool(best)), **legend} | more,
        bold=[
            (k, column_at[metric])
            for k, result in enumerate(cells)
            for metric in column_at
            if (result.folder, metric) in winners
        ],
        styles=["red" if r.error else "bold" if r in best else None for r in cells],
    )
    if len(chosen) > MANY and len(cells) <= SEVERAL and columns:
        titles = [*heads, *(column.title for column in chosen)]
        by_row = [list(row) for row in zip(titles, *rows, strict=True)]
        legend = {0: ". ".join([grid.legend[0], *more.values()])}
        grid = Grid(by_row[0], by_row[1:], legend=legend)
    lines = [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]
    lines += [*remarks_of(cells), *conclusions(cells)]
    # A command, or a path in a remark, stays on one line, to be copied.
    texts = [line if line.startswith("  ") else wrapped(line) for line in lines]
    return Group(grid, *(Text(text, no_wrap=True, overflow="ignore") for text in texts))


def print_table(
    results: Path | str | Sequence[Result],
    *,
    wide: bool = False,
    sort: str | None = None,
    columns: Sequence[Column] = (),
) -> None:
    """Print results as `table` makes them. Raises UserError as it does."""
    console().print(table(results, wide=wide, sort=sort, columns=columns), crop=False)


def _with_numbers(columns: Sequence[Column], results: Sequence[Result]) -> list[Column]:
    """Return the columns without those that no result has a number for: recordings without texts
    have no errors to count. A failed result counts as if it had every number."""
    return [
        column
        for column in columns
        if any(result.metrics.get(column.metric) is not None or result.error for result in results)
    ]


def _value(result: Result, column: Column, with_interval: bool) -> str:
    """Return a metric of a run and, on a second line, its 95 % interval if it has one."""
    value = result.metrics.get(column.metric)
    text = str(value) if isinstance(value, int) else format_number(value, column.digits)
    bounds = result.intervals.get(column.metric) if with_interval else None
    low_high = (format_number(bound, column.digits) for bound in bounds or ())
    return f"{text}\n{'–'.join(low_high)}" if bounds else text


def _directions(columns: Sequence[Column], metric: str, has_best: bool) -> str:
    """Return the line of the legend that explains the star and which direction is better."""
    title = {each.metric: each.title.removesuffix(" %") for each in columns}
    star = f"* the streaming run that is best by {title.get(metric, metric)}. " if has_best else ""
    better = {n: METRICS[n].better for n in title if n in METRICS and METRICS[n].better}
    higher = [title[name] for name, direction in better.items() if direction == "higher"]
    if higher and len(higher) == len(better):
        return f"{star}Higher is better"
    return f"{star}Lower is better{', except ' if higher else ''}{', '.join(higher)}"


def numbered_notes(results: Sequence[Result]) -> tuple[list[str], dict[Path, str]]:
    """Return the notes of all rows, each only once, and by a row's folder the numbers of its own,
    as `1,3`."""
    of_rows = {
        each.folder: [*each.notes, *([f"failed: {each.error}"] if each.error else [])]
        for each in results
    }
    notes = list(dict.fromkeys(note for of_row in of_rows.values() for note in of_row))
    numbers = {
        folder: ",".join(str(notes.index(note) + 1) for note in of_row)
        for folder, of_row in of_rows.items()
    }
    return notes, numbers


def _words_of(results: Sequence[Result]) -> str:
    """Return of which words the latencies are where there is no reference, and whom that favours,
    in words."""
    names = {name for result in results if (name := result.words_from) is not None}
    labels = sorted({r.label for r in results if {r.name, r.folder.name} & names} or names)
    if not labels:
        return "of words that one method transcribed"
    favour = f", which favours {'it' if len(labels) == 1 else 'them'}: all of its words count"
    favour = favour if len(labels) == 1 else favour.replace("its", "their")
    return f"of the words of {' and '.join(labels)}{favour if len(results) > 1 else ''}"


def remarks_of(results: Sequence[Result]) -> list[str]:
    """Return the remarks on all runs together, for the page and the terminal: no references, few
    recordings, the error of the aligner that timed the words."""
    remarks = []
    timed = [result for result in results if result.metrics.get(COMMIT) is not None]
    unlabelled = [result for result in results if not result.is_labelled]
    if unlabelled:
        has_latency = any(result in timed for result in unlabelled)
        latencies = f", and the latencies are {_words_of(results)}" if has_latency else ""
        alone = " or `streaming-asr compare talk.wav` for methods side by side"
        remarks.append(
            f"no reference: without texts next to the audio no errors can be counted{latencies}; "
            "put talk.txt next to talk.wav and give data.align=auto for errors and latencies"
            f"{',' + alone if len(results) == 1 else ''}"
        )
    if 0 < (n := n_recordings(results)) < FEW:
        remarks.append(f"few recordings ({n}): chance decides much of such a WER; run more of them")
    for name in dict.fromkeys(result.aligner for result in timed if result.aligner):
        error = "whose error was not measured"
        if name in ALIGNER_ERRORS_MS:
            edges, ends = ALIGNER_ERRORS_MS[name]
            error = f"median error {edges} ms, at word ends {ends} ms, on synthetic speech"
        remarks.append(f"word times: {name}, {error}; latencies count from these ends")
    return remarks


def missing_intervals(results: Sequence[Result]) -> list[str]:
    """Return why there are no 95 % intervals, where no run has one."""
    judged = [result for result in results if result.metrics.get("wer") is not None]
    if not judged or any(result.intervals for result in judged):
        return []
    return [
        f"no intervals: they need {LEAST} or more speakers, recordings or utterances to draw from, "
        "and some that differ"
    ]


def shared_settings(results: Sequence[Result]) -> set[str]:
    """Return the settings that all rows share, which no row then repeats; none of a single row."""
    if len(results) < 2:
        return set()
    return set.intersection(*(set(result.variant.split()) for result in results))


def model_of_all(results: Sequence[Result]) -> set[str]:
    """Return {`model=<name>`} if all rows are of one model and no row names it; else set()."""
    models = {result.model for result in results} - {""}
    is_in_a_row = any(
        word.startswith("model=") for result in results for word in result.variant.split()
    )
    return {f"model={name}" for name in models} if len(models) == 1 and not is_in_a_row else set()
