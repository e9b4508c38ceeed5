"""Lists what there is to choose from: methods, models, corpora, metrics.

streaming-asr list [methods|models|corpora|metrics]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.files import CONF_DIR, give_json
from streaming_asr.models.native import KINDS, cost
from streaming_asr.terminal import add_json, command_parser, wrapped

# What `list` calls it -> the folder of conf/ that holds it, one YAML file each.
GROUPS = {"methods": "method", "models": "model", "corpora": "data"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    text = "Methods, models and corpora that run takes, and the metrics it reports."
    parser = command_parser("streaming-asr list", text)
    parser.add_argument("what", nargs="?", choices=(*GROUPS, "metrics"), help="default: all")
    add_json(parser)
    arguments = parser.parse_args(argv)
    what = arguments.what
    if arguments.json is not None:
        from streaming_asr.metrics import METRICS

        chosen: dict[str, Any] = {
            name: {file.stem: about(file) for file in sorted((CONF_DIR / group).glob("*.yaml"))}
            for name, group in GROUPS.items()
        }
        chosen["metrics"] = {name: f"{m.unit}; {m.definition}" for name, m in METRICS.items()}
        give_json(chosen if what is None else {what: chosen[what]}, arguments.json)
        return 0
    for name, group in GROUPS.items():
        if what in (None, name):
            print(f"{name} ({group}=NAME)")
            files = sorted((CONF_DIR / group).glob("*.yaml"))
            width = max(len(file.stem) for file in files)
            lines = [wrapped(f"  {f.stem:{width}}  {about(f)}", width + 4) for f in files]
            print(*lines, "", sep="\n")
    if what == "metrics":
        from streaming_asr.score.command import print_definitions

        print_definitions()
    elif what is None:
        from streaming_asr.metrics import METRICS

        print(f"{len(METRICS)} metrics: streaming-asr list metrics")
    return 0


def about(file: Path) -> str:
    """Return the comment that a configuration file begins with, up to the end of a sentence, and
    what a model built for streaming costs."""
    # Lines of comment that end without a full stop, and the one after them.
    comment = re.match(r"(#.*[^.\n]\n)*(#.*)?", file.read_text(encoding="utf-8"))
    text = " ".join(comment[0].replace("#", "").split()) if comment else ""
    kind = KINDS.get(file.stem) if file.parent.name == "model" else None
    return text if kind is None else f"{text} {cost(kind)}"
