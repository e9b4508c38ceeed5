"""What a method adds to the model below it: `python -m experiments.bench methods`.

A row sets ours beside a baseline that answers the same in the same run. A further row is a function
of `ROWS` that returns a `Row`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from experiments.bench.show import console, print_lines, verdict
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE

N_TOKENS = 60
SPEED_UP = 10.0  # at least, AlignAtt's decision at 60 tokens
OVERHEAD = 0.03  # below, of UFAL over the bare call
UFAL_S, UFAL_CHUNK_S = 12.0, 1.0
EOT_LOGIT = 5.0  # random weights then write a few words a second, not as many as there is room for


@dataclass(frozen=True)
class Row:
    """Milliseconds of CPU time, medians; `same`: both gave the same answers."""

    what: str
    baseline: str
    ours_ms: float
    baseline_ms: float
    same: bool
    reached: bool
    verdict: str


def alignatt() -> Row:
    """The decision on the 60th token of Whisper base's 8 alignment heads, 10 s of audio."""
    from experiments.bench.policy_cost import measure

    cost = measure(N_TOKENS, clock_ns=time.thread_time_ns)
    return Row(
        f"AlignAtt's decision at {N_TOKENS} tokens",
        "all rows built anew",
        cost.carried_ms,
        cost.rebuilt_ms,
        cost.equal_decisions,
        cost.equal_decisions and cost.ratio >= SPEED_UP,
        f"AlignAtt at {N_TOKENS} tokens: {cost.ratio:.1f} times as fast as building all rows anew "
        f"(target: at least {SPEED_UP:g})",
    )


def ufal() -> Row:
    """A stream of 1 s chunks, Whisper base's dimensions; each round again by faster-whisper alone.

    CPU time of the process, since CTranslate2 has threads of its own; the two calls of a round
    take turns in being first.
    """
    from experiments.bench.models import random_whisper

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = random_whisper("base", Path(scratch) / "base", eot_logit=EOT_LOGIT)
        return ufal_row(str(folder), str(Path(scratch) / "cache"), "base", UFAL_S)


def ufal_row(folder: str, cache: str, name: str, duration_s: float) -> Row:
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
        found = transcribe(*audio, **options)
        heard.append([word.text for word in found.words])
        return found

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
    return Row(
        f"a round of UFAL, {name}",
        "the bare call of faster-whisper",
        statistics.median(ours),
        statistics.median(theirs),
        same,
        same and overhead < OVERHEAD,
        f"UFAL, {name}, {n_words:.0f} words a round: {100 * overhead:.1f} % over the bare call, "
        f"median of {len(ours)} rounds (target: under {100 * OVERHEAD:g} %)",
    )


def u2_search() -> Row:
    """The prefix beam search of a chunk of 1 s, beam 10, beside its plain form; its share of a step
    at Whisper small's dimensions."""
    from experiments.bench.u2 import BEAM, SHARE, small_stream

    stream = small_stream()
    share = sum(stream.search_ms) / sum(stream.step_ms)
    return Row(
        f"U2's prefix beam search, beam {BEAM}, 50 frames",
        "one prefix at a time",
        statistics.median(stream.search_ms),
        statistics.median(stream.plain_ms),
        stream.same_texts,
        stream.same_texts and share < SHARE,
        f"U2, Whisper small's dimensions: the search takes {100 * share:.1f} % of a step of "
        f"{statistics.median(stream.step_ms):.0f} ms (target: under {100 * SHARE:g} %)",
    )


def u2_encoder() -> Row:
    """The encoder on a chunk of 1 s that ends a segment of 12 s, beside encoding all of it."""
    from experiments.bench.u2 import GROWTH, SEGMENT_S, small_stream

    stream = small_stream()
    growth = stream.encode_ms[-1] / stream.encode_ms[0]
    return Row(
        f"U2's encoder, second {SEGMENT_S} of a segment",
        f"all {SEGMENT_S} s anew",
        stream.encode_ms[-1],
        stream.whole_ms,
        stream.same_frames,
        stream.same_frames and growth <= GROWTH,
        f"U2, Whisper small's dimensions: second {SEGMENT_S} takes the encoder {growth:.2f} times "
        f"as long as second 2 (target: at most {GROWTH:g})",
    )


def hush_word() -> Row:
    """The encoder on 5 s of audio and a hush word, beside the same audio padded to 30 s."""
    from experiments.bench.hush import AUDIO_S, LESS, base_cost

    cost = base_cost()
    return Row(
        f"the hush word's encoder, {AUDIO_S:g} s of audio, base",
        "padded to 30 s",
        cost.hush_ms,
        cost.full_ms,
        cost.same,
        cost.same and cost.ratio >= LESS,
        f"hush word, Whisper base's dimensions, {AUDIO_S:g} s of audio: {cost.n_frames} frames in "
        f"place of {cost.n_full} take {cost.ratio:.1f} times less (target: at least {LESS:g}); "
        "`same`: transformers' own layers give these frames",
    )


ROWS: dict[str, Callable[[], Row]] = {
    "alignatt": alignatt,
    "ufal": ufal,
    "hush_word": hush_word,
    "u2_search": u2_search,
    "u2_encoder": u2_encoder,
}


def bench_methods(names: Sequence[str] = ()) -> dict[str, Any]:
    """Measures the rows named, or all, on one thread. Raises UserError for an unknown name."""
    import torch

    from streaming_asr.machine import machine, versions

    for name in names:
        if name not in ROWS:
            raise UserError(f"{name}: no such row; there are {', '.join(ROWS)}")
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = {name: asdict(ROWS[name]()) for name in names or ROWS}
    finally:
        torch.set_num_threads(n_threads)
    return {"machine": machine(device="cpu"), "versions": versions(), "rows": rows}


def show(result: dict[str, Any]) -> None:
    """Print the table and one sentence per target."""
    from rich.table import Table

    out = console()
    table = Table(title=f"Milliseconds of CPU time, one thread of {result['machine']['cpu']}")
    for heading in ("", "baseline", "ours", "baseline", "same answers"):
        table.add_column(heading, justify="right" if heading == "ours" else "left")
    for row in result["rows"].values():
        table.add_row(
            row["what"],
            row["baseline"],
            f"{row['ours_ms']:.3g}",
            f"{row['baseline_ms']:.3g}",
            "yes" if row["same"] else "[red]NO[/]",
        )
    out.print(table)
    rows = result["rows"].values()
    print_lines(out, [verdict(row["reached"], row["verdict"]) for row in rows])
