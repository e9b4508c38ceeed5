"""What was said when: the words of a log in segments, a new one after every long pause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_asr.events import committed_words, read_log
from streaming_asr.files import write_text
from streaming_asr.method import Word

SILENCE_S = 0.5  # a gap of this length between two words ends a segment
CUE_CHARACTERS = 84  # of a subtitle: two lines, which can be read in
CUE_S = 7.0
FILE = "segments.tsv"
HEADER = "utterance\tstart_s\tend_s\ttext"


@dataclass(frozen=True, slots=True)
class Segment:
    """Words without a long pause between them; seconds from the start of the recording."""

    start: float
    end: float
    text: str


def segments(
    words: Sequence[Word], silence_s: float = SILENCE_S, *, as_cues: bool = False
) -> list[Segment]:
    """Return timed words in segments; a new one begins after every gap of `silence_s` or more.

    as_cues: also after a sentence and before what would make it too long for a subtitle.
    Raises ValueError for a word without times.
    """
    groups: list[list[Word]] = []
    for word in words:
        if word.start is None or word.end is None:
            raise ValueError(f"{word} has no times; segments are made of timed words")
        gap_s = word.start - (groups[-1][-1].end or 0.0) if groups else silence_s
        if gap_s >= silence_s - 1e-6 or (as_cues and _is_full(groups[-1], word)):
            groups.append([])
        groups[-1].append(word)
    return [
        Segment(group[0].start or 0.0, group[-1].end or 0.0, "".join(w.text for w in group).strip())
        for group in groups
    ]


def _is_full(cue: Sequence[Word], word: Word) -> bool:
    long = len("".join(each.text for each in (*cue, word)).strip()) > CUE_CHARACTERS
    late = (word.end or 0.0) - (cue[0].start or 0.0) > CUE_S
    return long or late or cue[-1].text.rstrip().endswith((".", "?", "!"))


def srt(cues: Sequence[Segment]) -> str:
    """Return subtitles as SubRip has them."""
    return "\n".join(
        f"{n}\n{clock(cue.start, ',')} --> {clock(cue.end, ',')}\n{cue.text}\n"
        for n, cue in enumerate(cues, 1)
    )


def vtt(cues: Sequence[Segment]) -> str:
    """Return subtitles as WebVTT has them."""
    escaped = [cue.text.replace("&", "&amp;").replace("<", "&lt;") for cue in cues]
    return "WEBVTT\n" + "".join(
        f"\n{clock(cue.start)} --> {clock(cue.end)}\n{text}\n"
        for cue, text in zip(cues, escaped, strict=True)
    )


def clock(seconds: float, point: str = ".") -> str:
    """Return a time as `00:01:02.345`."""
    ms = round(seconds * 1000)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"


def write_segments(folder: Path) -> Path:
    """Write the segments of a cell's log to `segments.tsv` beside it, seconds with two decimals.

    A recording that failed has none. Raises ValueError where words have no times.
    """
    lines = [HEADER]
    for log in read_log(folder / "events.jsonl").utterances:
        words = [Word(text, *times) for text, times in committed_words(log.steps)]
        lines += [f"{log.utt}\t{s.start:.2f}\t{s.end:.2f}\t{s.text}" for s in segments(words)]
    return write_text(folder / FILE, "\n".join(lines) + "\n")
