"""NIST's CTM (a timed word per line) and STM (a timed segment per line), as sclite reads them.

    CTM  <recording> <channel> <begin> <duration> <word> [<confidence>]
    STM  <recording> <channel> <speaker> <begin> <end> [<label,...>] text

Times are in seconds. Lines that start with ;; are comments. A recording here has one channel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.corpora.rows import numbers, text_rows
from streaming_asr.errors import UserError
from streaming_asr.utterance import TimedWord

IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"


@dataclass(frozen=True)
class Segment:
    """A line of an STM file; times in seconds."""

    speaker: str
    start_s: float
    end_s: float
    text: str


def ctm_words(path: Path) -> dict[str, list[TimedWord]]:
    """Return {recording: words in the order of time} of a CTM file. Raises UserError for a line of
    another form, alternatives, and a recording with two channels."""
    words_of: dict[str, list[TimedWord]] = {}
    channel_of: dict[str, str] = {}
    for where, line in _rows(path):
        fields = line.split()
        if len(fields) not in (5, 6):
            raise UserError(
                f"{where}: {len(fields)} fields; a CTM line is `recording channel begin duration "
                "word [confidence]`."
            )
        if fields[2:4] == ["*", "*"]:
            raise UserError(
                f"{where}: begins alternatives ({fields[4]}), which sclite reads and this does "
                "not; choose one of them."
            )
        _check_channel(channel_of, fields, where)
        begin_s, length_s = numbers(fields[2:4], where)
        numbers([confidence for confidence in fields[5:] if confidence not in ("NA", "-")], where)
        word = TimedWord(fields[4], begin_s, round(begin_s + length_s, 6))
        words_of.setdefault(fields[0], []).append(word)
    for words in words_of.values():
        words.sort(key=lambda word: word.start)
    return words_of


def segments(path: Path) -> dict[str, list[Segment]]:
    """Return {recording: segments in the order of time} of an STM file, without those that are not
    to be scored. Raises UserError as `ctm_words` does."""
    segments_of: dict[str, list[Segment]] = {}
    channel_of: dict[str, str] = {}
    for where, line in _rows(path):
        fields = line.split(maxsplit=5)
        if len(fields) < 5:
            raise UserError(
                f"{where}: {len(fields)} fields; an STM line is `recording channel speaker begin "
                "end [<label>] text`."
            )
        _check_channel(channel_of, fields, where)
        start_s, end_s = numbers(fields[3:5], where)
        if end_s < start_s:
            raise UserError(f"{where}: ends at {end_s} s before it starts at {start_s} s.")
        label_and_text = fields[5] if len(fields) == 6 else ""
        text = re.sub(r"^<[^>\s]*>\s*", "", label_and_text).strip()
        if re.search(r"\{[^}]*/[^}]*\}", text):
            raise UserError(
                f"{where}: holds alternatives {{ a / b }}, which sclite reads and this does not; "
                "choose one of them."
            )
        if text != IGNORED:
            segments_of.setdefault(fields[0], []).append(Segment(fields[2], start_s, end_s, text))
    for parts in segments_of.values():
        parts.sort(key=lambda segment: (segment.start_s, segment.end_s))
    return segments_of


def _check_channel(channel_of: dict[str, str], fields: list[str], where: str) -> None:
    """Note in `channel_of` the channel of a recording's first line. Raises UserError for a line of
    another channel."""
    recording, channel = fields[:2]
    if (first := channel_of.setdefault(recording, channel)) != channel:
        raise UserError(
            f"{where}: channel {channel} of {recording}, whose first line is of channel {first}; "
            "they are different sounds: keep the lines of one channel."
        )


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    return (row for row in text_rows(path) if not row[1].lstrip().startswith((";;", "#")))
