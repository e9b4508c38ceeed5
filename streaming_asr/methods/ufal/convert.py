"""A Hugging Face folder or hub name as a CTranslate2 folder, converted once and kept."""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.files import NO_PLACE, cache_root, make_once
from streaming_asr.models.ctranslate2 import Variables
from streaming_asr.models.find import Found
from streaming_asr.models.hash import model_hash
from streaming_asr.models.tensors import quiet
from streaming_asr.whisper.model_files import Tokens

log = logging.getLogger(__name__)


def converted(model: Found, cache: str | Path | None = None) -> Path:
    """Return the CTranslate2 folder of a model.

    One that comes in CTranslate2's form is taken as it is. Another is converted on first use under
    `cache`, by default in the project's cache; the folder's name holds a hash of the model's files
    and the converter's version, so a changed model is converted again. Raises UserError where the
    model cannot be converted.
    """
    import ctranslate2

    if model.is_ctranslate2:
        Variables(model.folder / "model.bin")  # whose error names a damaged file
        return model.folder
    root = Path(cache).expanduser() if cache else cache_root() / "ctranslate2"
    files_hash = model_hash({"model": {"path": model.folder}})
    target = root / f"{files_hash}-{ctranslate2.__version__}"
    if target.is_dir():
        with suppress(UserError, OSError):
            Variables(target / "model.bin")
            return target
        shutil.rmtree(target, ignore_errors=True)  # damaged since it was written
    n_bytes = sum(file.stat().st_size for file in model.folder.iterdir())
    make_once(target, lambda path: convert(model, path), n_bytes=n_bytes)
    log.info("converted %s for CTranslate2: %s", model.folder, target)
    return target


def convert(model: Found, target: Path) -> None:
    """Write a model in Hugging Face's form as the CTranslate2 folder `target`.

    Raises UserError where it cannot be converted, OSError where the disk is full or read-only.
    """
    from ctranslate2.converters import TransformersConverter

    try:
        with quiet():
            TransformersConverter(str(model.folder)).convert(str(target))
            Tokens(model.folder).backend_tokenizer.save(str(target / "tokenizer.json"))
    except Exception as error:  # whatever a damaged file raises
        if getattr(error, "errno", None) in NO_PLACE:
            raise  # the disk, not the model
        for _ in model.tensors():  # raises UserError for a damaged file of weights, naming it
            pass
        raise UserError(
            f"model {str(model.folder)!r} could not be converted for CTranslate2: "
            f"{str(error).partition(chr(10))[0]}; give a Hugging Face folder or hub name of a "
            "Whisper model, or use method.backend=torch."
        ) from error
