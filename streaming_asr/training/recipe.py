"""What the recipes share: corpus and dev, windows in blocks, the score on dev, the card.

`CorpusRecipe` holds the corpus and writes training.json. `BlockRecipe` adds what every causal
model needs: windows of complete words, encoded block by block as a stream encodes them, never
padded to the context, the last block filled up with zeros.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from streaming_asr.chunking import Schedule, first_chunk_ms
from streaming_asr.config.build import new_method
from streaming_asr.corpora.lists import refuse_listed
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.shards import ShardItem, by_voice, read_shards, read_timed_shards
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.method import SAMPLE_RATE, Batched, Method, display_text
from streaming_asr.models.hash import weights_hash
from streaming_asr.simulate.feeds import in_phase
from streaming_asr.simulate.logbook import RecordedStream
from streaming_asr.simulate.recordings import InMemory, groups
from streaming_asr.simulate.stepper import Stepper
from streaming_asr.text.normalise import normaliser
from streaming_asr.training.windows import (
    UNCUT,
    Window,
    WindowOptions,
    augmented,
    check_augment,
    complete_window,
    draw_window,
)
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES, log_mel
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.masks import whole_block_ends
from streaming_asr.whisper.window import FRAME_S, frames_of

CHUNK_FRAMES = (5, 50)  # least and most of a batch's random chunk
CHUNKS_S = [0.1, 1.0]  # the same, for cards
NEIGHBOURS = 200  # utterances of similar lengths on either side


@dataclass(kw_only=True, eq=False)
class CorpusRecipe:
    """Base of a recipe: what it trains on (`items`, `voices`), its `dev`, and its card.

    The fields are the settings of conf/recipe. augment: `WindowOptions` that change the speech,
    drawn again for every window; None: as it is. Raises UserError where the corpus is missing, or
    has none of the utterances that are asked for.
    """

    train_data: str
    dev_manifest: str
    n_dev: int | None  # utterances of the manifest that are used, None for all
    seed: int
    augment: Mapping[str, Any] | None

    model: nn.Module = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the corpus and dev. Raises UserError for speech that may not be trained on."""
        if self.augment is not None:
            self.augment = dict(self.augment)
            check_augment(self.augment)
        items = (read_timed_shards if self.timed else read_shards)(Path(self.train_data))
        refuse_listed(
            items,
            f"train_data={self.train_data}",
            "write the shards again: `streaming-asr data shards` leaves such speech out",
        )
        self.train_on(items)
        dev = read_manifest(Path(self.dev_manifest))
        refuse_listed(
            dev,
            f"dev_manifest={self.dev_manifest}",
            "choose on other speech, as on that of data.ids=clean-dev",
            uses=("test",),
        )
        self.dev = dev[: self.n_dev]
        _check_apart(items, self.dev, self.dev_manifest)

    @property
    def timed(self) -> bool:
        """Return whether only utterances with word times are trained on."""
        return True

    def train_on(self, items: list[ShardItem]) -> None:
        """Set the corpus: `items` and, grouped by voice, `voices`."""
        self.items = items
        self.voices = by_voice(items)

    def rng(self, *key: object) -> random.Random:
        """Return a generator that follows from the seed and `key` only."""
        return random.Random("-".join(map(str, (self.seed, *key))))

    def window(self, rng: random.Random, options: WindowOptions) -> Window:
        """Return a window whose first utterance is drawn from all items."""
        anchor = self.items[rng.randrange(len(self.items))]
        return draw_window(rng, anchor, self.voices[anchor.voice], options)

    def near(self, share: float) -> list[ShardItem]:
        """Return utterances of similar lengths: the 400 items around position `share` (0 to 1) of
        `items`, which must be sorted by length."""
        centre = int(share * len(self.items))
        return self.items[max(0, centre - NEIGHBOURS) : centre + NEIGHBOURS]

    @property
    def device(self) -> torch.device:
        """Return the device of the trained parameters."""
        return next(self.model.parameters()).device

    def write_card(
        self, folder: Path, method: str, settings: str, base: str | None = None, **more: Any
    ) -> None:
        """Write `folder/training.json`: how the weights next to it were trained.

        method: the method that they are for. settings: names of the recipe's settings to write,
        divided by blanks; seed, augment and the corpora are always written. more: further fields.
        base: the model that the weights belong to, None for a whole model; the hash of its weights
        is written, so that `method.weights=auto` does not combine them with another.
        """
        n_samples = sum(item.n_samples for item in self.items)
        content = {
            **({} if base is None else {"base": weights_hash(base)}),
            "method": method,
            **{name: getattr(self, name) for name in ("seed", "augment", *settings.split())},
            **more,
            "train_data": published_name(self.train_data),
            "dev": published_name(self.dev_manifest),
            "languages": self._languages(),
            "train_hours": round(n_samples / SAMPLE_RATE / 3600, 2),
            "n_dev": len(self.dev),
        }
        write_text(folder / "training.json", json.dumps(content, indent=2, sort_keys=True) + "\n")

    def _languages(self) -> list[str]:
        """Return the languages of the training data; a recipe's setting `language` overrides."""
        setting = getattr(self, "language", None)
        return sorted({setting or item.language or "en" for item in self.items})


def _check_apart(items: Sequence[ShardItem], dev: Sequence[Utterance], manifest: str) -> None:
    """Raise UserError where dev has utterances, by id and letters, that are trained on; print a
    warning where it has their speakers."""

    def key(each: ShardItem | Utterance) -> tuple[str, str]:
        return each.id, "".join(filter(str.isalnum, each.text.casefold()))

    trained = set(map(key, items))
    if same := [each.id for each in dev if key(each) in trained]:
        raise UserError(
            f"dev_manifest={manifest}: {len(same)} of its {len(dev)} utterances are in train_data, "
            f"as {same[0]}; take others, which no training has"
        )
    speakers = {each.speaker for each in dev} & {each.speaker for each in items} - {"", None}
    if speakers and not int(os.environ.get("RANK", 0)):
        print(
            f"warning: dev_manifest={manifest}: {len(speakers)} of its speakers are in train_data, "
            f"as {min(map(str, speakers))}; other speakers have more errors than dev",
            file=sys.stderr,
        )


def _card_of(folder: Path) -> str:
    """Return a hash, 8 hex digits, of the training that `folder`'s card describes; "" without a
    card.

    The field `reached` is left out: its minutes differ from run to run.
    """
    path = folder / "training.json"
    if not path.is_file():
        return ""
    card = json.loads(path.read_text(encoding="utf-8"))
    card.pop("reached", None)
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()[:8]


@dataclass(kw_only=True, eq=False)
class BlockRecipe(CorpusRecipe):
    """Base of a recipe for a Whisper that encodes block by block; the subclass loads `whisper`."""

    model_path: str
    start: str | None  # folder of an earlier stage or training to go on from
    chunk_s: float  # of the stream on dev, as is first_chunk_s
    first_chunk_s: float
    several: float  # share of the windows that hold several utterances
    late_start: float  # share of those that begin between two words
    language: str | None  # of all; None: of each its own by the shards, else the model's default

    lead_s: ClassVar[float] = 0.5  # of a late start: at most so long before the second word
    whole: ClassVar[bool] = False  # no utterance is cut by the context's edge
    whisper: Whisper = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the corpus and dev, and look for the folder `start`. Raises UserError."""
        super().__post_init__()
        # Of the stream on dev, in frames.
        self.chunk = frames_of(self.chunk_s, "chunk_s")
        self.first_chunk = frames_of(self.first_chunk_s, "first_chunk_s")
        self.begun = None if self.start is None else Path(self.start)
        if self.begun is not None and not self.begun.is_dir():
            raise UserError(
                f"start={self.start}: no such folder; give that of an earlier stage, or null"
            )
        self.begun_from = None if self.start is None else published_name(self.start)
        # A part of the seed (`rng`).
        self.drawn_after = () if self.begun is None else (_card_of(self.begun),)

    def rng(self, *key: object) -> random.Random:
        """Return a generator that follows from the seed, `key` and the training of `start`: with
        the same seed the windows of that training would else come again."""
        return super().rng(*self.drawn_after, *key)

    def prompts(self) -> dict[str | None, list[int]]:
        """Return the control tokens before a text by language of the corpus, and of None; all are
        equally long.

        Raises UserError for a language that the model lacks.
        """
        languages = {item.language for item in self.items} | {None}
        return {code: self.whisper.prompt(self.language or code) for code in languages}

    def one_prompt(self) -> list[int]:
        """Return the prompt of all texts. Raises UserError for a corpus in several languages."""
        languages = sorted({item.language or "en" for item in self.items})
        if self.language is None and len(languages) > 1:
            raise UserError(
                f"{self.train_data}: holds {', '.join(languages)}, and this recipe learns "
                "one language; take shards of one, or method=whisperrt, which learns several"
            )
        return self.whisper.prompt(self.language or languages[0])

    def windows(self, rng: random.Random, n: int) -> list[Window]:
        """Draw `n` windows whose words are all complete."""
        plain = {"several": self.several, "whole": self.whole, **UNCUT}
        options = augmented(WindowOptions(self.whisper.context_s, **plain), self.augment)
        starts = {"late_start": self.late_start, "lead_s": self.lead_s}
        return [complete_window(rng, self.voices, self.items, options, **starts) for _ in range(n)]

    def blocks(self, n_samples: int, chunk: int, first: int) -> list[int]:
        """Return the ends, in encoder frames, of the blocks that hold `n_samples`: whole ones,
        except that the context may cut the last one short.

        chunk, first: frames of a block and of the first one.
        """
        n_frames = -(-n_samples // FRAME_SAMPLES)
        return whole_block_ends(n_frames, chunk, first, self.whisper.context_frames)

    def mel(self, audio: np.ndarray, ends: Sequence[int]) -> Tensor:
        """Return the log-mel, (n_mels, 2F + 1), of samples (n,) in blocks that end at encoder
        frames `ends`, the last one F, clamped at the running maximum."""
        audio = audio[: ends[-1] * FRAME_SAMPLES + LOOKAHEAD_SAMPLES]
        return log_mel(torch.from_numpy(audio), self.whisper.n_mels, block_ends=ends)

    def tokens(self, windows: Sequence[Window]) -> list[list[int]]:
        """Return the text tokens of each window. Raises UserError for too many (`check_room`)."""
        tokens = [self.whisper.text_tokens(text_of(w)) for w in windows]
        self.check_room(max(map(len, tokens)))
        return tokens

    def check_room(self, n_tokens: int) -> None:
        """Raise UserError where the decoder has no room for so many tokens of text."""
        room = self.whisper.max_tokens - len(self.whisper.prompt())
        if n_tokens > room:
            raise UserError(
                f"a window of {n_tokens} tokens, but this model's decoder has positions for "
                f"{room}; its transcript does not belong to its audio"
            )

    def stream_dev(self, name: str, **options: Any) -> tuple[dict[str, float], Counter[str]]:
        """Stream dev through a method with the current weights; return `score` and `wer`, both the
        WER in percent, and the sums of the method's counts.

        name: of the method; options: its settings apart from model, weights and chunks."""
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder))
            method = new_method(
                name,
                self.model_path,
                weights=folder,
                device=str(self.device),
                chunk_s=self.chunk_s,
                first_chunk_s=self.first_chunk_s,
                **options,
            )
        chunks = self.chunk * FRAME_SAMPLES, self.first_chunk * FRAME_SAMPLES
        wer, counts = stream_dev_wer(method, self.dev, *chunks, language=self.language)
        return {"score": wer, "wer": wer}, counts

    def save(self, folder: Path) -> None:
        """Write a folder that the setting `method.weights` can name."""
        raise NotImplementedError


def random_chunk(rng: random.Random) -> tuple[int, int]:
    """Draw a chunk of 0.1 to 1.0 s; return its frames and those of the first chunk.

    The first chunk is as long as the others or as a stream's by default, with equal chances.
    """
    chunk = rng.randint(*CHUNK_FRAMES)
    return chunk, rng.choice((chunk, first_chunk_frames(chunk)))


def first_chunk_frames(chunk: int) -> int:
    """Return the frames of a stream's first chunk by default, for a chunk of `chunk` frames."""
    frame_ms = round(1000 * FRAME_S)
    return first_chunk_ms(f"{chunk * frame_ms}ms") // frame_ms


def text_of(window: Window) -> str:
    """Return the window's text, a blank before each word."""
    return "".join(f" {word}" for word, *_ in window.words)


def stream_dev_wer(
    method: Method[Any],
    dev: Sequence[Utterance],
    chunk: int,
    first_chunk: int,
    *,
    language: str | None = None,
) -> tuple[float, Counter[str]]:
    """Return the WER in percent of what `method` commits when the simulator feeds it `dev`, and the
    sums of the counts of all steps.

    chunk, first_chunk: samples. A `Batched` method transcribes all utterances of one language
    together. language: of all utterances; None: of each its own.
    """
    if language is not None:
        dev = [replace(utterance, language=language) for utterance in dev]
    # One group has one language.
    dev = sorted(dev, key=lambda utterance: utterance.language or "")
    together = isinstance(method, Batched)
    stepper = Stepper(method, together=together)
    schedule = Schedule(chunk, first_chunk, method.lookahead_samples)
    texts: list[str] = []
    counts: Counter[str] = Counter()
    for group in groups(dev, len(dev) if together else 1):
        rows = [
            RecordedStream(
                utterance, InMemory(utterance.load()), "fixed", len(group), schedule.lookahead
            )
            for utterance in group
        ]
        for _, step in in_phase(stepper, rows, schedule):
            counts.update(step.counts)
        texts += [display_text(row.committed) for row in rows]
    return dev_wer(dev, texts), counts


def dev_wer(dev: Sequence[Utterance], texts: Sequence[str], language: str | None = None) -> float:
    """Return the WER in percent of the hypotheses `texts`, in the order of `dev`.

    Both are normalised by the rules of the utterance's language, or of `language` if given."""
    import jiwer

    normalisers = [normaliser(language or utterance.language) for utterance in dev]
    references = [normalise(u.text) for normalise, u in zip(normalisers, dev, strict=True)]
    hypotheses = [normalise(text) for normalise, text in zip(normalisers, texts, strict=True)]
    return float(100 * jiwer.wer(references, hypotheses))


def published_name(path: str) -> str:
    """Return a path as it may be published: of an absolute path, which names folders of one
    machine, only the last part."""
    return Path(path).name if Path(path).is_absolute() else path
