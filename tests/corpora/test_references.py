"""References that break a rule are refused before any audio is processed, with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from streaming_asr.corpora import Manifest
from streaming_asr.corpora.alignments import match
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.data.check import check
from streaming_asr.errors import UserError
from streaming_asr.references import problems
from streaming_asr.utterance import TimedWord, Utterance

TEXT = "And it is tempting, to believe."
WORDS = [
    ["And", 0.25, 0.35],
    ["it", 0.375, 0.425],
    ["is", 0.475, 0.575],
    ["tempting,", 0.65, 1.025],
    ["to", 1.075, 1.125],
    ["believe.", 1.15, 1.55],
]


def said(text: str, words: list[Any], language: str = "en", length_s: float = 2.0) -> Utterance:
    def nothing() -> Any:
        raise AssertionError("read")

    timed = tuple(TimedWord(*word) for word in words)
    return Utterance("u", text, nothing, length_s, language=language, words=timed)


def scaled(by: float) -> list[Any]:
    return [[word, by * start, by * end] for word, start, end in WORDS]


BROKEN: dict[str, tuple[list[Any], str]] = {
    "unsorted": ([WORDS[1], WORDS[0], *WORDS[2:]], "comes after that at"),
    "of another text": ([["They", 0.1, 0.5], ["cancelled", 0.6, 1.5]], "of another text"),
    "in milliseconds": (scaled(1000), "ends at 350.0 s of 2 s"),
    "in kiloseconds": (scaled(0.001), "which nobody can speak"),
    "at zero": (scaled(0.0), "which nobody can speak"),
    "without length": ([[w, a, a] for w, a, _ in WORDS], "which nobody can speak"),
    "half without length": (
        [[w, a, a + 0.3 * (a > 1)] for w, a, _ in WORDS],
        "4 of 6 `words` last",
    ),
    "beyond the end": ([*WORDS[:5], ["believe.", 1.15, 2.6]], "ends at 2.6 s of 2 s"),
    "one lacks": (WORDS[:5], "5 words have times, the text has 6"),
    "one too many": ([*WORDS, ["it", 1.6, 1.7]], "7 words have times, the text has 6"),
    "two swapped": (
        [*WORDS[:4], ["believe.", 1.075, 1.125], ["to", 1.15, 1.55]],
        "not in the order of the text",
    ),
    "ends first": ([*WORDS[:5], ["believe.", 1.55, 1.15]], "ends before it starts"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_manifest_whose_words_break_a_rule_is_refused_with_its_line(
    what: str, tmp_path: Path
) -> None:
    words, message = BROKEN[what]
    soundfile.write(tmp_path / "a.wav", np.zeros(32_000), 16_000)
    good = {"audio_filepath": "a.wav", "text": TEXT, "words": WORDS, "language": "en"}
    rows = [{**good, "id": "whole"}, {**good, "id": "broken", "words": words}]
    path = tmp_path / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=message) as refused:
        read_manifest(path)
    assert "m.jsonl, line 2: broken: " in str(refused.value)
    corpus = Manifest(path=path)
    with pytest.raises(UserError, match="line 2"):
        corpus.utterances()
    totals = check(corpus, decode=False)
    assert totals.n_whole == 1 and "line 2: broken: " in totals.problems[0]


@pytest.mark.parametrize(
    ("text", "words", "language"),
    [
        (TEXT, WORDS, "en"),
        # Spelled otherwise, without its punctuation, and with more of it.
        ("four - 4 cats", [["Four", 0.1, 0.3], ["four", 0.4, 0.6], ["cats!", 0.7, 1.0]], "en"),
        ("我们去。", [["我", 0.1, 0.2], ["们", 0.2, 0.4], ["去", 0.4, 0.6]], "zh-CN"),
        ("我们去。", [["我们", 0.1, 0.4], ["去。", 0.4, 0.6]], "zh"),  # words of several characters
        ("ที่นี่", [["ที่นี่", 0.1, 0.6]], "th"),
        ("", [], "en"),
        ("Yes.", [["Yes.", 0.1, 0.15]], "en"),
    ],
)
def test_references_that_are_right_break_nothing(text: str, words: Any, language: str) -> None:
    assert not list(problems(said(text, words, language)))


def test_a_duration_that_is_unknown_bounds_nothing() -> None:
    assert not list(problems(said(TEXT, WORDS, length_s=0.0)))
    assert "in other units" in next(problems(said(TEXT * 8, [], length_s=0.01)))


def test_characters_get_the_times_of_an_alignment_by_words() -> None:
    aligned = [TimedWord("今天", 0.0, 0.4), TimedWord("好", 0.5, 0.7)]
    assert match("今天，好！", aligned, "character") == (
        TimedWord("今", 0.0, 0.2),
        TimedWord("天，", 0.2, 0.4),
        TimedWord("好！", 0.5, 0.7),
    )
    assert match("他走了", aligned, "character") is None
