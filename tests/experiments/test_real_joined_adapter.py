"""One adapter of two: which part is whose, and what another rank keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.real.joined_adapter import of_rank, program
from streaming_asr.errors import UserError

ENCODER, DECODER, FEED = (
    f"base_model.model.model.{name}" for name in ("encoder.q", "decoder.q", "decoder.fc1")
)


def adapter(folder: Path, rank: int, layers: dict[str, float], alpha: int | None = None) -> Path:
    folder.mkdir()
    weights = {}
    for name, value in layers.items():
        weights[f"{name}.lora_A.weight"] = torch.full((rank, 6), value)
        weights[f"{name}.lora_B.weight"] = torch.full((5, rank), value)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"r": rank, "lora_alpha": alpha or rank, "target_modules": ["q"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_the_encoder_is_the_first_ones_and_the_decoder_the_second_ones(tmp_path: Path) -> None:
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0, DECODER: 2.0, FEED: 3.0})
    second = adapter(tmp_path / "b", 4, {ENCODER: 5.0, DECODER: 0.5})
    given = ["--encoder", str(first), "--decoder", str(second), "--rank", "3"]
    program([*given, "--out", str(tmp_path / "c")])
    found = load_file(tmp_path / "c" / "adapter_model.safetensors")
    change = {
        name: found[f"{name}.lora_B.weight"].float() @ found[f"{name}.lora_A.weight"].float()
        for name in (ENCODER, DECODER, FEED)
    }
    assert {each.shape for name, each in found.items() if "lora_A" in name} == {(3, 6)}
    # B A of r columns of x and rows of x is r x^2; the decoder's has rank 1, so nothing is lost
    assert torch.allclose(change[ENCODER], torch.full((5, 6), 2.0))
    assert torch.allclose(change[DECODER], torch.full((5, 6), 1.0), atol=2e-3)
    assert torch.allclose(change[FEED], torch.full((5, 6), 18.0))
    config = json.loads((tmp_path / "c" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3, 3)


def test_a_lower_rank_keeps_the_best_of_the_product() -> None:
    b, a = torch.diag(torch.tensor([3.0, 1.0])), torch.eye(2)
    low_a, low_b = of_rank((a, b), 1)
    assert torch.allclose(low_b @ low_a, torch.tensor([[3.0, 0.0], [0.0, 0.0]]), atol=1e-6)


def test_what_is_no_adapter_or_scales_its_change_is_refused(tmp_path: Path) -> None:
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0})
    scaled = adapter(tmp_path / "b", 2, {DECODER: 1.0}, alpha=4)
    rest = ["--rank", "2", "--out", str(tmp_path / "c"), "--encoder", str(first), "--decoder"]
    with pytest.raises(UserError, match="lora_alpha is not r"):
        program([*rest, str(scaled)])
    with pytest.raises(UserError, match=r"no adapter_model.safetensors there"):
        program([*rest, str(tmp_path)])


def test_a_mean_is_of_each_matrix_and_only_of_adapters_with_the_same_layers(tmp_path: Path) -> None:
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0, DECODER: 2.0})
    second = adapter(tmp_path / "b", 2, {ENCODER: 4.0, DECODER: -2.0})
    program(["--mean", str(first), str(second), "--out", str(tmp_path / "c")])
    result = load_file(tmp_path / "c" / "adapter_model.safetensors")
    assert set(result) == set(load_file(first / "adapter_model.safetensors"))
    assert torch.equal(result[f"{ENCODER}.lora_A.weight"].float(), torch.full((2, 6), 2.5))
    assert torch.equal(result[f"{DECODER}.lora_B.weight"].float(), torch.zeros(5, 2))
    other_rank = adapter(tmp_path / "d", 3, {ENCODER: 1.0, DECODER: 2.0})
    for arguments in (["--mean", str(first), str(other_rank)], ["--encoder", str(first)]):
        with pytest.raises(UserError, match=r"went on from the same one|or --mean"):
            program([*arguments, "--out", str(tmp_path / "e")])
    assert not (tmp_path / "e").exists()
