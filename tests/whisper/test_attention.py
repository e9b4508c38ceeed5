"""`model.attention`: which kernels compute, the same figures, and what cannot honour it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import tiny_folder
from torch.nn.functional import scaled_dot_product_attention

from streaming_asr import train
from streaming_asr.cells.hashes import config_hash
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.methods.offline.stream import Offline
from streaming_asr.run import command as run
from streaming_asr.whisper.attention import attention
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.load import load_whisper

EAGER = ["model.attention=eager"]
MATH, FLASH = "_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention_for_cpu"


def kernels(work) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        work()
    return {event.key.removeprefix("aten::") for event in seen.key_averages()} & {MATH, FLASH}


def test_eager_takes_torchs_plain_product_and_transformers_eager_layers() -> None:
    mel = torch.randn(1, 80, 61, generator=torch.Generator().manual_seed(0))
    found = {}
    for name in (None, "sdpa", "eager"):
        with attention(name):
            whisper = load_whisper(tiny_folder())
            found[name] = encode_masked(whisper.model, mel, ends=[15, 30])
            kernel = kernels(lambda: encode_masked(whisper.model, mel, ends=[15, 30]))  # noqa: B023
        layers = whisper.model.config._attn_implementation
        expected = ({MATH}, "eager") if name == "eager" else ({FLASH}, "sdpa")
        assert (kernel, layers) == expected, name
    assert torch.equal(found[None], found["sdpa"])
    assert torch.allclose(found["sdpa"], found["eager"], atol=1e-5)


def test_it_ends_with_its_block_also_where_that_fails() -> None:
    q = torch.randn(1, 2, 8, 16)
    with pytest.raises(KeyError), attention("eager"):
        raise KeyError
    assert kernels(lambda: scaled_dot_product_attention(q, q, q)) == {FLASH}
    assert load_whisper(tiny_folder()).model.config._attn_implementation == "sdpa"


def test_a_run_attends_so_from_loading_to_its_last_step(tmp_path, monkeypatch) -> None:
    seen = []
    step = Offline.step

    def watched(self, *args, **settings):
        seen.append(torch.backends.cuda.flash_sdp_enabled())
        return step(self, *args, **settings)

    monkeypatch.setattr(Offline, "step", watched)
    monkeypatch.chdir(tmp_path)
    command = [
        "method=offline",
        "model=mini",
        "limit=1",
        "tracker=none",
        f"model.path={tiny_folder()}",
    ]
    assert run.main([*command, "model.attention=eager", "name=eager"]) == 0
    assert seen and not any(seen)
    (result,) = (tmp_path / "outputs" / "eager").glob("*/metrics.json")
    assert json.loads(result.read_text())["config"]["model"]["attention"] == "eager"
    seen.clear()
    assert run.main([*command, "name=plain"]) == 0
    assert all(seen)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.attention=flash_attention_2"], "flash_attention_2.: one of eager, sdpa"),
        (["model.attention=egaer"], "did you mean eager"),
        (
            ["method=ufal", *EAGER],
            "not with method.backend=faster_whisper.*method.backend=torch",
        ),
        (
            ["method=hush_word", "method.weights=none", "method.pipeline=1:1", *EAGER],
            "not with method.pipeline=1:1",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_weights_load(settings, message) -> None:
    with pytest.raises(UserError, match=message):
        compose(["model=mini", *settings])
    assert (
        compose(["model=mini"] + [s for s in settings if "attention" not in s]).model.attention
        is None
    )


def test_where_the_backbone_is_torchs_it_is_honoured() -> None:
    for method in (["method=ufal", "method.backend=torch"], ["method=offline"]):
        assert compose(["model=mini", *method, *EAGER]).model.attention == "eager"


def test_results_from_before_the_setting_existed_still_hold() -> None:
    old = {"model": {"name": "base", "path": "x"}, "method": {"n": 2}}
    default = {**old, "model": {**old["model"], "attention": None}}
    chosen = {**old, "model": {**old["model"], "attention": "eager"}}
    assert config_hash(old) == config_hash(default) != config_hash(chosen)


def test_a_training_attends_so_and_refuses_what_it_cannot(tmp_path, monkeypatch, capsys) -> None:
    seen = []

    def note(*args, **settings):
        seen.append(torch.backends.cuda.flash_sdp_enabled())

    def fit(recipe, config, **settings):
        note()
        Path(config.out, "best").mkdir(parents=True)
        return {}

    monkeypatch.setattr(train, "build", note)
    monkeypatch.setattr("streaming_asr.training.loop.fit", fit)
    command = [
        "train",
        "model=mini",
        "tracker=none",
        f"output={tmp_path}",
        f"train_data={tmp_path}",
    ]
    monkeypatch.setattr("sys.argv", [*command, *EAGER])
    train.main()
    assert seen == [False, False]  # where the recipe is made, and where it is trained
    monkeypatch.setattr("sys.argv", [*command, "model.attention=flash_attention_2"])
    assert train.main() == 2 and "eager or sdpa" in capsys.readouterr().err
