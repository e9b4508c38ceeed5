"""The animated picture of the README: what a listener sees, from the logs of runs.

    streaming-asr run -m method=whisperrt,offline model=tiny.en data=voices limit=12 name=p
    python -m experiments.real.player outputs/p --utt am_michael-3 --clock cu

Each cell below the folder is a panel, the one that shows words first on top: committed words are
solid, the guess after them is dim, at the times of the compute clock, or with --clock cu of the
audio clock, which a busy machine does not slow. The SVG moves by its own style sheet, follows the
reader's light or dark scheme, and rests at the final text where no motion is wanted. It
begins in the middle of the recording, so that its first frame shows how the panels differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.files import write_text
from streaming_asr.metrics.trace import Trace, trace
from streaming_asr.score.ranking import named
from streaming_asr.score.results import Result, read_results
from streaming_asr.terminal import exit_status

WIDTH, MARGIN, LETTER, LINE = 620, 20, 9.6, 24  # px; a letter of 16 px monospace is 9.6 wide
PAUSE_S = 2.5  # the final text stays before the picture begins again
WAITING = "… no text before the recording ends"
STYLE = """
svg{color-scheme:light dark;font:16px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.ground{fill:#fff;stroke:#d5dae0}.ink{fill:#1b1f24}.name{fill:#5b6470;font-size:13px}
.track{fill:#d5dae0}.bar{fill:#0b62b8;transform-box:fill-box;transform-origin:left}
@media(prefers-color-scheme:dark){.ground{fill:#14171c;stroke:#363d47}.ink{fill:#e6e9ee}
.name{fill:#a0a9b5}.track{fill:#363d47}.bar{fill:#5db0ff}}
@media(prefers-reduced-motion:reduce){*{animation:none!important}}
"""


class Shown(NamedTuple):
    """A word at a place, for the time that it is there."""

    column: int
    line: int
    text: str
    solid: bool
    start_s: float
    end_s: float | None  # None: to the end


def captions(heard: Trace, clock: str, columns: int) -> list[Shown]:
    """Return the words of one utterance as a screen shows them, `columns` letters wide."""
    standing: dict[tuple[int, int, str, bool], float] = {}
    done: list[Shown] = []
    for step, at in zip(heard.steps, heard.times(clock), strict=True):
        now = _places(step.displayed.split(), len(step.committed.split()), columns)
        for key in [key for key in standing if key not in now]:
            done.append(Shown(*key, standing.pop(key), at))
        for key in now:
            standing.setdefault(key, at)
    return [*done, *(Shown(*key, at, None) for key, at in standing.items())]


def _places(
    words: Sequence[str], n_committed: int, columns: int
) -> list[tuple[int, int, str, bool]]:
    """Return (column, line, word, whether it is committed) of each word, lines broken at words."""
    places, column, line = [], 0, 0
    for i, word in enumerate(words):
        if column and column + len(word) > columns:
            column, line = 0, line + 1
        places.append((column, line, word, i < n_committed))
        column += len(word) + 1
    return places


def picture(panels: Sequence[tuple[str, Trace]], clock: str) -> str:
    """Return the SVG of (name, utterance) panels of one recording, one below the other."""
    duration_s = panels[0][1].duration_s
    total_s = max(max(heard.times(clock)) for _, heard in panels) + PAUSE_S
    columns = int((WIDTH - 2 * MARGIN) / LETTER)
    full = f"{_percent(duration_s, total_s)},to{{transform:none}}"
    begin = f"{total_s:.2f}s step-end {-duration_s / 2:.2f}s infinite"
    rules, body, top = [f"@keyframes bar{{0%{{transform:scaleX(0)}}{full}}}"], [], 34
    for name, heard in panels:
        words = captions(heard, clock, columns)
        first_s = min(word.start_s for word in words)
        title = f"{name}: first word after {first_s:.1f} s"
        body.append(f'<text class="name" x="{MARGIN}" y="{top + 14}">{escape(title)}</text>')
        if first_s >= duration_s:  # an empty panel would look like a fault
            number = len(rules)
            wait = Shown(0, 0, WAITING, False, 0.0, first_s)
            rules.append(_rule(number, wait, total_s))
            body.append(
                f'<text class="name" x="{MARGIN}" y="{top + 40}" opacity="0" '
                f'style="animation:w{number} {begin}">{WAITING}</text>'
            )
        for word in sorted(words, key=lambda each: each.start_s):
            number = len(rules)
            rules.append(_rule(number, word, total_s))
            x, y = MARGIN + word.column * LETTER, top + 40 + word.line * LINE
            still = (1 if word.solid else 0.45) if word.end_s is None else 0
            body.append(
                f'<text class="ink" x="{x:.1f}" y="{y}" textLength="{len(word.text) * LETTER:.1f}" '
                f'opacity="{still}" style="animation:w{number} {begin}">'
                f"{escape(word.text)}</text>"
            )
        top += 40 + LINE * (1 + max(word.line for word in words)) + 6
    wide = WIDTH - 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img">'
        f"<title>{escape(panels[0][1].reference)}</title><style>{STYLE}{''.join(rules)}</style>"
        f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{top - 1}" rx="8"/>'
        f'<rect class="track" x="{MARGIN}" y="18" width="{wide}" height="4"/>'
        f'<rect class="bar" x="{MARGIN}" y="18" width="{wide}" height="4" '
        f'style="animation:bar {begin.replace("step-end", "linear")}"/>{"".join(body)}</svg>\n'
    )


def _rule(number: int, word: Shown, total_s: float) -> str:
    opacity = "1" if word.solid else ".45"
    frames = f"0%{{opacity:0}}{_percent(word.start_s, total_s)}{{opacity:{opacity}}}"
    if word.end_s is not None:
        frames += f"{_percent(word.end_s, total_s)}{{opacity:0}}"
    return f"@keyframes w{number}{{{frames}}}"


def _percent(at_s: float, total_s: float) -> str:
    return f"{100 * at_s / total_s:.2f}%"


def of_cell(cell: Result, utt: str) -> Trace:
    """Return the cell's trace of the utterance. Raises UserError where it has no such one."""
    logs = read_log(cell.folder / "events.jsonl").utterances
    log_of = next((log for log in logs if log.utt == utt and log.status == "ok"), None)
    if log_of is None:
        raise UserError(f"--utt {utt}: {cell.folder} has {', '.join(log.utt for log in logs)}")
    return trace(log_of)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the picture and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of finished cells")
    parser.add_argument("--utt", required=True, help="the utterance's id")
    parser.add_argument("--clock", choices=("ca", "cu"), default="ca")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("player.svg"))
    options = parser.parse_args(argv)

    def write() -> int:
        cells = [cell for cell in read_results(options.folder) if cell.error is None]
        panels = [(f"{named(cell)}, {cell.model}", of_cell(cell, options.utt)) for cell in cells]
        panels.sort(
            key=lambda panel: min(s.start_s for s in captions(panel[1], options.clock, WIDTH))
        )
        print(f"wrote {write_text(options.out, picture(panels, options.clock))}")
        return 0

    return exit_status(write)


if __name__ == "__main__":
    sys.exit(main())
