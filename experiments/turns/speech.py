"""Turns of speech with a pause behind each, and a method that writes nothing.

The gate finds the ends of turns in the audio, so no words need be recognised to measure them.

    python -m experiments.turns.speech data=manifest data.path=FILE data.align=auto --out FILE.jsonl
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from streaming_asr.align.auto import timed_utterances
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.join import Joined
from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import TimedWord, Utterance

TURNS = 10  # in a recording
PAUSE_S = 4.0  # behind a turn
ROOM = 1e-3  # of full scale: the faint noise of a room


class Ends:
    """A method without text."""

    lookahead_samples = 0

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> None:
        """Return the state, which is None."""

    def step(self, state: None, audio: Samples, *, last: bool) -> Update:
        """Return an empty update."""
        return Update()


@dataclass(frozen=True)
class InRoom:
    """Audio, (n,) at 16 kHz, with PAUSE_S after it and the faint noise of a room."""

    audio: Joined

    def __call__(self) -> Samples:
        samples = np.pad(self.audio(), (0, round(PAUSE_S * SAMPLE_RATE)))
        noise = np.random.default_rng(0).normal(scale=ROOM, size=samples.shape)
        return np.clip(samples + noise, -1, 1).astype(np.float32)


def recordings(turns: Sequence[Utterance]) -> Iterator[Utterance]:
    """Yield recordings of up to TURNS utterances of a speaker, each with PAUSE_S after it."""
    for speaker in sorted({turn.speaker or "" for turn in turns}):
        clips_of_speaker = [
            turn for turn in turns if (turn.speaker or "") == speaker and turn.words
        ]
        for first in range(0, len(clips_of_speaker), TURNS):
            clips = tuple(clips_of_speaker[first : first + TURNS])
            ends_s = list(itertools.accumulate(clip.duration_s + PAUSE_S for clip in clips))
            begins_s = (0.0, *ends_s[:-1])
            words = tuple(
                TimedWord(text, begin_s + start, begin_s + end)
                for clip, begin_s in zip(clips, begins_s, strict=True)
                for text, start, end in clip.words or ()
            )
            yield replace(
                clips[0],
                id=f"{speaker}-{first // TURNS}",
                text=" ".join(clip.text for clip in clips),
                words=words,
                audio=InRoom(Joined(clips, begins_s)),
                duration_s=ends_s[-1],
            )


def write(settings: Sequence[str], out: Path) -> None:
    """Write the recordings made of a corpus, with their manifest `out`."""
    turns = timed_utterances(compose_raw(settings).data, None)
    print(f"{write_manifest(recordings(turns), out)} recordings: {out}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m experiments.turns.speech")
    parser.add_argument(
        "settings", nargs="+", help="of the corpus, as data=manifest data.path=FILE"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args(argv)
    return exit_status(lambda: write(arguments.settings, arguments.out))


if __name__ == "__main__":
    sys.exit(main())
