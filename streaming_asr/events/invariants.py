"""The rules for every utterance in a log, of our own runs and imported ones.

The schema limits each value by itself; INVARIANTS relate the values of one utterance to each
other. Nothing is computed from a log that breaks one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from msgspec import UNSET
from rapidfuzz.distance import Levenshtein

from streaming_asr import references
from streaming_asr.events.record import Step, UtteranceLog
from streaming_asr.method import FRAME_SAMPLES, NS_PER_SAMPLE, PARTS, SAMPLE_RATE, revise
from streaming_asr.text.normalise import light_key, light_words
from streaming_asr.text.units import timed_units, unit_of
from streaming_asr.utterance import LENGTH_TOLERANCE_S

TOLERANCE = round(LENGTH_TOLERANCE_S * SAMPLE_RATE)  # samples; manifests and tools round lengths
SLACK_NS = 100_000_000  # clocks are read one after the other
MOST_CORES = 1024
MOST_LAG_S = 12 * 3600.0  # a larger lag is no streaming, but a wrong unit
EARLY_S = 0.3  # word times of different aligners differ by less
AHEAD_S = 0.02  # one encoder frame
LEAST_RIGHT = 4  # right words; fewer may be right by chance
# What methods count at one place, so that a step has all of it or nothing.
COUNTED_TOGETHER = (
    ("frames_real", "frames_computed", "encoder_flops"),
    ("decode_steps", "beam_sum"),
)
WINDOW_S = 30.0  # Whisper encodes so much at once, and may time a word in its padding

# (place, fault): place 0 is the line that opens the utterance, k the k-th step, -1 the line that
# closes it.
Breaks: TypeAlias = Iterator[tuple[int, str]]


def broken(log: UtteranceLog) -> Breaks:
    """Yield (place, fault) where an utterance breaks an invariant, only the first fault of each
    place."""
    places: set[int] = set()
    for rule in INVARIANTS.values():
        for place, fault in rule(log):
            if place not in places:
                places.add(place)
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


def _received_to_end(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        if step.audio_samples > log.duration_samples + TOLERANCE:
            yield k, f"{step.audio_s:g} s are received of a recording of {log.duration_s:g} s"
    if log.status == "ok" and log.steps:
        last = log.steps[-1]
        if last.audio_samples < log.duration_samples - TOLERANCE:
            yield -1, f"`status` is ok after {last.audio_s:g} of {log.duration_s:g} s"


def _as_scheduled(log: UtteranceLog) -> Breaks:
    """Check logs whose header has the schedule. Imported ones have none: their steps are where a
    tool had output."""
    if log.chunk_samples is None or log.first_chunk_samples is None:
        return
    if log.feed not in ("fixed", "realtime_queue", log.planned_feed):
        return  # of a live session: what had arrived is not in the log
    due = log.first_chunk_samples + log.lookahead_samples  # samples received, as the next two
    before = finished_ns = 0
    for k, step in enumerate(log.steps, start=1):
        received = step.audio_samples
        if log.feed == "realtime" and received == before:
            continue  # what a server sent between two chunks
        if step.kind == "flush":  # the rest of the recording, at most a chunk
            if received > due:
                delay = f"{_s(received - before)} after the step before, {_s(due - before)} at most"
                yield k, f"the flush is {delay}"
        elif received != due:
            yield k, f"a step at {_s(received)} of audio where the next is due at {_s(due)}"
            return
        before, due = received, received + log.chunk_samples
        if log.feed == "best_effort":  # also what arrived while this step was computed
            finished_ns = max(finished_ns, received * NS_PER_SAMPLE) + step.compute_ns["wall"]
            due = max(due, finished_ns // NS_PER_SAMPLE)


def _each_once(log: UtteranceLog) -> Breaks:
    if log.chunk_samples is None:  # imported, or put together of several logs
        return
    for k, (before, step) in enumerate(pairwise(log.steps), start=2):
        is_timed = step.compute_ns["wall"] > 0 and "cpu" in step.compute_ns
        same = before.audio_samples == step.audio_samples and before.compute_ns == step.compute_ns
        if is_timed and same:
            yield k, "the step before once more, with equal times to the nanosecond"


def _feed(log: UtteranceLog) -> Breaks:
    if log.planned_feed not in (None, log.feed):
        yield 0, f"`feed` is {log.feed} in a run of feed={log.planned_feed}"


def _s(n_samples: int) -> str:
    return f"{n_samples / SAMPLE_RATE:g} s"


def _compute(log: UtteranceLog) -> Breaks:
    """Check the times of each step: no wall time below 0, none of its parts above it."""
    for k, step in enumerate(log.steps, start=1):
        times = step.compute_ns
        wall = times["wall"]
        if wall < 0:
            yield k, f"computing takes {wall / 1e9:g} s: a time is before its audio, or goes back"
        elif log.feed == "realtime":  # there `wall` is not the compute time (simulate.feeds)
            continue
        elif times.get("cpu", 0) > MOST_CORES * wall + SLACK_NS:
            yield k, f"{times['cpu'] / 1e9:g} s of CPU time in {wall / 1e9:g} s"
        elif (inner := sum(times.get(part, 0) for part in PARTS)) > wall + SLACK_NS:
            yield k, f"the parts take {inner / 1e9:g} s of a step of {wall / 1e9:g} s"


def _lag(log: UtteranceLog) -> Breaks:
    """Check that the feed `realtime_queue` has a lag in every step and others in none, and that a
    stream's steps end one after the other."""
    ended_ns = 0  # the step before, from the start of the recording
    for k, step in enumerate(log.steps, start=1):
        wall, lag = step.compute_ns["wall"], step.compute_ns.get("lag")
        if log.feed != "realtime_queue":
            if lag is not None:
                yield k, f"a lag in the feed {log.feed}; only realtime_queue has one"
            continue
        if lag is None:
            yield k, "no `lag`, which every step of the feed realtime_queue has"
            return
        end_ns = step.audio_samples * NS_PER_SAMPLE + lag
        if lag < wall - SLACK_NS:
            yield k, f"the lag, {lag / 1e9:g} s, is less than its compute"
        elif lag > MOST_LAG_S * 1e9:
            yield k, f"a lag of {lag / 3.6e12:.1f} h; is it in other units?"
        elif end_ns < ended_ns + wall - SLACK_NS:
            yield k, f"with its lag, {lag / 1e9:g} s, it begins before the step before has ended"
        ended_ns = end_ns


# -- counts ---------------------------------------------------------------------------------


def _counts(log: UtteranceLog) -> Breaks:
    for k, step in enumerate(log.steps, start=1):
        for part, total in (("frames_real", "frames_computed"), ("decode_steps", "beam_sum")):
            n_part, n_total = step.count(part), step.count(total)
            if n_part > n_total + 1:  # 1: the last frame may not be full, and shares are rounded
                yield k, f"{part}, {n_part:g}, is above {total}, {n_total:g}"


def _counted_together(log: UtteranceLog) -> Breaks:
    """Check that a step which has some of the counts that a method adds at one place has all that
    other steps of the stream have."""
    for group in COUNTED_TOGETHER:
        of_steps = [
            [each for each in group if getattr(step, each) is not UNSET] for step in log.steps
        ]
        largest = max(of_steps, key=len, default=[])
        for k, names in enumerate(of_steps, start=1):
            if names and (gap := sorted(set(largest) - set(names))):
                yield k, f"no {' and no '.join(gap)}, which other steps with {names[0]} have"


def _retractions(log: UtteranceLog) -> Breaks:
    n_committed = n_retracting_steps = 0
    for k, step in enumerate(log.steps, start=1):
        if step.retracted > n_committed:
            yield k, f"{step.retracted} words are retracted where {n_committed} were committed"
            return
        n_committed += len(step.committed) - step.retracted
        if step.retracted:
            n_retracting_steps += 1
    if log.commit_violations != n_retracting_steps:
        counts = f"is {log.commit_violations} where {n_retracting_steps} steps retract"
        yield -1, f"`commit_violations` {counts}"


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
        latest_s = step.audio_s + WINDOW_S
        for start, end, probability in step.words:
            start_s = 0.0 if start is None else start
            end_s = latest_s if end is None else end
            if not 0 <= start_s <= end_s <= latest_s:
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
    """Return (right, early): how many words of the final text are those of the reference, and how
    many of these were committed over EARLY_S of audio before they begin. (0, 0) without word times.

    Where no word can be early, `right` is an upper bound (the words in common), since the alignment
    of both texts is slow.
    """
    unit = unit_of(log.language)
    timed = timed_units(log.words or (), unit)
    if log.status != "ok" or not timed:
        return 0, 0
    reference = [light_key(word) for word, _, _ in timed]
    starts_s = [start for _, start, _ in timed]
    committed: list[tuple[str, float]] = []  # texts, and the seconds received at their commit
    for step in log.steps:
        n_retracted = min(step.retracted, len(committed))  # another rule reports too many
        revise(committed, n_retracted, ((text, step.audio_s) for text in step.committed))
    hypothesis: list[str] = []
    commits_s: list[float] = []
    for text, commit_s in committed:
        for key in light_words(text, unit):
            hypothesis.append(key)
            commits_s.append(commit_s)
    last_start_s = dict(zip(reference, starts_s, strict=True))  # of a word that is repeated
    if not any(
        commit_s + EARLY_S < last_start_s.get(key, 0.0)
        for key, commit_s in zip(hypothesis, commits_s, strict=True)
    ):
        return (Counter(reference) & Counter(hypothesis)).total(), 0
    n_right = n_early = 0
    for block in Levenshtein.opcodes(reference, hypothesis):
        if block.tag == "equal":
            n_right += block.src_end - block.src_start
            starts = starts_s[block.src_start : block.src_end]
            commits = commits_s[block.dest_start : block.dest_end]
            for start_s, commit_s in zip(starts, commits, strict=True):
                n_early += commit_s + EARLY_S < start_s
    return n_right, n_early


def too_early(logs: Iterable[UtteranceLog]) -> str | None:
    """Return a message where more than half of the right words of these logs are final before they
    begin; None otherwise, and where fewer than LEAST_RIGHT words are right."""
    counts = [right_words(log) for log in logs]
    n_right = sum(right for right, _ in counts)
    n_early = sum(early for _, early in counts)
    if n_right < LEAST_RIGHT or 2 * n_early <= n_right:
        return None
    return (
        f"{n_early} of {n_right} right words are final over {EARLY_S:g} s before they begin in the "
        "reference; are the times of both in the same units, and of the same recording?"
    )


def contract_faults(logs: Iterable[UtteranceLog]) -> list[str]:
    """Return, in words, where the logs of a run show that its method breaks the contract of
    `streaming_asr/contract.py`: final words taken back, times ahead of the audio, times that go
    back. The numbers stay; such a run is compared with a note."""
    n_retracted = n_ahead = n_back = 0
    for log in logs:
        latest_s = 0.0
        for step in log.steps:
            n_retracted += step.retracted
            for start, end, _ in step.words or ():
                last_s = max((at for at in (start, end) if at is not None), default=0.0)
                n_ahead += last_s > step.audio_s + AHEAD_S
                n_back += start is not None and start < latest_s
                latest_s = latest_s if start is None else start
    counts = {
        "took {} final words back": n_retracted,
        "timed {} words after the audio that it had": n_ahead,
        "timed {} words before the word in front of them": n_back,
    }
    return [text.format(n) for text, n in counts.items() if n]


# -- units ----------------------------------------------------------------------------------


def _text_has_sound(log: UtteranceLog) -> Breaks:
    least = min(FRAME_SAMPLES, log.duration_samples)
    for k, step in enumerate(log.steps, start=1):
        if step.audio_samples < least and _has_text(step):
            problem = f"text after {step.audio_samples} samples of audio"
            yield k, f"{problem}; are its times in other units?"


def _has_text(step: Step) -> bool:
    return any(word.strip() for word in (*step.committed, *step.partial))


def _rate_of_speech(log: UtteranceLog) -> Breaks:
    faults = references.rate(log.text, log.duration_s, unit_of(log.language))
    yield from ((0, fault) for fault in faults)


# Each rule in the words of docs/events.md, and the function that yields the places that break it.
INVARIANTS: dict[str, Callable[[UtteranceLog], Breaks]] = {
    "`audio_samples` never goes back.": _goes_back,
    "No step follows the flush, and an `ok` utterance ends with it.": _last_is_flush,
    "An `ok` utterance ends with its audio, and none half a second beyond it.": _received_to_end,
    "Steps are one chunk apart, with `best_effort` also what had arrived.": _as_scheduled,
    "No step is in the log twice.": _each_once,
    "An utterance has the feed of its run; live sessions have `best_effort`.": _feed,
    "A step holds its parts and the CPU time of 1,024 cores.": _compute,
    "Each step of the feed `realtime_queue` has a lag, others none; it holds the step, is at most "
    "12 hours, and a stream's steps end one after the other.": _lag,
    "`frames_real` is at most `frames_computed`, `decode_steps` at most `beam_sum`.": _counts,
    "A step has all or none of the counts that are added together.": _counted_together,
    "Committed words go only by `retracted`, which `commit_violations` counts.": _retractions,
    "Nothing is partial after the flush.": _nothing_partial,
    "An utterance has an `error` only where it failed.": _error,
    "`words` has one entry for each committed word, in the audio or its padding.": _committed_words,
    "The reference's words are in order and in the recording.": _reference_words,
    "The reference's words are those of its text, in number and order.": _spelling,
    "The reference's words last as long as it takes to say them.": _speakable,
    "No text comes before 20 ms of audio.": _text_has_sound,
    "A reference has at most 20 words (40 characters) a second, and five.": _rate_of_speech,
}
