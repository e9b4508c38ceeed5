"""The configuration: its top level, where conf/ lies, composing, settling, and `build`.

Everything a user can get wrong in a configuration is found here, before any weights load, and
answered with a `UserError`: the value, the rule, the remedy.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import hydra
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from hydra.utils import instantiate
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.arguments import check_arguments
from streaming_asr.durations import first_chunk_ms, format_duration, parse_duration
from streaming_asr.errors import UserError, check_one_of, did_you_mean
from streaming_asr.models.find import find_here, is_english_only, is_local, unknown_languages
from streaming_asr.paths import CONF_DIR, HERE
from streaming_asr.schedule import check_feed
from streaming_asr.terminal import exit_status
from streaming_asr.text import NORMALISERS
from streaming_asr.weights import find_weights, own_network, weights_folders

DTYPES = ("float32", "float16", "bfloat16")
ATTENTIONS = ("eager", "sdpa")
MAX_CHUNK_MS = 30_000  # what Whisper hears at once
# ISO 639 codes of Whisper's languages; the large models from v3 on know yue too.
_CODES = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
)
LANGUAGES = frozenset(_CODES.split())
NATURAL = ("prompts", "speechocean762", "voices")  # corpora that mini cannot hear


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


def _cell_name(
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
        import hashlib

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
        "cell_name": _cell_name,
        "choices": _choices,
    }
    for name, resolver in resolvers.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)


_register()


# -- composing ------------------------------------------------------------------------------


def compose(overrides: Sequence[str] = (), *, config_dir: str | None = None) -> DictConfig:
    """Return the settled configuration of these overrides, as `run` sees it."""
    full = compose_raw(overrides, config_dir=config_dir)
    return settle(full, full.hydra.runtime.choices)


def compose_raw(
    overrides: Sequence[str] = (), *, config_name: str = "run", config_dir: str | None = None
) -> DictConfig:
    """Return what Hydra composes, with its `hydra` node; `config_dir` is searched too."""
    for override in overrides:
        check_name(override)
    extra = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
    before = get_gh_backup()  # within a job of Hydra's its state is set, and would be refused
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            return hydra_compose(config_name, [*overrides, *extra], return_hydra_config=True)
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise explain(error, overrides, config_name, config_dir) from error
    finally:
        restore_gh_from_backup(before)


def explain(
    error: Exception,
    overrides: Sequence[str] = (),
    config_name: str = "run",
    config_dir: str | None = None,
) -> UserError:
    """Return Hydra's refusal as value, rule and remedy, with the nearest name if any."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = str(error.missing_cfg_file).rpartition("/")
        options = sorted(str(o) for o in error.options or ())
        plain = re.sub(r"[\W_]", "", option.lower())
        meant = PUBLISHED_AS.get(plain, option.removeprefix("whisper-"))
        return UserError(
            f"{group}={option}: no such {group or 'configuration'}{did_you_mean(meant, options)}; "
            f"there are {', '.join(options) or 'none'}"
        )
    text = f"{error}\n{error.__cause__ or ''}"
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        if key in RENAMED:
            value = value.replace("none", "float32") if key == "method.quantise" else value
            return UserError(
                f"{override}: {key} is called {RENAMED[key]} now; give {RENAMED[key]}={value}"
            )
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
            wrong = key.partition(".")[0]
            if parent is None and wrong not in config:  # it is the first part that is not there
                names = sorted(set(map(str, config)) - {"hydra"})
                near = did_you_mean(wrong, names)
                return UserError(f"{given[0] if given else key}: no {wrong} to set{near}")
            names = sorted(set(map(str, parent or ())) - {"hydra", "_target_"})
        except (UserError, OmegaConfBaseException):
            names = []
        last = key.rpartition(".")[2]
        where = key.rpartition(".")[0] or config_name
        known = f"; {where} has {', '.join(names)}" if names else ""
        groups = ("method", "model", "data", "tracker") if names and "." not in key else ()
        if inside := [f"{group}.{key}" for group in groups if key in (config.get(group) or ())]:
            return UserError(
                f"{given[0] if given else key}: no such key; did you mean {inside[0]}?"
            )
        return UserError(
            f"{given[0] if given else key}: no such key{did_you_mean(last, names)}{known}"
        )
    if several := re.match(r"Ambiguous value for argument '(.*?)'", text):
        return UserError(
            f"{several[1]}: several values where one is taken; `streaming-asr run -m` and "
            "`streaming-asr compare audio=FILE` take several"
        )
    if text.startswith("Config group override"):  # what Hydra says of method=null
        return UserError(
            "method, model, data and tracker: each takes the name of one file in conf/<group>/, "
            f"as tracker=none ({text.strip()})"
        )
    if "nterpolation" in text:
        reason = text.partition("resolving interpolation: ")[2] or text
        place = re.search(r"full_key: (\S+)", text)
        return UserError(
            f"{place[1] + ': ' if place else ''}{reason.strip().splitlines()[0]}; ${{...}} names "
            "another setting, or an environment variable as ${oc.env:NAME,default}"
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [f"{line.partition(': ')[2]}: " for line in lines if line.startswith("full_key")]
    kind = re.search(r"Value '(.*)' of type .* could not be converted to (\w+)", text)
    if named and kind and kind[2] in KINDS:
        return UserError(f"{named[0][:-2]}={kind[1]}: must be {KINDS[kind[2]]}")
    told = [
        line for line in lines if not line.startswith(("full_key", "object_type", "Error merging"))
    ]
    return UserError("".join(named[:1]) + (told[-1] if named and told else " ".join(told[:2])))


KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
# Settings and values of earlier versions.
RENAMED = {
    "method.adapter": "method.weights",
    "model.adapters": "model.weights",
    "method.quantise": "dtype",
}
# What the papers and their programs call the methods.
PUBLISHED_AS = {
    "localagreement": "ufal",
    "whisperstreaming": "ufal",
    "alignatt": "simul_whisper",
    "simulstreaming": "simul_whisper",
    "whisperflow": "hush_word",
}


# -- settling -------------------------------------------------------------------------------


def settle(config: DictConfig, choices: Mapping[str, Any] | DictConfig) -> DictConfig:
    """Return the configuration checked and resolved, with durations in one spelling and the weights
    found.

    choices: which option each group has (`hydra.runtime.choices`). Hydra's own node is left out.
    Raises UserError. No weights are loaded, so this is done for every cell of a sweep before the
    first one runs.
    """
    try:
        return _settle(config, choices)
    except OmegaConfBaseException as error:
        raise _cause(error) or explain(error) from error


def _settle(config: DictConfig, choices: Mapping[str, Any] | DictConfig) -> DictConfig:
    _check_top(config)
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
    check_one_of((*DTYPES, "int8"), dtype=config.dtype)
    check_one_of(NORMALISERS, normaliser=config.normaliser)
    check_feed(config.feed, config.batch, config.streams)
    for key, least, most in (
        ("limit", 1, math.inf),
        ("threads", 1, 1024),
        ("seed", 0, 2**32 - 1),
        ("pieces", 1, math.inf),
        ("piece", 1, config.pieces),
    ):
        value = config[key]
        if value is not None and not least <= value <= most:
            limits = f"{least} or more" if most == math.inf else f"{least} to {most}"
            raise UserError(f"{key}={value}: must be {limits}; leave {key} out for its default")
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", config.device):
        raise UserError(f"device={config.device}: the device is cpu, cuda, cuda:<n> or mps")
    if choices["model"] == "mini" and choices["data"] in NATURAL:
        raise UserError(
            f"data={choices['data']}: is natural speech, and model=mini hears only the synthetic "
            "voices it was trained on; take a Whisper, as model=tiny.en"
        )
    method_name = str(choices["method"])
    for key in sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{key}: has no default; give {key}=<value>")
    OmegaConf.resolve(config)
    _check_finite(OmegaConf.to_container(config))
    for group in ("method", "data"):
        target = OmegaConf.select(config, f"{group}._target_")
        if not isinstance(target, str):
            raise UserError(f"{group}._target_={target}: must be the name of a class, module.Class")
    _check_model(config)
    _check_languages(config)
    is_whisper = OmegaConf.select(config, "model.path") is not None and not own_network(config)
    if chunk_ms > MAX_CHUNK_MS and is_whisper and method_name != "offline":
        raise UserError(
            f"chunk={config.chunk}: Whisper hears {MAX_CHUNK_MS // 1000} s at once and a step less "
            "than that; give a shorter chunk, as chunk=300ms or chunk=1s"
        )
    check_attention(config)
    own = own_network(config)
    if own is not None and config.method.get("weights") == "auto":
        with read_write(config):
            config.method.weights = own
    elif "weights" in config.method:
        found = find_weights(
            method_name,
            chunk_ms,
            str(config.method.weights),
            weights_folders(config, method_name),
            model=OmegaConf.select(config, "model.path"),
            settings=_for_training(given, str(choices["model"])),
        )
        with read_write(config):
            config.method.weights = None if found is None else str(found)
    return config


def _check_top(config: DictConfig) -> None:
    """Raise UserError for a key that `+key=value` put beside those of the schema."""
    known = {field.name for field in fields(RunConfig)}
    for key in sorted(set(map(str, config)) - known - {"hydra"}):
        raise UserError(
            f"{key}: no such key{did_you_mean(key, known)}; there are {', '.join(sorted(known))}"
        )


def check_name(override: str) -> None:
    """Raise UserError for an override that gives a list where Hydra wants one name."""
    if group := re.match(r"[+~]*(method|model|data|tracker)=[\[{]", override):
        raise UserError(f"{override}: {group[1]} is one name of conf/{group[1]}/")


def check_options(argv: Sequence[str]) -> None:
    """Raise UserError for a setting written as an option, as `--chunk 300ms`."""
    names = {field.name for field in fields(RunConfig)} | {"experiment"}
    for at, argument in enumerate(argv):
        key, _, value = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and key.replace("-", "_").split(".")[0] in names:
            value = value or next(iter(argv[at + 1 : at + 2]), "<value>")
            told = f"{key.replace('-', '_')}={value}"
            raise UserError(f"{argument}: settings are written key=value; write {told}")


def _check_finite(value: Any, key: str = "") -> None:
    """Raise UserError for a setting that no result could hold."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{key}={value}: must be a finite number")
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            _check_finite(inner, f"{key}.{name}" if key else str(name))


def _check_model(config: DictConfig) -> None:
    """A local folder must hold a Whisper or a ChunkFormer; the loader answers for hub names."""
    path = OmegaConf.select(config, "model.path")
    if path is not None and not isinstance(path, str):
        raise UserError(f"model.path={path}: must be a folder or a name, or null for no model")
    if path is not None and is_local(path) and own_network(config) is None:
        find_here(path)


def _check_languages(config: DictConfig) -> None:
    """Raise UserError for a language that Whisper, or this Whisper, does not know; corpora name
    theirs themselves."""
    for key in ("language", "data.language"):
        given = OmegaConf.select(config, key)
        known = {*LANGUAGES, "detect"} if key == "language" else LANGUAGES
        if key == "data.language" and not str(config.data._target_).endswith(".Folder"):
            continue
        if given is not None and given not in known and not own_network(config):
            raise UserError(
                f"{key}={given}: no language that Whisper knows{did_you_mean(str(given), known)}; "
                f"give a code such as en, de or fr, or {key}=null for the corpus's own"
            )
    if config.language is not None:
        check_known(config, {config.language})


def check_known(config: DictConfig, languages: Set[str]) -> None:
    """Raise UserError where the Whisper of the configuration does not know all of `languages`."""
    path = OmegaConf.select(config, "model.path")
    if path is None or own_network(config):
        return
    if others := ", ".join(sorted(unknown_languages(path, languages - {"detect"}))):
        knows = "knows English only" if is_english_only(path) else f"does not know {others}"
        raise UserError(
            f"model={config.model.get('name')}: {knows}, and the utterances are in {others}; take "
            f"a model that knows more, as model={'large-v3' if 'yue' in others else 'base'}"
        )


def check_attention(config: DictConfig) -> None:
    """Raise UserError where this model and method cannot honour `model.attention`."""
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


def _for_training(overrides: Sequence[str], model: str) -> str:
    """Return what a training command takes over from these overrides, with what else it needs."""
    kept = [o for o in overrides if re.match(r"(model|output)[=.]", o)]
    if model != "mini":
        if not any(override.startswith("model=") for override in kept):  # an experiment's
            kept.insert(0, f"model={model}")
        kept += ["train_data=<shards>", "dev_manifest=<manifest>"]
    return "".join(f" {override}" for override in kept)


def program(config_name: str, job: Callable[[DictConfig], Any]) -> int:
    """Run `job` on the configuration that the command line makes of conf/<config_name>.yaml and
    return the exit status: the job's own where it returns one, 2 for a UserError, which is told."""
    status = exit_status(lambda: _precheck(config_name))
    if status:
        return status

    @hydra.main(config_path=str(CONF_DIR), config_name=config_name, version_base="1.3")
    def run(config: DictConfig) -> None:
        nonlocal status
        status = exit_status(lambda: job(config))

    run()
    return status


def _precheck(config_name: str) -> None:
    """Raise UserError for what Hydra would refuse of the command line, in its own words."""
    argv = sys.argv[1:]
    check_options(argv)
    if not any(argument.startswith("-") for argument in argv):
        compose_raw(argv, config_name=config_name)


# -- building -------------------------------------------------------------------------------


def build(node: DictConfig | Mapping[str, Any], **extra: Any) -> Any:
    """Return the object that a node with `_target_` describes; only here configuration becomes
    code.

    Raises UserError for settings that do not fit the target (`check_arguments`), and what the
    target raises, not Hydra's wrapping of it.
    """
    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    check_arguments(plain)
    try:
        return instantiate(node, _convert_="all", **extra)
    except InstantiationException as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise


def new_method(name: str, model_path: str | Path | None = None, **settings: Any) -> Any:
    """Return the method of conf/method/<name>.yaml, with `settings` in place of those there.

    For programs that call a method outside a run: on the CPU, at 300 ms, without trained weights
    unless `settings` name them.
    """
    node = OmegaConf.load(CONF_DIR / "method" / f"{name}.yaml")
    top = {"chunk": "300ms", "first_chunk": None, "device": "cpu", "dtype": "float32"}
    config = OmegaConf.create({"method": node, "model": {"path": str(model_path)}, **top})
    if "weights" in config.method:
        config.method.weights = None
    unknown = sorted(set(settings) - set(config.method))
    if unknown:
        raise UserError(f"method={name}: no setting {unknown[0]}{did_you_mean(unknown[0], node)}")
    values = OmegaConf.to_container(config.method, resolve=True)
    return build({**values, **settings})  # type: ignore[dict-item]


def _cause(error: BaseException | None) -> UserError | None:
    while error is not None:
        if isinstance(error, UserError):
            return error
        error = error.__cause__ or error.__context__
    return None
