"""How many streams a device carries: a row for each method, with the spread of several runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_cells import write_cell

from streaming_asr.commands.capacity import main, measure
from streaming_asr.errors import UserError


def test_a_quick_method_carries_more_and_two_runs_give_a_spread(tmp_path: Path) -> None:
    write_cell(tmp_path / "a" / "method=whisperrt,chunk=300ms", compute_s=0.01)
    write_cell(tmp_path / "b" / "method=whisperrt,chunk=300ms", compute_s=0.02)
    write_cell(tmp_path / "a" / "method=ufal,chunk=300ms", compute_s=0.1)
    write_cell(tmp_path / "a" / "method=star,chunk=300ms", compute_s=0.4)
    rows, refused = measure([tmp_path / "a", tmp_path / "b"])
    assert refused == []
    assert [row.place.label for row in rows] == ["whisperrt", "ufal", "star"]
    quick, slow, late = rows
    # A step of 20 ms each 300 ms loads a device with 15 streams, one of 100 ms with 3.
    assert 8 <= quick.least <= 15 < quick.most <= 30
    assert slow.least == slow.most and 1 <= slow.least <= 3
    assert late.streams == "0"  # its step takes longer than the chunk
    assert quick.texts()[-1] == "2"


def test_what_cannot_be_measured_is_told_and_left_out(tmp_path: Path) -> None:
    write_cell(tmp_path / "method=offline,chunk=300ms")
    with pytest.raises(UserError, match="waits for the whole recording"):
        measure([tmp_path])
    write_cell(tmp_path / "method=ufal,chunk=300ms")
    failed = tmp_path / "method=star,chunk=300ms"
    failed.mkdir()
    (failed / "failed.json").write_text('{"error": "no weights"}')
    rows, refused = measure([tmp_path])
    assert [row.place.label for row in rows] == ["ufal"]
    result = tmp_path / "method=ufal,chunk=300ms" / "metrics.json"
    result.write_text(json.dumps(json.loads(result.read_text()) | {"machine": 7}))
    assert measure([tmp_path])[0][0].place.machine == "None"
    assert sorted(reason.split(":")[0] for reason in refused) == ["offline whole", "star 300 ms"]


def test_the_command_writes_table_and_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_cell(tmp_path / "g" / "method=ufal,chunk=300ms", compute_s=0.05)
    out = tmp_path / "c.md"
    assert main([str(tmp_path / "g"), "--table", str(out)]) == 0
    (row,), _ = measure([tmp_path / "g"])
    assert row.least == row.most >= 1
    cells = [cell.strip() for cell in out.read_text().splitlines()[2].strip("|").split("|")]
    assert cells[0] == "ufal" and cells[4] == str(row.least)
    assert main([str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
