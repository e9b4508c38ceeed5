"""Word times from a CTC model: the transcript's most probable path through its frames.

The model is a CTC head or branch on Whisper's encoder: of a folder that training U2 left, or the
package's own for English (`english`).

CTC emits a token for a frame or two somewhere in its sound, so a word's first and last spikes lie
inside the word. Its edges are put there, and then grown over the sound around them, half of the
way to the neighbour at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_asr.align import english
from streaming_asr.align.result import OneByOne, loud_frames, words_of
from streaming_asr.align.viterbi import ANYTHING, align
from streaming_asr.errors import UserError, check_range
from streaming_asr.method import FRAME_S, SAMPLE_RATE, Samples
from streaming_asr.utterance import TimedWord, Utterance


class CtcAligner(OneByOne):
    """Aligns with a CTC model."""

    def __init__(
        self,
        path: str | None,
        model_path: str,
        device: str = "cpu",
        dtype: str = "float32",
        delay_s: float = 0.0,
    ) -> None:
        """Load the model. path: the folder, None is the package's; model_path: the Whisper that it
        was trained on. delay_s: how long after a sound a causal model emits it. Raises UserError
        where a model is missing."""
        self._language = english.LANGUAGE if path is None else None
        settings: dict[str, Any] = {"aligner.delay_s": delay_s}
        check_range(0, **settings)
        self._delay_s = delay_s
        folder = english.branch_folder(model_path) if path is None else Path(path).expanduser()
        if not any((folder / name).is_file() for name in ("ctc_head.safetensors", "branch.json")):
            raise UserError(
                f"aligner.path={path}: no CTC head or branch there; give a folder that training U2 "
                "left, or take aligner=whisper"
            )
        self._model = U2Head(folder, model_path, device, dtype)

    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        """Return the words with times; for errors see `OneByOne.words`."""
        samples = utterance.load()
        if self._language not in (None, utterance.language or self._language):
            raise UserError(
                f"{utterance.id}: is in {utterance.language}, and the package's CTC model knows "
                f"{self._language} only; take aligner=whisper, or give a folder of U2's "
                "training with aligner.path="
            )
        texts = words_of(utterance)
        # A word that the model cannot spell matches any sound.
        spelled = [self._model.spell(text) or [ANYTHING] for text in texts]
        tokens = [token for word in spelled for token in word]
        stops = list(accumulate(map(len, spelled)))
        if all(token == ANYTHING for token in tokens):
            raise UserError(
                f"{utterance.id}: the model has no letter of {utterance.text[:40]!r}; take one "
                "of the text's language"
            )
        log_probs, frame_s = self._model.log_probs(samples)
        frames = align(log_probs, tokens, self._model.blank)
        if frames is None:
            raise UserError(
                f"{utterance.id}: {len(tokens)} tokens of text for {len(log_probs)} frames "
                f"of {1000 * frame_s:.0f} ms; its text does not belong to its audio"
            )
        spikes_s = [
            (
                max(0.0, frames[start][0] * frame_s - self._delay_s),
                max(0.0, frames[stop - 1][1] * frame_s - self._delay_s),
            )
            for start, stop in pairwise([0, *stops])
        ]
        return grow(texts, spikes_s, samples)


def grow(
    words: Sequence[str], spikes: Sequence[tuple[float, float]], samples: Samples
) -> tuple[TimedWord, ...]:
    """Return word times, grown from the first and the last spike of each word (spikes: in seconds)
    over the loud frames around them.

    A spike marks where the model is sure, not where the sound begins and ends. Two neighbours meet
    at most in the middle between their spikes. samples: (n,) at 16 kHz.
    """
    is_loud = loud_frames(samples)
    length_s = len(samples) / SAMPLE_RATE
    middles_s = [(one[1] + following[0]) / 2 for one, following in pairwise(spikes)]
    limits_s = list(zip([0.0, *middles_s], [*middles_s, length_s], strict=True))
    grown = []
    for word, (start_s, end_s), (least_s, most_s) in zip(words, spikes, limits_s, strict=True):
        first, stop = round(start_s / FRAME_S), round(end_s / FRAME_S)
        while first > 0 and first * FRAME_S > least_s and is_loud[first - 1]:
            first -= 1
        while stop < len(is_loud) and stop * FRAME_S < most_s and is_loud[stop]:
            stop += 1
        grown_start_s = max(least_s, min(start_s, first * FRAME_S))
        grown_end_s = min(most_s, max(end_s, stop * FRAME_S))
        grown.append(TimedWord(word, grown_start_s, max(grown_start_s, grown_end_s)))
    return tuple(grown)


class U2Head:
    """The CTC head or branch that training U2 put on Whisper's causal encoder."""

    CHUNK_FRAMES = 50
    """1 s, the longest chunk that its training draws."""

    def __init__(self, folder: Path, model_path: str, device: str, dtype: str) -> None:
        from streaming_asr.methods.u2.first_pass import load_first_pass

        self._first = load_first_pass(model_path, folder, device=device, dtype=dtype)
        self.blank = self._first.tokenizer.blank

    def log_probs(self, samples: Samples) -> tuple[NDArray[np.float32], float]:
        """Return natural logarithms, (frames, classes), of `samples`, (n,), and seconds a frame.
        Raises UserError for more than the model's context."""
        import torch

        from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
        from streaming_asr.whisper.masks import whole_block_ends

        whisper, chunk = self._first.whisper, self.CHUNK_FRAMES
        n_frames = -(-len(samples) // FRAME_SAMPLES)
        if n_frames > whisper.context_frames:
            raise UserError(
                f"{n_frames * FRAME_S:.1f} s of audio, the model takes {whisper.context_s:g} s; "
                "cut it into shorter utterances"
            )
        ends = whole_block_ends(n_frames, chunk, chunk, whisper.context_frames)
        audio = torch.from_numpy(samples).to(whisper.device)
        mel = log_mel(audio, whisper.n_mels, block_ends=ends).to(whisper.model.dtype)
        stride = self._first.stride
        rows = self._first.log_probs(mel, ends)[: -(-n_frames // stride)]
        return rows.cpu().numpy(), FRAME_S * stride

    def spell(self, word: str) -> list[int]:
        """Return a word's classes, none where the model cannot spell it."""
        return self._first.tokenizer.encode(" " + word)
