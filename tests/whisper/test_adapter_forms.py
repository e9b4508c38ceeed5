"""Adapters in every form that peft writes: merged in whole, in part, and not at all."""

import functools
import json
import re
import shutil
import tempfile
import warnings
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import tiny_folder
from transformers import WhisperConfig, WhisperForConditionalGeneration

from streaming_asr.config.weights import scale_of
from streaming_asr.errors import UserError
from streaming_asr.whisper.adapter_config import PROMPTS, check_base
from streaming_asr.whisper.adapters import merge_adapter
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

FORMS = {
    "plain": {},
    "alpha": {"lora_alpha": 16},
    "rank stabilised": {"use_rslora": True},
    "alpha_pattern": {"alpha_pattern": {"q_proj": 16}},
    "rank_pattern": {"rank_pattern": {"q_proj": 4, "v_proj": 1}},
    "both patterns": {"alpha_pattern": {"q_proj": 16}, "rank_pattern": {".*encoder.*v_proj": 3}},
    "DoRA": {"use_dora": True},
    "DoRA, rank stabilised": {"use_dora": True, "use_rslora": True},
    "DoRA of a convolution": {"use_dora": True, "target_modules": ["conv1", "q_proj"]},
    "DoRA of the embedding": {"use_dora": True, "target_modules": ["embed_tokens"]},
    "all biases": {"bias": "all"},
    "biases of the adapted": {"bias": "lora_only"},
    "bias of B": {"lora_bias": True},
    "saved norms": {"modules_to_save": ["layer_norm"]},
    "saved convolution": {"modules_to_save": ["conv1"]},
    "saved embedding": {"modules_to_save": ["embed_tokens"]},
    "saved embedding, tied": {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
    "saved output layer": {"modules_to_save": ["proj_out"]},
    "saved positions": {"modules_to_save": ["embed_positions"]},
    "PiSSA": {"init_lora_weights": "pissa"},
    "OLoRA": {"init_lora_weights": "olora"},
    "EVA": {"init_lora_weights": "eva"},
    "gaussian": {"init_lora_weights": "gaussian"},
    "orthogonal": {"init_lora_weights": "orthogonal"},
    "all linear layers": {"target_modules": "all-linear"},
    "regular expression": {"target_modules": r".*decoder.*\.(fc1|q_proj)"},
    "all but some": {"target_modules": ["fc1", "fc2"], "exclude_modules": ["fc2"]},
    "one layer": {"layers_to_transform": [1], "layers_pattern": "layers"},
    "convolutions": {"target_modules": ["conv1", "conv2"]},
    "embedding": {"target_modules": ["embed_tokens"]},
    "output layer": {"target_modules": ["proj_out"]},
    "some tokens": {"trainable_token_indices": {"embed_tokens": [3, 5]}},
    "parameters": {"target_modules": [], "target_parameters": ["fc1.weight"]},
    "task": {"task_type": "SEQ_2_SEQ_LM"},
}


def model(**sizes):
    return WhisperForConditionalGeneration.from_pretrained(tiny_folder(**sizes))


def network(**sizes):
    return load_whisper(tiny_folder(**sizes)).model


def saved(config, seed=1, **sizes):
    """A folder with an adapter of random numbers."""
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrapped = peft.get_peft_model(model(**sizes), config)
        with torch.no_grad():
            for parameter in wrapped.parameters():
                if parameter.requires_grad:
                    parameter.add_(torch.randn_like(parameter) * 0.1)
        folder = Path(tempfile.mkdtemp(prefix="adapter-"))
        wrapped.save_pretrained(folder)
    return folder


@functools.cache
def plain(**sizes):
    """A LoRA whose base model cannot be known; copy it before a change."""
    folder = saved(peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]), **sizes)
    rewrite(folder, base_model_name_or_path=None)
    return folder


def rewrite(folder, **values):
    file = folder / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def of_form(form):
    options = {"r": 2, "lora_alpha": 4, "target_modules": ["q_proj", "v_proj"], **FORMS[form]}
    return saved(peft.LoraConfig(**options))


def weights(merged):
    return {name: value.clone() for name, value in merged.state_dict().items()}


# -- the share that is merged ---------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_lora_is_base_plus_the_share_of_the_change(form):
    folder = of_form(form)
    base = weights(model())
    unmerged = peft.PeftModel.from_pretrained(model(), str(folder))
    by_peft = weights(unmerged.merge_and_unload())
    change = {name: by_peft[name] - base[name] for name in base}
    assert max(float(each.abs().max()) for each in change.values()) > 0.1
    whole, none, half, more = (
        weights(merge_adapter(network(), folder, scale)) for scale in (1.0, 0.0, 0.5, 1.5)
    )
    for name in base:
        assert torch.equal(whole[name], by_peft[name]), name
        assert torch.equal(none[name], base[name]), name
        torch.testing.assert_close(half[name], base[name] + 0.5 * change[name])
        torch.testing.assert_close(more[name], base[name] + 1.5 * change[name])


def test_adalora_is_merged_as_peft_merges_it():
    config = peft.AdaLoraConfig(init_r=4, target_r=2, total_step=10, target_modules=["q_proj"])
    folder = saved(config)
    by_peft = peft.PeftModel.from_pretrained(model(), str(folder))
    expected, ours = weights(by_peft.merge_and_unload()), weights(merge_adapter(network(), folder))
    assert all(torch.equal(expected[name], ours[name]) for name in expected)


def test_the_share_holds_for_whole_tensors_of_a_published_checkpoint(tmp_path):
    base = model().model
    norm = base.encoder.layer_norm.weight.detach()
    torch.save(
        {
            "encoder.ln_post.weight": norm + 1,
            "encoder.blocks.0.attn.query.lora_A": torch.ones(32, 2),
            "encoder.blocks.0.attn.query.lora_B": torch.ones(2, 32),
        },
        tmp_path / "published.pt",
    )
    merged = merge_adapter(network(), tmp_path / "published.pt", 0.25).model
    torch.testing.assert_close(merged.encoder.layer_norm.weight, norm + 0.25)
    query = base.encoder.layers[0].self_attn.q_proj.weight + 0.25 * 2
    torch.testing.assert_close(merged.encoder.layers[0].self_attn.q_proj.weight, query)


def test_a_model_with_another_output_layer_than_its_embedding_is_saved_whole(tmp_path):
    whisper = load_whisper(tiny_folder(), adapter=of_form("saved embedding"))
    whisper.save(tmp_path / "merged")
    again = load_whisper(tmp_path / "merged").model
    assert torch.equal(again.proj_out.weight, model().proj_out.weight)
    embedding = whisper.model.model.decoder.embed_tokens.weight
    assert torch.equal(again.model.decoder.embed_tokens.weight, embedding)
    assert not torch.equal(embedding, model().proj_out.weight)


# -- adapters of other models ---------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{"layers": 3}, {"decoder_layers": 3}, {"layers": 5}])
def test_an_adapter_of_a_deeper_model_is_refused(sizes):
    with pytest.raises(UserError, match=r"also changes base_model\.model\.model\.\w+\.layers\.2\."):
        load_whisper(tiny_folder(), adapter=plain(**sizes))


@pytest.mark.parametrize("sizes", [{"layers": 3}, {"decoder_layers": 3}])
def test_an_adapter_of_a_shallower_model_is_refused(sizes):
    with pytest.raises(UserError, match=r"lacks base_model\.model\.model\.\w+\.layers\.2\."):
        load_whisper(tiny_folder(**sizes), adapter=plain())


@pytest.mark.parametrize(
    "name",
    [
        "base_model.model.model.encoder.layers.1.fc1.lora_A.weight",
        "base_model.model.model.encoder.layers.0.self_attn.q_proj.lora_magnitude_vector",
        "base_model.model.model.encoder.layer_norm.weights",
        "model.encoder.layers.0.self_attn.q_proj.lora_A.weight",
        "classifier.weight",
    ],
)
def test_a_tensor_that_has_no_place_is_refused(tmp_path, name):
    shutil.copytree(plain(), tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({**load_file(file), name: torch.ones(2, 32)}, file)
    with pytest.raises(UserError, match=f"also changes {re.escape(name)}"):
        merge_adapter(network(), tmp_path / "adapter")


@pytest.mark.parametrize(
    ("key", "shape", "problem"),
    [
        ("encoder.blocks.2.attn_ln.weight", (32,), "update encoder.layers.2.* no such weight"),
        (
            "encoder.ln_post.weight",
            (64,),
            r"update encoder.layer_norm.weight is \(64,\), .*\(32,\)",
        ),
        ("encoder.blocks.2.attn.query.lora_A", (32, 2), r"lora_A \(32, 2\); it needs lora_A"),
        ("encoder.blocks.0.attn.query.lora_A", (32, 3), r"it needs lora_A \(in, rank\)"),
        ("encoder.blocks.0.attn.query.lora_B", (2,), r"lora_B \(2,\); it needs lora_A"),
    ],
)
def test_a_published_checkpoint_of_another_model_is_refused(tmp_path, key, shape, problem):
    pair = {
        "encoder.blocks.0.attn.query.lora_A": torch.ones(32, 2),
        "encoder.blocks.0.attn.query.lora_B": torch.ones(2, 32),
    }
    torch.save(pair | {key: torch.ones(shape)}, tmp_path / "published.pt")
    with pytest.raises(UserError, match=problem):
        merge_adapter(network(), tmp_path / "published.pt")


TINY_EN = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "vocab_size": 51864}
SMALL = {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "vocab_size": 51865}
LARGE = {"d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "vocab_size": 51865}
V3 = LARGE | {"num_mel_bins": 128, "vocab_size": 51866}


@pytest.mark.parametrize(
    ("name", "sizes", "differs"),
    [
        ("openai/whisper-tiny.en", TINY_EN, None),
        ("openai/whisper-tiny", TINY_EN, "vocab_size=51865"),
        ("openai/whisper-small", SMALL, None),
        ("openai/whisper-small", SMALL | {"decoder_layers": 4}, "decoder_layers=12"),
        ("openai/whisper-large-v3", LARGE, "num_mel_bins=128"),
        ("openai/whisper-large", V3, "num_mel_bins=80"),
        ("openai/whisper-large-v3", V3, None),
        ("openai/whisper-large-v3-turbo", V3, "decoder_layers=4"),
        ("openai/whisper-large-v3-turbo", V3 | {"decoder_layers": 4}, None),
        ("someone/else", V3, None),
        ("./no/such/folder", V3, None),
        ("a\0b/c", V3, None),
        (None, V3, None),
    ],
)
def test_the_base_that_an_adapter_names_is_compared_with_the_model(name, sizes, differs):
    content = {"base_model_name_or_path": name}
    if differs is None:
        check_base(content, WhisperConfig(**sizes), Path("adapter_config.json"))
        return
    with pytest.raises(UserError, match=rf"was trained on {name} \({differs}\), and this model"):
        check_base(content, WhisperConfig(**sizes), Path("adapter_config.json"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "wav2vec2"),
        ("d_model", 64),
        ("decoder_layers", 1),
        ("vocab_size", 20),
    ],
)
def test_a_base_in_a_folder_is_compared_by_its_configuration(tmp_path, key, value):
    shutil.copytree(plain(), tmp_path / "adapter")
    rewrite(tmp_path / "adapter", base_model_name_or_path=str(tmp_path))
    config = json.loads((tiny_folder() / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    merge_adapter(network(), tmp_path / "adapter")
    (tmp_path / "config.json").write_text(json.dumps(config | {key: value}))
    with pytest.raises(UserError, match=rf"\({key}={value}\), and this model has {key}="):
        merge_adapter(network(), tmp_path / "adapter")


def test_an_adapter_of_another_class_of_model_is_named(tmp_path):
    shutil.copytree(plain(), tmp_path / "adapter")
    rewrite(tmp_path / "adapter", auto_mapping={"base_model_class": "Wav2Vec2ForCTC"})
    with pytest.raises(UserError, match="is of a Wav2Vec2ForCTC; give an adapter of a Whisper"):
        merge_adapter(network(), tmp_path / "adapter")


# -- damaged configurations -----------------------------------------------------------------

OTHER_KINDS = sorted({str(each.value) for each in peft.PeftType} - {"LORA", "ADALORA"})


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_an_adapter_that_is_no_lora_is_named_before_the_model_is_loaded(tmp_path, kind):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": kind}))
    remedy = "it changes no weights" if kind in PROMPTS else "merge the adapter with peft's"
    with pytest.raises(UserError, match=f"'{kind}', and only LoRA is merged here; {remedy}"):
        load_whisper(tmp_path / "no model", adapter=tmp_path)


WRONG = [
    ("peft_type", 5, "peft_type is '5'"),
    ("r", "2", "r must be `int`: '2'"),
    ("r", 0, "r must be `int` >= 1: 0"),
    ("r", None, "r must be `int`: None"),
    ("r", 10**8, "rank 100000000, and no side of the adapter's tensors is longer than 32"),
    ("r", 10**400, "r must be `int` <= 999999999: 1000"),
    ("r", 3, "size mismatch"),
    ("lora_alpha", "nan", "lora_alpha must be `float`: 'nan'"),
    ("lora_dropout", "none", "lora_dropout must be `float`: 'none'"),
    ("rank_pattern", [2], r"rank_pattern must be `object \| null`: \[2\]"),
    ("rank_pattern", {"q_proj": "4"}, "rank_pattern.q_proj must be `int`: '4'"),
    ("alpha_pattern", "q_proj", "alpha_pattern must be `object"),
    ("alpha_pattern", {"q_proj": None}, "alpha_pattern.q_proj must be `float`: None"),
    ("use_dora", "false", "use_dora must be `bool`: 'false'"),
    ("use_rslora", "false", "use_rslora must be `bool`: 'false'"),
    ("fan_in_fan_out", "no", "fan_in_fan_out must be `bool`: 'no'"),
    ("lora_bias", None, "lora_bias must be `bool`: None"),
    ("bias", "some", "does not fit this model"),
    ("target_modules", ["none_so_called"], "does not fit this model"),
    ("target_modules", None, "does not fit this model|also changes|lacks"),
    ("init_lora_weights", "unheard_of", "does not fit this model"),
    ("init_lora_weights", "pissa_niter_4", "changes the base weights by a random draw"),
    ("alora_invocation_tokens", [3], "cannot be merged"),
    ("megatron_config", {"a": 1}, "does not fit this model"),
    ("base_model_name_or_path", 5, r"base_model_name_or_path must be `str \| null`: 5"),
    ("auto_mapping", [1], "auto_mapping must be `object"),
]


@pytest.mark.parametrize(("key", "value", "problem"), WRONG, ids=lambda each: str(each)[:30])
def test_a_wrong_value_in_the_configuration_is_one_error(tmp_path, key, value, problem):
    shutil.copytree(plain(), tmp_path / "adapter")
    rewrite(tmp_path / "adapter", **{key: value})
    with pytest.raises(UserError, match=problem) as raised:
        merge_adapter(network(), tmp_path / "adapter")
    assert "\n" not in str(raised.value)


def test_a_configuration_that_is_not_json_is_one_error(tmp_path):
    file = tmp_path / "adapter_config.json"
    whole = (plain() / "adapter_config.json").read_text()
    texts = [whole[:size] for size in range(0, len(whole) - 1, 40)]
    texts += ["[" * 100_000, "[]", "null", '{"peft_type": "LORA", "lora_alpha": NaN}', "\0"]
    texts += ['{"r": ' + "9" * 5000 + "}"]
    for text in texts:
        file.write_text(text)
        with pytest.raises(UserError, match=r"adapter_config\.json: .*copy the adapter's folder"):
            load_whisper(tmp_path / "no model", adapter=tmp_path)
    file.write_bytes(b'{"r": "\xff"}')
    with pytest.raises(UserError, match=r"adapter_config\.json: no UTF-8 text"):
        load_whisper(tmp_path / "no model", adapter=tmp_path)


# -- How much of an adapter's change is merged --


def test_the_share_of_the_change_is_what_dev_chose_for_the_chunk_or_a_number(tmp_path):
    chosen = {"adapter_scale": {"0.3": 0.9, "1": 0.7}}
    (tmp_path / "training.json").write_text(json.dumps(chosen))
    by_chunk = [scale_of("dev", tmp_path, chunk_s) for chunk_s in (0.1, 0.3, 0.3**0.5, 1.0, 2.0)]
    assert by_chunk == pytest.approx([0.9, 0.9, 0.8, 0.7, 0.7])
    assert scale_of(0.5, tmp_path, 1.0) == scale_of("0.5", None, 1.0) == 0.5
    assert scale_of("dev", None, 1.0) == scale_of("dev", tmp_path / "absent", 1.0) == 1.0
    for wrong in ("auto", -0.1, "nan"):
        with pytest.raises(UserError, match=f"adapter_scale={wrong}: must be dev, or a number"):
            scale_of(wrong, tmp_path, 1.0)


@pytest.mark.parametrize(
    "chosen", [0.5, "0.5", [0.5], {"300ms": 1}, {"0.3": "all"}, {"0.3": -1}, {"0": 1}, {"1": None}]
)
def test_shares_of_another_form_in_training_json_are_refused(tmp_path, chosen):
    (tmp_path / "training.json").write_text(json.dumps({"adapter_scale": chosen}))
    with pytest.raises(UserError, match=r"training\.json: adapter_scale=.*: must give the share"):
        scale_of("dev", tmp_path, 1.0)
