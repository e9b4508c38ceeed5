"""What holds of every utterance that is logged, stated once: for our own logs and imported ones.

The schema bounds each value by itself; INVARIANTS relate the values of one utterance to each
other. Nothing is computed from a log that breaks one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from rapidfuzz.distance import Levenshtein

from streaming_asr import references
from streaming_asr.events.record import Step, UtteranceLog
from streaming_asr.method import FRAME_SAMPLES, PARTS, SAMPLE_RATE, revise
from streaming_asr.text.normalise import light_key, light_words
from streaming_asr.text.units import timed_units, unit_of
from streaming_asr.utterance import LENGTH_TOLERANCE_S

TOLERANCE = round(LENGTH_TOLERANCE_S * SAMPLE_RATE)  # samples; manifests and tools round lengths
SLACK_NS = 100_000_000  # clocks are read one after the other
MOST_CORES = 1024
MOST_LAG_S = 12 * 3600.0  # who is half a day late is not streaming
EARLY_S = 0.3  # word times of several aligners differ by less
FEW = 4  # right words; fewer may be right by chance
WINDOW_S = 30.0  # Whisper encodes so much at once, and may time a word in its padding

# (place, what is wrong): 0 is the line that opens, k the k-th step, -1 the line that closes.
Breaks: TypeAlias = Iterator[tuple[int, str]]


def broken(log: UtteranceLog) -> Breaks:
    """Yield the places of an utterance that break an invariant, one for each place."""
    seen: set[int] = set()
    for breaks in INVARIANTS.values():
        for place, fault in breaks(log):
            if place not in seen:
                seen.add(place)
                yield place, fault


# -- time -----------------------------------------------------------------------------------


def _goes_back(log: UtteranceLog) -> Breaks:
    for k, (before, step) in enumerate(pairwise(log.steps), start=2):
        if step.audio_samples < before.audio_samples:
            change = f"from {before.audio_samples} to {step.audio_samples}"
            yield k, f"`audio_samples` goes back {change}"


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


def _one_chunk_apart(log: UtteranceLog) -> Breaks:
    """Only where the log's header has the schedule: imports have steps where a tool spoke."""
    if log.feed != "fixed" or log.chunk_samples is None or log.first_chunk_samples is None:
        return
    due = log.first_chunk_samples + log.lookahead_samples
    before = 0
    for k, step in enumerate(log.steps, start=1):
        heard = step.audio_samples
        if step.kind == "flush":  # what is left of the recording
            if heard > due:
                delay = f"{_s(heard - before)} after the step before, {_s(due - before)} at most"
                yield k, f"the flush is {delay}"
        elif heard != due:
            yield k, f"a step at {_s(heard)} of audio where the next is due at {_s(due)}"
            return
        before, due = heard, due + log.chunk_samples


def _s(samples: int) -> str:
    return f"{samples / SAMPLE_RATE:g} s"


def _compute(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        times = step.compute_ns
        wall = times["wall"]
        if wall < 0:
            yield k, f"computing takes {wall / 1e9:g} s: a time is before its audio, or goes back"
        elif times.get("lag", wall) < wall - SLACK_NS:
            yield k, f"the lag, {times['lag'] / 1e9:g} s, is less than its compute"
        elif times.get("lag", 0) > MOST_LAG_S * 1e9:
            yield k, f"a lag of {times['lag'] / 3.6e12:.1f} h; is it in other units?"
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
            few, many = step.count(less), step.count(more)
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
        yield -1, "`status` is ok and there is an `error`"


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
    yield from ((0, fault) for fault in references.order(log.words or (), log.duration_s))


def _spelling(log: UtteranceLog) -> Breaks:
    faults = references.spelling(log.text, log.words or (), unit_of(log.language))
    yield from ((0, fault) for fault in faults)


def _speakable(log: UtteranceLog) -> Breaks:
    yield from ((0, fault) for fault in references.speakable(log.words or ()))


# -- when words are final -------------------------------------------------------------------


def right_words(log: UtteranceLog) -> tuple[int, int]:
    """Return how many words of the final text are right, and how many of these were final over
    EARLY_S of audio before they begin in the reference. (0, 0) without word times.

    Where no word can be early the first is an upper bound, which saves the alignment.
    """
    unit = unit_of(log.language)
    spoken = [(light_key(word), start) for word, start, _ in timed_units(log.words or (), unit)]
    pieces: list[tuple[str, float]] = []
    for step in log.steps if log.status == "ok" and spoken else ():
        n_back = min(step.retracted, len(pieces))  # another rule finds too many
        revise(pieces, n_back, ((text, step.audio_s) for text in step.committed))
    final = [(key, at) for text, at in pieces for key in light_words(text, unit)]
    last = dict(spoken)  # the latest start of each word
    if not any(at + EARLY_S < last.get(key, 0.0) for key, at in final):
        return (Counter(key for key, _ in spoken) & Counter(key for key, _ in final)).total(), 0
    n_right = n_early = 0
    keys = [key for key, _ in spoken], [key for key, _ in final]
    for block in Levenshtein.opcodes(*keys):
        if block.tag == "equal":
            n_right += block.src_end - block.src_start
            places = zip(
                range(block.src_start, block.src_end),
                range(block.dest_start, block.dest_end),
                strict=True,
            )
            n_early += sum(final[j][1] + EARLY_S < spoken[i][1] for i, j in places)
    return n_right, n_early


def too_early(logs: Iterable[UtteranceLog]) -> str | None:
    """Return what is wrong where most right words of these logs are final before they begin; a few
    right words prove nothing."""
    counts = [right_words(log) for log in logs]
    n_right, n_early = (sum(each) for each in zip(*counts, strict=True)) if counts else (0, 0)
    if n_right < FEW or 2 * n_early <= n_right:
        return None
    return (
        f"{n_early} of {n_right} right words are final over {EARLY_S:g} s before they begin in the "
        "reference; are the times of both in the same units, and of the same recording?"
    )


def _after_they_begin(log: UtteranceLog) -> Breaks:
    if log.is_imported:  # there it is a warning
        return
    n_words = len(timed_units(log.words or (), unit_of(log.language)))
    n_right, _ = right_words(log)
    if 2 * n_right >= n_words and (fault := too_early([log])):
        yield -1, fault


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
    faults = references.rate(log.text, log.duration_s, unit_of(log.language))
    yield from ((0, fault) for fault in faults)


# Each rule, as docs/events.md lists it, and what finds the places that break it.
INVARIANTS: dict[str, Callable[[UtteranceLog], Breaks]] = {
    "`audio_samples` never goes back.": _goes_back,
    "No step follows the flush, and an `ok` utterance ends with it.": _last_is_flush,
    "An `ok` utterance ends with its audio, and none half a second beyond it.": _heard_to_the_end,
    "The lag holds the step, the step its parts and the CPU time of 1,024 cores; a lag is at most "
    "12 hours.": _compute,
    "Steps of the feed `fixed` are one chunk apart, each once.": _one_chunk_apart,
    "`frames_real` is at most `frames_computed`, `decode_steps` at most `beam_sum`.": _counts,
    "Committed words go only by `retracted`, which `commit_violations` counts.": _retractions,
    "Nothing is partial after the flush.": _nothing_partial,
    "An utterance has an `error` only where it failed.": _error,
    "`words` has one entry for each committed word, in the audio or its padding.": _committed_words,
    "The reference's words are in order and in the recording.": _reference_words,
    "The reference's words are those of its text, in number and order.": _spelling,
    "The reference's words last as long as it takes to say them.": _speakable,
    "Of the right words, half at most are final over 0.3 s before they begin.": _after_they_begin,
    "No text comes before 20 ms of audio.": _text_has_sound,
    "A reference has at most 20 words (40 characters) a second, and five.": _rate_of_speech,
}
