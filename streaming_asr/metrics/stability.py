"""How much of what was displayed was taken away again.

Displays are compared as raw words under the light key, never normalised.
"""

from __future__ import annotations

from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from streaming_asr.metrics.trace import Trace
from streaming_asr.text import common_prefix, light_words


class Flicker(NamedTuple):
    """Words erased, words lost, and the words of the last display both are counted against."""

    erased: int  # words behind the first difference of one display and the next, shown anew or not
    lost: int  # words of one display that the next does not hold
    final: int


def flicker(trace: Trace) -> Flicker:
    """Return normalised erasure (Arivazhagan et al. 2020) and lost words of one utterance, as
    counts.

    erased = sum_k len D_{k-1} - LCP(D_{k-1}, D_k), the words a reader sees rewritten;
    lost = sum_k len D_{k-1} - LCS(D_{k-1}, D_k), which forgives a word that only moved.
    """
    erased = lost = 0
    before: tuple[str, ...] = ()
    for _, text in trace.displays:
        words = light_words(text)
        n_kept = common_prefix(before, words)
        if n_kept < len(before):
            erased += len(before) - n_kept
            lost += len(before) - n_kept - LCSseq.similarity(before[n_kept:], words[n_kept:])
        before = words
    return Flicker(erased, lost, len(before))
