"""Import of WeNet's form: a checkpoint written in its names gives the same model and head."""

from __future__ import annotations

import pytest
import torch
from tiny import noise, tiny_folder

from experiments.u2.wenet import convert, main, our_name
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.whisper.load import load_whisper

LAYER = {
    "self_attn.{}_proj": "self_attn.linear_{}",
    "encoder_attn.{}_proj": "src_attn.linear_{}",
}


def wenet_names(side: str) -> dict[str, str]:
    """transformers' part of a layer -> WeNet's, as its converter from OpenAI's writes them."""
    names = {"fc1": "feed_forward.w_1", "fc2": "feed_forward.w_2"}
    for ours, theirs in LAYER.items():
        for projection in ("q", "k", "v", "out"):
            names[ours.format(projection)] = theirs.format(projection)
    norms = ["self_attn_layer_norm", "final_layer_norm"]
    if side == "decoder":
        norms.insert(1, "encoder_attn_layer_norm")
    names.update({norm: f"norm{i + 1}" for i, norm in enumerate(norms)})
    return names


def checkpoint(whisper, head_rows: int) -> dict[str, torch.Tensor]:
    """The model's weights, changed, in WeNet's names, with a random CTC head."""
    torch.manual_seed(3)
    weights = {}
    for name, value in whisper.model.model.state_dict().items():
        value = value + 0.01 * torch.randn_like(value)
        side, _, rest = name.partition(".")
        if rest.startswith("layers."):
            _, index, rest = rest.split(".", 2)
            part, _, leaf = rest.rpartition(".")
            key = f"{side}.{side}s.{index}.{wenet_names(side)[part]}.{leaf}"
        else:
            key = {
                "encoder.embed_positions.weight": "encoder.embed.pos_enc.pe",
                "decoder.embed_positions.weight": "decoder.embed.1.pe",
            }.get(name) or name.replace("encoder.conv1", "encoder.embed.conv.0").replace(
                "encoder.conv2", "encoder.embed.conv.2"
            ).replace(".layer_norm", ".after_norm").replace("embed_tokens", "embed.0")
        weights[key] = value[None] if key.endswith(".pe") else value
    weights["decoder.output_layer.weight"] = weights["decoder.embed.0.weight"].clone()
    weights["decoder.output_layer.bias"] = torch.zeros(whisper.config.vocab_size)
    weights["ctc.ctc_lo.weight"] = torch.randn(head_rows, whisper.config.d_model)
    weights["ctc.ctc_lo.bias"] = torch.randn(head_rows)
    return weights


@pytest.fixture
def whisper():
    return load_whisper(tiny_folder())


def test_a_key_has_its_place() -> None:
    assert our_name("encoder.encoders.0.norm2.bias") == "encoder.layers.0.final_layer_norm.bias"
    assert (
        our_name("decoder.decoders.11.src_attn.linear_out.weight")
        == "decoder.layers.11.encoder_attn.out_proj.weight"
    )
    assert our_name("encoder.encoders.0.conv_module.norm.weight") is None
    assert our_name("encoder.global_cmvn.mean") is None


def test_every_weight_arrives_and_the_head_keeps_its_text_tokens_and_blank(whisper) -> None:
    vocabulary = whisper.config.vocab_size
    weights = checkpoint(whisper, vocabulary)
    head = convert(weights, whisper)
    state = whisper.model.model.state_dict()
    for key, value in weights.items():
        if not key.startswith(("ctc.", "decoder.output_layer")):
            assert torch.equal(state[our_name(key)], value.reshape(state[our_name(key)].shape)), key
    silent = whisper.tokenizer.convert_tokens_to_ids("<|nospeech|>")
    assert head.out_features == whisper.eot + 1
    assert torch.equal(head.weight[: whisper.eot], weights["ctc.ctc_lo.weight"][: whisper.eot])
    assert torch.equal(head.weight[-1], weights["ctc.ctc_lo.weight"][silent])
    assert torch.equal(head.bias[-1], weights["ctc.ctc_lo.bias"][silent])
    assert whisper.model.proj_out.weight is whisper.model.model.decoder.embed_tokens.weight


@pytest.mark.parametrize(("blank", "order"), [(None, range(271)), (0, [*range(1, 271), 0])])
def test_a_head_over_a_prefix_may_have_its_blank_last_or_first(whisper, blank, order) -> None:
    weights = checkpoint(whisper, 271)
    head = convert(weights, whisper, blank)
    assert torch.equal(head.weight, weights["ctc.ctc_lo.weight"][list(order)])


def test_the_imported_folder_runs_and_an_output_layer_of_its_own_is_kept(whisper, tmp_path) -> None:
    weights = checkpoint(whisper, 271)
    weights["decoder.output_layer.weight"] += 1.0
    torch.save(weights, tmp_path / "final.pt")
    base = tiny_folder()
    out = tmp_path / "out"
    assert main([str(tmp_path / "final.pt"), "--base", str(base), "--out", str(out)]) == 0
    method = new_method("u2", str(base), weights=str(out))
    inside = method._whisper.model
    assert torch.equal(inside.proj_out.weight, weights["decoder.output_layer.weight"])
    assert torch.equal(inside.get_input_embeddings().weight, weights["decoder.embed.0.weight"])
    assert torch.equal(inside.model.encoder.conv1.weight, weights["encoder.embed.conv.0.weight"])
    assert method._first_pass.head.out_features == 271
    assert method.step(method.start(), noise(1.5), last=True).partial == ()


def broken(whisper, change) -> dict[str, torch.Tensor]:
    weights = checkpoint(whisper, 271)
    change(weights)
    return weights


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (lambda w: w.pop("ctc.ctc_lo.weight"), "has no CTC head"),
        (lambda w: w.update({"encoder.global_cmvn.mean": torch.ones(80)}), "unknown key"),
        (lambda w: w.pop("encoder.encoders.1.norm1.bias"), "of a smaller model"),
        (lambda w: w["decoder.output_layer.bias"].add_(1), "bias is not zero"),
        (lambda w: w.update({"encoder.after_norm.bias": torch.ones(9)}), "base of the same size"),
        (lambda w: w.update({"ctc.ctc_lo.weight": torch.ones(99, 32)}), "cannot spell every text"),
    ],
)
def test_a_checkpoint_of_another_form_is_refused(whisper, change, answer) -> None:
    with pytest.raises(UserError) as refusal:
        convert(broken(whisper, change), whisper)
    assert answer in str(refusal.value)


def test_a_file_that_is_no_checkpoint_is_refused_without_a_traceback(tmp_path, capsys) -> None:
    (tmp_path / "final.pt").write_text("not tensors")
    for name in ("final.pt", "gone.pt"):
        arguments = [str(tmp_path / name), "--base", str(tiny_folder()), "--out", str(tmp_path)]
        assert main(arguments) == 2
        assert name in capsys.readouterr().err
