"""Beam search that follows the text of the round before, one hypothesis wide while it can.

Beam pruning of WhisperFlow (section 4.2). While the best token is the next one of the reference the
beam is 1; a token that differs is the fallback: from there on the ordinary search of full width.
The first token is looked for in the whole reference, since the start of the audio may be gone.
Punctuation and control tokens go on at width 1 and are matched with nothing.

The paper leaves open, and here it is so: the reference is the whole text of the round before, its
unconfirmed end included, without its punctuation (with it every skipped mark would be a mismatch);
its end is a mismatch; the end of the text, a control token, is taken at width 1; after a fallback
the search stays wide.

The text of the round before is fed in one pass, and its outputs are used as far as the search takes
it. That gives the same text as step by step and reads the weights once for all these tokens.

A round stops when `beam` hypotheses have ended, as in the paper and in Whisper. A search that
becomes wide late has few other texts, so that unlikely ends in mid-text take the places. In most
rounds that costs nothing, since the words come again with the next one. In a stream's last round
they would be lost: there, hypotheses with a better mean than all that have ended go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streaming_asr.whisper.load import Whisper
from streaming_asr.whisper.search import Guide


def punctuation(whisper: Whisper) -> Callable[[int], bool]:
    """Return a test for tokens that the search skips: control tokens, and text without a letter or
    digit."""

    def skips(token: int) -> bool:
        if token >= whisper.eot:
            return True
        try:
            text = whisper.detokenizer.token_bytes(token).decode("utf-8")
        except UnicodeDecodeError:  # a part of a character, probably a letter
            return False
        return not any(c.isalnum() for c in text)

    return skips


class ReferenceGuide(Guide):
    """The text that one search follows, how far it has come, and whether it is narrow."""

    def __init__(self, tokens: Sequence[int], skips: Callable[[int], bool]) -> None:
        self._skips = skips
        self._text = tokens
        # Punctuation comes and goes as the audio grows, and each mark would be a mismatch.
        self._indices = [i for i, token in enumerate(tokens) if not skips(token)]
        self._tokens = [tokens[i] for i in self._indices]
        self._next: int | None = None
        """Index in `_tokens` of the token that should come next; None before the first match."""
        self._narrow = True

    def draft(self, last: int | None) -> Sequence[int]:
        """Return the rest of the text; behind a mark of punctuation, from its next word on."""
        if not self._narrow:
            return ()
        n_passed = self._next or 0
        if last is not None and self._skips(last):
            begin = [*self._indices, len(self._text)][n_passed]
        else:
            begin = self._indices[n_passed - 1] + 1 if n_passed else 0
        return self._text[begin:]

    def narrow(self, best: int) -> bool:
        """Return whether the search stays narrow; if so the best token counts as taken."""
        self._narrow = self._narrow and self._follow(best)
        return self._narrow

    def _follow(self, token: int) -> bool:
        """Return whether a token is the reference's next one or skipped; if so, move on to it."""
        if self._skips(token):
            return True
        if self._next is None:
            # The buffer may have been cut since, so the text may begin anywhere in the reference.
            if token not in self._tokens:
                return False
            self._next = self._tokens.index(token) + 1
            return True
        if self._next < len(self._tokens) and self._tokens[self._next] == token:
            self._next += 1
            return True
        return False
