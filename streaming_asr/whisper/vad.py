"""Voice activity: which stretches of a stream are speech, decided as the audio arrives.

Silero's network as it lies in faster-whisper's package (ONNX, no network access): one probability
per block of 512 samples, its recurrent state and the last 64 samples handed on from block to block.
Speech begins with a block of probability 0.5 or more and ends when none came for 500 ms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples

BLOCK_SAMPLES = 512
CONTEXT_SAMPLES = 64
THRESHOLD = 0.5
HYSTERESIS = 0.15
"""Within speech only a probability this much below the threshold counts as silence."""
MIN_SILENCE_SAMPLES = SAMPLE_RATE // 2
PRE_ROLL_SAMPLES = SAMPLE_RATE // 2
"""Audio from before the first block of speech that is counted to it: onsets are soft."""
ONSET_SAMPLES = SAMPLE_RATE // 10
"""The least of it, where a stretch begins on a grid."""

SpeechProbability = Callable[[Samples], float]
"""Of one block; may keep what it needs of the blocks before."""


class Silero:
    """The network; `stream()` makes the probability function of one stream."""

    def __init__(self) -> None:
        import onnxruntime
        from faster_whisper.utils import get_assets_path

        networks = sorted(Path(get_assets_path()).glob("silero_vad*.onnx"))
        if not networks:
            raise UserError(
                "faster-whisper's package holds no silero_vad*.onnx; install faster-whisper>=1.1 "
                "or transcribe all sound: gate=none, method.vad=false"
            )
        options = onnxruntime.SessionOptions()
        # A block takes a fraction of a millisecond: threads would cost more than they bring.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            str(networks[-1]), options, providers=["CPUExecutionProvider"]
        )

    def stream(self) -> SpeechProbability:
        """Return the probability function of a new stream, to be called block by block."""
        hidden = cell = np.zeros((1, 1, 128), np.float32)
        context = np.zeros(CONTEXT_SAMPLES, np.float32)

        def probability(block: Samples) -> float:
            nonlocal hidden, cell, context
            inputs = {"input": np.concatenate([context, block])[None], "h": hidden, "c": cell}
            output, hidden, cell = self._session.run(None, inputs)
            context = block[-CONTEXT_SAMPLES:]
            return float(np.ravel(output)[0])

        return probability


@dataclass(frozen=True, slots=True)
class Stretch:
    """Speech, or a part of it: `audio` begins at sample `start` of the stream."""

    audio: Samples
    start: int
    begins: bool = False
    ends: bool = False


class Gate:
    """Lets speech through as it arrives, the pause at its end included, and holds back the rest.

    What is let through depends only on the stream's samples, not on the pieces it comes in.
    """

    def __init__(self, probability: SpeechProbability, grid: int = 1) -> None:
        """grid: in samples; stretches begin at its multiples if the pause before is long enough, so
        that chunks counted from there end where those of the stream do."""
        self._probability = probability
        self._grid = grid
        self._waiting: Samples = np.zeros(0, np.float32)
        """Less than a block; while the gate is open all of it has been let through."""
        self._before: Samples = np.zeros(0, np.float32)
        """The last samples that were not speech."""
        self._n_seen = 0
        self._n_silent = 0
        self.open = False

    def push(self, audio: Samples, *, last: bool) -> list[Stretch]:
        """Return the speech in (n,) more samples; open speech ends at the stream's `last`."""
        # Samples of the unfinished block that earlier calls have returned.
        n_through = self._waiting.size if self.open else 0
        self._waiting = np.concatenate([self._waiting, np.asarray(audio, np.float32)])
        stretches: list[Stretch] = []
        while self._waiting.size >= BLOCK_SAMPLES:
            block, self._waiting = np.split(self._waiting, [BLOCK_SAMPLES])
            stretches += self._take(block, n_through)
            n_through = 0
        if self.open:
            rest = Stretch(self._waiting[n_through:], self._n_seen + n_through, ends=last)
            stretches += [rest] if last or rest.audio.size else []
            self.open = not last
        return _joined(stretches)

    def _take(self, block: Samples, n_through: int) -> list[Stretch]:
        """Return the speech in one block without its first `n_through` samples; [] for none."""
        probability = self._probability(block)
        start = self._n_seen
        self._n_seen += block.size
        if not self.open:
            if probability < THRESHOLD:
                # As many samples as a stretch may need from before its first block of speech.
                n_stored = PRE_ROLL_SAMPLES + self._grid - 1
                self._before = np.concatenate([self._before, block])[-n_stored:]
                return []
            begin = self._begin(start)
            audio = np.concatenate([self._before, block])[begin - start - block.size :]
            self._before = np.zeros(0, np.float32)
            self.open, self._n_silent = True, 0
            return [Stretch(audio, begin, begins=True)]
        if probability >= THRESHOLD:
            self._n_silent = 0
        # Once a silence has begun, only a block with a probability of THRESHOLD ends it.
        elif probability < THRESHOLD - HYSTERESIS or self._n_silent:
            self._n_silent += block.size
        self.open = self._n_silent < MIN_SILENCE_SAMPLES
        return [Stretch(block[n_through:], start + n_through, ends=not self.open)]

    def _begin(self, speech: int) -> int:
        """Return the sample at which a stretch begins whose first block of speech is at `speech`.

        The last multiple of the grid that leaves the whole pre-roll; else the first one that is
        stored, if it leaves 0.1 s; else the first sample that is stored.
        """
        first_stored, grid = speech - self._before.size, self._grid
        with_pre_roll = (speech - PRE_ROLL_SAMPLES) // grid * grid
        if with_pre_roll >= first_stored:
            return with_pre_roll
        first_multiple = -(-first_stored // grid) * grid
        leaves_onset = first_multiple <= speech - ONSET_SAMPLES
        return first_multiple if leaves_onset else first_stored


def _joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Return the stretches, each joined with those that continue it."""
    groups: list[list[Stretch]] = []
    for stretch in stretches:
        if stretch.begins or not groups or groups[-1][-1].ends:
            groups.append([])
        groups[-1].append(stretch)
    return [
        Stretch(
            np.concatenate([each.audio for each in parts]),
            parts[0].start,
            begins=parts[0].begins,
            ends=parts[-1].ends,
        )
        for parts in groups
    ]
