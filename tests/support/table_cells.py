"""Rows of tables by what they are of, so that tests assert figures and not their layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from experiments.tables import Figure, Row


def by_labels(rows: Iterable[Row], table: str | None = None) -> dict[tuple[str, ...], Mapping]:
    """The figures of each row by its labels; table: of that table only."""
    found: dict[tuple[str, ...], Mapping[str, Figure]] = {}
    for row in rows:
        if table in (None, row.table):
            labels = tuple(row.labels.values())
            assert labels not in found, labels
            found[labels] = row.figures
    return found
