"""NIST's CTM (a timed word per line) and STM (a timed segment per line), as sclite reads them.

    CTM  <recording> <channel> <begin> <duration> <word> [<confidence>]
    STM  <recording> <channel> <speaker> <begin> <end> [<label,...>] text

Times are in seconds. Lines that start with ;; are comments. Neither says when anything was
emitted: an imported CTM or STM is an offline result, and has no latency.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.errors import UserError
from streaming_asr.events import Log, UtteranceLog, committed_words
from streaming_asr.formats.rows import numbers, text_rows, write_lines
from streaming_asr.formats.stream import Emission, Stream, names_of, reference
from streaming_asr.utterance import Utterance

CTM_FILE, STM_FILE = "hyp.ctm", "ref.stm"
IGNORED = "IGNORE_TIME_SEGMENT_IN_SCORING"


@dataclass(frozen=True)
class Segment:
    """A line of an STM file; times in seconds."""

    speaker: str
    start_s: float
    end_s: float
    text: str


def write_ctm(log: Log, folder: Path) -> list[Path]:
    """Write folder/hyp.ctm, the final text with the times the method gave its words.

    Raises UserError where the method gave none.
    """
    lines = []
    for utterance in log.utterances:
        name = _field(utterance.utt)
        words = _timed_words(utterance) if utterance.status == "ok" else ()
        for text, start_s, end_s, probability in words:
            line = f"{name} 1 {start_s:.3f} {max(end_s - start_s, 0.0):.3f} {text}"
            lines.append(line if probability is None else f"{line} {probability:.4f}")
    return [write_lines(folder / CTM_FILE, lines)]


def read_ctm(path: Path) -> tuple[list[Stream], set[str]]:
    """Return the recordings of a CTM file, which knows of time only where the words lie."""
    found: dict[str, list[tuple[float, float, str, float | None]]] = {}
    for where, line in _rows(path):
        fields = line.split()
        if len(fields) not in (5, 6):
            raise UserError(
                f"{where}: {len(fields)} fields; a CTM line is `recording channel begin duration "
                "word [confidence]`."
            )
        begin_s, length_s = numbers(fields[2:4], where)
        confidence = None
        if len(fields) == 6 and fields[5] not in ("NA", "-"):
            confidence = numbers([fields[5]], where)[0]
        rows = found.setdefault(fields[0], [])
        rows.append((begin_s, round(begin_s + length_s, 6), fields[4], confidence))
    streams = []
    for name, rows in found.items():
        rows.sort(key=lambda row: row[0])
        emission = Emission(
            tuple(f" {word}" for _, _, word, _ in rows),
            words=tuple((start_s, end_s, confidence) for start_s, end_s, _, confidence in rows),
        )
        streams.append(Stream(names_of(name), (emission,)))
    return streams, set()


def write_stm(log: Log, folder: Path) -> list[Path]:
    """Write folder/ref.stm, the references: one segment per utterance, the whole of it."""
    lines = []
    for utterance in log.utterances:
        speaker = _field((utterance.speaker or "unknown").replace(" ", "_"))
        text = " ".join(utterance.text.split())
        times = f"{0:.3f} {utterance.duration_s:.6f}"
        lines.append(f"{_field(utterance.utt)} 1 {speaker} {times} {text}".rstrip())
    return [write_lines(folder / STM_FILE, lines)]


def read_stm(path: Path) -> tuple[list[Stream], set[str]]:
    """Return the recordings of an STM file taken as a hypothesis; it tells no emission time."""
    streams = [
        Stream(
            names_of(name),
            (Emission(tuple(f" {word}" for each in found for word in each.text.split())),),
        )
        for name, found in segments(path).items()
    ]
    return streams, set()


def references(path: Path) -> list[Utterance]:
    """Return what an STM file says was said, one reference per recording: its segments joined in
    time.

    The recording lasts until the end of its last segment, as far as an STM tells.
    """
    found = []
    for name, parts in segments(path).items():
        speakers = {part.speaker for part in parts}
        found.append(
            reference(
                names_of(name)[-1],
                " ".join(part.text for part in parts if part.text),
                max(part.end_s for part in parts),
                speaker=parts[0].speaker if len(speakers) == 1 else None,
            )
        )
    return found


def segments(path: Path) -> dict[str, list[Segment]]:
    """Return the segments of each recording in the order of time, leaving out those not to be
    scored.

    Raises UserError for transcript alternatives ({ a / b }): they have no one text.
    """
    found: dict[str, list[Segment]] = {}
    for where, line in _rows(path):
        fields = line.split(maxsplit=5)
        if len(fields) < 5:
            raise UserError(
                f"{where}: {len(fields)} fields; an STM line is `recording channel speaker begin "
                "end [<label>] text`."
            )
        start_s, end_s = numbers(fields[3:5], where)
        if end_s < start_s:
            raise UserError(f"{where}: ends at {end_s} s before it starts at {start_s} s.")
        text = re.sub(r"^<[^>\s]*>\s*", "", fields[5] if len(fields) == 6 else "").strip()
        if re.search(r"\{[^}]*/[^}]*\}", text):
            raise UserError(
                f"{where}: holds alternatives {{ a / b }}, which sclite reads and this does not; "
                "choose one of them."
            )
        if text != IGNORED:
            found.setdefault(fields[0], []).append(Segment(fields[2], start_s, end_s, text))
    for parts in found.values():
        parts.sort(key=lambda segment: (segment.start_s, segment.end_s))
    return found


def _timed_words(utterance: UtteranceLog) -> Iterator[tuple[str, float, float, float | None]]:
    for text, (start_s, end_s, probability) in committed_words(utterance.steps):
        if text.strip():
            if start_s is None or end_s is None:
                raise UserError(
                    f"{utterance.utt}: the method gave no times for {text.strip()!r}, and a CTM is "
                    "made of them; export it as simuleval or simulstream."
                )
            yield "".join(text.split()), start_s, end_s, probability


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    return (row for row in text_rows(path) if not row[1].lstrip().startswith((";;", "#")))


def _field(text: str) -> str:
    if not text or len(text.split()) != 1:
        raise UserError(f"{text!r} holds a blank, and NIST's fields are cut at blanks; rename it.")
    return text
