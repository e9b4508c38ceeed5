"""Ours beside others' programs: who takes turns when, whose texts are equal, what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.bench import peers
from streaming_asr.errors import UserError

CLIPS = [(np.full(16000 * n, n, np.float32), f"number {n}") for n in (1, 2, 4)]


def pair(turns: list[str], wrong_at: int) -> peers.Pair:
    """Sides that note their turns; ours says another word at clip `wrong_at`."""

    def said(side: str, audio: np.ndarray) -> str:
        turns.append(f"{side} {audio[0]:g}")
        return "Number 9" if side == "ours" and audio[0] == wrong_at else f"number {audio[0]:g}."

    return peers.Pair(
        "them",
        "1.0",
        "offline",
        None,
        lambda audio: said("theirs", audio),
        lambda audio: said("ours", audio),
    )


def test_both_sides_begin_in_turn_and_their_normalised_texts_are_compared() -> None:
    turns: list[str] = []
    row = peers.side_by_side(pair(turns, wrong_at=4), CLIPS)
    assert turns[:2] == ["theirs 1", "ours 1"]  # not counted: each side's first call
    assert turns[2:] == ["theirs 1", "ours 1", "ours 2", "theirs 2", "theirs 4", "ours 4"]
    assert row["equal"] == 2
    assert row["theirs"]["wer"] == 0 and row["ours"]["wer"] == pytest.approx(100 / 6)


def test_what_is_not_there_is_named_and_nothing_at_all_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def absent(checkouts: Path) -> peers.Pair:
        return peers.whisperrt(checkouts, 0.3)

    monkeypatch.setenv("COLUMNS", "150")
    made: dict[str, Any] = {"whisperrt": (absent,), "them": (lambda _: pair([], wrong_at=0),)}
    monkeypatch.setattr(peers, "PEERS", made)
    monkeypatch.setattr(peers, "voices", lambda n: [])
    with pytest.raises(UserError, match=f"--checkouts {tmp_path}: none of whisperrt is there"):
        peers.bench(checkouts=str(tmp_path), limit=2, only=("whisperrt",))
    row = peers.side_by_side(made["them"][0](tmp_path), CLIPS)
    cpu = {"cpu": "a processor"}
    result = {"clips": 3, "audio_s": 7.0, "machine": cpu, "rows": [row], "absent": {"x": "no x"}}
    peers.show(result)
    out = capsys.readouterr().out
    assert "a processor" in out and "them 1.0" in out and "3 of 3" in out
    assert "not there: x (no x)" in out
