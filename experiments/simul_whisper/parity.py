"""ufal/SimulStreaming's AlignAtt and ours: tiny.en, greedily, on Debian's prompts.

    git clone https://github.com/ufal/SimulStreaming outputs/simul_whisper/reference
    git -C outputs/simul_whisper/reference checkout 077ea37
    pip install tiktoken numba more_itertools      # best in an environment of its own
    python -m experiments.simul_whisper.parity outputs/simul_whisper/reference --write

It is backspacetg/simul_whisper, which goes on there; the older code takes tiny.en's tokenizer for a
multilingual one. Both sides drop no last word and wait within 4 frames of the audio's end, at the
stream's end too (`last_frame_threshold=4`, the reference's; our default is 0). Their code is run as
it is, and again without these faults, which are corrected from outside:

- `forced`: a token other than the end of text is forced out at every chunk.
- `symbols`: timestamps and signs that are not speech, such as brackets, are not suppressed.
- `rows`: of two attention rows, which is all there is before the first token, the standardised
  values are ties; ours takes the raw attention.
- `rewind`: one token that looks ahead moves the place from which looking back counts.

A clip that differs carries the names of the faults of which one, left in, changes it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from experiments import parity
from streaming_asr.config.build import new_method
from streaming_asr.methods.simul_whisper.alignatt import decoder_place
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.load import Whisper, load_whisper

FAULTS = ("forced", "symbols", "rows", "rewind")
THRESHOLD = 4
STD_MEAN = torch.std_mean


def reference(checkout: Path, whisper: Whisper, chunk_s: float, *, mend: bool = True) -> Any:
    """Their decoder on our weights; `faults` of the result are left in, all where they are not
    corrected."""
    sys.path.insert(0, str(checkout))
    from simulstreaming.whisper.simul_whisper import (  # type: ignore[import-not-found]
        config,
        simul_whisper,
    )
    from simulstreaming.whisper.simul_whisper import whisper as theirs

    model = theirs.model.Whisper(
        theirs.model.ModelDimensions(**parity.openai_dimensions(whisper.config))
    )
    model.load_state_dict(parity.openai_state(whisper.model))
    model.set_alignment_heads(theirs._ALIGNMENT_HEADS["tiny.en"])
    simul_whisper.load_model = lambda **asked: model.eval()  # theirs can only download by name
    settings = config.AlignAttConfig(
        model_path="tiny.en.pt",
        language="en",
        segment_length=chunk_s,
        frame_threshold=THRESHOLD,
        audio_min_len=0.0,
        decoder_type="greedy",
        beam_size=1,
        logdir=None,
    )
    theirs_as_is = simul_whisper.PaddedAlignAttWhisper
    return (mended(theirs_as_is) if mend else theirs_as_is)(settings)


def mended(theirs: type) -> type:
    """Their class without the faults that are not among `faults`."""

    class Mended(theirs):  # type: ignore[misc, valid-type]
        suppress_tokens: Any
        faults: Collection[str] = ()
        place: int | None = None
        """The frame of the last token before this chunk, by our rule."""
        frames: Sequence[int] = ()
        """Frames that the chunk's tokens looked at."""

        def __init__(self, settings: Any) -> None:
            super().__init__(settings)
            self.encoded: dict[bytes, torch.Tensor] = {}
            self.raw = torch.zeros(0)
            encoder, suppress = self.model.encoder.forward, self.suppress_tokens
            self.model.encoder.forward = lambda mel: self.encode_once(encoder, mel)
            self.suppress_tokens = lambda logits: self.suppressed(suppress, logits)
            self.symbols = list(self.tokenizer.non_speech_tokens)
            self.blank = [*self.tokenizer.encode(" "), self.tokenizer.eot]

        def encode_once(self, encoder: Any, mel: torch.Tensor) -> torch.Tensor:
            """Encode each window once for all choices of faults."""
            window = hashlib.sha256(mel.numpy().tobytes()).digest()
            if window not in self.encoded:
                self.encoded[window] = encoder(mel)
            return self.encoded[window]

        def logits(self, *inputs: Any) -> torch.Tensor:
            logits: torch.Tensor = super().logits(*inputs)
            self.raw = logits[:, -1].clone()
            return logits

        def suppressed(self, suppress: Any, logits: torch.Tensor) -> None:
            if "forced" not in self.faults:
                logits[:, self.blank] = self.raw[:, self.blank]
            suppress(logits)
            if "symbols" not in self.faults:
                logits[:, self.symbols] = -torch.inf
                logits[:, self.tokenizer.timestamp_begin :] = -torch.inf

        @property
        def last_attend_frame(self) -> int:
            before = () if self.place is None else (self.place,)
            seen = (*before, *self.frames)
            frame = (seen[-1] if seen else None) if "rewind" in self.faults else decoder_place(seen)
            return -self.cfg.rewind_threshold if frame is None else frame

        @last_attend_frame.setter
        def last_attend_frame(self, frame: int) -> None:
            if frame <= -self.cfg.rewind_threshold:
                self.place, self.frames = None, ()
            else:
                self.frames = (*self.frames, frame)

        def infer(self, is_last: bool = False) -> Any:
            with mock.patch.object(torch, "std_mean", self.std_mean):
                tokens, progress = super().infer(is_last)
            if "rewind" in self.faults:
                self.frames = self.frames[-1:]
            elif self.frames:
                frames = self.frames[: len(tokens)]
                before = () if self.place is None else (self.place,)
                self.place, self.frames = decoder_place((*before, *frames)), ()
            return tokens, progress

        def std_mean(self, rows: torch.Tensor, **how: Any) -> tuple[torch.Tensor, torch.Tensor]:
            std, mean = STD_MEAN(rows, **how)
            if "rows" not in self.faults and rows.shape[-2] <= 2:
                return torch.ones_like(std), torch.zeros_like(mean)
            return std, mean

    return Mended


def their_tokens(
    model: Any, audio: np.ndarray, chunk_s: float, faults: Collection[str]
) -> list[list[int]]:
    """The tokens that each chunk adds."""
    model.faults = faults
    model.refresh_segment(complete=True)
    steps = []
    for piece, last in parity.pieces(audio, chunk_s):
        model.insert_audio(torch.from_numpy(piece))
        steps.append(model.infer(is_last=last)[0])
    return steps


def our_method(chunk_s: float) -> Any:
    return new_method(
        "simul_whisper",
        parity.MODEL,
        chunk_s=chunk_s,
        first_chunk_s=chunk_s,
        truncation="never",
        frame_threshold=THRESHOLD,
        last_frame_threshold=THRESHOLD,
    )


def our_tokens(method: Any, audio: np.ndarray, chunk_s: float) -> list[list[int]]:
    """The tokens that each chunk adds, of audio that fits the window."""
    state = method.start(language="en")
    steps: list[list[int]] = []
    for piece, last in parity.pieces(audio, chunk_s):
        n_before = len(state.tokens)
        method.step(state, piece, last=last)
        steps.append(state.tokens[n_before:])
    return steps


def compared(model: Any, method: Any, clip: Utterance, chunk_s: float) -> dict[str, Any]:
    """A row of the fixture; `faults` names those that change the clip, one by one or together."""
    audio = clip.load()
    ours = our_tokens(method, audio, chunk_s)
    theirs = their_tokens(model, audio, chunk_s, ())
    row = parity.compared(clip, parity.summary(theirs), parity.summary(ours))
    if their_tokens(model, audio, chunk_s, FAULTS) != theirs:
        alone = [f for f in FAULTS if their_tokens(model, audio, chunk_s, [f]) != theirs]
        row["faults"] = alone or list(FAULTS)
    model.encoded.clear()
    if theirs != ours:
        print(f"  theirs {theirs}\n  ours   {ours}")
    return row


def main() -> None:
    parser = parity.parser(__doc__.splitlines()[0], "ufal/SimulStreaming")
    parser.add_argument("--chunk-s", type=float, default=1.0)
    options = parser.parse_args()
    model = reference(
        options.reference, load_whisper(parity.MODEL, trainable=True), options.chunk_s
    )
    method = our_method(options.chunk_s)
    with parity.Rows(
        "simul_whisper",
        f"ufal/SimulStreaming@{parity.commit_of(options.reference)}",
        ("torch", "tiktoken"),
        {"chunk_s": options.chunk_s, "threshold": THRESHOLD},
        write=options.write,
    ) as rows:
        for clip in parity.prompts(options.limit):
            rows.add(compared(model, method, clip, options.chunk_s))


if __name__ == "__main__":
    main()
