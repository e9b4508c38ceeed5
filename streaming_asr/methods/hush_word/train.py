"""Trains a hush word: audio that, appended, makes a frozen Whisper output the transcript and stop.

WhisperFlow, section 4.1: the samples are the only parameter, the target is the transcript, the loss
its cross-entropy, each clip has its own length and is not padded, and the final word is the mean of
a few of the best evaluations. What the paper leaves open is chosen here:

Several clamps are trained side by side, on the same clips, as rows of one batch; word error rate on
dev chooses among them. A loud tail would move the floor of Whisper's log-mel, hence the clamp.
A share of the clips is cut anywhere, as the buffer of a stream is; `crop_end=0` leaves it out.
Prompts hold <|notimestamps|>, as they do when the method runs. <|endoftext|> may weigh more than a
token of text (`end_weight`), as the word can teach little else; dev is decoded with the guard.
The word begins as even noise of 0.02 at most.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.errors import UserError, check_range
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.methods.hush_word.padding import (
    FILE_NAME,
    NOISE_PEAK,
    Padding,
    load_hush,
    make_padding,
    padded_mel,
    padded_mels,
)
from streaming_asr.training.greedy import greedy
from streaming_asr.training.recipe import CorpusRecipe, dev_wer, published_name
from streaming_asr.training.windows import WindowOptions, augmented
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.batched import decode
from streaming_asr.whisper.encoder import encode as encode_frames
from streaming_asr.whisper.load import Whisper, load_whisper

PREVIOUS_TOKENS = 100


@dataclass(frozen=True, slots=True)
class HushExample:
    """A clip, the decoder's tokens from prompt to <|endoftext|>, and how many are the prompt's."""

    audio: Tensor  # (n,)
    tokens: list[int]
    n_prompt: int


class HushWords(nn.Module):
    """Rows of hush words, one per clamp, in front of a frozen model that is no part of it."""

    bounds: Tensor

    def __init__(
        self, whisper: Whisper, tails: Tensor, bounds: Tensor, end_weight: float = 1.0
    ) -> None:
        """Take tails, (words, n) samples or (words, n_mels, 2 frames), and their bounds (words,).

        end_weight: weight of <|endoftext|> in the loss, relative to a token of text.
        """
        super().__init__()
        self.tails = nn.Parameter(tails)
        self.register_buffer("bounds", bounds.reshape(-1, *[1] * (tails.ndim - 1)))
        self._end_weight = end_weight
        self._whisper = [whisper]  # a list hides it: its weights are not this module's

    @torch.no_grad()
    def clamp(self) -> None:
        """Project every word into its bounds, which an optimiser's step may have left."""
        self.tails.copy_(torch.minimum(torch.maximum(self.tails, -self.bounds), self.bounds))

    def forward(self, examples: Sequence[HushExample]) -> Tensor:
        """Return the mean cross-entropy of the transcripts for each word, (words,).

        On a GPU all examples go through the model together. On a CPU the padding costs more than
        that saves.
        """
        self.clamp()
        groups = [[e] for e in examples] if self.tails.device.type == "cpu" else [examples]
        return torch.cat([self.losses(group) for group in groups]).mean(0)

    def losses(self, examples: Sequence[HushExample]) -> Tensor:
        """Return the cross-entropy of each example's transcript for each hush word, in one pass.

        (examples, words), a weighted mean over the tokens and the end.
        """
        whisper, n_words = self._whisper[0], len(self.tails)
        device = self.tails.device
        hidden, n_frames = encode_each(whisper, [e.audio for e in examples], self.tails)
        is_frame = torch.arange(hidden.shape[1]) < n_frames[:, None]
        tokens = pad_sequence(
            [torch.tensor(e.tokens) for e in examples], batch_first=True, padding_value=whisper.eot
        )
        n_prompt = torch.tensor([e.n_prompt for e in examples])[:, None]
        n_tokens = torch.tensor([len(e.tokens) for e in examples])[:, None]
        # Position i predicts token i + 1; the prompt and the padding are not learned.
        positions = torch.arange(tokens.shape[1] - 1)
        is_learned = (positions >= n_prompt - 1) & (positions < n_tokens - 1)
        weights = torch.where(tokens[:, 1:] == whisper.eot, self._end_weight, 1.0) * is_learned

        def per_word(tensor: Tensor) -> Tensor:
            """Return the rows of a tensor once for each hush word, on the device."""
            return tensor.to(device, non_blocking=True).repeat_interleave(n_words, 0)

        n = len(positions)
        causal = torch.ones(n, n, dtype=torch.bool, device=device).tril()
        visible = None if len(examples) == 1 else per_word(is_frame)[:, None, None]
        positions = positions.to(device, non_blocking=True)
        out = decode(whisper.model, hidden, per_word(tokens[:, :-1]), positions, causal, visible)
        first = int(n_prompt.min()) - 1  # before it no position is learned
        logits = whisper.model.proj_out(out[:, first:])
        labels = per_word(tokens[:, first + 1 :])
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        weights = per_word(weights[:, first:])
        return ((losses * weights).sum(-1) / weights.sum(-1)).unflatten(0, (-1, n_words))


def encode(whisper: Whisper, audio: Tensor, tails: Tensor) -> Tensor:
    """Return encoder output (words, frames, d) of (n,) audio with each of the tails after it."""
    return encode_each(whisper, [audio], tails)[0]


def encode_each(whisper: Whisper, audio: Sequence[Tensor], tails: Tensor) -> tuple[Tensor, Tensor]:
    """Return encoder output of each of `audio`, (n_i,), with each of the tails after it.

    In one pass: (len(audio) * words, F, d), the words of an audio next to each other, and how many
    frames of each audio are no padding, (len(audio),) on the CPU.
    """
    n_words, device = len(tails), tails.device
    if whisper.model.device != device:
        whisper.model.to(device)
    padding = Padding("hush", samples=tails)
    rows = [samples.to(device, non_blocking=True).expand(n_words, -1) for samples in audio]
    with torch.autocast(device.type, enabled=False):  # log-mels are float32 in any precision
        mels = padded_mels(rows, padding, whisper.n_mels, whisper.context_frames)
    n_frames = torch.tensor([mel.shape[-1] // 2 for mel in mels])
    # Zeros follow each input, as the convolutions pad one by itself.
    padded = pad_sequence([mel.permute(2, 0, 1) for mel in mels], batch_first=True)
    mask = None
    if len(audio) > 1:
        is_frame = torch.arange(int(n_frames.max())) < n_frames[:, None]
        is_frame = is_frame.to(device, non_blocking=True).repeat_interleave(n_words, 0)
        mask = is_frame[:, None, None]
    # From (audio, 2 F, words, n_mels).
    mel = padded.permute(0, 2, 3, 1).flatten(0, 1)
    return encode_frames(whisper.model, mel, mask), n_frames


@dataclass(kw_only=True, eq=False)
class HushWordRecipe(CorpusRecipe):
    """`train method=hush_word`: half a second of audio.

    Raises UserError on settings out of range and on a missing corpus.
    """

    model_path: str
    start: str | None  # folder of a word to go on from; None: noise
    clamps: Sequence[float | str | None]  # bounds of the samples tried, `none` for no bound
    length_s: float  # of the word
    batch: int
    average: int  # best evaluations of which the word is the mean
    crop_end: float  # share of the clips that end anywhere
    several: float
    prompt: float
    end_weight: float  # of <|endoftext|> in the loss; a token of text has 1
    model: HushWords = field(init=False, repr=False)

    def __post_init__(self) -> None:
        bounds = [_bound(clamp) for clamp in self.clamps]
        if not bounds:
            raise UserError("clamps=[]: one clamp or more, as clamps=[none]")
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
        self.bounds = [None if bound == float("inf") else bound for bound in bounds]
        limits = torch.tensor(bounds)
        self.model = HushWords(self.whisper, self._initial(), limits, self.end_weight)
        self._best: list[list[tuple[float, Tensor]]] = [[] for _ in bounds]
        """For each clamp its best evaluations, (WER, word). A resumed training starts with none."""
        self._chosen = 0
        self._figures: dict[str, float] = {}
        self._others: dict[str, float] | None = None

    def _initial(self) -> Tensor:
        """Return even noise for each bound, (words, n) samples, or the word of `start` for each.
        Raises UserError where that is of another length."""
        generator = torch.Generator().manual_seed(self.seed)
        n_samples, n_words = round(self.length_s * SAMPLE_RATE), len(self.bounds)
        if self.start is not None:
            tail = load_hush(self.start, self.whisper).samples
            if tail is None or len(tail) != n_samples:
                raise UserError(
                    f"start={self.start}: a word of another length; length_s={self.length_s:g} "
                    f"needs {n_samples} samples"
                )
            return tail.expand(n_words, -1).clone()
        peaks = torch.tensor([min(NOISE_PEAK, bound or NOISE_PEAK) for bound in self.bounds])
        # One draw for all, so that the words differ only by their clamps in the end.
        return (2 * torch.rand(n_samples, generator=generator) - 1) * peaks[:, None]

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
        """Return the sum of the words' losses, and each to log. Their gradients are independent."""
        losses = model(batch)
        logs = {
            f"loss_{_name(clamp)}": loss
            for clamp, loss in zip(self.bounds, losses.detach(), strict=True)
        }
        return losses.sum(), logs

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Return WERs on dev, in percent.

        For each clamp `wer_`, of the mean of the words of its best evaluations, and `best_`, of the
        best of these words. `score` is the lowest `wer_`; then come those of other paddings.
        """
        self.model.clamp()
        words = self.model.tails.detach().clone()
        for best, wer, word in zip(self._best, self._wers(words), words, strict=True):
            best.append((wer, word))
            best.sort(key=lambda entry: entry[0])
            del best[self.average :]
        wers = self._wers(self._means())
        self._chosen = min(range(len(wers)), key=wers.__getitem__)
        self._figures = {"score": wers[self._chosen]}
        for clamp, wer, best in zip(self.bounds, wers, self._best, strict=True):
            self._figures[f"wer_{_name(clamp)}"] = wer
            self._figures[f"best_{_name(clamp)}"] = best[0][0]
        if self._others is None:
            self._others = {}
            for kind in ("full", "none", "zeros"):
                length_s = self.length_s if kind == "zeros" else None
                padding = make_padding(kind, self.whisper, length_s=length_s)
                self._others[f"wer_{kind}"] = self._wer_of(padding)
        return self._figures | self._others

    def _means(self) -> Tensor:
        """Return for each clamp the mean of the words of its best evaluations, as `tails`."""
        return torch.stack([torch.stack([w for _, w in best]).mean(0) for best in self._best])

    def _wers(self, tails: Tensor) -> list[float]:
        """Return the WER on dev with each tail, (words, n).

        A clip is decoded greedily with all tails at once.
        """
        texts_by_tail: list[list[str]] = [[] for _ in tails]
        for utterance in self.dev:
            audio = torch.from_numpy(self._clip(utterance))
            hidden = encode(self.whisper, audio, tails)
            texts = self._decode(hidden, utterance.language)
            for tail_texts, text in zip(texts_by_tail, texts, strict=True):
                tail_texts.append(text)
        return [dev_wer(self.dev, texts) for texts in texts_by_tail]

    def _wer_of(self, padding: Padding) -> float:
        """Return the WER on dev with a padding that is not trained."""
        whisper, texts = self.whisper, []
        for utterance in self.dev:
            audio = torch.from_numpy(self._clip(utterance)).to(whisper.model.device)[None]
            mel = padded_mel(audio, padding, whisper.n_mels, whisper.context_frames)
            texts += self._decode(encode_frames(whisper.model, mel), utterance.language)
        return dev_wer(self.dev, texts)

    def _clip(self, utterance: Utterance) -> Any:
        """Return as much of the utterance, (n,), as fits before the word."""
        return utterance.load()[: int(self.options.context_s * SAMPLE_RATE)]

    def _decode(self, hidden: Tensor, language: str | None) -> list[str]:
        """Return the greedy text of each row of encoder output (rows, frames, d)."""
        whisper = self.whisper
        sequences = greedy(whisper, hidden, whisper.prompt(language), whisper.max_tokens // 2)
        return [whisper.tokenizer.decode(tokens).strip() for tokens in sequences]

    def save(self, folder: Path) -> None:
        """Write the mean of the best evaluations of the chosen clamp, and training.json."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        word = self._means()[self._chosen] if self._best[0] else self.model.tails[0].detach()
        save_file({"samples": word.float().cpu().contiguous()}, folder / FILE_NAME)
        wers = self._figures | (self._others or {})
        self.write_card(
            folder,
            "hush_word",
            "length_s batch average crop_end several prompt end_weight",
            base=self.model_path,
            start=self.start and published_name(self.start),
            model=published_name(self.model_path),
            clamps=[_name(bound) for bound in self.bounds],
            clamp=_name(self.bounds[self._chosen]),
            peak=round(float(word.abs().max()), 5),
            rms=round(float(word.square().mean().sqrt()), 5),
            dev_wer={name: round(wer, 3) for name, wer in wers.items()},
        )


def _bound(clamp: float | str | None) -> float:
    """Return a clamp as a number, infinity for none. Raises UserError."""
    if clamp in (None, "none"):
        return float("inf")
    if not isinstance(clamp, int | float) or not clamp > 0:
        raise UserError(f"clamps: {clamp}: a positive bound of the samples, or none")
    return float(clamp)


def _name(clamp: float | None) -> str:
    return "unclamped" if clamp is None else f"clamp{clamp:g}"
