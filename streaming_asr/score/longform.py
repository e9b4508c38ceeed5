"""score longform: figures for recordings of minutes and hours (docs/ordinary.md)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import read_log
from streaming_asr.files import write_text
from streaming_asr.metrics import Trace, traces
from streaming_asr.metrics.accuracy import Errors, total, word_errors
from streaming_asr.metrics.latency import summary
from streaming_asr.metrics.longform import (
    errors_by_time,
    lag_over_time,
    long_yaal,
    sentences,
    stream_laal,
)
from streaming_asr.metrics.table import CLOCKS, known_of
from streaming_asr.score.folder import EVENTS, find_cells
from streaming_asr.terminal import command_parser, format_number, show_table, wrapped

RESULT = "longform.json"
MOST_NAMED = 5  # recordings in a remark
LAGGING = {"stream_laal": stream_laal, "long_yaal": long_yaal}

EPILOG = """\
what it computes, per cell, into longform.json
  stream_laal   LAAL of each reference sentence from its own start (needs mweralign)
  long_yaal     YAAL of the same, over the words that came before the recording's end
  wer           word error rate by the hour of the recording, or by --wer-every
  lag           latency of committed words by the minute they ended in, or by --lag-every

  All of it needs word times in the corpus: recordings without them are named, and count in WER
  only. Hours and minutes of all recordings are pooled.

example
  streaming-asr score longform outputs/long --lag-every 30
"""


def main(argv: Sequence[str]) -> int:
    """Run `score longform FOLDER`."""
    about = "Figures for long recordings: StreamLAAL, error rate and lag over time."
    parser = command_parser("streaming-asr score longform", about, EPILOG)
    parser.add_argument("folder", type=Path, help="a cell of results or a folder of cells")
    parser.add_argument("--wer-every", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--lag-every", type=float, default=60.0, metavar="SECONDS")
    arguments = parser.parse_args(argv)
    check_range(0, above=True, wer_every=arguments.wer_every, lag_every=arguments.lag_every)
    for cell in find_cells(arguments.folder):
        result = longform(cell, wer_every_s=arguments.wer_every, lag_every_s=arguments.lag_every)
        _print(cell, result)
    return 0


def longform(
    cell: Path, *, wer_every_s: float = 3600.0, lag_every_s: float = 60.0
) -> dict[str, Any]:
    """Return the figures of one cell and write them to cell/longform.json.

    wer_every_s, lag_every_s: the length of the stretches over which WER and lag are pooled. Figures
    on a clock that the log does not have are None, as are those of steps that streams shared, and
    StreamLAAL without mweralign. Raises UserError for a corpus without word times.
    """
    log = read_log(cell / EVENTS)
    utterances = traces(log)
    if not any(trace.words for trace in utterances):
        raise UserError(
            f"{cell}: its corpus has no word times, and sentences and lag need them; align it "
            "first."
        )
    metadata = known_of(log.header)
    batched = any(trace.batch > 1 for trace in utterances)
    clocks = [name for name, clock in CLOCKS.items() if clock.needs in metadata and not batched]
    lagging = _of_sentences(utterances, clocks)
    result: dict[str, Any] = {
        "n_sentences": sum(len(sentences(trace)) for trace in utterances),
        "without_word_times": [t.utt for t in utterances if not t.words and t.reference.strip()],
        "wer_every_s": wer_every_s,
        "wer": _error_rates(utterances, wer_every_s),
        "lag_every_s": lag_every_s,
    }
    for clock in CLOCKS:
        for name in LAGGING:
            result[f"{name}_{clock}_ms"] = lagging.get(name, {}).get(clock)
        result[f"lag_{clock}"] = _lags(utterances, clock, lag_every_s) if clock in clocks else None
    write_text(cell / RESULT, json.dumps(result, indent=1, allow_nan=False) + "\n")
    return result


def _of_sentences(
    traces: Sequence[Trace], clocks: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    try:
        return {name: lagging(traces, clocks) for name, lagging in LAGGING.items()}
    except UserError as error:
        print(f"note: {error}", file=sys.stderr)
        return {}


def _error_rates(traces: Sequence[Trace], every_s: float) -> list[dict[str, float | None]]:
    """Return start, reference words and WER of each stretch, all recordings pooled. Recordings
    without word times that last longer than a stretch are the last row, which has no start."""
    by_trace = [errors_by_time(trace, trace.normalise, every_s) for trace in traces]
    pooled = [total(errors) for errors in zip_longest(*by_trace, fillvalue=Errors(0, 0))]
    rows: list[tuple[float | None, Errors]] = [
        (i * every_s, errors) for i, errors in enumerate(pooled)
    ]
    others = [t for t, errors in zip(traces, by_trace, strict=True) if not errors]
    if others:
        rows.append((None, total([word_errors(trace, trace.normalise) for trace in others])))
    return [
        {"start_s": start_s, "n_words": errors.words, "wer": errors.percent()}
        for start_s, errors in rows
    ]


def _lags(traces: Sequence[Trace], clock: str, every_s: float) -> list[dict[str, float | None]]:
    return [
        {
            "start_s": i * every_s,
            "n_words": len(values),
            "mean_s": summary(values)["mean"],
            "p90_s": summary(values)["p90"],
        }
        for i, values in enumerate(lag_over_time(traces, clock, every_s))
    ]


def _print(cell: Path, result: dict[str, Any]) -> None:
    laal = [f"{clock} {format_number(result[f'stream_laal_{clock}_ms'], 0)} ms" for clock in CLOCKS]
    rates = {row["start_s"]: format_number(row["wer"], 2) for row in result["wer"]}
    other = f"; without word times: {rates.pop(None)} %" if None in rates else ""
    print(f"{cell}: {result['n_sentences']} sentences; StreamLAAL {', '.join(laal)}")
    print(f"WER every {result['wer_every_s']:g} s: {' '.join(rates.values())} %{other}")
    if untimed := result["without_word_times"]:
        names = ", ".join(untimed[:MOST_NAMED]) + ", ..." * (len(untimed) > MOST_NAMED)
        print(wrapped(f"no word times, so only in WER: {len(untimed)} recordings ({names})"))
    heads = ("from s", "words", "lag cu s", "p90 cu s", "lag ca s", "p90 ca s")
    lags = [result[f"lag_{clock}"] for clock in CLOCKS]
    rows = []
    for i, some in enumerate(lags[0] or lags[1] or ()):
        values = [
            format_number(lag[i][key], 2) if lag else "–"
            for lag in lags
            for key in ("mean_s", "p90_s")
        ]
        rows.append([f"{some['start_s']:g}", str(some["n_words"]), *values])
    show_table(heads, rows, text_columns=())
