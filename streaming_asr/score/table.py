"""The headline columns as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.config.defaults import ALIGNER_ERRORS_MS
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST
from streaming_asr.score.judge import metric_named
from streaming_asr.score.results import BATCH, Result, read_results
from streaming_asr.terminal import Grid, console, format_number, wrapped

if TYPE_CHECKING:
    from rich.console import Group

# metrics.json's name, heading, digits; the headings' units are part of them.
HEADLINE = (
    ("wer", "WER\n%", 1),
    ("arwer_grid_ca", "ARWER\ngrid %", 1),
    ("word_latency_committed_p50_ca_s", "commit\np50 s", 2),
    ("word_latency_committed_p90_ca_s", "commit\np90 s", 2),
    ("word_latency_shown_p50_ca_s", "shown\np50 s", 2),
    ("word_latency_coverage", "coverage\n%", 0),
    ("rtf_total", "RTF", 3),
    ("rtf_cpu", "RTF\nCPU", 2),
    ("normalised_erasure", "erasure", 2),
)
# The columns that a table of 80 has room for.
MAIN = (
    "wer",
    "word_latency_committed_p50_ca_s",
    "word_latency_committed_p90_ca_s",
    "word_latency_coverage",
    "rtf_total",
)
# The others, in the order in which a table leaves them out until it fits the screen.
SPARE = ("rtf_cpu", "normalised_erasure", "arwer_grid_ca", "word_latency_shown_p50_ca_s")
MEANINGS = {
    "wer": "WER: word errors per 100 words spoken",
    "arwer_grid_ca": "ARWER: WER of the screen every 100 ms",
    "word_latency_committed_p50_ca_s": "commit p50, p90: from a word's end until it is final, "
    "computing included, for 50 and 90 % of the correct words",
    "word_latency_shown_p50_ca_s": "shown: until it is first on the screen",
    "word_latency_coverage": "coverage: correct words with a latency",
    "rtf_total": "RTF: computing per second of audio",
    "rtf_cpu": "RTF CPU: processor time per second of audio",
    "normalised_erasure": "erasure: words taken back per final word",
}
SORT_HELP = "the metric that sorts the rows, the best first, as commit_p50; default wer"
WIDE_HELP = "show all columns, in several tables on a narrow screen"
FEW = 20  # recordings, of which a WER says little


def heading_of(name: str) -> tuple[str, int] | None:
    """Return the heading (on one line) and the number of decimals of a metric of HEADLINE; None for
    other metrics."""
    for metric, heading, digits in HEADLINE:
        if metric == name:
            return heading.replace("\n", " "), digits
    return None


def ranked(results: Sequence[Result], metric: str = "wer") -> list[Result]:
    """Return the cells sorted by corpus and, of one corpus, the best by `metric` first and those
    without the metric last; failed cells are at the end."""

    def rank(result: Result) -> tuple[bool, str, bool, float, float]:
        value = result.metrics.get(metric)
        failed = result.error is not None
        return failed, result.split, value is None, *_merit(result, metric)

    return sorted(results, key=rank)


def _merit(result: Result, metric: str) -> tuple[float, float]:
    """Return the sort key of a cell by a metric: the best cell has the lowest; between equals the
    median commit latency decides."""
    sign = -1 if METRICS[metric].better == "higher" else 1
    return sign * (result.metrics.get(metric) or 0.0), result.or_last(MAIN[1])


def best_of(results: Sequence[Result], metric: str = "wer") -> list[Result]:
    """Return for each corpus the streaming cell that is best by `metric`; none for a corpus with
    one comparable cell, or where all are equal."""
    comparable = [
        result
        for result in ranked(results, metric)
        if not (result.error or result.is_odd or BATCH in result.notes)
        and result.method != "offline"
        and result.metrics.get(metric) is not None
    ]
    best = []
    for split in dict.fromkeys(result.split for result in comparable):
        of_split = [result for result in comparable if result.split == split]
        first, last = of_split[0], of_split[-1]
        if _merit(first, metric) != _merit(last, metric):
            best.append(first)
    return best


def table(folder: Path | str, *, wide: bool = False, sort: str | None = None) -> Group:
    """Return the results under `folder` as a table, a row for each cell, with remarks below.

    It has the columns of MAIN, and more of HEADLINE if the screen has room. wide: all columns, in
    several tables if needed. sort: the metric whose best value comes first within each corpus. The
    title has the settings that all rows share. Word latency counts from the end of the word, with
    compute (the FIFO clock). Raises UserError if `folder` holds no result.
    """
    from rich.console import Group
    from rich.text import Text

    metric = metric_named(sort or "wer", "--sort")
    results = ranked(read_results(folder), metric)
    shared = shared_settings(results)
    splits = {result.split for result in results}
    columns = _columns(results, metric)
    best = best_of(results, metric)
    has_several = len(splits) > 1
    notes, numbers_of = numbered_notes(results)
    rows = []
    for result in results:
        label = [result.method, *(word for word in result.variant.split() if word not in shared)]
        if result in best:
            label.append("*")
        if numbers := numbers_of[result.folder]:
            label.append(f"[{numbers}]")
        values = [format_number(result.metrics.get(name), digits) for name, _, digits in columns]
        if result.error and values:
            values[0] = "failed"
        split = [result.split] if has_several else []
        rows.append([" ".join(label), *split, result.chunk, *values])
    heads = ["method", "data", "chunk"] if has_several else ["method", "chunk"]
    column_of = {name: k for k, (name, _, _) in enumerate(columns, start=len(heads))}
    title = [*model_of_all(results), *sorted(shared)]
    if not has_several:
        title = [*splits, *title]
    grid = Grid(
        [*heads, *(heading for _, heading, _ in columns)],
        rows,
        text_columns=range(len(heads) - 1),
        title=" · ".join(filter(None, title)),
        spare=() if wide else [column_of[n] for n in SPARE if n in column_of and n != metric],
        legend=_legend(column_of, metric, bool(best)),
        styles=["red" if r.error else "bold" if r in best else None for r in results],
    )
    lines = [f"[{number}] {note}" for number, note in enumerate(notes, start=1)]
    texts = map(wrapped, [*lines, *remarks_of(results)])
    # A path in a remark stays on one line, to be copied.
    return Group(grid, *(Text(text, no_wrap=True, overflow="ignore") for text in texts))


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


def _columns(results: Sequence[Result], metric: str) -> list[tuple[str, str, int]]:
    """Return (name, heading, decimals) of HEADLINE and of the metric that sorts, without those that
    no result has a number for: recordings without texts have no errors to count. A failed result
    counts as if it had every number."""
    columns = list(HEADLINE)
    if heading_of(metric) is None:
        heading = f"{metric.replace('_', ' ')}\n{METRICS[metric].unit}".strip()
        columns.append((metric, heading, 3))
    return [
        column
        for column in columns
        if any(result.metrics.get(column[0]) is not None or result.error for result in results)
    ]


def _legend(column_of: Mapping[str, int], metric: str, has_best: bool) -> dict[int, str]:
    """Return the lines of the legend by the number of the column that they explain; the first, of
    column 0, explains the star and which direction is better.

    column_of: the column of each metric. metric: the one that sorts. has_best: a row has a star.
    """
    sorted_by = (heading_of(metric) or (metric,))[0].removesuffix(" %")
    legend = {column_of[name]: text for name, text in MEANINGS.items() if name in column_of}
    star = f"* the streaming run that is best by {sorted_by}. " if has_best else ""
    higher = ", except coverage" if "word_latency_coverage" in column_of else ""
    return {0: f"{star}Lower is better{higher}", **legend}


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
    unlabelled = [result for result in results if not result.is_labelled]
    if unlabelled:
        has_latency = any(result.metrics.get(MAIN[1]) is not None for result in unlabelled)
        latencies = f", and the latencies are {_words_of(results)}" if has_latency else ""
        alone = " or `streaming-asr compare talk.wav` for methods side by side"
        remarks.append(
            f"no reference: without texts next to the audio no errors can be counted{latencies}; "
            "put talk.txt next to talk.wav and give data.align=auto for errors and latencies"
            f"{',' + alone if len(results) == 1 else ''}"
        )
    n_utterances = max(
        (
            result.document.get("n_utterances") or 0
            for result in results
            if result.metrics.get("wer") is not None
        ),
        default=0,
    )
    if 0 < n_utterances < FEW:
        remarks.append(
            f"few recordings ({n_utterances}): chance decides much of such a WER; run more of them"
        )
    return [*remarks, *errors_of_times(results)]


def errors_of_times(results: Sequence[Result]) -> list[str]:
    """Return a remark for each aligner that timed the words of a run's latency: the median error of
    its times in ms."""
    timed = [result for result in results if result.metrics.get(MAIN[1]) is not None]
    remarks = []
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


def print_table(folder: Path | str, *, wide: bool = False, sort: str | None = None) -> None:
    """Print the results under `folder` as `table` makes them. Raises UserError as it does."""
    console().print(table(folder, wide=wide, sort=sort), crop=False)


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
