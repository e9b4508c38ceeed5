"""Six native readers' recordings that adapters are chosen on, next to those of `dev`.

    python -m experiments.real.readers --out outputs/real/readers.jsonl

Five sentences of a LibriVox volunteer who reads Sense and Sensibility, from Debian's test data of
PocketSphinx, and the first sentence of A Tale of Two Cities, from PyPI's moonshine-voice: 1.1
minutes, 190 words. The texts are as they are spoken.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.real.packages import AUSTEN, DICKENS, cache_root, obtain
from streaming_asr.corpora.audio import File, duration_s
from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import Utterance

SAID = re.compile(r"<s> (?P<text>.*) </s> \((?P<id>\S+)\)")
TWO_CITIES = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season of light, it was the season of darkness, it was the spring of hope, it was the winter "
    "of despair, we had everything before us, we had nothing before us, we were all going direct "
    "to heaven, we were all going direct the other way, in short, the period was so far like the "
    "present period, that some of its noisiest authorities insisted on its being received, for "
    "good or for evil, in the superlative degree of comparison only."
)


def readers(root: Path) -> Iterator[Utterance]:
    """The recordings, of the packages below `root`."""
    austen = obtain(AUSTEN, root) / AUSTEN.holds_at
    for line in (austen / "transcription").read_text("utf-8").splitlines():
        match = SAID.fullmatch(line.strip())
        if match:
            yield _utterance(match["id"], match["text"], austen / f"{match['id']}.wav", "austen")
    dickens = obtain(DICKENS, root) / DICKENS.holds_at
    yield _utterance("two_cities", TWO_CITIES, dickens / "two_cities.wav", "dickens")


def _utterance(name: str, text: str, file: Path, speaker: str) -> Utterance:
    return Utterance(name, text, File(file), duration_s(file), speaker=speaker, language="en")


def program(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the manifest")
    options = parser.parse_args(arguments)
    for package in (AUSTEN, DICKENS):
        print(f"{package}: {package.licence}")
    print(f"{write_manifest(readers(cache_root()), options.out)} recordings in {options.out}")


if __name__ == "__main__":
    sys.exit(exit_status(program))
