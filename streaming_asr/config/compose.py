"""Composes a configuration by Hydra and reports what is wrong: the value, the rule, the remedy.

Hydra finds the files that `method=`, `data=` and `experiment=` name and merges them once for all
cells that name the same ones; `method.beam=3` and the like are set here. So the setting that is
wrong is known, and no message is Hydra's or its parser's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException, MissingConfigException
from hydra.initialize import get_gh_backup, restore_gh_from_backup
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException
from yaml import YAMLError

from streaming_asr.config.command_line import is_path
from streaming_asr.config.schema import key_of, value_of
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR

# What the text of an exception of Hydra or OmegaConf has -> the message, with the groups of the
# pattern and the key; the first that fits counts.
EXPLAINED = {
    r"^You must specify '(\w+)'": "{0}: has no default; give {0}=NAME of conf/{0}/",
    r"Value '(.*)' of .* converted to Integer": "{key}={0}: must be a whole number",
    r"Value '(.*)' of .* converted to Float": "{key}={0}: must be a number",
    r"Value '(.*)' of .* converted to Boolean": "{key}={0}: must be true or false",
    r"Cannot convert '(?:list|dict|\w+Config)' to string: '(.*)'$": (
        "{key}={0}: must be one value, no list and no mapping"
    ),
    r"Invalid value '(.*)', expected one of \[(.*)\]": "{key}={0}: one of {1}",
    "is not Optional": "{key}=null: must have a value; leave it out for its default",
    "(?i)merg|Invalid type assigned|mapping": (
        "{key}: a mapping and one value cannot be merged; set one of its keys, as {key}.KEY="
    ),
}
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
    """Return the configuration of these overrides, with Hydra's own node `hydra`.

    config_dir: a further folder of configuration files. model=mini without a corpus takes
    data=mini, as it recognises no other speech. Raises UserError for what cannot be composed.
    """
    added = mini_data(overrides) if config_name in ("run", "align") else []
    parsed = parse([*overrides, *added])
    places = f"file://{Path(config_dir).resolve()}" if config_dir else ""
    chosen = choosing(parsed, config_name, places)
    full: DictConfig = chosen_files(config_name, tuple(_line(each) for each in chosen), places)
    full = full.copy()
    for override in parsed:
        if override not in chosen:
            _set(full, override, config_name)
    lines = full.hydra.overrides
    lines.hydra = [_line(each) for each in parsed if each.is_hydra_override()]
    lines.task = [_line(each) for each in parsed if not each.is_hydra_override()]
    for key, value in leaves(OmegaConf.to_container(full, resolve=False)):
        if isinstance(value, str) and "\0" in value:
            raise UserError(
                f"{key}: holds a NUL character, which no path or name has; leave it out"
            )
    if isinstance(verbose := full.hydra.verbose, int) and not isinstance(verbose, bool):
        raise UserError(f"hydra.verbose={verbose}: must be true, false or the name of a logger")
    if full.hydra.job.chdir:
        raise UserError(
            "hydra.job.chdir=true: paths are relative to where the command is given; leave it out"
        )
    return full


def mini_data(settings: Sequence[str]) -> list[str]:
    """Return data=mini where the settings name the model mini and neither data nor experiment."""
    keys = {key_of(setting) for setting in settings}
    return ["data=mini"] if "model=mini" in settings and not {"data", "experiment"} & keys else []


# -- the command line -----------------------------------------------------------------------


def parse(overrides: Sequence[str]) -> list[Override]:
    """Return Hydra's form of each override. Raises UserError for one that it cannot read."""
    parser = OverridesParser.create()
    parsed = []
    for override in overrides:
        key, value, text = key_of(override), value_of(override), _shown(override)
        if not re.fullmatch(r"[A-Za-z_][\w-]*([./][\w-]+)*", key, re.ASCII):
            plain = re.split(r"[@:]", key)[0]
            near = f"; write {plain}={_shown(value)}" if re.search("[@:]", key) and plain else ""
            raise UserError(
                f"{text}: {_shown(key)!r} is no key; settings are key=value, and a key has "
                f"letters, digits, _ and dots, as method.beam=3{near}"
            )
        try:
            parsed.append(parser.parse_override(override))
        except (HydraException, RecursionError) as error:
            reason = "nested too deep" if isinstance(error, RecursionError) else "cannot be read"
            quoted = f"{key}='{_shown(value).strip(chr(39) + chr(34))}'"
            raise UserError(
                f"{text}: not key=value ({reason}); quote a value that holds blanks, brackets or "
                f'other signs, for the shell as well: "{quoted}"'
            ) from error
    return parsed


def values_of(override: Override) -> list[str]:
    """Return `key=value` for each value of an override. Raises UserError for a sweep whose values
    Hydra does not list, as an interval."""
    if not override.is_sweep_override():
        return [_line(override)]
    if not override.is_discrete_sweep() or override.value_type == ValueType.GLOB_CHOICE_SWEEP:
        raise UserError(
            f"{_line(override)}: a sweep lists its values, as in chunk=100ms,300ms, or counts "
            "them, as in seed=range(0,3)"
        )
    return [f"{override.get_key_element()}={v}" for v in override.sweep_string_iterator()]


def _line(override: Override) -> str:
    return str(override.input_line)


def _shown(text: str, most: int = 200) -> str:
    """Return a text in one line, for a message."""
    return " ".join(text[:most].split())


def choosing(parsed: Sequence[Override], config_name: str, places: str) -> list[Override]:
    """Return the overrides that choose files, as `method=ufal` and `hydra/launcher=joblib`, or the
    folders of files. Raises UserError for one whose value is no name of a file.

    places: folders of further files, as `file://A,file://B`.
    """
    folders = _folders(parsed, places)
    chosen = []
    for override in parsed:
        key, line = str(override.key_or_group), _line(override)
        is_group = any((folder / key).is_dir() for folder in folders)
        if not is_group and "/" not in key and key != "hydra.searchpath":
            continue
        chosen.append(override)
        if key == "hydra.searchpath":
            continue
        if override.is_sweep_override():
            raise _several_values(line)
        name = override.value()
        options = sorted(file.stem for f in folders for file in (f / key).glob("*.yaml"))
        if override.is_delete():
            if key.startswith("hydra"):
                raise UserError(
                    f"{line}: a group of Hydra's own cannot be left out; choose another of its "
                    "files, as hydra/launcher=joblib"
                )
        elif override.is_add() and (CONF_DIR / key).is_dir():
            raise UserError(f"{line}: {key} has a default; write {line.lstrip('+')}")
        elif not isinstance(name, str) and not (name is None and key == "experiment"):
            raise UserError(
                f"{line}: {key} is one name of conf/{key}/, as {key}={[*options, 'NAME'][0]}"
            )
        elif isinstance(name, str) and (name != name.strip("/. ") or ".." in name or not name):
            near = did_you_mean(name.strip("/. ").rpartition("/")[2], options)
            raise UserError(f"{line}: no such {key}{near}; there are {', '.join(options)}")
    return chosen


def _folders(parsed: Sequence[Override], places: str) -> list[Path]:
    """Return the folders in which Hydra searches for files of the configuration."""
    lists = [each.value() for each in parsed if each.key_or_group == "hydra.searchpath"]
    further = [str(place) for each in lists if isinstance(each, list) for place in each]
    return [
        CONF_DIR,
        *(Path(p.removeprefix("file://")) for p in [*places.split(","), *further] if p),
    ]


def _several_values(setting: str) -> UserError:
    return UserError(
        f"{key_of(setting)}: several values where one is taken; `streaming-asr run -m` and "
        "`streaming-asr compare audio=FILE` take several"
    )


def _set(config: DictConfig, override: Override, config_name: str) -> None:
    """Do in `config` what an override asks that chooses no file. Raises UserError."""
    key, line = str(override.key_or_group), _line(override)
    path, _, last = key.rpartition(".")
    if override.is_sweep_override():
        raise _several_values(line)
    try:
        parent = OmegaConf.select(config, path, throw_on_missing=False) if path else config
        has = isinstance(parent, DictConfig) and last in parent.keys()  # noqa: SIM118  missing ones too
        if override.is_delete():
            if not has:
                raise _no_such_key(line, key, config, config_name)
            if override.value() not in (None, parent[last]):
                raise UserError(f"{_shown(line)}: {key} is {parent[last]}; write ~{key}")
            with open_dict(config):
                del parent[last]
        elif override.is_add() and has:
            raise UserError(f"{_shown(line)}: {key} is there already; write {_shown(line[1:])}")
        # + adds a key to a group, as +method.new=3; the top level takes none.
        elif not has and not (line.startswith("+") and path and isinstance(parent, DictConfig)):
            raise _no_such_key(line, key, config, config_name)
        else:
            value = override.value()
            if (
                has
                and isinstance(parent._get_node(last), DictConfig)
                and not isinstance(value, dict)
            ):
                raise UserError(f"{_shown(line)}: {key} has several settings; give {key}.KEY=value")
            if is_path(key) and value is not None and not isinstance(value, str):
                if isinstance(value, list | dict):
                    raise UserError(f"{key}={value}: must be one value, no list and no mapping")
                value = value_of(line)
            OmegaConf.update(config, key, value, merge=True, force_add=True)
    except OmegaConfBaseException as error:
        raise explain(error, key=key) from error


# -- the files ------------------------------------------------------------------------------


def chosen_files(config_name: str, overrides: tuple[str, ...], places: str = "") -> DictConfig:
    """Return the configuration that Hydra composes of files; copy it before you change it.

    overrides: those that choose files. places: see `choosing`. Raises UserError.
    """
    files = [file for folder in _folders((), places)[1:] for file in folder.glob("**/*.yaml")]
    return _chosen_files(config_name, overrides, places, tuple(map(_changed_ns, files)))


def _changed_ns(file: Path) -> int:
    return file.stat().st_mtime_ns if file.is_file() else 0


@lru_cache(maxsize=64)
def _chosen_files(
    config_name: str, overrides: tuple[str, ...], places: str, _changed: tuple[int, ...]
) -> DictConfig:
    """Return `chosen_files`, composed once as long as no file of the user's folders changes."""
    extra = [f"hydra.searchpath=[{places}]"] if places else []
    # Hydra refuses to compose while its global state is set, as it is within one of its jobs.
    state = get_gh_backup()
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF_DIR), version_base="1.3"):
            full = hydra_compose(config_name, [*overrides, *extra], return_hydra_config=True)
    except UserError:
        raise
    except RecursionError as error:
        raise UserError(f"{config_name}: a setting is nested too deep; write it flat") from error
    except YAMLError as error:
        raise _of_yaml(error) from error
    except MissingConfigException as error:
        raise _no_such_option(error) from error
    except (HydraException, OmegaConfBaseException, ValueError, TypeError, OSError) as error:
        raise _refused_file(error, config_name, overrides, places) from error
    finally:
        restore_gh_from_backup(state)
    _check_users_files(full, config_name, places)
    return full


def _check_users_files(full: DictConfig, config_name: str, places: str) -> None:
    """Raise UserError for a chosen file of the user's folder that has the name of the package's
    own, which Hydra takes instead of it, or a key that only Hydra uses."""
    choices = {str(group): str(name) for group, name in full.hydra.runtime.choices.items()}
    names = [f"{group}/{name}.yaml" for group, name in choices.items()]
    for folder in _folders((), places)[1:]:
        for name in [f"{config_name}.yaml", *names]:
            users, ours = folder / name, CONF_DIR / name
            text = users.read_text("utf-8", "replace") if users.is_file() else ""
            if key := re.search(r"^_(?!target_)\w+_(?=:)", text, re.M):
                line = text.count("\n", 0, key.start()) + 1
                raise UserError(f"{users}:{line}: {key[0]} is a key of Hydra's own; leave it out")
            if users.is_file() and ours.is_file() and users.read_bytes() != ours.read_bytes():
                stem = (
                    f"{users.parent.name}/my_{users.name}"
                    if "/" in name
                    else "experiment/mine.yaml"
                )
                raise UserError(
                    f"{users}: has the name of a file of the package, which would be taken; "
                    f"rename it, as {stem}"
                )


def _of_yaml(error: YAMLError) -> UserError:
    """Return what is wrong in a file of the configuration, and where."""
    mark = getattr(error, "problem_mark", None)
    place = "a file of the configuration" if mark is None else f"{mark.name}:{mark.line + 1}"
    problem = getattr(error, "problem", None) or str(error).partition("\n")[0]
    return UserError(f"{place}: is no YAML ({problem}); write key: value, indented by blanks alike")


def _refused_file(
    error: Exception, config_name: str, overrides: Sequence[str], places: str
) -> UserError:
    """Return what is wrong in a chosen file, which Hydra's message `error` begins with."""
    deleted = [each for each in overrides if each.startswith("~")]
    if deleted and str(error).startswith("Could not delete"):
        return UserError(f"{deleted[0]}: is not chosen; leave it out")
    named = re.match(r"In '([^']+)'", str(error))
    stems = [named[1]] if named else [f"{key_of(each)}/{value_of(each)}" for each in overrides]
    files = [folder / f"{stem}.yaml" for stem in stems for folder in _folders((), places)[::-1]]
    files = [file for file in files if file.is_file()]
    if isinstance(error, UnicodeDecodeError):
        broken = next((f for f in files if f.read_bytes() == error.object), "a file of conf")
        return UserError(f"{broken}: is no UTF-8 text; save it as UTF-8")
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ConfigKeyError):
        cause = cause.__cause__ or cause.__context__
    file = files[0] if named and files else Path(f"{config_name}.yaml")
    if cause is None or not named:
        refusal = explain(error, key=" ".join(overrides) or config_name)
        return UserError(f"{file}: {refusal}") if named else refusal
    key = str(cause.full_key or cause.key)
    if key == "experiment":  # a group, so its file has set keys of its own name
        return UserError(
            f"experiment={file.stem}: its file must begin with `# @package _global_`, so that its "
            f"settings are those of {config_name}"
        )
    rest = tuple(each for each in overrides if key_of(each) != "experiment")
    if rest == overrides:  # no experiment is at fault, so the names are not available
        return UserError(f"{file}: {key}: no such key; correct it, or leave it out")
    return _no_such_key(f"{file}: {key}", key, chosen_files(config_name, rest, places), config_name)


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
        f"{group}={_shown(option)}: no such {group or 'configuration'}{near}; "
        f"there are {', '.join(options) or 'none'}{PLUGINS.get(group, '')}"
    )


def _no_such_key(setting: str, key: str, config: DictConfig, config_name: str) -> UserError:
    """Return the refusal of a key that `config` does not have, with the nearest name and the keys
    that there are next to it. setting: what the message begins with."""
    setting = _shown(setting)
    path, _, last = key.rpartition(".")
    parent = OmegaConf.select(config, path) if path else config
    if parent is None:  # the first part of the key does not exist
        first = key.partition(".")[0]
        groups = [name for name in map(str, config) if name not in ("hydra", first)]
        inner = [
            g for g in groups if isinstance(OmegaConf.select(config, f"{g}.{first}"), DictConfig)
        ]
        near = f"; did you mean {inner[0]}.{key}?" if inner else did_you_mean(first, groups)
        return UserError(f"{setting}: no {first} to set{near}")
    if not isinstance(parent, DictConfig):
        return UserError(f"{setting}: {path} is one value, and has no {last} to set")
    names = sorted(set(map(str, parent)) - {"hydra", "_target_"})
    # Full keys by their last part. A key of the top level may be meant for one of the groups.
    full_keys = {name: f"{path}.{name}" if path else name for name in names}
    for group in GROUPS if not path else ():
        for name in config.get(group) or ():
            full_keys.setdefault(str(name), f"{group}.{name}")
    # A whole name of a group comes before a similar one of the top level.
    near = did_you_mean(last, full_keys if last in full_keys else names) or did_you_mean(
        last, full_keys
    )
    if path and last in config and last not in names:  # data.limit for limit
        near = f"; did you mean {last}?"
    elif near:
        nearest = near.removeprefix("; did you mean ").removesuffix("?")
        near = f"; did you mean {full_keys[nearest]}?"
    listed = ", ".join(names) or f"no settings before {path}=<name> is given"
    return UserError(f"{setting}: no such key{near}; {path or config_name} has {listed}")


# -- what Hydra and OmegaConf raise ---------------------------------------------------------


def leaves(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value below `node` that is neither a mapping nor a list, behind its key, as
    `method.beam`. key: of the node itself, '' for the whole configuration."""
    if isinstance(node, dict | list):
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


@contextmanager
def explained() -> Iterator[None]:
    """Turn what OmegaConf raises in the `with` block into a UserError (`explain`)."""
    try:
        yield
    except OmegaConfBaseException as error:
        raise explain(error) from error


def explain(error: Exception, key: str = "the settings") -> UserError:
    """Return an exception of Hydra or OmegaConf as a UserError with value, rule and remedy: the
    UserError that a resolver raised, or one made from the text of the message, as they have one
    class for many mistakes. key: what was set, where the exception does not name it."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, UserError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = f"{error}\n{error.__cause__ or ''}"
    named = re.search(r"full_key: (\S+)", text)
    key = str(getattr(error, "full_key", None) or (named[1] if named else key))
    if "nterpolation" in text or "resolver" in text:
        name = re.search(r"(variable) '(\w+)'|key '([^']*)' not found|type (\S+)", text)
        what = "it names itself, or nothing"
        if name:
            what = f"there is no {' '.join(filter(None, name.groups()))}"
        return UserError(
            f"{key}: its ${{...}} cannot be filled in ({what}); it names another setting, or an "
            "environment variable as ${oc.env:NAME,default}"
        )
    if other := re.search(r"Could not override '([^']*)'", text):
        near = did_you_mean(other[1], GROUPS)
        return UserError(f"defaults: there is no {other[1]} to override{near}")
    for pattern, message in EXPLAINED.items():
        if match := re.search(pattern, text, re.M):
            return UserError(message.format(*map(_shown, match.groups()), key=key))
    return UserError(f"{key}: cannot be composed; check its keys and values, one by one")
