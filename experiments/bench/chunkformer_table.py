"""What `bench chunkformer` measured, as tables and sentences."""

from __future__ import annotations

from typing import Any

from experiments.bench.frame import console, print_lines, table, verdict

FASTER, SMALLER = 3.0, 1.5  # at least: masked batch against padded
LOOP = 2.0  # at least: masks against a loop over the audios
EXACT = 1e-4  # at most: largest difference of two answers
GROWTH_MIB = 32.0  # at most: the last hour above the first


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    settings, on = result["settings"], result["machine"]
    out = console()
    out.print(
        f"ChunkFormer {settings['size']}, random weights, context 64, 128, 128, "
        f"{settings['threads']} thread(s) of {on.get('gpu', on['cpu'])}, {result['clock']}, "
        f"median of {settings['repeats']}"
    )
    if "masked" in result:
        out.print(batch_table(result))
    print_lines(out, verdicts(result))


def batch_table(result: dict[str, Any]) -> Any:
    """Table IV's form: memory, time and FLOPs of the padded and of the masked batch."""
    seconds = ", ".join(f"{s:.3g}" for s in result["masked"]["seconds_of_audio"])
    scale = result["settings"]["scale"]
    note = "" if scale == 1 else f" (1/{scale:g} of the paper's 1 s to 1 h)"
    headings = ("part", "batch", "MiB", "seconds", "GFLOP")
    shown = table(f"One batch of {seconds} s{note}", headings, n_text=2)
    for part, kinds in result["masked"]["rows"].items():
        for kind, row in kinds.items():
            values = (f"{row['mib']:.0f}", f"{row['seconds']:.2f}", f"{row['gflop']:.0f}")
            shown.add_row(part, kind, *values)
    return shown


def verdicts(result: dict[str, Any]) -> list[str]:
    """One sentence per target: what was to be reached and what was."""
    lines: list[str] = []
    if "masked" in result:
        same = result["masked"]["difference"]
        for part, kinds in result["masked"]["rows"].items():
            faster = kinds["padded"]["seconds"] / kinds["masked"]["seconds"]
            smaller = kinds["padded"]["mib"] / max(kinds["masked"]["mib"], 1e-9)
            lines += [
                verdict(
                    faster >= FASTER,
                    f"masked batch, {part}: {faster:.2f} times as fast as padded (target: at least "
                    f"{FASTER:g})",
                ),
                verdict(
                    smaller >= SMALLER,
                    f"masked batch, {part}: padded takes {smaller:.2f} times the memory (target: "
                    f"at least {SMALLER:g})",
                ),
            ]
        lines.append(verdict(same <= EXACT, f"masked and padded batch differ by {same:.1e}"))
    if "loop" in result:
        row, settings = result["loop"], result["settings"]
        gain = row["loop_s"] / row["masked_s"]
        what = f"{settings['audios']:g} audios of {settings['audio_s']:g} s"
        lines += [
            verdict(
                gain >= LOOP,
                f"{what}: masks {row['masked_s']:.2f} s, a loop over the audios in every layer "
                f"{row['loop_s']:.2f} s, {gain:.2f} times as long (target: at least {LOOP:g}; the "
                "paper's 2.5 are a GPU's)",
            ),
            f"         {what}, one after the other: {row['one_by_one_s']:.2f} s, "
            f"{row['one_by_one_s'] / row['masked_s']:.2f} times as long",
            verdict(
                row["difference"] <= EXACT, f"masks and loop differ by {row['difference']:.1e}"
            ),
        ]
    if "author" in result:
        row = result["author"]
        if row is None:
            lines.append(
                "not run  the author's package is not installed: "
                "pip install --no-deps chunkformer==1.2.2"
            )
        else:
            gain = row["author_s"] / row["ours_s"]
            lines += [
                verdict(
                    gain >= 1,
                    f"author's package {row['author_s']:.2f} s, ours {row['ours_s']:.2f} s: "
                    f"{gain:.2f} times as fast (target: at least 1)",
                ),
                verdict(
                    row["difference"] <= EXACT,
                    f"ours and the author's package differ by {row['difference']:.1e}",
                ),
            ]
    if "endless" in result:
        row = result["endless"]
        growth = row["growth_mib_by_hour"]
        grown = growth[-1] - growth[0] if growth else 0.0
        by_hour = ", ".join(f"{mib:.0f}" for mib in growth)
        lines.append(
            verdict(
                grown <= GROWTH_MIB,
                f"{row['hours']:.3g} hours from a file of {row['file_mib']:.0f} MiB in "
                f"{row['elapsed_s']:.0f} s (RTF {row['rtf']:.4f}): resident "
                f"{row['resident_mib']:.0f} MiB after 5 minutes, largest growth by hour {by_hour} "
                f"MiB (target: last hour at most {GROWTH_MIB:g} above the first)",
            )
        )
    return lines
