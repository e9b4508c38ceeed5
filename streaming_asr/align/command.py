"""Word times for a corpus: `streaming-asr align data=... aligner=auto|ctc|mfa|whisper`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict

from streaming_asr.align import english
from streaming_asr.align.cache import AlignmentCache
from streaming_asr.align.quality import Quality, lines, measure
from streaming_asr.chunking import parse_duration
from streaming_asr.config.build import build, program
from streaming_asr.config.defaults import aligner_of
from streaming_asr.config.schema import DTYPES, check_settings, device_setting, setting
from streaming_asr.corpora import Mini
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR, write_text
from streaming_asr.machine import let_waiting_threads_sleep
from streaming_asr.text.languages import language_code
from streaming_asr.utterance import Utterance

# Settings of aligners that cannot change a result.
NEUTRAL = ("device", "dtype", "jobs", "batch", "temporary", "environment")
MODELS = ("dictionary", "acoustic", "g2p")  # of MFA: a name or a file


@dataclass
class AlignConfig:
    """The top level of conf/align.yaml. A key that is not here is refused."""

    model: Any = MISSING
    data: Any = MISSING
    aligner: Any = MISSING
    limit: int | None = setting(None, least=1)
    out: str | None = None
    tolerance: str = "100ms"
    language: str | None = None
    device: str = device_setting()
    dtype: str = setting("float32", one_of=DTYPES)
    threads: int | None = setting(None, least=1, most=1024)
    output: str = "outputs"


ConfigStore.instance().store(name="align_schema", node=AlignConfig)


def align(config: DictConfig, say: Callable[[str], object] = print) -> Quality:
    """Align the utterances that have no stored times; print, save and return the report.

    say: prints a line. Raises UserError for settings, corpora and models that are wrong or missing.
    """
    for key in sorted(OmegaConf.missing_keys(config)):
        raise UserError(f"{key}: has no default; give {key}=<value>")
    tolerance_s = parse_duration(config.tolerance, "tolerance") / 1000
    check_settings(config, AlignConfig)
    OmegaConf.resolve(config)
    corpus = build(config.data)
    utterances = corpus.utterances(config.limit)
    if config.language is not None:
        code = language_code(config.language)
        utterances = [replace(each, language=each.language or code) for each in utterances]
    if config.aligner._target_ is None:
        choose(config, {each.language for each in utterances if each.language})
    if config.threads is not None:
        import torch

        torch.set_num_threads(config.threads)
    name = label(config)
    folder = home(corpus, config) / name / safe(f"{corpus.name}-{corpus.split}")
    with AlignmentCache(folder, settings_of(config)) as cache:
        fill(cache, utterances, config.aligner, name, say)
        quality = measure(cache.results(utterances), tolerance_s)
    for line in lines(quality):
        say(line)
    row = {**asdict(quality), "placed": quality.placed}
    write_text(folder / "quality.json", json.dumps(row, indent=1, ensure_ascii=False) + "\n")
    say(f"written to {folder}; use it with data.alignments={folder}")
    return quality


def choose(config: DictConfig, languages: Iterable[str]) -> None:
    """Replace `aligner=auto` in the configuration by the aligner of these languages, and the
    default model by that aligner's; with another model, by its cross-attention."""
    kind, model = aligner_of(languages)
    default = OmegaConf.load(CONF_DIR / "model" / f"{english.NAME}.yaml")
    with open_dict(config):
        if config.model.path != default.path:  # the user has named one
            kind = "whisper"
        else:
            config.model = OmegaConf.load(CONF_DIR / "model" / f"{model}.yaml")
        config.aligner = OmegaConf.load(CONF_DIR / "aligner" / f"{kind}.yaml")
    OmegaConf.resolve(config)


def fill(
    cache: AlignmentCache,
    utterances: list[Utterance],
    aligner: DictConfig,
    name: str,
    say: Callable[[str], object] = print,
) -> None:
    """Align the utterances of which `cache` has no words, and store the results there.

    The aligner loads only if there is one. name: of the aligner, which `say` prints before the
    first utterance.
    """
    timed_ids = {each.utterance.id for each in cache.results(utterances) if each.words is not None}
    remaining = [utterance for utterance in utterances if utterance.id not in timed_ids]
    if not remaining:
        return
    say(f"{name} times the words of {len(remaining)} of {len(utterances)} utterances")
    for i, result in enumerate(build(aligner).align(remaining), start=1):
        cache.write(result)
        if i % 500 == 0:
            say(f"  {i} of {len(remaining)} are aligned")


def home(corpus: Any, config: DictConfig) -> Path:
    """Return the folder for alignments: `out` if given, else one in the corpus's folder or next to
    its manifest; below `output` for mini and a corpus without files here."""
    if config.out is not None:
        return Path(str(config.out)).expanduser()
    path = getattr(corpus, "path", None)
    if isinstance(corpus, Mini) or path is None or not Path(path).exists():
        return Path(str(config.output)) / "align" / safe(corpus.name)
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return folder / "alignments"


def label(config: DictConfig) -> str:
    """Return the aligner's kind and its model as a name for a folder, as in whisper-base."""
    kind = str(config.aligner._target_).split(".")[-2]  # its module: ctc, mfa or whisper
    if is_english_ctc(config.aligner):
        name = english.NAME
    elif kind == "whisper":
        name = str(config.model.get("name") or Path(str(config.aligner.path)).name)
        if name == "whisper":  # any Whisper, by its path
            name = Path(str(config.aligner.path)).name
    else:
        name = Path(str(config.aligner.get("path") or config.aligner.get("acoustic") or "")).name
    return safe(f"{kind}-{name}") if name else kind


def settings_of(config: DictConfig) -> dict[str, Any]:
    """Return the settings that a result depends on besides the corpus, files as their hashes."""
    from streaming_asr.models.hash import files_hash, model_hash

    settings = OmegaConf.to_container(config.aligner)
    assert isinstance(settings, dict)
    paths = [settings.get("path"), settings.get("model_path")]
    if is_english_ctc(config.aligner):
        paths[0] = f"ctc {english.HASH}"
    relevant = {str(k): v for k, v in settings.items() if k not in (*NEUTRAL, "path", "model_path")}
    for key in MODELS:
        file = Path(str(relevant.get(key, ""))).expanduser()
        # Another model may lie at the same path later.
        if file.is_file():
            relevant[key] = f"{file.name} {files_hash([file])}"
    hashed = {"model": {"path": paths[0]}, "method": {"weights": paths[1]}}
    return {**relevant, "model": model_hash(hashed)}


def is_english_ctc(aligner: DictConfig) -> bool:
    """Return whether the aligner is the package's CTC model of English."""
    return str(aligner._target_).endswith(".CtcAligner") and aligner.get("path") is None


def safe(name: str) -> str:
    """Return `name` with every character that a folder's name should not have replaced."""
    return re.sub(r"[^\w.-]+", "_", name)


def main() -> int:
    """Run the command line and return its exit status."""
    let_waiting_threads_sleep()
    return program(
        "align", lambda config: align(config) and None, loads="the corpus and the aligner"
    )
