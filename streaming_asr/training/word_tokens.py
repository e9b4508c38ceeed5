"""Where the tokens of a word lie in frames: one rule for every recipe.

The tokens of a word share its time evenly, as in the code of WhisperRT's authors. A frame belongs
to the token that is spoken at one point of it: its middle, unless a recipe needs another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from streaming_asr.training.windows import TimedText
from streaming_asr.whisper.window import FRAME_S

ROUNDING = 1e-4  # of a frame: times are sums and quotients of floats


def tokens_in_frames(
    words: Sequence[TimedText],
    tokens_of: Callable[[str], Sequence[int]],
    *,
    frame_s: float = FRAME_S,
    point_s: float | None = None,
) -> Iterator[tuple[int, int, int]]:
    """Yield each token of the words, its first frame, and the frame after its last one.

    tokens_of: the tokens of a word, maybe none. point_s: of frame 0, in seconds; frame i belongs to
    the token spoken at `point_s + i * frame_s`. Of a token that is spoken at no such point the last
    two are equal.
    """
    point_s = frame_s / 2 if point_s is None else point_s
    for word, start_s, end_s, _ in words:
        tokens = tokens_of(word)
        if not len(tokens):
            continue
        edges_s = np.linspace(start_s, end_s, len(tokens) + 1)
        frames = np.ceil((edges_s - point_s) / frame_s - ROUNDING).astype(int).clip(0)
        yield from zip(tokens, frames[:-1].tolist(), frames[1:].tolist(), strict=True)


def write_labels(labels: np.ndarray, tokens: Iterator[tuple[int, int, int]]) -> np.ndarray:
    """Write tokens (`tokens_in_frames`) into the labels (frames,) in place, and return them.

    A token without a frame gets its first one, unless the next token begins there.
    """
    for token, first, stop in tokens:
        labels[first : max(stop, first + 1)] = token
    return labels
