"""Checks and resolves a composed configuration, before any weights load.

Everything a user can get wrong in a configuration is answered here with a `UserError`: the value,
the rule, the remedy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from streaming_asr.chunking import check_feed, first_chunk_ms, format_duration, parse_duration
from streaming_asr.config.command_line import MANIFESTS
from streaming_asr.config.compose import compose_raw, explained, leaves
from streaming_asr.config.prompt import settle_prompt
from streaming_asr.config.schema import RunConfig, check_settings
from streaming_asr.config.types import check_arguments
from streaming_asr.config.weights import find_weights, is_native, own_network, weights_folders
from streaming_asr.corpora.audio import SUFFIXES
from streaming_asr.errors import Unpaired, UserError, did_you_mean
from streaming_asr.files import CONF_DIR
from streaming_asr.models.find import find_here, is_english_only, is_local, unknown_languages
from streaming_asr.models.native import KINDS, check, kind_of
from streaming_asr.text.languages import LANGUAGES, language_code

MAX_CHUNK_MS = 30_000  # Whisper's window
GATE_SILENCE = "500ms"  # the default of conf/run.yaml
LEAST_SILENCE_MS, MAX_SILENCE_MS = 100, 10_000  # of gate_silence
NATURAL = ("prompts", "speechocean762", "voices")  # corpora that mini cannot recognise


def compose(overrides: Sequence[str] = (), *, config_dir: str | None = None) -> DictConfig:
    """Return the settled configuration of these overrides, as `run` sees it."""
    full = compose_raw(overrides, config_dir=config_dir)
    return settle(full, full.hydra)


def settle(config: DictConfig, hydra_node: Any) -> DictConfig:
    """Return the configuration checked and resolved, with durations in one spelling and the weights
    found; Hydra's own node is left out of it.

    hydra_node: names the option of each group. Raises UserError. No weights are loaded, so this
    is done for every cell of a sweep before the first one runs.
    """
    with explained():
        return _settle(config, hydra_node)


def _settle(config: DictConfig, hydra_node: Any) -> DictConfig:
    """Return the settled copy of `config`. The checks are in the order in which a user should learn
    of mistakes."""
    choices = hydra_node.runtime.choices
    keys = {field.name for field in fields(RunConfig)}
    for key in sorted(set(map(str, config)) - keys - {"hydra"}):  # of +key=value
        near, valid = did_you_mean(key, keys), ", ".join(sorted(keys))
        raise UserError(f"{key}: no such key{near}; there are {valid}")
    config = config.copy()
    for group in ("method", "model", "data", "tracker"):
        if OmegaConf.is_missing(config, group) or choices.get(group) is None:
            raise UserError(f"{group}: none chosen; give {group}=<one of conf/{group}/>")
    chunk_ms = parse_duration(config.chunk)
    with read_write(config), open_dict(config):
        config.pop("hydra", None)
        config.chunk = format_duration(chunk_ms)
        silence_ms = parse_duration(config.gate_silence, "gate_silence")
        config.gate_silence = format_duration(silence_ms)
        config.first_chunk = format_duration(first_chunk_ms(config.chunk, config.first_chunk))
        for key in ("name", "path"):  # ~model.path and an own file without it mean null
            config.model.setdefault(key, None)
    check_settings(config, RunConfig)
    check_feed(config.feed, config.batch)
    _check_silence(config)
    if config.piece is not None and not 1 <= config.piece <= config.pieces:
        raise UserError(f"piece={config.piece}: must be 1 to {config.pieces}; leave piece out")
    if choices["model"] == "mini" and choices["data"] in NATURAL and runs_model(config):
        raise UserError(
            f"data={choices['data']}: is natural speech, and model=mini recognises only the "
            "synthetic voices it was trained on; take a Whisper, as model=tiny.en"
        )
    method_name = str(choices["method"])
    for key in sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{key}: has no default; give {key}=<value>{_example(key, choices)}")
    _check_split(config, choices)
    _leave_out_model(config)
    settle_prompt(config, method_name)
    OmegaConf.resolve(config)
    for key, value in leaves(OmegaConf.to_container(config)):
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{key}={value}: must be a finite number")
    for group in ("method", "data"):
        target = OmegaConf.select(config, f"{group}._target_")
        if not isinstance(target, str):
            raise UserError(
                f"{group}={choices[group]}: its _target_ is {target}, and must name a class; write "
                f"_target_: module.Class into conf/{group}/{choices[group]}.yaml"
            )
    _check_data(config, choices)
    try:
        check_arguments(OmegaConf.to_container(config.data), "data", extra=())
    except UserError as error:
        raise UserError(f"{_own_file('data', str(error), hydra_node)}{error}") from error
    _check_model(config)
    _check_languages(config)
    is_whisper = OmegaConf.select(config, "model.path") is not None and not own_network(config)
    if chunk_ms > MAX_CHUNK_MS and is_whisper and method_name != "offline":
        raise UserError(
            f"chunk={config.chunk}: Whisper takes {MAX_CHUNK_MS // 1000} s at once and a step less "
            "than that; give a shorter chunk, as chunk=300ms or chunk=1s"
        )
    network = own_network(config)
    if network is not None and config.method.get("weights") == "auto":
        with read_write(config):
            config.method.weights = network
    elif "weights" in config.method:
        weights = find_weights(
            method_name,
            chunk_ms,
            str(config.method.weights),
            weights_folders(config, method_name),
            model=OmegaConf.select(config, "model.path"),
            model_name=str(choices["model"]),
        )
        with read_write(config):
            config.method.weights = None if weights is None else str(weights)
    return config


def _check_silence(config: DictConfig) -> None:
    """Raise UserError for a `gate_silence` that the gate cannot have, or that no gate takes."""
    silence = config.gate_silence
    if not LEAST_SILENCE_MS <= parse_duration(silence) <= MAX_SILENCE_MS:
        raise UserError(
            f"gate_silence={silence}: must be {format_duration(LEAST_SILENCE_MS)} to "
            f"{format_duration(MAX_SILENCE_MS)}; leave gate_silence out for its default"
        )
    if config.gate == "none" and silence != GATE_SILENCE:
        raise UserError(
            f"gate_silence={silence}: has no effect with gate=none; add gate=speech, or leave "
            "gate_silence out"
        )


def _own_file(group: str, refusal: str, hydra_node: Any) -> str:
    """Return the user's file of a group, as `conf/data/own.yaml: `, where the setting that is
    refused is of this file; "" where it is of the command line or the package."""
    settings = [each.lstrip("+") for each in hydra_node.overrides.task]
    folders = [Path(each.path) for each in hydra_node.runtime.config_sources]
    name = f"{group}/{hydra_node.runtime.choices[group]}.yaml"
    files = [folder / name for folder in folders if folder != CONF_DIR]
    if any(each.startswith(f"{re.split('[=:]', refusal)[0]}=") for each in settings):
        return ""
    return next((f"{file}: " for file in files if file.is_file()), "")


def runs_model(config: DictConfig) -> bool:
    """Return whether the method takes something of `model`, by its settings before they are
    resolved, has trained `weights`, which are found by the model's name, or has its language
    detected by a Whisper."""
    if OmegaConf.is_interpolation(config, "method") or config.language == "detect":
        return True
    if "weights" in config.method:
        return True
    return "${model" in str(OmegaConf.to_container(config.method, resolve=False))


def is_server(config: DictConfig) -> bool:
    """Return whether the method sends the audio to a server."""
    return str(config.method.get("_target_")).startswith("streaming_asr.methods.remote.")


def _leave_out_model(config: DictConfig) -> None:
    """Where the method runs no model of ours, leave out `model`, so that nothing is loaded, checked
    or shown of it. A server's model is the one that is asked of it, or unknown."""
    if runs_model(config) or OmegaConf.select(config, "model.path") is None:
        return
    name = (config.method.get("served") or "unknown") if is_server(config) else None
    with read_write(config):
        config.model = {"name": name, "path": None}


def _check_split(config: DictConfig, choices: Mapping[str, Any]) -> None:
    """Raise UserError for a split that the corpus does not have, where it is one manifest, in which
    `split` is a name only."""
    file = CONF_DIR / "data" / f"{choices['data']}.yaml"
    content: Any = OmegaConf.load(file) if file.is_file() else {}
    only = content.get("split")
    if only is None or not str(content.get("_target_")).endswith(".Manifest"):
        return
    if (split := config.data.get("split")) != only:
        raise UserError(
            f"data.split={split}: data={choices['data']} has one split, {only}; leave data.split "
            "out, or take a corpus with others, as data=mini or data=prompts"
        )


def _example(key: str, choices: Mapping[str, Any]) -> str:
    """Return the example that the configuration's file gives of a setting without a default."""
    group, _, name = key.partition(".")
    file = CONF_DIR / group / f"{choices.get(group)}.yaml"
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    match = re.search(rf"^{name}: \?\?\? # ([^\s,]+)", text, re.M)
    return f", as {key}={match[1]}" if match else ""


def _check_data(config: DictConfig, choices: Mapping[str, Any]) -> None:
    """Raise UserError if data.path is a recording and the corpus does not read recordings, or a
    manifest and the corpus reads only recordings."""
    path = str(OmegaConf.select(config, "data.path") or "")
    if Path(path).expanduser().is_dir():
        return
    data = str(choices["data"])
    reads_recordings = str(config.data._target_).endswith(".Folder")
    suffix = Path(path).suffix.lower()
    if suffix in SUFFIXES and not reads_recordings:
        raise UserError(
            f"data.path={path}: is a recording, which data={data} does not read; leave data out, "
            "or give data=folder"
        )
    if suffix in MANIFESTS and reads_recordings:
        raise UserError(
            f"data.path={path}: is a manifest, and data={data} reads recordings; leave data out, "
            "or give data=manifest"
        )


def _check_model(config: DictConfig) -> None:
    """Raise UserError for a local folder that does not hold what the method runs, and for settings
    that a model built for streaming does not take; the loader answers for hub names."""
    path = OmegaConf.select(config, "model.path")
    for key in ("path", "name", "weights"):
        value = OmegaConf.select(config, f"model.{key}")
        if value is not None and not isinstance(value, str):
            raise UserError(f"model.{key}={value}: must be a folder or a name, or null for none")
    if path is not None and is_native(config):
        _check_native(config)
    elif (name := config.model.get("name")) in KINDS:
        raise Unpaired(f"model={name}: is no Whisper; only method=native runs it")
    if path is not None and is_local(path) and own_network(config) is None:
        find_here(path)


def _check_native(config: DictConfig) -> None:
    """Raise UserError for what `method=native` cannot run. A model that is not on this machine yet
    is taken for the kind that its option of conf/model names."""
    name, path = str(config.model.get("name")), str(own_network(config))
    folder = Path(path).expanduser()
    if is_local(path):
        kind = kind_of(folder)
    elif name not in KINDS:
        raise Unpaired(
            f"model={name}: is not built for streaming, and method=native runs nothing else; give "
            f"model={', '.join(KINDS)}, or another method, as method=whisperrt"
        )
    else:
        kind = KINDS[name]
    if KINDS.get(name, kind) is not kind:
        raise UserError(f"model={name}: {folder} holds another model; give model={kind.name}")
    check(
        kind,
        folder if folder.is_dir() else None,
        chunk_ms=parse_duration(config.chunk),
        device=config.device,
        dtype=config.dtype,
    )
    if config.language == "detect":
        raise UserError(
            "language=detect: is Whisper's detection, which method=native does not use; leave "
            "language out"
        )


def _check_languages(config: DictConfig) -> None:
    """Raise UserError for a language that Whisper, or this Whisper, does not know, and replace the
    names of languages by their codes (`german` by `de`)."""
    for key in ("language", "data.language"):
        language = OmegaConf.select(config, key)
        languages = {*LANGUAGES, "detect"} if key == "language" else LANGUAGES
        if key == "data.language" and not str(config.data._target_).endswith(".Folder"):
            continue  # of other corpora a tag or a folder's name, which the corpus checks
        if isinstance(language, str) and language not in languages:
            language = language_code(language)
            with read_write(config):
                OmegaConf.update(config, key, language)
        is_whisper = OmegaConf.select(config, "model.path") and not own_network(config)
        if language is not None and language not in languages and is_whisper:
            raise UserError(
                f"{key}={language}: no language that Whisper knows"
                f"{did_you_mean(str(language), languages)}; "
                f"give a code such as en, de or fr, or {key}=null for the corpus's own"
            )
    path = OmegaConf.select(config, "model.path")
    if config.language == "detect" and path and not own_network(config) and is_english_only(path):
        raise UserError(
            f"language=detect: model={config.model.get('name')} knows English only, so there is "
            "nothing to detect; leave language out, or take a model that knows more, as model=base"
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


def detect_by_default(config: DictConfig) -> None:
    """Set `language=detect` for a multilingual Whisper if the settings name no language."""
    path = config.model.get("path")
    is_whisper = path and not own_network(config)
    if config.language is None and is_whisper and not is_english_only(path):
        config.language = "detect"


def time_words_by_default(config: DictConfig) -> None:
    """Set `word_times=alignment`, the most exact, for subtitles, if the method has the setting and
    it is not set; a run leaves it out, as it costs compute."""
    if "word_times" in config.method and config.method.word_times is None:
        config.method.word_times = "alignment"
