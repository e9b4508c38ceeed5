"""A cell whose utterances were split over several jobs: its pieces, joined into one log.

Piece k of n, in <cell>/pieces/<k>-of-<n>, holds the utterances k, k + n, k + 2n, ... of the corpus.
Its header says so: `piece` is [k, n, how many they are].
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Log, is_whole_cell, read_log

FOLDER, EVENTS, RESULT = "pieces", "events.jsonl", "metrics.json"


def cell_of(folder: Path) -> Path:
    """Return the cell that a piece's folder is of; any other folder is its own cell."""
    return folder if is_whole_cell(folder) else folder.parent.parent


def name_of(folder: Path) -> str:
    """Return how messages call a cell's or a piece's folder."""
    cell = cell_of(folder)
    if cell == folder:
        return folder.name
    return f"{cell.name}, piece {folder.name.replace('-', ' ')}"


def number_of_pieces(cell: Path) -> int | None:
    """Return into how many pieces a cell is split, None where it is not.

    Raises UserError where its folder holds pieces of more than one split.
    """
    counts = {int(path.name.split("-")[2]) for path in cell.glob(f"{FOLDER}/[0-9]*-of-*") if
              not is_whole_cell(path)}  # fmt: skip
    if len(counts) > 1:
        numbers = " and of ".join(map(str, sorted(counts)))
        raise UserError(
            f"{cell / FOLDER}: holds pieces of {numbers}; one of them is of another sweep: remove "
            "its folders"
        )
    return counts.pop() if counts else None


def check_fits(cell: Path, n: int, n_utterances: int) -> None:
    """Raise UserError where a cell cannot be split into `n` pieces."""
    if n > n_utterances:
        raise UserError(
            f"pieces={n}: there are only {n_utterances} utterances; give pieces={n_utterances} or "
            "less"
        )
    if (found := number_of_pieces(cell)) not in (None, n):
        raise UserError(
            f"pieces={n}: {cell / FOLDER} holds pieces of {found}; give pieces={found} to complete "
            "them, or remove that folder"
        )


def join(cell: Path) -> bool:
    """Write the log of a cell from its pieces; return whether it is there, so False while a piece
    is lost or unfinished.

    Raises UserError where the pieces are not of one run: computed by other code, of another
    configuration, model or corpus, or holding the same utterance twice. An earlier log of the cell
    that ran whole with other hashes is renamed.
    """
    n = number_of_pieces(cell)
    folders = [cell / FOLDER / f"{k}-of-{n}" for k in range(1, (n or 0) + 1)]
    if not n or not all((folder / RESULT).is_file() for folder in folders):
        return False
    headers = [_header(folder) for folder in folders]
    _check_same(cell, headers)
    before = _header(cell) if (cell / EVENTS).is_file() else {}
    is_same = before.get("hashes") == headers[0].get("hashes")
    if is_same and before.get("pieces") == n:
        return True
    logs = [read_log(folder / EVENTS) for folder in folders]
    for k, (folder, log) in enumerate(zip(folders, logs, strict=True), start=1):
        piece = log.header.get("piece") or [None, None, -1]
        if piece[:2] != [k, n]:
            raise UserError(f"{folder}: its log is no piece {k} of {n}; remove it and run it again")
        if len(log.utterances) < piece[2]:
            return False
    if before and not is_same:
        _rename_aside(cell)
    _write(cell, headers, logs)
    return True


def _header(folder: Path) -> dict[str, Any]:
    try:
        with (folder / EVENTS).open(encoding="utf-8") as log:
            return dict(json.loads(log.readline()))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: its log cannot be read; remove it and run it again") from error


def _check_same(cell: Path, headers: list[dict[str, Any]]) -> None:
    found = [header.get("hashes") or {} for header in headers]
    usual = max(found, key=found.count)
    for k, hashes in enumerate(found, start=1):
        if other := [key for key in usual if hashes.get(key) != usual[key]]:
            raise UserError(
                f"{cell}: piece {k} of {len(found)} ran with another {' and '.join(other)} than "
                "most of the others; give the same command again where every worker has one "
                "version, and what differs is computed anew"
            )


def _write(cell: Path, headers: list[dict[str, Any]], logs: list[Log]) -> None:
    """Write the utterances of all pieces in the order of the corpus, whole or not at all."""
    utterances = [
        log.utterances[row]
        for row in range(max(len(log.utterances) for log in logs))
        for log in logs
        if row < len(log.utterances)
    ]
    ids = [utterance.utt for utterance in utterances]
    if twice := {utt for utt in ids if ids.count(utt) > 1} if len(set(ids)) < len(ids) else None:
        raise UserError(
            f"{cell}: {min(twice)} stands in two pieces, so one of them is of another sweep; "
            f"remove {cell / FOLDER} and run again"
        )
    header = {key: value for key, value in headers[0].items() if key not in ("kind", "schema")}
    del header["piece"]
    header["config"] = (header.get("config") or {}) | {"piece": None}
    header["machine"] = _machine([each.get("machine") or {} for each in headers])
    header["pieces"] = len(logs)
    made = cell / f"{EVENTS}.{os.getpid()}.tmp"
    made.unlink(missing_ok=True)
    try:
        with EventWriter(made, header) as writer:
            for utterance in utterances:
                writer.write_utterance(utterance)
        made.replace(cell / EVENTS)
    finally:
        made.unlink(missing_ok=True)


def _machine(machines: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the machine of the first piece, with the processors and GPUs of all where they
    differ: its times are then of no one machine, and the report says so."""
    joined = dict(machines[0])
    for key in ("cpu", "gpu"):
        names = sorted({str(each[key]) for each in machines if each.get(key) is not None})
        if len(names) > 1:
            joined[key] = " and ".join(names)
    return joined


def _rename_aside(cell: Path) -> None:
    n = 1
    while (old := cell.with_name(f"{cell.name}.old-{n}")).exists():
        n += 1
    old.mkdir()
    for path in [path for path in cell.iterdir() if path.name != FOLDER]:
        path.rename(old / path.name)


def told(cell: Path) -> str | None:
    """Return what is missing of a cell in pieces without a result, None for any other folder."""
    try:
        n = number_of_pieces(cell)
    except UserError as error:
        return str(error)
    if n is None:
        return None
    folders = [cell / FOLDER / f"{k}-of-{n}" for k in range(1, n + 1)]
    failures = [
        f"{name_of(folder).rpartition(', ')[2]} failed: {why}"
        for folder in folders
        if (why := failure(folder)) is not None
    ]
    n_done = sum((folder / RESULT).is_file() for folder in folders)
    state = f"{n_done} of {n} pieces are finished; the same command completes them"
    return "; ".join([*failures, state])


def failure(folder: Path) -> str | None:
    """Return why a cell or a piece failed, None where it did not."""
    try:
        return str(json.loads((folder / "failed.json").read_text(encoding="utf-8"))["error"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "failed.json is unreadable"
