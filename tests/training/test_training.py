"""The training loop: resuming changes nothing, two processes equal one, one run per folder."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from accelerate.state import AcceleratorState
from line import Line, same, settings, weights
from pair import Recipe
from places import HANG_S
from recipes import toy_corpus
from safetensors.torch import save_file
from tiny import tiny_folder
from torch import nn

from streaming_asr.errors import UserError
from streaming_asr.training.ahead import DrawnAhead
from streaming_asr.training.loop import FitConfig, _Training, fit, lr_factor
from streaming_asr.training.windows import length_buckets


def curve(out):
    return [json.loads(line) for line in (out / "curve.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("schedule", ["linear_tail", "plateau"])
def test_a_run_that_was_killed_goes_on_to_the_weights_of_an_unbroken_one(tmp_path, schedule):
    scores = [1.0, 2.0, 2.0, 2.0, 2.0]
    changes = {
        "schedule": schedule, "plateau_patience": 0, "evaluate_every": 3, "checkpoint_minutes": 0.0,
    }  # fmt: skip
    fit(Line(scores), settings(tmp_path / "whole", **changes))
    with pytest.raises(KeyboardInterrupt):
        fit(Line(scores, stop_at=7), settings(tmp_path / "broken", **changes))
    second = Line(scores[2:])
    fit(second, settings(tmp_path / "broken", **changes))

    assert second.seen == [7, 8, 9, 10, 11]
    expected = weights(tmp_path / "whole" / "final")
    for name, value in weights(tmp_path / "broken" / "final").items():
        assert torch.equal(value, expected[name])
    for ours, theirs in zip(curve(tmp_path / "broken"), curve(tmp_path / "whole"), strict=False):
        assert ours["step"] == theirs["step"] and ours["lr"] == theirs["lr"]


@pytest.mark.parametrize("stop_at", [None, 8, 10])
def test_the_means_of_the_last_steps_are_evaluated_and_kept_also_over_a_restart(tmp_path, stop_at):
    class Watched(Line):
        def __init__(self, steps, **kwargs):
            super().__init__(**kwargs)
            self.steps = steps

        def draw(self, step, **kwargs):
            # what the step before left behind
            self.steps[step] = {n: p.clone() for n, p in self.model.state_dict().items()}
            return super().draw(step, **kwargs)

        def evaluate(self):
            self.evaluated = {n: p.clone() for n, p in self.model.state_dict().items()}
            return super().evaluate()

    plain, averaged = {}, {}
    constant = {"schedule": "constant"}
    fit(Watched(plain), settings(tmp_path / "plain", max_steps=13, **constant))
    config = settings(tmp_path / "mean", average=0.3, checkpoint_minutes=0.0, **constant)
    if stop_at:
        with pytest.raises(KeyboardInterrupt):
            fit(Watched(averaged, stop_at=stop_at), config)
    last = Watched(averaged)
    fit(last, config)

    # steps 10, 11 and 12 begin at 9, 10 and 11 twelfths: the last at or after seven tenths
    kept = weights(tmp_path / "mean" / "final")
    for name, value in kept.items():
        mean = (plain[10][name] + plain[11][name] + plain[12][name]) / 3
        torch.testing.assert_close(value, mean)
        assert torch.equal(value, last.evaluated[name])
    assert any(not torch.equal(kept[name], plain[12][name]) for name in kept)


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"average": -0.1}, r"average=-0\.1: 0 or more, 0\.99 at most"),
        ({"average": 1.0}, r"average=1.0: 0 or more, 0\.99 at most"),
        ({"schedule": "cosine"}, "schedule='cosine': one of"),
        ({"patience": 0}, "patience=0"),
        ({"workers": -1}, "workers=-1: 0 or more"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path, changes, answer):
    with pytest.raises(UserError, match=answer):
        fit(Line(), settings(tmp_path, **changes))


def test_steps_logged_after_the_checkpoint_are_not_logged_twice_and_a_torn_line_goes(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        # a checkpoint at step 8 only, by hand, since all that follows takes no time
        fit(Line(stop_at=8), settings(tmp_path, log_every=1, checkpoint_minutes=0.0))
    saved = torch.load(tmp_path / "checkpoint.pt")
    torch.save(saved | {"step": 5}, tmp_path / "checkpoint.pt")
    with (tmp_path / "curve.jsonl").open("a") as f:
        f.write('{"step": 4, "lo')
    fit(Line(), settings(tmp_path, log_every=1))
    logged = [row["step"] for row in curve(tmp_path) if "loss" in row]
    assert logged == list(range(1, 13))


class Halves(Line):
    """5 and 4 points, so that the mean of the halves' means is not the whole's."""

    def draw(self, step, **place):
        return super().draw(step // 2, **place)[step % 2 :: 2]


class Unweighted(Halves):
    def loss(self, model, batch):
        loss, logs = super().loss(model, batch)
        return loss, {"n": logs["n"]}


class BothMeans(Line):
    def loss(self, model, batch):
        first, logs = super().loss(model, batch[::2])
        second, _ = super().loss(model, batch[1::2])
        return (first + second) / 2, {"n": logs["n"]}


@pytest.mark.parametrize(("one", "halves"), [(Line, Halves), (BothMeans, Unweighted)])
def test_accumulated_gradients_equal_one_larger_batch_and_count_alike_without_a_weight(
    tmp_path, one, halves
):
    fit(one(), settings(tmp_path / "one", max_steps=4))
    fit(halves(), settings(tmp_path / "halves", max_steps=4, accumulate=2))
    expected = weights(tmp_path / "one" / "final")
    for name, value in weights(tmp_path / "halves" / "final").items():
        assert torch.allclose(value, expected[name], atol=1e-6)
    assert "weight" not in curve(tmp_path / "halves")[-1]
    if one is BothMeans:  # the curve's loss is the mean over both parts of a step
        losses = [
            [row["loss"] for row in curve(tmp_path / name) if "loss" in row]
            for name in ("one", "halves")
        ]
        assert losses[0] and losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_bf16_computes_in_bf16_and_keeps_weights_in_float32(tmp_path):
    seen = set()

    class Layer(nn.Linear):
        def forward(self, points):
            out = super().forward(points)
            seen.add((out.dtype, self.weight.dtype))
            return out

    recipe = Line()
    recipe.model = nn.Sequential(Layer(3, 1))
    AcceleratorState._reset_state(True)  # one process has one precision
    try:
        fit(recipe, settings(tmp_path, max_steps=2, mixed_precision="bf16"))
    finally:
        AcceleratorState._reset_state(True)
    assert seen == {(torch.bfloat16, torch.float32)}
    assert weights(tmp_path / "final")["0.weight"].dtype == torch.float32


def test_frozen_weights_stay_and_are_not_stored(tmp_path):
    fit(Line(), settings(tmp_path))
    assert torch.equal(weights(tmp_path / "final")["2.bias"], Line().model[2].bias)
    assert set(torch.load(tmp_path / "checkpoint.pt")["model"]) == {
        "0.weight",
        "0.bias",
        "2.weight",
    }


def test_batches_of_alike_lengths_hold_every_example_once_in_one_order_for_all_ranks():
    ranks = [[5, 1, 9, 3, 7, 2], [50, 20, 70, 10, 90, 30]]  # the other: tenfold
    batches = [length_buckets(lengths, 3, float, "seed-0") for lengths in ranks]
    assert sorted(map(sorted, batches[0])) == [[1, 2], [3, 5], [7, 9]]
    assert [sum(batch) for batch in batches[0]] != [3, 8, 16]  # shuffled, and not by length
    assert [[10 * x for x in sorted(batch)] for batch in batches[0]] == list(
        map(sorted, batches[1])
    )
    assert length_buckets(ranks[0], 1, float, "seed-0") == [ranks[0]]


@pytest.mark.parametrize(
    ("schedule", "step", "progress", "expected"),
    [
        ("linear_tail", 0, 0.0, 0.01),  # warm-up: (step + 1) / 100
        ("linear_tail", 49, 0.1, 0.5),
        ("linear_tail", 99, 0.2, 1.0),
        ("linear_tail", 500, 0.6, 1.0),  # the tail is the last 0.4
        ("linear_tail", 800, 0.8, 0.52),  # half of it gone: 0.04 + 0.96 / 2
        ("linear_tail", 1000, 1.0, 0.04),
        ("linear_tail", 1200, 1.2, 0.04),
        ("constant", 900, 0.9, 1.0),
        ("plateau", 900, 0.9, 1.0),
        ("plateau", 24, 0.9, 0.25),
        ("noam", 49, 0.1, 0.5),
        ("noam", 99, 0.1, 1.0),
        ("noam", 399, 0.9, 0.5),  # the root of 100 / 400
    ],
)
def test_the_learning_rate_follows_its_schedule(schedule, step, progress, expected):
    config = FitConfig(
        out="", max_steps=1000, max_minutes=1, schedule=schedule, tail=0.4, warmup_steps=100
    )
    assert lr_factor(config, step, progress) == pytest.approx(expected)


def test_a_plateau_halves_the_learning_rate_after_its_patience(tmp_path):
    fit(
        Line(scores=[5.0, 4.0, 4.0, 4.0, 4.0, 3.0]),
        settings(
            tmp_path, schedule="plateau", plateau_patience=1, evaluate_every=2, log_every=1,
            warmup_steps=1,
        ),
    )  # fmt: skip
    # scores at steps 2, 4, ... : 4.0 for the third time, at step 8, is one beyond the patience of 1
    lrs = [row["lr"] for row in curve(tmp_path)]
    assert lrs == pytest.approx([0.05] * 7 + [0.025] * 5)


def test_the_best_by_score_is_kept_and_the_last_evaluation_logged(tmp_path):
    recipe = Line(scores=[3.0, 1.0, 2.0])
    kept = []
    save = recipe.save
    recipe.save = lambda folder: (kept.append(folder.name.split(".")[1]), save(folder))
    figures = fit(recipe, settings(tmp_path, evaluate_every=4))
    assert [name.split(".")[1] if name.startswith(".") else name for name in kept] == [
        "best",
        "best",
        "final",
    ]  # each written beside its place, under a name with a dot, and renamed
    assert figures == {"score": 2.0}
    assert [row["dev/score"] for row in curve(tmp_path) if "dev/score" in row] == [3.0, 1.0, 2.0]


def test_every_row_of_the_curve_is_logged_with_its_step(tmp_path):
    logged = []
    fit(
        Line(scores=[3.0, 1.0]),
        settings(tmp_path, log_every=4, evaluate_every=6),
        log=lambda row, step: logged.append({"step": step, **row}),
    )
    assert [row["step"] for row in logged] == [4, 6, 8, 12]
    assert [row.get("dev/score") for row in logged] == [None, 3.0, None, 1.0]
    for row, kept in zip(logged, curve(tmp_path), strict=True):
        assert row.keys() == kept.keys() >= {"loss", "lr", "minutes"}
        assert row["loss"] == pytest.approx(kept["loss"], rel=1e-5)


def test_evaluations_without_a_better_score_end_a_training_also_over_a_restart(tmp_path):
    patient = {"patience": 2, "evaluate_every": 2, "max_steps": 100, "checkpoint_minutes": 0.0}
    whole = Line(scores=[3.0, 4.0, 2.0, 2.0, 5.0, 1.0])  # 2.0 again is no better
    figures = fit(whole, settings(tmp_path / "whole", **patient))
    assert (whole.seen[-1], figures) == (9, {"score": 5.0})
    with pytest.raises(KeyboardInterrupt):
        fit(Line(scores=[3.0, 4.0, 2.0, 2.0], stop_at=9), settings(tmp_path / "parts", **patient))
    rest = Line(scores=[5.0, 1.0])
    fit(rest, settings(tmp_path / "parts", **patient))
    assert rest.seen == [9]
    again = Line()
    fit(again, settings(tmp_path / "parts", **patient))
    assert again.seen == []


def test_a_training_that_had_ended_changes_nothing_when_it_is_started_again(tmp_path):
    first = fit(Line(scores=[3.0, 2.0]), settings(tmp_path, evaluate_every=8, log_every=1))
    left = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.suffix != ".pt"}
    again = Line(scores=[9.0])
    assert fit(again, settings(tmp_path, evaluate_every=8, log_every=1)) == first == {"score": 2.0}
    assert again.scores == [9.0] and again.seen == []
    assert {path: path.read_bytes() for path in left} == left
    assert [row["step"] for row in curve(tmp_path)] == [*range(1, 13), 12]


def test_the_figures_returned_are_those_of_the_weights_that_are_kept(tmp_path):
    scores = [3.0, 1.0, 2.0]
    changes = {"evaluate_every": 4}
    assert fit(Line(scores), settings(tmp_path / "1", **changes), keep="best") == {"score": 1.0}
    assert fit(Line(scores), settings(tmp_path / "2", **changes)) == {"score": 2.0}
    again = fit(Line(), settings(tmp_path / "1", **changes), keep="best")
    assert again == {"score": 1.0}


class Breaks(Line):
    """Its sixth loss is no number."""

    def loss(self, model, batch):
        loss, logs = super().loss(model, batch)
        return loss * (float("nan") if self.seen[-1] == 5 else 1.0), logs


def test_a_loss_that_is_no_number_ends_the_training_before_it_reaches_the_weights(tmp_path):
    recipe = Breaks()
    with pytest.raises(UserError, match=r"step 6: the loss is nan; .*lower recipe\.fit\.lr"):
        fit(recipe, settings(tmp_path, checkpoint_minutes=0.0))
    assert torch.load(tmp_path / "checkpoint.pt")["step"] == 5
    assert all(bool(p.isfinite().all()) for p in recipe.model.parameters())


def test_a_gpu_is_asked_for_its_losses_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(_Training, "reads_at_once", False)
    recipe = Breaks()
    with pytest.raises(UserError, match="step 6: the loss is nan"):
        fit(recipe, settings(tmp_path, log_every=4))
    assert len(recipe.seen) == 8  # the step of the next row of the curve
    assert [row["step"] for row in curve(tmp_path)] == [4]
    assert not {"checkpoint.pt", "best", "final"} & {file.name for file in tmp_path.iterdir()}

    with pytest.raises(UserError, match="step 6"):  # a checkpoint after each step
        fit(Breaks(), settings(tmp_path / "often", checkpoint_minutes=0.0))
    assert torch.load(tmp_path / "often" / "checkpoint.pt")["step"] == 5


def test_figures_may_be_tensors_and_read_the_same(tmp_path):
    class Tensors(Line):
        def loss(self, model, batch):
            loss, logs = super().loss(model, batch)
            return loss, {name: torch.tensor(value) for name, value in logs.items()}

    fit(Line(), settings(tmp_path / "floats"))
    fit(Tensors(), settings(tmp_path / "tensors"))
    assert same(tmp_path / "floats", tmp_path / "tensors")
    rows = [{k: v for k, v in row.items() if k != "minutes"} for row in curve(tmp_path / "floats")]
    for row, other in zip(rows, curve(tmp_path / "tensors"), strict=True):
        assert row == {name: value for name, value in other.items() if name != "minutes"}


@pytest.mark.parametrize("error", [RuntimeError, OSError])
def test_a_disk_that_is_full_for_a_while_costs_checkpoints_only(
    tmp_path, monkeypatch, capsys, error
):
    often = {"checkpoint_minutes": 0.0}
    fit(Line(), settings(tmp_path / "whole", **often))
    steps = []
    save = torch.save

    def full(state, file):
        if "step" in state:  # a checkpoint
            steps.append(state["step"])
            if 3 < state["step"] < 6:
                raise error("PytorchStreamWriter failed writing file data/3")
        save(state, file)

    monkeypatch.setattr(torch, "save", full)
    fit(Line(), settings(tmp_path / "full", **often))
    assert same(tmp_path / "full", tmp_path / "whole")
    warned = capsys.readouterr().err
    assert warned.count("warning: ") == 2
    assert "checkpoint.pt: cannot be written (PytorchStreamWriter failed" in warned

    monkeypatch.setattr(torch, "save", lambda *_: full({"step": 4}, None))
    ends = Line()
    ends.save = lambda folder: folder.mkdir()
    with pytest.raises(UserError, match=r"checkpoint\.pt: cannot be written .*make room"):
        fit(ends, settings(tmp_path / "end"))
    assert not list((tmp_path / "end").glob(".*.tmp"))
    monkeypatch.setattr(torch, "save", full)

    with pytest.raises(KeyboardInterrupt):  # what was written before is whole
        fit(Line(stop_at=5), settings(tmp_path / "killed", **often))
    assert torch.load(tmp_path / "killed" / "checkpoint.pt")["step"] == 3
    monkeypatch.setattr(torch, "save", save)
    fit(Line(), settings(tmp_path / "killed", **often))
    assert same(tmp_path / "killed", tmp_path / "whole")


def test_a_disk_that_is_full_keeps_the_weights_of_before(tmp_path):
    fit(Line(), settings(tmp_path))
    before = {file: file.read_bytes() for file in tmp_path.glob("*/*")}
    recipe = Line(scores=[0.5])
    recipe.save = lambda folder: save_file({"a": torch.ones(9)}, folder / "no folder" / "x")
    with pytest.raises(UserError, match=r"best: cannot be written .*make room") as refused:
        fit(recipe, settings(tmp_path, max_steps=14))
    assert "\n" not in str(refused.value)
    assert {file: file.read_bytes() for file in tmp_path.glob("*/*")} == before != {}


def test_time_ends_a_training_before_its_steps(tmp_path):
    recipe = Line()
    fit(recipe, settings(tmp_path, max_steps=10**9, max_minutes=1e-9))
    assert len(recipe.seen) <= 1


@pytest.mark.parametrize(("key", "value"), [("lr", 0.01), ("seed", 3), ("schedule", "constant")])
def test_other_settings_do_not_go_on_from_a_checkpoint(tmp_path, key, value):
    fit(Line(), settings(tmp_path, max_steps=2))
    with pytest.raises(UserError, match=rf"trained with {key}="):
        fit(Line(), settings(tmp_path, max_steps=4, **{key: value}))


def test_another_recipe_does_not_go_on_from_a_checkpoint(tmp_path):
    fit(Line(), settings(tmp_path, recipe={"rank": 8, "n_dev": 4}))
    fit(Line(), settings(tmp_path, max_steps=13, recipe={"rank": 8, "n_dev": 6}))
    with pytest.raises(UserError, match=r"trained with recipe\.target\.rank=8.*asks for 0.*entry="):
        fit(Line(), settings(tmp_path, max_steps=14, recipe={"rank": 0, "n_dev": 4}))


def test_a_torn_checkpoint_is_refused(tmp_path):
    fit(Line(), settings(tmp_path, max_steps=2))
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"not a whole checkpoint .*remove it to begin again"):
        fit(Line(), settings(tmp_path, max_steps=4))


@pytest.mark.parametrize(
    ("score", "doubted"), [(12.5, False), (100.0, False), (100.5, True), (333.0, True)]
)
def test_weights_with_more_errors_than_words_are_not_reported_as_a_success(score, doubted):
    from streaming_asr.train import doubtful

    told = doubtful({"score": score, "wer_of_another": 500.0})
    assert (told is not None) == doubted
    if told is not None:
        assert f"{score:g} % of the words" in told and "recipe.fit.max_minutes" in told


def trained(tmp_path, monkeypatch, capsys, scores):
    """What `train` prints with a recipe of these scores, and its exit status."""
    from streaming_asr import train

    monkeypatch.setattr(train, "build", lambda target: Line(scores))
    (tmp_path / "data").mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(
        "sys.argv",
        [
            *("train", "method=whisperrt", "model=mini", "tracker=none", f"output={tmp_path}"),
            *("recipe.fit.max_steps=4", "recipe.fit.evaluate_every=2"),
            f"train_data={tmp_path / 'data'}",
        ],
    )
    try:
        code = train.main() or 0
    except SystemExit as ended:
        code = ended.code
    return code, *capsys.readouterr()


def test_a_training_warns_where_what_it_keeps_is_worse_than_saying_nothing(
    tmp_path, monkeypatch, capsys
):
    code, said, warned = trained(tmp_path / "a", monkeypatch, capsys, [150.0, 170.0])
    assert code == 0 and "(score 150)" in said
    assert "warning: " in warned and "150 % of the words on dev are wrong" in warned
    code, said, warned = trained(tmp_path / "b", monkeypatch, capsys, [20.0, 170.0])
    assert code == 0 and "(score 20)" in said and "warning: " not in warned
    kept = tmp_path / "b" / "train" / "mini" / "whisperrt" / "300ms" / "model.pt"
    assert kept.exists()


def test_a_training_without_any_score_says_so(tmp_path, monkeypatch, capsys):
    code, _, told = trained(tmp_path, monkeypatch, capsys, [float("nan")] * 2)
    assert code == 2 and "no evaluation gave a score" in told


def test_a_second_training_of_the_same_entry_is_refused_and_leaves_the_first_alone(
    tmp_path, monkeypatch, capsys
):
    from streaming_asr.cells import folder as cells

    work = tmp_path / "training" / "mini" / "whisperrt" / "300ms"
    work.mkdir(parents=True)
    with cells.lock(work):
        code, _, told = trained(tmp_path, monkeypatch, capsys, [1.0, 1.0])
        assert code == 2 and "another process" in told
        assert not list(work.iterdir())
        assert not (tmp_path / "train").exists()
    assert trained(tmp_path, monkeypatch, capsys, [1.0, 1.0])[0] == 0


def test_a_training_that_runs_out_of_memory_says_what_makes_room(tmp_path, monkeypatch, capsys):
    from streaming_asr import train

    def full(config, method):
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2 GiB.\nSee the manual."
        )

    monkeypatch.setattr(train, "train", full)
    monkeypatch.setattr("sys.argv", ["train", "model=mini", "tracker=none", f"output={tmp_path}"])
    with pytest.raises(SystemExit) as ended:
        train.main()
    assert ended.value.code == 1
    told = capsys.readouterr().err
    assert "out of memory (CUDA out of memory. Tried to allocate 2 GiB); end other" in told
    room = "recipe.target.batch=3 with ++recipe.fit.accumulate=2, ++recipe.fit.mixed_precision=bf16"
    assert room in told and "See manuals" not in told


# -- Batches drawn ahead: the same weights as without, from a checkpoint too; errors arrive --


# On one core PyTorch warns that two workers are too many.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_training_with_workers_learns_the_same_and_goes_on_from_its_step(tmp_path):
    fit(Line(), settings(tmp_path / "whole", accumulate=2))
    ahead = Line()
    fit(ahead, settings(tmp_path / "ahead", accumulate=2, workers=2))
    assert same(tmp_path / "ahead", tmp_path / "whole")
    assert ahead.seen == []  # other processes drew them
    parts = settings(tmp_path / "parts", accumulate=2, checkpoint_minutes=0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(Line(stop_at=10), parts)
    fit(Line(), replace(parts, workers=2))
    assert same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_an_error_of_a_draw_reaches_the_training():
    class Fails(Line):
        def draw(self, step, **place):
            if step == 3:
                raise UserError("no room for this window")
            return super().draw(step, **place)

    ahead = DrawnAhead(Fails(), 2, first=2, rank=0, world=1)
    ahead.draw(2, rank=0, world=1, progress=0.0)
    with pytest.raises(UserError, match="no room for this window"):
        ahead.draw(3, rank=0, world=1, progress=0.0)
    ahead.clear()


# -- A recipe of the project on two processes --


HEAD = """
import sys
import time
from streaming_asr.training.launch import launch
from streaming_asr.training.loop import fit
code = launch(N_RANKS)
if code is not None:
    sys.exit(code)
import torch
torch.set_num_threads(1)
"""
TRAIN = """
from pair import Recipe, settings
fit(Recipe(*sys.argv[2:]), settings(sys.argv[1]))
"""
ONE = """
import sys
import torch
torch.set_num_threads(1)
from pair import Recipe, settings
from streaming_asr.training.loop import fit
one = Recipe(*sys.argv[2:])
one.accumulate = 2
fit(one, settings(sys.argv[1], accumulate=2))
"""
FAIL = """
import os
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(10_000)  # as if it waited for the other's gradients
"""
FAIL_LATER = """
import os
if os.environ["RANK"] == "0":
    sys.exit(0)
time.sleep(1)
if os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(10_000)
"""


def processes(tmp_path, script, *arguments, n_ranks=2):
    file = tmp_path / "train.py"
    file.write_text(HEAD.replace("N_RANKS", str(n_ranks)) + script)
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )


@pytest.mark.slow
def test_whisperrts_adapter_is_the_same_from_processes_and_from_one(tmp_path):
    model, corpus = str(tiny_folder()), str(toy_corpus(tmp_path))
    ran = processes(tmp_path, TRAIN, str(tmp_path / "two"), model, corpus)
    assert ran.returncode == 0, ran.stderr
    assert "2 process(es)" in ran.stdout
    model_before = Recipe(model, corpus).model
    before = {n: p.detach().clone() for n, p in model_before.named_parameters() if p.requires_grad}
    # In a fresh process, as the two are. After other tests of a worker the weights differed.
    subprocess.run([sys.executable, "-c", ONE, str(tmp_path / "one"), model, corpus], check=True)
    ours, theirs = (torch.load(tmp_path / n / "checkpoint.pt")["model"] for n in ("two", "one"))
    assert ours.keys() == theirs.keys() == before.keys()
    for name, value in ours.items():
        assert torch.allclose(value, theirs[name], atol=1e-5), name
        assert not torch.allclose(value, before[name], atol=1e-3), name


@pytest.mark.slow
@pytest.mark.parametrize(("script", "n_ranks"), [(FAIL, 2), (FAIL_LATER, 3)])
def test_a_rank_that_fails_ends_the_others(tmp_path, script, n_ranks):
    assert processes(tmp_path, script, n_ranks=n_ranks).returncode == 3
