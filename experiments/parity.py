"""The authors' code and ours on real weights: the same clips, chunk by chunk, compared by hashes.

    git clone https://github.com/ufal/SimulStreaming REFERENCE                 # at 077ea37
    git clone https://github.com/tomer9080/WhisperRT-Streaming REFERENCE       # at c09cb4b
    pip install tiktoken numba more_itertools      # best in an environment of its own
    python -m experiments.parity whisperrt REFERENCE --write

Both sides run on Debian's prompts with tiny.en. The prompts are CC-BY-SA: a fixture holds hashes
and counts of the words, no text and no audio. Each module of `REFERENCES` has the code's name, the
packages and settings that the fixture names, and `rows(checkout, clips)`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from streaming_asr.cells.hashes import HERE
from streaming_asr.chunking import Schedule
from streaming_asr.corpora.prompts import Prompts
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.models.hash import weights_hash
from streaming_asr.utterance import Utterance

REFERENCES = {
    "simul_whisper": "experiments.simul_whisper.parity",
    "whisperrt": "experiments.whisperrt.parity",
}
MODEL = "openai/whisper-tiny.en"
ADAPTER = HERE / "data" / "weights" / "tiny.en" / "whisperrt" / "any_chunk"
FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "real"
EQUAL = "equal"


def prompts(limit: int) -> list[Utterance]:
    """The prompts that the protocol of experiments/real takes first, the shortest ahead.

    So a run that is stopped has compared most of them; what it has is written.
    """
    return sorted(Prompts(language="en").utterances(limit), key=lambda clip: clip.duration_s)


def pieces(
    audio: np.ndarray, chunk_s: float, first_chunk_s: float | None = None, lookahead: int = 0
) -> Iterator[tuple[np.ndarray, bool]]:
    """The audio as the simulator delivers it, and whether a piece is the last."""
    chunk, first = (round(s * SAMPLE_RATE) for s in (chunk_s, first_chunk_s or chunk_s))
    start = 0
    for end in Schedule(chunk, first, lookahead).ends(len(audio)):
        yield audio[start:end], end == len(audio)
        start = end


def digest(parts: Iterable[object]) -> str:
    """A hash of all parts in their order."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:16]


def stand_in(*names: str, **content: Any) -> None:
    """Empty modules, with `content`, for packages that are not installed and not called."""
    for name in names:
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            module.__spec__ = importlib.util.spec_from_loader(name, None)
            vars(module).update(content)
            sys.modules[name] = module


def commit_of(checkout: Path) -> str:
    """The commit of a checkout, or the content of its file COMMIT (an archive has no history)."""
    file = checkout / "COMMIT"
    if file.is_file():
        return file.read_text(encoding="utf-8").strip()[:7]
    command = ["git", "-C", str(checkout), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def summary(steps: Sequence[Sequence[object]]) -> dict[str, Any]:
    """What was added in each step: how much, and one hash of all of it."""
    return {"n": [len(step) for step in steps], "hash": digest(x for step in steps for x in step)}


def compared(
    clip: Utterance, theirs: Mapping[str, Any], ours: Mapping[str, Any], cause: str = ""
) -> dict[str, Any]:
    """A row of the fixture. Ours is in it only where it differs, with the cause by name."""
    row = {"id": clip.id, "n_samples": len(clip.load()), "reference": dict(theirs)}
    return row if theirs == ours else row | {"ours": dict(ours), "cause": cause or "unnamed"}


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Clips by what they are: equal, or different by a cause."""
    return dict(Counter(row.get("cause", EQUAL) for row in rows))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=REFERENCES)
    parser.add_argument("reference", type=Path, help="a checkout of the authors' code")
    parser.add_argument("--limit", type=int, default=20, help="clips")
    parser.add_argument("--write", action="store_true", help="write the fixture of the tests")
    options = parser.parse_args(argv)
    module = importlib.import_module(REFERENCES[options.name])
    rows: list[dict[str, Any]] = []
    try:
        for row in module.rows(options.reference, prompts(options.limit)):
            rows.append(row)
            print(row["id"], row.get("cause", EQUAL), *row.get("faults", ()), flush=True)
    finally:  # also what was compared before an interruption
        print(f"clips: {counts(rows)}")
        if options.write and rows:
            write(options.name, module, commit_of(options.reference), rows)


def write(name: str, module: Any, commit: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write tests/fixtures/real/<name>.json, a line for each clip."""
    header = {
        "reference": f"{module.CODE}@{commit}",
        "versions": {package: version(package) for package in module.PACKAGES},
        "model": weights_hash(MODEL),
        "data": Prompts(language="en").data_hash(),
        "settings": module.SETTINGS,
        "counts": counts(rows),
    }
    lines = ",\n  ".join(map(json.dumps, rows))
    path = FIXTURES / f"{name}.json"
    path.write_text(f'{json.dumps(header, indent=1)[:-2]},\n "clips": [\n  {lines}\n ]\n}}\n')
    print(f"written: {path}")


if __name__ == "__main__":
    main()
