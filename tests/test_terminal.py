"""The table that all commands print: no wider than the screen, no number cut, nothing lost."""

import errno
import io
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from streaming_asr.live.command import _View
from streaming_asr.terminal import Grid, console, end_if_stopped, exit_status

WORDS = st.text("abc_=xyz19", min_size=1, max_size=40)
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)


def lines_of(grid, width):
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(grid, crop=False)
    return captured.get().splitlines()


@st.composite
def grids(draw):
    n_left, n_right = draw(st.integers(1, 2)), draw(st.integers(1, 9))
    n = n_left + n_right
    number = st.floats(-999, 999).map("{:.3f}".format)
    rows = [
        [*(draw(NAMES) for _ in range(n_left)), *(draw(number) for _ in range(n_right))]
        for _ in range(draw(st.integers(1, 4)))
    ]
    heads = [f"h{at}" for at in range(n)]
    return Grid(heads, rows, text_columns=range(n_left))


@given(grids(), st.sampled_from([40, 60, 80, 120]))
def test_a_table_is_no_wider_than_the_screen_and_loses_nothing(grid, width):
    lines = lines_of(grid, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    names = "".join(re.split("  +", line)[0].replace(" ", "") for line in lines)
    for row in grid.rows:
        assert all(text in words for at, text in enumerate(row) if at not in grid.text_columns)
        assert row[0].replace(" ", "") in names  # folded at most


def test_what_is_too_wide_becomes_several_tables_with_the_names_in_each():
    heads = ["run", *(f"metric{k}" for k in range(8))]
    rows = [["ufal", *["123.456"] * 8], ["star", *["0.5"] * 8]]
    lines = lines_of(Grid(heads, rows), 40)
    assert sum(line.startswith("ufal") for line in lines) == 2
    assert [head for line in lines for head in line.split() if head.startswith("metric")] == [
        f"metric{k}" for k in range(8)
    ]


def test_a_spare_column_is_there_where_a_name_need_not_break_for_it():
    rows = [["a method with a name", "1.0", "2.0"]]
    grid = Grid(["method", "WER", "CER"], rows, spare=[2], legend={0: "L", 1: "W", 2: "C"})
    assert lines_of(grid, 40)[-1] == "L. W. C."
    narrow = lines_of(grid, 27)
    assert narrow[-1] == "L. W." and "CER" not in narrow[0]
    assert any(line.startswith("a method with a name") for line in narrow)


def test_a_column_without_room_is_named():
    heads = ["run", "a\nms", "b"]
    for width, line in ((40, "no room for b; COLUMNS=160"), (60, None)):
        grid = Grid(heads, [["x" * 28, "1.5", "2.25"]], spare=[2], legend={2: "b: bees"})
        text = " ".join(lines_of(grid, width if width > 40 else 36))
        assert (line in text) if line else ("no room" not in text and "b: bees" in text)


def test_markup_in_a_cell_is_text():
    assert "[bold]x" in "".join(lines_of(Grid(["a", "b"], [["[bold]x", "1"]]), 40))


def test_only_what_resumes_says_that_it_does(capsys):
    def interrupted():
        raise KeyboardInterrupt(signal.SIGINT)

    assert exit_status(interrupted) == 130
    assert "SIGINT; the same command goes on" in capsys.readouterr().err
    assert exit_status(interrupted, resumes=False) == 130
    assert capsys.readouterr().err == "stopped by SIGINT\n"


def test_a_program_ends_where_a_signal_ended_a_part_of_it():
    for status in (0, 1, 2):
        assert exit_status(lambda status=status: end_if_stopped(status)) == 0
    for status in (130, 143):
        with pytest.raises(SystemExit) as end:
            exit_status(lambda status=status: end_if_stopped(status))
        assert end.value.code == status


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        *((n, "cannot be written") for n in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        *((n, "cannot be read or written") for n in (errno.EROFS, errno.EACCES, errno.EPERM)),
    ],
)
def test_a_place_that_cannot_be_written_is_one_sentence(number, rule, capsys, monkeypatch):
    monkeypatch.setattr("streaming_asr.terminal._write_no_more", lambda: None)

    def fail():
        raise OSError(number, os.strerror(number), "outputs/a")

    assert exit_status(fail) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: outputs/a: {rule} ({os.strerror(number)}); ")


def test_an_error_that_names_no_place_is_a_fault_of_the_program():
    def fail():
        raise PermissionError(errno.EACCES, "no port")

    with pytest.raises(PermissionError):
        exit_status(fail)


@pytest.mark.parametrize(("columns", "width"), [("0", 100), ("1", 1), ("120", 120), ("x", 80)])
def test_a_width_of_nothing_is_none(columns, width, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "30")
    assert console().width == width


def test_the_live_view_is_drawn_again_on_a_terminal_of_another_size(monkeypatch):
    view = _View([], "talk")
    cleared = []
    console = SimpleNamespace(size=(80, 24), clear=lambda: cleared.append(console.size))
    view._live = SimpleNamespace(console=console, update=lambda _: None)
    view._size = console.size
    for size, n in (((80, 24), 0), ((60, 24), 1), ((60, 24), 1), ((60, 40), 2)):
        console.size = size
        view.refresh(1.0, False)
        assert len(cleared) == n


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_character_that_the_output_lacks_is_printed_as_an_escape(encoding, monkeypatch):
    held = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(held, encoding))
    assert exit_status(lambda: print("我 ok")) == 0
    assert held.getvalue() == b"\\u6211 ok\n"


def test_a_home_folder_of_nobody_is_refused_in_one_line(capsys):
    assert exit_status(lambda: Path("~no-such-user/a.wav").expanduser() and 0) == 2
    assert "begins with ~ and a name that is no user's" in capsys.readouterr().err


def test_another_error_at_run_time_is_a_fault_of_the_program():
    def program():
        raise RuntimeError("another")

    with pytest.raises(RuntimeError, match="another"):
        exit_status(program)
