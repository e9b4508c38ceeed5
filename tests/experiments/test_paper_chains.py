"""The papers' own trainings: the commands of each page, from LibriSpeech to the paper's table, run
in order on a toy of its layout."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import torch
from corpora_layouts import sound, tedlium, text_grid, write
from pages import expanded
from places import ROOT
from published_toys import use_toy_detectors
from tiny import tiny_folder
from transformers import Wav2Vec2Config, Wav2Vec2Model

from experiments.papers import compare
from experiments.star import noisy, wav2vec2  # noqa: F401 (an extractor of STAR)
from streaming_asr.commands import cli
from streaming_asr.score.results import read_results

PAPERS = ("whisperrt", "u2", "hush_word", "star", "chunkformer")
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
    "u2": "recipe.target.batch=2 recipe.target.ctc_tokens=300 recipe.stages.attention.max_steps=1 "
    "recipe.stages.ctc.max_steps=1 recipe.stages.hybrid.max_steps=1",
    "star": "recipe.target.batch=2 recipe.target.rank=4 recipe.stages.plain.max_steps=1 "
    "recipe.stages.segmenter.max_steps=1 recipe.stages.frozen.max_steps=1",
    "u2 run": "data.split=test-clean threads=1 chunk=1s",
    "chunkformer": "recipe.target.batch_s=2 recipe.target.vocabulary=30 recipe.target.d=16 "
    "recipe.target.heads=2 recipe.target.layers=2 recipe.target.hidden=32",
}


def section(paper: str) -> str:
    text = (ROOT / "experiments" / paper / "README.md").read_text(encoding="utf-8")
    return text.partition("## The paper's own training\n")[2].partition("\n## ")[0]


def librispeech(root: Path) -> None:
    """LibriSpeech, its alignments beside the audio, and LibriSpeech-PC."""
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


def tiny_wav2vec2(folder: Path) -> Path:
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32}
    config = Wav2Vec2Config(
        **sizes, conv_dim=(8,) * 7, num_attention_heads=2, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )  # fmt: skip
    Wav2Vec2Model(config).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_commands_of_a_page_run_in_order(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    librispeech(tmp_path / "corpora")
    tedlium(tmp_path / "corpora")
    use_toy_detectors(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the processes of the stages
    whisper = f" model.path={tiny_folder(context_frames=1500)}"
    own = {**SIZES, "star": SIZES["star"] + " recipe.target.wav2vec2=wav2vec2"}
    tiny_wav2vec2(tmp_path / "wav2vec2")
    block = re.findall(r"```sh\n(.*?)```", section(paper), re.DOTALL)[0]
    programs = []
    for line in expanded(block):
        command = line.replace("/corpora/", f"{tmp_path}/corpora/")
        if "data=tedlium" in line:  # the toy has no word times, and an aligner is no toy
            command = command.replace("data.align=auto ", "")
        command = command.replace("streaming-asr ", "python -m streaming_asr.")
        _, _, module, *words = shlex.split(command)
        name = words.pop(0) if module == "experiments.star.wav2vec2" else module.split(".")[1]
        if name in ("run", "train"):
            more = f"{SIZES[name]} {own.get(f'{paper} run' if name == 'run' else paper, '')}"
            words += (more + whisper * (not any("model.path=" in word for word in words))).split()
        first = [name] if "wav2vec2" in module else []
        monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", module, *first, *words])
        mains = {"papers": compare.main, "star": noisy.program}
        code = mains[name](words) if name in mains else cli.main([name, *words])
        assert not code, (line, capsys.readouterr())
        programs.append(name)
    assert (programs[:3], programs[-1]) == (["data", "data", "train"], "papers")
    shown = capsys.readouterr().out.rpartition("table ")[2]  # the last line: what ran of it
    assert re.search(r"[1-9]\d* numbers of ours", shown), shown
    (folder,) = (word for word in words if word.startswith("outputs/"))  # of the last command
    cells = read_results(Path(folder))
    assert {c.config["guard"] for c in cells if "guard" in c.config["method"]} <= {"none"}
