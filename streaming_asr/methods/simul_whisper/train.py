"""Trains the truncation detector: the frame weights of a clip must sum to its number of words.

Simul-Whisper's loss is the root mean square error of that sum. Two things decide whether the
detector then works on a stream, and both are done here:

The clips are those of inference: cut at any frame, also inside words, padded to the context, and
weighed only on the frames with audio. Trained on whole utterances it counts ten words in a second.
A word counts when all of it is in the clip. So the sum must rise by one just where a word ends
with the clip, which is what the detector is asked; half of the clips end there.

A low loss does not show that the detector ever fires: it asks for more than one word's weight on
the last two frames, and a sum can be right without (in trials on mini it was right to 1.4 words and
fired in none of 40 clips). So there is a second term, not the paper's: cross-entropy of the weights
of these two frames against whether a word is cut there; `boundary_weight=0` leaves it out. And the
score on dev is that of the decisions: on clips that end with a word, and that end inside one.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError, check_range
from streaming_asr.method import FRAME_S, FRAME_SAMPLES, Samples
from streaming_asr.methods.simul_whisper.truncation import (
    FILE_NAME,
    TruncationDetector,
    fires_at_the_end,
)
from streaming_asr.training.recipe import CorpusRecipe, published_name
from streaming_asr.training.windows import UNCUT, WindowOptions, augmented
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper

LEAST_FRAMES = 15  # of a clip: a stream decodes no less than 300 ms
LEAST_CUT_WORD_FRAMES = 10  # dev clips that end inside a word: of words this long, in the middle

Span = tuple[float, float]


@dataclass(kw_only=True, eq=False)
class TruncationRecipe(CorpusRecipe):
    """`train method=simul_whisper`: one linear layer on a frozen encoder's output.

    Raises UserError where the corpus or the dev manifest is missing or has no word times.
    """

    model_path: str
    batch: int
    boundary_weight: float  # of the cross-entropy on the last two frames, 0: only the sum's error
    at_word_end: float  # share of the clips that end with a word
    late_start: float  # share of the clips that start anywhere
    several: float
    model: TruncationDetector = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_range(1, batch=self.batch)
        check_range(0, boundary_weight=self.boundary_weight)
        check_range(0, 1, at_word_end=self.at_word_end, late_start=self.late_start)
        super().__post_init__()
        timed = [each for each in read_manifest(Path(self.dev_manifest)) if each.words]
        self.dev = timed[: self.n_dev]
        if not self.dev:
            raise UserError(
                f"dev_manifest={self.dev_manifest}: no utterance with word times; clips are "
                "cut by them"
            )
        self.whisper = load_whisper(self.model_path)
        plain = WindowOptions(self.whisper.context_s, several=self.several, **UNCUT)
        self.options = augmented(plain, self.augment)
        torch.manual_seed(self.seed)
        self.model = TruncationDetector(self.whisper.config.d_model)
        # Every weight begins at the corpus's words per frame: from 0.5 the bias learns slowly.
        n_frames = sum(item.n_samples for item in self.items) / FRAME_SAMPLES
        words_per_frame = min(0.5, sum(len(item.words) for item in self.items) / n_frames)
        logit = math.log(words_per_frame / (1 - words_per_frame))
        nn.init.zeros_(self.model.linear.weight)
        nn.init.constant_(self.model.linear.bias, logit)

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> dict[str, Tensor]:
        """Return clips, and for each its number of words and whether no word is cut at its end.

        Depends only on (seed, step, rank).
        """
        rng = self.rng(step, rank)
        clips, n_words, whole = [], [], []
        for _ in range(self.batch):
            window = self.window(rng, self.options)
            spans = [(start, end) for _, start, end, _ in window.words]
            first, stop = self._cut(rng, len(window.audio) // FRAME_SAMPLES, spans)
            clips.append(window.audio[first * FRAME_SAMPLES : stop * FRAME_SAMPLES])
            n_words.append(count_words(spans, first, stop))
            whole.append(not cuts_a_word(spans, stop))
        return self._pack(clips) | {
            "n_words": torch.tensor(n_words, dtype=torch.float32),
            "whole": torch.tensor(whole, dtype=torch.float32),
        }

    def _cut(self, rng: random.Random, n_frames: int, spans: list[Span]) -> tuple[int, int]:
        """Draw a clip [first, stop) of a window of `n_frames` frames; return the two."""
        first = rng.randrange(n_frames) if rng.random() < self.late_start else 0
        first = max(0, min(first, n_frames - LEAST_FRAMES))
        earliest_stop = min(first + LEAST_FRAMES, n_frames)
        word_stops = [stop for stop in map(stop_frame, spans) if earliest_stop <= stop <= n_frames]
        if word_stops and rng.random() < self.at_word_end:
            return first, rng.choice(word_stops)
        return first, rng.randint(earliest_stop, n_frames)

    def _pack(self, clips: list[Samples]) -> dict[str, Tensor]:
        """Return the clips, (n,) each, padded to the context before the features as a stream's
        window is: log-mel (batch, n_mels, 2 context) and frames with audio (batch,).
        """
        padded = np.zeros((len(clips), self.whisper.context_frames * FRAME_SAMPLES), np.float32)
        for row, clip in zip(padded, clips, strict=True):
            row[: len(clip)] = clip
        return {
            "mel": log_mel(torch.from_numpy(padded), self.whisper.n_mels),
            "n_frames": torch.tensor([len(clip) // FRAME_SAMPLES for clip in clips]),
        }

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and what to log of it.

        The loss is the root mean square error of the clips' summed weights, in words, plus the
        weighted cross-entropy of the last two frames against whether a word is cut there.
        """
        weights = self._weights(model, batch)
        batch = {key: value.to(weights.device) for key, value in batch.items()}
        error = weights.sum(-1) - batch["n_words"]
        rmse = error.square().mean().clamp(min=1e-6).sqrt()
        last_two = batch["n_frames"][:, None] - torch.tensor([2, 1], device=weights.device)
        boundary = F.binary_cross_entropy(
            weights.gather(1, last_two).clamp(1e-6, 1 - 1e-6),
            batch["whole"][:, None].expand(-1, 2),
        )
        logs = {"rmse_words": float(rmse.detach()), "boundary": float(boundary.detach())}
        return rmse + self.boundary_weight * boundary, logs

    @torch.no_grad()
    def _encode(self, mel: Tensor) -> Tensor:
        """Return the frozen encoder's output (batch, context, d) of mel (batch, n_mels, frames)."""
        device = self.device
        if self.whisper.model.device != device:
            self.whisper.model.to(device)
        return encode_padded(self.whisper.model, mel.to(device))

    def _weights(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Return the frame weights (batch, frames) of clips, 0 on padding."""
        hidden = self._encode(batch["mel"])
        frames = torch.arange(hidden.shape[1], device=hidden.device)
        has_audio = frames < batch["n_frames"].to(hidden.device)[:, None]
        weights: Tensor = model(hidden) * has_audio
        return weights

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return how often the detector decides right on dev clips, in percent.

        By the published rule: `whole_words_kept` of the clips that end with a word,
        `cut_words_dropped` of those that end inside one; `score` is the mean share of wrong
        decisions. `rmse_words`: of the sum.
        """
        # Both by whether the clip ends with a whole word.
        is_right: dict[bool, list[bool]] = {True: [], False: []}
        squares = []
        for i, utterance in enumerate(self.dev):
            rng = self.rng("dev", i)
            audio = utterance.load()[: self.whisper.context_frames * FRAME_SAMPLES]
            spans = [(word.start, word.end) for word in utterance.words or ()]
            clips = dev_clips(rng, spans, len(audio) // FRAME_SAMPLES)
            if not clips:
                continue
            batch = self._pack([audio[: stop * FRAME_SAMPLES] for stop, _ in clips])
            for row, (stop, whole) in zip(self._weights(self.model, batch), clips, strict=True):
                is_right[whole].append(fires_at_the_end(row[:stop]) is whole)
                squares.append((float(row.sum()) - count_words(spans, 0, stop)) ** 2)
        whole_kept = 100 * sum(is_right[True]) / max(1, len(is_right[True]))
        cut_dropped = 100 * sum(is_right[False]) / max(1, len(is_right[False]))
        return {
            "score": 100 - (whole_kept + cut_dropped) / 2,
            "whole_words_kept": whole_kept,
            "cut_words_dropped": cut_dropped,
            "rmse_words": math.sqrt(sum(squares) / max(1, len(squares))),
        }

    def save(self, folder: Path) -> None:
        """Write the linear layer into `folder`, and training.json: settings and results."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        linear = self.model.linear.state_dict()
        save_file({k: v.detach().cpu().contiguous() for k, v in linear.items()}, folder / FILE_NAME)
        self.write_card(
            folder,
            "simul_whisper",
            "batch boundary_weight at_word_end late_start",
            base=self.model_path,
            model=published_name(self.model_path),
        )


def stop_frame(span: Span) -> int:
    """Return the frame after the last one of a word (start, end), in seconds."""
    return math.ceil(span[1] / FRAME_S - 1e-6)


def count_words(spans: list[Span], first: int, stop: int) -> int:
    """Return how many words (start, end), in seconds, lie entirely in frames [first, stop)."""
    first_s = first * FRAME_S - 1e-6
    return sum(
        start_s >= first_s and stop_frame((start_s, end_s)) <= stop and end_s > start_s
        for start_s, end_s in spans
    )


def cuts_a_word(spans: list[Span], stop: int) -> bool:
    """Return whether a clip of `stop` frames ends inside a word and has more than a frame of it.

    More than a frame: a clip that ends with a word has that word's last frame, in which a word that
    follows without a pause has already begun.
    """
    last_frame_s = (stop - 1) * FRAME_S - 1e-6
    return any(start < last_frame_s and stop_frame((start, end)) > stop for start, end in spans)


def dev_clips(rng: random.Random, spans: list[Span], n_frames: int) -> list[tuple[int, bool]]:
    """Return two clips of a recording's start: one ends with a word, one in the middle of a word.

    Each as (number of frames, whether no word is cut at its end). A clip is missing where no word
    is suitable.
    """
    stops = []
    word_stops = [stop for stop in map(stop_frame, spans) if LEAST_FRAMES <= stop <= n_frames]
    if word_stops:
        stops.append(rng.choice(word_stops))
    middles = [
        round((start + end) / 2 / FRAME_S)
        for start, end in spans
        if end - start >= LEAST_CUT_WORD_FRAMES * FRAME_S
    ]
    middles = [m for m in middles if LEAST_FRAMES <= m <= n_frames]
    if middles:
        stops.append(rng.choice(middles))
    return [(stop, not cuts_a_word(spans, stop)) for stop in stops]
