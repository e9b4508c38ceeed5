"""The animated picture: which words stand where, and from when to when."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

from places import ROOT
from traces import a_step

from experiments.real.player import WAITING, Shown, captions, picture
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


def first_frame(svg: str) -> list[str | None]:
    """The texts that stand there when the picture begins, by its own key frames."""
    frames = dict(re.findall(r"@keyframes (w\d+)\{((?:[\d.]+%\{[^}]*\})+)\}", svg))
    texts = []
    for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        timing = re.search(r"animation:(w\d+) ([\d.]+)s step-end -([\d.]+)s", each.get("style", ""))
        if timing:
            now = 100 * float(timing[3]) / float(timing[2])
            steps = re.findall(r"([\d.]+)%\{opacity:([\d.]+)\}", frames[timing[1]])
            if [opacity for at, opacity in steps if float(at) <= now][-1] != "0":
                texts.append(each.text)
    return texts


def test_the_first_frame_is_the_middle_of_the_recording_and_no_panel_is_empty() -> None:
    late = heard(a_step(1.0, 0.0, "", ""), a_step(2.0, 0.0, "the cat", "the cat"))
    svg = picture([("early", CAT), ("late", late)], "cu")
    assert first_frame(svg) == ["hat", "the", WAITING]
    names = re.findall(r'class="name"[^>]*>([^<]+)<', svg)
    assert names == ["early: first word after 1.0 s", "late: first word after 2.0 s", WAITING]


def test_the_readmes_picture_begins_with_words() -> None:
    svg = (ROOT / "experiments" / "real" / "player.svg").read_text(encoding="utf-8")
    assert len(first_frame(svg)) > 5 and first_frame(svg)[-1] == WAITING
