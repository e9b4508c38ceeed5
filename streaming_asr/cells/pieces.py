"""Joins the pieces of a cell whose utterances were split over several jobs into one log.

Piece k of n holds the utterances k, k + n, k + 2n, ... of the corpus. Its header has this: `piece`
is [k, n, how many they are].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
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
    """Return into how many pieces a cell is split, None where it is not.

    Raises UserError where its folder holds pieces of more than one split, or of too many.
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
    n = number_of_pieces(cell) or 0
    return [piece_folder(cell, k, n) for k in range(1, n + 1)]


def join(cell: Path) -> bool:
    """Write the log of a cell from its pieces; return whether it is there, so False while a piece
    is lost or unfinished.

    Raises UserError where the pieces are not of one run: computed by other code, or of another
    configuration, model or corpus. An earlier log of the cell that ran whole with other hashes is
    set aside.
    """
    folders = _folders(cell)
    if not folders or not all((folder / RESULT).is_file() for folder in folders):
        return False
    headers = [header_of(folder) or {} for folder in folders]
    if torn := [folder for folder, header in zip(folders, headers, strict=True) if not header]:
        raise UserError(f"{torn[0]}: its log cannot be read; remove it and run it again")
    _check_same(cell, headers)
    before = header_of(cell) or {}
    is_same = before.get("hashes") == headers[0].get("hashes")
    if is_same and before.get("pieces") == len(folders):
        return True
    logs = [read_log(folder / EVENTS) for folder in folders]
    for k, (folder, log) in enumerate(zip(folders, logs, strict=True), start=1):
        piece = log.header.get("piece") or [None, None, -1]
        if piece[:2] != [k, len(folders)]:
            raise UserError(
                f"{folder}: its log is no piece {k} of {len(folders)}; remove it and run it again"
            )
        if len(log.utterances) < piece[2]:
            return False
    if before and not is_same:
        set_aside(cell, but=PIECES)
    _write(cell, headers, logs)
    return True


def _check_same(cell: Path, headers: list[dict[str, Any]]) -> None:
    of_pieces = [header.get("hashes") or {} for header in headers]
    usual = max(of_pieces, key=of_pieces.count)
    for k, hashes in enumerate(of_pieces, start=1):
        if other := [key for key in usual if hashes.get(key) != usual[key]]:
            raise UserError(
                f"{cell}: piece {k} of {len(headers)} ran with another {' and '.join(other)} than "
                "most of the others; give the same command again where every worker has one "
                "version, and what differs is computed again"
            )


def _write(cell: Path, headers: list[dict[str, Any]], logs: list[Log]) -> None:
    """Write the utterances of all pieces in the order of the corpus, whole or not at all."""
    utterances = [
        log.utterances[row]
        for row in range(max(len(log.utterances) for log in logs))
        for log in logs
        if row < len(log.utterances)
    ]
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
    """Return the machine of the first piece, with the processors and GPUs of all where they
    differ: its times are then of no one machine, as the report notes."""
    joined = dict(machines[0])
    for key in ("cpu", "gpu"):
        names = sorted({str(each[key]) for each in machines if each.get(key) is not None})
        if len(names) > 1:
            joined[key] = " and ".join(names)
    return joined


def unfinished(cell: Path) -> str | None:
    """Return what is missing of a cell in pieces without a result, None for any other folder."""
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
