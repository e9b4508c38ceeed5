"""What a run shows: its progress, the table of its results, where the page and the segments are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from streaming_asr.cells.folder import RESULT, SEGMENTS

if TYPE_CHECKING:
    from streaming_asr.utterance import Utterance

SEGMENTS_SHOWN = 20


class Progress:
    """A bar on a terminal, nothing elsewhere; it tells how much of the audio has been heard."""

    def __init__(self, called: str, utterances: Sequence[Utterance]) -> None:
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

    def closed(self, utterance: Utterance, error: str | None = None) -> None:
        """Note that nothing more of `utterance` will be heard."""
        self._n_closed += 1
        self.heard(utterance, utterance.duration_s)

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
