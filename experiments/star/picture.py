"""STAR's segments over the waveform, as the paper's figure 10, and the words.

    python -m experiments.star.picture [--weights any_chunk]

Writes segments.svg into this folder. The recording is the first of `voices`, whose word times are
exact; the network is an entry in outputs/train/tiny.en/star, the package's, or a folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.svg import save_svg
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.settle import compose
from streaming_asr.terminal import exit_status

HERE = Path(__file__).parent


def segments_s(entry: str, audio: np.ndarray) -> list[float]:
    """Ends of the network's segments in seconds."""
    settings = ["method=star", "model=tiny.en", f"method.weights={entry}", "chunk=300ms"]
    config = compose([*settings, "tracker=none"])
    star = build(config.method)
    state = star.start()
    star.step(state, audio, last=True)
    return [end * 0.02 for end in state.ends]


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", default="any_chunk")
    parser.add_argument("--out", type=Path, default=HERE / "segments.svg")
    arguments = parser.parse_args()
    first = build(compose_raw(["data=voices"]).data).utterances(1)[0]
    audio = first.load()
    ends_s = segments_s(arguments.weights, audio)
    draw(audio, [(w.text, w.start, w.end) for w in first.words or ()], ends_s, arguments.out)
    print(f"written: {arguments.out}")


def draw(
    audio: np.ndarray,
    words: Sequence[tuple[str, float, float]],
    ends_s: Sequence[float],
    out: Path,
) -> None:
    """Draw the waveform, the ends of STAR's segments, and the words below."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(11, 2.2))
    time_s = np.arange(len(audio)) / 16_000
    top = float(np.abs(audio).max()) or 1.0
    axis.plot(time_s[::16], audio[::16], color="0.7", linewidth=0.5)
    axis.vlines(ends_s, -top, top, color="C3", linewidth=1.0)
    for text, start, end in words:
        axis.text((start + end) / 2, -1.25 * top, text, ha="center", va="top", fontsize=7)
        axis.vlines([start], -1.2 * top, -top, color="0.4", linewidth=0.6)
    axis.set_ylim(-1.6 * top, 1.1 * top)
    axis.set_yticks([])
    axis.set_ylabel(f"STAR\n{len(ends_s)} segments")
    axis.set_xlabel("s")
    figure.tight_layout()
    save_svg(figure, out, "segments")


if __name__ == "__main__":
    sys.exit(exit_status(main))
