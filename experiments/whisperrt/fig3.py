"""Figure 3: what the decoder expects as a text's third token, while the audio comes in.

    python -m experiments.whisperrt.fig3 [method.weights=any_chunk ...]

The decoder is conditioned on the true tokens before it, and the frames are encoded block by
block. Three encodings of the same audio: the prefix padded as the model was trained on (the
paper's left panel), the causal mask on the same weights, and the mask with the adapter (its right
panel). Up to the token's end the right answer is <|endoftext|>, afterwards the token.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from experiments.svg import save_svg
from streaming_asr.chunking import parse_duration
from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_S
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode_masked, encode_padded
from streaming_asr.whisper.features import FRAME_SAMPLES, log_mel
from streaming_asr.whisper.load import Whisper, load_whisper
from streaming_asr.whisper.masks import block_ends

HERE = Path(__file__).parent
FRAME_MS = 20
AFTER_S = 0.8
"""Audio shown past the token's word."""
N_CANDIDATES = 5


def word_tokens(whisper: Whisper, utterance: Utterance) -> list[tuple[list[int], float, float]]:
    """Each word's tokens, start and end in seconds."""
    timed = utterance.words
    if not timed:
        raise UserError(f"{utterance.id}: has no word times; take an utterance of mini")
    encode = whisper.tokenizer
    return [
        (encode(" " + word.text, add_special_tokens=False).input_ids, word.start, word.end)
        for word in timed
    ]


def choose(whisper: Whisper, utterances: Sequence[Utterance], after_s: float) -> Utterance:
    """Return the first utterance whose first three words are one token each and whose third word
    begins after `after_s`, where the first block has come in. Raises UserError where none is so.
    """
    for utterance in utterances:
        words = word_tokens(whisper, utterance)[:3]
        short = len(words) == 3 and all(len(tokens) == 1 for tokens, _, _ in words)
        if short and words[2][1] > after_s:
            return utterance
    raise UserError("no utterance begins with three words of one token each; take data=mini")


@torch.inference_mode()
def expectations(
    whisper: Whisper, audio: torch.Tensor, ends: Sequence[int], prefix: list[int], *, masked: bool
) -> torch.Tensor:
    """Probabilities of the token after `prefix` at each block's end, (blocks, vocabulary).

    audio: (n,). ends: in frames. masked: block-causal; else each prefix padded to the context.
    """
    decoder = Decoder(whisper)
    cache = DecoderCache(decoder)
    tokens = [[*whisper.prompt(), *prefix]]
    rows = []
    if masked:
        mel = log_mel(audio, whisper.n_mels, block_ends=ends)
        decoder.append_frames(cache, encode_masked(whisper.model, mel[None], ends=ends), 0)
    for end in ends:
        n_frames = end
        if not masked:
            n_frames = whisper.context_frames
            heard = audio[: end * FRAME_SAMPLES]
            padded = F.pad(heard, (0, n_frames * FRAME_SAMPLES - heard.numel()))
            mel = log_mel(padded[None], whisper.n_mels)
            decoder.append_frames(cache, encode_padded(whisper.model, mel), 0)
        hidden = decoder.run(cache, tokens, [0], n_frames)
        rows.append(decoder.log_probs(hidden)[0, -1].exp())
    return torch.stack(rows)


def draw(
    panels: Sequence[tuple[str, torch.Tensor]],
    ends: Sequence[int],
    spell: Any,
    word: tuple[str, float, float],
    title: str,
    path: Path,
) -> None:
    """Draws a heat map a panel: the candidates of highest probability anywhere in it, over time."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, 2.1 * len(panels) + 0.6), sharex=True, layout="constrained"
    )
    edges = [0.0, *(end * FRAME_S for end in ends)]
    for axis, (name, probabilities) in zip(axes, panels, strict=True):
        best = probabilities.amax(0).topk(N_CANDIDATES).indices.tolist()
        best.sort(key=lambda token: -float(probabilities[:, token].sum()))
        image = axis.pcolormesh(
            # What is known when a block has come in holds until the next has.
            [*edges[1:], edges[-1] + edges[-1] - edges[-2]],
            range(len(best) + 1),
            probabilities[:, best].T.numpy(),
            vmin=0,
            vmax=1,
            cmap="viridis",
        )
        axis.set_yticks([i + 0.5 for i in range(len(best))], [spell(token) for token in best])
        axis.invert_yaxis()
        axis.set_title(name, fontsize=10, loc="left")
        for time_s in word[1:]:
            axis.axvline(time_s, color="red", linestyle="--", linewidth=1)
    axes[-1].set_xlabel(f"audio heard (s); “{word[0]}” is spoken between the dashed lines")
    figure.suptitle(title, fontsize=10)
    figure.colorbar(image, ax=axes, label="probability")
    save_svg(figure, path, "fig3")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunk", default="100ms", help="length of a block")
    parser.add_argument("--out", type=Path, default=HERE / "fig3.svg")
    parser.add_argument("overrides", nargs="*", help="of run's configuration, e.g. data.split=dev")
    arguments = parser.parse_args(argv)
    return exit_status(lambda: figure(arguments))


def figure(arguments: argparse.Namespace) -> None:
    """Encode, decode and draw. Raises UserError for a missing model, adapter or utterance."""
    line = CommandLine(["method=whisperrt", f"chunk={arguments.chunk}", *arguments.overrides])
    line.default(model="mini", data="mini")
    config = compose(line.settings)
    base = load_whisper(config.method.model_path)
    adapted = load_whisper(config.method.model_path, adapter=config.method.weights)
    utterances = build(config.data).utterances()
    after_s = parse_duration(config.first_chunk) / 1000 + 0.1
    utterance = choose(base, utterances, after_s)
    words = word_tokens(base, utterance)
    *prefix, third = [token for ids, _, _ in words[:3] for token in ids]
    _, start, end = words[2]
    audio = torch.from_numpy(utterance.load())
    chunk = parse_duration(config.chunk) // FRAME_MS
    first = parse_duration(config.first_chunk) // FRAME_MS
    n_blocks = max(0, -(-(round((end + AFTER_S) / FRAME_S) - first) // chunk))
    n_frames = min(first + n_blocks * chunk, base.context_frames)
    ends = block_ends(n_frames, chunk, first)
    name = "none" if config.method.weights is None else Path(config.method.weights).name
    panels = [
        ("before: the prefix padded", expectations(base, audio, ends, prefix, masked=False)),
        ("the causal mask alone", expectations(base, audio, ends, prefix, masked=True)),
        (f"after: the adapter {name}", expectations(adapted, audio, ends, prefix, masked=True)),
    ]

    def spell(token: int) -> str:
        text = "<EOT>" if token == base.eot else base.tokenizer.decode([token])
        return f"▸ {text}" if token == third else text

    text = base.tokenizer.decode(prefix).strip()
    title = f"{utterance.id}, blocks of {config.chunk}: what follows “{text}”?"
    word = (utterance.words[2].text, start, end)  # type: ignore[index]
    draw(panels, ends, spell, word, title, arguments.out)
    print(f"written: {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
