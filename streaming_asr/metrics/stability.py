"""How much of what was displayed was taken away again.

Displays are compared as raw units of their language (words, or characters), never normalised: as
written for the published figure, under the light key (without case and punctuation at the edges)
for ours.
"""

from __future__ import annotations

from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from streaming_asr.metrics.trace import Trace
from streaming_asr.text.growing import Growing, Words


class Flicker(NamedTuple):
    """Words erased, words lost, and the words of the last display both are counted against."""

    erased: int  # words behind the first difference of one display and the next, shown again or not
    lost: int  # words of one display that the next does not hold
    final: int
    erased_as_written: int  # as `erased`, but of units as they are written
    final_as_written: int


def flicker(trace: Trace) -> Flicker:
    """Return erased and lost words of one utterance, with D_k the words of display k:

    erased = sum_k len D_{k-1} - LCP(D_{k-1}, D_k), the words that a reader sees rewritten (LCP is
    the length of the longest common prefix);
    lost = sum_k len D_{k-1} - LCS(D_{k-1}, D_k), which forgives a word that only moved (LCS is that
    of the longest common subsequence).

    The words as written give normalised erasure as published (Arivazhagan et al. 2020) and as
    simulstream computes it: its deleted tokens over its final ones.
    """
    erased = lost = erased_as_written = 0
    words: Words = Growing.of(())
    tokens: Words = Growing.of(())  # the words as written
    for _, text in trace.displays:
        words_before, words = words, trace.light(text)
        tokens_before, tokens = tokens, trace.written(text)
        erased_as_written += len(tokens_before) - tokens.shared(tokens_before)
        n_prefix = words.shared(words_before)
        n_erased = len(words_before) - n_prefix
        erased += n_erased
        if n_erased:
            lost += n_erased - LCSseq.similarity(
                words_before.behind(n_prefix), words.behind(n_prefix)
            )
    return Flicker(erased, lost, len(words), erased_as_written, len(tokens))
