"""Other people's programs as methods, by stubs.

SIMUL, LOCAL and LIVEKIT are what SimulStreaming 077ea37, whisper_streaming 1f25a1a and
WhisperLiveKit 0.2.26 answered to the first recording of `data=voices`: tiny.en, chunks of 1 s,
SimulStreaming's of 1.2 s. SEGMENTS are what WhisperLive sent for a prompt. All other answers and
messages are written by hand in the form of the program.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from report_cells import write_cell

from experiments.others import programs, servers
from experiments.others.tables import PAGE
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, display_text
from streaming_asr.methods.remote.wire import Change
from streaming_asr.text.tokens import pieces

FOLDER = Path(programs.__file__).parent
TEXT = "And it is tempting to believe that the danger is behind us."
SIMUL = [
    {"text": " And it"},
    {"text": " is tempting to believe"},
    {"text": " that the danger is behind us"},
    {"text": "."},
]
LOCAL = [
    (None, None, ""),
    (0.0, 0.74, " And it is"),
    (0.74, 1.96, " tempting to believe that the"),
    (1.96, 3.12, " danger is behind us."),
    (None, None, ""),
]
LIVEKIT = [" And", " it is tempting to believe", " that the danger is", " behind us", "."]
CUT = [{"text": " un"}, {"text": "repentant heirs"}, {}, {"text": "."}]  # a planted fault


class Stub:
    """A program's object that repeats its answers."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = iter(answers)
        self.n_samples = 0

    def insert_audio_chunk(self, audio: np.ndarray, end_s: float | None = None) -> None:
        self.n_samples += len(audio)

    def process_iter(self, is_last: bool = False) -> Any:
        return next(self._answers)

    finish = process_iter


def stub(answers):
    """What `Online` is given in place of a program."""
    return lambda: Stub(answers)


def livekit(answers):
    """WhisperLiveKit's object with the calls of `Online`."""
    tokens = [([SimpleNamespace(text=text)], 0.0) for text in answers]

    class Processor(Stub):
        def get_buffer(self) -> SimpleNamespace:
            return SimpleNamespace(text=" guess")

    return lambda: programs.LiveKit(Processor(tokens), "simulstreaming")


def updates_of(method, n):
    """The updates of n steps of a second."""
    state, audio = method.start(), np.zeros(SAMPLE_RATE, np.float32)
    return [method.step(state, audio, last=k == n - 1) for k in range(n)]


def texts(words):
    return [word.text for word in words]


@pytest.mark.parametrize(
    ("online", "n", "text", "first", "guess"),
    [
        (stub(SIMUL), 3, TEXT, [" And"], [" it"]),
        (stub(LOCAL), 4, TEXT, [], []),
        (livekit(LIVEKIT), 4, TEXT, [], [" And", " guess"]),
        (stub(CUT), 3, "unrepentant heirs.", [], [" un"]),
    ],
    ids=["SimulStreaming", "whisper_streaming", "WhisperLiveKit", "a word that is cut"],
)
def test_words_of_programs_are_whole_and_final_when_the_next_begins(
    monkeypatch, online, n, text, first, guess
):
    monkeypatch.setattr(programs, "stub", lambda: online, raising=False)
    steps = updates_of(programs.Online(make="experiments.others.programs:stub"), n)
    assert texts(steps[0].committed) == first
    assert texts(steps[0].partial) == guess
    assert display_text(word for step in steps for word in step.committed) == text
    assert not steps[-1].partial
    assert all(word.text[0] == " " for step in steps for word in step.committed)


def apart(last_word, text):
    """A planted fault: each message is words of its own."""
    return [f" {word}" for word in text.split()], ""


@pytest.mark.parametrize("fault", [None, "a cut word", "int8"])
def test_a_planted_fault_is_seen_in_the_table(monkeypatch, tmp_path, fault):
    if fault == "a cut word":
        monkeypatch.setattr(programs, "grown", apart)
    monkeypatch.setattr(programs, "stub", lambda: stub(CUT), raising=False)
    steps = updates_of(programs.Online(make="experiments.others.programs:stub"), 3)
    text = display_text(word for step in steps for word in step.committed)
    settings = {"_target_": "a.Program", "precision": "int8" if fault == "int8" else "float32"}
    for name, hypothesis in (("ufal", "unrepentant heirs."), ("whisper_streaming", text)):
        write_cell(
            tmp_path / "others" / f"method={name},chunk=1000ms",
            texts={"u1": ("unrepentant heirs.", hypothesis)},
            **({"method": settings} if name != "ufal" else {}),
        )
    (ours, theirs) = PAGE.rows(tmp_path)
    assert ours.value("WER %") == 0 and ours.figures["precision"] == "float32"
    assert (theirs.value("WER %") > 0) == (fault == "a cut word")
    assert (theirs.figures["precision"] == "int8") == (fault == "int8")


def test_a_program_that_computes_in_another_precision_is_refused():
    model = SimpleNamespace(model=SimpleNamespace(compute_type="int8_float32"))
    programs.is_computed(model, "int8")
    with pytest.raises(UserError, match=r"precision=float32: the program computes in int8 here"):
        programs.is_computed(model, "float32")


def module(**attributes):
    """A program's module."""
    made = ModuleType("them")
    vars(made).update(attributes)
    return made


def test_whisper_cpp_begins_a_line_after_its_length(monkeypatch):
    answers = iter(["And it is", "And it is tempting", "to believe", "that"])
    windows = []

    def transcribe(window, **settings):
        windows.append(len(window) / SAMPLE_RATE)
        return [SimpleNamespace(text=next(answers))]

    them = module(Model=lambda *_, **__: SimpleNamespace(transcribe=transcribe))
    monkeypatch.setattr(programs, "needs", lambda *_: them)
    method = programs.WhisperCpp(path="f", language="en", step_s=1.0, length_s=3.0, keep_s=0.2)
    steps = updates_of(method, 4)
    assert [texts(step.committed) for step in steps] == [
        [],
        [" And", " it", " is", " tempting"],  # 3 s / 1 s - 1 steps fill a line
        [],
        [" that"],
    ]
    assert windows == pytest.approx([1, 2, 1.2, 2.2])  # 0.2 s of the line before are kept


def test_simulstream_deletes_and_appends_tokens(monkeypatch):
    answers = iter([([], ["ĠAnd", "Ġit"]), (["Ġit"], ["Ġis", "Ġus", "."]), ([], [])])

    def process_chunk(audio):
        deleted, new = next(answers)
        return SimpleNamespace(deleted_tokens=deleted, new_tokens=new)

    tokenizer = SimpleNamespace(
        convert_tokens_to_string=lambda tokens: "".join(tokens).replace("Ġ", " ")
    )
    processor = SimpleNamespace(
        clear=lambda: None,
        process_chunk=process_chunk,
        processor=SimpleNamespace(tokenizer=tokenizer),
    )
    them = module(build_speech_processor=lambda settings: processor)
    monkeypatch.setattr(programs, "needs", lambda *_: them)
    steps = updates_of(programs.Simulstream(path="f", window_s=14, max_tokens_per_second=200), 3)
    assert [texts(step.partial) for step in steps] == [[" And", " it"], [" And", " is", " us."], []]
    assert texts(steps[-1].committed) == [" And", " is", " us."]


def test_pocketsphinx_guesses_until_the_end(monkeypatch):
    answers = iter(["and as temp", None, "and it is"])

    class Decoder:
        def __init__(self, **_: Any) -> None: ...
        def start_utt(self) -> None: ...
        def end_utt(self) -> None: ...
        def process_raw(self, samples: bytes, *_: bool) -> None:
            assert len(samples) == 2 * SAMPLE_RATE

        def hyp(self) -> Any:
            text = next(answers)
            return text and SimpleNamespace(hypstr=text)

    monkeypatch.setattr(programs, "needs", lambda *_: module(Decoder=Decoder))
    steps = updates_of(programs.PocketSphinx(), 3)
    assert [texts(step.partial) for step in steps] == [[" and", " as", " temp"], [], []]
    assert texts(steps[-1].committed) == [" and", " it", " is"]


@pytest.mark.parametrize("error", [ImportError, OSError])  # OSError: torchaudio of another torch
def test_a_program_that_does_not_load_is_named_with_its_remedy(monkeypatch, error):
    def import_module(name):
        raise error("no library")

    monkeypatch.setattr(programs, "import_module", import_module)
    with pytest.raises(UserError, match=r"cannot import theirs \(no library\); pip install it"):
        programs.needs("theirs", "pip install it")


@pytest.mark.parametrize("file", sorted((FOLDER / "method").glob("*.yaml")), ids=lambda f: f.stem)
def test_each_file_names_a_program_and_its_settings(file):
    settings = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    target = settings.pop("_target_").removeprefix("experiments.others.programs.")
    maker = getattr(programs, target)
    if "make" in settings:
        maker = getattr(programs, settings.pop("make").partition(":")[2])
    else:
        maker = maker.__init__
    assert set(settings) == set(maker.__annotations__) - {"return"}


MAILBOX = " That password does not meet the minimum requirements for this mail"
SEGMENTS = [  # of WhisperLive 0.10.0: a segment that grows, then two, of which one is final
    [{"start": "0.000", "end": "3.700", "text": f"{MAILBOX} button.", "completed": False}],
    *(
        [
            {"start": "0.000", "end": "4.120", "text": f"{MAILBOX}box.", "completed": True},
            {"start": "4.120", "end": end, "text": " Please try again.", "completed": False},
        ]
        for end in ("5.300", "6.120")
    ),
]
SENTENCES = [  # of RealtimeSTT's stt-server
    {"type": "recording_start"},
    {"type": "realtime", "text": "And it is"},
    {"type": "fullSentence", "text": "And it is tempting."},
]


class Socket(list[str]):
    """A connection whose messages are there, and which remembers what was sent."""

    def __init__(self, messages: list[Any]) -> None:
        super().__init__(map(json.dumps, messages))
        self.sent = []

    def __iter__(self) -> Any:
        while self:
            yield self.pop(0)

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def close(self) -> None: ...


def wire(monkeypatch, kind, messages):
    """A wire on a connection with messages."""
    socket = Socket(messages)
    monkeypatch.setattr(servers, "connected", lambda url: (socket, socket))
    return kind("ws://127.0.0.1:9", "en", "tiny.en", None), socket


def test_whisper_live_gives_each_segment_once(monkeypatch):
    ready = {"uid": "1", "message": "SERVER_READY", "backend": "faster_whisper"}
    client, socket = wire(
        monkeypatch, servers.WhisperLive, [ready, *({"segments": each} for each in SEGMENTS)]
    )
    client.send(np.full(2, 0.5, np.float32))
    assert socket.sent[1] == b"\0\0\0\x3f" * 2
    rest = (" Please", " try", " again.")
    assert list(client.changes()) == [
        Change((), pieces(f"{MAILBOX} button.")),
        Change(pieces(f"{MAILBOX}box."), rest),
        Change(rest),  # the server closes
    ]


def test_whisper_live_that_is_full_says_so(monkeypatch):
    with pytest.raises(UserError, match=re.escape("the server reports: 3.5")):
        wire(monkeypatch, servers.WhisperLive, [{"status": "WAIT", "message": 3.5}])


def test_realtime_stt_gives_sentences(monkeypatch):
    client, socket = wire(monkeypatch, servers.RealtimeSTT, SENTENCES)
    client.send(np.full(1, 0.5, np.float32))
    assert socket.sent == [b'\x15\0\0\0{"sampleRate": 16000}\0\x40']
    assert list(client.changes()) == [
        Change((), (" And", " it", " is")),
        Change((" And", " it", " is", " tempting."), ()),
        Change(()),
    ]
