"""The server as its clients meet it: OpenAI's wire format, recordings by POST, logs, limits."""

import gc
import io
import json
import signal
import socket as socket_module
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from types import SimpleNamespace

import httpx
import numpy as np
import psutil
import pytest
import soundfile
from fakes import FailsOn, Ticker, noise
from places import HANG_S
from run_fakes import arguments
from served import append, client, events, get, pcm, post, send, served, set_up, until, wav
from websockets.exceptions import ConnectionClosed, InvalidStatus

from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError
from streaming_asr.events.log import committed_words, read_log
from streaming_asr.score import score_folder
from streaming_asr.serve import main
from streaming_asr.serve.realtime import STEPS
from streaming_asr.serve.settings import KEY_PROTOCOL, ServerSettings


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    model = {"name": "tiny.en", "path": "openai/whisper-tiny.en"}
    folder = tmp_path_factory.mktemp("serve")
    with served(folder, config={"model": model}, max_file_bytes=200_000) as made:
        yield made


@pytest.fixture
def speech():
    return noise(2.1)


def expected(speech):
    return "".join(word.text for word in Ticker().words(_quantised(speech))).strip()


def _quantised(speech):
    return np.frombuffer(pcm(speech), "<i2").astype(np.float32) / 32768


def test_words_come_as_deltas_and_a_commit_completes_the_item(service, speech):
    with client(service) as socket:
        (created,) = events(socket, "session.created")
        assert created["session"]["audio"]["input"]["transcription"]["model"] == "ticker"
        set_up(socket)
        assert events(socket, "updated")[0]["session"]["audio"]["input"]["format"]["rate"] == 16_000
        for begin in range(0, len(speech), 1600):
            append(socket, pcm(speech[begin : begin + 1600]))
        early = events(socket, "delta")  # before the commit
        send(socket, "input_audio_buffer.commit")
        rest = events(socket, "completed")
        deltas = [e["delta"] for e in early + rest if e["type"].endswith("delta")]
        assert "".join(deltas) == rest[-1]["transcript"] == expected(speech)
        (item,) = {e["item_id"] for e in early + rest if "item_id" in e}
        assert rest[-1]["usage"] == {"type": "duration", "seconds": 2.1}
        assert [e["item_id"] for e in rest if e["type"].endswith("committed")] == [item]

        append(socket, pcm(speech[:8000]))  # the next item is a stream of its own
        send(socket, "input_audio_buffer.commit")
        again = events(socket, "completed")[-1]
        assert again["item_id"] != item
        assert again["transcript"] == expected(speech[:8000])


def test_two_methods_hear_one_voice_and_each_session_is_logged_and_scored(service, speech):
    with client(service, "?model=ticker,slow") as socket:
        session = events(socket, "created")[0]["session"]["id"]
        set_up(socket, STEPS)
        append(socket, pcm(speech))
        send(socket, "input_audio_buffer.commit")
        told = events(socket, "logged")
    done = {e["item_id"].split(".")[1]: e["transcript"] for e in told if "transcript" in e}
    assert done == {"ticker": expected(speech), "slow": expected(speech)}
    steps = [e for e in told if e["type"] == STEPS]
    assert {e["method"] for e in steps} == {"ticker", "slow"}
    assert all(e["behind_s"] >= 0 and e["step_s"] >= 0 for e in steps)
    for method in done:
        shown = [e for e in steps if e["method"] == method]
        assert "".join(e["delta"] for e in shown).strip() == done[method]
        assert (shown[-1]["partial"], shown[-1]["audio_s"]) == ("", 2.1)
        folder = service.root / session / f"method={method}"
        (said,) = read_log(folder / "events.jsonl").utterances
        assert (said.feed, said.duration_samples) == ("best_effort", 33_600)
        assert "".join(word for word, _ in committed_words(said.steps)).strip() == done[method]
        assert score_folder(folder)["metrics"]["rtf_total"] > 0
        fetched = f"{service.address}/v1/sessions/{session}/{method}"
        assert get(f"{fetched}/events.jsonl").text == (folder / "events.jsonl").read_text()
        assert get(f"{fetched}/text.txt").text == expected(speech) + "\n"
        assert get(f"{fetched}/config.yaml").status_code == 404


def test_subtitles_of_a_session_run_on_over_its_items(service):
    with client(service) as socket:
        session = events(socket, "created")[0]["session"]["id"]
        set_up(socket, STEPS)
        for _ in range(2):
            append(socket, pcm(noise(1.0)))  # four words of a quarter of a second
            send(socket, "input_audio_buffer.commit")
            assert events(socket, "logged")[-1]["kept"] == {"text": True}
    text = expected(noise(1.0))
    fetched = f"{service.address}/v1/sessions/{session}/ticker"
    shown = get(f"{fetched}/subtitles.srt").text
    assert shown == (
        f"1\n00:00:00,000 --> 00:00:01,000\n{text}\n\n2\n00:00:01,000 --> 00:00:02,000\n{text}\n"
    )
    assert get(f"{fetched}/text.txt").text == f"{text} {text}\n"


def test_a_client_that_vanishes_in_mid_word_leaves_its_log_and_no_session(service, speech):
    with client(service) as socket:
        session = events(socket, "created")[0]["session"]["id"]
        set_up(socket)
        append(socket, pcm(speech))
        events(socket, "delta")
        socket.socket.close()  # without a word
    until(lambda: session not in service.sessions)
    (said,) = read_log(service.root / session / "method=ticker" / "events.jsonl").utterances
    assert (said.status, said.error) == ("failed", "the session was left before its end")
    assert sum(len(step.committed) for step in said.steps) >= 1  # what was computed survives
    assert not service.worker.streams


def test_healthz_and_models_tell_what_is_going_on(service):
    with client(service) as socket:
        events(socket, "created")
        health = get(f"{service.address}/healthz")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
    models = get(f"{service.address}/v1/models").json()["data"]
    assert [each["id"] for each in models] == ["ticker", "slow"]
    assert (models[0]["model"], models[0]["language"]) == ("tiny.en", "en")


# -- recordings by POST -----------------------------------------------------------------------


def test_a_recording_is_transcribed_at_once_or_as_a_stream(service, speech):
    answer = post(service, wav(speech))
    n = len(expected(speech).split())
    assert answer.status_code == 200 and len(answer.json()["text"].split()) == n
    assert post(service, wav(speech), response_format="text").text == answer.json()["text"]
    streamed = post(service, wav(speech), stream="true").text
    told = [json.loads(line.removeprefix("data: ")) for line in streamed.split("\n\n") if line]
    assert "".join(e.get("delta", "") for e in told) == answer.json()["text"]
    assert told[-1] == {"type": "transcript.text.done", "text": answer.json()["text"]}
    until(lambda: not service.sessions)
    assert not service.worker.streams


def test_remarks_about_a_recording_are_in_the_answer(service, speech, caplog):
    """As about samples over 1, and a second track: the client sees no log."""
    loud = io.BytesIO()
    soundfile.write(loud, speech * (2.97 / np.abs(speech).max()), 16000, "FLOAT", format="WAV")
    remark = "talk.wav: its samples reach 2.97, which is over 1; they are divided by 4"
    for form in ("json", "verbose_json"):
        assert post(service, loud.getvalue(), response_format=form).json()["warnings"] == [remark]
    done = post(service, loud.getvalue(), stream="true").text.strip().split("data: ")[-1]
    assert json.loads(done)["warnings"] == [remark] and remark in caplog.text
    assert "warnings" not in post(service, wav(speech)).json()


def test_what_is_too_large_or_of_another_language_is_refused(service):
    large = post(service, b"0" * 300_000)
    french = post(service, b"0", language="fr")
    assert [answer.status_code for answer in (large, french)] == [413, 400]
    assert "more than 200000 bytes" in large.json()["error"]["message"]
    message = french.json()["error"]["message"]
    assert message.startswith("language=fr: model=tiny.en: knows English only")
    assert not service.sessions


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message, code",
    [
        ("{", "invalid_json"),
        ("[" * 50_000, "invalid_json"),
        ("[]", "invalid_message"),
        (b"\x00\x01", "invalid_message"),
        ('{"type": "conversation.item.create"}', "unknown_event"),
        ('{"type": "input_audio_buffer.append", "audio": "AAA="}', None),
        ('{"type": "input_audio_buffer.append", "audio": "AA=="}', None),
        ('{"type": "input_audio_buffer.append", "audio": "?"}', "invalid_audio"),
        ('{"type": "input_audio_buffer.append"}', "invalid_audio"),
        ('{"type": "input_audio_buffer.commit"}', "input_audio_buffer_commit_empty"),
        ('{"type": "session.update", "session": []}', "invalid_session"),
        ('{"type": "session.update", "session": {"include": 7}}', "invalid_session"),
        ('{"type": ["session.update"]}', "unknown_event"),
        ('{"type": "\\ud800"}', "invalid_json"),
        ('{"type": "session.update", "session": {"\\udfff": 1}}', "invalid_json"),
    ],
)
def test_a_bad_event_is_told_and_the_session_goes_on(service, message, code):
    with client(service) as socket:
        socket.send(message)
        if code is not None:
            told = events(socket, "error")[-1]["error"]
            assert told["code"] == code and len(told["message"]) < 300
        append(socket, pcm(noise(1.5)))
        send(socket, "input_audio_buffer.commit")
        assert len(events(socket, "completed")[-1]["transcript"].split()) == 4


@pytest.mark.parametrize(
    ("origin", "advice"),
    [
        ("https://a.org", "start with origins=https://a.org"),
        ("null", "serve the page by http"),
        ("", "serve the page by http"),
        ("http://[", "start with origins=http://["),
    ],
)
def test_the_origin_of_files_is_never_advised(origin, advice):
    status, reason = ServerSettings().refusal({"origin": origin}) or (0, "")
    assert (status, reason) == (403, f"the origin {origin} may not connect; {advice}")


@pytest.mark.parametrize(
    "given, code",
    [
        ({"format": {"type": "audio/pcm", "rate": 96_000}}, "invalid_format"),
        ({"turn_detection": {"type": "semantic_vad"}}, "unknown_turn_detection"),
        ({"transcription": {"model": "whisper-9"}}, "model_not_found"),
        ({"transcription": {"language": 7}}, "invalid_session"),
        ({"transcription": {"language": "fr"}}, "invalid_language"),
        ({"transcription": {"model": {"name": "ticker"}}}, "invalid_session"),
        ({"format": {"rate": [16_000]}}, "invalid_format"),
        ({"format": {"rate": 24_000.0}}, "invalid_format"),
        ({"format": {"type": {}}}, "invalid_format"),
        ({"format": 16_000}, "invalid_session"),
        ({"format": {"rate": True}}, "invalid_format"),
        ({"format": ["audio/pcm"]}, "invalid_session"),
        ([7], "invalid_session"),
    ],
)
def test_a_format_that_is_not_taken_is_refused(service, given, code):
    with client(service) as socket:
        send(socket, "session.update", session={"type": "transcription", "audio": {"input": given}})
        assert events(socket, "error")[-1]["error"]["code"] == code


def test_a_message_of_megabytes_closes_that_session_alone(service, speech):
    with client(service) as other, client(service) as socket:
        events(socket, "created")
        with pytest.raises(ConnectionClosed) as closed:
            socket.send("x" * 3_000_000)
            socket.recv(timeout=HANG_S)
        assert closed.value.rcvd is None or closed.value.rcvd.code == 1009
        append(other, pcm(speech))
        send(other, "input_audio_buffer.commit")
        assert events(other, "completed")[-1]["transcript"]
    until(lambda: not service.sessions)


def test_a_client_of_another_format_is_closed_after_fifty_errors(service):
    with client(service) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.send("hello")
                socket.recv(timeout=HANG_S)
        assert closed.value.rcvd.code == 1008


def test_a_client_that_never_reads_is_dropped_and_others_are_served(tmp_path, speech, monkeypatch):
    monkeypatch.setattr("streaming_asr.serve.realtime.MAX_UNSENT", 8)
    monkeypatch.setattr("streaming_asr.serve.realtime.SEND_S", 0.5)
    monkeypatch.setattr("streaming_asr.serve.command.CLOSE_S", 0.5)
    with served(tmp_path) as service, client(service) as other:
        with client(service, max_queue=1) as socket:
            events(socket, "created")
            with pytest.raises(ConnectionClosed):
                for _ in range(100_000):
                    set_up(socket)
            until(lambda: len(service.sessions) == 1)
        append(other, pcm(speech))
        send(other, "input_audio_buffer.commit")
        assert events(other, "completed")[-1]["transcript"]


def test_beyond_the_limit_sessions_are_refused_with_the_reason(tmp_path):
    with served(tmp_path, max_sessions=2) as service:
        with client(service) as one, client(service) as two:
            for _ in range(50):
                with client(service) as socket:
                    told = json.loads(socket.recv(timeout=HANG_S))
                    assert told["error"]["message"] == "all 2 sessions are taken"
                    with pytest.raises(ConnectionClosed) as closed:
                        socket.recv(timeout=HANG_S)
                    assert closed.value.rcvd.code == 1013
            assert events(one, "created") and events(two, "created")
        until(lambda: not service.sessions)
        with client(service) as again:
            assert events(again, "created")


def test_two_hundred_connections_at_once_that_vanish_leave_nothing_behind(tmp_path):
    wire = pcm(noise(0.3))
    with served(tmp_path, max_sessions=40) as service:
        told = []

        def connect_and_vanish():
            with client(service) as socket:
                told.append(json.loads(socket.recv(timeout=HANG_S))["type"])
                with suppress(ConnectionClosed):
                    for _ in range(len(told) % 7):
                        append(socket, wire)
                socket.socket.close()

        process = psutil.Process()
        with client(service) as other:
            events(other, "created")
            before = process.num_fds()
            threads = [threading.Thread(target=connect_and_vanish) for _ in range(200)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            until(lambda: len(service.sessions) == 1)
            assert len(told) == 200 and set(told) == {"session.created", "error"}
            append(other, pcm(noise(1.5)))
            send(other, "input_audio_buffer.commit")
            assert len(events(other, "completed")[-1]["transcript"].split()) == 4
            until(lambda: process.num_fds() <= before)
        assert not service.worker.streams


def test_an_abandoned_stream_is_free_without_the_collector(tmp_path):
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        with served(tmp_path) as service:
            with client(service) as socket:
                set_up(socket)
                append(socket, pcm(noise(1.5)))
                events(socket, "delta")
                (stream,) = service.worker.streams
                left = weakref.ref(stream)
                del stream
                socket.socket.close()
            until(lambda: left() is None)
    finally:
        if collecting:
            gc.enable()


def test_idle_and_endless_sessions_are_closed(tmp_path):
    with served(tmp_path / "idle", idle_s=0.2) as service, client(service) as socket:
        assert events(socket, "error")[-1]["error"]["code"] == "session_idle"
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=HANG_S)
    with served(tmp_path / "endless", max_session_s=2) as service, client(service) as socket:
        append(socket, pcm(noise(3.5)))  # 2.3 s at 24 kHz
        told = events(socket, "completed")
        assert "session_expired" in [e.get("error", {}).get("code") for e in told]


def test_a_method_that_fails_ends_that_item_alone(tmp_path, speech):
    methods = {"ticker": Ticker(), "bad": FailsOn(lambda audio, heard: len(heard) > 12_000)}
    with served(tmp_path, methods) as service, client(service, "?model=ticker,bad") as socket:
        append(socket, pcm(speech))
        send(socket, "input_audio_buffer.commit")
        told = {e["type"].split(".")[-1]: e for e in events(socket, "completed")}
        if "failed" not in told:
            told["failed"] = events(socket, "failed")[-1]
    assert "told to fail" in told["failed"]["error"]["message"]
    assert told["completed"]["item_id"].endswith(".ticker")


def test_a_stop_lets_sessions_end_what_they_have_heard(tmp_path, speech):
    with served(tmp_path) as service, client(service) as socket:
        set_up(socket)
        append(socket, pcm(speech))
        events(socket, "delta")
        for close in tuple(service.sessions.values()):
            close()
        assert events(socket, "completed")[-1]["transcript"] == expected(speech)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=HANG_S)
        assert closed.value.rcvd.code == 1001


PATIENT = f"""
import sys
from streaming_asr.serve import main
from streaming_asr.serve.service import Service
Service.drain.__defaults__ = ({HANG_S},)  # a busy machine takes its time
sys.exit(main())
"""


def test_the_command_serves_until_sigterm_and_ends_well(tmp_path):
    with socket_module.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flag, conf, *settings = arguments(tmp_path, "method.wrong_every=0", "gate=none")
    given = [flag, conf, f"port={port}", *(s for s in settings if not s.startswith("data="))]
    server = subprocess.Popen(
        [sys.executable, "-c", PATIENT, *given],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == f"serving parrot at http://127.0.0.1:{port}\n"
        logs = tmp_path / server.stdout.readline().removeprefix("logs: ").strip()
        here = SimpleNamespace(address=f"http://127.0.0.1:{port}")
        until(lambda: _answers(here.address))
        with client(here) as socket:
            set_up(socket)
            append(socket, pcm(np.repeat(np.array([0, 1, 2], np.float32) / 100, 4800)))
            events(socket, "updated")
            events(socket, "delta")
            server.send_signal(signal.SIGTERM)
            assert events(socket, "completed")[-1]["transcript"] == "the quick brown"
        assert server.wait(timeout=HANG_S) == 0
        assert server.stdout.read() == "stopped\n"
        (log,) = logs.glob("sess_*/*/events.jsonl")
        (said,) = read_log(log).utterances
        assert said.status == "ok"
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def _answers(address):
    try:
        return get(f"{address}/healthz").status_code == 200
    except httpx.TransportError:
        return False


# -- who may connect --------------------------------------------------------------------------


def test_token_and_origin_are_asked_of_every_client(tmp_path):
    with served(tmp_path, token="secret", origins="https://mine.org/,https://ours.org") as service:
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer wrong"}, 401),
            ({"Authorization": "Bearer secret", "Origin": "https://other.org"}, 403),
        ):
            with (
                pytest.raises(InvalidStatus) as refused,
                client(service, additional_headers=headers),
            ):
                pass
            assert refused.value.response.status_code == status
            models = get(f"{service.address}/v1/models", headers=headers)
            assert models.status_code == status
        given = {"Authorization": "Bearer secret", "Origin": "https://mine.org"}
        with client(service, additional_headers=given) as socket:
            assert events(socket, "created")
        with client(service, subprotocols=["realtime", f"{KEY_PROTOCOL}secret"]) as socket:
            assert socket.subprotocol == "realtime"
        assert get(f"{service.address}/healthz").status_code == 200
        assert not list(service.root.glob("*/*"))


def test_a_page_that_may_connect_gets_what_a_browser_asks_for(tmp_path):
    place = "/v1/audio/transcriptions"
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-stainless-lang",
    }
    with served(tmp_path, origins="http://localhost:3000,https://ours.org") as service:
        for origin, status in (("http://localhost:3000", 200), ("https://other.org", 400)):
            headers = {"Origin": origin, **asked}
            preflight = httpx.options(f"{service.address}{place}", headers=headers)
            assert preflight.status_code == status
            allowed = {key: value for key, value in preflight.headers.items() if "allow" in key}
            if status == 200:
                assert allowed["access-control-allow-origin"] == origin
                assert "POST" in allowed["access-control-allow-methods"]
                assert "x-stainless-lang" in allowed["access-control-allow-headers"]
            else:
                assert "access-control-allow-origin" not in allowed
        origin = {"Origin": "https://ours.org"}
        for answer in (
            get(f"{service.address}/v1/models", headers=origin),
            get(f"{service.address}/v1/models/none", headers=origin),  # also an error
            httpx.post(f"{service.address}{place}", headers=origin),
        ):
            assert answer.headers["access-control-allow-origin"] == "https://ours.org"
        assert "access-control-allow-origin" not in get(f"{service.address}/v1/models").headers


def test_other_addresses_need_a_token_and_settings_are_checked():
    line = CommandLine(["port=8001", "chunk=1s"])
    assert (ServerSettings.of(line), line.settings) == (ServerSettings(port=8001), ["chunk=1s"])
    for given, rule in (
        ("host=0.0.0.0", "give token="),
        ("port=eighty", "a whole number"),
        ("port=70000", "must be 1 to 65535"),
        ("idle_s=-1", "0.01 or more"),
        ("origins=mine.org", "addresses of pages"),
        ("origins=https://[::1", "is no address"),
        ("origins=https://mine.org:port", "is no address"),
        ("origins=https://*.org", "addresses of pages"),
    ):
        with pytest.raises(UserError, match=rule):
            ServerSettings.of(CommandLine([given]))
    assert ServerSettings.of(CommandLine(["host=0.0.0.0", "token=x"])).host == "0.0.0.0"


def test_a_port_that_is_taken_is_told_before_anything_loads(service, capsys):
    assert main([f"port={service.settings.port}", "method=nonsense"]) == 2
    assert "is taken by another program" in capsys.readouterr().err
