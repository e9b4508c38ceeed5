"""Batches drawn ahead: the same weights as without, from a checkpoint too; errors arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from line import Line, same, settings

from streaming_asr.errors import UserError
from streaming_asr.training.ahead import DrawnAhead
from streaming_asr.training.loop import fit

# On one core PyTorch warns that two workers are too many.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def test_a_training_with_workers_learns_the_same(tmp_path):
    fit(Line(), settings(tmp_path / "alone"))
    ahead = Line()
    fit(ahead, settings(tmp_path / "ahead", workers=2))
    assert same(tmp_path / "ahead", tmp_path / "alone")
    assert ahead.seen == []  # other processes drew them


def test_a_training_that_goes_on_draws_from_its_step_on(tmp_path):
    fit(Line(), settings(tmp_path / "whole", accumulate=2))
    parts = settings(tmp_path / "parts", accumulate=2, checkpoint_minutes=0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(Line(stop_at=10), parts)
    fit(Line(), replace(parts, workers=2))
    assert same(tmp_path / "parts", tmp_path / "whole")


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


def test_kept_and_drawn_ahead_is_refused(tmp_path):
    with pytest.raises(UserError, match="workers=2, cached_batches=3"):
        fit(Line(), settings(tmp_path, workers=2, cached_batches=3))
