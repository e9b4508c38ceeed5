"""The language model's texts, what is left out of them, and what Kaldingram makes of them."""

from __future__ import annotations

import lzma
import math
from pathlib import Path

import pytest

from experiments.real import language_model
from experiments.real.language_model import PROSE, Texts, ngrams, of_books
from streaming_asr.errors import UserError
from streaming_asr.whisper.ngram import load_ngram


def test_each_sentence_is_taken_once_and_none_of_dev() -> None:
    texts = Texts(["So it goes.", "He came. She saw, and left!"])
    first = texts.of("one", "CC0", ["So it goes", "All is well.", "He came.", "All is, well"])
    assert list(first) == ["All is well."]
    second = texts.of("two", "free", ["All is well!", "she saw, and left", "They left.", "..."])
    assert list(second) == ["They left."]
    frozen = "Both of Newman's children are pursuing acting careers."  # of the list cv-dev
    third = texts.of("three", "free", ["We met. She saw, and left. He slept.", frozen])
    assert list(third) == []
    assert texts.rows == [
        {"name": "one", "licence": "CC0", "sentences": 1, "left_out": 2},
        {"name": "two", "licence": "free", "sentences": 1, "left_out": 1},
        {"name": "three", "licence": "free", "sentences": 0, "left_out": 2},
    ]


def test_books_give_sentences_without_headings(tmp_path: Path) -> None:
    for name in PROSE:
        (tmp_path / f"{name}.txt").write_text("")
    text = '[A Book 1816]\n\nCHAPTER I.\n\nI\n\nSo it\nwas--and is. "Yes?" Mr. Low\nasked.'
    (tmp_path / "austen-emma.txt").write_text(text)
    assert list(of_books(tmp_path)) == ["So it was and is.", '"Yes?" Mr Low asked.']
    (tmp_path / "carroll-alice.txt").unlink()
    with pytest.raises(UserError, match=r"carroll-alice\.txt[\s\S]*--books"):
        list(of_books(tmp_path))


def model_of(lines: list[str], folder: Path, threshold: float = 0.0):
    arpa = folder / "lm.arpa"
    ngrams(lines, 4, 3, threshold, arpa)
    (folder / "lm.json").write_text('{"vocabulary": "of a test"}')
    (folder / "lm.arpa.xz").write_bytes(lzma.compress(arpa.read_bytes()))
    return load_ngram(str(folder), None)


def test_what_was_seen_is_likelier_and_every_class_possible(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_of(["0 1 2", "0 1 2", "0 1 0", "1 2 0"], tmp_path)
    start = model.start()
    behind = model.after(model.after(start, 0), 1)
    given = [model.score(behind, token) for token in range(4)]
    assert given[2] == max(given)
    assert given[3] > math.log(1e-3)  # never seen in a sentence
    assert sum(math.exp(log_prob) for log_prob in given) < 1
    assert capfd.readouterr().err == ""


def test_pruning_keeps_a_model_of_fewer_ngrams(tmp_path: Path) -> None:
    lines = ["0 1 2 3", "1 0 3 2", "0 1 3", "2 0 1", "3 1 0 2"]
    sizes = []
    for threshold in (0.0, 0.01):
        folder = tmp_path / str(threshold)
        folder.mkdir()
        model_of(lines, folder, threshold)
        sizes.append((folder / "lm.arpa").stat().st_size)
    assert sizes[1] < sizes[0]


def test_without_kaldingram_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "KALDINGRAM", "no_such_package.cli")
    with pytest.raises(UserError, match=r"pip install -e '\.\[lm\]'"):
        ngrams(["0"], 2, 2, 0.0, tmp_path / "lm.arpa")
