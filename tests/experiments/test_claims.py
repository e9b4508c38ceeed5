"""The papers' claims counted by verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_cells import row

from experiments.claims import DOCS, HERE, column, table

PAGE = """\
| model | verdict |
|---|---|
| a table of | something else |

| claim | theirs | verdict | ours |
|---|---|---|---|
| A | 1 % | holds | 1 % |
| B | 1 % | holds at 1 s | 2 % |
| C | – | not measured | |
| D | – | STAR ahead holds | |
"""


def test_claims_are_counted_by_the_verdict_they_begin_with(tmp_path: Path) -> None:
    page = tmp_path / "paper" / "README.md"
    page.parent.mkdir()
    page.write_text(PAGE)
    counted = row(table([page]), "all")
    assert counted == {
        "claims": 4, "holds": 1, "holds with a limit": 1, "reversed": 0,
        "reversed with a limit": 0, "undecided": 0, "not shown at this size": 0,
        "not measured": 1, "mixed": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verdict", "counts_as"),
    [
        ("reversed, after 16 minutes", "reversed with a limit"),
        ("undecided: not learned", "undecided"),
        ("not seen at 1 s", "mixed"),
    ],
)
def test_what_stands_behind_a_verdict_limits_it(verdict: str, counts_as: str) -> None:
    assert column(verdict) == counts_as


def test_the_docs_show_the_count_of_the_pages() -> None:
    assert table(sorted(HERE.glob("*/README.md"))) in DOCS.read_text()
