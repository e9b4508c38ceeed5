"""The top level of a run's configuration, the name of its cell, the resolvers that conf/ uses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from streaming_asr.chunking import first_chunk_ms, format_duration, parse_duration
from streaming_asr.files import CONF_DIR, HERE


@dataclass
class RunConfig:
    """The top level of conf/run.yaml. A key that is not here is refused."""

    method: Any = MISSING
    model: Any = MISSING
    data: Any = MISSING
    tracker: Any = MISSING
    name: str = "default"  # the experiment: results lie in <output>/<name>/<cell>
    output: str = "outputs"
    chunk: str = "300ms"
    first_chunk: str | None = None  # default: smallest multiple of chunk that is 600 ms or more
    limit: int | None = None  # the first so many utterances
    batch: int = 1  # streams advanced together; latency is measured at 1
    feed: str = "fixed"
    streams: int | None = None  # of feed=realtime_queue; default: batch
    pieces: int = 1  # jobs over which the utterances of a cell are split
    piece: int | None = None  # which of them, from 1; a command with pieces runs them all
    language: str | None = None  # of all utterances; null: the corpus's; detect: by Whisper
    device: str = "cpu"
    dtype: str = "float32"
    normaliser: str = "whisper"  # of error rates: whisper or identity
    seed: int = 0
    threads: int | None = None  # of torch; default: torch's own choice


def cell_name(
    method: str, chunk: str, overrides: Sequence[str], pieces: int = 1, piece: int | None = None
) -> str:
    """Return the name of a cell's folder: always method and chunk, then the other overrides, in one
    order; of one of its pieces, the folder in it.

    The same configuration gets the same folder, in a sweep or alone. What cannot change a result
    (tracker, name, output) does not name it.
    """
    parts = {"method": method, "chunk": format_duration(parse_duration(chunk))}
    rest = {}
    unnamed = (*parts, "name", "output", "tracker", "experiment", "pieces", "piece")
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key.split(".")[0] not in unnamed or key.startswith("method."):
            rest[key] = value
    text = ",".join(f"{k}={v}" for k, v in [*parts.items(), *sorted(rest.items())])
    text = re.sub(r"[^\w=,.+\-]", "_", text.replace("'", "").replace('"', ""))
    if len(text.encode()) > 200:
        text = f"{text[:180]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text if piece is None else f"{text}/pieces/{piece}-of-{pieces}"


def _choices(*groups: str) -> str:
    """Return the options of groups of conf/, a line each, for a command's help."""
    return "\n".join(
        f"{group}: {', '.join(sorted(file.stem for file in (CONF_DIR / group).glob('*.yaml')))}"
        for group in groups
    )


def _register() -> None:
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
    resolvers: dict[str, Callable[..., Any]] = {
        "duration_s": lambda text: parse_duration(text) / 1000,
        "first_chunk_s": lambda chunk, first: first_chunk_ms(chunk, first) / 1000,
        "package_data": lambda path: str(HERE / "data" / path),
        "cell_name": cell_name,
        "choices": _choices,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


_register()
