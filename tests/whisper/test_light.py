"""A plain Whisper loads without transformers and peft, and has the same bits as with them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from places import ROOT
from tiny import tiny_folder

from streaming_asr.files import HERE
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.features import _mel_filters
from streaming_asr.whisper.light import WhisperNetwork
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.words import byte_characters

TEXTS = (
    "hello World",
    " and $3.50, Ünïcödé 中文 \U0001f600",
    " a  b\n\tc",
    "",
    "<|endoftext|> x",
    "it's 1,234.5",
)


def equal(folder: Any, **options: Any) -> None:
    light = load_whisper(folder, **options)
    full = load_whisper(folder, trainable=True, **options)
    assert isinstance(light.model, WhisperNetwork)
    assert not isinstance(full.model, WhisperNetwork)
    a, b = light.model.state_dict(), full.model.state_dict()
    assert a.keys() == b.keys()
    assert [name for name in a if a[name].dtype != b[name].dtype] == []
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    for text in TEXTS:
        assert light.text_tokens(text) == full.text_tokens(text)
        assert light.tokenizer.decode(light.text_tokens(text)) == full.tokenizer.decode(
            full.text_tokens(text)
        )
    assert light.tokenizer.get_vocab() == full.tokenizer.get_vocab()
    assert (light.sot, light.eot, light.multilingual) == (full.sot, full.eot, full.multilingual)
    assert light.prompt("en", [5], timestamps=True) == full.prompt("en", [5], timestamps=True)
    assert light.first_timestamp == full.first_timestamp
    assert light.alignment_heads == full.alignment_heads
    assert torch.equal(light.suppressed, full.suppressed)
    words = light.text_tokens(TEXTS[1])
    assert light.detokenizer.words(words) == full.detokenizer.words(words)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"multilingual": True},
        {"d_model": 64, "heads": 4, "layers": 1, "decoder_layers": 3, "n_mels": 128},
    ],
)
def test_both_ways_give_the_same_bits(dtype: str, sizes: dict[str, Any]) -> None:
    equal(tiny_folder(**sizes), dtype=dtype)


@pytest.mark.parametrize("scale", [0.0, 0.3, 0.85, 1.0, 1.2])
@pytest.mark.parametrize(("rank", "modules"), [(2, ["q_proj"]), (5, list(LINEAR))])
def test_an_adapter_is_merged_to_the_same_bits(
    rank: int, modules: list[str], scale: float, tmp_path: Path
) -> None:
    wrapped = with_lora(load_whisper(tiny_folder(), trainable=True).model, rank, modules)
    torch.manual_seed(1)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    save_lora(wrapped, tmp_path, str(tiny_folder()))
    equal(tiny_folder(), adapter=tmp_path, adapter_scale=scale)


SHIPPED = sorted(
    file.parent.relative_to(HERE / "data")
    for file in (HERE / "data").rglob("adapter_config.json")
    if "tiny.en" in file.parts or "mini" in file.parts
)


@pytest.mark.slow
@pytest.mark.parametrize("folder", SHIPPED, ids=str)
def test_the_packages_adapters_are_merged_to_the_same_bits(folder: Path) -> None:
    from streaming_asr.models.find import find_here

    model = HERE / "data" / "mini" / "model" if "mini" in folder.parts else "openai/whisper-tiny.en"
    if find_here(model) is None:
        pytest.skip("tiny.en is not on this machine")
    equal(model, adapter=HERE / "data" / folder, adapter_scale=0.85)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("config.json", {"tie_word_embeddings": False}),
        ("config.json", {"scale_embedding": True}),
        ("config.json", {"encoder_layers": "2"}),
        ("generation_config.json", None),
        ("model.safetensors", "second.safetensors"),
    ],
)
def test_what_is_not_plain_goes_by_transformers(
    file: str, change: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming_asr.whisper import load

    def by_transformers(*arguments: Any) -> Any:
        raise LookupError

    folder = Path(shutil.copytree(tiny_folder(), tmp_path / "model"))
    if change is None:
        (folder / file).unlink()
    elif isinstance(change, str):
        shutil.copy(folder / file, folder / change)
    else:
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | change))
    monkeypatch.setattr(load, "_by_transformers", by_transformers)
    with pytest.raises(LookupError):
        load_whisper(folder)


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
    assert torch.equal(_mel_filters(n_mels, torch.device("cpu")), theirs.float())


def test_byte_characters_are_those_of_byte_level_bpe() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_characters()) == sorted(ByteLevel.alphabet())
    pieces = ByteLevel(add_prefix_space=False).pre_tokenize_str("é\n A")
    text = "".join(piece for piece, _ in pieces)
    assert text == "".join(byte_characters()[byte] for byte in "é\n A".encode())
