"""Steps that share passes: which are answered together, and what each is told."""

from __future__ import annotations

import torch

from streaming_asr.method import NULL
from streaming_asr.whisper.together import MOST_TOGETHER, Passes, Wanted, run_together


def step(name: str, wishes: list[str], passes: list[tuple[str, list[str]]]) -> Passes[str]:
    """Ask for one pass after another; return all answers."""
    told = ""
    for at, what in enumerate(wishes):

        def run(parts: list[str], what: str = what) -> list[torch.Tensor]:
            passes.append((what, parts))
            return [torch.tensor(ord(part[0])) for part in parts]

        told += chr(int((yield Wanted(what, run, f"{name}{at}"))))
    return told


def test_steps_that_wait_for_the_same_share_a_pass_and_each_is_told_its_own() -> None:
    passes: list[tuple[str, list[str]]] = []
    wishes = {"a": ["encode", "decode", "decode"], "b": ["encode"], "c": ["decode", "decode"]}
    steps = [step(name, wished, passes) for name, wished in wishes.items()]
    assert run_together([*steps, step("d", [], passes)], NULL) == ["aaa", "b", "cc", ""]
    assert passes == [
        ("encode", ["a0", "b0"]),
        ("decode", ["c0", "a1"]),
        ("decode", ["c1", "a2"]),
    ]


def test_a_pass_holds_no_more_parts_than_fit() -> None:
    passes: list[tuple[str, list[str]]] = []
    names = [chr(ord("A") + i) for i in range(MOST_TOGETHER + 3)]
    assert run_together([step(name, ["encode"], passes) for name in names], NULL) == names
    assert [len(parts) for _, parts in passes] == [MOST_TOGETHER, 3]
