"""bench star: the baseline gives the same tokens, and memory falls with the rate."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny_folder

from experiments.bench import star
from experiments.bench.__main__ import main
from experiments.bench.star import bench_steps, measure, verdicts


def test_recomputing_everything_gives_the_tokens_of_the_stream():
    n_threads = torch.get_num_threads()
    try:
        step = bench_steps(str(tiny_folder(context_frames=250, eot_logit=0.0)), (5, 9), 1)
    finally:
        torch.set_num_threads(n_threads)
    assert step["same_tokens"] and step["n_tokens"] > 3
    assert [row["chunk"] for row in step["rows"]] == [5, 9]


def test_a_stream_holds_less_the_more_it_compresses(monkeypatch):
    for name, small in {"D": 64, "LAYERS": 2, "VOCABULARY": 50}.items():
        monkeypatch.setattr(star, name, small)
    n_threads = torch.get_num_threads()
    try:
        held = [measure(100, rate, "fused") for rate in (None, 2, 10)]
    finally:
        torch.set_num_threads(n_threads)
    assert [cell["vectors"] for cell in held] == [100, 50, 10]
    # keys and values of 2 layers, 64 wide: frames in the encoder and in the decoder, 10 tokens
    per_vector = 2 * 2 * 64 * 4
    wanted = [(n + n + 10) * per_vector + 4 * n for n in (100, 50, 10)]
    assert [cell["stream_mib"] * 2**20 for cell in held] == pytest.approx(wanted)


def test_the_verdict_names_the_growth():
    step = {"rows": [{"chunk": 5, "ours_ms": 10.0}, {"chunk": 97, "ours_ms": 14.0}]}
    assert verdicts(step) == ["missed   chunk 97 takes 1.40 times chunk 5 (target: at most 1.3)"]
    assert verdicts({"rows": step["rows"][:1]}) == []


@pytest.mark.parametrize(
    "options", [("--attention", "flash"), ("--lengths", "5"), ("--only", "time")]
)
def test_bad_settings_are_refused(options, capsys):
    assert main(["star", *options]) == 2
    assert " ".join(options) in capsys.readouterr().err
