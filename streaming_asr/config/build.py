"""Makes objects of a configuration, and programs of a job: only here settings become code."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import configure_log
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict

import streaming_asr.config.naming  # noqa: F401  makes the resolver of a cell's name
from streaming_asr.config.command_line import MULTIRUN, CommandLine
from streaming_asr.config.compose import compose_raw, explained, parse, values_of
from streaming_asr.config.schema import key_of, value_of
from streaming_asr.config.types import check_arguments
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR
from streaming_asr.terminal import exit_status, loading


def build(node: DictConfig | Mapping[str, Any], **extra: Any) -> Any:
    """Return the object that a node with `_target_` describes.

    extra: further arguments of the constructor. Raises UserError for settings that do not fit the
    target (`check_arguments`), and what the target raises, not Hydra's wrapping of it.
    """
    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    try:
        return instantiate(check_arguments(plain, extra=list(extra)), _convert_="all", **extra)
    except InstantiationException as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise


def new_method(name: str, model_path: str | Path | None = None, **settings: Any) -> Any:
    """Return the method of conf/method/<name>.yaml, with `settings` instead of its own values.

    For programs that call a method outside a run: on the CPU, at 300 ms, without trained weights
    unless `settings` name them. Raises UserError for a setting that the method does not have.
    """
    node = OmegaConf.load(CONF_DIR / "method" / f"{name}.yaml")
    # The method's file refers to these settings of a run.
    run = {
        "chunk": "300ms",
        "first_chunk": None,
        "device": "cpu",
        "dtype": "float32",
        "prompt": None,
    }
    run["guard"] = "none"  # as in the papers
    config = OmegaConf.create({"method": node, "model": {"path": str(model_path)}, **run})
    if "weights" in config.method:
        config.method.weights = None
    unknown = sorted(set(settings) - set(config.method))
    if unknown:
        raise UserError(f"method={name}: no setting {unknown[0]}{did_you_mean(unknown[0], node)}")
    values = OmegaConf.to_container(config.method, resolve=True)
    return build({**values, **settings})  # type: ignore[dict-item]


def program(config_name: str, job: Callable[[DictConfig], Any], *, loads: str | None = None) -> int:
    """Run `job` on conf/<config_name>.yaml with the settings of the command line, and return the
    exit status: what the job returns, 0 for None, and 2 for a UserError, whose message is printed.

    Hydra itself answers --help and --cfg and runs a sweep. loads: what the job will load, which is
    printed first.
    """

    statuses: list[int] = []  # of the jobs that Hydra calls, whose return values it drops

    def status_of(config: DictConfig) -> int:
        with explained():
            return int(job(config) or 0)

    def called_by_hydra(config: DictConfig) -> None:
        statuses.append(exit_status(lambda: status_of(config)))

    def run() -> int:
        line = CommandLine(sys.argv[1:])
        line.default_data()
        if line.asks or line.multirun:
            by_hydra(config_name, called_by_hydra, line.argv, sys.argv[0])
            return max(statuses, default=0)
        if loads is not None:
            loading(loads)
        full = compose_raw(line.settings, config_name=config_name, config_dir=line.config_dir)
        begin(full)
        with open_dict(full):
            del full["hydra"]
        return status_of(full)

    return exit_status(run)


def begin(full: DictConfig) -> None:
    """Do what Hydra does before a job: set its own node for `HydraConfig.get`, and the logging."""
    HydraConfig.instance().set_config(full.copy())
    configure_log(full.hydra.job_logging, full.hydra.verbose)


# Hydra refuses two of these, by a traceback.
EXCLUSIVE = (*MULTIRUN, "-c", "--cfg", "-i", "--info", "-r", "--run", "-sc", "--shell-completion")


def _check_exclusive(argv: Sequence[str]) -> None:
    """Raise UserError for two options of which Hydra takes one."""
    options = [word for word in argv if word.partition("=")[0] in EXCLUSIVE]
    if len(options) > 1:
        raise UserError(
            f"{' and '.join(options)}: give one of them; --cfg and --info show the settings of one "
            "cell, without -m and with one value for each"
        )


def by_hydra(
    config_name: str, job: Callable[[DictConfig], Any], argv: Sequence[str], prog: str
) -> None:
    """Let Hydra read the command line `argv` and call `job`, in this process or in a launcher's.

    prog: the program's name in Hydra's messages. --help is answered here, since Hydra would read
    every file of conf/ first, which takes a second. Raises UserError for what Hydra would refuse in
    words of its own: settings that cannot be composed, of each cell of a sweep, and resolved with
    --resolve, and two options that exclude each other.
    """
    _check_exclusive(argv)
    line = CommandLine(argv)
    completes = {"-sc", "--shell-completion"} & set(argv)  # its install=bash is no setting
    settings = [s for s in line.settings if "=" in s or s[:1] in "+~"]  # not `job` of --cfg
    settings = [] if completes else settings
    values = [values_of(override) for override in parse(settings)]
    if not line.multirun and (several := next((v for v in values if len(v) > 1), None)):
        values = [[f"{key_of(several[0])}={','.join(map(value_of, several))}"]]  # is refused
    for cell in itertools.product(*values):
        full = compose_raw(cell, config_name=config_name, config_dir=line.config_dir)
    template = full.hydra.help.template
    with open_dict(full):
        del full["hydra"]
    if "--resolve" in argv:
        with explained():
            OmegaConf.resolve(full)
    elif {"-h", "--help"} & set(argv):
        print(Template(template).safe_substitute(CONFIG=OmegaConf.to_yaml(full)))
        return
    old_argv, sys.argv = sys.argv, [prog, *argv]
    try:
        hydra.main(config_path=str(CONF_DIR), config_name=config_name, version_base="1.3")(job)()
    finally:
        sys.argv = old_argv
