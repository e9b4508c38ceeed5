"""Makes objects of a configuration, and programs of a job: only here settings become code."""

from __future__ import annotations

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
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw, explained
from streaming_asr.config.types import check_arguments
from streaming_asr.errors import UserError, did_you_mean
from streaming_asr.files import CONF_DIR
from streaming_asr.terminal import exit_status, loading


def build(node: DictConfig | Mapping[str, Any], **extra: Any) -> Any:
    """Return the object that a node with `_target_` describes; only here configuration becomes
    code.

    Raises UserError for settings that do not fit the target (`check_arguments`), and what the
    target raises, not Hydra's wrapping of it.
    """
    plain = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    try:
        return instantiate(check_arguments(plain), _convert_="all", **extra)
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
    top["guard"] = "none"  # as in the papers
    config = OmegaConf.create({"method": node, "model": {"path": str(model_path)}, **top})
    if "weights" in config.method:
        config.method.weights = None
    unknown = sorted(set(settings) - set(config.method))
    if unknown:
        raise UserError(f"method={name}: no setting {unknown[0]}{did_you_mean(unknown[0], node)}")
    values = OmegaConf.to_container(config.method, resolve=True)
    return build({**values, **settings})  # type: ignore[dict-item]


def program(config_name: str, job: Callable[[DictConfig], Any], *, loads: str | None = None) -> int:
    """Run `job` on the configuration that the command line makes of conf/<config_name>.yaml and
    return the exit status: the job's own where it returns one, 2 for a UserError, which is told.

    What is asked with --help or --cfg, and a sweep, Hydra does. loads: what the job will load,
    which is printed first.
    """

    statuses: list[int] = []

    def exit_code(config: DictConfig) -> int:
        with explained():
            return int(job(config) or 0)

    def each(config: DictConfig) -> None:
        statuses.append(exit_status(lambda: exit_code(config)))

    def run() -> int:
        line = CommandLine(sys.argv[1:])
        line.default_data()
        if line.asks or line.multirun:
            by_hydra(config_name, each, line.argv, sys.argv[0])
            return max(statuses, default=0)
        if loads is not None:
            loading(loads)
        full = compose_raw(line.settings, config_name=config_name, config_dir=line.config_dir)
        begin(full)
        with open_dict(full):
            del full["hydra"]
        return exit_code(full)

    return exit_status(run)


def begin(full: DictConfig) -> None:
    """Set what Hydra would set before a job: its own node for `HydraConfig.get`, the logging."""
    HydraConfig.instance().set_config(full.copy())
    configure_log(full.hydra.job_logging, full.hydra.verbose)


def by_hydra(
    config_name: str, job: Callable[[DictConfig], Any], argv: Sequence[str], prog: str
) -> None:
    """Let Hydra take the command line and call `job`, in this process or in a launcher's.

    --help is answered here: Hydra reads every file of conf/ for it, which takes a second. With
    --resolve what cannot be resolved is refused here, as Hydra prints its own traceback.
    """
    if {"-h", "--help", "--resolve"} & set(argv):
        line = CommandLine(argv)
        settings = [s for s in line.settings if "=" in s]  # not the `job` of --cfg
        full = compose_raw(settings, config_name=config_name, config_dir=line.config_dir)
        template = full.hydra.help.template
        with open_dict(full):
            del full["hydra"]
    if "--resolve" in argv:
        with explained():
            OmegaConf.resolve(full)
    elif {"-h", "--help"} & set(argv):
        print(Template(template).safe_substitute(CONFIG=OmegaConf.to_yaml(full)))
        return
    before, sys.argv = sys.argv, [prog, *argv]
    try:
        hydra.main(config_path=str(CONF_DIR), config_name=config_name, version_base="1.3")(job)()
    finally:
        sys.argv = before
