"""The one table of metrics: name, unit, direction, definition, source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

# Raised whenever a change can alter any score of an existing log.
METRICS_VERSION = 2

Better = Literal["lower", "higher"] | None


@dataclass(frozen=True)
class Metric:
    """One reported number: `better` is None where neither direction is good in itself."""

    name: str
    unit: str
    better: Better
    definition: str
    source: str


WHISPERRT = "WhisperRT (arXiv 2508.12301)"
STAR = "STAR (arXiv 2402.01172)"
OURS = "this project"
COMMON = "common use"

_AT = {"cu": "on the audio clock a_k", "ca": "on the compute clock f_k"}


def _both(name: str, unit: str, definition: str, source: str = OURS) -> list[Metric]:
    """Return a metric on each clock: `{clock}` in its name, `{at}` in its definition."""
    return [
        Metric(name.format(clock=clock), unit, "lower", definition.format(at=at), source)
        for clock, at in _AT.items()
    ]


def _accuracy() -> list[Metric]:
    rows = [
        ("wer", "(S+D+I)/N of normalised words, pooled over the corpus", COMMON),
        ("cer", "the same of normalised characters, spaces included", COMMON),
        ("wer_formatted", "WER of whitespace tokens as written: case, punctuation, digits", OURS),
        (
            "rwer",
            "sum_k ED(ref[:len D_k], D_k) / sum_k len ref[:len D_k], displayed text",
            WHISPERRT,
        ),
        ("rwer_committed", "RWER of the committed text alone", OURS),
    ]
    against = "text at every step against the words that ended before it, {at}"
    grid = "ARWER of the displayed text sampled every 100 ms, {at}; compares chunk sizes"
    cu, ca = _both("arwer_{clock}", "%", f"displayed {against}")
    return [
        *(Metric(name, "%", "lower", definition, source) for name, definition, source in rows),
        replace(cu, source=WHISPERRT),
        ca,
        *_both("arwer_committed_{clock}", "%", f"committed {against}"),
        *_both("arwer_grid_{clock}", "%", grid),
    ]


def _latency() -> list[Metric]:
    found = []
    zeros = {
        "start": "the start of the audio",
        "word_start": "the start of the first spoken word",
        "word_end": "the end of the first spoken word",
    }
    events = {
        "first_token": "first time anything is displayed",
        "first_correct_word": "first time a word is displayed that the final text holds rightly",
    }
    for event, what in events.items():
        for zero, since in zeros.items():
            definition = f"{what}, minus {since}, {{at}}; mean over utterances"
            found += _both(f"{event}_{zero}_{{clock}}_s", "s", definition)
    kinds = {
        "shown": "first displayed",
        "stable": "displayed ever since",
        "committed": "committed",
    }
    for kind, what in kinds.items():
        for figure in ("mean", "p50", "p90", "p95", "p99"):
            definition = f"{figure} over right words of: {what}, minus its spoken end, {{at}}"
            found += _both(f"word_latency_{kind}_{figure}_{{clock}}_s", "s", definition)
    parts = {
        "fill": "the chunk that holds the word's end fills up",
        "lookahead": "the method waits for the audio past it that it declared",
        "policy": "the method holds the word back",
        "queue": "the step waits for the one before it",
        "compute": "the step computes",
    }
    for part, what in parts.items():
        definition = f"part of word_latency_committed_mean_ca_s: {what}; the five sum to it"
        found.append(Metric(f"word_latency_{part}_mean_ca_s", "s", "lower", definition, OURS))
    covered = "share of spoken words that word latency covers: those the final text holds rightly"
    flush = "compute of the flush after the last audio, mean over utterances"
    tail = "end of the last step on the compute clock minus the audio's duration, mean"
    last = "commit of the last word minus the end of the last spoken word, {at}, mean"
    found += [
        Metric("word_latency_coverage", "%", "higher", covered, OURS),
        Metric("finalise_compute_s", "s", "lower", flush, OURS),
        Metric("finalise_tail_s", "s", "lower", tail, OURS),
        *_both("finalise_last_word_{clock}_s", "s", last),
    ]
    lagging = {
        "al": ("ms", "average lagging behind an even emission of the reference", "Ma et al. 2019"),
        "laal": ("ms", "AL at the pace of the longer of text and reference", "Papi et al. 2022"),
        "yaal": (
            "ms",
            "LAAL of the words emitted before the end of the audio",
            "Polak et al. 2025",
        ),
        "dal": ("ms", "differentiable AL: a word takes its time", "Arivazhagan et al. 2019"),
        "ap": ("", "mean delay as a share of the duration", "Cho and Esipova 2016"),
    }
    for name, (unit, what, source) in lagging.items():
        definition = f"{what}, of commit times {{at}}; mean over utterances with words"
        found += _both(f"{name}_{{clock}}{'_' * bool(unit)}{unit}", unit, definition, source)
    definition = "DAL over tokens, of the times they became final {at}; mean"
    return found + _both("dal_tokens_{clock}_ms", "ms", definition, STAR)


def _cost() -> list[Metric]:
    rows: list[tuple[str, str, Better, str, str]] = [
        ("rtf_total", "", "lower", "all compute / all audio", COMMON),
        ("rtf_cpu", "", "lower", "all CPU time of steps / all audio, not of a GPU", COMMON),
        ("rtf_chunk", "", "lower", "mean of step compute / audio received in it", WHISPERRT),
        ("rtfx", "", "higher", "all audio / all compute", COMMON),
        ("step_mean_ms", "ms", "lower", "mean compute of a step", COMMON),
        ("step_p50_ms", "ms", "lower", "median compute of a step", COMMON),
        ("step_p90_ms", "ms", "lower", "90th percentile of the compute of a step", COMMON),
        ("step_p99_ms", "ms", "lower", "99th percentile of the compute of a step", COMMON),
        ("queue_max_s", "s", "lower", "longest wait of audio for the step before it", OURS),
        ("queue_final_s", "s", "lower", "wait at the last step, mean over utterances", OURS),
        ("queue_growth", "s/s", "lower", "growth of the wait over the last half, mean", OURS),
        ("headroom", "x", "higher", "how many times slower a machine every queue bears", OURS),
        (
            "normalised_erasure",
            "",
            "lower",
            "words rewritten / final words, as written (simulstream's figure)",
            "Arivazhagan 2020",
        ),
        (
            "light_erasure",
            "",
            "lower",
            "the same without case and punctuation at the edges",
            OURS,
        ),
        ("unstable_words_per_word", "", "lower", "words shown, then lost / final words", OURS),
        ("encoder_gflops_per_s", "GFLOP/s", "lower", "encoder work per second of audio", OURS),
        ("reencoding", "x", "lower", "encoded seconds / audio seconds", OURS),
        ("padding_share", "", "lower", "encoder frames computed that carry no audio", OURS),
        ("mean_beam", "", None, "mean beam width over decoder steps", "WhisperFlow, Table 4"),
        ("beam1_share", "", None, "share of decoder steps at width 1", "WhisperFlow, Table 4"),
        ("compression", "x", None, "frames per vector the decoder attends to", STAR),
        ("decoder_cache_kib", "KiB", "lower", "most that the decoder's keys and values took", OURS),
        ("memory_peak_mib", "MiB", "lower", "largest memory peak above the loaded model", OURS),
        ("commit_violations", "", "lower", "committed words a method tried to change", OURS),
        ("retracted_words", "", "lower", "committed words taken back by the method", OURS),
    ]
    return [Metric(*row) for row in rows]


METRICS: dict[str, Metric] = {
    metric.name: metric for metric in (*_accuracy(), *_latency(), *_cost())
}

STABILITY = ("normalised_erasure", "light_erasure", "unstable_words_per_word")


def beside_wer(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a table, WER first where it is missing beside stability: a method that
    says nothing is perfectly stable."""
    alone = "wer" not in names and any(name in STABILITY for name in names)
    return (*(("wer",) if alone else ()), *names)


def with_wer(metrics: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return a run's metrics, stability None where there is no WER to read it beside."""
    lost = STABILITY if metrics.get("wer") is None else ()
    return {name: None if name in lost else value for name, value in metrics.items()}
