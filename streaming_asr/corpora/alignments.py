"""Word times in files: TextGrid, CTM and our own JSONL.

An aligner writes its own spelling of the words (lower case, clitics as separate words, <unk>).
`match` gives its times to the words of the transcript, unless the two are different texts.
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
from streaming_asr.corpora.rows import AUDIO_SUFFIXES, Time, check_new, json_rows
from streaming_asr.errors import UserError
from streaming_asr.files import check_file
from streaming_asr.text.normalise import light_key
from streaming_asr.text.units import Unit, timed_units, unit_of, written_units
from streaming_asr.utterance import TimedWord, Utterance

SILENCES = frozenset({"", "sil", "sp", "spn", "<eps>", "<sil>", "[sil]", "#"})
UNKNOWN = frozenset({"<unk>", "[unk]", "unk", "<oov>"})
READ = ".TextGrid, .ctm, .jsonl"


class _Entry(NamedTuple):
    """The file that times a recording, and the words; None: the file is read when they are asked
    for."""

    file: Path
    words: list[TimedWord] | None


class Alignments:
    """Word times by utterance id, from one file or from a folder of files."""

    def __init__(self, path: str | Path) -> None:
        """List the TextGrids, each of one recording, and read the other files, which may have many.

        Raises UserError where nothing is timed, and where two files time one recording.
        """
        self.path = Path(path).expanduser()
        self._entries: dict[str, _Entry] = {}  # by the recording's name below the folder
        self._by_stem: dict[str, list[str]] = {}  # those names, by their last part
        self._user_of: dict[str, str] = {}  # the utterance that took the words, by the same names
        if not self.path.exists():
            raise UserError(f"alignments={path}: not there; name a file or folder of {READ}")
        self.files: list[Path] = []
        for file in sorted(self.path.rglob("*")) if self.path.is_dir() else [self.path]:
            suffix = ".ctm" if file.name == "ctm" else file.suffix.lower()
            if suffix not in (".textgrid", ".ctm", ".jsonl"):
                continue
            entries: dict[str, _Entry] = {}
            if suffix == ".textgrid":
                entries[file.stem] = _Entry(file, None)
            else:
                words_of = read_ctm(file) if suffix == ".ctm" else read_jsonl(file)
                for name, words in words_of.items():
                    entries[name.removeprefix("./").lstrip("/")] = _Entry(file, words)
            folder = file.relative_to(self.path).parent if self.path.is_dir() else Path()
            for name, entry in entries.items():
                self._add((folder / name).as_posix(), entry)
            self.files.append(file)
        if not self._entries:
            raise UserError(f"alignments={path}: no word times in it; forms read: {READ}")

    def _add(self, name: str, entry: _Entry) -> None:
        """Add a recording's words. Of a TextGrid and the words of another file the latter count,
        since `align` writes both. Raises UserError for two files of one form."""
        before = self._entries.get(name)
        if before is None:
            self._by_stem.setdefault(name.rpartition("/")[2], []).append(name)
        elif (before.words is None) == (entry.words is None):
            raise UserError(
                f"{entry.file}: times {name}, and so does {before.file}; keep one of them"
            )
        elif before.words is not None:
            return  # the words are there already, and this TextGrid has the same
        self._entries[name] = entry

    def of(self, utterance: Utterance) -> list[TimedWord] | None:
        """Return the words as the aligner spelled them, in seconds from the start of the utterance;
        None where there are none.

        They are looked up by the utterance's id. One of the two names may be the end of the other:
        p225/001 fits wav/p225/001. For a part of a longer recording the recording's name is looked
        up, too. Raises UserError where several names fit, and where the same words would be taken
        for two utterances.
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
                    return _words_of_part(utterance, self._words(name))
        return None

    def _name_of(self, name: str) -> str | None:
        """Return the key in `_entries` that fits the name of an utterance or a recording, or None.
        Raises UserError where two fit."""
        if name in self._entries:
            return name
        fitting = [
            key
            for key in self._by_stem.get(name.rpartition("/")[2], ())
            if key.endswith(f"/{name}") or name.endswith(f"/{key}")
        ]
        if len(fitting) > 1:
            first, second = (f"{key} ({self._entries[key].file})" for key in fitting[:2])
            raise UserError(
                f"alignments={self.path}: {first} and {second} both fit {name}; name them by the "
                "whole id, or keep one"
            )
        return fitting[0] if fitting else None

    def _words(self, name: str) -> list[TimedWord]:
        entry = self._entries[name]
        return read_textgrid(entry.file) if entry.words is None else entry.words


def words_next_to_audio(utterance: Utterance) -> list[TimedWord] | None:
    """Return the words of the TextGrid, else of the CTM, next to the utterance's recording and with
    its name; None where there is no such file. Raises UserError for a damaged one."""
    if utterance.audio_path is None:
        return None
    audio = Path(utterance.audio_path)
    words: list[TimedWord] | None = None
    if (grid := audio.with_suffix(".TextGrid")).is_file():
        words = read_textgrid(grid)
    elif (ctm := audio.with_suffix(".ctm")).is_file():
        words_of = read_ctm(ctm)
        words = words_of.get(audio.stem)
        if words is None and len(words_of) == 1:  # it can be of no other recording
            words = next(iter(words_of.values()))
    return _words_of_part(utterance, words)


def _words_of_part(utterance: Utterance, words: list[TimedWord] | None) -> list[TimedWord] | None:
    """Return those of a recording's words that lie in the utterance, which may be a part of it, in
    seconds from the utterance's start; None for None."""
    cut = utterance.audio
    if words is None or not isinstance(cut, Cut):
        return words
    return within(words, cut.start_s, cut.end_s)


def with_words(utterance: Utterance, alignments: Alignments | None) -> Utterance:
    """Return the utterance with the times of its words, from `alignments` where these are given,
    else the corpus's own, else from a file next to the recording.

    With `alignments`, an utterance that they lack has no word times, even if the corpus has some:
    times of two origins are not mixed. Raises UserError where an alignment is of another text.
    """
    if alignments is not None:
        aligned = alignments.of(utterance)
        return replace(utterance, words=None if aligned is None else laid_on(utterance, aligned))
    if utterance.words is not None:
        return utterance
    aligned = words_next_to_audio(utterance)
    return utterance if aligned is None else replace(utterance, words=laid_on(utterance, aligned))


def laid_on(utterance: Utterance, aligned: Sequence[TimedWord]) -> tuple[TimedWord, ...]:
    """Return the words as the utterance's text has them, with the times of an aligner's words.
    Raises UserError where the aligner's words are another text."""
    words = match(utterance.text, aligned, unit_of(utterance.language))
    if words is None:
        aligned_text = " ".join(word.text for word in aligned)
        raise UserError(
            f"{utterance.id}: its alignment is of another text: {_short(aligned_text)} is aligned, "
            f"{_short(utterance.text)} is written; align it again"
        )
    return words


def match(
    text: str, spoken: Sequence[TimedWord], unit: Unit = "word"
) -> tuple[TimedWord, ...] | None:
    """Return the words of `text` (or its characters, by `unit`) with the times of the aligned words
    `spoken`; None where the two are different texts.

    Where both have as many words, they are paired in order, if at least half are spelled alike:
    numbers are often spelled differently. Else each written word takes as many aligned words as
    have its letters: "don't" takes "don" and "'t". An unknown word, as <unk>, is one written word.
    Punctuation by itself has no time. Labels in brackets, as [noise], are dropped if the texts
    differ with them: a transcript may have them as well.
    """
    written = written_units(text, unit)
    spoken = [word for word in spoken if word.text.strip().lower() not in SILENCES]
    matched = _match(written, _units(spoken, unit))
    if matched is not None:
        return matched
    without_labels = [word for word in spoken if not _is_label(word.text)]
    return _match(written, _units(without_labels, unit))


def _units(spoken: Sequence[TimedWord], unit: Unit) -> list[TimedWord]:
    """Return the words, or their characters with times, without those of punctuation only."""
    units = [TimedWord(*timed) for timed in timed_units(spoken, unit)]
    return [timed for timed in units if light_key(timed.text)]


def _is_label(text: str) -> bool:
    """Return whether an aligned "word" is a label of an event."""
    bracketed = re.fullmatch(r"<.*>|\[.*\]|\{.*\}|\(.*\)", text.strip()) is not None
    return bracketed and text.strip().lower() not in UNKNOWN


def _match(written: Sequence[str], aligned: Sequence[TimedWord]) -> tuple[TimedWord, ...] | None:
    """Return the written words with the times of the aligned ones, as `match` states."""
    if len(written) == len(aligned):
        pairs = zip(written, aligned, strict=True)
        pairs_of_known = [(a, b.text) for a, b in pairs if b.text.lower() not in UNKNOWN]
        n_alike = sum(_letters(a) == _letters(b) for a, b in pairs_of_known)
        if 2 * n_alike >= len(pairs_of_known):
            return _timed(written, [(word.start, word.end) for word in aligned])
    times: list[tuple[float, float]] = []
    end = 0  # of the aligned words that are used up
    for word in written:
        begin = end
        if begin == len(aligned):
            return None
        if aligned[begin].text.lower() in UNKNOWN:
            end += 1
        else:
            target, spelled = _letters(word), ""
            while end < len(aligned) and len(spelled) < len(target):
                spelled += _letters(aligned[end].text)
                end += 1
            if spelled != target or end == begin:
                return None
        times.append((aligned[begin].start, aligned[end - 1].end))
    return _timed(written, times) if end == len(aligned) else None


def within(words: Sequence[TimedWord], start_s: float, end_s: float) -> list[TimedWord]:
    """Return the words whose middle lies in [start_s, end_s), with times from `start_s` on and cut
    off at both ends."""
    return [
        TimedWord(word, max(0.0, start - start_s), min(end, end_s) - start_s)
        for word, start, end in words
        if start_s <= (start + end) / 2 < end_s
    ]


def read_textgrid(path: Path) -> list[TimedWord]:
    """Return the words of a TextGrid's tiers `words` (MFA writes one per speaker) in the order of
    time, without silences. Raises UserError as `read_tier` does."""
    return [word for word in read_tier(path, "word") if word.text.strip().lower() not in SILENCES]


def read_tier(path: Path, kind: str) -> list[TimedWord]:
    """Return the labels and times of a TextGrid's tiers `words` (kind="word") or `phones`
    (kind="phone"), of all its speakers, in the order of time.

    Raises UserError where the file is damaged, has no such tier, or one of points.
    """
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
    labels: list[TimedWord] = []
    for name in tiers:
        tier = grid.getTier(name)
        if not isinstance(tier, textgrid.IntervalTier):
            raise UserError(
                f"{path}: tier {name!r} holds points, and a {kind} has a begin and an end; write "
                f"the {kind}s as a tier of intervals"
            )
        for entry in tier.entries:
            labels.append(TimedWord(entry.label, float(entry.start), float(entry.end)))
    return sorted(labels, key=lambda label: label.start)


def read_ctm(path: Path) -> dict[str, list[TimedWord]]:
    """Return {name: words in the order of time} of the recordings or utterances of a CTM file. The
    names lose the ending of an audio file. Raises UserError where two become the same name."""
    words_of: dict[str, list[TimedWord]] = {}
    for name, words in ctm_words(path).items():
        suffix = Path(name).suffix
        stem = name.removesuffix(suffix) if suffix.lower() in AUDIO_SUFFIXES else name
        if stem in words_of:
            raise UserError(f"{path}: times {stem} with an ending and without; keep one of them")
        words_of[stem] = words
    return words_of


def read_jsonl(path: Path) -> dict[str, list[TimedWord]]:
    """Return {utterance id: words} of a manifest, or of a file `part-*.jsonl` that `align` wrote.

    An utterance with a word that the aligner could not time (null) has no entry: latency, aligned
    errors and training need the times of all its words. Raises UserError for a line of another
    form, and for an id that is there twice.
    """
    words_of: dict[str, list[TimedWord]] = {}
    place_of: dict[str, str] = {}
    for where, row in json_rows(path):
        if not row.get("words"):
            continue
        try:
            words = msgspec.convert(row["words"], list[tuple[str, Time | None, Time | None]])
            name = str(msgspec.convert(row["id"], str | int))
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(
                f'{where}: a line is {{"id": ..., "words": [[word, start_s, end_s], ...]}}'
            ) from error
        # `align` appends a row where a text was changed: in its files the last one counts.
        if not path.name.startswith("part-"):
            check_new(place_of, name, where, "keep one of them")
        timed = [
            TimedWord(word, start, end)
            for word, start, end in words
            if start is not None and end is not None
        ]
        words_of.pop(name, None)
        if len(timed) == len(words):
            words_of[name] = timed
    return words_of


def _letters(word: str) -> str:
    return "".join(c for c in word.casefold() if c.isalnum())


def _timed(words: Sequence[str], times: Sequence[tuple[float, float]]) -> tuple[TimedWord, ...]:
    return tuple(TimedWord(word, *time) for word, time in zip(words, times, strict=True))


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
