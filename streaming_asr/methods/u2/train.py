"""Training of U2-Whisper in the paper's three stages (section 4), one run each.

attention  block-causal masks, attention loss only: Whisper learns to hear in chunks and unpadded.
ctc        a CTC head on top, CTC loss only, everything else frozen.
hybrid     everything, a CTC loss + (1 - a) attention loss (equation 1), until WER stops falling.

Every batch has one chunk length, drawn from 0.1 to 1.0 s. Windows are encoded as a stream encodes
them: never padded to the context, the last block filled up with zeros, log-mel clamped at the
running maximum of the blocks. Either a LoRA adapter is trained or the whole model.
"""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from streaming_asr.config import new_method
from streaming_asr.data import read_manifest
from streaming_asr.data.shards import Item, by_speaker, read_timed_shards
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.head import (
    HEAD_FILE,
    MODEL_FOLDER,
    embedding_head,
    load_head,
    load_trained,
    save_head,
)
from streaming_asr.methods.u2.network import Batch, TwoPassModel, with_lora
from streaming_asr.methods.u2.tokenizer import CtcTokenizer
from streaming_asr.training.loop import dev_wer, published_name, write_training
from streaming_asr.training.windows import WindowOptions, complete_window
from streaming_asr.whisper.adapters import save_lora
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import FRAME_SAMPLES, LOOKAHEAD_SAMPLES, SAMPLE_RATE, log_mel
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.masks import whole_block_ends
from streaming_asr.whisper.window import FRAME_S, frames_of

STAGES = ("attention", "ctc", "hybrid")
CHUNK_FRAMES = (5, 50)  # 0.1 .. 1.0 s
FIRST_CHUNK_FRAMES = 30  # the stream's first chunk: the smallest multiple of the chunk from here up


class U2Recipe:
    """`train method=u2`: one stage, from a base model or from where another stage ended.

    start: folder of an earlier stage. rank: of the LoRA adapter; 0 trains the whole model.
    ctc_tokens: size of the hybrid tokenizer, null for the single one; a head in `start` decides.
    head_init: random, or embedding (the decoder's). hours: train on so much of the corpus.
    Raises UserError where the corpus is missing or a setting is out of range.
    """

    def __init__(
        self,
        model_path: str,
        train_data: str,
        dev_manifest: str,
        *,
        chunk_s: float,
        first_chunk_s: float,
        stage: str = "hybrid",
        start: str | None = None,
        ctc_tokens: int | None = None,
        head_init: str = "random",
        rank: int = 32,
        ctc_weight: float = 0.3,
        label_smoothing: float = 0.1,
        batch: int = 8,
        several: float = 0.4,
        late_start: float = 0.2,
        hours: float | None = None,
        language: str | None = None,
        n_dev: int = 24,
        seed: int = 0,
    ) -> None:
        for key, value, known in (
            ("stage", stage, STAGES),
            ("head_init", head_init, ("random", "embedding")),
        ):
            if value not in known:
                raise UserError(f"{key}={value!r}: one of {', '.join(known)}")
        if not 0 < ctc_weight < 1 or rank < 0 or batch < 1 or (hours is not None and hours <= 0):
            raise UserError(
                f"ctc_weight={ctc_weight}, rank={rank}, batch={batch}, hours={hours}: the weight "
                "lies between 0 and 1, rank is 0 or more, batch 1 or more, hours positive or null"
            )
        if start is not None and not Path(start).is_dir():
            raise UserError(
                f"start={start}: no such folder; give that of an earlier stage, or null"
            )
        self.path, self.stage, self.start = model_path, stage, start
        self.rank, self.seed = rank, seed
        self.chunk_s, self.first_chunk_s = chunk_s, first_chunk_s
        self.ctc_weight, self.label_smoothing, self.n_batch = ctc_weight, label_smoothing, batch
        self.late_start, self.language = late_start, language
        self.train_data, self.dev_manifest = train_data, dev_manifest

        self.items = _subset(read_timed_shards(Path(train_data)), hours, seed)
        self.voices = by_speaker(self.items)
        self.dev = read_manifest(Path(dev_manifest))[:n_dev]

        torch.manual_seed(seed)
        begun = Path(start) if start is not None else None
        self.whisper = load_trained(model_path, begun) if rank == 0 else load_whisper(model_path)
        if begun is not None and (begun / HEAD_FILE).is_file():
            head = load_head(begun, self.whisper)
            ctc_tokens = head.out_features - 1
            self.tokenizer = CtcTokenizer(self.whisper, ctc_tokens)
        else:
            self.tokenizer = CtcTokenizer(self.whisper, ctc_tokens)
            n_tokens = self.tokenizer.n_tokens
            head = (
                embedding_head(self.whisper, n_tokens)
                if head_init == "embedding"
                else nn.Linear(self.whisper.config.d_model, n_tokens + 1)
            )
        network = self.whisper.model
        if rank:
            network = with_lora(network, rank, begun)
        else:
            network.requires_grad_(stage != "ctc")
            network.model.encoder.embed_positions.requires_grad_(False)  # sinusoids stay
        if stage == "ctc":
            network.requires_grad_(False)
        head.requires_grad_(stage != "attention")
        self.network = network
        self.prompt = self.whisper.prompt(language)
        self.model = TwoPassModel(network, head, self.prompt, self.whisper.eot)
        self.options = WindowOptions(
            self.whisper.context_s,
            several=several,
            crop_end=0.0,
            crop_start=0.0,
            timestamps=0.0,
            prompt=0.0,
        )

    # -- data -----------------------------------------------------------------------------------

    def batch(self, step: int, *, rank: int, world: int, progress: float) -> Batch:
        """Pure in (seed, step, rank)."""
        shared = random.Random(f"{self.seed}-{step}")  # one chunk for all ranks: equal work
        chunk = shared.randint(*CHUNK_FRAMES)
        first = shared.choice((chunk, -(-FIRST_CHUNK_FRAMES // chunk) * chunk))
        own = random.Random(f"{self.seed}-{step}-{rank}")
        drawn = [
            complete_window(
                own,
                self.voices,
                self.items,
                self.options,
                late_start=self.late_start,
                lead_s=0.5,
            )
            for _ in range(self.n_batch)
        ]
        ends = [self._blocks(len(window.audio), chunk, first) for window in drawn]
        mels = [
            log_mel(
                torch.from_numpy(window.audio[: e[-1] * FRAME_SAMPLES + LOOKAHEAD_SAMPLES]),
                self.whisper.n_mels,
                block_ends=e,
            )
            for window, e in zip(drawn, ends, strict=True)
        ]
        texts = ["".join(f" {word}" for word, *_ in window.words) for window in drawn]
        tokenizer = self.whisper.tokenizer
        decoder_texts = [tokenizer(text, add_special_tokens=False).input_ids for text in texts]
        room = self.whisper.max_tokens - len(self.prompt)
        if (longest := max(map(len, decoder_texts))) > room:
            raise UserError(
                f"a window of {longest} tokens, but this model's decoder has positions for {room}; "
                "its transcript does not belong to its audio"
            )
        return Batch(mels, ends, decoder_texts, [self.tokenizer.encode(text) for text in texts])

    def precompute(self, batch: Batch) -> Batch:
        """In stage `ctc`, where only the head is trained, the frozen encoder's output in the place
        of the log-mel: what `fit.cached_batches` keeps."""
        if self.stage != "ctc":
            return batch
        with torch.no_grad():
            encoded = [frames.cpu() for frames in self.model.encode(batch)]
        return replace(batch, mels=[], encoded=encoded)

    def _blocks(self, n_samples: int, chunk: int, first: int) -> list[int]:
        """Ends of the window's blocks, all whole but where the context ends."""
        n_frames = -(-n_samples // FRAME_SAMPLES)
        return whole_block_ends(n_frames, chunk, first, self.whisper.context_frames)

    # -- training -------------------------------------------------------------------------------

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """The stage's loss, per token."""
        ctc, attention = model(
            batch,
            ctc=self.stage != "attention",
            attention=self.stage != "ctc",
            label_smoothing=self.label_smoothing,
        )
        logs = {"audio_s": sum(ends[-1] for ends in batch.ends) * FRAME_S}
        if self.stage != "attention":
            logs["ctc_loss"] = float(ctc.detach())
        if self.stage != "ctc":
            logs["attention_loss"] = float(attention.detach())
        if self.stage == "hybrid":
            return self.ctc_weight * ctc + (1 - self.ctc_weight) * attention, logs
        return ctc + attention, logs  # one of them is zero

    def evaluate(self) -> dict[str, float]:
        """WER in percent on dev: of both passes, streaming; before there is a head, of the decoder
        on the causal encoding."""
        texts = self._decoded() if self.stage == "attention" else self._streamed()
        wer = dev_wer(self.dev, texts, self.language)
        return {"score": wer, "wer": wer}

    @torch.inference_mode()
    def _decoded(self) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder))
            whisper = load_trained(self.path, folder, device=str(self._device))
        decoder = Decoder(whisper)
        chunk = frames_of(self.chunk_s, "chunk_s")
        first = frames_of(self.first_chunk_s, "first_chunk_s")
        texts = []
        for utterance in self.dev:
            audio = utterance.load()[: int(whisper.context_s * SAMPLE_RATE)]
            ends = self._blocks(len(audio), chunk, first)
            mel = log_mel(torch.from_numpy(audio), whisper.n_mels, block_ends=ends)
            cache = DecoderCache(decoder)
            hidden = encode_masked(whisper.model, mel[None].to(whisper.device), ends=ends)
            decoder.append_frames(cache, hidden, 0)
            tokens, n_fed = list(self.prompt), 0
            while len(tokens) < whisper.max_tokens:
                out = decoder.run(cache, [tokens[n_fed:]], [n_fed], ends[-1])
                n_fed = len(tokens)
                best = int(decoder.log_probs(out)[0, 0].argmax())
                if best == whisper.eot:
                    break
                tokens.append(best)
            texts.append(whisper.tokenizer.decode(tokens[len(self.prompt) :]).strip())
        return texts

    def _streamed(self) -> list[str]:

        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder))
            method = new_method(
                "u2",
                self.path,
                weights=folder,
                device=str(self._device),
                chunk_s=self.chunk_s,
                first_chunk_s=self.first_chunk_s,
            )
        texts = []
        for utterance in self.dev:
            update = method.step(method.start(language=self.language), utterance.load(), last=True)
            texts.append("".join(word.text for word in update.committed).strip())
        return texts

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def save(self, folder: Path) -> None:
        """A folder that `method.weights` takes: head, adapter or model in fp16, training.json."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.stage != "attention":
            save_head(self.model.head, folder)
        whole = not self.rank and (self.stage != "ctc" or self.start is not None)
        if self.rank:
            save_lora(self.network, folder, published_name(self.path))
        elif whole:
            _save_model(self.whisper, folder / MODEL_FOLDER)
        told = {
            "method": "u2",
            "stage": self.stage,
            "start": self.start if self.start is None else published_name(self.start),
            "rank": self.rank,
            "ctc_tokens": self.tokenizer.n_tokens,
            "ctc_weight": self.ctc_weight,
            "chunk_s": [frames * FRAME_S for frames in CHUNK_FRAMES],
            "batch": self.n_batch,
            "seed": self.seed,
        }
        write_training(
            folder,
            told,
            items=self.items,
            train_data=self.train_data,
            dev=self.dev,
            dev_manifest=self.dev_manifest,
            base=None if whole else self.path,
        )


def _subset(items: list[Item], hours: float | None, seed: int) -> list[Item]:
    """`items`, in an order of their own where only some `hours` are wanted."""
    if hours is None:
        return items
    drawn = list(items)
    random.Random(f"subset-{seed}").shuffle(drawn)
    wanted, taken = hours * 3600 * SAMPLE_RATE, 0
    for n, item in enumerate(drawn):
        if taken >= wanted:
            return drawn[:n]
        taken += item.n_samples
    return drawn


def _save_model(whisper: Whisper, folder: Path) -> None:
    import copy

    copy.deepcopy(whisper.model).half().save_pretrained(folder)
    whisper.tokenizer.save_pretrained(folder)
