"""The score on the dev sets: which utterances, whose errors, and their mean."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile

from experiments.real import dev_score
from experiments.real.dev_score import dev_set, geometric_mean, offline_errors, word_errors
from streaming_asr.errors import UserError
from streaming_asr.method import Update, Word


class Says:
    """Says one word for each delivery of audio."""

    lookahead_samples = 0

    def __init__(self, word):
        self.word = word

    def start(self, *, language=None, recorder=None):
        return None

    def step(self, state, audio, *, last):
        return Update((Word(f" {self.word}"),), ())


@pytest.fixture
def manifest(tmp_path):
    rows = []
    for name, text, seconds in (("a", "so so so", 0.9), ("b", "so it", 0.6)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(int(seconds * 16_000)), 16_000)
        rows.append({"audio_filepath": f"{name}.wav", "text": text, "duration": seconds})
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_errors_are_those_of_all_utterances_together(manifest, monkeypatch):
    one = dev_set(f"mine={manifest}")
    assert [u.id for u in one.utterances] == ["b", "a"] and one.n_words == 5
    for together in (1, 25):
        monkeypatch.setattr(dev_score, "TOGETHER", together)
        # two deliveries of `b` and three of `a`: "it" is the one word that is not "so"
        assert word_errors(Says("so"), one, 300, 300) == 1
        assert word_errors(Says("no"), one, 300, 300) == 5
        assert word_errors(Says("so"), one, 900, 900) == 3


def test_the_mean_is_that_of_ratios_and_no_error_is_half_of_one():
    assert geometric_mean([20, 30], [10, 60]) == pytest.approx(1.0)
    assert geometric_mean([40, 30], [10, 30]) == pytest.approx(2.0)
    assert geometric_mean([0], [1]) == pytest.approx(0.5)


def test_offline_is_heard_once_for_a_model_and_a_text(manifest, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(dev_score, "new_method", lambda *given: made.append(given) or Says("so"))
    monkeypatch.setattr("streaming_asr.models.hash.weights_hash", lambda path: "base")
    kept = tmp_path / "offline.json"
    one = dev_set(f"mine={manifest}")
    assert offline_errors(tmp_path, [one], kept) == [3]
    assert offline_errors(tmp_path, [one], kept) == [3] and len(made) == 1
    manifest.write_text(manifest.read_text().replace("so it", "so so"))
    assert offline_errors(tmp_path, [dev_set(f"mine={manifest}")], kept) == [3]
    assert len(made) == 2


def test_a_frozen_list_takes_its_own_utterances_alone(manifest):
    with pytest.raises(UserError, match="cv-dev-2: 95 of its utterances"):
        dev_set(f"cv-dev-2={manifest}")


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ("mine", "no frozen list of this name; write NAME=MANIFEST"),
        ("mine=nowhere.jsonl", "nowhere.jsonl is not there; name its manifest"),
    ],
)
def test_a_set_that_is_not_there_is_refused(given, wrong):
    with pytest.raises(UserError, match=wrong):
        dev_set(given)


def test_a_recording_that_arrives_at_once_is_decoded_once(manifest, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dev_score, "new_method", lambda *args, **settings: Says("so"))
    monkeypatch.setattr(dev_score, "offline_errors", lambda *args: [1])
    found = []
    settings = ["--weights", "w", "--sets", f"mine={manifest}", "--chunks", "300ms"]
    for flags in ([], ["--at-once"]):
        dev_score.program([*settings, *flags, "--offline", str(tmp_path / "offline.json")])
        row = next(line for line in capsys.readouterr().out.splitlines() if "mine" in line)
        found.append(float(row.split()[3]))
    # the first chunk of 600 ms, then one of 300: "so" for "so it", "so so" for "so so so"; 2 of 5
    # words are wrong. At once: "so" for each, 3 of 5.
    assert found == [40.0, 60.0]
