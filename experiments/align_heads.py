"""Finds the alignment heads of a Whisper model.

    python -m experiments.align_heads model=mini

Of the decoder's many cross-attention heads a few follow the audio: the query that predicts a token
looks at the frames where its word is spoken. Word times, and every policy that stops at the most
attended frame, depend on them. Whisper's own were picked by eye; here they are measured on
utterances with known word times:

1. The reference is forced through the decoder. `whisper.alignment.head_maps` gives the attention
   of every head over the frames of the audio.
2. A head, or a mean of heads, is right for a token when the frame it attends to most lies within
   0.2 s of the token's word.
3. Greedy forward selection on half of the utterances adds the head that helps the mean most, for as
   long as it also helps on the other, held-out half.

The result goes to `alignment_heads` in the folder's generation_config.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from streaming_asr.align.auto import timed_utterances
from streaming_asr.config.build import program
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import FRAME_S, FRAME_SAMPLES

if TYPE_CHECKING:
    from torch import Tensor

    from streaming_asr.utterance import Utterance
    from streaming_asr.whisper.load import Whisper

TOLERANCE_S = 0.2
MAX_HEADS = 10


@dataclass
class AlignHeadsConfig:
    """The settings, composed with conf/model and conf/data. A key that is not here is refused."""

    defaults: list[Any] = field(
        default_factory=lambda: [
            {"model": "mini"},
            {"data": "mini"},
            "_self_",
            {"override hydra/job_logging": "stdout"},
            {"override hydra/hydra_logging": "none"},
        ]
    )
    model: Any = field(default_factory=dict)
    data: Any = field(default_factory=lambda: {"split": "dev"})
    limit: int | None = 100
    write: bool = True
    device: str = "cpu"
    hydra: Any = field(  # nothing but the result is written
        default_factory=lambda: {
            "job": {"name": "align_heads", "chdir": False},
            "output_subdir": None,
            "run": {"dir": "."},
        }
    )


ConfigStore.instance().store(name="align_heads", node=AlignHeadsConfig)


@dataclass(frozen=True)
class Example:
    """One utterance: a map per head, and where the word of each token is."""

    maps: Tensor  # (heads, tokens, frames), standardised and smoothed; heads layer by layer
    spans: Tensor  # (tokens, 2) start and end in seconds


@dataclass(frozen=True)
class Score:
    """How a set of heads aligns, over tokens; sorts by quality."""

    share: float  # of tokens within TOLERANCE_S, percent
    error_s: float  # mean distance of the most attended frame to the word, 0 inside it

    @property
    def key(self) -> tuple[float, float]:
        return self.share, -self.error_s


@dataclass(frozen=True)
class Found:
    """Selected heads in the order of selection, and the held-out score after each."""

    heads: list[int]
    scores: list[Score]


def distances_s(maps: Tensor, spans: Tensor) -> Tensor:
    """Seconds from the highest frame of (..., tokens, frames) to its word's span, 0 inside it."""
    centre_s = (maps.argmax(-1) + 0.5) * FRAME_S
    start, end = spans.unbind(-1)
    return (start - centre_s).maximum(centre_s - end).clamp(min=0.0)


def score(distances: Sequence[Tensor]) -> Score:
    """Of the tokens of all utterances together."""
    import torch

    joined = torch.cat(list(distances))
    near = (joined <= TOLERANCE_S + 1e-6).float().mean()
    return Score(100 * float(near), float(joined.mean()))


def score_set(examples: Sequence[Example], heads: Sequence[int]) -> Score:
    """The mean map of `heads`."""
    chosen = list(heads)
    return score([distances_s(e.maps[chosen].float().mean(0), e.spans) for e in examples])


def score_each(examples: Sequence[Example], before: Sequence[int] = ()) -> list[Score]:
    """For each head, the mean map of it and of the heads `before`."""
    per_head: list[list[Tensor]] = [[] for _ in range(len(examples[0].maps))]
    for example in examples:
        together = example.maps[list(before)].float().sum(0) + example.maps
        for scores, distances in zip(per_head, distances_s(together, example.spans), strict=True):
            scores.append(distances)
    return [score(distances) for distances in per_head]


def select(training: Sequence[Example], held_out: Sequence[Example], max_heads: int) -> Found:
    """Greedy forward selection on `training` while the score on `held_out` rises."""
    choice = Found([], [])
    while len(choice.heads) < max_heads:
        scores = score_each(training, choice.heads)
        candidates = [h for h in range(len(scores)) if h not in choice.heads]
        if not candidates:
            break
        best = max(candidates, key=lambda h: scores[h].key)
        reached = score_set(held_out, [*choice.heads, best])
        if choice.scores and reached.key <= choice.scores[-1].key:
            break
        choice.heads.append(best)
        choice.scores.append(reached)
    return choice


class Forced:
    """Attention maps of all heads with the reference forced through the decoder."""

    def __init__(self, whisper: Whisper) -> None:
        from streaming_asr.whisper.decoder import Decoder, DecoderCache

        self.whisper = whisper
        self._decoder = Decoder(whisper)
        self._cache = DecoderCache(self._decoder)
        config = whisper.config
        layers, heads = range(config.decoder_layers), range(config.decoder_attention_heads)
        self._heads = [(layer, head) for layer in layers for head in heads]

    def example(self, utterance: Utterance) -> Example | None:
        """None for an utterance without words, or too long for the model's context."""
        import torch

        from streaming_asr.whisper.alignment import head_maps

        if not utterance.words:
            return None
        whisper, decoder = self.whisper, self._decoder
        audio = torch.from_numpy(utterance.load()).to(whisper.device)
        n_frames = -(-audio.numel() // FRAME_SAMPLES)
        tokens: list[int] = []
        spans: list[tuple[float, float]] = []
        for word in utterance.words:
            ids = whisper.text_tokens(" " + word.text)
            tokens += ids
            spans += [(word.start, word.end)] * len(ids)
        prompt = whisper.prompt(utterance.language)
        if n_frames > whisper.context_frames or len(prompt) + len(tokens) > whisper.max_tokens:
            return None
        decoder.append_frames(self._cache, self._encode(audio, n_frames), 0)
        maps = head_maps(decoder, self._cache, self._heads, prompt, tokens, n_frames)
        return Example(maps[:, :-1].half().cpu(), torch.tensor(spans))

    def _encode(self, audio: Tensor, n_frames: int) -> Tensor:
        import torch
        import torch.nn.functional as F

        from streaming_asr.whisper.encoder import encode_padded
        from streaming_asr.whisper.features import log_mel

        whisper = self.whisper
        with torch.inference_mode():
            context = whisper.context_frames * FRAME_SAMPLES
            padded = F.pad(audio[None], (0, context - audio.numel()))
            hidden = encode_padded(whisper.model, log_mel(padded, whisper.n_mels))
            return hidden[:, :n_frames]


def find(config: DictConfig, say: Any = print) -> list[tuple[int, int]]:
    """Measures, prints the table, writes where asked; returns (layer, head) pairs.

    Raises UserError for a model or corpus that is missing or without word times.
    """
    if config.limit is not None and config.limit < 1:
        raise UserError(f"limit={config.limit}: must be 1 or more; leave it out for its default")
    OmegaConf.resolve(config)
    utterances = timed_utterances(config.data, config.limit)
    if sum(bool(utterance.words) for utterance in utterances) < 2:
        raise UserError(
            f"data: {sum(bool(u.words) for u in utterances)} of {len(utterances)} utterances have "
            "word times, and two are needed; give data=mini, or a manifest with `words` "
            "([[word, start_s, end_s], ...]), as forced alignment makes it"
        )

    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(config.model.path, device=config.device)
    forced = Forced(whisper)
    examples = [e for e in map(forced.example, utterances) if e is not None]
    if len(examples) < 2:
        raise UserError(
            f"data: {len(examples)} utterances with word times fit the model's context of "
            f"{whisper.context_s:g} s and {whisper.max_tokens} tokens; give shorter ones"
        )
    held_out, training = examples[1::2], examples[::2]
    choice = select(training, held_out, MAX_HEADS)

    n_heads = whisper.config.decoder_attention_heads
    n_layers = whisper.config.decoder_layers

    def pair(head: int) -> tuple[int, int]:
        return head // n_heads, head % n_heads

    heads = [pair(head) for head in choice.heads]
    n_tokens = sum(len(example.spans) for example in held_out)
    say(
        f"{config.model.path}: {len(training)} utterances to choose on, {len(held_out)} held out "
        f"({n_tokens} tokens)"
    )
    say(f"\n{'held out: mean map of':<44} {'within 0.2 s':>12} {'mean error':>11}")

    def row(name: str, value: Score) -> None:
        say(f"{name:<44} {value.share:>10.1f} % {1000 * value.error_s:>8.0f} ms")

    row(
        "all heads of the last half of the layers",
        score_set(held_out, range(n_layers // 2 * n_heads, n_layers * n_heads)),
    )
    present = [layer * n_heads + head for layer, head in whisper.alignment_heads]
    row("the model's present alignment_heads", score_set(held_out, present))
    for i, value in enumerate(choice.scores):
        row(f"chosen {i + 1}: {'and ' if i else ''}{list(heads[i])}", value)
    say(f"\nalignment_heads: {json.dumps([list(h) for h in sorted(heads)])}")
    if config.write:
        say(f"written to {write_heads(Path(config.model.path), sorted(heads))}")
    return sorted(heads)


def write_heads(folder: Path, heads: Sequence[tuple[int, int]]) -> Path:
    """Set `alignment_heads` in the folder's generation_config.json; UserError without one."""
    path = folder.expanduser() / "generation_config.json"
    if not path.is_file():
        raise UserError(
            f"model.path={folder}: no {path.name} to write to; download the model to a folder "
            "first, or give write=false to print the heads only"
        )
    content = json.loads(path.read_text("utf-8"))
    content["alignment_heads"] = [list(head) for head in heads]
    return write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def main() -> int:
    """Run the command line and return its exit status."""
    return program("align_heads", lambda config: find(config) and None)


if __name__ == "__main__":
    sys.exit(main())
