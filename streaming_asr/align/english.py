"""The package's CTC aligner of English: `aligner=ctc` without a path, `data.align=ctc`.

It is the CTC branch that U2 was trained to on 25 November 2026, on Whisper tiny.en and WhisperRT's
adapter of that day. Its files are fixed by their hash and have a folder of their own, so that no
training of U2 or WhisperRT moves the times of references. branch.json holds the adapter's sha256,
so that the adapter in the folder is fixed too.
"""

from __future__ import annotations

from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.files import HERE
from streaming_asr.models.hash import files_hash, weights_hash

NAME = "tiny.en"
LANGUAGE = "en"
FILES = ("branch.json", "branch.safetensors", "tokenizer.json")
HASH = "66cf2df8a4cf4ffc"
"""The hash of FILES (`models.hash.files_hash`)."""
WHISPER = "db42d5d71f18e72d"
"""The hash of tiny.en's tensors, in any form and precision."""
HOME = HERE / "data" / "weights" / NAME / "aligner"


def branch_folder(model_path: str) -> Path:
    """Return the folder of the CTC branch, FILES. Raises UserError where the Whisper in
    `model_path` is not tiny.en, and where the files have not this hash."""
    if weights_hash(model_path) not in (None, WHISPER):
        raise UserError(
            f"aligner=ctc: the package's CTC model runs on {NAME}, and model.path={model_path} "
            f"holds other weights; give model={NAME}, or a folder of U2's training with "
            "aligner.path="
        )
    if files_hash(HOME / name for name in FILES) == HASH:
        return HOME
    raise UserError(
        f"aligner=ctc: no files with the hash {HASH} in {HOME}; install the package again, or "
        "give a folder of U2's training with aligner.path="
    )
