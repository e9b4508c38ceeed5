"""The authors' WhisperRT and ours: the same adapter on tiny.en, greedily, on Debian's prompts.

    git clone https://github.com/tomer9080/WhisperRT-Streaming outputs/whisperrt/reference
    git -C outputs/whisperrt/reference checkout c09cb4b
    pip install tiktoken numba more_itertools      # best in an environment of its own
    python -m experiments.whisperrt.parity outputs/whisperrt/reference --write

Their spectrogram, encoder, decoder and decoding task are run as they are, except for these
faults, which are corrected from outside:

- `front`: the left edge is reflected by 201 samples in place of 200, a first block of several
  chunks is clamped chunk by chunk, a block has 160 samples more than its frames need, and what
  is left of the audio after the last whole chunk is dropped.
- `logits`: raw logits are compared where the paper compares probabilities.
- `resume`: after a crop, an end of text from before it ends the chunk.
- `prompt`: control tokens are verified like text while the text is shorter than n.
- `blank`: a first token is forced where there is no speech.

`--leave FAULT ...` leaves some of them in and prints what differs then.
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
from streaming_asr.method import FRAME_SAMPLES, SAMPLE_RATE
from streaming_asr.whisper.features import FRAMES_PER_S, LOOKAHEAD_SAMPLES, N_FFT
from streaming_asr.whisper.load import Whisper, load_whisper

FAULTS = ("front", "logits", "resume", "prompt", "blank")
THEIR_LOOKAHEAD = 360
N = 2
CHUNKS_S = {1.0: 1.0, 0.3: 0.6}
"""Chunk and first chunk."""


class Author:
    """Their streaming model with our weights; `faults` are left in."""

    def __init__(
        self, checkout: Path, whisper: Whisper, chunk: int, first: int, faults: Collection[str]
    ) -> None:
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
        self.chunk, self.first, self.faults = chunk, first, faults
        self.n_prompt = len(whisper.prompt())
        self.options = streaming_decoding.DecodingOptions(
            language="en",
            gran=chunk,
            look_ahead_blocks=first // chunk - 1,
            beam_size=0,
            n_tokens_look_back=N,
            suppress_blank="blank" in faults,
        )
        adapter = load_file(parity.ADAPTER / "adapter_model.safetensors")
        rank = min(next(iter(adapter.values())).shape)
        self.model = StreamingWhisper(
            ModelDimensions(**parity.openai_dimensions(whisper.config)),
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
        decoding = self.theirs.DecodingTask if "front" in self.faults else placed(self.theirs)
        task = self.model.decoding_task = decoding(self.model, self.options)
        task.decoder = mended(self.theirs.StreamingDecoder, self.faults, self.n_prompt)(
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
        left_in = "front" in self.faults
        first = self.chunk if left_in else self.first
        n_chunks, size = len(audio) // FRAME_SAMPLES // self.chunk, self.chunk * FRAME_SAMPLES
        lookahead = THEIR_LOOKAHEAD if left_in else LOOKAHEAD_SAMPLES
        if not left_in:
            n_chunks = max(-(-len(audio) // size), self.first // self.chunk)
        ends = range(first * FRAME_SAMPLES, n_chunks * size + 1, size)
        heard = np.pad(audio, (0, max(0, n_chunks * size + lookahead - len(audio))))
        start = 0
        for end in ends:
            piece = torch.from_numpy(heard[start : end + lookahead])
            if start == 0 and not left_in:
                # What comes before the first piece is read as the end of a piece before it.
                spectrogram.is_first = False
                spectrogram.audio_ctx = piece[None, 1 : N_FFT // 2 + 1].flip(-1)
                task.index = (self.first // self.chunk - 1) * self.chunk
            yield spectrogram.calc_mel_with_new_frame(piece)
            start = end + lookahead


def placed(theirs: Any) -> type:
    """Their decoding task for blocks of no more audio than they need.

    Theirs computes a block's place from the number of mel frames, which is then one less.
    """

    class Placed(theirs.DecodingTask):  # type: ignore[misc, name-defined]
        def _get_audio_features(self, mel: torch.Tensor, index: Any = None) -> None:
            encoded = self.model.encoder(mel, kv_cache=self.enc_kv_cache, mask=None)
            self.audio_features[:, self.index - encoded.shape[1] : self.index] = encoded

    return Placed


def mended(decoder: type, faults: Collection[str], n_prompt: int) -> type:
    """Their greedy decoder without the faults that are not among `faults`."""

    class Mended(decoder):  # type: ignore[misc, valid-type]
        def update(self, tokens: torch.Tensor, logits: torch.Tensor, *rest: Any, **how: Any) -> Any:
            if "prompt" not in faults:
                n_checked = min(N, tokens.shape[1] - n_prompt)
                self.check_token_index = -n_checked - 1
            if "logits" not in faults:
                logits = F.log_softmax(logits, dim=-1)
            n_before = tokens.shape[1]
            tokens, completed = super().update(tokens, logits, *rest, **how)
            if "resume" not in faults and tokens.shape[1] < n_before:
                completed = False
            return tokens, completed

    return Mended


def state_of(whisper: Whisper, adapter: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights and adapter by their names; the low-rank factors are in the other order.

    Theirs adapts only the attention: what ours changes in feed-forward layers is added to them.
    """
    state = {}
    for name, value in parity.openai_state(whisper.model).items():
        if "attn." in name:
            name = re.sub(r"\.(weight|bias)$", r".base_layer.\1", name)
        state[name] = value
    for name, value in adapter.items():
        ours = parity.openai_names(name.removeprefix("base_model.model."))
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


def cause_of(
    theirs: dict[int, list[int]], ours: dict[int, list[int]], block_by_block: dict[int, list[int]]
) -> str:
    """`last delivery`: it holds two blocks, and ours makes one step of them where theirs makes two;
    with a step for each both output the same. Empty for any other difference."""
    *before, last = ours
    same_before = all(theirs[n] == ours[n] for n in before)
    two_blocks = last - before[-1] == 2
    agrees = block_by_block.get(last) == theirs[last]
    return "last delivery" if same_before and two_blocks and agrees else ""


def text_row(steps: Collection[Sequence[int]]) -> dict[str, Any]:
    """Of the tokens after each step: how many, and one hash."""
    return {
        "n": [len(tokens) for tokens in steps],
        "hash": parity.digest(" ".join(map(str, tokens)) for tokens in steps),
    }


def main() -> None:
    parser = parity.parser(__doc__.splitlines()[0], "tomer9080/WhisperRT-Streaming")
    parser.add_argument("--leave", nargs="+", choices=FAULTS, default=[], help="faults left in")
    parser.add_argument("--chunk-s", type=float, nargs="+", default=list(CHUNKS_S))
    options = parser.parse_args()
    whisper = load_whisper(parity.MODEL, trainable=True)
    with parity.Rows(
        "whisperrt",
        f"tomer9080/WhisperRT-Streaming@{parity.commit_of(options.reference)}",
        ("torch", "tiktoken"),
        {"first_chunk_s": CHUNKS_S, "n": N, "mended": FAULTS},
        write=options.write and not options.leave,
    ) as rows:
        for chunk_s in options.chunk_s:
            first_s = CHUNKS_S[chunk_s]
            chunk, first = (round(s * FRAMES_PER_S) for s in (chunk_s, first_s))
            author = Author(options.reference, whisper, chunk, first, options.leave)
            method = our_method(chunk_s, first_s)
            for clip in parity.prompts(options.limit):
                audio = clip.load()
                ours = our_tokens(method, audio, chunk_s, first_s)
                after = dict(enumerate(author.tokens(audio), 1))
                theirs = {n: after.get(n, after[max(after)]) for n in ours}
                silence = np.zeros(round(2 * chunk_s * SAMPLE_RATE), np.float32)
                longer = np.concatenate([audio, silence])  # so that no block comes with another
                singly = our_tokens(method, longer, chunk_s, first_s)
                cause = cause_of(theirs, ours, {n: singly[n] for n in singly if n <= max(ours)})
                row = parity.compared(
                    clip, text_row(theirs.values()), text_row(ours.values()), cause
                )
                rows.add({"chunk_s": chunk_s} | row)
                for n in ours:
                    if theirs[n] != ours[n]:
                        print(f"  after block {n}: theirs {theirs[n]}, ours {ours[n]}")


if __name__ == "__main__":
    main()
