"""The telephone prompts, from packages that stand in for Debian's: synthetic sound, own words."""

import gzip
import io
import json
import os
import stat

import av
import numpy as np
import pytest

from streaming_asr.commands import demo
from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.settle import compose
from streaming_asr.corpora import prompts
from streaming_asr.data.check import check, lines
from streaming_asr.errors import UserError

TRANSCRIPTS = """\
; Core Asterisk Sounds in English

one-two: Only two
three: These are three.
dir/four: ... one two\u2028three
beep: [this is a tone]
silence/10: (10 seconds of silence)
join: <beep going up>
gone: This recording is missing.
colon: Note: two colons here.
"""
COPYRIGHT = """\
Format: http://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2003-2010, A. Speaker
Comment: The CREDITS file:
 License: another
License: CC-BY-SA-3.0

Files: it-*
Copyright: 2012 C. Voice
License: CC-BY-3.0
"""
APT = """\
#!/bin/sh
echo "$@" >> "$ASKED"
case "$*" in
  *update*) exit 0;;
  *download*)
    if [ -n "$FAIL" ]; then echo "E: $FAIL" >&2; exit 100; fi
    for name in asterisk-core-sounds-en asterisk-core-sounds-en-g722; do
      echo whole > "${name}_1.6.1-1_all.deb"
    done;;
esac
"""
DPKG = """\
#!/bin/sh
grep -q whole "$2" || { echo "dpkg-deb: error: not a Debian format archive" >&2; exit 2; }
if [ -n "$BROKEN" ]; then echo "dpkg-deb: error: unexpected end of file" >&2; exit 2; fi
mkdir -p "$3" && cp -r "$TREE/." "$3"
"""


def g722(samples):
    """int16 samples at 16 kHz as G.722."""
    written = io.BytesIO()
    with av.open(written, "w", format="g722") as container:
        stream = container.add_stream("g722", rate=16_000)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.rate = 16_000
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    return written.getvalue()


def tone(seconds):
    t = np.arange(round(seconds * 16_000)) / 16_000
    return (8000 * np.sin(2 * np.pi * 440 * t)).astype(np.int16)


def unpacked(root, transcripts=TRANSCRIPTS):
    """What unpacking both packages leaves."""
    voice = root / "usr/share/asterisk/sounds/en_US_f_Speaker"
    for name in ("one-two", "three", "dir/four", "beep", "silence/10", "colon"):
        (voice / name).parent.mkdir(parents=True, exist_ok=True)
        (voice / f"{name}.g722").write_bytes(g722(tone(0.5)))
    documents = root / "usr/share/doc/asterisk-core-sounds-en"
    documents.mkdir(parents=True)
    (documents / "core-sounds-en.txt.gz").write_bytes(gzip.compress(transcripts.encode()))
    (documents / "copyright").write_text(COPYRIGHT)
    return root


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache, and fake apt-get and dpkg-deb before the real ones."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in (("apt-get", APT), ("dpkg-deb", DPKG)):
        (programs / name).write_text(script)
        (programs / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TREE", str(unpacked(tmp_path / "tree")))
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    return tmp_path


def test_transcripts_stand_as_shipped_and_notes_and_short_ones_are_left_out():
    assert prompts.texts("\ufeff" + TRANSCRIPTS) == {
        "three": "These are three.",
        "dir/four": "... one two\u2028three",
        "gone": "This recording is missing.",
        "colon": "Note: two colons here.",
    }


def test_prompts_are_fetched_once_and_read_as_a_corpus(home):
    corpus = build(compose_raw(["data=prompts", "data.align=none"]).data)
    found = {u.id: u for u in corpus.utterances()}
    assert list(found) == ["three", "dir/four", "colon"]
    four = found["dir/four"]
    assert (four.text, four.speaker, four.language) == ("... one two\u2028three", "Speaker", "en")
    assert (corpus.name, corpus.split) == ("prompts", "en")
    samples = four.load()
    assert samples.shape == (8000,) and four.duration_s == 0.5
    spectrum = np.abs(np.fft.rfft(samples))
    assert np.argmax(spectrum) * 16_000 / 8000 == pytest.approx(440, abs=2)
    asked = (home / "asked").read_text().splitlines()
    assert len(asked) == 1 and "asterisk-core-sounds-en-g722=1.6.1-1" in asked[0]
    assert f"Dir::Cache={home}" in asked[0]  # nothing of the system is written
    again = build(compose_raw(["data=prompts"]).data)
    assert again.data_hash() == corpus.data_hash()
    assert len((home / "asked").read_text().splitlines()) == 1


def test_test_and_dev_are_all_of_it(home, monkeypatch):
    monkeypatch.setattr(prompts, "N_TEST", 2)
    whole = build(compose_raw(["data=prompts"]).data)
    test = build(compose_raw(["data=prompts", "data.split=test"]).data)
    dev = build(compose_raw(["data=prompts", "data.split=dev"]).data)
    of_test, of_dev = ([u.id for u in part.utterances()] for part in (test, dev))
    assert of_test == [u.id for u in whole.utterances(2)]  # those of limit=2
    assert len(of_dev) == 1
    assert sorted(of_test + of_dev) == sorted(u.id for u in whole.utterances())
    assert (test.split, dev.split, dev.path) == ("en-test", "en-dev", whole.path)
    with pytest.raises(UserError, match="split=train: the prompts have all, test, dev"):
        build(compose_raw(["data=prompts", "data.split=train"]).data)


def test_another_recording_changes_the_hash_of_the_data(home):
    first = build(compose_raw(["data=prompts"]).data).data_hash()
    voice = home / "tree/usr/share/asterisk/sounds/en_US_f_Speaker"
    (voice / "three.g722").write_bytes(g722(-tone(0.5)))  # of the same length
    prompts.place_of("en").rename(home / "old")
    assert build(compose_raw(["data=prompts"]).data).data_hash() != first


def test_check_prints_the_licence_of_the_language(home):
    corpus = build(compose_raw(["data=prompts"]).data)
    printed = "\n".join(lines(corpus, check(corpus)))
    assert "CC-BY-SA-3.0, copyright 2003-2010, A. Speaker" in printed
    italian = prompts.licence(prompts.place_of("en") / "copyright", "it")
    assert italian.startswith("CC-BY-3.0, copyright 2012 C. Voice")


def test_without_apt_packages_unpacked_by_hand_are_taken(home, monkeypatch):
    monkeypatch.setenv("PATH", str(home / "empty"))
    with pytest.raises(UserError, match=r"no apt-get.*apt-get download asterisk-core-sounds-en"):
        prompts.fetch_prompts("en")
    unpacked(home / "cache/streaming_asr/prompts/unpacked")
    assert (prompts.fetch_prompts("en") / "prompts.jsonl").is_file()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("FAIL", "Could not connect to deb.debian.org", "cannot download it .*Could not connect"),
        ("BROKEN", "1", "_1.6.1-1_all.deb: is no whole Debian package .*unexpected end of file"),
    ],
)
def test_a_failure_is_one_sentence_and_leaves_nothing(home, monkeypatch, variable, value, message):
    monkeypatch.setenv(variable, value)
    with pytest.raises(UserError, match=message):
        prompts.fetch_prompts("en")
    assert list((home / "cache/streaming_asr/prompts").iterdir()) == []
    monkeypatch.delenv(variable)
    assert len(json.loads((prompts.fetch_prompts("en") / "source.json").read_text())) == 3


def test_without_package_lists_they_are_read_into_a_folder_of_their_own(home, monkeypatch):
    monkeypatch.setenv("FAIL", "Unable to locate package asterisk-core-sounds-en")
    with pytest.raises(UserError, match="Unable to locate"):
        prompts.fetch_prompts("en")
    first, update, second = (home / "asked").read_text().splitlines()
    assert "Dir::State::lists" not in first and update.endswith("update")
    assert f"Dir::State::lists={home}" in update and f"Dir::State::lists={home}" in second


def test_a_language_there_is_not_is_answered_with_those_there_are():
    with pytest.raises(UserError, match="language=de: the prompts are in en, es, fr, it, ru"):
        build(compose_raw(["data=prompts", "language=de"]).data)
    assert build(compose_raw(["data=prompts", "language=fr"]).data).split == "fr"


def test_mini_does_not_run_on_human_speech():
    with pytest.raises(UserError, match=r"data=prompts: is natural speech.*model=tiny\.en"):
        compose(["method=offline", "model=mini", "data=prompts"])


# -- The first command of a newcomer: the best model and speech that can be had --


@pytest.mark.parametrize(
    ("lacking", "overrides", "said"),
    [
        ((), ["model=tiny.en", "data=prompts", "data.split=dev", "limit=15"], ""),
        (("prompts",), ["model=tiny.en", "data=voices", "limit=15"], "the prompts cannot be had"),
        (("tiny.en", "prompts"), ["model=mini", "data=mini", "limit=15"], "tiny.en cannot be had"),
    ],
)
def test_the_demo_takes_the_best_that_can_be_had_and_says_what_it_does_without(
    lacking, overrides, said, monkeypatch, capsys
):
    asked = []

    def obtain(name):
        asked.append(name)
        if name in lacking:
            raise UserError("no network")

    monkeypatch.setattr(demo, "get_real", lambda: obtain("tiny.en"))
    monkeypatch.setattr(demo, "get_prompts", lambda language: obtain("prompts"))
    assert demo.choose() == overrides
    told = capsys.readouterr().err
    assert said in told and told.count("cannot be had here (no network)") == bool(lacking)
    assert asked == (["tiny.en"] if "tiny.en" in lacking else ["tiny.en", "prompts"])


@pytest.fixture
def started(monkeypatch):
    """What the demo runs, without running it."""
    lines = []

    def run(argv, *present):
        lines.append(CommandLine(argv))
        return 0

    monkeypatch.setattr(demo, "get_real", lambda: None)
    monkeypatch.setattr(demo, "get_prompts", lambda language: None)
    monkeypatch.setattr("streaming_asr.run.command.main", run)
    return lines


@pytest.mark.parametrize(
    ("given", "split"), [([], "dev"), (["data=prompts"], "dev"), (["data=mini"], None)]
)
def test_the_demo_names_the_split_of_its_own_corpus_only(given, split, started):
    assert demo.main(given) == 0
    assert [line.get("data.split") for line in started] == [split, split]


@pytest.mark.parametrize(
    ("given", "cells"),
    [
        ([], [(True, "offline,whisperrt", "300ms", "15"), (True, "hush_word", "1s", "15")]),
        (["limit=4"], [(True, "offline,whisperrt", "300ms", "4"), (True, "hush_word", "1s", "4")]),
        (["method=ufal"], [(False, "ufal", "300ms", "15")]),
        (["chunk=1s"], [(False, "whisperrt", "1s", "15")]),
        (["-m", "method=ufal,u2"], [(True, "ufal,u2", "300ms", "15")]),
    ],
)
def test_the_demo_compares_methods_where_none_is_named(given, cells, started):
    assert demo.main(given) == 0
    keys = ("method", "chunk", "limit")
    assert [(line.multirun, *(line.get(key) for key in keys)) for line in started] == cells
    assert {line.get("name") for line in started} == {"demo"}


def test_ctrl_c_in_one_sweep_ends_the_demo(started, monkeypatch):
    def stopped(argv, *present):
        started.append(CommandLine(argv))
        return 130

    monkeypatch.setattr("streaming_asr.run.command.main", stopped)
    with pytest.raises(SystemExit) as end:
        demo.main([])
    assert end.value.code == 130
    assert len(started) == 1
