"""All metrics of a corpus of traces, by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streaming_asr.metrics import (
    accuracy,
    biasing,
    cost,
    decomposition,
    latency,
    live,
    ordinary,
    stability,
    turns,
)
from streaming_asr.metrics.latency import SEEN, WordLatency
from streaming_asr.metrics.table import CLOCKS, METRICS
from streaming_asr.metrics.trace import Trace, mean, ratio

Figures = dict[str, float | None]


def compute(traces: Sequence[Trace]) -> Figures:
    """Return every metric of METRICS over a corpus; an undefined one is None, never NaN or 0.

    Where streams were advanced together they shared their compute, so what depends on the time of
    one step is None: latency, every figure on the compute clock, steps, queue.
    """
    timed = [latency.timed(trace) for trace in traces]
    figures = (
        _accuracy(traces)
        | _first_and_last(traces, timed)
        | _word_latency([words for words in timed if words is not None])
        | _word_latency_parts(traces, timed)
        | _lagging(traces)
        | _stability(traces)
        | cost.real_time_factors(traces)
        | cost.step_times_ms(traces)
        | cost.queue(traces)
        | cost.encoder_work(traces)
        | cost.beams(traces)
        | cost.compression(traces)
        | ordinary.figures(traces)
        | turns.figures(traces)
        | live.figures(traces)
        | biasing.figures(traces)
    )
    figures["memory_peak_mib"] = cost.memory_peak_mib(traces)
    figures["commit_violations"] = sum(trace.commit_violations for trace in traces)
    figures["retracted_words"] = sum(s.step.retracted for trace in traces for s in trace.steps)
    if any(trace.has_company for trace in traces):  # the queue of the device, not of one stream
        figures |= dict.fromkeys(("queue_growth", "headroom"))
    # A step that streams shared has no time of its own, so only pooled figures are meaningful.
    batched = any(trace.batch > 1 for trace in traces)
    return {m.name: None if batched and m.alone else figures[m.name] for m in METRICS.values()}


def _accuracy(traces: Sequence[Trace]) -> Figures:
    totals: dict[str, list[accuracy.Errors]] = {
        name: [] for name in METRICS if name.startswith(("wer", "cer", "rwer", "arwer"))
    }
    for trace in traces:
        normalise = trace.normalise
        totals["wer"].append(accuracy.word_errors(trace, normalise))
        totals["cer"].append(accuracy.character_errors(trace, normalise))
        totals["wer_formatted"].append(accuracy.formatted_word_errors(trace))
        for suffix, committed in (("", False), ("_committed", True)):
            rwer = accuracy.real_time_word_errors(trace, normalise, committed=committed)
            totals[f"rwer{suffix}"].append(rwer)
        if trace.words is None:
            continue
        aligned = accuracy.aligned(trace)
        for clock in CLOCKS:
            totals[f"arwer_{clock}"].append(aligned.per_step(clock))
            totals[f"arwer_committed_{clock}"].append(aligned.per_step(clock, committed=True))
            totals[f"arwer_grid_{clock}"].append(aligned.on_grid(clock))
    return {name: accuracy.total(counts).percent() for name, counts in totals.items()}


def _first_and_last(traces: Sequence[Trace], timed: Sequence[WordLatency | None]) -> Figures:
    """Return the means over the utterances of the `first_token_`, `first_correct_` and
    `finalise_` metrics: when the first
    token and the first right word are shown, and how long the end of an utterance takes.

    timed: the word latency of each trace, None without word times.
    """
    values_of: dict[str, list[float]] = {
        name: []
        for name in METRICS
        if name.startswith(("first_token_", "first_correct_", "finalise_"))
    }

    def add(name: str, value: float | None) -> None:
        if value is not None:
            values_of[name].append(value)

    for trace, words in zip(traces, timed, strict=True):
        if not trace.steps:
            continue
        add("finalise_compute_s", sum(s.compute_s for s in trace.steps if s.step.kind == "flush"))
        add("finalise_tail_s", trace.steps[-1].finished_s - trace.duration_s)
        for clock in CLOCKS:
            times_s = {"first_token": latency.first_token_s(trace, clock)}
            if words is not None:
                times_s["first_correct_word"] = words.first_correct_s(clock)
                add(f"finalise_last_word_{clock}_s", words.last_word_s(clock))
            for event, time_s in times_s.items():
                if time_s is None:
                    continue
                # Counted from the start of the audio, and from the first spoken word.
                add(f"{event}_start_{clock}_s", time_s)
                if trace.words:
                    add(f"{event}_word_start_{clock}_s", time_s - trace.words[0].start)
                    add(f"{event}_word_end_{clock}_s", time_s - trace.words[0].end)
    return {name: mean(values) for name, values in values_of.items()}


def _word_latency(timed: Sequence[WordLatency]) -> Figures:
    figures: Figures = {
        "word_latency_coverage": ratio(
            sum(len(words.hits) for words in timed),
            sum(len(words.spoken) for words in timed),
            100.0,
        )
    }
    for seen in SEEN:
        for clock in CLOCKS:
            pooled = [value for words in timed for value in words.latencies(seen, clock)]
            for figure, value in latency.summary(pooled).items():
                figures[f"word_latency_{seen}_{figure}_{clock}_s"] = value
    return figures


def _word_latency_parts(traces: Sequence[Trace], timed: Sequence[WordLatency | None]) -> Figures:
    parts: list[decomposition.Parts] = []
    for trace, words in zip(traces, timed, strict=True):
        if words is not None:
            parts += decomposition.word_parts(trace, words)
    return {
        f"word_latency_{name}_mean_ca_s": value
        for name, value in decomposition.means(parts).items()
    }


def _lagging(traces: Sequence[Trace]) -> Figures:
    names = [name for name in METRICS if name.startswith(("al_", "laal_", "yaal_", "dal_", "ap_"))]
    values_of: dict[str, list[float]] = {name: [] for name in names}
    for trace in traces:
        for name, value in _lagging_of(trace).items():
            if value is not None:
                values_of[name].append(value)
    return {name: mean(values) for name, values in values_of.items()}


def _lagging_of(trace: Trace) -> Figures:
    """Return the lagging metrics of one utterance on both clocks, in ms; AP has no unit."""
    figures: Figures = {}
    n_words, duration_ms = len(trace.units(trace.reference)), trace.duration_s * 1000.0
    for clock in CLOCKS:
        word_delays = latency.commit_delays_ms(trace, clock)
        token_delays = latency.token_delays_ms(trace, clock)
        arguments = word_delays, n_words, duration_ms
        figures |= {
            f"al_{clock}_ms": latency.average_lagging(*arguments),
            f"laal_{clock}_ms": latency.length_adaptive_average_lagging(*arguments),
            f"yaal_{clock}_ms": latency.yet_another_average_lagging(*arguments),
            f"dal_{clock}_ms": latency.differentiable_average_lagging(word_delays, duration_ms),
            f"ap_{clock}": latency.average_proportion(*arguments),
            f"dal_tokens_{clock}_ms": latency.differentiable_average_lagging(
                token_delays, duration_ms
            ),
        }
    return figures


def _stability(traces: Sequence[Trace]) -> Figures:
    counts = [stability.flicker(trace) for trace in traces]
    final = sum(count.final for count in counts)
    return {
        "normalised_erasure": ratio(
            sum(count.erased_as_written for count in counts),
            sum(count.final_as_written for count in counts),
        ),
        "light_erasure": ratio(sum(count.erased for count in counts), final),
        "unstable_words_per_word": ratio(sum(count.lost for count in counts), final),
    }


def utterance_line(trace: Trace) -> dict[str, Any]:
    """Return the line of utterances.jsonl for one utterance."""
    normalise = trace.normalise
    errors = accuracy.word_errors(trace, normalise)
    times: dict[str, float | None] = {}
    parts: dict[str, float | None] = {}
    coverage = None
    if (words := latency.timed(trace)) is not None:
        coverage = ratio(len(words.hits), len(words.spoken), 100.0)
        if trace.batch == 1:
            parts = decomposition.means(decomposition.word_parts(trace, words))
            for seen in SEEN:
                for clock in CLOCKS:
                    figures = latency.summary(words.latencies(seen, clock))
                    times[f"{seen}_p50_{clock}_s"] = figures["p50"]
                    times[f"{seen}_p90_{clock}_s"] = figures["p90"]
    return {
        "utt": trace.utt,
        "speaker": trace.speaker,
        "reference": trace.reference,
        "hypothesis": trace.hypothesis,
        "reference_normalised": normalise(trace.reference),
        "hypothesis_normalised": normalise(trace.hypothesis),
        "errors": errors.errors,
        "n_words": errors.words,
        "wer": errors.percent(),
        "latency": times,
        "latency_parts": parts,
        "coverage": coverage,
        "ordinary": ordinary.line(trace),
        "audio_s": trace.duration_s,
        "compute_s": cost.compute_s(trace) if trace.steps else None,
        "failed": trace.error,
    }
