"""The segments of a cell: its transcription with times, next to the log."""

from __future__ import annotations

from pathlib import Path

from streaming_asr.cells.folder import EVENTS, SEGMENTS
from streaming_asr.events.log import committed_words, read_log
from streaming_asr.files import write_text
from streaming_asr.method import Word
from streaming_asr.text.subtitles import segments

HEADER = "utterance\tstart_s\tend_s\ttext"


def write_segments(folder: Path) -> Path:
    """Write the segments of a cell's log to `segments.tsv` next to it, seconds with two decimals.

    A recording that failed has none. Raises ValueError where words have no times.
    """
    lines = [HEADER]
    for log in read_log(folder / EVENTS).utterances:
        words = [Word(text, *times) for text, times in committed_words(log.steps)]
        lines += [f"{log.utt}\t{s.start:.2f}\t{s.end:.2f}\t{s.text}" for s in segments(words)]
    return write_text(folder / SEGMENTS, "\n".join(lines) + "\n")
