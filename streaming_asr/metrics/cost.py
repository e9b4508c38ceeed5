"""The cost of a method: compute per audio, time per step, the queue, encoder work, memory.

Every figure pools over the corpus; it is None where nothing was measured, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from streaming_asr.method import FRAME_S
from streaming_asr.metrics import clocks
from streaming_asr.metrics.latency import summary
from streaming_asr.metrics.trace import Trace, arrays, mean, ratio

MIB = 2**20


def compute_s(trace: Trace) -> float:
    """Return all compute of one utterance, in seconds."""
    return sum(step.compute_s for step in trace.steps)


def real_time_factors(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return rtf_total = sum c / sum T, its inverse rtfx, rtf_chunk = mean c_k / (a_k - a_{k-1}),
    and rtf_cpu, which is rtf_total in CPU time.

    Only utterances with steps count. Steps that received no audio are left out of rtf_chunk.
    rtf_cpu is None where a step lacks its CPU time.
    """
    with_steps = [trace for trace in traces if trace.steps]
    wall_s = sum(compute_s(trace) for trace in with_steps)
    audio_s = sum(trace.duration_s for trace in with_steps)
    steps = [step for trace in with_steps for step in trace.steps]
    cpu_ns = [step.step.compute_ns["cpu"] for step in steps if "cpu" in step.step.compute_ns]
    is_cpu_complete = len(cpu_ns) == len(steps)
    return {
        "rtf_cpu": ratio(sum(cpu_ns), audio_s, 1e-9) if is_cpu_complete else None,
        "rtf_total": ratio(wall_s, audio_s),
        "rtfx": ratio(audio_s, wall_s),
        "rtf_chunk": mean([factor for trace in with_steps for factor in _chunk_factors(trace)]),
    }


def step_times_ms(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return mean and percentiles of c_k over all steps."""
    figures = summary([step.compute_s * 1000.0 for trace in traces for step in trace.steps])
    return {f"step_{name}_ms": figures[name] for name in ("mean", "p50", "p90", "p99")}


def queue(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return how long audio waits for the step before it: the longest wait of all steps, the mean
    over utterances of the last step's wait and of the growth (clocks.queue_growth); and headroom,
    how many times slower a machine may be (clocks.headroom; None if nothing bounds it)."""
    times = [arrays(trace.steps) for trace in traces if trace.steps]
    if not times:
        return dict.fromkeys(("queue_max_s", "queue_final_s", "queue_growth", "headroom"))
    room = clocks.headroom(times)
    return {
        "queue_max_s": max(step.wait_s for trace in traces for step in trace.steps),
        "queue_final_s": mean([trace.steps[-1].wait_s for trace in traces if trace.steps]),
        "queue_growth": mean([clocks.queue_growth(a, c) for a, c in times]),
        # JSON has no infinity, and a machine that takes no time has no bound to report.
        "headroom": room if math.isfinite(room) else None,
    }


def encoder_work(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return encoder GFLOPs per second of audio, encoded seconds per second of audio (above 1 audio
    is encoded again) and the share of padding in the encoded frames.

    An encoder frame covers 20 ms of audio, as in Whisper. 1 MAC = 2 FLOPs.
    """
    audio = sum(trace.duration_s for trace in traces if trace.steps)
    flops, computed = total(traces, "encoder_flops"), total(traces, "frames_computed")
    return {
        "encoder_gflops_per_s": ratio(flops, audio, 1e-9) if flops else None,
        "reencoding": ratio(computed * FRAME_S, audio) if computed else None,
        "padding_share": 1.0 - total(traces, "frames_real") / computed if computed else None,
    }


def beams(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the mean beam width over decoder steps, and the share of them made at width 1.

    The log holds decoder steps and the sum of their widths per step of the method, so a decoder
    step counts as width 1 where all decoder steps of that step were.
    """
    pairs = [(s.count("decode_steps"), s.count("beam_sum")) for t in traces for s in t.steps]
    n_steps = sum(n for n, _ in pairs)
    return {
        "mean_beam": ratio(sum(width for _, width in pairs), n_steps),
        "beam1_share": ratio(sum(n for n, width in pairs if n == width), n_steps),
    }


def compression(traces: Sequence[Trace]) -> dict[str, float | None]:
    """Return the frames per vector that the decoder attends to, and the most KiB of its cache."""
    most = max((s.count("decoder_cache_bytes") for t in traces for s in t.steps), default=0)
    return {
        "compression": ratio(total(traces, "frames_real"), total(traces, "anchors")),
        "decoder_cache_kib": most / 2**10 if most else None,
    }


def total(traces: Sequence[Trace], name: str) -> float:
    """Return the sum of a count of method.COUNTS over all steps of all traces."""
    return sum(step.count(name) for trace in traces for step in trace.steps)


def memory_peak_mib(traces: Sequence[Trace]) -> float | None:
    """Return the largest memory peak of any utterance."""
    peaks = [trace.memory_peak_bytes for trace in traces if trace.memory_peak_bytes is not None]
    return max(peaks) / MIB if peaks else None


def _chunk_factors(trace: Trace) -> list[float]:
    """Return compute over new audio for each step that received audio."""
    factors, audio_s_before = [], 0.0
    for step in trace.steps:
        if step.audio_s > audio_s_before:
            factors.append(step.compute_s / (step.audio_s - audio_s_before))
        audio_s_before = step.audio_s
    return factors
