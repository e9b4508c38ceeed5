"""The benchmark: both sides make the same tokens, the figures become a table, sentences, JSON."""

import json
import subprocess
import sys

import pytest
from oracle import oracle
from tiny import tiny_folder

from experiments.bench import __main__ as bench
from experiments.bench.settings import StepSettings
from experiments.bench.step_table import verdicts


def settings(at=(6,), chunk="300ms"):
    return StepSettings((str(tiny_folder()),), chunk, at, repeats=1)


def result(*, ours_ms, naive_ms, encode_97_ms=40.0):
    """A made-up result of base at chunks 5 and 97."""

    def times(total, encode):
        return {"feature": 1.0, "encode": encode, "decode": total - encode - 1, "total": total}

    return {
        "settings": {"chunk": "300ms", "threads": 1, "repeats": 3},
        "clock": "elapsed time",
        "machine": {"cpu": "a processor"},
        "models": [
            {
                "model": "base",
                "left_out": [99],
                "rows": [
                    {"chunk": 5, "ours": times(100.0, 40.0), "naive": times(300.0, 50.0)},
                    {
                        "chunk": 97,
                        "ours": times(ours_ms, encode_97_ms),
                        "naive": times(naive_ms, 150.0),
                    },
                ],
                "same_tokens": True,
                "n_tokens": 118,
                "n_different_tokens": 90,
                "harness": {"total_s": 10.0, "method_s": 9.9, "share": 0.01},
            }
        ],
    }


def test_chunks_end_at_multiples_of_the_chunk():
    assert settings().ends(4) == [30, 45, 60]
    assert settings(chunk="1s", at=(5,)).ends(2) == [50, 100]
    assert settings(at=(5, 30, 97)).points_within(1500) == [5, 30, 97]
    assert settings(at=(5, 97, 98)).points_within(1500) == [5, 97]


@pytest.mark.parametrize("multilingual", [False, True])
def test_naive_and_ours_make_the_same_tokens(multilingual):
    from experiments.bench.frame import Meter
    from experiments.bench.models import synthetic_audio
    from experiments.bench.naive import Naive
    from experiments.bench.step import run_naive, run_stream, scheduled_method

    # The weights that come with the folder, and a naive side with low-rank updates of its own.
    asked = settings()
    method = scheduled_method(str(tiny_folder(multilingual=multilingual, seed=5)), asked)
    audio = synthetic_audio(2.8, seed=1)
    meter = Meter()
    ours = run_stream(method, audio, asked, 8, meter)
    naive = run_naive(Naive(method._whisper), audio, asked, 6, ours.tokens[3], meter)
    assert sorted(naive.tokens) == [4, 5, 6, 7, 8]
    assert [len(ours.tokens[k]) for k in range(3, 9)] == [3, 4, 6, 7, 8, 9]
    assert naive.tokens == {k: ours.tokens[k] for k in naive.tokens}
    other = run_stream(method, synthetic_audio(2.8, seed=5), asked, 8, meter)
    assert other.tokens[8] != ours.tokens[8]  # what is heard decides


def test_naive_logits_are_the_full_models():
    import torch

    from experiments.bench.models import synthetic_audio
    from experiments.bench.naive import Naive
    from streaming_asr.whisper.encoder import encode_masked
    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(tiny_folder())
    naive = Naive(whisper)
    update = naive.cross_attention[0].query.lora_a @ naive.cross_attention[0].query.lora_b
    assert update.abs().max() > 0.01  # there is an update to leave unmerged
    state = naive.at(synthetic_audio(2.0, seed=2), [30, 45, 60], [5, 9, 20])
    hidden = encode_masked(whisper.model, state.mel, ends=[30, 45, 60])
    torch.testing.assert_close(state.hidden, hidden, atol=2e-5, rtol=1e-4)
    ids = torch.tensor([[*whisper.prompt(), 5, 9, 20]])
    with torch.inference_mode():
        logits = oracle(whisper)(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[0, -1]
        expected = (logits + whisper.suppressed).log_softmax(-1)
        torch.testing.assert_close(naive._decode(state), expected, atol=5e-5, rtol=1e-4)


def test_random_weights_load_as_a_multilingual_whisper(tmp_path, monkeypatch):
    from experiments.bench import models
    from streaming_asr.whisper.load import load_whisper

    monkeypatch.setitem(models.DIMENSIONS, "tiny", (16, 2, 1))
    whisper = load_whisper(models.random_whisper("tiny", tmp_path))
    assert whisper.eot == 50257
    assert whisper.prompt() == [50258, 50259, 50359, 50363]
    assert (whisper.n_mels, whisper.context_frames, whisper.max_tokens) == (80, 1500, 448)
    assert [w.text for w in whisper.detokenizer.words([7, 50256])] == [" w7", " w50256"]


def test_the_command_measures_prints_and_writes(tmp_path, capsys):
    path = tmp_path / "figures.json"
    arguments = ["step", "--model", str(tiny_folder()), "--at", "5,97", "--repeats", "1"]
    assert bench.main([*arguments, "--json", str(path)]) == 0
    out = capsys.readouterr().out
    assert "1 thread(s)" in out
    assert "the same tokens from both" in out
    assert "chunk 97 left out" in out
    (model,) = json.loads(path.read_text())["models"]
    (row,) = model["rows"]
    assert (row["chunk"], row["audio_s"]) == (5, 1.5)
    for side in ("ours", "naive"):
        parts = row[side]
        within = parts["feature"] + parts["encode"] + parts["decode"]
        assert 0 < parts["decode"] < within <= parts["total"]
    assert 0 < model["harness"]["method_s"] < model["harness"]["total_s"]


def test_targets_are_reached_or_missed_in_words():
    reached = verdicts(result(ours_ms=200.0, naive_ms=1300.0))
    assert [line.split()[0] for line in reached] == ["reached"] * 3
    assert "chunk 97: 6.50 times as fast" in reached[0]
    assert "chunk 97 takes 1.00 times chunk 5" in reached[1]
    assert "1.00 % of a simulated stream's time" in reached[2]
    missed = verdicts(result(ours_ms=250.0, naive_ms=1300.0, encode_97_ms=53.0))
    assert [line.split()[0] for line in missed] == ["missed", "missed", "reached"]
    assert "5.20 times as fast" in missed[0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--at", "five"], "--at five: numbers with commas between them, whole, above 0"),
        (["--at", "4"], "begin at 5"),
        (["--chunk", "300"], "a duration needs a unit"),
        (["--threads", "0"], "--threads 0: a number, whole, above 0"),
        (["--threads", "1,2"], "--threads 1,2: a number, whole, above 0"),
        (["--model", "huge"], "neither a folder nor one of tiny, base"),
        (["--model", str(tiny_folder()), "--at", "97"], "4 s, so that 10 is the last chunk"),
    ],
)
def test_senseless_settings_are_refused(words, complaint, capsys):
    assert bench.main(["step", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_help_teaches_without_torch():
    code = (
        "import sys\n"
        "from experiments.bench.__main__ import main\n"
        "try:\n    main(['step', '--help'])\n"
        "finally:\n    assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    asked = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert "python -m experiments.bench step --model tiny" in asked.stdout
