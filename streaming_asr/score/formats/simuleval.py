"""SimulEval's instances.log: one JSON object per recording, a time for every word.

    {"index", "prediction", "delays", "elapsed", "prediction_length", "reference", "source",
     "source_length"}

`delays` are the audio received when each whitespace token of `prediction` was emitted, or in a
language without spaces each character (--eval-latency-unit char); `elapsed` is that plus all
compute so far, both in ms; `source_length` is the duration in ms. Written logs carry
one key more, `elapsed_fifo`: the same times in a first-in first-out queue. SimulEval ignores it,
OmniSTEval reads it with `--emission_ca_key elapsed_fifo`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from streaming_asr.corpora.rows import Time, names_of, write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.metrics import clocks, trace
from streaming_asr.metrics.latency import commit_steps
from streaming_asr.metrics.table import CA, COMMITS, CU, known_of
from streaming_asr.score.formats.foreign import (
    Emission,
    ForeignRecording,
    check_words,
    typed_rows,
    unit_of_log,
)

FILE = "instances.log"


def write(log: Log, folder: Path) -> list[Path]:
    """Write folder/instances.log. A failed utterance has an empty prediction.

    Raises UserError for a log without audio times. `elapsed` is left out where recordings shared
    their compute or it was never known.
    """
    metadata = known_of(log.header)
    unit = unit_of_log(log)
    if CU not in metadata:
        raise UserError(
            "instances.log needs the audio received at each word, which this log does not tell; "
            "export it as whisper_online."
        )
    lines = []
    for index, utterance in enumerate(log.utterances):
        seen = trace(utterance)
        tokens = seen.units(seen.hypothesis)
        of_token = commit_steps(seen)
        if unit == "character":  # SimulEval counts code points, of a word of Latin letters each
            of_token = [
                k for token, k in zip(tokens, of_token, strict=True) for _ in range(len(token))
            ]
        between = " " if unit == "word" else ""
        steps = utterance.steps if utterance.status == "ok" else []

        def at(clock: str, steps: Any = steps, of_token: Any = of_token) -> list[float]:
            times = clocks.step_times(steps, clock) * 1000.0
            return [round(float(times[k]), 6) for k in of_token]

        row: dict[str, Any] = {
            "index": index,
            "prediction": between.join(tokens),
            "delays": at("cu"),
        }
        if CA in metadata and seen.batch == 1:
            row |= {"elapsed": at("simuleval"), "elapsed_fifo": at("ca")}
        row |= {
            "prediction_length": len(of_token),
            "reference": between.join(seen.units(seen.reference)),
            "source": [f"{seen.utt}.wav"],
            "source_length": seen.duration_s * 1000.0,
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    return [write_lines(folder / FILE, lines)]


class Instance(msgspec.Struct):
    """A line of instances.log, as far as it is read."""

    prediction: str
    delays: list[Time]
    elapsed: list[Time] = []
    elapsed_fifo: list[Time] | None = None  # ours alone
    reference: str | None = None
    source: str | list[str] | None = None
    source_length: Time | None = None
    prediction_length: int | None = None
    index: int | None = None


def read(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of an instances.log, and what it knows (of table.EVERYTHING)."""
    recordings: list[ForeignRecording] = []
    with_compute = True
    for where, row in typed_rows(path, Instance):
        words = [f" {word}" for word in row.prediction.split()]
        check_words(row.prediction.split(), where)
        if row.prediction_length is not None and row.prediction_length != len(row.delays):
            raise UserError(
                f"{where}: `prediction_length` is {row.prediction_length} with {len(row.delays)} "
                "delays; the file contradicts itself."
            )
        if len(words) != len(row.delays) == len(row.prediction):
            words = list(row.prediction)  # made with --eval-latency-unit char
        if len(words) != len(row.delays):
            raise UserError(
                f"{where}: {len(words)} words with {len(row.delays)} delays; the latency unit must "
                "be word or char."
            )
        queued = row.elapsed_fifo is not None
        times_ms = row.elapsed_fifo or row.elapsed
        if len(times_ms) != len(words):
            with_compute = with_compute and not words
            times_ms = []
        sources = [row.source] if isinstance(row.source, str) else row.source
        recordings.append(
            ForeignRecording(
                names_of((sources or [str(row.index)])[0]),
                _emissions(words, row.delays, times_ms, queued=queued),
                row.reference,
                None if row.source_length is None else row.source_length / 1000.0,
            )
        )
    return recordings, {CU, CA, COMMITS} if with_compute else {CU, COMMITS}


def _emissions(
    words: Sequence[str], delays_ms: Sequence[float], times_ms: Sequence[float], *, queued: bool
) -> tuple[Emission, ...]:
    """Return the emissions, the words of one moment together. `queued`: `times_ms` are f_k, else
    a_k + all compute so far.

    In the latter case the compute of silent steps falls to the next word: f_k is then never
    earlier than it was, and never later than `elapsed`.
    """
    emissions: list[Emission] = []
    spent_ms = 0.0
    told_ms: Sequence[float | None] = times_ms or [None] * len(words)
    rows = zip(delays_ms, told_ms, words, strict=True)
    for (delay_ms, time_ms), together in groupby(rows, key=itemgetter(0, 1)):
        finished_s = compute_s = None
        if time_ms is not None and queued:
            finished_s = time_ms / 1000.0
        elif time_ms is not None:
            total_ms = time_ms - delay_ms
            compute_s = (total_ms - spent_ms) / 1000.0
            spent_ms = total_ms
        emissions.append(
            Emission(
                tuple(word for _, _, word in together),
                audio_s=delay_ms / 1000.0,
                finished_s=finished_s,
                compute_s=compute_s,
            )
        )
    return tuple(emissions)
