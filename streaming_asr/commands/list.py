"""Lists what there is to choose from: methods, models, corpora, experiments.

streaming-asr list [methods|models|corpora|experiments]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from streaming_asr.files import CONF_DIR, give_json
from streaming_asr.models.native import KINDS
from streaming_asr.terminal import add_config_dir, add_json, command_parser, show_table

# What `list` calls it -> the folder of conf/ that holds it, one YAML file each.
GROUPS = {"methods": "method", "models": "model", "corpora": "data", "experiments": "experiment"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    text = "Methods, models, corpora and experiments that run takes."
    parser = command_parser("streaming-asr list", text)
    about_what = "default: all but experiments"
    parser.add_argument("what", nargs="?", choices=GROUPS, help=about_what)
    add_config_dir(parser)
    add_json(parser)
    arguments = parser.parse_args(argv)
    what = arguments.what
    folders = [*map(Path, arguments.config_dir[1:]), CONF_DIR]
    chosen = {
        name: {file.stem: about(file) for file in _files(group, folders)}
        for name, group in GROUPS.items()
        if what in (None, name)
    }
    if arguments.json is not None:
        give_json(chosen, arguments.json)
        return 0
    for name in chosen:
        if name != "experiments" or what == name:
            show_table((name, f"{GROUPS[name]}=NAME"), list(chosen[name].items()), (0, 1))
    if what is None:
        print(f"\n{len(chosen['experiments'])} experiments: streaming-asr list experiments")
        print("metrics: streaming-asr score --list")
    return 0


def _files(group: str, folders: Sequence[Path]) -> list[Path]:
    """Return the configuration files of a group in `folders`, by name; the first of a name wins."""
    files: dict[str, Path] = {}
    for folder in folders:
        for file in (folder / group).glob("*.yaml"):
            files.setdefault(file.stem, file)
    return [files[name] for name in sorted(files)]


def about(file: Path) -> str:
    """Return the comment that a configuration file begins with, up to the end of a sentence, and
    the size of a model built for streaming."""
    # Lines of comment that end without a full stop, and the one after them.
    content = file.read_text(encoding="utf-8").removeprefix("# @package _global_\n")
    comment = re.match(r"(#.*[^.\n]\n)*(#.*)?", content)
    text = " ".join(comment[0].replace("#", "").split()) if comment else ""
    kind = KINDS.get(file.stem) if file.parent.name == "model" else None
    if kind is None:
        return text
    n = kind.parameters
    return f"{text} {n / 1e6:,.0f} M parameters, {2 * n / 1e9:.2g} GB in bfloat16."
