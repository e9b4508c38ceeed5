"""Long recordings (docs/longform.md): lagging by sentence, errors by hour, lag by minute.

AL and its kin divide by the length of a recording, so on ten minutes they mean nothing. StreamLAAL
(Papi et al. 2024, StreamAtt) cuts the text at the reference's sentences, by the
segmentation of least word error rate (Matusov et al. 2005), and takes LAAL of each from the
sentence's start. The segmentation is that of the package mweralign, an optional dependency.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from rapidfuzz.distance import Levenshtein

from streaming_asr.errors import UserError
from streaming_asr.metrics import clocks
from streaming_asr.metrics.accuracy import Errors
from streaming_asr.metrics.latency import (
    commit_steps,
    length_adaptive_average_lagging,
    timed,
    yet_another_average_lagging,
)
from streaming_asr.metrics.trace import Trace, arrays, mean
from streaming_asr.text.normalise import Normaliser
from streaming_asr.text.units import Unit, joined, units

PAUSE_S = 1.0  # a silence this long ends a sentence that has no closing mark
# Words whose full stop closes no sentence.
TITLES = frozenset({"mr.", "mrs.", "ms.", "dr.", "prof.", "st.", "jr.", "sr."})
CLOSING = re.compile(r"[.!?…。！？]+[\"'”’»)\]]*$")


@dataclass(frozen=True)
class Sentence:
    """A sentence of the reference and when it is spoken, in seconds."""

    text: str
    start_s: float
    end_s: float


def sentences(trace: Trace) -> list[Sentence]:
    """Return the reference cut into sentences, none where the trace has no word times.

    A sentence ends at a word with a closing mark, unless that is a title (Mr.) or the next word
    starts in lower case (5 a.m. on), and before a pause of PAUSE_S.
    """
    words = trace.words or ()
    cut: list[Sentence] = []
    first = 0
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        closes = (
            CLOSING.search(word.text) is not None
            and word.text.lower() not in TITLES
            and not (following is not None and following.text[:1].islower())
        )
        if following is None or closes or following.start - word.end >= PAUSE_S:
            text = joined((part.text for part in words[first : i + 1]), trace.unit)
            cut.append(Sentence(text, words[first].start, word.end))
            first = i + 1
    return cut


def resegment(hypothesis: Sequence[str], references: Sequence[str]) -> list[int]:
    """Return how many tokens of `hypothesis` fall to each reference sentence, by mweralign."""
    if not hypothesis:
        return [0] * len(references)
    try:
        import mweralign
    except ImportError as error:
        raise UserError(
            "StreamLAAL cuts texts into sentences with mweralign, which is not installed; "
            "`pip install mweralign` (its aligner is under the GPL)."
        ) from error
    with _quiet():  # its C++ reports progress
        aligned = mweralign.align_texts("\n".join(references), " ".join(hypothesis))
    counts = [len(line.split()) for line in aligned.split("\n")][: len(references)]
    if sum(counts) != len(hypothesis) or len(counts) != len(references):
        raise ValueError(f"mweralign gave {counts} for {len(hypothesis)} words")
    return counts


def stream_laal(
    traces: Sequence[Trace], rules: Sequence[str] = ("cu", "ca")
) -> dict[str, float | None]:
    """Return StreamLAAL in milliseconds by each rule of clocks.RULES: the mean over the sentences
    of all recordings that got any text (Papi et al. 2024, StreamAtt). Raises UserError.

    "fbk" gives simulstream's computation-aware figure, which knows no queue.
    """
    return _over_sentences(traces, rules, sentence_laal_ms)


def long_yaal(
    traces: Sequence[Trace], rules: Sequence[str] = ("cu", "ca")
) -> dict[str, float | None]:
    """Return LongYAAL (Polak et al. 2025) in milliseconds by each rule, as OmniSTEval computes it:
    the mean over the sentences with a word before the last one's end. Raises UserError."""
    return _over_sentences(traces, rules, sentence_yaal_ms)


def sentence_laal_ms(
    sentence: Sentence, delays_ms: Sequence[float], end_s: float, unit: Unit = "word"
) -> float | None:
    """Return LAAL of a sentence, whose units came at `delays_ms` from its own start."""
    length_ms = (sentence.end_s - sentence.start_s) * 1000.0
    return length_adaptive_average_lagging(delays_ms, len(units(sentence.text, unit)), length_ms)


def sentence_yaal_ms(
    sentence: Sentence, delays_ms: Sequence[float], end_s: float, unit: Unit = "word"
) -> float | None:
    """Return YAAL of a sentence, whose units count until the recording's last sentence ends."""
    length_ms = (sentence.end_s - sentence.start_s) * 1000.0
    end_ms = (end_s - sentence.start_s) * 1000.0
    n_units = len(units(sentence.text, unit))
    return yet_another_average_lagging(delays_ms, n_units, length_ms, end_ms)


def _over_sentences(
    traces: Sequence[Trace],
    rules: Sequence[str],
    lagging_ms: Callable[[Sentence, Sequence[float], float, Unit], float | None],
) -> dict[str, float | None]:
    lags: dict[str, list[float]] = {rule: [] for rule in rules}
    for trace in traces:
        parts = sentences(trace)
        if not trace.steps or not parts:
            continue
        # Cutting an hour takes seconds, and every figure and clock needs the same cuts.
        if "resegmented" not in trace.derived:
            # Its aligner cuts at blanks, so every unit is given as a word.
            texts = [" ".join(trace.units(part.text)) for part in parts]
            trace.derived["resegmented"] = resegment(trace.units(trace.hypothesis), texts)
        a, c = arrays(trace.steps)
        of_token = commit_steps(trace)
        end_s = max(part.end_s for part in parts)
        for rule in rules:
            times_ms = iter((clocks.RULES[rule](a, c) * 1000.0)[of_token].tolist())
            for part, n_tokens in zip(parts, trace.derived["resegmented"], strict=True):
                delays_ms = [
                    time_ms - part.start_s * 1000.0 for time_ms in islice(times_ms, n_tokens)
                ]
                if (lagging := lagging_ms(part, delays_ms, end_s, trace.unit)) is not None:
                    lags[rule].append(lagging)
    return {rule: mean(values) for rule, values in lags.items()}


def errors_by_time(trace: Trace, normalise: Normaliser, bucket_s: float = 3600.0) -> list[Errors]:
    """Return the word errors by the stretch of the recording (an hour, by default) in which their
    sentence starts.

    Sentences are normalised one by one, their words aligned with the normalised text as a whole;
    an insertion belongs to the word before it. Empty where the trace has no word times.
    """
    owners: list[int] = []
    reference: list[str] = []
    for part in sentences(trace):
        spoken = normalise.words(part.text)
        reference += spoken
        owners += [int(part.start_s // bucket_s)] * len(spoken)
    if not owners:
        return []
    n_words, n_errors = ([0] * (owners[-1] + 1) for _ in range(2))
    for owner in owners:
        n_words[owner] += 1
    for edit in Levenshtein.editops(reference, normalise.words(trace.hypothesis)):
        place = edit.src_pos - 1 if edit.tag == "insert" else edit.src_pos
        n_errors[owners[max(place, 0)]] += 1
    return [Errors(errors, words) for errors, words in zip(n_errors, n_words, strict=True)]


def lag_over_time(traces: Sequence[Trace], clock: str, bucket_s: float = 60.0) -> list[list[float]]:
    """Return the seconds from the end of each recognised word to its commit, by the minute it ended
    in.

    A list that grows along its minutes belongs to a method that falls behind. Recordings are
    pooled; those without word times add nothing.
    """
    lags: list[list[float]] = []
    for trace in traces:
        if not trace.words or (words := timed(trace)) is None:
            continue
        n_buckets = int(max(word.end for word in trace.words) // bucket_s) + 1
        lags += [[] for _ in range(n_buckets - len(lags))]
        for hit, latency in zip(words.hits, words.latencies("committed", clock), strict=True):
            lags[int(hit.end_s // bucket_s)].append(latency)
    return lags


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what mweralign's C++ writes to standard error."""
    stderr_copy = os.dup(2)
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(stderr_copy, 2)
        os.close(stderr_copy)
