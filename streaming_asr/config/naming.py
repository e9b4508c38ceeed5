"""Names a cell's folder by its settings, so that one configuration has one folder.

Importing it makes the resolver `cell_name` of conf/run.yaml.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from streaming_asr.chunking import format_duration, parse_duration
from streaming_asr.config.compose import choosing, chosen_files, mini_data, parse
from streaming_asr.config.schema import key_of, value_of
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR

UNNAMED = ("method", "chunk", "name", "output", "tracker", "experiment", "pieces", "piece")
"""Settings that are part of every name, or that cannot change a result."""


def cell_name(
    method: str,
    chunk: str,
    overrides: Sequence[str],
    pieces: int = 1,
    piece: int | None = None,
    sources: Sequence[Mapping[str, str]] = (),
) -> str:
    """Return the name of a cell's folder: method and chunk, then the settings that differ from
    their defaults, sorted by key; of a piece, `<cell>/pieces/<k>-of-<n>`.

    overrides: the command line's, and those of a sweep's axes. The same configuration has the same
    name: an override that repeats the default does not count. sources: where Hydra searched for
    files (hydra.runtime.config_sources).
    """
    folders = [source["path"] for source in sources if source["schema"] == "file"]
    places = ",".join(f"file://{path}" for path in folders if path != str(CONF_DIR))
    try:
        parsed = parse(overrides)
        files = [str(each.input_line) for each in choosing(parsed, "run", places)]
        defaults = chosen_files("run", tuple(files), places)
    except UserError:  # Hydra composed them, and here they are not understood: all are named
        parsed, files, defaults = [], [], OmegaConf.create()
    by_line = {str(each.input_line): each for each in parsed}
    values = {"method": method, "chunk": format_duration(parse_duration(chunk))}
    differing = {}
    for override in overrides:
        key = key_of(override)
        if key.split(".")[0] in UNNAMED and not key.startswith("method."):
            continue
        if override in files:
            repeats = str(_default_choice(key, files, places)) == value_of(override)
        else:
            repeats = _is_default(by_line.get(override), defaults)
        if not repeats:
            value = value_of(override)
            # `,` and `=` in a path would look like another setting in the name.
            differing[key] = re.sub("[,=]", "_", value) if key.endswith(".path") else value
    text = ",".join(f"{k}={v}" for k, v in [*values.items(), *sorted(differing.items())])
    text = re.sub(r"[^\w=,.+\-]", "_", text.replace("'", "").replace('"', ""))
    if len(text.encode()) > 200:  # most file systems take 255 bytes
        text = f"{text[:180]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text if piece is None else f"{text}/pieces/{piece}-of-{pieces}"


def _default_choice(group: str, files: Sequence[str], places: str) -> str | None:
    """Return the file that a group has where the command line does not choose it."""
    others = [each for each in files if key_of(each) != group]
    lines = [*others, *mini_data(others)]
    for each in lines:
        if key_of(each) == group:
            return value_of(each)
    if any(key_of(each) == "experiment" for each in lines):
        choices = chosen_files("run", tuple(others), places).hydra.runtime.choices
        return str(choices.get(group))
    choices = {k: v for each in _defaults() if not isinstance(each, str) for k, v in each.items()}
    return choices.get(group)


@cache
def _defaults() -> list[Any]:
    content: Any = OmegaConf.load(CONF_DIR / "run.yaml")
    return list(content.defaults)


def _is_default(override: Override | None, defaults: DictConfig) -> bool:
    """Return whether an override gives the value that its setting has in `defaults`, which is
    composed of the same files."""
    if override is None or override.is_add() or override.is_force_add() or override.is_delete():
        return False  # it adds or removes a setting, which has no default then
    path, _, name = str(override.key_or_group).rpartition(".")
    parent = OmegaConf.select(defaults, path) if path else defaults
    # The value of another setting is not a default: that setting may have been given too.
    if not isinstance(parent, DictConfig) or name not in parent:
        return False
    if OmegaConf.is_interpolation(parent, name) or OmegaConf.is_missing(parent, name):
        return False
    value = override.value()
    return type(value) is type(parent[name]) and value == parent[name]


OmegaConf.register_new_resolver("cell_name", cell_name, replace=True)
