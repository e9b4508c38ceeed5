"""What there is to choose from: methods, models, corpora, metrics.

python -m streaming_asr list [methods|models|corpora|metrics]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.terminal import command_parser, exit_status

# What `list` calls it -> the folder of conf/ that holds it, one YAML file each.
GROUPS = {"methods": "method", "models": "model", "corpora": "data"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    about = "Methods, models and corpora that run takes, and the metrics it reports."
    parser = command_parser("python -m streaming_asr list", about)
    parser.add_argument("what", nargs="?", choices=(*GROUPS, "metrics"), help="default: all")
    what = parser.parse_args(argv).what
    return exit_status(lambda: _print(what))


def _print(what: str | None) -> None:
    for name, group in GROUPS.items():
        if what in (None, name):
            _print_group(name, group)
    if what == "metrics":
        from streaming_asr.score.command import print_definitions

        print_definitions()
    elif what is None:
        from streaming_asr.metrics import METRICS

        print(f"{len(METRICS)} metrics: python -m streaming_asr list metrics")


def _print_group(name: str, group: str) -> None:
    from streaming_asr.files import CONF_DIR

    print(f"{name} ({group}=NAME)")
    files = sorted((CONF_DIR / group).glob("*.yaml"))
    if not files:
        raise UserError(f"{CONF_DIR / group}: holds no YAML file; install the project again")
    width = max(len(file.stem) for file in files)
    for file in files:
        print(f"  {file.stem:{width}}  {about(file)}")
        if group == "data" and file.stem == "mini":
            for line in _splits():
                print(f"  {'':{width}}  {line}")
    print()


def about(file: Path) -> str:
    """Return the comment that a configuration file begins with, up to the end of a sentence."""
    lines = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
        if lines[-1].endswith("."):
            break
    return " ".join(lines)


def _splits() -> list[str]:
    """Return a line with the size of each split of mini."""
    from streaming_asr.corpora import MINI
    from streaming_asr.corpora.rows import text_lines

    found = []
    for manifest in sorted(MINI.glob("*.jsonl")):
        rows = [json.loads(line) for line in text_lines(manifest)]
        minutes = sum(row["duration"] for row in rows) / 60
        speakers = len({row.get("speaker") for row in rows} - {None})
        of = f", {speakers} speakers" if speakers else ""
        found.append(f"data.split={manifest.stem}: {len(rows)} utterances, {minutes:.1f} min{of}")
    return found
