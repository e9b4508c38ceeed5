"""The report page of the site, from the stored logs of docs/example."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path

import pytest
from places import ROOT
from report_cells import embedded

from experiments.example import LOGS, pack, page
from streaming_asr.errors import UserError

METHODS = {"hush_word", "ufal", "simul_whisper", "u2", "star", "whisperrt", "chunkformer"}
MOST_BYTES = 3_000_000  # of the logs, and of the page


@pytest.mark.slow
def test_the_page_has_every_method_at_both_chunks_and_all_the_sound(tmp_path: Path) -> None:
    written = page(tmp_path / "example.html")
    html = written.read_text(encoding="utf-8")
    data = embedded(written)
    runs = {(cell["method"], cell["chunk"]) for cell in data["cells"]}
    chunks = ("300 ms", "1000 ms")
    assert runs == {(m, chunk) for m in METHODS for chunk in chunks} | {("offline", "whole")}
    assert [cell["label"] for cell in data["cells"] if "fixture" in cell["label"]] == [
        "chunkformer weights=fixture"
    ] * 2
    assert not any(cell["error"] for cell in data["cells"])
    clips = (ROOT / "docs" / "example" / "clips.txt").read_text().split()
    assert len(clips) == 10
    for at, cell in enumerate(data["cells"]):
        lines = [line for line in data["timelines"] if line["cell"] == at]
        assert sorted(line["utt"] for line in lines) == sorted(clips)
        assert all(line["audio"] for line in lines)
        # No computing time is left, so no number counts one.
        assert {v for k, v in cell["metrics"].items() if "_ca" in k or "rtf" in k} == {None}
    assert data["clock"] == "cu" and "computing time not counted" in data["verdicts"][0]
    assert len(set(re.findall(r'data-audio="([^"$]+)"', html))) == 10
    assert str(ROOT) not in html
    assert max(len(html.encode()), LOGS.stat().st_size) < MOST_BYTES


def test_the_stored_logs_have_no_times_and_no_path_of_a_machine(tmp_path: Path) -> None:
    with tarfile.open(LOGS) as archive:
        texts = {
            member.name: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert len(texts) == 2 * len(METHODS) + 1
    for text in texts.values():
        assert not re.search(r'"/|"memory_(peak_)?bytes"', text)
        lines = [json.loads(line) for line in text.splitlines()]
        assert {json.dumps(line["compute_ns"]) for line in lines if "compute_ns" in line} == {
            '{"wall": 0}'
        }


def test_packing_drops_times_paths_and_the_second_offline_run(tmp_path: Path) -> None:
    header = {
        "kind": "header",
        "config": {"output": "/home/me", "data": {"path": f"{ROOT}/streaming_asr/data/x.jsonl"}},
        "machine": {"cpu": "abacus", "cores": 2, "threads": 1, "platform": "Linux-6"},
    }
    step = {"kind": "flush", "compute_ns": {"wall": 7, "cpu": 6}, "memory_bytes": 5}
    for method in ("offline", "chunkformer"):
        for chunk in ("300ms", "1s"):
            cell = tmp_path / f"method={method},chunk={chunk},threads=1"
            cell.mkdir()
            (cell / "events.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(step)}\n")
    pack(tmp_path, tmp_path / "logs.tar.xz")
    first = (tmp_path / "logs.tar.xz").read_bytes()
    pack(tmp_path, tmp_path / "logs.tar.xz")
    assert (tmp_path / "logs.tar.xz").read_bytes() == first
    with tarfile.open(tmp_path / "logs.tar.xz") as archive:
        assert archive.getnames() == [
            "method=chunkformer,chunk=1s,weights=fixture/events.jsonl",
            "method=chunkformer,chunk=300ms,weights=fixture/events.jsonl",
            "method=offline,chunk=1s/events.jsonl",
        ]
        content = archive.extractfile(archive.getnames()[0])
        assert content is not None
        lines = [json.loads(line) for line in content.read().splitlines()]
    assert lines[0]["config"] == {"data": {"path": "streaming_asr/data/x.jsonl"}}
    assert lines[0]["machine"] == {"cpu": "abacus", "cores": 2, "threads": 1}
    assert "rtf_total" in lines[0]["unmeasured"] and "compute clock" not in lines[0]["knows"]
    assert lines[1] == {"kind": "flush", "compute_ns": {"wall": 0}}


def test_a_folder_without_logs_leaves_the_stored_ones_as_they_are(tmp_path: Path) -> None:
    stored = tmp_path / "logs.tar.xz"
    stored.write_bytes(b"logs")
    with pytest.raises(UserError, match=r"no \*/events\.jsonl in it"):
        pack(tmp_path / "--help", stored)
    assert stored.read_bytes() == b"logs"
