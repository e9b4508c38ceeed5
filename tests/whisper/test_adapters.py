"""Adapters: how much of their change is merged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streaming_asr.config.weights import scale_of
from streaming_asr.errors import UserError


def test_the_share_of_the_change_is_what_dev_chose_for_the_chunk_or_a_number(
    tmp_path: Path,
) -> None:
    chosen = {"adapter_scale": {"0.3": 0.9, "1": 0.7}}
    (tmp_path / "training.json").write_text(json.dumps(chosen))
    by_chunk = [scale_of("dev", tmp_path, chunk_s) for chunk_s in (0.1, 0.3, 0.3**0.5, 1.0, 2.0)]
    assert by_chunk == pytest.approx([0.9, 0.9, 0.8, 0.7, 0.7])
    assert scale_of(0.5, tmp_path, 1.0) == scale_of("0.5", None, 1.0) == 0.5
    assert scale_of("dev", None, 1.0) == scale_of("dev", tmp_path / "absent", 1.0) == 1.0
    for wrong in ("auto", -0.1, "nan"):
        with pytest.raises(UserError, match=f"adapter_scale={wrong}: must be dev, or a number"):
            scale_of(wrong, tmp_path, 1.0)


@pytest.mark.parametrize(
    "chosen", [0.5, "0.5", [0.5], {"300ms": 1}, {"0.3": "all"}, {"0.3": -1}, {"0": 1}, {"1": None}]
)
def test_shares_of_another_form_in_training_json_are_refused(tmp_path: Path, chosen: Any) -> None:
    (tmp_path / "training.json").write_text(json.dumps({"adapter_scale": chosen}))
    with pytest.raises(UserError, match=r"training\.json: adapter_scale=.*: must give the share"):
        scale_of("dev", tmp_path, 1.0)
