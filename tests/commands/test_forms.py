"""`get NAME to= form=`: each form holds the numbers of the model, and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch
from ct2 import converted
from tiny import tiny_folder

from streaming_asr.commands import forms, get
from streaming_asr.models.hash import weights_hash
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.openai import openai_state, our_name


def written(form: str, out: Path, model: Path) -> Path:
    assert get.main([str(model), f"to={out}", f"form={form}"]) == 0
    return out / forms.PLACES[form].format(model.name)


@pytest.mark.parametrize("form", ["hf", "ctranslate2"])
@pytest.mark.parametrize("model", [converted, lambda: tiny_folder(seed=2)])
def test_a_folder_of_either_form_has_the_weights_of_the_model(
    form: str, model: Any, tmp_path: Path
) -> None:
    place = written(form, tmp_path / "out", model())
    assert weights_hash(place) == weights_hash(model())
    texts = [load_whisper(each).text_tokens(" the fox") for each in (place, model())]
    assert texts[0] == texts[1]


def test_openais_form_has_its_names_and_sizes_in_float16(tmp_path: Path) -> None:
    content = torch.load(written("openai", tmp_path, tiny_folder()), weights_only=True)
    ours = load_whisper(tiny_folder()).model.state_dict()
    assert content["dims"]["n_audio_state"] == 32 and content["dims"]["n_text_ctx"] == 64
    names = content["model_state_dict"]
    assert "encoder.blocks.1.attn.query.weight" in names and "decoder.ln.bias" in names
    assert (
        "decoder.blocks.0.cross_attn_ln.weight" in names and "decoder.blocks.1.mlp.2.bias" in names
    )
    for name, value in names.items():
        assert torch.equal(value, ours[f"model.{our_name(name)}"].half()), name


def numbers(file: BinaryIO, n: int) -> tuple[int, ...]:
    return struct.unpack(f"<{n}i", file.read(4 * n))


def test_ggml_is_read_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whisper = load_whisper(tiny_folder())
    monkeypatch.setattr(forms, "GGML_VOCABULARIES", (whisper.config.vocab_size,))
    with written("ggml", tmp_path, tiny_folder()).open("rb") as file:
        expected = (0x67676D6C, whisper.config.vocab_size, 200, 32, 2, 2, 64, 32, 2, 2, 80, 1)
        assert numbers(file, 12) == expected
        assert numbers(file, 2) == (80, 201)
        assert np.frombuffer(file.read(4 * 80 * 201), "<f4").max() > 0
        spelled = [file.read(*numbers(file, 1)) for _ in range(*numbers(file, 1))]
        assert b"".join(spelled[i] for i in whisper.text_tokens(" the fox")) == b" the fox"
        state = openai_state(whisper.model)
        while head := file.read(12):
            rank, length, is_half = struct.unpack("<3i", head)
            sides = numbers(file, rank)[::-1]
            name = file.read(length).decode()
            value = state.pop(name)
            kind = np.dtype("<f2" if is_half else "<f4")
            stored = np.frombuffer(file.read(int(np.prod(sides)) * kind.itemsize), kind)
            assert is_half == (value.ndim > 1 and "positional" not in name), name
            assert (
                sides == (*value.shape, 1) if "conv" in name and rank == 2 else sides == value.shape
            )
            np.testing.assert_array_equal(stored, value.numpy().astype(kind).ravel())
        assert state == {}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{model}", "to={out}"], "give both, to=FOLDER and form="),
        (["{model}", "form=hf"], "give both, to=FOLDER and form="),
        (["{model}", "to={out}", "form=gguf"], "form='gguf': one of hf, ctranslate2, openai, ggml"),
        (
            ["prompts", "to={out}", "form=hf"],
            "prompts: form= takes one Whisper, base, tiny.en or a",
        ),
        (["{model}", "{model}", "to={out}", "form=hf"], "form= takes one Whisper"),
        (["{model}", "to={model}/..", "form=hf"], "is there already; remove it, or name another"),
        (["{model}", "to={out}", "form=ggml"], "vocabularies of 51864, 51865, 51866 tokens, and"),
        (["{out}", "to={out}", "form=hf"], "no Whisper there"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    values = {"model": tiny_folder(), "out": out}
    assert get.main([word.format(**values) for word in words]) == 2
    told = capsys.readouterr().err.strip()
    assert problem in told and told.count("\n") == 0
    assert list(out.rglob("*")) == []
