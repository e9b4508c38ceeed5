"""A stranger's recordings: their text, subtitles and JSON, and a name for each that fails."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from containers import Track, write_recording
from report_cells import embedded

from streaming_asr.commands import compare, transcribe
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Folder, Mini
from streaming_asr.corpora.audio import doubts, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import committed_words, read_log
from streaming_asr.live import command as live
from streaming_asr.method import SAMPLE_RATE, Update, Word
from streaming_asr.run import command as run
from streaming_asr.run import obtain as get
from streaming_asr.text.subtitles import Segment, add_timed, cues, lasting, lines, srt, vtt
from streaming_asr.utterance import TimedWord

MINI = ("model=mini", "chunk=1s")


@pytest.fixture(scope="module")
def talk(tmp_path_factory):
    """A short clip of mini's as a phone would have recorded it."""
    clip = min(Mini().utterances(), key=lambda each: each.duration_s)
    track = Track("aac", 16_000, sound=tuple(clip.load()))
    return write_recording(tmp_path_factory.mktemp("phone") / "talk.m4a", [track])


def test_good_files_are_transcribed_and_bad_ones_named(talk, tmp_path, capsys):
    bad = tmp_path / "bad.webm"
    bad.write_bytes(b"no audio")
    names = [str(talk), str(bad), str(tmp_path / "none.wav")]
    out = tmp_path / "out"
    assert transcribe.main([*names, *MINI, "--srt", "--json", "--vtt", "--out", str(out)]) == 1
    told = capsys.readouterr()
    result = json.loads((out / "talk.json").read_text())
    assert told.out == f"{talk}:\n{result['text']}\n\n" and len(result["text"].split()) > 3
    assert f"error: {bad}: not readable as audio" in told.err
    assert ", simul_whisper, mini, chunk=1s\n" in told.err
    assert f"error: {names[2]}: no such folder or file" in told.err
    assert "2 of 3 recordings could not be transcribed" in told.err
    assert "".join(word["text"] for word in result["words"]).strip() == result["text"]
    starts = [word["start"] for word in result["words"]]
    assert starts == sorted(starts) and starts[0] < starts[-1] < result["duration_s"]
    assert (result["model"], result["chunk"]) == ("mini", "1s")
    assert sorted(path.name for path in out.iterdir()) == ["talk.json", "talk.srt", "talk.vtt"]
    assert (out / "talk.srt").read_text().startswith("1\n00:00:0")


def test_a_url_a_playlist_and_a_channel_that_is_no_number_are_named(talk, tmp_path, capsys):
    playlist = tmp_path / "list.m3u8"
    playlist.write_text("#EXTM3U\nhttps://example.org/a.ts\n")
    url = "https://example.org/talk.mp3?a=b"
    assert transcribe.main([url, str(playlist), str(talk), *MINI]) == 1
    told = capsys.readouterr()
    assert f"error: {url}: is a URL; download the recording" in told.err
    assert f"error: {playlist}: not readable as audio (it holds text)" in told.err
    assert "2 of 3 recordings could not be transcribed" in told.err
    for number in ("0", "-1", "x", "２", "9" * 5000):
        assert transcribe.main([str(talk), *MINI, f"channel={number}"]) == 2
        assert ": must be a number from 1 to 9999, as in" in capsys.readouterr().err


def test_one_good_file_is_its_text_alone_and_status_0(talk, capsys):
    assert transcribe.main([str(talk), *MINI]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["chunk=1s"], "no recording given"),
        (["{talk}", "chunk=0"], "must be positive"),
        *(
            (["{talk}", wrong], f"error: {wrong}: has no effect in transcribe; leave it out\n")
            for wrong in ("limit=1", "batch=8", "data.snr_db=0", "name=foo", "tracker=wandb")
        ),
        (["{talk}", "--srt", "--out", "{talk}/x"], "cannot be written there (Not a directory)"),
    ],
)
def test_what_cannot_run_is_refused_before_weights_load(
    arguments, message, talk, monkeypatch, capsys
):
    monkeypatch.setattr(transcribe, "method_of", lambda config: pytest.fail("weights load"))
    assert transcribe.main([*(a.format(talk=talk) for a in arguments), "model=mini"]) == 2
    assert message in capsys.readouterr().err


def test_a_setting_that_the_method_refuses_is_no_fault_of_the_recording(talk, capsys):
    assert transcribe.main([str(talk), *MINI, "method.beam=abc"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == "error: beam=abc: must be a whole number" and len(told) == 2


def test_a_path_with_blanks_that_the_shell_took_apart_is_known(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("my talks").mkdir()
    Path("my talks/my talk.wav").touch()
    assert transcribe.main(["my", "talks/my", "talk.wav", *MINI]) == 2
    assert capsys.readouterr().err == (
        "error: my talks/my talk.wav: came in 3 parts; quote a path that holds blanks\n"
    )


def test_a_name_that_begins_with_a_dash_is_written_as_a_path(talk, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("-dash.wav", "--srt.wav"):
        Path(name).write_bytes(b"no audio")
        assert transcribe.main([name, *MINI]) == 2
        told = f"error: {name}: begins as an option does; write ./{name}\n"
        assert capsys.readouterr().err == told
        for names in (["--", name], [f"./{name}"]):
            assert transcribe.main([*MINI, *names]) == 1
            assert f"error: {name}: not readable as audio" in capsys.readouterr().err


def test_what_could_not_be_transcribed_is_counted_among_all_that_was_named(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "folder.wav").mkdir()
    (tmp_path / "bad.wav").write_bytes(b"no audio")
    names = [str(tmp_path / name) for name in ("pipe.wav", "folder.wav", "bad.wav", "none.wav")]
    assert transcribe.main([*names, *MINI]) == 1
    assert "4 of 4 recordings could not be transcribed" in capsys.readouterr().err


def test_two_recordings_of_one_name_do_not_write_one_file(talk, tmp_path, capsys):
    one, other = tmp_path / "talk.wav", tmp_path / "talk.m4a"
    for file in (one, other):
        file.write_bytes(b"")
    assert transcribe.main([str(one), str(other), "--srt", *MINI]) == 2
    assert "talk.srt: of two recordings; rename one of them" in capsys.readouterr().err


def test_files_of_one_name_keep_their_folders(talk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for day in ("day1", "day2"):
        (tmp_path / "meetings" / day).mkdir(parents=True)
        shutil.copy(talk, f"meetings/{day}/audio1.m4a")
    for names in (["meetings"], ["meetings/day1/audio1.m4a", "meetings/day2/audio1.m4a"]):
        shutil.rmtree("out", ignore_errors=True)
        assert transcribe.main([*names, *MINI, "--srt", "--out", "out"]) == 0
        written = sorted(str(path) for path in Path("out").rglob("*.*"))
        assert written == ["out/day1/audio1.srt", "out/day2/audio1.srt"]


def test_what_is_replaced_is_kept(talk, tmp_path, capsys):
    mine = b"mine\r\n\xff\n"
    (tmp_path / "talk.srt").write_bytes(mine)
    command = [str(talk), *MINI, "--srt", "--out", str(tmp_path)]
    assert transcribe.main(command) == 0
    ours = (tmp_path / "talk.srt").read_bytes()
    assert ours != mine and (tmp_path / "talk.srt.bak").read_bytes() == mine
    told = capsys.readouterr().err
    assert f"wrote {tmp_path}/talk.srt (replaced; the old one is talk.srt.bak)" in told
    assert transcribe.main(command) == 0  # the same again: nothing more to keep
    (tmp_path / "talk.srt").write_bytes(b"corrected")
    assert transcribe.main(command) == 0
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {"talk.srt": ours, "talk.srt.bak": mine, "talk.srt.bak1": b"corrected"}


def test_names_of_any_length_and_bytes(talk, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = [f"interview_with_guest_number_{n}.m4a" for n in range(12)]
    names += [os.fsdecode(b"caf\xe9.m4a"), "zz.m4a"]
    for name in names:
        os.link(talk, name)
    Path("._zz.m4a").write_bytes(b"\0\5\x16\7Mac OS X")
    for given in (names, ["."]):
        assert transcribe.main([*given, *MINI, "--json", "--out", "out"]) == 0
        told = capsys.readouterr()
        texts = [block.partition(":\n")[2] for block in told.out.split("\n\n")][:-1]
        assert len(texts) == 14 and len(set(texts)) == 1 and len(texts[0].split()) > 3
        assert r"caf\xe9.m4a:" in told.out
    assert json.loads(Path("out", r"caf\xe9.json").read_text())["file"] == r"caf\xe9.m4a"
    long = "https://example.org/" + 5000 * "a"
    assert transcribe.main([long, "zz.m4a", 300 * "b" + ".wav", *MINI]) == 1
    told = capsys.readouterr().err
    assert "is a URL" in told and "2 of 3 recordings could not be transcribed" in told
    assert transcribe.main(["._zz.m4a", *MINI]) == 1
    assert "holds what macOS notes about another file" in capsys.readouterr().err


def test_a_channel_or_each_of_two_speakers(
    tmp_path, monkeypatch, capsys,
    caplog
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    clips = sorted(Mini().utterances(), key=lambda each: each.duration_s)[:2]
    sounds = [clip.load() for clip in clips]
    both = np.zeros((max(map(len, sounds)), 2), np.float32)
    for channel, sound in enumerate(sounds):
        both[: len(sound), channel] = sound
        soundfile.write(f"{channel + 1}.wav", both[:, channel], 16_000, "FLOAT")
    soundfile.write("call.wav", both, 16_000, "FLOAT")
    assert transcribe.main(["1.wav", "2.wav", *MINI]) == 0
    alone = [block.partition(":\n")[2] for block in capsys.readouterr().out.split("\n\n")][:2]
    assert not caplog.text and len(set(alone)) == 2
    assert transcribe.main(["call.wav", *MINI]) == 0
    assert "call.wav: its channels 1 and 2 hold different sounds, as of two" in caplog.text
    capsys.readouterr()
    for number in (1, 2):
        assert transcribe.main(["call.wav", f"channel={number}", *MINI]) == 0
        assert capsys.readouterr().out.strip() == alone[number - 1]
    assert transcribe.main(["call.wav", "channel=each", "--srt", *MINI]) == 0
    told = capsys.readouterr().out
    assert told == "".join(f"call.wav, channel {n}:\n{text}\n\n" for n, text in enumerate(alone, 1))
    assert sorted(path.name for path in Path().glob("*.srt")) == [
        "call-channel1.srt", "call-channel2.srt"
    ]  # fmt: skip
    assert transcribe.main(["call.wav", "channel=3", *MINI]) == 1
    assert "has 2 channels, none has the number 3" in capsys.readouterr().err
    assert transcribe.main(["call.wav", "channel=left", *MINI]) == 2
    assert "channel=left: must be a number from 1 to 9999" in capsys.readouterr().err
    heard = {u.id: u.load() for u in Folder(Path("call.wav"), channel="each").utterances()}
    for number, sound in enumerate(sounds, 1):
        np.testing.assert_array_equal(heard[f"call-channel{number}"][: len(sound)], sound)
    assert (
        compare.main(["call.wav", "channel=each", "method=offline", *MINI, "data.align=null"]) == 0
    )
    (log,) = Path("outputs/compare/call").rglob("events.jsonl")
    assert [u.utt for u in read_log(log).utterances] == ["call-channel1", "call-channel2"]


def test_a_method_that_fails_or_takes_words_back_is_told_right(talk):
    class Wavering:
        lookahead_samples = 0

        def start(self, **_: object) -> list[int]:
            return []

        def step(self, state: list[int], audio: object, *, last: bool) -> Update:
            state.append(1)
            if len(state) == 1:
                return Update(committed=(Word(" one"), Word(" tow")))
            if fails:
                raise RuntimeError("no memory for this")
            return Update(committed=(Word(" two"),) if last else (), retracted=int(last))

    config = compose(MINI)
    samples = np.zeros(3 * 16_000, np.float32)
    fails = False
    told = transcribe.transcript(Wavering(), samples, talk, config)
    assert told.text == "one two"
    # " one" and " tow" share the first second; " two" has what was heard from there on.
    assert [(w.start, w.end) for w in told.words] == [(0.0, 0.5), (0.5, 3.0)]
    fails = True
    with pytest.raises(UserError, match=r"talk.m4a: RuntimeError: no memory for this"):
        transcribe.transcript(Wavering(), samples, talk, config)
    fails = False
    for number, kind in (
        (errno.EPIPE, BrokenPipeError),  # nobody reads on, as behind `| head`
        (errno.ENOSPC, OSError),
        (errno.ECONNRESET, UserError),  # of a method that asks a server
    ):

        def show(_, number=number):
            raise OSError(number, os.strerror(number))

        with pytest.raises(kind) as error:
            transcribe.transcript(Wavering(), samples, talk, config, show)
        assert isinstance(error.value, UserError) == (kind is UserError)


def spoken(text, start=0.0, word_s=0.3):
    """The words of a text, said one after the other."""
    return [
        Word(f" {word}", start + i * word_s, start + (i + 1) * word_s)
        for i, word in enumerate(text.split())
    ]


FOX = "the quick brown fox jumps over the lazy dog near the bank of the river every single morning"
LIGHT = "the sun rises early over the quiet hills and it lights up the whole wide valley."


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        # A sentence's end ends a cue, though the next sentence had room.
        (
            spoken("It has rained all day. We stay at home."),
            ["It has rained all day.", "We stay at home."],
        ),
        # 91 characters: two cues of like lengths, not 84 and the two words "single morning".
        (
            spoken(FOX),
            [
                "the quick brown fox jumps over the lazy dog",
                "near the bank of the river every single morning",
            ],
        ),
        # Two words join their neighbour where it has room, and stand alone where it has none.
        (spoken("Well yes. We stay at home."), ["Well yes. We stay at home."]),
        (
            [*spoken(LIGHT, word_s=0.2), *spoken("Well yes.", 3.2)],
            [LIGHT, "Well yes."],
        ),
        # A pause ends a cue; after a comma rather than in mid-phrase; 7 s at most.
        (
            [*spoken("we stay at home"), *spoken("and read a book", 1.8)],
            ["we stay at home", "and read a book"],
        ),
        (
            spoken("when it rains all day long, we stay at home and read the books that we have "
                   "bought"),
            [
                "when it rains all day long,",
                "we stay at home and read the books that we have bought",
            ],
        ),
        (
            spoken("bed bed bed bed bed bed bed bed bed bed", word_s=1.0),
            ["bed bed bed bed bed", "bed bed bed bed bed"],
        ),
        ([Word(" Donaudampf", 0.0, 9.0)], ["Donaudampf"]),
        ([], []),
    ],
)  # fmt: skip
def test_subtitles_break_where_a_reader_would(words, shown):
    found = cues(words)
    assert [cue.text for cue in found] == shown
    assert [word.start for word in words[:1]] == [cue.start for cue in found[:1]]
    shortest_s = [cue.start + 5 / 6 for cue in found[-1:]]
    ends_s = [max(word.end, end) for word, end in zip(words[-1:], shortest_s, strict=True)]
    assert [cue.end for cue in found[-1:]] == pytest.approx(ends_s)


@pytest.mark.parametrize("seed", range(20))
def test_a_cue_lasts_never_overlaps_the_next_and_never_ends_before_its_words(seed):
    """Words in order of their starts, some without duration, some over each other."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.choice([0.0, 0.02, 0.3, 0.6, 2.0], 60))
    ends = np.maximum.accumulate(starts + rng.choice([0.0, 0.02, 0.3, 1.0], 60))
    texts = [f" {'word' * n}{end}" for n, end in
             zip(rng.integers(1, 4, 60), rng.choice(["", ",", "."], 60), strict=True)]  # fmt: skip
    words = [Word(text, float(a), float(b)) for text, a, b in zip(texts, starts, ends, strict=True)]
    found = cues(words)
    assert "".join(texts).split() == " ".join(cue.text for cue in found).split()
    assert all(cue.end - cue.start >= 5 / 6 - 1e-9 for cue in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    n_words = 0
    for cue in found:
        inside = words[n_words : n_words + len(cue.text.split())]
        n_words += len(inside)
        assert cue.start >= (inside[0].start or 0.0)
        assert cue.end >= max(word.end or 0.0 for word in inside)


def test_words_of_one_moment_make_one_cue_and_a_short_one_is_shown_into_the_pause():
    words = [Word(" It", 1.0, 1.0), Word(" rains.", 1.0, 1.0), Word(" No.", 1.2, 1.4)]
    assert cues(words) == [Segment(1.0, pytest.approx(11 / 6), "It rains. No.")]
    pair = [Segment(0.0, 0.1, "a"), Segment(0.5, 0.6, "b"), Segment(5.0, 6.0, "c")]
    assert [(cue.start, cue.end) for cue in lasting(pair)] == [
        (0.0, pytest.approx(5 / 6)), (pytest.approx(5 / 6), pytest.approx(10 / 6)), (5.0, 6.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 42, ["x" * 42]),
        (FOX[:43], ["the quick brown fox", "jumps over the lazy dog"]),
        (
            "When it rains, we stay at home and read books",
            ["When it rains,", "we stay at home and read books"],
        ),
        ("雨" * 50, ["雨" * 16, "雨" * 16, "雨" * 16, "雨" * 2]),
        ("今天天气很好，我们一起去公园散步吧。", ["今天天气很好，", "我们一起去公园散步吧。"]),
        ("雨" * 16 + "。", ["雨" * 8, "雨" * 8 + "。"]),
        (
            "きょうはいいてんき、さくらをみにいく",
            ["きょうはいいてんき、", "さくらをみにいく"],
        ),
        (
            "오늘은 날씨가 아주 좋아서 공원에 산책하러 갔어요",
            ["오늘은 날씨가 아주 좋아서", "공원에 산책하러 갔어요"],
        ),
    ],
)
def test_a_long_cue_has_two_lines_the_lower_one_the_longer(text, shown):
    assert lines(text).splitlines() == shown
    assert srt([Segment(0, 1, text)]).splitlines()[2:] == shown
    assert vtt([Segment(0, 1, text)]).splitlines()[3:] == shown


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("letters", "stops", "most"),
    [("今天气很好我们起去公园散步", "，。！", 16), ("きょうはとてもいいてんき桜を", "、。", 13)],
)
def test_lines_of_wide_letters_are_short_and_none_begins_with_a_stop(seed, letters, stops, most):
    rng = np.random.default_rng(seed)
    text = "".join(
        rng.choice(list(letters)) + (rng.choice(list(stops)) if rng.random() < 0.1 else "")
        for _ in range(120)
    )
    words = [Word(letter, 0.2 * i, 0.2 * i + 0.2) for i, letter in enumerate(text)]
    found = cues(words)
    assert "".join(cue.text for cue in found) == text
    for cue in found:
        shown = lines(cue.text).splitlines()
        assert len(shown) <= 2 and "".join(shown) == cue.text
        assert max(map(len, shown)) <= most
        assert not any(line.startswith(tuple(stops)) for line in shown)


def test_words_without_times_share_what_was_heard_and_none_lasts_no_time():
    words = []
    assert add_timed(words, 0, [Word(" a"), Word(" cat's")], 4.0) == 0
    assert [(w.start, w.end) for w in words] == [(0.0, 1.0), (1.0, 4.0)]  # 2 and 6 letters
    # the flush after the last chunk hears nothing more: its words share the last one's time
    assert add_timed(words, 0, [Word(" meows"), Word(" here.")], 4.0) == 1
    assert [(w.start, w.end) for w in words] == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]
    assert add_timed(words, 1, [Word(" then", 4.5, 5.0)], 5.0) == 3
    assert (words[-1].start, words[-1].end) == (4.5, 5.0)  # the method's own


def test_subtitles_are_written_as_srt_and_vtt():
    assert vtt([Segment(0, 1, "A --> B & C")]).splitlines()[3] == "A --&gt; B &amp; C"
    shown = [Segment(0.0, 1.2, "a < b"), Segment(3661.5, 3662.0, "c")]
    assert srt(shown) == (
        "1\n00:00:00,000 --> 00:00:01,200\na < b\n\n2\n01:01:01,500 --> 01:01:02,000\nc\n"
    )
    assert vtt(shown) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.200\na &lt; b\n\n01:01:01.500 --> 01:01:02.000\nc\n"
    )


# -- the model that is taken -----------------------------------------------------------------


def test_real_whisper_is_taken_and_obtained_unless_another_is_asked_for(monkeypatch, capsys):
    obtained = []

    def obtain(model):
        obtained.append(getattr(model, "model", None))
        return get.Got(Path(), "", "MIT", "")

    monkeypatch.setattr(get, "find_here", lambda name: None)
    monkeypatch.setattr(get, "get_model", obtain)
    for given, wanted in (
        (["chunk=1s"], ["tiny.en"]),
        (["model=base", "method=ufal"], ["base"]),
        (["model=mini"], []),
        (["-m", "model=mini,base", "method=offline"], ["base"]),
    ):
        plan = get.planned(CommandLine(given))
        assert len(plan.cells) == 1 + ("-m" in given)
        assert obtained == wanted
        obtained.clear()
    assert "tiny.en: licence MIT" in capsys.readouterr().err


def test_where_a_model_cannot_be_had_run_says_so(monkeypatch):
    def refuse(model):
        raise UserError("no network")

    monkeypatch.setattr(get, "find_here", lambda name: None)
    monkeypatch.setattr(get, "find", refuse)
    monkeypatch.setattr(get, "get_model", refuse)
    with pytest.raises(UserError, match="no network"):
        get.planned(CommandLine(["method=whisperrt", "chunk=1s"]))


@pytest.mark.parametrize(
    ("program", "command", "message"),
    [
        (transcribe, ["{talk}", "method=whisprt"], "method=whisprt: no such method"),
        (transcribe, ["{talk}", "method=u2", "method.weights=nowhere"], "nowhere"),
        (transcribe, ["none.wav"], "none.wav: no such folder or file"),
        (transcribe, ["bad.mp3"], "bad.mp3: not readable as audio"),
        (compare, ["audio={talk}", "method=offline,ufall"], "method=ufall: no such method"),
        (run, ["data.path={talk}", "chunk=0"], "chunk=0: must be positive"),
        (transcribe, ["{talk}", "--chunk", "300ms"], "write chunk=300ms"),
        (transcribe, ["{talk}", "method=ufal,offline"], "compare audio=FILE` take several"),
        (live, ["audio={talk}", "--chunk=1s"], "write chunk=1s"),
    ],
)
def test_a_slip_is_answered_before_weights_are_downloaded(
    program, command, message, talk, tmp_path, monkeypatch, capsys
):
    obtained = []
    monkeypatch.chdir(tmp_path)
    Path("bad.mp3").write_bytes(b"no audio")
    monkeypatch.setattr("streaming_asr.models.find.find_packaged", lambda model: None)
    monkeypatch.setattr("streaming_asr.models.find.cached", lambda source: None)
    monkeypatch.setattr(get, "get_model", obtained.append)
    given = [word.format(talk=talk) for word in command]
    assert program.main(given) in (1, 2) and obtained == []
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["data.path=a.wav"], ["data.path=a.wav", "data=folder"]),
        (["data.path=a.jsonl", "model=mini"], ["data.path=a.jsonl", "model=mini", "data=manifest"]),
        (["data.path=x", "data=kaldi"], ["data.path=x", "data=kaldi"]),
        (["chunk=1s"], ["chunk=1s"]),
    ],
)
def test_a_path_alone_is_a_corpus(given, meant):
    (line := CommandLine(given)).default_data()
    assert line.settings == meant


def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    get.obtain_models([])
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    get.obtain_models([])
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


# -- side by side ----------------------------------------------------------------------------


def test_compare_runs_each_method_on_the_recording_and_shows_the_page(
    talk, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    command = [f"audio={talk}", "method=whisperrt,reencode", *MINI]
    assert compare.main(command) == 0 and opened == []
    (page,) = (tmp_path / "outputs" / "compare" / "talk").glob("*/report.html")
    assert f"report:  {page.relative_to(tmp_path)}" in capsys.readouterr().out
    assert len(list(page.parent.glob("*/metrics.json"))) == 2
    assert compare.main([*command, "--open"]) == 0  # both are there already
    assert opened == [page.as_uri()]


def test_compare_times_the_words_of_a_recording_of_any_name_and_tells_both_methods(
    talk, tmp_path, monkeypatch, capsys
):
    odd = tmp_path / "it's [odd], method=x.m4a"
    shutil.copy(talk, odd)
    monkeypatch.chdir(tmp_path)

    def times(heard, *_):
        text = "".join(word for word, _ in committed_words(heard[0][1].steps)).strip()
        words = text.split()
        each_s = heard[0][1].duration_s / max(len(words), 1)
        timed = [TimedWord(w, k * each_s, (k + 1) * each_s) for k, w in enumerate(words)]
        return text, timed, "a fake"

    monkeypatch.setattr("streaming_asr.align.heard.timed", times)
    assert compare.main([f"audio={odd}", "method=offline,reencode", *MINI]) == 0
    (page,) = (tmp_path / "outputs" / "compare" / "it_s__odd___method_x").glob("*/report.html")
    assert f"report:  {page.relative_to(tmp_path)}" in capsys.readouterr().out
    cells = embedded(page)["cells"]
    assert {cell["label"] for cell in cells} == {"offline", "reencode"}
    late = "word_latency_committed_p50_ca_s"
    assert all(c["metrics"][late] > 0 and c["metrics"]["wer"] is None for c in cells)


@pytest.mark.parametrize("command", [["method=ufal"], ["audio=none.wav", "method=ufal"]])
def test_compare_without_a_recording_is_refused(command, capsys):
    assert compare.main(command) == 2
    assert "audio" in capsys.readouterr().err


def test_a_recording_whose_text_is_a_full_stop_has_no_word(talk):
    class FullStop:
        lookahead_samples = 0

        def start(self, **_: object) -> None:
            return None

        def step(self, state: None, audio: object, *, last: bool) -> Update:
            return Update((Word(" .", 0.1, 0.2),) if last else (), () if last else (Word(" ."),))

    told = transcribe.transcript(FullStop(), np.zeros(32_000, np.float32), talk, compose(MINI))
    assert (told.words, told.text, told.written("srt")) == ([], "", "")
    assert json.loads(told.written("json"))["words"] == []


# -- Recordings that a microphone or an editor has spoilt --


RATE = SAMPLE_RATE


def tone(peak=0.5, offset=0.0):
    return (peak * np.sin(np.arange(RATE) * 0.3) + offset).astype(np.float32)


@pytest.mark.parametrize(
    ("samples", "sentence"),
    [
        (np.zeros(RATE, np.float32), "is silent: all of its samples are 0"),
        (tone(5e-4), "is almost silent, its peak is -66 dB"),
        (np.clip(tone(3.0), -1, 1), "is clipped: 79 % of its samples are at full scale"),
        (tone(0.3, 0.2), "has a DC offset of 0.20"),
        (tone(), None),
        (tone(0.3, 0.05), None),
        (np.array([0.1], np.float32)[:1] * 0 + 0.05, None),
    ],
)
def test_what_is_wrong_with_a_sound_is_named_in_words(samples, sentence):
    answer = doubts(samples)
    if sentence is None or answer is None:
        assert answer is sentence
    else:
        assert answer.startswith(sentence)


def test_a_stereo_file_in_antiphase_is_heard_by_its_first_channel_and_said(tmp_path, caplog):
    left = tone()
    for name, right in (("anti", -left), ("wide", tone(0.1)), ("half", 0 * left)):
        soundfile.write(tmp_path / f"{name}.wav", np.stack([left, right], 1), RATE, "FLOAT")
    assert np.array_equal(load_audio(tmp_path / "anti.wav"), left)
    assert "anti.wav: its channels cancel each other; only the first is used" in caplog.text
    caplog.clear()
    assert np.abs(load_audio(tmp_path / "wide.wav")).max() == pytest.approx(0.3, abs=0.01)
    assert np.array_equal(load_audio(tmp_path / "half.wav"), left / 2) and not caplog.text


def test_spoilt_recordings_are_transcribed_or_their_silence_is_said(tmp_path, capsys, caplog):
    speech = min(Mini().utterances(), key=lambda each: each.duration_s).load()
    noise = np.random.default_rng(1).normal(0, 0.1, 4 * RATE)
    sounds = {
        "plain": speech,
        "anti": np.stack([speech, -speech], 1),
        "zeros": np.zeros(2 * RATE),
        "sample": np.full(1, 0.1),
        "noise": noise,
    }
    for name, samples in sounds.items():
        soundfile.write(tmp_path / f"{name}.wav", samples, RATE, "FLOAT")
    files = [str(tmp_path / f"{name}.wav") for name in sounds]
    with caplog.at_level(logging.WARNING):
        assert transcribe.main([*files, "model=mini", "chunk=1s"]) == 0
    told = capsys.readouterr()
    texts = [block.partition(":\n")[2].strip() for block in told.out.split("\n\n")]
    assert len(texts[0].split()) > 3 and texts[1] == texts[0]
    assert texts[2:4] == ["", ""] and len(texts[4].split()) < 4
    assert "sample.wav: no words were found; gate=none lets other sounds through\n" in told.err
    assert "plain.wav: no words" not in told.err and "zeros.wav: no words" not in told.err
    assert "zeros.wav: is silent" in told.err and "anti.wav: its channels" in caplog.text
