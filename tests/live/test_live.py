"""Live streams and the terminal's command: chunks, growth, logs, files, a missing microphone."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from align_fake import choose_fake
from fakes import BatchedTicker, FailsOn, Ticker, noise, utterance
from places import HANG_S
from run_fakes import Parrot, arguments
from served import until

from streaming_asr.align.heard import _pieces
from streaming_asr.corpora.audio import Resampler
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.live import command as live
from streaming_asr.live.cells import LiveCell
from streaming_asr.live.streams import Engine, LiveStep, LiveStream
from streaming_asr.live.worker import Worker
from streaming_asr.score import score_folder
from streaming_asr.score.command import main as score_main
from streaming_asr.simulate.feeds import simulate
from streaming_asr.utterance import TimedWord


class Listener:
    """Collects what the streams of a worker give."""

    def __init__(self) -> None:
        self.steps = []
        self.seen = []
        self.error = None
        self.done = threading.Event()

    def opened(self, worker: Worker, engine: Engine, *, grows: bool = True) -> LiveStream:
        return worker.open(
            engine, "u1", language="en", grows=grows, on_step=self._step, on_end=self._end
        )

    def _step(self, _: LiveStream, seen: LiveStep) -> None:
        self.seen.append(seen)
        self.steps.append(seen.step)

    def _end(self, _: LiveStream, error: str | None) -> None:
        self.error = error
        self.done.set()


def engine(method=None):
    return Engine("ticker", method or Ticker(), chunk=4800, first_chunk=9600)


def test_a_live_stream_logs_the_steps_of_a_simulated_one(tmp_path):
    said = utterance(seconds=2.53)
    with EventWriter(tmp_path / "events.jsonl", {}) as writer:
        simulate(
            Ticker(lookahead_samples=240),
            [said],
            writer=writer,
            feed="fixed",
            chunk_samples=4800,
            first_chunk_samples=9600,
        )
    (simulated,) = read_log(tmp_path / "events.jsonl").utterances
    heard, samples = Listener(), said.load()
    with Worker() as worker:
        stream = heard.opened(worker, engine(Ticker(lookahead_samples=240)), grows=False)
        for begin in range(0, len(samples), 700):
            stream.feed(samples[begin : begin + 700])
        stream.end()
        assert heard.done.wait(HANG_S)
    expected = [(s.kind, s.audio_samples, s.committed, s.partial) for s in simulated.steps]
    assert [(s.kind, s.audio_samples, s.committed, s.partial) for s in heard.steps] == expected
    assert stream.log.duration_samples == len(samples)
    assert stream.log.audio_hash == simulated.audio_hash


class Finds(Ticker):
    """Finds out that all streams that name no language are in German."""

    def start(self, *, language=None, **settings):
        self.language = language
        return super().start(language=language, **settings)

    def step(self, state, audio, *, last):
        update = super().step(state, audio, last=last)
        return update if self.language else replace(update, language="de")


@pytest.mark.parametrize(
    ("named", "asked", "heard_in"),
    [(None, None, None), ("detect", None, None), ("fr", None, "fr"), ("fr", "it", "it")],
)
def test_a_language_is_pinned_by_the_settings_or_a_client_else_found_and_shown(
    named, asked, heard_in, tmp_path
):
    (tmp_path / "training.json").write_text('{"languages": ["en", "it"]}')
    config = {"language": named, "method": {"weights": str(tmp_path)}}
    cell = LiveCell(tmp_path, engine(method := Finds()), {"config": config}, "finds")
    with Worker() as worker:
        cell.begin(worker, "u1", grows=False, language=asked)
        cell.stream.feed(noise(1.0))
        cell.stream.end()
        assert cell.done.wait(HANG_S)
    shown = heard_in or "de"
    assert (method.language, cell.language) == (heard_in, shown)
    assert cell.figures().startswith(f"{shown} · ")
    assert (cell.notice is None) == (shown == "it")
    path = cell.write()
    (said,) = read_log(path).utterances
    assert said.detected == (None if heard_in else "de")


def test_where_computing_falls_behind_a_step_takes_all_whole_chunks():
    heard = Listener()
    worker = Worker()  # not begun yet, as if it computed
    stream = heard.opened(worker, engine())
    stream.feed(noise(1.55))
    with worker:
        until(lambda: heard.steps)
        assert heard.steps[0].audio_samples == 9600 + 3 * 4800  # 1.5 s; 50 ms wait
        assert heard.seen[0].queued_s == pytest.approx(0.05)
        stream.end()
        assert heard.done.wait(HANG_S)
    assert [s.kind for s in heard.steps] == ["audio", "flush"]
    assert heard.steps[-1].audio_samples == 24_800


def test_streams_in_phase_share_a_pass_and_one_that_is_dropped_disturbs_none():
    sizes = []

    class Counting(BatchedTicker):
        def step_many(self, states, audio, *, last):
            sizes.append(len(states))
            return super().step_many(states, audio, last=last)

    worker, shared = Worker(), engine(Counting())
    heard = [Listener() for _ in range(3)]
    streams = [each.opened(worker, shared) for each in heard]
    for stream in streams:
        stream.feed(noise(1.0))
        stream.end()
    streams[1].abandon()
    with worker:
        assert heard[0].done.wait(HANG_S) and heard[2].done.wait(HANG_S)
    assert sizes == [2]
    assert not heard[1].done.is_set() and not worker.streams
    assert heard[0].steps[-1].committed == heard[2].steps[-1].committed != []


def together(voices, method, languages=("en", "en")):
    """What streams that are there at once say, and their logs."""
    worker, shared = Worker(), engine(method)
    streams = []
    for voice, language in zip(voices, languages, strict=True):
        heard = Listener()
        streams.append((heard, heard.opened(worker, shared)))
        streams[-1][1].log.language = language
        streams[-1][1].feed(voice)
        streams[-1][1].end()
    with worker:
        assert all(heard.done.wait(HANG_S) for heard, _ in streams)
    assert not worker.streams
    return [(heard, stream.log) for heard, stream in streams]


def test_a_pass_that_fails_ends_its_streams_with_the_reason_and_no_others():
    loud = type("Loud", (FailsOn, BatchedTicker), {})(lambda audio, heard: audio.max() > 2)
    for heard, log in together([noise(1.0), noise(1.0) * 20], loud):
        assert heard.error == log.error == "ArithmeticError: the fake was told to fail here"
    (heard, log), (other, _) = together([noise(1.0)] * 2, loud)
    assert (heard.error, other.error, log.status) == (None, None, "ok")


def test_a_stream_that_cannot_begin_leaves_those_that_begin_with_it_alone():
    class Knows(BatchedTicker):
        def start(self, *, language=None, **settings):
            if language == "tlh":
                raise UserError("language=tlh: unknown")
            return super().start(language=language, **settings)

    (heard, _), (refused, log) = together([noise(1.5)] * 2, Knows(), ["en", "tlh"])
    assert refused.error == log.error == "language=tlh: unknown"
    assert heard.error is None and heard.steps[-1].kind == "flush"


def test_a_method_that_fails_ends_its_stream_alone_with_the_reason():
    bad, good = Listener(), Listener()
    with Worker() as worker:
        broken = bad.opened(worker, engine(FailsOn(lambda audio, heard: True)))
        whole = good.opened(worker, engine())
        for stream in (broken, whole):
            stream.feed(noise(1.0))
            stream.end()
        assert bad.done.wait(HANG_S) and good.done.wait(HANG_S)
    assert bad.error == broken.log.error == "ArithmeticError: the fake was told to fail here"
    assert (good.error, whole.log.status, broken.log.status) == (None, "ok", "failed")


# -- the command ----------------------------------------------------------------------------


@pytest.fixture
def talk(tmp_path):
    levels = np.repeat(np.array([0, 1, 2, 3, 4], np.float32) / 100, 4800)  # the quick brown ...
    soundfile.write(tmp_path / "talk.wav", levels, 16_000, subtype="FLOAT")
    (tmp_path / "talk.txt").write_text("the quick brown fox leaps")
    return tmp_path / "talk.wav"


def fake(folder, *given, gate="none"):
    flag, conf, *settings = arguments(folder, "name=mine", "align=none", f"gate={gate}", *given)
    return [flag, conf, *(s for s in settings if not s.startswith("data="))]


def test_a_file_is_heard_logged_and_scored(talk, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Parrot.steps = 0
    wanted = fake(tmp_path, f"audio={talk}", "speed=0", "chunk=300ms,100ms", "method.wrong_every=0")
    assert live.main([*wanted, f"reference={talk.with_suffix('.txt')}"]) == 0
    folders = sorted((tmp_path / "outputs" / "mine").iterdir())
    assert len(folders) == 2
    for folder in folders:
        (said,) = read_log(folder / "events.jsonl").utterances
        assert (said.text, said.duration_samples) == ("the quick brown fox leaps", 24_000)
        assert "".join(w for s in said.steps for w in s.committed) == " the quick brown fox jumps"
        assert score_folder(folder)["metrics"]["wer"] == pytest.approx(20.0)
    told = capsys.readouterr().out
    assert "parrot 300ms · none: 5 words · WER 20.0 %" in told
    assert str(folders[0].relative_to(tmp_path) / "events.jsonl") in told


def test_unless_told_otherwise_speech_alone_is_heard(talk, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = [a for a in fake(tmp_path, f"audio={talk}", "speed=0") if a != "gate=none"]
    assert live.main([*given, "method.wrong_every=0"]) == 0
    printed = capsys.readouterr()
    assert "no speech found in 2 s" in printed.out  # the levels of talk.wav are no speech
    assert "behind" not in printed.out  # with speed=0 nothing is late
    assert printed.err.startswith("loading parrot on none ...\n")


def test_without_a_reference_the_first_text_gives_word_times_and_no_errors_are_counted(
    talk, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    choose_fake(monkeypatch)
    given = [a for a in fake(tmp_path, f"audio={talk}", "speed=0") if a != "align=none"]
    assert live.main([*given, "method.wrong_every=0,2", "chunk=300ms"]) == 0
    folders = sorted((tmp_path / "outputs" / "mine").iterdir())
    first, second = (read_log(folder / "events.jsonl") for folder in folders)
    (one,), (other,) = first.utterances, second.utterances
    assert one.text == other.text == "the quick brown fox jumps"
    assert one.words == other.words
    assert one.words is not None and one.words[1] == TimedWord("quick", 0.3, 0.6)
    assert "errors are not counted" in first.header["config"]["data"]["word_times"]
    for folder in folders:
        metrics = score_folder(folder)["metrics"]
        assert metrics["wer"] is None
        assert metrics["word_latency_committed_p50_ca_s"] >= 0
    assert "(medians of the aligned hypothesis)" in capsys.readouterr().out
    assert score_main(["compare", *map(str, folders)]) == 0


def test_a_long_hypothesis_is_aligned_in_pieces_cut_between_words():
    words = [(f" w{i}", [i * 1.0, i * 1.0 + 0.5, None]) for i in range(50)]
    pieces = _pieces(words, 50.0, None)
    assert " ".join(text for text, _, _ in pieces).split() == [f"w{i}" for i in range(50)]
    assert [(round(a, 2), round(b, 2)) for _, a, b in pieces] == [
        (0.0, 20.75), (20.75, 40.75), (40.75, 50.0)
    ]  # fmt: skip
    assert _pieces(words, 50.0, "as read") == [("as read", 0.0, 50.0)]


@pytest.mark.parametrize(
    "argument, rule",
    [
        ("speed=fast", "1 is the file's own speed"),
        ("speed=-1", "1 is the file's own speed"),
        ("align=perhaps", "auto or none"),
        ("audio=nowhere.wav", "no such audio file"),
        ("reference=nowhere.txt", "cannot be read"),
        ("method=whisper_rt", "no such method"),
    ],
)
def test_what_cannot_be_heard_is_refused_before_anything_loads(
    argument, rule, talk, tmp_path, capsys
):
    given = [a for a in fake(tmp_path) if a.partition("=")[0] != argument.partition("=")[0]]
    if not argument.startswith("audio="):
        given.append(f"audio={talk}")
    assert live.main([*given, argument]) == 2
    assert rule in capsys.readouterr().err


class NoMicrophone:
    """A sounddevice on a machine without one."""

    class PortAudioError(Exception):
        pass

    def query_devices(self, kind: str) -> dict[str, float]:
        raise self.PortAudioError("Error querying device -1")


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (NoMicrophone(), "no microphone can be opened"),
        (None, "pip install -e '.[live]'"),
    ],
)
def test_without_a_microphone_the_error_says_what_to_do_before_anything_loads(
    module, message, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    monkeypatch.setattr(live, "planned", lambda line: pytest.fail("a model is obtained"))
    assert live.main(["audio=mic", "method=whisperrt"]) == 2
    told = capsys.readouterr().err
    assert message in told and "audio=FILE" in told


def test_a_microphone_of_another_rate_is_resampled_and_q_ends_it(monkeypatch):
    tone = np.sin(np.arange(48_000) / 48_000 * 2 * np.pi * 440).astype(np.float32)

    class LiveStream:
        def __init__(self, *, samplerate: int, callback, blocksize: int, **_: object) -> None:
            assert samplerate == 48_000 and blocksize == 1920
            for begin in range(0, 48_000, blocksize):
                callback(tone[begin : begin + blocksize, None], blocksize, None, None)

        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    device = SimpleNamespace(
        query_devices=lambda kind: {"default_samplerate": 48_000.0},
        InputStream=LiveStream,
        PortAudioError=OSError,
    )
    monkeypatch.setitem(sys.modules, "sounddevice", device)
    control, heard = live.Control(), []
    with live._open_microphone()(control) as pieces:
        for piece in pieces:
            heard.append(piece)
            control.stopped = len(heard) == 25
    samples = np.concatenate(heard)
    once = Resampler()
    whole = np.concatenate([once.of_samples(tone, 48_000), once.of_frame(None)])
    assert np.array_equal(samples, whole) and len(whole) == 16_000
    assert float(np.abs(samples[100:]).max()) == pytest.approx(1.0, abs=0.01)


class _Flags:
    def __init__(self, overflow: bool) -> None:
        self.input_overflow = overflow


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("unplugged", "the microphone has stopped, as one that was unplugged; the session ends"),
        ("overflow", "0.08 s of the microphone were lost and are silence"),
        ("second", "input 1 of the microphone is silent; input 2 is used"),
        ("zeros", "the microphone gives only zeros; is it muted"),
    ],
)
def test_a_fault_of_the_microphone_is_reported(fault, told, monkeypatch, capsys):
    size, n = 640, 100  # pieces of 40 ms
    tone = np.sin(np.arange(n * size) / 16_000 * 2 * np.pi * 440).astype(np.float32)
    tone[0] = 0.1
    asked = []

    class LiveStream:
        active = True

        def __init__(self, **settings) -> None:
            asked.append({key: settings.get(key) for key in ("device", "channels")})
            data = np.stack([tone * (fault not in ("second", "zeros")), tone], 1)
            data *= fault != "zeros"
            for k in range(n):
                is_lost = fault == "overflow" and k in (10, 20)
                if not is_lost:
                    flags = _Flags(fault == "overflow" and k in (11, 21))
                    settings["callback"](data[k * size : (k + 1) * size], size, None, flags)

        def __enter__(self) -> None:
            self.active = False

        def __exit__(self, *_: object) -> None: ...

    device = {"name": "USB", "max_input_channels": 4, "default_samplerate": 16_000.0}
    speaker = {"name": "speaker", "max_input_channels": 0}
    module = SimpleNamespace(
        query_devices=lambda device_=None, kind=None, **_: device if kind else [speaker, device],
        InputStream=LiveStream,
        PortAudioError=OSError,
    )
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    with live._open_microphone("USB")(live.Control()) as pieces:
        samples = np.concatenate(list(pieces))
    assert asked == [{"device": "USB", "channels": 2}]
    expected = tone * (fault != "zeros")
    if fault == "overflow":
        for k in (10, 20):
            expected[k * size : (k + 1) * size] = 0
    np.testing.assert_array_equal(samples[: n * size], expected)
    assert told in capsys.readouterr().err
    assert live.main(["microphone=list"]) == 0
    assert capsys.readouterr().out == "1  USB, channels: 4\n"
