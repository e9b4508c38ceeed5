"""Plays paced sessions to somebody's server, more and more at once, and prints how far it lags.

    streaming-asr load ws://127.0.0.1:8000/v1/realtime streams=1,2,4,8

Each stream is `method=remote` on the recordings of a corpus, one session for each, at their own
speed; the streams begin spread over a second, each with another recording. Lag is the time from the
end of a spoken word to its being final, of the right words of all streams. The next number of
streams is tried as long as the 95th percentile is within the budget.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from streaming_asr.chunking import parse_duration
from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.events.log import SLIP_S, EventWriter, read_log
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.metrics import traces
from streaming_asr.metrics.latency import summary, timed
from streaming_asr.simulate.feeds import simulate
from streaming_asr.terminal import format_number, show_table, with_settings
from streaming_asr.utterance import Utterance

ABOUT = """\
usage: streaming-asr load URL [KEY=VALUE ...]

  streams=1,2,4,8   how many at once, in turn
  budget=3s         where the 95th percentile of lag passes it, no more are tried
  limit=4           recordings of each stream
  method.KEY=VALUE  settings of method=remote: protocol, served, patience_s ...
  data=voices       any corpus whose words have times; chunk=100ms: what is sent at once

examples
  streaming-asr load ws://127.0.0.1:8000/v1/realtime streams=1,2,4,8
  streaming-asr load ws://127.0.0.1:8000/v1/listen method.protocol=deepgram budget=5s"""

HEADS = ("streams", "sessions", "errors", "lag p50 s", "lag p95 s", "fed late s")
SPREAD_S = 1.0  # over which the streams begin


class LoadRow(NamedTuple):
    """What `n` streams got; lags in seconds, None where no right word was final."""

    n: int
    sessions: int
    errors: list[str]
    p50: float | None
    p95: float | None
    slip_s: float  # the latest that this machine fed a chunk

    def is_within(self, budget_s: float) -> bool:
        """Return whether the lag is within the budget and no session failed."""
        return self.p95 is not None and self.p95 <= budget_s and not self.errors

    def texts(self) -> list[str]:
        """Return the row as the table shows it, in the order of `HEADS`."""
        lags = (format_number(self.p50, 2), format_number(self.p95, 2))
        return [str(self.n), str(self.sessions), str(len(self.errors)), *lags, f"{self.slip_s:.2f}"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, 1 where not one stream is carried."""
    return with_settings(ABOUT, _load, argv, resumes=False)


def _load(arguments: list[str]) -> int:
    if not arguments or "://" not in arguments[0].partition("=")[0]:
        raise UserError(
            "load: needs the server's address first, as in "
            "streaming-asr load ws://127.0.0.1:8000/v1/realtime"
        )
    url, line = arguments[0], CommandLine(arguments[1:])
    counts = _counts(line.pop("streams", "1,2,4,8") or "")
    budget_s = parse_duration(line.pop("budget", "3s") or "", "budget") / 1000
    method, utterances, chunk = _composed(url, line)
    rows: list[LoadRow] = []
    audio_s = sum(each.duration_s for each in utterances)
    print(f"plays {audio_s:.0f} s of audio to {url} for each number of streams", flush=True)
    for row in measure(method, utterances, counts, budget_s, chunk):
        rows.append(row)
        reason = f"; first error: {row.errors[0]}" if row.errors else ""
        print(f"{row.n} streams: lag p95 {format_number(row.p95, 2)} s{reason}", flush=True)
    show_table(HEADS, [row.texts() for row in rows], text_columns=())
    within = [row.n for row in rows if row.is_within(budget_s)]
    most = f"{max(within)} streams" if within else "not one stream"
    print(f"{most} within a lag p95 of {budget_s:g} s without an error, of those tried")
    if any(row.slip_s > SLIP_S for row in rows):
        print("audio was fed late: this machine was too busy to measure so many streams")
    return 0 if within else 1


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if min(counts) < 1 or sorted(set(counts)) != counts:
        raise UserError(f"streams={text}: numbers from 1, each more than the last, as in 1,2,4,8")
    return counts


def _composed(url: str, line: CommandLine) -> tuple[Any, list[Utterance], int]:
    """Return the method, the recordings and the samples sent at once."""
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose

    line.to_server(url, limit="4")
    config = compose(line.settings, config_dir=line.config_dir)
    utterances = build(config.data).utterances(config.limit)
    if not any(each.words for each in utterances):
        raise UserError(
            f"data={config.data.name}: its words have no times, so no lag can be computed; give "
            "data.align=auto, or data=voices"
        )
    return build(config.method), utterances, parse_duration(config.chunk) * SAMPLE_RATE // 1000


def measure(
    method: Any, utterances: Sequence[Utterance], counts: Sequence[int], budget_s: float, chunk: int
) -> Iterator[LoadRow]:
    """Yield a row for each number of streams, to the first whose lag passes the budget.

    One session before them is not counted: a server may load its model with it. chunk: samples
    sent at once.
    """
    with tempfile.TemporaryDirectory() as place:
        _play(method, utterances[:1], Path(place, "first"), chunk)
        for n in counts:
            row = _row(method, utterances, n, Path(place, str(n)), chunk)
            yield row
            if row.p95 is None or row.p95 > budget_s:
                return


def _row(method: Any, utterances: Sequence[Utterance], n: int, folder: Path, chunk: int) -> LoadRow:
    """Play all utterances in each of `n` streams at once and return the table's row; the logs are
    written below `folder`. chunk: samples sent at once."""
    delays = random.Random(n)
    delay_s = [delays.uniform(0, SPREAD_S) if n > 1 else 0.0 for _ in range(n)]

    def stream(k: int) -> None:
        time.sleep(delay_s[k])
        first = k % len(utterances)  # streams play different utterances at one time
        _play(method, [*utterances[first:], *utterances[:first]], folder / str(k), chunk)

    with ThreadPoolExecutor(n) as streams:
        list(streams.map(stream, range(n)))
    logs = [read_log(folder / str(k) / "events.jsonl") for k in range(n)]
    sessions = [utterance for log in logs for utterance in log.utterances]
    lags_s: list[float] = []
    for log in logs:
        for trace in traces(log):
            if (words := timed(trace)) is not None:
                lags_s += words.latencies("committed", "ca")
    lags = summary(lags_s)
    errors = [str(each.error) for each in sessions if each.error is not None]
    slip_s = max(each.pacing_slip_s or 0.0 for each in sessions)
    return LoadRow(n, len(sessions), errors, lags["p50"], lags["p95"], slip_s)


def _play(method: Any, utterances: Sequence[Utterance], folder: Path, chunk: int) -> None:
    with EventWriter(folder / "events.jsonl", {}) as writer:
        simulate(
            method,
            utterances,
            writer=writer,
            feed="realtime",
            chunk_samples=chunk,
            first_chunk_samples=chunk,
            warm_up=False,
        )
