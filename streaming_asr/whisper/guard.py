"""The guard against loops: a phrase that comes again while no new speech supports it is dropped.

A decoder that has written a phrase twice is likely to write it again, whatever the audio: each copy
makes the next one more probable. The rule looks only at the newest tokens. A phrase of k tokens
that occurs c times in a row at the end of a text is unsupported

- where it occurs there too often: more than `SHORT_COPIES` times for phrases of fewer than `LONG`
  tokens, more than `LONG_COPIES` times for longer ones; or
- where it came too fast: the audio since the first of them holds fewer than `FRAMES_PER_TOKEN`
  frames for each of their c * k tokens, twice the rate of fast speech; or, of a phrase of `LONG`
  tokens or more, the audio since the phrase before it holds fewer for each of its k tokens. So a
  sentence is not output again because the one that is spoken now begins alike.

People repeat a short phrase that often too ("no, no, no, no"), and their next words must not be
lost. So the token that would complete a short copy is refused, and the text goes on with the next
best one: the end where nobody speaks, another word where somebody does. Before a long copy the text
ends, until more audio has come. WhisperRT, which knows when each token came, also waits where
a short copy came too fast. The rule is the same for all methods that decode freely
(`guard=repeats`); the papers have none (`guard=none`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

FRAMES_PER_TOKEN = 8
"""Frames of 20 ms: 0.16 s, 6.25 tokens a second."""
LONG, SHORT_COPIES, LONG_COPIES = 5, 3, 2


class Copy(NamedTuple):
    """An unsupported copy of a phrase at the end of a text."""

    n_tokens: int
    """Of the phrase."""
    too_often: bool
    """Whether it is one too many, whatever the audio; else it came too fast."""

    @property
    def is_short(self) -> bool:
        """Return whether a speaker may repeat it so; the text then goes on."""
        return self.n_tokens < LONG


Guard = Callable[[Sequence[int], Callable[[int], float]], Copy | None]


def no_guard(tokens: Sequence[int], frames_since: Callable[[int], float]) -> None:
    """Return None: nothing is refused (`guard=none`)."""


def unsupported(tokens: Sequence[int], frames_since: Callable[[int], float]) -> Copy | None:
    """Return the shortest unsupported copy that the last token completes (see the module for the
    rule); None where there is none.

    frames_since(i): encoder frames of audio in which the tokens from i on can have been spoken.
    """
    n_tokens = len(tokens)
    for k in range(1, n_tokens // 2 + 1):  # the length of the phrase
        n_copies = _copies(tokens, k)
        if n_copies < 2:
            continue
        n_copied = n_copies * k
        if n_copies > (SHORT_COPIES if k < LONG else LONG_COPIES):
            return Copy(k, too_often=True)
        if frames_since(n_tokens - n_copied) < FRAMES_PER_TOKEN * n_copied:
            return Copy(k, too_often=False)
        if k >= LONG and frames_since(n_tokens - k - 1) < FRAMES_PER_TOKEN * k:
            return Copy(k, too_often=False)
    return None


def _copies(tokens: Sequence[int], k: int) -> int:
    """Return how often the last k tokens occur in a row at the end, 1 or more; k < len(tokens)."""
    if tokens[-1] != tokens[-1 - k]:  # saves the slices nearly always
        return 1
    phrase = tokens[-k:]
    n_copies, stop = 1, len(tokens) - k
    while stop >= k and tokens[stop - k : stop] == phrase:
        n_copies += 1
        stop -= k
    return n_copies


def even(n_tokens: int, n_frames: float) -> Callable[[int], float]:
    """Return `frames_since` for `n_tokens` without times: they are spread evenly over `n_frames`
    encoder frames."""
    return lambda i: (n_tokens - i) * n_frames / n_tokens


GUARDS: dict[str, Guard] = {"repeats": unsupported, "none": no_guard}
