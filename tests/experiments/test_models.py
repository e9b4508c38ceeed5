"""Alignment heads: scored on literal attention, selected, and written by the program."""

import json
import shutil
from pathlib import Path

import pytest
import soundfile
import torch
from tiny import noise, tiny_folder

from experiments.align_heads import (
    Example,
    Forced,
    Score,
    distances_s,
    find,
    score_set,
    select,
    write_heads,
)
from experiments.u2.wenet import convert, main, our_name
from streaming_asr.config.build import new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError
from streaming_asr.whisper.alignment import head_maps, standardised
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.load import load_whisper

# Four words of 0.4 s, one token each, 0.4 s = 20 frames; 80 frames in all.
SPANS = torch.tensor([[0.0, 0.4], [0.4, 0.8], [0.8, 1.2], [1.2, 1.6]])
MIDDLES = [10, 30, 50, 70]


def attention(*peaks):
    """(heads, 5 rows, 80 frames): row i of a head looks at five frames around peaks[head][i]."""
    weights = torch.full((len(peaks), 5, 80), 0.002)
    for head, frames in enumerate(peaks):
        for row, frame in enumerate([*frames, 79]):  # the last row predicts the end
            weights[head, row, max(0, frame - 2) : frame + 3] = 0.15
    return weights / weights.sum(-1, keepdim=True)


def example(*peaks):
    return Example(standardised(attention(*peaks))[:, :-1], SPANS)


BACKWARDS, STUCK = [70, 50, 30, 10], [40, 40, 40, 40]


def test_the_distance_is_zero_inside_the_word_and_counts_from_its_edge():
    maps = torch.zeros(4, 80)
    for row, frame in enumerate([5, 45, 10, 79]):  # centres 0.11, 0.91, 0.21, 1.59 s
        maps[row, frame] = 1.0
    assert distances_s(maps, SPANS).tolist() == pytest.approx([0.0, 0.11, 0.59, 0.0], abs=1e-6)


def test_a_token_is_right_within_a_fifth_of_a_second():
    late = [29, 36, 50, 70]  # looks at frames 27 to 31; the first one's centre is 0.55 s
    later = [33, 40, 50, 70]
    assert score_set([example(MIDDLES)], [0]) == Score(100.0, 0.0)
    right, wrong = score_set([example(late)], [0]), score_set([example(later)], [0])
    assert (right.share, right.error_s) == (100.0, pytest.approx(0.15 / 4))
    assert (wrong.share, wrong.error_s) == (75.0, pytest.approx(0.23 / 4))


def test_heads_that_know_different_words_are_chosen_together():
    # Each is right about half of the words and, about the others, does not look anywhere.
    weights = attention(MIDDLES, MIDDLES, BACKWARDS)
    weights[0, 2:] = weights[1, :2] = 1 / 80
    examples = [Example(standardised(weights)[:, :-1], SPANS)] * 2
    found = select(examples, examples, max_heads=3)
    assert sorted(found.heads) == [0, 1]
    assert found.scores[0].share < found.scores[1].share == 100.0


def test_selection_ends_where_held_out_speech_does_not_agree():
    weights = attention(MIDDLES, MIDDLES)
    weights[0, 3] = weights[1, :3] = 1 / 80  # head 1 adds the one word that head 0 misses
    training = [Example(standardised(weights)[:, :-1], SPANS)]
    assert select(training, training, max_heads=2).heads == [0, 1]
    assert select(training, [example(MIDDLES, BACKWARDS)], max_heads=2).heads == [0]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Six recordings of three words each, and a seventh longer than the tiny model's 4 s."""
    folder = tmp_path_factory.mktemp("aligned")
    rows = []
    for i in range(7):
        duration_s = 5.0 if i == 6 else 1.5 + 0.2 * i
        soundfile.write(folder / f"{i}.wav", noise(duration_s, seed=i), 16_000)
        words = [["the", 0.1, 0.4], ["quick", 0.4, 0.9], ["fox", 0.9, 1.4]]
        rows.append({"audio_filepath": f"{i}.wav", "text": "the quick fox", "words": words})
    path = folder / "aligned.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def model(tmp_path):
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


def settings(model, manifest, *overrides):
    import omegaconf

    full = compose_raw(
        ["data=manifest", f"data.path={manifest}", f"model.path={model}", *overrides],
        config_name="align_heads",
    )
    with omegaconf.open_dict(full):
        full.pop("hydra")
    return full


def test_a_map_of_one_head_is_that_of_the_word_times(manifest):
    """The maps that are scored are the ones that the word times average."""
    whisper = load_whisper(tiny_folder())
    utterance = read_manifest(manifest)[0]
    forced = Forced(whisper)
    found = forced.example(utterance)
    assert found is not None
    n_frames = 75  # 1.5 s
    assert found.maps.shape == (4, len(found.spans), n_frames)  # 2 layers of 2 heads
    decoder = Decoder(whisper)
    cache = DecoderCache(decoder)
    audio = torch.from_numpy(utterance.load())
    decoder.append_frames(cache, forced._encode(audio, n_frames), 0)
    tokens = [
        t
        for w in (" the", " quick", " fox")
        for t in whisper.tokenizer(w, add_special_tokens=False).input_ids
    ]
    for heads in ([2], [1, 3]):
        pairs = [(head // 2, head % 2) for head in heads]
        maps = head_maps(decoder, cache, pairs, whisper.prompt(), tokens, n_frames)
        mean = maps[:, :-1].mean(0)
        torch.testing.assert_close(found.maps[heads].float().mean(0), mean, rtol=2e-3, atol=4e-3)


def test_the_program_writes_the_heads_and_leaves_the_rest(model, manifest, capsys):
    before = json.loads((model / "generation_config.json").read_text())
    heads = find(settings(model, manifest))
    after = json.loads((model / "generation_config.json").read_text())
    assert after.pop("alignment_heads") == [list(head) for head in heads] != []
    before.pop("alignment_heads")
    assert after == before
    assert load_whisper(model).alignment_heads == heads
    shown = capsys.readouterr().out
    assert "3 utterances to choose on, 3 held out" in shown  # the long one is left out
    assert "all heads of the last half" in shown


def test_write_false_only_prints(model, manifest):
    before = (model / "generation_config.json").read_text()
    assert find(settings(model, manifest, "write=false"))
    assert (model / "generation_config.json").read_text() == before


def test_a_corpus_without_word_times_is_refused(model, tmp_path):
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    path = tmp_path / "untimed.jsonl"
    path.write_text('{"audio_filepath": "a.wav", "text": "the quick fox"}\n')
    with pytest.raises(UserError, match="0 of 1 utterances have word times"):
        find(settings(model, path))


def test_a_hub_name_cannot_be_written_to():
    with pytest.raises(UserError, match="write=false"):
        write_heads(Path("openai/whisper-tiny.en"), [(1, 0)])


# -- Import of WeNet's form --


LAYER = {
    "self_attn.{}_proj": "self_attn.linear_{}",
    "encoder_attn.{}_proj": "src_attn.linear_{}",
}


def wenet_names(side):
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


def checkpoint(whisper, head_rows):
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


def test_every_weight_arrives_and_the_head_keeps_its_text_tokens_and_blank(whisper):
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
def test_a_head_over_a_prefix_may_have_its_blank_last_or_first(whisper, blank, order):
    weights = checkpoint(whisper, 271)
    head = convert(weights, whisper, blank)
    assert torch.equal(head.weight, weights["ctc.ctc_lo.weight"][list(order)])


def test_the_imported_folder_runs_and_an_output_layer_of_its_own_is_kept(whisper, tmp_path):
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


def broken(whisper, change):
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
def test_a_checkpoint_of_another_form_is_refused(whisper, change, answer):
    with pytest.raises(UserError) as refusal:
        convert(broken(whisper, change), whisper)
    assert answer in str(refusal.value)


def test_a_file_that_is_no_checkpoint_is_refused_without_a_traceback(tmp_path, capsys):
    (tmp_path / "final.pt").write_text("not tensors")
    for name in ("final.pt", "gone.pt"):
        arguments = [str(tmp_path / name), "--base", str(tiny_folder()), "--out", str(tmp_path)]
        assert main(arguments) == 2
        assert name in capsys.readouterr().err
