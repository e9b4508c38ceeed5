"""Word times from Whisper's cross-attention, the transcript forced through the decoder.

The attention of the alignment heads (`streaming_asr.whisper.alignment`) is cut into one stretch of
frames per token, in order, by dynamic programming. Unlike the warping that gives a stream's words
their times, no two tokens share a frame: each lasts `TOKEN_FRAMES` or more, so every word gets a
place. A word lasts from its first token to the first token after it; the path leaves no frame out,
so the pause after a word is at first a part of it, and its edges are moved to where its sound is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streaming_asr.align.result import OneByOne, loud_frames, words_of
from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_S, FRAME_SAMPLES
from streaming_asr.text.languages import language_code
from streaming_asr.text.units import unit_of
from streaming_asr.utterance import TimedWord, Utterance

if TYPE_CHECKING:
    from torch import Tensor

    from streaming_asr.method import Samples

TOKEN_FRAMES = 2


class WhisperAligner(OneByOne):
    """Aligns with a Whisper model; `path` is a Hugging Face folder or hub name."""

    def __init__(
        self,
        path: str,
        device: str = "cpu",
        dtype: str = "float32",
        language: str | None = None,
        trim_pauses: bool = True,
    ) -> None:
        """Load the model. Raises UserError where it is missing or damaged.

        language: of utterances that name none. trim_pauses: see the function.
        """
        from streaming_asr.whisper.decoder import Decoder, DecoderCache
        from streaming_asr.whisper.load import load_whisper

        self._whisper = load_whisper(path, device=device, dtype=dtype)
        self._decoder = Decoder(self._whisper)
        self._cache = DecoderCache(self._decoder)
        self._language = None if language is None else language_code(language)
        self._trim = trim_pauses

    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        """Return the words with times; for errors see `OneByOne.words`."""
        import torch

        from streaming_asr.whisper.alignment import head_maps

        whisper = self._whisper
        samples = utterance.load()
        n_frames = -(-len(samples) // FRAME_SAMPLES)
        language = utterance.language or self._language
        utterance = replace(utterance, language=language)
        texts = words_of(utterance)
        blank = " " if unit_of(language) == "word" else ""
        tokens: list[int] = []
        ends: list[int] = []
        for text in texts:
            tokens += whisper.text_tokens(blank + text)
            ends.append(len(tokens))
        prompt = whisper.prompt(language)
        if n_frames > whisper.context_frames:
            raise UserError(
                f"{utterance.id}: {n_frames * FRAME_S:.1f} s of audio, the model takes "
                f"{whisper.context_s:g} s; cut it into shorter utterances"
            )
        if n_frames <= len(tokens):
            raise UserError(
                f"{utterance.id}: {len(tokens)} tokens of text in {n_frames * FRAME_S:.2f} s; its "
                "text does not belong to its audio"
            )
        if len(prompt) + len(tokens) > whisper.max_tokens:
            raise UserError(
                f"{utterance.id}: {len(tokens)} tokens of text, the model has room for "
                f"{whisper.max_tokens - len(prompt)}; cut it into shorter utterances"
            )
        with torch.inference_mode():
            self._decoder.append_frames(self._cache, self._encode(samples, n_frames), 0)
            maps = head_maps(
                self._decoder, self._cache, whisper.alignment_heads, prompt, tokens, n_frames
            )
        # Of each token, and of what follows the text.
        starts_s = [FRAME_S * frame for frame in cut(maps.mean(0).double().cpu().numpy())]
        words = [
            TimedWord(text, starts_s[begin], starts_s[end])
            for text, begin, end in zip(texts, [0, *ends], ends, strict=False)
        ]
        return trim_pauses(words, samples) if self._trim else tuple(words)

    def _encode(self, samples: Samples, n_frames: int) -> Tensor:
        """Return the encoding (1, n_frames, d) of samples (n,), padded to the context for it."""
        import torch
        import torch.nn.functional as F

        from streaming_asr.whisper.encoder import encode_padded
        from streaming_asr.whisper.features import log_mel

        whisper = self._whisper
        audio = torch.from_numpy(samples).to(whisper.device)
        padded = F.pad(audio[None], (0, whisper.context_frames * FRAME_SAMPLES - audio.numel()))
        hidden = encode_padded(whisper.model, log_mel(padded, whisper.n_mels))
        return hidden[:, :n_frames]


def cut(weights: NDArray[np.float64]) -> list[int]:
    """Divide the frames into one stretch for each row (token) of `weights`, (rows, frames), and
    return the first frame of each.

    The stretches follow each other without a gap, and the sum of each row's weights in its stretch
    is the greatest possible. Each has `TOKEN_FRAMES` frames or more if there is room; else, and in
    the last one (what follows the text), one or more. Needs as many frames as rows.
    """
    n_rows, n_frames = weights.shape
    least = TOKEN_FRAMES if n_frames >= TOKEN_FRAMES * n_rows else 1
    frames = np.arange(n_frames + 1)
    # sums[i, j]: of the weights of row i in frames [0, j).
    sums = np.concatenate([np.zeros((n_rows, 1)), np.cumsum(weights, axis=1)], axis=1)
    # best[j]: the greatest sum where the rows so far take frames [0, j).
    best = np.where(frames >= least, sums[0], -np.inf)
    begins = np.zeros((n_rows, n_frames + 1), dtype=np.int64)  # [i, j]: then row i begins there
    for i in range(1, n_rows):
        least_of_row = least if i < n_rows - 1 else 1
        # Row i from frame b to j adds sums[i, j] - sums[i, b]: the best b <= j - least_of_row is
        # where the running maximum of best - sums[i] was reached.
        gains = best - sums[i]
        greatest = np.maximum.accumulate(gains)
        begin = np.maximum.accumulate(np.where(gains >= greatest, frames, 0))
        n_ends = n_frames + 1 - least_of_row
        best = np.full(n_frames + 1, -np.inf)
        best[least_of_row:] = greatest[:n_ends] + sums[i, least_of_row:]
        begins[i, least_of_row:] = begin[:n_ends]
    first, end = [0] * n_rows, n_frames
    for i in range(n_rows - 1, 0, -1):
        end = first[i] = int(begins[i, end])
    return first


def trim_pauses(words: Sequence[TimedWord], samples: Samples) -> tuple[TimedWord, ...]:
    """Return each word from its first to its last loud frame (`result.loud_frames`); a word without
    one keeps its times.

    samples: (n,) float32 at 16 kHz.
    """
    is_loud = loud_frames(samples)
    trimmed = []
    for text, start_s, end_s in words:
        first = round(start_s / FRAME_S)
        (loud,) = np.nonzero(is_loud[first : round(end_s / FRAME_S)])
        if loud.size:
            start_s, end_s = (first + loud[0]) * FRAME_S, (first + loud[-1] + 1) * FRAME_S
        trimmed.append(TimedWord(text, float(start_s), float(end_s)))
    return tuple(trimmed)
