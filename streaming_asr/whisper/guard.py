"""The guard against loops: a phrase that comes again while no new speech supports it is dropped.

A decoder that has once said a phrase twice is likely to say it again, whatever it hears: each copy
makes the next one more probable. The rule looks at the newest tokens alone. A phrase of k tokens
that stands c times in a row at the end of a text is unsupported

- where it stands there more often than speech does that: more than `SHORT_COPIES` times for
  phrases of fewer than `LONG` tokens, more than `LONG_COPIES` times for longer ones; or
- where the audio since the first of them holds fewer than `FRAMES_PER_TOKEN` frames for each of
  their c * k tokens, twice the rate of fast speech.

Its last copy is dropped then, and the text ends before it, until more has been heard. So what is
said twice too fast comes a chunk later, and what is said without end stops. The rule is the same
for all methods that decode freely (`guard=repeats`); the papers have none (`guard=none`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

FRAMES_PER_TOKEN = 8
"""Frames of 20 ms: 0.16 s, 6.25 tokens a second."""
LONG, SHORT_COPIES, LONG_COPIES = 5, 3, 2

Surplus = Callable[[Sequence[int], Callable[[int], float]], int]


def no_guard(tokens: Sequence[int], frames_since: Callable[[int], float]) -> int:
    """Return 0: nothing is dropped (`guard=none`)."""
    return 0


def surplus(tokens: Sequence[int], frames_since: Callable[[int], float]) -> int:
    """Return how many of the last tokens are an unsupported copy, 0 for none.

    frames_since(i): encoder frames of audio in which the tokens from i on can have been spoken.
    """
    n = len(tokens)
    for k in range(1, n // 2 + 1):
        copies = _copies(tokens, k)
        if copies < 2:
            continue
        most = SHORT_COPIES if k < LONG else LONG_COPIES
        n_said = copies * k
        if copies > most or frames_since(n - n_said) < FRAMES_PER_TOKEN * n_said:
            return k
    return 0


def _copies(tokens: Sequence[int], k: int) -> int:
    """Return how often the last k tokens stand in a row at the end, 1 or more."""
    phrase, copies, stop = tokens[-k:], 1, len(tokens) - k
    while stop >= k and tokens[stop - k : stop] == phrase:
        copies, stop = copies + 1, stop - k
    return copies


def even(n_tokens: int, n_frames: float) -> Callable[[int], float]:
    """Return `frames_since` for `n_tokens` that lie in `n_frames` nobody knows where."""
    return lambda i: (n_tokens - i) * n_frames / n_tokens


GUARDS: dict[str, Surplus] = {"repeats": surplus, "none": no_guard}
