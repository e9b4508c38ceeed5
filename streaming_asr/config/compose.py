"""Composes a configuration as Hydra does, and says what is wrong in value, rule and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from streaming_asr.config.schema import key_of
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR

KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
# What the papers and their programs call the methods.
PUBLISHED_AS = {
    "localagreement": "ufal",
    "whisperstreaming": "ufal",
    "alignatt": "simul_whisper",
    "simulstreaming": "simul_whisper",
    "whisperflow": "hush_word",
    "largev3turbo": "turbo",
}
GROUPS = ("method", "model", "data", "tracker")
# What a name of the hub is given to.
BY_PATH = {
    "model": "any Whisper of the hub or a folder is model=whisper model.path=",
    "data": "a set of the hub is data=huggingface data.path=",
}
# What brings more of a group than there is.
PLUGINS = {
    "hydra/launcher": "; pip install -e '.[launch]' brings joblib and Slurm's",
    "hydra/sweeper": "; pip install hydra-optuna-sweeper brings optuna",
}


def compose_raw(
    overrides: Sequence[str] = (), *, config_name: str = "run", config_dir: str | None = None
) -> DictConfig:
    """Return the configuration that Hydra composes of these overrides, with its `hydra` node.

    config_dir: a further folder of configuration files. model=mini without a corpus takes
    data=mini, as it recognises no other speech. Raises UserError for what Hydra refuses.
    """
    for override in overrides:
        if group := re.match(r"[+~]*(method|model|data|tracker|experiment)=[\[{]", override):
            raise UserError(f"{override}: {group[1]} is one name of conf/{group[1]}/")
        if override.startswith("~hydra"):
            raise UserError(
                f"{override}: a group of Hydra's own cannot be left out; choose another of its "
                "files, as hydra/launcher=joblib"
            )
    settings = [*overrides, *mini_data(overrides)] if config_name in ("run", "align") else overrides
    extra = [f"hydra.searchpath=[file://{Path(config_dir).resolve()}]"] if config_dir else []
    # Hydra refuses to compose while its global state is set, as it is within one of its jobs.
    state = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            full = hydra_compose(config_name, [*settings, *extra], return_hydra_config=True)
    except UserError:
        raise
    except RecursionError as error:
        raise UserError(f"{config_name}: a setting is nested too deep; write it flat") from error
    except YAMLError as error:
        raise _of_yaml(error) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise explain(error, overrides, config_name, config_dir) from error
    finally:
        restore_gh_from_backup(state)
    for key in _with_nul(OmegaConf.to_container(full, resolve=False)):
        raise UserError(f"{key}: holds a NUL character, which no path or name has; leave it out")
    if full.hydra.job.chdir:
        raise UserError(
            "hydra.job.chdir=true: paths are relative to where the command is given; leave it out"
        )
    return full


def _with_nul(node: Any, key: str = "") -> Iterator[str]:
    """Yield the keys, as `method.beam`, of the texts below `node` that hold a NUL character.

    key: of the node itself, '' for the whole configuration.
    """
    if isinstance(node, dict | list):
        children = node.items() if isinstance(node, dict) else enumerate(node)
        for name, value in children:
            yield from _with_nul(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, str) and "\0" in node:
        yield key


def _of_yaml(error: YAMLError) -> UserError:
    """Return what is wrong in a file of the configuration, and where."""
    mark = getattr(error, "problem_mark", None)
    place = "a file of the configuration" if mark is None else f"{mark.name}:{mark.line + 1}"
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return UserError(f"{place}: is no YAML ({problem}); write key: value, indented by blanks alike")


@contextmanager
def explained() -> Iterator[None]:
    """Turn what OmegaConf raises in the `with` block into a UserError: the one that a resolver
    raised, or the one that `explain` makes."""
    try:
        yield
    except OmegaConfBaseException as error:
        raise _user_error_behind(error) or explain(error) from error


def _user_error_behind(error: BaseException | None) -> UserError | None:
    """Return the first UserError among an exception and its causes; None if there is none."""
    while error is not None:
        if isinstance(error, UserError):
            return error
        error = error.__cause__ or error.__context__
    return None


def mini_data(settings: Sequence[str]) -> list[str]:
    """Return data=mini where the settings name the model mini and neither data nor experiment."""
    keys = {key_of(setting) for setting in settings}
    return ["data=mini"] if "model=mini" in settings and not {"data", "experiment"} & keys else []


def explain(
    error: Exception,
    overrides: Sequence[str] = (),
    config_name: str = "run",
    config_dir: str | None = None,
) -> UserError:
    """Return an exception of Hydra or OmegaConf as a UserError with value, rule and remedy.

    They have one class for many mistakes, so the mistake is read from the text of the message.
    overrides, config_name, config_dir: what was composed (`compose_raw`).
    """
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _no_such_option(error)
    text = f"{error}\n{error.__cause__ or ''}"
    missing = re.search(
        r"Could not (?:override|append to config at) '([^']+)'|full_key: (\S+)", text
    )
    if "not in" in text and missing:
        return _no_such_key(missing[1] or missing[2], overrides, config_name, config_dir)
    if lacking := re.match(r"You must specify '(\w+)'", text):
        return UserError(
            f"{lacking[1]}: has no default; give {lacking[1]}=NAME of conf/{lacking[1]}/"
        )
    if several := re.match(r"Ambiguous value for argument '(.*?)'", text):
        return UserError(
            f"{several[1]}: several values where one is taken; `streaming-asr run -m` and "
            "`streaming-asr compare audio=FILE` take several"
        )
    if text.startswith("Config group override"):  # Hydra's message for method=null
        return UserError(
            "method, model, data and tracker: each takes the name of one file in conf/<group>/, "
            f"as tracker=none ({text.strip()})"
        )
    if "nterpolation" in text:
        reason = text.partition("resolving interpolation: ")[2] or text
        full_key = re.search(r"full_key: (\S+)", text)
        return UserError(
            f"{full_key[1] + ': ' if full_key else ''}{reason.strip().splitlines()[0]}; ${{...}} "
            "names another setting, or an environment variable as ${oc.env:NAME,default}"
        )
    return _wrong_value(text)


def _no_such_option(error: MissingConfigException) -> UserError:
    """Return the refusal of a file of conf/ that does not exist, as of method=alignat."""
    group, _, option = str(error.missing_cfg_file).rpartition("/")
    options = sorted(str(name) for name in error.options or ())
    letters = re.sub(r"[\W_]", "", option.lower())
    published = PUBLISHED_AS.get(letters) or PUBLISHED_AS.get(letters.removeprefix("whisper"))
    near = did_you_mean(published or option.removeprefix("whisper-"), options)
    outer_group, _, owner = group.partition("/")
    if outer_group in BY_PATH and owner:  # model=OWNER/REPO, a name of the hub
        path = f"{owner}/{option}"
        near = near if outer_group == "model" else ""
        remedy = f"{BY_PATH[outer_group]}{path}"
        return UserError(f"{outer_group}={path}: no such {outer_group}{near}; {remedy}")
    return UserError(
        f"{group}={option}: no such {group or 'configuration'}{near}; "
        f"there are {', '.join(options) or 'none'}{PLUGINS.get(group, '')}"
    )


def _wrong_value(text: str) -> UserError:
    """Return OmegaConf's message `text` about the value of a setting as one line, with the rule and
    the remedy where it is a usual mistake."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    keys = [line.partition(": ")[2] for line in lines if line.startswith("full_key")]
    reasons = [
        line for line in lines if not line.startswith(("full_key", "object_type", "Error merging"))
    ]
    if not keys:
        return UserError(" ".join(reasons[:2]))
    key = keys[0]
    kind = re.search(r"Value '(.*)' of type .* could not be converted to (\w+)", text)
    if kind and kind[2] in KINDS:
        return UserError(f"{key}={kind[1]}: must be {KINDS[kind[2]]}")
    several = re.search(r"Cannot convert '(?:list|dict)' to string: '(.*)'$", text, re.M)
    if several:
        return UserError(f"{key}={several[1]}: must be one value, no list and no mapping")
    if "is not Optional" in text:
        return UserError(f"{key}=null: must have a value; leave it out for its default")
    return UserError(f"{key}: {''.join(reasons[-1:])}")


def _no_such_key(
    key: str, overrides: Sequence[str], config_name: str, config_dir: str | None
) -> UserError:
    """Return the refusal of a key that the configuration does not have, with the nearest name and
    the keys that there are next to it."""
    setting = next((override for override in overrides if key_of(override) == key), key)
    if key == "experiment":  # a group, so its file has set keys of its own name
        return UserError(
            f"{setting}: its file must begin with `# @package _global_`, so that its settings are "
            f"those of {config_name}"
        )
    try:
        rest = [override for override in overrides if override != setting]
        config = compose_raw(rest, config_name=config_name, config_dir=config_dir)
    except UserError:  # another setting is wrong too, so the names are not available
        return UserError(f"{setting}: no such key")
    path, _, last = key.rpartition(".")
    parent = OmegaConf.select(config, path) if path else config
    if parent is None:  # the first part of the key does not exist
        first = key.partition(".")[0]
        return UserError(f"{setting}: no {first} to set{did_you_mean(first, map(str, config))}")
    names = sorted(set(map(str, parent)) - {"hydra", "_target_"})
    # Full keys by their last part. A key of the top level may be meant for one of the groups.
    full_keys = {name: f"{path}.{name}" if path else name for name in names}
    for group in GROUPS if not path else ():
        for name in config.get(group) or ():
            full_keys.setdefault(str(name), f"{group}.{name}")
    near = did_you_mean(last, full_keys)
    if near:
        nearest = near.removeprefix("; did you mean ").removesuffix("?")
        near = f"; did you mean {full_keys[nearest]}?"
    listed = ", ".join(names) or f"no settings before {path}=<name> is given"
    return UserError(f"{setting}: no such key{near}; {path or config_name} has {listed}")
