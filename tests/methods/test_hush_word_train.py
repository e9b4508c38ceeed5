"""Training a hush word: gradients, the loss, clamps, averages, what is left behind."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
import torch
from recipes import settings_of
from tiny import noise, tiny_folder
from toy_corpus import toy_corpus
from transformers import WhisperForConditionalGeneration

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.methods.hush_word.padding import FILE_NAME, load_hush
from streaming_asr.methods.hush_word.train import HushExample, HushWordRecipe, HushWords
from streaming_asr.models.hash import weights_hash
from streaming_asr.training.greedy import greedy
from streaming_asr.training.loop import FitConfig, fit
from streaming_asr.whisper.encoder import encode as encode_frames
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.guard import even, unsupported
from streaming_asr.whisper.load import load_whisper


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"))


def recipe(corpus, **options):
    return HushWordRecipe(**settings_of("hush_word", corpus, tiny_folder(), **options))


def example(whisper, seed=3):
    prompt = whisper.prompt()
    tokens = [*prompt, *range(40, 46), whisper.eot]
    return HushExample(torch.from_numpy(noise(1.013, seed=seed)), tokens, len(prompt))


def test_the_loss_is_transformers_own_on_the_joined_audio_and_the_model_stays_frozen():
    whisper = load_whisper(tiny_folder())
    tails = 0.02 * torch.rand(2, 8000, generator=torch.Generator().manual_seed(0))
    words = HushWords(whisper, tails.clone(), torch.tensor([0.02, torch.inf]))
    examples = [example(whisper), example(whisper, seed=4)]
    losses = words(examples)
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder()).eval()
    wanted = torch.zeros(2)
    for one in examples:
        for row, tail in enumerate(tails):
            joined = torch.cat([one.audio, tail])
            joined = torch.nn.functional.pad(joined, (0, -len(joined) % 320))[None]
            mel = log_mel(joined, whisper.n_mels)
            n_frames = mel.shape[-1] // 2
            encoder = model.model.encoder
            x = torch.nn.functional.gelu(encoder.conv1(mel))
            x = torch.nn.functional.gelu(encoder.conv2(x)).transpose(1, 2)
            x = x + encoder.embed_positions.weight[:n_frames]
            for layer in encoder.layers:
                x = layer(x, None)
            labels = torch.tensor([one.tokens[1:]])
            labels[:, : one.n_prompt - 1] = -100
            out = model(
                encoder_outputs=(encoder.layer_norm(x),),
                decoder_input_ids=torch.tensor([one.tokens[:-1]]),
                labels=labels,
            )
            wanted[row] += out.loss.detach() / 2
    assert torch.allclose(losses, wanted, atol=1e-4)
    losses.sum().backward()
    assert words.tails.grad is not None and bool((words.tails.grad.abs().sum(1) > 0).all())
    assert [name for name, _ in words.named_parameters()] == ["tails"]
    assert all(p.grad is None for p in whisper.model.parameters())


@pytest.mark.parametrize("level", ["raw", "mel"])
def test_examples_together_have_the_losses_and_gradients_that_each_has_by_itself(level):
    whisper = load_whisper(tiny_folder())
    random_ = torch.Generator().manual_seed(5)
    shape = (3, 4000) if level == "raw" else (3, whisper.n_mels, 24)
    words = HushWords(whisper, 0.1 * torch.rand(shape, generator=random_), torch.full((3,), 1.0), 3)
    prompt, eot = whisper.prompt(), whisper.eot
    examples = [  # other lengths of audio, prompt and text; the last says nothing
        HushExample(torch.from_numpy(noise(seconds, seed=i)), [*before, *text, eot], len(before))
        for i, (seconds, before, text) in enumerate(
            [(1.013, prompt, range(40, 46)), (2.5, [7, 8, 9, *prompt], [50, 51]), (0.4, prompt, [])]
        )
    ]
    together = words.losses(examples)
    together.mean(0).sum().backward()
    gradient, words.tails.grad = words.tails.grad.clone(), None
    alone = torch.cat([words.losses([each]) for each in examples])
    alone.mean(0).sum().backward()
    assert together.shape == (3, 3)
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(gradient, words.tails.grad, atol=1e-5, rtol=1e-3)
    assert float(gradient.abs().max()) > 1e-4
    with torch.no_grad():
        torch.testing.assert_close(words(examples), alone.mean(0))


def test_a_step_on_a_gpu_takes_all_examples_together_and_needs_no_number_from_it(monkeypatch):
    # The meta device has shapes and no numbers: what asks for one raises there.
    whisper = load_whisper(tiny_folder())
    words = HushWords(whisper, torch.zeros(2, 4000), torch.ones(2)).to("meta")
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())  # knows no meta
    passes = []
    whisper.model.model.decoder.layer_norm.register_forward_hook(
        lambda _, inputs, out: passes.append(out.shape[0])
    )
    words([example(whisper), example(whisper, seed=4)]).sum().backward()
    assert passes == [4] and words.tails.grad.device.type == "meta"


def test_words_do_not_touch_each_other():
    whisper = load_whisper(tiny_folder())
    tails = 0.1 * torch.rand(3, 4000, generator=torch.Generator().manual_seed(1))
    bounds = torch.tensor([0.02, 0.05, torch.inf])
    together = HushWords(whisper, tails.clone(), bounds)
    together([example(whisper)]).sum().backward()
    for i in range(3):
        alone = HushWords(whisper, tails[i : i + 1].clone(), bounds[i : i + 1])
        alone([example(whisper)]).sum().backward()
        assert torch.allclose(alone.tails.grad[0], together.tails.grad[i], atol=1e-6)
        assert float(together.tails[i].detach().abs().max()) <= float(bounds[i])


def test_the_end_weighs_as_much_as_it_is_told():
    whisper = load_whisper(tiny_folder())
    tails = 0.02 * torch.rand(1, 8000, generator=torch.Generator().manual_seed(2))
    one, two, six = (
        float(
            HushWords(whisper, tails.clone(), torch.tensor([0.02]), weight)(
                [example(whisper)]
            ).detach()
        )
        for weight in (1.0, 2.0, 6.0)
    )
    end = 8 * two - 7 * one  # 6 tokens of text: one = (text + end) / 7, two = (text + 2 end) / 8
    assert six == pytest.approx((7 * one + 5 * end) / 12, rel=1e-4)


def test_dev_is_heard_without_loops(monkeypatch):
    whisper = load_whisper(tiny_folder())
    mel = log_mel(torch.from_numpy(noise(2.0, seed=1))[None], whisper.n_mels)
    hidden = encode_frames(whisper.model, mel)
    (text,) = greedy(whisper, hidden, whisper.prompt(), 40)
    n_frames = hidden.shape[1]
    assert not any(unsupported(text[:n], even(n, n_frames)) for n in range(1, len(text) + 1))
    monkeypatch.setattr("streaming_asr.training.greedy.unsupported", lambda *_: None)
    (looping,) = greedy(whisper, hidden, whisper.prompt(), 40)
    assert looping[: len(text)] == text and len(looping) > len(text)


def test_an_example_has_room_for_the_word_and_ends_with_the_text(corpus):
    one = recipe(corpus)
    for step in range(6):
        for each in one.draw(step, rank=0, world=1, progress=0.0):
            assert each.tokens[-1] == one.whisper.eot
            assert each.tokens[each.n_prompt - 1] == one.whisper.prompt()[-1]
            assert each.audio.numel() <= 3.5 * 16_000  # the context of 4 s less the word


def test_training_lowers_the_loss_keeps_the_clamps_and_leaves_a_word_that_runs(corpus, tmp_path):
    trained = recipe(corpus, clamps=[0.02, "none"], average=2, crop_end=0.0, n_dev=2)
    before = trained.model.tails.detach().clone()
    settings = FitConfig(
        out=str(tmp_path), max_steps=12, max_minutes=1e6, lr=5e-3, evaluate_every=4, warmup_steps=1
    )
    fixed = trained.draw(0, rank=0, world=1, progress=0.0)
    with torch.no_grad():
        start = trained.model(fixed)
    trained.draw = lambda *_, **__: fixed
    figures = fit(trained, settings)
    with torch.no_grad():
        assert bool((trained.model(fixed) < start - 0.01).all())
    tails = trained.model.tails.detach()
    assert torch.equal(before[0], before[1]) and not torch.equal(tails[0], tails[1])
    assert float(tails[0].abs().max()) <= 0.02 < float(tails[1].abs().max())
    assert {"score", "wer_clamp0.02", "best_unclamped", "wer_full", "wer_none"} <= set(figures)
    assert figures["score"] == min(figures["wer_clamp0.02"], figures["wer_unclamped"])
    told = json.loads((tmp_path / "best" / "training.json").read_text())
    assert told["clamp"] in ("clamp0.02", "unclamped") and told["length_s"] == 0.5
    assert told["base"] == weights_hash(tiny_folder())
    method = new_method("hush_word", str(tiny_folder()), weights=str(tmp_path / "best"), beam=0)
    assert method.step(method.start(), noise(1.0), last=True).partial == ()


def test_the_word_is_the_mean_of_the_best_evaluations_of_the_best_clamp(corpus, tmp_path):
    trained = recipe(corpus, clamps=[0.02, 0.1], average=2)
    wers = iter([[9.0, 5.0], [0, 0], [7.0, 6.0], [0, 0], [8.0, 9.0], [3.0, 2.0]])
    trained._wers = lambda tails: next(wers)
    for value in (1.0, 2.0, 3.0):
        with torch.no_grad():
            trained.model.tails.fill_(value / 1000)
        figures = trained.evaluate()
    assert figures["score"] == 2.0 and figures["best_clamp0.02"] == 7.0
    trained.save(tmp_path)
    word = load_hush(tmp_path, trained.whisper).samples
    assert word.shape == (8000,)
    assert torch.allclose(word, torch.full((8000,), 0.0015))  # of 5.0 and 6.0, not of 9.0
    after = recipe(corpus, clamps=[0.02, 0.1], start=str(tmp_path))
    assert torch.equal(after.model.tails, word.expand(2, -1))
    with pytest.raises(UserError, match=r"start=.*of another level or length.*\(4000,\) numbers"):
        recipe(corpus, length_s=0.25, start=str(tmp_path))


def test_at_the_log_mel_s_level_the_word_is_half_a_second_of_it(corpus, tmp_path):
    trained = recipe(corpus, level="mel", clamps=["none"])
    losses = trained.model(trained.draw(0, rank=0, world=1, progress=0.0))
    losses.sum().backward()
    assert trained.model.tails.grad.shape == (1, 80, 50)
    trained.save(tmp_path)
    assert load_hush(tmp_path / FILE_NAME, trained.whisper).mel.shape == (80, 50)
