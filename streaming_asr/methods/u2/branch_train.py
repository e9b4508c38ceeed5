"""Training of U2's CTC branch: `recipe=u2_branch`, behind a frozen WhisperRT adapter.

For a first share of the minutes two losses are learned: cross-entropy on the piece spoken in each
row of 40 ms, placed by the word times, and a smaller part of the CTC loss, which by itself stays
on a plateau for long; then only the CTC loss. There is no attention loss: the decoder is
WhisperRT's and learns nothing here.

Speech without word times teaches too: the CTC loss takes the text of each utterance, and the frame
loss only windows whose utterances all have times. Texts with digits are left out, since their
pronunciation is unknown.

Every batch has one chunk length, drawn from 0.1 to 1.0 s, and windows are encoded as a stream
encodes them. A share of the frames and of the channels in front of the branch is replaced by the
window's mean, in spans at random places, as wav2vec 2.0 is fine-tuned on ten hours (arXiv
2006.11477, section 4.3 and appendix B); so is dropout of what the copies add (arXiv 1706.03762,
section 5.4).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

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
from streaming_asr.methods.u2.network import (
    BranchModel,
    Masks,
    U2Batch,
    nats,
    spoken_classes,
)
from streaming_asr.methods.u2.pieces import (
    ALPHABET,
    PieceTokenizer,
    has_digits,
    learn_pieces,
    load_pieces,
    plain,
)
from streaming_asr.training.recipe import CHUNKS_S, BlockRecipe, dev_wer, random_chunk
from streaming_asr.training.windows import WindowOptions, as_int16, from_int16
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel_windows
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.window import FRAME_S

CTC_BESIDE = 0.3  # of the CTC loss, added to the frame loss
FRAMES_SPAN = 10  # frames of a mask, as in wav2vec 2.0
CHANNELS_SPAN = 12  # a mask hides one channel in so many: wav2vec 2.0's 64 of 768


@dataclass(kw_only=True, eq=False)
class U2BranchRecipe(BlockRecipe):
    """`train method=u2 recipe=u2_branch`: one run, in which only the branch learns.

    start: the folder of a WhisperRT adapter of this model, or of a branch to go on from, whose
    layers, rank, pieces and head then are taken. branch_layers: so many of the encoder's last
    layers are copied. branch_rank: of what the copies learn. dropout: of what each part of a copy
    adds. mask_frames: the least and the most share of a window's frames that is hidden;
    mask_channels: share of its channels. pieces: classes at most, the blank left out. frames_share:
    of the minutes in which the frame loss is learned too.
    Raises UserError where the corpus is missing or nothing of it can be learned, a setting is out
    of range, or `start` is something else.
    """

    branch_layers: int
    branch_rank: int
    dropout: float
    mask_frames: Sequence[float]
    mask_channels: float
    pieces: int
    frames_share: float
    batch: int
    whole: ClassVar[bool] = True
    model: BranchModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_range(1, branch_layers=self.branch_layers, batch=self.batch)
        check_range(1, branch_rank=self.branch_rank)
        check_range(len(ALPHABET) + 1, pieces=self.pieces)
        check_range(0, 1, frames_share=self.frames_share)
        check_range(0, 0.9, dropout=self.dropout, mask_channels=self.mask_channels)
        check_range(0, 0.9, mask_frames=list(self.mask_frames))
        super().__post_init__()
        start_folder = self._start_folder()
        self._refuse_other_languages()
        card = None
        self.adapter = start_folder
        if is_branch(start_folder):
            card = read_branch(start_folder, self.model_path)
        else:
            sha256_of(start_folder)  # raises where there is no adapter
        items = [item for item in self.items if plain(item.text) and not has_digits(item.text)]
        if card is None:
            pieces = learn_pieces((item.text for item in items), self.pieces)
        else:
            pieces = load_pieces(start_folder)
        self.whisper = load_whisper(self.model_path, adapter=self.adapter)
        self.tokenizer = PieceTokenizer(self.whisper, pieces, STRIDE)
        self.train_on([item for item in items if self._can_be_learned(item)])
        if not self.items:
            raise UserError(
                f"train_data={self.train_data}: no utterance there can be learned; its text needs "
                "letters a to z and no digits, and its audio the time to speak them within "
                f"{self.whisper.context_s:g} s"
            )
        self.scored_dev = [u for u in self.dev if self._can_be_scored(u)]
        if not self.scored_dev:
            raise UserError(
                f"dev_manifest={self.dev_manifest}: no utterance of at most "
                f"{self.whisper.context_s:g} s with letters a to z and no digits; name another"
            )
        torch.manual_seed(self.seed)
        if card is not None:
            branch = load_branch(start_folder, card, self.whisper)
        else:
            n_layers = self.whisper.config.encoder_layers
            check_range(1, n_layers, branch_layers=self.branch_layers)
            n_classes = self.tokenizer.n_tokens + 1
            branch = Branch(self.whisper, self.branch_layers, self.branch_rank, n_classes)
        _drop_out(branch.layers, self.dropout)
        self.model = BranchModel(self.whisper, branch)

    @property
    def timed(self) -> bool:
        """Return whether only utterances with word times are trained on."""
        return False

    def _start_folder(self) -> Path:
        """Return the folder to start from. Raises UserError where it is of another method."""
        remedy = "give the folder of a WhisperRT adapter, as recipe.target.start=FOLDER"
        if self.begun is None:
            raise UserError(
                f"start=null: the branch is trained behind a WhisperRT adapter; {remedy}"
            )
        method = training_of(self.begun).get("method")
        has_head = (self.begun / HEAD_FILE).is_file()
        is_fit = method in (None, "whisperrt") or is_branch(self.begun)
        if has_head or not is_fit:
            raise UserError(
                f"start={self.start}: is what another recipe left (method={method}); {remedy}"
            )
        return self.begun

    def _refuse_other_languages(self) -> None:
        """Raise UserError where the training data holds a language other than English."""
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
            low, high = self.augment.get("speed_range", WindowOptions.speed_range)
            slowest, fastest = min(1.0, low), max(1.0, high)
        n_frames = item.n_samples / FRAME_SAMPLES
        if n_frames / slowest > self.whisper.context_frames:
            return False
        # `<`: joined with others, an utterance may lose a part of a row on either side.
        return _n_rows(self.tokenizer.encode(item.text)) < n_frames / fastest / STRIDE

    def _can_be_scored(self, utterance: Utterance) -> bool:
        """Return whether a dev utterance has text without digits, and fits context and rows."""
        if has_digits(utterance.text):
            return False
        classes = self.tokenizer.encode(utterance.text)
        n_frames = utterance.duration_s / FRAME_S
        fits = n_frames <= self.whisper.context_frames and _n_rows(classes) <= n_frames / STRIDE
        return bool(classes) and fits

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> U2Batch:
        """Return a batch of windows of one chunk length; it depends only on (seed, step, rank).

        Classes of rows are in it while `progress`, the share of the training that is over, is below
        `frames_share`.
        """
        # The same chunk for all ranks: equal work.
        chunk, first_chunk = random_chunk(self.rng(step))
        rng = self.rng(step, rank, "masks")
        learns_rows = progress < self.frames_share
        ends, spoken, masks = [], [], []
        windows = self.windows(self.rng(step, rank), self.batch)
        for window in windows:
            block_ends = self.blocks(len(window.audio), chunk, first_chunk)
            n_frames = block_ends[-1]
            labels = None
            if learns_rows and window.timed:
                n_rows = -(-n_frames // STRIDE)
                labels = spoken_classes(window, self.tokenizer, n_rows, FRAME_S * STRIDE)
            ends.append(block_ends)
            spoken.append(labels)
            masks.append(self._masks(rng, n_frames))
        texts = [plain(" ".join(window.texts)) for window in windows]
        return U2Batch(
            [],
            ends,
            [self.tokenizer.encode(text) for text in texts],
            spoken,
            masks=masks,
            n_words=sum(len(text.split()) for text in texts),
            audio=as_int16([window.audio for window in windows]),
        )

    def _masks(self, rng: random.Random, n_frames: int) -> Masks:
        """Draw what is hidden of a window of `n_frames`."""
        d = self.whisper.config.d_model
        share = rng.uniform(*self.mask_frames)
        return Masks(
            spans(rng, n_frames, share, min(FRAMES_SPAN, n_frames)),
            spans(rng, d, self.mask_channels, max(1, d // CHANNELS_SPAN)),
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
        """Return the loss and what to log of it.

        The loss is the CTC loss per class; where the batch has the classes of rows, 0.3 of it plus
        their mean cross-entropy.
        """
        logits = model(self.precompute(batch))
        total = nats(logits, batch.classes).sum()
        n_classes = max(1, sum(map(len, batch.classes)))
        loss = total / n_classes
        logs: dict[str, float | Tensor] = {
            "audio_s": sum(ends[-1] for ends in batch.ends) * FRAME_S,
            "nats_per_word": total.detach() / max(1, batch.n_words),
            "weight": float(n_classes),
        }
        timed_logits, timed_labels = [], []
        for window_logits, labels in zip(logits, batch.spoken, strict=True):
            if labels is not None:
                timed_logits.append(window_logits)
                timed_labels.append(labels)
        if timed_labels:
            rows = torch.cat(timed_logits).float()
            labels = torch.cat(timed_labels).to(rows.device, non_blocking=True)
            frames_loss = F.cross_entropy(rows, labels)
            loss = frames_loss + CTC_BESIDE * loss
            logs["frames_loss"] = frames_loss.detach()
        return loss, logs

    @torch.inference_mode()
    def evaluate(self) -> dict[str, float]:
        """Return figures on dev, each utterance in one pass.

        `nats_per_word`, the CTC loss, is also the score; `wer` is the WER in percent of greedy CTC.
        """
        total, n_words, texts = 0.0, 0, []
        for utterance in self.scored_dev:
            audio = utterance.load()
            ends = self.blocks(len(audio), self.chunk, self.first_chunk)
            classes = self.tokenizer.encode(utterance.text)
            mel = self.mel(audio, ends)
            logits = self.model(U2Batch([mel], [ends], [classes], [None], masks=[Masks()]))
            total += float(nats(logits, [classes])[0])
            n_words += len(plain(utterance.text).split())
            likeliest = logits[0].argmax(-1).unique_consecutive().tolist()
            texts.append(self.tokenizer.text([c for c in likeliest if c != self.tokenizer.blank]))
        score = total / n_words
        return {"score": score, "nats_per_word": score, "wer": dev_wer(self.scored_dev, texts)}

    def save(self, folder: Path) -> None:
        """Write a folder that `method.weights` takes: the branch, its adapter, training.json."""
        save_branch(self.model.branch, self.tokenizer, self.adapter, folder)
        self.write_card(
            folder,
            "u2",
            "branch_layers branch_rank dropout mask_frames mask_channels pieces frames_share batch",
            base=self.model_path,
            start=self.begun_from,
            chunk_s=CHUNKS_S,
        )


def _n_rows(classes: list[int]) -> int:
    """Return the rows that CTC needs for classes: a blank comes between two that are alike."""
    return len(classes) + sum(a == b for a, b in pairwise(classes))


def spans(rng: random.Random, n: int, share: float, length: int) -> list[tuple[int, int]]:
    """Draw spans (first, end) of `length` that cover a `share` of 0 .. n - 1 in the mean.

    Spans may overlap, so that k of them cover 1 - (1 - length / n) ** k.
    """
    if not share or length >= n:
        return []
    n_mean = math.log(1 - share) / math.log(1 - length / n)
    n_spans = int(n_mean) + (rng.random() < n_mean % 1)
    firsts = (rng.randint(0, n - length) for _ in range(n_spans))
    return [(first, first + length) for first in firsts]


def _drop_out(layers: Iterable[Any], p: float) -> None:
    """Let each part of encoder layers, in training, drop out a share `p` of what it adds."""

    def dropped(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return F.dropout(output, p, module.training)

    for layer in layers if p else ():
        layer.self_attn.out_proj.register_forward_hook(dropped)
        layer.fc2.register_forward_hook(dropped)
