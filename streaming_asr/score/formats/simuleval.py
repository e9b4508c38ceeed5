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
from streaming_asr.events.log import Log, Step
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
        of_utterance = trace(utterance)
        tokens = of_utterance.units(of_utterance.hypothesis)
        commits = commit_steps(of_utterance)  # the step of each token
        if unit == "character":
            # SimulEval counts each code point, also of a word of Latin letters, which is one token.
            commits = [
                step for token, step in zip(tokens, commits, strict=True) for _ in range(len(token))
            ]
        separator = " " if unit == "word" else ""
        steps = utterance.steps if utterance.status == "ok" else []
        row: dict[str, Any] = {
            "index": index,
            "prediction": separator.join(tokens),
            "delays": _times_ms(steps, commits, "cu"),
        }
        if CA in metadata and of_utterance.batch == 1:
            row["elapsed"] = _times_ms(steps, commits, "simuleval")
            row["elapsed_fifo"] = _times_ms(steps, commits, "ca")
        row |= {
            "prediction_length": len(commits),
            "reference": separator.join(of_utterance.units(of_utterance.reference)),
            "source": [f"{of_utterance.utt}.wav"],
            "source_length": of_utterance.duration_s * 1000.0,
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    return [write_lines(folder / FILE, lines)]


def _times_ms(steps: Sequence[Step], commits: Sequence[int], rule: str) -> list[float]:
    """Return when the steps with the indices `commits` happened, by a rule of clocks.RULES."""
    times_ms = clocks.step_times(steps, rule) * 1000.0
    return [round(float(times_ms[k]), 6) for k in commits]


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
    """Return the emissions, words with equal times in one.

    delays_ms: audio received at each word. times_ms: when each word was emitted with compute, empty
    if unknown; `queued`: as f_k of a queue, else as SimulEval's `elapsed`, the audio received plus
    all compute so far. The compute of steps without a word then goes to the next word: f_k is never
    earlier than it was, and never later than `elapsed`.
    """
    emissions: list[Emission] = []
    compute_so_far_ms = 0.0
    times_or_none: Sequence[float | None] = times_ms or [None] * len(words)
    rows = zip(delays_ms, times_or_none, words, strict=True)
    for (delay_ms, time_ms), rows_of_emission in groupby(rows, key=itemgetter(0, 1)):
        finished_s = compute_s = None
        if time_ms is not None and queued:
            finished_s = time_ms / 1000.0
        elif time_ms is not None:
            compute_ms = time_ms - delay_ms
            compute_s = (compute_ms - compute_so_far_ms) / 1000.0
            compute_so_far_ms = compute_ms
        emissions.append(
            Emission(
                tuple(word for _, _, word in rows_of_emission),
                audio_s=delay_ms / 1000.0,
                finished_s=finished_s,
                compute_s=compute_s,
            )
        )
    return tuple(emissions)
