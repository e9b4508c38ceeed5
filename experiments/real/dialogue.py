"""Human speech to train on: the actors of two games, written down with word times by Whisper base.

    python -m experiments.real.dialogue --out outputs/real/dialogue [--processes 2]

OUT/train.jsonl and OUT/dev.jsonl are what data=manifest reads, OUT/audio holds FLAC at 16 kHz,
OUT/labels.jsonl what base heard. A command that was stopped goes on when it is given again.

Lines of one speaker are joined with pauses to recordings of at most 20 s, so that base hears
enough at once; what it wrote is cut at the pauses again. Its int8 form in CTranslate2 writes 14 s
of audio in a second of one core. Nobody checked the texts: an utterance is left out where base
itself is unsure, and where it wrote too few or too many words for the time. Every twelfth speaker,
by a hash, is kept from training: dev has the clips of theirs that base was surest of.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.real.games import RATE, Line, lines
from experiments.real.labels import COMPRESSION, SURE, WORDS_A_SECOND, hear, load
from experiments.real.packages import AMAZON_QUEEN, STEEL_SKY, cache_root
from experiments.real.speech import read_lines
from experiments.real.training_set import LONGEST_WORD_S
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.run.obtain import table
from streaming_asr.terminal import exit_status

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

LINE_S = (0.9, 20.0)  # a shorter or longer line is no sentence
JOINED_S = 19.5
PAUSE_S, PART_PAUSE_S, EDGE_S = 0.6, 0.15, 0.3
MARGIN_S = (0.15, 0.2)  # of the pause, kept before and after an utterance
N_DEV, DEV_S, DEV_SHARE = 40, (3.0, 14.0), 12

Span = tuple[str, float, float]  # a line's sentence, its start and its end in the recording


@dataclass
class Joined:
    """Lines of one speaker in one recording."""

    speaker: str
    lines: list[Line] = field(default_factory=list)
    length_s: float = 0.0

    def samples(self) -> tuple[np.ndarray, list[Span]]:
        """The recording at SAMPLE_RATE, (n,) float32, each line at its own full level, and where
        each line lies."""
        from scipy.signal import resample_poly

        pieces, spans = [_silence(EDGE_S)], []
        n = len(pieces[0])
        for i, line in enumerate(self.lines):
            if i:
                pieces.append(_silence(_pause_s(self.lines[i - 1], line)))
                n += len(pieces[-1])
            part = resample_poly(line.samples, SAMPLE_RATE, RATE).astype(np.float32)
            part *= 0.6 / max(1e-3, float(np.abs(part).max()))
            spans.append((line.sentence, n / SAMPLE_RATE, (n + len(part)) / SAMPLE_RATE))
            pieces.append(part)
            n += len(part)
        return np.concatenate([*pieces, _silence(EDGE_S)]), spans


def _silence(seconds: float) -> np.ndarray:
    return np.zeros(int(seconds * SAMPLE_RATE), np.float32)


def _pause_s(before: Line, line: Line) -> float:
    return PART_PAUSE_S if before.sentence == line.sentence else PAUSE_S


def join(all_lines: Iterable[Line]) -> list[Joined]:
    """Recordings of lines that one speaker says in turn, of at most JOINED_S."""
    joins: list[Joined] = []
    for line in sorted(all_lines, key=lambda line: (line.speaker, line.name)):
        length_s = len(line.samples) / RATE
        if not LINE_S[0] <= length_s <= LINE_S[1]:
            continue
        last = joins[-1] if joins else None
        if last is None or last.speaker != line.speaker or last.length_s + length_s > JOINED_S:
            joins.append(last := Joined(line.speaker))
        last.length_s += length_s + (_pause_s(last.lines[-1], line) if last.lines else PAUSE_S)
        last.lines.append(line)
    return joins


# -- what base hears ----------------------------------------------------------------------------


_base: WhisperModel | None = None


def _start(folder: str) -> None:
    global _base
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops the processes
    _base = load(folder)


def label(numbered: tuple[int, Joined]) -> dict[str, Any]:
    """The recording's number, its words as [word, start, end, probability], and the worst
    compression ratio of its segments."""
    assert _base is not None
    n, joined = numbered
    heard = hear(_base, joined.samples()[0])
    return {"n": n, "words": heard["words"], "compression": heard["compression"]}


def labels(joined: Sequence[Joined], path: Path, processes: int) -> dict[int, dict[str, Any]]:
    """What base hears in each recording; `path` keeps it, and only what it lacks is made."""
    from rich.progress import track

    row_of = {row["n"]: row for row in read_lines(path)}
    missing = [(n, each) for n, each in enumerate(joined) if n not in row_of]
    start = partial(_start, str(table()["base"]().folder))
    with (
        ProcessPoolExecutor(processes, initializer=start) as pool,
        path.open("a", encoding="utf-8", buffering=1) as file,
    ):
        for row in track(pool.map(label, missing), "writing down", total=len(missing)):
            file.write(json.dumps(row) + "\n")
            row_of[row["n"]] = row
    return row_of


# -- utterances ---------------------------------------------------------------------------------


def cut(
    spans: Sequence[Span], words: Sequence[Sequence[Any]], total_s: float
) -> Iterator[tuple[int, float, float, list[tuple[str, float, float]], float]]:
    """The utterances of a recording: number, start and end in it, words with times from its start,
    and the words' mean probability; only those that can be right (see the module)."""
    bounds: list[list[float]] = []
    for i, (sentence, start_s, end_s) in enumerate(spans):
        if i and spans[i - 1][0] == sentence:
            bounds[-1][1] = end_s
        else:
            bounds.append([start_s, end_s])
    for number, (first_s, last_s) in enumerate(bounds):
        start_s, end_s = max(0.0, first_s - MARGIN_S[0]), min(total_s, last_s + MARGIN_S[1])
        inside = [w for w in words if first_s - 0.3 <= (w[1] + w[2]) / 2 <= last_s + 0.3]
        rate = len(inside) / (last_s - first_s)
        if not inside or not WORDS_A_SECOND[0] <= rate <= WORDS_A_SECOND[1]:
            continue
        sure = sum(w[3] for w in inside) / len(inside)
        if sure < SURE or max(w[2] - w[1] for w in inside) > LONGEST_WORD_S:
            continue
        timed, before_s = [], first_s  # base lets a first word begin in the pause before it
        for text, begins_s, ends_s, _ in inside:
            begins_s = min(max(begins_s, before_s), last_s)
            before_s = min(max(ends_s, begins_s), last_s)
            timed.append((text.strip(), round(begins_s - start_s, 3), round(before_s - start_s, 3)))
        yield number, start_s, end_s, timed, sure


def kept_for_dev(speaker: str) -> bool:
    """Whether the speaker is one of every twelfth."""
    return int.from_bytes(hashlib.sha256(speaker.encode()).digest()[:4], "big") % DEV_SHARE == 0


def utterances(joined: Sequence[Joined], heard: dict[int, dict[str, Any]], out: Path) -> None:
    """Writes the audio and both manifests."""
    import soundfile

    (out / "audio").mkdir(exist_ok=True)
    train: list[dict[str, Any]] = []
    dev: list[tuple[float, dict[str, Any]]] = []
    for n, each in enumerate(joined):
        row = heard[n]
        if row["compression"] > COMPRESSION:
            continue
        samples, spans = each.samples()
        for number, start_s, end_s, words, sure in cut(
            spans, row["words"], len(samples) / SAMPLE_RATE
        ):
            name = f"{each.lines[0].name}-{number}"
            clip = samples[round(start_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            soundfile.write(out / "audio" / f"{name}.flac", clip, SAMPLE_RATE, subtype="PCM_16")
            labelled = {
                "id": name,
                "audio_filepath": f"audio/{name}.flac",
                "duration": len(clip) / SAMPLE_RATE,
                "text": " ".join(word for word, _, _ in words),
                "speaker": each.speaker,
                "language": "en",
                "words": words,
            }
            if not kept_for_dev(each.speaker):
                train.append(labelled)
            elif DEV_S[0] <= labelled["duration"] <= DEV_S[1]:
                dev.append((sure, labelled))
    dev.sort(key=lambda pair: (-pair[0], pair[1]["id"]))
    surest = [row for _, row in dev[:N_DEV]]
    for rows, name in ((train, "train.jsonl"), (surest, "dev.jsonl")):
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_text(out / name, text)
        minutes = sum(row["duration"] for row in rows) / 60
        speakers = len({row["speaker"] for row in rows})
        print(f"{out / name}: {len(rows)} utterances, {minutes:.1f} min, {speakers} speakers")


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the speech")
    parser.add_argument("--limit", type=int, help="only so many recordings, to try it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    for package in (STEEL_SKY, AMAZON_QUEEN):
        print(f"{package}: {package.licence}")
    joined = join(lines(cache_root()))[: options.limit]
    options.out.mkdir(parents=True, exist_ok=True)
    heard = labels(joined, options.out / "labels.jsonl", options.processes)
    utterances(joined, heard, options.out)


if __name__ == "__main__":
    sys.exit(exit_status(program))
