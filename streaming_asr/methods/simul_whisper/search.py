"""One decoding of the audio heard: greedy or beam search that the policy may end.

A hypothesis ends with <|endoftext|>, or where the policy has it wait: the token that would come
next is then left out. Hypotheses that have ended are set aside until there are as many as the
beam is wide; the best mean log-probability wins, the one that ended it included. Attention rows go
with their hypotheses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming_asr.method import Recorder
from streaming_asr.methods.simul_whisper.alignatt import HeadRows, Policy, RunningRows, Verdict
from streaming_asr.whisper.decoder import Decoder, DecoderCache


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """New tokens, the log-probability of each and the frame it is taken from.

    `log_probs` holds one more where the hypothesis has ended: of what ended it.
    """

    tokens: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    frames: tuple[int, ...] = ()
    last_attended: int | None = None

    @property
    def mean_log_prob(self) -> float:
        return sum(self.log_probs) / len(self.log_probs)


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of the search; `beam` hypotheses are rows 0.. of the cache, on its stream 0."""

    decoder: Decoder
    policy: Policy
    heads: Sequence[tuple[int, int]]
    eot: int
    beam: int

    def run(
        self,
        cache: DecoderCache,
        forced: list[int],
        n_frames: int,
        *,
        after_text: bool,
        last_attended: int | None,
        max_new: int,
        last: bool,
        recorder: Recorder,
    ) -> Hypothesis:
        """The text that goes on from `forced` (prompt and text so far) in `n_frames` of audio.

        after_text: `forced` ends with text, not with control tokens. An empty hypothesis with
        `last_attended` None: the policy rewound.
        """
        head_rows = HeadRows(self.decoder, cache, self.heads, n_frames)
        live = [Hypothesis(last_attended=last_attended)]
        ended: list[Hypothesis] = []
        feed, start = [forced], 0
        running: RunningRows | None = None
        while True:
            with recorder.part("decode"):
                hidden = self.decoder.run(
                    cache,
                    feed,
                    [start] * len(feed),
                    self.decoder.context_frames,
                    stream=0,
                    take=[range(len(row)) for row in feed],  # the rows of forced tokens count too
                    on_cross=head_rows,
                )
                top = self.decoder.log_probs(hidden[:, -1]).topk(self.beam + 1)
                tokens, log_probs = top.indices.tolist(), top.values.tolist()
            recorder.count(decode_steps=1, beam_sum=len(live))
            start += len(feed[0])
            with recorder.part("policy"):
                rows = head_rows.rows()
                if running is None:
                    running = RunningRows(rows)
                else:
                    running.add(rows)
                frames = running.attended(n_frames)
                verdicts = [
                    self.policy.judge(
                        frame,
                        n_frames,
                        hypothesis.last_attended,
                        after_text=after_text or bool(hypothesis.tokens),
                        last=last,
                    )
                    for hypothesis, frame in zip(live, frames, strict=True)
                ]
                parents, live = self._grow(live, ended, frames, verdicts, tokens, log_probs)
            if len(ended) >= self.beam or not live:
                break
            if len(live[0].tokens) >= max_new:
                ended = ended or live
                break
            with recorder.part("decode"):
                cache.reorder(parents, start)
                running.reorder(parents)
                feed = [[hypothesis.tokens[-1]] for hypothesis in live]
        return max(ended, key=lambda one: one.mean_log_prob, default=Hypothesis())

    def _grow(
        self,
        live: list[Hypothesis],
        ended: list[Hypothesis],
        frames: list[int],
        verdicts: list[Verdict],
        tokens: list[list[int]],
        log_probs: list[list[float]],
    ) -> tuple[list[int], list[Hypothesis]]:
        """The best continuations and which of `live` each goes on from; adds to `ended`.

        A row's frame is the same for whatever token follows, so one verdict ends them all.
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
        for _, i, token, log_prob in candidates:
            if len(ended) >= self.beam or len(grown) >= self.beam:
                break
            if i in closed:
                continue
            parent, frame = live[i], frames[i]
            with_this = (*parent.log_probs, log_prob)
            if token == self.eot:
                ended.append(
                    Hypothesis(parent.tokens, with_this, parent.frames, parent.last_attended)
                )
            elif verdicts[i] is Verdict.TAKE:
                grown.append(
                    Hypothesis((*parent.tokens, token), with_this, (*parent.frames, frame), frame)
                )
                parents.append(i)
            else:
                closed.add(i)
                if verdicts[i] is Verdict.WAIT:
                    ended.append(Hypothesis(parent.tokens, with_this, parent.frames, frame))
        return parents, grown
