"""Beam search that follows the text of the round before, one hypothesis wide while it can.

Beam pruning of WhisperFlow (section 4.2). While the best token is the next one of the reference the
beam is 1; a token that differs is the fallback: from there on the ordinary search of full width.
The first token is looked for in the whole reference, since the start of the audio may be gone.
Punctuation and control tokens go on at width 1 and are matched with nothing.

The paper leaves open, and here it is so: the reference is the whole text of the round before, its
unconfirmed end included, without its punctuation (with it every skipped mark would be a mismatch);
its end is a mismatch; the end of the text, a control token, is taken at width 1; after a fallback
the search stays wide, unless `reenter`: then two tokens in a row that follow the last match in the
reference bring it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from streaming_asr.method import Recorder
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.load import Whisper

RE_ENTRY_TOKENS = 2


def punctuation(whisper: Whisper) -> Callable[[int], bool]:
    """Whether a token is matched with nothing: no letter or digit in it, or a control token."""

    def skips(token: int) -> bool:
        if token >= whisper.eot:
            return True
        try:
            text = whisper.detokenizer.token_bytes(token).decode("utf-8")
        except UnicodeDecodeError:  # a part of a character
            return False
        return not any(c.isalnum() for c in text)

    return skips


class Reference:
    """The text that one decoding follows, and how far it has come."""

    def __init__(self, tokens: Sequence[int], skips: Callable[[int], bool]) -> None:
        self._skips = skips
        self._tokens = [token for token in tokens if not skips(token)]
        self._next: int | None = None
        """Index of the token that should come next; None before the first match."""

    def follow(self, token: int) -> bool:
        """Whether the search may stay narrow with this best token; if so it counts as taken."""
        if self._skips(token):
            return True
        if self._next is None:
            if token not in self._tokens:
                return False
            self._next = self._tokens.index(token) + 1
            return True
        if self._next < len(self._tokens) and self._tokens[self._next] == token:
            self._next += 1
            return True
        return False

    def rejoin(self, tokens: Sequence[int]) -> bool:
        """Whether the last two words' tokens of `tokens` stand at or after the next one in a row.

        If so the reference goes on after them.
        """
        said = [token for token in tokens if not self._skips(token)][-RE_ENTRY_TOKENS:]
        if len(said) < RE_ENTRY_TOKENS or self._skips(tokens[-1]):
            return False
        for i in range(self._next or 0, len(self._tokens) - RE_ENTRY_TOKENS + 1):
            if self._tokens[i : i + RE_ENTRY_TOKENS] == said:
                self._next = i + RE_ENTRY_TOKENS
                return True
        return False


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Text tokens and their log-probabilities; an ended one has that of its end as well."""

    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()

    def grown(self, token: int, log_prob: float) -> Hypothesis:
        return Hypothesis((*self.tokens, token), (*self.log_probs, log_prob))

    def ended(self, log_prob: float) -> Hypothesis:
        return Hypothesis(self.tokens, (*self.log_probs, log_prob))

    @property
    def mean_log_prob(self) -> float:
        return sum(self.log_probs) / max(1, len(self.log_probs))


class PrunedSearch:
    """Beam search of width `beam` (1: greedy) over one stream's encoder output."""

    def __init__(
        self, decoder: Decoder, *, eot: int, beam: int, max_tokens: int, reenter: bool = False
    ) -> None:
        self.decoder = decoder
        self.eot = eot
        self.beam = beam
        self.max_tokens = max_tokens
        self.reenter = reenter

    @torch.inference_mode()
    def run(
        self,
        cache: DecoderCache,
        prompt: Sequence[int],
        n_frames: int,
        recorder: Recorder,
        reference: Reference | None = None,
    ) -> Hypothesis:
        """The text after `prompt`; without a reference the plain beam search.

        Reports each pass of the decoder with the number of hypotheses in it: 1 or `beam`.
        """
        live, ended = [Hypothesis()], list[Hypothesis]()
        narrow = reference is not None
        feed, start = [list(prompt)], 0
        while True:
            hidden = self.decoder.run(cache, feed, [start] * len(feed), n_frames, stream=0)
            log_probs = self.decoder.log_probs(hidden)[:, 0]
            recorder.count(decode_steps=1, beam_sum=len(live))
            start += len(feed[0])
            parents = [0]
            if narrow and reference is not None:
                log_prob, best = (x.item() for x in log_probs[0].max(-1))
                token = int(best)
                if token == self.eot:
                    ended.append(live[0].ended(log_prob))
                    break
                narrow = reference.follow(token)
                if narrow:
                    live = [live[0].grown(token, log_prob)]
            if not narrow:
                parents, live = self._widen(live, ended, log_probs)
                if len(ended) >= self.beam:
                    break
                if self.reenter and reference is not None and reference.rejoin(live[0].tokens):
                    parents, live, narrow = parents[:1], live[:1], True
            if start + 1 > self.decoder.max_tokens or len(live[0].tokens) >= self.max_tokens:
                ended = ended or live
                break
            cache.reorder(parents, start)
            feed = [[hypothesis.tokens[-1]] for hypothesis in live]
        return max(ended, key=lambda hypothesis: hypothesis.mean_log_prob)

    def _widen(
        self, live: list[Hypothesis], ended: list[Hypothesis], log_probs: torch.Tensor
    ) -> tuple[list[int], list[Hypothesis]]:
        """The best `beam` continuations and their parents; better ones that end go to `ended`.

        One more than `beam` of each hypothesis is looked at, so that there always are as many.
        """
        top = log_probs.topk(self.beam + 1)
        candidates = sorted(
            (
                (sum(hypothesis.log_probs) + log_prob, i, token, log_prob)
                for i, hypothesis in enumerate(live)
                for token, log_prob in zip(
                    top.indices[i].tolist(), top.values[i].tolist(), strict=True
                )
            ),
            reverse=True,
        )
        parents: list[int] = []
        grown: list[Hypothesis] = []
        for _, i, token, log_prob in candidates:
            if token == self.eot:
                ended.append(live[i].ended(log_prob))
            else:
                grown.append(live[i].grown(token, log_prob))
                parents.append(i)
            if max(len(grown), len(ended)) == self.beam:
                break
        return parents, grown


def reduce_ratio(mean_beam: float | None, beam: int) -> float | None:
    """Share of the decoder's steps at width 1, of a search whose steps are 1 or `beam` wide.

    WhisperFlow's Table 4: mean = beam - (beam - 1) * ratio. None where nothing was decoded or the
    search is greedy.
    """
    if mean_beam is None or beam < 2:
        return None
    return (beam - mean_beam) / (beam - 1)
