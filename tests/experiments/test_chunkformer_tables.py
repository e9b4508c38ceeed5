"""ChunkFormer's tables: what is run and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from table_cells import by_labels

from experiments.chunkformer import tables
from experiments.tables import read


def finished(output: Path, data: dict[str, Any], wer: float, **method: Any) -> None:
    """A finished cell, as far as the tables read it."""
    document = {
        "schema": 1,
        "metrics_version": 1,
        "config": {
            "method": {"name": "chunkformer", **method},
            "chunk": "320ms",
            "data": data,
            "batch": 1,
        },
        "machine": {"cpu": "a processor"},
        "n_utterances": 60,
        "n_failed": 0,
        "metrics": {"wer": wer, "rtf_total": 0.0625},
    }
    name = ",".join(f"{key}={value}" for key, value in {**method, **data}.items())
    folder = output / f"method=chunkformer,chunk=320ms,{name}"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(document))


def test_cells_are_found_by_their_context_and_others_are_not_run(tmp_path: Path) -> None:
    sizes = {"chunk_frames": 16, "left_frames": 32, "right_frames": 32}
    finished(tmp_path, {"name": "prompts", "join_s": None}, 11.0, **sizes)
    whole = {"chunk_frames": 8000, "left_frames": 0, "right_frames": 0}
    finished(tmp_path, {"name": "prompts", "join_s": 600}, 13.5, **whole)
    found = by_labels(tables.table2(read(tmp_path)))
    assert {labels: figures["WER %"] for labels, figures in found.items()} == {
        ("16, 32, 32", "one by one"): 11.0,
        ("full context", "ten minutes"): 13.5,
    }
