"""Reads a Whisper's folder, in Hugging Face's form or CTranslate2's, and checks it against itself.

Both forms come out as Hugging Face's: its settings, its names of tensors, its tokenizer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from streaming_asr.corpora.rows import json_file
from streaming_asr.errors import UserError
from streaming_asr.files import json_of
from streaming_asr.models import ctranslate2
from streaming_asr.models.find import MULTILINGUAL_TOKENS, WEIGHTS, Found
from streaming_asr.whisper.network import JsonSettings

REMEDY = "take all files from where the model comes from"
SIDES = ("encoder", "decoder")
HEADS = tuple(f"{side}_attention_heads" for side in SIDES)
SIZES = {
    "vocab_size": ("decoder.embed_tokens.weight", 0),
    "d_model": ("decoder.embed_tokens.weight", 1),
    "max_target_positions": ("decoder.embed_positions.weight", 0),
    "max_source_positions": ("encoder.embed_positions.weight", 0),
    "num_mel_bins": ("encoder.conv1.weight", 1),
    "encoder_ffn_dim": ("encoder.layers.0.fc1.weight", 0),
    "decoder_ffn_dim": ("decoder.layers.0.fc1.weight", 0),
}
"""Sizes of config.json, and the tensor and the axis that have them."""
CT2_FILES = ("model.bin", "config.json", "tokenizer.json")
END = "<|endoftext|>"
CONTROLS = {
    "start": "<|startoftranscript|>",
    "previous": "<|startofprev|>",
    "no_timestamps": "<|notimestamps|>",
}


# -- settings and weights -------------------------------------------------------------------


def read(model: Found) -> tuple[JsonSettings, JsonSettings, dict[str, torch.Tensor]]:
    """Return what config.json and generation_config.json of Hugging Face's form hold, and the
    tensors in the type they have in the files, by the names of transformers' class.

    Raises UserError where a file is missing or damaged, or where the files contradict each other.
    """
    if not model.weight_files:
        raise UserError(f"{model.folder}: holds no {WEIGHTS[0]}; {REMEDY}")
    config, generation = settings_of(model)
    tensors = dict(model.tensors())
    if model.is_ctranslate2:
        tensors = {name: torch.from_numpy(np.array(values)) for name, values in tensors.items()}
    _check(config, generation, {name: x.shape for name, x in tensors.items()}, model.folder)
    return config, generation, tensors


def settings_of(model: Found) -> tuple[JsonSettings, JsonSettings]:
    """Return the first two of `read`, without reading the weights."""
    read_form = _of_ctranslate2 if model.is_ctranslate2 else _of_hugging_face
    config, generation = (JsonSettings(**content) for content in read_form(model.folder))
    if model.is_ctranslate2:  # whose config.json has no sizes: they are those of the weights
        v = ctranslate2.Variables(model.folder / "model.bin")
        shapes = {name: values.shape for name, values in ctranslate2.tensors(v, scaled=False)}
        _check(config, generation, shapes, model.folder)
    return config, generation


def _of_hugging_face(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    config = json_file(folder / "config.json", REMEDY)
    file = folder / "generation_config.json"
    if file.is_file():
        return config, json_file(file, REMEDY)
    # Older folders have these in config.json.
    return config, {key: config.get(key) for key in ("suppress_tokens", "begin_suppress_tokens")}


def _of_ctranslate2(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings without the sizes that the weights show."""
    for name in CT2_FILES:
        if not (folder / name).is_file():
            raise UserError(
                f"{folder}: a CTranslate2 folder without {name}; copy it from where the model "
                "comes from (tokenizer.json is the same for all models of one vocabulary)"
            )
    stated = json_file(folder / "config.json", REMEDY)
    v = ctranslate2.Variables(folder / "model.bin")
    n_tokens = len(v[ctranslate2.embeddings(v)])
    ids = _added_tokens(folder / "tokenizer.json", n_tokens)
    controls = {
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), ids[END]),
        "decoder_start_token_id": ids[CONTROLS["start"]],
    }
    config = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        **{key: int(v[f"{side}/num_heads"]) for side, key in zip(SIDES, HEADS, strict=True)},
        **controls,
    }
    generation: dict[str, Any] = {
        **controls,
        "suppress_tokens": stated.get("suppress_ids"),
        "begin_suppress_tokens": stated.get("suppress_ids_begin"),
        "no_timestamps_token_id": ids[CONTROLS["no_timestamps"]],
        "prev_sot_token_id": ids[CONTROLS["previous"]],
        "is_multilingual": n_tokens >= MULTILINGUAL_TOKENS,
        "max_initial_timestamp_index": 50,
        "max_length": len(v["decoder/position_encodings/encodings"]),
        "return_timestamps": False,
    }
    if stated.get("alignment_heads"):
        generation["alignment_heads"] = stated["alignment_heads"]
    if generation["is_multilingual"]:
        languages = set(stated.get("lang_ids") or ())
        generation["lang_to_id"] = {token: i for token, i in ids.items() if i in languages}
        tasks = [task for task in ("transcribe", "translate") if f"<|{task}|>" in ids]
        generation["task_to_id"] = {task: ids[f"<|{task}|>"] for task in tasks}
    return config, generation


def _added_tokens(file: Path, n_tokens: int) -> dict[str, int]:
    """Return the ids of a tokenizer's control tokens and timestamps by their spelling.

    Raises UserError where one that every Whisper needs is missing, or the model has fewer tokens.
    """
    added = json_file(file, REMEDY).get("added_tokens") or []
    ids = {str(token["content"]): int(token["id"]) for token in added}
    if lacking := [token for token in (END, *CONTROLS.values()) if token not in ids]:
        raise UserError(
            f"{file}: no token {lacking[0]}; take the tokenizer.json of a Whisper with this "
            "vocabulary"
        )
    if max(ids.values()) >= n_tokens:
        raise UserError(
            f"{file}: has token {max(ids.values())}, but the model has {n_tokens}; take the "
            "tokenizer.json of this model"
        )
    return ids


def _check(
    config: JsonSettings,
    generation: JsonSettings,
    shapes: Mapping[str, Sequence[int]],
    folder: Path,
) -> None:
    """Raise UserError where config.json contradicts the shapes of the weights (by their names), and
    where generation_config.json names attention heads that the decoder does not have. A size that
    config.json lacks is set."""
    tensors = {key: (f"model.{tensor}", axis) for key, (tensor, axis) in SIZES.items()}
    sizes = {
        key: (shapes[name][axis], name.removeprefix("model."))
        for key, (name, axis) in tensors.items()
        if len(shapes.get(name, ())) > axis
    }
    for side in SIDES:
        numbers = re.findall(rf"\bmodel\.{side}\.layers\.(\d+)\.", "\n".join(shapes))
        sizes[f"{side}_layers"] = max(map(int, numbers), default=-1) + 1, f"{side}.layers"
    # Each setting that is wrong, and its rule.
    wrong = {}
    for key, (size, where) in sizes.items():
        if key not in vars(config):
            setattr(config, key, size)
        if type(getattr(config, key)) is not int or getattr(config, key) != size:
            wrong[key] = f", and the weights have {size} ({where})"
    for key in () if wrong else HEADS:
        n = getattr(config, key)
        if type(n) is not int or n < 1 or config.d_model % n:
            wrong[key] = f"; must divide d_model={config.d_model}"
    if config.activation_function not in (None, "gelu"):
        wrong["activation_function"] = "; every Whisper has gelu"
    for key, rule in wrong.items():
        value = getattr(config, key)
        raise UserError(f"{folder / 'config.json'}: {key} is {value!r:.60}{rule}; {REMEDY}")
    if lacking := [name for key, (name, _) in tensors.items() if getattr(config, key) is None]:
        raise UserError(f"{folder}: its weights lack {lacking[0]}; {REMEDY}")
    heads = generation.alignment_heads
    n_layers, n_heads = config.decoder_layers, config.decoder_attention_heads
    for pair in heads if isinstance(heads, list) else [heads] if heads else []:
        is_pair = isinstance(pair, Sequence) and [type(each) for each in pair] == [int, int]
        if not is_pair or not (0 <= pair[0] < n_layers and 0 <= pair[1] < n_heads):
            raise UserError(
                f"{folder / 'generation_config.json'}: alignment_heads has {str(pair)[:60]!r}; "
                f"each must be a decoder layer, of {n_layers}, and a head, of {n_heads}; {REMEDY}, "
                "or delete alignment_heads there"
            )


# -- the tokenizer --------------------------------------------------------------------------


class Tokens:
    """The tokenizer of a folder, as far as one of transformers is used here."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        file = folder / "tokenizer.json"
        if file.is_file():
            self.backend_tokenizer = Tokenizer.from_file(str(file))
        else:  # an older folder, with vocab.json and merges.txt
            from transformers import AutoTokenizer

            self.backend_tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
        self.settings = json_of(folder / "tokenizer_config.json")
        unknown = self.settings.get("unk_token", END)
        self.unk_token = unknown.get("content") if isinstance(unknown, dict) else unknown
        self.unk_token_id = self.backend_tokenizer.token_to_id(self.unk_token or "")

    def __len__(self) -> int:
        return int(self.backend_tokenizer.get_vocab_size(with_added_tokens=True))

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> SimpleNamespace:
        """Return the tokens of a text as `input_ids`."""
        encoded = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return SimpleNamespace(input_ids=encoded.ids)

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """Return the added tokens by their ids."""
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    def get_vocab(self) -> dict[str, int]:
        """Return the token ids by spelling, added tokens too."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    def convert_tokens_to_ids(self, token: str) -> int | None:
        """Return the id of a token; that of the unknown token for one that is not there."""
        number = self.backend_tokenizer.token_to_id(token)
        return self.unk_token_id if number is None else int(number)

    def convert_ids_to_tokens(self, ids: Sequence[int]) -> list[str | None]:
        """Return the spellings of token ids in the visible characters of byte-level BPE; None for
        an id that has none."""
        return [self.backend_tokenizer.id_to_token(number) for number in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, control tokens too."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def add_tokens(self, tokens: Sequence[str]) -> int:
        """Add tokens behind the last one; return how many were new."""
        return int(self.backend_tokenizer.add_tokens(list(tokens)))

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and the tokenizer_config.json that transformers reads next to it."""
        self.backend_tokenizer.save(str(folder / "tokenizer.json"))
        special = [token.content for token in self.added_tokens_decoder.values() if token.special]
        settings = self.settings or {
            **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), END),
            "tokenizer_class": "WhisperTokenizer",
            "add_prefix_space": False,
            "extra_special_tokens": [token for token in special if token != END],
        }
        text = json.dumps(settings, indent=1)
        (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def check_tokens(path: str | Path, config: JsonSettings, tokenizer: Tokens) -> None:
    """Add the timestamps (every 0.02 s of the context, both ends included) that older tokenizers
    lack, though the model has these tokens.

    Raises UserError where the tokenizer is another model's, has tokens of text beyond Whisper's, or
    lacks the spelling of one. `.en` and multilingual ones differ by one token: texts would be
    garbled without an error.
    """
    no_timestamps = tokenizer.convert_tokens_to_ids("<|notimestamps|>")
    n_stamps = config.max_source_positions + 1
    ends_there = no_timestamps == len(tokenizer) - 1
    if ends_there and len(tokenizer) + n_stamps <= config.vocab_size:
        tokenizer.add_tokens([f"<|{i * 0.02:.2f}|>" for i in range(n_stamps)])
    vocabulary = tokenizer.get_vocab()
    if config.vocab_size <= vocabulary.get("<|0.00|>", -1):  # a model trained without timestamps
        timestamp = re.compile(r"<\|\d+\.\d+\|>")
        vocabulary = {t: i for t, i in vocabulary.items() if not timestamp.fullmatch(t)}
    largest, end = max(vocabulary.values()), vocabulary.get(END)
    problem = None
    if largest >= config.vocab_size:
        problem = f"it has token {largest}, the model {config.vocab_size} tokens"
    elif end is None or config.eos_token_id not in (None, end):
        problem = f"its {END} is {end}, the model's {config.eos_token_id}"
    if problem or end is None:
        raise UserError(
            f"model {str(path)!r}: the tokenizer next to it is not this model's ({problem}); "
            "take the tokenizer's files from where the model comes from"
        )
    # The tokens after the end are control tokens and timestamps, which no text may hold; a word
    # that fine-tuning added there could never be output.
    texts = [
        token.content
        for number, token in sorted(tokenizer.added_tokens_decoder.items())
        if number > end and not token.special and not re.fullmatch(r"<\|.*\|>", token.content)
    ]
    if texts:
        more = f" and {len(texts) - 1} more" if len(texts) > 1 else ""
        raise UserError(
            f"model {str(path)!r}: its tokenizer adds {texts[0]!r}{more} to Whisper's tokens, and "
            "no method here can output added tokens of text; fine-tune with Whisper's tokenizer"
        )
    spellings = tokenizer.convert_ids_to_tokens(range(end))  # text lies before the end
    if None in spellings:
        raise UserError(
            f"model {str(path)!r} could not be loaded: its tokenizer has no spelling of token "
            f"{spellings.index(None)}; {REMEDY}"
        )
