"""A cell's folder is named by its settings: one configuration, one name."""

from __future__ import annotations

import pytest

from streaming_asr.config.naming import cell_name


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], ""),
        (["model=tiny.en"], ""),
        (["model=tiny.en", "data=voices", "tracker=none"], ""),
        (["model=base"], ",model=base"),
        (["model=mini"], ",model=mini"),
        (["model=mini", "data=mini"], ",model=mini"),  # mini takes its own corpus by itself
        (["model=mini", "data=mini", "data.split=clean"], ",model=mini"),
        (["limit=4", "data=voices"], ",limit=4"),
        (["limit=null", "batch=1", "seed=0", "dtype=float32"], ""),
        (["method.beam=0", "method.n=2"], ""),
        (["method.beam=3"], ",method.beam=3"),
        (["method.tolerance=0.0"], ""),
        # The default is another setting's value, which may be given as well.
        (["guard=none", "method.guard=repeats"], ",guard=none,method.guard=repeats"),
        # An experiment has defaults of its own.
        (["experiment=real_base", "model=tiny.en"], ",model=tiny.en"),
        (["experiment=real_base", "model=base"], ""),
        (["model=of_the_users", "data=voices"], ",data=voices,model=of_the_users"),
        (["data=folder", "data.path=/a/b=c,d.wav"], ",data=folder,data.path=_a_b_c_d.wav"),
        (["+method.x=1"], ",method.x=1"),
    ],
)  # fmt: skip
def test_a_cell_is_named_by_what_differs_from_the_defaults(overrides: list[str], name: str) -> None:
    for each in (overrides, overrides[::-1]):
        assert cell_name("whisperrt", "300ms", each) == f"method=whisperrt,chunk=300ms{name}"


def test_defaults_are_those_of_the_method_that_is_chosen() -> None:
    beam = ["method=hush_word", "method.beam=5"]
    assert cell_name("hush_word", "1000ms", beam) == "method=hush_word,chunk=1s"
    beam = ["method=whisperrt", "method.beam=5"]
    assert cell_name("whisperrt", "1s", beam) == "method=whisperrt,chunk=1s,method.beam=5"


def test_a_piece_lies_in_its_cell() -> None:
    name = cell_name("whisperrt", "1s", ["limit=8", "pieces=2"], 2, 1)
    assert name == "method=whisperrt,chunk=1s,limit=8/pieces/1-of-2"
