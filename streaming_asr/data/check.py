"""Is a corpus whole? Counts it, adds it up, reads every recording and names each that is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.text.units import unit_of, written_units
from streaming_asr.utterance import Utterance

TOLERANCE_S = 0.1
"""A recording may differ so much from the length that is stated for it: mp3 has padding."""
BATCH = 256


@dataclass
class Totals:
    """What a corpus holds."""

    n: int = 0
    n_whole: int = 0
    lengths_s: list[float] = field(default_factory=list)
    n_words: int = 0
    n_timed: int = 0
    n_without_text: int = 0
    speakers: set[str] = field(default_factory=set)
    languages: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return how long the recordings last together."""
        return sum(self.lengths_s)


def check(
    corpus: Any, *, decode: bool = True, workers: int = 4, limit: int | None = None
) -> Totals:
    """Return what a corpus holds; without `decode` only headers are read. Raises UserError."""
    totals = Totals()
    scanned: Iterable[Utterance | UserError] = corpus.check()
    if limit is not None:
        scanned = islice(scanned, limit)
    # Threads, since decoders release the interpreter's lock.
    with ThreadPoolExecutor(workers) as pool:
        for each, length_s, problem in _in_batches(pool, partial(_read, decode), scanned):
            totals.n += 1
            if problem:
                totals.problems.append(problem)
            if not isinstance(each, Utterance):
                continue
            totals.n_whole += not problem
            totals.lengths_s.append(length_s)
            words = written_units(each.text, unit_of(each.language))
            totals.n_words += len(words)
            totals.n_timed += len(words) if each.words else 0
            totals.n_without_text += not words
            totals.speakers |= {each.speaker} if each.speaker else set()
            totals.languages |= {each.language} if each.language else set()
    return totals


def _in_batches(
    pool: ThreadPoolExecutor, read: Callable[[Any], Any], scanned: Iterable[Any]
) -> Iterator[Any]:
    """Yield as `pool.map` does, without holding the whole corpus at once."""
    iterator = iter(scanned)
    while batch := list(islice(iterator, BATCH)):
        yield from pool.map(read, batch)


def _read(decode: bool, each: Utterance | UserError) -> tuple[Any, float, str]:
    """Return the utterance, its length in seconds, and what is wrong with it ("" for nothing)."""
    if isinstance(each, UserError):
        return each, 0.0, str(each)
    length_s = each.duration_s
    if decode:
        try:
            length_s = len(each.load()) / SAMPLE_RATE
        except UserError as error:
            return each, 0.0, f"{each.id}: {str(error).removeprefix(f'{each.id}: ')}"
    problem = ""
    if not length_s:
        problem = f"{each.id}: no audio that can be read ({each.audio_path})"
    elif each.duration_s and abs(length_s - each.duration_s) > TOLERANCE_S:
        problem = each.other_length(length_s)
    elif each.words and each.words[-1].end > length_s + TOLERANCE_S:
        problem = (
            f"{each.id}: its word {each.words[-1].text!r} ends at {each.words[-1].end:.2f} s, the "
            f"recording at {length_s:.2f} s; align it again"
        )
    return each, length_s, problem


def lines(corpus: Any, totals: Totals) -> Iterator[str]:
    """Yield the lines of the report."""
    part = getattr(corpus, "ids", None) or corpus.split
    yield f"{corpus.name}, split {part}: {totals.n} utterances, {_hours(totals.seconds)}"
    if totals.n_whole:
        span = f"{min(totals.lengths_s):.1f} to {max(totals.lengths_s):.1f} s"
        yield f"  length     {span}, mean {totals.seconds / totals.n_whole:.1f} s"
    timed = 100 * totals.n_timed / max(1, totals.n_words)
    yield f"  words      {totals.n_words}, {timed:.1f} % with times"
    yield f"  speakers   {len(totals.speakers) or 'not named'}"
    yield f"  languages  {', '.join(sorted(totals.languages)) or 'not named'}"
    if totals.n_without_text:
        yield f"  without text: {totals.n_without_text} (they count as silence in scores)"
    if (licence := getattr(corpus, "licence", None)) is not None:
        yield f"  licence    {licence()}"
    yield f"  broken     {len(totals.problems)}"
    for problem in totals.problems:
        yield f"    {problem}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.2f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
