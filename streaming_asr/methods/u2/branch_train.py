"""Training of U2's CTC branch: `recipe=u2_branch`, behind a frozen WhisperRT adapter.

For a first share of the minutes two losses are learned: cross-entropy on the piece spoken in each
row of 40 ms, placed by the word times, and a smaller part of the CTC loss, which by itself stays
on a plateau for long; then only the CTC loss. There is no attention loss: the decoder is
WhisperRT's and learns nothing here.

Speech without word times teaches too: the CTC loss takes the text of each utterance, and the frame
loss only windows whose utterances all have times. Texts with digits are left out, since their
pronunciation is unknown.

Every batch has one chunk length, drawn from 0.1 to 1.0 s, and windows are encoded as a stream
encodes them. Here and there some frames in front of the branch are replaced by the window's mean
(time masks of SpecAugment, arXiv 1904.08779).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.config.weights import training_of
from streaming_asr.corpora.shards import ShardItem
from streaming_asr.errors import UserError, check_range
from streaming_asr.methods.u2.branch import STRIDE, Branch
from streaming_asr.methods.u2.branch_files import (
    is_branch,
    load_branch,
    read_branch,
    save_branch,
    sha256_of,
)
from streaming_asr.methods.u2.head import HEAD_FILE
from streaming_asr.methods.u2.network import BranchModel, U2Batch, nats, spoken_classes
from streaming_asr.methods.u2.pieces import (
    ALPHABET,
    PieceTokenizer,
    has_digits,
    learn_pieces,
    load_pieces,
    plain,
)
from streaming_asr.training.recipe import (
    CHUNK_FRAMES,
    BlockRecipe,
    dev_wer,
    random_chunk,
)
from streaming_asr.training.samples import as_int16, from_int16
from streaming_asr.training.windows import WindowOptions
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel_windows
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.window import FRAME_S, frames_of

CTC_BESIDE = 0.3  # of the CTC loss, added to the frame loss
MASK_EVERY, MASK_FRAMES = 150, 18  # a time mask for so many frames, and its length at most


@dataclass(kw_only=True, eq=False)
class U2BranchRecipe(BlockRecipe):
    """`train method=u2 recipe=u2_branch`: one run, in which only the branch learns.

    start: the folder of a WhisperRT adapter of this model, or of a branch to go on from, whose
    layers and pieces then are taken, and its rank where branch_rank is not 0. branch_layers: so
    many of the encoder's last layers are copied. branch_rank: of what the copies learn; 0: they
    learn whole. pieces: classes at most, the blank left out. frames_share: of the minutes in which
    the frame loss is learned too.
    Raises UserError where the corpus is missing or nothing of it can be learned, a setting is out
    of range, or `start` is something else.
    """

    branch_layers: int
    branch_rank: int
    pieces: int
    frames_share: float
    batch: int
    whole: ClassVar[bool] = True
    model: BranchModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_range(1, branch_layers=self.branch_layers, batch=self.batch)
        check_range(0, branch_rank=self.branch_rank)
        check_range(len(ALPHABET) + 1, pieces=self.pieces)
        check_range(0, 1, frames_share=self.frames_share)
        super().__post_init__()
        begun = self._begun()
        self._refuse_other_languages()
        card = None
        self.adapter = begun
        if is_branch(begun):
            card, self.adapter = read_branch(begun, self.model_path)
        sha256_of(self.adapter)  # raises where there is none
        spoken = [item for item in self.items if plain(item.text) and not has_digits(item.text)]
        texts = (item.text for item in spoken)
        pieces = load_pieces(begun) if card else learn_pieces(texts, self.pieces)
        self.whisper = load_whisper(self.model_path, adapter=self.adapter, trainable=True)
        self.tokenizer = PieceTokenizer(self.whisper, pieces, STRIDE)
        self.train_on([item for item in spoken if self._can_be_learned(item)])
        if not self.items:
            raise UserError(
                f"train_data={self.train_data}: no utterance there can be learned; its text needs "
                "letters a to z and no digits, and its audio the time to speak them within "
                f"{self.whisper.context_s:g} s"
            )
        self.heard = [u for u in self.dev if self._can_be_scored(u)]
        if not self.heard:
            raise UserError(
                f"dev_manifest={self.dev_manifest}: no utterance of at most "
                f"{self.whisper.context_s:g} s with letters a to z and no digits; name another"
            )
        torch.manual_seed(self.seed)
        if card is not None:
            branch = load_branch(begun, card, self.whisper)
            if not self.branch_rank:
                branch.merge()
                branch.requires_grad_(True).train()
        else:
            n_layers = self.whisper.config.encoder_layers
            check_range(1, n_layers, branch_layers=self.branch_layers)
            n_classes = self.tokenizer.n_tokens + 1
            branch = Branch(self.whisper, self.branch_layers, self.branch_rank, n_classes)
        self.model = BranchModel(self.whisper, branch)

    @property
    def timed(self) -> bool:
        """Return whether only utterances with word times are trained on."""
        return False

    def _begun(self) -> Path:
        """Return the folder to start from. Raises UserError where it is of another method."""
        give = "give the folder of a WhisperRT adapter, as recipe.target.start=FOLDER"
        if self.begun is None:
            raise UserError(f"start=null: the branch is trained behind a WhisperRT adapter; {give}")
        method = training_of(self.begun).get("method")
        if (self.begun / HEAD_FILE).is_file() or (
            method not in (None, "whisperrt") and not is_branch(self.begun)
        ):
            raise UserError(
                f"start={self.start}: is what another recipe left (method={method}); {give}"
            )
        return self.begun

    def _refuse_other_languages(self) -> None:
        languages = {self.language or item.language or "en" for item in self.items}
        if others := sorted(languages - {"en"}):
            raise UserError(
                f"{self.train_data}: holds {', '.join(others)}, and the branch spells English "
                "words, in letters a to z; take shards of English, or recipe=u2"
            )

    # -- data -----------------------------------------------------------------------------------

    def _can_be_learned(self, item: ShardItem) -> bool:
        """Return whether an item fits the context and has rows for its classes at any speed."""
        slowest, fastest = 1.0, 1.0
        if self.augment and self.augment.get("speed"):
            range_of = self.augment.get("speed_range", WindowOptions.speed_range)
            slowest, fastest = min(1.0, range_of[0]), max(1.0, range_of[1])
        n_frames = item.n_samples / FRAME_SAMPLES
        if n_frames / slowest > self.whisper.context_frames:
            return False
        # Joined with others, an utterance may lose a part of a row on either side.
        return _n_rows(self.tokenizer.encode(item.text)) < n_frames / fastest / STRIDE

    def _can_be_scored(self, utterance: Utterance) -> bool:
        n_frames = utterance.duration_s / FRAME_S
        units = [] if has_digits(utterance.text) else self.tokenizer.encode(utterance.text)
        return bool(
            units
            and n_frames <= self.whisper.context_frames
            and _n_rows(units) <= n_frames / STRIDE
        )

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> U2Batch:
        """Return a batch of windows of one chunk length; pure in (seed, step, rank), and whether
        the frame loss is learned in `progress`."""
        # one chunk for all ranks: equal work
        chunk, first = random_chunk(self.rng(step))
        windows = self.windows(self.rng(step, rank), self.batch)
        ends = [self.blocks(len(window.audio), chunk, first) for window in windows]
        rng = self.rng(step, rank, "masks")
        texts = [plain(" ".join(window.texts)) for window in windows]
        too = progress < self.frames_share
        return U2Batch(
            [],
            ends,
            [self.tokenizer.encode(text) for text in texts],
            [
                spoken_classes(window, self.tokenizer, -(-e[-1] // STRIDE), FRAME_S * STRIDE)
                if too and window.timed
                else None
                for window, e in zip(windows, ends, strict=True)
            ],
            masks=[_time_masks(rng, e[-1]) for e in ends],
            n_words=sum(len(text.split()) for text in texts),
            audio=as_int16([window.audio for window in windows]),
        )

    @torch.no_grad()
    def precompute(self, batch: U2Batch) -> U2Batch:
        """Return the batch with its features, made where the model is."""
        if batch.audio is None:
            return batch
        samples = from_int16(batch.audio.to(self.device, non_blocking=True))
        mels = log_mel_windows(samples, self.whisper.n_mels, batch.ends)
        return replace(batch, mels=mels, audio=None)

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: U2Batch) -> tuple[Tensor, dict[str, float | Tensor]]:
        """Return the CTC loss per class, or 0.3 of it and the frame loss per row; among the figures
        the CTC loss in nats a word."""
        logits = model(self.precompute(batch))
        total = nats(logits, batch.classes).sum()
        n_classes = max(1, sum(map(len, batch.classes)))
        loss = total / n_classes
        logs: dict[str, float | Tensor] = {
            "audio_s": sum(ends[-1] for ends in batch.ends) * FRAME_S,
            "nats_per_word": total.detach() / max(1, batch.n_words),
            "weight": float(n_classes),
        }
        timed = [
            (rows, labels)
            for rows, labels in zip(logits, batch.spoken, strict=True)
            if labels is not None
        ]
        if timed:
            rows, labels = (torch.cat(each) for each in zip(*timed, strict=True))
            labels = labels.to(rows.device, non_blocking=True)
            frames = F.cross_entropy(rows.float(), labels)
            loss = frames + CTC_BESIDE * loss
            logs["frames_loss"] = frames.detach()
        return loss, logs

    @torch.inference_mode()
    def evaluate(self) -> dict[str, float]:
        """Return figures on dev, each utterance in one pass: `nats_per_word`, which is the score,
        and the WER in percent of the likeliest class of each row."""
        chunk = frames_of(self.chunk_s, "chunk_s")
        first = frames_of(self.first_chunk_s, "first_chunk_s")
        total, n_words, texts = 0.0, 0, []
        for utterance in self.heard:
            audio = utterance.load()
            ends = self.blocks(len(audio), chunk, first)
            units = self.tokenizer.encode(utterance.text)
            mel = self.mel(audio, ends)
            logits = self.model(U2Batch([mel], [ends], [units], [None], masks=[[]]))
            total += float(nats(logits, [units])[0])
            n_words += len(plain(utterance.text).split())
            likeliest = logits[0].argmax(-1).unique_consecutive().tolist()
            texts.append(self.tokenizer.text([u for u in likeliest if u != self.tokenizer.blank]))
        score = total / n_words
        return {"score": score, "nats_per_word": score, "wer": dev_wer(self.heard, texts)}

    def save(self, folder: Path) -> None:
        """Write a folder that `method.weights` takes: the branch, its adapter, training.json."""
        save_branch(self.model.branch, self.tokenizer, self.adapter, folder)
        self.write_card(
            folder,
            "u2",
            "branch_layers branch_rank pieces frames_share batch",
            base=self.model_path,
            start=self.begun_from,
            chunk_s=[frames * FRAME_S for frames in CHUNK_FRAMES],
        )


def _n_rows(units: list[int]) -> int:
    """Return the rows that CTC needs for classes: a blank comes between two that are alike."""
    return len(units) + sum(a == b for a, b in pairwise(units))


def _time_masks(rng: random.Random, n_frames: int) -> list[tuple[int, int]]:
    """Return the (first, end) frames of a window's masks."""
    masks = []
    for _ in range(n_frames // MASK_EVERY + 1):
        length = rng.randint(0, min(MASK_FRAMES, n_frames // 2))
        first = rng.randint(0, n_frames - length)
        masks.append((first, first + length))
    return masks
