"""The papers' claims counted by verdict, and the differences that they rest on."""

from __future__ import annotations

from pathlib import Path

import pytest
from places import ROOT

from experiments.claims import (
    CLAIMS,
    DIFFERENCES,
    MIXED,
    block,
    column,
    corrected,
    counts,
    p_value,
    pages,
    read_table,
    unsupported,
    with_p,
)
from experiments.tables import with_tables
from streaming_asr.errors import UserError

CLAIMED = """\
no.	claim	where	theirs	verdict	ours
1	A	table 1	1 %	holds	1 %
2	B	table 1	1 %	holds at 1 s	2 %
3	C		–	not measured	needs a GPU
4	D		–	STAR ahead holds	
"""
HEAD = "of claim	difference	by	unit	low	high	p uncorrected	p Holm\n"
DIFFER = (
    HEAD
    + """\
1	a less b	2.0	points	0.0	9.0		
2	a less c	-1.0	s	-9.0	-0.5		
2	a less d	0.5	points				
	a less e	9.0	points				
"""
)


def rows(folder: Path, text: str) -> list[dict[str, str]]:
    path = folder / "rows.tsv"
    path.write_text(text)
    return read_table(path)


def test_a_row_that_names_its_uncorrected_p_has_that_and_not_the_intervals(tmp_path: Path) -> None:
    named = DIFFER.replace("0.0	9.0		", "0.0	9.0	0.0020	")
    first = [corrected(rows(tmp_path, text))[0] for text in (named, DIFFER)]
    assert first == [pytest.approx(0.004), pytest.approx(0.1)]  # the second of three


def test_claims_are_counted_by_the_verdict_they_begin_with(tmp_path: Path) -> None:
    (tmp_path / CLAIMS).write_text(CLAIMED)
    header, _, one, total = (
        line.strip("| ").split(" | ") for line in counts([tmp_path]).split("\n")
    )
    assert one[1:] == total[1:]
    assert dict(zip(header[1:], total[1:], strict=True)) == {
        "claims": "4", "holds": "1", "holds with a limit": "1", "reversed": "0",
        "reversed with a limit": "0", "undecided": "0", "not shown at this size": "0",
        "not measured": "1", "mixed": "1",
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


def test_a_page_shows_what_was_measured_and_lists_the_other_claims(tmp_path: Path) -> None:
    text = block(rows(tmp_path, CLAIMED))
    assert text.splitlines()[2] == "| 1 | A: 1 % | holds | 1 % |"
    assert "| 3 |" not in text and text.endswith("\n\nNot measured: 3. C: needs a GPU.")


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


def test_a_row_with_a_cell_too_few_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="line 6: 7 cells; give 8 cells"):
        rows(tmp_path, DIFFER + "1	a less f	1.0	points	0	2	\n")


def test_p_is_corrected_over_all_that_the_claims_rest_on(tmp_path: Path) -> None:
    # three of four rows rest on a claim: the smallest p is taken three times, the next twice
    differences = rows(tmp_path, DIFFER)
    assert [p and round(p, 4) for p in corrected(differences)] == [0.1, 0.0003, None, None]
    again = with_p(differences)
    assert [row["p Holm"] for row in again] == ["0.100", "< 0.001", "", ""]
    assert with_p(again) == again


def test_a_claim_that_holds_rests_on_a_significant_difference(tmp_path: Path) -> None:
    claims, differences = rows(tmp_path, CLAIMED), rows(tmp_path, DIFFER)
    assert unsupported(claims, differences) == ["1"]  # p 0.1; of 2, one of two is significant


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_the_pages_keep_the_rule(page: Path) -> None:
    claims, differences = read_table(page / CLAIMS), read_table(page / DIFFERENCES)
    assert MIXED not in {column(row["verdict"]) for row in claims}
    assert [int(row["no."]) for row in claims] == [*range(1, len(claims) + 1)]
    assert {row["of claim"] for row in differences} - {""} <= {row["no."] for row in claims}
    assert with_p(differences) == differences
    assert unsupported(claims, differences) == []
    text = with_tables((page / "README.md").read_text(encoding="utf-8"), page)
    assert block(claims) in text


def test_the_docs_show_the_count_of_the_pages() -> None:
    assert len(pages()) == 7
    page = ROOT / "docs" / "statistics.md"
    assert counts() in with_tables(page.read_text(encoding="utf-8"), page.parent)
