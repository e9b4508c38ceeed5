"""Metrics: pure functions over traces of what was displayed and when (docs/metrics.md)."""

from streaming_asr.metrics.corpus import compute, utterance_line
from streaming_asr.metrics.table import METRICS, METRICS_VERSION, Metric
from streaming_asr.metrics.trace import Trace, TraceStep, queued, trace, traces

__all__ = [
    "METRICS",
    "METRICS_VERSION",
    "Metric",
    "Trace",
    "TraceStep",
    "compute",
    "queued",
    "trace",
    "traces",
    "utterance_line",
]
