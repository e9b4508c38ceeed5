"""The headline columns as a table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.config.defaults import ALIGNER_ERRORS_MS
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.intervals import LEAST
from streaming_asr.score.limits import SHORT
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
    """Return the heading of a headline metric on one line and its digits; None for the others."""
    for each, heading, digits in HEADLINE:
        if each == name:
            return heading.replace("\n", " "), digits
    return None


def sort_key(text: str | None) -> str:
    """Return the metric that `--sort` names, WER for None. Raises UserError for another name."""
    name = SHORT.get(text or "wer", text or "wer")
    if name not in METRICS:
        near = did_you_mean(name, [*SHORT, *METRICS]) or "; score --list shows them all"
        raise UserError(f"--sort {text}: no such metric{near}")
    return name


def ranked(results: Sequence[Result], metric: str = "wer") -> list[Result]:
    """Return the cells, those of one data together, the best by `metric` first; those that have no
    such number are last."""

    def place(result: Result) -> tuple[bool, str, bool, float, float]:
        value = result.metrics.get(metric)
        failed = result.error is not None
        return failed, result.split, value is None, *_merit(result, metric)

    return sorted(results, key=place)


def _merit(result: Result, metric: str) -> tuple[float, float]:
    """Return what sorts cells by a metric, the least first; of equals, the one whose words are
    final soonest."""
    sign = -1 if METRICS[metric].better == "higher" else 1
    return sign * (result.metrics.get(metric) or 0.0), result.or_last(MAIN[1])


def best_of(results: Sequence[Result], metric: str = "wer") -> list[Result]:
    """Return for each data the streaming cell that is best by `metric`, where several can be
    compared and differ."""
    able = [
        result
        for result in ranked(results, metric)
        if not (result.error or result.is_odd or BATCH in result.notes)
        and result.method != "offline"
        and result.metrics.get(metric) is not None
    ]
    best = []
    for split in dict.fromkeys(result.split for result in able):
        here = [result for result in able if result.split == split]
        if _merit(here[0], metric) != _merit(here[-1], metric):
            best.append(here[0])
    return best


def table(folder: Path | str, *, wide: bool = False, sort: str | None = None) -> Group:
    """Return the results under `folder`, one row per cell, and what must be known of them below.

    It has the columns of MAIN, and more of HEADLINE where the screen has room; wide: all of them,
    in several tables if need be. The rows of one data stand together, the best by the metric `sort`
    first. The title has what all rows share. Word latency is after the end of the word, with
    compute (the FIFO clock). Raises UserError where `folder` holds no result.
    """
    from rich.console import Group
    from rich.text import Text

    metric = sort_key(sort)
    results = ranked(read_results(folder), metric)
    shared = shared_settings(results)
    splits = {result.split for result in results}
    columns = _columns(results, metric)
    best = best_of(results, metric)
    remarks: list[str] = []
    rows = []
    for result in results:
        notes = [*result.notes, *([f"failed: {result.error}"] if result.error else [])]
        if notes and (remark := "; ".join(notes)) not in remarks:
            remarks.append(remark)
        mark = ["*"] if result in best else []
        mark += [f"[{remarks.index('; '.join(notes)) + 1}]"] if notes else []
        name = " ".join(
            [result.method, *(w for w in result.variant.split() if w not in shared), *mark]
        )
        split = [result.split] if len(splits) > 1 else []
        numbers = [
            "failed"
            if result.error and at == 0
            else format_number(result.metrics.get(name), digits)
            for at, (name, _, digits) in enumerate(columns)
        ]
        rows.append([name, *split, result.chunk, *numbers])
    heads = ["method", *(["data"] if len(splits) > 1 else []), "chunk"]
    at_of = {name: at for at, (name, _, _) in enumerate(columns, start=len(heads))}
    title = [*(splits if len(splits) == 1 else ()), *model_of_all(results), *sorted(shared)]
    grid = Grid(
        [*heads, *(heading for _, heading, _ in columns)],
        rows,
        text_columns=range(len(heads) - 1),
        title=" · ".join(filter(None, title)),
        spare=() if wide else [at_of[n] for n in SPARE if n in at_of and n != metric],
        legend=_legend(at_of, metric, bool(best)),
        styles=["red" if r.error else "bold" if r in best else None for r in results],
    )
    remarks = [f"[{at}] {text}" for at, text in enumerate(remarks, start=1)]
    texts = map(wrapped, [*remarks, *remarks_of(results)])
    # A path in a remark stays in one piece, to be copied.
    return Group(grid, *(Text(text, no_wrap=True, overflow="ignore") for text in texts))


def _columns(results: Sequence[Result], metric: str) -> list[tuple[str, str, int]]:
    """Return name, heading and digits of the columns that some run has a number for: recordings
    without texts have no errors to count. The metric that sorts is one of them."""
    first = [each for each in HEADLINE if each[0] == metric]
    if not first:
        first = [(metric, f"{metric.replace('_', ' ')}\n{METRICS[metric].unit}".strip(), 3)]
    columns = [*HEADLINE, *(each for each in first if each not in HEADLINE)]
    return [
        each
        for each in columns
        if any(result.metrics.get(each[0]) is not None or result.error for result in results)
    ]


def _legend(at_of: Mapping[str, int], metric: str, has_best: bool) -> dict[int, str]:
    """Return what the columns mean, by their place; the first says what is better."""
    sorted_by = (heading_of(metric) or (metric,))[0].removesuffix(" %")
    legend = {at_of[name]: text for name, text in MEANINGS.items() if name in at_of}
    star = f"* the streaming run that is best by {sorted_by}. " if has_best else ""
    higher = ", except coverage" if "word_latency_coverage" in at_of else ""
    return {0: f"{star}Lower is better{higher}", **legend}


def remarks_of(results: Sequence[Result]) -> list[str]:
    """Return what must be known of all runs together: on the page as in the terminal."""
    remarks = []
    if not all(result.is_labelled for result in results):
        late = any(r.metrics.get(MAIN[1]) is not None for r in results if not r.is_labelled)
        of = ", and the latencies are of words that one method transcribed" if late else ""
        remarks.append(
            f"no reference: without texts next to the audio no errors can be counted{of}; put "
            "talk.txt next to talk.wav and give data.align=auto for errors and latencies, or "
            "`streaming-asr compare talk.wav` for methods side by side"
        )
    judged = [result for result in results if result.metrics.get("wer") is not None]
    n = max((result.document.get("n_utterances") or 0 for result in judged), default=0)
    if 0 < n < FEW:
        remarks.append(f"few recordings ({n}): chance decides much of such a WER; run more of them")
    return [*remarks, *errors_of_times(results)]


def errors_of_times(results: Sequence[Result]) -> list[str]:
    """Return for each aligner that timed the words of a run's latency how wrong its times are."""
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
    """Return the settings that all of several rows share, which no row need repeat."""
    return (
        set.intersection(*(set(r.variant.split()) for r in results)) if len(results) > 1 else set()
    )


def model_of_all(results: Sequence[Result]) -> set[str]:
    """Return the model where all rows are of one and none names it."""
    models = {result.model for result in results} - {""}
    named = any(word.startswith("model=") for result in results for word in result.variant.split())
    return {f"model={name}" for name in models} if len(models) == 1 and not named else set()
