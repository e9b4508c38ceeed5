"""Is a corpus whole? Counts it, adds it up, reads every recording and names each that is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.text.normalise import light_key
from streaming_asr.utterance import Utterance

TOLERANCE_S = 0.1
"""A recording may differ so much from the length that is stated for it: mp3 has padding."""
BATCH = 256


@dataclass
class Found:
    """What a corpus holds."""

    n: int = 0
    n_whole: int = 0
    seconds: float = 0.0
    shortest_s: float = float("inf")
    longest_s: float = 0.0
    n_words: int = 0
    n_timed: int = 0
    n_without_text: int = 0
    speakers: set[str] = field(default_factory=set)
    languages: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


def check(corpus: Any, *, decode: bool = True, workers: int = 4, limit: int | None = None) -> Found:
    """Return what the utterances of `corpus` hold; `decode` reads the audio, otherwise only headers
    are.

    Raises UserError where there is no such corpus at all.
    """
    found = Found()
    scanned: Iterable[Utterance | UserError] = corpus.check()
    if limit is not None:
        scanned = islice(scanned, limit)
    with ThreadPoolExecutor(workers) as pool:
        for each, length_s, problem in _in_batches(pool, lambda u: _read(u, decode), scanned):
            found.n += 1
            if problem:
                found.problems.append(problem)
            if not isinstance(each, Utterance):
                continue
            found.n_whole += not problem
            found.seconds += length_s
            found.shortest_s = min(found.shortest_s, length_s)
            found.longest_s = max(found.longest_s, length_s)
            words = [word for word in each.text.split() if light_key(word)]
            found.n_words += len(words)
            found.n_timed += len(words) if each.words else 0
            found.n_without_text += not words
            found.speakers |= {each.speaker} if each.speaker else set()
            found.languages |= {each.language} if each.language else set()
    return found


def _in_batches(
    pool: ThreadPoolExecutor, read: Callable[[Any], Any], scanned: Iterable[Any]
) -> Iterator[Any]:
    """Yield as `pool.map` does, without holding the whole corpus at once."""
    iterator = iter(scanned)
    while batch := list(islice(iterator, BATCH)):
        yield from pool.map(read, batch)


def _read(each: Utterance | UserError, decode: bool) -> tuple[Any, float, str]:
    """Return the utterance, its length in seconds, and what is wrong with it ("" for nothing)."""
    if isinstance(each, UserError):
        return each, 0.0, str(each)
    length_s = each.duration_s
    if decode:
        try:
            length_s = len(each.load()) / SAMPLE_RATE
        except UserError as error:
            return each, 0.0, f"{each.id}: {str(error).removeprefix(f'{each.id}: ')}"
        if each.duration_s and abs(length_s - each.duration_s) > TOLERANCE_S:
            return (
                each,
                length_s,
                f"{each.id}: lasts {length_s:.2f} s, {each.duration_s:.2f} s are stated; the "
                f"recording is cut off, or not the one that is meant ({each.audio_path})",
            )
    elif not length_s:
        return each, 0.0, f"{each.id}: no audio that can be read ({each.audio_path})"
    if each.words and each.words[-1].end > length_s + TOLERANCE_S:
        return (
            each,
            length_s,
            f"{each.id}: its word {each.words[-1].text!r} ends at {each.words[-1].end:.2f} s, the "
            f"recording at {length_s:.2f} s; align it again",
        )
    return each, length_s, ""


def lines(corpus: Any, found: Found) -> Iterator[str]:
    """Yield the lines of the report."""
    part = getattr(corpus, "ids", None) or corpus.split
    yield f"{corpus.name}, split {part}: {found.n} utterances, {_hours(found.seconds)}"
    if found.n_whole:
        mean_s = found.seconds / max(1, found.n_whole)
        yield f"  length     {found.shortest_s:.1f} to {found.longest_s:.1f} s, mean {mean_s:.1f} s"
    timed = 100 * found.n_timed / max(1, found.n_words)
    yield f"  words      {found.n_words}, {timed:.1f} % with times"
    yield f"  speakers   {len(found.speakers) or 'not named'}"
    yield f"  languages  {', '.join(sorted(found.languages)) or 'not named'}"
    if found.n_without_text:
        yield f"  without text: {found.n_without_text} (they count as silence in scores)"
    if (licence := getattr(corpus, "licence", None)) is not None:
        yield f"  licence    {licence()}"
    yield f"  broken     {len(found.problems)}"
    for problem in found.problems:
        yield f"    {problem}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
