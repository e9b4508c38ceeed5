"""The authors' WhisperRT and ours: the same adapter, greedily, for `experiments.parity`.

Their spectrogram, encoder, decoder and decoding task are run as they are, except for these
faults, which are corrected from outside:

- `front`: the left edge is reflected by 201 samples in place of 200, a first block of several
  chunks is clamped chunk by chunk, a block has 160 samples more than its frames need, and what
  is left of the audio after the last whole chunk is dropped.
- `logits`: raw logits are compared where the paper compares probabilities.
- `resume`: after a crop, an end of text from before it ends the chunk.
- `prompt`: control tokens are verified like text while the text is shorter than n.
- `blank`: a first token is forced where there is no speech.

Commit 00f21ede has a program that leaves some of them in.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from experiments import parity
from streaming_asr.config.build import new_method
from streaming_asr.method import FRAME_SAMPLES
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.features import FRAMES_PER_S, LOOKAHEAD_SAMPLES, N_FFT
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.openai import dimensions, openai_name, openai_state

CODE = "tomer9080/WhisperRT-Streaming"
PACKAGES = ("torch", "tiktoken")
N = 2
CHUNKS_S = {1.0: 1.0, 0.3: 0.6}
"""Chunk and first chunk."""
FAULTS = ("front", "logits", "resume", "prompt", "blank")
SETTINGS = {"first_chunk_s": CHUNKS_S, "n": N, "mended": FAULTS}


class Author:
    """Their streaming model with our weights and without its faults."""

    def __init__(self, checkout: Path, whisper: Whisper, chunk: int, first: int) -> None:
        """chunk, first: encoder frames of a block and of the first one, a multiple of it."""
        parity.stand_in("pyaudio", paInt16=8)
        parity.stand_in("soundfile", "pandas")
        parity.stand_in("pytorch_lightning", LightningModule=torch.nn.Module)
        if str(checkout) not in sys.path:
            sys.path.insert(0, str(checkout))
        from whisper_rt import streaming_decoding  # type: ignore[import-not-found]
        from whisper_rt.model import ModelDimensions  # type: ignore[import-not-found]
        from whisper_rt.streaming_model import StreamingWhisper  # type: ignore[import-not-found]

        self.theirs = streaming_decoding
        self.chunk, self.first = chunk, first
        self.n_prompt = len(whisper.prompt())
        self.options = streaming_decoding.DecodingOptions(
            language="en",
            gran=chunk,
            look_ahead_blocks=first // chunk - 1,
            beam_size=0,
            n_tokens_look_back=N,
            suppress_blank=False,
        )
        adapter = load_file(parity.ADAPTER / "adapter_model.safetensors")
        rank = min(next(iter(adapter.values())).shape)
        self.model = StreamingWhisper(
            ModelDimensions(**dimensions(whisper.config)),
            gran=chunk,
            rank=rank,
            extra_gran_blocks=first // chunk - 1,
        )
        missing, unexpected = self.model.load_state_dict(state_of(whisper, adapter), strict=False)
        if missing or unexpected:
            raise ValueError(f"their model lacks {missing} and does not know {unexpected}")
        self.model.eval()

    @torch.no_grad()
    def tokens(self, audio: np.ndarray) -> list[list[int]]:
        """The text tokens after every block."""
        self.model.reset(use_stream=True)
        task = self.model.decoding_task = placed(self.theirs)(self.model, self.options)
        task.decoder = mended(self.theirs.StreamingDecoder, self.n_prompt)(
            0.0, 2, task.tokenizer.eot, task.inference, N
        )
        steps = []
        for mel in self._mel(audio, task):
            result = task.run(mel)
            if result.audio_features is not None:
                steps.append(task.tokens.flatten()[self.n_prompt :].tolist())
        return steps

    def _mel(self, audio: np.ndarray, task: Any) -> Iterator[torch.Tensor]:
        spectrogram = self.model.spec_streamer
        spectrogram.reset()
        size = self.chunk * FRAME_SAMPLES
        n_chunks = max(-(-len(audio) // size), self.first // self.chunk)
        n_samples = n_chunks * size + LOOKAHEAD_SAMPLES
        padded = np.pad(audio, (0, max(0, n_samples - len(audio))))
        start = 0
        for end in range(self.first * FRAME_SAMPLES, n_chunks * size + 1, size):
            piece = torch.from_numpy(padded[start : end + LOOKAHEAD_SAMPLES])
            if start == 0:
                # What comes before the first piece is read as the end of a piece before it.
                spectrogram.is_first = False
                spectrogram.audio_ctx = piece[None, 1 : N_FFT // 2 + 1].flip(-1)
                task.index = (self.first // self.chunk - 1) * self.chunk
            yield spectrogram.calc_mel_with_new_frame(piece)
            start = end + LOOKAHEAD_SAMPLES


def placed(theirs: Any) -> type:
    """Their decoding task for blocks of no more audio than they need.

    Theirs computes a block's place from the number of mel frames, which is then one less.
    """

    class Placed(theirs.DecodingTask):  # type: ignore[misc, name-defined]
        def _get_audio_features(self, mel: torch.Tensor, index: Any = None) -> None:
            encoded = self.model.encoder(mel, kv_cache=self.enc_kv_cache, mask=None)
            self.audio_features[:, self.index - encoded.shape[1] : self.index] = encoded

    return Placed


def mended(decoder: type, n_prompt: int) -> type:
    """Their greedy decoder without its faults."""

    class Mended(decoder):  # type: ignore[misc, valid-type]
        def update(self, tokens: torch.Tensor, logits: torch.Tensor, *rest: Any, **how: Any) -> Any:
            n_before = tokens.shape[1]
            self.check_token_index = -min(N, n_before - n_prompt) - 1  # `prompt`
            logits = F.log_softmax(logits, dim=-1)  # `logits`
            tokens, completed = super().update(tokens, logits, *rest, **how)
            return tokens, completed and tokens.shape[1] >= n_before  # `resume`

    return Mended


def state_of(whisper: Whisper, adapter: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights and adapter by their names; the low-rank factors are in the other order.

    Theirs adapts only the attention: what ours changes in feed-forward layers is added to them.
    """
    state = {}
    for name, value in openai_state(whisper.model).items():
        if "attn." in name:
            name = re.sub(r"\.(weight|bias)$", r".base_layer.\1", name)
        state[name] = value
    for name, value in adapter.items():
        ours = openai_name(name.removeprefix("base_model.model."))
        if ".mlp." in ours:
            if ".lora_A." in ours:
                other = adapter[name.replace(".lora_A.", ".lora_B.")]
                weight = ours.replace(".lora_A.", ".")
                state[weight] = state[weight] + other.float() @ value.float()
            continue
        state[ours.replace(".lora_", ".lora_layer.lora_").removesuffix(".weight")] = value.T.float()
    return state


def our_method(chunk_s: float, first_s: float) -> Any:
    return new_method(
        "whisperrt",
        parity.MODEL,
        chunk_s=chunk_s,
        first_chunk_s=first_s,
        weights=str(parity.ADAPTER),
        adapter_scale=1.0,
        commit="paper",
        n=N,
    )


def our_tokens(
    method: Any, audio: np.ndarray, chunk_s: float, first_s: float
) -> dict[int, list[int]]:
    """The text tokens after every delivery, by the blocks encoded; the last may hold two."""
    state = method.start(language="en")
    steps = {}
    for piece, last in parity.pieces(audio, chunk_s, first_s, method.lookahead_samples):
        method.step(state, piece, last=last)
        steps[len(state.block_ends)] = list(state.hypotheses[0].tokens)
    return steps


def text_row(steps: Collection[Sequence[int]]) -> dict[str, Any]:
    """Of the tokens after each step: how many, and one hash."""
    return {
        "n": [len(tokens) for tokens in steps],
        "hash": parity.digest(" ".join(map(str, tokens)) for tokens in steps),
    }


def rows(checkout: Path, clips: Sequence[Utterance]) -> Iterator[dict[str, Any]]:
    """A row for each chunk and clip."""
    whisper = load_whisper(parity.MODEL)
    for chunk_s, first_s in CHUNKS_S.items():
        chunk, first = (round(s * FRAMES_PER_S) for s in (chunk_s, first_s))
        author, method = Author(checkout, whisper, chunk, first), our_method(chunk_s, first_s)
        for clip in clips:
            audio = clip.load()
            ours = our_tokens(method, audio, chunk_s, first_s)
            after = dict(enumerate(author.tokens(audio), 1))
            theirs = {n: after.get(n, after[max(after)]) for n in ours}
            for n in ours:
                if theirs[n] != ours[n]:
                    print(f"  after block {n}: theirs {theirs[n]}, ours {ours[n]}")
            row = parity.compared(clip, text_row(theirs.values()), text_row(ours.values()))
            yield {"chunk_s": chunk_s} | row
