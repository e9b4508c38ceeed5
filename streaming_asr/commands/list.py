"""Lists what there is to choose from: methods, models, corpora, metrics.

python -m streaming_asr list [methods|models|corpora|metrics]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.files import CONF_DIR
from streaming_asr.terminal import command_parser

# What `list` calls it -> the folder of conf/ that holds it, one YAML file each.
GROUPS = {"methods": "method", "models": "model", "corpora": "data"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    text = "Methods, models and corpora that run takes, and the metrics it reports."
    parser = command_parser("python -m streaming_asr list", text)
    parser.add_argument("what", nargs="?", choices=(*GROUPS, "metrics"), help="default: all")
    what = parser.parse_args(argv).what
    for name, group in GROUPS.items():
        if what in (None, name):
            print(f"{name} ({group}=NAME)")
            files = sorted((CONF_DIR / group).glob("*.yaml"))
            width = max(len(file.stem) for file in files)
            print(*(f"  {file.stem:{width}}  {about(file)}" for file in files), "", sep="\n")
    if what == "metrics":
        from streaming_asr.score.command import print_definitions

        print_definitions()
    elif what is None:
        from streaming_asr.metrics import METRICS

        print(f"{len(METRICS)} metrics: python -m streaming_asr list metrics")
    return 0


def about(file: Path) -> str:
    """Return the comment that a configuration file begins with, up to the end of a sentence."""
    # Lines of comment that end without a full stop, and the one after them.
    comment = re.match(r"(#.*[^.\n]\n)*(#.*)?", file.read_text(encoding="utf-8"))
    return " ".join(comment[0].replace("#", "").split()) if comment else ""
