"""The training of U2's branch: timed and untimed speech, losses, what it saves and refuses."""

import json
import math
import random
import shutil

import numpy as np
import pytest
import torch
from branches import random_adapter, random_branch
from recipes import settings_of, toy_corpus, train
from tiny import noise, tiny_folder

from streaming_asr.corpora.shards import read_shards
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.branch_train import U2BranchRecipe, spans
from streaming_asr.methods.u2.first_pass import load_first_pass
from streaming_asr.methods.u2.network import Masks, U2Batch, nats
from streaming_asr.methods.u2.train import U2Recipe
from streaming_asr.training.windows import WindowOptions, complete_window

ODD = {  # text and seconds of items without word times
    "short": ("a", 0.2),
    "letterless": ("... 不过", 1.0),
    "digits": ("she had 3 foxes", 1.5),
    "long": ("the fox", 6.0),  # the context is 4 s
    "crowded": ("the quick brown fox runs away and she had wash water", 0.4),
    "spoken": ("The fox, the water", 1.4),
}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    return random_adapter(tiny_folder(), tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """8 items with word times, and one of each kind of `ODD` without."""
    folder = toy_corpus(tmp_path_factory.mktemp("corpus"), n=8, n_lengths=3, word_s=0.4, n_dev=2)
    lines, pieces, offset = [], [], 0
    for name, (text, seconds) in ODD.items():
        audio = noise(seconds, seed=len(lines) + 90)
        row = {"id": name, "offset": offset, "n": len(audio), "text": text, "speaker": "voice0"}
        lines.append(json.dumps({**row, "words": []}))
        pieces.append((audio * 32767).astype(np.int16))
        offset += len(audio)
    np.save(folder / "shard-001.npy", np.concatenate(pieces))
    (folder / "shard-001.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def recipe(corpus, adapter):
    def make(**options):
        small = {"branch_layers": 1, "branch_rank": 4, "pieces": 60, "batch": 3}
        options = {"start": str(adapter), **small, **options}
        return U2BranchRecipe(**settings_of("u2_branch", corpus, tiny_folder(), **options))

    return make


def batch_of(recipe, step=0, progress=0.0):
    return recipe.precompute(recipe.draw(step, rank=0, world=1, progress=progress))


def weights(recipe):
    return {n: p.detach().clone() for n, p in recipe.model.named_parameters() if p.requires_grad}


# -- data ---------------------------------------------------------------------------------------


def test_what_has_a_text_in_letters_and_the_time_for_it_is_learned_timed_or_not(recipe):
    made = recipe()
    timed = [item for item in made.items if item.words]
    untimed = {item.id for item in made.items if not item.words}
    assert len(timed) == 8 and untimed == {"short", "spoken"}
    # Its pieces are learned from what was left out for want of time too, not from digits.
    assert made.tokenizer.n_tokens <= 60


def test_utterances_that_may_be_slowed_down_must_fit_the_context_then(recipe):
    fast = recipe(augment={"speed": 1.0, "speed_range": [0.2, 1.0]})
    assert max(item.n_samples for item in fast.items) / 0.2 <= 4 * 16_000
    with pytest.raises(UserError, match="no utterance there can be learned"):
        recipe(augment={"speed": 1.0, "speed_range": [0.01, 1.0]})


def window_of(corpus, names, seed=0, **options):
    import random

    items = [i for i in read_shards(corpus) if i.id in names]
    voices = {items[0].voice: items}
    given = WindowOptions(
        4.0, crop_end=0, crop_start=0, empty=0, noise=0, timestamps=0, prompt=0, **options
    )
    return complete_window(random.Random(seed), voices, items, given, late_start=1.0, lead_s=0.3)


def test_a_window_of_whole_utterances_has_their_texts_and_is_never_cut(corpus):
    lengths = set()
    for seed in range(20):
        window = window_of(corpus, {"spoken"}, seed, several=1.0, clips=(3, 3), whole=True)
        assert window.words == [] and not window.timed
        assert set(window.texts) == {"The fox, the water"}
        spoken = len(window.texts) * 1.4
        assert spoken <= len(window.audio) / 16_000 <= 4.0
        assert window.audio[: int(1.4 * 16_000)].any()
        lengths.add(len(window.texts))
    assert lengths == {1, 2}  # three do not fit


def test_a_late_start_has_the_text_of_the_words_that_are_left(corpus):
    window = window_of(corpus, {""}, several=0.0, whole=True)
    assert window.timed and len(window.texts) == 1
    assert window.texts[0] == " ".join(word for word, *_ in window.words)
    assert 0 < len(window.words) < 5


def test_a_batch_teaches_the_frame_loss_where_all_is_timed_and_its_time_has_not_passed(recipe):
    made = recipe(several=1.0, augment=None)
    blank = made.tokenizer.blank
    kinds = set()
    for step in range(12):
        batch, later = batch_of(made, step), batch_of(made, step, progress=0.15)
        assert later.spoken == [None] * 3 and later.classes == batch.classes
        for labels, ends, classes in zip(batch.spoken, batch.ends, batch.classes, strict=True):
            kinds.add(labels is None)
            if labels is not None:
                assert len(labels) == -(-ends[-1] // 2)
                said = labels.unique_consecutive().tolist()
                # No pieces but those of the text, and its first one comes first.
                assert set(said) - {blank} <= set(classes)
                assert next(u for u in said if u != blank) == classes[0]
        assert batch.n_words == sum(
            len(made.tokenizer.text(classes).split()) for classes in batch.classes
        )
    assert kinds == {True, False}


def test_masks_lie_within_their_window(recipe):
    made = recipe()
    batch, d = batch_of(made, 3), made.whisper.config.d_model
    for masks, ends in zip(batch.masks, batch.ends, strict=True):
        assert masks.frames and all(0 <= a < b <= ends[-1] and b - a == 10 for a, b in masks.frames)
        assert all(0 <= a < b <= d and b - a == d // 12 for a, b in masks.channels)
    without = recipe(mask_frames=[0, 0], mask_channels=0)
    assert batch_of(without, 3).masks == 3 * [Masks([], [])]


@pytest.mark.parametrize("n, share, length", [(600, 0.3, 10), (600, 0.5, 10), (384, 0.25, 32)])
def test_masks_cover_the_share_that_is_set(n, share, length):
    rng = random.Random(1)
    covered = np.zeros(n)
    for _ in range(400):
        hidden = np.zeros(n, bool)
        for first, end in spans(rng, n, share, length):
            hidden[first:end] = True
        covered += hidden
    assert covered.mean() / 400 == pytest.approx(share, abs=0.02)
    assert spans(rng, n, 0.0, length) == spans(rng, length, share, length) == []


def test_masked_frames_and_channels_are_the_mean_for_the_branch(recipe):
    made = recipe()
    batch = batch_of(made, 3)
    plain, masked = (
        made.model._below(U2Batch(batch.mels, batch.ends, batch.classes, batch.spoken, masks=m))
        for m in (3 * [Masks()], [Masks([(2, 9)], [(4, 6)]), Masks(), Masks()])
    )
    before, after = plain[0].frames[0], masked[0].frames[0]
    mean = before.mean(0)
    assert torch.allclose(after[2:9], mean.expand(7, -1), atol=1e-6)
    assert torch.allclose(after[9:, 4:6], mean[4:6].expand(len(after) - 9, -1), atol=1e-6)
    assert torch.equal(after[9:, 6:], before[9:, 6:])
    assert torch.equal(plain[1].frames, masked[1].frames)


def test_copies_drop_out_what_they_add_in_training_only(recipe):
    made = recipe(dropout=0.5)
    batch = made.precompute(batch_of(made, 3))
    logits = {}
    for mode in (True, False):
        made.model.train(mode)
        made.model.branch.drop.eval()  # the one before the head
        logits[mode] = [made.model(batch)[0] for _ in range(2)]
    assert not torch.allclose(*logits[True])
    assert torch.equal(*logits[False])
    plain = recipe(dropout=0)
    plain.model.load_state_dict(made.model.state_dict())
    assert torch.equal(plain.model.eval()(batch)[0], logits[False][0])


# -- losses -------------------------------------------------------------------------------------


def test_nats_are_those_of_all_alignments():
    # Two rows of classes a, blank with chances .6, .4: "a" is aa, a-, -a, which is 1 - .4 * .4.
    rows = torch.tensor([[0.6, 0.4], [0.6, 0.4]]).log()
    found = nats([rows, rows[:1], rows[:1]], [[0], [0], [0, 0]])
    assert found.tolist() == pytest.approx([-math.log(0.84), -math.log(0.6), 0.0], abs=1e-6)
    assert nats([rows], [[]]).tolist() == pytest.approx([-2 * math.log(0.4)])


def test_the_figures_are_nats_a_word_and_the_losses_those_of_each_window(recipe):
    made = recipe(several=1.0, augment=None)
    made.model.eval()
    both = (s for s in range(40) if len({x is None for x in batch_of(made, s).spoken}) == 2)
    step = next(both)
    batch = batch_of(made, step)
    with torch.no_grad():
        loss, logs = made.loss(made.model, batch)
        logits = made.model(batch)
    one_by_one = [
        float(nats([rows], [own])[0]) for rows, own in zip(logits, batch.classes, strict=True)
    ]
    n_classes = sum(map(len, batch.classes))
    assert logs["nats_per_word"] == pytest.approx(sum(one_by_one) / batch.n_words, rel=1e-5)
    assert logs["weight"] == n_classes
    right = [
        rows.log_softmax(-1)[torch.arange(len(own)), own]
        for rows, own in zip(logits, batch.spoken, strict=True)
        if own is not None
    ]
    frames = -float(torch.cat(right).mean())
    assert logs["frames_loss"] == pytest.approx(frames, rel=1e-5)
    assert float(loss) == pytest.approx(frames + 0.3 * sum(one_by_one) / n_classes, rel=1e-5)
    with torch.no_grad():
        later, logs = made.loss(made.model, batch_of(made, step, progress=0.5))
    assert float(later) == pytest.approx(sum(one_by_one) / n_classes, rel=1e-5)
    assert "frames_loss" not in logs


def test_the_branch_alone_learns(recipe):
    made = recipe()
    loss, _ = made.loss(made.model, batch_of(made))
    loss.backward()
    learned = {n for n, p in made.model.named_parameters() if p.grad is not None}
    assert learned == {n for n, p in made.model.named_parameters() if p.requires_grad}
    assert all(name.startswith("branch.") for name in learned)
    kinds = {name.rpartition(".")[2] for name in learned if ".layers." in name}
    assert kinds == {"lora_A", "lora_B"}


# -- a run --------------------------------------------------------------------------------------


def test_a_run_of_both_losses_leaves_a_branch_that_it_goes_on_from(recipe, adapter, tmp_path):
    made = recipe(frames_share=0.5, augment=None)
    before = weights(made)
    figures = train(made, tmp_path / "one", 4, log_every=1, evaluate_every=2)
    assert set(figures) == {"score", "nats_per_word", "wer"}
    assert figures["score"] == figures["nats_per_word"] > 0
    curve = [json.loads(row) for row in (tmp_path / "one" / "curve.jsonl").read_text().splitlines()]
    assert ["frames_loss" in row for row in curve] == [True, True, False, False]
    assert all("nats_per_word" in row for row in curve)
    moved = {n for n, value in weights(made).items() if not torch.equal(value, before[n])}
    assert moved == set(before)
    final = tmp_path / "one" / "final"
    assert {path.name for path in final.iterdir()} == {
        "adapter_config.json",
        "adapter_model.safetensors",
        "branch.json",
        "branch.safetensors",
        "tokenizer.json",
        "training.json",
    }
    assert json.loads((final / "training.json").read_text())["branch_rank"] == 4
    assert (final / "adapter_model.safetensors").read_bytes() == (
        adapter / "adapter_model.safetensors"
    ).read_bytes()
    first = load_first_pass(str(tiny_folder()), final)
    utterance = made.scored_dev[0]
    ends = made.blocks(len(utterance.load()), 15, 30)
    mel = made.mel(utterance.load(), ends)
    made.model.eval()
    with torch.no_grad():
        (mine,) = made.model(U2Batch([mel], [ends], [[]], [None], masks=[Masks()]))
    assert torch.allclose(first.log_probs(mel, ends), mine.log_softmax(-1), atol=2e-2)
    after = recipe(start=str(final), pieces=40, branch_rank=2)
    assert after.tokenizer.n_tokens == made.tokenizer.n_tokens and after.model.branch.rank == 4
    for name, value in weights(made).items():
        assert torch.allclose(weights(after)[name], value, atol=1e-3), name


def test_dev_is_scored_in_nats_a_word_by_what_the_stream_hears(recipe, tmp_path):
    made = recipe()
    made.model.eval()
    figures = made.evaluate()
    made.save(tmp_path)
    first = load_first_pass(str(tiny_folder()), tmp_path)
    total = 0.0
    for utterance in made.scored_dev:
        audio = utterance.load()
        ends = made.blocks(len(audio), 15, 30)
        rows = first.log_probs(made.mel(audio, ends), ends)
        total += float(nats([rows], [made.tokenizer.encode("the quick fox")])[0])
    assert len(made.scored_dev) == 2
    assert figures["nats_per_word"] == pytest.approx(total / 6, rel=1e-2)


# -- refusals -----------------------------------------------------------------------------------


def test_a_start_of_another_recipe_is_refused(recipe, corpus, adapter, tmp_path):
    old = settings_of("u2", corpus, tiny_folder(), stage="hybrid", rank=4, batch=2)
    U2Recipe(**old).save(tmp_path / "head")
    with pytest.raises(UserError, match=r"is what another recipe left \(method=u2\)"):
        recipe(start=str(tmp_path / "head"))
    shutil.copytree(adapter, tmp_path / "star")
    (tmp_path / "star" / "training.json").write_text('{"method": "star"}')
    with pytest.raises(UserError, match=r"is what another recipe left \(method=star\)"):
        recipe(start=str(tmp_path / "star"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no adapter_config.json there; give the folder"):
        recipe(start=str(tmp_path / "empty"))


def test_a_start_behind_another_adapter_or_of_another_model_is_refused(recipe, tmp_path):
    wide = tiny_folder(d_model=64, layers=1)
    other = random_adapter(wide, tmp_path / "rt")
    random_branch(wide, other, tmp_path / "branch")
    with pytest.raises(UserError, match="a branch for frames of 64 numbers"):
        recipe(start=str(tmp_path / "branch"))


def test_dev_without_a_word_in_letters_is_refused(recipe, corpus, tmp_path):
    row = json.loads((corpus / "dev.jsonl").read_text().splitlines()[0])
    path = str(corpus / row["audio_filepath"])
    text = json.dumps(row | {"audio_filepath": path, "text": "12 3"}) + "\n"
    (tmp_path / "dev.jsonl").write_text(text)
    with pytest.raises(UserError, match="with letters a to z and no digits; name another"):
        recipe(dev_manifest=str(tmp_path / "dev.jsonl"))
