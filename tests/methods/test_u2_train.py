"""U2's training: its losses, its stages, what it saves and that a killed run goes on exactly."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from oracle import oracle_of_peft
from recipes import settings_of, toy_corpus, train, weights
from tiny import noise, tiny_folder

from streaming_asr import train as train_program
from streaming_asr.config.build import new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.train import U2Recipe
from streaming_asr.training.loop import FitConfig
from streaming_asr.whisper.encoder import encode_masked


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"), n=8, n_lengths=3, word_s=0.4, n_dev=1)


@pytest.fixture
def recipe(corpus):
    def make(**options):
        options = {"rank": 4, "batch": 2, "stage": "hybrid", **options}
        return U2Recipe(**settings_of("u2", corpus, tiny_folder(), **options))

    return make


def batch_of(recipe, step=0):
    return recipe.draw(step, rank=0, world=1, progress=0.0)


def losses(recipe, batch, **wanted):
    settings = {"ctc": True, "attention": True, "label_smoothing": 0.0, **wanted}
    found = recipe.model(batch, **settings)
    return found["ctc"], found["attention"]


def test_the_losses_are_those_of_each_window_alone_weighted_by_its_tokens(recipe):
    recipe = recipe(batch=3)
    batch = batch_of(recipe)
    with torch.no_grad():
        ctc, attention = losses(recipe, batch)
        ctc_sum = attention_sum = 0.0
        for mel, ends, text, classes in zip(
            batch.mels, batch.ends, batch.texts, batch.classes, strict=True
        ):
            frames = encode_masked(recipe.whisper.model, mel[None], ends=ends)
            log_probs = recipe.model.head(frames).log_softmax(-1)
            ctc_sum += float(
                F.ctc_loss(
                    log_probs.transpose(0, 1),
                    torch.tensor([classes]),
                    torch.tensor([frames.shape[1]]),
                    torch.tensor([len(classes)]),
                    blank=recipe.tokenizer.blank,
                    reduction="sum",
                )
            )
            ids = torch.tensor([[*recipe.prompt, *text]])
            decoder = oracle_of_peft(recipe.network).model.decoder
            out = decoder(input_ids=ids, encoder_hidden_states=frames).last_hidden_state
            logits = recipe.whisper.model.proj_out(out)[0, len(recipe.prompt) - 1 :]
            labels = torch.tensor([*text, recipe.whisper.eot])
            attention_sum += float(F.cross_entropy(logits, labels, reduction="sum"))
    n_classes = sum(map(len, batch.classes))
    n_labels = sum(len(text) + 1 for text in batch.texts)
    assert n_classes > 5
    assert float(ctc) == pytest.approx(ctc_sum / n_classes, rel=1e-5)
    assert float(attention) == pytest.approx(attention_sum / n_labels, rel=1e-5)


def test_a_batch_has_one_chunk_of_100_ms_to_1_s(recipe):
    one = recipe()
    chunks = set()
    for step in range(8):
        a = batch_of(one, step)
        lengths = {e[i + 1] - e[i] for e in a.ends for i in range(len(e) - 2)}
        assert len(lengths) <= 1
        chunks |= lengths
    assert len(chunks) > 2 and chunks <= set(range(5, 51))


def test_the_hybrid_tokenizer_gives_the_head_finer_targets(recipe):
    single, hybrid = batch_of(recipe()), batch_of(recipe(ctc_tokens=262))
    assert single.texts == hybrid.texts == single.classes
    assert max(max(classes, default=0) for classes in hybrid.classes) < 262
    assert sum(map(len, hybrid.classes)) > sum(map(len, single.classes))


@pytest.mark.parametrize(
    ("stage", "rank", "trained"),
    [
        ("attention", 4, {"lora"}),
        ("frames", 4, {"lora", "head"}),
        ("ctc", 4, {"head"}),
        ("hybrid", 4, {"lora", "head"}),
        ("attention", 0, {"other"}),
        ("ctc", 0, {"head"}),
        ("hybrid", 0, {"other", "head"}),
    ],
)
def test_each_stage_changes_only_what_it_trains(recipe, stage, rank, trained):
    recipe = recipe(stage=stage, rank=rank)
    loss, _ = recipe.loss(recipe.model, batch_of(recipe))
    loss.backward()
    moved = set()
    for name, p in recipe.model.named_parameters():
        if p.grad is not None and float(p.grad.abs().max()) > 0:
            kind = "lora" if "lora_" in name else "head" if name.startswith("head") else "other"
            moved.add(kind)
        assert p.requires_grad == (p.grad is not None), name
    assert moved == trained


def test_a_weight_of_1_leaves_the_attention_loss_out(recipe):
    made = recipe(stage="hybrid", ctc_weight=1.0)
    loss, logs = made.loss(made.model, batch_of(made))
    assert "attention_loss" not in logs and loss.item() == pytest.approx(logs["ctc_loss"])
    both, logs = (half := recipe(stage="hybrid", ctc_weight=0.5)).loss(half.model, batch_of(half))
    assert both.item() == pytest.approx((logs["ctc_loss"] + logs["attention_loss"]) / 2)


@pytest.mark.parametrize("rank", [4, 0])
def test_the_stages_follow_one_another_and_end_in_a_method_that_runs(recipe, tmp_path, rank):
    folder = None
    for stage in ("attention", "frames", "ctc", "hybrid"):
        made = recipe(
            stage=stage, start=folder, rank=rank, ctc_tokens=270 if stage == "frames" else None
        )
        if stage in ("ctc", "hybrid"):
            assert made.tokenizer.n_tokens == 270
        figures = train(made, tmp_path / stage, 2)
        assert set(figures) == {"score", "wer"}
        if folder is not None and stage == "frames":
            for name, value in weights(made).items():
                if "lora_B" in name:  # the adapter of the stage before is carried along
                    assert float(value.abs().max()) > 0
        folder = str(tmp_path / stage / "final")
    method = new_method("u2", str(tiny_folder()), weights=folder)
    heard = torch.randn(1, 30, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        mine, its = method._first_pass.head(heard), made.model.head(heard)
    assert torch.allclose(mine, its, atol=1e-2)  # it is kept in half precision
    update = method.step(method.start(), noise(2.0), last=True)
    assert update.partial == ()


def stage_of(name):
    asked = [
        "method=u2",
        "model=mini",
        "entry=any_chunk",
        "output=somewhere",
        f"recipe.stage={name}",
    ]
    config = compose_raw([*asked, "recipe.fit.max_minutes=20"], config_name="train")
    train_program._choose_stage(config, "u2")
    return config


def test_each_stage_has_its_minutes_and_goes_on_from_the_one_before():
    names = ("attention", "frames", "ctc", "hybrid")
    found = {name: stage_of(name) for name in names}
    entries = [config.entry for config in found.values()]
    assert entries == [*(f"any_chunk-{name}" for name in names[:-1]), "any_chunk"]
    starts = [config.recipe.target.start for config in found.values()]
    trained = "somewhere/train/mini/u2"
    assert starts == [None, *(f"{trained}/any_chunk-{name}" for name in names[:-1])]
    assert [config.recipe.target.stage for config in found.values()] == list(found)
    assert sum(config.recipe.fit.max_minutes for config in found.values()) == pytest.approx(20)
    assert found["hybrid"].recipe.fit.patience == 3
    for config in found.values():
        FitConfig(out="", **config.recipe.fit)
    with pytest.raises(
        UserError, match=r"recipe\.stage=both: one of attention, frames, ctc, hybrid"
    ):
        stage_of("both")


def test_the_stages_run_in_turn_until_one_fails(monkeypatch):
    ran = []

    def run(command, check):
        ran.append(command[-1])
        return SimpleNamespace(returncode=3 if command[-1].endswith("=ctc") else 0)

    monkeypatch.setattr(train_program.subprocess, "run", run)
    with pytest.raises(SystemExit, match="3"):
        train_program._in_turn(["attention", "ctc", "hybrid"])
    assert ran == ["recipe.stage=attention", "recipe.stage=ctc"]


def test_an_adapter_of_another_rank_is_refused(recipe, tmp_path):
    recipe(stage="attention", rank=4).save(tmp_path)
    with pytest.raises(UserError, match="does not fit rank=8"):
        recipe(stage="ctc", rank=8, start=str(tmp_path))
