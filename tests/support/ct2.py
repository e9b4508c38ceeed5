"""CTranslate2 folders of the tiny model."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from ctranslate2.converters import TransformersConverter
from tiny import tiny_folder

KINDS = ("float32", "float16", "bfloat16", "int8", "int8_float16", "int8_bfloat16", "int16")
LARGE = {"n_mels": 128, "heads": 4, "layers": 3, "multilingual": True, "vocabulary_size": 51866}
# Seeds whose models do not say one token for ever.
FORMS = {
    "tiny": {"seed": 2},
    "large-v3": {**LARGE, "seed": 6},
    "turbo": {**LARGE, "decoder_layers": 1, "seed": 11},
}


@functools.cache
def converted(kind: str = "float32", form: str = "tiny") -> Path:
    """What ctranslate2's converter and faster-whisper's users keep: no timestamps, no settings."""
    source = tiny_folder(**FORMS[form])
    folder = Path(tempfile.mkdtemp(prefix="tiny-ctranslate2-")) / "model"
    TransformersConverter(str(source)).convert(str(folder), quantization=kind)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    keep = [t for t in tokenizer["added_tokens"] if t["special"]]
    tokenizer["added_tokens"] = keep
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder
