"""Counts the papers' claims by verdict, and corrects the differences that they rest on.

    python -m experiments.claims

A page with claims has two files of data, tab-separated. experiments/<paper>/claims.tsv has a row
for each claim: `no.`, `claim`, `where` (in the paper), `theirs` (empty: it prints no numbers),
`verdict`, `ours`; a verdict begins with one of `VERDICTS`, and the text after it limits it ("holds
at 1 s"). differences.tsv has a row for each difference: `of claim` (empty: no claim rests on it),
`difference`, `by`, `unit`, `low`, `high` (the interval of 95 %), `p uncorrected` (of `score
compare`; empty: p is read off the interval) and `p Holm`, corrected over all differences that the
page's claims rest on. A difference of so few errors that fewer than six utterances may differ has
neither an interval nor p. The rule of all pages is in docs/statistics.md. Writes `p Holm`, the
block `claims` of each page and that of docs/statistics.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from experiments.tables import markdown
from streaming_asr.errors import UserError
from streaming_asr.files import write_text
from streaming_asr.metrics.intervals import NORMAL, holm
from streaming_asr.terminal import exit_status

HERE = Path(__file__).parent
CLAIMS, DIFFERENCES = "claims.tsv", "differences.tsv"
NOT_MEASURED = "not measured"
VERDICTS = ("holds", "reversed", "undecided", "not shown at this size", NOT_MEASURED)
LIMITED, MIXED = "{} with a limit", "mixed"
COLUMNS = (
    *(name for verdict in VERDICTS[:2] for name in (verdict, LIMITED.format(verdict))),
    *VERDICTS[2:],
    MIXED,
)
SHOWN = ("no.", "claim: theirs", "verdict", "ours")
LEVEL = 0.05

Row = dict[str, str]


def read_table(path: Path) -> list[Row]:
    """The rows of a tab-separated file. Raises UserError for a row of another length."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]):
            layout = f"{len(rows[0])} cells, as {' | '.join(rows[0])}"
            raise UserError(f"{path}, line {number + 1}: {len(row)} cells; give {layout}")
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def as_table(rows: Sequence[Row]) -> str:
    """The text of a tab-separated file with these rows."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
    writer.writerows([list(rows[0]), *(list(row.values()) for row in rows)])
    return text.getvalue()


# -- claims ---------------------------------------------------------------------------------


def column(verdict: str) -> str:
    """The column in which a verdict counts."""
    for name in VERDICTS:
        if verdict.startswith(name):
            is_limited = verdict != name and LIMITED.format(name) in COLUMNS
            return LIMITED.format(name) if is_limited else name
    return MIXED


def block(claims: Sequence[Row]) -> str:
    """The claims of a page: a table of what was measured, and a line of what was not."""
    measured = [row for row in claims if column(row["verdict"]) != NOT_MEASURED]
    others = [
        f"{row['no.']}. {row['claim']}" + (f": {row['ours']}" if row["ours"] else "")
        for row in claims
        if column(row["verdict"]) == NOT_MEASURED
    ]
    lines = [
        [
            row["no."],
            row["claim"] + (f": {row['theirs']}" if row["theirs"] else ""),
            row["verdict"],
            row["ours"],
        ]
        for row in measured
    ]
    text = markdown(SHOWN, lines, len(SHOWN))
    return text + (f"\n\nNot measured: {'; '.join(others)}." if others else "")


def counts(folders: Sequence[Path] | None = None) -> str:
    """A row for each page with claims, and their sum. folders: of the pages; None: all."""
    by_page = {
        folder.name: Counter(column(row["verdict"]) for row in read_table(folder / CLAIMS))
        for folder in folders or pages()
    }
    rows = [
        (f"[{name}](../experiments/{name}/README.md)", count) for name, count in by_page.items()
    ]
    rows.append(("all", sum(by_page.values(), Counter())))
    return markdown(
        ["paper", "claims", *COLUMNS],
        [
            [name, str(count.total()), *(str(count[each]) for each in COLUMNS)]
            for name, count in rows
        ],
    )


# -- differences ----------------------------------------------------------------------------


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


def corrected(differences: Sequence[Row]) -> list[float | None]:
    """The p of each difference by Holm over all that a claim rests on; None for the others and
    where few errors differ."""
    resting = [row for row in differences if row["of claim"]]
    p_values = iter(holm([_uncorrected(row) for row in resting]))
    return [next(p_values) if row["of claim"] else None for row in differences]


def _uncorrected(row: Row) -> float | None:
    """The p that a row names, else that of its interval; None without either."""
    if row["p uncorrected"]:
        return float(row["p uncorrected"])
    if not row["low"]:
        return None
    return p_value(*(float(row[name]) for name in ("by", "low", "high")))


def with_p(differences: Sequence[Row]) -> list[Row]:
    """The differences with `p Holm`."""
    return [
        {**row, "p Holm": "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"}
        for row, p in zip(differences, corrected(differences), strict=True)
    ]


def unsupported(claims: Sequence[Row], differences: Sequence[Row]) -> list[str]:
    """Return the numbers of the claims whose verdict is that they hold or are reversed though none
    of their differences is significant; of a verdict without a limit each has to be."""
    significant: dict[str, list[bool]] = {}
    for row, p in zip(differences, corrected(differences), strict=True):
        significant.setdefault(row["of claim"], []).append(p is not None and p < LEVEL)
    required = {"holds": all, "reversed": all}
    required |= {LIMITED.format(name): any for name in ("holds", "reversed")}
    return [
        row["no."]
        for row in claims
        if (enough := required.get(column(row["verdict"])))
        and not enough(significant.get(row["no."], [True]))
    ]


def pages() -> list[Path]:
    """The folders of the papers that have claims."""
    return sorted(path.parent for path in HERE.glob(f"*/{CLAIMS}"))


def main() -> int:
    """The command line; returns the exit status."""

    def job() -> None:
        for folder in pages():
            differences = read_table(folder / DIFFERENCES)
            write_text(folder / DIFFERENCES, as_table(with_p(differences)))
        print(counts())

    return exit_status(job)


if __name__ == "__main__":
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    sys.exit(main())
