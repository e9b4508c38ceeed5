"""What `bench step` measured, as tables and sentences."""

from __future__ import annotations

from typing import Any

from experiments.bench.show import console, print_lines, verdict

# Of the published code, ms per chunk of 300 ms at 1.2 tokens per chunk: encoder, decoder, all.
# Random weights, rank 32; CPU time of one thread of a comparable machine, median of 3 chunks.
PUBLISHED_MS = {
    ("tiny", 5): (24, 150, 176),
    ("tiny", 30): (34, 206, 242),
    ("tiny", 97): (65, 610, 683),
    ("base", 5): (51, 245, 298),
    ("base", 30): (65, 400, 468),
    ("base", 97): (152, 1372, 1531),
}
# Of another program, with the caches WhisperRT has here, measured beside it on that machine.
CACHED_MS = {
    ("tiny", 5): 57,
    ("tiny", 30): 67,
    ("tiny", 97): 109,
    ("base", 5): 130,
    ("base", 30): 148,
    ("base", 97): 225,
}
PUBLISHED_CHUNK_FRAMES = 15
PUBLISHED_WITHIN = 0.2
SPEED_UP = {30: 3.0, 97: 6.0}  # at least, for base
ENCODER_GROWTH = 1.1  # at most, chunk 97 against 5, for base
BATCH_GAIN = 4.0  # at least, 8 streams against 1, for tiny
HARNESS_SHARE = 0.02  # below


def show(result: dict[str, Any]) -> None:
    """Print everything."""
    out = console()
    out.print(_head(result))
    out.print(_steps(result))
    out.print(_batches(result))
    print_lines(out, [*_notes(result), *verdicts(result)])


def published_ms(result: dict[str, Any], model: str, chunk: int) -> tuple[int, int, int] | None:
    """Encoder, decoder and total of the published code where they are known."""
    if result["settings"]["chunk_frames"] != PUBLISHED_CHUNK_FRAMES:
        return None
    return PUBLISHED_MS.get((model, chunk))


def verdicts(result: dict[str, Any]) -> list[str]:
    """One sentence per target that applies: what was to be reached and what was."""
    lines = []
    for model in result["models"]:
        name, rows = model["model"], {row["chunk"]: row for row in model["rows"]}
        if result["settings"]["chunk_frames"] == PUBLISHED_CHUNK_FRAMES:
            if name == "base":
                for k, least in SPEED_UP.items():
                    if k in rows:
                        speed_up = rows[k]["naive"]["total"] / rows[k]["ours"]["total"]
                        lines.append(
                            verdict(
                                speed_up >= least,
                                f"base, chunk {k}: {speed_up:.2f} times as fast as the naive "
                                f"baseline (target: at least {least:g})",
                            )
                        )
                if {5, 97} <= set(rows):
                    growth = rows[97]["ours"]["encode"] / rows[5]["ours"]["encode"]
                    lines.append(
                        verdict(
                            growth <= ENCODER_GROWTH,
                            f"base, encoder: chunk 97 takes {growth:.2f} times chunk 5 "
                            f"(target: at most {ENCODER_GROWTH:g})",
                        )
                    )
            if name == "tiny":
                gain = batch_gain(model)
                lines.append(
                    verdict(
                        gain >= BATCH_GAIN,
                        f"tiny, 8 streams together: {gain:.2f} times the streams per second of "
                        f"one alone (target: at least {BATCH_GAIN:g})",
                    )
                )
        share = model["harness"]["share"]
        lines.append(
            verdict(
                share < HARNESS_SHARE,
                f"{name}, harness: {100 * share:.2f} % of a simulated stream's time is not the "
                f"method's (target: under {100 * HARNESS_SHARE:g} %)",
            )
        )
    return lines


def batch_gain(model: dict[str, Any]) -> float:
    """Streams per second of the largest batch over those of one stream alone."""
    batches = model["batches"]
    return float(batches[-1]["streams_per_s"] / batches[0]["streams_per_s"])


def _head(result: dict[str, Any]) -> str:
    settings, machine = result["settings"], result["machine"]
    device = machine.get("gpu", machine["cpu"])
    threads = f"{settings['threads']} thread{'s' if settings['threads'] > 1 else ''}"
    return (
        f"chunks of {settings['chunk_frames'] * 20} ms, {threads} of {device}, float32, "
        f"{result['clock']}, median of {settings['repeats']}; 4 tokens per second of audio"
    )


def _steps(result: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="Milliseconds per chunk", title_justify="left")
    for heading in ("model", "chunk"):
        table.add_column(heading, justify="left" if heading == "model" else "right", no_wrap=True)
    headings = (
        *("mel", "encoder", "decoder", "ours"),
        *("naive\nencoder", "naive\ndecoder", "naive"),
        *("speed-up", "published\nenc / dec / all", "naive /\npublished"),
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for model in result["models"]:
        for row in model["rows"]:
            ours, naive = row["ours"], row["naive"]
            published = published_ms(result, model["model"], row["chunk"])
            table.add_row(
                str(model["model"]),
                str(row["chunk"]),
                *(_ms(ours[part]) for part in ("feature", "encode", "decode", "total")),
                *(_ms(naive[part]) for part in ("encode", "decode", "total")),
                f"{naive['total'] / ours['total']:.1f}",
                " / ".join(map(str, published)) if published else "–",
                f"{naive['total'] / published[2]:.2f}" if published else "–",
            )
        table.add_section()
    return table


def _batches(result: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="Streams together", title_justify="left")
    for heading in ("model", "streams", "streams per second", "kept up with", "gain"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for model in result["models"]:
        first = model["batches"][0]
        for row in model["batches"]:
            table.add_row(
                str(model["model"]),
                str(row["n_streams"]),
                f"{row['streams_per_s']:.2f} of {row['stream_s']:g} s",
                f"{row['real_time_streams']:.1f}",
                f"{row['streams_per_s'] / first['streams_per_s']:.1f}",
            )
        table.add_section()
    return table


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
            lines.append(f"{name}: chunk {chunks} left out, beyond what the model hears at once")
        for row in model["rows"]:
            published = published_ms(result, name, row["chunk"])
            if published is None:
                continue
            ratio = row["naive"]["total"] / published[2]
            if abs(ratio - 1) > PUBLISHED_WITHIN:
                machines = row["ours"]["total"] / CACHED_MS[name, row["chunk"]]
                lines.append(
                    f"{name}, chunk {row['chunk']}: the naive baseline takes {ratio:.2f} of the "
                    f"published code's time on another machine; ours takes {machines:.2f} of a "
                    f"like program's there, which leaves {ratio / machines:.2f} between naive "
                    "and published"
                )
    return lines


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"
