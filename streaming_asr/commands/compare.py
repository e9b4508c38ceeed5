"""Runs several methods on one recording and shows them side by side in the page's player.

    streaming-asr compare audio=talk.m4a method=whisperrt,hush_word
    streaming-asr compare audio=talk.m4a method=whisperrt chunk=300ms,1s model=base.en --open
    streaming-asr compare audio=call.wav channel=each method=ufal,offline    # two speakers

With talk.txt next to the recording the page also tells the errors. Words are aligned for their
latencies: those of talk.txt, else those of the first method of the command line, which is favoured
by it. The results lie in outputs/compare/<recording>/<settings>; the last line printed is the
page's place. All settings of run can be given; -cd FOLDER has further configuration.
"""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from streaming_asr.config.command_line import CONFIG_DIR, CommandLine, data_of
from streaming_asr.errors import UserError
from streaming_asr.files import short_name
from streaming_asr.terminal import with_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, that of `run`."""
    return with_settings(__doc__, _compare, argv)


def _compare(argv: list[str]) -> int:
    from streaming_asr.run import command as run

    settings = [a for a in argv if a != "--open"]
    # A recording may be there by itself; what follows -cd is its folder.
    settings = [
        a if a.startswith("-") or "=" in a or before in CONFIG_DIR else f"audio={a}"
        for before, a in pairwise(["", *settings])
    ]
    line = CommandLine(["-m", *settings])
    several = [each for each in line.settings if each.startswith("audio=")]
    if len(several) > 1:
        raise UserError(f"{' '.join(several)}: name one recording, or a folder of them")
    line.refuse(("data", "data.path"), "compare, whose recording is audio=")
    name = line.pop("audio")
    if name is None:
        raise UserError(
            "audio: name one recording, as in audio=talk.m4a method=whisperrt,hush_word"
        )
    audio = Path(name).expanduser().absolute()
    if not audio.exists():
        raise UserError(f"audio={name}: no such file; correct the path")
    stem = re.sub(r"[^\w.+-]", "_", audio.stem)
    line.default_methods(2)
    # What else is asked of the recording has a page of its own.
    asked = "-".join(re.sub(r"[^\w.+]+", "-", each.lstrip("+~")) for each in sorted(line.settings))
    line.default(tracker="none", name=f"'compare/{stem}/{short_name(asked)}'")
    channel = line.pop("channel")
    line.settings += data_of(audio) + ([] if channel is None else [f"data.channel={channel}"])
    line.default(**{"data.name": f"'{stem}'"})
    line.default(**{"data.align": "auto"})
    status = run.main(line.argv, lambda *results: _present(line, *results))
    output, results = line.get("output") or "outputs", str(line.get("name")).strip("'")
    page = Path(output, results, "report.html")
    if "--open" in argv and page.exists():
        webbrowser.open(page.absolute().as_uri())
    return status


def _present(line: CommandLine, place: Path, audio_from: Sequence[Path], *columns: Any) -> None:
    """Show the results; without a reference the words of the first cell of the command line that
    has any get times by alignment."""
    from streaming_asr.align.heard import time_results
    from streaming_asr.cells.folder import cell_of
    from streaming_asr.run.plan import plan
    from streaming_asr.run.progress import show
    from streaming_asr.score.results import read_results

    if not any(result.is_labelled for result in read_results(place)):
        time_results(place, [cell_of(cell.folder) for cell in plan(line).cells])
    show(place, audio_from, *columns)
