"""Token ids to whole words, and words as a stream commits them.

A word begins where a token begins with a space (in languages written without spaces: where the
bytes so far are whole characters). It is complete once its successor has a token, or the text
has ended. Bytes of a character that is not yet whole are held back.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.method import FRAME_S, Word
from streaming_asr.text.tokens import UNSPACED
from streaming_asr.whisper.sound import Sound


def refuse_other_than_english(language: str | None) -> None:
    """Raise UserError for a language that an English-only model is asked for."""
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


def byte_characters() -> list[str]:
    """Return the visible character for each of the 256 bytes in byte-level BPE (GPT-2).

    Printable bytes map to themselves, the others in order to U+0100 and what follows.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


class Detokenizer:
    """Spells token ids below `eot`; control and timestamp tokens spell nothing."""

    def __init__(self, tokenizer: Any, eot: int) -> None:
        table = {character: byte for byte, character in enumerate(byte_characters())}
        tokens = tokenizer.convert_ids_to_tokens(list(range(eot)))
        self._bytes = [bytes(table[c] for c in token) for token in tokens]

    def token_bytes(self, token: int) -> bytes:
        """Return the UTF-8 bytes of one token, possibly a part of a character."""
        return self._bytes[token] if token < len(self._bytes) else b""

    def words(self, ids: Sequence[int], *, language: str | None = None) -> list[TokenWord]:
        """Return the words of token ids in order; the last one may still be growing."""
        has_spaces = language not in UNSPACED
        words: list[TokenWord] = []
        # Byte-level tokens may end inside a character; the decoder keeps its first bytes.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text, start = "", 0
        for i, token in enumerate(ids):
            spelling = self.token_bytes(token)
            is_between_characters = not decoder.getstate()[0]
            may_begin_word = spelling[:1] == b" " if has_spaces else bool(spelling)
            if text.strip() and is_between_characters and may_begin_word:
                words.append(TokenWord(text, start, i))
                text, start = "", i
            text += decoder.decode(spelling)
        if text.strip():
            words.append(TokenWord(text, start, len(ids)))
        return words


def spaced(text: str, language: str | None) -> str:
    """Return a word with a space before it, in languages that write one between words."""
    if text[:1].isspace() or language in UNSPACED:
        return text
    return " " + text


def probability_of(word: TokenWord, log_probs: Sequence[float]) -> float:
    """Return a word's probability: exp of the mean log-probability of its tokens.

    log_probs: of all tokens of the text. At most 1: rounding may give a log-probability above 0.
    """
    word_log_probs = log_probs[word.start : word.stop]
    return math.exp(min(0.0, sum(word_log_probs) / len(word_log_probs)))


@dataclass(slots=True)
class Emitter:
    """Makes the committed words of one stream: with spaces, and with times in order.

    It keeps of the text so far what the next word depends on.
    """

    language: str | None
    sound: Sound | None = None
    """The audio so far; with it committed words are timed without the pauses around them."""
    has_text: bool = False
    last_start_s: float = 0.0
    last_end_s: float = 0.0

    def spaced(self, text: str) -> str:
        """Return `text` with the space that the first word of a later window may lack."""
        return spaced(text, self.language) if self.has_text else text

    def partial(self, texts: Iterable[str]) -> tuple[Word, ...]:
        """Return partial words with these texts, the first of them spaced."""
        return tuple(Word(self.spaced(t) if i == 0 else t) for i, t in enumerate(texts))

    def in_order(
        self,
        start_s: float,
        end_s: float,
        heard_s: float,
        *,
        overlap: bool = False,
        least_s: float = 0.0,
    ) -> tuple[float, float]:
        """Return the times of the next word, moved into the audio so far (`heard_s`) and not before
        those of the last word.

        overlap: the word may start before the last one ends, but not before that one starts.
        least_s: its least duration, where so much audio came after the last word.
        """
        # Attention may look ahead of the audio or back behind the last word; words are in order.
        earliest_s = min(self.last_start_s if overlap else self.last_end_s, heard_s)
        start_s = max(min(start_s, heard_s - least_s), earliest_s)
        end_s = min(max(end_s, start_s + least_s, self.last_end_s), heard_s)
        self.last_start_s, self.last_end_s = start_s, end_s
        return start_s, end_s

    def aligned(
        self, start_s: float, end_s: float, heard_s: float, *, overlap: bool = False
    ) -> tuple[float, float]:
        """Return the times of the next word, given those of an alignment: without the pauses in
        them, in order, a frame or more long."""
        if self.sound is not None:
            start_s, end_s = self.sound.without_pauses(start_s, end_s)
        return self.in_order(start_s, end_s, heard_s, overlap=overlap, least_s=FRAME_S)

    def emit(
        self,
        text: str,
        start_s: float,
        end_s: float,
        heard_s: float,
        probability: float | None,
        *,
        overlap: bool = False,
    ) -> Word:
        """Return the next committed word, spaced, with its times in order.

        start_s, end_s: in seconds of the stream; heard_s: the audio so far, no word ends later;
        overlap: see `in_order`.
        """
        text = self.spaced(text)
        self.has_text = True
        if self.sound is None:
            times = self.in_order(start_s, end_s, heard_s, overlap=overlap)
        else:
            times = self.aligned(start_s, end_s, heard_s, overlap=overlap)
        return Word(text, *times, probability)
