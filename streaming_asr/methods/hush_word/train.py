"""Trains a hush word: audio that, appended, makes a frozen Whisper output the transcript and stop.

WhisperFlow, section 4.1: the samples are the only parameter, the target is the transcript, the loss
its cross-entropy, each clip has its own length and is not padded, and the final word is the mean of
a few of the best evaluations. What the paper leaves open is chosen here:

A loud tail would move the floor of Whisper's log-mel, hence the clamp.
A share of the clips is cut anywhere, as the buffer of a stream is; `crop_end=0` leaves it out.
Prompts hold <|notimestamps|>, as they do when the method runs. <|endoftext|> may weigh more than a
token of text (`end_weight`), as the word can teach little else; dev is decoded with the guard.
The word begins as even noise of 0.02 at most.
Commit 12931f89 trains several clamps side by side, of which dev chooses.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.errors import UserError, check_range
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.methods.hush_word.padding import (
    FILE_NAME,
    NOISE_PEAK,
    Padding,
    load_hush,
    padded_mel,
)
from streaming_asr.training.greedy import greedy
from streaming_asr.training.recipe import CorpusRecipe, dev_wer, published_name
from streaming_asr.training.windows import WindowOptions, augmented
from streaming_asr.whisper.batched import decode_windows
from streaming_asr.whisper.encoder import encode as encode_frames
from streaming_asr.whisper.load import Whisper, load_whisper

PREVIOUS_TOKENS = 100


@dataclass(frozen=True, slots=True)
class HushExample:
    """A clip, the decoder's tokens from prompt to <|endoftext|>, and how many are the prompt's."""

    audio: Tensor  # (n,)
    tokens: list[int]
    n_prompt: int


class TrainedWord(nn.Module):
    """A hush word in front of a frozen model that is no part of it."""

    def __init__(
        self, whisper: Whisper, tail: Tensor, bound: float, end_weight: float = 1.0
    ) -> None:
        """tail: (n,) samples. bound: of them, infinity for none. end_weight: weight of
        <|endoftext|> in the loss, relative to a token of text."""
        super().__init__()
        self.tail = nn.Parameter(tail)
        self._bound, self._end_weight = bound, end_weight
        self._whisper = [whisper]  # a list hides it: its weights are not this module's

    @torch.no_grad()
    def clamp(self) -> None:
        """Project the word into its bound, which an optimiser's step may have left."""
        self.tail.clamp_(-self._bound, self._bound)

    def forward(self, examples: Sequence[HushExample]) -> Tensor:
        """Return the mean cross-entropy of the transcripts: of each a weighted mean over its tokens
        and its end."""
        self.clamp()
        (whisper,) = self._whisper
        losses = []
        for example in examples:
            frames = encode(whisper, example.audio, Padding("hush", self.tail))
            (logits,) = decode_windows(whisper.model, [example.tokens[:-1]], [frames[0]])
            labels = torch.tensor(example.tokens[example.n_prompt :], device=logits.device)
            weights = torch.where(labels == whisper.eot, self._end_weight, 1.0)
            each = F.cross_entropy(logits[example.n_prompt - 1 :], labels, reduction="none")
            losses.append((each * weights).sum() / weights.sum())
        return torch.stack(losses).mean()


def encode(whisper: Whisper, audio: Tensor, padding: Padding) -> Tensor:
    """Return encoder output (1, frames, d) of (n,) audio with the padding's tail after it."""
    device = whisper.model.device if padding.samples is None else padding.samples.device
    if whisper.model.device != device:
        whisper.model.to(device)
    with torch.autocast(device.type, enabled=False):  # log-mels are float32 in any precision
        samples = audio.to(device)[None]
        mel = padded_mel(samples, padding, whisper.n_mels, whisper.context_frames)
    return encode_frames(whisper.model, mel)


@dataclass(kw_only=True, eq=False)
class HushWordRecipe(CorpusRecipe):
    """`train method=hush_word`: half a second of audio.

    Raises UserError on settings out of range and on a missing corpus.
    """

    model_path: str
    start: str | None  # folder of a word to go on from; None: noise
    clamp: float | str | None  # bound of the samples, `none` for no bound
    length_s: float  # of the word
    batch: int
    average: int  # best evaluations of which the word is the mean
    crop_end: float  # share of the clips that end anywhere
    several: float
    prompt: float
    end_weight: float  # of <|endoftext|> in the loss; a token of text has 1
    model: TrainedWord = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bound = float("inf") if self.clamp in (None, "none") else self.clamp
        if not isinstance(bound, int | float) or not bound > 0:
            raise UserError(f"clamp={self.clamp}: a positive bound of the samples, or none")
        check_range(1, batch=self.batch, average=self.average)
        check_range(0, above=True, length_s=self.length_s, end_weight=self.end_weight)
        super().__post_init__()
        self.whisper = load_whisper(self.model_path)
        context_s = self.whisper.context_s - self.length_s
        if context_s < self.length_s:
            raise UserError(
                f"length_s={self.length_s:g}: the context is {self.whisper.context_s:g} s, and "
                "half of it at least is for the audio"
            )
        plain = WindowOptions(
            context_s,
            several=self.several,
            crop_end=self.crop_end,
            timestamps=0.0,
            prompt=self.prompt,
        )
        self.options = augmented(plain, self.augment)
        tail = self._initial(min(NOISE_PEAK, bound))
        self.model = TrainedWord(self.whisper, tail, bound, self.end_weight)
        self._best: list[tuple[float, Tensor]] = []
        """The best evaluations, (WER, word). A resumed training starts with none."""

    def _initial(self, peak: float) -> Tensor:
        """Return even noise, (n,) samples, or the word of `start`. Raises UserError where that is
        of another length."""
        generator = torch.Generator().manual_seed(self.seed)
        n_samples = round(self.length_s * SAMPLE_RATE)
        if self.start is None:
            return (2 * torch.rand(n_samples, generator=generator) - 1) * peak
        tail = load_hush(self.start, self.whisper).samples
        if tail is None or len(tail) != n_samples:
            raise UserError(
                f"start={self.start}: a word of another length; length_s={self.length_s:g} "
                f"needs {n_samples} samples"
            )
        return tail.clone()

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> list[HushExample]:
        """Return a batch of clips; it depends only on (seed, step, rank)."""
        rng = self.rng(step, rank)
        return [self._example(rng) for _ in range(self.batch)]

    def _example(self, rng: random.Random) -> HushExample:
        """Draw a clip; its tokens are cut to the decoder's positions."""
        window = self.window(rng, self.options)
        previous = self._tokens(window.prompt)[-PREVIOUS_TOKENS:]
        prompt = self.whisper.prompt(window.language, previous=previous)
        text = self._tokens(" ".join(word for word, *_ in window.words))
        tokens = [*prompt, *text, self.whisper.eot][: self.whisper.max_tokens]
        return HushExample(torch.from_numpy(window.audio), tokens, len(prompt))

    def _tokens(self, text: str) -> list[int]:
        return self.whisper.text_tokens(f" {text}") if text else []

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: list[HushExample]) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss, and nothing more to log."""
        return model(batch), {}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return WERs on dev, in percent: `score`, of the mean of the words of the best
        evaluations, and `best`, of the best of these words."""
        self.model.clamp()
        word = self.model.tail.detach().clone()
        self._best.append((self._wer(word), word))
        self._best.sort(key=lambda entry: entry[0])
        del self._best[self.average :]
        return {"score": self._wer(self._mean()), "best": self._best[0][0]}

    def _mean(self) -> Tensor:
        """Return the mean of the words of the best evaluations, (n,)."""
        return torch.stack([word for _, word in self._best]).mean(0)

    def _wer(self, word: Tensor) -> float:
        """Return the WER on dev with a word (n,), each utterance cut to what fits before it."""
        whisper, texts = self.whisper, []
        for utterance in self.dev:
            audio = torch.from_numpy(utterance.load()[: int(self.options.context_s * SAMPLE_RATE)])
            frames = encode(whisper, audio, Padding("hush", word))
            prompt, most = whisper.prompt(utterance.language), whisper.max_tokens // 2
            texts.append(greedy(whisper, frames, prompt, most))
        return dev_wer(self.dev, texts)

    def save(self, folder: Path) -> None:
        """Write the mean of the best evaluations, and training.json."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        word = self._mean() if self._best else self.model.tail.detach()
        save_file({"samples": word.float().cpu().contiguous()}, folder / FILE_NAME)
        self.write_card(
            folder,
            "hush_word",
            "clamp length_s batch average crop_end several prompt end_weight",
            base=self.model_path,
            start=self.start and published_name(self.start),
            model=published_name(self.model_path),
            peak=round(float(word.abs().max()), 5),
            rms=round(float(word.square().mean().sqrt()), 5),
        )
