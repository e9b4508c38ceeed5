"""SimulStreaming's JSONL, one file per recording, a line per emission (read only):

    {"start": 0.0, "end": 1.7, "text": " And so", "tokens": [..], "emission_time": 2.4,
     "words": [{"start": 0.0, "end": 0.5, "text": " And", "tokens": [..]}, ..]}

Times are in seconds; `emission_time` is the time the line appeared or, in the mode
--comp_unaware, the audio received. The file does not say which.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from streaming_asr.corpora.rows import files
from streaming_asr.metrics.table import CA, COMMITS, CU
from streaming_asr.score.formats.foreign import (
    Emission,
    ForeignRecording,
    Time,
    file_name,
    typed_rows,
)
from streaming_asr.text.normalise import pieces


class Word(msgspec.Struct):
    """A word of a line, with when it was spoken."""

    text: str
    start: Time
    end: Time


class Row(msgspec.Struct):
    """A line, as far as it is read."""

    emission_time: Time
    text: str | None = None
    words: list[Word] | None = None


def read(path: Path, *, comp_unaware: bool = False) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recording of a file, or the recordings of a folder of *.jsonl, by file name.

    It knows one clock: the audio clock where `comp_unaware`, else the compute clock.
    """
    recordings = []
    for file in files(path, (".jsonl", ".json")):
        emissions = []
        for _, row in typed_rows(file, Row):
            words = row.words or []
            text = row.text or ""
            # Where the words are another view of the text, the text counts.
            same = "".join(word.text for word in words) == text
            emissions.append(
                Emission(
                    tuple(word.text for word in words) if same else pieces(text),
                    audio_s=row.emission_time if comp_unaware else None,
                    finished_s=None if comp_unaware else row.emission_time,
                    words=tuple((word.start, word.end, None) for word in words) if same else None,
                )
            )
        recordings.append(ForeignRecording((file_name(file),), tuple(emissions)))
    return recordings, {CU if comp_unaware else CA, COMMITS}
