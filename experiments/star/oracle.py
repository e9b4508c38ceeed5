"""What STAR's segmentation costs: anchors where the segmenter puts them, and where tokens end.

    python -m experiments.star.oracle [--weights any_chunk] [--chunk 1s]

Streams `voices`, whose word times are exact, at wait-1, 3 and 5; a word's time is shared evenly by
its tokens, as in training. Prints WER, and how many anchors there are for each token.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.method import FRAME_S
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.terminal import console, exit_status
from streaming_asr.training.recipe import dev_wer
from streaming_asr.utterance import Utterance

WAITS = (1, 3, 5)


def token_ends(star: Any, utterance: Utterance) -> list[int]:
    """The frame in which each token of the reference ends, by the exact word times."""
    ends: list[float] = []
    for word in utterance.words or ():
        n = len(star._whisper.text_tokens(f" {word.text}"))
        ends += list(np.linspace(word.start, word.end, n + 1)[1:])
    return [max(0, round(end / FRAME_S) - 1) for end in ends]


def placed(ends: Sequence[int], first: int, n: int) -> list[int]:
    """Those of `ends` among the `n` frames from `first` on, as indices of these."""
    return sorted({end - first for end in ends if first <= end < first + n})


def heard(star: Any, utterances: Sequence[Utterance], oracle: bool) -> tuple[float, float]:
    """WER in percent and anchors per token, ends of texts included."""
    recorder, texts, n_tokens = StepRecorder(), [], 0
    compressor = star._compressor
    own = compressor._segments
    for utterance in utterances:
        ends = token_ends(star, utterance)
        n_tokens += len(ends) + 1
        if oracle:
            compressor._segments = lambda alphas, state, ends=ends: placed(
                ends, state.n_frames, len(alphas)
            )
        update = star.step(star.start(recorder=recorder), utterance.load(), last=True)
        texts.append("".join(word.text for word in update.committed))
        compressor._segments = own
    return dev_wer(utterances, texts), recorder.drain()[1]["anchors"] / n_tokens


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="any_chunk")
    parser.add_argument("--chunk", default="1s")
    arguments = parser.parse_args()
    table = Table("wait-k", "WER %, segmenter", "WER %, ends of tokens", "anchors per token")
    for k in WAITS:
        settings = ["method=star", "model=tiny.en", "data=voices", f"chunk={arguments.chunk}"]
        settings += [f"method.weights={arguments.weights}", f"method.wait_k={k}"]
        config = compose([*settings, "tracker=none"])
        star, utterances = build(config.method), build(config.data).utterances()
        (wer, rate), (best, _) = (heard(star, utterances, each) for each in (False, True))
        table.add_row(str(k), f"{wer:.1f}", f"{best:.1f}", f"{rate:.2f}")
    console().print(table)


if __name__ == "__main__":
    sys.exit(exit_status(main))
