"""What counts as an early, a dropped and a wrong last word when a model hears cut audio."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from tiny import noise, tiny_folder

from experiments.mini import behaviour
from streaming_asr.errors import UserError
from streaming_asr.whisper.load import load_whisper

WORDS = [("We", 0.1, 0.3), ("saw", 0.3, 0.6), ("12:23", 0.8, 1.6), ("a.m.", 1.6, 2.0)]


@pytest.mark.parametrize(
    ("time_s", "ended", "inside", "heard"),
    [
        (0.05, (), None, 0.0),
        (0.2, (), "We", 0.5),
        (0.7, ("We", "saw"), None, 0.0),
        (1.0, ("We", "saw"), "12:23", 0.25),
        (1.59, ("We", "saw"), None, 0.0),  # 10 ms before its end: not inside
        (1.61, ("We", "saw", "12:23"), None, 0.0),
        (2.1, ("We", "saw", "12:23", "a.m."), None, 0.0),
    ],
)
def test_a_cut_knows_the_words_that_ended_and_the_one_it_falls_into(
    time_s: float, ended: tuple[str, ...], inside: str | None, heard: float
) -> None:
    cut = behaviour.cut_at(np.zeros(48_000, np.float32), WORDS, time_s)
    assert len(cut.audio) == round(time_s * 16_000)
    assert (cut.ended, cut.inside, cut.heard) == (ended, inside, pytest.approx(heard))


@pytest.mark.parametrize(
    ("text", "ended", "inside", "expected"),
    [
        ("We saw 12:23", ("We", "saw"), "12:23", "early"),
        ("we saw 12:23,", ("We", "saw"), "12:23", "early"),
        ("We saw.", ("We", "saw"), "12:23", "dropped"),
        ("We saw 12:20", ("We", "saw"), "12:23", "wrong"),
        ("We so", ("We", "saw"), "12:23", "wrong"),
        ("", ("We", "saw"), "12:23", "nothing"),
        ("...", ("We", "saw"), "12:23", "nothing"),
        ("", (), "We", "dropped"),
        ("Well", (), "We", "wrong"),
    ],
)
def test_the_last_word_is_early_dropped_wrong_or_nothing(
    text: str, ended: tuple[str, ...], inside: str, expected: str
) -> None:
    assert behaviour.outcome(text, ended, inside) == expected


def test_shares_are_of_the_cuts_inside_words_and_wer_is_of_all_cuts() -> None:
    audio = np.zeros(48_000, np.float32)
    cuts = [behaviour.cut_at(audio, WORDS, t) for t in (0.7, 1.0, 1.0, 1.0, 1.2)]
    texts = ["We saw", "We saw 12:23", "We saw", "We saw big dogs", "We saw"]
    found = behaviour.on_cuts(cuts, texts)
    assert found["n_inside_a_word"] == 4
    assert [found[name] for name in behaviour.OUTCOMES] == [25.0, 50.0, 25.0, 0.0]
    assert found["runs_on"] == 25.0
    assert found["wer"] == pytest.approx(100 * 4 / 10)  # 12 23, big, dogs; ten words had ended
    first, second, third = found["by_share_heard"]
    assert (first["n"], second["n"], third["n"]) == (3, 1, 0)
    assert second["dropped"] == 100.0 and third["dropped"] is None


def test_words_on_empty_audio_are_counted_by_kind() -> None:
    found = behaviour.on_empty(["silence", "noise", "noise"], ["", "Thank you.", ""])
    assert found["silence"] == {"n": 1, "with_words": 0.0, "words_each": 0.0}
    assert found["noise"] == {"n": 2, "with_words": 50.0, "words_each": 1.0}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    rows = []
    for i in range(2):
        soundfile.write(tmp_path / f"{i}.wav", noise(2.5, seed=i), 16_000)
        rows.append(
            {
                "id": f"u{i}",
                "audio_filepath": f"{i}.wav",
                "text": "We saw 12:23 a.m.",
                "words": WORDS,
            }
        )
    path = tmp_path / "two.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_same_seed_gives_the_same_cuts(manifest: Path) -> None:
    from streaming_asr.corpora.manifest import read_manifest

    utterances = read_manifest(manifest)
    lengths = [[len(c.audio) for c in behaviour.cuts_of(utterances, 5, seed)] for seed in (1, 1, 2)]
    assert lengths[0] == lengths[1] != lengths[2]
    assert len(set(lengths[0])) == 10
    alone = [len(c.audio) for c in behaviour.cuts_of(utterances[1:], 5, 1)]
    assert alone == lengths[0][5:]  # a limit does not move the cuts of those that stay


def test_all_figures_are_measured_padded_and_unpadded(
    manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behaviour, "EMPTY_S", 1.0)
    monkeypatch.setattr(behaviour, "N_NOISES", 1)
    whisper = load_whisper(tiny_folder(max_tokens=128), trainable=True)
    found = behaviour.measure(whisper, manifest, n_cuts=2)
    for padding in ("padded", "unpadded"):
        assert sum(found[padding]["cut"][name] for name in behaviour.OUTCOMES) == pytest.approx(100)


def test_a_split_without_word_times_is_refused(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    path = tmp_path / "untimed.jsonl"
    path.write_text('{"audio_filepath": "a.wav", "text": "the fox"}\n')
    with pytest.raises(UserError, match="cuts need word times"):
        behaviour.measure(load_whisper(tiny_folder(), trainable=True), path)
