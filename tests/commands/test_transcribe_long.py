"""A transcription that is watched, killed and given again: its text grows and nothing is lost."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import soundfile

from streaming_asr.commands import transcribe
from streaming_asr.commands.journal import Journal, taken_up
from streaming_asr.files import cache_root
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Update, Word

GIVEN = ("model=mini", "chunk=1s", "first_chunk=1s")


class Reads:
    """Says the number of every stretch of one level, with its times, once it has ended."""

    lookahead_samples = 0

    def __init__(self, on_step: Callable[[float], None] = lambda heard_s: None) -> None:
        self.on_step = on_step
        self.heard_s = []  # of each stream

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> dict[str, Any]:
        self.heard_s.append(0.0)
        return {"heard": np.zeros(0, np.float32), "n": 0}

    def step(self, state: dict[str, Any], audio: Samples, *, last: bool) -> Update:
        state["heard"] = np.concatenate([state["heard"], audio])
        self.heard_s[-1] = len(state["heard"]) / SAMPLE_RATE
        self.on_step(self.heard_s[-1])
        words = self.words(state["heard"])
        new, state["n"] = words[state["n"] :], len(words)
        return Update(tuple(new))

    def words(self, heard: Samples) -> list[Word]:
        edges = np.flatnonzero(np.diff(heard != 0, prepend=False))
        spans = zip(edges[::2], edges[1::2], strict=False)
        return [
            Word(f" w{round(float(heard[a]) * 1000)}", a / SAMPLE_RATE, b / SAMPLE_RATE)
            for a, b in spans
        ]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def talk(tmp_path):
    """20 s: second s says the number s from 0.2 to 0.6 s; nothing is said in the seconds 7, 8."""
    audio = np.zeros(20 * SAMPLE_RATE, np.float32)
    for s in [*range(7), *range(9, 20)]:
        audio[int((s + 0.2) * SAMPLE_RATE) : int((s + 0.6) * SAMPLE_RATE)] = (s + 1) / 1000
    soundfile.write(tmp_path / "talk.wav", audio, SAMPLE_RATE, subtype="FLOAT")
    return tmp_path / "talk.wav"


ALL = [f"w{s + 1}" for s in [*range(7), *range(9, 20)]]


def run(monkeypatch, method, *arguments):
    out = io.StringIO()
    monkeypatch.setattr(transcribe, "method_of", lambda config: (method, lambda: None))
    monkeypatch.setattr(sys, "stdout", out)
    return transcribe.main([*map(str, arguments), *GIVEN]), out


def test_a_pipe_gets_the_words_as_they_become_final(talk, monkeypatch):
    seen = []
    method = Reads(lambda heard_s: seen.append(sys.stdout.getvalue()))
    status, out = run(monkeypatch, method, talk)
    assert (status, out.getvalue()) == (0, " ".join(ALL) + "\n")
    assert seen[:4] == ["", "w1", "w1 w2", "w1 w2 w3"]


def test_words_that_are_taken_back_are_said_again_on_a_line_of_their_own(capsys):
    one, two, other = Word(" one", 0, 1), Word(" two", 1, 2), Word(" too", 1, 2)
    told = transcribe.Transcript("talk.wav", 2.0, [one, two])
    with transcribe._Shown("") as shown:
        shown.show(told)
        told.words = [one, other]
        shown.end(told)
    assert capsys.readouterr().out == "one two\none too\n"


def test_files_grow_and_a_killed_command_goes_on_in_a_quiet_place(
    talk, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(transcribe, "GROWS_S", 2.0)

    def kill(heard_s):
        if heard_s > 12:
            raise KeyboardInterrupt

    wanted = (talk, "--json", "--srt", "--out", tmp_path / "out")
    killed = Reads(kill)
    status, out = run(monkeypatch, killed, *wanted)
    assert (status, out.getvalue()) == (130, " ".join(ALL[:10]) + "\n")
    part = json.loads((tmp_path / "out" / "talk.json").read_text())
    assert (part["heard_s"], part["duration_s"]) == (12.0, 20.0)
    assert part["text"] == " ".join(ALL[:10])
    assert "w10" in (tmp_path / "out" / "talk.srt").read_text()
    assert "the same command goes on" in capsys.readouterr().err

    again = Reads()
    status, out = run(monkeypatch, again, *wanted)
    assert (status, out.getvalue()) == (0, " ".join(ALL) + "\n")
    assert "resumes at 8.3 s" in capsys.readouterr().err  # 6.6 to 9.2 s are silent
    assert again.heard_s == [pytest.approx(11.65)]
    whole = json.loads((tmp_path / "out" / "talk.json").read_text())
    assert (whole["text"], whole["heard_s"]) == (" ".join(ALL), 20.0)
    starts = [word["start"] for word in whole["words"]]
    assert starts == pytest.approx([s + 0.2 for s in [*range(7), *range(9, 20)]])
    # Whole now: given once more it begins anew.
    assert not list((cache_root() / "transcripts").glob("*"))
    assert run(monkeypatch, again, *wanted)[0] == 0 and again.heard_s[-1] == 20.0


def words(*spans):
    return [Word(f" w{i}", a, b) for i, (a, b) in enumerate(spans)]


def loud_but(seconds, *quiet):
    audio = np.full(round(seconds * SAMPLE_RATE), 0.1, np.float32)
    for a, b in quiet:
        audio[round(a * SAMPLE_RATE) : round(b * SAMPLE_RATE)] = 0.001
    return audio


@pytest.mark.parametrize(
    ("quiet", "said", "n_kept", "at_s"),
    [
        ([], [], 0, 0.0),
        ([], [(0.0, 1.0), (2.0, 3.4)], 0, 0.0),  # 3.5 s at least
        ([(2.0, 2.5)], [(0.0, 1.9), (2.2, 3.0), (5.0, 9.0)], 1, 2.25),  # a word by its middle
        # Not within 3 s of the end, nor more than 33 s before it.
        ([(2.0, 2.5), (6.0, 6.6)], [(0.0, 3.0), (3.0, 9.0)], 1, 2.25),
        ([(2.0, 2.6), (40.0, 40.5)], [(0.0, 39.0), (41.0, 49.0)], 1, 40.25),
        ([(4.0, 9.0)], [(0.0, 3.0), (10.0, 14.0)], 1, 8.75),  # the last of equals
    ],
)
def test_a_recording_is_taken_up_in_the_last_quietest_half_second(quiet, said, n_kept, at_s):
    kept, found_s = taken_up(words(*said), loud_but(50.0, *quiet))
    assert (kept, found_s) == (words(*said)[:n_kept], pytest.approx(at_s, abs=0.01))


def test_a_journal_keeps_what_was_revised_and_passes_over_a_torn_line():
    samples = loud_but(10.0, (2.0, 3.0))
    journal = Journal({"chunk": "1s"}, samples)
    said = words((0, 1), (1, 2), (3, 4), (5, 9))
    journal.write([said[0], said[2]], 0)
    journal.write([said[0], said[1], said[3]], 1)  # the second was taken back
    with journal.path.open("a") as file:
        file.write('[7]\n{"n": 1, "words": [["a", "late", 1, null]]}\n{"n": -1, "words": []}\n')
        file.write('{"n": 4, "wor')
    assert Journal({"chunk": "1s"}, samples).words_so_far() == (said[:2], pytest.approx(2.75))
    assert Journal({"chunk": "2s"}, samples).words_so_far() == ([], 0.0)
    journal.remove()
    assert Journal({"chunk": "1s"}, samples).words_so_far() == ([], 0.0)
