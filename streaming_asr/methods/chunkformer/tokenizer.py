"""Text to tokens, for training: byte pair encoding with "▁" where a word begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError

FILE = "bpe.json"
BLANK, UNKNOWN, END = "<blank>", "<unk>", "<sos/eos>"


class Tokenizer:
    """`tokens` are those of vocab.txt, by id: blank, unknown, the pieces, the sentence's end."""

    def __init__(self, pieces: Any, tokens: Sequence[str]) -> None:
        self._pieces = pieces
        self.tokens = list(tokens)
        self.end = len(self.tokens) - 1

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the pieces of `text`: those of its words in turn."""
        return list(self._pieces.encode(text).ids)

    @staticmethod
    def train(texts: Sequence[str], size: int) -> Tokenizer:
        """Learn at most `size` tokens that spell `texts`. Raises UserError for too few."""
        from tokenizers import Tokenizer as Pieces
        from tokenizers import models, pre_tokenizers, trainers

        pieces: Any = Pieces(models.BPE(unk_token=UNKNOWN))
        pieces.pre_tokenizer = pre_tokenizers.Metaspace()
        letters = {letter for letter in "".join(texts) if not letter.isspace()}
        least = len(letters) + 4  # blank, unknown, end, and "▁"
        if size < least:
            raise UserError(
                f"vocabulary={size}: the texts have {len(letters)} different letters, and blank, "
                f"unknown, end and word beginnings come on top; give {least} or more"
            )
        pieces.train_from_iterator(
            texts,
            trainers.BpeTrainer(
                vocab_size=size - 1, special_tokens=[BLANK, UNKNOWN], show_progress=False
            ),
        )
        ids: dict[str, int] = pieces.get_vocab()
        return Tokenizer(pieces, [*sorted(ids, key=ids.__getitem__), END])

    @staticmethod
    def read(folder: Path, tokens: Sequence[str]) -> Tokenizer:
        """Return the tokenizer that a training wrote into `folder`. Raises UserError."""
        from tokenizers import Tokenizer as Pieces

        path = folder / FILE
        if not path.is_file():
            raise UserError(
                f"{path}: no tokenizer there, so texts cannot be turned into its tokens; go on "
                "only from a network that this program trained"
            )
        return Tokenizer(Pieces.from_file(str(path)), tokens)

    def write(self, folder: Path) -> None:
        self._pieces.save(str(folder / FILE))
