"""N-gram models over the classes of a CTC head, read by KenLM, for the first pass of CTC methods.

A model is a folder: lm.arpa.xz, whose words are the numbers of the classes, and lm.json, which
names the vocabulary that they number and the texts that the model was trained on.
`python -m experiments.real.language_model` builds one.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError, check_range

MODEL_FILE, CARD_FILE = "lm.arpa.xz", "lm.json"
FOLDER = "lm"
"""Its name in a folder of weights."""
REMEDY = "build one with `python -m experiments.real.language_model`, or do without: method.lm=none"
LN_10 = math.log(10)


@dataclass(frozen=True, slots=True)
class Ngram:
    """A language model of the classes whose spellings have the hash `vocabulary`."""

    folder: Path
    vocabulary: str
    model: Any
    new_state: Any

    def start(self) -> Any:
        """Return the state before the first class of a sentence."""
        state = self.new_state()
        self.model.BeginSentenceWrite(state)
        return state

    def score(self, state: Any, token: int) -> float:
        """Return the natural log-probability of class `token` after `state`."""
        return float(self.model.BaseScore(state, str(token), self.new_state())) * LN_10

    def after(self, state: Any, token: int) -> Any:
        """Return the state that follows `state` by class `token`."""
        after = self.new_state()
        self.model.BaseScore(state, str(token), after)
        return after


@dataclass(frozen=True, slots=True)
class Fusion:
    """What a language model adds to the score of a prefix: weight * log p + bonus, per class."""

    model: Ngram
    weight: float
    bonus: float


def vocabulary_hash(spellings: Sequence[bytes]) -> str:
    """Return the hash of a vocabulary, 16 hex digits, given the bytes of each class, in order."""
    text = json.dumps([spelling.hex() for spelling in spellings])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def load_ngram(lm: str | None, weights: str | Path | None) -> Ngram | None:
    """Return the language model that the setting `method.lm` names; None for `none`.

    lm: none, auto (the folder `lm` in `weights`, the trained weights' folder) or a folder. Raises
    UserError where KenLM is not installed, and for a folder that is missing, incomplete or damaged.
    """
    if lm in (None, "none"):
        return None
    if lm == "auto" and weights is None:
        raise UserError(
            "method.lm=auto: is the model that lies with trained weights, and there are none; name "
            "a folder, or give method.lm=none"
        )
    folder = Path(str(weights)) / FOLDER if lm == "auto" else Path(str(lm))
    folder = folder.expanduser()
    for name in (CARD_FILE, MODEL_FILE):
        if not (folder / name).is_file():
            raise UserError(f"method.lm={lm}: there is no {folder / name}; {REMEDY}")
    try:
        vocabulary = json.loads((folder / CARD_FILE).read_text(encoding="utf-8"))["vocabulary"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(f"{folder / CARD_FILE}: names no vocabulary ({error}); {REMEDY}") from error
    try:
        import kenlm
    except ImportError as error:
        raise UserError(
            f"method.lm={lm}: needs KenLM; pip install -e '.[lm]', or do without: method.lm=none"
        ) from error
    settings = kenlm.Config()
    settings.show_progress = False
    settings.arpa_complain = kenlm.ARPALoadComplain.NONE
    file = folder / MODEL_FILE
    try:
        # Not every build of KenLM reads compressed files.
        with tempfile.TemporaryDirectory() as scratch:
            plain = Path(scratch) / "lm.arpa"
            plain.write_bytes(lzma.decompress(file.read_bytes()))
            model = kenlm.Model(str(plain), settings)
    except (OSError, RuntimeError, lzma.LZMAError) as error:
        # KenLM puts file, line and function of its own before the reason.
        reason = " ".join(str(error).split()).rpartition(" threw ")[2]
        raise UserError(f"{file}: damaged, or no n-gram model ({reason}); {REMEDY}") from error
    return Ngram(folder, str(vocabulary), model, kenlm.State)


def fusion_of(
    model: Ngram | None, spellings: Sequence[bytes], weight: float, bonus: float
) -> Fusion | None:
    """Return what a language model adds to the scores of a CTC search; None without a model.

    spellings: the bytes of each class of the CTC head. weight, bonus: see `Fusion`. Raises
    UserError for a model of another vocabulary and for a negative weight.
    """
    check_range(0, lm_weight=weight)
    if model is None:
        return None
    if model.vocabulary != vocabulary_hash(spellings):
        raise UserError(
            f"method.lm={model.folder}: is of another vocabulary than the {len(spellings)} classes "
            f"of this CTC head, so that its numbers mean other tokens; {REMEDY}"
        )
    return Fusion(model, weight, bonus)
