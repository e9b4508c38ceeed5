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


def test_comments_of_settings_which_help_prints_are_as_plain():
    places = {}
    for file in (ROOT / "conf").rglob("*.yaml"):
        lines = [line.partition("# ")[2] for line in file.read_text("utf-8").splitlines()]
        if stumbles := [line for line in lines if WORDS.search(CODE.sub("", line))]:
            places[file.name] = stumbles
    assert places == {}, BETTER


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
