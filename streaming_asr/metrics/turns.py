"""Scores when a method, or a server, reports the end of a turn: steps of the kind `endpoint`.

A turn is a stretch of words with a pause of TURN_S behind it. All times are on the compute clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streaming_asr.metrics.latency import commit_steps, summary
from streaming_asr.metrics.trace import Trace, mean, ratio

TURN_S = 2.0  # a shorter pause is the speaker's own, and an end reported in it cuts the turn off


class Turn(NamedTuple):
    """A turn, in seconds. delay: from its end to the first end reported after it, None for none."""

    start: float
    end: float
    is_cut_off: bool  # an end was reported within it
    delay: float | None


def figures(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the metrics of this file; those of turns are None where no end was reported."""
    has_ends = any(ends_told(trace) for trace in traces)
    turns = [turn for trace in traces for turn in turns_of(trace)] if has_ends else []
    late = summary([turn.delay for turn in turns if turn.delay is not None])
    finals = [each for trace in traces if (each := final_text(trace)) is not None]
    return {
        "turns_cut_off": ratio(sum(turn.is_cut_off for turn in turns), len(turns), 100.0),
        "turns_missed": ratio(sum(turn.delay is None for turn in turns), len(turns), 100.0),
        "turn_end_delay_p50_ca_s": late["p50"],
        "turn_end_delay_p90_ca_s": late["p90"],
        "turn_final_natural_ca_s": mean([seconds for natural, seconds in finals if natural]),
        "turn_final_forced_ca_s": mean([seconds for natural, seconds in finals if not natural]),
    }


def ends_told(trace: Trace) -> list[float]:
    """Return when the method reported the end of a turn, in seconds."""
    return [step.finished_s for step in trace.steps if step.step.kind == "endpoint"]


def turns_of(trace: Trace) -> list[Turn]:
    """Return the turns of a trace with word times. The last one counts only where the pause behind
    it is in the audio, or its end was reported."""
    words = trace.words or ()
    ends = [i for i, word in enumerate(words) if _next(trace, i) - word.end >= TURN_S]
    ends_s = ends_told(trace)
    if words and len(words) - 1 not in ends and any(t >= words[-1].end for t in ends_s):
        ends.append(len(words) - 1)
    turns, first = [], 0
    for last in ends:
        start, end = words[first].start, words[last].end
        until = words[last + 1].start if last + 1 < len(words) else float("inf")
        behind = [t - end for t in ends_s if end <= t < until]
        is_cut_off = any(start <= t < end for t in ends_s)
        turns.append(Turn(start, end, is_cut_off, min(behind, default=None)))
        first = last + 1
    return turns


def _next(trace: Trace, i: int) -> float:
    words = trace.words or ()
    return words[i + 1].start if i + 1 < len(words) else trace.duration_s


def final_text(trace: Trace) -> tuple[bool, float] | None:
    """Return whether the last turn's end was reported before the audio ended (natural), and the
    seconds from the end of the last spoken word to the final text; None without words or text.

    The text is final once its last word is committed and, where the end is natural, the end is
    reported.
    """
    steps = commit_steps(trace)
    if not trace.words or not steps:
        return None
    end = trace.words[-1].end
    ends_s = [t for t in ends_told(trace) if t >= end]
    return bool(ends_s), max([trace.steps[max(steps)].finished_s, *ends_s[:1]]) - end
