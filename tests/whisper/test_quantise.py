"""dtype=int8: what is in 8 bits, the texts of every method, and what refuses it."""

from __future__ import annotations

from pathlib import Path

import fakes
import numpy as np
import pytest
import torch
from star_tiny import star_folder
from tiny import tiny_folder

from streaming_asr.commands.export import export
from streaming_asr.config.build import new_method
from streaming_asr.config.settle import compose
from streaming_asr.contract import require_same
from streaming_asr.errors import UserError
from streaming_asr.method import Update
from streaming_asr.methods.chunkformer.load import load
from streaming_asr.whisper.encoder import encode
from streaming_asr.whisper.load import load_whisper

METHODS = {
    "whisperrt": {},
    "offline": {"weights": None},
    "reencode": {"weights": None},
    "simul_whisper": {},
    "hush_word": {"padding": "zeros"},
    "u2": {"head": "embedding"},
    "star": {"weights": None},
}


def test_linear_layers_are_in_8_bits_and_the_output_layer_is_not() -> None:
    mel = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(0))
    whole, small = (load_whisper(tiny_folder(), dtype=name) for name in ("float32", "int8"))
    for part in (small.model.model.encoder, small.model.model.decoder):
        for layer in (part.layers[0].fc1, part.layers[1].self_attn.q_proj):
            assert layer.weight().dtype == torch.qint8
    assert torch.equal(small.model.proj_out.weight, whole.model.proj_out.weight)
    a, b = (encode(whisper.model, mel) for whisper in (whole, small))
    assert 0 < float((a - b).abs().mean()) < 0.05 * float(a.abs().mean())


def test_an_adapter_is_merged_before(adapter: Path) -> None:
    whole, small = (
        load_whisper(tiny_folder(), dtype=name, adapter=adapter).model.model.decoder.layers[1]
        for name in ("float32", "int8")
    )
    kept = small.self_attn.q_proj.weight().dequantize()
    step = float(whole.self_attn.q_proj.weight.abs().max()) / 127
    assert float((kept - whole.self_attn.q_proj.weight).abs().max()) <= 0.51 * step
    plain = load_whisper(tiny_folder()).model.model.decoder.layers[1].self_attn.q_proj.weight
    assert float((kept - plain).abs().max()) > 2 * step


@pytest.mark.parametrize("name", METHODS)
def test_a_stream_says_beside_a_louder_one_what_it_says_alone(name: str) -> None:
    """Activations are scaled by all of a call, so streams in int8 share no pass."""
    method = new_method(name, str(tiny_folder()), dtype="int8", **METHODS[name])
    quiet, loud = 0.01 * fakes.noise(3.0, seed=3), fakes.noise(3.0, seed=4)

    def said(*audio: np.ndarray) -> list[Update]:
        states = method.start_many(len(audio))
        updates = []
        for at in range(0, 48_000, 16_000):
            pieces = [samples[at : at + 16_000] for samples in audio]
            last = [at == 32_000] * len(audio)
            updates.append(method.step_many(states, pieces, last=last)[0])
        return updates

    alone = said(quiet)
    require_same(said(quiet, loud), alone, "alone and in company")
    assert any(update.committed for update in alone)


def test_ufal_decodes_in_8_bits_on_torch() -> None:
    method = new_method("ufal", str(tiny_folder()), backend="torch", dtype="int8")
    state = method.start()
    update = method.step(state, fakes.noise(2.0), last=True)
    assert [word.text for word in update.committed]


def test_star_keeps_its_own_layers() -> None:
    folder = str(star_folder())
    method = new_method(
        "star", str(tiny_folder(seed=3, eot_logit=2.0)), weights=folder, dtype="int8"
    )
    assert method._whisper.model.model.encoder.layers[0].fc1.weight().dtype == torch.qint8
    assert {p.dtype for p in method._compressor.parameters()} == {torch.float32}


# -- refusals -----------------------------------------------------------------------------------


def test_8_bits_are_the_cpus() -> None:
    with pytest.raises(UserError, match=r"dtype=int8 on mps: .* for the CPU; give device=cpu"):
        load_whisper("./nowhere", device="mps", dtype="int8")
    options = {"pipeline": "1:1", "encoder_device": "cuda", "padding": "zeros"}
    with pytest.raises(UserError, match="dtype=int8 on cuda"):
        new_method("hush_word", "./nowhere", dtype="int8", **options)


def test_chunkformer_and_an_export_refuse_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one of float32, float16, bfloat16; 8 bits scale by all"):
        load(tmp_path, dtype="int8")
    with pytest.raises(UserError, match="dtype=int8: a model is exported in float32"):
        export(tmp_path / "out", ["method=offline", "dtype=int8", "tracker=none"])


def test_the_setting_stands_in_the_configuration() -> None:
    config = compose(["method=whisperrt", "model=mini", "tracker=none", "dtype=int8"])
    assert (config.dtype, config.method.dtype) == ("int8", "int8")
