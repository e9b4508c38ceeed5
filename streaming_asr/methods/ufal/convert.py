"""A Hugging Face folder or hub name as a CTranslate2 folder, converted once and kept."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.files import NO_PLACE, cache_root, make_once
from streaming_asr.models.find import find
from streaming_asr.models.hash import model_hash
from streaming_asr.whisper.from_ctranslate2 import locate
from streaming_asr.whisper.tensors import quiet

log = logging.getLogger(__name__)

HF = "transformers"
"""Inside a converted folder: config.json and generation_config.json of the model it came from."""


def converted(model_path: str | Path, cache: str | Path | None = None) -> tuple[Path, Path]:
    """Return the CTranslate2 folder of `model_path` and the folder of its Hugging Face settings.

    A model that comes in CTranslate2's form is taken as it is. Another is converted on first use
    under `cache`, by default in the project's cache; the folder's name holds a hash of the model's
    files and the converter's version, so a changed model is converted again. Raises UserError where
    the model is missing or cannot be converted.
    """
    import ctranslate2

    model = find(model_path)
    source = locate(model_path)  # the folder with the Hugging Face settings
    if model.is_ctranslate2:
        return model.folder, Path(source)
    root = Path(cache).expanduser() if cache else cache_root() / "ctranslate2"
    # A model of the same name with other weights is converted again.
    weights_hash = model_hash({"model": {"path": source}})
    target = root / f"{weights_hash}-{ctranslate2.__version__}"
    if not target.is_dir():
        make_once(target, lambda path: convert(source, path))
        log.info("converted %s for CTranslate2: %s", source, target)
    return target, target / HF


def convert(source: str, target: Path) -> None:
    """Write the model of `source`, a local folder, as the CTranslate2 folder `target`.

    Raises UserError where it cannot be converted, OSError where the disk is full or read-only.
    """
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    try:
        with quiet(), tempfile.TemporaryDirectory() as scratch:
            config = AutoConfig.from_pretrained(source)
            TransformersConverter(source).convert(str(target))
            config.save_pretrained(target / HF)
            with contextlib.suppress(OSError):  # a model need not have one
                GenerationConfig.from_pretrained(source).save_pretrained(target / HF)
            # Whatever form the tokenizer is kept in, this writes tokenizer.json.
            AutoTokenizer.from_pretrained(source).save_pretrained(scratch)
            shutil.copy(Path(scratch) / "tokenizer.json", target / "tokenizer.json")
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) in NO_PLACE:
            raise  # the disk, not the model
        raise UserError(
            f"model {source!r} could not be converted for CTranslate2: "
            f"{str(error).splitlines()[0]}\nGive a Hugging Face folder or hub name of a Whisper "
            "model, or use method.backend=torch."
        ) from error
