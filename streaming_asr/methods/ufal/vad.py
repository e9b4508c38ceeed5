"""Voice activity: which stretches of a stream are speech, decided as the audio arrives.

Silero's network as it lies in faster-whisper's package (ONNX, no network access): one probability
per block of 512 samples, its recurrent state and the last 64 samples handed on from block to block.
Speech begins with a block of probability 0.5 or more and ends when none came for 500 ms.
"""

from __future__ import annotations

from collections.abc import Callable
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
                "or use method.vad=false"
            )
        options = onnxruntime.SessionOptions()
        # A block takes a fraction of a millisecond: threads would cost more than they bring.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(
            str(networks[-1]), options, providers=["CPUExecutionProvider"]
        )

    def stream(self) -> SpeechProbability:
        hidden = cell = np.zeros((1, 1, 128), np.float32)
        context = np.zeros(CONTEXT_SAMPLES, np.float32)

        def probability(block: Samples) -> float:
            nonlocal hidden, cell, context
            fed = {"input": np.concatenate([context, block])[None], "h": hidden, "c": cell}
            found, hidden, cell = self._session.run(None, fed)
            context = block[-CONTEXT_SAMPLES:]
            return float(np.ravel(found)[0])

        return probability


@dataclass(frozen=True, slots=True)
class Stretch:
    """Speech, or a part of it: `audio` begins at sample `start` of the stream."""

    audio: Samples
    start: int
    begins: bool = False
    ends: bool = False


class Gate:
    """Lets speech through as it arrives, the pause at its end included, and holds back the rest."""

    def __init__(self, probability: SpeechProbability) -> None:
        self._probability = probability
        self._waiting: Samples = np.zeros(0, np.float32)
        """Less than a block."""
        self._before: Samples = np.zeros(0, np.float32)
        """The last samples that were not speech."""
        self._n_seen = 0
        self._n_silent = 0
        self.open = False

    def push(self, audio: Samples, *, last: bool) -> list[Stretch]:
        """Return the speech in (n,) more samples; open speech ends at the stream's `last`."""
        self._waiting = np.concatenate([self._waiting, np.asarray(audio, np.float32)])
        stretches: list[Stretch] = []
        while self._waiting.size >= BLOCK_SAMPLES:
            block, self._waiting = np.split(self._waiting, [BLOCK_SAMPLES])
            stretches += self._take(block)
        if last and self.open:
            stretches.append(Stretch(self._waiting, self._n_seen, ends=True))
            self.open = False
        return stretches

    def _take(self, block: Samples) -> list[Stretch]:
        probability = self._probability(block)
        start = self._n_seen
        self._n_seen += block.size
        if not self.open:
            if probability < THRESHOLD:
                self._before = np.concatenate([self._before, block])[-PRE_ROLL_SAMPLES:]
                return []
            audio = np.concatenate([self._before, block])
            start -= self._before.size
            self._before = np.zeros(0, np.float32)
            self.open, self._n_silent = True, 0
            return [Stretch(audio, start, begins=True)]
        if probability >= THRESHOLD:
            self._n_silent = 0
        # Once a silence has begun, only a block of clear speech ends it.
        elif probability < THRESHOLD - HYSTERESIS or self._n_silent:
            self._n_silent += block.size
        self.open = self._n_silent < MIN_SILENCE_SAMPLES
        return [Stretch(block, start, ends=not self.open)]
