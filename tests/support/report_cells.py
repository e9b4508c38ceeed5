"""Cells of results for tests of the report: made-up runs, scored by the real scorer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SENTENCE = "the harbour opens at nine on friday"
TAXI = "call a taxi for $25 please"


def steps_of(
    utt: str,
    words: Sequence[str],
    *,
    chunk_s: float,
    duration_s: float,
    compute_s: float,
    ahead: int,
) -> list[dict[str, Any]]:
    """A fake run: one word each 0.4 s; `ahead` words are shown, the first of them misheard."""
    lines, committed, audio_s = [], 0, 0.0
    while audio_s < duration_s:
        audio_s = min(audio_s + chunk_s, duration_s)
        last = audio_s >= duration_s
        heard = len(words) if last else int(audio_s / 0.4)
        final = heard if last else max(heard - ahead, committed)
        partial = [] if last else [f" {word}" for word in words[final:heard]]
        if len(partial) > 1:
            partial[-1] += "z"
        lines.append(
            {
                "kind": "flush" if last else "audio",
                "utt": utt,
                "audio_samples": round(audio_s * 16000),
                "compute_ns": {"wall": round(compute_s * 1e9)},
                "committed": [f" {word}" for word in words[committed:final]],
                "partial": partial,
            }
        )
        committed = final
    return lines


def write_cell(
    folder: Path,
    *,
    chunk: str = "300ms",
    split: str = "clean",
    texts: Mapping[str, tuple[str, str]] | None = None,
    compute_s: float = 0.02,
    ahead: int = 2,
    audio_path: Path | None = None,
    **settings: Any,
) -> Path:
    """A cell as run leaves it, scored by the real scorer. texts: utt -> (reference, hypothesis).
    settings: more of its configuration."""
    from streaming_asr.score import score_folder

    folder.mkdir(parents=True)
    if texts is None:
        texts = {"u1": (SENTENCE, SENTENCE), "u2": (TAXI, "call a tax for $25 please now")}
    name = dict(part.split("=") for part in folder.name.split(",") if "=" in part)
    method = name.get("method", "fake")
    config = {
        "method": {"_target_": f"streaming_asr.methods.{method}.Fake"},
        "data": {"_target_": "streaming_asr.corpora.Mini", "split": split},
        "chunk": chunk,
        "feed": "fixed",
        "batch": 1,
        **settings,
    }
    lines: list[dict[str, Any]] = [
        {"kind": "header", "schema": 1, "config": config, "versions": {"python": "3"},
         "machine": {"cpu": "abacus", "cores": 2}, "metrics_version": 1}
    ]  # fmt: skip
    chunk_s = float(chunk.removesuffix("ms")) / 1000
    for utt, (reference, hypothesis) in texts.items():
        words = [
            [word, round(0.1 + 0.4 * i, 3), round(0.4 + 0.4 * i, 3)]
            for i, word in enumerate(reference.split())
        ]
        duration_s = 0.4 * len(words) + 0.3
        line = {"kind": "utterance", "utt": utt, "text": reference, "words": words,
                "speaker": "s1", "language": "en",
                "duration_samples": round(duration_s * 16000)}  # fmt: skip
        if audio_path is not None:
            line["audio_path"] = str(audio_path)
        lines.append(line)
        lines += steps_of(utt, hypothesis.split(), chunk_s=chunk_s, duration_s=duration_s,
                          compute_s=compute_s, ahead=ahead)  # fmt: skip
        lines.append({"kind": "end", "utt": utt, "status": "ok", "error": None,
                      "memory_peak_bytes": None, "commit_violations": 0})  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "events.jsonl").write_text(text, encoding="utf-8")
    score_folder(folder, experiment="grid", cell=folder.name)
    return folder


def merged(one: Any, other: Any) -> Any:
    """The values of `other` in those of `one`, however deep."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return other
    return one | {key: merged(one.get(key), value) for key, value in other.items()}


def amend(cell: Path, **changes: Any) -> Path:
    """Change values in the metrics.json of a cell."""
    document = json.loads((cell / "metrics.json").read_text())
    (cell / "metrics.json").write_text(json.dumps(merged(document, changes)))
    return cell


def write_failed(cell: Path, error: str, **config: Any) -> Path:
    """A cell that failed, with what it was to run."""
    (cell / ".hydra").mkdir(parents=True)
    (cell / ".hydra" / "config.yaml").write_text(json.dumps(config))
    (cell / "failed.json").write_text(json.dumps({"error": error}))
    return cell


def write_grid(root: Path, audio_path: Path | None = None) -> Path:
    """Two methods, three chunks, two splits, one failed cell."""
    for method, ahead, slow in (("whisperrt", 1, 1.0), ("ufal", 3, 4.0)):
        for chunk in ("100ms", "300ms", "1000ms"):
            for split in ("clean", "other"):
                wrong = "call a taxi four $25 peas" if split == "other" else TAXI
                texts = {
                    "u1": (SENTENCE, SENTENCE if chunk != "100ms" else SENTENCE + " all right"),
                    "u2": (TAXI, wrong),
                    "u3": ("good morning", "good morning"),
                    "u4": (f"{SENTENCE} {TAXI}", f"{SENTENCE} {TAXI}"),
                    "u5": ("good night", "good might"),
                    "u6": ("good day", "good day"),
                }
                write_cell(
                    root / f"method={method},chunk={chunk},data.split={split}",
                    chunk=chunk,
                    split=split,
                    texts=texts,
                    compute_s=0.02 * slow,
                    ahead=ahead,
                    audio_path=audio_path,
                )
    write_failed(root / "method=star,chunk=300ms,data.split=clean", "UserError: no such weights")
    return root


TEN_WORDS = "the harbour opens early on friday for all small boats"


def write_three(root: Path, n: int = 12) -> Path:
    """Three runs of n utterances: the slow one has 0 errors, the middle 4 and the fast 5, of 10 * n
    words; they commit 3, 2 and no words late."""
    for method, chunk, n_wrong, ahead in (
        ("star", "1000ms", 0, 3),
        ("ufal", "300ms", 4, 2),
        ("whisperrt", "100ms", 5, 0),
    ):
        texts = {
            f"u{k}": (TEN_WORDS, TEN_WORDS.replace("early", "yearly") if k < n_wrong else TEN_WORDS)
            for k in range(n)
        }
        write_cell(root / f"method={method},chunk={chunk}", chunk=chunk, texts=texts, ahead=ahead)
    return root


def write_unjudged(root: Path) -> None:
    """Two runs on recordings without a reference."""
    said = {"u": ("", "the harbour opens at nine"), "v": ("", "good morning")}
    write_cell(root / "method=whisperrt,chunk=300ms,limit=6,model=tiny.en", texts=said)
    write_cell(
        root / "method=ufal,chunk=300ms,limit=6,model=tiny.en",
        texts={**said, "u": ("", "the harbour opens at night")},
    )


def write_without_times(root: Path) -> Path:
    """Two runs of which no log knows how long computing took: half of the words are final after
    0.2 and 0.6 s of audio."""
    from streaming_asr.metrics.table import CA, EVERYTHING, unmeasured
    from streaming_asr.score import score_folder

    inputs = EVERYTHING - {CA}
    for method, ahead in (("ufal", 0), ("star", 1)):
        texts = {"u": ("good morning all", "good morning all")}
        folder = root / f"method={method},chunk=500ms"
        log = write_cell(folder, chunk="500ms", texts=texts, ahead=ahead) / "events.jsonl"
        head, _, rest = log.read_text(encoding="utf-8").partition("\n")
        header = json.loads(head) | {"knows": sorted(inputs), "unmeasured": unmeasured(inputs)}
        log.write_text(f"{json.dumps(header)}\n{rest}", encoding="utf-8")
        score_folder(folder, experiment="grid", cell=folder.name)
    return root


def embedded(page: Path) -> dict[str, Any]:
    """The data within a page."""
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return dict(json.loads(found[1]))


def tone(path: Path) -> Path:
    import numpy as np
    import soundfile

    times = np.arange(16000 * 3) / 16000
    soundfile.write(path, 0.1 * np.sin(880 * times), 16000, format="OGG", subtype="OPUS")
    return path
