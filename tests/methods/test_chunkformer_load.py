"""Checkpoint folders: both generations of names, and every way in which one can be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from chunkformer_tiny import SHAPE, STATISTICS, TOKENS, tiny_network

from streaming_asr.errors import UserError
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.load import load, save


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "net", tiny_network(), TOKENS)
    (tmp_path / "net" / "global_cmvn").write_text(json.dumps(STATISTICS))
    return tmp_path / "net"


def edit_config(folder: Path, **encoder: Any) -> dict[str, Any]:
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["encoder_conf"] |= encoder
    path.write_text(yaml.safe_dump(config))
    return config


def edit_weights(folder: Path, change: Any, name: str = "pytorch_model.bin") -> None:
    path = folder / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(change(weights), folder / name)


def logits(folder: Path) -> torch.Tensor:
    torch.manual_seed(0)
    (out,) = load(folder).network([14 + 5 * torch.randn(120, 80)], Context(4, 8, 0))
    return out


def test_what_was_saved_is_loaded(folder: Path) -> None:
    loaded, saved = load(folder), tiny_network()
    assert loaded.tokens == TOKENS and loaded.network.shape == SHAPE
    for name, value in saved.state_dict().items():
        assert torch.allclose(loaded.network.state_dict()[name], value, rtol=1e-3, atol=1e-3), name
    assert not loaded.network.training
    assert (folder / "pytorch_model.bin").stat().st_size < 3 * sum(
        p.numel() for p in saved.parameters()
    )


def test_the_first_generation_of_names_is_read_too(folder: Path) -> None:
    wanted = logits(folder)
    config = edit_config(
        folder,
        input_layer="depthwise",
        pos_enc_layer_type="stream_rel_pos",
        selfattention_layer_type="stream_rel_selfattn",
        use_dynamic_conv=True,
        limited_decoding_chunk_sizes=[64, 128, 256],
        limited_left_chunk_sizes=[128, 256, 128],
        right_context_sizes=[128, 128, 128],
    )
    del config["encoder_conf"]["dynamic_conv"]
    config |= {"is_json_cmvn": True, "cmvn_file": "global_cmvn"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def aliased(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            (f"encoder.{k}" if k.startswith("ctc.") else k): v
            for k, v in weights.items()
            if "global_cmvn" not in k
        }

    edit_weights(folder, aliased)
    assert torch.allclose(logits(folder), wanted, atol=1e-4)


@pytest.mark.parametrize("name", ["pytorch_model.pt", "pytorch_model.ckpt"])
def test_the_weights_may_have_another_ending(folder: Path, name: str) -> None:
    wanted = logits(folder)
    edit_weights(folder, dict, name)
    assert torch.equal(logits(folder), wanted)


def test_an_attention_decoder_in_the_checkpoint_is_passed_over(folder: Path) -> None:
    wanted = logits(folder)
    edit_weights(folder, lambda w: w | {"decoder.left_decoder.embed.0.weight": torch.zeros(3, 3)})
    assert torch.equal(logits(folder), wanted)


def test_without_statistics_the_features_are_taken_as_they_are(folder: Path) -> None:
    (folder / "global_cmvn").unlink()
    edit_weights(folder, lambda w: {k: v for k, v in w.items() if "cmvn" not in k})
    cmvn = load(folder).network.encoder.global_cmvn
    assert not cmvn.mean.any() and bool((cmvn.istd == 1).all())


def refused(folder: Path, *texts: str) -> None:
    with pytest.raises(UserError) as refusal:
        load(folder)
    for text in texts:
        assert text in str(refusal.value)


def test_a_vocabulary_of_another_size_is_refused(folder: Path) -> None:
    with (folder / "vocab.txt").open("a") as file:
        file.write(f"▁more {len(TOKENS)}\n")
    refused(folder, "vocab.txt has 12 tokens, the CTC head 11", "must agree")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("<blank> 0\n▁the 2\n", "without a gap"),
        ("<blank> 0\n▁the 0\n", "without a gap"),
        ("<blank>\n", 'a line is "token id"'),
        ("", "without a gap"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(folder: Path, lines: str, text: str) -> None:
    (folder / "vocab.txt").write_text(lines)
    refused(folder, "vocab.txt", text)


@pytest.mark.parametrize(
    ("option", "value"),
    [("input_layer", "conv2d"), ("cnn_module_norm", "batch_norm"), ("cnn_module_kernel", 31)],
)
def test_another_architecture_is_refused(folder: Path, option: str, value: Any) -> None:
    edit_config(folder, **{option: value})
    refused(folder, f"encoder_conf.{option} is {value}", "read is only")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("num_blocks", 2, 'Unexpected key(s) in state_dict: "encoder.encoders.2.'),
        ("num_blocks", 4, 'Missing key(s) in state_dict: "encoder.encoders.3.'),
        ("linear_units", 50, "size mismatch for encoder.encoders.0."),
        ("output_size", None, "needs output_size"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_refused(
    folder: Path, option: str, value: Any, text: str
) -> None:
    edit_config(folder, **{option: value})
    refused(folder, text)


@pytest.mark.parametrize("name", ["config.yaml", "vocab.txt", "pytorch_model.bin"])
def test_a_file_that_is_absent_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", b"a: [1"),
        ("config.yaml", b"model: whisper"),
        ("pytorch_model.bin", b"not weights"),
        ("global_cmvn", json.dumps({"mean_stat": []}).encode()),
    ],
)
def test_a_file_that_is_broken_is_named(folder: Path, name: str, content: bytes) -> None:
    if name == "global_cmvn":
        edit_weights(folder, lambda w: {k: v for k, v in w.items() if "cmvn" not in k})
    (folder / name).write_bytes(content)
    refused(folder, name)


def test_weights_without_a_ctc_head_and_a_folder_that_is_not_there_are_refused(
    folder: Path,
) -> None:
    edit_weights(folder, lambda w: {k: v for k, v in w.items() if not k.startswith("ctc.")})
    refused(folder, "no CTC head")
    refused(folder / "gone", "no such folder", "streaming_asr.train method=chunkformer")
