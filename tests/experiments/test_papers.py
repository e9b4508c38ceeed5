"""The papers' tables are whole and as printed; results are set beside the rows they agree with."""

import functools
import hashlib
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import corpora_layouts as layouts
import peft
import pytest
import torch
import yaml
from chunkformer_tiny import tiny_folder as tiny_chunkformer
from corpora_layouts import sound, tedlium, text_grid, write
from omegaconf import OmegaConf
from pages import expanded
from places import ROOT
from published_toys import (
    CARD,
    WHISPERRT,
    checkpoint,
    only_hub,
    use_toy_detectors,
)
from published_toys import (
    CHUNKFORMER as CHUNKFORMER_NAME,
)
from safetensors.torch import save_file
from tiny import noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from experiments.papers import compare as papers_program
from experiments.papers import papers, read_paper
from experiments.papers.compare import agrees, commands, compare, main
from streaming_asr.chunking import first_chunk_ms, parse_duration
from streaming_asr.commands import cli
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR
from streaming_asr.methods.hush_word.padding import FILE_NAME
from streaming_asr.methods.u2.head import embedding_head, save_head
from streaming_asr.models.hub import DETECTORS, published
from streaming_asr.score.results import Result, read_results
from streaming_asr.whisper.load import load_whisper


@functools.cache
def table(paper, name):
    (found,) = (t for t in read_paper(paper).tables if t.name == name)
    return found


def printed(paper, name, **labels):
    """The numbers of the one row with these labels (underscores for blanks)."""
    wanted = {key.replace("_", " "): value for key, value in labels.items()}
    (row,) = (r for r in table(paper, name).rows if wanted.items() <= r.labels.items())
    return list(row.values.values())


# -- the numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paper", "digests"),
    [  # taken on 2026-11-21, when every row had been found in the papers' text, in its order
        ("whisperrt", {"I": "0c4b654e", "II": "4ae55090", "III": "37c7528e", "IV": "c241fae6",
                       "V": "d5c2ad48", "VII": "d15799d4"}),
        ("u2", {"1": "6043a773", "2": "9ba76459", "3": "f5b5ca16"}),
        ("whisperflow", {"1": "c9e5d7e7", "2": "70e6290c", "4": "c87eff3b"}),
        ("star", {"1": "a0d8e5c6", "2": "a5ea5744", "3": "b42cc2c8"}),
        ("chunkformer", {"II": "03ad33e4", "III": "270346fb", "IV": "9bd314fc"}),
    ],
)  # fmt: skip
def test_no_number_has_changed_since_it_was_compared_with_the_paper(paper, digests):
    found = {}
    for each in read_paper(paper).tables:
        printed = (v for row in each.rows for v in (*row.labels.values(), *row.values.values()))
        found[each.name] = hashlib.sha256(" ".join(printed).encode()).hexdigest()[:8]
    assert found == digests


# -- the training ---------------------------------------------------------------------------


def recipe_of(name, *given):
    import streaming_asr.train  # noqa: F401 (registers its schema)

    return compose_raw([f"recipe={name}", *given], config_name="train").recipe


@pytest.mark.parametrize("paper", list(papers()))
def test_the_recipe_of_a_paper_has_the_numbers_that_it_prints(paper):
    training = yaml.safe_load(papers()[paper].read_text())["training"]
    differing = []
    for where, given, key, printed in training["settings"]:
        recipe = recipe_of(training["recipe"], *given.split())
        epochs = recipe.fit.max_steps / recipe.fit.evaluate_every
        ours = epochs if key == "epochs" else OmegaConf.select(recipe, key, throw_on_missing=True)
        if ours != printed:
            differing.append((where, given, key, printed, ours))
    assert differing == []


def test_every_chunk_of_table_vii_has_its_rank_and_its_share_of_points():
    for row in table("whisperrt", "VII").rows:
        model, chunk = row.labels["model"], row.labels["chunk"].replace("1000ms", "1s")
        target = recipe_of("whisperrt_paper", f"model={model}", f"chunk={chunk}").target
        extra = first_chunk_ms(chunk) / parse_duration(chunk) - 1
        ours = [target.rank, extra, target.point_fraction]
        assert ours == [float(value) for value in row.values.values()]


def test_an_epoch_is_the_batches_of_the_corpus_times_their_points():
    n_of = {"multilingual": 1_726_583}  # utterances; else LibriSpeech's
    paper = OmegaConf.to_container(OmegaConf.load(CONF_DIR / "recipe/whisperrt_paper.yaml").paper)
    for settings in paper.values():
        for name, row in settings.items():
            if isinstance(row, dict):
                batches = math.ceil(n_of.get(name, 281_241) / settings["batch"])
                assert row["epoch"] == batches * row["most"]
                assert row["steps"] % row["epoch"] == 0
                if name.endswith("s"):
                    ms = parse_duration(name)
                    first = first_chunk_ms(name)
                    blocks = 1 + math.ceil((16_000 - first) / ms)
                    assert row["most"] == int(row["points"] * blocks) + 1


# -- matching -------------------------------------------------------------------------------


def cell(root, name="method=whisperrt,chunk=300ms", *, wer=6.0, **config):
    """A folder as run leaves it: WhisperRT base on test-clean at 300 ms, greedy, unless said."""
    base = {
        "method": {"_target_": "streaming_asr.methods.whisperrt.WhisperRT", "beam": 3,
                   "weights": "outputs/train/base/whisperrt/300ms"},
        "model": {"name": "base", "path": "openai/whisper-base"},
        "data": {"_target_": "streaming_asr.corpora.LibriSpeech", "split": "test-clean"},
        "chunk": "300ms",
        "first_chunk": "600ms",
        "guard": "none",
        "limit": None,
        "device": "cuda",
    }  # fmt: skip
    for key, value in config.items():
        base[key] = base[key] | value if isinstance(value, dict) else value
    folder = root / name
    folder.mkdir(parents=True)
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": base,
        "metrics": {"wer": wer, "rwer": 7.0, "arwer_cu": None, "step_mean_ms": 90.0},
        "intervals": {"metrics": {"wer": [5.5, 6.5]}},
    }
    (folder / "metrics.json").write_text(json.dumps(document))
    return folder


def lines(root, paper="whisperrt", name="I", **options):
    return list(compare(table(paper, name), read_results(root), **options))


def test_a_result_stands_beside_its_row_and_no_other(tmp_path):
    cell(tmp_path)
    ran = {line.metric: line for line in lines(tmp_path) if line.cell}
    assert set(ran) == {"RWER", "ARWER", "WER"}
    wer = ran["WER"]
    assert wer.row.labels == {
        "model": "base", "method": "WhisperRT", "chunk": "300ms", "data": "test-clean"
    }  # fmt: skip
    assert (wer.paper, wer.ours, wer.interval) == ("6.55", 6.0, (5.5, 6.5))
    assert wer.difference == pytest.approx(-0.55)
    assert ran["ARWER"].why == "ran, but this was not measured"
    assert {line.why for line in lines(tmp_path) if line.cell is None} == {"not run"}


@pytest.mark.parametrize(
    "other",
    [
        {"chunk": "200ms"},
        {"first_chunk": "900ms"},
        {"model": {"name": "small", "path": "openai/whisper-small"}},
        {"data": {"split": "dev-clean"}},
        {"method": {"beam": 0}},
        {"method": {"weights": "outputs/train/base/whisperrt/any_chunk"}},
        {"method": {"weights": "outputs/train/base/whisperrt/100ms"}},
        {"method": {"weights": "/hub/snapshots/c0/base_100.pt"}},
        {"guard": "repeats"},
    ],
)
def test_another_setting_is_not_the_papers_row(tmp_path, other):
    cell(tmp_path, **other)
    found = [line for line in lines(tmp_path) if line.cell]
    labels = [line.row.labels for line in found]
    assert all(
        each != {"model": "base", "method": "WhisperRT", "chunk": "300ms", "data": "test-clean"}
        for each in labels
    )


def test_durations_and_units_are_compared_as_quantities(tmp_path):
    cell(tmp_path, chunk="0.3s", model={"name": "whisper", "path": "/models/whisper-large-v2"})
    (line,) = (each for each in lines(tmp_path, name="V") if each.cell)
    assert (line.row.labels["beam"], line.paper) == ("3", "0.094")
    assert line.ours == pytest.approx(0.09)  # 90 ms
    assert line.difference == pytest.approx(-0.004)


def test_in_form_model_and_data_may_be_others_and_no_difference_is_stated(tmp_path):
    cell(
        tmp_path,
        model={"name": "mini", "path": "mini"},
        data={"_target_": "streaming_asr.corpora.Mini", "split": "clean"},
        method={"weights": "any_chunk"},
    )
    assert not [line for line in lines(tmp_path) if line.cell]
    ran = [line for line in lines(tmp_path, form=True) if line.ours is not None]
    assert {line.row.labels["method"] for line in ran} == {"WhisperRT"}
    assert {line.row.labels["chunk"] for line in ran} == {"300ms"}
    assert {line.row.labels["data"] for line in ran} == {"test-clean"}
    assert {line.difference for line in ran} == {None}


def test_what_cannot_be_compared_says_why(tmp_path):
    cell(tmp_path)
    failed = cell(tmp_path, "failed", chunk="100ms", method={"weights": "outputs/x/100ms"})
    (failed / ".hydra").mkdir()
    config = json.loads((failed / "metrics.json").read_text())["config"]
    (failed / ".hydra" / "config.yaml").write_text(json.dumps(config))
    (failed / "metrics.json").unlink()
    (failed / "failed.json").write_text('{"error": "CUDA out of memory"}')
    whys = {line.why for line in lines(tmp_path) if line.cell}
    assert "failed: CUDA out of memory" in whys
    assert {line.why for line in lines(tmp_path, name="VII")} == {"a setting"}
    star = {line.why for line in lines(tmp_path, "star", "1")}
    assert "not run: no model Vanilla S2T in this project" in star
    u2 = {line.why for line in lines(tmp_path, "u2", "2")}
    assert u2 == {"not run: the earnings calls are internal to the authors"}
    gflops = {line.why for line in lines(tmp_path, "chunkformer", "III")}
    assert "not run: run does not measure max duration" in gflops


FULL = {"mode": "longform", "chunk_frames": 22500, "left_frames": 0, "right_frames": 0}
CHUNKFORMER = {
    "_target_": "streaming_asr.methods.chunkformer.ChunkFormer", "mode": "longform",
    "chunk_frames": None, "left_frames": None, "right_frames": None, "weights": "/hub/chunkformer",
}  # fmt: skip


def test_contexts_of_a_chunkformer_are_full_or_limited(tmp_path, capsys):
    network = {"name": "chunkformer"}
    stream = {"mode": "stream", "right_frames": 4}
    cell(tmp_path, "stream", model=network, method=CHUNKFORMER | stream)
    cell(tmp_path, "whole", model=network, method=CHUNKFORMER | FULL)
    wide = {"chunk_frames": 128, "left_frames": 256, "right_frames": 256}
    cell(tmp_path, "limited", model=network, method=CHUNKFORMER | wide)
    found = [line for line in lines(tmp_path, "chunkformer", "II") if line.cell]
    contexts = [(line.cell.name, line.row.labels["context"]) for line in found]
    assert contexts == [("whole", "full"), *(("limited", f"limited {i}") for i in (1, 2, 3))]
    assert main(["chunkformer", str(tmp_path), "--table", "II", "--ran"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "method.chunk_frames=128 method.left_frames=256 method.right_frames=256" in shown


def test_a_row_requires_its_own_model(tmp_path):
    """tiny.en's WER is not medium's, nor the fixture's the 110 M network's."""
    cell(tmp_path / "fixture", model={"name": "tiny.en"}, method=CHUNKFORMER | FULL)
    assert not [line for line in lines(tmp_path, "chunkformer", "II") if line.cell]
    padded = {"_target_": "streaming_asr.methods.hush_word.HushWord", "weights": "none",
              "padding": "full"}  # fmt: skip
    for name in ("tiny.en", "medium"):
        cell(tmp_path, name, chunk="25s", model={"name": name}, method=padded)
    found = [line for line in lines(tmp_path, "whisperflow", "1") if line.cell]
    assert [(line.cell.name, line.paper) for line in found] == [("medium", "0.048")]


def test_weights_of_the_package_are_no_papers(tmp_path):
    weights = "/x/streaming_asr/data/weights/base/whisperrt/any_chunk"
    cell(tmp_path, method={"weights": weights})
    found = [line for line in lines(tmp_path, name="III") if line.cell]
    assert len(found) == 3
    for line in found:
        assert line.ours is None and line.difference is None
        assert line.why.startswith("ran with the package's weights")
    in_form = [line for line in lines(tmp_path, name="III", form=True) if line.ours is not None]
    assert {line.difference for line in in_form} == {None}


@pytest.mark.parametrize(
    ("weights", "name"),
    [
        ("/hub/snapshots/c0/base_300.pt", "I"),
        ("whisperrt-base-300ms", "I"),
        ("outputs/train/base/whisperrt/300ms", "I"),
        ("/hub/snapshots/c0/base_rcs.pt", "III"),
        ("outputs/train/base/whisperrt/any_chunk", "III"),
        ("outputs/train/base/whisperrt/300ms-mms", "II"),
    ],
)
def test_published_and_trained_weights_fill_their_table(tmp_path, weights, name):
    cell(tmp_path, method={"weights": weights})
    filled = {t for t in ("I", "II", "III") if any(x.cell for x in lines(tmp_path, name=t))}
    assert filled == {name}


def test_a_padding_is_compared_on_whole_windows_alone(tmp_path):
    of = {"_target_": "streaming_asr.methods.hush_word.HushWord", "weights": "none"}
    cell(tmp_path, "whole", chunk="25s", method=of | {"padding": "zeros", "padding_s": 5})
    cell(tmp_path, "stream", chunk="1s", method=of | {"padding": "zeros", "padding_s": 5})
    found = [line for line in lines(tmp_path, "whisperflow", "1", form=True) if line.cell]
    assert {(line.cell.name, line.row.labels["padding"]) for line in found} == {("whole", "5 s")}


def test_values_are_matched_by_pattern_by_list_by_negation_and_literally(tmp_path):
    (only,) = read_results(cell(tmp_path))
    assert agrees(only, {"chunk": "!1s"})
    assert not agrees(only, {"chunk": "!0.3s"})
    assert agrees(only, {"method.weights": "*300ms*", "data": ["tedlium", "librispeech"]})
    assert not agrees(only, {"method.weights": "*any_chunk*"})
    assert not agrees(only, {"method.nothing": "1"})


# -- the command ----------------------------------------------------------------------------


def test_report_shows_papers_tables_and_results(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    cell(tmp_path, limit=60)
    assert main([]) == 0
    listed = capsys.readouterr().out
    assert [name for name in papers() if name not in listed] == []
    assert main(["whisperrt", str(tmp_path), "--table", "I", "--ran"]) == 0
    shown = capsys.readouterr().out
    assert "6.55" in shown and "-0.55" in shown and "[5.50, 6.50]" in shown
    assert "first 60 utterances" in shown
    assert "2 numbers of ours, 295 not run" in shown
    assert "27.54" not in shown  # --ran leaves it out


def test_a_command_names_published_weights_where_there_are_some(capsys):
    assert main(["whisperrt", "--table", "III", "--commands"]) == 0
    assert (
        "python -m streaming_asr.run method=whisperrt model=base data=librispeech data.path=DIR "
        "data.split=test-clean chunk=100ms data.align=auto first_chunk=600ms guard=none "
        "method.beam=3 method.weights=whisperrt-base-any_chunk\n"
    ) in capsys.readouterr().out


def all_commands():
    """Every command: its paper and table, and the row it is printed for."""
    for paper in papers():
        for each in read_paper(paper).tables:
            for row, command in commands(each):
                yield paper, each.name, row, command


def settings_of(command):
    """The settings of a command, its program left out."""
    return dict(word.split("=", 1) for word in command.split() if "=" in word)


def settled(settings):
    """The configuration that a cell of these settings has, as far as rows look at it."""
    config = {"chunk": "300ms", "first_chunk": "600ms"}
    for key, value in settings.items():
        group, _, name = key.partition(".")
        if name:
            config.setdefault(group, {})[name] = value
        elif key in ("method", "model", "data"):
            config.setdefault(key, {})["name"] = value
        else:
            config[key] = value
    config["method"]["_target_"] = f"streaming_asr.methods.{settings['method']}.Method"
    short = config["method"].get("weights")
    if short in published():
        config["method"]["weights"] = f"/hub/snapshots/c0/{published()[short].reference.file}"
    elif short == DETECTORS:
        config["method"]["weights"] = f"/cache/{DETECTORS}/cif_models/{settings['model']}.pt"
    elif short not in (None, "none"):
        config["method"]["weights"] = f"outputs/train/x/y/{short}"
    return config


def test_every_command_fills_the_row_that_it_is_printed_for():
    n = 0
    for paper, name, row, command in all_commands():
        settings = settings_of(command)
        result = Result(
            folder=Path("x"), name="x", method=settings["method"], variant="", chunk_s=0.3,
            split="", config=settled(settings),
            metrics={m.ours: 5.0 for m in table(paper, name).metrics.values() if m.ours},
        )  # fmt: skip
        filled = compare(table(paper, name), [result])
        mine = [line for line in filled if line.row.labels == row.labels]
        assert any(line.ours is not None for line in mine), (paper, name, command)
        n += 1
    assert n > 240


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "paper 'nope': not one of chunkformer"),
        (["u2", "--table", "9"], "--table 9: U2-Whisper has 1, 2, 3"),
        (["u2", "nowhere"], "nowhere: no such folder"),
    ],
)
def test_a_wrong_argument_is_told(arguments, message, capsys):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["paper: X", "[1, 2]", "paper: X\nsource: Y\nselect: {}\nmetrics: {}\ntables: [{a: 1}]"]
)
def test_a_malformed_file_is_told(tmp_path, text):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="not a paper's tables"):
        read_paper(str(path))


def test_the_view_needs_no_torch():
    code = (
        "import sys; from experiments.papers.compare import main; main(['u2']); "
        "sys.exit('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_commands_take_settings_for_all_rows(capsys):
    assert main(["whisperrt", "--table", "I", "--commands", "device=cuda"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line[0] != "#"]
    assert commands and all(line.endswith(" device=cuda") for line in commands)
    assert [line for line in commands if "method=ufal" in line]
    assert main(["whisperrt", "--commands", "outputs"]) == 2
    assert "--commands takes settings, as device=cuda" in capsys.readouterr().err


# -- The papers' own trainings --


PAPERS = ("whisperrt", "u2", "hush_word", "star", "chunkformer", "real")  # docs/real.md
SPLITS = {
    **{"train-clean-100": "19", "train-clean-360": "14", "train-other-500": "20"},
    **{"dev-other": "116", "test-clean": "61", "test-other": "367"},
}
SAYINGS = ("SHE HAD YOUR DARK SUIT", "THE QUICK BROWN FOX RAN", "A LAZY DOG SLEPT ON")
# All that differs from the pages: where the corpora lie, how much is trained and heard, and tiny
# models in the place of those of the hub.
SIZES = {
    "run": "tracker=none limit=1 device=cpu",
    "train": "tracker=none processes=1 ++recipe.fit.mixed_precision=no recipe.target.n_dev=1 "
    "recipe.fit.max_steps=2 recipe.fit.evaluate_every=2",
    "whisperrt": "recipe.target.batch=2",
    "real": "recipe.target.batch=2 recipe.target.several=0",  # the toy has 64 positions
    "u2": "recipe.target.batch=2 recipe.target.ctc_tokens=300 recipe.stages.attention.max_steps=1 "
    "recipe.stages.ctc.max_steps=1 recipe.stages.hybrid.max_steps=1",
    "star": "recipe.target.batch=2 recipe.target.rank=4 recipe.stages.plain.max_steps=1 "
    "recipe.stages.segmenter.max_steps=1 recipe.stages.frozen.max_steps=1",
    "u2 run": "data.split=test-clean threads=1 chunk=1s",
    "chunkformer": "recipe.target.batch_s=2 recipe.target.vocabulary=30 recipe.target.d=16 "
    "recipe.target.heads=2 recipe.target.layers=2 recipe.target.hidden=32",
}


def block_of(paper):
    """The commands of a paper's own training, or of the page on real models and corpora."""
    if paper == "real":
        text = (ROOT / "docs" / "real.md").read_text(encoding="utf-8")
        section = text.partition("## From LibriSpeech to a table\n")[2].partition("\n## ")[0]
        return "\n".join(re.findall(r"^ {4}(.*)$", section, re.MULTILINE))
    text = (ROOT / "experiments" / paper / "README.md").read_text(encoding="utf-8")
    section = text.partition("## The paper's own training\n")[2].partition("\n## ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[0]


def librispeech(root):
    """LibriSpeech, its alignments next to the audio, and LibriSpeech-PC."""
    for split, speaker in SPLITS.items():
        folder, pc = root / "LibriSpeech" / split / speaker / "1", []
        lines = []
        for i, saying in enumerate(SAYINGS):
            name = f"{speaker}-1-{i:04d}"
            sound(folder / f"{name}.flac", 1.6, seed=i)
            words = [(w.lower(), 0.3 * k, 0.3 * k + 0.3) for k, w in enumerate(saying.split())]
            text_grid(folder / f"{name}.TextGrid", words, 1.6)
            lines.append(f"{name} {saying}")
            row = {"audio_filepath": f"{split}/{speaker}/1/{name}.flac", "duration": 1.6}
            pc.append(json.dumps(row | {"text": f"{saying.capitalize()}."}))
        write(folder / f"{speaker}-1.trans.txt", *lines)
        write(root / "LibriSpeech-PC" / f"{split}.json", *pc)


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_commands_of_a_page_run_in_order(paper, tmp_path, monkeypatch, capsys):
    librispeech(tmp_path / "corpora")
    tedlium(tmp_path / "corpora")
    use_toy_detectors(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes of the stages
    whisper = f" model.path={tiny_folder(context_frames=1500)}"
    programs = []
    for line in expanded(block_of(paper)):
        command = line.replace("/corpora/", f"{tmp_path}/corpora/")
        if "data=tedlium" in line:  # the toy has no word times, and an aligner is no toy
            command = command.replace("data.align=auto ", "")
        command = command.replace("streaming-asr ", "python -m streaming_asr.")
        _, _, module, *words = shlex.split(command)
        name = module.split(".")[1]
        if name in ("run", "train"):
            more = f"{SIZES[name]} {SIZES.get(f'{paper} run' if name == 'run' else paper, '')}"
            words += (more + whisper * (not any("model.path=" in word for word in words))).split()
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", module, *words])
        code = papers_program.main(words) if name == "papers" else cli.main([name, *words])
        assert not code, (line, capsys.readouterr())
        programs.append(name)
    assert programs[:3] == ["data", "data", "train"]
    if paper == "star":  # of whose tables none is run here
        assert programs[3:] == ["run"] and read_results(Path("outputs/star_paper_stream"))
        return
    assert programs[-1] == "papers"
    shown = capsys.readouterr().out.rpartition("table ")[2]  # the last line: what ran of it
    assert re.search(r"[1-9]\d* numbers of ours", shown), shown
    (folder,) = (word for word in words if word.startswith("outputs/"))  # of the last command
    cells = read_results(Path(folder))
    assert {c.config["guard"] for c in cells if "guard" in c.config["method"]} <= {"none"}


# -- The commands that are printed run on toys --


pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
FRAMES = {"whisperflow": 1500, "u2": 1500}  # for chunks of 25 s and delays of 20 s; else short
SAYING = "SHE HAD YOUR DARK SUIT"


@pytest.fixture
def toys(paper, tmp_path, monkeypatch):
    """A folder with corpora and trained toys, and a hub with published ones."""
    whisper = tiny_folder(context_frames=FRAMES.get(paper, 200), multilingual=True)
    monkeypatch.chdir(tmp_path)
    with only_hub(tmp_path, monkeypatch) as hub:
        adapter = checkpoint(whisper)
        files = {str(each.reference.file): adapter for each in published().values()}
        hub.repositories[WHISPERRT] = {"README.md": CARD, **files}
        network = {file.name: file.read_bytes() for file in tiny_chunkformer().iterdir()}
        hub.repositories[CHUNKFORMER_NAME] = {"README.md": CARD, **network}
        use_toy_detectors(tmp_path, monkeypatch)
        trained(tmp_path / "outputs/train", whisper)
        corpora(tmp_path)
        yield whisper


def trained(weights, whisper):
    """What the papers' recipes leave, under the names that the commands give."""
    model = WhisperForConditionalGeneration.from_pretrained(whisper)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    for aligner in ("mfa", "mms"):
        lora.save_pretrained(weights / f"base/whisperrt/300ms-{aligner}")
    save_head(embedding_head(load_whisper(whisper), 300), weights / "medium/u2/any_chunk")
    hush = weights / "base/hush_word/any_chunk"
    hush.mkdir(parents=True)
    save_file({"samples": torch.from_numpy(0.02 * noise(0.5, seed=9))}, hush / FILE_NAME)


def corpora(root):
    """One recording of each corpus that the commands name."""
    folder = root / "librispeech/test-clean/61/1"
    layouts.sound(folder / "61-1-0000.flac", 1.6)
    layouts.write(folder / "61-1.trans.txt", f"61-1-0000 {SAYING}")
    words = [(w.lower(), 0.3 * i, 0.3 * i + 0.3) for i, w in enumerate(SAYING.split())]
    layouts.text_grid(folder / "61-1-0000.TextGrid", words, 1.6)
    layouts.tedlium(root).rename(root / "tedlium")
    layouts.mls(root)
    (root / "mls_german").rename(root / "mls")


def chosen(table):
    """One command for each method of a table, on one corpus each, and the rows it is printed for.

    Of contexts, full and limited; of languages, German; commands for a GPU are left out.
    """
    rows = {}
    for row, command in commands(table):
        rows.setdefault(command, []).append(row)
    kinds = {}
    for command in sorted(rows, key=lambda each: "chunk=300ms" not in each):  # the fewest steps
        words = dict(word.split("=", 1) for word in command.split() if "=" in word)
        if words.get("data.language", "german") != "german" or "device" in words:
            continue
        aligner = words.get("method.weights", "")[-4:]
        kinds.setdefault((words["method"], words.get("method.left_frames", ""), aligner), command)
    return {command: rows[command] for command in kinds.values()}


@pytest.mark.slow
@pytest.mark.parametrize("paper", sorted({*papers()} - {"star", "u2"}))
def test_a_printed_command_fills_its_rows(paper, toys, monkeypatch, capsys):
    n = 0
    for table in read_paper(paper).tables:
        for command, rows in chosen(table).items():
            _, _, module, *words = shlex.split(command)
            settings = dict(word.split("=", 1) for word in words)
            name = f"{paper}_{n}"
            settings |= {"tracker": "none", "limit": "1", "name": name}
            if "data.path" in settings and settings["data.path"] == "DIR":
                settings["data.path"] = settings["data"]
            if settings["model"] != "chunkformer":
                settings["model.path"] = str(toys)
            if settings.get("data") != "librispeech" and "data.align" in settings:
                settings["data.align"] = "null"  # an aligner is no toy
            line = [f"{key}={value}" for key, value in settings.items()]
            monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", module, *line])
            assert not cli.main(["run", *line]), (command, capsys.readouterr().err)
            cells = read_results(Path("outputs") / name)
            filled = compare(table, cells)
            labels = [line.row.labels for line in filled if line.ours is not None]
            assert all(row.labels in labels for row in rows), command
            n += 1
    assert n
