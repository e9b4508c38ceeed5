"""Joins the pieces of a cell whose utterances were split over several jobs into one log.

Piece k of n holds the utterances k, k + n, k + 2n, ... of the corpus. Its header has this: `piece`
is [k, n, how many they are].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from streaming_asr.cells.folder import (
    EVENTS,
    PIECES,
    RESULT,
    failure,
    header_of,
    is_piece,
    piece_folder,
    set_aside,
)
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Log, read_log

MOST_PIECES = 100_000  # a split is looked at piece by piece


def number_of_pieces(cell: Path) -> int | None:
    """Return into how many pieces a cell is split; None if it is not split.

    Raises UserError if its folder holds pieces of two different splits, or more than MOST_PIECES.
    """
    folders = [path for path in cell.glob(f"{PIECES}/[0-9]*-of-*") if is_piece(path)]
    counts = {int(path.name.split("-")[2]) for path in folders}
    if len(counts) > 1:
        numbers = " and of ".join(map(str, sorted(counts)))
        raise UserError(
            f"{cell / PIECES}: holds pieces of {numbers}; one of them is of another sweep: remove "
            "its folders"
        )
    if max(counts, default=0) > MOST_PIECES:
        raise UserError(
            f"{cell / PIECES}: holds a piece of {max(counts)}, {MOST_PIECES} at most; remove its "
            "folder"
        )
    return counts.pop() if counts else None


def check_fits(cell: Path, n: int, n_utterances: int) -> None:
    """Raise UserError where a cell cannot be split into `n` pieces."""
    if n > n_utterances:
        raise UserError(
            f"pieces={n}: there are only {n_utterances} utterances; give pieces={n_utterances} or "
            "less"
        )
    if (n_pieces := number_of_pieces(cell)) not in (None, n):
        raise UserError(
            f"pieces={n}: {cell / PIECES} holds pieces of {n_pieces}; give pieces={n_pieces} to "
            "complete them, or remove that folder"
        )


def _folders(cell: Path) -> list[Path]:
    """Return the folders of all pieces of a cell, in order; [] if it is not split."""
    n = number_of_pieces(cell) or 0
    return [piece_folder(cell, k, n) for k in range(1, n + 1)]


def join(cell: Path) -> bool:
    """Write the log of a cell from the logs of its pieces. Return whether the cell now has its log:
    False while a piece is missing or unfinished.

    Raises UserError if the pieces have different hashes (code, configuration, model or corpus), or
    if a piece's log cannot be read or is of another piece. Results that the cell has of other
    hashes are set aside.
    """
    folders = _folders(cell)
    if not folders or not all((folder / RESULT).is_file() for folder in folders):
        return False
    headers = [header_of(folder) or {} for folder in folders]
    if torn := [folder for folder, header in zip(folders, headers, strict=True) if not header]:
        raise UserError(f"{torn[0]}: its log cannot be read; remove it and run it again")
    _check_same(cell, headers)
    old_header = header_of(cell) or {}
    is_same = old_header.get("hashes") == headers[0].get("hashes")
    if is_same and old_header.get("pieces") == len(folders):
        return True  # joined earlier
    logs = [read_log(folder / EVENTS) for folder in folders]
    for k, (folder, log) in enumerate(zip(folders, logs, strict=True), start=1):
        piece = log.header.get("piece") or []  # number, number of pieces, number of utterances
        if piece[:2] != [k, len(folders)]:
            raise UserError(
                f"{folder}: its log is no piece {k} of {len(folders)}; remove it and run it again"
            )
        if len(log.utterances) < piece[2]:
            return False
    if old_header and not is_same:
        set_aside(cell, keep=PIECES)
    _write(cell, headers, logs)
    return True


def _check_same(cell: Path, headers: list[dict[str, Any]]) -> None:
    """Raise UserError for the first piece whose hashes are not those of most pieces."""
    of_pieces = [header.get("hashes") or {} for header in headers]
    most_frequent = max(of_pieces, key=of_pieces.count)
    for k, hashes in enumerate(of_pieces, start=1):
        different = [key for key in most_frequent if hashes.get(key) != most_frequent[key]]
        if different:
            raise UserError(
                f"{cell}: piece {k} of {len(headers)} ran with another {' and '.join(different)} "
                "than most of the others; give the same command again where every worker has one "
                "version, and what differs is computed again"
            )


def _write(cell: Path, headers: list[dict[str, Any]], logs: list[Log]) -> None:
    """Write the log of the cell: the utterances of all pieces in the order of the corpus.

    The log appears only when it is complete. `headers` and `logs` are of pieces 1 to n.
    """
    # The corpus was dealt out to the pieces in turn, so they are taken in turn again.
    rounds = zip_longest(*(log.utterances for log in logs))
    utterances = [utterance for row in rounds for utterance in row if utterance is not None]
    header = {key: value for key, value in headers[0].items() if key not in ("kind", "schema")}
    del header["piece"]
    header["config"] = (header.get("config") or {}) | {"piece": None}
    header["machine"] = _machine([each.get("machine") or {} for each in headers])
    header["pieces"] = len(logs)
    header["n_utterances"] = len(utterances)
    scratch = cell / f"{EVENTS}.{os.getpid()}.tmp"
    scratch.unlink(missing_ok=True)
    try:
        with EventWriter(scratch, header) as writer:
            for utterance in utterances:
                writer.write_utterance(utterance)
        scratch.replace(cell / EVENTS)
    finally:
        scratch.unlink(missing_ok=True)


def _machine(machines: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the machine for the header of a joined log: that of the first piece, but with the
    processors and GPUs of all pieces if they differ, so that the report can note it."""
    joined = dict(machines[0])
    for key in ("cpu", "gpu"):
        names = sorted({str(each[key]) for each in machines if each.get(key) is not None})
        if len(names) > 1:
            joined[key] = " and ".join(names)
    return joined


def unfinished(cell: Path) -> str | None:
    """Return a sentence about a split cell that has no result yet: which pieces failed and how many
    are finished; None for a folder without pieces."""
    try:
        folders = _folders(cell)
    except UserError as error:
        return str(error)
    if not folders:
        return None
    failures = [
        f"piece {folder.name.replace('-', ' ')} failed: {why}"
        for folder in folders
        if (why := failure(folder)) is not None
    ]
    n_done = sum((folder / RESULT).is_file() for folder in folders)
    state = f"{n_done} of {len(folders)} pieces are finished; the same command completes them"
    return "; ".join([*failures, state])
