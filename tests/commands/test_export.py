"""Export: the merged folder answers as model and adapter do, here and in CTranslate2; the card."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import oracle
from safetensors.torch import save_file
from tiny import tiny_folder
from transformers import WhisperForConditionalGeneration

from streaming_asr.commands import get
from streaming_asr.commands.export import main
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing:FutureWarning", "ignore::DeprecationWarning"
)


def settings(adapter, *more):
    return [
        "method=whisperrt", "chunk=300ms", "model=whisper", f"model.path={tiny_folder()}",
        f"model.weights={adapter.parents[1]}", *more,
    ]  # fmt: skip


def logits(model):
    torch.manual_seed(2)
    mel, ids = torch.randn(1, 80, 400), torch.tensor([[331, 40, 41, 42]])
    with torch.inference_mode():
        return model(input_features=mel, decoder_input_ids=ids).logits


def test_the_exported_folder_answers_as_model_and_adapter_do(adapter, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(out), *settings(adapter)]) == 0
    assert f"model.path={out} method.weights=none chunk=300ms" in capsys.readouterr().out
    merged = WhisperForConditionalGeneration.from_pretrained(out).eval()
    expected = oracle(load_whisper(tiny_folder(), adapter=adapter))
    torch.testing.assert_close(logits(merged), logits(expected))
    plain = oracle(load_whisper(tiny_folder()))
    assert (logits(merged) - logits(plain)).abs().max() > 0.01
    assert json.loads((out / "preprocessor_config.json").read_text())["feature_size"] == 80
    again = load_whisper(out)
    assert again.alignment_heads == [(1, 0), (1, 1)]
    assert again.tokenizer("the fox").input_ids == load_whisper(
        tiny_folder()).tokenizer("the fox").input_ids  # fmt: skip


def test_ctranslate2_computes_with_the_merged_weights(adapter, tmp_path):
    import ctranslate2

    out = tmp_path / "out"
    assert main([str(out), *settings(adapter)]) == 0
    assert get.main([str(out), f"to={tmp_path}", "form=ctranslate2"]) == 0
    converted = tmp_path / "out-ctranslate2"
    model = ctranslate2.models.Whisper(str(converted), compute_type="float32")
    torch.manual_seed(3)
    mel = torch.randn(1, 80, 400)
    encoded = model.encode(ctranslate2.StorageView.from_array(mel.numpy()), to_cpu=True)
    expected = oracle(load_whisper(tiny_folder(), adapter=adapter)).model.encoder(mel)[0]
    np.testing.assert_allclose(np.array(encoded), expected.numpy(), atol=1e-4)
    assert (converted / "tokenizer.json").is_file()


def test_the_card_tells_configuration_and_training(adapter, tmp_path):
    assert main([str(tmp_path / "out"), *settings(adapter)]) == 0
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "| rank | 4 |" in card and "| dev/wer | 12.5 |" in card
    assert "| train_data | train |" in card  # nothing of one machine
    assert "blocks that never look ahead" in card
    assert main([str(tmp_path / "plain"), *settings(adapter, "method.weights=none")]) == 0
    card = (tmp_path / "plain" / "README.md").read_text()
    assert "there is no adapter in them" in card
    assert "there is no training.json" in card


def test_what_cannot_be_exported_is_told_before_weights_load(adapter, tmp_path, capsys):
    def told(*arguments):
        assert main([*arguments]) == 2
        return capsys.readouterr().err

    full = tmp_path / "full"
    full.mkdir()
    (full / "something").touch()
    assert "exists and is not an empty folder" in told(str(full), *settings(adapter))
    assert "comes first" in told("method=whisperrt", "model=mini")
    out = str(tmp_path / "out")
    assert "its network is no Whisper" in told(out, "method=chunkformer", "method.weights=none")
    save_file({"weight": torch.ones(1)}, adapter / "ctc.safetensors")
    assert "holds ctc.safetensors, which a Whisper model has no place for" in told(
        out, *settings(adapter)
    )
    assert not Path(out).exists()


def test_a_method_without_an_adapter_has_nothing_to_merge(tmp_path, capsys):
    assert main([str(tmp_path / "out"), "method=ufal", "model=mini"]) == 2
    told = capsys.readouterr().err
    assert "method=ufal: has no adapter here, so there is nothing to merge" in told
    assert not (tmp_path / "out").exists()
