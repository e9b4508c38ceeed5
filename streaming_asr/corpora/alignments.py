"""Word times in files: TextGrid, CTM and our own JSONL.

An aligner writes its own spelling of the words (lower case, clitics apart, <unk>); `match` lays
its times on the words of the transcript, or refuses where the two are not the same text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from streaming_asr.corpora.audio import Cut
from streaming_asr.corpora.nist import ctm_words
from streaming_asr.corpora.rows import Time, json_rows, names_of
from streaming_asr.errors import UserError
from streaming_asr.files import check_file
from streaming_asr.text.normalise import light_key
from streaming_asr.text.units import Unit, timed_units, unit_of, written_units
from streaming_asr.utterance import TimedWord, Utterance

SILENCES = frozenset({"", "sil", "sp", "spn", "<eps>", "<sil>", "#"})
UNKNOWN = frozenset({"<unk>", "[unk]", "unk", "<oov>"})
READ = ".TextGrid, .ctm, .jsonl"


class Alignments:
    """Word times by utterance id, from one file or from a folder of files."""

    def __init__(self, path: str | Path) -> None:
        """Find the TextGrids, which are read when asked for; read other files. Raises UserError."""
        self.path = Path(path).expanduser()
        self._grids: dict[str, Path] = {}
        self._rows: dict[str, list[TimedWord]] = {}
        if not self.path.exists():
            raise UserError(f"alignments={path}: not there; name a file or folder of {READ}")
        self.files: list[Path] = []
        for file in sorted(self.path.rglob("*")) if self.path.is_dir() else [self.path]:
            kind = ".ctm" if file.name == "ctm" else file.suffix.lower()
            if kind == ".textgrid":
                self._grids[file.stem] = file
            elif kind in (".ctm", ".jsonl"):
                self._rows |= read_ctm(file) if kind == ".ctm" else read_jsonl(file)
            else:
                continue
            self.files.append(file)
        if not self._grids and not self._rows:
            raise UserError(f"alignments={path}: no word times in it; forms read: {READ}")

    def of(self, utterance: Utterance) -> list[TimedWord] | None:
        """Return the words as the aligner spelled them, in the utterance's own time; None where
        there are none.

        Found under the utterance's id or the last part of it; for a part of a longer recording
        also under the recording's name.
        """
        for name in (utterance.id, utterance.id.rpartition("/")[2]):
            if (words := self._named(name)) is not None:
                return words
        if isinstance(utterance.audio, Cut):
            return _cut_out(utterance, self._named(utterance.audio.path.stem))
        return None

    def _named(self, name: str) -> list[TimedWord] | None:
        if name in self._grids and name not in self._rows:
            return read_textgrid(self._grids[name])
        return self._rows.get(name)


def beside(utterance: Utterance) -> list[TimedWord] | None:
    """Return the words of an alignment file beside the recording, named as it is, or None."""
    if utterance.audio_path is None:
        return None
    audio = Path(utterance.audio_path)
    words: list[TimedWord] | None = None
    if (grid := audio.with_suffix(".TextGrid")).is_file():
        words = read_textgrid(grid)
    elif (ctm := audio.with_suffix(".ctm")).is_file():
        words = next(iter(read_ctm(ctm).values()), None)
    return _cut_out(utterance, words)


def _cut_out(utterance: Utterance, words: list[TimedWord] | None) -> list[TimedWord] | None:
    """Return a recording's words in the time of the utterance, which may be a part of it."""
    cut = utterance.audio
    if words is None or not isinstance(cut, Cut):
        return words
    return within(words, cut.start_s, cut.end_s)


def with_words(utterance: Utterance, alignments: Alignments | None) -> Utterance:
    """Return the utterance with its words' times.

    Given `alignments` replace what a corpus brings, also where they have nothing of an utterance:
    times of two origins are not mixed. Without them, a file beside the recording is read.
    Raises UserError where an alignment is of another text.
    """
    if alignments is None and utterance.words is not None:
        return utterance
    aligned = beside(utterance) if alignments is None else alignments.of(utterance)
    if aligned is None:
        return utterance if alignments is None else replace(utterance, words=None)
    return replace(utterance, words=laid_on(utterance, aligned))


def laid_on(utterance: Utterance, aligned: Sequence[TimedWord]) -> tuple[TimedWord, ...]:
    """Return the times of `aligned` on the written words. Raises UserError for another text."""
    words = match(utterance.text, aligned, unit_of(utterance.language))
    if words is None:
        heard = " ".join(word.text for word in aligned)
        raise UserError(
            f"{utterance.id}: its alignment is of another text: {_short(heard)} is aligned, "
            f"{_short(utterance.text)} is written; align it again"
        )
    return words


def match(
    text: str, spoken: Sequence[TimedWord], unit: Unit = "word"
) -> tuple[TimedWord, ...] | None:
    """Return the times of `spoken` on the words of `text`, or its characters where these are the
    unit; None where the texts differ.

    One aligned word per written word is taken by order, if most of them are spelled alike (numbers
    may not be). Else written words are put together of aligned ones, letter by letter: "don't" of
    "don" and "'t"; an unknown word stands for one written word. Pure punctuation is not timed.
    """
    written = written_units(text, unit)
    timed = [word for word in spoken if word.text.lower() not in SILENCES]
    aligned = [TimedWord(*each) for each in timed_units(timed, unit) if light_key(each[0])]
    if len(written) == len(aligned):
        known = [
            (a, b) for a, b in zip(written, aligned, strict=True) if b.text.lower() not in UNKNOWN
        ]
        alike = sum(_letters(a) == _letters(b.text) for a, b in known)
        if 2 * alike >= len(known):
            times = [(word.start, word.end) for word in aligned]
            return _timed(written, times)
    times, i = [], 0
    for word in written:
        if i == len(aligned):
            return None
        first, spelled = i, ""
        if aligned[i].text.lower() in UNKNOWN:
            i += 1
        else:
            wanted = _letters(word)
            while i < len(aligned) and len(spelled) < len(wanted):
                spelled += _letters(aligned[i].text)
                i += 1
            if spelled != wanted or i == first:
                return None
        times.append((aligned[first].start, aligned[i - 1].end))
    return _timed(written, times) if i == len(aligned) else None


def within(words: Sequence[TimedWord], start_s: float, end_s: float) -> list[TimedWord]:
    """Return the words whose middle lies between the times, counted from `start_s`."""
    return [
        TimedWord(word, max(0.0, start - start_s), min(end, end_s) - start_s)
        for word, start, end in words
        if start_s <= (start + end) / 2 < end_s
    ]


def read_textgrid(path: Path) -> list[TimedWord]:
    """Return the words of a TextGrid's tier `words`, one per speaker in MFA's. Raises UserError."""
    check_file(path)
    from praatio import textgrid
    from praatio.utilities.errors import PraatioException

    try:
        grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False)
    except (PraatioException, OSError, ValueError, IndexError, KeyError) as error:
        raise UserError(f"{path}: not readable as a TextGrid ({error}); align it again") from error
    tiers = [name for name in grid.tierNames if re.search(r"(^|[ -])words?$", name.lower())]
    if not tiers:
        there = ", ".join(grid.tierNames) or "none"
        raise UserError(f"{path}: has no tier `words`, but {there}; name the tier of the words so")
    words = [
        TimedWord(entry.label, float(entry.start), float(entry.end))
        for name in tiers
        for entry in grid.getTier(name).entries
        if entry.label.lower() not in SILENCES
    ]
    return sorted(words, key=lambda word: word.start)


def read_ctm(path: Path) -> dict[str, list[TimedWord]]:
    """Return the words of each recording (or utterance) of a CTM file, in the order of time."""
    words_of: dict[str, list[TimedWord]] = {}
    for name, words in ctm_words(path).items():
        timed = [TimedWord(word.text, word.start_s, word.end_s) for word in words]
        words_of |= dict.fromkeys(names_of(name), timed)
    return words_of


def read_jsonl(path: Path) -> dict[str, list[TimedWord]]:
    """Return the words of a file that `align` wrote, or of a manifest, by utterance id."""
    words_of: dict[str, list[TimedWord]] = {}
    for where, row in json_rows(path):
        try:
            if row.get("words"):
                timed = msgspec.convert(row["words"], list[tuple[str, Time, Time]])
                words_of[row["id"]] = [TimedWord(*word) for word in timed]
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f'{where}: a line is {{"id": ..., "words": [[word, start_s, end_s], ...]}}'
            ) from error
    return words_of


def _letters(word: str) -> str:
    return "".join(c for c in word.casefold() if c.isalnum())


def _timed(words: Sequence[str], times: Sequence[tuple[float, float]]) -> tuple[TimedWord, ...]:
    return tuple(TimedWord(word, *time) for word, time in zip(words, times, strict=True))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
