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
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from streaming_asr.errors import UserError, check_one_of, check_range
from streaming_asr.methods.star.decoder import AnchorDecoder, seen
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
from streaming_asr.whisper.batched import encode_windows
from streaming_asr.whisper.features import FRAME_SAMPLES
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.window import FRAME_S

STAGES = ("plain", "segmenter", "frozen")
LENGTH_WEIGHT = 0.01
"""Of equation 11."""


@dataclass(frozen=True)
class StarBatch:
    """Windows and the text of each."""

    mels: list[Tensor]  # (n_mels, 2F + 1) each
    ends: list[list[int]]  # block ends in frames
    n_real: list[int]  # frames that carry audio
    texts: list[list[int]]
    wait_k: int
    stride: int | None  # frames of a segment, of the model without compression
    bounds: list[list[int]]  # the frame in which each token ends


class StarModel(nn.Module):
    """Whisper wrapped by peft and STAR's network, with their loss."""

    def __init__(self, whisper: nn.Module, network: StarNetwork, prompt: Sequence[int], eot: int):
        super().__init__()
        self.whisper, self.network = whisper, network
        self._prompt, self._eot = list(prompt), eot

    def features(self, batch: StarBatch) -> list[Tensor]:
        """Return (T, d) of each window, as a stream has them."""
        device = next(self.parameters()).device
        mels = [mel.to(device) for mel in batch.mels]
        return encode_windows(self.whisper, mels, batch.ends)

    def forward(
        self, batch: StarBatch, *, rescale: bool, train_features: bool, boundaries: bool
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        """Return four figures of a batch: NLL, length error, frames per vector, boundary loss.

        The NLL is per token; the length error is the mean of `Compressed.length_error`; the
        boundary loss is `boundary_loss` per token, 0 without `boundaries`. rescale: the scores are
        scaled to the number of tokens, else they are as in a stream. train_features: gradients
        reach the encoder.
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
            if boundaries and compressor.segmenter is not None:
                scores = compressor.segmenter(x[:n_real].detach())
                boundary = boundary + boundary_loss(scores, bounds)
            n_tokens = float(len(text) + 1) if rescale else None
            compressed = compressor.compress(x[:n_real], n_tokens)
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
        if self.stage == "segmenter" and not self.rescale:
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
        network = StarNetwork(self.whisper, config)
        if begun is not None and has_network:
            fill(network, begun, partly=True)
        self.lora = with_lora(self.whisper.model, self.rank, LINEAR, start=begun)
        self.prompt = self.one_prompt()
        self.network = network
        self.model = StarModel(self.lora, network, self.prompt, self.whisper.eot)
        self._freeze()

    def _freeze(self) -> None:
        """Freeze the weights that the stage does not train."""
        for name, weight in self.lora.named_parameters():
            if ".encoder." in name and not self.train_features:
                weight.requires_grad_(False)
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
        mels, ends, n_real, bounds = [], [], [], []
        windows = self.windows(self.rng(step, rank), self.batch)
        for window in windows:
            block_ends = self.blocks(len(window.audio), chunk, first_chunk)
            n_frames = min(-(-len(window.audio) // FRAME_SAMPLES), block_ends[-1])
            mels.append(self.mel(window.audio, block_ends))
            ends.append(block_ends)
            n_real.append(n_frames)
            bounds.append(self._bounds(window, n_frames))
        return StarBatch(
            mels,
            ends,
            n_real,
            self.tokens(windows),
            wait_k,
            stride if self.stage == "plain" else None,
            bounds,
        )

    def _bounds(self, window: Window, n_frames: int) -> list[int]:
        """Return the frame in which each token ends, below `n_frames`."""
        placed = tokens_in_frames(window.words, lambda word: self.whisper.text_tokens(f" {word}"))
        return [min(n_frames - 1, max(0, end - 1)) for _, _, end in placed]

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: StarBatch) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and what to log of it.

        The loss is the NLL; where the segmenter learns, plus the weighted length error (equation
        11) and boundary loss.
        """
        learns_scores = self.stage == "segmenter"  # else nothing that could change them is trained
        nll, length_error, frames_per_vector, boundary = model(
            batch,
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
        return nll + LENGTH_WEIGHT * length_error + self.boundary_weight * boundary, logs

    def evaluate(self) -> dict[str, float]:
        """Return figures of streaming dev at `dev_wait_k`, as the WER in percent and the frames per
        vector."""
        figures, counts = self.stream_dev("star", wait_k=self.dev_wait_k)
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
