"""Counts the papers' claims by verdict, from the tables of their pages.

    python -m experiments.claims

A page is experiments/<paper>/README.md, a claim a row of its table with the headings `claim` and
`verdict`. A verdict begins with one of `VERDICTS`; what stands behind it limits it ("holds at
1 s"). A verdict that begins otherwise counts as mixed. Rewrites the block `claims` of
docs/methods.md and prints it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.tables import markdown, rewrite
from streaming_asr.terminal import exit_status

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs" / "methods.md"
VERDICTS = ("holds", "reversed", "undecided", "not shown at this size", "not measured")
LIMITED, MIXED = "{} with a limit", "mixed"
COLUMNS = (
    *(name for verdict in VERDICTS[:2] for name in (verdict, LIMITED.format(verdict))),
    *VERDICTS[2:],
    MIXED,
)


def verdicts(page: Path) -> Iterator[str]:
    """The verdict of each claim of a page, as it is written."""
    header: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif line.startswith("| ") and {"claim", "verdict"} <= set(header):
            yield cells[header.index("verdict")]


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
    rows = [
        (f"[{page.parent.name}](../experiments/{page.parent.name}/README.md)", count)
        for page, count in counts.items()
        if count
    ]
    rows.append(("all", sum(counts.values(), Counter())))
    return markdown(
        ["paper", "claims", *COLUMNS],
        [
            [name, str(count.total()), *(str(count[each]) for each in COLUMNS)]
            for name, count in rows
        ],
    )


def main() -> int:
    """The command line; returns the exit status."""

    def job() -> None:
        counted = table(sorted(HERE.glob("*/README.md")))
        rewrite(DOCS, {"claims": counted})
        print(counted)

    return exit_status(job)


if __name__ == "__main__":
    sys.exit(main())
