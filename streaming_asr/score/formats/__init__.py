"""Other tools' logs, in and out: a rival's run is scored by the same code (docs/formats.md)."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from streaming_asr.score.formats import readers, writers
from streaming_asr.score.formats.foreign import ForeignRecording


class Format(NamedTuple):
    """A format: its files; `read(path)`, which returns the recordings and what the file knows of
    them (of metrics.table.EVERYTHING); `write(log, folder)`, which returns the files written. Both
    of whisper_online also take `comp_unaware`: its times may be those of either clock."""

    files: str
    read: Callable[..., tuple[list[ForeignRecording], set[str]]]
    write: Callable[..., list[Path]]


FORMATS = {
    "simuleval": Format("SimulEval's instances.log", readers.simuleval, writers.simuleval),
    "simulstream": Format("simulstream's JSONL", readers.simulstream, writers.simulstream),
    "whisper_online": Format(
        "whisper_online's text lines, a file per recording",
        readers.whisper_online,
        writers.whisper_online,
    ),
}
