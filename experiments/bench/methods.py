"""What a method adds to the model below it: `python -m experiments.bench methods`.

A row sets ours beside a baseline that answers the same in the same run. A further row is a function
of `ROWS` that returns a `MethodRow`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.bench.frame import alternated_ms, table, threads, verdict
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.machine import machine, versions
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.terminal import console

N_TOKENS = 60
SPEED_UP = 10.0  # at least, AlignAtt's decision at 60 tokens
OVERHEAD = 0.03  # below, of UFAL over the bare call
UFAL_S, UFAL_CHUNK_S = 12.0, 1.0
HUSH_S = 5.0
LESS = 3.0  # times at least that the padded encoder takes
TOLERANCE = 1e-3  # of the largest value
EOT_LOGIT = 5.0  # random weights then write a few words a second, not as many as there is room for


@dataclass(frozen=True)
class MethodRow:
    """Milliseconds of CPU time, medians; `same`: both gave the same answers."""

    what: str
    baseline: str
    ours_ms: float
    baseline_ms: float
    same: bool
    reached: bool
    verdict: str


def alignatt() -> MethodRow:
    """The decision on the 60th token of Whisper base's 8 alignment heads, 10 s of audio."""
    from experiments.bench.policy_cost import measure

    carried_ms, rebuilt_ms, same = measure(N_TOKENS)
    ratio = rebuilt_ms / carried_ms
    return MethodRow(
        f"AlignAtt's decision at {N_TOKENS} tokens",
        "all rows built anew",
        carried_ms,
        rebuilt_ms,
        same,
        same and ratio >= SPEED_UP,
        f"AlignAtt at {N_TOKENS} tokens: {ratio:.1f} times as fast as building all rows anew "
        f"(target: at least {SPEED_UP:g})",
    )


def ufal() -> MethodRow:
    """A stream of 1 s chunks, Whisper base's dimensions; each round again by faster-whisper alone.

    CPU time of the process, since CTranslate2 has threads of its own; the two calls of a round
    take turns in being first.
    """
    from experiments.bench.models import random_whisper

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = random_whisper("base", Path(scratch) / "base", eot_logit=EOT_LOGIT)
        return ufal_row(str(folder), str(Path(scratch) / "cache"), "base", UFAL_S)


def ufal_row(folder: str, cache: str, name: str, duration_s: float) -> MethodRow:
    """The row for a model folder; its context must be Whisper's 30 s, which the bare call takes for
    granted. Both sides have one CTranslate2 model: faster-whisper alone takes one whose vocabulary
    lacks a token of Whisper's for English-only."""
    from faster_whisper import WhisperModel

    from experiments.bench.models import synthetic_audio
    from streaming_asr.methods.ufal.convert import converted

    method = new_method(
        "ufal", folder, chunk_s=UFAL_CHUNK_S, first_chunk_s=UFAL_CHUNK_S, cache=cache
    )
    bare = WhisperModel(
        str(converted(folder, cache)[0]), device="cpu", compute_type="float32", cpu_threads=1
    )
    heard: list[list[str]] = []
    recogniser = method._recogniser
    bare.model = recogniser.model.model  # type: ignore[attr-defined]
    transcribe = recogniser.transcribe

    def remembering(*audio: Any, **options: Any) -> Any:
        result = transcribe(*audio, **options)
        heard.append([word.text for word in result.words])
        return result

    recogniser.transcribe = remembering  # type: ignore[method-assign]

    def call(audio: Any, prompt: str) -> list[str]:
        segments, _ = bare.transcribe(
            audio,
            language="en",
            initial_prompt=prompt or None,
            beam_size=5,
            temperature=[0.0],
            word_timestamps=True,
            condition_on_previous_text=True,
        )
        return [
            word.word
            for segment in segments
            if segment.no_speech_prob <= 0.9
            for word in segment.words or ()
        ]

    import numpy as np

    audio = synthetic_audio(duration_s, seed=1)
    size = round(UFAL_CHUNK_S * SAMPLE_RATE)
    state = method.start()
    call(audio[:size], "")  # warm
    method.step(method.start(), audio[:size], last=False)
    heard.clear()
    ours, theirs, same = [], [], True
    for i, begin in enumerate(range(0, len(audio), size)):
        chunk = audio[begin : begin + size]
        buffered = np.concatenate([state.buffer.audio, chunk])
        prompt = state.buffer.prompt()
        words: list[str] = []
        for side in ("bare", "method") if i % 2 else ("method", "bare"):
            start = time.process_time_ns()
            if side == "bare":
                words = call(buffered, prompt)
                theirs.append((time.process_time_ns() - start) / 1e6)
            else:
                method.step(state, chunk, last=False)
                ours.append((time.process_time_ns() - start) / 1e6)
        same &= heard[-1] == words
    overhead = statistics.median(a / b - 1 for a, b in zip(ours, theirs, strict=True))
    n_words = sum(map(len, heard)) / len(heard)
    return MethodRow(
        f"a round of UFAL, {name}",
        "the bare call of faster-whisper",
        statistics.median(ours),
        statistics.median(theirs),
        same,
        same and overhead < OVERHEAD,
        f"UFAL, {name}, {n_words:.0f} words a round: {100 * overhead:.1f} % over the bare call, "
        f"median of {len(ours)} rounds (target: under {100 * OVERHEAD:g} %)",
    )


def u2_search() -> MethodRow:
    """The prefix beam search of a chunk of 1 s, beam 10, beside its plain form; its share of a step
    at Whisper small's dimensions."""
    from experiments.bench.u2 import BEAM, SHARE, small_stream

    stream = small_stream()
    share = sum(stream.search_ms) / sum(stream.step_ms)
    return MethodRow(
        f"U2's prefix beam search, beam {BEAM}, 50 frames",
        "one prefix at a time",
        statistics.median(stream.search_ms),
        statistics.median(stream.plain_ms),
        stream.same_texts,
        stream.same_texts and share < SHARE,
        f"U2, Whisper small's dimensions: the search takes {100 * share:.1f} % of a step of "
        f"{statistics.median(stream.step_ms):.0f} ms (target: under {100 * SHARE:g} %)",
    )


def u2_encoder() -> MethodRow:
    """The encoder on a chunk of 1 s that ends a segment of 12 s, beside encoding all of it."""
    from experiments.bench.u2 import GROWTH, SEGMENT_S, small_stream

    stream = small_stream()
    growth = stream.encode_ms[-1] / stream.encode_ms[0]
    return MethodRow(
        f"U2's encoder, second {SEGMENT_S} of a segment",
        f"all {SEGMENT_S} s anew",
        stream.encode_ms[-1],
        stream.whole_ms,
        stream.same_frames,
        stream.same_frames and growth <= GROWTH,
        f"U2, Whisper small's dimensions: second {SEGMENT_S} takes the encoder {growth:.2f} times "
        f"as long as second 2 (target: at most {GROWTH:g})",
    )


def hush_word() -> MethodRow:
    """The encoder on 5 s of audio and a hush word, beside the same audio padded to 30 s."""
    from experiments.bench.models import random_whisper

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return hush_row(str(random_whisper("base", Path(folder))), HUSH_S)


def hush_row(folder: str, audio_s: float, repeats: int = 5) -> MethodRow:
    """The row for a model folder; `same`: transformers' own layers give the short encoder's
    frames."""
    import torch
    import torch.nn.functional as F

    from experiments.bench.models import synthetic_audio
    from streaming_asr.methods.hush_word.padding import PaddedEncoder, make_padding
    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(folder, trainable=True)
    # Half a second of noise costs what half a second of hush word costs.
    short, full = (
        PaddedEncoder(whisper, make_padding(kind, whisper)) for kind in ("noise", "full")
    )
    audio = synthetic_audio(audio_s, seed=0)
    mel, padded = short.mel(audio), full.mel(audio)
    frames = short.encode(mel)  # and warm
    hush_ms, full_ms = alternated_ms(
        repeats, lambda: short.encode(mel), lambda: full.encode(padded)
    )
    encoder = whisper.model.model.encoder
    with torch.inference_mode():
        x = F.gelu(encoder.conv2(F.gelu(encoder.conv1(mel)))).transpose(1, 2)
        x = x + encoder.embed_positions.weight[: x.shape[1]]
        for layer in encoder.layers:
            x = layer(x, None)
        plain = encoder.layer_norm(x)
    same = bool((frames - plain).abs().max() < TOLERANCE * plain.abs().max())
    return MethodRow(
        f"the hush word's encoder, {audio_s:g} s of audio, base",
        "padded to 30 s",
        hush_ms,
        full_ms,
        same,
        same and full_ms >= LESS * hush_ms,
        f"hush word, Whisper base's dimensions, {audio_s:g} s of audio: {mel.shape[-1] // 2} "
        f"frames in place of {padded.shape[-1] // 2} take {full_ms / hush_ms:.1f} times less "
        f"(target: at least {LESS:g}); `same`: transformers' own layers give these frames",
    )


ROWS: dict[str, Callable[[], MethodRow]] = {
    "alignatt": alignatt,
    "ufal": ufal,
    "hush_word": hush_word,
    "u2_search": u2_search,
    "u2_encoder": u2_encoder,
}


def bench(rest: Sequence[str]) -> dict[str, Any]:
    """Measures the rows named, or all, on one thread. Raises UserError for an unknown name."""
    for name in rest:
        if name not in ROWS:
            raise UserError(f"{name}: no such row; there are {', '.join(ROWS)}")
    with threads(1):
        rows = {name: asdict(ROWS[name]()) for name in rest or ROWS}
    return {"machine": machine(device="cpu"), "versions": versions(), "rows": rows}


def show(result: dict[str, Any]) -> None:
    """Print the table and one sentence per target."""
    out = console(130)
    title = f"Milliseconds of CPU time, one thread of {result['machine']['cpu']}"
    grid = table(title, ("", "baseline", "ours", "baseline", "same answers"), n_text=2)
    for row in result["rows"].values():
        grid.add_row(
            row["what"],
            row["baseline"],
            f"{row['ours_ms']:.3g}",
            f"{row['baseline_ms']:.3g}",
            "yes" if row["same"] else "[red]NO[/]",
        )
    out.print(grid)
    for row in result["rows"].values():
        out.print(verdict(row["reached"], row["verdict"]), soft_wrap=True)
