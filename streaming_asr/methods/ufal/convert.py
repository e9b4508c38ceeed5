"""A Hugging Face folder or hub name as a CTranslate2 folder, converted once and kept."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.hashes import model_hash
from streaming_asr.whisper.source import locate

log = logging.getLogger(__name__)

HF = "transformers"
"""Inside a converted folder: config.json and generation_config.json of the model it came from."""


def cache_root() -> Path:
    """$XDG_CACHE_HOME/streaming_asr/ctranslate2, or that under ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "streaming_asr" / "ctranslate2"


def converted(model_path: str | Path, cache: str | Path | None = None) -> Path:
    """Return the CTranslate2 folder of `model_path`, made on first use under `cache`.

    The folder's name holds a hash of the model's files and the converter's version, so a changed
    model is converted again. Raises UserError where the model is missing or cannot be converted.
    """
    import ctranslate2

    source = locate(model_path)
    root = Path(cache).expanduser() if cache else cache_root()
    hashed = model_hash({"model": {"path": source}})
    target = root / f"{hashed}-{ctranslate2.__version__}"
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as scratch:
        made = Path(scratch) / "made"
        convert(source, made)
        try:
            made.rename(target)
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    log.info("converted %s for CTranslate2: %s", source, target)
    return target


def convert(source: str, target: Path) -> None:
    """Writes `source`, a local folder, as the CTranslate2 folder `target`. Raises UserError."""
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig
    from transformers.utils import logging as transformers_logging

    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(source)
        if config.model_type != "whisper":
            raise UserError(
                f"model {source!r} is of type {config.model_type}; local agreement with "
                "faster-whisper wants a Whisper model"
            )
        TransformersConverter(source).convert(str(target))
        config.save_pretrained(target / HF)
        with contextlib.suppress(OSError):  # a model need not have one
            GenerationConfig.from_pretrained(source).save_pretrained(target / HF)
        with tempfile.TemporaryDirectory() as scratch:
            # Whatever form the tokenizer is kept in, this writes tokenizer.json.
            AutoTokenizer.from_pretrained(source).save_pretrained(scratch)
            shutil.copy(Path(scratch) / "tokenizer.json", target / "tokenizer.json")
    except UserError:
        raise
    except (OSError, ValueError) as error:
        raise UserError(
            f"model {source!r} could not be converted for CTranslate2: "
            f"{str(error).splitlines()[0]}\nGive a Hugging Face folder or hub name of a Whisper "
            "model, or use method.backend=torch."
        ) from error
    finally:
        if bars:
            transformers_logging.enable_progress_bar()
