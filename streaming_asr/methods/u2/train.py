"""Training of U2-Whisper in the paper's three stages and one more (section 4), one run each.

attention  block-causal masks, attention loss only: Whisper learns chunks without padding.
frames     a CTC head on top, cross-entropy on the token spoken in each frame, placed by the word
           times, with the attention loss as in `hybrid`. Not the paper's: on the features of a
           frozen Whisper a new head stays on the CTC loss's plateau.
ctc        the head with the CTC loss only, everything else frozen.
hybrid     everything, a CTC loss + (1 - a) attention loss (equation 1), until WER stops falling.

Every batch has one chunk length, drawn from 0.1 to 1.0 s. Windows are encoded as a stream encodes
them: never padded to the context, the last block filled up with zeros, log-mel clamped at the
running maximum of the blocks. Either a LoRA adapter is trained or the whole model.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from streaming_asr.errors import check_one_of, check_range
from streaming_asr.methods.u2.head import (
    HEAD_FILE,
    MODEL_FOLDER,
    embedding_head,
    load_head,
    load_trained,
    save_head,
)
from streaming_asr.methods.u2.network import TwoPassModel, U2Batch, spoken_classes
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.training.greedy import greedy
from streaming_asr.training.recipe import (
    CHUNKS_S,
    BlockRecipe,
    dev_wer,
    published_name,
    random_chunk,
    text_of,
)
from streaming_asr.whisper.adapters import LINEAR, save_lora, with_lora
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import SAMPLE_RATE
from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.window import FRAME_S

STAGES = ("attention", "frames", "ctc", "hybrid")
LOSSES = {"frames": ("frames", "attention"), "hybrid": ("ctc", "attention")}  # else the stage's own


@dataclass(kw_only=True, eq=False)
class U2Recipe(BlockRecipe):
    """`train method=u2`: one stage, from a base model or from where another stage ended.

    Raises UserError where the corpus is missing or a setting is out of range.
    """

    stage: str
    ctc_tokens: int | None  # of the hybrid tokenizer, null: the single one; `start`'s head decides
    head_init: str  # random, or embedding (the decoder's)
    rank: int  # of the LoRA adapter; 0 trains the whole model
    ctc_weight: float  # of the head's loss; 1 leaves the attention loss out, a third of a step
    label_smoothing: float
    batch: int
    model: TwoPassModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_one_of(STAGES, stage=self.stage)
        check_one_of(("random", "embedding"), head_init=self.head_init)
        check_range(0, 1, above=True, ctc_weight=self.ctc_weight)
        check_range(0, rank=self.rank)
        check_range(1, batch=self.batch)
        super().__post_init__()
        begun = self.begun
        self.trains_head_only = self.stage == "ctc"
        torch.manual_seed(self.seed)
        self.whisper = load_trained(self.model_path, None if self.rank else begun)
        if begun is not None and (begun / HEAD_FILE).is_file():
            head = load_head(begun, self.whisper)
            self.tokenizer = CtcTokenizer(self.whisper, head.out_features - 1)
        else:
            self.tokenizer = CtcTokenizer(self.whisper, self.ctc_tokens)
            n_tokens = self.tokenizer.n_tokens
            if self.head_init == "embedding":
                head = embedding_head(self.whisper, n_tokens)
            else:
                head = nn.Linear(self.whisper.config.d_model, n_tokens + 1)
        network = self.whisper.model
        if self.rank:
            network = with_lora(network, self.rank, LINEAR, start=begun)
        else:
            network.requires_grad_(not self.trains_head_only)
            network.model.encoder.embed_positions.requires_grad_(False)  # sinusoids stay
        if self.trains_head_only:
            network.requires_grad_(False)
        head.requires_grad_(self.stage != "attention")
        self.network = network
        self.prompt = self.one_prompt()
        self.model = TwoPassModel(network, head, self.prompt, self.whisper.eot)

    # -- data -----------------------------------------------------------------------------------

    def draw(self, step: int, *, rank: int, world: int, progress: float) -> U2Batch:
        """Return a batch of windows of one chunk length; it depends only on (seed, step, rank)."""
        # The same chunk for all ranks: equal work.
        chunk, first_chunk = random_chunk(self.rng(step))
        windows = self.windows(self.rng(step, rank), self.batch)
        mels, ends, classes, spoken = [], [], [], []
        for window in windows:
            block_ends = self.blocks(len(window.audio), chunk, first_chunk)
            mels.append(self.mel(window.audio, block_ends))
            ends.append(block_ends)
            classes.append(self.tokenizer.encode(text_of(window)))
            spoken.append(spoken_classes(window, self.tokenizer, block_ends[-1], FRAME_S))
        return U2Batch(mels, ends, classes, spoken, self.tokens(windows))

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: U2Batch) -> tuple[Tensor, dict[str, float]]:
        """Return the stage's loss and what to log of it.

        In the stages frames and hybrid `ctc_weight` * the head's loss + (1 - `ctc_weight`) * the
        attention loss (equation 1).
        """
        names = LOSSES.get(self.stage, (self.stage,))
        if self.ctc_weight == 1:
            names = names[:1]  # without the attention loss
        flags = dict.fromkeys(names, True)
        losses = model(batch, label_smoothing=self.label_smoothing, **flags)
        logs = {"audio_s": sum(ends[-1] for ends in batch.ends) * FRAME_S}
        logs |= {f"{name}_loss": float(losses[name].detach()) for name in names}
        first_loss = losses[names[0]]
        if len(names) == 1:
            return first_loss, logs
        return self.ctc_weight * first_loss + (1 - self.ctc_weight) * losses["attention"], logs

    def evaluate(self) -> dict[str, float]:
        """Return the WER in percent on dev, of both passes, streaming.

        In the stage attention, which has no head yet, of the decoder on the causal encoding.
        """
        if self.stage != "attention":
            return self.stream_dev("u2")[0]
        wer = dev_wer(self.dev, self._decoded(), self.language)
        return {"score": wer, "wer": wer}

    @torch.inference_mode()
    def _decoded(self) -> list[str]:
        """Return the greedy text of each dev utterance, its causal encoding decoded as a whole.

        With the weights as `save` writes them; of a long utterance only the context is decoded.
        """
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder))
            whisper = load_trained(self.model_path, folder, device=str(self.device))
        texts = []
        for utterance in self.dev:
            audio = utterance.load()[: int(whisper.context_s * SAMPLE_RATE)]
            ends = self.blocks(len(audio), self.chunk, self.first_chunk)
            mel = self.mel(audio, ends).to(whisper.device)
            frames = encode_masked(whisper.model, mel[None], ends=ends)
            texts.append(greedy(whisper, frames, self.prompt, whisper.max_tokens))
        return texts

    def save(self, folder: Path) -> None:
        """Write a folder that `method.weights` takes: head, adapter or model, training.json."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.stage != "attention":
            save_head(self.model.head, folder)
        # The whole model where this stage or one before it may have trained it.
        whole = not self.rank and (not self.trains_head_only or self.start is not None)
        if self.rank:
            save_lora(self.network, folder, published_name(self.model_path))
        elif whole:
            half = copy.deepcopy(self.whisper.model).half()
            Whisper(half, self.whisper.tokenizer).save(folder / MODEL_FOLDER)
        self.write_card(
            folder,
            "u2",
            "stage rank ctc_weight batch",
            base=None if whole else self.model_path,
            start=self.begun_from,
            ctc_tokens=self.tokenizer.n_tokens,
            chunk_s=CHUNKS_S,
        )
