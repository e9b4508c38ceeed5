"""Clients that send too much, too little or nothing, that leave, and that come in disguise."""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import numpy as np
import pytest
import uvicorn
from fakes import Ticker, TickerState, noise
from places import HANG_S
from served import append, client, events, get, pcm, post, send, served, set_up, until, wav
from websockets.exceptions import InvalidStatus, WebSocketException
from websockets.sync.client import connect

from streaming_asr.method import Samples, Update
from streaming_asr.serve.command import MOST_LINES, Few


class Gated(Ticker):
    """Makes `free` steps, then none before `gate` is open, which it is behind a `with` block."""

    def __init__(self, free: int = 0) -> None:
        super().__init__()
        self.gate, self.free = threading.Event(), free

    def __enter__(self) -> Gated:
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()

    def step(self, state: TickerState, audio: Samples, *, last: bool) -> Update:
        self.free -= 1
        assert self.free >= 0 or self.gate.wait(HANG_S)
        return super().step(state, audio, last=last)


@contextmanager
def raw(service, sent=b""):
    place = urlsplit(service.address)
    with socket.create_connection((place.hostname, place.port), timeout=HANG_S) as made:
        made.sendall(sent)
        yield made


def is_closed(made):
    """Whether the server has closed the connection without an answer."""
    try:
        return bool(select.select([made], [], [], 0)[0]) and made.recv(1) == b""
    except ConnectionError:
        return True


HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=X\r\nContent-Length: %d\r\n\r\n"


def upload(content, **fields):
    """A whole request; nothing after it says that its client still waits."""
    name = 'Content-Disposition: form-data; name="{}"'
    parts = [f"--X\r\n{name.format(key)}\r\n\r\n{text}\r\n" for key, text in fields.items()]
    begin = f'{"".join(parts)}--X\r\n{name.format("file")}; filename="a.wav"\r\n\r\n'
    body = begin.encode() + content + b"\r\n--X--\r\n"
    return HEAD + FORM % len(body) + body


def speaking(socket, n_items):
    """A client that sends 40 s of sound at once, in so many items."""

    def speak():
        for _ in range(n_items):
            for _ in range(20 // n_items):
                append(socket, pcm(noise(2.0)))
            send(socket, "input_audio_buffer.commit")

    thread = threading.Thread(target=speak)
    thread.start()
    return thread


@pytest.mark.slow
def test_a_client_that_sends_faster_than_computing_keeps_its_connection_and_its_text(
    tmp_path, monkeypatch
):
    real = uvicorn.Config

    def hasty(*given, **settings):
        made = real(*given, **settings)
        for name in ("ws_ping_interval", "ws_ping_timeout"):  # 0.05 s for 20 s
            setattr(made, name, (getattr(made, name) or 0) / 400 or None)
        return made

    monkeypatch.setattr("uvicorn.Config", hasty)
    method = Gated()
    fast = served(tmp_path, {"gated": method}, max_queued_s=1.0)
    with fast as service, client(service) as socket, method:
        set_up(socket)
        speaker = speaking(socket, n_items=1)
        until(lambda: [s for s in tuple(service.worker.streams) if s.queued_s > 1])
        time.sleep(1)  # in which twenty pings are not answered
        method.gate.set()
        assert len(events(socket, "completed")[-1]["transcript"].split()) == 160
        speaker.join()


def test_items_that_wait_to_be_computed_hold_their_client_back_too(tmp_path):
    method = Gated()
    fast = served(tmp_path, {"gated": method}, max_queued_s=1.0)
    with fast as service, client(service) as socket, method:
        set_up(socket)
        speaker = speaking(socket, n_items=20)
        until(lambda: sum(s.queued_s for s in tuple(service.worker.streams)) > 1)
        with client(service) as other:  # is served meanwhile
            events(other, "created")
        assert len(service.worker.streams) <= 2  # the first's audio is taken, if not computed
        method.gate.set()
        assert len(events(socket, "completed", 20)) >= 20
        speaker.join()


@pytest.mark.slow
def test_uploads_without_a_body_hold_no_session_and_are_answered(tmp_path):
    head = HEAD + FORM % 1000
    one = served(tmp_path / "a", max_sessions=1)
    with one as service, raw(service, head), raw(service, head + b"--X"):
        get(f"{service.address}/healthz")  # so that both heads were read
        assert post(service, wav(noise(1.0)), model="").status_code == 200
    with served(tmp_path / "b", idle_s=0.2) as service, raw(service, head) as made:
        assert made.recv(12) == b"HTTP/1.1 408"


def test_an_upload_that_is_left_half_sent_is_no_fault_of_the_server(tmp_path, caplog):
    with served(tmp_path) as service:
        with raw(service, upload(wav(noise(1.0)))[:2000]):
            get(f"{service.address}/healthz")  # so that it was read
        until(lambda: "the client left before its recording" in caplog.text)
        with raw(service, HEAD + b"Content-Type: multipart/form-data\r\n\r\n") as made:
            told = b""
            while not told.endswith(b"}") and (more := made.recv(4096)):  # its body comes behind
                told += more
            assert b'"code":"invalid_form","message":"Missing boundary' in told
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.slow
@pytest.mark.parametrize("is_streamed, free", [("false", 0), ("true", 0), ("true", 2)])
def test_an_upload_whose_client_left_is_abandoned_at_once(tmp_path, is_streamed, free):
    method = Gated(free)
    with served(tmp_path, {"gated": method}) as service, method:
        with raw(service, upload(wav(noise(3.0)), stream=is_streamed)) as made:
            until(lambda: service.worker.streams)
            if free:
                assert made.recv(12) == b"HTTP/1.1 200"
            assert len(service.sessions) == 1
        until(lambda: not service.sessions)
        assert not service.worker.streams and not method.gate.is_set()


@pytest.mark.slow
def test_heads_that_never_end_are_cut_off(tmp_path, monkeypatch):
    monkeypatch.setattr("streaming_asr.serve.command.HEAD_S", 0.3)
    with served(tmp_path) as service:
        with raw(service) as silent, raw(service, b"GET / HTTP/1.1\r\nX: ") as slow:

            def dripped():
                try:
                    slow.sendall(b"a")
                except ConnectionError:
                    return True
                return is_closed(slow)

            until(dripped)
            until(lambda: is_closed(silent))
        until(lambda: _answers(service, b"GET "))  # and the next head is late
        with ExitStack() as stack:
            sockets = []

            def is_open():  # a session is no head, but its handshake is
                with suppress(ConnectionError, WebSocketException):
                    sockets.append(stack.enter_context(client(service)))
                return bool(sockets)

            until(is_open)
            events(sockets[0], "created")
            time.sleep(0.6)
            append(sockets[0], pcm(noise(1.5)))
            send(sockets[0], "input_audio_buffer.commit")
            assert events(sockets[0], "completed")


@pytest.mark.slow
def test_connections_are_limited_and_the_log_is_not_flooded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("streaming_asr.serve.command.HEAD_S", HANG_S)
    with served(tmp_path, max_sessions=1) as service:
        place = urlsplit(service.address)
        made = [
            socket.create_connection((place.hostname, place.port), timeout=HANG_S)
            for _ in range(100)
        ]
        until(lambda: sum(map(is_closed, made)) == 100 - (4 + 64))
        for each in made:
            each.close()
        until(lambda: _answers(service))
    assert not caplog.records


def _answers(service, then=b""):
    """Whether it answers before it closes the connection, on which `then` follows.

    A busy machine may close it before the head is read.
    """
    with raw(service, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + then) as made:
        heard = b""
        with suppress(ConnectionError):
            heard = made.recv(12)
            while then and made.recv(4096):
                pass
    return heard == b"HTTP/1.1 200"


def test_a_minute_of_the_log_has_so_many_lines():
    def record(second):
        made = logging.LogRecord("a", logging.WARNING, "", 0, "bad %s", ("request",), None)
        made.created = second
        return made

    few = Few()
    minute = [record(60 + i / 100) for i in range(1000)]
    passed = [each.getMessage() for each in minute if few.filter(each)]
    assert len(passed) == MOST_LINES
    assert (passed[0], passed[-1]) == (
        "bad request",
        "bad request (the rest of this minute is left out)",
    )
    assert few.filter(record(120))


@pytest.mark.parametrize("is_stated", [True, False])
def test_a_recording_is_held_to_the_length_of_a_session(tmp_path, monkeypatch, is_stated):
    if not is_stated:
        monkeypatch.setattr("streaming_asr.serve.upload.apart", lambda *_: iter([0.0]))
    with served(tmp_path, max_session_s=2) as service:
        answer = post(service, wav(noise(2.1)))
        assert answer.status_code == 413
        assert answer.json()["error"]["message"] == (
            "more than 2 s of audio; send a shorter recording"
        )
        assert post(service, wav(np.append(noise(1.9), noise(0.1)))).status_code == 200


def test_a_name_that_was_made_to_point_here_is_refused(tmp_path):
    def stranger(service):
        place = urlsplit(service.address)
        return connect(
            f"ws://stranger.example:{place.port}/v1/realtime",
            sock=socket.create_connection((place.hostname, place.port)),
            additional_headers={"Authorization": "Bearer secret"},
        )

    with served(tmp_path / "a", origins="https://mine.example") as service:
        for path in ("/", "/v1/models"):
            for host, status in (
                ("stranger.example", 400),
                ("localhost.stranger.example:8000", 400),
                ("localhost:1234", 200),
                ("[::1]", 200),
                ("mine.example", 200),
            ):
                answer = get(service.address + path, headers={"Host": host})
                assert (path, host, answer.status_code) == (path, host, status)
        with pytest.raises(InvalidStatus, match="400"), stranger(service):
            pass
    with served(tmp_path / "b", token="secret") as service, stranger(service) as socket_:
        assert events(socket_, "created")  # who has the token may come by any name


@pytest.mark.parametrize(
    "method, told",
    [
        ({}, "to this server and nowhere else; it keeps the text and the times, not the sound."),
        ({"url": "ws://far.example"}, "to this server and from it to ws://far.example; it"),
    ],
)
def test_the_page_says_what_is_kept_and_where_the_sound_goes(tmp_path, method, told):
    with served(tmp_path, config={"method": method}) as service:
        assert told in get(service.address).text
