"""Word times from Whisper's cross-attention, the transcript forced through the decoder.

Dynamic time warping over the alignment heads gives each token its frames
(`streaming_asr.whisper.alignment`); a word lasts from its first token to the first token after it.
The path leaves no frame out, so the pause after a word is at first a part of it: a word's edge next
to a pause is moved to where the sound ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from streaming_asr.align.result import FRAME_SAMPLES, Aligned, loud_frames, words_of
from streaming_asr.data import TimedWord, Utterance
from streaming_asr.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from streaming_asr.method import Samples

FRAME_S = 0.02


class WhisperAligner:
    """Aligns with a Whisper model; `path` is a Hugging Face folder or hub name."""

    name = "whisper"

    def __init__(
        self,
        path: str,
        device: str = "cpu",
        dtype: str = "float32",
        language: str | None = None,
        trim_pauses: bool = True,
    ) -> None:
        """`language` where an utterance names none. Raises UserError without such a model."""
        from streaming_asr.whisper.decoder import Decoder, DecoderCache
        from streaming_asr.whisper.load import load_whisper

        self._whisper = load_whisper(path, device=device, dtype=dtype)
        self._decoder = Decoder(self._whisper)
        self._cache = DecoderCache(self._decoder)
        self._language, self._trim = language, trim_pauses

    def align(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        """One by one, in order."""
        for utterance in utterances:
            try:
                yield Aligned(utterance, self.words(utterance))
            except UserError as error:
                yield Aligned(utterance, None, str(error))

    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        """The words of the transcript with their times. UserError where they do not fit in."""
        import torch

        from streaming_asr.whisper.alignment import alignment_times

        whisper = self._whisper
        samples = utterance.load()
        n_frames = -(-len(samples) // FRAME_SAMPLES)
        written = words_of(utterance)
        tokens: list[int] = []
        ends: list[int] = []
        for word in written:
            tokens += whisper.tokenizer(" " + word, add_special_tokens=False).input_ids
            ends.append(len(tokens))
        prompt = whisper.prompt(utterance.language or self._language)
        if n_frames > whisper.context_frames:
            raise UserError(
                f"{utterance.id}: {n_frames * FRAME_S:.1f} s of audio, the model hears "
                f"{whisper.context_s:g} s; cut it into shorter utterances"
            )
        if len(prompt) + len(tokens) > whisper.max_tokens:
            raise UserError(
                f"{utterance.id}: {len(tokens)} tokens of text, the model has room for "
                f"{whisper.max_tokens - len(prompt)}; cut it into shorter utterances"
            )
        with torch.inference_mode():
            self._decoder.append_frames(self._cache, self._encode(samples, n_frames), 0)
            times = alignment_times(
                self._decoder, self._cache, whisper.alignment_heads, prompt, tokens, n_frames
            )
        found, begin = [], 0
        for word, end in zip(written, ends, strict=True):
            found.append(TimedWord(word, times[begin][0], times[end - 1][1]))
            begin = end
        return trim_pauses(found, samples) if self._trim else tuple(found)

    def _encode(self, samples: Samples, n_frames: int) -> Tensor:
        import torch
        import torch.nn.functional as F

        from streaming_asr.whisper.encoder import encode_padded
        from streaming_asr.whisper.features import log_mel

        whisper = self._whisper
        audio = torch.from_numpy(samples).to(whisper.device)
        padded = F.pad(audio[None], (0, whisper.context_frames * FRAME_SAMPLES - audio.numel()))
        hidden = encode_padded(whisper.model, log_mel(padded, whisper.n_mels))
        return hidden[:, :n_frames]


def trim_pauses(words: Sequence[TimedWord], samples: Samples) -> tuple[TimedWord, ...]:
    """Each word without the quiet at its two edges; a word that is all quiet stays as it is.

    For what is quiet see `result.loud_frames`.
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
