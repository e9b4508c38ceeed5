"""ChunkFormer's training: tokens, batches, contexts, losses, a few steps, what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from recipes import settings_of
from tiny import noise, tiny_folder
from toy_corpus import WORDS, toy_corpus

from streaming_asr.errors import UserError
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.load import load
from streaming_asr.methods.chunkformer.tokenizer import Tokenizer
from streaming_asr.methods.chunkformer.train import ChunkFormerRecipe
from streaming_asr.training.loop import FitConfig, fit
from streaming_asr.training.windows import Window
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import log_mel

Make = Callable[..., ChunkFormerRecipe]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def recipe(corpus: Path) -> Make:
    def make(**options) -> ChunkFormerRecipe:
        torch.manual_seed(0)
        settings = {
            **{"vocabulary": 60, "d": 16, "heads": 2, "layers": 2, "hidden": 32},
            **{"decoder_layers": 1, "batch_s": 6.0, "augment": None, "dropout": 0.0},
            **options,
        }
        return ChunkFormerRecipe(**settings_of("chunkformer", corpus, **settings))

    return make


# -- the teacher --------------------------------------------------------------------------------


def test_a_frame_is_to_tell_the_four_frames_of_the_teacher_around_its_centre(recipe: Make) -> None:
    made = recipe(teacher=str(tiny_folder()), window_s=4.0)
    audio = noise(2.0, 1)
    mel = log_mel(torch.from_numpy(audio), made.teacher_model.n_mels, n_frames=2 * 125 + 1)
    with torch.no_grad():
        hidden = encode_masked(made.teacher_model.model, mel[None], ends=[125])[0]
    taught = made._taught(made.teacher_model, audio, 23)
    assert taught.shape == (23, 4 * made.teacher_model.config.d_model)
    # Frame 5 is centred on 5 * 80 + 82.5 ms; the teacher's frames 22 to 25 are on 450 .. 510 ms.
    expected = torch.nn.functional.layer_norm(hidden[22:26], hidden.shape[-1:])
    assert torch.allclose(taught[5].unflatten(0, (-1, 4)).T, expected, atol=1e-6)


def test_a_teacher_that_cannot_hear_a_whole_window_is_refused(recipe: Make) -> None:
    with pytest.raises(UserError, match=r"window_s=100; make the windows as short"):
        recipe(teacher=str(tiny_folder()), window_s=100.0)


def test_what_the_teacher_knows_is_learnt_and_not_kept(recipe: Make, tmp_path: Path) -> None:
    made = recipe(teacher=str(tiny_folder()), window_s=4.0, batch_s=3.0)
    losses = []
    optimiser = torch.optim.Adam(made.model.parameters(), lr=3e-3)
    for _ in range(30):
        loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(logs["teacher_loss"])
    assert losses[-1] < 0.7 * losses[0]
    made.save(tmp_path)
    assert '"teacher": ' in (tmp_path / "training.json").read_text()
    names = load(tmp_path).network.state_dict()
    assert not [name for name in names if "taught" in name]


# -- tokens -------------------------------------------------------------------------------------


def test_tokens_spell_the_text_and_those_of_a_text_are_those_of_its_words() -> None:
    tokenizer = Tokenizer.train([" ".join(WORDS), "Käse, $12.50"], 60)
    assert tokenizer.tokens[:2] == ["<blank>", "<unk>"]
    assert tokenizer.tokens[tokenizer.end] == "<sos/eos>" and len(tokenizer) <= 60
    ids = tokenizer.encode("the quick Käse, $12.50")
    assert "".join(tokenizer.tokens[i] for i in ids) == "▁the▁quick▁Käse,▁$12.50"
    assert ids == [i for w in ("the", "quick", "Käse,", "$12.50") for i in tokenizer.encode(w)]
    assert tokenizer.encode("") == []
    assert tokenizer.encode("ж")[-1] == 1


def test_a_vocabulary_smaller_than_the_alphabet_is_refused() -> None:
    with pytest.raises(UserError, match="vocabulary=8: the texts have 5 different letters"):
        Tokenizer.train(["abc de"], 8)


# -- batches ------------------------------------------------------------------------------------


def test_the_context_is_full_first_and_then_random(recipe: Make) -> None:
    made = recipe(full_until=0.5, chunks=[4, 8, -1], lefts=[16, 32], rights=[0, 3])

    def seen(progress: float) -> set[Context | None]:
        return {made.draw(s, rank=0, world=1, progress=progress).context for s in range(25)}

    assert seen(0.49) == {None}
    later = seen(0.5)
    assert None in later
    assert {c.chunk for c in later if c} == {4, 8}
    assert {c.left for c in later if c} == {16, 32}
    assert {c.right for c in later if c} == {0, 3}


def test_the_frame_loss_fades_and_its_labels_lie_where_the_words_are(recipe: Make) -> None:
    made = recipe(frame_weight=0.5, frame_until=0.4)
    weights = [made.draw(0, rank=0, world=1, progress=p).frame_weight for p in (0.0, 0.2, 0.4, 1)]
    assert weights == pytest.approx([0.5, 0.25, 0.0, 0.0])
    (fox,), (wash,) = made.tokenizer.encode("fox")[:1], made.tokenizer.encode("wash")[:1]
    window = Window(noise(2.0), [("fox", 0.24, 0.56, 0), ("wash", 1.0, 1.4, 0)], "", False, False)
    labels = made._spoken(window, 20).tolist()
    n_fox = len(made.tokenizer.encode("fox"))
    # frame i is centred on 0.0825 + 0.08 i: frames 2 to 5 lie in the first word
    assert labels[:2] == [0, 0] and labels[2] == fox and labels[6] == 0
    assert all(labels[2:6]) and len(set(labels[2:6])) == min(4, n_fox)
    assert labels[11] == 0 and labels[12] == wash and labels[17:] == [0, 0, 0]


def test_speech_without_word_times_teaches_its_text_and_no_frame(recipe: Make) -> None:
    made = recipe(several=0.0)
    timed = made.items
    made.train_on([replace(item, words=()) for item in timed])
    batch = made.draw(0, rank=0, world=1, progress=0.1)
    spoken = [made.tokenizer.encode(item.text) for item in timed]
    assert batch.texts and all(text in spoken for text in batch.texts)
    assert all((labels == -100).all() for labels in batch.spoken)
    loss, logs = made.loss(made.model, batch)
    assert logs["frame_loss"] == 0 and torch.isfinite(loss) and logs["ctc_loss"] > 0


def test_short_utterances_come_first_and_one_by_one(corpus: Path, recipe: Make) -> None:
    made = recipe(short_until=0.5, several=1.0)
    longest = max(item.n_samples for item in made.items)
    asked = []
    near = made.near
    made.near = lambda share: asked.append(share) or near(share)

    def windows(progress: float) -> tuple[float, float]:
        """The largest share of the lengths that is asked for, and frames of a batch's longest."""
        asked.clear()
        batches = [made.draw(s, rank=0, world=1, progress=progress) for s in range(30)]
        return max(asked), max(len(mel) for batch in batches for mel in batch.mels)

    (first, alone), (middle, _), (end, joined) = (windows(p) for p in (0.0, 0.25, 0.5))
    assert first <= 0.1 < middle <= 0.55 < end
    assert alone <= longest / 160 < joined


def test_utterances_longer_than_a_window_are_left_out(recipe: Make) -> None:
    made = recipe()
    lengths = sorted(item.n_samples / 16_000 for item in made.items)
    window_s = lengths[len(lengths) // 2]
    assert max(i.n_samples for i in recipe(window_s=window_s).items) <= 16_000 * window_s
    slow = recipe(window_s=window_s, augment={"speed": 1.0, "speed_range": [0.8, 1.1]})
    assert max(i.n_samples for i in slow.items) <= 0.8 * 16_000 * window_s
    with pytest.raises(UserError, match=r"no utterance lasts at most window_s=0\.01"):
        recipe(window_s=0.01)


def test_every_parameter_gets_a_gradient_in_full_and_limited_context(recipe: Make) -> None:
    for options in ({"full_until": 1.0}, {"full_until": 0.0, "chunks": [4], "rights": [2]}):
        made = recipe(**options)
        loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.1))
        loss.backward()
        assert set(logs) == {"ctc_loss", "decoder_loss", "frame_loss"}
        without = [n for n, p in made.model.named_parameters() if p.grad is None]
        flat = [n for n, p in made.model.named_parameters() if not p.grad.abs().max() > 0]
        # a bias of the keys changes no softmax
        assert without == [] and all("linear_k.bias" in n or "in_proj" in n for n in flat), flat


def test_ctc_alone_leaves_the_decoder_out_of_the_loss(recipe: Make) -> None:
    made = recipe(ctc_weight=1.0, frame_weight=0.0)
    loss, logs = made.loss(made.model, made.draw(0, rank=0, world=1, progress=0.1))
    assert float(loss.detach()) == pytest.approx(logs["ctc_loss"])


# -- training -----------------------------------------------------------------------------------


def test_a_few_steps_teach_and_leave_a_network_that_loads_and_can_be_gone_on_from(
    recipe: Make, tmp_path: Path
) -> None:
    made = recipe(chunks=[4], lefts=[8], rights=[0], dev_contexts=[[4, 8, 0]], batch_s=4.0)
    first = made.draw(0, rank=0, world=1, progress=0.0)
    before = float(made.loss(made.model, first)[0].detach())
    figures = fit(
        made,
        FitConfig(
            str(tmp_path), max_steps=12, max_minutes=1e6, lr=5e-3, warmup_steps=2, evaluate_every=12
        ),
    )
    assert float(made.loss(made.model, first)[0].detach()) < 0.8 * before
    assert set(figures) == {"score", "wer_4_8_0", "seconds"}
    loaded = load(tmp_path / "final")
    assert loaded.tokens == made.tokenizer.tokens
    assert not [name for name in loaded.network.state_dict() if "decoder" in name]
    mel = made.draw(1, rank=0, world=1, progress=1.0).mels[0]
    made.model.eval()
    with torch.no_grad():
        (ours,), (theirs,) = (n([mel], Context(4, 8, 0)) for n in (made.network, loaded.network))
    assert torch.allclose(ours, theirs, atol=0.05)  # saved at 16 bits

    again = recipe(initial=str(tmp_path / "final"), dropout=0.2)
    assert again.tokenizer.tokens == made.tokenizer.tokens
    assert again.network.encoder.encoders[0].dropout.p == 0.2
    loss, _ = again.loss(again.model, first)
    loss.backward()
    assert again.network.encoder.embed.out.weight.grad is not None
    again.save(tmp_path / "again")
    assert load(tmp_path / "again").network.shape == made.network.shape


def test_the_attention_decoder_goes_on_from_where_the_run_before_left_it(
    recipe: Make, tmp_path: Path
) -> None:
    made = recipe()
    for weight in made.model.parameters():
        torch.nn.init.normal_(weight, std=0.1)
    made.save(tmp_path)
    again = recipe(initial=str(tmp_path))
    batch = made.draw(0, rank=0, world=1, progress=1.0)
    wanted, found = (r.loss(r.model, batch)[1] for r in (made, again))
    assert found["decoder_loss"] == pytest.approx(wanted["decoder_loss"], rel=1e-2)  # 16 bits
    assert found["frame_loss"] == pytest.approx(wanted["frame_loss"], rel=1e-2)
    with pytest.raises(UserError, match=r"decoder\..*; give the decoder_layers"):
        recipe(initial=str(tmp_path), decoder_layers=2)


def test_a_network_of_others_has_no_tokenizer_to_go_on_with(recipe: Make) -> None:
    from chunkformer_tiny import tiny_folder

    with pytest.raises(UserError, match=r"bpe\.json: no tokenizer there"):
        recipe(initial=str(tiny_folder()))
