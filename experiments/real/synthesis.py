"""Speech with exact word times, by Kokoro-82M with the phonemizer of hibari.

The network rounds a duration per phoneme to units of 25 ms before it makes sound of it. That tensor
is no output of its ONNX file; it is made one here, and gives the words' times. Two things are put
right. The sound comes 50 ms before its durations: so much of a shift fits the loudness of vowels
best. And the phoneme before a pause holds the pause's silence as well: there a word ends where its
sound ends.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.real.packages import HIBARI, KOKORO, VOICES
from streaming_asr.corpora.audio import load_audio

RATE = 24_000
UNIT_S = 0.025  # 600 samples
DURATIONS = "/encoder/Clip_output_0"
LEAD_UNITS = 2  # the sound comes so much before its durations
MAX_PHONEMES = 508  # Kokoro's context, without the pads at both ends
SILENT = frozenset(';:,.!?—…"()“” ')
PAUSES = tuple(",;:.?!")  # what a word ends in before a pause
HEARD = 0.01  # of the level of the loudest 5 ms: -40 dB

TimedWords = list[tuple[str, float, float]]


class Unmatched(Exception):
    """The words of a sentence cannot be matched with its phonemes."""


@dataclass(frozen=True)
class Clip:
    """What is to be said: sentences of one voice, a pause of `pauses_s` after each but the last."""

    voice: str
    speed: float
    sentences: tuple[str, ...]
    pauses_s: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        return " ".join(self.sentences)


def word_times(
    phonemes: str, durations: Sequence[float], sentence: str, vocabulary: Mapping[str, int]
) -> TimedWords:
    """Each written word of `sentence` with its start and end in seconds.

    `durations`: those of the pad before, of each phoneme in the vocabulary, and of the pad after,
    in units of 25 ms. A spoken word is a run of phonemes between spaces, from its first sounding
    phoneme to its last. Raises Unmatched where there are not as many spoken words as written ones.
    """
    symbols = [symbol for symbol in phonemes if symbol in vocabulary]
    if len(durations) != len(symbols) + 2:
        raise Unmatched(f"{len(symbols)} phonemes, {len(durations)} durations")
    ends = np.maximum(np.cumsum(durations) - LEAD_UNITS, 0) * UNIT_S
    spans: list[tuple[float, float]] = []
    in_word = False
    for i, symbol in enumerate(symbols):
        if symbol == " ":
            in_word = False
        elif symbol not in SILENT:
            start = spans.pop()[0] if in_word else float(ends[i])
            spans.append((start, float(ends[i + 1])))
            in_word = True
    words = sentence.split()
    if len(words) != len(spans):
        raise Unmatched(f"{len(words)} words written, {len(spans)} spoken")
    return [
        (word, round(start, 3), round(end, 3))
        for word, (start, end) in zip(words, spans, strict=True)
    ]


def joined(
    spoken: Sequence[tuple[np.ndarray, TimedWords]], pauses_s: Sequence[float]
) -> tuple[np.ndarray, TimedWords]:
    """Recordings at 24 kHz in one, with `pauses_s` of silence between, and its words' times."""
    parts: list[np.ndarray] = []
    words: TimedWords = []
    n_samples = 0
    for (samples, timed), pause_s in zip(spoken, (*pauses_s, 0.0), strict=True):
        start_s = n_samples / RATE
        words += [(w, round(a + start_s, 3), round(b + start_s, 3)) for w, a, b in timed]
        parts += [samples, np.zeros(round(pause_s * RATE), np.float32)]
        n_samples += len(parts[-2]) + len(parts[-1])
    return np.concatenate(parts), words


def with_output(model: bytes, node: str) -> bytes:
    """An ONNX model with the tensor `node` (float32) as one more output, the last.

    Messages of protobuf that follow one another are read as one: repeated fields are
    joined. So the output is appended as a model that holds nothing else.
    """

    def field(number: int, content: bytes) -> bytes:
        if len(content) > 127:
            raise ValueError(f"{len(content)} bytes: a length of one byte reaches to 127")
        return bytes([number << 3 | 2, len(content)]) + content

    tensor = field(1, bytes([1 << 3, 1]))  # TypeProto.tensor_type: elem_type = FLOAT
    value = field(1, node.encode()) + field(2, tensor)  # ValueInfoProto: name, type
    return model + field(7, field(12, value))  # ModelProto.graph: GraphProto.output


class Speaker:
    """The network, loaded on first use; one thread."""

    def __init__(self, root: Path) -> None:
        """`root`: the cache that holds the packages."""
        self._root = root
        self._loaded: Any = None
        self._phonemizers: dict[bool, Any] = {}
        package = root / HIBARI.folder
        if str(package) not in sys.path:
            sys.path.append(str(package))
        vocabulary = (package / "hibari/assets/vocab.json").read_text("utf-8")
        self._vocabulary: dict[str, int] = json.loads(vocabulary)

    def say(self, clip: Clip) -> tuple[np.ndarray, TimedWords]:
        """float32 (n,) at 24 kHz and the times of the words. Raises Unmatched."""
        return joined([self._sentence(clip, each) for each in clip.sentences], clip.pauses_s)

    def _sentence(self, clip: Clip, sentence: str) -> tuple[np.ndarray, TimedWords]:
        phonemes = self._phonemizer(clip.voice.startswith("b"))(sentence)
        ids = [self._vocabulary[symbol] for symbol in phonemes if symbol in self._vocabulary]
        if not 0 < len(ids) <= MAX_PHONEMES:
            raise Unmatched(f"{len(ids)} phonemes")
        padded = np.array([[0, *ids, 0]], np.int64)
        feed = {
            "tokens": padded,
            "style": self._style(clip.voice, len(ids)),
            "speed": np.array([clip.speed], np.float32),
        }
        samples, durations = self._session().run(None, feed)
        timed = word_times(phonemes, durations.ravel(), sentence, self._vocabulary)
        return np.asarray(samples, np.float32).ravel(), timed

    def _phonemizer(self, british: bool) -> Any:
        if british not in self._phonemizers:
            g2p = importlib.import_module("hibari.g2p").G2P
            self._phonemizers[british] = g2p(british=british)
        return self._phonemizers[british]

    def _style(self, voice: str, n_phonemes: int) -> np.ndarray:
        """float32 (1, 256): a voice has one for each number of phonemes."""
        file = self._root / VOICES.folder / f"package/voices/{voice}.bin"
        return np.fromfile(file, np.float32).reshape(-1, 256)[n_phonemes - 1][None]

    def _session(self) -> Any:
        if self._loaded is None:
            import onnxruntime

            parts = [next((self._root / p.folder).glob("*/part.bin")) for p in KOKORO]
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            options.log_severity_level = 3
            self._loaded = onnxruntime.InferenceSession(
                with_output(b"".join(part.read_bytes() for part in parts), DURATIONS),
                options,
                providers=["CPUExecutionProvider"],
            )
        return self._loaded


def heard(words: TimedWords, samples: np.ndarray) -> TimedWords:
    """The words without the silence of the pauses before and after them.

    `samples` at 16 kHz. A silent word keeps its times.
    """
    n_frames = len(samples) // 80
    levels = np.sqrt(np.mean(samples[: n_frames * 80].reshape(n_frames, 80) ** 2, axis=1))
    loud = levels > HEARD * levels.max()
    trimmed: TimedWords = []
    paused = True
    for word, start, end in words:
        first = round(start * 200)
        inside = first + np.flatnonzero(loud[first : round(end * 200)])
        if len(inside) and paused:
            start = round(inside[0] / 200, 3)
        paused = word.endswith(PAUSES)
        if len(inside) and paused:
            end = round((inside[-1] + 1) / 200, 3)
        trimmed.append((word, start, end))
    return trimmed


def write(
    samples: np.ndarray,
    words: TimedWords,
    path: Path,
    heard_through: Callable[[np.ndarray], np.ndarray] = lambda samples: samples,
) -> tuple[float, TimedWords]:
    """Writes 24 kHz samples as Ogg Opus of 24 kbit/s at 16 kHz.

    `heard_through`: a room or a line, of samples at 16 kHz.
    Returns the length in seconds and the words with their times in the file.
    """
    import soundfile
    from scipy.signal import resample_poly

    resampled = heard_through(resample_poly(samples, 2, 3).astype(np.float32))
    resampled = np.clip(resampled, -1.0, 1.0)
    # libsndfile counts from 256 kbit/s (0) to 6 (1).
    level = (256 - 24) / (256 - 6)
    soundfile.write(path, resampled, 16_000, "OPUS", format="OGG", compression_level=level)
    return len(resampled) / 16_000, heard(words, load_audio(path))
