"""The report's figures and tables as files."""

import itertools
import json
import re

import pytest
from report_cells import amend, write_cell, write_failed, write_grid

from experiments.figures.__main__ import main
from experiments.figures.draw import add_legend, draw, draw_cells
from experiments.figures.labels import Label, place_labels
from experiments.figures.tables import write_table
from streaming_asr.errors import UserError
from streaming_asr.report.page import page_data
from streaming_asr.score.ranking import FRONT, ceiling
from streaming_asr.score.results import read_results


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return write_grid(tmp_path_factory.mktemp("export") / "grid")


def test_the_command_draws_figures_and_writes_tables(grid, tmp_path, capsys):
    out = tmp_path / "new" / "a=b.svg"
    files = [out, tmp_path / "b.png", tmp_path / "c.pdf"]
    tables = [tmp_path / "t.tex", tmp_path / "t.md"]
    options = [option for file in files for option in ("--figure", str(file))]
    options += [option for table in tables for option in ("--table", str(table))]
    assert main([str(grid), *options]) == 0
    printed = capsys.readouterr().out
    for path in (*files, *tables):
        assert str(path) in printed and path.stat().st_size > 500
    starts = [path.read_bytes()[:5] for path in files]
    assert starts == [b"<?xml", b"\x89PNG\r", b"%PDF-"]


def test_the_same_results_give_the_same_file(grid, tmp_path):
    one, other = (draw(grid, tmp_path / name) for name in ("a.svg", "b.svg"))
    assert one.read_bytes() == other.read_bytes()


def test_the_front_has_colour_and_what_it_betters_is_grey(tmp_path):
    wrong = {"u1": ("cats eat fresh fish", "cats eat flesh dish")}
    right = {"u1": ("cats eat fresh fish", "cats eat fresh fish")}
    write_cell(tmp_path / "method=whisperrt,chunk=300ms", texts=right)
    alone = draw(tmp_path, tmp_path / "alone.svg").read_text()
    write_cell(tmp_path / "method=ufal,chunk=300ms", texts=wrong, compute_s=0.2)
    both = draw(tmp_path, tmp_path / "both.svg").read_text()
    assert "#a9b1bb" not in alone and "#0b62b8" in alone
    assert "#a9b1bb" in both and "#0b62b8" in both


def numbered(root, points):
    """Cells with a given latency and WER and no log."""
    for name, (latency_s, wer) in points.items():
        method, chunk = name.split()
        (root / f"method={method},chunk={chunk}").mkdir(parents=True)
        document = {"schema": 1, "config": {"chunk": chunk},
                    "metrics": {FRONT[0]: latency_s, FRONT[1]: wer}}  # fmt: skip
        (root / f"method={method},chunk={chunk}" / "metrics.json").write_text(json.dumps(document))
    return root


def test_a_run_far_above_the_rest_stands_at_the_edge_with_its_number(tmp_path):
    usual = {f"whisperrt {n}00ms": (n / 10, 20.0 - n) for n in (1, 2, 3, 4)}
    assert ceiling(read_results(numbered(tmp_path / "usual", usual))) is None
    root = numbered(tmp_path / "high", {**usual, "star 100ms": (0.5, 400.0)})
    top = ceiling(read_results(root))
    assert top is not None and 20 < top < 60
    assert page_data(root)["ceilings"] == {"": top}
    texts = re.findall("<!-- (.*) -->", draw(root, tmp_path / "x.svg").read_text())
    assert {"star 100 ms: 400 %", "200 ms", "whisperrt 400 ms"} <= set(texts)
    assert "WER (%); higher ones at the edge" in texts
    lower = draw_cells(read_results(root), tmp_path / "y.svg", top=18.5).read_text()
    assert "whisperrt 100 ms: 19 %" not in lower and "<!-- 100 ms: 19 % -->" in lower


def _figure(**settings):
    from matplotlib.figure import Figure

    return Figure(**settings)


def test_labels_of_points_in_one_place_lie_side_by_side():
    figure = _figure(figsize=(4.6, 3.6))
    axis = figure.add_subplot(xlim=(0, 3), ylim=(0, 30))
    wanted = [Label(1.5, 15.0 + n / 1000, f"{n}00 ms", "black") for n in range(1, 7)]
    place_labels(axis, wanted)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert [text.get_text() for text in axis.texts] == [label.text for label in wanted]
    assert [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []
    point = axis.transData.transform((1.5, 15))
    assert not any(box.contains(*point) for box in boxes)


def test_a_label_stands_on_no_line_where_another_place_is_free():
    figure = _figure(figsize=(4.6, 3.6))
    axis = figure.add_subplot(xlim=(0, 3), ylim=(0, 30))
    axis.plot([1.5, 3], [15, 15])
    axis.step([0.5, 1.5], [15, 25], where="post")
    place_labels(axis, [Label(1.5, 15.0, "300 ms", "black")])
    figure.draw_without_rendering()
    (text,) = axis.texts
    box = text.get_window_extent()
    right, step = axis.transData.transform([(2.0, 15.0), (0.9, 15.0)])
    assert box.y0 > right[1] or box.y1 < right[1]
    assert box.y0 > step[1] or box.y1 < step[1]


def test_a_legend_is_no_wider_than_its_figure():
    figure, handles = _figure(figsize=(2.0, 2.0), layout="constrained"), []
    axis = figure.add_subplot()
    for name in ("whisperrt", "ufal", "star", "u2"):
        handles.append((axis.plot([1], [1], "o")[0], f"long name of {name}"))
    add_legend(figure, handles, 4)
    (legend,) = figure.legends
    assert legend.get_window_extent().width <= figure.bbox.width


def test_where_there_is_no_room_a_label_is_left_out():
    figure = _figure(figsize=(4.6, 3.6))
    axis = figure.add_subplot(xlim=(0, 3), ylim=(0, 30))
    place_labels(axis, [Label(1.5, 15.0, "1000 ms", "black")] * 60)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert 5 < len(boxes) < 60
    assert [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])] == []


def test_a_failed_run_and_the_whole_recording_are_named(tmp_path):
    root = numbered(tmp_path / "grid", {"offline 300ms": (2.5, 8.0), "ufal 300ms": (1.0, 9.0)})
    write_failed(root / "method=star,chunk=300ms", "no adapter")
    texts = re.findall("<!-- (.*) -->", draw(root, tmp_path / "x.svg").read_text())
    assert {"offline whole", "ufal 300 ms", "star: failed"} <= set(texts)
    chunks = {cell.method: cell.chunk for cell in read_results(root) if not cell.error}
    assert chunks == {"offline": "whole", "ufal": "300 ms"}


def test_a_markdown_table_has_the_numbers_the_intervals_and_the_best_in_bold(tmp_path):
    for method, said in (("whisperrt", "cats eat fresh fish"), ("ufal", "cats eat flesh fish")):
        texts = {f"u{n}": ("cats eat fresh fish", said if n else "fish") for n in range(6)}
        write_cell(tmp_path / f"method={method},chunk=300ms", texts=texts)
    lines = write_table(tmp_path, tmp_path / "t.md", ["wer", "rtf_total"]).read_text().splitlines()
    assert lines[0] == "| Method | Chunk | Data | WER % | RTF |"
    assert lines[1] == "| --- | ---: | --- | ---: | ---: |"
    assert re.match(r"\| ufal \| 300 ms \| mini clean \| 33\.3 \[[\d.]+, [\d.]+\] \|", lines[2])
    assert re.match(r"\| whisperrt \| 300 ms \| mini clean \| \*\*12\.5\*\* \[", lines[3])
    few = "few recordings (6): chance decides much of such a WER; run more of them"
    assert lines[4:] == ["", few]


@pytest.mark.parametrize("suffix", [".md", ".tex"])
def test_notes_are_footnotes_each_once(suffix, tmp_path):
    for method, warnings in (("ufal", ["50 % noise"]), ("star", []), ("u2", ["a_b", "50 % noise"])):
        amend(write_cell(tmp_path / f"method={method},chunk=300ms"), warnings=warnings)
    text = write_table(tmp_path, tmp_path / f"t{suffix}", ["wer"]).read_text()
    few = "few recordings (2): chance decides much of such a WER; run more of them"
    if suffix == ".md":
        assert "| star | " in text
        assert "| u2<sup>1,2</sup> | " in text and "| ufal<sup>2</sup> | " in text
        notes = "<sup>1</sup> warning: a_b\n\n<sup>2</sup> warning: 50 % noise\n\n" + few
        assert text.endswith(f"\n\n{notes}\n")
    else:
        assert "star & " in text and "u2$^{1,2}$ & " in text and "ufal$^{2}$ & " in text
        noise = r"\par{\footnotesize $^{2}$warning: 50 \% noise\par}"
        notes = [r"\par{\footnotesize $^{1}$warning: a\_b\par}", noise]
        notes.append(rf"\par{{\footnotesize {few}\par}}")
        assert text.splitlines()[-4:] == [r"\end{tabular}", *notes]


def test_nothing_in_a_markdown_table_is_read_as_html_a_link_or_another_column(tmp_path):
    split = "<img src=x onerror=alert(1)>|[a](b)`c`"
    amend(write_cell(tmp_path / "cell"), config={"data": {"split": split}})
    row = write_table(tmp_path, tmp_path / "t.md", ["wer"]).read_text().splitlines()[2]
    shown = r"mini &lt;img src=x onerror=alert(1)&gt;\|\[a\](b)\`c\`"
    assert row.startswith(f"| fake | 300 ms | {shown} | ")


def test_a_latex_table_is_whole_and_escaped(tmp_path):
    write_cell(tmp_path / "method=whisperrt,chunk=300ms,method.n_best=a&b")
    write_failed(tmp_path / "method=star,chunk=300ms", "no 5 % left")
    lines = write_table(tmp_path, tmp_path / "t.tex").read_text().splitlines()
    assert lines[1] == r"\begin{tabular}{lrlrrrrrrrrr}" and r"\end{tabular}" in lines
    rows = [line for line in lines if line.endswith(r"\\")]
    assert [row.count(" & ") for row in rows] == [11, 11, 11]
    assert rows[0].startswith(r"Method & Chunk & Data & WER \% & ")
    assert r"whisperrt n\_best=a\&b & 300 ms & mini clean" in rows[2]
    assert rows[1].startswith("star$^{1}$ & ") and " & failed & " in rows[1]
    assert r"\par{\footnotesize $^{1}$failed: no 5 \% left\par}" in lines


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--figure", "x.gif"], "the suffix is .svg, .png, .pdf"),
        (["--table", "x.csv"], "the suffix is .md or .tex"),
        (["--table", "x.md", "--metrics", "wr"], "--metrics wr: no such metric"),
    ],
)
def test_wrong_wishes_are_refused(options, told, grid, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([str(grid), *options]) == 2
    assert told in capsys.readouterr().err


def test_a_figure_of_numbers_that_no_run_has_is_refused(tmp_path):
    write_failed(tmp_path / "method=star,chunk=300ms", "none")
    with pytest.raises(UserError, match=r"--figure .*: no run under .* has its numbers"):
        draw(tmp_path, tmp_path / "x.svg")
