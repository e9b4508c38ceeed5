"""Holds the table of a run's settings, their one check, a cell's name, and conf/'s resolvers."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from streaming_asr.chunking import FEEDS, first_chunk_ms, parse_duration
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.files import CONF_DIR, HERE
from streaming_asr.text.normalise import NORMALISERS


def setting(
    default: Any,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    one_of: Sequence[str] = (),
    pattern: str = ".*",
    rule: str = "",
) -> Any:
    """Return a field of a configuration: its default and the values it may have.

    A number must lie between `least` and `most` (inclusive); a text must be one of `one_of` or
    match `pattern` as a whole. rule: the pattern in words, for the message.
    """
    allowed = {"least": least, "most": most, "one_of": one_of, "pattern": pattern, "rule": rule}
    return field(default=default, metadata=allowed)


def check_settings(config: Any, schema: type) -> None:
    """Raise UserError for the first setting of `config` that its `schema` does not allow."""
    for each in fields(schema):
        key, allowed = each.name, each.metadata
        if not allowed or config[key] is None:
            continue
        value = config[key]
        if allowed["one_of"]:
            check_one_of(allowed["one_of"], **{key: value})
        elif isinstance(value, str) and not re.fullmatch(allowed["pattern"], value):
            raise UserError(f"{key}={value}: {allowed['rule']}")
        elif isinstance(value, int | float) and not allowed["least"] <= value <= allowed["most"]:
            limit = "or more" if allowed["most"] == math.inf else f"to {allowed['most']}"
            raise UserError(
                f"{key}={value}: must be {allowed['least']} {limit}; leave {key} out for its "
                "default"
            )


# A folder within another: neither absolute nor upwards.
WITHIN = r"(?![/~\\])(?!(.*[/\\])?\.\.([/\\]|$)).*\S.*"
NAME_RULE = "must be a folder within that of output, as name=first or name=june/first"
DTYPES = ("float32", "float16", "bfloat16")


def device_setting(default: str = "cpu") -> Any:
    """Return the field `device`, which every program has."""
    rule = "the device is cpu, cuda, cuda:<n> or mps"
    return setting(default, pattern=r"cpu|mps|cuda(:\d+)?", rule=rule)


@dataclass
class RunConfig:
    """The top level of conf/run.yaml, which has the defaults: the type of every setting, and what
    it may be. A key that is not here is refused."""

    method: Any = MISSING
    model: Any = MISSING
    data: Any = MISSING
    tracker: Any = MISSING
    name: str = setting(MISSING, pattern=WITHIN, rule=NAME_RULE)  # results lie in <output>/<name>
    output: str = MISSING
    chunk: str = MISSING
    first_chunk: str | None = MISSING  # default: smallest multiple of chunk that is 600 ms or more
    limit: int | None = setting(MISSING, least=1)  # the first so many utterances
    batch: int = setting(MISSING, least=1)  # streams advanced together; latency is measured at 1
    feed: str = setting(MISSING, one_of=FEEDS)
    pieces: int = setting(MISSING, least=1)  # jobs over which the utterances of a cell are split
    piece: int | None = MISSING  # which of them, from 1; a command with pieces runs them all
    language: str | None = MISSING  # of all utterances; null: the corpus's; detect: by Whisper
    device: str = device_setting(MISSING)
    dtype: str = setting(MISSING, one_of=(*DTYPES, "int8"))
    prompt: str | None = MISSING  # a text before that of Whisper's decoder, or a .txt of names
    guard: str = setting(MISSING, one_of=("repeats", "none"))  # of methods that decode freely
    gate: str = setting(MISSING, one_of=("none", "speech"))  # speech: the method gets only speech
    gate_silence: str = MISSING  # without speech, after which the gate ends a stretch of it
    # of error rates; null: whisper, or whisper_marks for languages with vowel signs
    normaliser: str | None = setting(MISSING, one_of=NORMALISERS)
    seed: int = setting(MISSING, least=0, most=2**32 - 1)
    threads: int | None = setting(MISSING, least=1, most=1024)  # of torch; default: its own choice


def key_of(setting: str) -> str:
    """Return the key of `key=value`, without Hydra's `+` and `~`."""
    return setting.lstrip("+~").partition("=")[0]


def value_of(setting: str) -> str:
    """Return the text after the first `=` of a setting; '' without one."""
    return setting.partition("=")[2]


def _choices(*groups: str) -> str:
    """Return the names of the files in folders of conf/, as `method: chunkformer, ...`, for a
    command's help; lines of at most 80 characters."""
    lines = []
    for group in groups:
        names = sorted(file.stem for file in (CONF_DIR / group).glob("*.yaml"))
        lines.append(textwrap.fill(f"{group}: {', '.join(names)}", 80, subsequent_indent="  "))
    return "\n".join(lines)


def settings_text(file: str) -> str:
    """Return the settings of a file of conf/ with their comments, for a command's help."""
    path = CONF_DIR / f"{file}.yaml"
    if not path.is_file():  # in a folder of the user's own
        return "  see its own file"
    # The settings lie between the list of defaults, if any, and Hydra's own node.
    _, _, text = path.read_text(encoding="utf-8").rpartition("defaults:\n")
    lines = text.partition("\nhydra:")[0].splitlines()
    # Left out: the class, the items of the list, a setting `$`... that others fill, empty lines.
    left_out = re.compile(r" *(_target_:|- |\w+: \$\{(?!chunk)|$)")
    return "\n".join(f"  {line}" for line in lines if not left_out.match(line))


def _of_paper(*names: str, _root_: Any) -> Any:
    """Return the value of `recipe.paper`, the settings that a paper prints, under these nested
    keys: `${of_paper:base,lr}` is recipe.paper.base.lr.

    Raises UserError for a key that the paper has no settings for, as a model it did not train.
    _root_: the whole configuration, which OmegaConf gives.
    """
    values = _root_.recipe.paper
    for name in names:
        if name not in values:
            rows = [key for key in values if isinstance(values[key], DictConfig)]
            raise UserError(
                f"recipe.paper: the paper has no settings for {name}, only for {', '.join(rows)}; "
                "take one of these, or another recipe="
            )
        values = values[name]
    return values


def _register() -> None:
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
    resolvers: dict[str, Callable[..., Any]] = {
        "duration_s": lambda text: parse_duration(text) / 1000,
        "first_chunk_s": lambda chunk, first: first_chunk_ms(chunk, first) / 1000,
        "package_data": lambda path: str(HERE / "data" / path),
        "choices": _choices,
        "explained": settings_text,
        "of_paper": _of_paper,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


_register()
