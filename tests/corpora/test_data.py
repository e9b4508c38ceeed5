"""None"""

from __future__ import annotations

import functools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import fakes
import numpy as np
import pytest
import soundfile

from experiments.real.training_set import HELD_OUT
from streaming_asr import corpora
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import Folder, Manifest, Mini, choose
from streaming_asr.corpora.audio import load_audio
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.data.check import check
from streaming_asr.data.command import main
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, UtteranceLog
from streaming_asr.events.record import StepLine
from streaming_asr.method import SAMPLE_RATE
from streaming_asr.utterance import TimedWord, Utterance


def tone(rate, seconds=1.0, hz=440.0):
    return 0.5 * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)


def write_manifest(folder, *rows, name="test.jsonl"):
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def write_audio(path, samples=None, rate=16_000):
    data = tone(rate) if samples is None else samples
    soundfile.write(path, data, rate, subtype="FLOAT" if path.suffix == ".wav" else None)
    return path


# -- audio ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_every_rate_becomes_16_khz(tmp_path, rate):
    audio = load_audio(write_audio(tmp_path / "a.wav", rate=rate, samples=tone(rate)))
    assert audio.dtype == np.float32 and audio.shape == (16_000,)
    inner = slice(800, -800)  # the filter rings at the edges
    np.testing.assert_allclose(audio[inner], tone(16_000)[inner], atol=2e-3)


def test_channels_are_averaged(tmp_path):
    both = np.stack([np.full(400, 0.5), np.full(400, -0.25)], axis=1)
    assert load_audio(write_audio(tmp_path / "a.wav", both)).tolist() == [0.125] * 400


def test_overshoot_is_clipped_to_full_scale(tmp_path):
    audio = load_audio(write_audio(tmp_path / "a.wav", np.array([0.0, 1.2, -1.2])))
    assert audio.tolist() == [0.0, 1.0, -1.0]


def empty(path):
    write_audio(path, np.zeros(0))


def with_nan(path):
    write_audio(path, np.array([0.0, np.nan, 0.1]))


def integers(path):
    write_audio(path, np.array([0.0, 20_000.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (empty, "holds 0 samples"),
        (with_nan, "NaN"),
        (integers, "divided by 32768"),
        (lambda path: path.write_bytes(b"this is no audio"), "not readable as audio"),
        (lambda path: path.mkdir(), "is a folder, not a recording"),
        (lambda path: None, "no such audio file"),
    ],
    ids=["empty", "nan", "integers", "text", "folder", "missing"],
)
def test_bad_audio_is_refused_with_its_name(tmp_path, make, message):
    make(tmp_path / "talk.wav")
    with pytest.raises(UserError, match=message) as caught:
        load_audio(tmp_path / "talk.wav")
    assert "talk.wav" in str(caught.value)


# -- manifests ------------------------------------------------------------------------------


def test_a_manifest_line_becomes_an_utterance(tmp_path):
    (tmp_path / "audio").mkdir()
    file = write_audio(tmp_path / "audio" / "a1.wav")
    row = {
        "audio_filepath": "audio/a1.wav",
        "duration": 1.0,
        "text": "Hello, 3.",
        "speaker": 84,
        "language": "en",
        "words": [["Hello,", 0.1, 0.4], ["3.", 0.4, 0.9]],
    }
    (utterance,) = read_manifest(write_manifest(tmp_path, row, ""))
    assert (utterance.id, utterance.text, utterance.duration_s) == ("a1", "Hello, 3.", 1.0)
    assert (utterance.speaker, utterance.language) == ("84", "en")
    assert utterance.words == (TimedWord("Hello,", 0.1, 0.4), TimedWord("3.", 0.4, 0.9))
    assert utterance.audio_path == str(file)
    np.testing.assert_array_equal(utterance.load(), load_audio(file))


def test_a_duration_that_is_not_given_is_read_from_the_file(tmp_path):
    write_audio(tmp_path / "a.wav", tone(8000, 0.75), 8000)
    row = {"audio_filepath": str(tmp_path / "a.wav"), "text": ""}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    assert utterance.duration_s == 0.75 and utterance.words is None


@pytest.mark.parametrize("tag", ["", " ", "und", "und-Latn", "UND"])
def test_a_tag_that_names_no_language_is_none(tmp_path, tag):
    write_audio(tmp_path / "a.wav")
    path = write_manifest(tmp_path, {**GOOD, "language": tag})
    assert read_manifest(path)[0].language is None
    assert Folder(tmp_path / "a.wav", language=tag).utterances()[0].language is None


@pytest.mark.parametrize("number", [0, 7, -1])
def test_a_whole_number_as_an_id_is_its_digits(tmp_path, number):
    write_audio(tmp_path / "a.wav")
    row = {"id": number, "audio_filepath": "a.wav", "text": "x"}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    assert utterance.id == str(number)
    times = tmp_path / "times.jsonl"
    times.write_text(json.dumps({"id": number, "words": [["x", 0.1, 0.2]]}))
    (timed,) = Manifest(tmp_path / "test.jsonl", alignments=times).utterances()
    assert timed.words == (TimedWord("x", 0.1, 0.2),)


def test_parts_are_joined_with_their_pauses(tmp_path):
    write_audio(tmp_path / "a.wav", np.full(1600, 0.5))
    write_audio(tmp_path / "b.wav", np.full(800, -0.5))
    parts = [{"audio_filepath": "a.wav", "gap_s": 0.2}, {"audio_filepath": "b.wav", "gap_s": 0.0}]
    row = {"id": "long1", "parts": parts, "text": "x"}
    (utterance,) = read_manifest(write_manifest(tmp_path, row))
    audio = utterance.load()
    assert audio.dtype == np.float32
    assert audio.tolist() == [0.5] * 1600 + [0.0] * 3200 + [-0.5] * 800
    assert utterance.duration_s == pytest.approx(len(audio) / 16_000)
    assert utterance.audio_path is None


def test_noise_is_mixed_in_when_the_audio_is_loaded(tmp_path, monkeypatch):
    asked = []

    def mix(samples, kind, snr_db, seed):
        asked.append((kind, snr_db, seed))
        return samples * 0.5

    monkeypatch.setattr("streaming_asr.corpora.noise.mix", mix)
    write_audio(tmp_path / "a.wav", np.full(100, 0.5))
    row = {"audio_filepath": "a.wav", "text": "x"}
    path = write_manifest(tmp_path, {**row, "noise": {"kind": "pink", "snr_db": 7.5, "seed": 3}})
    (utterance,) = Manifest(path).utterances()
    assert asked == []
    assert utterance.load().tolist() == [0.25] * 100
    Manifest(path, snr_db=0.0).utterances()[0].load()
    Manifest(path, noise="hum").utterances()[0].load()
    assert asked == [("pink", 7.5, 3), ("pink", 0.0, 3), ("hum", 7.5, 3)]


GOOD = {"audio_filepath": "a.wav", "text": "x"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{audio: a.wav}", "not JSON"),
        ("[1, 2]", "not an object"),
        ({"text": "x"}, "no `audio_filepath`"),
        ({**GOOD, "audio_filepath": "b.wav"}, "'b.wav' points nowhere"),
        ({"audio_filepath": "a.wav"}, "no `text`"),
        ({**GOOD, "text": None}, "`text` is None; write the reference"),
        ({**GOOD, "duration": "long"}, "`duration` is 'long'"),
        ({**GOOD, "id": 3.5}, "`id` is 3.5; a line needs a text or a whole number"),
        ({**GOOD, "id": ""}, "`id` is ''"),
        ({**GOOD, "audio_filepath": "a\0.wav"}, "points nowhere"),
        ({**GOOD, "speaker": ["a"]}, "`speaker`"),
        ({**GOOD, "words": [["x", 1.0]]}, "list of"),
        ({**GOOD, "words": [["x", 1.0, 0.5]]}, "from 1.0 to 0.5 s"),
        ({**GOOD, "noise": {"kind": "white"}}, "`noise`"),
        ({**GOOD, "parts": []}, "`parts` must be"),
        ({"parts": [GOOD], "text": "x"}, "no `id`; it has `parts`, `text`; a line needs"),
        ({**GOOD, "id": "first"}, "is in line 1 already"),
        ({**GOOD, "duration": float("nan")}, "line 3: not JSON .NaN is no number of JSON"),
        ({**GOOD, "duration": 1e308}, "`duration` is 1e[+]308"),
        ({**GOOD, "duration": -1}, "`duration` is -1"),
        ({"id": "l", "text": "x", "parts": [{**GOOD, "gap_s": 90_000}]}, "gap_s` is 90000"),
        ({**GOOD, "text": "\ud800"}, "not JSON .*surrogates not allowed"),
    ],
)
def test_a_bad_manifest_line_is_refused_with_its_number(tmp_path, row, message):
    write_audio(tmp_path / "a.wav")
    path = write_manifest(tmp_path, {**GOOD, "id": "first"}, "", row)
    with pytest.raises(UserError, match=message) as caught:
        read_manifest(path)
    assert "test.jsonl, line 3" in str(caught.value)


def test_a_manifest_that_cannot_be_read_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_manifest(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        read_manifest(tmp_path / "binary.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(UserError, match="no utterance"):
        read_manifest(tmp_path / "empty.jsonl")


# -- corpora --------------------------------------------------------------------------------


def test_a_limit_takes_the_same_utterances_whatever_their_order():
    utterances = [fakes.utterance(f"u{i}", seconds=0.1) for i in range(40)]
    few, more = corpora.choose(utterances, 5), corpora.choose(utterances, 12)
    assert len(few) == 5 and len(more) == 12
    assert {u.id for u in few} < {u.id for u in more}
    assert {u.id for u in corpora.choose(utterances[::-1], 5)} == {u.id for u in few}
    assert [u.id for u in more] == [u.id for u in utterances if u in more]
    assert corpora.choose(utterances, None) == corpora.choose(utterances, 99) == utterances
    with pytest.raises(UserError, match="1 or more"):
        corpora.choose(utterances, 0)


def test_a_folder_gives_its_recordings_and_their_texts(tmp_path):
    (tmp_path / "day1").mkdir()
    for name in ("b.flac", "a.wav", "day1/a.wav"):
        write_audio(tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text(f"text of\n{name}\n")
    folder = Folder(tmp_path)
    utterances = folder.utterances()
    assert [u.id for u in utterances] == ["a", "b", "day1/a"]
    assert [u.text for u in utterances] == ["text of a.wav", "text of b.flac", "text of day1/a.wav"]
    assert [u.duration_s for u in utterances] == [1.0] * 3
    before = folder.data_hash()
    (tmp_path / "a.txt").unlink()
    assert folder.data_hash() != before
    with pytest.raises(UserError, match=r"a\.txt"):
        Folder(tmp_path).utterances()


def test_a_folder_without_texts_can_be_run(tmp_path):
    write_audio(tmp_path / "a.wav")
    assert [u.text for u in Folder(tmp_path).utterances(limit=1)] == [""]


def test_a_folder_that_holds_no_audio_is_refused(tmp_path):
    with pytest.raises(UserError, match="no audio in it"):
        Folder(tmp_path).utterances()
    with pytest.raises(UserError, match="no such folder"):
        Folder(tmp_path / "none").utterances()
    for name in ("a.wav", "a.flac"):
        write_audio(tmp_path / name)
    with pytest.raises(UserError, match="the same name"):
        Folder(tmp_path).utterances()


def test_an_unknown_split_of_mini_is_answered_with_those_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "MINI", tmp_path)
    write_audio(tmp_path / "a.wav")
    write_manifest(tmp_path, GOOD, name="clean.jsonl")
    with pytest.raises(UserError, match=r"data\.split=cleen: .* there are: clean"):
        Mini("cleen")
    mini = Mini("clean", limit=1)
    assert (mini.name, mini.split, len(mini.utterances())) == ("mini", "clean", 1)


# -- The embedded natural speech --


@pytest.fixture(scope="module")
def utterances():
    """The clips, each decoded once for all tests."""
    found = build(compose_raw(["data=voices"]).data).utterances()
    return [replace(each, audio=functools.cache(each.audio)) for each in found]


def test_there_are_60_clips_ten_of_each_held_out_voice(utterances):
    held_out = json.loads(HELD_OUT.read_text("utf-8"))
    assert Counter(u.speaker for u in utterances) == dict.fromkeys(held_out["test"], 10)
    assert Counter(name[:2] for name in held_out["test"]) == {"af": 2, "am": 2, "bf": 1, "bm": 1}
    assert not set(held_out["test"]) & set(held_out["dev"])


def test_nothing_is_wrong_with_a_file(utterances):
    corpus = build(compose_raw(["data=voices"]).data)
    assert (corpus.name, corpus.split) == ("voices", "test")
    assert check(corpus).problems == []
    for utterance in utterances:
        n_samples = len(utterance.load())
        assert n_samples == pytest.approx(utterance.duration_s * SAMPLE_RATE, abs=2)


def test_every_word_has_its_time_in_order_within_the_audio(utterances):
    for utterance in utterances:
        words = utterance.words
        assert words is not None and [w.text for w in words] == utterance.text.split()
        times = [time for word in words for time in (word.start, word.end)]
        assert times == sorted(times) and times[-1] <= utterance.duration_s
        assert all(word.start < word.end for word in words)


def test_words_are_heard_where_their_times_say(utterances):
    for utterance in utterances:
        samples, words = utterance.load(), utterance.words
        assert words is not None
        audible = 0.05 * np.sqrt(np.mean(samples**2))  # the faintest last word has 0.08
        for word in words:
            span = samples[int(word.start * SAMPLE_RATE) : int(word.end * SAMPLE_RATE)]
            assert np.sqrt(np.mean(span**2)) > audible, (utterance.id, word)
        lead = samples[: int((words[0].start - 0.03) * SAMPLE_RATE)]
        assert np.sqrt(np.mean(lead**2)) < audible, utterance.id


def test_the_audio_takes_3_mb_at_most_and_every_file_is_named(utterances):
    folder = HELD_OUT.parents[2] / "streaming_asr/data/voices/audio"
    files = list(folder.iterdir())
    assert sum(file.stat().st_size for file in files) < 3e6
    assert {str(file) for file in files} == {u.audio_path for u in utterances}


# -- `data manifest style=RUN`: references take the style of a run's texts --


ROWS = {  # the reference, the run's text, the text that the manifest gets
    "same": ("MISTER FOX RAN", " Mr. Fox ran.", "Mr. Fox ran."),
    "other": ("THE FOX RAN", " The Fix, ran!", "The Fox, ran!"),
    "failed": ("A DOG", " A dog.", "A DOG"),
    "not run": ("A CAT", None, "A CAT"),
}


@pytest.fixture
def corpus(tmp_path):
    lines = []
    for i, (name, (text, _, _)) in enumerate(ROWS.items()):
        soundfile.write(tmp_path / f"{i}.wav", np.full(16_000, 0.1), 16_000)
        words = [[word, k / 4, k / 4 + 0.2] for k, word in enumerate(text.split())]
        row = {"id": name, "audio_filepath": f"{i}.wav", "text": text, "words": words}
        lines.append(json.dumps({**row, "duration": 1.0, "language": "en"}))
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    run = tmp_path / "run"
    run.mkdir()
    header = {"config": {}, "versions": {}, "machine": {}, "metrics_version": 1}
    with EventWriter(run / "events.jsonl", header) as log:
        for name, (reference, output, _) in ROWS.items():
            if output is not None:
                words = {"committed": [output], "partial": []}
                step = StepLine("flush", 16_000, {"wall": 1}, utt=name, **words)
                failure = {"status": "failed", "error": "?"} if name == "failed" else {}
                log.write_utterance(UtteranceLog(name, reference, 16_000, steps=[step], **failure))
    return tmp_path


def command(monkeypatch, corpus, *settings):
    arguments = ["data=manifest", f"data.path={corpus}/corpus.jsonl", f"out={corpus}/out.jsonl"]
    monkeypatch.setattr(sys, "argv", ["data", "manifest", *arguments, *settings])
    return main()


def test_texts_take_the_style_and_keep_their_times(monkeypatch, corpus):
    assert command(monkeypatch, corpus, f"style={corpus}/run") == 0
    found = {each.id: each for each in read_manifest(corpus / "out.jsonl")}
    assert {name: each.text for name, each in found.items()} == {
        name: text for name, (_, _, text) in ROWS.items()
    }
    for each in found.values():
        assert [word.text for word in each.words] == each.text.split()
        assert [word.start for word in each.words] == [k / 4 for k in range(len(each.words))]


def test_a_run_over_other_speech_is_refused(monkeypatch, corpus, capsys):
    rows = (corpus / "corpus.jsonl").read_text().replace('"id": "', '"id": "another ')
    (corpus / "corpus.jsonl").write_text(rows)
    assert command(monkeypatch, corpus, f"style={corpus}/run") != 0
    assert f"style={corpus}/run: has no text of these utterances" in capsys.readouterr().err
    assert not (corpus / "out.jsonl").exists()
    assert command(monkeypatch, corpus, f"style={corpus}/nothing") != 0


def test_a_manifest_gets_lists_and_prompts_of_a_file_of_words(monkeypatch, corpus, capsys):
    words = [f"word{i}" for i in range(300)]
    (corpus / "words.txt").write_text("Fox\nmister\n" + "\n".join(words))
    given = f"biasing={corpus}/words.txt"
    assert command(monkeypatch, corpus, given, "names=10") == 0
    first, *_, last = read_manifest(corpus / "out.jsonl")
    names = [set(each.prompt.split(", ")) for each in (first, last)]
    assert (first.biasing, last.biasing) == (("mister", "fox"), ())
    assert [len(each) for each in names] == [10, 10]
    assert names[0] - set(words) == {"mister", "fox"} and names[1] <= set(words)
    (corpus / "out.jsonl").unlink()
    assert command(monkeypatch, corpus, given) == 0
    assert [each.prompt for each in read_manifest(corpus / "out.jsonl")] == [None] * 4
    assert command(monkeypatch, corpus, "names=10") != 0
    assert "names=10: are of a file of words" in capsys.readouterr().err


def test_a_limit_reads_only_the_lines_that_it_takes(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(1600), 16_000)
    rows = [{"id": n, "audio_filepath": "a.wav", "text": "", "language": "en"} for n in range(20)]
    path = tmp_path / "m.jsonl"

    def write(rows):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Manifest(path=path)

    chosen = [each.id for each in write(rows).utterances(3)]
    assert chosen == [each.id for each in choose(Manifest(path=path).utterances(), 3)]
    assert Manifest(path=path).languages() == {"en"}
    broken = [row | ({} if str(row["id"]) in chosen else {"text": 3}) for row in rows]
    assert [each.id for each in write(broken).utterances(3)] == chosen
    with pytest.raises(UserError, match="line 1: `text` is 3"):
        Manifest(path=path).utterances()
    for twice in (rows[0], {}):  # an id that is there twice, a line without a recording
        with pytest.raises(UserError, match="line 21"):
            write([*rows, twice]).utterances(3)


def test_a_limit_chooses_among_what_a_subclass_scans(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(1600), 16_000)
    rows = [{"id": n, "audio_filepath": "a.wav", "text": "", "language": "en"} for n in range(20)]
    path = tmp_path / "m.jsonl"

    class Odd(Manifest):
        """The odd lines of a manifest, which is made at first use."""

        def scan(self) -> Iterator[Utterance | UserError]:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            yield from (each for each in super().scan() if int(each.id) % 2)

    assert Odd(path=path).languages() == {"en"}
    path.unlink()
    chosen = [each.id for each in Odd(path=path).utterances(3)]
    assert chosen == [each.id for each in choose(Odd(path=path).utterances(), 3)]
    assert len(chosen) == 3 and all(int(name) % 2 for name in chosen)
