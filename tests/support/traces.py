"""Traces by hand: short to write, so that a test shows its whole input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.metrics import Trace, TraceStep, queued
from streaming_asr.text.growing import Growing
from streaming_asr.utterance import TimedWord


def a_step(
    audio_s: float,
    compute_s: float,
    committed: str,
    displayed: str,
    *,
    kind: str = "audio",
    **counts: float,
) -> TraceStep:
    """A step by hand; `counts` are of method.COUNTS."""
    step = Step(kind, round(audio_s * SAMPLE_RATE), {"wall": 0}, **counts)
    return TraceStep(step, Growing.of(committed), Growing.of(displayed), compute_s)


def a_trace(
    reference: str,
    steps: Sequence[tuple[float, float, str, str]],
    *,
    ends: Sequence[float] | None = None,
    **fields: Any,
) -> Trace:
    """`steps` are (audio_s, compute_s, whole committed text, partial text); the last is the flush.

    `ends` are the end times of the reference's words, each 0.2 s long.
    """
    made = [
        a_step(
            audio_s,
            compute_s,
            committed,
            f"{committed} {partial}".strip(),
            kind="flush" if k == len(steps) - 1 else "audio",
        )
        for k, (audio_s, compute_s, committed, partial) in enumerate(steps)
    ]
    words = None
    if ends is not None:
        pairs = zip(reference.split(), ends, strict=True)
        words = tuple(TimedWord(text, end - 0.2, end) for text, end in pairs)
    fields.setdefault("duration_s", steps[-1][0] if steps else 1.0)
    return Trace("u1", reference, steps=queued(made), words=words, **fields)


# -- A cell --


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
