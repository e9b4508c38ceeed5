"""Counts the papers' claims by verdict, and corrects the differences that they rest on.

    python -m experiments.claims

A page is experiments/<paper>/README.md. A claim is a row of its table with the headings `no.`,
`claim` and `verdict`; a verdict begins with one of `VERDICTS`, and the text after it limits it
("holds at 1 s"). A difference is a row of its table with the headings `of claim`, `by`, `95 %` and
`p, Holm`. The rule of all pages is in docs/statistics.md. Writes the last column of the
differences, over all that a page's claims rest on, and the block `claims` of docs/statistics.md.
A row with "p = 0.0020 uncorrected" has that p, of `score compare`; others have it off the interval.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.tables import NONE, markdown, rewrite
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.metrics.intervals import NORMAL, holm
from streaming_asr.terminal import exit_status

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "statistics.md"
VERDICTS = ("holds", "reversed", "undecided", "not shown at this size", "not measured")
LIMITED, MIXED = "{} with a limit", "mixed"
COLUMNS = (
    *(name for verdict in VERDICTS[:2] for name in (verdict, LIMITED.format(verdict))),
    *VERDICTS[2:],
    MIXED,
)
CLAIM = {"no.", "claim", "verdict"}
DIFFERENCE = {"of claim", "by", "95 %", "p, Holm"}
FEW = "few"  # so few errors that fewer than six utterances may differ: neither p nor interval
UNCORRECTED = re.compile(r"\bp = (0\.\d+) uncorrected")
LEVEL = 0.05

Rows = Iterator[tuple[int, dict[str, str]]]


def rows(text: str, headings: set[str]) -> Rows:
    """Yield the line's number and the cells by heading of each row under these headings."""
    header: list[str] = []
    for number, line in enumerate(text.splitlines()):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif line.startswith("| ") and headings <= set(header) and set(line) - set("|-: "):
            if len(cells) != len(header):
                layout = f"{len(header)} cells, as {' | '.join(header)}"
                raise UserError(f"line {number + 1} of a page: {len(cells)} cells; give {layout}")
            yield number, dict(zip(header, cells, strict=True))


def verdicts(page: Path) -> Iterator[str]:
    """The verdict of each claim of a page, as it is written."""
    for _, row in rows(page.read_text(encoding="utf-8"), CLAIM):
        yield row["verdict"]


def column(verdict: str) -> str:
    """The column in which a verdict counts."""
    for name in VERDICTS:
        if verdict.startswith(name):
            is_limited = verdict != name and LIMITED.format(name) in COLUMNS
            return LIMITED.format(name) if is_limited else name
    return MIXED


def table(pages: Sequence[Path]) -> str:
    """A row for each page with claims, and their sum."""
    counts = {page: Counter(map(column, verdicts(page))) for page in pages}
    counted = [
        (f"[{page.parent.name}](../experiments/{page.parent.name}/README.md)", count)
        for page, count in counts.items()
        if count
    ]
    counted.append(("all", sum(counts.values(), Counter())))
    return markdown(
        ["paper", "claims", *COLUMNS],
        [
            [name, str(count.total()), *(str(count[each]) for each in COLUMNS)]
            for name, count in counted
        ],
    )


def p_value(difference: float, low: float, high: float) -> float:
    """Return the two-sided p that the interval of 95 % speaks of: that of a normal distribution
    whose 2.5 % lie beyond the interval's end nearer to 0."""
    if not low <= difference <= high or low == high:
        raise UserError(f"{difference} [{low}, {high}]: give an interval that holds the difference")
    near = low if difference > 0 else high
    if near == difference:  # the interval ends at the difference, as rounded
        return 0.0
    z = NORMAL.inv_cdf(0.975) * abs(difference) / abs(difference - near)
    return 2 * NORMAL.cdf(-z)


def differences(text: str) -> dict[int, tuple[str, float | None]]:
    """Return, by the line's number, the claim of each difference that one rests on, and its p by
    Holm over them all; None where few errors are noted."""
    effects = [(at, row) for at, row in rows(text, DIFFERENCE) if row["of claim"] != NONE]
    for at, row in effects:
        if row["p, Holm"] == FEW and row["95 %"] != NONE:
            place = f"line {at + 1} of a page: {row['95 %']} of few errors"
            raise UserError(f"{place}; few errors have no interval, give {NONE}")
    p_values = [None if row["p, Holm"] == FEW else _uncorrected(row) for _, row in effects]
    return {at: (row["of claim"], p) for (at, row), p in zip(effects, holm(p_values), strict=True)}


def _uncorrected(row: dict[str, str]) -> float:
    """The p that a row names, else that of its interval."""
    named = UNCORRECTED.search(" ".join(row.values()))
    return float(named[1]) if named else p_value(*_numbers(row))


def _numbers(row: dict[str, str]) -> list[float]:
    return [float(n) for n in re.findall(r"[+-]?\d+\.?\d*", f"{row['by']} {row['95 %']}")]


def with_p(text: str) -> str:
    """Return the page with the last column of its differences."""
    lines = text.splitlines()
    for at, (_, p) in differences(text).items():
        p_text = FEW if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
        lines[at] = f"{lines[at].strip().rstrip('|').rpartition(' | ')[0]} | {p_text} |"
    return "\n".join(lines) + "\n"


def unsupported(text: str) -> list[str]:
    """Return the numbers of the claims whose verdict is that they hold or are reversed though none
    of their differences is decided; of a verdict without a limit each has to be."""
    decided: dict[str, list[bool]] = {}
    for claim, p in differences(text).values():
        decided.setdefault(claim, []).append(p is not None and p < LEVEL)
    asked = {"holds": all, "reversed": all}
    asked |= {LIMITED.format(name): any for name in ("holds", "reversed")}
    return [
        row["no."]
        for _, row in rows(text, CLAIM)
        if (enough := asked.get(column(row["verdict"])))
        and not enough(decided.get(row["no."], [True]))
    ]


def main() -> int:
    """The command line; returns the exit status."""

    def job() -> None:
        pages = sorted(HERE.glob("*/README.md"))
        for page in pages:
            text = page.read_text(encoding="utf-8")
            if with_p(text) != text:
                write_text(page, with_p(text))
        counted = table(pages)
        rewrite(DOCS, {"claims": counted})
        print(counted)

    return exit_status(job)


if __name__ == "__main__":
    sys.exit(main())
