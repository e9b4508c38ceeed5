"""Loading: prompts, adapters merged exactly, published checkpoints, what goes wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import peft
import pytest
import torch
from ct2 import converted
from oracle import oracle
from safetensors.torch import load_file, save_file
from tiny import tiny_folder
from transformers import AutoTokenizer, WhisperForConditionalGeneration

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.models.find import find
from streaming_asr.models.hash import weights_hash
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
PROJECTIONS = ["q_proj", "k_proj", "v_proj", "out_proj"]
OPENAI = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out"}


@pytest.fixture
def adapted(tmp_path):
    """A peft adapter with random updates: its folder, and the unmerged model."""
    torch.manual_seed(1)
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder())
    config = peft.LoraConfig(r=4, lora_alpha=4, lora_dropout=0.0, target_modules=PROJECTIONS)
    model = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(0.0, 0.1)
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter", model.eval()


def outputs(model):
    torch.manual_seed(2)
    mel, ids = torch.randn(1, 80, 400), torch.tensor([[331, 40, 41, 42]])
    with torch.inference_mode():
        return model(input_features=mel, decoder_input_ids=ids).logits


def rename_base(folder, name):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": name}))


def published(adapter_model, **extra):
    """The same updates under OpenAI's names, A (in, rank) and B (rank, out)."""
    state = {}
    for name, tensor in peft.get_peft_model_state_dict(adapter_model).items():
        parts = name.split(".")
        side, layer, kind, projection, matrix = parts[3], *parts[5:9]
        attention = {"self_attn": "attn", "encoder_attn": "cross_attn"}[kind]
        key = f"{side}.blocks.{layer}.{attention}.{OPENAI[projection]}.{matrix}"
        state[key] = tensor.T.contiguous()
    return {**state, **extra}


@pytest.mark.parametrize("prefix", ["", "model."])
@pytest.mark.parametrize("nested", [False, True])
def test_a_published_checkpoint_equals_the_peft_adapter_of_the_same_updates(
    adapted, tmp_path, prefix, nested
):
    _, unmerged = adapted
    state = {prefix + key: value for key, value in published(unmerged).items()}
    assert len(state) == 2 * 4 * (2 + 2 + 2)
    assert any(key.endswith("encoder.blocks.0.attn.query.lora_A") for key in state)
    path = tmp_path / "published.pt"
    torch.save({"cfg": {"rank": 4, "gran": 15}, "state_dict": state} if nested else state, path)
    merged = oracle(load_whisper(tiny_folder(), adapter=path))
    torch.testing.assert_close(outputs(merged), outputs(unmerged), atol=1e-5, rtol=1e-5)


def test_full_weights_in_a_published_checkpoint_replace_ours(adapted, tmp_path):
    _, unmerged = adapted
    plain = load_whisper(tiny_folder()).model
    encoder_layer = plain.model.encoder.layers[0]
    names = {
        "decoder.blocks.1.attn.query.weight": plain.model.decoder.layers[1].self_attn.q_proj.weight,
        "encoder.blocks.0.mlp.0.bias": encoder_layer.fc1.bias,
        "encoder.ln_post.weight": plain.model.encoder.layer_norm.weight,
        "decoder.positional_embedding": plain.model.decoder.embed_positions.weight,
        "encoder.blocks.0.attn_ln.weight": encoder_layer.self_attn_layer_norm.weight,
    }
    path = tmp_path / "published.pt"
    extra = {key: weight * 1.5 for key, weight in names.items()}
    torch.save(published(unmerged, **extra), path)
    ours = load_whisper(tiny_folder(), adapter=path).model.model
    assert torch.equal(ours.encoder.layers[0].fc1.bias, extra["encoder.blocks.0.mlp.0.bias"])
    assert torch.equal(ours.encoder.layer_norm.weight, extra["encoder.ln_post.weight"])
    assert torch.equal(ours.decoder.embed_positions.weight, extra["decoder.positional_embedding"])
    pair = unmerged.base_model.model.model.decoder.layers[1].self_attn.q_proj
    delta = pair.lora_B["default"].weight @ pair.lora_A["default"].weight
    torch.testing.assert_close(
        ours.decoder.layers[1].self_attn.q_proj.weight,
        extra["decoder.blocks.1.attn.query.weight"] + delta,
    )


def test_checkpoints_of_another_form_are_refused(adapted, tmp_path):
    folder, unmerged = adapted
    path = tmp_path / "some.pt"
    torch.save({"encoder.ln_post.weight": torch.ones(32)}, path)
    with pytest.raises(UserError, match="no lora_A"):
        load_whisper(tiny_folder(), adapter=path)
    torch.save(published(unmerged, **{"encoder.rnn.weight": torch.ones(2)}), path)
    with pytest.raises(UserError, match=r"unknown key 'encoder\.rnn\.weight'"):
        load_whisper(tiny_folder(), adapter=path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match="not a plain file of tensors"):
        load_whisper(tiny_folder(), adapter=path)
    torch.save(published(unmerged), path)
    with pytest.raises(UserError, match="the size it was trained on"):
        load_whisper(tiny_folder(d_model=64), adapter=path)
    with pytest.raises(UserError, match=r"\(d_model=32\), and this model has d_model=64; use the"):
        load_whisper(tiny_folder(d_model=64), adapter=folder)
    rename_base(folder, "model")
    with pytest.raises(UserError, match=r"does not fit this model: size mismatch for .*; use the"):
        load_whisper(tiny_folder(d_model=64), adapter=folder)
    with pytest.raises(UserError, match=r"no adapter_config\.json"):
        load_whisper(tiny_folder(), adapter=tmp_path / "nowhere")


class Config:
    """Settings of a training script, which Lightning stores with its checkpoints."""

    def __init__(self):
        self.rank, self.gran = 4, 15


class Code:
    """Runs a function of Python where a pickle is loaded without care."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def lightning(state, **extra):
    """What Lightning's ModelCheckpoint writes: the state of the training around the weights."""
    callback = {"best_model_score": torch.tensor(0.25), "best_model_path": "some/file.ckpt"}
    return {
        "epoch": 3,
        "pytorch-lightning_version": "2.1.0",
        "state_dict": {f"model.{key}": value for key, value in state.items()},
        "callbacks": {"ModelCheckpoint{'monitor': 'val/wer'}": callback},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}}],
        "hyper_parameters": {"cfg": Config(), "output": Path("logs"), **extra},
    }


def test_a_checkpoint_of_lightning_equals_the_adapter_in_it(adapted, tmp_path, monkeypatch):
    _, unmerged = adapted
    path = tmp_path / "some.ckpt"
    torch.save(lightning(published(unmerged)), path)
    # The file names a class that this process does not have, as for every user but its authors.
    monkeypatch.delattr(sys.modules[Config.__module__], "Config")
    merged = oracle(load_whisper(tiny_folder(), adapter=path))
    torch.testing.assert_close(outputs(merged), outputs(unmerged), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.mkdir, ["{}"], r"\w+\.mkdir"),
        (subprocess.check_call, [["mkdir", "{}"]], r"subprocess\.check_call"),
        (eval, ["__import__('os').mkdir('{}')"], r"builtins\.eval"),
    ],
)
def test_a_checkpoint_with_code_is_refused_and_the_code_is_not_run(
    adapted, tmp_path, function, arguments, name
):
    _, unmerged = adapted
    trace, path = tmp_path / "trace", tmp_path / "some.ckpt"
    text = json.dumps(arguments).replace("{}", str(trace))
    code = Code(function, *json.loads(text))
    torch.save(lightning(published(unmerged), code=code), path)
    with pytest.raises(UserError, match=rf"holds code \({name}\), which is not run; take a file"):
        load_whisper(tiny_folder(), adapter=path)
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the same file does run it there
    assert trace.exists()


class ModelDimensions:
    """OpenAI's class of a model's sizes."""

    def __init__(self, sizes):
        self.__dict__.update(sizes)


@pytest.mark.parametrize("kind", [dict, ModelDimensions])
@pytest.mark.parametrize("key", ["n_vocab", "n_mels", "n_audio_state", "n_audio_layer"])
def test_a_checkpoint_of_another_vocabulary_or_size_is_refused(adapted, tmp_path, kind, key):
    _, unmerged = adapted
    config = load_whisper(tiny_folder()).config
    sizes = {
        "n_mels": config.num_mel_bins,
        "n_vocab": config.vocab_size,
        "n_audio_state": config.d_model,
        "n_audio_layer": config.encoder_layers,
        "n_audio_head": 2,
    }
    path = tmp_path / "some.pt"
    torch.save({"dims": kind(sizes), "state_dict": published(unmerged)}, path)
    load_whisper(tiny_folder(), adapter=path)
    wrong = sizes | {key: sizes[key] + 1}
    torch.save({"dims": kind(wrong), "state_dict": published(unmerged)}, path)
    with pytest.raises(UserError, match=f"{key}={wrong[key]}, and this model has {sizes[key]}; "):
        load_whisper(tiny_folder(), adapter=path)


def test_prompts_of_both_token_forms():
    english = load_whisper(tiny_folder())
    name = english.tokenizer.convert_ids_to_tokens
    assert name(english.prompt()) == ["<|startoftranscript|>", "<|notimestamps|>"]
    assert name(english.prompt(previous=[40]))[0] == "<|startofprev|>"
    assert english.prompt(previous=[40])[1] == 40
    many = load_whisper(tiny_folder(multilingual=True))
    assert name(many.prompt()) == [
        "<|startoftranscript|>",
        "<|en|>",
        "<|transcribe|>",
        "<|notimestamps|>",
    ]
    with pytest.raises(UserError, match="this model knows de, en, zh"):
        many.prompt("klingon")


def test_alignment_heads_are_the_configured_ones_or_the_last_half():
    whisper = load_whisper(tiny_folder(layers=3))
    assert whisper.alignment_heads == [(1, 0), (1, 1)]
    other = load_whisper(tiny_folder(layers=3))
    other.generation.alignment_heads = None
    assert other.alignment_heads == [(1, 0), (1, 1), (2, 0), (2, 1)]


def test_what_cannot_be_loaded_names_the_remedy():
    with pytest.raises(UserError, match="there is no such folder"):
        load_whisper("./nowhere")
    with pytest.raises(UserError, match="dtype='int4': one of float32, float16, bfloat16, int8"):
        load_whisper(tiny_folder(), dtype="int4")


# -- where a model is -----------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub's cache with tiny models in it, and no network; returns what puts one in."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("socket.create_connection", _nobody_answers)
    for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    def put(name, commit, folder, branch="main"):
        root = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, root / "snapshots" / commit)
        (root / "refs").mkdir(exist_ok=True)
        (root / "refs" / branch).write_text(commit)
        return root / "snapshots" / commit

    return put


def _nobody_answers(*_, **__):
    raise OSError(-2, "Name or service not known")


def test_a_model_in_the_hubs_cache_is_loaded_without_a_network(hub):
    old, new = "a" * 40, "b" * 40
    hub("me/tiny", old, tiny_folder(), branch="first")
    there = hub("me/tiny", new, tiny_folder(layers=3))
    assert find("me/tiny").folder == there
    assert load_whisper("me/tiny").config.encoder_layers == 3
    assert load_whisper("me/tiny@first").config.encoder_layers == 2
    assert load_whisper(f"me/tiny@{old}").config.encoder_layers == 2


def test_an_unreachable_model_says_where_its_files_go(hub):
    with pytest.raises(UserError) as told:
        load_whisper("openai/whisper-base@v1")
    for part in (
        "'openai/whisper-base' could not be loaded: openai/whisper-base@v1: is not on this machine",
        "huggingface.co cannot be reached (Name or service not known)",
        "hf download openai/whisper-base --revision v1 --local-dir models/whisper-base",
        "model.path=models/whisper-base",
        "model.safetensors",
    ):
        assert part in str(told.value)


def test_a_download_that_was_broken_off_counts_as_missing(hub):
    (hub("me/tiny", "a" * 40, tiny_folder()) / "model.safetensors").unlink()
    with pytest.raises(UserError, match="cannot be reached"):
        find("me/tiny")


def test_no_hub_is_asked_where_it_is_forbidden(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=r"could not be loaded.*HF_HUB_OFFLINE is set"):
        load_whisper("nobody/no-such-model")
    with pytest.raises(UserError, match="neither a folder nor a hub name"):
        find("what is this?")


# -- files that are damaged or contradict each other -----------------------------------------


def tensors(change):
    """Edit the tensors of a folder."""

    def edit(folder):
        values = load_file(folder / "model.safetensors")
        change(values)
        save_file(values, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def stated(name="config.json", **values):
    """Edit one of the JSON files of a folder."""

    def edit(folder):
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(content | values))

    return edit


def another_tokenizer(folder):
    """More timestamps than the model has."""
    for file in tiny_folder(multilingual=False, context_frames=400).glob("*token*"):
        shutil.copy(file, folder)


def gap_in_the_vocabulary(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["!"] = vocabulary['"']  # nothing spells its own number any more
    (folder / "tokenizer.json").write_text(json.dumps(content))


def token_added(text, special=False):
    """Fine-tune with one more token."""

    def edit(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        if special:
            tokenizer.add_special_tokens({"additional_special_tokens": [text]})
        else:
            tokenizer.add_tokens([text])
        tokenizer.save_pretrained(folder)
        model = WhisperForConditionalGeneration.from_pretrained(folder)
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        model.save_pretrained(folder)

    return edit


def heads(pair):
    return stated("generation_config.json", alignment_heads=[[0, 1], pair])


SIZES = {
    "max_target_positions": 64,
    "max_source_positions": 200,
    "vocab_size": 542,
    "d_model": 32,
    "num_mel_bins": 80,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
}
LAYER = "model.encoder.layers"
CONTRADICTIONS = [
    (
        tensors(lambda x: x["model.decoder.layers.1.fc1.weight"][3].fill_(torch.nan)),
        r"decoder\.layers\.1\.fc1\.weight holds numbers that are not finite",
    ),
    (
        tensors(lambda x: [x.pop(name) for name in list(x) if f"{LAYER}.1." in name]),
        r"encoder_layers is 2, and the weights have 1 \(encoder\.layers\)",
    ),
    (
        tensors(lambda x: x.update({f"{LAYER}.2.fc1.bias": torch.zeros(64)})),
        r"encoder_layers is 2, and the weights have 3 \(encoder\.layers\)",
    ),
    (
        tensors(lambda x: [x.pop(f"{LAYER}.1.fc{i}.bias") for i in (1, 2)]),
        r"lack model\.encoder\.layers\.1\.fc1\.bias and 1 more tensors, against c",
    ),
    (
        tensors(lambda x: x.update({f"{LAYER}.1.self_attn.k_proj.bias": torch.zeros(32)})),
        r"also hold model\.encoder\.layers\.1\.self_attn\.k_proj\.bias, against config",
    ),
    (
        tensors(lambda x: x.update({f"{LAYER}.1.fc1.bias": torch.zeros(63)})),
        r"layers\.1\.fc1\.bias is \(63,\), not \(64,\), against config\.json",
    ),
    *(
        (stated(**{key: value}), f"{key} is {value!r}, and the weights have {size} ")
        for key, size in SIZES.items()
        for value in (size - 1, size * 7, 10**9, 0, str(size), None)
    ),
    *(
        (stated(decoder_attention_heads=n), f"heads is {n!r}; must divide d_model=32")
        for n in (0, -1, 5, 33, "2")
    ),
    (stated(activation_function="relu"), "is 'relu'; every Whisper has gelu"),
    *(
        (heads(pair), r"generation_config\.json: alignment_heads has .*delete")
        for pair in ([2, 0], [0, 2], [-1, 0], [10, 12], [0], "ab", 7, [0.5, 1])
    ),
    (another_tokenizer, r"not this model's \(it has token"),
    (stated(eos_token_id=5), r"not this model's \(its <\|endoftext\|> is \d+, the model's 5"),
    (gap_in_the_vocabulary, "could not be loaded"),
    *(
        (token_added(text), f"its tokenizer adds {re.escape(repr(text))} to Whisper's")
        for text in ("Grüezi", " hello", "[sil]", "<cutoff>", "Ġword")
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), CONTRADICTIONS, ids=[message[:40] for _, message in CONTRADICTIONS]
)
def test_a_folder_whose_files_contradict_each_other_is_refused(tmp_path, change, message):
    folder = shutil.copytree(tiny_folder(), tmp_path / "model")
    change(folder)
    with pytest.raises(UserError, match=message):
        load_whisper(folder)


def pickled(folder, **options):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin", **options)
    (folder / "model.safetensors").unlink()


CUT = "truncated or damaged|is not a plain file of tensors|no Whisper there"
FORMS = {
    "model.safetensors": lambda folder: None,
    "pytorch_model.bin": pickled,
    "pytorch_model.bin, old": partial(pickled, _use_new_zipfile_serialization=False),
    "model.bin": None,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_of_weights_that_was_cut_is_one_line_with_the_file_to_delete(tmp_path, form):
    change = FORMS[form]
    folder = shutil.copytree(tiny_folder() if change else converted("float16"), tmp_path / "model")
    if change:
        change(folder)
    file = folder / form.partition(",")[0]
    whole = file.read_bytes()
    readers = {
        "load": load_whisper,
        "hash": weights_hash,
        "ufal": lambda path: new_method("ufal", path, cache=str(tmp_path / "cache")),
        "whisperrt": lambda path: new_method("whisperrt", path),
    }
    for size in (0, 1, 8, 9, 40, 1000, len(whole) // 2, len(whole) - 1000, len(whole) - 1):
        file.write_bytes(whole[:size])
        for name, read in readers.items():
            with pytest.raises(UserError, match=CUT) as refusal:
                read(folder)
            message = str(refusal.value)
            assert "\n" not in message, (name, size)
            is_known = "no Whisper there" not in message  # a folder without CTranslate2's heading
            assert not is_known or (f"{file}" in message and "delete it, then" in message)


def test_a_converted_model_that_was_damaged_in_the_cache_is_converted_again(tmp_path):
    new_method("ufal", tiny_folder(), cache=str(tmp_path))
    (file,) = tmp_path.glob("*/model.bin")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    new_method("ufal", tiny_folder(), cache=str(tmp_path))
    assert file.read_bytes() == whole


def test_weights_whose_header_names_whole_numbers_are_refused(tmp_path):
    folder = shutil.copytree(tiny_folder(), tmp_path / "model")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"I32"', 1))
    for reads in (load_whisper, weights_hash):
        with pytest.raises(UserError, match="int32, and weights are floating-point numbers"):
            reads(folder)


def test_the_hash_of_weights_is_the_same_in_every_precision(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    values = torch.tensor([[1.5, -2.0], [0.25, 0.0]])
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2):
        tensors = {"model.a": values.to(dtype).clone(), "proj_out.weight": values.to(dtype).clone()}
        save_file(tensors, tmp_path / "model.safetensors", {"format": "pt", "dtype": str(dtype)})
        assert weights_hash(tmp_path) == "888563d46a69a4fe"


def test_an_adapter_that_is_truncated_not_whole_or_not_finite_is_refused(adapted):
    folder, _ = adapted
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    name = sorted(tensors)[0]
    save_file({key: value for key, value in tensors.items() if key != name}, file)
    with pytest.raises(UserError, match=f"lacks {re.escape(name)}"):
        load_whisper(tiny_folder(), adapter=folder)
    save_file(tensors | {name: tensors[name] * torch.inf}, file)
    with pytest.raises(UserError, match=f"{re.escape(name)} holds numbers that are not finite"):
        load_whisper(tiny_folder(), adapter=folder)
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError, match="truncated or damaged"):
        load_whisper(tiny_folder(), adapter=folder)


# -- tokens ---------------------------------------------------------------------------------


def test_a_tokenizer_without_timestamps_gets_them(tmp_path):
    folder = shutil.copytree(tiny_folder(), tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["special"]]
    (folder / "tokenizer.json").write_text(json.dumps(content))
    vocabulary = load_whisper(folder).tokenizer.get_vocab()
    assert vocabulary == load_whisper(tiny_folder()).tokenizer.get_vocab()
    assert vocabulary["<|4.00|>"] == max(vocabulary.values())


def test_a_control_token_that_fine_tuning_added_does_no_harm(tmp_path):
    folder = shutil.copytree(tiny_folder(layers=3), tmp_path / "model")
    token_added("<|speaker|>", special=True)(folder)
    assert load_whisper(folder).suppressed[-1] == -torch.inf
