"""Logs as NIST's CTM and STM, and back (their form stands in data/nist.py).

Neither says when anything was emitted: an imported CTM or STM is an offline result, and has no
latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streaming_asr.corpora.nist import ctm_words, segments
from streaming_asr.corpora.rows import names_of, write_lines
from streaming_asr.errors import UserError
from streaming_asr.events.log import Log, UtteranceLog, committed_words
from streaming_asr.score.formats.foreign import Emission, ForeignRecording, reference
from streaming_asr.utterance import Utterance

CTM_FILE, STM_FILE = "hyp.ctm", "ref.stm"


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


def read_ctm(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of a CTM file, which knows of time only where the words lie."""
    recordings = []
    for name, words in ctm_words(path).items():
        emission = Emission(
            tuple(f" {word.text}" for word in words),
            words=tuple((word.start_s, word.end_s, word.confidence) for word in words),
        )
        recordings.append(ForeignRecording(names_of(name), (emission,)))
    return recordings, set()


def write_stm(log: Log, folder: Path) -> list[Path]:
    """Write folder/ref.stm, the references: one segment per utterance, the whole of it."""
    lines = []
    for utterance in log.utterances:
        speaker = _field((utterance.speaker or "unknown").replace(" ", "_"))
        text = " ".join(utterance.text.split())
        times = f"{0:.3f} {utterance.duration_s:.6f}"
        lines.append(f"{_field(utterance.utt)} 1 {speaker} {times} {text}".rstrip())
    return [write_lines(folder / STM_FILE, lines)]


def read_stm(path: Path) -> tuple[list[ForeignRecording], set[str]]:
    """Return the recordings of an STM file taken as a hypothesis; it tells no emission time."""
    recordings = [
        ForeignRecording(
            names_of(name),
            (Emission(tuple(f" {word}" for each in parts for word in each.text.split())),),
        )
        for name, parts in segments(path).items()
    ]
    return recordings, set()


def references(path: Path) -> list[Utterance]:
    """Return what an STM file says was said, one reference per recording: its segments joined in
    time.

    The recording lasts until the end of its last segment, as far as an STM tells.
    """
    utterances = []
    for name, parts in segments(path).items():
        speakers = {part.speaker for part in parts}
        utterances.append(
            reference(
                names_of(name)[-1],
                " ".join(part.text for part in parts if part.text),
                max(part.end_s for part in parts),
                speaker=parts[0].speaker if len(speakers) == 1 else None,
            )
        )
    return utterances


def _timed_words(utterance: UtteranceLog) -> Iterator[tuple[str, float, float, float | None]]:
    for text, (start_s, end_s, probability) in committed_words(utterance.steps):
        if text.strip():
            if start_s is None or end_s is None:
                raise UserError(
                    f"{utterance.utt}: the method gave no times for {text.strip()!r}, and a CTM is "
                    "made of them; export it as simuleval or simulstream."
                )
            yield "".join(text.split()), start_s, end_s, probability


def _field(text: str) -> str:
    if not text or len(text.split()) != 1:
        raise UserError(f"{text!r} holds a blank, and NIST's fields are cut at blanks; rename it.")
    return text
