"""Word times from a CTC model: the transcript's most probable path through its frames.

The model is any of transformers' CTC models (wav2vec 2.0, HuBERT, MMS), a folder that training
U2 left (our CTC head on Whisper's encoder), or the package's own for English (`english`).

CTC emits a token for a frame or two somewhere in its sound, so a word's first and last spikes lie
inside the word. Its edges are put there, and then grown over the sound around them, half of the
way to the neighbour at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streaming_asr.align import english
from streaming_asr.align.result import OneByOne, loud_frames, words_of
from streaming_asr.align.viterbi import ANYTHING, align
from streaming_asr.errors import UserError, check_range
from streaming_asr.method import FRAME_S, SAMPLE_RATE, Samples
from streaming_asr.models.find import is_local
from streaming_asr.text.units import unit_of
from streaming_asr.utterance import TimedWord, Utterance


class CtcModel(Protocol):
    """A CTC model. `blank` and `space` are classes; it has no `space` where words just follow."""

    blank: int
    space: int | None

    def log_probs(self, samples: Samples) -> tuple[NDArray[np.float32], float]:
        """Return natural logarithms, (frames, classes), of `samples`, (n,), and seconds a frame."""

    def spell(self, word: str) -> list[int]:
        """Return a word's classes, none where the model cannot spell it."""


class CtcAligner(OneByOne):
    """Aligns with a CTC model."""

    def __init__(
        self,
        path: str | None,
        model_path: str,
        device: str = "cpu",
        dtype: str = "float32",
        target_lang: str | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Load the model. path: see the module, None is the package's; model_path: the Whisper of
        a CTC branch. target_lang: the adapter of an MMS model, as deu. delay_s: how long after a
        sound a causal model emits it. Raises UserError where a model is missing or not a CTC's."""
        self._language = english.LANGUAGE if path is None else None
        settings: dict[str, Any] = {"aligner.delay_s": delay_s}
        check_range(0, **settings)
        self._delay_s = delay_s
        self._model = emitter(path, model_path, device, dtype, target_lang)

    def words(self, utterance: Utterance) -> tuple[TimedWord, ...]:
        """Return the words with times; for errors see `OneByOne.words`."""
        samples = utterance.load()
        if self._language not in (None, utterance.language or self._language):
            raise UserError(
                f"{utterance.id}: is in {utterance.language}, and the package's CTC model knows "
                f"{self._language} only; take aligner=whisper, or give a CTC model with "
                "aligner.path="
            )
        texts = words_of(utterance)
        has_spaces = unit_of(utterance.language) == "word"
        tokens, spans = self._spelled(texts, self._model.space if has_spaces else None)
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
            for start, stop in spans
        ]
        return grow(texts, spikes_s, samples)

    def _spelled(
        self, words: Sequence[str], space: int | None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the model's classes of the whole text, and for each word which of them it has:
        [start, stop). A word that the model cannot spell is `ANYTHING`."""
        tokens: list[int] = []
        spans = []
        for word in words:
            if tokens and space is not None:
                tokens.append(space)
            start = len(tokens)
            tokens += self._model.spell(word) or [ANYTHING]
            spans.append((start, len(tokens)))
        return tokens, spans


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


def emitter(
    path: str | None, model_path: str, device: str, dtype: str, target_lang: str | None
) -> CtcModel:
    """Return the CTC model of `CtcAligner`'s arguments. Raises UserError where there is none."""
    folder = english.branch_folder(model_path) if path is None else Path(path).expanduser()
    if (folder / "ctc_head.safetensors").is_file() or (folder / "branch.json").is_file():
        return U2Head(folder, model_path, device, dtype)
    name = str(folder) if path is None or is_local(path) else path
    return TransformersCtc(name, device, dtype, target_lang)


class TransformersCtc:
    """A model of transformers with a tokenizer of letters."""

    def __init__(self, path: str, device: str, dtype: str, target_lang: str | None) -> None:
        """path: a folder or hub name. Raises UserError where it is not a CTC model's."""
        from transformers import AutoFeatureExtractor, AutoModelForCTC, AutoTokenizer

        from streaming_asr.whisper.load import DTYPES

        adapter: dict[str, Any] = {} if target_lang is None else {"target_lang": target_lang}
        # The adapter's output layer has another size than the one it replaces.
        resized = {"ignore_mismatched_sizes": True} if adapter else {}
        try:
            model: Any = AutoModelForCTC.from_pretrained(
                path, dtype=DTYPES[dtype], **adapter, **resized
            )
            self._features = AutoFeatureExtractor.from_pretrained(path)
            tokenizer = AutoTokenizer.from_pretrained(path, **adapter)
        except (OSError, ValueError, KeyError) as error:
            raise UserError(
                f"aligner.path={path}: not loaded as a CTC model ({str(error).splitlines()[0]}); "
                "give a Hugging Face folder, a hub name where the hub can be reached, or a folder "
                "that training U2 left"
            ) from error
        self._model = model.to(device).eval().requires_grad_(False)
        vocabulary = tokenizer.get_vocab()
        if len(vocabulary) > model.config.vocab_size:
            raise UserError(
                f"aligner.path={path}: its tokenizer has {len(vocabulary)} tokens, the model "
                f"{model.config.vocab_size} classes; take both from one place, or set "
                "aligner.target_lang"
            )
        self.blank = int(model.config.pad_token_id)
        self._letters = {t: i for t, i in vocabulary.items() if len(t) == 1 and i != self.blank}
        self.space = vocabulary.get(getattr(tokenizer, "word_delimiter_token", None) or "|")
        # wav2vec 2.0's letters are upper case, those of MMS lower case.
        n_upper = sum(letter.isupper() for letter in self._letters)
        self._is_upper = n_upper > sum(letter.islower() for letter in self._letters)

    def log_probs(self, samples: Samples) -> tuple[NDArray[np.float32], float]:
        import torch

        inputs = self._features(samples, sampling_rate=SAMPLE_RATE, return_tensors="pt")
        values = next(iter(inputs.values())).to(self._model.device, self._model.dtype)
        with torch.inference_mode():
            logits = self._model(values).logits[0].float()
        return logits.log_softmax(-1).cpu().numpy(), len(samples) / SAMPLE_RATE / len(logits)

    def spell(self, word: str) -> list[int]:
        """Return the classes of the word's letters, without those that the model lacks; [] for a
        word with a digit that it lacks, since the pronunciation is unknown."""
        text = word.upper() if self._is_upper else word.lower()
        if any(c.isdigit() and c not in self._letters for c in text):
            return []
        return [self._letters[c] for c in text if c in self._letters and c != "|"]


class U2Head:
    """The CTC head or branch that training U2 put on Whisper's causal encoder."""

    CHUNK_FRAMES = 50
    """1 s, the longest chunk that its training draws."""
    space: int | None = None

    def __init__(self, folder: Path, model_path: str, device: str, dtype: str) -> None:
        from streaming_asr.methods.u2.first_pass import load_first_pass

        self._first = load_first_pass(model_path, folder, device=device, dtype=dtype)
        self.blank = self._first.tokenizer.blank

    def log_probs(self, samples: Samples) -> tuple[NDArray[np.float32], float]:
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
        return self._first.tokenizer.encode(" " + word)
