"""AlignAtt: where in the audio does the decoder look, and is that too close to its end?

The cross-attention of the alignment heads, a row per decoder query, is standardised over all rows
so far (control tokens and forced text among them, a `prompt` not), smoothed by a median over 7
frames and averaged over heads. The frame at which the last row is highest is the one the next token
is taken from (Simul-Whisper, arXiv 2406.10052; AlignAtt, arXiv 2305.11408). With two rows or fewer
it is the attention itself that is smoothed and averaged.

Only the last row is asked for. So mean and squared deviation of each head and frame are carried
along, and only that row is standardised and smoothed: the work per token does not grow with the
text. The decisions are those of building all rows again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from streaming_asr.whisper.alignment import MEDIAN_FRAMES, HeadRows, median_filter
from streaming_asr.whisper.search import Guide, Hypothesis, Verdict

LEAST_DEVIATION = 1e-8


@dataclass(frozen=True, slots=True)
class AlignAttPolicy:
    """The rules of AlignAtt. Frames of 20 ms; `last_attended` None: nothing to compare with."""

    frame_threshold: int
    last_frame_threshold: int
    rewind_frames: int

    def judge(
        self, frame: int, n_frames: int, last_attended: int | None, *, after_text: bool, last: bool
    ) -> Verdict:
        """Return the verdict on a token whose attention is highest at `frame` of `n_frames`.

        last_attended: the place of the decoder before it. last: no more audio comes. after_text:
        text precedes the token, also forced text; the first token of a window follows control
        tokens, which look anywhere, so that it never rewinds.
        """
        looks_back = last_attended is not None and last_attended - frame > self.rewind_frames
        if looks_back and after_text and not last:
            return Verdict.REWIND
        threshold = self.last_frame_threshold if last else self.frame_threshold
        return Verdict.WAIT if n_frames - frame <= threshold else Verdict.TAKE


def decoder_place(frames: Sequence[int]) -> int | None:
    """Return the place of the decoder: the earlier of the last two frames it looked at.

    None where it looked at none. The earlier, because one token may look far ahead, such as a full
    stop at the next pause, and to return from there is no rewind. A rewind would throw the text
    away, and the next step would come to the same token again, so that no text ever follows.
    """
    return min(frames[-2:], default=None)


class RunningRows:
    """Mean and squared deviation over all rows so far, and the last row, of each hypothesis.

    All of shape (hypotheses, heads, frames). Updated as Chan, Golub and LeVeque update moments, by
    one row or a block: in float32 this keeps the digits that a sum of squares would lose.
    """

    def __init__(self, rows: torch.Tensor) -> None:
        """Begin with rows (hypotheses, heads, n, frames), n > 0."""
        self._n = rows.shape[2]
        self._mean = rows.mean(2)
        self._squares = (rows - self._mean[:, :, None]).square().sum(2)
        self._last = rows[:, :, -1]

    def add(self, row: torch.Tensor) -> None:
        """Add one more row of each hypothesis, (hypotheses, heads, 1, frames)."""
        self._last = row[:, :, 0]
        self._n += 1
        # Welford's update for one row.
        difference = self._last - self._mean
        self._mean = self._mean + difference / self._n
        self._squares = self._squares + difference * (self._last - self._mean)

    def reorder(self, parents: Sequence[int]) -> None:
        """Let hypothesis i go on from hypothesis parents[i]."""
        if list(parents) != list(range(len(self._last))):
            index = torch.tensor(parents, device=self._last.device)
            self._mean = self._mean.index_select(0, index)
            self._squares = self._squares.index_select(0, index)
            self._last = self._last.index_select(0, index)

    def attended(self, n_frames: int) -> list[int]:
        """Return the frame, below `n_frames`, at which each hypothesis's last row is highest.

        One or two rows are not standardised: of two, every score would be 1 or -1, and rounding
        would choose among the ties. An English-only model has only two rows, those of its control
        tokens, before its first token; there the raw attention of the last row decides.
        """
        scores = self._last
        if self._n > 2:
            deviation = (self._squares / self._n).clamp(min=0.0).sqrt().clamp(min=LEAST_DEVIATION)
            scores = (scores - self._mean) / deviation
        smooth = median_filter(scores).mean(1)
        frames: list[int] = smooth[:, :n_frames].argmax(-1).tolist()
        return frames


class AlignAtt(Guide):
    """The policy as the guide of one search: verdicts by the frame that each hypothesis looks at.

    That frame depends on the tokens so far only: it is the same for every next token.
    """

    def __init__(
        self,
        policy: AlignAttPolicy,
        head_rows: HeadRows,
        n_frames: int,
        *,
        after_text: bool,
        last_attended: int | None,
        last: bool,
        first_row: int = 0,
    ) -> None:
        """Begin one search over `n_frames` of audio; for the other arguments see the policy.

        first_row: of the first pass, the rows before it are of a text that is not in the audio."""
        self.on_cross = self._head_rows = head_rows
        self._policy, self._n_frames = policy, n_frames
        self._after_text, self.last_attended, self._last = after_text, last_attended, last
        self._first_row = first_row
        self._running: RunningRows | None = None

    def judge(self, live: Sequence[Hypothesis]) -> list[tuple[Verdict, int | None]]:
        """Return the verdict on each hypothesis's next token, and the frame it is taken from."""
        # With the three frames after the audio, which the median of its last frames reaches.
        rows = self._head_rows.rows()[..., : self._n_frames + MEDIAN_FRAMES // 2]
        if self._running is None:
            self._running = RunningRows(rows[:, :, self._first_row :])
        else:
            self._running.add(rows)
        # The place before the search counts as one of the last two frames.
        before = () if self.last_attended is None else (self.last_attended,)
        verdicts: list[tuple[Verdict, int | None]] = []
        frames = self._running.attended(self._n_frames)
        for hypothesis, frame in zip(live, frames, strict=True):
            verdict = self._policy.judge(
                frame,
                self._n_frames,
                decoder_place((*before, *hypothesis.frames)),
                after_text=self._after_text or bool(hypothesis.tokens),
                last=self._last,
            )
            verdicts.append((verdict, frame))
        return verdicts

    def reorder(self, parents: Sequence[int]) -> None:
        """Let hypothesis i go on from hypothesis parents[i], its rows too."""
        if self._running is not None:
            self._running.reorder(parents)
