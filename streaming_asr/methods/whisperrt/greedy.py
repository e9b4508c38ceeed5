"""Greedy streaming decoding (WhisperRT Definition 1, Algorithm 1), many streams at once.

When a chunk arrives, the last n tokens are verified: a token is stable when its probability has
not fallen since the chunk before, or when it is still the most probable one. Decoding goes on from
the first unstable token, whose successor is taken from the same pass. The prompt and the tokens
below `floor` are never verified. Probabilities, not raw logits, are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streaming_asr.method import Recorder
from streaming_asr.methods.whisperrt.hypothesis import Hypothesis, Settings
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.together import Passes, Wanted


@dataclass(slots=True)
class Row:
    """One stream's part in a pass over the pool."""

    row: int
    prompt: list[int]
    hypothesis: Hypothesis
    floor: int
    born: int
    next_token: int = -1
    next_log_prob: float = 0.0
    n_new: int = 0


def decode_greedy(
    settings: Settings, cache: DecoderCache, rows: Sequence[Row], n_frames: int, recorder: Recorder
) -> Passes[None]:
    """Bring every row's hypothesis up to date with `n_frames` of audio, in place.

    Rows at other places may share the passes.
    """
    decoder, eot = settings.decoder, settings.eot
    yield from _verify(settings, cache, rows, n_frames, recorder)
    recorder.count(decode_steps=len(rows), beam_sum=len(rows))
    active = list(rows)
    while True:
        with recorder.part("decode"):
            for row in active:
                if row.next_token != eot:
                    row.hypothesis.append(row.next_token, row.next_log_prob, row.born)
                    row.n_new += 1
                    _drop_surplus(row, settings)
            active = [row for row in active if row.next_token != eot and _may_grow(row, settings)]
            if not active:
                return
            part = decoder.part(
                cache,
                [[row.hypothesis.tokens[-1]] for row in active],
                [len(row.prompt) + len(row.hypothesis.tokens) - 1 for row in active],
                n_frames,
                rows=[row.row for row in active],
            )
        log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
        with recorder.part("decode"):
            best = log_probs[:, 0].max(-1)
            for row, token, log_prob in zip(
                active, best.indices.tolist(), best.values.tolist(), strict=True
            ):
                row.hypothesis.filled = len(row.prompt) + len(row.hypothesis.tokens)
                row.next_token, row.next_log_prob = token, log_prob
        recorder.count(decode_steps=len(active), beam_sum=len(active))


def _drop_surplus(row: Row, settings: Settings) -> None:
    """Take an unsupported copy off the row and end the chunk there."""
    hypothesis = row.hypothesis
    n_dropped = settings.n_surplus(hypothesis, row.born, row.floor)
    if n_dropped:
        hypothesis.crop(len(hypothesis.tokens) - n_dropped, len(row.prompt))
        row.next_token = settings.eot


def _may_grow(row: Row, settings: Settings) -> bool:
    used = len(row.prompt) + len(row.hypothesis.tokens)
    return row.n_new < settings.max_new and used < settings.decoder.max_tokens


@torch.inference_mode()
def _verify(
    settings: Settings, cache: DecoderCache, rows: Sequence[Row], n_frames: int, recorder: Recorder
) -> Passes[None]:
    """Run the one teacher-forced pass of a chunk: crop each row at its first unstable token.

    Evaluates up to 2n tokens, so that after a crop those that are last then have a probability
    under this audio to be compared with.
    """
    decoder = settings.decoder
    with recorder.part("decode"):
        sequences, starts, takes, lows = [], [], [], []
        for row in rows:
            hypothesis, n_prompt = row.hypothesis, len(row.prompt)
            n_tokens = len(hypothesis.tokens)
            # 2n and not n: after a crop by n the tokens before it are the last ones.
            low = max(row.floor, n_tokens - 2 * settings.n, 0)
            first = n_prompt + low - 1
            start = min(hypothesis.filled, first) if settings.keep_cache else 0
            sequences.append([*row.prompt, *hypothesis.tokens][start:])
            starts.append(start)
            takes.append([n_prompt + i - 1 - start for i in range(low, n_tokens + 1)])
            lows.append(low)
        part = decoder.part(
            cache, sequences, starts, n_frames, rows=[row.row for row in rows], take=takes
        )
    log_probs = yield Wanted("decode", decoder.taken_log_probs, part)
    with recorder.part("decode"):
        _judge(settings, rows, lows, log_probs)


def _judge(
    settings: Settings, rows: Sequence[Row], lows: Sequence[int], log_probs: torch.Tensor
) -> None:
    """Crop each row by the log-probabilities (rows, wanted, vocabulary) from token lows[r] on."""
    eot = settings.eot
    n_wanted = log_probs.shape[1]
    wanted = [[*row.hypothesis.tokens[low:], eot] for row, low in zip(rows, lows, strict=True)]
    ids = torch.tensor(
        # (rows shorter than the longest are filled up; what is read there is never used)
        [[*w, *[eot] * (n_wanted - len(w))] for w in wanted],
        device=log_probs.device,
    )
    given = log_probs.gather(-1, ids[..., None])[..., 0].tolist()
    top_log_probs, top_tokens = (part.tolist() for part in log_probs.max(-1))
    for r, row in enumerate(rows):
        hypothesis, low = row.hypothesis, lows[r]
        n_tokens = len(hypothesis.tokens)
        hypothesis.filled = len(row.prompt) + n_tokens
        stop = n_tokens
        for i in range(max(row.floor, n_tokens - settings.n, 0), n_tokens):
            fell = given[r][i - low] < hypothesis.log_probs[i] - settings.tolerance
            # Definition 1: unstable only where both tests fail.
            if fell and top_tokens[r][i - low] != hypothesis.tokens[i]:
                stop = i
                break
        hypothesis.crop(stop, len(row.prompt))
        hypothesis.log_probs[low:stop] = given[r][: stop - low]
        row.next_token, row.next_log_prob = top_tokens[r][stop - low], top_log_probs[r][stop - low]
        # No position is left: the text ends here until the window is cut.
        if len(row.prompt) + stop >= settings.decoder.max_tokens:
            row.next_token = eot
