"""The CTC decoder's tokens: the first k of Whisper's own, and the way to the decoder's tokens.

U2-Whisper (section 2.3) keeps Whisper's vocabulary for the attention decoder and gives the CTC
decoder its first 8000 tokens. Byte-level BPE numbers its tokens in the order in which it learned
them, so the first k with the merges among them are a BPE of their own that spells any text, as
long as all single bytes are among them. Class i of the CTC head is token i; class k is the blank.

A CTC hypothesis is spelled out and read again with the full vocabulary; its score stays, and each
decoder token lies where its bytes were recognised.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.methods.u2.ctc import CtcHypothesis
from streaming_asr.whisper.load import Whisper


@dataclass(frozen=True, slots=True)
class Candidate:
    """A first-pass hypothesis in the decoder's tokens."""

    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    """(first frame, end frame) of each token."""
    ctc_score: float


def spans_of(
    hypothesis: CtcHypothesis, owners: Sequence[int], n_bytes: Sequence[int], stride: int = 1
) -> tuple[tuple[int, int], ...]:
    """Return the (first frame, end frame) of tokens that spell the hypothesis.

    owners: for each byte of its text, the index of the class that the byte came from. n_bytes: of
    each token. stride: encoder frames in a row of classes.
    """
    spans, begin = [], 0
    for n in n_bytes:
        token_owners = owners[begin : begin + n]
        first_row = hypothesis.spans[token_owners[0]][0]
        end_row = hypothesis.spans[token_owners[-1]][1]
        spans.append((first_row * stride, end_row * stride))
        begin += n
    return tuple(spans)


def _first_tokens(serialised: str, n_tokens: int) -> Any:
    """Return the BPE of the first `n_tokens` tokens of a serialised one, without special tokens."""
    from tokenizers import Tokenizer

    settings = json.loads(serialised)
    settings["added_tokens"], settings["post_processor"] = [], None
    settings["truncation"] = settings["padding"] = None
    bpe = settings["model"]
    bpe["unk_token"] = None
    bpe["vocab"] = {token: i for token, i in bpe["vocab"].items() if i < n_tokens}
    # Without the merges to other tokens, so that every text is spelt by these.
    bpe["merges"] = [pair for pair in bpe["merges"] if "".join(pair) in bpe["vocab"]]
    return Tokenizer.from_str(json.dumps(settings))


class CtcTokenizer:
    """Text -> CTC classes -> decoder tokens, for the first `n_tokens` of a Whisper tokenizer."""

    def __init__(self, whisper: Whisper, n_tokens: int | None = None) -> None:
        """Build the tokenizers of the classes and of the decoder's text tokens.

        n_tokens: default all text tokens, so that both are one (the single tokenizer). Raises
        UserError where they are more than there are, or too few to spell any text.
        """
        n_text = whisper.eot
        self.n_tokens = n_text if n_tokens is None else n_tokens
        self.single = self.n_tokens == n_text
        self.blank = self.n_tokens
        self._spelling = whisper.detokenizer
        if not 0 < self.n_tokens <= n_text:
            raise UserError(
                f"ctc_tokens={self.n_tokens}: this model has {n_text} text tokens; give at most "
                "these, or null for all of them (the single tokenizer)"
            )
        single_bytes = [i for i in range(n_text) if len(self._spelling.token_bytes(i)) == 1]
        n_missing = sum(i >= self.n_tokens for i in single_bytes)
        if n_missing:
            raise UserError(
                f"ctc_tokens={self.n_tokens}: {n_missing} of the 256 bytes are not among the first "
                f"{self.n_tokens} tokens, which so cannot spell every text; give "
                f"{max(single_bytes) + 1} or more"
            )
        serialised = whisper.tokenizer.backend_tokenizer.to_str()
        self._bpe = _first_tokens(serialised, self.n_tokens)
        self._full_bpe = _first_tokens(serialised, n_text)

    def spellings(self) -> list[bytes]:
        """Return the bytes of each class, the blank left out."""
        return [self._spelling.token_bytes(i) for i in range(self.n_tokens)]

    def encode(self, text: str) -> list[int]:
        """Return the CTC classes that spell `text`, none of them the blank."""
        ids: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
        return ids

    def written(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Return decoder tokens that spell what classes do: they themselves."""
        return tuple(ids)

    def retokenise(self, hypothesis: CtcHypothesis) -> Candidate:
        """Return the hypothesis in the decoder's tokens, with its score and times."""
        if self.single:
            return Candidate(hypothesis.tokens, hypothesis.spans, hypothesis.score)
        text, owners = self._spell(hypothesis.tokens)
        tokens = tuple(self._full_bpe.encode(text, add_special_tokens=False).ids)
        n_bytes = [len(self._spelling.token_bytes(token)) for token in tokens]
        return Candidate(tokens, spans_of(hypothesis, owners, n_bytes), hypothesis.score)

    def _spell(self, ids: Sequence[int]) -> tuple[str, list[int]]:
        """Return the text, and for each of its UTF-8 bytes the index in `ids` that it came from.

        Bytes that belong to no whole character are left out.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        text: list[str] = []
        owners: list[int] = []
        all_owners: list[int] = []  # of all bytes so far, also those of no whole character
        for index, token in enumerate(ids):
            for byte in self._spelling.token_bytes(token):
                all_owners.append(index)
                character = decoder.decode(bytes([byte]))  # "" until it is whole
                if character:
                    text.append(character)
                    owners += all_owners[-len(character.encode()) :]
        return "".join(text), owners
