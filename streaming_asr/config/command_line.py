"""Takes a command line apart: its key=value settings, Hydra's options, the questions to Hydra."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from streaming_asr.config.defaults import defaults_of
from streaming_asr.config.schema import RunConfig, key_of, value_of
from streaming_asr.errors import UserError

MULTIRUN = ("-m", "--multirun")
# Best first for voices outside the training data, by dev (docs/choosing.md).
WITH_HUSH_WORD = ("hush_word", "simul_whisper")  # where the package's knows the language
WITHOUT = ("simul_whisper", "ufal")  # which need no weights of their own
SETTINGS = frozenset(field.name for field in fields(RunConfig)) | {"experiment", "audio"}
MANIFESTS = (".jsonl", ".json")
CONFIG_DIR = ("-cd", "--config-dir")
PATHS = ("audio", "dev_manifest", "out", "output", "reference", "session", "train_data")
# Options that Hydra answers.
HYDRAS = ("help", "hydra-help", "version", "cfg", "resolve", "package", "run", "multirun", "info",
          "shell-completion", "config-path", "config-name", "config-dir",
          "experimental-rerun")  # fmt: skip


class CommandLine:
    """A command line of `run` and of the commands that take its settings.

    settings: `key=value` as they were written, in order. multirun: -m was given. config_dir: the
    folder of further configuration behind -cd. asks: another option stands there, as --help or
    --cfg, which is Hydra's to answer. Raises UserError for what can be no setting.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        check_options(argv)
        self._given = list(argv)
        self.settings: list[str] = []
        self.multirun, self.config_dir, self.asks = False, None, False
        rest = iter(argv)
        for argument in rest:
            if argument in MULTIRUN:
                self.multirun = True
            elif argument in CONFIG_DIR:
                self.config_dir = next(rest, None)
                if not self.config_dir or not Path(self.config_dir).is_dir():
                    named = " ".join(filter(None, (argument, self.config_dir)))
                    raise UserError(f"{named}: no such folder; name one of configuration files")
            elif argument.startswith("-"):
                self.asks = True
            else:
                self.settings.append(argument)
        _check_commas(self.settings)
        for key in map(key_of, [each for each in self.settings if each.endswith("=")]):
            if is_path(key):
                raise UserError(f"{key}=: is empty; name a file or a folder, or leave {key} out")
        if not self.asks and (bare := [s for s in self.settings if s[:1] != "~" and "=" not in s]):
            for key, unit in pairwise(self.settings):
                if unit in ("ms", "s") and key[-1:].isdigit():
                    raise UserError(f"{key} {unit}: holds a blank; write {key}{unit}")
            check_bare(self.settings)
            raise UserError(
                f"{bare[0]}: settings are written key=value; a recording is audio={bare[0]} for "
                f"live and compare, data=folder data.path={bare[0]} for the others"
            )

    @property
    def argv(self) -> list[str]:
        """Return the arguments as Hydra takes them, which refuses -m among the settings."""
        if self.asks:
            return sorted(self._given, key=lambda argument: argument not in MULTIRUN)
        options = [MULTIRUN[0]] * self.multirun
        options += [CONFIG_DIR[0], self.config_dir] if self.config_dir else []
        return [*options, *self.settings]

    def get(self, key: str) -> str | None:
        """Return the value of a setting, the last where it stands twice; None without it."""
        return next((value_of(s) for s in reversed(self.settings) if key_of(s) == key), None)

    def pop(self, key: str, default: str | None = None) -> str | None:
        """Return the value of a setting and take it away; `default` without it."""
        value = self.get(key)
        self.settings = [setting for setting in self.settings if key_of(setting) != key]
        return default if value is None else value

    def default(self, **values: str) -> None:
        """Add each setting that is not given."""
        self.settings += [f"{key}={v}" for key, v in values.items() if self.get(key) is None]

    def default_data(self) -> None:
        """Add the corpus that `data.path=FILE` alone means."""
        path = self.get("data.path")
        if path is not None and self.get("experiment") is None:
            self.default(data="manifest" if path.endswith(MANIFESTS) else "folder")

    def default_methods(self, n: int) -> None:
        """Where no method is given, add `n` that serve any voice; add the methods' chunk and
        threads where those are not given."""
        if self.get("method") is None:
            model, language = self.get("model"), self.get("language")
            has_word = model in (None, "tiny.en") or (model, language) == ("base", "en")
            names = WITH_HUSH_WORD if has_word else WITHOUT
            self.default(method=",".join(names[:n]))
        if self.get("experiment") is None:
            row = defaults_of([name.strip() for name in str(self.get("method")).split(",")])
            self.default(chunk=row.chunk)
            if row.threads is not None:
                self.default(threads=str(row.threads))


def data_of(path: Path) -> list[str]:
    """Return the settings that name a recording, or a folder of them, as data."""
    quoted = str(path.absolute()).replace("'", r"\'")
    return ["data=folder", f"data.path='{quoted}'"]


def is_path(key: str) -> bool:
    """Return whether a setting names a file or a folder."""
    return key in PATHS or key.endswith((".path", ".alignments", ".weights"))


def check_bare(words: Sequence[str]) -> None:
    """Raise UserError for a setting whose key and value stand apart, as in `method ufal`."""
    for key, value in pairwise([*words, "<value>"]):
        if key in SETTINGS:
            value = "<value>" if "=" in value else value
            raise UserError(f"{key}: settings are written key=value; write {key}={value}")


def _check_commas(settings: Sequence[str]) -> None:
    """Raise UserError for a comma with nothing before or behind it."""
    for setting, after in pairwise([*settings, ""]):
        if not re.search(r"=,|,,|,$", setting) or setting[-1:] in "'\"]}":
            continue
        whole = setting if "=" in after or not setting.endswith(",") else setting + after
        remedy = re.sub(r"=,", "=", re.sub(r",+", ",", whole)).rstrip(",")
        raise UserError(f"{setting}: a comma joins two values, without blanks; write {remedy}")


def check_options(argv: Sequence[str], extra: Sequence[str] = ()) -> None:
    """Raise UserError for text that is no UTF-8 and for a setting written as an option; `own`: the
    options of the command."""
    for at, argument in enumerate(argv):
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{argument!r}: is no UTF-8 text; rename the file") from error
        name = key_of(argument.removeprefix("--"))
        if argument.startswith("--") and name not in (*HYDRAS, *extra):
            key = name.replace("-", "_")
            value = value_of(argument) or next(iter(argv[at + 1 : at + 2]), "<value>")
            raise UserError(f"{argument}: settings are written key=value; write {key}={value}")
