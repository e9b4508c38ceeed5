"""A word's latency taken apart: known answers, and parts that always sum to the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traces import a_trace

from streaming_asr.events.log import Step, UtteranceLog
from streaming_asr.metrics import Trace, compute, trace, utterance_line
from streaming_asr.metrics.decomposition import Parts, decompose, word_parts
from streaming_asr.metrics.latency import WordLatency
from streaming_asr.utterance import TimedWord


def one_word(end_s: float, committed_at: int, *, lookahead_s: float = 0.1) -> Trace:
    """Deliveries at 0.6, 1.1, 1.6 and 2.0 s, 0.7 s of compute each: the queue grows by 0.2 s."""
    steps = [
        (audio_s, 0.7, "hello" if k >= committed_at else "", "")
        for k, audio_s in enumerate((0.6, 1.1, 1.6, 2.0))
    ]
    return a_trace("hello", steps, ends=[end_s], lookahead_s=lookahead_s)


@pytest.mark.parametrize(
    ("end_s", "committed_at", "expected"),
    [
        # The look-ahead of a word that ends just before a chunk does costs a whole chunk.
        (0.55, 2, Parts(fill=0.05, lookahead=0.5, policy=0.5, queue=0.4, compute=0.7)),
        (0.45, 2, Parts(fill=0.15, lookahead=0.0, policy=1.0, queue=0.4, compute=0.7)),
        (0.5, 0, Parts(fill=0.1, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # Committed before its look-ahead was there: nothing was held back.
        (0.55, 0, Parts(fill=0.05, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # Before it ended at all: the fill is negative.
        (0.8, 0, Parts(fill=-0.2, lookahead=0.0, policy=0.0, queue=0.0, compute=0.7)),
        # The look-ahead past the last words never comes: the last step stands for it.
        (1.95, 3, Parts(fill=0.05, lookahead=0.0, policy=0.0, queue=0.7, compute=0.7)),
        (1.55, 3, Parts(fill=0.05, lookahead=0.4, policy=0.0, queue=0.7, compute=0.7)),
        # A word that is said to end after the audio.
        (2.1, 3, Parts(fill=-0.1, lookahead=0.0, policy=0.0, queue=0.7, compute=0.7)),
    ],
)
def test_the_parts_of_a_word_are_these(end_s: float, committed_at: int, expected: Parts) -> None:
    made = one_word(end_s, committed_at)
    assert decompose(made, end_s, committed_at) == pytest.approx(expected)
    figures = compute([made])
    for name, value in expected._asdict().items():
        assert figures[f"word_latency_{name}_mean_ca_s"] == pytest.approx(value), name
    assert figures["word_latency_committed_mean_ca_s"] == pytest.approx(sum(expected))
    assert utterance_line(made)["latency_parts"] == pytest.approx(expected._asdict())


def test_the_end_of_a_word_plus_look_ahead_at_the_end_of_a_chunk_needs_no_further_chunk() -> None:
    # 0.34 + 0.0125 > 0.3525 in binary floating point, which would add a chunk of 500 ms.
    steps = [(0.3525, 0.0, "hello", ""), (0.8525, 0.0, "hello", "")]
    made = a_trace("hello", steps, ends=[0.34], lookahead_s=0.0125)
    assert decompose(made, 0.34, 1) == pytest.approx(Parts(0.0125, 0.0, 0.5, 0.0, 0.0))


def test_the_look_ahead_is_read_from_the_log() -> None:
    steps = [
        Step("audio", 9_800, {"wall": 0}, committed=[], partial=[]),
        Step("flush", 16_000, {"wall": 0}, committed=["hi"]),
    ]
    log = UtteranceLog(
        "u", "hi", 16_000, [TimedWord("hi", 0.1, 0.605)], lookahead_samples=200, steps=steps
    )
    # 0.605 + 0.0125 s is past the first delivery, 0.6125 s.
    (parts,) = word_parts(trace(log), WordLatency(trace(log)))
    assert parts == pytest.approx(Parts(0.0075, 0.3875, 0.0, 0.0, 0.0))


def random_log(rng: np.random.Generator) -> UtteranceLog:
    """A stream of random chunks, compute, words and commits; some steps receive no audio."""
    n = int(rng.integers(1, 15))
    ends = sorted(rng.uniform(0.05, 6.0, size=n).tolist())
    words = [TimedWord(f"w{i}", max(end - 0.05, 0.0), end) for i, end in enumerate(ends)]
    samples, steps, said = 0, [], 0
    n_steps = int(rng.integers(2, 30))
    for k in range(n_steps):
        samples += int(rng.choice([0, 320, 4_800, 9_600]))
        last = k == n_steps - 1
        now = n if last else min(said + int(rng.integers(0, 3)), n)
        steps.append(
            Step(
                "flush" if last else "audio",
                samples,
                {"wall": int(rng.exponential(2e8))},
                committed=[f" w{i}" for i in range(said, now)],
            )
        )
        said = now
    return UtteranceLog(
        "u",
        " ".join(word.text for word in words),
        samples,
        words,
        lookahead_samples=int(rng.choice([0, 200, 6_400])),
        steps=steps,
    )


def test_in_random_logs_the_parts_sum_to_the_latency_of_every_word() -> None:
    rng = np.random.default_rng(7)
    n_words = 0
    for _ in range(300):
        made = trace(random_log(rng))
        words = WordLatency(made)
        latencies = words.latencies("committed", "ca")
        for parts, latency_s in zip(word_parts(made, words), latencies, strict=True):
            assert sum(parts) == pytest.approx(latency_s, abs=1e-9)
            assert min(parts[1:]) >= 0.0
            n_words += 1
        figures = compute([made])
        total = sum(figures[f"word_latency_{name}_mean_ca_s"] or 0.0 for name in Parts._fields)
        assert total == pytest.approx(figures["word_latency_committed_mean_ca_s"], abs=1e-9)
    assert n_words > 1000


def test_a_batched_run_has_no_parts() -> None:
    batched = replace(one_word(0.55, 2), batch=4)
    assert compute([batched])["word_latency_policy_mean_ca_s"] is None
    assert utterance_line(batched)["latency_parts"] == {}
