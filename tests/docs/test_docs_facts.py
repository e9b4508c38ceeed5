"""Facts in the docs that the code states too: messages, what methods support, versions."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module

import pytest
import yaml
from places import ROOT

SEPARATOR = "\0"  # where an f-string puts a value


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of the tables below a heading, without their headers; "": of the whole page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if heading:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    at = {i for i, row in enumerate(rows) if set(row[0]) <= {"-", ":"}}
    return [row for i, row in enumerate(rows) if not {i, i + 1} & at]


def strings() -> Iterator[str]:
    """Every string of the package, the parts of an f-string joined."""
    for file in (ROOT / "streaming_asr").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else SEPARATOR
                    for part in node.values
                )


def test_every_message_that_troubleshooting_explains_is_one_of_the_code() -> None:
    messages = [row[0].strip("`") for row in rows_of("troubleshooting.md", "")]
    text = "\n".join(strings())
    assert len(messages) > 15
    assert [message for message in messages if message not in text] == []


SUPPORT = {
    row[0].strip("`"): row[1:] for row in rows_of("reference.md", "What each method supports")
}


def test_the_table_of_support_has_every_method() -> None:
    names = {file.stem for file in (ROOT / "conf" / "method").glob("*.yaml")}
    assert set(SUPPORT) == names - {"remote"}


@pytest.mark.parametrize("name", SUPPORT)
def test_a_method_supports_what_the_table_says(name: str) -> None:
    beam, _, _, batching, *_ = SUPPORT[name]
    settings = yaml.safe_load((ROOT / "conf" / "method" / f"{name}.yaml").read_text("utf-8"))
    module, _, target = settings["_target_"].rpartition(".")
    assert (beam != "no") == ("beam" in settings)
    assert (batching == "yes") == hasattr(getattr(import_module(module), target), "step_many")


def test_nothing_installs_the_package_from_an_index_that_does_not_have_it() -> None:
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")]
    pages.append((ROOT / "README.md").read_text(encoding="utf-8"))
    for text in (*strings(), *pages):
        assert not re.search(r"pip install ['\"]?streaming-asr", text), text


def test_the_citation_has_the_project_s_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert re.search(r"version = \{(.*)\}", page)[1] == project["version"]  # type: ignore[index]


def test_the_error_below_a_table_is_the_one_that_was_measured() -> None:
    from streaming_asr.config.defaults import ALIGNER_ERRORS_MS

    rows = rows_of("align.md", "The report")
    begin = [row[0] for row in rows].index("the 60 of `data=voices`")
    measured = {row[1].split(",")[0]: (row[3], row[5]) for row in rows[begin : begin + 2]}
    errors = {name.split("-")[0]: pair for name, pair in ALIGNER_ERRORS_MS.items()}
    assert {name: tuple(f"{ms} ms" for ms in pair) for name, pair in errors.items()} == measured
