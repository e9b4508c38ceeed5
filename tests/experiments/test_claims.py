"""The papers' claims counted by verdict, and the differences that they rest on."""

from __future__ import annotations

from pathlib import Path

import pytest
from table_cells import row

from experiments.claims import (
    DOCS,
    HERE,
    MIXED,
    column,
    differences,
    p_value,
    table,
    unsupported,
    verdicts,
    with_p,
)
from streaming_asr.errors import UserError

PAGES = [page for page in sorted(HERE.glob("*/README.md")) if list(verdicts(page))]
PAGE = """\
| model | verdict |
|---|---|
| a table of | something else |

| no. | claim | theirs | verdict | ours |
|---|---|---|---|---|
| 1 | A | 1 % | holds | 1 % |
| 2 | B | 1 % | holds at 1 s | 2 % |
| 3 | C | – | not measured | |
| 4 | D | – | STAR ahead holds | |

| of claim | difference | by | 95 % | p, Holm |
|---|---|---:|---:|---:|
| 1 | a less b | 2.0 points | [0.0, 9.0] | |
| 2 | a less c | -1.0 s | [-9.0, -0.5] | |
| 2 | a less d | 0.5 points | – | few |
| – | a less e | 9.0 points | – | – |
"""


def test_a_row_that_names_its_uncorrected_p_has_that_and_not_the_intervals() -> None:
    named = PAGE.replace("a less b |", "a less b; p = 0.0020 uncorrected |")
    first = [next(iter(differences(page).values())) for page in (named, PAGE)]
    assert first == [("1", pytest.approx(0.004)), ("1", pytest.approx(0.1))]  # the second of three


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


@pytest.mark.parametrize(
    ("difference", "low", "high", "p"),
    [
        (2.0, 0.0, 9.0, 0.05),  # the end nearer to 0 counts, and it is 0
        (-2.0, -3.0, 0.0, 0.05),
        (1.0, 0.5, 9.0, 8.9e-5),  # twice 1.96 deviations from 0
        (0.0, -1.0, 2.0, 1.0),
    ],
)
def test_an_interval_is_read_as_a_p_value(difference, low, high, p) -> None:
    assert p_value(difference, low, high) == pytest.approx(p, rel=0.01)


def test_an_interval_without_its_difference_is_refused() -> None:
    with pytest.raises(UserError, match=r"3.0 \[0.0, 1.0\]: give an interval"):
        p_value(3.0, 0.0, 1.0)


def test_a_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(UserError, match="line 18 of a page: 4 cells; give 5 cells"):
        differences(PAGE + "| 1 | a less f | 1.0 | [0, 2] |\n")


def test_few_errors_have_no_interval() -> None:
    with pytest.raises(UserError, match=r"line 16 of a page: \[0.1, 1.0\] of few errors; few"):
        differences(PAGE.replace("0.5 points | – | few", "0.5 points | [0.1, 1.0] | few"))


def test_p_is_corrected_over_all_that_the_claims_rest_on() -> None:
    # three of four rows rest on a claim: the smallest p is taken three times, the next twice
    found = list(differences(PAGE).values())
    assert [(claim, p and round(p, 4)) for claim, p in found] == [
        ("1", 0.1), ("2", 0.0003), ("2", None)
    ]  # fmt: skip
    lines = with_p(PAGE).splitlines()[-4:]
    assert [line.split(" | ")[-1] for line in lines] == ["0.100 |", "< 0.001 |", "few |", "– |"]
    assert with_p(with_p(PAGE)) == with_p(PAGE)


def test_a_claim_that_holds_rests_on_a_decided_difference() -> None:
    assert unsupported(PAGE) == ["1"]  # p 0.1; claim 2 has a limit, and one of two is decided


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_the_pages_keep_the_rule(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert MIXED not in map(column, verdicts(page))
    assert with_p(text) == text
    assert unsupported(text) == []


def test_the_docs_show_the_count_of_the_pages() -> None:
    assert len(PAGES) == 7
    assert table(sorted(HERE.glob("*/README.md"))) in DOCS.read_text()
