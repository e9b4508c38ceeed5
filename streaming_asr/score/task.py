"""Names the task of a result, so that results of two places are known to be of one.

A task is which utterances ran, their sound, their words and word times, and how it is scored and
played. Methods, models, chunks and machines are no part of it: these are compared. Nothing of it
depends on where files lie.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streaming_asr.events.log import Log, UtteranceLog
from streaming_asr.metrics import Trace
from streaming_asr.score.results import split_of

VERSION = 1  # raised with any change of what is hashed
PARTS = {
    "ids": "utterances",
    "audio": "audio",
    "references": "references",
    "words": "word times",
    "protocol": "protocol",
}


def task_of_log(log: Log, traces: Iterable[Trace]) -> dict[str, Any]:
    """Return the `task` of metrics.json: name, version, a hash of each of PARTS (None if an
    utterance lacks it, as in an imported log) and `id`, the hash of all parts.

    traces: of the log; they have the normalisers by which words are compared.
    """
    utterances = sorted(log.utterances, key=lambda each: each.utt)
    protocol = {"normalisers": normalisers(traces), "streams": _streams(log)}
    name = split_of(log.header.get("config") or {}, {}).replace(" ", "/") or "unnamed"
    parts = {
        "ids": _hash([each.utt for each in utterances]),
        "audio": _hash([each.audio_hash for each in utterances]),
        "references": _hash([each.text for each in utterances]),
        "words": _hash([_words(each) for each in utterances]),
        "protocol": _hash([protocol]),
    }
    return {
        "name": name,
        "version": VERSION,
        **parts,
        "id": _hash([VERSION, *(part or "" for part in parts.values())]),
    }


def normalisers(traces: Iterable[Trace]) -> list[str]:
    """Return name and version of each normaliser by which words of the traces are compared."""
    kinds = {each.normalise for each in traces}
    return sorted({f"{each.name} {each.version}" for each in kinds})


def title(task: Mapping[str, Any]) -> str:
    """Return the name of a task for messages, as `voices/test@1:0123456789ab`."""
    return f"{task['name']}@{task['version']}:{task['id']}"


def differing(mine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names of the parts in which two tasks differ, without parts that one of them does
    not have."""
    return [
        name
        for part, name in PARTS.items()
        if None not in (mine[part], other[part]) and mine[part] != other[part]
    ]


def _streams(log: Log) -> Any:
    """Return how many streams shared the device in a queue; 1 for any other feed."""
    if all(each.feed != "realtime_queue" for each in log.utterances):
        return 1
    config = log.header.get("config") or {}
    return config.get("streams") or config.get("batch") or 1


def _words(utterance: UtteranceLog) -> list[list[Any]] | None:
    if utterance.words is None:
        return [] if not utterance.text.strip() else None
    # Times that were written down and read again are the same times.
    return [[word, round(start, 3), round(end, 3)] for word, start, end in utterance.words]


def _hash(values: Sequence[Any]) -> str | None:
    if None in values:
        return None
    return hashlib.sha256(json.dumps(values, ensure_ascii=True).encode()).hexdigest()[:12]
