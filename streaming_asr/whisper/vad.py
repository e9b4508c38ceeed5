"""Voice activity: which stretches of a stream are speech, decided as the audio arrives.

Silero's network for 16 kHz, of the package silero-vad: one probability per block of 512 samples,
its recurrent state and the last 64 samples handed on from block to block. Speech begins with a
block of probability 0.5 or more and ends when none came for a while (`gate_silence`, 500 ms).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streaming_asr.method import SAMPLE_RATE, Samples

BLOCK_SAMPLES = 512
CONTEXT_SAMPLES = 64
THRESHOLD = 0.5
HYSTERESIS = 0.15
"""Within speech only a probability this much below the threshold counts as silence."""
SILENCE_SAMPLES = SAMPLE_RATE // 2
"""Without speech, after which a stretch of speech ends, where no other number is given."""
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

        options = onnxruntime.SessionOptions()
        # A block takes a fraction of a millisecond: threads would cost more than they bring.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Found without an import: the package's own code loads torch.
        package = importlib.util.find_spec("silero_vad")
        assert package is not None and package.submodule_search_locations
        network = Path(package.submodule_search_locations[0]) / "data/silero_vad_16k_op15.onnx"
        self._session = onnxruntime.InferenceSession(
            str(network), options, providers=["CPUExecutionProvider"]
        )

    def stream(self) -> SpeechProbability:
        """Return the probability function of a new stream, to be called block by block."""
        state = np.zeros((2, 1, 128), np.float32)
        context = np.zeros(CONTEXT_SAMPLES, np.float32)
        rate = np.array(SAMPLE_RATE, np.int64)

        def probability(block: Samples) -> float:
            nonlocal state, context
            inputs = {"input": np.concatenate([context, block])[None], "state": state, "sr": rate}
            output, state = self._session.run(None, inputs)
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

    def __init__(
        self,
        probability: SpeechProbability,
        grid: int = 1,
        *,
        silence: int = SILENCE_SAMPLES,
        pre_roll: int = PRE_ROLL_SAMPLES,
        threshold: float = THRESHOLD,
    ) -> None:
        """grid: in samples; stretches begin at its multiples if the pause before is long enough, so
        that chunks counted from there end where those of the stream do. silence: samples without
        speech that end a stretch. pre_roll: samples before speech that belong to it. threshold:
        the least probability that is speech."""
        self._probability = probability
        self._grid, self._silence, self._pre_roll = grid, silence, pre_roll
        self._threshold = threshold
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
            if probability < self._threshold:
                # As many samples as a stretch may need from before its first block of speech.
                n_stored = self._pre_roll + self._grid - 1
                self._before = np.concatenate([self._before, block])[-n_stored:]
                return []
            begin = self._begin(start)
            audio = np.concatenate([self._before, block])[begin - start - block.size :]
            self._before = np.zeros(0, np.float32)
            self.open, self._n_silent = True, 0
            return [Stretch(audio, begin, begins=True)]
        if probability >= self._threshold:
            self._n_silent = 0
        # Once a silence has begun, only a block at the threshold ends it.
        elif probability < self._threshold - HYSTERESIS or self._n_silent:
            self._n_silent += block.size
        self.open = self._n_silent < self._silence
        return [Stretch(block[n_through:], start + n_through, ends=not self.open)]

    def _begin(self, speech: int) -> int:
        """Return the sample at which a stretch begins whose first block of speech is at `speech`.

        The last multiple of the grid that leaves the whole pre-roll; else the first one that is
        stored, if it leaves 0.1 s; else the first sample that is stored.
        """
        first_stored, grid = speech - self._before.size, self._grid
        with_pre_roll = (speech - self._pre_roll) // grid * grid
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
