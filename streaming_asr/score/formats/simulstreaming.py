"""SimulStreaming's JSONL, one file per recording, a line per emission (read only):

    {"start": 0.0, "end": 1.7, "text": " And so", "tokens": [..], "emission_time": 2.4,
     "words": [{"start": 0.0, "end": 0.5, "text": " And", "tokens": [..]}, ..]}

Times are in seconds; `emission_time` is the time the line appeared or, in the mode
--comp_unaware, the audio received. The file does not say which.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming_asr.corpora.rows import files, json_rows, numbers
from streaming_asr.errors import UserError
from streaming_asr.metrics.table import CA, COMMITS, CU
from streaming_asr.score.formats.foreign import Emission, ForeignRecording, file_name
from streaming_asr.text.normalise import pieces


def read(path: Path, *, comp_unaware: bool = False) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recording of a file, or the recordings of a folder of *.jsonl, by file name.

    It knows one clock: the audio clock where `comp_unaware`, else the compute clock.
    """
    recordings = []
    for file in files(path, (".jsonl", ".json")):
        emissions = []
        for where, row in json_rows(file):
            if "emission_time" not in row:
                raise UserError(
                    f"{where}: no `emission_time`; this reads the output of SimulStreaming's "
                    "simulation, not its server's."
                )
            seen_s = numbers([row["emission_time"]], where)[0]
            words, times = _words(row, where)
            emissions.append(
                Emission(
                    words,
                    audio_s=seen_s if comp_unaware else None,
                    finished_s=None if comp_unaware else seen_s,
                    words=times,
                )
            )
        recordings.append(ForeignRecording((file_name(file),), tuple(emissions)))
    return recordings, {CU if comp_unaware else CA, COMMITS}


def _words(
    row: dict[str, Any], where: str
) -> tuple[tuple[str, ...], tuple[tuple[float, float, None], ...] | None]:
    text = row.get("text") or ""
    listed = row.get("words")
    if not isinstance(text, str):
        raise UserError(f"{where}: `text` is {text!r}; it must be a text.")
    try:
        words = [_word(w, where) for w in listed or ()]
    except (KeyError, TypeError) as error:
        raise UserError(f"{where}: `words` must hold text, start and end ({error}).") from error
    if "".join(word for word, _, _ in words) != text:
        return pieces(text), None  # the words are another view of the text: the text counts
    return tuple(word for word, _, _ in words), tuple((s, e, None) for _, s, e in words)


def _word(word: dict[str, Any], where: str) -> tuple[str, float, float]:
    start_s, end_s = numbers([word["start"], word["end"]], where)
    return str(word["text"]), start_s, end_s
