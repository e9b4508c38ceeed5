"""The docs are in plain English: words that native readers stumbled over do not come back."""

import re

import pytest
from places import ROOT

PAGES = [ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md")) + sorted((ROOT / "experiments").glob("*/*.md"))
BETTER = {
    r"(?:is|are|was|were|been) (?:said|told|asked)": "name the actor",
    r"hears?|heard": "a model transcribes or receives",
    "alone": "only",
    "beside": "next to, compared with",
    "anew": "again",
    "likewise": "also",
    "mended": "fixed",
    "but for": "except",
    r"stands? (?:in|beside)": "is in",
    "at hand": "available",
    r"told (?:from|apart)": "not significantly different",
}
WORDS = re.compile(rf"\b(?:{'|'.join(BETTER)})\b", re.IGNORECASE)
# The name of a row, which the programs of experiments print, and anchors of links.
EXCEPTIONS = re.compile(r"mask alone|#[\w-]+")
CODE = re.compile(r"^(```+).*?^\1|^ {4}.*$|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def prose(text):
    """The lines of a page without code."""
    return [EXCEPTIONS.sub("", line) for line in CODE.sub("", text).splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_has_no_word_that_readers_stumbled_over(page):
    found = [line for line in prose(page.read_text(encoding="utf-8")) if WORDS.search(line)]
    assert found == [], BETTER


def test_settings_and_the_help_of_every_command_are_as_plain(monkeypatch):
    """Docstrings and messages: tests/test_names.py."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    monkeypatch.syspath_prepend(ROOT / "tests")
    from test_names import NOT_PLAIN

    import conf  # of Sphinx

    texts = {"--help": "\n".join(conf._commands())}
    texts |= {file.name: file.read_text("utf-8") for file in (ROOT / "conf").rglob("*.yaml")}
    assert len(texts["--help"].split()) > 10_000
    assert {
        f"{name}: {line.strip()}"
        for name, text in texts.items()
        for line in text.splitlines()
        for part in [line.partition("# ")[2] if name != "--help" else line]
        if WORDS.search(CODE.sub("", part)) or NOT_PLAIN.search(part)
    } == set(), BETTER


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("It is said above.", 1),
        ("The model heard it, but for the end.", 1),
        ("`alone` and\n\n    heard\n\n```\nbeside\n```\n", 0),
        ("| mask alone | 3 |", 0),
    ],
)
def test_a_planted_word_is_found_outside_code_only(text, n):
    assert len([line for line in prose(text) if WORDS.search(line)]) == n
