"""How should this machine's cores be shared between encoder and decoder?

    python -m experiments.bench.profile [key=value ...]

WhisperFlow (section 4.3.2) tries the splits of the cores offline and keeps the one of the lowest
latency per word. This runs the hush word's method with the encoder beside the decoding of the round
before, `pipeline=a:b` for every split, and without the pipeline, best effort, on a few utterances.
The best one is for `method.pipeline`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.terminal import exit_status

CHUNK = "20ms"  # the least there is: rounds follow each other without a pause


@dataclass(frozen=True)
class Measured:
    """One setting: seconds from a word's end to its commit, mean; compute per audio; WER."""

    pipeline: str
    latency_s: float
    rtf: float
    wer: float


def splits(n_cores: int) -> list[str]:
    """No pipeline, then encoder and decoder threads that together fill the cores or fewer."""
    pairs = [(a, b) for a in range(1, n_cores) for b in range(1, n_cores - a + 1)]
    return ["none", *(f"{a}:{b}" for a, b in pairs or [(1, 1)])]


def measure(overrides: Sequence[str], pipeline: str, n_cores: int, limit: int) -> Measured | None:
    """Run `limit` utterances; None where no word with a time came out right."""
    import torch

    from streaming_asr.align.auto import timed_utterances
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose
    from streaming_asr.events.log import EventWriter, read_log
    from streaming_asr.metrics.corpus import compute
    from streaming_asr.metrics.trace import trace
    from streaming_asr.simulate.feeds import simulate

    fixed = ["method=hush_word", f"chunk={CHUNK}", "feed=best_effort", "tracker=none"]
    config = compose([*fixed, *overrides, f"method.pipeline={pipeline}"])
    torch.set_num_threads(n_cores)  # without a pipeline; with one the method sets its own
    method = build(config.method)
    try:
        with tempfile.TemporaryDirectory(prefix="profile-") as folder:
            log = Path(folder) / "events.jsonl"
            with EventWriter(log, {"config": {}}) as writer:
                simulate(
                    method,
                    timed_utterances(config.data, limit),
                    writer=writer,
                    feed="best_effort",
                    chunk_samples=320,
                    first_chunk_samples=9600,
                )
            logged = read_log(log).utterances
    finally:
        method.close()
    for utterance in logged:
        if utterance.error is not None:
            raise UserError(f"pipeline={pipeline}: {utterance.utt} failed: {utterance.error}")
    figures = compute([trace(utterance) for utterance in logged])
    latency, rtf, wer = (
        figures.get(key) for key in ("word_latency_committed_mean_ca_s", "rtf_total", "wer")
    )
    if latency is None or rtf is None or wer is None:
        return None
    return Measured(pipeline, latency, rtf, wer)


def profile(overrides: Sequence[str], n_cores: int, limit: int) -> Iterator[Measured]:
    """Every split in turn. Raises UserError where a setting or a run fails."""
    for pipeline in splits(n_cores):
        measured = measure(overrides, pipeline, n_cores, limit)
        if measured is None:
            raise UserError(
                f"pipeline={pipeline}: no word was recognised whose time is known; give data with "
                "word times, and more of it with --limit"
            )
        yield measured


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench.profile",
        description="Tries how encoder and decoder of method=hush_word share the cores.",
    )
    parser.add_argument("override", nargs="*", metavar="KEY=VALUE", help="as `run` has it")
    parser.add_argument("--cores", type=int, default=cores or 1, help="default: %(default)s, all")
    parser.add_argument("--limit", type=int, default=4, help="utterances; default: %(default)s")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: _print_best(arguments))


def _print_best(arguments: argparse.Namespace) -> None:
    """Print a row for every split, and the fastest."""
    if min(arguments.cores, arguments.limit) < 1:
        raise UserError("--cores, --limit: 1 or more")
    print(f"{'pipeline':>9} {'word latency':>13} {'RTF':>7} {'WER':>7}", flush=True)
    best: Measured | None = None
    for row in profile(arguments.override, arguments.cores, arguments.limit):
        print(
            f"{row.pipeline:>9} {row.latency_s:>11.3f} s {row.rtf:>7.3f} {row.wer:>5.1f} %",
            flush=True,
        )
        best = row if best is None or row.latency_s < best.latency_s else best
    assert best is not None
    print(f"best: method.pipeline={best.pipeline}")


if __name__ == "__main__":
    sys.exit(main())
