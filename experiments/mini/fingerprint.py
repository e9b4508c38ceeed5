"""Records what every method says on mini, step by step, and compares it with the record kept here.

    python -m experiments.mini.fingerprint            # compare with fingerprint.json
    python -m experiments.mini.fingerprint --write    # make it anew

Twelve utterances of `clean`, at 300 ms and 1 s, for every method and for the variants in VARIANTS.
A cell's fingerprint is, for each utterance, the hash of (audio heard, committed, partial, taken
back) over its steps, and the final text. A change of the code that should change no text is held
against it; one that should names the cells in CHANGELOG.md and writes the record anew.
Takes about 5 minutes on 2 cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from streaming_asr.events.log import read_log
from streaming_asr.files import CONF_DIR

RECORD = Path(__file__).with_name("fingerprint.json")
CHUNKS = ("300ms", "1s")
N_UTTERANCES = 12
VARIANTS = (
    ("offline", "method.beam=5"),
    ("whisperrt", "method.beam=3"),
    ("simul_whisper", "method.beam=3"),
    ("ufal", "method.backend=torch"),
    ("ufal", "method.compat=true"),
)


def cells() -> list[list[str]]:
    """Return the overrides of every cell, of all methods that run on mini."""
    others = {"native", "remote"}  # models of their own, a server's texts
    methods = sorted({path.stem for path in (CONF_DIR / "method").glob("*.yaml")} - others)
    pairs = [(method,) for method in methods] + list(VARIANTS)
    return [
        [f"method={method}", f"chunk={chunk}", *rest] for method, *rest in pairs for chunk in CHUNKS
    ]


def run(overrides: list[str], output: str) -> dict[str, dict[str, str]]:
    """Utterance id -> hash of its steps and final text, of one run. Raises CalledProcessError."""
    fixed = ["model=mini", "data=mini", "tracker=none", "threads=1", f"limit={N_UTTERANCES}"]
    command = [sys.executable, "-m", "streaming_asr.run", *fixed, *overrides, f"output={output}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (log,) = Path(output).rglob("events.jsonl")
    fingerprints = {}
    for utterance in read_log(log).utterances:
        words: list[str] = []
        rows = []
        for step in utterance.steps:
            rows.append([step.audio_samples, step.committed, step.partial, step.retracted])
            words = words[: len(words) - step.retracted] + step.committed
        digest = hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
        fingerprints[utterance.utt] = {"steps": digest, "text": "".join(words)}
    return fingerprints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="make fingerprint.json anew")
    arguments = parser.parse_args()
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    different = 0
    for overrides in cells():
        name = " ".join(overrides)
        with tempfile.TemporaryDirectory() as output:
            fingerprints = run(overrides, output)
        before = record.get(name, {})
        changed = [utt for utt in fingerprints if fingerprints[utt] != before.get(utt)]
        different += bool(changed)
        print(
            f"{name}: {'equal' if not changed else f'{len(changed)} of {len(fingerprints)} differ'}"
        )
        for utt in changed[:3] if not arguments.write else ():
            print(f"  {utt}\n    was {before.get(utt)}\n    is  {fingerprints[utt]}")
        record[name] = fingerprints
        if arguments.write:
            RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0 if arguments.write else min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
