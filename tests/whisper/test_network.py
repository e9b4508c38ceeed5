"""Our network has transformers' numbers, without importing transformers and peft."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from places import ROOT
from safetensors.torch import load_file, save_file
from tiny import tiny_folder
from transformers import AutoTokenizer, WhisperForConditionalGeneration

from streaming_asr.files import HERE
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.batched import decode_windows
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import mel_filters
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.words import byte_characters

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
TEXTS = (
    "hello World",
    " and $3.50, Ünïcödé 中文 \U0001f600",
    " a  b\n\tc",
    "",
    "<|endoftext|> x",
    "it's 1,234.5",
)


def theirs(folder: Path, dtype: str = "float32") -> Any:
    return WhisperForConditionalGeneration.from_pretrained(folder, dtype=getattr(torch, dtype))


def equal(ours: Any, expected: Any) -> None:
    """The same tensors, by the same names in the same order, which is that of random draws."""
    a, b = ours.state_dict(), expected.state_dict()
    assert list(a) == list(b)
    assert [n for n in a if a[n].dtype != b[n].dtype or not torch.equal(a[n], b[n])] == []
    names = [[name for name, _ in model.named_parameters()] for model in (ours, expected)]
    assert names[0] == names[1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"multilingual": True},
        {"d_model": 64, "heads": 4, "layers": 1, "decoder_layers": 3, "n_mels": 128},
    ],
)
def test_a_model_has_the_bits_and_the_tokens_that_transformers_reads(
    dtype: str, sizes: dict[str, Any]
) -> None:
    folder = tiny_folder(**sizes)
    ours, tokenizer = load_whisper(folder, dtype=dtype), AutoTokenizer.from_pretrained(folder)
    equal(ours.model, theirs(folder, dtype))
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert ours.text_tokens(text) == ids and ours.tokenizer.decode(ids) == tokenizer.decode(ids)
    assert ours.tokenizer.get_vocab() == tokenizer.get_vocab()


def old_form(folder: Path) -> None:
    """A pickle, vocab.json and merges.txt, no generation_config.json, as folders had at first."""
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(merges))
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        (folder / name).unlink()


def sharded(folder: Path) -> None:
    theirs(folder).save_pretrained(folder, max_shard_size="60KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("model-*.safetensors"))) > 1


def untied(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["proj_out.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated(folder, tie_word_embeddings=False)


def without_a_head(folder: Path) -> None:
    """As transformers' WhisperModel saves it: names without `model.`."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def stated(folder: Path, **values: Any) -> None:
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | values))


@pytest.mark.parametrize(
    "change",
    [
        old_form,
        sharded,
        untied,
        without_a_head,
        lambda folder: shutil.copy(folder / "model.safetensors", folder / "second.safetensors"),
        lambda folder: (folder / "tokenizer_config.json").unlink(),
        lambda folder: stated(folder, scale_embedding=True),
    ],
)
def test_an_unusual_folder_is_read_as_transformers_reads_it(change: Any, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_folder(), tmp_path / "model"))
    change(folder)
    ours = load_whisper(folder)
    equal(ours.model, theirs(folder))
    assert ours.text_tokens(" the fox") == load_whisper(tiny_folder()).text_tokens(" the fox")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("change", [lambda folder: None, untied])
def test_a_saved_model_is_the_same_for_us_and_for_transformers(
    change: Any, dtype: str, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_folder(multilingual=True), tmp_path / "model"))
    change(folder)
    whisper = load_whisper(folder, dtype=dtype)
    whisper.save(tmp_path / "saved")
    equal(load_whisper(tmp_path / "saved", dtype=dtype).model, whisper.model)
    again = WhisperForConditionalGeneration.from_pretrained(tmp_path / "saved")
    equal(again, whisper.model)
    assert again.generation_config.lang_to_id == whisper.generation.lang_to_id
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert tokenizer.get_vocab() == whisper.tokenizer.get_vocab()


# -- adapters -------------------------------------------------------------------------------


def filled(wrapped: Any) -> Any:
    torch.manual_seed(1)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    return wrapped


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("scale", [0.0, 0.3, 0.85, 1.0, 1.2])
@pytest.mark.parametrize(("rank", "modules"), [(2, ["q_proj"]), (5, list(LINEAR))])
def test_an_adapter_is_merged_to_the_bits_of_peft(
    rank: int, modules: list[str], scale: float, dtype: str, tmp_path: Path
) -> None:
    save_lora(filled(with_lora(theirs(tiny_folder()), rank, modules)), tmp_path, str(tiny_folder()))
    check_merged(tiny_folder(), tmp_path, scale, dtype)


def check_merged(model: Path, adapter: Path, scale: float, dtype: str = "float32") -> None:
    base = {name: value.clone() for name, value in theirs(model, dtype).state_dict().items()}
    merged: Any = peft.PeftModel.from_pretrained(theirs(model, dtype), str(adapter))
    ours = load_whisper(model, adapter=adapter, adapter_scale=scale, dtype=dtype).model.state_dict()
    for name, value in merged.merge_and_unload().state_dict().items():
        share = torch.lerp(base[name].float(), value.float(), scale).to(value.dtype)
        assert torch.equal(ours[name], value if scale == 1 else share), name


SHIPPED = sorted(
    file.parent.relative_to(HERE / "data")
    for file in (HERE / "data").rglob("adapter_config.json")
    if "mini" in file.parts
)


@pytest.mark.slow
@pytest.mark.parametrize("folder", SHIPPED, ids=str)
def test_the_packages_adapters_are_merged_to_the_bits_of_peft(folder: Path) -> None:
    check_merged(HERE / "data" / "mini" / "model", HERE / "data" / folder, 0.85)


def test_peft_draws_and_trains_on_our_network_as_on_transformers(tmp_path: Path) -> None:
    """The same matrices from a seed, the same loss, the same gradients, the same saved adapter."""
    gradients = {}
    for name, model in (
        ("ours", load_whisper(tiny_folder()).model),
        ("theirs", theirs(tiny_folder())),
    ):
        torch.manual_seed(4)
        wrapped = with_lora(model.requires_grad_(False), 3, list(LINEAR), init="paper")
        filled_b = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for key, parameter in wrapped.named_parameters():
                if "lora_B" in key:
                    parameter.copy_(0.1 * torch.randn(parameter.shape, generator=filled_b))
        mel = torch.randn(1, 80, 101, generator=torch.Generator().manual_seed(6))
        frames = encode_masked(wrapped, mel, ends=[20, 50])
        (logits,) = decode_windows(wrapped, [[331, 40, 41]], [frames[0]])
        logits.square().mean().backward()
        gradients[name] = {
            key: parameter.grad
            for key, parameter in wrapped.named_parameters()
            if parameter.requires_grad
        }
        save_lora(wrapped, tmp_path / name, "some/whisper")
    assert list(gradients["ours"]) == list(gradients["theirs"])
    for key, gradient in gradients["ours"].items():
        assert float(gradient.abs().max()) > 0
        torch.testing.assert_close(gradient, gradients["theirs"][key], atol=1e-6, rtol=1e-4)
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        contents = [(tmp_path / name / file).read_bytes() for name in gradients]
        assert contents[0] == contents[1]


def test_a_whole_network_trains_with_its_output_layer_tied() -> None:
    whisper = load_whisper(tiny_folder())
    model = whisper.model.requires_grad_(True)
    frames = encode_masked(model, torch.randn(1, 80, 41), ends=[20])
    (logits,) = decode_windows(model, [[331, 40]], [frames[0]])
    logits.square().mean().backward()
    assert model.proj_out.weight is model.model.decoder.embed_tokens.weight
    unused = ["embed_positions" in name for name, p in model.named_parameters() if p.grad is None]
    assert all(unused)
    half = Whisper(model.half(), whisper.tokenizer).model
    assert half.proj_out.weight is half.model.decoder.embed_tokens.weight


IMPORTS = """
import sys
import numpy as np
from streaming_asr.config.build import new_method

settings = {"ufal": {"backend": "torch"}, "hush_word": {"padding": "zeros"}}.get(sys.argv[1], {})
method = new_method(sys.argv[1], sys.argv[2], **settings)
state = method.start()
method.step(state, np.zeros(16000, np.float32), last=True)
print([name for name in ("transformers", "peft") if name in sys.modules])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["whisperrt", "hush_word", "offline", "simul_whisper", "ufal", "reencode"]
)
def test_a_method_runs_without_their_imports(method: str) -> None:
    model = str(HERE / "data" / "mini" / "model")
    code = [sys.executable, "-c", IMPORTS, method, model]
    ended = subprocess.run(code, capture_output=True, text=True, cwd=ROOT)
    assert ended.stdout.strip().splitlines()[-1] == "[]", ended.stderr


@pytest.mark.parametrize("n_mels", [80, 128])
def test_mel_filters_are_those_of_transformers(n_mels: int) -> None:
    from transformers import WhisperFeatureExtractor

    theirs = torch.as_tensor(WhisperFeatureExtractor(feature_size=n_mels).mel_filters.T)
    assert torch.equal(mel_filters(n_mels, torch.device("cpu")), theirs.float())


def test_byte_characters_are_those_of_byte_level_bpe() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_characters()) == sorted(ByteLevel.alphabet())
    pieces = ByteLevel(add_prefix_space=False).pre_tokenize_str("é\n A")
    text = "".join(piece for piece, _ in pieces)
    assert text == "".join(byte_characters()[byte] for byte in "é\n A".encode())
