"""Takes a command line apart: its key=value settings, Hydra's options, the questions to Hydra."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from streaming_asr.config.defaults import chunk_of
from streaming_asr.config.schema import RunConfig, key_of, value_of
from streaming_asr.errors import UserError

MULTIRUN = ("-m", "--multirun")
# Best first for voices outside the training data, by dev (docs/choosing.md).
WITH_HUSH_WORD = ("hush_word", "simul_whisper")  # where the package's knows the language
WITHOUT = ("simul_whisper", "ufal")  # which need no weights of their own
SETTINGS = frozenset(field.name for field in fields(RunConfig)) | {"experiment", "audio"}
MANIFESTS = (".jsonl", ".json")
CONFIG_DIR = ("-cd", "--config-dir")
PATHS = ("audio", "dev_manifest", "out", "output", "reference", "train_data")
# What has no effect on audio that is no corpus; `data.` means all settings of data.
OF_A_CORPUS = ("data", "data.", "limit", "batch", "feed", "pieces", "piece")
# What users look for under other names.
ELSEWHERE = {
    "list": "`streaming-asr list` shows methods, models, corpora and experiments",
    "format": "a form is --srt, --vtt or --json of transcribe and report",
}
# Options that Hydra answers.
HYDRAS = ("help", "hydra-help", "version", "cfg", "resolve", "package", "run", "multirun", "info",
          "shell-completion", "config-path", "config-name", "config-dir",
          "experimental-rerun")  # fmt: skip


class CommandLine:
    """A command line of `run` and of the commands that take its settings.

    settings: `key=value` as they were written, in order. multirun: -m was given. config_dir: the
    folder of further configuration behind -cd. asks: another option is there, as --help or
    --cfg, which is Hydra's to answer. Raises UserError for what can be no setting.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        check_options(argv)
        self._arguments = list(argv)
        self.settings: list[str] = []
        self.multirun, self.config_dir, self.asks = False, None, False
        arguments = iter(argv)
        for argument in arguments:
            if argument in MULTIRUN:
                self.multirun = True
            elif argument in CONFIG_DIR:
                self.config_dir = next(arguments, None)  # the option's value
                if not self.config_dir or not Path(self.config_dir).is_dir():
                    option = f"{argument} {self.config_dir or ''}".strip()
                    raise UserError(f"{option}: no such folder; name one of configuration files")
            elif argument.startswith("-"):
                self.asks = True
            else:
                self.settings.append(argument)
        _check_commas(self.settings)
        for setting in self.settings:
            key = key_of(setting)
            if key in ELSEWHERE:
                raise UserError(f"{setting}: {ELSEWHERE[key]}")
            if setting.endswith("=") and is_path(key):
                raise UserError(f"{key}=: is empty; name a file or a folder, or leave {key} out")
        if not self.asks:  # `--cfg job` puts a word without = among the settings
            self._check_are_settings()

    def _check_are_settings(self) -> None:
        """Raise UserError for the first word that is neither `key=value` nor `~key`."""
        words = [s for s in self.settings if not s.startswith("~") and "=" not in s]
        if not words:
            return
        for before, word in pairwise(self.settings):
            if word in ("ms", "s") and before[-1:].isdigit():
                raise UserError(f"{before} {word}: holds a blank; write {before}{word}")
        check_bare(self.settings)
        raise UserError(
            f"{words[0]}: settings are written key=value; a recording is audio={words[0]} for "
            f"live and compare, data=folder data.path={words[0]} for the others"
        )

    @property
    def argv(self) -> list[str]:
        """Return the arguments in an order that Hydra takes: it refuses -m after a setting."""
        if self.asks:
            return sorted(self._arguments, key=lambda argument: argument not in MULTIRUN)
        options = [MULTIRUN[0]] if self.multirun else []
        if self.config_dir:
            options += [CONFIG_DIR[0], self.config_dir]
        return [*options, *self.settings]

    def get(self, key: str) -> str | None:
        """Return the value of the last setting with this key; None if there is none."""
        return next((value_of(s) for s in reversed(self.settings) if key_of(s) == key), None)

    def pop(self, key: str, default: str | None = None) -> str | None:
        """Remove a setting and return its value; `default` if there is none."""
        value = self.get(key)
        self.settings = [setting for setting in self.settings if key_of(setting) != key]
        return default if value is None else value

    def refuse(self, keys: Sequence[str], command: str) -> None:
        """Raise UserError for a setting with one of `keys`, which has no effect in `command`."""
        for setting in self.settings:
            key = key_of(setting)
            if key in keys or f"{key.partition('.')[0]}." in keys:
                raise UserError(f"{setting}: has no effect in {command}; leave it out")

    def default(self, **values: str) -> None:
        """Add each setting that is not given."""
        self.settings += [f"{key}={v}" for key, v in values.items() if self.get(key) is None]

    def to_server(self, url: str, **usual: str) -> None:
        """Take the settings as those of `method=remote` at `url`, which gets the audio as fast as
        it was spoken. usual: settings where none are given."""
        fixed = {"method": "remote", "method.url": f"'{url}'", "feed": "realtime"}
        for key in (*fixed, "tracker"):
            self.pop(key)
        self.default_data()
        self.default(data="voices", chunk="100ms", first_chunk="100ms", **usual)
        self.default(tracker="none", **fixed)

    def default_data(self) -> None:
        """Where `data.path=FILE` is given and no corpus, add the corpus for that kind of file."""
        path = self.get("data.path")
        if path is not None and self.get("experiment") is None:
            self.default(data="manifest" if path.endswith(MANIFESTS) else "folder")

    def default_methods(self, n: int) -> None:
        """Where no method is given, add the first `n` (1 or 2) that serve any voice; then add the
        chunk that is best for the methods, where none is given."""
        if self.get("method") is None:
            model, language = self.get("model"), self.get("language")
            # The package has a trained hush word for these models; that of base is English.
            has_hush_word = model in (None, "tiny.en") or (model, language) == ("base", "en")
            names = WITH_HUSH_WORD if has_hush_word else WITHOUT
            self.default(method=",".join(names[:n]))
        if self.get("experiment") is None:
            methods = str(self.get("method")).split(",")
            self.default(chunk=chunk_of(name.strip() for name in methods))


def data_of(path: Path) -> list[str]:
    """Return the settings that name a recording, or a folder of them, as data."""
    quoted = str(path.absolute()).replace("'", r"\'")
    return ["data=folder", f"data.path='{quoted}'"]


def is_path(key: str) -> bool:
    """Return whether a setting names a file or a folder."""
    return key in PATHS or key.endswith((".path", ".alignments", ".weights"))


def check_bare(words: Sequence[str]) -> None:
    """Raise UserError for a word that is the name of a setting, as in `method ufal`; the message
    takes the next word for its value."""
    for word, following in pairwise([*words, "<value>"]):
        if word in SETTINGS:
            value = "<value>" if "=" in following else following
            raise UserError(f"{word}: settings are written key=value; write {word}={value}")


def _check_commas(settings: Sequence[str]) -> None:
    """Raise UserError for a comma in a list of values that has no value before or after it."""
    for setting, following in pairwise([*settings, ""]):
        is_quoted = setting[-1:] in "'\"]}"  # there a comma is part of the value
        if is_quoted or not re.search(r"=,|,,|,$", setting):
            continue
        # After `chunk=1s, 2s` the next argument is one more value; with `=` it is a setting.
        is_continued = setting.endswith(",") and "=" not in following
        values = setting + following if is_continued else setting
        remedy = re.sub(r"=,", "=", re.sub(r",+", ",", values)).rstrip(",")
        raise UserError(f"{setting}: a comma joins two values, without blanks; write {remedy}")


def check_options(argv: Sequence[str], extra: Sequence[str] = ()) -> None:
    """Raise UserError for an argument that is no UTF-8 and for a setting written as an option, as
    `--chunk 1s`.

    extra: the names of the command's options, without `--`, besides Hydra's.
    """
    for argument, following in pairwise([*argv, "<value>"]):
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{argument!r}: is no UTF-8 text; rename the file") from error
        name = key_of(argument.removeprefix("--"))
        if argument.startswith("--") and name in ELSEWHERE:
            raise UserError(f"{argument}: {ELSEWHERE[name]}")
        if argument.startswith("--") and name not in (*HYDRAS, *extra):
            key = name.replace("-", "_")
            value = value_of(argument) or following
            raise UserError(f"{argument}: settings are written key=value; write {key}={value}")
