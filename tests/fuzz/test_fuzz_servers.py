"""Fuzz: clients of a running server, and servers that `remote` asks, one thing wrong with each.

A server answers, goes on and logs no error; a bad server fails an utterance by a line, or is
understood.
"""

from __future__ import annotations

import base64
import copy
import json
import logging
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fakes import Ticker, noise, utterance
from fuzzing import INPUT_S, WEIRD, assert_finite, cases, edited, spoiled, watched
from hypothesis import event, given
from hypothesis import strategies as st
from served import append, client, events, get, pcm, send, served, set_up, until, wav
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.method import Samples
from streaming_asr.methods.remote import Remote
from streaming_asr.score import score_folder
from streaming_asr.simulate.feeds import simulate

pytestmark = pytest.mark.slow

SPEECH = noise(1.1)
SAID = "".join(
    word.text for word in Ticker().words(noise(1.1).astype("<f4"))
)  # its number of words is what counts: 16 bits move the numbers in them
AUDIO = base64.b64encode(pcm(SPEECH)).decode()


class Errors(logging.Handler):
    """Keeps what is logged with a trace, or as an error."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.levelno >= logging.ERROR:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def no_errors() -> Iterator[None]:
    """Assert that nothing in the block logs an error or a trace."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(errors)
    assert not errors.found, errors.found[0]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    model = {"name": "tiny.en", "path": "openai/whisper-tiny.en"}
    folder = tmp_path_factory.mktemp("serve")
    with served(folder, config={"model": model}, max_sessions=1000) as made:
        yield made


# -- events ---------------------------------------------------------------------------------------

SESSION = {
    "type": "transcription",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 16_000},
            "turn_detection": None,
            "transcription": {"model": "ticker", "language": "en"},
        }
    },
    "include": ["streaming_asr.steps"],
}
SCRIPT: list[dict[str, Any]] = [
    {"type": "session.update", "session": SESSION},
    {"type": "input_audio_buffer.append", "audio": AUDIO},
    {"type": "input_audio_buffer.clear"},
    {"type": "input_audio_buffer.append", "audio": AUDIO},
    {"type": "input_audio_buffer.commit"},
]


@st.composite
def conversations(draw: st.DrawFn) -> list[str | bytes]:
    """The events of a client, of which one is edited, spoiled, sent as bytes, lost or repeated."""
    script: list[Any] = [json.dumps(each) for each in SCRIPT]
    at = draw(st.integers(0, len(script) - 1))
    how = draw(
        st.sampled_from(("edit", "edit", "edit", "spoil", "binary", "lose", "repeat", "deep"))
    )
    if how == "edit":
        script[at] = json.dumps(draw(edited(SCRIPT[at])))
    elif how == "spoil":
        script[at] = draw(spoiled(script[at].encode())).decode(errors="replace")
    elif how == "binary":
        script[at] = draw(st.one_of(st.binary(max_size=99), st.just(script[at].encode())))
    elif how == "lose":
        del script[at]
    elif how == "repeat":
        script[at:at] = [script[at]] * draw(st.integers(1, 5))
    else:
        script[at] = script[at].replace(":", ":" + "[" * 50_000, 1)
    return script


@cases(30)
@given(conversations())
def test_a_session_goes_on_after_any_event(service: Any, script: list[str | bytes]) -> None:
    with watched(), no_errors():
        with client(service) as connection:
            for each in script:
                connection.send(each)
            # What was valid is left behind; then the same as every client does.
            send(connection, "input_audio_buffer.clear")
            set_up(connection, model="ticker", language="en")
            send(connection, "the end of the script")
            while (
                "the end of the script"
                not in (told := events(connection, "error")[-1])["error"]["message"]
            ):
                assert told["error"]["code"] and len(told["error"]["message"]) < 400
            append(connection, pcm(SPEECH))
            send(connection, "input_audio_buffer.commit")
            item = events(connection, "committed")[-1]["item_id"]
            done = events(connection, "completed")
            while done[-1]["item_id"] != item:
                done = events(connection, "completed")
            assert len(done[-1]["transcript"].split()) == len(SAID.split())
        until(lambda: not service.sessions)
    assert not service.worker.streams


# -- uploads --------------------------------------------------------------------------------------

FIELDS = {
    "model": "ticker",
    "language": "en",
    "response_format": "verbose_json",
    "timestamp_granularities[]": "word",
    "stream": "false",
}
REFUSED = [  # what no upload may say
    *(("model", value) for value in ("whisper-9", "ticker;", "\ud800", "x" * 9999)),
    *(("language", value) for value in ("klingon", "fr", "EN ", "7")),
    *(("response_format", value) for value in ("srt", "vtt", "7", "json,text", "\x00")),
    *(("timestamp_granularities[]", value) for value in ("segment", "7", "word,segment")),
    *(("stream", value) for value in ("perhaps", "2", "true")),
    *(("temperature", "0"), ("prompt", "Hello."), ("file2", "x"), ("\ud800", "x")),
]


def request(fields: dict[str, str], content: bytes, filename: str = "talk.wav") -> bytes:
    """A whole request, after which the connection is closed."""
    name = 'Content-Disposition: form-data; name="{}"'
    parts = [f"--X\r\n{name.format(key)}\r\n\r\n{text}\r\n" for key, text in fields.items()]
    begin = f'{"".join(parts)}--X\r\n{name.format("file")}; filename="{filename}"\r\n\r\n'
    body = begin.encode(errors="surrogatepass") + content + b"\r\n--X--\r\n"
    head = (
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: multipart/form-data; boundary=X\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@st.composite
def uploads(draw: st.DrawFn) -> tuple[bytes, bool]:
    """A request with one thing wrong, and whether it must be refused."""
    sound, fields = wav(noise(0.3)), dict(FIELDS)
    other = ("head", "body", "form", "cut")
    how = draw(st.sampled_from(("field", "lost", "sound", "none", "name", *other)))
    if how == "cut":
        whole = request(fields, sound)
        return whole[: draw(st.integers(1, len(whole) - 1))], True
    if how == "field":
        key, value = draw(st.sampled_from(REFUSED))
        return request({**fields, key: value}, sound), True
    if how == "lost":
        del fields[draw(st.sampled_from(sorted(fields)))]
        return request(fields, sound), False
    if how == "sound":
        return request(fields, draw(spoiled(sound))), False
    if how == "none":
        held = st.one_of(st.binary(max_size=999), st.sampled_from((b"", b"RIFF", sound[:43])))
        return request(fields, draw(held)), True
    if how == "name":
        odd = [value for value in WEIRD if isinstance(value, str)]
        return request(fields, sound, draw(st.sampled_from(odd))), False
    head, _, body = request(fields, sound).partition(b"\r\n\r\n")
    if how == "head":
        return draw(spoiled(head)) + b"\r\n\r\n" + body, False
    if how == "body":
        return head + b"\r\n\r\n" + draw(spoiled(body)), False
    return head.replace(b"boundary=X", b"boundary=Y") + b"\r\n\r\n" + body, True


def answer(service: Any, sent: bytes, *, leaves: bool) -> tuple[int, bytes]:
    """The status and the body of the answer; 0 where the connection is closed without one."""
    place = urlsplit(service.address)
    received = b""
    with socket.create_connection((place.hostname, place.port), timeout=INPUT_S) as made:
        with suppress(ConnectionError):
            made.sendall(sent)
        with suppress(ConnectionError):
            while not leaves and (piece := made.recv(65_536)):
                received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server that waits no second for a head or a body that does not come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming_asr.serve.command.HEAD_S", 0.5)
        model = {"name": "tiny.en", "path": "openai/whisper-tiny.en"}
        folder = tmp_path_factory.mktemp("hasty")
        with served(folder, config={"model": model}, idle_s=0.5) as made:
            yield made


# starlette leaves the file of a part without an end to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile.SpooledTemporaryFile:ResourceWarning")
@cases(20)
@given(uploads(), st.sampled_from((False, False, False, True)))
def test_an_upload_of_any_bytes_is_answered(
    hasty: Any, made: tuple[bytes, bool], leaves: bool
) -> None:
    sent, is_invalid = made
    with watched(), no_errors():
        status, body = answer(hasty, sent, leaves=leaves)
        event(f"status {status}")
        # 0: a head that never ends; 408: a body that does not come.
        assert status < 500, body
        assert status != 200 or not is_invalid, body
        if status in (408, 413) or body.startswith(b'{"error'):
            assert json.loads(body)["error"]["message"]
        if status == 200 and body.startswith(b"{"):
            heard = json.loads(body)
            assert 0 <= heard.get("duration", 0) < 10 and isinstance(heard["text"], str)
        until(lambda: not hasty.sessions)
        assert get(f"{hasty.address}/healthz").json()["status"] == "ok"
    assert not hasty.worker.streams


# -- servers that remote asks ---------------------------------------------------------------------

TOLD = "conversation.item.input_audio_transcription."
SERVERS: dict[str, list[Any]] = {
    "openai_realtime": [
        {"type": "session.created", "session": {"id": "s"}},
        {"type": f"{TOLD}delta", "delta": "The dan"},
        {"type": f"{TOLD}delta", "delta": "ger was"},
        {"type": f"{TOLD}completed", "transcript": "The danger is past."},
    ],
    "streaming_asr.steps": [
        {"type": "session.created", "session": {"extensions": ["streaming_asr.steps"]}},
        {"type": "streaming_asr.steps", "delta": " The danger", "partial": " is", "retracted": 0},
        {"type": "streaming_asr.steps", "delta": " dagger", "partial": "", "retracted": 1},
        {"type": f"{TOLD}completed", "transcript": "The dagger is past."},
    ],
    "simulstream": [
        {"new": "the hat", "deleted": ""},
        {"new": "cat sat", "deleted": "hat"},
        {"end_of_processing": True},
    ],
    "whisper_online": ["0 200  And so", "200 300 my", {"start": 0, "end": 0.3, "text": " fellow"}],
}


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A protocol and what a server of it sends, one message of it wrong."""
    name = draw(st.sampled_from(sorted(SERVERS)))
    script = copy.deepcopy(SERVERS[name])
    at = draw(st.integers(0, len(script) - 1))
    if isinstance(script[at], dict) and draw(st.booleans()):
        script[at] = draw(edited(script[at]))
        sent = [_message(each) for each in script]
    else:
        sent = [_message(each) for each in script]
        how = draw(st.sampled_from(("spoil", "lose", "repeat", "swap", "nonsense")))
        if how == "spoil":
            sent[at] = draw(spoiled(sent[at]))
        elif how == "lose":
            del sent[at]
        elif how == "repeat":
            sent.insert(at, sent[at])
        elif how == "swap":
            sent[at], sent[0] = sent[0], sent[at]
        else:
            sent[at] = draw(st.sampled_from((b"", b"null", b"7", b"[]", b"[" * 99_999, b"\xff")))
    return name, sent


def _message(row: Any) -> bytes:
    return row.encode() if isinstance(row, str) else json.dumps(row).encode()


@contextmanager
def websocket(sent: list[bytes]) -> Iterator[str]:
    """A server that sends its first message at once, its last one and its leave with the end of
    the audio, and the others with the first of it."""

    def handler(connection: ServerConnection) -> None:
        left = list(sent)
        with suppress(ConnectionClosed, UnicodeDecodeError):
            for each in left[:1]:
                connection.send(each, text=True)
            del left[:1]
            for message in connection:
                is_end = isinstance(message, str) and ("commit" in message or "end_of" in message)
                if isinstance(message, bytes) or is_end or "append" in message:
                    kept = 0 if is_end else 1
                    while len(left) > kept:
                        connection.send(left.pop(0), text=True)
                if is_end:
                    return

    with serve(handler, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def plain(sent: list[bytes]) -> Iterator[str]:
    """A TCP server that sends its lines with the first audio, and leaves with the last."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            made, _ = listening.accept()
            left = b"\n".join(sent) + b"\n"
            with made, suppress(OSError):
                while made.recv(65_536):
                    made.sendall(left)
                    left = b""

        thread = threading.Thread(target=run)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


def heard(folder: Path, url: str, protocol: str, samples: Samples) -> None:
    """What a run of one utterance through the server leaves in `folder`."""
    method = Remote(
        url=url, protocol=protocol, feed="realtime", served=None, rate=16_000, patience_s=INPUT_S
    )
    with EventWriter(folder / "events.jsonl", {}) as writer:
        simulate(
            method,
            [utterance(seconds=0.2)],
            writer=writer,
            feed="realtime",
            chunk_samples=1600,
            first_chunk_samples=1600,
            warm_up=False,
        )


@cases(14)
@given(answers())
def test_what_any_server_says_is_understood_or_fails_the_utterance_by_a_line(
    made: tuple[str, list[bytes]],
) -> None:
    name, sent = made
    is_plain = name == "whisper_online"
    serving = plain if is_plain else websocket
    protocol = "openai_realtime" if name == "streaming_asr.steps" else name
    with tempfile.TemporaryDirectory() as place, watched(), no_errors(), serving(sent) as url:
        heard(Path(place), url, protocol, SPEECH)
        try:
            (said,) = read_log(Path(place) / "events.jsonl").utterances
            score_folder(place)
        except UserError as error:
            event("refused")
            assert str(error)
            return
        event(said.status)
        assert_finite(Path(place) / "metrics.json")
        if said.status == "failed":
            assert said.error and "Error: " not in said.error and "\n" not in said.error
