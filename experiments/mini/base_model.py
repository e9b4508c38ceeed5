"""Trains a whole Whisper on a corpus with word times, from scratch or on from what it is.

Early on the batches hold single utterances, padded to the longest of them; later, windows padded to
the whole context, as Whisper's own training has it, so that unpadded input is as strange to the
model as it is to Whisper. Two frame-level cross-entropies on top of the encoder, one on letters and
one on tokens, both placed by the known word times, start the training where CTC stays on its
plateau; their heads are thrown away at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.training.greedy import greedy
from streaming_asr.training.recipe import CorpusRecipe, dev_wer
from streaming_asr.training.windows import Window, WindowOptions, augmented, draw_window, place
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import FRAME_SAMPLES, SAMPLE_RATE, log_mel
from streaming_asr.whisper.load import Whisper, load_whisper

# The frame head on tokens sees every third frame: a softmax over the whole vocabulary every 20 ms
# costs a quarter of a step, and a token lasts several frames.
TOKEN_STRIDE = 3


class _Trained(nn.Module):
    """The network and the frame heads that exist only in training."""

    def __init__(self, whisper: Any, n_tokens: int) -> None:
        super().__init__()
        self.whisper: Any = whisper
        self.token_head = nn.Linear(whisper.config.d_model, n_tokens)
        self.letter_head = nn.Linear(whisper.config.d_model, 27)

    def forward(self, mel: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """mel (B, n_mels, 2T), tokens (B, L) -> logits of the next tokens (B, L, V), of the tokens
        (B, T / 3, n_tokens) spoken in every third frame and the letters (B, T, 27) in each."""
        encoder, decoder = self.whisper.model.encoder, self.whisper.model.decoder
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
        x = x + encoder.embed_positions.weight[: x.shape[1]]
        for layer in encoder.layers:
            x = layer(x, None)
        x = encoder.layer_norm(x)
        hidden = decoder(input_ids=tokens, encoder_hidden_states=x, use_cache=False)
        logits = self.whisper.proj_out(hidden.last_hidden_state)
        return logits, self.token_head(x[:, ::TOKEN_STRIDE]), self.letter_head(x)


def _round_up(n: int, multiple: int) -> int:
    """Few different shapes: on CPU every new one has its kernels compiled, and the allocator finds
    no block of the size."""
    return -(-n // multiple) * multiple


@dataclass(kw_only=True, eq=False)
class OfflineRecipe(CorpusRecipe):
    """`train method=offline`: a whole network on windows of several utterances.

    Raises UserError where the corpus is missing or has no word times."""

    model_path: str
    batch: int
    short_batch: int
    short_until: float
    padded_early: float
    frame_weight: float
    frame_weight_late: float
    label_smoothing: float
    spec_augment: float
    timed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.train_on(sorted(self.items, key=lambda item: item.n_samples))
        loaded = load_whisper(self.model_path, trainable=True)
        self.whisper = loaded
        self.targets = Targets(loaded.tokenizer)
        self.model = _Trained(loaded.model.requires_grad_(True), self.targets.eot + 1)
        self.context_s = loaded.context_frames * 0.02
        self.options = augmented(WindowOptions(self.context_s), self.augment)
        self.short_options = replace(self.options, several=0.0, crop_end=0.25)

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> dict[str, Any]:
        shared = self.rng(step)  # all ranks pad alike, or one waits for the other
        rng = self.rng(step, rank)
        padded = progress >= self.short_until or shared.random() < self.padded_early
        where = shared.random()
        if padded:
            anchors = [self.items[rng.randrange(len(self.items))] for _ in range(self.batch)]
            options = self.options
        else:
            # neighbours in length, so that little of the batch is padding; the shortest first
            near = self.near(where * min(1.0, 0.2 + 3 * progress))
            anchors = [near[rng.randrange(len(near))] for _ in range(self.short_batch)]
            options = self.short_options
        windows = [draw_window(rng, a, self.voices[a.voice], options) for a in anchors]
        longest = max(len(w.audio) for w in windows)
        n_frames = min(_round_up(-(-longest // 320), 32), self.whisper.context_frames)
        if padded:
            n_frames = self.whisper.context_frames
        late = progress >= self.short_until
        frame_weight = self.frame_weight_late if late else self.frame_weight
        return self._collate(windows, n_frames, rng, progress) | {"frame_weight": frame_weight}

    def _collate(
        self, windows: Sequence[Window], n_frames: int, rng: random.Random, progress: float
    ) -> dict[str, Any]:
        audio = np.zeros((len(windows), n_frames * 320), np.float32)
        for row, window in zip(audio, windows, strict=True):
            row[: len(window.audio)] = window.audio[: len(row)]
        mel = log_mel(torch.from_numpy(audio), self.whisper.n_mels)
        if progress >= self.short_until:
            self._spec_augment(mel, windows, rng)
        sequences = [self.targets.sequence(w, self.context_s) for w in windows]
        width = _round_up(max(len(s) for s, _ in sequences), 8)
        tokens = torch.full((len(windows), width), self.targets.eot)
        labels = torch.full((len(windows), width), -100)
        for i, (sequence, n_fixed) in enumerate(sequences):
            tokens[i, : len(sequence)] = torch.tensor(sequence)
            labels[i, n_fixed : len(sequence) - 1] = torch.tensor(sequence[n_fixed + 1 :])
        batch = {"mel": mel, "tokens": tokens, "labels": labels}
        for name, label in (("frames", self.targets.frames), ("letters", self.targets.letters)):
            placed = np.stack([label(w, n_frames) for w in windows])
            for row, window in zip(placed, windows, strict=True):
                row[-(-len(window.audio) // 320) :] = -100  # nothing to learn in the padding
            batch[name] = torch.from_numpy(placed)
        return batch

    def _spec_augment(self, mel: Tensor, windows: Sequence[Window], rng: random.Random) -> None:
        """Two bands of up to 12 mels, two spans of up to 15 frames every 3 s: the mean instead."""
        for row, window in zip(mel, windows, strict=True):
            if rng.random() >= self.spec_augment:
                continue
            fill = float(row.mean())
            for _ in range(2):
                low = rng.randrange(mel.shape[1] - 12)
                row[low : low + rng.randint(0, 12)] = fill
            n = max(1, len(window.audio) // 160)
            for _ in range(max(1, 2 * n // 300)):
                first = rng.randrange(n)
                row[:, first : first + rng.randint(0, 15)] = fill

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, dict[str, float]]:
        logits, frame_logits, letter_logits = model(batch["mel"], batch["tokens"])
        token_loss = F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=self.label_smoothing
        )
        frames = batch["frames"][:, ::TOKEN_STRIDE]
        frame_loss = F.cross_entropy(frame_logits.flatten(0, 1), frames.flatten())
        letter_loss = F.cross_entropy(letter_logits.flatten(0, 1), batch["letters"].flatten())
        logs = {
            "token_loss": float(token_loss.detach()),
            "frame_loss": float(frame_loss.detach()),
            "letter_loss": float(letter_loss.detach()),
        }
        return token_loss + batch["frame_weight"] * (frame_loss + 2 * letter_loss), logs

    def evaluate(self) -> dict[str, float]:
        """WER in percent of greedy decoding on dev, padded to the context."""
        began = time.perf_counter()
        texts = transcribe_batch(self.whisper, [u.load() for u in self.dev])
        wer = dev_wer(self.dev, texts)
        return {"score": wer, "wer": wer, "seconds": time.perf_counter() - began}

    def save(self, folder: Path) -> None:
        """A Hugging Face folder in fp16 with tokenizer and feature extractor."""
        import copy

        half = copy.deepcopy(self.whisper.model).half()
        Whisper(half, self.whisper.tokenizer).save(folder)


class Targets:
    """Windows -> token sequences and frame labels, for one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        ids = tokenizer.convert_tokens_to_ids
        self.eot, self.sot = ids("<|endoftext|>"), ids("<|startoftranscript|>")
        self.prev, self.no_speech = ids("<|startofprev|>"), ids("<|nospeech|>")
        self.no_timestamps = ids("<|notimestamps|>")
        self.tokenizer = tokenizer
        self._words: dict[str, list[int]] = {}
        self._sizes: dict[int, int] = {}

    def word(self, text: str) -> list[int]:
        """Tokens of a word, leading space included; a text's are its words' in turn."""
        tokens = self._words.get(text)
        if tokens is None:
            tokens = self.tokenizer(" " + text, add_special_tokens=False).input_ids
            self._words[text] = tokens
        return tokens

    def _size(self, token: int) -> int:
        if token not in self._sizes:
            self._sizes[token] = max(1, len(self.tokenizer.decode([token]).strip()))
        return self._sizes[token]

    def stamp(self, seconds: float) -> int:
        return self.no_timestamps + 1 + round(seconds / 0.02)

    def sequence(self, window: Window, context_s: float) -> tuple[list[int], int]:
        """Decoder tokens, prompt to <|endoftext|>, and how many of them are not learned."""
        head: list[int] = []
        if window.prompt:
            previous = [t for w in window.prompt.split() for t in self.word(w)]
            head = [self.prev, *previous[-100:]]
        n_fixed = len(head)
        if not window.words and window.timestamps:
            return [*head, self.sot, self.no_speech, self.eot], n_fixed
        body: list[int] = []
        if window.timestamps:
            body = self._with_timestamps(window, context_s)
        else:
            body = [self.no_timestamps] + [t for w, *_ in window.words for t in self.word(w)]
        return [*head, self.sot, *body, self.eot], n_fixed

    def _with_timestamps(self, window: Window, context_s: float) -> list[int]:
        """<|start|> text <|end|> per utterance. Whisper's own rule at the context's edge: of a last
        utterance that is cut there, only the start is given (it comes again in the next window)."""
        at_edge = window.cut_end and len(window.audio) / SAMPLE_RATE > context_s - 0.05
        body: list[int] = []
        utterances = sorted({u for *_, u in window.words})
        for u in utterances:
            mine = [(w, s, e) for w, s, e, v in window.words if v == u]
            body.append(self.stamp(mine[0][1]))
            if at_edge and u == utterances[-1] and len(utterances) > 1:
                break
            body += [t for w, _, _ in mine for t in self.word(w)]
            body.append(self.stamp(min(mine[-1][2], context_s)))
        return body

    def frames(self, window: Window, n_frames: int) -> np.ndarray:
        """(n_frames,) token spoken in each encoder frame, <|endoftext|> where none is.

        A word's span is shared among its tokens by their number of characters."""
        labels = np.full(n_frames, self.eot, np.int64)
        for w, start, end, _ in window.words:
            tokens = self.word(w)
            place(labels, tokens, [self._size(t) for t in tokens], start, end)
        return labels

    def letters(self, window: Window, n_frames: int) -> np.ndarray:
        """(n_frames,) letter spoken in each frame: 1-26, 0 in silence.

        Letters share a word's span evenly. A word with digits or signs is spelled otherwise than
        it is said: its frames are -100, which no loss counts."""
        labels = np.zeros(n_frames, np.int64)
        for w, start, end, _ in window.words:
            plain = [ord(c) - 96 for c in w.lower() if "a" <= c <= "z"]
            tokens = plain if w.strip(".,?!").replace("'", "").isalpha() else [-100]
            place(labels, tokens, [1] * len(tokens), start, end)
        return labels


@torch.inference_mode()
def transcribe_batch(
    whisper: Whisper,
    audios: Sequence[np.ndarray],
    *,
    batch: int = 16,
    max_tokens: int = 120,
) -> list[str]:
    """Texts of `audios`, (n,) float32 each, of at most one context, padded to it."""
    texts: list[str] = []
    for first in range(0, len(audios), batch):
        group = audios[first : first + batch]
        samples = np.zeros((len(group), whisper.context_frames * FRAME_SAMPLES), np.float32)
        for row, audio in zip(samples, group, strict=True):
            row[: len(audio)] = audio[: len(row)]
        mel = log_mel(torch.from_numpy(samples).to(whisper.device), whisper.n_mels)
        encoded = encode_padded(whisper.model, mel)
        for tokens in greedy(whisper, encoded, whisper.prompt(), max_tokens):
            texts.append(whisper.tokenizer.decode(tokens).strip())
    return texts
