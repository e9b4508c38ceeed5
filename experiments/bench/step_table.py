"""What `bench step` measured, as tables and sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.bench.frame import table, verdict
from streaming_asr.terminal import console

SPEED_UP = {30: 3.0, 97: 6.0}  # at least, for base
ENCODER_GROWTH = 1.1  # at most, chunk 97 against 5, for base
HARNESS_SHARE = 0.02  # below


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    out = console(130)
    out.print(_head(result))
    out.print(_steps(result))
    out.print(*_notes(result), *verdicts(result), sep="\n", soft_wrap=True)


def verdicts(result: dict[str, Any]) -> list[str]:
    """One sentence per target that applies: what was to be reached and what was."""
    lines: list[str] = []
    for model in result["models"]:
        if result["settings"]["chunk"] == "300ms":
            lines += _at_300_ms(model)
        share = model["harness"]["share"]
        text = (
            f"{model['model']}, harness: {100 * share:.2f} % of a simulated stream's time is not "
            f"the method's (target: under {100 * HARNESS_SHARE:g} %)"
        )
        lines.append(verdict(share < HARNESS_SHARE, text))
    return lines


def _at_300_ms(model: dict[str, Any]) -> Iterator[str]:
    rows = {row["chunk"]: row for row in model["rows"]}
    if model["model"] == "base":
        for k, least in SPEED_UP.items():
            if k in rows:
                speed_up = rows[k]["naive"]["total"] / rows[k]["ours"]["total"]
                yield verdict(
                    speed_up >= least,
                    f"base, chunk {k}: {speed_up:.2f} times as fast as the naive baseline "
                    f"(target: at least {least:g})",
                )
        if {5, 97} <= set(rows):
            growth = rows[97]["ours"]["encode"] / rows[5]["ours"]["encode"]
            yield verdict(
                growth <= ENCODER_GROWTH,
                f"base, encoder: chunk 97 takes {growth:.2f} times chunk 5 "
                f"(target: at most {ENCODER_GROWTH:g})",
            )


def _head(result: dict[str, Any]) -> str:
    settings, machine = result["settings"], result["machine"]
    device = machine.get("gpu", machine["cpu"])
    return (
        f"chunks of {settings['chunk']}, {settings['threads']} thread(s) of {device}, float32, "
        f"{result['clock']}, median of {settings['repeats']}; 4 tokens per second of audio"
    )


def _steps(result: dict[str, Any]) -> Any:
    headings = ("model", "chunk", "mel", "encoder", "decoder", "ours")
    naive_headings = ("naive\nencoder", "naive\ndecoder", "naive", "speed-up")
    grid = table("Milliseconds per chunk", (*headings, *naive_headings))
    for model in result["models"]:
        for row in model["rows"]:
            ours, naive = row["ours"], row["naive"]
            grid.add_row(
                str(model["model"]),
                str(row["chunk"]),
                *(f"{ours[part]:.1f}" for part in ("feature", "encode", "decode", "total")),
                *(f"{naive[part]:.1f}" for part in ("encode", "decode", "total")),
                f"{naive['total'] / ours['total']:.1f}",
            )
        grid.add_section()
    return grid


def _notes(result: dict[str, Any]) -> list[str]:
    lines = []
    for model in result["models"]:
        name, n = model["model"], model["n_tokens"]
        same = "the same tokens" if model["same_tokens"] else "[red]NOT the same tokens[/]"
        lines.append(
            f"{name}: {same} from both ({n} in the stream, {model['n_different_tokens']} different)"
        )
        if model["left_out"]:
            chunks = ", ".join(map(str, model["left_out"]))
            lines.append(f"{name}: chunk {chunks} left out, beyond the model's window")
    return lines
