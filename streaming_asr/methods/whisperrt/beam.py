"""Beam streaming decoding (WhisperRT Definition 3, Algorithm 2).

When a chunk arrives, the last n tokens of every hypothesis are verified: a token is stable when it
is among the b most probable ones at its position and its probability has not fallen. A hypothesis
is expanded from its first unstable token. The search pauses as soon as a kept hypothesis predicts
the end. With the stream's last block it goes on until every kept hypothesis has ended, and the best
of those is the text: to pause there would leave the text where another hypothesis happened to end.

Hypotheses compete by their probability, the sum of log-probabilities under the present audio, with
that of the end where they have ended; the text shown is the most probable one, as line 27 of the
algorithm returns it. Sums are taken over the tokens in which hypotheses can differ: what they share
adds the same to each, so that it never changes their order, as it would with means. Tokens below
`floor` are shared by all: a hypothesis that disagrees with the best one there is dropped, since
committed words may not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from streaming_asr.method import Recorder
from streaming_asr.methods.whisperrt.hypothesis import Audio, DecodingSettings, WindowHypothesis
from streaming_asr.text.tokens import common_prefix
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.guard import no_guard


@dataclass(slots=True)
class _Branch:
    """A hypothesis (row `parent` of the cache) up to `stop`, and one more token."""

    parent: int
    prefix: WindowHypothesis
    score: float
    token: int
    log_prob: float

    @property
    def total(self) -> float:
        """Return the score with this token's."""
        return self.score + self.log_prob

    @property
    def text(self) -> tuple[int, ...]:
        """Return all tokens, the end among them."""
        return (*self.prefix.tokens, self.token)


def decode_beam(
    settings: DecodingSettings,
    cache: DecoderCache,
    beams: list[WindowHypothesis],
    prompt: list[int],
    floor: int,
    audio: Audio,
    recorder: Recorder,
    *,
    raise_floor: bool = True,
    last: bool = False,
) -> list[WindowHypothesis]:
    """Return hypotheses under this audio, best first; row i of the cache is beams[i].

    With `raise_floor` those that disagree with the best one on its tokens older than n are dropped.
    With `last` the cache is of no more use, and only hypotheses that have ended come back.
    """
    decoder, eot, n_frames = settings.decoder, settings.eot, audio.n_frames
    most_new = settings.most_new(audio)
    # One teacher-forced pass over all hypotheses; every later pass adds one token to each.
    branches = _verify(settings, cache, beams, prompt, floor, n_frames)
    recorder.count(decode_steps=1, beam_sum=len(beams))
    n_passes = 1
    ended: list[_Branch] = []
    while True:
        # Hypotheses that have ended keep their places in the beam.
        survivors = _best(branches, settings.beam - len(ended), ended)
        survivors = _without_loops(settings, survivors, len(prompt), floor, audio)
        if last:
            ended += [branch for branch in survivors if branch.token == eot]
            survivors = [branch for branch in survivors if branch.token != eot]
        # The next token needs a position of the decoder.
        room = len(prompt) + max((len(b.prefix.tokens) for b in survivors), default=0) + 1
        if (
            not survivors
            or any(branch.token == eot for branch in survivors)
            or n_passes >= most_new
            or room >= decoder.max_tokens
        ):
            break
        hypotheses = [_grown(settings, branch, audio) for branch in survivors]
        longest = len(prompt) + max(len(h.tokens) for h in hypotheses)
        # Hypotheses of one parent go on from copies of its keys and values.
        cache.reorder([branch.parent for branch in survivors], longest)
        hidden = decoder.run(
            cache,
            [[h.tokens[-1]] for h in hypotheses],
            [len(prompt) + len(h.tokens) - 1 for h in hypotheses],
            n_frames,
        )
        top = decoder.log_probs(hidden)[:, 0].topk(settings.beam)
        recorder.count(decode_steps=1, beam_sum=len(hypotheses))
        n_passes += 1
        branches = []
        for i, hypothesis in enumerate(hypotheses):
            hypothesis.filled = len(prompt) + len(hypothesis.tokens)
            for token, log_prob in zip(
                top.indices[i].tolist(), top.values[i].tolist(), strict=True
            ):
                branches.append(_Branch(i, hypothesis, survivors[i].total, token, log_prob))
    survivors = sorted(ended or survivors, key=lambda branch: branch.total, reverse=True)
    grown = [_grown(settings, branch, audio) for branch in survivors]
    # Words of these tokens are committed after the chunk, so all hypotheses must share them.
    if raise_floor:
        floor = max(floor, len(grown[0].tokens) - settings.n)
        shared = grown[0].tokens[:floor]
        keep = [i for i, h in enumerate(grown) if h.tokens[:floor] == shared]
        survivors, grown = [survivors[i] for i in keep], [grown[i] for i in keep]
    if settings.keep_cache and not last:
        cache.reorder(
            [branch.parent for branch in survivors], len(prompt) + max(len(h.tokens) for h in grown)
        )
    return grown


def _grown(settings: DecodingSettings, branch: _Branch, audio: Audio) -> WindowHypothesis:
    hypothesis = branch.prefix.copy()
    if branch.token != settings.eot:
        hypothesis.append(branch.token, branch.log_prob, audio.end, settings.since(audio))
    return hypothesis


def _without_loops(
    settings: DecodingSettings, branches: list[_Branch], n_prompt: int, floor: int, audio: Audio
) -> list[_Branch]:
    """Return the branches whose last token completes no unsupported copy; where all do, the first
    of them, ended before its copy."""
    if settings.guard is no_guard:
        return branches
    result: list[_Branch] = []
    ended: list[_Branch] = []
    for branch in branches:
        grown = _grown(settings, branch, audio)
        n_dropped = 0
        if branch.token != settings.eot:
            n_dropped = settings.n_surplus(grown, audio.end, floor)
        if not n_dropped:
            result.append(branch)
        elif not ended:
            grown.crop(len(grown.tokens) - n_dropped, n_prompt)
            ended.append(_Branch(branch.parent, grown, branch.total, settings.eot, 0.0))
    return result or ended


def _best(branches: list[_Branch], width: int, ended: list[_Branch]) -> list[_Branch]:
    """Return the `width` best of different texts, by score, none of them a text that has `ended`: a
    cropped hypothesis may come to it again."""
    ordered = sorted(branches, key=lambda branch: branch.total, reverse=True)
    texts = {branch.text for branch in ended}
    result: list[_Branch] = []
    for branch in ordered:
        if branch.text not in texts:
            texts.add(branch.text)
            result.append(branch)
        if len(result) == width:
            break
    return result


@torch.inference_mode()
def _verify(
    settings: DecodingSettings,
    cache: DecoderCache,
    beams: list[WindowHypothesis],
    prompt: list[int],
    floor: int,
    n_frames: int,
) -> list[_Branch]:
    """Crop and expand every hypothesis once, by the one teacher-forced pass of a chunk."""
    decoder, n_prompt = settings.decoder, len(prompt)
    n_shared = min(common_prefix(beams[0].tokens, h.tokens) for h in beams)
    shortest = min(len(h.tokens) for h in beams)
    # Scores count from here on: before it all hypotheses are equal, which changes no order.
    # 2n and not n: after a crop by n the tokens before it are the last ones, and the next chunk
    # compares them with what they have under this audio.
    low = max(floor, min(n_shared, shortest - 2 * settings.n), 0)
    sequences, starts, takes = [], [], []
    for hypothesis in beams:
        # Without kept keys all tokens are fed again, since their audio has grown.
        start = min(hypothesis.filled, n_prompt + low - 1) if settings.keep_cache else 0
        sequences.append([*prompt, *hypothesis.tokens][start:])
        starts.append(start)
        takes.append([n_prompt + i - 1 - start for i in range(low, len(hypothesis.tokens) + 1)])
    hidden = decoder.run(cache, sequences, starts, n_frames, take=takes)
    log_probs = decoder.log_probs(hidden)
    top = log_probs.topk(settings.beam)
    top_tokens, top_log_probs = top.indices.tolist(), top.values.tolist()
    branches = []
    for r, hypothesis in enumerate(beams):
        n_tokens = len(hypothesis.tokens)
        tail = torch.tensor(hypothesis.tokens[low:], dtype=torch.long, device=hidden.device)
        new = log_probs[r, : len(tail)].gather(-1, tail[:, None])[:, 0].tolist()
        stop = n_tokens
        for i in range(max(floor, n_tokens - settings.n, 0), n_tokens):
            fell = new[i - low] < hypothesis.log_probs[i] - settings.tolerance
            if fell or hypothesis.tokens[i] not in top_tokens[r][i - low]:
                stop = i
                break
        prefix = hypothesis.copy()
        prefix.filled = n_prompt + n_tokens
        prefix.crop(stop, n_prompt)
        # The next chunk compares with what these tokens have under this audio.
        prefix.log_probs[low:stop] = new[: stop - low]
        score = sum(new[: stop - low])
        for token, log_prob in zip(
            top_tokens[r][stop - low], top_log_probs[r][stop - low], strict=True
        ):
            branches.append(_Branch(r, prefix, score, token, log_prob))
    return branches
