"""Scores when a method, or a server, reports the end of a turn: steps of the kind `endpoint`.

A turn is a stretch of words with a pause of TURN_S behind it. All times are on the compute clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from streaming_asr.metrics.latency import commit_steps, summary
from streaming_asr.metrics.trace import Trace, mean, ratio

TURN_S = 2.0  # a shorter pause is the speaker's own, and an end reported in it cuts the turn off
OWN_PAUSE_S = 0.2  # the least pause within a turn that counts as one


class Turn(NamedTuple):
    """A turn, in seconds. delay: from its end to the first end reported after it, None for none."""

    start: float
    end: float
    is_cut_off: bool  # an end was reported within it
    delay: float | None
    n_pauses: int  # within it, of OWN_PAUSE_S or more
    n_cut: int  # of these, those after which an end was reported before the next of them
    n_ends: int  # reported within it


def figures(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the metrics of this file; those of turns are None if no end was reported."""
    has_ends = any(reported_ends(trace) for trace in traces)
    turns = [turn for trace in traces for turn in turns_of(trace)] if has_ends else []
    delays = summary([turn.delay for turn in turns if turn.delay is not None])
    finals = [final for trace in traces if (final := final_text(trace)) is not None]
    return {
        "turns_cut_off": ratio(sum(turn.is_cut_off for turn in turns), len(turns), 100.0),
        "pauses_cut_off": ratio(
            sum(turn.n_cut for turn in turns), sum(turn.n_pauses for turn in turns), 100.0
        ),
        "turns_cut_off_per_min": ratio(
            sum(turn.n_ends for turn in turns), sum(turn.end - turn.start for turn in turns), 60.0
        ),
        "turns_missed": ratio(sum(turn.delay is None for turn in turns), len(turns), 100.0),
        "turn_end_delay_p50_ca_s": delays["p50"],
        "turn_end_delay_p90_ca_s": delays["p90"],
        "turn_final_natural_ca_s": mean([seconds for natural, seconds in finals if natural]),
        "turn_final_forced_ca_s": mean([seconds for natural, seconds in finals if not natural]),
    }


def reported_ends(trace: Trace) -> list[float]:
    """Return when the method reported the end of a turn, in seconds."""
    return [step.finished_s for step in trace.steps if step.step.kind == "endpoint"]


def turns_of(trace: Trace) -> list[Turn]:
    """Return the turns of a trace, [] without word times. The last one counts only if the audio has
    the pause after it, or if its end was reported."""
    words = trace.words or ()
    if not words:
        return []
    next_starts = [*(word.start for word in words[1:]), trace.duration_s]
    last_words = [  # indices of the words that end a turn
        i
        for i, (word, next_start) in enumerate(zip(words, next_starts, strict=True))
        if next_start - word.end >= TURN_S
    ]
    ends_s = reported_ends(trace)
    if len(words) - 1 not in last_words and any(end_s >= words[-1].end for end_s in ends_s):
        last_words.append(len(words) - 1)
    turns, first = [], 0
    for last in last_words:
        start, end = words[first].start, words[last].end
        next_turn = words[last + 1].start if last + 1 < len(words) else float("inf")
        delays = [end_s - end for end_s in ends_s if end <= end_s < next_turn]
        within = [end_s for end_s in ends_s if start <= end_s < end]
        pauses = [
            word.end
            for word, after in pairwise(words[first : last + 1])
            if after.start - word.end >= OWN_PAUSE_S - 1e-9
        ]
        # An end may come after the pause that caused it, when the next words have begun.
        cut = {bisect_right(pauses, end_s) for end_s in within} - {0}
        turn = Turn(
            start, end, bool(within), min(delays, default=None), len(pauses), len(cut), len(within)
        )
        turns.append(turn)
        first = last + 1
    return turns


def final_text(trace: Trace) -> tuple[bool, float] | None:
    """Return (natural, seconds): whether the method reported the end of the last turn, before the
    end of the audio forced it, and the time from the end of the last spoken word to the final text;
    None without words or text.

    The text is final when its last word is committed and, if natural, the end is reported.
    """
    steps = commit_steps(trace)
    if not trace.words or not steps:
        return None
    speech_end_s = trace.words[-1].end
    ends_s = [end_s for end_s in reported_ends(trace) if end_s >= speech_end_s]
    last_commit_s = trace.steps[max(steps)].finished_s
    final_s = max(last_commit_s, ends_s[0]) if ends_s else last_commit_s
    return bool(ends_s), final_s - speech_end_s
