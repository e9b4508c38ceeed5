"""What a run shows: its progress, the table of its results, where the page is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from streaming_asr.cells.folder import RESULT, UTTERANCES

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from streaming_asr.utterance import Utterance

TEXTS_SHOWN = 10  # recordings
EVERY_S = 15.0  # between two lines of progress


class Progress:
    """How much of the audio has been heard: a bar on a terminal, elsewhere a line on stderr after
    the first recording and then each `EVERY_S`."""

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
        self._called, self._has_lines = called, not stderr.is_terminal
        self._begun_s = self._told_s = perf_counter()
        self._earlier_s = 0.0  # of audio, processed by an earlier command
        self._task = self._bar.add_task(
            escape(called), total=self._total_s, told=self.description()
        )

    def description(self) -> str:
        """Return the recordings closed and the audio processed, of how much, in words."""
        heard, total = (timedelta(seconds=int(s)) for s in (self._done_s, self._total_s))
        return f"{self._n_closed} of {self._n} recordings, {heard} of {total}"

    def heard(self, utterance: Utterance, seconds: float) -> None:
        """Note how much of `utterance` is processed; less than before where it runs again."""
        self._done_s += seconds - self._heard_s[utterance.id]
        self._heard_s[utterance.id] = seconds
        self._bar.update(self._task, completed=self._done_s, told=self.description())
        self._tell()

    def left_s(self) -> float | None:
        """Return the seconds that the rest may take, by what this process did; None before it did
        anything."""
        done_s = self._done_s - self._earlier_s
        if done_s <= 0:
            return None
        return (perf_counter() - self._begun_s) * (self._total_s - self._done_s) / done_s

    def _tell(self) -> None:
        """Print a line where there is no bar, if it is time."""
        left_s = self.left_s()
        is_first = self._told_s == self._begun_s and self._n_closed > 0
        if not self._has_lines or not left_s or self._done_s >= self._total_s:
            return
        if is_first or perf_counter() - self._told_s >= EVERY_S:
            self._told_s = perf_counter()
            remaining = timedelta(seconds=round(left_s))
            print(
                f"{self._called}: {self.description()}, about {remaining} left",
                file=sys.stderr,
                flush=True,
            )

    def closed(self, utterance: Utterance, *, earlier: bool = False) -> None:
        """Note that nothing more of `utterance` comes; earlier: an earlier process ran it."""
        self._n_closed += 1
        if earlier:
            self._earlier_s += utterance.duration_s
        self.heard(utterance, utterance.duration_s)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def data_places(config: DictConfig) -> list[Path]:
    """Return the files and folders that a settled configuration names as its data."""
    places = {config.data.get(key) for key in ("path", "root", "audio_root")} - {None, "."}
    return [Path(str(place)).expanduser() for place in places]


def report_page(folder: Path, audio_from: Sequence[Path] = ()) -> Path:
    """Return the HTML page of `folder`, made again only where the results are newer. audio_from:
    what the user gave as data, whose sound the page may have."""
    page, result = folder / "report.html", folder / RESULT
    if page.exists() and result.exists() and page.stat().st_mtime > result.stat().st_mtime:
        return page

    from streaming_asr.report import build

    return Path(build(folder, audio_from=audio_from))


def show(
    folder: Path, audio_from: Sequence[Path] = (), columns: Sequence[Any] = (), owns: Any = ()
) -> None:
    """Print the table of the cells under `folder`, one of the `columns` that the command line
    names, the texts of cells that have no reference, and the place of the HTML page. audio_from:
    see `report_page`. owns: see `score/own.py`."""
    from streaming_asr.score.document import lines_of
    from streaming_asr.score.results import read_results
    from streaming_asr.score.table import print_table

    print_table(folder)
    results = read_results(folder)
    if columns:
        from streaming_asr.score.own import with_own

        print_table(with_own(results, owns), columns=columns)
    for result in results if len(results) <= TEXTS_SHOWN else ():
        if result.is_labelled or result.error is not None:
            continue
        lines = lines_of(result.folder)
        failed = {each["utt"] for each in result.document.get("failed") or ()}
        of_run = f", {result.label}" if len(results) > 1 else ""
        for line in lines[:TEXTS_SHOWN]:
            nothing = "(failed)" if line.utt in failed else "(no words)"
            print(f"{line.utt}{of_run}: {line.hypothesis or nothing}")
        if len(lines) > TEXTS_SHOWN:
            print(f"and {len(lines) - TEXTS_SHOWN} more: {result.folder / UTTERANCES}")
    page = report_page(folder, audio_from)
    print(f"results: {folder}\nreport:  {page}")
