"""What `experiments.papers --commands` prints runs on toys in the place of published and trained
weights, and fills the rows that it is printed for."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import corpora_layouts as layouts
import peft
import pytest
import torch
from chunkformer_tiny import tiny_folder as tiny_chunkformer
from published_toys import CARD, CHUNKFORMER, WHISPERRT, checkpoint, only_hub, use_toy_detectors
from safetensors.torch import save_file
from star_tiny import model_folder as star_model
from star_tiny import star_folder
from tiny import noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from experiments.papers import PaperRow, Table, papers, read_paper
from experiments.papers.compare import commands, compare
from streaming_asr.commands import cli
from streaming_asr.methods.hush_word.padding import FILE_NAME
from streaming_asr.methods.u2.head import embedding_head, save_head
from streaming_asr.models.hub import published
from streaming_asr.score.results import read_results
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
FRAMES = {"whisperflow": 1500, "u2": 1500}  # for chunks of 25 s and delays of 20 s; else short
SAYING = "SHE HAD YOUR DARK SUIT"


@pytest.fixture
def toys(paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with corpora and trained toys, and a hub with published ones."""
    whisper = tiny_folder(context_frames=FRAMES.get(paper, 200), multilingual=True)
    monkeypatch.chdir(tmp_path)
    with only_hub(tmp_path, monkeypatch) as hub:
        adapter = checkpoint(whisper)
        files = {str(each.reference.file): adapter for each in published().values()}
        hub.repositories[WHISPERRT] = {"README.md": CARD, **files}
        network = {file.name: file.read_bytes() for file in tiny_chunkformer().iterdir()}
        hub.repositories[CHUNKFORMER] = {"README.md": CARD, **network}
        use_toy_detectors(tmp_path, monkeypatch)
        trained(tmp_path / "outputs/train", whisper)
        corpora(tmp_path)
        yield whisper


def trained(weights: Path, whisper: Path) -> None:
    """What the papers' recipes leave, under the names that the commands give."""
    model = WhisperForConditionalGeneration.from_pretrained(whisper)
    lora = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    for aligner in ("mfa", "mms"):
        lora.save_pretrained(weights / f"base/whisperrt/300ms-{aligner}")
    save_head(embedding_head(load_whisper(whisper), 300), weights / "medium/u2/any_chunk")
    hush = weights / "base/hush_word/any_chunk"
    hush.mkdir(parents=True)
    save_file({"samples": torch.from_numpy(0.02 * noise(0.5, seed=9))}, hush / FILE_NAME)
    shutil.copytree(star_folder(rate=12.0), weights / "base/star/star12_0")


def corpora(root: Path) -> None:
    """One recording of each corpus that the commands name."""
    folder = root / "librispeech/test-clean/61/1"
    layouts.sound(folder / "61-1-0000.flac", 1.6)
    layouts.write(folder / "61-1.trans.txt", f"61-1-0000 {SAYING}")
    words = [(w.lower(), 0.3 * i, 0.3 * i + 0.3) for i, w in enumerate(SAYING.split())]
    layouts.text_grid(folder / "61-1-0000.TextGrid", words, 1.6)
    layouts.tedlium(root).rename(root / "tedlium")
    layouts.mls(root)
    (root / "mls_german").rename(root / "mls")
    sound = root / "librispeech/test-clean/61/1/61-1-0000.flac"
    shares = root / "outputs/star_noise_data"
    shares.mkdir(parents=True)
    line = {"audio_filepath": str(sound), "text": SAYING.lower(), "id": "one"}
    (shares / "0.jsonl").write_text(json.dumps(line) + "\n")


def chosen(table: Table) -> dict[str, list[PaperRow]]:
    """One command for each method of a table, on one corpus each, and the rows it is printed for.

    Of contexts, full and limited; of languages, German; commands for a GPU are left out.
    """
    rows: dict[str, list[PaperRow]] = {}
    for row, command in commands(table, form=table.missing is not None):
        rows.setdefault(command, []).append(row)
    kinds: dict[tuple[str, ...], str] = {}
    for command in sorted(rows, key=lambda each: "chunk=300ms" not in each):  # the fewest steps
        words = dict(word.split("=", 1) for word in command.split() if "=" in word)
        if words.get("data.language", "german") != "german" or "device" in words:
            continue
        aligner = words.get("method.weights", "")[-4:]
        kinds.setdefault((words["method"], words.get("method.left_frames", ""), aligner), command)
    return {command: rows[command] for command in kinds.values()}


@pytest.mark.slow
@pytest.mark.parametrize("paper", sorted(papers()))
def test_a_printed_command_fills_its_rows(
    paper: str, toys: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    n = 0
    for table in read_paper(paper).tables:
        for command, rows in chosen(table).items():
            _, _, module, *words = shlex.split(command)
            first = [words.pop(0)] if module.endswith("wav2vec2") else []
            settings = dict(word.split("=", 1) for word in words)
            name = f"{paper}_{n}"
            settings |= {"tracker": "none", "limit": "1", "name": name}
            if "data.path" in settings and settings["data.path"] == "DIR":
                settings["data.path"] = settings["data"]
            if settings["method"] == "star":
                settings["model.path"] = str(star_model())
            elif settings["model"] != "chunkformer":
                settings["model.path"] = str(toys)
            if settings.get("data") != "librispeech" and "data.align" in settings:
                settings["data.align"] = "null"  # an aligner is no toy
            line = [f"{key}={value}" for key, value in settings.items()]
            monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-m", module, *first, *line])
            assert not cli.main(["run", *line]), (command, capsys.readouterr().err)
            cells = read_results(Path("outputs") / name)
            filled = compare(table, cells, form=table.missing is not None)
            labels = [line.row.labels for line in filled if line.ours is not None]
            assert all(row.labels in labels for row in rows), command
            n += 1
    assert n
