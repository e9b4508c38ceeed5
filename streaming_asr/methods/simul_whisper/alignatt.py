"""AlignAtt: where in the audio does the decoder look, and is that too close to its end?

The cross-attention of the alignment heads, a row per decoder query, is standardised over all rows
so far (prompt and forced text among them), smoothed by a median over 7 frames and averaged over
heads. The frame at which the last row is highest is the one the next token is taken from
(Simul-Whisper, arXiv 2406.10052; AlignAtt, arXiv 2305.11408). With two rows or fewer it is the
attention itself that is smoothed and averaged.

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
        """Return the verdict on a token taken from `frame` of `n_frames` so far.

        after_text: text precedes the token, be it forced. The first token of a window follows
        control tokens, which look anywhere: it never rewinds.
        """
        if (
            after_text
            and not last
            and last_attended is not None
            and last_attended - frame > self.rewind_frames
        ):
            return Verdict.REWIND
        threshold = self.last_frame_threshold if last else self.frame_threshold
        return Verdict.WAIT if n_frames - frame <= threshold else Verdict.TAKE


def place(frames: Sequence[int]) -> int | None:
    """Return where the decoder is: the earlier of the two frames it looked at last, None for none.

    A single token may look far ahead, a full stop at the next pause. To return from there is no
    rewind: taken for one it throws the text away, and the next step, with more to write, meets the
    same token again, so that no text ever follows.
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
            self._mean, self._squares, self._last = (
                x.index_select(0, index) for x in (self._mean, self._squares, self._last)
            )

    def attended(self, n_frames: int) -> list[int]:
        """Return the frame, of `n_frames`, that each hypothesis's last row looks at.

        One or two rows cannot be standardised: of two, every score is 1 or -1, and rounding would
        choose among the ties. They are all there is before the first token of an English-only
        model, after its two control tokens; the raw attention of the last row decides there.
        """
        scores = self._last
        if self._n > 2:
            deviation = (self._squares / self._n).clamp(min=0.0).sqrt().clamp(min=LEAST_DEVIATION)
            scores = (scores - self._mean) / deviation
        smooth = median_filter(scores).mean(1)
        frames: list[int] = smooth[:, :n_frames].argmax(-1).tolist()
        return frames


class AlignAtt(Guide):
    """The policy as the guide of one search: verdicts by where each hypothesis looks.

    The attention rows go with their hypotheses. A row's frame is the same for whatever token
    follows.
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
    ) -> None:
        """Begin one search, of the stream's `last` text or not; after_text: not after control
        tokens.
        """
        self.on_cross = self._head_rows = head_rows
        self._policy, self._n_frames = policy, n_frames
        self._after_text, self.last_attended, self._last = after_text, last_attended, last
        self._running: RunningRows | None = None

    def judge(self, live: Sequence[Hypothesis]) -> list[tuple[Verdict, int | None]]:
        """Return verdict and frame of each hypothesis's next token."""
        # the frames so far, and the three after them that the median of the last ones reaches
        rows = self._head_rows.rows()[..., : self._n_frames + MEDIAN_FRAMES // 2]
        if self._running is None:
            self._running = RunningRows(rows)
        else:
            self._running.add(rows)
        # The last token before the search counts as one of the two places.
        before = () if self.last_attended is None else (self.last_attended,)
        return [
            (
                self._policy.judge(
                    frame,
                    self._n_frames,
                    place((*before, *one.frames)),
                    after_text=self._after_text or bool(one.tokens),
                    last=self._last,
                ),
                frame,
            )
            for one, frame in zip(live, self._running.attended(self._n_frames), strict=True)
        ]

    def reorder(self, parents: Sequence[int]) -> None:
        """Let hypothesis i go on from hypothesis parents[i], its rows too."""
        if self._running is not None:
            self._running.reorder(parents)
