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

Two frames are as far apart as the keys and values are that the decoder makes of them
(`PrefixModel.distance_root`).

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

from streaming_asr.errors import check_one_of, check_range
from streaming_asr.methods.whisperrt.prefixes import PrefixBatch, PrefixExample, PrefixModel, pack
from streaming_asr.training.recipe import BlockRecipe, first_chunk_frames, published_name
from streaming_asr.training.vocabulary import vocabulary_loss
from streaming_asr.training.windows import Window, length_buckets
from streaming_asr.training.word_tokens import tokens_in_frames
from streaming_asr.whisper.adapters import MODULES, save_lora, with_lora
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.masks import block_ends
from streaming_asr.whisper.window import FRAME_S

RANDOM_CHUNK_FRAMES = range(5, 51, 5)  # 0.1 .. 1.0 s
LEARN = {"all": "", "encoder": ".encoder.", "decoder": ".decoder."}  # in the names of what learns
EVALUATED_S = 1.0  # chunks in which an encoder is evaluated next to those of `chunk_s`
N_METRIC_WINDOWS = 8  # windows whose frames show how much keys and values vary


@dataclass(kw_only=True, eq=False)
class WhisperRTRecipe(BlockRecipe):
    """`train method=whisperrt`: an adapter for one chunk, or for random chunks of 0.1-1.0 s.

    random_chunks: each batch has one chunk, 0.1, 0.2, ... or 1.0 s with equal chances (the paper:
    "uniformly sampled between 0.1 and 1.0 seconds"); `chunk_s` then is that of `evaluate` only.
    modules: where the adapter lies, a key of `MODULES`.
    learn: see the module.
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
    lead_s: ClassVar[float] = 0.3

    def __post_init__(self) -> None:
        check_one_of(("fast", "paper"), mode=self.mode)
        check_one_of(MODULES, modules=self.modules)
        check_one_of(LEARN, learn=self.learn)
        check_range(0, 1, above=True, point_fraction=self.point_fraction)
        check_range(1, batch=self.batch, buckets=self.buckets, rank=self.rank)
        check_range(1, points_per_window=self.points_per_window, last_tokens=self.last_tokens)
        super().__post_init__()
        self.whisper = load_whisper(self.model_path)
        self.prompt_of = self.prompts()
        # With the leading space the tokens of a text are those of its words, one after another.
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
        self.distance_root = None if self.timed else self._distance_root()

    @property
    def timed(self) -> bool:
        """Return whether word times are needed; to train the encoder needs only audio."""
        return self.learn != "encoder"

    def _distance_root(self) -> Tensor:
        """Return `PrefixModel.distance_root` (d, d) by the frames of some windows of the corpus."""
        windows = self.windows(self.rng("reading"), N_METRIC_WINDOWS)
        batch = self.precompute(self._without_text([window.audio for window in windows]))
        assert batch.offline is not None
        frames = [self.prefixes.offline_frames(mel[None])[0] for mel in batch.offline]
        return self.prefixes.distance_root(torch.cat(frames))

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> PrefixBatch:
        """Return the batch of a step; it depends only on (seed, step, rank).

        A point is a block's end, in frames, up to which the decoder sees a window. In paper mode
        the same windows serve `steps_per_batch` steps, each with the next of as many points.
        """
        index, point_index = divmod(step, self.steps_per_batch)
        # Not of the rank: all ranks have the same chunk and so equal work.
        chunk, first_chunk = self._draw_chunk(self.rng(index))
        rng = self.rng(index, rank, "points")
        windows = self._windows(index, rank)
        # For each window, where its blocks end, in frames.
        ends = [self.blocks(len(window.audio), chunk, first_chunk) for window in windows]
        if self.mode == "fast":
            points = [sorted(rng.sample(e, self._n_points(len(e)))) for e in ends]
        else:
            ends_of_longest = max(ends, key=len)
            n_points = min(self.steps_per_batch, len(ends_of_longest))
            drawn = sorted(rng.sample(ends_of_longest, n_points))
            # Again from the first where the longest window has fewer blocks than there are steps.
            point = drawn[point_index % n_points]
            ends = [[end for end in e if end <= point] for e in ends]
            points = [e[-1:] for e in ends]
        examples = [
            self._example(window, window_ends, window_points)
            for window, window_ends, window_points in zip(windows, ends, points, strict=True)
        ]
        return pack(examples, self.whisper.eot, self.last_tokens)

    def _draw_chunk(self, rng: random.Random) -> tuple[int, int]:
        """Return the length of a chunk and of the first chunk, in frames."""
        if not self.random_chunks:
            return self.chunk, self.first_chunk
        chunk = rng.choice(RANDOM_CHUNK_FRAMES)
        return chunk, first_chunk_frames(chunk)

    def _n_points(self, n_blocks: int) -> int:
        """Return how many points are drawn of a window with so many blocks."""
        return min(n_blocks, self.points_per_window, int(self.point_fraction * n_blocks) + 1)

    def _windows(self, index: int, rank: int) -> list[Window]:
        """Return the windows of batch `index`.

        The windows of `buckets` batches are drawn together and sorted into batches of similar
        length. The last such pool is kept, since the next batch lies in it too, or is the same.
        """
        pool, index_in_pool = divmod(index, self.buckets)
        if self._drawn is None or self._drawn[0] != (pool, rank):
            n_windows = self.batch * self.buckets
            windows = self.windows(self.rng(pool, rank), n_windows)
            key = f"{self.seed}-{pool}-order"
            batches = length_buckets(windows, self.buckets, lambda window: len(window.audio), key)
            self._drawn = ((pool, rank), batches)
        return self._drawn[1][index_in_pool]

    def _example(self, window: Window, ends: list[int], points: Sequence[int]) -> PrefixExample:
        """Return the window with the tokens to write at each of `points`: those that have ended.

        ends: where its blocks end; points: some of them, in frames. Raises UserError where the
        tokens are more than the decoder has positions for.
        """
        placed = list(tokens_in_frames(window.words, self.word_tokens, point_s=0.0))
        tokens = [token for token, _, _ in placed]
        # A prefix of n frames holds what has ended where frame n begins (equation 18). No token
        # ends before the one in front of it.
        token_ends = list(accumulate((end for _, _, end in placed), max))
        prompt = self.prompt_of[window.language]
        prefixes: list[tuple[int, list[int]]] = []
        for n_frames in points:
            n_tokens = bisect_right(token_ends, n_frames)
            if n_frames * FRAME_SAMPLES >= len(window.audio):
                n_tokens = len(tokens)  # a word's time may be rounded past the end of the audio
            prefixes.append((n_frames, tokens[:n_tokens]))
        self.check_room(max(len(prefix_tokens) for _, prefix_tokens in prefixes))
        return PrefixExample(window.audio, ends, prompt, prefixes)

    # -- training -------------------------------------------------------------------------------

    def precompute(self, batch: PrefixBatch) -> PrefixBatch:
        """Return the batch with its features, made where it is."""
        n_mels, context = self.whisper.n_mels, self.whisper.context_frames
        return batch.with_features(n_mels, context, taught=not self.timed)

    def loss(
        self, model: nn.Module, batch: PrefixBatch
    ) -> tuple[Tensor, dict[str, float | Tensor]]:
        """Return the loss and what to log of it.

        The loss is the mean cross-entropy of all rows' tokens and ends; with `learn: encoder` the
        distance to the offline encoder's frames.
        """
        batch = self.precompute(batch.to(self.device))
        frames, hidden, offline = model(batch, decode_it=self.timed, taught=not self.timed)
        audio_s = sum(window_ends[-1] for window_ends in batch.ends) * FRAME_S
        logs: dict[str, float | Tensor] = {"audio_s": audio_s}
        if hidden is None:
            loss = self._distance(batch, frames, offline)
            return loss, logs | {"frames": loss.detach(), "weight": audio_s}
        labels = batch.labels.flatten()[batch.learned]
        loss, likeliest = vocabulary_loss(hidden, self.prefixes.vocabulary, labels)
        is_right = (likeliest == labels).float()
        is_end = (labels == self.whisper.eot).float()
        logs |= {
            "token_accuracy": is_right.mean(),
            "stop_accuracy": (is_right * is_end).sum() / is_end.sum(),
            "weight": float(len(labels)),
        }
        return loss, logs

    def _distance(self, batch: PrefixBatch, frames: Tensor, offline: Tensor) -> Tensor:
        """Return how far frames (B, F, d) are from the offline model's (B, context, d).

        A mean over the frames that are no padding: 1 where keys and values differ by as much as
        they vary (`PrefixModel.distance_root`).
        """
        assert self.distance_root is not None
        difference = frames.float() - offline[:, : frames.shape[1]].float()
        difference = difference.flatten(0, 1)[batch.real]
        return (difference @ self.distance_root.to(difference)).square().sum(-1).mean()

    def evaluate(self) -> dict[str, float]:
        """Return the WER in percent of greedy streaming on dev, the adapter as `save` writes it.

        With `learn: encoder` the mean distance on dev: no decoder has learned to use its frames.
        """
        if self.learn == "encoder":
            return self._dev_distance()
        return self.stream_dev("whisperrt")[0]

    @torch.no_grad()
    def _dev_distance(self) -> dict[str, float]:
        """Return the mean distance of all dev frames, for chunks of `chunk_s` and of `EVALUATED_S`.

        `score` is the mean of the two figures.
        """
        n_context_samples = self.whisper.context_frames * FRAME_SAMPLES
        dev = [utterance.load()[:n_context_samples] for utterance in self.dev]
        figures = {}
        for chunk in sorted({self.chunk, round(EVALUATED_S / FRAME_S)}):
            first_chunk = self.first_chunk if chunk == self.chunk else first_chunk_frames(chunk)
            total, n_frames = 0.0, 0
            for i in range(0, len(dev), self.batch):
                batch = self._without_text(dev[i : i + self.batch], chunk, first_chunk)
                batch = self.precompute(batch.to(self.device))
                frames, _, offline = self.prefixes(batch, decode_it=False, taught=True)
                total += float(self._distance(batch, frames, offline)) * len(batch.real)
                n_frames += len(batch.real)
            figures[f"distance_{chunk * FRAME_S:g}s"] = total / n_frames
        return {"score": sum(figures.values()) / len(figures), **figures}

    def _without_text(
        self, audio: Sequence[np.ndarray], chunk: int | None = None, first_chunk: int | None = None
    ) -> PrefixBatch:
        """Return a batch of windows without text; chunks in frames, by default the recipe's."""
        chunk, first_chunk = chunk or self.chunk, first_chunk or self.first_chunk
        prompt = self.prompt_of[None]
        examples = []
        for samples in audio:
            ends = self.blocks(len(samples), chunk, first_chunk)
            examples.append(PrefixExample(samples, ends, prompt, [(ends[-1], [])]))
        return pack(examples, self.whisper.eot)

    def save(self, folder: Path) -> None:
        """Write a peft adapter in fp16 into `folder`, and training.json: settings and results."""
        save_lora(self.peft, folder, published_name(self.model_path))
        self.write_card(
            folder,
            "whisperrt",
            "random_chunks rank modules learn init mode point_fraction points_per_window "
            "last_tokens batch",
            base=self.model_path,
            start=self.begun_from,
            chunk_s=self.chunk_s,
            first_chunk_s=self.first_chunk_s,
            # step, minutes and dev/wer of now, from the curve that `fit` keeps next to it
            reached=_last_row(folder.parent / "curve.jsonl"),
        )


def _last_row(curve: Path) -> dict[str, float] | None:
    """Return the last line of a training curve, None where the training has none yet."""
    if not curve.exists():
        return None
    row: dict[str, float] = json.loads(curve.read_text().splitlines()[-1])
    return row
