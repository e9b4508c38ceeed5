"""How much of what was displayed was taken away again.

Displays are compared as raw units of their language (words, or characters), never normalised: as
written for the published figure, under the light key (without case and punctuation at the edges)
for ours.
"""

from __future__ import annotations

from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from streaming_asr.metrics.trace import Trace
from streaming_asr.text.tokens import common_prefix


class Flicker(NamedTuple):
    """Words erased, words lost, and the words of the last display both are counted against."""

    erased: int  # words behind the first difference of one display and the next, shown again or not
    lost: int  # words of one display that the next does not hold
    final: int
    erased_as_written: int  # as `erased`, but of units as they are written
    final_as_written: int


def flicker(trace: Trace) -> Flicker:
    """Return erased and lost words of one utterance.

    The words as written give normalised erasure as published (Arivazhagan et al. 2020) and as
    simulstream computes it: its deleted tokens over its final ones.

    erased = sum_k len D_{k-1} - LCP(D_{k-1}, D_k), the words a reader sees rewritten;
    lost = sum_k len D_{k-1} - LCS(D_{k-1}, D_k), which forgives a word that only moved.
    """
    erased = lost = erased_as_written = 0
    before: tuple[str, ...] = ()
    written: list[str] = []
    for _, text in trace.displays:
        tokens = trace.units(text)
        erased_as_written += len(written) - common_prefix(written, tokens)
        written = tokens
        words = trace.light(text)
        n_kept = common_prefix(before, words)
        if n_kept < len(before):
            erased += len(before) - n_kept
            lost += len(before) - n_kept - LCSseq.similarity(before[n_kept:], words[n_kept:])
        before = words
    return Flicker(erased, lost, len(before), erased_as_written, len(written))
