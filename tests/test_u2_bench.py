"""U2's rows of the benchmark: both sides of each answer the same."""

from __future__ import annotations

from tiny import tiny_folder

from experiments.bench.u2 import measure


def test_both_sides_of_u2s_rows_answer_the_same() -> None:
    stream = measure(str(tiny_folder(context_frames=300)), 262, seconds=4, repeats=1)
    assert stream.same_texts and stream.same_frames
    for times in (stream.search_ms, stream.plain_ms, stream.step_ms, stream.encode_ms):
        assert len(times) == 3 and min(times) > 0
    for search, encode, step in zip(
        stream.search_ms, stream.encode_ms, stream.step_ms, strict=True
    ):
        assert search + encode < step
