"""Sphinx: `make docs`. The source is the whole checkout, so that pages link to it as on GitHub."""

from __future__ import annotations

import io
import os
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = PROJECT["name"]
release = PROJECT["version"]
author = copyright = PROJECT["name"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
root_doc = "docs/index"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "experiments/**.md"),
    "streaming_asr/data/voices/README.md",
]
exclude_patterns = [".*", "build", "outputs", "multirun", "experiments/*/work"]
myst_heading_anchors = 4
nitpicky = False

autodoc_mock_imports = ["torch", "transformers", "peft", "faster_whisper", "ctranslate2"]
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike"}
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
default_role = "py:obj"  # a name in backticks is a link where the page has it

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_title = PROJECT["name"]
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}


ROOT_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=docs/index.html">
<title>{0}</title>
<a href="docs/index.html">{0}</a>
"""


def setup(app: Any) -> None:
    app.connect("source-read", _give_title)
    app.connect("source-read", _add_tables)
    app.connect("source-read", _add_commands)
    app.connect("autodoc-process-docstring", _leave_out_aliases)
    app.connect("build-finished", _write_root)
    app.connect("build-finished", _write_example)


def _leave_out_aliases(app: Any, what: str, name: str, obj: Any, options: Any, lines: Any) -> None:
    """Leave out what Python writes for a field of a NamedTuple; its name and type stay."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def _write_root(app: Any, error: Exception | None) -> None:
    """Send a reader of the site's root to its first page."""
    if error is None:
        (app.outdir / "index.html").write_text(ROOT_PAGE.format(project), encoding="utf-8")


def _write_example(app: Any, error: Exception | None) -> None:
    """Write the report page that the index links to."""
    if error is None and app.builder.name == "html":
        sys.path.insert(0, str(ROOT))
        from experiments.example import page

        page(Path(app.outdir) / "docs" / "example.html")


def _give_title(app: Any, name: str, source: list[str]) -> None:
    """Head a file that a command writes as a table alone, so that the sidebar can name it."""
    if not source[0].lstrip().startswith(("#", "---")):
        source[0] = f"# {name.split('/')[-2]}, {name.split('/')[-1]}\n\n{source[0]}"


def _add_tables(app: Any, name: str, source: list[str]) -> None:
    """Put the tables of data where a page names them."""
    if "<!-- table:" in source[0]:
        sys.path.insert(0, str(ROOT))
        from experiments.tables import with_tables

        source[0] = with_tables(source[0], (ROOT / name).parent)


def _add_commands(app: Any, name: str, source: list[str]) -> None:
    """Put the help of all commands and the files of settings where a page names them."""
    if "<!-- commands -->" in source[0]:
        sys.path.insert(0, str(ROOT))
        source[0] = source[0].replace("<!-- commands -->", "\n\n".join(_commands()))


def _commands() -> Iterator[str]:
    """Yield the parts of the page: a heading and a block of text each."""
    from streaming_asr.commands import cli
    from streaming_asr.config.schema import settings_text
    from streaming_asr.files import CONF_DIR
    from streaming_asr.score.command import COMMANDS as OF_SCORE

    os.environ["COLUMNS"] = "100"
    for command in cli.COMMANDS:
        for words in ([command], *([command, each] for each in OF_SCORE if command == "score")):
            with redirect_stdout(io.StringIO()) as text, suppress(SystemExit):
                cli.main([*words, "--help"])
            yield f"{'#' * (len(words) + 1)} {' '.join(words)}\n\n````text\n{text.getvalue()}````"
    for group in ("method", "model", "data", "recipe", "aligner"):
        yield f"## Settings of {group}=NAME"
        for file in sorted((CONF_DIR / group).glob("*.yaml")):
            text = settings_text(f"{group}/{file.stem}")
            yield f"### {group}={file.stem}\n\n````yaml\n{text}\n````"
