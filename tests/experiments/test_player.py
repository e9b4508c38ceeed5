"""The animated picture: which words stand where, and from when to when."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from traces import a_step

from experiments.real.player import Shown, captions, picture
from streaming_asr.metrics.trace import Trace, queued


def heard(*steps) -> Trace:
    return Trace(utt="u", reference="the cat", duration_s=2.0, steps=tuple(queued(list(steps))))


CAT = heard(
    a_step(1.0, 0.25, "the", "the hat"), a_step(2.0, 0.25, "the cat & sat", "the cat & sat")
)


def test_a_guess_stands_dim_until_its_place_is_taken_and_a_committed_word_to_the_end() -> None:
    assert sorted(captions(CAT, "ca", columns=80)) == [
        Shown(0, 0, "the", True, 1.25, None),
        Shown(4, 0, "cat", True, 2.25, None),
        Shown(4, 0, "hat", False, 1.25, 2.25),
        Shown(8, 0, "&", True, 2.25, None),
        Shown(10, 0, "sat", True, 2.25, None),
    ]


def test_lines_break_at_words_and_the_audio_clock_takes_computing_as_instant() -> None:
    found = {word.text: word for word in captions(CAT, "cu", columns=8)}
    assert [(found[w].column, found[w].line) for w in ("cat", "&", "sat")] == [
        (4, 0),
        (0, 1),
        (2, 1),
    ]
    assert (found["hat"].start_s, found["hat"].end_s) == (1.0, 2.0)


def test_a_panel_has_every_word_once_and_only_the_final_text_where_nothing_moves() -> None:
    svg = ElementTree.fromstring(picture([("one", CAT), ("two", CAT)], "ca"))
    words = [e for e in svg.iter("{http://www.w3.org/2000/svg}text") if "opacity" in e.attrib]
    assert len(words) == 10
    still = [word.text for word in words if word.get("opacity") == "1"]
    assert still == ["the", "cat", "&", "sat"] * 2
