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
    """Bring the hypothesis up to date with the audio, in place."""
    decoder, eot, n_frames = settings.decoder, settings.eot, audio.n_frames
    nexts = yield from _verify(settings, cache, hypothesis, prompt, floor, n_frames, recorder)
    recorder.count(decode_steps=1, beam_sum=1)
    n_new, most_new, since = 0, settings.most_new(audio), settings.since(audio)
    while True:
        token, log_prob = settings.allowed(hypothesis, nexts)
        if token == eot:
            return
        hypothesis.append(token, log_prob, audio.end, since)
        if n_copied := settings.n_surplus(hypothesis, audio.end, floor):
            # The text ends before the copy, until the next chunk.
            hypothesis.crop(len(hypothesis.tokens) - n_copied, len(prompt))
            return
        n_new += 1
        n_fed = len(prompt) + len(hypothesis.tokens)
        if n_new >= most_new or n_fed >= decoder.max_tokens:
            return
        with recorder.part("decode"):
            part = decoder.part(cache, [hypothesis.tokens[-1:]], [n_fed - 1], n_frames)
        log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
        with recorder.part("decode"):
            nexts = _best_two(log_probs[0, 0])
        hypothesis.filled = n_fed
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
    """Run the one teacher-forced pass of a chunk: crop the hypothesis at its first unstable token;
    return the two best tokens that follow, each with its log-probability.

    Evaluates up to 2n tokens, so that after a crop those that are last then have a probability
    under this audio to be compared with.
    """
    decoder, n_prompt, n_tokens = settings.decoder, len(prompt), len(hypothesis.tokens)
    with recorder.part("decode"):
        # 2n and not n: after a crop by n the tokens before it are the last ones.
        low = max(floor, n_tokens - 2 * settings.n, 0)
        start = min(hypothesis.filled, n_prompt + low - 1) if settings.keep_cache else 0
        take = [n_prompt + i - 1 - start for i in range(low, n_tokens + 1)]
        sequence = [*prompt, *hypothesis.tokens][start:]
        part = decoder.part(cache, [sequence], [start], n_frames, take=[take])
    log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
    with recorder.part("decode"):
        tail = torch.tensor(hypothesis.tokens[low:], dtype=torch.long, device=log_probs.device)
        under_this = log_probs[0, : len(tail)].gather(-1, tail[:, None])[:, 0].tolist()
        top_tokens = log_probs[0].argmax(-1).tolist()
        stop = n_tokens
        for i in range(max(floor, n_tokens - settings.n, 0), n_tokens):
            fell = under_this[i - low] < hypothesis.log_probs[i] - settings.tolerance
            # Definition 1: unstable only where both tests fail.
            if fell and top_tokens[i - low] != hypothesis.tokens[i]:
                stop = i
                break
        hypothesis.filled = n_prompt + n_tokens
        hypothesis.crop(stop, n_prompt)
        hypothesis.log_probs[low:stop] = under_this[: stop - low]
        # No position is left: the text ends here until the window is cut.
        is_full = n_prompt + stop >= decoder.max_tokens
        return [(settings.eot, 0.0)] if is_full else _best_two(log_probs[0, stop - low])


def _best_two(log_probs: torch.Tensor) -> list[tuple[int, float]]:
    """Return the two likeliest tokens of (vocabulary,), each with its log-probability."""
    best = log_probs.topk(2)
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
