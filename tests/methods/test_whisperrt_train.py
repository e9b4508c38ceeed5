"""WhisperRT's fine-tuning: what a prefix must say, and that one pass gives every prefix exactly."""

import itertools
import json
import shutil
from dataclasses import replace

import pytest
import torch
from oracle import oracle_of_peft
from recipes import settings_of, toy_corpus, train
from safetensors.torch import load_file
from tiny import noise, tiny_folder

from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.corpora.shards import read_shards, write_shards
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.train import U2Recipe
from streaming_asr.methods.whisperrt.prefixes import pack
from streaming_asr.methods.whisperrt.train import WhisperRTRecipe
from streaming_asr.training.windows import Window
from streaming_asr.utterance import TimedWord, Utterance
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture
def recipe(corpus):
    def make(**options):
        options = {"rank": 4, "batch": 3, **options}
        return WhisperRTRecipe(**settings_of("whisperrt", corpus, tiny_folder(), **options))

    return make


def stir(recipe):
    """Gives lora_B values, as training does, so that an adapter that is lost is noticed."""
    torch.manual_seed(1)
    for name, weight in recipe.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)


def batch_of(recipe, step=0):
    return recipe.precompute(recipe.draw(step, rank=0, world=1, progress=0.0))


def packed(recipe, examples):
    return recipe.precompute(pack(examples, recipe.whisper.eot))


# -- the network --------------------------------------------------------------------------------


def test_all_prefixes_in_one_pass_equal_one_decoder_pass_per_prefix(recipe):
    recipe = recipe(point_fraction=1.0, points_per_window=4)
    stir(recipe)
    batch = batch_of(recipe)
    theirs = oracle_of_peft(recipe.peft)
    expected = []
    with torch.no_grad():
        _, hidden, _ = recipe.model(batch)
        found = hidden @ recipe.model.vocabulary.T
        for window, (mel, ends) in enumerate(zip(batch.mels, batch.ends, strict=True)):
            encoded = encode_masked(recipe.peft, mel[None], ends=ends)
            for row in range(int(batch.rows[window].max()) + 1):
                mine = batch.rows[window] == row
                heard = int(batch.visible_frames[window][mine][0])
                hidden = theirs.model.decoder(
                    input_ids=batch.tokens[window][mine][None],
                    encoder_hidden_states=encoded[:, :heard],
                ).last_hidden_state
                logits = theirs.proj_out(hidden)[0]
                expected.append(logits[batch.labels[window][mine] >= 0])
    assert len(expected) > 6
    assert torch.allclose(found, torch.cat(expected), atol=1e-4)


def test_a_prefix_of_the_fast_pass_equals_the_prefix_encoded_alone(recipe):
    recipe = recipe()
    stir(recipe)
    window = Window(
        noise(2.4, seed=7), [("fox", 0.1, 0.5, 0), ("had", 1.6, 2.0, 0)], "", False, False
    )
    long = recipe._example(window, [30, 45, 60, 75, 90, 105, 120], [45])
    short = recipe._example(window, [30, 45], [45])
    batches = [packed(recipe, [example]) for example in (long, short)]
    (whole,), (part,) = (batch.mels for batch in batches)
    assert part.shape[-1] == 91 and whole.shape[-1] == 241
    assert torch.allclose(part, whole[:, :91], atol=1e-6)
    with torch.no_grad():
        hidden = [recipe.model(batch)[1] for batch in batches]
    assert torch.allclose(*hidden, atol=1e-5)


def test_features_of_a_batch_are_those_of_each_window_as_it_was_drawn(recipe):
    recipe = recipe(learn="encoder", augment=None)  # speech of the shards, int16
    batch, windows = batch_of(recipe), recipe._windows(0, 0)
    context = recipe.whisper.context_frames * 320
    for mel, offline, ends, window in zip(
        batch.mels, batch.offline, batch.ends, windows, strict=True
    ):
        torch.testing.assert_close(mel, recipe.mel(window.audio, ends), atol=1e-5, rtol=0)
        whole = torch.zeros(context)
        whole[: len(window.audio)] = torch.from_numpy(window.audio)
        torch.testing.assert_close(offline, log_mel(whole, 80), atol=1e-5, rtol=0)


def test_a_batch_moves_and_is_pinned_as_a_whole(recipe, monkeypatch):
    batch = recipe(learn="encoder").draw(0, rank=0, world=1, progress=0.0)
    featured = batch.with_features(80, 200, taught=True)
    tensors = [v for v in vars(featured).values() if isinstance(v, torch.Tensor)] + featured.mels
    assert len(tensors) == 9 + 3
    moved = featured.to(torch.device("meta"))
    everything = [v for v in vars(moved).values() if isinstance(v, torch.Tensor)] + moved.mels
    assert {tensor.device.type for tensor in everything} == {"meta"}
    pinned = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    featured.pin_memory()
    assert {id(tensor) for tensor in pinned} == {id(tensor) for tensor in tensors}


@pytest.mark.parametrize("options", [{"learn": "encoder"}, {"learn": "decoder"}])
def test_a_step_needs_no_number_from_the_device(recipe, options, monkeypatch):
    # The meta device has shapes and no numbers: what asks for one, so that a GPU would be waited
    # for, raises there.
    recipe = recipe(modules="all", **options)
    batch = recipe.draw(0, rank=0, world=1, progress=0.0)
    recipe.model.to("meta")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: False)  # it knows no meta device
    loss, logs = recipe.loss(recipe.model, batch)
    loss.backward()
    assert loss.device.type == "meta" and isinstance(logs["weight"], float)
    with pytest.raises((RuntimeError, NotImplementedError)):
        float(loss)


@pytest.mark.parametrize(("init", "bound"), [("paper", 4**-0.5), ("peft", 32**-0.5)])
def test_the_initial_scale_is_the_papers_or_pefts(recipe, init, bound):
    recipe = recipe(init=init)
    matrices = [p.detach() for n, p in recipe.model.named_parameters() if "lora_A" in n]
    largest = max(float(p.abs().max()) for p in matrices)
    assert 0.95 * bound < largest <= bound


# -- the data -----------------------------------------------------------------------------------


def targets(recipe, window, points):
    example = recipe._example(window, points, points)
    return [recipe.whisper.tokenizer.decode(tokens) for _, tokens in example.prefixes]


def test_a_prefix_says_the_words_that_have_ended_in_it(recipe):
    recipe = recipe()
    words = [("the", 0.1, 0.3, 0), ("lazy", 0.7, 1.2, 0), ("dog", 1.21, 1.81, 0)]
    window = Window(noise(1.8), words, "", False, False)
    said = targets(recipe, window, [4, 15, 30, 60, 90])
    # the last word ends 10 ms past the audio, by rounding: at the end of the audio it is due
    assert said == ["", " the", " the", " the lazy", " the lazy dog"]


def test_rows_are_prompt_tokens_and_end_with_the_prompt_unlearned(recipe):
    recipe = recipe(batch=1)
    window = Window(noise(1.8), [("the", 0.65, 0.85, 0)], "", False, False)
    recipe._drawn = (0, 0), [[window]]
    recipe.point_fraction = 1.0
    batch = batch_of(recipe)
    the, sot, silent = recipe.word_tokens("the"), *recipe.prompt_of[None]
    eot = recipe.whisper.eot
    n = len(the)
    assert batch.ends == [[30, 45, 60, 75, 90]]
    visible_frames = batch.visible_frames[0]
    assert visible_frames[:2].tolist() == [30, 30]
    assert visible_frames[2:].unique().tolist() == [45, 60, 75, 90]
    assert batch.tokens[0].tolist() == [sot, silent] + 4 * [sot, silent, *the]
    assert batch.labels[0].tolist() == [-100, eot] + 4 * [-100, *the, eot]
    assert batch.positions[0].tolist() == [0, 1] + 4 * list(range(2 + n))


def test_a_word_cut_by_the_end_of_the_context_is_never_a_target(recipe):
    recipe = recipe(several=1.0, late_start=0.0)
    cut = 0
    for index in range(40):
        for window in recipe._windows(index, 0):
            end = len(window.audio) / 16_000
            cut += end > 3.99
            # every word of the corpus lasts 0.3 s
            assert all(e - s == pytest.approx(0.3) and e <= end for _, s, e, _ in window.words)
    assert cut > 10


def test_random_chunks_are_tenths_of_a_second_and_start_at_600_ms_or_more(recipe):
    import random

    recipe = recipe(random_chunks=True)
    drawn = {recipe._draw_chunk(random.Random(i)) for i in range(300)}
    assert drawn == {
        (5, 30), (10, 30), (15, 30), (20, 40), (25, 50),
        (30, 30), (35, 35), (40, 40), (45, 45), (50, 50),
    }  # fmt: skip


def test_paper_mode_visits_the_points_of_one_batch_in_turn(recipe):
    recipe = recipe(mode="paper", point_fraction=0.5, points_per_window=3)
    assert recipe.steps_per_batch == 3
    batches = [batch_of(recipe, step) for step in range(3)]
    heard = [int(batch.visible_frames.max()) for batch in batches]
    assert heard == sorted(set(heard))
    windows = recipe._windows(0, 0)
    for batch in batches:
        t = int(batch.visible_frames.max())
        full = [recipe.blocks(len(w.audio), 15, 30) for w in windows]
        assert batch.ends == [[end for end in ends if end <= t] for ends in full]
        assert [mel.shape[-1] for mel in batch.mels] == [2 * e[-1] + 1 for e in batch.ends]


def test_the_last_block_is_whole_as_at_the_end_of_a_stream(recipe):
    recipe = recipe()

    def blocks(duration_s):
        return recipe.blocks(round(duration_s * 16_000), 15, 30)

    assert blocks(0.3) == blocks(0.6) == [30]
    assert blocks(0.62) == blocks(0.9) == [30, 45]
    assert blocks(3.92)[-3:] == [180, 195, 200]  # the context ends here


# -- training -----------------------------------------------------------------------------------


@pytest.mark.parametrize("modules", ["attention", "all"])
def test_what_is_saved_is_an_adapter_that_run_can_merge(recipe, tmp_path, modules):
    recipe = recipe(batch=4, rank=8, modules=modules)
    stir(recipe)
    (tmp_path / "curve.jsonl").write_text('{"step": 40, "dev/wer": 1.0}\n')
    folder = tmp_path / "final"
    recipe.save(folder)
    told = json.loads((folder / "training.json").read_text())
    assert (told["chunk_s"], told["first_chunk_s"], told["rank"]) == (0.3, 0.6, 8)
    assert told["modules"] == modules
    held = load_file(folder / "adapter_model.safetensors")
    assert any("fc1" in name for name in held) == (modules == "all")
    assert told["reached"]["step"] == 40 and told["reached"]["dev/wer"] == 1.0
    assert not json.loads((folder / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ].startswith("/")

    merged = load_whisper(tiny_folder(), adapter=folder)
    plain = load_whisper(tiny_folder())
    batch = batch_of(recipe)
    mel, ends = batch.mels[0][None], batch.ends[0]
    with torch.no_grad():
        trained = encode_masked(recipe.peft, mel, ends=ends)
        assert torch.allclose(encode_masked(merged.model, mel, ends=ends), trained, atol=2e-2)
        assert not torch.allclose(encode_masked(plain.model, mel, ends=ends), trained, atol=2e-2)


def test_buckets_put_windows_of_alike_lengths_together_and_batches_stay_pure(recipe):
    plain, bucketed = recipe(), recipe(buckets=4)
    first = [len(window.audio) for window in bucketed._windows(0, 0)]
    lengths = [[len(w.audio) for w in bucketed._windows(index, 0)] for index in range(4)]
    assert lengths[0] == first  # asked for again after others
    ordered = sorted(lengths, key=sum)
    assert all(max(a) <= min(b) for a, b in itertools.pairwise(ordered))
    assert len(first) == len(plain._windows(0, 0)) == 3


# -- languages ----------------------------------------------------------------------------------

SAID = {"en": "the quick fox had water", "de": "der schnelle fuchs lief fort"}


@pytest.fixture
def two_languages(tmp_path):
    """Shards of 12 utterances of one speaker, English and German in turn, and dev in both."""

    def spoken(i, language):
        words = SAID[language].split()
        times = tuple(TimedWord(w, 0.1 + 0.3 * k, 0.4 + 0.3 * k) for k, w in enumerate(words))
        audio = noise(1.75, seed=i)
        return Utterance(f"{i}", SAID[language], lambda: audio, 1.75, "a", language, times)

    utterances = [spoken(i, "de" if i % 2 else "en") for i in range(12)]
    write_shards(utterances, tmp_path, max_s=30)
    dev = [replace(each, id=f"dev-{each.id}") for each in utterances[:2]]
    write_manifest(dev, tmp_path / "dev.jsonl")
    return tmp_path


def test_each_language_of_a_shard_has_its_own_prompt_and_windows(two_languages):
    model = tiny_folder(multilingual=True)
    settings = {"rank": 4, "batch": 12, "several": 1.0, "late_start": 0.0}
    recipe = WhisperRTRecipe(**settings_of("whisperrt", two_languages, model, **settings))
    assert [item.language for item in read_shards(two_languages)] == ["en", "de"] * 6
    batch, windows = batch_of(recipe), recipe._windows(0, 0)
    languages = [window.language for window in windows]
    assert set(languages) == {"en", "de"}
    for i, window in enumerate(windows):
        prompt = recipe.whisper.prompt(window.language)
        assert len(prompt) == 4 and prompt[1] == recipe.whisper._id(f"<|{window.language}|>")
        begins = (batch.positions[i] == 0) & (batch.rows[i] >= 0)
        for at in begins.nonzero()[:, 0].tolist():
            assert batch.tokens[i, at : at + 4].tolist() == prompt
        assert {word for word, *_ in window.words} <= set(SAID[window.language].split())


def test_one_language_for_all_outweighs_those_of_the_shards(two_languages):
    model = tiny_folder(multilingual=True)
    settings = settings_of("whisperrt", two_languages, model, rank=4, language="zh")
    recipe = WhisperRTRecipe(**settings)
    assert {tuple(p) for p in recipe.prompt_of.values()} == {tuple(recipe.whisper.prompt("zh"))}


@pytest.mark.parametrize(
    ("recipe", "method", "options", "wrong"),
    [
        (WhisperRTRecipe, "whisperrt", {}, "'de': this model is English-only"),
        (U2Recipe, "u2", {"stage": "attention"}, "holds de, en, and this recipe learns one"),
    ],
)
def test_languages_that_a_recipe_cannot_learn_are_refused(
    two_languages, recipe, method, options, wrong
):
    model = tiny_folder(multilingual=method == "u2")
    with pytest.raises(UserError, match=wrong):
        recipe(**settings_of(method, two_languages, model, **options))


# -- distillation -------------------------------------------------------------------------------


def test_the_loss_of_a_batch_equals_that_of_its_windows_one_by_one(recipe):
    recipe = recipe(learn="encoder")
    stir(recipe)
    window = [noise(1.4 + 0.5 * i, seed=i) for i in range(3)]
    words = [("fox", 0.1, 0.5, 0), ("had", 0.6, 1.0, 0)]
    examples = [
        recipe._example(Window(audio, words, "", False, False), ends, [30, ends[-1]])
        for audio, ends in zip(window, ([30, 60, 75], [30, 45, 100], [30, 120]), strict=True)
    ]

    def loss(some):
        with torch.no_grad():
            return recipe.loss(recipe.model, pack(some, recipe.whisper.eot))[1]

    together, alone = loss(examples), [loss([example]) for example in examples]
    assert together["weight"] == sum(logs["weight"] for logs in alone)
    frames = [example.ends[-1] for example in examples]
    apart = sum(float(logs["frames"]) * n for logs, n in zip(alone, frames, strict=True))
    assert float(together["frames"]) == pytest.approx(apart / sum(frames), rel=1e-4)


def test_frames_are_as_far_apart_as_the_decoders_keys_and_values_of_them(recipe):
    recipe = recipe(learn="encoder")
    stir(recipe)  # the decoder's adapter does not change what is measured
    torch.manual_seed(0)
    known, one, other = (torch.randn(n, 32) for n in (400, 5, 5))
    layers = load_whisper(tiny_folder()).model.model.decoder.layers
    attentions = [layer.encoder_attn for layer in layers]
    apart = []
    with torch.no_grad():
        for project in (p for a in attentions for p in (a.k_proj, a.v_proj)):
            apart.append((project(one) - project(other)) ** 2 / project(known).var(0))
    expected = torch.cat(apart, dim=1).mean(1)
    found = ((one - other) @ recipe.model.distance_root(known)).square().sum(-1)
    assert torch.allclose(found, expected, rtol=1e-3)


# -- what learns --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learn", "part"), [("encoder", ".encoder."), ("decoder", ".decoder."), ("all", "lora_")]
)
def test_what_learns_alone_gets_gradients(recipe, learn, part):
    recipe = recipe(learn=learn)
    stir(recipe)
    loss, _ = recipe.loss(recipe.model, batch_of(recipe))
    loss.backward()
    for name, parameter in recipe.peft.named_parameters():
        learns = "lora_" in name and part in name
        assert parameter.requires_grad == learns, name  # not even where the teacher has spoken
        assert (parameter.grad is not None and parameter.grad.any()) == learns, name


def test_an_encoder_is_evaluated_by_its_distance_without_a_decoder(recipe, monkeypatch):
    recipe = recipe(learn="encoder", n_dev=3, batch=2)
    stir(recipe)
    monkeypatch.setattr(recipe, "stream_dev", None)  # not called
    figures = recipe.evaluate()
    assert set(figures) == {"score", "distance_0.3s", "distance_1s"}
    for chunk, first in ((15, 30), (50, 50)):
        total, n = 0.0, 0
        for utterance in recipe.dev:
            audio = utterance.load()
            ends = recipe.blocks(len(audio), chunk, first)
            whole = torch.zeros(200 * 320)
            whole[: len(audio)] = torch.from_numpy(audio)
            with torch.no_grad():
                mine = encode_masked(recipe.peft, recipe.mel(audio, ends)[None], ends=ends)[0]
                wanted = recipe.prefixes.offline_frames(log_mel(whole, 80)[None])[0, : ends[-1]]
            total += float(((mine - wanted) @ recipe.distance_root).square().sum())
            n += ends[-1]
        assert figures[f"distance_{chunk / 50:g}s"] == pytest.approx(total / n, rel=1e-3)
    chunks = figures["distance_0.3s"], figures["distance_1s"]
    assert figures["score"] == pytest.approx(sum(chunks) / 2)


def test_an_encoder_learns_from_sound_without_words(corpus, tmp_path):
    options = {"learn": "encoder", "rank": 8, "batch": 4, "modules": "all"}
    without = {}
    for learn in ("encoder", "decoder"):
        shutil.copytree(corpus, tmp_path / learn)
        for file in (tmp_path / learn).glob("shard-*.jsonl"):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            bare = [json.dumps({**row, "text": "", "words": []}) for row in rows]
            file.write_text("\n".join(bare) + "\n")
        without[learn] = settings_of("whisperrt", tmp_path / learn, tiny_folder(), **options)
    with pytest.raises(UserError, match="no utterance with word times"):
        WhisperRTRecipe(**without["decoder"] | {"learn": "decoder"})
    recipe = WhisperRTRecipe(**without["encoder"])
    recipe.evaluate = lambda: {"score": 1.0}
    train(recipe, tmp_path / "out", 40, lr=3e-3, log_every=5, schedule="linear_tail")
    curve = (tmp_path / "out/curve.jsonl").read_text().splitlines()
    apart = [row["frames"] for row in map(json.loads, curve) if "frames" in row]
    assert apart[-1] < 0.7 * apart[0]


def test_the_last_tokens_of_a_point_alone_are_learned(recipe):
    recipe = recipe(batch=1, last_tokens=2)
    words = [(w, 0.1 + 0.3 * i, 0.4 + 0.3 * i, 0) for i, w in enumerate(("the", "fox", "had"))]
    example = recipe._example(Window(noise(1.2), words, "", False, False), [30, 60], [60])
    tokens = example.prefixes[0][1]
    assert len(tokens) > 2
    batch = pack([example], recipe.whisper.eot, recipe.last_tokens)
    learned = batch.labels[batch.labels >= 0].tolist()
    assert learned == [*tokens[-2:], recipe.whisper.eot]


def test_a_training_goes_on_from_the_adapter_of_another(recipe, tmp_path):
    earlier = recipe()
    stir(earlier)
    earlier.save(tmp_path / "adapter")
    later = recipe(start=str(tmp_path / "adapter"))
    assert later.seed == earlier.seed
    assert later.rng(3, 0).random() != earlier.rng(3, 0).random()  # windows it has not seen
    again = recipe(start=str(tmp_path / "adapter"))
    assert again.rng(3, 0).random() == later.rng(3, 0).random()
    for (name, theirs), (_, ours) in zip(
        earlier.model.named_parameters(), later.model.named_parameters(), strict=True
    ):
        assert torch.allclose(theirs, ours, atol=1e-3, rtol=1e-3), name
    later.save(tmp_path / "later")
    card = json.loads((tmp_path / "later" / "training.json").read_text())
    assert card["start"] == "adapter"
    assert json.loads((tmp_path / "adapter" / "training.json").read_text())["start"] is None


def test_an_adapter_of_more_modules_is_refused_as_a_start_and_one_of_fewer_is_not(recipe, tmp_path):
    recipe(modules="all").save(tmp_path / "all")
    with pytest.raises(UserError, match=r"its adapter also changes .*fc1.*modules=all"):
        recipe(start=str(tmp_path / "all"))
    fewer = recipe()
    stir(fewer)
    fewer.save(tmp_path / "attention")
    more = recipe(start=str(tmp_path / "attention"), modules="all")
    batch = batch_of(fewer)
    assert more.loss(more.model, batch)[0].item() == pytest.approx(
        fewer.loss(fewer.model, batch)[0].item(), rel=1e-3
    )
