"""What `bench chunkformer` measured, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.bench.frame import table, verdict
from streaming_asr.terminal import console

FASTER, SMALLER = 3.0, 1.5  # at least: masked batch against padded
LOOP = 2.0  # at least: masks against a loop over the audios
EXACT = 1e-4  # at most: largest difference of two answers
PACKAGE = "chunkformer==1.2.2"
GROWTH_MIB = 32.0  # at most: the last hour above the first


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    settings, on = result["settings"], result["machine"]
    out = console(130)
    out.print(
        f"ChunkFormer {settings['size']}, random weights, context 64, 128, 128, "
        f"{settings['threads']} thread(s) of {on.get('gpu', on['cpu'])}, {result['clock']}, "
        f"median of {settings['repeats']}"
    )
    if "masked" in result:
        out.print(batch_table(result))
    out.print(*verdicts(result), sep="\n", soft_wrap=True)


def batch_table(result: dict[str, Any]) -> Any:
    """Table IV's form: memory, time and FLOPs of the padded and of the masked batch."""
    seconds = ", ".join(f"{s:.3g}" for s in result["masked"]["seconds_of_audio"])
    scale = result["settings"]["scale"]
    note = "" if scale == 1 else f" (1/{scale:g} of the paper's 1 s to 1 h)"
    headings = ("part", "batch", "MiB", "seconds", "GFLOP")
    rows = table(f"One batch of {seconds} s{note}", headings, n_text=2)
    for part, kinds in result["masked"]["rows"].items():
        for kind, row in kinds.items():
            values = (f"{row['mib']:.0f}", f"{row['seconds']:.2f}", f"{row['gflop']:.0f}")
            rows.add_row(part, kind, *values)
    return rows


def verdicts(result: dict[str, Any]) -> list[str]:
    """One sentence per target: what was to be reached and what was."""
    lines: list[str] = []
    for part, outcome in (("masked", _masked), ("loop", _loop), ("author", _author)):
        if part in result:
            lines += outcome(result)
    if "endless" in result:
        row = result["endless"]
        growth = row["growth_mib_by_hour"]
        grown = growth[-1] - growth[0] if growth else 0.0
        by_hour = ", ".join(f"{mib:.0f}" for mib in growth)
        text = (
            f"{row['hours']:.3g} hours from a file of {row['file_mib']:.0f} MiB in "
            f"{row['elapsed_s']:.0f} s (RTF {row['rtf']:.4f}): resident "
            f"{row['resident_mib']:.0f} MiB after 5 minutes, largest growth by hour {by_hour} "
            f"MiB (target: last hour at most {GROWTH_MIB:g} above the first)"
        )
        lines.append(verdict(grown <= GROWTH_MIB, text))
    return lines


def _equal(what: str, difference: float) -> str:
    return verdict(difference <= EXACT, f"{what} differ by {difference:.1e}")


def _masked(result: dict[str, Any]) -> Iterator[str]:
    for part, kinds in result["masked"]["rows"].items():
        padded, masked = kinds["padded"], kinds["masked"]
        faster = padded["seconds"] / masked["seconds"]
        text = f"{faster:.2f} times as fast as padded (target: at least {FASTER:g})"
        yield verdict(faster >= FASTER, f"masked batch, {part}: {text}")
        smaller = padded["mib"] / max(masked["mib"], 1e-9)
        text = f"padded takes {smaller:.2f} times the memory (target: at least {SMALLER:g})"
        yield verdict(smaller >= SMALLER, f"masked batch, {part}: {text}")
    yield _equal("masked and padded batch", result["masked"]["difference"])


def _loop(result: dict[str, Any]) -> Iterator[str]:
    row, settings = result["loop"], result["settings"]
    gain = row["loop_s"] / row["masked_s"]
    what = f"{settings['audios']:g} audios of {settings['audio_s']:g} s"
    yield verdict(
        gain >= LOOP,
        f"{what}: masks {row['masked_s']:.2f} s, a loop over the audios in every layer "
        f"{row['loop_s']:.2f} s, {gain:.2f} times as long (target: at least {LOOP:g}; the paper's "
        "2.5 are a GPU's)",
    )
    slower = row["one_by_one_s"] / row["masked_s"]
    text = f"{row['one_by_one_s']:.2f} s, {slower:.2f} times as long"
    yield f"         {what}, one after the other: {text}"
    yield _equal("masks and loop", row["difference"])


def _author(result: dict[str, Any]) -> Iterator[str]:
    row = result["author"]
    if row is None:
        yield "not run  the author's package is not installed: pip install --no-deps " + PACKAGE
        return
    gain = row["author_s"] / row["ours_s"]
    text = f"author's package {row['author_s']:.2f} s, ours {row['ours_s']:.2f} s: {gain:.2f} times"
    yield verdict(gain >= 1, f"{text} as fast (target: at least 1)")
    yield _equal("ours and the author's package", row["difference"])
