"""Trains a ChunkFormer: CTC plus an attention decoder (equation 7), full context first, then a
random limited context for every batch (III-A).

In training a limited context is the very computation of recognition, the masked batch, and not a
mask over the whole recording.

Three things are not of the paper, for corpora and budgets as small as mini's: a cross-entropy on
the token spoken in each frame, placed by the word times, since CTC by itself stays on its plateau;
the frames of a Whisper's encoder, predicted from each frame, where there is a `teacher`; and one
run goes from full to limited contexts instead of two with a peak of the learning rate each.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from streaming_asr.errors import UserError, check_range
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.ctc import BLANK, FRAME_S, Greedy, best_path
from streaming_asr.methods.chunkformer.encoder import Network, Shape
from streaming_asr.methods.chunkformer.features import HOP_SAMPLES, fbank
from streaming_asr.methods.chunkformer.layers import distances, n_frames
from streaming_asr.methods.chunkformer.load import load, normalisation, save
from streaming_asr.methods.chunkformer.tokenizer import Tokenizer
from streaming_asr.models.tensors import load_tensors, save_half
from streaming_asr.training.recipe import CorpusRecipe, dev_wer, published_name
from streaming_asr.training.windows import Window, WindowOptions, augmented, draw_window
from streaming_asr.training.word_tokens import tokens_in_frames, write_labels
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import FRAME_SAMPLES as WHISPER_FRAME_SAMPLES
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import Whisper, load_whisper

HEADS_FILE, HEADS = "training_heads.safetensors", ("decoder.", "frame_head.")
"""The trained parts that recognition does not need."""
UNKNOWN = -100
"""The label of a frame that no loss counts."""
LEAST_SHARE = 0.1
"""Of the utterances, the shortest, with which a training begins that takes short ones first."""
N_STATISTICS = 300
"""Utterances whose features are averaged for the normalisation."""
FRAME_CENTRE_S = 0.0825
"""Of frame 0: it depends on samples 0 .. 2639."""
TAUGHT = 4
"""Frames of the teacher, 20 ms each, predicted from one of ours; those of frame 0 begin with the
teacher's third, so that their middle is ours."""


@dataclass(frozen=True)
class ChunkFormerBatch:
    """A batch of windows."""

    mels: list[Tensor]  # (T_i, n_mels)
    texts: list[list[int]]
    spoken: list[Tensor]  # (n_i,) token spoken in each frame, UNKNOWN where that is not known
    taught: list[Tensor]  # (n_i, TAUGHT * teacher's d), a frame's mean 0 and variance 1
    context: Context | None  # None: the full context
    frame_weight: float


class AttentionDecoder(nn.Module):
    """A transformer that reads the encoded frames and predicts the next token. Recognition leaves
    it out."""

    def __init__(self, vocabulary: int, d: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, d)
        layer = nn.TransformerDecoderLayer(
            d, heads, 4 * d, dropout, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerDecoder(layer, layers, nn.LayerNorm(d))
        self.out = nn.Linear(d, vocabulary)

    def forward(self, encoded: Sequence[Tensor], tokens: Tensor) -> Tensor:
        """Return logits (B, L, vocabulary) of what follows each of the tokens (B, L).

        encoded: the frames (n_i, d) that row i sees.
        """
        memory = pad_sequence(list(encoded), batch_first=True)
        lengths = torch.tensor([len(frames) for frames in encoded], device=memory.device)
        is_padding = torch.arange(memory.shape[1], device=memory.device) >= lengths[:, None]
        n, d = tokens.shape[1], self.embed.embedding_dim
        # The sinusoids of the distances n - 1 .. 0, reversed: those of the positions 0 .. n - 1.
        positions = distances(Context(n, 0, 0), d, tokens.device)[:n].flip(0)
        is_future = torch.ones(n, n, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.layers(
            self.embed(tokens) * d**0.5 + positions,
            memory,
            tgt_mask=is_future,
            memory_key_padding_mask=is_padding,
        )
        return self.out(x)


class _Trained(nn.Module):
    """The network and what exists only in training."""

    def __init__(
        self, network: Network, decoder_layers: int, dropout: float, taught: int = 0
    ) -> None:
        super().__init__()
        shape = network.shape
        self.network = network
        self.decoder = AttentionDecoder(
            shape.vocabulary, shape.d, shape.heads, decoder_layers, dropout
        )
        self.frame_head = nn.Linear(shape.d, shape.vocabulary)
        self.taught_head = nn.Linear(shape.d, taught) if taught else None

    def forward(
        self, mels: Sequence[Tensor], tokens: Tensor, context: Context | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the outputs of all heads for mel frames (T_i, n_mels) and tokens (B, L).

        Logits of CTC (N, V), of the next tokens (B, L, V) and of each frame's token (N, V), and the
        predicted frames of the teacher (N, taught), None without one; N frames of all audios.
        """
        encoder = self.network.encoder
        # In fp32 with mixed precision, too: bf16 convolutions are slower on CPUs, and all layers
        # add to these outputs.
        with torch.autocast(encoder.device.type, enabled=False):
            frames = encoder.subsample(mels)
        full = Context(max(len(audio_frames) for audio_frames in frames), 0, 0)
        encoded = encoder(frames, context or full)
        joined = torch.cat(encoded)
        return (
            self.network.ctc(joined),
            self.decoder(encoded, tokens),
            self.frame_head(joined),
            self.taught_head(joined) if self.taught_head is not None else None,
        )


@dataclass(kw_only=True, eq=False)
class ChunkFormerRecipe(CorpusRecipe):
    """`train method=chunkformer`. Raises UserError for a missing corpus, settings out of range."""

    initial: str | None  # a folder to go on from (its sizes and tokens are kept)
    vocabulary: int
    d: int
    heads: int
    layers: int
    hidden: int
    decoder_layers: int
    dropout: float
    ctc_weight: float
    label_smoothing: float
    frame_weight: float  # falls to 0 at `frame_until`
    frame_until: float
    teacher: str | None  # a Whisper (folder or hub name) whose encoder's frames are learned too
    teacher_weight: float  # of their squared error
    short_until: float  # of the training: utterances by themselves, the shortest first
    full_until: float  # of the training: the full context; then drawn from the next three
    chunks: Sequence[int]  # -1: the full context
    lefts: Sequence[int]
    rights: Sequence[int]
    batch_s: float  # audio in a batch
    window_s: float  # of windows of more than one utterance, at most
    several: float  # share of these
    spec_augment: bool
    dev_contexts: Sequence[Sequence[int]]  # c, l, r of the WERs whose mean chooses the best

    @property
    def timed(self) -> bool:
        """Return False: texts are learned without their times."""
        return False

    def __post_init__(self) -> None:
        chunks, lefts, rights = self.chunks, self.lefts, self.rights
        check_range(0, 1, above=True, ctc_weight=self.ctc_weight)
        check_range(0, 1, short_until=self.short_until)
        is_valid = all(chunk == -1 or chunk > 0 for chunk in chunks)
        is_valid = is_valid and min(*lefts, *rights, 0) >= 0
        if not is_valid or not (chunks and lefts and rights):
            raise UserError(
                f"chunks={list(chunks)}, lefts={list(lefts)}, rights={list(rights)}: at least one "
                "number of frames each; -1 in chunks is the full context"
            )
        super().__post_init__()
        # Windows begin and end with an utterance: CTC has no label for a part of a word, and texts
        # of utterances without word times cannot be cut.
        plain = WindowOptions(
            self.window_s, several=self.several, crop_end=0.0, crop_start=0.0, whole=True
        )
        self.options = augmented(plain, self.augment)
        self.single = replace(self.options, several=0.0)
        slowest = min(1.0, self.options.speed_range[0]) if self.options.speed else 1.0
        longest = self.window_s * slowest * SAMPLE_RATE
        items = [item for item in self.items if item.n_samples <= longest]
        if not items:
            raise UserError(
                f"train_data={self.train_data}: no utterance lasts at most "
                f"window_s={self.window_s:g}, played at {slowest:g} of its speed"
            )
        # Neighbours are of similar lengths, so a batch has little padding.
        self.train_on(sorted(items, key=lambda item: item.n_samples))
        if self.initial is None:
            self.tokenizer, self.network = self._new()
        else:
            self.tokenizer, self.network = self._of_folder(self.initial)
        self.teacher_model = self._teacher()
        n_taught = 0 if self.teacher_model is None else TAUGHT * self.teacher_model.config.d_model
        self.model = _Trained(self.network, self.decoder_layers, self.dropout, n_taught)
        if self.initial is not None:
            _restore_heads(self.model, Path(self.initial))
        self.contexts = [Context(*sizes) for sizes in self.dev_contexts]

    def _new(self) -> tuple[Tokenizer, Network]:
        """Return a tokenizer of the training's texts and a network with random weights."""
        tokenizer = Tokenizer.train([item.text for item in self.items], self.vocabulary)
        shape = Shape(self.d, self.heads, self.layers, self.hidden, len(tokenizer))
        network = Network(shape, self.dropout)
        # Features are normalised by their mean and deviation over some recordings.
        some = random.Random(0).sample(self.items, min(N_STATISTICS, len(self.items)))
        mel = torch.cat([fbank(torch.from_numpy(item.samples())) for item in some]).double()
        cmvn = network.encoder.global_cmvn
        cmvn.mean, cmvn.istd = normalisation(mel.sum(0), mel.square().sum(0), len(mel))
        return tokenizer, network

    def _of_folder(self, folder: str) -> tuple[Tokenizer, Network]:
        """Return the tokenizer and the network of an earlier training, with this one's dropout."""
        loaded = load(folder)
        network = loaded.network.requires_grad_(True)
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.p = self.dropout
        return Tokenizer.read(Path(folder), loaded.tokens), network

    def _teacher(self) -> Whisper | None:
        """Return the Whisper whose frames are learned. Raises UserError for a short context."""
        if self.teacher is None:
            return None
        teacher = load_whisper(self.teacher)
        if teacher.context_s < self.window_s:
            raise UserError(
                f"teacher={self.teacher}: it takes {teacher.context_s:g} s at once, "
                f"less than window_s={self.window_s:g}; make the windows as short"
            )
        return teacher

    # ---- the data ---------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> ChunkFormerBatch:
        """Return the batch of a step; it depends only on (seed, step, rank, progress).

        progress: share of the training that is over, 0 to 1.
        """
        shared = self.rng(step)  # one context on all ranks: equal work
        rng = self.rng(step, rank)
        chunk, left, right = map(shared.choice, (self.chunks, self.lefts, self.rights))
        is_full = progress < self.full_until or chunk == -1
        # Utterances of similar length: with the full context all rows are as long as the longest.
        grown = min(1.0, progress / self.short_until) if self.short_until else 1.0
        near = self.near(shared.random() * (LEAST_SHARE + (1 - LEAST_SHARE) * grown))
        options = self.single if grown < 1 else self.options
        windows: list[Window] = []
        length_s = 0.0
        while length_s < self.batch_s:
            anchor = near[rng.randrange(len(near))]
            window = draw_window(rng, anchor, self.voices[anchor.voice], options)
            windows.append(window)
            length_s += len(window.audio) / SAMPLE_RATE
        mels, texts, spoken, taught = [], [], [], []
        for window in windows:
            mel = fbank(torch.from_numpy(window.audio))
            n = n_frames(len(mel))
            if n == 0:
                continue  # too short for a frame
            mels.append(self._augment(mel, rng))
            texts.append(self.tokenizer.encode(" ".join(window.texts)))
            spoken.append(self._spoken(window, n))
            if self.teacher_model is not None:
                taught.append(self._taught(self.teacher_model, window.audio, n))
        context = None if is_full else Context(chunk, left, right)
        frame_weight = self.frame_weight * max(0.0, 1 - progress / max(self.frame_until, 1e-9))
        return ChunkFormerBatch(mels, texts, spoken, taught, context, frame_weight)

    def _augment(self, mel: Tensor, rng: random.Random) -> Tensor:
        """Return the mel frames (T, n_mels) after SpecAugment, where it is set.

        Two bands of up to 10 mels, and for every two seconds a span of up to 20 frames, get the
        value of the mean.
        """
        if not self.spec_augment:
            return mel
        mel, mean = mel.clone(), self.network.encoder.global_cmvn.mean.to(mel.device)
        for _ in range(2):
            low = rng.randrange(mel.shape[1] - 9)
            band = slice(low, low + rng.randint(0, 10))
            mel[:, band] = mean[band]
        for _ in range(max(1, len(mel) * HOP_SAMPLES // SAMPLE_RATE // 2)):
            first = rng.randrange(len(mel))
            mel[first : first + rng.randint(0, 20)] = mean
        return mel

    def _spoken(self, window: Window, n: int) -> Tensor:
        """Return (n,), the token spoken at the centre of each of n frames, blank between words;
        UNKNOWN without word times."""
        if not window.timed:
            return torch.full((n,), UNKNOWN)
        placed = tokens_in_frames(
            window.words, self.tokenizer.encode, frame_s=FRAME_S, point_s=FRAME_CENTRE_S
        )
        return torch.from_numpy(write_labels(np.full(n, BLANK, np.int64), placed))

    @staticmethod
    @torch.no_grad()
    def _taught(teacher: Whisper, audio: np.ndarray, n: int) -> Tensor:
        """Return the teacher's frames of the audio (samples,) as targets (n, TAUGHT * d).

        Half a second of silence replaces the padding to the context: on mini's model the
        frames' cosine to those of the padded input is 0.998 on average.
        """
        n_teacher = min(len(audio) // WHISPER_FRAME_SAMPLES + 25, teacher.context_frames)
        mel = log_mel(torch.from_numpy(audio), teacher.n_mels, n_frames=2 * n_teacher + 1)
        mel = mel[None].to(teacher.device)
        hidden = encode_masked(teacher.model, mel, ends=[n_teacher])[0]
        # Frames of equal scale, so that no channel outweighs the others in the squared error; the
        # first two lie before our frame 0.
        hidden = F.layer_norm(hidden, hidden.shape[-1:]).cpu()[2:]
        return F.pad(hidden, (0, 0, 0, TAUGHT)).unfold(0, TAUGHT, TAUGHT)[:n].flatten(1)

    # ---- the loss ---------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: ChunkFormerBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and what to log of it.

        The loss is `ctc_weight` * CTC (per token) + (1 - `ctc_weight`) * the attention decoder's
        cross-entropy, plus the weighted cross-entropy of the frames' tokens and squared error of
        the teacher's frames.
        """
        device = self.network.encoder.device
        texts = [torch.tensor(text, dtype=torch.int64, device=device) for text in batch.texts]
        end = torch.tensor([self.tokenizer.end], device=device)
        inputs = pad_sequence([torch.cat([end, text]) for text in texts], batch_first=True)
        targets = pad_sequence(
            [torch.cat([text, end]) for text in texts], batch_first=True, padding_value=-100
        )
        mels = [mel.to(device) for mel in batch.mels]
        ctc_logits, next_logits, frame_logits, teacher_frames = model(mels, inputs, batch.context)
        lengths = [len(spoken) for spoken in batch.spoken]
        log_probs = pad_sequence(list(ctc_logits.float().log_softmax(-1).split(lengths)))
        ctc_loss = F.ctc_loss(
            log_probs,
            torch.cat(texts),
            torch.tensor(lengths),
            torch.tensor([len(text) for text in texts]),
            blank=BLANK,
            reduction="sum",
            zero_infinity=True,  # a text with more tokens than frames has no path
        ) / max(1, sum(len(text) for text in texts))
        decoder_loss = F.cross_entropy(
            next_logits.flatten(0, 1), targets.flatten(), label_smoothing=self.label_smoothing
        )
        spoken = torch.cat(batch.spoken).to(device)
        n_known = (spoken != UNKNOWN).sum().clamp(min=1)
        frame_loss = F.cross_entropy(frame_logits, spoken, reduction="sum") / n_known
        loss = self.ctc_weight * ctc_loss + (1 - self.ctc_weight) * decoder_loss
        logs = {
            "ctc_loss": float(ctc_loss.detach()),
            "decoder_loss": float(decoder_loss.detach()),
            "frame_loss": float(frame_loss.detach()),
        }
        loss = loss + batch.frame_weight * frame_loss
        if teacher_frames is not None:
            teacher_loss = F.mse_loss(teacher_frames.float(), torch.cat(batch.taught).to(device))
            logs["teacher_loss"] = float(teacher_loss.detach())
            loss = loss + self.teacher_weight * teacher_loss
        return loss, logs

    # ---- the results ------------------------------------------------------------------------

    def evaluate(self) -> dict[str, float]:
        """Return the WER in percent of greedy CTC on dev, in each of `dev_contexts`."""
        began = time.perf_counter()
        device = self.network.encoder.device
        mels = [fbank(torch.from_numpy(u.load())).to(device) for u in self.dev]
        wers: dict[str, float] = {}
        for context in self.contexts:
            texts = [self._text(logits) for logits in self.network(mels, context)]
            name = f"wer_{context.chunk}_{context.left}_{context.right}"
            wers[name] = dev_wer(self.dev, texts)
        score = sum(wers.values()) / len(wers)
        return {"score": score, **wers, "seconds": time.perf_counter() - began}

    def _text(self, logits: Tensor) -> str:
        """Return the greedy CTC text of logits (n, V)."""
        greedy = Greedy(self.tokenizer.tokens)
        words = [*greedy.push(*best_path(logits)), *greedy.finish()]
        return "".join(word.text for word in words).strip()

    def save(self, folder: Path) -> None:
        """Write a folder that `load` reads, the tokenizer, training.json, and what a training that
        goes on from here also needs: the attention decoder and the frames' head.
        """
        save(folder, self.network, self.tokenizer.tokens)
        parts = self.model.state_dict().items()
        save_half({n: p for n, p in parts if n.startswith(HEADS)}, folder / HEADS_FILE)
        self.tokenizer.write(folder)
        begun = {"initial": self.initial, "teacher": self.teacher}
        self.write_card(
            folder,
            "chunkformer",
            "ctc_weight frame_weight frame_until full_until batch_s spec_augment",
            **{name: published_name(path) for name, path in begun.items() if path},
        )


def _restore_heads(model: _Trained, folder: Path) -> None:
    """Load the attention decoder and the frames' head that a training wrote into `folder`, if any.

    Raises UserError where they are of another size.
    """
    file = folder / HEADS_FILE
    if not file.is_file():
        return
    others = {n: p for n, p in model.state_dict().items() if not n.startswith(HEADS)}
    try:
        model.load_state_dict(others | load_tensors(file))
    except RuntimeError as error:
        raise UserError(
            f"{file}: {str(error).splitlines()[1].strip()}; give the decoder_layers that it was "
            "trained with, or remove the file to begin with a new attention decoder"
        ) from error
