"""The text lines of UFAL's whisper_online, one file per recording, a line per emission:

    2400.0000 0 1720  And so
    emission_ms beg_ms end_ms text

The emission time is the time the line appeared, measured from the start of the recording; in the
mode --comp_unaware it is the audio received. The file does not say which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, unquote

from streaming_asr.corpora.rows import files, numbers, text_of, text_rows, write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log
from streaming_asr.metrics import clocks
from streaming_asr.metrics.table import CA, COMMITS, CU, known_of
from streaming_asr.score.formats.foreign import Emission, ForeignRecording, check_words
from streaming_asr.text.tokens import pieces

LINE = re.compile(r"(\d+(?:\.\d+)?) (-?\d+) (-?\d+) ?(.*)")


def write(log: Log, folder: Path, *, comp_unaware: bool = False) -> list[Path]:
    """Write a file folder/<utterance>.txt for each utterance, with a line for each step that
    commits text: `emission_ms beg_ms end_ms text`. Return the files.

    The emission time is f_k, with `comp_unaware` a_k. Without word times, a line begins where the
    one before it ended and ends at a_k. Raises UserError if the log does not have that clock, and
    if a step takes committed words back.
    """
    clock, needed = ("cu", CU) if comp_unaware else ("ca", CA)
    if needed not in known_of(log.header) or (
        not comp_unaware and any(utterance.batch > 1 for utterance in log.utterances)
    ):
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
            times = [(start, end) for start, end, _ in step.words or ()]
            starts = [start for start, _ in times if start is not None]
            ends = [end for _, end in times if end is not None]
            begin_s, end_s = min(starts, default=end_s), max(ends, default=step.audio_s)
            text = "".join(step.committed).replace("\n", " ")
            times_ms = f"{emission_s * 1000:.4f} {begin_s * 1000:.0f} {end_s * 1000:.0f}"
            lines.append(f"{times_ms} {text}")
        paths.append(write_lines(folder / f"{quote(utterance.utt, safe=' ')}.txt", lines))
    return paths


def read(path: Path, *, comp_unaware: bool = False) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recording of a file, or the recordings of a folder of *.txt, by file name.

    It knows one clock: the audio clock where `comp_unaware`, else the compute clock.
    """
    recordings = []
    for file in files(path, (".txt", ".log", ".out")):
        rows: list[tuple[float, str]] = []
        end_s = None
        for where, line in text_rows(file):
            match = LINE.fullmatch(line)
            if match is None:
                raise UserError(
                    f"{where}: {line[:60]!r} is not `emission_ms beg_ms end_ms text`; keep the "
                    "program's standard output, without other lines."
                )
            rows.append((numbers([match[1]], where)[0] / 1000.0, match[4]))
            end_s = max(end_s or 0.0, float(match[3]) / 1000.0)
            check_words(match[4].split(), where)
        # Some back ends write the blank before a word, others leave it to the reader.
        separator = "" if any(text.startswith(" ") for _, text in rows) else " "
        emissions = tuple(
            Emission(
                pieces(separator + text),
                audio_s=emission_s if comp_unaware else None,
                finished_s=None if comp_unaware else emission_s,
            )
            for emission_s, text in rows
        )
        recordings.append(
            ForeignRecording(
                (unquote(file.stem),),
                emissions,
                blank_before="lines" if separator else None,
                text_end_s=end_s,
                notes=_torn(file, rows),
            )
        )
    return recordings, {CU if comp_unaware else CA, COMMITS}


def _torn(file: Path, rows: Sequence[tuple[float, str]]) -> tuple[str, ...]:
    """Return the note on a last line that the program may not have written to its end."""
    if not rows or text_of(file).endswith("\n"):
        return ()
    return (f"its last line, {rows[-1][1].strip()!r}, has no line end: it may be cut short",)
