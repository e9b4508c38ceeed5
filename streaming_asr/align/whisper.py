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
        """Load the model, or raise UserError. language: where an utterance names none."""
        from streaming_asr.whisper.decoder import Decoder, DecoderCache
        from streaming_asr.whisper.load import load_whisper

        self._whisper = load_whisper(path, device=device, dtype=dtype)
        self._decoder = Decoder(self._whisper)
        self._cache = DecoderCache(self._decoder)
        self._language = None if language is None else language_code(language)
        self._trim = trim_pauses

    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        import torch

        from streaming_asr.whisper.alignment import alignment_map

        whisper = self._whisper
        samples = utterance.load()
        n_frames = -(-len(samples) // FRAME_SAMPLES)
        language = utterance.language or self._language
        utterance = replace(utterance, language=language)
        written = words_of(utterance)
        blank = " " if unit_of(language) == "word" else ""
        tokens: list[int] = []
        ends: list[int] = []
        for word in written:
            tokens += whisper.text_tokens(blank + word)
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
            weights = alignment_map(
                self._decoder, self._cache, whisper.alignment_heads, prompt, tokens, n_frames
            )
        starts = [FRAME_S * frame for frame in cut(weights.double().cpu().numpy())]
        timed = [
            TimedWord(word, starts[begin], starts[end])
            for word, begin, end in zip(written, [0, *ends], ends, strict=False)
        ]
        return trim_pauses(timed, samples) if self._trim else tuple(timed)

    def _encode(self, samples: Samples, n_frames: int) -> Tensor:
        import torch
        import torch.nn.functional as F

        from streaming_asr.whisper.encoder import encode_padded
        from streaming_asr.whisper.features import log_mel

        whisper = self._whisper
        audio = torch.from_numpy(samples).to(whisper.device)
        padded = F.pad(audio[None], (0, whisper.context_frames * FRAME_SAMPLES - audio.numel()))
        # Padded to the whole context, as in Whisper's training.
        hidden = encode_padded(whisper.model, log_mel(padded, whisper.n_mels))
        return hidden[:, :n_frames]


def cut(weights: NDArray[np.float64]) -> list[int]:
    """Return the first frame of each row of `weights`, (rows, frames), on the best cut of the
    frames.

    The rows' stretches follow each other without a gap; the sum of the weights in them is the
    greatest. Each row has `TOKEN_FRAMES` frames or more, the last one (what follows the text) and
    rows for which there is no room one or more. Needs as many frames as rows.
    """
    n_rows, n_frames = weights.shape
    least = TOKEN_FRAMES if n_frames >= TOKEN_FRAMES * n_rows else 1
    sums = np.concatenate([np.zeros((n_rows, 1)), np.cumsum(weights, axis=1)], axis=1)
    # best[j]: rows so far cover frames [0, j); begun[i, j]: where row i begins then.
    best = np.where(np.arange(n_frames + 1) >= least, sums[0], -np.inf)
    begun = np.zeros((n_rows, n_frames + 1), dtype=np.int64)
    frames = np.arange(n_frames + 1)
    for i in range(1, n_rows):
        least_here = least if i < n_rows - 1 else 1
        before = best - sums[i]
        reached = np.maximum.accumulate(before)
        where = np.maximum.accumulate(np.where(before >= reached, frames, 0))
        best = np.full(n_frames + 1, -np.inf)
        best[least_here:] = reached[: n_frames + 1 - least_here] + sums[i, least_here:]
        begun[i, least_here:] = where[: n_frames + 1 - least_here]
    first, end = [0] * n_rows, n_frames
    for i in range(n_rows - 1, 0, -1):
        end = first[i] = int(begun[i, end])
    return first


def trim_pauses(words: Sequence[TimedWord], samples: Samples) -> tuple[TimedWord, ...]:
    """Return each word without the quiet at its two edges; a word that is all quiet stays as it is.

    samples: (n,) float32 at 16 kHz. For what is quiet see `result.loud_frames`.
    """
    heard = loud_frames(samples)
    trimmed = []
    for text, start, end in words:
        (frames,) = np.nonzero(heard[round(start / FRAME_S) : round(end / FRAME_S)])
        if frames.size:
            first = round(start / FRAME_S)
            start, end = (first + frames[0]) * FRAME_S, (first + frames[-1] + 1) * FRAME_S
        trimmed.append(TimedWord(text, float(start), float(end)))
    return tuple(trimmed)
