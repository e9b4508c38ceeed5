"""Greedy streaming decoding (WhisperRT Definition 1, Algorithm 1).

When a chunk arrives, the last n tokens are verified: a token is stable when its probability has
not fallen since the chunk before, or when it is still the most probable one. Decoding goes on from
the first unstable token, whose successor is taken from the same pass. The prompt and the tokens
below `floor` are never verified. Probabilities, not raw logits, are compared.
"""

from __future__ import annotations

import torch

from streaming_asr.method import Recorder
from streaming_asr.methods.whisperrt.hypothesis import Audio, DecodingSettings, WindowHypothesis
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.together import Passes, Wanted


def decode_greedy(
    settings: DecodingSettings,
    cache: DecoderCache,
    hypothesis: WindowHypothesis,
    prompt: list[int],
    floor: int,
    audio: Audio,
    recorder: Recorder,
) -> Passes[None]:
    """Verify the last tokens of the hypothesis and decode on to the end of the audio, in place.

    The first `floor` tokens are final. Yields each pass of the decoder that it needs; row 0 of the
    cache holds the keys and values of the hypothesis.
    """
    decoder, n_frames = settings.decoder, audio.n_frames
    candidates = yield from _verify(settings, cache, hypothesis, prompt, floor, n_frames, recorder)
    recorder.count(decode_steps=1, beam_sum=1)
    n_new = 0
    max_passes, spoken_from = settings.max_passes(audio), settings.spoken_from(audio)
    while True:
        token, log_prob = settings.best_allowed(hypothesis, candidates)
        if token == settings.eot:
            return
        hypothesis.append(token, log_prob, audio.end, spoken_from)
        n_copied = settings.n_copied(hypothesis, audio.end, floor)
        if n_copied:
            # The text ends before the copy, until the next chunk.
            hypothesis.crop(len(hypothesis.tokens) - n_copied, len(prompt))
            return
        n_new += 1
        n_positions = len(prompt) + len(hypothesis.tokens)
        if n_new >= max_passes or n_positions >= decoder.max_tokens:
            return
        with recorder.part("decode"):
            part = decoder.part(cache, [hypothesis.tokens[-1:]], [n_positions - 1], n_frames)
        log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
        with recorder.part("decode"):
            candidates = _best_two(log_probs[0, 0])
        hypothesis.filled = n_positions
        recorder.count(decode_steps=1, beam_sum=1)


def _verify(
    settings: DecodingSettings,
    cache: DecoderCache,
    hypothesis: WindowHypothesis,
    prompt: list[int],
    floor: int,
    n_frames: int,
    recorder: Recorder,
) -> Passes[list[tuple[int, float]]]:
    """Crop the hypothesis before its first unstable token, by one teacher-forced pass; return the
    two likeliest tokens that follow it, each with its log-probability.
    """
    decoder, n_prompt, n_tokens = settings.decoder, len(prompt), len(hypothesis.tokens)
    with recorder.part("decode"):
        # The first token that is evaluated. 2n and not n: after a crop by n the n tokens before the
        # crop are the last ones, and the next chunk compares them with their values of now.
        first = max(floor, n_tokens - 2 * settings.n, 0)
        # Without kept keys all tokens are fed again, since their audio has grown.
        start = min(hypothesis.filled, n_prompt + first - 1) if settings.keep_cache else 0
        # The output that predicts token i is that of the token before it.
        outputs = [n_prompt + i - 1 - start for i in range(first, n_tokens + 1)]
        sequence = [*prompt, *hypothesis.tokens][start:]
        part = decoder.part(cache, [sequence], [start], n_frames, take=[outputs])
    log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
    with recorder.part("decode"):
        tail = torch.tensor(hypothesis.tokens[first:], dtype=torch.long, device=log_probs.device)
        new_log_probs = log_probs[0, : len(tail)].gather(-1, tail[:, None])[:, 0].tolist()
        top_tokens = log_probs[0].argmax(-1).tolist()
        n_stable = n_tokens
        for i in range(max(floor, n_tokens - settings.n, 0), n_tokens):
            fell = new_log_probs[i - first] < hypothesis.log_probs[i]
            # Definition 1: unstable only where both tests fail.
            if fell and top_tokens[i - first] != hypothesis.tokens[i]:
                n_stable = i
                break
        # The hypothesis is changed in place: the pass has filled the cache with all its tokens, and
        # the next chunk compares with the probabilities that they have under this audio.
        hypothesis.filled = n_prompt + n_tokens
        hypothesis.crop(n_stable, n_prompt)
        hypothesis.log_probs[first:n_stable] = new_log_probs[: n_stable - first]
        if n_prompt + n_stable >= decoder.max_tokens:
            # No position is left: the text ends here until the window is cut.
            return [(settings.eot, 0.0)]
        return _best_two(log_probs[0, n_stable - first])


def _best_two(log_probs: torch.Tensor) -> list[tuple[int, float]]:
    """Return the two likeliest tokens of (vocabulary,), each with its log-probability."""
    best = log_probs.topk(2)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
