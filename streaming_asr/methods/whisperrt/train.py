"""Fine-tuning of WhisperRT (arXiv 2508.12301, section V, Algorithm 3).

A LoRA adapter teaches an offline Whisper to process audio block by block, and to stop writing where
the audio so far stops.

At a point t of a window the decoder sees the encoder frames up to t and must write the tokens that
have ended by t (eq. 18), then <|endoftext|>. Two modes:

`paper`  one optimiser step per point, as Algorithm 3: the window is encoded again up to that point.
`fast`   a block-causal encoding of the whole window holds the encoding of every prefix that ends
         with a block, so one pass gives all points; one optimiser step takes the points of a whole
         batch. The same gradients, averaged over the points instead of taken one after the other.

What learns is `learn`:

`all`      encoder and decoder, as the paper does;
`encoder`  only the encoder, to give the frames that the offline encoder gives of the whole window:
           it needs no text, and each frame teaches;
`decoder`  only the decoder, from a frozen encoder.

With `distil: frames` the offline encoder teaches in addition to Algorithm 3. Two frames are as far
apart as the keys and values are that the decoder makes of them (`PrefixModel.reading`).

Windows are encoded as a stream encodes them: never padded to the context, the last block filled
up with zeros. Only complete words are targets.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.methods.whisperrt.prefixes import PrefixBatch, PrefixExample, PrefixModel, pack
from streaming_asr.training.recipe import BlockRecipe, first_chunk_frames, published_name
from streaming_asr.training.vocabulary import vocabulary_loss
from streaming_asr.training.windows import Window, length_buckets
from streaming_asr.whisper.adapters import MODULES, save_lora, with_lora
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.masks import block_ends
from streaming_asr.whisper.window import FRAME_S

RANDOM_CHUNK_FRAMES = range(5, 51, 5)  # 0.1 .. 1.0 s
LEARN = {"all": "", "encoder": ".encoder.", "decoder": ".decoder."}  # in the names of what learns
EVALUATED_S = 1.0  # chunks in which an encoder is evaluated next to those of `chunk_s`
N_READ = 8  # windows whose frames show how much keys and values vary


@dataclass(kw_only=True, eq=False)
class WhisperRTRecipe(BlockRecipe):
    """`train method=whisperrt`: an adapter for one chunk, or for random chunks of 0.1-1.0 s.

    random_chunks: each batch has one chunk, 0.1, 0.2, ... or 1.0 s with equal chances (the paper:
    "uniformly sampled between 0.1 and 1.0 seconds"); `chunk_s` then is that of `evaluate` only.
    modules: where the adapter lies, a key of `MODULES`.
    learn, distil: see the module; distil_weight: of the teacher's term, added to Algorithm 3's.
    last_tokens: of a prefix only so many are learned, the last ones, and its end; null: all, as the
    paper does. A stream asks only for the last ones, and each costs a pass over the vocabulary.
    start: folder of an adapter to go on from.
    Points per window: floor(point_fraction * blocks) + 1, at most `points_per_window`.
    Raises UserError where the corpus is missing or has no word times.
    """

    random_chunks: bool
    rank: int
    modules: str
    learn: str
    init: str
    mode: str
    point_fraction: float
    points_per_window: int
    last_tokens: int | None
    batch: int
    buckets: int
    distil: str | None
    distil_weight: float
    lead_s: ClassVar[float] = 0.3

    def __post_init__(self) -> None:
        check_one_of(("fast", "paper"), mode=self.mode)
        check_one_of(MODULES, modules=self.modules)
        check_one_of(LEARN, learn=self.learn)
        if self.distil not in (None, "frames"):
            raise UserError(f"distil={self.distil!r}: frames, or null")
        check_range(0, above=True, distil_weight=self.distil_weight)
        check_range(0, 1, above=True, point_fraction=self.point_fraction)
        check_range(1, batch=self.batch, buckets=self.buckets, rank=self.rank)
        check_range(1, points_per_window=self.points_per_window, last_tokens=self.last_tokens)
        super().__post_init__()
        self.chunk = round(self.chunk_s / FRAME_S)
        self.first_chunk = round(self.first_chunk_s / FRAME_S)

        self.whisper = load_whisper(self.model_path, trainable=True)
        self.prompt_of = self.prompts()
        # leading space included; a text's are its words' in turn
        self.word_tokens = cache(lambda word: self.whisper.text_tokens(f" {word}"))
        torch.manual_seed(self.seed)
        modules = MODULES[self.modules]
        self.peft = with_lora(
            self.whisper.model, self.rank, modules, init=self.init, start=self.begun
        )
        self.model = self.prefixes = PrefixModel(self.peft)
        for name, parameter in self.peft.named_parameters():
            if LEARN[self.learn] not in name:
                parameter.requires_grad = False
        blocks = block_ends(self.whisper.context_frames, self.chunk, self.first_chunk)
        self.steps_per_batch = 1 if self.mode == "fast" else self._n_points(len(blocks))
        self._drawn: tuple[tuple[int, int], list[list[Window]]] | None = None
        self.reading = self._reading() if self.taught else None

    @property
    def timed(self) -> bool:
        """Return whether word times are needed: an encoder needs only sound."""
        return self.learn != "encoder"

    @property
    def taught(self) -> bool:
        """Return whether the offline encoder teaches."""
        return self.learn == "encoder" or self.distil is not None

    def _reading(self) -> Tensor:
        """Return `PrefixModel.reading` of some windows of the corpus, (d, d)."""
        windows = self.windows(self.rng("reading"), N_READ)
        batch = self.precompute(self._heard_of([window.audio for window in windows]))
        assert batch.offline is not None
        frames = [self.prefixes.offline_frames(mel[None])[0] for mel in batch.offline]
        return self.prefixes.reading(torch.cat(frames))

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> PrefixBatch:
        """Return a batch; pure in (seed, step, rank).

        In paper mode windows last for `steps_per_batch` steps.
        """
        index, point = divmod(step, self.steps_per_batch)
        shared = self.rng(index)  # one chunk for all ranks: equal work
        rng = self.rng(index, rank, "points")
        chunk, first = self._schedule(shared)
        windows = self._windows(index, rank)
        ends = [self.blocks(len(window.audio), chunk, first) for window in windows]
        if self.mode == "fast":
            points = [sorted(rng.sample(e, self._n_points(len(e)))) for e in ends]
        else:
            possible = max(ends, key=len)
            n = min(self.steps_per_batch, len(possible))
            t = sorted(rng.sample(possible, n))[point % n]
            ends = [[end for end in e if end <= t] for e in ends]
            points = [e[-1:] for e in ends]
        examples = [self._example(*each) for each in zip(windows, ends, points, strict=True)]
        return pack(examples, self.whisper.eot, self.last_tokens)

    def _schedule(self, rng: random.Random) -> tuple[int, int]:
        """Return the frames of a chunk and of the first chunk."""
        if not self.random_chunks:
            return self.chunk, self.first_chunk
        chunk = rng.choice(RANDOM_CHUNK_FRAMES)
        return chunk, first_chunk_frames(chunk)

    def _n_points(self, n_blocks: int) -> int:
        return min(n_blocks, self.points_per_window, int(self.point_fraction * n_blocks) + 1)

    def _windows(self, index: int, rank: int) -> list[Window]:
        """Return the windows of batch `index`, of `buckets` batches drawn together by length.

        The last are kept, since paper mode asks for them again.
        """
        pool, place = divmod(index, self.buckets)
        if self._drawn is None or self._drawn[0] != (pool, rank):
            n_windows = self.batch * self.buckets
            windows = self.windows(self.rng(pool, rank), n_windows)
            key = f"{self.seed}-{pool}-order"
            batches = length_buckets(windows, self.buckets, lambda window: len(window.audio), key)
            self._drawn = ((pool, rank), batches)
        return self._drawn[1][place]

    def _example(self, window: Window, ends: list[int], points: Sequence[int]) -> PrefixExample:
        """Return the window as far as the blocks at `ends` reach, asked for at `points`."""
        tokens, token_ends_s = self._timed_tokens(window)
        prompt = self.prompt_of[window.language]
        prefixes: list[tuple[int, list[int]]] = []
        for heard in points:
            n = bisect_right(token_ends_s, heard * FRAME_S + 1e-6)
            if heard * FRAME_SAMPLES >= len(window.audio):  # rounding may put an end past it
                n = len(tokens)
            prefixes.append((heard, tokens[:n]))
        self.check_room(max(len(written) for _, written in prefixes))
        return PrefixExample(window.audio, ends, prompt, prefixes)

    def _timed_tokens(self, window: Window) -> tuple[list[int], list[float]]:
        """Return the text tokens and when each has ended, never before the one in front of it.

        Token j of a word's m ends at the share (j + 1) / m of the word."""
        tokens: list[int] = []
        ended_s: list[float] = []
        for word, start, end, _ in window.words:
            ids = self.word_tokens(word)
            tokens += ids
            ended_s += [start + (j + 1) / len(ids) * (end - start) for j in range(len(ids))]
        return tokens, list(accumulate(ended_s, max))

    # -- training -------------------------------------------------------------------------------

    def precompute(self, batch: PrefixBatch) -> PrefixBatch:
        """Return the batch with its features, made where it is."""
        n_mels, context = self.whisper.n_mels, self.whisper.context_frames
        return batch.with_features(n_mels, context, taught=self.taught)

    def loss(
        self, model: nn.Module, batch: PrefixBatch
    ) -> tuple[Tensor, dict[str, float | Tensor]]:
        """Return the mean cross-entropy of all rows' tokens and ends, and the teacher's term; of
        `learn: encoder` only the teacher's."""
        batch = self.precompute(batch.to(self.device))
        learns_words = self.learn != "encoder"
        frames, hidden, offline = model(batch, decode_it=learns_words, taught=self.taught)
        audio_s = sum(e[-1] for e in batch.ends) * FRAME_S
        logs: dict[str, float | Tensor] = {"audio_s": audio_s}
        if hidden is None:
            loss = self._distance(batch, frames, offline)
            return loss, logs | {"frames": loss.detach(), "weight": audio_s}
        labels = batch.labels.flatten()[batch.learned]
        loss, likeliest = vocabulary_loss(hidden, self.prefixes.vocabulary, labels)
        right = (likeliest == labels).float()
        ends = (labels == self.whisper.eot).float()
        logs |= {
            "token_accuracy": right.mean(),
            "stop_accuracy": (right * ends).sum() / ends.sum(),
            "weight": float(len(labels)),
        }
        if self.distil is not None:
            distance = self._distance(batch, frames, offline)
            loss = loss + self.distil_weight * distance
            logs["frames"] = distance.detach()
        return loss, logs

    def _distance(self, batch: PrefixBatch, frames: Tensor, offline: Tensor) -> Tensor:
        """Return how far frames (B, F, d) are from the offline model's, a mean over frames: 1
        where keys and values differ by as much as they vary."""
        assert self.reading is not None
        apart = (frames.float() - offline[:, : frames.shape[1]].float()).flatten(0, 1)[batch.real]
        return (apart @ self.reading.to(apart)).square().sum(-1).mean()

    def evaluate(self) -> dict[str, float]:
        """Return the WER in percent of greedy streaming on dev, the adapter as `save` leaves it; of
        `learn: encoder` the mean distance on dev, as no decoder has learned to read its frames."""
        if self.learn == "encoder":
            return self._dev_distance()
        return self.stream_dev("whisperrt")[0]

    @torch.no_grad()
    def _dev_distance(self) -> dict[str, float]:
        """Return the distance on dev in chunks of `chunk_s` and `EVALUATED_S`, over all frames,
        and their mean as the score."""
        limit = self.whisper.context_frames * FRAME_SAMPLES
        dev = [utterance.load()[:limit] for utterance in self.dev]
        figures = {}
        for chunk in sorted({self.chunk, round(EVALUATED_S / FRAME_S)}):
            first = self.first_chunk if chunk == self.chunk else first_chunk_frames(chunk)
            total, n_frames = 0.0, 0
            for at in range(0, len(dev), self.batch):
                heard = self._heard_of(dev[at : at + self.batch], chunk, first).to(self.device)
                batch = self.precompute(heard)
                frames, _, offline = self.prefixes(batch, decode_it=False, taught=True)
                total += float(self._distance(batch, frames, offline)) * len(batch.real)
                n_frames += len(batch.real)
            figures[f"distance_{chunk * FRAME_S:g}s"] = total / n_frames
        return {"score": sum(figures.values()) / len(figures), **figures}

    def _heard_of(
        self, audio: Sequence[np.ndarray], chunk: int | None = None, first: int | None = None
    ) -> PrefixBatch:
        """Return a batch of windows without text, in blocks of the recipe's chunks or others."""
        chunk, first = chunk or self.chunk, first or self.first_chunk
        prompt = self.prompt_of[None]
        examples = []
        for samples in audio:
            ends = self.blocks(len(samples), chunk, first)
            examples.append(PrefixExample(samples, ends, prompt, [(ends[-1], [])]))
        return pack(examples, self.whisper.eot)

    def save(self, folder: Path) -> None:
        """Write a peft adapter in fp16, and training.json: how it came about."""
        save_lora(self.peft, folder, published_name(self.model_path))
        self.write_card(
            folder,
            "whisperrt",
            "random_chunks rank modules learn init mode point_fraction points_per_window "
            "last_tokens distil distil_weight batch",
            base=self.model_path,
            start=self.begun_from,
            chunk_s=round(self.chunk * FRAME_S, 2),
            first_chunk_s=round(self.first_chunk * FRAME_S, 2),
            # step, minutes and dev/wer of now, from the curve that `fit` keeps next to it
            reached=_last_row(folder.parent / "curve.jsonl"),
        )


def _last_row(curve: Path) -> dict[str, float] | None:
    if not curve.exists():
        return None
    row: dict[str, float] = json.loads(curve.read_text().splitlines()[-1])
    return row
