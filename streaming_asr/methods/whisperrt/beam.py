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
    """A hypothesis and one more token, which may be the end."""

    parent: int
    """Row of the cache that holds the hypothesis."""
    prefix: WindowHypothesis
    score: float
    """Sum of the log-probabilities of the prefix, without the tokens that all hypotheses share."""
    token: int
    log_prob: float

    @property
    def total(self) -> float:
        """Return the score of the prefix with this token."""
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
    """Return the hypotheses under this audio, the most probable first.

    Row i of the cache holds the keys and values of beams[i], and afterwards, with `keep_cache`,
    those of the i-th result. The first `floor` tokens are final and never verified. raise_floor:
    drop the hypotheses that disagree with the best one on its tokens older than the last n.
    last: the stream ends with this audio; each hypothesis goes on to an end of its own where the
    limits allow it, and the cache is not brought up to date.
    """
    eot, n_prompt = settings.eot, len(prompt)
    max_passes = settings.max_passes(audio)
    # One teacher-forced pass over all hypotheses; every later pass adds one token to each.
    branches = _verify(settings, cache, beams, prompt, floor, audio.n_frames)
    recorder.count(decode_steps=1, beam_sum=len(beams))
    n_passes = 1
    ended: list[_Branch] = []
    while True:
        # Hypotheses that have ended keep their places in the beam.
        survivors = _best(branches, settings.beam - len(ended), ended)
        survivors = _without_loops(settings, survivors, ended, n_prompt, floor, audio)
        if last:
            ended += [branch for branch in survivors if branch.token == eot]
            survivors = [branch for branch in survivors if branch.token != eot]
        pauses = any(branch.token == eot for branch in survivors)
        if not survivors or pauses or n_passes >= max_passes:
            break
        # The token after each branch's needs a position of the decoder.
        longest = n_prompt + max(len(branch.text) for branch in survivors)
        if longest >= settings.decoder.max_tokens:
            break
        branches = _continuations(settings, cache, survivors, n_prompt, audio)
        recorder.count(decode_steps=1, beam_sum=len(survivors))
        n_passes += 1
    survivors = sorted(ended or survivors, key=lambda branch: branch.total, reverse=True)
    hypotheses = [_grown(settings, branch, audio) for branch in survivors]
    if raise_floor:
        # Words of these tokens are committed after the chunk, so all hypotheses must share them.
        floor = max(floor, len(hypotheses[0].tokens) - settings.n)
        shared = hypotheses[0].tokens[:floor]
        agreeing = [i for i, h in enumerate(hypotheses) if h.tokens[:floor] == shared]
        survivors = [survivors[i] for i in agreeing]
        hypotheses = [hypotheses[i] for i in agreeing]
    if settings.keep_cache and not last:
        longest = n_prompt + max(len(h.tokens) for h in hypotheses)
        cache.reorder([branch.parent for branch in survivors], longest)
    return hypotheses


def _continuations(
    settings: DecodingSettings,
    cache: DecoderCache,
    survivors: list[_Branch],
    n_prompt: int,
    audio: Audio,
) -> list[_Branch]:
    """Return the `beam` likeliest continuations of each survivor, whose token joins the hypothesis.

    One pass of the decoder feeds that token. Row i of the cache becomes that of survivors[i].
    """
    decoder = settings.decoder
    hypotheses = [_grown(settings, branch, audio) for branch in survivors]
    longest = n_prompt + max(len(h.tokens) for h in hypotheses)
    # Hypotheses of one parent go on from copies of its keys and values. From here on survivors[i],
    # hypotheses[i] and row i of the cache belong together.
    cache.reorder([branch.parent for branch in survivors], longest)
    hidden = decoder.run(
        cache,
        [[h.tokens[-1]] for h in hypotheses],
        [n_prompt + len(h.tokens) - 1 for h in hypotheses],
        audio.n_frames,
    )
    top = decoder.log_probs(hidden)[:, 0].topk(settings.beam)
    top_tokens, top_log_probs = top.indices.tolist(), top.values.tolist()
    branches = []
    for row, hypothesis in enumerate(hypotheses):
        # The pass above has written the new token's keys and values.
        hypothesis.filled = n_prompt + len(hypothesis.tokens)
        score = survivors[row].total
        for token, log_prob in zip(top_tokens[row], top_log_probs[row], strict=True):
            branches.append(_Branch(row, hypothesis, score, token, log_prob))
    return branches


def _grown(settings: DecodingSettings, branch: _Branch, audio: Audio) -> WindowHypothesis:
    """Return a new hypothesis: the branch's prefix and its token, unless that is the end."""
    hypothesis = branch.prefix.copy()
    if branch.token != settings.eot:
        spoken_from = settings.spoken_from(audio)
        hypothesis.append(branch.token, branch.log_prob, audio.end, spoken_from)
    return hypothesis


def _without_loops(
    settings: DecodingSettings,
    branches: list[_Branch],
    ended: list[_Branch],
    n_prompt: int,
    floor: int,
    audio: Audio,
) -> list[_Branch]:
    """Return the branches whose last token completes no unsupported copy of earlier tokens.

    Where all do, returns the first of them only, which ends before its copy, or none if `ended`
    has its text already.
    """
    if settings.guard is no_guard:
        return branches
    without_copy: list[_Branch] = []
    cropped: list[_Branch] = []
    for branch in branches:
        hypothesis = _grown(settings, branch, audio)
        n_copied = 0
        if branch.token != settings.eot:
            n_copied = settings.n_copied(hypothesis, audio.end, floor)
        if n_copied == 0:
            without_copy.append(branch)
        elif not cropped:
            # The end's own probability after the crop is not known without another pass.
            score = branch.total - sum(hypothesis.log_probs[-n_copied:])
            hypothesis.crop(len(hypothesis.tokens) - n_copied, n_prompt)
            cropped.append(_Branch(branch.parent, hypothesis, score, settings.eot, 0.0))
    texts = {branch.text for branch in ended}
    return without_copy or [branch for branch in cropped if branch.text not in texts]


def _best(branches: list[_Branch], width: int, ended: list[_Branch]) -> list[_Branch]:
    """Return the `width` branches of the highest total, best first, no two with the same `text`
    (its token ids and the end).

    A text among `ended` is left out too: one that `_without_loops` cuts back may reach it again.
    """
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
    """Crop every hypothesis before its first unstable token; return `beam` continuations of each.

    One teacher-forced pass evaluates all hypotheses with `n_frames` of audio.
    """
    decoder, n_prompt = settings.decoder, len(prompt)
    n_shared = min(common_prefix(beams[0].tokens, h.tokens) for h in beams)
    shortest = min(len(h.tokens) for h in beams)
    # The first token that is evaluated. All hypotheses share those before it, so that leaving them
    # out of the scores changes no order. 2n and not n: after a crop by n the n tokens before the
    # crop are the last ones, and the next chunk compares them with their values of now.
    first = max(floor, min(n_shared, shortest - 2 * settings.n), 0)
    sequences, starts, outputs = [], [], []
    for hypothesis in beams:
        # Without kept keys all tokens are fed again, since their audio has grown.
        start = min(hypothesis.filled, n_prompt + first - 1) if settings.keep_cache else 0
        sequences.append([*prompt, *hypothesis.tokens][start:])
        starts.append(start)
        # The output that predicts token i is that of the token before it.
        n_tokens = len(hypothesis.tokens)
        outputs.append([n_prompt + i - 1 - start for i in range(first, n_tokens + 1)])
    hidden = decoder.run(cache, sequences, starts, n_frames, take=outputs)
    log_probs = decoder.log_probs(hidden)
    top = log_probs.topk(settings.beam)
    top_tokens, top_log_probs = top.indices.tolist(), top.values.tolist()
    branches = []
    for row, hypothesis in enumerate(beams):
        n_tokens = len(hypothesis.tokens)
        tail = torch.tensor(hypothesis.tokens[first:], dtype=torch.long, device=hidden.device)
        new_log_probs = log_probs[row, : len(tail)].gather(-1, tail[:, None])[:, 0].tolist()
        n_stable = n_tokens
        for i in range(max(floor, n_tokens - settings.n, 0), n_tokens):
            fell = new_log_probs[i - first] < hypothesis.log_probs[i]
            if fell or hypothesis.tokens[i] not in top_tokens[row][i - first]:
                n_stable = i
                break
        prefix = hypothesis.copy()  # the branches of a row share it, and none changes it
        prefix.filled = n_prompt + n_tokens
        prefix.crop(n_stable, n_prompt)
        # The next chunk compares with what these tokens have under this audio.
        prefix.log_probs[first:n_stable] = new_log_probs[: n_stable - first]
        score = sum(new_log_probs[: n_stable - first])
        following = n_stable - first
        for token, log_prob in zip(
            top_tokens[row][following], top_log_probs[row][following], strict=True
        ):
            branches.append(_Branch(row, prefix, score, token, log_prob))
    return branches
