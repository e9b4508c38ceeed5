"""Other tools' logs, in and out: a rival's run is scored by the same code (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.score.formats import nist, simuleval, simulstream, simulstreaming, whisper_online
from streaming_asr.score.formats.foreign import ForeignRecording


@dataclass(frozen=True)
class Format:
    """How one format is read and written.

    `read(path)` gives the recordings and what the file knows of them (of metrics.table.EVERYTHING),
    `write(log, folder)` the files written. With `two_modes` the emission times may be those of
    either clock, and both take `comp_unaware`.
    """

    what: str
    read: Callable[..., tuple[list[ForeignRecording], set[str]]]
    write: Callable[..., list[Path]] | None = None
    two_modes: bool = False


FORMATS = {
    "simuleval": Format("SimulEval's instances.log", simuleval.read, simuleval.write),
    "simulstream": Format("simulstream's JSONL", simulstream.read, simulstream.write),
    "whisper_online": Format(
        "whisper_online's text lines, a file per recording",
        whisper_online.read,
        whisper_online.write,
        two_modes=True,
    ),
    "simulstreaming": Format(
        "SimulStreaming's JSONL, a file per recording", simulstreaming.read, two_modes=True
    ),
    "ctm": Format("NIST CTM, the words with their times", nist.read_ctm, nist.write_ctm),
    "stm": Format("NIST STM: written, the references; read, a text", nist.read_stm, nist.write_stm),
}
