"""Word times in files: TextGrid, CTM and our own JSONL.

An aligner writes its own spelling of the words (lower case, clitics apart, <unk>); `match` lays
its times on the words of the transcript, or refuses where the two are not the same text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from streaming_asr.corpora.audio import Cut
from streaming_asr.corpora.nist import ctm_words
from streaming_asr.corpora.rows import AUDIO_SUFFIXES, Time, json_rows
from streaming_asr.errors import UserError
from streaming_asr.files import check_file
from streaming_asr.text.normalise import light_key
from streaming_asr.text.units import Unit, timed_units, unit_of, written_units
from streaming_asr.utterance import TimedWord, Utterance

SILENCES = frozenset({"", "sil", "sp", "spn", "<eps>", "<sil>", "[sil]", "#"})
UNKNOWN = frozenset({"<unk>", "[unk]", "unk", "<oov>"})
READ = ".TextGrid, .ctm, .jsonl"


class _Entry(NamedTuple):
    """Where the words of a recording are; None: they are read when asked for."""

    file: Path
    words: list[TimedWord] | None


class Alignments:
    """Word times by utterance id, from one file or from a folder of files."""

    def __init__(self, path: str | Path) -> None:
        """Find the TextGrids, which are read when asked for; read other files.

        Raises UserError, which names both places where two files time one recording.
        """
        self.path = Path(path).expanduser()
        self._entries: dict[str, _Entry] = {}
        self._by_stem: dict[str, list[str]] = {}
        self._user_of: dict[str, str] = {}
        if not self.path.exists():
            raise UserError(f"alignments={path}: not there; name a file or folder of {READ}")
        self.files: list[Path] = []
        for file in sorted(self.path.rglob("*")) if self.path.is_dir() else [self.path]:
            kind = ".ctm" if file.name == "ctm" else file.suffix.lower()
            if kind not in (".textgrid", ".ctm", ".jsonl"):
                continue
            folder = file.relative_to(self.path).parent if self.path.is_dir() else Path()
            if kind == ".textgrid":
                self._add((folder / file.stem).as_posix(), _Entry(file, None))
            else:
                for name, words in (read_ctm if kind == ".ctm" else read_jsonl)(file).items():
                    self._add(
                        (folder / name.removeprefix("./").lstrip("/")).as_posix(),
                        _Entry(file, words),
                    )
            self.files.append(file)
        if not self._entries:
            raise UserError(f"alignments={path}: no word times in it; forms read: {READ}")

    def _add(self, name: str, entry: _Entry) -> None:
        before = self._entries.get(name)
        if before is None:
            self._by_stem.setdefault(name.rpartition("/")[2], []).append(name)
        elif (before.words is None) == (entry.words is None):
            raise UserError(
                f"{entry.file}: times {name}, and so does {before.file}; keep one of them"
            )
        elif before.words is not None:
            return  # a TextGrid next to the words that were made of it
        self._entries[name] = entry

    def of(self, utterance: Utterance) -> list[TimedWord] | None:
        """Return the words as the aligner spelled them, in the utterance's own time; None where
        there are none.

        Found under the utterance's id, or where one of the two names is the end of the other, as
        in 1089/134686/1089-134686-0000 and p225/001 in wav/p225/001. For a part of a longer
        recording also under the recording's name. Raises UserError where several files would fit,
        and where the same words would be taken for two utterances.
        """
        if (name := self._name_of(utterance.id)) is not None:
            first = self._user_of.setdefault(name, utterance.id)
            if first != utterance.id:
                raise UserError(
                    f"{self._entries[name].file}: the word times of {name} fit {first} and "
                    f"{utterance.id}; name them by the whole id"
                )
            return self._words(name)
        cut = utterance.audio
        if isinstance(cut, Cut):
            for recording in (cut.recording, cut.path.with_suffix("").as_posix()):
                if recording and (name := self._name_of(recording)) is not None:
                    return _cut_out(utterance, self._words(name))
        return None

    def _name_of(self, name: str) -> str | None:
        """Return the entry of an utterance's or a recording's name. Raises UserError for two."""
        if name in self._entries:
            return name
        near = [
            each
            for each in self._by_stem.get(name.rpartition("/")[2], ())
            if each.endswith(f"/{name}") or name.endswith(f"/{each}")
        ]
        if len(near) > 1:
            one, other = (f"{each} ({self._entries[each].file})" for each in near[:2])
            raise UserError(
                f"alignments={self.path}: {one} and {other} both fit {name}; name them by the "
                "whole id, or keep one"
            )
        return near[0] if near else None

    def _words(self, name: str) -> list[TimedWord]:
        entry = self._entries[name]
        return read_textgrid(entry.file) if entry.words is None else entry.words


def beside(utterance: Utterance) -> list[TimedWord] | None:
    """Return the words of an alignment file beside the recording, named as it is, or None."""
    if utterance.audio_path is None:
        return None
    audio = Path(utterance.audio_path)
    words: list[TimedWord] | None = None
    if (grid := audio.with_suffix(".TextGrid")).is_file():
        words = read_textgrid(grid)
    elif (ctm := audio.with_suffix(".ctm")).is_file():
        words_of = read_ctm(ctm)
        words = words_of.get(audio.stem)
        if words is None and len(words_of) == 1:
            words = next(iter(words_of.values()))
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
    Where the texts differ, labels in brackets, as [noise] and <cutoff>, are left out.
    """
    written = written_units(text, unit)
    spoken = [word for word in spoken if word.text.strip().lower() not in SILENCES]
    words = [word for word in spoken if not _is_label(word.text)]
    times = _match(written, _units(spoken, unit))
    if times is None and len(words) < len(spoken):
        return _match(written, _units(words, unit))
    return times


def _units(spoken: Sequence[TimedWord], unit: Unit) -> list[TimedWord]:
    return [TimedWord(*each) for each in timed_units(spoken, unit) if light_key(each[0])]


def _is_label(text: str) -> bool:
    """Return whether an aligned "word" is a label of an event."""
    bracketed = re.fullmatch(r"<.*>|\[.*\]|\{.*\}|\(.*\)", text.strip()) is not None
    return bracketed and text.strip().lower() not in UNKNOWN


def _match(written: Sequence[str], aligned: Sequence[TimedWord]) -> tuple[TimedWord, ...] | None:
    """Return the times of `aligned` on `written`, or None where the texts differ."""
    if len(written) == len(aligned):
        pairs = [
            (a, b) for a, b in zip(written, aligned, strict=True) if b.text.lower() not in UNKNOWN
        ]
        alike = sum(_letters(a) == _letters(b.text) for a, b in pairs)
        if 2 * alike >= len(pairs):
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
            target = _letters(word)
            while i < len(aligned) and len(spelled) < len(target):
                spelled += _letters(aligned[i].text)
                i += 1
            if spelled != target or i == first:
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
    return [word for word in read_tier(path, "word") if word.text.strip().lower() not in SILENCES]


def read_tier(path: Path, kind: str) -> list[TimedWord]:
    """Return the labels of a TextGrid's tier `words` (kind="word") or `phones` (kind="phone"), of
    all its speakers, in the order of time. Raises UserError."""
    check_file(path)
    from praatio import textgrid

    try:
        grid = textgrid.openTextgrid(str(path), includeEmptyIntervals=False)
    except Exception as error:  # whatever a damaged file makes praatio raise
        raise UserError(f"{path}: not readable as a TextGrid ({error}); align it again") from error
    tiers = [name for name in grid.tierNames if re.search(rf"(^|[ -]){kind}s?$", name.lower())]
    if not tiers:
        others = ", ".join(grid.tierNames) or "none"
        raise UserError(
            f"{path}: has no tier `{kind}s`, but {others}; name the tier of the {kind}s so"
        )
    if points := [n for n in tiers if not isinstance(grid.getTier(n), textgrid.IntervalTier)]:
        raise UserError(
            f"{path}: tier {points[0]!r} holds points, and a {kind} has a begin and an end; write "
            f"the {kind}s as a tier of intervals"
        )
    entries = [
        TimedWord(entry.label, float(entry.start), float(entry.end))
        for name in tiers
        for entry in grid.getTier(name).entries
    ]
    return sorted(entries, key=lambda entry: entry.start)


def read_ctm(path: Path) -> dict[str, list[TimedWord]]:
    """Return the words of each recording (or utterance) of a CTM file, in the order of time, by
    its name without the ending of an audio file. Raises UserError for two of one name."""
    words_of: dict[str, list[TimedWord]] = {}
    for name, words in ctm_words(path).items():
        suffix = Path(name).suffix
        stem = name.removesuffix(suffix) if suffix.lower() in AUDIO_SUFFIXES else name
        if stem in words_of:
            raise UserError(f"{path}: times {stem} with an ending and without; keep one of them")
        words_of[stem] = [TimedWord(word.text, word.start_s, word.end_s) for word in words]
    return words_of


def read_jsonl(path: Path) -> dict[str, list[TimedWord]]:
    """Return the words of a file that `align` wrote, or of a manifest, by utterance id.

    An utterance with a word that the aligner could not time (null) has none: latency, aligned
    errors and training need the times of all its words.
    """
    words_of: dict[str, list[TimedWord]] = {}
    places: dict[str, str] = {}
    for where, row in json_rows(path):
        try:
            if row.get("words"):
                words = msgspec.convert(row["words"], list[tuple[str, Time | None, Time | None]])
                name = str(msgspec.convert(row["id"], str | int))
                before = places.setdefault(name, where)
                # `align` appends: where a text was changed, the last row counts.
                if before != where and not path.name.startswith("part-"):
                    raise UserError(f"{where}: {name} is in {before} already; keep one of them")
                timed = [
                    TimedWord(word, start, end)
                    for word, start, end in words
                    if start is not None and end is not None
                ]
                words_of.pop(name, None)
                if len(timed) == len(words):
                    words_of[name] = timed
        except UserError:
            raise
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
