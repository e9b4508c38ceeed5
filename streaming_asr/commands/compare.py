"""Runs several methods on one recording and shows them side by side in the page's player.

    streaming-asr compare audio=talk.m4a method=whisperrt,ufal
    streaming-asr compare audio=talk.m4a method=whisperrt chunk=300ms,1s model=base.en --open

With talk.txt beside the recording the page also tells the errors. The results lie in
outputs/compare/<recording>; the last line printed is the page's place.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.run.obtain import with_model
from streaming_asr.terminal import exit_status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, that of `run`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(argv) or not argv:
        print(__doc__)
        return 0
    return exit_status(lambda: _compare(argv))


def _compare(argv: list[str]) -> int:
    from streaming_asr.run import command as run

    named = [each.partition("=")[2] for each in argv if each.startswith("audio=")]
    if len(named) != 1:
        raise UserError("audio: name one recording, as in audio=talk.m4a method=whisperrt,ufal")
    audio = Path(named[0]).expanduser().absolute()
    if not audio.exists():
        raise UserError(f"audio={named[0]}: no such file; correct the path")
    rest = [each for each in argv if not each.startswith("audio=") and each != "--open"]
    name = f"compare/{audio.stem}"
    for key, value in (("method", "whisperrt,ufal"), ("tracker", "none"), ("name", f"'{name}'")):
        if not any(each.startswith(f"{key}=") for each in rest):
            rest.append(f"{key}={value}")
    status = run.main(["-m", *with_model(["data=folder", f"data.path='{audio}'", *rest])])
    given = dict(each.split("=", 1) for each in rest if "=" in each)
    page = Path(given.get("output", "outputs"), given["name"].strip("'"), "report.html")
    if "--open" in argv and page.exists():
        import webbrowser

        webbrowser.open(page.absolute().as_uri())
    return int(status)
