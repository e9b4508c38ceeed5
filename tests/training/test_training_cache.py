"""Cached batches: the same weights with and without files, one draw each, none of another run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from line import Line, same, settings
from recipes import settings_of
from tiny import tiny_folder
from toy_corpus import toy_corpus

from streaming_asr.errors import UserError
from streaming_asr.methods.simul_whisper import train as truncation
from streaming_asr.methods.u2 import network as u2
from streaming_asr.methods.u2.train import U2Recipe
from streaming_asr.training.cache import BatchCache
from streaming_asr.training.loop import fit


class InTurn(Line):
    """Draws the first three batches again and again, without files."""

    def draw(self, step, **place):
        return super().draw(step % 3, **place)


def test_a_cached_training_learns_the_same_and_draws_each_batch_once(tmp_path):
    fit(InTurn(), settings(tmp_path / "drawn"))
    cached = Line()
    fit(cached, settings(tmp_path / "cached", cached_batches=3))
    assert cached.seen == [0, 1, 2]
    assert same(tmp_path / "cached", tmp_path / "drawn")
    fit(Line(), settings(tmp_path / "fresh"))
    assert not same(tmp_path / "fresh", tmp_path / "drawn")
    assert not (tmp_path / "cached" / "features").exists()


def test_a_run_that_was_killed_goes_on_without_the_files_it_left(tmp_path):
    class Other(Line):
        """Settings that `fit` does not know of: other features under the same names."""

        def draw(self, step, **place):
            return 2 * super().draw(step, **place)

    class Dies(InTurn):
        left = 7

        def loss(self, model, batch):
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            return super().loss(model, batch)

    changes = {"cached_batches": 3, "checkpoint_minutes": 0.0}
    fit(InTurn(), settings(tmp_path / "whole"))
    with pytest.raises(KeyboardInterrupt):
        fit(Dies(), settings(tmp_path / "broken", **changes))
    assert len(list((tmp_path / "broken" / "features").iterdir())) == 3
    other = BatchCache(Other(), 3, tmp_path / "broken" / "features", 0)
    place = {"rank": 0, "world": 1, "progress": 0.0}
    assert torch.equal(other.draw(1, **place), Other().draw(1, **place))
    second = Line()
    fit(second, settings(tmp_path / "broken", **changes))
    assert second.seen == [1, 2, 0]  # step 7 on
    assert same(tmp_path / "broken", tmp_path / "whole")


def test_ranks_keep_their_own(tmp_path):
    caches = [BatchCache(Line(), 2, tmp_path / "features", rank) for rank in (0, 1)]
    for _ in range(2):
        for rank, cache in enumerate(caches):
            place = {"rank": rank, "world": 2, "progress": 0.0}
            assert torch.equal(cache.draw(3, **place), Line().draw(1, **place))
    caches[0].clear()
    assert [file.name for file in (tmp_path / "features").iterdir()] == ["1-1.pt"]


def test_no_batch_and_a_full_disk_are_told(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="cached_batches=0: 1 or more"):
        fit(Line(), settings(tmp_path, cached_batches=0))

    def full(batch, file):
        Path(file).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(UserError, match=r"0-0\.pt: .*No space left.*batches than 3"):
        fit(Line(), settings(tmp_path, cached_batches=3))
    assert not list((tmp_path / "features").iterdir())


def test_the_truncation_detectors_frozen_encoder_runs_once_for_each_batch(tmp_path, monkeypatch):
    corpus = toy_corpus(tmp_path)
    words = [["the", 0.1, 0.5], ["quick", 0.5, 0.9], ["fox", 0.9, 1.3]]
    rows = [json.loads(line) for line in (corpus / "dev.jsonl").read_text().splitlines()]
    lines = "".join(json.dumps(row | {"words": words}) + "\n" for row in rows)
    (corpus / "dev.jsonl").write_text(lines)
    encoded = []
    encode = truncation.encode_padded

    def counted(model, mel):
        encoded.append(len(mel))
        return encode(model, mel)

    def recipe():
        made = truncation.TruncationRecipe(
            **settings_of(
                "simul_whisper", corpus, tiny_folder(), batch=4, n_dev=1, encoder_bf16=False
            )
        )
        made.evaluate = lambda: {"score": 0.0}
        return made

    class InTurn(truncation.TruncationRecipe):
        def draw(self, step, **place):
            return super().draw(step % 2, **place)

    monkeypatch.setattr(truncation, "encode_padded", counted)
    fit(recipe(), settings(tmp_path / "cached", max_steps=5, cached_batches=2))
    assert encoded == [4, 4]
    drawn = recipe()
    drawn.__class__ = InTurn
    fit(drawn, settings(tmp_path / "drawn", max_steps=5))
    assert encoded == [4] * 7
    assert torch.allclose(drawn.model.linear.weight, _linear(tmp_path / "cached"), atol=1e-5)
    assert drawn.model.linear.weight.abs().max() > 0.01  # it has learnt something


def test_u2s_head_alone_is_trained_on_kept_encodings(tmp_path, monkeypatch):
    corpus = toy_corpus(tmp_path)
    encoded = []
    encode = u2.encode_windows
    monkeypatch.setattr(u2, "encode_windows", lambda *a, **k: encoded.append(1) or encode(*a, **k))

    def recipe(stage="ctc"):
        made = U2Recipe(
            **settings_of("u2", corpus, tiny_folder(), rank=4, batch=2, stage=stage)
        )  # fmt: skip
        made.evaluate = lambda: {"score": 0.0}
        return made

    class InTurn(U2Recipe):
        def draw(self, step, **place):
            return super().draw(step % 2, **place)

    kept = recipe()
    before = kept.model.head.weight.detach().clone()
    fit(kept, settings(tmp_path / "cached", max_steps=5, cached_batches=2))
    assert len(encoded) == 2  # 2 batches
    drawn = recipe()
    drawn.__class__ = InTurn
    fit(drawn, settings(tmp_path / "drawn", max_steps=5))
    assert len(encoded) == 2 + 5
    assert torch.allclose(kept.model.head.weight, drawn.model.head.weight, atol=1e-5)
    assert not torch.allclose(kept.model.head.weight, before, atol=1e-2)
    place = {"rank": 0, "world": 1, "progress": 0.0}
    trained = recipe("hybrid")  # here the encoder learns, and nothing of it is kept
    assert trained.precompute(batch := trained.draw(0, **place)) is batch


def _linear(out: Path) -> torch.Tensor:
    from safetensors.torch import load_file

    return load_file(out / "final" / truncation.FILE_NAME)["weight"]
