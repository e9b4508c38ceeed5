"""The setting `prompt`: a text that Whisper's decoder is given before its own.

The form is that of OpenAI's `initial_prompt`: <|startofprev|>, then the last tokens of the text,
fewer than half of the decoder's positions.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, read_write

from streaming_asr.config.weights import own_network
from streaming_asr.corpora.rows import text_lines
from streaming_asr.errors import UserError
from streaming_asr.files import json_of
from streaming_asr.models.find import find_here
from streaming_asr.terminal import wrapped

POSITIONS = 448
BEFORE = "<|startofprev|>"


def settle_prompt(config: DictConfig, method: str) -> None:
    """Replace a file of names, one a line, by its text, and check the prompt before any load.

    method: its name. Raises UserError where the file has no name, and where the method or its
    model takes no prompt.
    """
    if config.prompt is None:
        return
    if "prompt" not in config.method:
        raise UserError(
            f"prompt={config.prompt:.60}: method={method} has no decoder of Whisper's to give it "
            "to; leave prompt out, or take another method, as method=ufal"
        )
    text = str(config.prompt)
    file = os.path.expanduser(text)
    # (isfile is False for a name too long to be one)
    if text.lower().endswith(".txt") or os.path.isfile(file):
        text = ", ".join(line.strip() for line in text_lines(Path(file)) if line.strip())
    if not text.strip():
        raise UserError(f"prompt={config.prompt}: has no text; give names, or leave prompt out")
    with read_write(config):
        config.prompt = text
    path = OmegaConf.select(config, "model.path")
    model = None if path is None or own_network(config) else find_here(path)
    tokenizer = None if model is None else model.folder / "tokenizer.json"
    if model is not None and tokenizer is not None and tokenizer.is_file():
        n_positions = json_of(model.folder / "config.json").get("max_target_positions", POSITIONS)
        _check_tokens(text, str(config.model.get("name")), tokenizer, n_positions // 2 - 1)


@cache
def _check_tokens(text: str, model: str, file: Path, most: int) -> None:
    """Raise UserError for a tokenizer that has no token of a prompt; report, once, a text of more
    than `most` tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    if tokenizer.token_to_id(BEFORE) is None:
        raise UserError(
            f"prompt={text:.60}: the tokenizer of model={model} has no token {BEFORE}; leave "
            "prompt out, or take a Whisper with all control tokens"
        )
    n = len(tokenizer.encode(f" {text.strip()}", add_special_tokens=False).ids)
    if n > most:
        start = f"prompt={text:.30}...: has {n} tokens, of which the decoder is given the last"
        print(wrapped(f"{start} {most}; give fewer names"), file=sys.stderr)
