"""The second pass: the attention decoder scores the best texts of the first.

One teacher-forced pass over all of them, each behind the whole prompt (start, language, task, no
timestamps). As in U2 (arXiv 2012.05481): score = attention weight * log p(text, end | audio) +
CTC weight * CTC score. The probabilities are those of the full vocabulary, nothing suppressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streaming_asr.method import Recorder
from streaming_asr.methods.u2.tokenizer import Candidate
from streaming_asr.whisper.decoder import Decoder, DecoderCache


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate, its score in the end and the log-probability of each of its tokens."""

    candidate: Candidate
    score: float
    log_probs: tuple[float, ...]


def attention_log_probs(
    decoder: Decoder,
    cache: DecoderCache,
    prompt: Sequence[int],
    texts: Sequence[Sequence[int]],
    n_frames: int,
    recorder: Recorder,
) -> list[list[float]]:
    """Return the log-probability of every token of each text and of the end behind it, in one pass.

    The cache holds `n_frames` frames of stream 0 and has a row for each text.
    """
    first = len(prompt) - 1  # the position that predicts the first token of the text
    hidden = decoder.run(
        cache,
        [[*prompt, *text] for text in texts],
        [0] * len(texts),
        n_frames,
        take=[range(first, len(prompt) + len(text)) for text in texts],
    )
    recorder.count(decode_steps=1, beam_sum=len(texts))
    # No bias in place of the decoder's: a first-pass text may hold a token that it suppresses.
    log_probs = decoder.log_probs(hidden, bias=torch.zeros(1, device=hidden.device))
    return [
        log_probs[i, torch.arange(len(text) + 1), [*text, decoder.pad]].tolist()
        for i, text in enumerate(texts)
    ]


def rescore(
    decoder: Decoder,
    cache: DecoderCache,
    prompt: Sequence[int],
    candidates: Sequence[Candidate],
    n_frames: int,
    recorder: Recorder,
    *,
    attention: float,
    ctc: float,
) -> ScoredCandidate | None:
    """Return the best candidate of both passes; None where none fits the decoder's positions.

    attention, ctc: the weights of the two scores in their sum.
    """
    fitting = [c for c in candidates if len(prompt) + len(c.tokens) <= decoder.max_tokens]
    if not fitting:
        return None
    texts = [candidate.tokens for candidate in fitting]
    by_text = attention_log_probs(decoder, cache, prompt, texts, n_frames, recorder)
    scored = []
    for candidate, log_probs in zip(fitting, by_text, strict=True):
        score = attention * sum(log_probs) + ctc * candidate.ctc_score
        scored.append(ScoredCandidate(candidate, score, tuple(log_probs[:-1])))
    return max(scored, key=lambda candidate: candidate.score)
