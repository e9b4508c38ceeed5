"""Latency as boards and products define it, each computed from a trace.

Audio is sent as it is spoken, so a chunk is sent when it is full, at a_k, and a text is received at
f_k, on the compute clock. A word is right if the Levenshtein alignment of the final text with the
reference finds it equal. Where a board finds the end of speech by a detector, the end of the last
spoken word takes its place.

A recording counts as one turn. Left out: OpenBench's two latencies by the model's own times, which
a log has not for partial words; LiveKit's time until a turn ends, which is `turn_end_delay`; and
Picovoice's choice among equally good alignments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import inf
from typing import NamedTuple, TypeAlias

import numpy as np
from rapidfuzz.distance import Levenshtein

from streaming_asr.metrics import latency
from streaming_asr.metrics.trace import Trace
from streaming_asr.text.normalise import light_key

MOST_ERRORS = 20  # word errors, above which Picovoice leaves a recording out
Weighted: TypeAlias = tuple[float, float]  # seconds, weight


class Definition(NamedTuple):
    """A published latency. of: yields its values for a trace; `figure` is what is reported of all
    values of a corpus, their mean (weighted) or median."""

    formula: str
    figure: str
    source: str
    of: Callable[[Trace], Iterable[Weighted]]


def value(name: str, traces: Sequence[Trace]) -> float | None:
    """Return a latency of DEFINITIONS over a corpus, in seconds; None without a value."""
    definition = DEFINITIONS[name]
    pairs = [pair for trace in traces if trace.steps for pair in definition.of(trace)]
    values, weights = np.array(pairs).reshape(-1, 2).T
    if not weights.sum():
        return None
    if definition.figure == "median":
        return float(np.median(values))
    return float(np.average(values, weights=weights))


def _sent_s(trace: Trace, time_s: float) -> float | None:
    """Return when the chunk that holds the audio of a moment was sent; None if none does."""
    k = bisect_left(trace.audio_times, time_s - 1e-9)
    return trace.audio_times[k] if k < len(trace.steps) else None


def _emission(trace: Trace) -> Iterator[Weighted]:
    """AssemblyAI: from the chunk with a word's end to the first text with the word; those below 0
    are left out."""
    words = latency.timed(trace)
    if words is None:
        return
    for hit in words.hits:
        sent_s = _sent_s(trace, hit.end_s)
        if sent_s is not None:
            lag_s = trace.steps[words.steps.shown[hit.word]].finished_s - sent_s
            if lag_s >= 0:
                yield lag_s, 1.0


def _complete(trace: Trace) -> Iterator[Weighted]:
    """AssemblyAI: from the chunk with the last word's end to the final text; none below 0."""
    final_s, sent_s = _final_s(trace), _sent_s(trace, trace.words[-1].end) if trace.words else None
    if final_s is not None and sent_s is not None and final_s >= sent_s:
        yield final_s - sent_s, 1.0


def _word_emission(trace: Trace) -> Iterator[Weighted]:
    """Picovoice: a word is emitted when the text first has as many words, the last one again when
    it changes; from the chunk with its end until then."""
    emitted: list[str] = []
    times: list[float] = []
    for k, text in trace.displays:
        words, now = trace.light(text).all(), trace.steps[k].finished_s
        n = len(emitted)
        if 0 < n <= len(words) and emitted[-1] != words[n - 1]:
            emitted[-1], times[-1] = words[n - 1], now
        emitted += words[n:]
        times += [now] * len(words[n:])
    spoken = [word for word in trace.words or () if light_key(word.text)]
    reference = [light_key(word.text) for word in spoken]
    if Levenshtein.distance(reference, emitted) > MOST_ERRORS:
        return
    for block in Levenshtein.opcodes(reference, emitted):
        if block.tag == "equal":
            for i in range(block.src_start, block.src_end):
                sent_s = _sent_s(trace, spoken[i].end)
                if sent_s is not None:
                    yield times[block.dest_start + i - block.src_start] - sent_s, 1.0


def _cursors(trace: Trace, is_confirmed: bool) -> Iterator[Weighted]:
    """OpenBench: of each text that has a new word, the mean of (audio sent - end of its last right
    word) and (audio sent - the same of the text before), none below 0, weighted by the speech
    from its first new word to its last right one."""
    spoken = [word for word in trace.words or () if light_key(word.text)]
    reference = [light_key(word.text) for word in spoken]
    before: tuple[str, ...] | None = None
    cursor_before: float | None = None
    for step in trace.steps:
        words = trace.light(step.committed_text if is_confirmed else step.displayed_text).all()
        if words == before or not (words or before):
            continue
        blocks = list(Levenshtein.opcodes(reference, words))
        equal = [block for block in blocks if block.tag == "equal"]
        first = None
        if equal and before is None:
            first = equal[0].src_start
        elif equal and before and words:
            changes = Levenshtein.opcodes(before, words)
            new = [each.dest_start for each in changes if each.tag in ("insert", "replace")]
            at = [each for each in blocks if new and each.dest_start <= new[0] < each.dest_end]
            first = at[0].src_start + new[0] - at[0].dest_start if at else None
        before = words
        if first is None or first >= len(spoken):
            continue
        cursor = spoken[equal[-1].src_end - 1].end
        sent_s = min(step.finished_s, trace.duration_s)
        least, most = sent_s - cursor, sent_s - (cursor_before or 0.0)
        yield (max(least, 0.0) + max(most, 0.0)) / 2, cursor - spoken[first].start
        cursor_before = cursor


def _final_s(trace: Trace) -> float | None:
    """Return when the final text was complete, None without text."""
    steps = latency.commit_steps(trace)
    return trace.steps[max(steps)].finished_s if steps else None


def _first_token(trace: Trace) -> Iterator[Weighted]:
    first_s = latency.first_token_s(trace, "ca")
    if first_s is not None:
        yield first_s, 1.0


def _to_final(trace: Trace) -> Iterator[Weighted]:
    final_s = _final_s(trace)
    if final_s is not None:
        yield final_s, 1.0


def _segment(trace: Trace) -> Iterable[Weighted]:
    return (pair for pair in _after_speech(trace, -inf) if pair[0] >= 0)


def _after_speech(trace: Trace, least: float) -> Iterator[Weighted]:
    final_s = _final_s(trace)
    if final_s is not None and trace.words:
        yield max(final_s - trace.words[-1].end, least), 1.0


PICOVOICE = "Picovoice/speech-to-text-benchmark, benchmark_latency.py and engine.py"
ASSEMBLYAI = "AssemblyAI-Solutions/streaming-latency-benchmark, README.md"
OPENBENCH = "argmaxinc/OpenBench, streaming_latency_metrics/latency_metrics.py"
COVAL = "coval-ai/benchmarks, metrics/ttft.py"
PIPECAT = "pipecat-ai/stt-benchmark, docs/measuring-ttfs.md"
LIVEKIT = "livekit/agents, audio_recognition.py"
SENT, AFTER = "when the chunk with its end was sent", "final text - end of the last word"
CURSOR = "audio sent - end of the last right word, mean of least and most"
_shown, _confirmed = (partial(_cursors, is_confirmed=each) for each in (False, True))
_delay, _at_least_0 = (partial(_after_speech, least=each) for each in (-inf, 0.0))
# By name: formula, what is reported, source, function. All are on the compute clock.
DEFINITIONS = {
    "picovoice_word_emission": Definition(
        f"right words: emitted - {SENT}", "mean", PICOVOICE, _word_emission
    ),
    "assemblyai_emission": Definition(
        f"right words: first text with it - {SENT}, none below 0", "median", ASSEMBLYAI, _emission
    ),
    "assemblyai_ttct": Definition(
        f"last word: final text - {SENT}, none below 0", "median", ASSEMBLYAI, _complete
    ),
    "openbench_streaming": Definition(f"texts: {CURSOR}", "mean", OPENBENCH, _shown),
    "openbench_confirmed": Definition(f"committed texts: {CURSOR}", "mean", OPENBENCH, _confirmed),
    "coval_ttft": Definition("first text - start of the audio", "mean", COVAL, _first_token),
    "coval_audio_to_final": Definition("final text - start of the audio", "mean", COVAL, _to_final),
    "coval_ttfs": Definition(f"{AFTER}, none below 0", "mean", COVAL, _segment),
    "pipecat_ttfs": Definition(AFTER, "median", PIPECAT, _delay),
    "livekit_transcription_delay": Definition(f"{AFTER}, from 0", "mean", LIVEKIT, _at_least_0),
}
