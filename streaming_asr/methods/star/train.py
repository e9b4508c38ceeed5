"""Training of STAR in stages, one run each, every one from where another ended.

plain      no compression: features, semantic encoder and decoder learn to work causally, with a
           decision at a fixed stride (section 4). May begin on a causal adapter of Whisper's.
segmenter  the compressor with its segmenter, the semantic encoder and the decoder; features frozen.
frozen     the same with the segmenter frozen; the paper goes over to it after 6,000 steps.

Loss: NLL, and 0.01 times the squared difference of the scores' sum and the number of tokens, end
included (equations 6, 10 and 11). Token t sees the anchors that a stream of some wait-k has then.
Not in the paper, for few hours of speech: with a `boundary_weight` the segmenter also learns where
tokens end, from the word times of the corpus; the scores injected at the anchors need far more
steps to teach it.
Windows are encoded as a stream encodes them, with one chunk length per batch, 0.1 to 1.0 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.methods.star.compressors import Anchors
from streaming_asr.methods.star.decoder import AnchorDecoder, seen
from streaming_asr.methods.star.features import EXTRACTORS
from streaming_asr.methods.star.network import (
    CONFIG_FILE,
    StarConfig,
    StarNetwork,
    fill,
    read_config,
    save_network,
)
from streaming_asr.training.recipe import CHUNKS_S, BlockRecipe, published_name, random_chunk
from streaming_asr.training.windows import Window
from streaming_asr.training.word_tokens import tokens_in_frames
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.window import FRAME_S

STAGES = ("plain", "segmenter", "frozen")
LENGTH_WEIGHT = 0.01
"""Of equation 11."""


@dataclass(frozen=True)
class StarBatch:
    """Windows and the text of each."""

    audio: list[Tensor]  # (n,) samples, whole blocks and the look-ahead
    ends: list[list[int]]  # block ends in frames
    n_real: list[int]  # frames that carry audio
    texts: list[list[int]]
    wait_k: int | None  # None: every token sees every anchor
    stride: int | None  # frames of a segment, of the model without compression
    bounds: list[list[int]]  # the frame in which each token ends
    features: list[Tensor] = field(default_factory=list)  # (T, d), in the place of the audio


class StarModel(nn.Module):
    """Whisper wrapped by peft and STAR's network, with their loss."""

    def __init__(self, whisper: nn.Module, network: StarNetwork, prompt: Sequence[int], eot: int):
        super().__init__()
        self.whisper, self.network = whisper, network
        self._prompt, self._eot = list(prompt), eot

    def features(self, batch: StarBatch) -> list[Tensor]:
        """Return (T, d) of each window, as a stream has them."""
        weight = next(self.parameters())
        if batch.features:  # kept in fp16
            return [x.to(weight) for x in batch.features]
        audio = [x.to(weight.device) for x in batch.audio]
        return self.network.extractor.windows(audio, batch.ends)

    def forward(
        self,
        batch: StarBatch,
        *,
        rate: float | None,
        rescale: bool,
        train_features: bool,
        boundaries: bool,
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        """Return four figures of a batch: NLL, length error, frames per vector, boundary loss.

        The NLL is per token; the length error is the mean of `Compressed.length_error`; the
        boundary loss is `boundary_loss` per token, 0 without `boundaries`. rate: frames per vector
        of windows compressed as a whole. rescale: the scores are scaled to the number of tokens,
        else they are as in a stream. train_features: gradients reach the extractor.
        """
        decoder = AnchorDecoder(self.whisper)
        compressor = self.network.compressor
        if batch.stride is not None:
            compressor.stride = batch.stride
        device = decoder.embedding.device
        n_prompt = len(self._prompt)
        logits, labels, errors = [], [], []
        boundary = torch.zeros((), device=device)
        n_frames = n_vectors = 0
        with torch.set_grad_enabled(train_features and torch.is_grad_enabled()):
            features = self.features(batch)
        for x, n_real, text, bounds in zip(
            features, batch.n_real, batch.texts, batch.bounds, strict=True
        ):
            if boundaries and isinstance(compressor, Anchors):
                scores = compressor.segmenter(x[:n_real].detach())
                boundary = boundary + boundary_loss(scores, bounds)
            n_tokens = float(len(text) + 1) if rescale and not rate else None
            compressed = compressor.compress(x[:n_real], n_tokens, rate)
            ids = [*self._prompt, *text]
            visible = [seen(i, n_prompt, batch.wait_k, compressed.ready) for i in range(len(ids))]
            hidden = decoder.forward(ids, compressed.vectors, compressed.scores, visible)
            logits.append(decoder.logits(hidden[n_prompt - 1 :]))
            labels += [*text, self._eot]
            if compressed.length_error is not None:
                errors.append(compressed.length_error)
            n_frames += n_real
            n_vectors += len(compressed.vectors)
        predicted = torch.cat(logits).float()
        nll = F.cross_entropy(predicted, torch.tensor(labels, device=device))
        length_error = torch.stack(errors).mean() if errors else nll.new_zeros(())
        return nll, length_error, n_frames / n_vectors, boundary / len(labels)


@dataclass(kw_only=True, eq=False)
class StarRecipe(BlockRecipe):
    """`train method=star`: one stage. The network's settings are those of `StarConfig`.

    start: folder of an earlier stage, or of a causal LoRA adapter of the same rank.

    Raises UserError where the corpus is missing or a setting is out of range.
    """

    stage: str
    layers: int
    pool: str
    carry: bool
    select: str
    features: str
    wav2vec2: str | None  # folder or hub name, for features=wav2vec2 (experiments.star.wav2vec2)
    rate: float | None  # frames per vector, audio compressed as a whole (figure 4); None: stream
    waits: Sequence[int]  # what wait-k is drawn from: not in the paper, whose published mask has 3
    rescale: bool  # the scores to the number of tokens (paper); False: as a stream has them
    strides: Sequence[int]  # frames per segment that the stage plain draws from (figure 6)
    boundary_weight: float  # of the cross-entropy with the tokens' ends; the paper has none
    rank: int
    batch: int
    dev_wait_k: int

    model: StarModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of(STAGES, stage=self.stage)
        self.train_features = self.stage == "plain"
        if self.stage == "plain":
            self.rate = None
        if self.stage == "segmenter" and self.rate is None and not self.rescale:
            raise UserError(
                "stage=segmenter rescale=false: equation 10 needs scores scaled to the number of "
                "tokens; leave it out, or take stage=frozen"
            )
        self.waits, self.strides = list(self.waits), list(self.strides)
        check_range(1, rank=self.rank, batch=self.batch, waits=self.waits, strides=self.strides)
        super().__post_init__()
        begun = self.begun
        config = StarConfig(
            compressor="none" if self.stage == "plain" else "star",
            layers=self.layers,
            pool=self.pool,
            carry=self.carry,
            rate=self.rate,
            select=self.select,
            features=self.features,
        )
        has_network = begun is not None and (begun / CONFIG_FILE).is_file()
        if begun is not None and has_network:
            other = read_config(begun).compressor
            if other not in ("none", config.compressor):
                raise UserError(
                    f"start={self.start}: trained as compressor={other}, not {config.compressor}; "
                    "give the folder of the stage plain, or one of the same compressor"
                )
        self.config = config

        torch.manual_seed(self.seed)
        self.whisper = load_whisper(self.model_path)
        extractor = None
        if self.features != "whisper":
            copy = None if begun is None else begun / self.features
            source = str(copy) if copy is not None and copy.is_dir() else self.wav2vec2
            if source is None:
                raise UserError("features=wav2vec2: name its folder or hub name with wav2vec2=")
            extractor = EXTRACTORS[self.features](source, self.whisper)
        network = StarNetwork(self.whisper, config, extractor)
        if begun is not None and has_network:
            fill(network, begun, partly=True)
        self.lora = with_lora(self.whisper.model, self.rank, LINEAR, start=begun)
        self.prompt = self.one_prompt()
        self.network = network
        self.model = StarModel(self.lora, network, self.prompt, self.whisper.eot)
        self._freeze()

    def _freeze(self) -> None:
        """Freeze the weights that the stage does not train."""
        trained = self.network.trained
        for name, weight in self.lora.named_parameters():
            if ".encoder." in name and (trained is not None or not self.train_features):
                weight.requires_grad_(False)
        if trained is not None:
            trained.train_weights(self.train_features)
        if self.stage == "frozen":
            for name, weight in self.network.named_parameters():
                if ".segmenter." in name:
                    weight.requires_grad_(False)

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> StarBatch:
        """Return a batch of windows; it depends only on (seed, step, rank)."""
        shared = self.rng(step)  # one chunk for all ranks: equal work
        chunk, first_chunk = random_chunk(shared)
        wait_k, stride = shared.choice(self.waits), shared.choice(self.strides)
        audio, ends, n_real, bounds = [], [], [], []
        windows = self.windows(self.rng(step, rank), self.batch)
        for window in windows:
            block_ends = self.blocks(len(window.audio), chunk, first_chunk)
            n_frames = min(-(-len(window.audio) // FRAME_SAMPLES), block_ends[-1])
            audio.append(self._filled_up(window.audio, block_ends))
            ends.append(block_ends)
            n_real.append(n_frames)
            bounds.append(self._bounds(window, n_frames))
        return StarBatch(
            audio,
            ends,
            n_real,
            self.tokens(windows),
            wait_k if self.rate is None else None,
            stride if self.stage == "plain" else None,
            bounds,
        )

    def _bounds(self, window: Window, n_frames: int) -> list[int]:
        """Return the frame in which each token ends, below `n_frames`."""
        placed = tokens_in_frames(window.words, lambda word: self.whisper.text_tokens(f" {word}"))
        return [min(n_frames - 1, max(0, end - 1)) for _, _, end in placed]

    def precompute(self, batch: StarBatch) -> StarBatch:
        """Return the batch, with frozen features (fp16) in place of the audio."""
        if self.train_features:
            return batch
        with torch.no_grad():
            features = [x.half().cpu() for x in self.model.features(batch)]
        return replace(batch, audio=[], features=features)

    @staticmethod
    def _filled_up(samples: np.ndarray, ends: Sequence[int]) -> Tensor:
        """Return the samples with zeros behind them, (n,), as whole blocks and a look-ahead need.

        ends: where the blocks end, in frames.
        """
        n = ends[-1] * FRAME_SAMPLES + LOOKAHEAD_SAMPLES
        taken = torch.from_numpy(samples[:n])
        return F.pad(taken, (0, n - len(taken)))

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: StarBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and what to log of it.

        The loss is the NLL; where the segmenter learns, plus the weighted length error (equation
        11) and boundary loss. The k best frames of a recording (`select=top_k` at a rate) do not
        depend on the scores' sum: the paper and the authors' code have no length error there.
        """
        learns_scores = self.stage == "segmenter"  # else nothing that could change them is trained
        nll, length_error, frames_per_vector, boundary = model(
            batch,
            rate=self.rate,
            rescale=self.rescale,
            train_features=self.train_features,
            boundaries=learns_scores and self.boundary_weight > 0,
        )
        logs = {
            "audio_s": sum(batch.n_real) * FRAME_S,
            "nll": float(nll.detach()),
            "length_error": float(length_error.detach()),
            "frames_per_vector": frames_per_vector,
        }
        if not learns_scores:
            return nll, logs
        if self.boundary_weight > 0:
            logs["boundary_loss"] = float(boundary.detach())
        chooses_by_rank = self.select == "top_k" and self.rate is not None
        length_weight = 0.0 if chooses_by_rank else LENGTH_WEIGHT
        return nll + length_weight * length_error + self.boundary_weight * boundary, logs

    def evaluate(self) -> dict[str, float]:
        """Return the figures of streaming dev at `dev_wait_k`, or as a whole at the rate: among
        them the WER in percent and the frames per vector."""
        figures, counts = self.stream_dev("star", wait_k=self.dev_wait_k, rate=self.rate)
        rate = counts["frames_real"] / max(1, counts["anchors"])
        return {**figures, "frames_per_vector": rate}

    def save(self, folder: Path) -> None:
        """Write a folder that `method.weights` takes, in fp16, and training.json."""
        folder.mkdir(parents=True, exist_ok=True)
        save_network(self.network, folder)
        save_lora(self.lora, folder, published_name(self.model_path))
        self.write_card(
            folder,
            "star",
            "stage waits rescale boundary_weight batch",
            base=self.model_path,
            start=self.begun_from,
            chunk_s=CHUNKS_S,
        )


def boundary_loss(scores: Tensor, bounds: Sequence[int]) -> Tensor:
    """Return the summed cross-entropy of the scores (T,) with 1 where a token ends, 0 elsewhere.

    bounds: the frames in which tokens end. Tokens that end in the same frame count once.
    """
    target = torch.zeros_like(scores, dtype=torch.float32)
    target[list(bounds)] = 1.0
    return F.binary_cross_entropy_with_logits(scores.float(), target, reduction="sum")
