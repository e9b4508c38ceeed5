"""Runs several methods on one recording and shows them side by side in the page's player.

    streaming-asr compare audio=talk.m4a method=whisperrt,ufal
    streaming-asr compare audio=talk.m4a method=whisperrt chunk=300ms,1s model=base.en --open

With talk.txt beside the recording the page also tells the errors. The results lie in
outputs/compare/<recording>; the last line printed is the page's place.
"""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.terminal import with_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, that of `run`."""
    return with_settings(__doc__, _compare, argv)


def _compare(argv: list[str]) -> int:
    from streaming_asr.run import command as run

    line = CommandLine(["-m", *(argument for argument in argv if argument != "--open")])
    name = line.pop("audio")
    if name is None:
        raise UserError("audio: name one recording, as in audio=talk.m4a method=whisperrt,ufal")
    audio = Path(name).expanduser().absolute()
    if not audio.exists():
        raise UserError(f"audio={name}: no such file; correct the path")
    line.settings += ["data=folder", f"data.path='{audio}'"]
    line.default(method="whisperrt,ufal", tracker="none", name=f"'compare/{audio.stem}'")
    status = run.main(line.argv)
    output, results = line.get("output") or "outputs", str(line.get("name")).strip("'")
    page = Path(output, results, "report.html")
    if "--open" in argv and page.exists():
        webbrowser.open(page.absolute().as_uri())
    return status
