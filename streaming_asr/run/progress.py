"""What a run shows: its progress, the table of its results, where the page and the segments are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming_asr.cells.folder import RESULT, SEGMENTS
from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.method import revise
from streaming_asr.metrics.accuracy import Errors, count, total
from streaming_asr.text.normalise import normaliser

if TYPE_CHECKING:
    from streaming_asr.track.tracker import Tracker
    from streaming_asr.utterance import Utterance

SEGMENTS_SHOWN = 20


class LiveWriter(EventWriter):
    """The log of a run, which keeps in `committed` the words of each recording that is open."""

    def __init__(self, path: str | Path, header: Mapping[str, Any]) -> None:
        super().__init__(path, header)
        self.committed: dict[str, list[str]] = {}

    def open_utterance(self, utterance: UtteranceLog) -> None:
        self.committed[utterance.utt] = []
        super().open_utterance(utterance)

    def step(self, utt: str, step: Step) -> None:
        revise(self.committed[utt], step.retracted, step.committed)
        super().step(utt, step)


class Progress:
    """A bar on a terminal, nothing elsewhere; it tells how much of the audio has been heard.

    The tracker hears of it as recordings close: how many, and the WER in percent of those that this
    process heard.
    """

    def __init__(
        self, called: str, utterances: Sequence[Utterance], track: Tracker, normaliser: str
    ) -> None:
        from rich import progress
        from rich.console import Console
        from rich.markup import escape

        stderr = Console(stderr=True)
        self._bar = progress.Progress(
            "{task.description}",
            progress.BarColumn(bar_width=12),
            "{task.fields[told]}",
            progress.TimeRemainingColumn(),
            console=stderr,
            disable=not stderr.is_terminal,
        )
        self._n, self._total_s = len(utterances), sum(u.duration_s for u in utterances)
        self._heard_s, self._n_closed = dict.fromkeys((u.id for u in utterances), 0.0), 0
        self._done_s = 0.0
        self._track, self._normaliser, self._errors = track, normaliser, Errors(0, 0)
        self._task = self._bar.add_task(escape(called), total=self._total_s, told=self.told())

    def told(self) -> str:
        """Return the recordings closed and the audio heard, of how much, in words."""
        heard, total = (timedelta(seconds=int(s)) for s in (self._done_s, self._total_s))
        return f"{self._n_closed} of {self._n} recordings, {heard} of {total}"

    def heard(self, utterance: Utterance, seconds: float) -> None:
        """Note how much of `utterance` has been heard; less than before where it runs again."""
        self._done_s += seconds - self._heard_s[utterance.id]
        self._heard_s[utterance.id] = seconds
        self._bar.update(self._task, completed=self._done_s, told=self.told())

    def closed(self, utterance: Utterance, text: str | None = None) -> None:
        """Note that nothing more of `utterance` will be heard; text: what was committed of it, None
        where an earlier process heard it."""
        self._n_closed += 1
        self.heard(utterance, utterance.duration_s)
        if text is not None:
            words = normaliser(utterance.language, self._normaliser).words
            self._errors = total([self._errors, count(words(utterance.text), words(text))])
            wer = self._errors.percent()
            rest = {} if wer is None else {"wer_so_far": wer}
            self._track.log({"utterances_done": self._n_closed, **rest}, step=self._n_closed)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def report_page(folder: Path) -> Path:
    """Return the HTML page of `folder`, made anew only where the results are newer."""
    page, result = folder / "report.html", folder / RESULT
    if page.exists() and result.exists() and page.stat().st_mtime > result.stat().st_mtime:
        return page

    from streaming_asr.report import build

    return Path(build(folder))


def show(folder: Path) -> None:
    """Print the table of the cells under `folder` and the place of the HTML page."""
    from streaming_asr.score.table import print_table

    print_table(folder)
    page = report_page(folder)
    print(f"results: {folder}\nreport:  {page}")


def show_segments(folder: Path) -> None:
    """Print the first lines of a transcription with times, and the place of all of it."""
    from streaming_asr.corpora.rows import text_lines

    path = folder / SEGMENTS
    if path.exists():
        lines = text_lines(path)
        print("\n".join(lines[: SEGMENTS_SHOWN + 1]))
        print(f"segments: {path} ({len(lines) - 1})")
