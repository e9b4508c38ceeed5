"""The configuration: its top level, durations, adapters, where conf/ lies, and `build`.

Everything a user can get wrong in a configuration is found here, before any weights load, and
answered with a `UserError`: the value, the rule, the remedy.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from hydra.utils import instantiate
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.errors import MissingAdapter, UserError
from streaming_asr.hashes import weights_hash

HERE = Path(__file__).resolve().parent
CONF_DIR = next(p for p in (HERE / "conf", HERE.parent / "conf") if p.is_dir())

FRAME_MS = 20  # one encoder frame: every duration of the chunk schedule is a multiple of it
FIRST_CHUNK_MS = 600  # the first chunk is at least this long unless first_chunk says otherwise
FEEDS = ("fixed", "best_effort")
DTYPES = ("float32", "float16", "bfloat16")
ATTENTIONS = ("eager", "sdpa")
HUMAN = ("prompts", "speechocean762")  # corpora that mini cannot hear


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
    language: str | None = None  # of all utterances; null: the corpus's; detect: by Whisper
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    threads: int | None = None  # of torch; default: torch's own choice


# -- durations ------------------------------------------------------------------------------


def parse_duration(text: str, key: str = "chunk") -> int:
    """Milliseconds of a duration such as `300ms` or `1.2s`.

    Raises UserError for a bare number, an unknown unit, anything not positive or not a multiple
    of one encoder frame (20 ms). `key` is the setting the message names.
    """
    match = re.fullmatch(r"\s*([+-]?\d+(?:\.\d*)?|[+-]?\.\d+)\s*([a-zµ]*)\s*", str(text))
    if match is None:
        raise UserError(
            f"{key}={text}: not a duration; write a number and a unit, as in {key}=300ms"
        )
    number, unit = Decimal(match[1]), match[2]
    if not unit:
        meant = f"{match[1]}s" if number < FRAME_MS else f"{match[1]}ms"
        raise UserError(f"{key}={text}: a duration needs a unit (ms or s); write {key}={meant}")
    if unit not in ("ms", "s"):
        raise UserError(f"{key}={text}: the unit is ms or s; write for instance {key}=300ms")
    ms = number * (1000 if unit == "s" else 1)
    if ms <= 0:
        raise UserError(f"{key}={text}: must be positive; the least is {key}={FRAME_MS}ms")
    if ms % FRAME_MS:
        below = int(ms // FRAME_MS) * FRAME_MS
        near = [f"{n}ms" for n in (below, below + FRAME_MS) if n > 0]
        raise UserError(
            f"{key}={text}: not a multiple of {FRAME_MS} ms, one encoder frame; "
            f"use {key}={' or '.join(near)}"
        )
    return int(ms)


def format_duration(ms: int) -> str:
    """The shortest exact spelling: 300 -> `300ms`, 2000 -> `2s`."""
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"


def first_chunk_ms(chunk: str, first_chunk: str | None = None) -> int:
    """Length of the first chunk in ms: as given, else the smallest multiple of chunk >= 600 ms."""
    if first_chunk is not None:
        return parse_duration(first_chunk, "first_chunk")
    chunk_ms = parse_duration(chunk)
    return -(-FIRST_CHUNK_MS // chunk_ms) * chunk_ms


def _cell_name(method: str, chunk: str, overrides: Sequence[str]) -> str:
    """A cell's folder: method and chunk always, then the other overrides, in one order.

    The same configuration gets the same folder, in a sweep or alone. What cannot change a result
    (tracker, name, output) does not name it.
    """
    parts = {"method": method, "chunk": format_duration(parse_duration(chunk))}
    rest = {}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key.split(".")[0] not in (*parts, "name", "output", "tracker", "experiment") or (
            key.startswith("method.")
        ):
            rest[key] = value
    text = ",".join(f"{k}={v}" for k, v in [*parts.items(), *sorted(rest.items())])
    text = re.sub(r"[^\w=,.+\-]", "_", text.replace("'", "").replace('"', ""))
    if len(text.encode()) > 200:
        import hashlib

        text = f"{text[:180]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def _register() -> None:
    ConfigStore.instance().store(name="run_schema", node=RunConfig)
    resolvers: dict[str, Callable[..., Any]] = {
        "duration_s": lambda text: parse_duration(text) / 1000,
        "first_chunk_s": lambda chunk, first: first_chunk_ms(chunk, first) / 1000,
        "package_data": lambda path: str(HERE / "data" / path),
        "cell_name": _cell_name,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


_register()


# -- composing ------------------------------------------------------------------------------


def compose(
    overrides: Sequence[str] = (), *, config_name: str = "run", config_dir: str | None = None
) -> DictConfig:
    """The settled configuration of these overrides, as `python -m streaming_asr.run` sees it."""
    full = compose_raw(overrides, config_name=config_name, config_dir=config_dir)
    return settle(full, full.hydra.runtime.choices)


def compose_raw(
    overrides: Sequence[str] = (), *, config_name: str = "run", config_dir: str | None = None
) -> DictConfig:
    """As Hydra composes it: unresolved, its `hydra` node in it. `config_dir` is searched too."""
    extra = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
    before = get_gh_backup()  # within a job of Hydra's its state is set, and would be refused
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            return hydra_compose(config_name, [*overrides, *extra], return_hydra_config=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, overrides, config_name, config_dir) from error
    finally:
        restore_gh_from_backup(before)


def explain(
    error: Exception,
    overrides: Sequence[str] = (),
    config_name: str = "run",
    config_dir: str | None = None,
) -> UserError:
    """Hydra's refusal as value, rule and remedy, with the nearest name where there is one."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        options = sorted(str(o) for o in error.options or ())
        return UserError(
            f"{group}={option}: no such {group or 'configuration'}{did_you_mean(option, options)}; "
            f"there are {', '.join(options) or 'none'}"
        )
    text = f"{error}\n{error.__cause__ or ''}"
    missing = re.search(
        r"Could not (?:override|append to config at) '([^']+)'|full_key: (\S+)", text
    )
    if "not in" in text and missing:
        key = next(group for group in missing.groups() if group)
        given = [o for o in overrides if o.lstrip("+~").startswith(f"{key}=")]
        try:
            rest = [override for override in overrides if override not in given]
            config = compose_raw(rest, config_name=config_name, config_dir=config_dir)
            parent = OmegaConf.select(config, key.rpartition(".")[0]) if "." in key else config
            names = sorted(set(map(str, parent or ())) - {"hydra", "_target_"})
        except (UserError, OmegaConfBaseException):
            names = []
        last = key.rpartition(".")[2]
        where = key.rpartition(".")[0] or config_name
        known = f"; {where} has {', '.join(names)}" if names else ""
        return UserError(
            f"{given[0] if given else key}: no such key{did_you_mean(last, names)}{known}"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [f"{line.partition(': ')[2]}: " for line in lines if line.startswith("full_key")]
    told = [
        line for line in lines if not line.startswith(("full_key", "object_type", "Error merging"))
    ]
    return UserError("".join(named[:1]) + (told[-1] if named and told else " ".join(told[:2])))


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing where no name is near."""
    near = difflib.get_close_matches(wrong, list(right), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


# -- settling -------------------------------------------------------------------------------


def settle(config: DictConfig, choices: Mapping[str, Any] | DictConfig) -> DictConfig:
    """The configuration checked, resolved, durations in one spelling, the adapter found.

    choices: which option each group has (`hydra.runtime.choices`). Hydra's own node is left out.
    Raises UserError. No weights are loaded, so this is done for every cell of a sweep before the
    first one runs.
    """
    config = config.copy()
    for group in ("method", "model", "data", "tracker"):
        if OmegaConf.is_missing(config, group) or choices.get(group) is None:
            raise UserError(f"{group}: none chosen; give {group}=<one of conf/{group}/>")
    chunk_ms = parse_duration(config.chunk)
    given = OmegaConf.select(config, "hydra.overrides.task") or []
    with read_write(config), open_dict(config):
        config.pop("hydra", None)
        config.chunk = format_duration(chunk_ms)
        config.first_chunk = format_duration(first_chunk_ms(config.chunk, config.first_chunk))
    _one_of("feed", config.feed, FEEDS)
    _one_of("dtype", config.dtype, DTYPES)
    for key in ("limit", "batch", "threads"):
        value = config[key]
        if value is not None and value < 1:
            raise UserError(f"{key}={value}: must be 1 or more; leave {key} out for its default")
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", config.device):
        raise UserError(f"device={config.device}: the device is cpu, cuda, cuda:<n> or mps")
    if config.feed == "best_effort" and config.batch > 1:
        raise UserError(
            f"batch={config.batch} feed=best_effort: a best-effort stream waits for its own steps, "
            "so streams cannot share one; use batch=1"
        )
    if choices["model"] == "mini" and choices["data"] in HUMAN:
        raise UserError(
            f"data={choices['data']}: is human speech, and model=mini hears only the synthetic "
            "voices it was trained on; take a Whisper, as model=tiny.en"
        )
    method_name = str(choices["method"])
    for key in sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{key}: has no default; give {key}=<value>")
    try:
        OmegaConf.resolve(config)
        _check_model(config)
        check_attention(config)
        own = own_network(config)
        if own is not None and config.method.get("adapter") == "auto":
            with read_write(config):
                config.method.adapter = own
        elif "adapter" in config.method:
            found = find_adapter(
                method_name,
                chunk_ms,
                str(config.method.adapter),
                adapter_folders(config, method_name),
                model=OmegaConf.select(config, "model.path"),
                settings=_for_training(given, str(choices["model"])),
            )
            with read_write(config):
                config.method.adapter = None if found is None else str(found)
    except OmegaConfBaseException as error:
        raise _cause(error) or explain(error) from error
    return config


def _one_of(key: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise UserError(
            f"{key}={value}: {key} is {' or '.join(allowed)}{did_you_mean(value, allowed)}"
        )


def _check_model(config: DictConfig) -> None:
    """A local model folder must exist; a hub name (`openai/whisper-base`) is left to the loader."""
    path = OmegaConf.select(config, "model.path")
    if path is None:
        return
    looks_local = os.path.isabs(path) or path.startswith((".", "~")) or path.count("/") > 1
    folder = Path(path).expanduser()
    if looks_local and not any((folder / f"config.{end}").is_file() for end in ("json", "yaml")):
        raise UserError(
            f"model.path={path}: no model there (a Hugging Face folder with config.json, or a "
            "ChunkFormer's with config.yaml); give model.path=<folder> or a hub name, or build "
            "mini with `make mini`"
        )


def check_attention(config: DictConfig) -> None:
    """`model.attention`, where the passes of this model and method can honour it."""
    wanted = OmegaConf.select(config, "model.attention")
    if wanted is None:
        return
    if wanted not in ATTENTIONS:
        raise UserError(
            f"model.attention={wanted}: {' or '.join(ATTENTIONS)}"
            f"{did_you_mean(wanted, ATTENTIONS)}; blocks and kept keys need masks, which other "
            "kernels do not take. On a GPU, sdpa takes flash kernels by itself where there is no "
            "mask and dtype=float16 or bfloat16"
        )
    for key, value, why, remedy in (
        ("backend", "faster_whisper", "CTranslate2 has its own kernels", "method.backend=torch"),
        ("pipeline", None, "the encoder runs in a process of its own", "method.pipeline=none"),
    ):
        held = OmegaConf.select(config, f"method.{key}")
        if held == value if value else held not in (None, "none"):
            raise UserError(
                f"model.attention={wanted}: not with method.{key}={held}, where {why}; "
                f"give {remedy}, or leave model.attention out"
            )


# -- adapters -------------------------------------------------------------------------------


def own_network(config: DictConfig) -> str | None:
    """`model.path` where it is no Whisper but a ChunkFormer's folder; None elsewhere."""
    path = OmegaConf.select(config, "model.path")
    if path is None:
        return None
    folder = Path(path).expanduser()
    is_whisper = (folder / "config.json").exists()
    return path if not is_whisper and (folder / "config.yaml").is_file() else None


def adapter_folders(config: DictConfig, method_name: str) -> list[Path]:
    """Where adapters of this method for this model may lie, in the order they are looked for."""
    model = config.model
    beside = model.get("adapters") or str(Path(str(model.path)).expanduser() / "adapters")
    return [
        Path(str(config.output)) / "train" / str(model.get("name", "model")) / method_name,
        Path(beside) / method_name,
    ]


def find_adapter(
    method_name: str,
    chunk_ms: int,
    wanted: str,
    folders: Sequence[Path],
    *,
    model: str | Path | None = None,
    settings: str = "",
) -> Path | None:
    """The adapter folder that `method.adapter` names; None for `none`.

    wanted: `none`; `auto` (one trained at exactly this chunk, in any of `folders`, else one trained
    on random chunks); `auto_or_none` (the same, None where there is neither); the name of one in
    `folders` (`random`, `300ms`); or a path.
    model: its folder. Both `auto` pass over adapters whose training.json names other weights than
    its own; one that is asked for by name or path is taken.
    settings: the user's own that a command for training needs too.
    Raises MissingAdapter, which says what exists and how to train one.
    """
    if wanted in ("none", "None"):
        return None
    auto = wanted in ("auto", "auto_or_none")
    base = weights_hash(model) if auto and model is not None else None
    present: dict[str, Path] = {}
    strange: list[Path] = []
    for folder in folders:
        for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
            if not entry.is_dir() or not any(entry.iterdir()):
                continue
            if base is not None and training_of(entry).get("base") not in (None, base):
                strange.append(entry)
            else:
                present.setdefault(_adapter_key(entry.name), entry)
    if auto:
        for key in (f"{chunk_ms}ms", "random"):
            if key in present:
                return present[key]
        if wanted == "auto_or_none":
            return None
    elif _adapter_key(wanted) in present:
        return present[_adapter_key(wanted)]
    elif Path(wanted).expanduser().exists():  # a folder, or a checkpoint file of another project
        return Path(wanted).expanduser()
    chunk = format_duration(chunk_ms)
    there = ", ".join(str(path) for path in present.values()) or "none"
    if strange:
        there += f" (trained on other weights: {', '.join(map(str, strange))})"
    asked = f"chunk={chunk}" if wanted == "auto" else f"method.adapter={wanted}"
    raise MissingAdapter(
        f"{asked}: no such adapter of {method_name} for this model. There are: {there}. "
        f"Train one with `python -m streaming_asr.train method={method_name} chunk={chunk}"
        f"{settings}` "
        f"(or as conf/recipe/{method_name}.yaml says), "
        f"name one with method.adapter=<folder>, or do without with method.adapter=none"
    )


def _for_training(overrides: Sequence[str], model: str) -> str:
    """What a training command takes over from these overrides, with what else it needs."""
    kept = [o for o in overrides if re.match(r"(model|output)[=.]", o)]
    if model != "mini":
        kept += ["train_data=<shards>", "dev_manifest=<manifest>"]
    return "".join(f" {override}" for override in kept)


def training_of(adapter: Path) -> dict[str, Any]:
    """What training.json in an adapter's folder says; nothing where there is none to be read."""
    try:
        return dict(json.loads((adapter / "training.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _adapter_key(name: str) -> str:
    """`1s` and `1000ms` name one adapter; any other name stands for itself."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", name)
    if match is None:
        return name
    return f"{int(Decimal(match[1]) * (1000 if match[2] == 's' else 1))}ms"


# -- building -------------------------------------------------------------------------------


def build(node: DictConfig | Mapping[str, Any], **extra: Any) -> Any:
    """The object a node with `_target_` describes: the only place where configuration becomes code.

    Raises what the target raises, not Hydra's wrapping of it.
    """
    try:
        return instantiate(node, _convert_="all", **extra)
    except InstantiationException as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise


def _cause(error: BaseException | None) -> UserError | None:
    while error is not None:
        if isinstance(error, UserError):
            return error
        error = error.__cause__ or error.__context__
    return None
