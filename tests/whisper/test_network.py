"""Our network has transformers' numbers, without importing transformers and peft."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import fakes
import peft
import pytest
import torch
from branches import head_folder
from places import ROOT
from safetensors.torch import load_file, save_file
from star_tiny import star_folder
from tiny import tiny_folder
from transformers import AutoTokenizer, WhisperForConditionalGeneration

from streaming_asr.commands.export import export
from streaming_asr.config.build import new_method
from streaming_asr.config.settle import compose
from streaming_asr.contract import require_same
from streaming_asr.errors import UserError
from streaming_asr.files import HERE
from streaming_asr.methods.chunkformer.load import load
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.batched import decode_windows
from streaming_asr.whisper.encoder import encode, encode_masked
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


def theirs(folder, dtype="float32"):
    return WhisperForConditionalGeneration.from_pretrained(folder, dtype=getattr(torch, dtype))


def equal(ours, expected):
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
def test_a_model_has_the_bits_and_the_tokens_that_transformers_reads(dtype, sizes):
    folder = tiny_folder(**sizes)
    ours, tokenizer = load_whisper(folder, dtype=dtype), AutoTokenizer.from_pretrained(folder)
    equal(ours.model, theirs(folder, dtype))
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False).input_ids
        assert ours.text_tokens(text) == ids and ours.tokenizer.decode(ids) == tokenizer.decode(ids)
    assert ours.tokenizer.get_vocab() == tokenizer.get_vocab()


def old_form(folder):
    """A pickle, vocab.json and merges.txt, no generation_config.json, as folders had at first."""
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors, folder / "pytorch_model.bin")
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    (folder / "merges.txt").write_text("\n".join(merges))
    for name in ("model.safetensors", "tokenizer.json", "generation_config.json"):
        (folder / name).unlink()


def sharded(folder):
    theirs(folder).save_pretrained(folder, max_shard_size="60KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("model-*.safetensors"))) > 1


def untied(folder):
    tensors = load_file(folder / "model.safetensors")
    tensors["proj_out.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated(folder, tie_word_embeddings=False)


def without_a_head(folder):
    """As transformers' WhisperModel saves it: names without `model.`."""
    tensors = load_file(folder / "model.safetensors")
    tensors = {name.removeprefix("model."): value for name, value in tensors.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def stated(folder, **values):
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
def test_an_unusual_folder_is_read_as_transformers_reads_it(change, tmp_path):
    folder = Path(shutil.copytree(tiny_folder(), tmp_path / "model"))
    change(folder)
    ours = load_whisper(folder)
    equal(ours.model, theirs(folder))
    assert ours.text_tokens(" the fox") == load_whisper(tiny_folder()).text_tokens(" the fox")


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("change", [lambda folder: None, untied])
def test_a_saved_model_is_the_same_for_us_and_for_transformers(change, dtype, tmp_path):
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


def filled(wrapped):
    torch.manual_seed(1)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter)
    return wrapped


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("scale", [0.0, 0.3, 0.85, 1.0, 1.2])
@pytest.mark.parametrize(("rank", "modules"), [(2, ["q_proj"]), (5, list(LINEAR))])
def test_an_adapter_is_merged_to_the_bits_of_peft(rank, modules, scale, dtype, tmp_path):
    save_lora(filled(with_lora(theirs(tiny_folder()), rank, modules)), tmp_path, str(tiny_folder()))
    check_merged(tiny_folder(), tmp_path, scale, dtype)


def check_merged(model, adapter, scale, dtype="float32"):
    base = {name: value.clone() for name, value in theirs(model, dtype).state_dict().items()}
    merged = peft.PeftModel.from_pretrained(theirs(model, dtype), str(adapter))
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
def test_the_packages_adapters_are_merged_to_the_bits_of_peft(folder):
    check_merged(HERE / "data" / "mini" / "model", HERE / "data" / folder, 0.85)


def test_peft_draws_and_trains_on_our_network_as_on_transformers(tmp_path):
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


def test_a_whole_network_trains_with_its_output_layer_tied():
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
def test_a_method_runs_without_their_imports(method):
    model = str(HERE / "data" / "mini" / "model")
    code = [sys.executable, "-c", IMPORTS, method, model]
    ended = subprocess.run(code, capture_output=True, text=True, cwd=ROOT)
    assert ended.stdout.strip().splitlines()[-1] == "[]", ended.stderr


def test_byte_characters_are_those_of_byte_level_bpe():
    from tokenizers.pre_tokenizers import ByteLevel

    assert sorted(byte_characters()) == sorted(ByteLevel.alphabet())
    pieces = ByteLevel(add_prefix_space=False).pre_tokenize_str("é\n A")
    text = "".join(piece for piece, _ in pieces)
    assert text == "".join(byte_characters()[byte] for byte in "é\n A".encode())


# -- dtype=int8 --


METHODS = {
    "whisperrt": {},
    "offline": {"weights": None},
    "reencode": {"weights": None},
    "simul_whisper": {},
    "hush_word": {"padding": "zeros"},
    "u2": {"weights": head_folder(tiny_folder())},
    "star": {"weights": None},
}


def test_linear_layers_are_in_8_bits_and_the_output_layer_is_not():
    mel = torch.randn(1, 80, 100, generator=torch.Generator().manual_seed(0))
    whole, small = (load_whisper(tiny_folder(), dtype=name) for name in ("float32", "int8"))
    for part in (small.model.model.encoder, small.model.model.decoder):
        for layer in (part.layers[0].fc1, part.layers[1].self_attn.q_proj):
            assert layer.weight().dtype == torch.qint8
    assert torch.equal(small.model.proj_out.weight, whole.model.proj_out.weight)
    a, b = (encode(whisper.model, mel) for whisper in (whole, small))
    assert 0 < float((a - b).abs().mean()) < 0.05 * float(a.abs().mean())


def test_an_adapter_is_merged_before(adapter):
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
def test_a_stream_says_beside_a_louder_one_what_it_says_alone(name):
    """Activations are scaled by all of a call, so streams in int8 share no pass."""
    method = new_method(name, str(tiny_folder()), dtype="int8", **METHODS[name])
    quiet, loud = 0.01 * fakes.noise(3.0, seed=3), fakes.noise(3.0, seed=4)

    def said(*audio):
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


def test_ufal_decodes_in_8_bits_on_torch():
    method = new_method("ufal", str(tiny_folder()), backend="torch", dtype="int8")
    state = method.start()
    update = method.step(state, fakes.noise(2.0), last=True)
    assert [word.text for word in update.committed]


def test_star_keeps_its_own_layers():
    folder = str(star_folder())
    method = new_method(
        "star", str(tiny_folder(seed=3, eot_logit=2.0)), weights=folder, dtype="int8"
    )
    assert method._whisper.model.model.encoder.layers[0].fc1.weight().dtype == torch.qint8
    assert {p.dtype for p in method._compressor.parameters()} == {torch.float32}


# -- refusals -----------------------------------------------------------------------------------


def test_8_bits_are_the_cpus():
    with pytest.raises(UserError, match=r"dtype=int8 on mps: .* for the CPU; give device=cpu"):
        load_whisper("./nowhere", device="mps", dtype="int8")


def test_chunkformer_and_an_export_refuse_them(tmp_path):
    with pytest.raises(UserError, match="one of float32, float16, bfloat16; 8 bits scale by all"):
        load(tmp_path, dtype="int8")
    with pytest.raises(UserError, match="dtype=int8: a model is exported in float32"):
        export(tmp_path / "out", ["method=offline", "dtype=int8", "tracker=none"])


def test_the_setting_stands_in_the_configuration():
    config = compose(["method=whisperrt", "model=mini", "tracker=none", "dtype=int8"])
    assert (config.dtype, config.method.dtype) == ("int8", "int8")
