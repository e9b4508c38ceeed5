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
    """A text of new tokens, after the prompt, in the search."""

    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    """Of each token; of an ended hypothesis also that of the token that ended it."""
    frames: tuple[int, ...] = ()
    """The encoder frame of each token, if a guide gives them."""
    last_attended: int | None = None
    """The frame of the last token, also of the one that ended it, if a guide gives it."""

    @property
    def mean_log_prob(self) -> float:
        """Return the mean log-probability, 0 of an empty hypothesis."""
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
        """Return the log-probabilities (live, vocabulary) to use in place of the decoder's."""
        return log_probs

    def narrow(self, best: int) -> bool:
        """Return whether the search may go on only with the next token `best`, the likeliest.

        Called only while a single hypothesis is live.
        """
        return False

    def draft(self, last: int | None) -> Sequence[int]:
        """Return tokens that are likely to follow the only hypothesis.

        last: its last token, None where it is empty. They are fed with it (speculative decoding),
        so that each of them that the search takes saves a pass.
        """
        return ()

    def judge(self, live: Sequence[Hypothesis]) -> list[tuple[Verdict, int | None]]:
        """Return for each hypothesis the verdict on its next token and the token's frame."""
        return [(Verdict.TAKE, None)] * len(live)

    def reorder(self, parents: Sequence[int]) -> None:
        """Let hypothesis i go on from hypothesis parents[i]."""


@dataclass(frozen=True, slots=True)
class BeamSearch:
    """Settings of a search of width `beam` (1: greedy); hypotheses are the first rows of the cache.

    guard: none, or repeats (`whisper/guard.py`), under which no token completes a short copy that
    no speech supports, and a hypothesis ends before a long one, or is dropped where others go on.
    early_stopping: stop as soon as `beam` hypotheses have ended, as Whisper does; else those go on
    whose mean log-probability is better than that of every ended one.
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
    ) -> Passes[Hypothesis]:
        """Search the best text of at most `max_new` tokens after `prompt`; a step of `together`.

        n_frames: frames of the cache that the tokens attend to; the last `n_heard` of them (None:
        all) hold the audio of the new text. Returns an empty hypothesis where the guide threw all
        away. Reports for each token position the number of hypotheses in the search.
        """
        guide = guide or Guide()
        # The decoder has no more positions.
        max_new = min(max_new, self.decoder.max_tokens - len(prompt))
        live, ended = [Hypothesis(last_attended=guide.last_attended)], list[Hypothesis]()
        n_heard = n_frames if n_heard is None else n_heard
        # The tokens of each row that the next pass feeds, and the position of the first of them.
        feed, start = [list(prompt)], 0
        # Draft tokens that were fed, and the log-probabilities of what follows each.
        draft_results: list[tuple[int, torch.Tensor]] = []
        while True:
            if draft_results:
                _, next_log_probs = draft_results.pop(0)
            else:
                draft = self._draft(guide, live, max_new)
                rows = yield self._pass(cache, feed, draft, start, n_frames, guide, recorder)
                next_log_probs, *after_draft = rows.split(len(feed))
                draft_results = list(zip(draft, after_draft, strict=True))
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
                better = [i for i, each in enumerate(live) if each.mean_log_prob > limit]
                parents, live = [parents[i] for i in better], [live[i] for i in better]
            if not live:
                break
            # A hypothesis that ended counts more than one that is cut off here.
            if len(live[0].tokens) >= max_new:
                ended = ended or live
                break
            is_as_drafted = bool(draft_results) and live[0].tokens[-1] == draft_results[0][0]
            if len(live) > 1 or not is_as_drafted:
                draft_results = []
            with recorder.part("decode"):
                cache.reorder(parents, start)
                guide.reorder(parents)
                feed = [[hypothesis.tokens[-1]] for hypothesis in live]
        return max(ended, key=lambda each: each.mean_log_prob, default=Hypothesis())

    def _draft(self, guide: Guide, live: Sequence[Hypothesis], max_new: int) -> list[int]:
        """Return the guide's draft, as much as fits in `max_new` tokens with one more after it;
        nothing where several hypotheses are live."""
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
        """Return the request for the log-probabilities of what follows the tokens `feed`, one row
        for each hypothesis, from position `start` on; then of what follows each token of `draft`,
        which is fed after the only row."""
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
        """Return the mean log-probability above which one goes on once `beam` have ended."""
        return math.inf if self.early_stopping else max(one.mean_log_prob for one in ended)

    def _refuse_short_copies(
        self,
        live: list[Hypothesis],
        tokens: list[list[int]],
        log_probs: list[list[float]],
        n_heard: int,
    ) -> None:
        """Remove, in place, next tokens that complete a short unsupported copy (`whisper.guard`).

        At least one next token of each hypothesis stays.

        tokens, log_probs: of the next tokens of each hypothesis, the likeliest first. n_heard: the
        encoder frames of the audio that the new text is of.
        """
        for hypothesis, next_tokens, next_log_probs in zip(live, tokens, log_probs, strict=True):
            for i in reversed(range(len(next_tokens))):
                copy = self._copy((*hypothesis.tokens, next_tokens[i]), n_heard)
                if copy and copy.is_short and len(next_tokens) > 1:
                    del next_tokens[i], next_log_probs[i]

    def _copy(self, tokens: tuple[int, ...], n_heard: int) -> Copy | None:
        """Return the unsupported copy at the end of `tokens`, spread over `n_heard` frames."""
        return GUARDS[self.guard](tokens, even(len(tokens), n_heard))

    def _without_loops(
        self,
        parents: list[int],
        live: list[Hypothesis],
        ended: list[Hypothesis],
        n_heard: int,
    ) -> tuple[list[int], list[Hypothesis]]:
        """Return the hypotheses whose last token completes no unsupported copy, and their parents.

        Where all complete one and none has ended, the best ends before its copy: it joins `ended`.
        """
        copies = [self._copy(hypothesis.tokens, n_heard) for hypothesis in live]
        if not any(copies):
            return parents, live
        first_copy = copies[0]
        if first_copy and all(copies) and not ended:
            best = live[0]
            n = len(best.tokens) - first_copy.n_tokens
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
        """Return the best continuations, `beam` at most, and before them the index in `live` of the
        hypothesis that each goes on from.

        tokens, log_probs, verdicts: of the next tokens of each live hypothesis. Adds to `ended`
        those that end before the beam is full. A verdict is on whatever token follows, so one WAIT
        or REWIND ends all continuations of its hypothesis.
        """
        candidates = [
            (sum(hypothesis.log_probs) + log_prob, i, token, log_prob)
            for i, hypothesis in enumerate(live)
            for token, log_prob in zip(tokens[i], log_probs[i], strict=True)
        ]
        # The likeliest first; among equals in the order of their hypotheses.
        candidates.sort(key=lambda candidate: (-candidate[0], candidate[1]))
        parents: list[int] = []
        grown: list[Hypothesis] = []
        without_more: set[int] = set()  # hypotheses whose continuations a verdict has ended
        n_tokens = len(live[0].log_probs) + 1 if live else 0
        for total, i, token, log_prob in candidates:
            is_too_late = len(ended) >= self.beam and total / n_tokens <= self._limit(ended)
            if is_too_late or len(grown) >= self.beam:
                break
            if i in without_more:
                continue
            parent, (verdict, frame) = live[i], verdicts[i]
            all_log_probs = (*parent.log_probs, log_prob)
            if token == self.eot:
                ended.append(
                    Hypothesis(parent.tokens, all_log_probs, parent.frames, parent.last_attended)
                )
            elif verdict is Verdict.TAKE:
                frames = parent.frames if frame is None else (*parent.frames, frame)
                grown.append(Hypothesis((*parent.tokens, token), all_log_probs, frames, frame))
                parents.append(i)
            else:
                without_more.add(i)
                if verdict is Verdict.WAIT:
                    ended.append(Hypothesis(parent.tokens, all_log_probs, parent.frames, frame))
        return parents, grown
