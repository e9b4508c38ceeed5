"""Writes our logs in other tools' formats, as `readers` describes them.

What a tool ignores is added where the reader here needs it: `elapsed_fifo` in SimulEval's lines
(OmniSTEval reads it with `--emission_ca_key elapsed_fifo`), `committed_tokens` and, in the
metadata, `failed` in simulstream's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streaming_asr.corpora.rows import write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log, Step
from streaming_asr.metrics import Trace, clocks, trace
from streaming_asr.metrics.latency import commit_steps
from streaming_asr.metrics.longform import Sentence, sentences
from streaming_asr.metrics.table import CA, COMMITS, CU, DISPLAY, STEPS, known_of
from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import Unit, unit_of, unit_pieces

LATENCY_UNITS: dict[Unit, str] = {"word": "word", "character": "char"}  # as others call them


def unit_of_log(log: Log) -> Unit:
    """Return the unit of a log's languages, since a file has one. Raises UserError for two."""
    units = {unit_of(utterance.language) for utterance in log.utterances}
    if len(units) > 1:
        raise UserError(
            "this log has languages with spaces and without; a file of this format counts either "
            "words or characters: run and export each language by itself."
        )
    return units.pop() if units else "word"


def simuleval(log: Log, folder: Path) -> list[Path]:
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
    separator = " " if unit == "word" else ""
    for index, utterance in enumerate(log.utterances):
        of_utterance = trace(utterance)
        tokens = of_utterance.units(of_utterance.hypothesis)
        commits = commit_steps(of_utterance)  # the step of each token
        if unit == "character":
            # SimulEval counts each code point, also of a word of Latin letters, which is one token.
            commits = [
                step for token, step in zip(tokens, commits, strict=True) for _ in range(len(token))
            ]
        steps = utterance.steps if utterance.status == "ok" else []
        times = {"delays": "cu"}
        if CA in metadata and of_utterance.batch == 1:
            times |= {"elapsed": "simuleval", "elapsed_fifo": "ca"}
        row = {
            "index": index,
            "prediction": separator.join(tokens),
            **{name: _times_ms(steps, commits, rule) for name, rule in times.items()},
            "prediction_length": len(commits),
            "reference": separator.join(of_utterance.units(of_utterance.reference)),
            "source": [f"{of_utterance.utt}.wav"],
            "source_length": of_utterance.duration_s * 1000.0,
        }
        lines.append(json.dumps(row, ensure_ascii=False))
    return [write_lines(folder / "instances.log", lines)]


def _times_ms(steps: Sequence[Step], commits: Sequence[int], rule: str) -> list[float]:
    """Return when the steps with the indices `commits` happened, by a rule of clocks.RULES."""
    times_ms = clocks.step_times(steps, rule) * 1000.0
    return [round(float(times_ms[k]), 6) for k in commits]


def simulstream(log: Log, folder: Path) -> list[Path]:
    """Write folder/metrics.jsonl, and what simulstream's own tools need to know of it: how tokens
    become text in evaluation.yaml, where the sentences lie in segments.yaml and references.txt.

    Raises UserError for a log that does not know every step and both clocks.
    """
    needed = {CU, CA, STEPS, DISPLAY, COMMITS}
    if needed - known_of(log.header) or any(u.batch > 1 for u in log.utterances):
        raise UserError(
            "simulstream's log holds every step with its compute, which this log does not tell; "
            "run with batch=1, or export it as simuleval."
        )
    unit = unit_of_log(log)
    lines, segments, references = [], [], []
    for number, utterance in enumerate(log.utterances):
        of_utterance = trace(utterance)
        wav = f"{of_utterance.utt}.wav"
        metadata = {"wav_name": wav}
        if of_utterance.error is not None:
            metadata["failed"] = of_utterance.error
        rows: list[dict[str, Any]] = [{"id": number, "metadata": metadata}]
        rows += _rows(of_utterance, number, unit)
        lines += [json.dumps(row, ensure_ascii=False) for row in rows]
        reference = " ".join(of_utterance.reference.split())
        whole = Sentence(reference, 0.0, of_utterance.duration_s)
        for sentence in sentences(of_utterance) or [whole]:
            segments.append(
                f"- {{wav: {json.dumps(wav, ensure_ascii=False)}, offset: {sentence.start_s:.6f}, "
                f"duration: {sentence.end_s - sentence.start_s:.6f}}}"
            )
            references.append(sentence.text)
    settings = ["detokenizer_type: simuleval", f"latency_unit: {LATENCY_UNITS[unit]}"]
    return [
        write_lines(folder / "metrics.jsonl", lines),
        write_lines(folder / "evaluation.yaml", settings),
        write_lines(folder / "segments.yaml", segments),
        write_lines(folder / "references.txt", references),
    ]


def _rows(utterance: Trace, number: int, unit: Unit) -> list[dict[str, Any]]:
    """Return the lines of an utterance's steps: the tokens that each adds to the display, those
    that it deletes, and how many are committed.

    The number is left out if committed tokens of a step are not the first ones of its display: a
    partial text may continue the last committed word.
    """
    if not utterance.steps:  # failed: simulstream's readers need a line for every recording
        row: dict[str, Any] = {"id": number, "total_audio_processed": utterance.duration_s}
        return [row | {"computation_time": 0.0, "generated_tokens": [], "deleted_tokens": []}]
    committed = [_tokens(step.committed, unit) for step in utterance.steps]
    displayed = [_tokens(step.displayed, unit) for step in utterance.steps]
    tells_commits = all(
        tokens[: len(final)] == final for tokens, final in zip(displayed, committed, strict=True)
    )
    rows = []
    tokens: list[str] = []
    for k, step in enumerate(utterance.steps):
        tokens_before, tokens = tokens, displayed[k]
        n_common = common_prefix(tokens_before, tokens)
        row = {
            "id": number,
            "total_audio_processed": step.audio_s,
            "computation_time": step.compute_s,
            "generated_tokens": tokens[n_common:],
            "deleted_tokens": tokens_before[n_common:],
        }
        if tells_commits:
            row["committed_tokens"] = len(committed[k])
        rows.append(row)
    return rows


def _tokens(text: str, unit: Unit) -> list[str]:
    """Return the tokens of a text: words, which simulstream joins with blanks, or characters, which
    it joins as they are, so that a character after a blank includes the blank."""
    return text.split() if unit == "word" else list(unit_pieces(text, unit))


def whisper_online(log: Log, folder: Path, *, comp_unaware: bool = False) -> list[Path]:
    """Write a file folder/<utterance>.txt for each utterance, with a line for each step that
    commits text. Return the files.

    The emission time is f_k, with `comp_unaware` a_k. Without word times, a line begins where the
    one before it ended and ends at a_k. Raises UserError if the log does not have that clock, and
    if a step takes committed words back.
    """
    clock, needed = ("cu", CU) if comp_unaware else ("ca", CA)
    is_shared = not comp_unaware and any(utterance.batch > 1 for utterance in log.utterances)
    if needed not in known_of(log.header) or is_shared:
        other = "leave --comp-unaware out" if comp_unaware else "add --comp-unaware"
        raise UserError(f"this log does not tell the {needed}; {other}.")
    paths = []
    for utterance in log.utterances:
        steps = utterance.steps if utterance.status == "ok" else []
        lines = []
        end_s = 0.0
        for step, emission_s in zip(steps, clocks.step_times(steps, clock), strict=True):
            if step.retracted:
                raise UserError(
                    f"{utterance.utt}: takes committed words back, which these lines cannot hold; "
                    "export it as simulstream."
                )
            if not "".join(step.committed).strip():
                continue
            starts = [start for start, _, _ in step.words or () if start is not None]
            ends = [end for _, end, _ in step.words or () if end is not None]
            begin_s, end_s = min(starts, default=end_s), max(ends, default=step.audio_s)
            text = "".join(step.committed).replace("\n", " ")
            times_ms = f"{emission_s * 1000:.4f} {begin_s * 1000:.0f} {end_s * 1000:.0f}"
            lines.append(f"{times_ms} {text}")
        paths.append(write_lines(folder / f"{quote(utterance.utt, safe=' ')}.txt", lines))
    return paths
