"""What holds of every utterance that is logged, stated once: for our own logs and imported ones.

The schema bounds each value by itself; INVARIANTS say how the values of one utterance fit each
other. Nothing is computed from a log that breaks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

from rapidfuzz.distance import Levenshtein

from streaming_asr.events.record import Step, UtteranceLog
from streaming_asr.method import FRAME_SAMPLES, PARTS, SAMPLE_RATE
from streaming_asr.utterance import LENGTH_TOLERANCE_S

TOLERANCE = round(LENGTH_TOLERANCE_S * SAMPLE_RATE)  # samples; manifests and tools round lengths
SLACK_NS = 100_000_000  # clocks are read one after the other
MOST_CORES = 1024
WINDOW_S = 30.0  # Whisper hears so much at once, and may time a word in its padding
ALIKE = 0.5  # of the letters; two texts that have nothing to do with each other share a quarter

# (place, what is wrong): 0 is the line that opens, k the k-th step, -1 the line that closes.
Breaks: TypeAlias = Iterator[tuple[int, str]]


def broken(log: UtteranceLog) -> Breaks:
    """Yield the places of an utterance that break an invariant, one for each place."""
    seen: set[int] = set()
    for breaks in INVARIANTS.values():
        for place, told in breaks(log):
            if place not in seen:
                seen.add(place)
                yield place, told


# -- time -----------------------------------------------------------------------------------


def _goes_back(log: UtteranceLog) -> Breaks:
    for k, (before, step) in enumerate(pairwise(log.steps), start=2):
        if step.audio_samples < before.audio_samples:
            told = f"from {before.audio_samples} to {step.audio_samples}"
            yield k, f"`audio_samples` goes back {told}"


def _last_is_flush(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps[:-1], start=2):
        if step.kind == "flush":
            yield k, "a step after the flush, which is the last"
    if log.status == "ok" and (not log.steps or log.steps[-1].kind != "flush"):
        yield -1, "`status` is ok without a flush, which is the last step"


def _heard_to_the_end(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        if step.audio_samples > log.duration_samples + TOLERANCE:
            yield k, f"{step.audio_s:g} s are received of a recording of {log.duration_s:g} s"
    if log.status == "ok" and log.steps:
        heard = log.steps[-1]
        if heard.audio_samples < log.duration_samples - TOLERANCE:
            yield -1, f"`status` is ok after {heard.audio_s:g} of {log.duration_s:g} s"


def _compute(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        times = step.compute_ns
        wall = times["wall"]
        if wall < 0:
            yield k, f"computing takes {wall / 1e9:g} s: a time is before its audio, or goes back"
        elif times.get("lag", wall) < wall - SLACK_NS:
            yield k, f"the lag, {times['lag'] / 1e9:g} s, is less than its compute"
        elif log.feed == "realtime":  # there the wall is not the time of the step
            continue
        elif times.get("cpu", 0) > MOST_CORES * wall + SLACK_NS:
            yield k, f"{times['cpu'] / 1e9:g} s of CPU time in {wall / 1e9:g} s"
        elif (inner := sum(times.get(part, 0) for part in PARTS)) > wall + SLACK_NS:
            yield k, f"the parts take {inner / 1e9:g} s of a step of {wall / 1e9:g} s"


# -- counts ---------------------------------------------------------------------------------


def _counts(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        for less, more in (("frames_real", "frames_computed"), ("decode_steps", "beam_sum")):
            few, many = step.counts.get(less, 0), step.counts.get(more, 0)
            if few > many + 1:  # a last frame that is not full; shares are rounded
                yield k, f"{less}, {few:g}, is above {more}, {many:g}"


def _retractions(log: UtteranceLog) -> Breaks:
    n_committed = n_back = 0
    for k, step in enumerate(log.steps, start=1):
        if step.retracted > n_committed:
            yield k, f"{step.retracted} words are retracted where {n_committed} were committed"
            return
        n_committed += len(step.committed) - step.retracted
        n_back += step.retracted > 0
    if log.commit_violations != n_back:
        yield -1, f"`commit_violations` is {log.commit_violations} where {n_back} steps retract"


# -- text -----------------------------------------------------------------------------------


def _nothing_partial(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        if step.kind == "flush" and step.partial:
            yield k, f"{len(step.partial)} words are partial after the flush"


def _error(log: UtteranceLog) -> Breaks:
    if log.status == "ok" and log.error is not None:
        yield -1, "`status` is ok beside an `error`"


# -- words ----------------------------------------------------------------------------------


def _committed_words(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        if step.words is None:
            continue
        if len(step.words) != len(step.committed):
            yield k, f"{len(step.words)} `words` for {len(step.committed)} committed ones"
        for start, end, probability in step.words:
            low, high = start or 0.0, step.audio_s + WINDOW_S if end is None else end
            if not 0 <= low <= high <= step.audio_s + WINDOW_S:
                yield k, f"a word from {start} to {end} s, of {step.audio_s:g} s of audio"
            if not 0 <= (probability or 0.0) <= 1:
                yield k, f"a word of probability {probability}"


def _reference_words(log: UtteranceLog) -> Breaks:
    words = log.words or []
    for word, start, end in words:
        if start > end:
            yield 0, f"the word {word!r} ends at {end} s before it starts at {start} s"
        # A recording that cannot be read may have no length; then nothing is heard of it either.
        if log.duration_samples and end > log.duration_s + LENGTH_TOLERANCE_S:
            yield 0, f"the word {word!r} ends at {end} s of {log.duration_s:g} s"
    for before, after in pairwise(words):
        if after.start < before.start:
            told = f"at {after.start} s comes after that at {before.start}"
            yield 0, f"the word {after.text!r} {told}"


def _spelling(log: UtteranceLog) -> Breaks:
    if log.words:
        timed, text = _letters("".join(word.text for word in log.words)), _letters(log.text)
        if Levenshtein.normalized_similarity(timed, text, score_cutoff=ALIKE) < ALIKE:
            yield 0, f"the `words` are of another text: {log.words[0].text!r} ... of {log.text!r}"


def _letters(text: str) -> str:
    return "".join(c for c in text.casefold() if c.isalnum())


# -- units ----------------------------------------------------------------------------------


def _text_has_sound(log: UtteranceLog) -> Breaks:
    least = min(FRAME_SAMPLES, log.duration_samples)
    for k, step in enumerate(log.steps, start=1):
        if step.audio_samples < least and _says(step):
            yield (
                k,
                f"text after {step.audio_samples} samples of audio; are its times in other units?",
            )


def _says(step: Step) -> bool:
    return any(word.strip() for word in (*step.committed, *step.partial))


def _rate_of_speech(log: UtteranceLog) -> Breaks:
    n = len(log.text.split())
    if log.duration_samples and n > 5 + 20 * log.duration_s:
        yield 0, f"{n} words in {log.duration_s:g} s; is the duration in other units?"


# Each rule, as docs/events.md lists it, and what finds the places that break it.
INVARIANTS: dict[str, Callable[[UtteranceLog], Breaks]] = {
    "`audio_samples` never goes back.": _goes_back,
    "No step follows the flush, and an `ok` utterance ends with it.": _last_is_flush,
    "An `ok` utterance is heard to its end, and none half a second beyond it.": _heard_to_the_end,
    "The lag holds the step, the step its parts, and the CPU time of 1,024 cores.": _compute,
    "`frames_real` is at most `frames_computed`, `decode_steps` at most `beam_sum`.": _counts,
    "Committed words go only by `retracted`, which `commit_violations` counts.": _retractions,
    "Nothing is partial after the flush.": _nothing_partial,
    "An `error` stands only where the utterance failed.": _error,
    "`words` has one entry for each committed word, in the audio or its padding.": _committed_words,
    "The reference's words are in order and in the recording.": _reference_words,
    "The reference's words spell its text.": _spelling,
    "No text comes before 20 ms of audio.": _text_has_sound,
    "A reference has at most 20 words a second, and five.": _rate_of_speech,
}
