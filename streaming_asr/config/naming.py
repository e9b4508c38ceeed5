"""Names a cell's folder by its settings, so that one configuration has one folder.

Importing it makes the resolver `cell_name` of conf/run.yaml.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from streaming_asr.chunking import format_duration, parse_duration
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.schema import key_of, value_of
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR

UNNAMED = ("method", "chunk", "name", "output", "tracker", "experiment", "pieces", "piece")
"""Settings that are part of every name, or that cannot change a result."""

GROUPS = ("method", "model", "data", "experiment")
"""Settings that choose a file, which has defaults of its own."""


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
    searchpath = ",".join(f"file://{path}" for path in folders if path != str(CONF_DIR))
    values = {"method": method, "chunk": format_duration(parse_duration(chunk))}
    differing = {}
    for override in overrides:
        key = key_of(override)
        is_named = key.split(".")[0] not in UNNAMED or key.startswith("method.")
        if is_named and not _repeats_default(override, overrides, searchpath):
            value = value_of(override)
            # `,` and `=` in a path would look like another setting in the name.
            differing[key] = re.sub("[,=]", "_", value) if key.endswith(".path") else value
    text = ",".join(f"{k}={v}" for k, v in [*values.items(), *sorted(differing.items())])
    text = re.sub(r"[^\w=,.+\-]", "_", text.replace("'", "").replace('"', ""))
    if len(text.encode()) > 200:  # most file systems take 255 bytes
        text = f"{text[:180]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text if piece is None else f"{text}/pieces/{piece}-of-{pieces}"


def _repeats_default(override: str, overrides: Sequence[str], searchpath: str) -> bool:
    """Return whether an override gives the value that its setting has without it.

    Of the other `overrides` only the choices of files count, which bring their own defaults.
    """
    key = key_of(override)
    if override[:1] in "+~":  # adds or removes a setting, which has no default then
        return False
    choice_of_files = [o for o in overrides if key_of(o) in GROUPS and key_of(o) != key]
    if searchpath:
        choice_of_files.append(f"hydra.searchpath=[{searchpath}]")
    default = _composed(tuple(choice_of_files))
    if default is None:
        return False
    choices = default.hydra.runtime.choices
    if key in choices:
        return str(choices[key]) == value_of(override)
    parent = OmegaConf.select(default, key.rpartition(".")[0]) if "." in key else default
    name = key.rpartition(".")[2]
    # The value of another setting is not a default: that setting may have been given too.
    if not isinstance(parent, DictConfig) or name not in parent:
        return False
    if OmegaConf.is_interpolation(parent, name) or OmegaConf.is_missing(parent, name):
        return False
    value = OverridesParser.create().parse_override(override).value()
    return type(value) is type(parent[name]) and value == parent[name]


@lru_cache(maxsize=256)
def _composed(overrides: tuple[str, ...]) -> DictConfig | None:
    """Return the configuration of these overrides; None where they cannot be composed."""
    try:
        return compose_raw(overrides)
    except UserError:
        return None


OmegaConf.register_new_resolver("cell_name", cell_name, replace=True)
