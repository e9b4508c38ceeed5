"""What a stream loses against batch: faults planted in a server, each in its own part."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
from browser import CHROMIUM, DRIVER, browser
from hypothesis import given, settings
from hypothesis import strategies as st
from remote_fakes import websocket
from traces import a_trace
from websockets.exceptions import ConnectionClosed

from streaming_asr.commands import audit as audit_command
from streaming_asr.commands.audit import main
from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.metrics.accuracy import word_errors
from streaming_asr.metrics.intervals import Clusters
from streaming_asr.metrics.losses import PARTS, blocks, counts
from streaming_asr.score.audit import _audit

SAID = "the harbour opens at noon and closes after lunch on friday"
SHORT = "the harbour opens at noon"
DELTA = "conversation.item.input_audio_transcription.delta"


def parts_of(trace):
    found = counts(blocks(trace, trace.normalise.words(trace.reference)))
    return {part: n for part, n in found.items() if n}


def a_stream(*texts, reference=SAID, **fields):
    """A trace whose steps, a second apart, commit these texts one behind the other."""
    whole = [" ".join(texts[: k + 1]) for k in range(len(texts))]
    return a_trace(reference, [(k + 1.0, 0.1, text, "") for k, text in enumerate(whole)], **fields)


@pytest.mark.parametrize(
    ("texts", "parts"),
    [
        ((SAID,), {}),
        (("the harbour opens", "noon and closes after lunch on friday"), {"boundary": 1}),
        (("the harbour opens noon and", "closes after lunch on friday"), {"middle": 1}),
        (("the harbour opens at noon", "noon and closes after lunch on friday"), {"boundary": 1}),
        (("the harbour opens opens at", "noon and closes after lunch on friday"), {"repeated": 1}),
        (("the harbour opens at", "noon and closes after lunch"), {"tail": 2}),
        ((f"{SAID} again soon",), {"tail": 2}),
        (("the harbour opens really at noon and closes after lunch on friday",), {"middle": 1}),
        (("der hafen ist auf und zu mit lunch on friday",), {"language": 8}),
        (("порт мир at noon and closes after lunch on friday",), {"language": 3}),
        (("the harbour opens at noon and closes after lunch on fri day",), {"formats": 2}),
        (("the harvest opens at noon and closes after lunch on friday",), {"middle": 1}),
        (("",), {"tail": 11}),
    ],
)
def test_each_fault_is_in_its_own_part(texts, parts):
    trace = a_stream(*texts)
    assert parts_of(trace) == parts
    assert sum(parts.values()) == word_errors(trace, trace.normalise).errors


def test_words_in_a_pause_are_invented_and_a_failed_recording_is_its_own_part():
    steps = [
        (2.0, 0.1, "the cat", ""),
        (5.0, 0.1, "the cat you", ""),
        (9.0, 0.1, "the cat you sat", ""),
    ]
    trace = a_trace("the cat sat", steps, ends=[1.0, 1.5, 8.0])
    assert parts_of(trace) == {"silence": 1}
    assert parts_of(a_trace("the cat sat", [], error="no sound")) == {"failed": 3}


WORDS = st.lists(
    st.sampled_from(("the", "the", "cat", "sat", "der", "das", "zwei", "20")), max_size=8
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=4))
def test_the_parts_add_up_to_the_difference_of_the_error_rates(drawn):
    drawn.append((["cat"], ["cat"], ["cat"]))
    pairs = []
    for reference, mine, other in drawn:
        half = len(mine) // 2
        base = " ".join(other)
        shown = (" ".join(mine[:half]), " ".join(mine[half:]))
        stream = a_stream(*shown, reference=" ".join(reference))
        pairs.append((stream, a_stream(base, reference=" ".join(reference))))
    answer = _audit(pairs, Clusters("utterance", np.arange(len(pairs)), len(pairs)), True)
    sides = [
        [word_errors(trace, trace.normalise) for trace in side] for side in zip(*pairs, strict=True)
    ]
    n = sum(each.words for each in sides[0])
    for name, errors in (("stream", sides[0]), ("batch", sides[1])):
        rate = 100 * sum(each.errors for each in errors) / n
        assert getattr(answer.total, name) == pytest.approx(rate)
        assert sum(getattr(row, name) for row in answer.parts) == pytest.approx(rate)
    total = sum(row.difference.value for row in answer.parts)
    assert total == pytest.approx(answer.total.difference.value)


# -- a server -------------------------------------------------------------------------------------


def realtime(texts):
    """A Realtime server that gives one text after the other, each half a second of audio apart."""

    def handler(connection):
        def tell(kind, **fields):
            connection.send(json.dumps({"type": kind, **fields}))

        tell("session.created", session={})
        waiting, heard = [*texts], 0
        try:
            for message in connection:
                event = json.loads(message)
                heard += event["type"].endswith("append")
                is_end = event["type"].endswith("commit")
                while waiting and (is_end or heard >= 5 * (len(texts) - len(waiting) + 1)):
                    tell(DELTA, delta=f" {waiting.pop(0)}")
                if is_end:
                    transcript = " ".join(texts)
                    tell(DELTA.replace("delta", "completed"), transcript=transcript)
        except ConnectionClosed:
            return

    return handler


@contextmanager
def uploads(status=200, text=SHORT):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert b'name="file"; filename="audio.wav"' in body and b"RIFF" in body
            assert b'name="response_format"' in body and b'name="language"' not in body
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"text": text}).encode())

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/audio/transcriptions"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def recordings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "talks"
    folder.mkdir()
    noise = np.random.default_rng(0)
    for k in range(6):
        sound = noise.normal(0, 0.05, 16_000).astype(np.float32)
        soundfile.write(folder / f"{k}.wav", sound, 16_000)
        (folder / f"{k}.txt").write_text(SHORT)
    return folder


def audited(url, upload, folder, *more):
    command = [url, f"data.path={folder}", "limit=6", "--upload", upload, "--json", "answer.json"]
    status = main([*command, *more])
    answer = json.loads(Path("answer.json").read_text()) if status < 2 else {"parts": []}
    return status, {row["name"]: row["stream"] - row["batch"] for row in answer["parts"]}


PLANTED = {
    "boundary": (["the harbour", "at noon"], 1),
    "tail": (["the harbour", "opens"], 2),
    "language": (["der hafen", "ist auf um zwölf"], 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", PLANTED)
def test_a_fault_planted_in_a_server_is_found_in_its_own_part(part, recordings):
    texts, n = PLANTED[part]
    with websocket(realtime(texts)) as url, uploads() as upload:
        status, parts = audited(url, upload, recordings)
    assert status == 1
    expected = dict.fromkeys(PARTS, 0.0) | {part: 100 * n / 5}
    assert parts == pytest.approx(expected)
    (page,) = Path("outputs/audit").glob("*.html")
    assert page.read_text().count("data:audio/wav") == 6


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["nowhere"], "no such folder"),
        (["tcp://127.0.0.1:9"], "no batch endpoint that is known"),
        (["ws://[::1"], "ws://[::1: is no address"),
        (["ws://x", "limit=1", "--upload", "http://x:0"], "http://x:0: is no address"),
        (["ws://127.0.0.1:9/v1/realtime", "limit=1"], "nobody answers"),
        (["x", "--worse=-1"], "--worse=-1.0: 0 or more, 100 at most"),
    ],
)
def test_what_cannot_be_audited_is_refused(command, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, "the server has no batch endpoint there (404)"),
        (503, 'no text came back: 503: {"text": "the harbour opens at noon"}'),
    ],
)
def test_a_server_that_takes_no_upload_is_named(status, error, recordings, capsys):
    with uploads(status) as upload:
        command = ["ws://127.0.0.1:9", f"data.path={recordings}", "limit=4", "--upload", upload]
        assert main(command) == 2
    assert error in capsys.readouterr().err


def a_cell(folder, audio=None, changes=None, **texts):
    """A cell of one step for each recording; None is a recording that failed. changes: fields of
    each recording."""
    with EventWriter(folder / "events.jsonl", {"config": {"normaliser": "whisper"}}) as writer:
        for utt, text in texts.items():
            log = UtteranceLog(utt, SHORT, 32_000, audio_path=audio and str(audio))
            log = replace(log, **(changes or {}))
            words = [] if text is None else [f" {word}" for word in text.split()]
            log.steps = [Step("flush", log.duration_samples, {"wall": 0}, committed=words)]
            if text is None:
                log.error, log.status = "no sound", "failed"
            writer.write_utterance(log)
    return folder


COMMAND = "{_target_: subprocess.run, _args_: [[touch, WRITTEN]]}"
REFUSED = [
    f"data.alignments={COMMAND}",
    f"+data={COMMAND}",
    f"method={COMMAND}",
    f"method.weights={COMMAND}",
    "++method._target_=os.system",
    "data._target_=os.system",
    "~data",
    "+model.path=x",
    "output=elsewhere",
    "experiment=real",
    "threads=1",
    "device=cuda",
    "hydra.run.dir=elsewhere",
    "hydra/launcher=joblib",
    "hydra.searchpath=[file://elsewhere]",
    "data=../../elsewhere/data",
    "data=folder@method",
    "data=mini,folder",
    "data.path=${oc.env:HOME}",
    "data.path='${oc.env:HOME}'",
    "data.path=[a,b]",
    "data.path={a: b}",
    "data.path=glob(*)",
    "model.path='a\x1b[2J'",
    "data.split=../x",
    "data.split=[a,${oc.env:HOME}]",
    "limit=1e9",
    "limit=",
    "seed=range(0,3)",
    "language=${oc.env:HOME}",
    "chunk=${oc.env:HOME}",
    "name='${oc.env:HOME}'",
    "limit",
    "--config-dir=elsewhere",
    "-cd",
]
NO_LIST = {
    "a mapping": "model: mini",
    "a text": "model=mini",
    "numbers": "[1, 2]",
    "a mapping in it": "- model=mini\n- data: mini",
    "depth": "[" * 5000,
    "a cycle": "&a [*a]",
    "aliases": "a: &a [x,x,x]\n" + "".join(f"{b}: &{b} [*{a},*{a}]\n" for a, b in ["ab", "bc"]),
    "merged": "a: &a {x: y}\nb: &b {<<: [*a,*a,*a]}",
    "an object": "!!python/object/apply:os.system [touch WRITTEN]",
    "length": f"- limit={'1' * 1_000_000}",
    "no text": "\x00",
}


def saved(folder, settings):
    cell = a_cell(folder / "cell", a=SHORT)
    (cell / ".hydra").mkdir()
    (cell / ".hydra/overrides.yaml").write_text(settings)
    return cell


@pytest.mark.parametrize("setting", REFUSED)
def test_a_setting_that_a_folder_saved_is_refused_by_name(setting, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cell = saved(tmp_path, json.dumps(["method=ufal", "model=mini", "data=mini", setting]))
    assert main([str(cell), "--yes"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {setting!r}: ") and told.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cell"]


@pytest.mark.parametrize("content", NO_LIST.values(), ids=NO_LIST)
def test_saved_settings_that_are_no_list_of_texts_are_refused(
    content, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main([str(saved(tmp_path, content))]) == 2
    assert "overrides.yaml: is no list of settings" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cell"]


TAKEN = ["model=mini", "data=mini", "limit=2", "seed=1", "language=en", "data.split=[a,b-c]"]


@pytest.mark.parametrize(
    ("place", "yes", "runs"),
    [
        (None, False, True),
        ("data.path=/a b/c", False, False),
        ("data.path='/a,b/it\\'s (1)'", True, True),
        ("model.path=openai/whisper-base", False, False),
        ("model.path=openai/whisper-base", True, True),
    ],
)
def test_saved_settings_are_shown_before_they_run_and_paths_need_yes(
    place, yes, runs, tmp_path, monkeypatch, capsys
):
    ran = []

    def run(settings):
        assert "overrides.yaml: model=mini" in capsys.readouterr().err  # shown before
        ran.extend(settings)
        return a_cell(tmp_path / "batch", a=SHORT)

    monkeypatch.setattr(audit_command, "_run", run)
    monkeypatch.chdir(tmp_path)
    places = [] if place is None else [place]
    stream = ["method=ufal", "chunk=1s", "method.temperatures=[0.0]", "tracker=none"]
    cell = saved(tmp_path, json.dumps([*TAKEN, *places, *stream]))
    assert main([str(cell), "limit=1", *["--yes"] * yes]) == (0 if runs else 2)
    rest = [each for each in TAKEN if each != "limit=2"]
    offline = ["limit=1", "method=offline", "tracker=none", f"name='audit/{tmp_path.name}'"]
    assert ran == ([*rest, *places, *offline] if runs else [])
    assert runs or "give --yes" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium or chromedriver here")
def test_the_page_fits_a_telephone_and_plays_its_places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    soundfile.write("talk.wav", np.zeros(32_000, np.float32), 16_000)
    name = "method=whisperrt,chunk=300ms,limit=20,method.beam=3,model=tiny.en"
    texts = dict.fromkeys((f"recording-of-the-harbour-{k}" for k in range(12)), SHORT)
    batch = a_cell(tmp_path / "batch", **texts)
    stream = a_cell(tmp_path / name, Path("talk.wav"), **dict.fromkeys(texts, "the harbour opens"))
    assert main([str(stream), "--batch", str(batch), "--audio", "talk.wav"]) == 1
    (page,) = Path("outputs/audit").resolve().glob("*.html")
    with browser(tmp_path / "profile") as window:
        for width in (390, 1280):
            window.resize(width)
            window.open(page)
            parts = "[document.documentElement, document.querySelector('.scroll')]"
            wide = f"return {parts}.map((each) => each.scrollWidth - each.clientWidth)"
            assert window.run(wide) == [0, 0]
        sounds = "[...document.querySelectorAll('audio')]"
        window.run(f"{sounds}.forEach((sound) => sound.play())")
        assert window.wait(f"return {sounds}.filter((sound) => sound.ended).length === 10")
        assert window.console() == []


def test_two_logs_need_no_model_and_a_failed_recording_counts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stream = a_cell(tmp_path / "stream", a=SHORT, b=None, c="the harbour opens at")
    batch = a_cell(tmp_path / "batch", a=SHORT, b=SHORT, c=SHORT)
    assert main([str(stream / "events.jsonl"), "--batch", str(batch), "--json", "a.json"]) == 0
    told = json.loads(Path("a.json").read_text())
    parts = {row["name"]: row["stream"] for row in told["parts"] if row["stream"]}
    assert parts == pytest.approx({"failed": 100 * 5 / 15, "tail": 100 * 1 / 15})
    assert "only 2 of 3 utterances" in told["verdict"]
    assert [(place["utt"], place["n"]) for place in told["places"]] == [("b", 5), ("c", 1)]
    assert "failed in the stream: 1 recordings" in capsys.readouterr().out


def test_two_long_names_have_two_pages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    batch = a_cell(tmp_path / "batch", a=SHORT)
    for end in ("a", "b"):
        stream = a_cell(tmp_path / f"{'long' * 25}{end}", a=SHORT)
        assert main([str(stream), "--batch", str(batch)]) == 0
    assert len(list(Path("outputs/audit").glob("*.html"))) == 2


@pytest.mark.parametrize(
    ("changes", "texts", "error"),
    [
        ({}, {"b": SHORT}, "different utterances"),
        ({"text": SAID}, {"a": SHORT}, "another reference"),
        ({"audio_hash": "other"}, {"a": SHORT}, "another audio"),
        (
            {"duration_samples": 64_000},
            {"a": SHORT},
            "lasts 2 s in the stream and 4 s in the batch",
        ),
    ],
)
def test_logs_of_different_tasks_and_lengths_are_refused(changes, texts, error, tmp_path, capsys):
    stream = a_cell(tmp_path / "stream", changes={"audio_hash": "one"}, a=SHORT)
    batch = a_cell(tmp_path / "batch", changes={"audio_hash": "one"} | changes, **texts)
    assert main([str(stream), "--batch", str(batch)]) == 2
    assert error in capsys.readouterr().err


def test_recordings_without_speech_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = []
    for name, text in (("stream", "you you"), ("batch", "")):
        log = UtteranceLog("a", "", 32_000)
        log.steps = [Step("flush", 32_000, {"wall": 0}, committed=text.split())]
        with EventWriter(tmp_path / name / "events.jsonl", {}) as writer:
            writer.write_utterance(log)
        cells.append(str(tmp_path / name))
    assert main([cells[0], "--batch", cells[1]]) == 2
    assert "no speech: neither reference nor batch has a word" in capsys.readouterr().err
