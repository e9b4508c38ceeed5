"""Token ids to whole words.

A word begins where a token begins with a space (in languages written without spaces: where the
bytes so far are whole characters). It is complete once the first token of its successor stands, or
the text has ended. Bytes of a character that is not yet whole are held back.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streaming_asr.errors import UserError

LANGUAGES_WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})


def refuse_other_than_english(language: str | None) -> None:
    """UserError for a language that an English-only model is asked for."""
    if language not in (None, "en"):
        raise UserError(
            f"language {language!r}: this model is English-only; leave the language out, or "
            "take a multilingual model"
        )


@dataclass(frozen=True, slots=True)
class TokenWord:
    """A word and the tokens that spell it: ids[start:stop]."""

    text: str
    start: int
    stop: int


def _byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes every byte as one visible character; this is the way back.

    Printable Latin-1 stands for itself, the other bytes for U+0100 onwards in their order.
    """
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in visible}
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    table.update({chr(0x100 + i): byte for i, byte in enumerate(hidden)})
    return table


class Detokenizer:
    """Spells token ids below `eot`; control and timestamp tokens spell nothing."""

    def __init__(self, tokenizer: Any, eot: int) -> None:
        table = _byte_of_character()
        tokens = tokenizer.convert_ids_to_tokens(list(range(eot)))
        self._bytes = [bytes(table[c] for c in token) for token in tokens]

    def token_bytes(self, token: int) -> bytes:
        """UTF-8 bytes of one token, possibly a part of a character."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def words(self, ids: Sequence[int], *, language: str | None = None) -> list[TokenWord]:
        """Words in order; the last one may still be growing (see `complete_words`)."""
        spaced = language not in LANGUAGES_WITHOUT_SPACES
        words: list[TokenWord] = []
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, start = "", 0
        for i, token in enumerate(ids):
            spelling = self.token_bytes(token)
            whole = not decoder.getstate()[0]
            if text.strip() and whole and spelling and (not spaced or spelling[:1] == b" "):
                words.append(TokenWord(text, start, i))
                text, start = "", i
            text += decoder.decode(spelling)
        if text.strip():
            words.append(TokenWord(text, start, len(ids)))
        return words

    def complete_words(
        self, ids: Sequence[int], n_final: int, *, language: str | None = None
    ) -> list[TokenWord]:
        """Words that can no longer grow when ids[:n_final] are final and the rest may change."""
        return [word for word in self.words(ids, language=language) if word.stop < n_final]
