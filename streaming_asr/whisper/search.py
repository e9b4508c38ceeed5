"""Greedy or beam search over one stream's encoder output, with a hook for what methods change.

The search is that of OpenAI's whisper (`BeamSearchDecoder` in decoding.py): of every hypothesis the
`topk(beam_size + 1)` next tokens compete, so that `beam` are left where one of them is the end.
A hypothesis that predicts the end is set aside; the search stops when `beam` are. The best mean
log-probability wins, the end token included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from streaming_asr.method import Recorder
from streaming_asr.whisper.decoder import Decoder, DecoderCache, OnCross
from streaming_asr.whisper.guard import GUARDS, Copy, even
from streaming_asr.whisper.together import Passes, Wanted

TOKENS_PER_SECOND = 28
"""No speech has more: a decoder that outputs more loops."""


class Verdict(Enum):
    """The fate of a hypothesis's next token."""

    TAKE = "take"
    WAIT = "wait"  # the hypothesis ends before the token, which may change with more audio
    REWIND = "rewind"  # the hypothesis is thrown away


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """New tokens, the log-probability of each, and the frame it is taken from if a guide gives one.

    `log_probs` holds one more where the hypothesis has ended: that of what ended it.
    """

    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    frames: tuple[int, ...] = ()
    last_attended: int | None = None

    @property
    def mean_log_prob(self) -> float:
        return sum(self.log_probs) / max(1, len(self.log_probs))


class Guide:
    """The hook of a search: it sees every pass and may narrow or end hypotheses.

    This one changes nothing.
    """

    on_cross: OnCross | None = None
    """Called in every pass; the outputs of all tokens fed are then computed."""
    last_attended: int | None = None
    """Frame of the last token before the search, which every hypothesis begins with."""
    bias: torch.Tensor | None = None
    """(vocabulary,) on the logits, in place of the decoder's `suppressed`."""

    def revise(self, live: Sequence[Hypothesis], log_probs: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities (live, vocabulary) that the search goes by."""
        return log_probs

    def narrow(self, best: int) -> bool:
        """Return whether only the best next token counts; asked while one hypothesis is live."""
        return False

    def draft(self, last: int | None) -> Sequence[int]:
        """Return tokens that are likely to follow the only hypothesis, which ends with `last` or is
        empty. They are fed with it, so that each of them that the search takes saves a pass."""
        return ()

    def judge(self, live: Sequence[Hypothesis]) -> list[tuple[Verdict, int | None]]:
        """Return for each hypothesis the verdict on its next token and the token's frame."""
        return [(Verdict.TAKE, None)] * len(live)

    def reorder(self, parents: Sequence[int]) -> None:
        """Let hypothesis i go on from hypothesis parents[i]."""


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Settings of a search of width `beam` (1: greedy); hypotheses are rows 0.. of the cache.

    guard: none, or repeats (`whisper/guard.py`), under which no token completes a short copy that
    no speech supports, and a hypothesis ends before a long one, or is left out where others go on.
    early_stopping: stop as soon as `beam` hypotheses have ended, as Whisper does; else those go on
    whose mean log-probability is better than that of every ended one, by which the text is chosen.
    """

    decoder: Decoder
    eot: int
    beam: int
    guard: str = "none"
    early_stopping: bool = True

    @torch.inference_mode()
    def passes(
        self,
        cache: DecoderCache,
        prompt: Sequence[int],
        n_frames: int,
        max_new: int,
        recorder: Recorder,
        guide: Guide | None = None,
        n_heard: int | None = None,
        prefilled: torch.Tensor | None = None,
    ) -> Passes[Hypothesis]:
        """Return the best text of at most `max_new` tokens that follows `prompt`.

        The frames are those of the cache's stream 0, of which the last `n_heard` hold the new text;
        None: all of them do. prefilled: log-probabilities (1, vocabulary) of what follows the
        prompt, whose keys and values the cache holds. The text is empty where the guide threw all
        hypotheses away. Reports for each token the number of hypotheses that were in the search.
        Searches of other streams may share the passes.
        """
        guide = guide or Guide()
        # The decoder has no more positions.
        max_new = min(max_new, self.decoder.max_tokens - len(prompt))
        live, ended = [Hypothesis(last_attended=guide.last_attended)], list[Hypothesis]()
        n_heard = n_frames if n_heard is None else n_heard
        feed, start = [list(prompt)], 0
        # Tokens fed along with the last one, and the log-probabilities of what follows each.
        ahead: list[tuple[int, torch.Tensor]] = []
        while True:
            if prefilled is not None:
                next_log_probs, prefilled = prefilled, None
            elif ahead:
                _, next_log_probs = ahead.pop(0)
            else:
                draft = self._draft(guide, live, max_new)
                rows = yield self._pass(cache, feed, draft, start, n_frames, guide, recorder)
                next_log_probs, *others = rows.split(len(feed))
                ahead = list(zip(draft, others, strict=True))
            with recorder.part("decode"):
                # One more than the beam: one of them may be the end, which takes no place in it.
                top = guide.revise(live, next_log_probs).topk(self.beam + 1)
                tokens, log_probs = top.indices.tolist(), top.values.tolist()
            recorder.count(decode_steps=1, beam_sum=len(live))
            # Hypotheses are equally long at all times.
            start += len(feed[0])
            with recorder.part("policy"):
                self._refuse_short_copies(live, tokens, log_probs, n_heard)
                if len(live) == 1 and guide.narrow(tokens[0][0]):
                    tokens, log_probs = [tokens[0][:1]], [log_probs[0][:1]]
                parents, live = self._grow(live, ended, guide.judge(live), tokens, log_probs)
                parents, live = self._without_loops(parents, live, ended, n_heard)
            if len(ended) >= self.beam:
                limit = self._limit(ended)
                at = [i for i, one in enumerate(live) if one.mean_log_prob > limit]
                parents, live = [parents[i] for i in at], [live[i] for i in at]
            if not live:
                break
            # An end that was found counts more than a text that was cut off.
            if len(live[0].tokens) >= max_new:
                ended = ended or live
                break
            if ahead and (len(live) > 1 or live[0].tokens[-1] != ahead[0][0]):
                ahead = []
            with recorder.part("decode"):
                cache.reorder(parents, start)
                guide.reorder(parents)
                feed = [[hypothesis.tokens[-1]] for hypothesis in live]
        return max(ended, key=lambda one: one.mean_log_prob, default=Hypothesis())

    def _draft(self, guide: Guide, live: Sequence[Hypothesis], max_new: int) -> list[int]:
        """Return the guide's draft where one hypothesis is live, as far as there is room."""
        if len(live) > 1:
            return []
        text = live[0].tokens
        n_more = max(0, max_new - len(text) - 1)
        return list(guide.draft(text[-1] if text else None))[:n_more]

    def _pass(
        self,
        cache: DecoderCache,
        feed: list[list[int]],
        draft: list[int],
        start: int,
        n_frames: int,
        guide: Guide,
        recorder: Recorder,
    ) -> Wanted:
        """Return the request for what follows the tokens `feed`, which begin at `start`, and each
        of `draft` behind the only row of them."""
        with recorder.part("decode"):
            tokens = [[*row, *draft] for row in feed]
            take = None if guide.on_cross is None else [range(len(row)) for row in tokens]
            part = self.decoder.part(
                cache,
                tokens,
                [start] * len(feed),
                n_frames,
                take=take,
                on_cross=guide.on_cross,
                bias=guide.bias,
                n_next=1 + len(draft),
            )
        return Wanted("decode", self.decoder.next_log_probs, part)

    def _limit(self, ended: list[Hypothesis]) -> float:
        """Return the mean above which a hypothesis goes on once `beam` have ended."""
        return math.inf if self.early_stopping else max(one.mean_log_prob for one in ended)

    def _refuse_short_copies(
        self,
        live: list[Hypothesis],
        tokens: list[list[int]],
        log_probs: list[list[float]],
        n_heard: int,
    ) -> None:
        """Take out of the next tokens, in place, those that complete a short unsupported copy,
        except the last one that a hypothesis has."""
        for one, nexts, scores in zip(live, tokens, log_probs, strict=True):
            for i in reversed(range(len(nexts))):
                copy = self._copy((*one.tokens, nexts[i]), n_heard)
                if copy and copy.is_short and len(nexts) > 1:
                    del nexts[i], scores[i]

    def _copy(self, tokens: tuple[int, ...], n_heard: int) -> Copy | None:
        return GUARDS[self.guard](tokens, even(len(tokens), n_heard))

    def _without_loops(
        self,
        parents: list[int],
        live: list[Hypothesis],
        ended: list[Hypothesis],
        n_heard: int,
    ) -> tuple[list[int], list[Hypothesis]]:
        """Return the hypotheses whose last token completes no unsupported copy; where all do and
        none has ended, the first of them ends before its copy."""
        copies = [self._copy(one.tokens, n_heard) for one in live]
        if not any(copies):
            return parents, live
        if (copy := copies[0]) and all(copies) and not ended:
            best, n = live[0], len(live[0].tokens) - copy.n_tokens
            ended.append(
                Hypothesis(best.tokens[:n], best.log_probs[:n], best.frames[:n], best.last_attended)
            )
        survivors = [i for i, copy in enumerate(copies) if not copy]
        return [parents[i] for i in survivors], [live[i] for i in survivors]

    def _grow(
        self,
        live: list[Hypothesis],
        ended: list[Hypothesis],
        verdicts: list[tuple[Verdict, int | None]],
        tokens: list[list[int]],
        log_probs: list[list[float]],
    ) -> tuple[list[int], list[Hypothesis]]:
        """Return which of `live` each of the best continuations goes on from, and these.

        Adds to `ended` those that end before the beam is full. A verdict is on whatever token
        follows, so one WAIT or REWIND ends all continuations of its hypothesis.
        """
        candidates = sorted(
            (
                (sum(hypothesis.log_probs) + log_prob, i, token, log_prob)
                for i, hypothesis in enumerate(live)
                for token, log_prob in zip(tokens[i], log_probs[i], strict=True)
            ),
            key=lambda candidate: (-candidate[0], candidate[1]),
        )
        parents: list[int] = []
        grown: list[Hypothesis] = []
        closed: set[int] = set()
        n_tokens = len(live[0].log_probs) + 1 if live else 0
        for total, i, token, log_prob in candidates:
            is_late = len(ended) >= self.beam and total / n_tokens <= self._limit(ended)
            if is_late or len(grown) >= self.beam:
                break
            if i in closed:
                continue
            parent, (verdict, frame) = live[i], verdicts[i]
            with_this = (*parent.log_probs, log_prob)
            if token == self.eot:
                ended.append(
                    Hypothesis(parent.tokens, with_this, parent.frames, parent.last_attended)
                )
            elif verdict is Verdict.TAKE:
                frames = parent.frames if frame is None else (*parent.frames, frame)
                grown.append(Hypothesis((*parent.tokens, token), with_this, frames, frame))
                parents.append(i)
            else:
                closed.add(i)
                if verdict is Verdict.WAIT:
                    ended.append(Hypothesis(parent.tokens, with_this, parent.frames, frame))
        return parents, grown
