"""Long recordings (docs/ordinary.md): lagging by sentence, errors by hour, lag by minute.

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
    result: list[Sentence] = []
    first = 0  # index of the sentence's first word
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else None
        closes = (
            CLOSING.search(word.text) is not None
            and word.text.lower() not in TITLES
            and not (following is not None and following.text[:1].islower())
        )
        if following is None or closes or following.start - word.end >= PAUSE_S:
            text = joined((part.text for part in words[first : i + 1]), trace.unit)
            result.append(Sentence(text, words[first].start, word.end))
            first = i + 1
    return result


def resegment(hypothesis: Sequence[str], references: Sequence[str]) -> list[int]:
    """Return how many tokens of `hypothesis` mweralign assigns to each reference sentence, in
    order. Raises UserError if mweralign is not installed."""
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
    traces: Sequence[Trace], on: Sequence[str] = ("cu", "ca")
) -> dict[str, float | None]:
    """Return StreamLAAL in milliseconds on each of these clocks: the mean over the sentences of all
    recordings that got any text (Papi et al. 2024, StreamAtt). Raises UserError."""
    return _over_sentences(traces, on, sentence_laal_ms)


def long_yaal(traces: Sequence[Trace], on: Sequence[str] = ("cu", "ca")) -> dict[str, float | None]:
    """Return LongYAAL (Polak et al. 2025) in milliseconds on each of these clocks, as OmniSTEval
    computes it: the mean over the sentences with a word before the last one's end. Raises
    UserError."""
    return _over_sentences(traces, on, sentence_yaal_ms)


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
    on: Sequence[str],
    lagging_ms: Callable[[Sentence, Sequence[float], float, Unit], float | None],
) -> dict[str, float | None]:
    """Return, by clock, the mean of `lagging_ms` over the sentences of all traces; sentences for
    which it is None do not count."""
    lags: dict[str, list[float]] = {clock: [] for clock in on}
    for trace in traces:
        spoken = sentences(trace)
        if not trace.steps or not spoken:
            continue
        # Cutting an hour takes seconds, and every figure and clock needs the same cuts.
        if "resegmented" not in trace.derived:
            # Its aligner cuts at blanks, so every unit is given as a word.
            texts = [" ".join(trace.units(sentence.text)) for sentence in spoken]
            trace.derived["resegmented"] = resegment(trace.units(trace.hypothesis), texts)
        n_tokens = trace.derived["resegmented"]  # of the final text, by sentence
        a, c = arrays(trace.steps)
        step_of_token = commit_steps(trace)
        end_s = max(sentence.end_s for sentence in spoken)
        times_s = {"cu": a, "ca": clocks.fifo(a, c)}
        for clock in on:
            step_ms = times_s[clock] * 1000.0
            token_ms = iter(step_ms[step_of_token].tolist())
            for sentence, n in zip(spoken, n_tokens, strict=True):
                start_ms = sentence.start_s * 1000.0
                delays_ms = [time_ms - start_ms for time_ms in islice(token_ms, n)]
                lag_ms = lagging_ms(sentence, delays_ms, end_s, trace.unit)
                if lag_ms is not None:
                    lags[clock].append(lag_ms)
    return {clock: mean(values) for clock, values in lags.items()}


def errors_by_time(trace: Trace, normalise: Normaliser, bucket_s: float = 3600.0) -> list[Errors]:
    """Return the word errors of each stretch of `bucket_s` seconds (default an hour) of a
    recording; a sentence belongs to the stretch in which it starts.

    They add up to those of WER. An insertion belongs to the reference word before it. A recording
    without word times has one stretch if it is no longer than that, else [].
    """
    reference, hypothesis = normalise.words(trace.reference), normalise.words(trace.hypothesis)
    bucket_of: list[int] = []  # of each reference word
    spoken: list[str] = []
    for sentence in sentences(trace):
        words = normalise.words(sentence.text)
        spoken += words
        bucket_of += [int(sentence.start_s // bucket_s)] * len(words)
    if not bucket_of:
        if reference and trace.duration_s > bucket_s:
            return []
        bucket_of = [0] * len(reference)
    elif tuple(spoken) != reference:  # the normaliser joins words of two sentences, as of a number
        spoken_of = [0] * len(reference)
        for block in Levenshtein.opcodes(reference, spoken):
            for word in range(block.src_start, block.src_end):
                last = max(block.dest_end - 1, block.dest_start)
                spoken_of[word] = min(block.dest_start + word - block.src_start, last)
        bucket_of = [bucket_of[min(word, len(spoken) - 1)] for word in spoken_of]
    n_buckets = max(bucket_of, default=0) + 1
    n_words, n_errors = [0] * n_buckets, [0] * n_buckets
    for bucket in bucket_of:
        n_words[bucket] += 1
    for edit in Levenshtein.editops(reference, hypothesis):
        # rapidfuzz gives the reference word that follows an insertion.
        word = edit.src_pos - 1 if edit.tag == "insert" else edit.src_pos
        n_errors[bucket_of[max(word, 0)] if bucket_of else 0] += 1
    return [Errors(errors, words) for errors, words in zip(n_errors, n_words, strict=True)]


def lag_over_time(traces: Sequence[Trace], clock: str, bucket_s: float = 60.0) -> list[list[float]]:
    """Return, for each stretch of `bucket_s` seconds (default a minute), the seconds from the end
    of each right word that ended in it to the word's commit.

    If they grow from minute to minute, the method falls behind. Recordings are pooled; those
    without word times add nothing.
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
