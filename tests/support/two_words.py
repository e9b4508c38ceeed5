"""A cell whose log is known by heart."""

from __future__ import annotations

from pathlib import Path

from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.utterance import TimedWord


def a_cell(folder: Path, *compute_s: float, said: str = " cat", **fields: object) -> Path:
    """ "The cat" in four steps at 1, 2, 3 and 4 s; "The" is committed at 2 s, the rest at 4 s."""
    committed = [[], ["The"], [], [said]]
    steps = [
        Step(
            "flush" if k == 3 else "audio", 16_000 * (k + 1), {"wall": round(c * 1e9)}, committed=w
        )
        for k, (c, w) in enumerate(zip(compute_s, committed, strict=True))
    ]
    words = [TimedWord("The", 0.5, 1.0), TimedWord("cat", 2.5, 3.0)]
    log = UtteranceLog("u1", "The cat", 64_000, words, steps=steps)
    for name, value in fields.items():
        setattr(log, name, value)
    folder.mkdir()
    with EventWriter(folder / "events.jsonl", {"config": {}}) as writer:
        writer.write_utterance(log)
    return folder
