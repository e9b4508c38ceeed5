"""Classes of a CTC branch of its own: uncased pieces of words, and the way to the decoder's tokens.

The pieces are a byte-pair encoding of letters a to z and the apostrophe, learned from the training
texts. A piece that begins a word starts with a space. The last class, behind all pieces, is the
blank. One row of the branch covers `stride` encoder frames of 20 ms.

The decoder knows texts as they are written: a hypothesis is given to it as a sentence, with its
first letter and the word I as capitals, and each of its tokens lies where its letters are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.files import replacing
from streaming_asr.methods.u2.ctc import CtcHypothesis
from streaming_asr.methods.u2.tokenizer import Candidate, spans_of
from streaming_asr.whisper.load import Whisper

TOKENIZER_FILE = "tokenizer.json"
ALPHABET = "abcdefghijklmnopqrstuvwxyz'"
BEGINS = "▁"  # how tokenizers' Metaspace writes the space before a word


def plain(text: str) -> str:
    """Return the words of a text in letters a to z and apostrophes, one space between two words.

    Letters lose their accents. An apostrophe stays only between letters. All other characters
    separate words.
    """
    decomposed = unicodedata.normalize("NFKD", text.lower().replace("’", "'"))
    without_accents = "".join(c for c in decomposed if not unicodedata.combining(c))
    without_quotes = re.sub(r"(?<![a-z])'|'(?![a-z])", " ", without_accents)
    return " ".join(re.sub(r"[^a-z']", " ", without_quotes).split())


def has_digits(text: str) -> bool:
    """Return whether a text has digits, whose pronunciation is unknown."""
    return any(c.isdigit() for c in text)


def learn_pieces(texts: Iterable[str], n_pieces: int) -> Any:
    """Return a tokenizer of at most `n_pieces` pieces, learned from the plain form of the texts.

    It does not depend on the order of the texts.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=BEGINS, prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=n_pieces, initial_alphabet=[BEGINS, *ALPHABET], show_progress=False
    )
    tokenizer.train_from_iterator(sorted(map(plain, texts)), trainer)
    return tokenizer


def load_pieces(folder: str | Path) -> Any:
    """Return the tokenizer of pieces in `folder`.

    Raises UserError where there is none, or it has pieces with characters other than a to z, the
    apostrophe and the mark of a word's beginning.
    """
    from tokenizers import Tokenizer

    path = Path(folder) / TOKENIZER_FILE
    remedy = "copy all files of the branch from where it was trained"
    if not path.is_file():
        raise UserError(f"{path}: no such file, and a CTC branch has its pieces there; {remedy}")
    try:
        tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # tokenizers raises Exception itself
        raise UserError(f"{path}: not a tokenizer ({error}); {remedy}") from error
    vocabulary = tokenizer.get_vocab()
    has_all_ids = sorted(vocabulary.values()) == list(range(len(vocabulary)))
    is_plain = all(set(piece) <= {BEGINS, *ALPHABET} for piece in vocabulary)
    if not has_all_ids or not is_plain:
        raise UserError(f"{path}: not a tokenizer of only the letters a to z; {remedy}")
    return tokenizer


class PieceTokenizer:
    """Text -> pieces -> decoder tokens, as `CtcTokenizer` has it for Whisper's own tokens."""

    def __init__(self, whisper: Whisper, pieces: Any, stride: int) -> None:
        """pieces: a tokenizer of `learn_pieces`. stride: encoder frames in a row of the branch."""
        self._whisper = whisper
        self._bpe = pieces
        self._stride = stride
        self.n_tokens: int = pieces.get_vocab_size()
        self.blank = self.n_tokens
        ids = range(self.n_tokens)
        self._spelling = [pieces.id_to_token(i).replace(BEGINS, " ") for i in ids]

    def save(self, folder: Path) -> None:
        """Write the pieces next to the weights of the branch."""
        with replacing(folder / TOKENIZER_FILE) as scratch:
            self._bpe.save(str(scratch))

    def spellings(self) -> list[bytes]:
        """Return the bytes of each class, the blank left out."""
        return [spelling.encode() for spelling in self._spelling]

    def encode(self, text: str) -> list[int]:
        """Return the classes that spell the plain form of `text`; none where it has no letters."""
        words = plain(text)
        ids: list[int] = self._bpe.encode(words, add_special_tokens=False).ids if words else []
        return ids

    def text(self, ids: Sequence[int]) -> str:
        """Return the plain text that classes spell, a space before each word."""
        return "".join(self._spell(ids)[0])

    def written(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return the decoder's tokens of the text that classes spell, as a sentence begins."""
        return tuple(self._whisper.text_tokens(as_sentence(self.text(ids))))

    def retokenise(self, hypothesis: CtcHypothesis) -> Candidate:
        """Return the hypothesis in the decoder's tokens, with its score and frames of 20 ms."""
        letters, owners = self._spell(hypothesis.tokens)
        tokens = tuple(self._whisper.text_tokens(as_sentence("".join(letters))))
        # Every letter is one byte.
        n_bytes = [len(self._whisper.detokenizer.token_bytes(token)) for token in tokens]
        spans = spans_of(hypothesis, owners, n_bytes, self._stride)
        return Candidate(tokens, spans, hypothesis.score)

    def _spell(self, ids: Sequence[int]) -> tuple[list[str], list[int]]:
        """Return the characters that classes spell, and for each the index of its class in `ids`.

        One space comes before each word, also where the first class does not begin a word, and none
        at the end.
        """
        letters: list[str] = []
        owners: list[int] = []
        for index, token in enumerate(ids):
            for letter in self._spelling[token]:
                if not letters and letter != " ":
                    letters, owners = [" "], [index]
                is_second_space = letter == " " and letters[-1:] == [" "]
                if not is_second_space:
                    letters.append(letter)
                    owners.append(index)
        if letters[-1:] == [" "]:
            letters.pop()
            owners.pop()
        return letters, owners


def as_sentence(text: str) -> str:
    """Return a plain text of the same length with its first letter and the word I as capitals."""
    sentence = re.sub(r"\bi\b", "I", text)
    first = len(sentence) - len(sentence.lstrip(" '"))  # index of the first letter
    return sentence[:first] + sentence[first : first + 1].upper() + sentence[first + 1 :]
