"""Fuzz: clients of a running server, one thing wrong with each.

The server answers or closes the connection, goes on and logs no error.
"""

import base64
import json
import re
import socket
import struct
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest
from fakes import noise
from fuzzing import INPUT_S, WEIRD, cases, edited, no_errors, spoiled, watched
from hypothesis import event, example, given
from hypothesis import strategies as st
from served import append, client, events, get, pcm, send, served, set_up, until, wav

pytestmark = pytest.mark.slow

SPEECH = noise(1.1)
N_WORDS = 4  # of Ticker, one for each quarter of a second
AUDIO = base64.b64encode(pcm(SPEECH)).decode()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
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
SCRIPT = [
    {"type": "session.update", "session": SESSION},
    {"type": "input_audio_buffer.append", "audio": AUDIO},
    {"type": "input_audio_buffer.clear"},
    {"type": "input_audio_buffer.append", "audio": AUDIO},
    {"type": "input_audio_buffer.commit"},
]


@st.composite
def conversations(draw):
    """The events of a client, of which one is edited, spoiled, sent as bytes, lost or repeated."""
    script = [json.dumps(each) for each in SCRIPT]
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
def test_a_session_goes_on_after_any_event(service, script):
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
            assert len(done[-1]["transcript"].split()) == N_WORDS
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
    *(("timestamp_granularities[]", value) for value in ("7", "word,segment")),
    *(("stream", value) for value in ("perhaps", "2", "true")),
    *(("temperature", "0.5"), ("prompt", "Hello."), ("file2", "x"), ("\ud800", "x")),
]


def request(fields, content, filename="talk.wav"):
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
def uploads(draw):
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


def answer(service, sent, *, leaves):
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
    # What a request's length does not count is answered as the next request.
    if length := re.search(rb"(?i)\r\ncontent-length: *(\d+)", head):
        body = body[: int(length[1])]
    return (int(head.split()[1]) if head else 0), body


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A server that waits no second for a head or a body that does not come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streaming_asr.serve.command.HEAD_S", 0.5)
        model = {"name": "tiny.en", "path": "openai/whisper-tiny.en"}
        folder = tmp_path_factory.mktemp("hasty")
        with served(folder, config={"model": model}, idle_s=0.5) as made:
            yield made


def is_well(service):
    # On a busy machine even this head may come after the half second of `hasty`.
    with suppress(httpx.TransportError):
        return bool(get(f"{service.address}/healthz").json()["status"] == "ok")
    return False


# A request without a length, whose body is read as a second request.
UNCOUNTED = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n\r\n--X\r\n\r\n"


# starlette leaves the file of a part without an end to the garbage collector.
@pytest.mark.filterwarnings("ignore:Unclosed file <tempfile.SpooledTemporaryFile:ResourceWarning")
@cases(14)
@given(uploads(), st.sampled_from((False, False, False, True)))
@example(made=(UNCOUNTED, True), leaves=False)
def test_an_upload_of_any_bytes_is_answered(hasty, made, leaves):
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
        until(lambda: is_well(hasty))
    assert not hasty.worker.streams


# -- frames ---------------------------------------------------------------------------------------

HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
SHORT = [*SCRIPT[:1], {**SCRIPT[1], "audio": AUDIO[:4000]}, SCRIPT[-1]]


def frame(payload, opcode=1, *, last=True, n=None):
    """A masked frame of WebSocket, which says that it has `n` bytes."""
    head = struct.pack(">BBQ", last << 7 | opcode, 0xFF, len(payload) if n is None else n)
    return head + bytes(4) + payload  # a mask of zeros


@st.composite
def wires(draw):
    """All bytes of a client, some of them wrong."""
    frames = [frame(json.dumps(each).encode()) for each in SHORT]
    if draw(st.booleans()):
        return draw(spoiled(HANDSHAKE + b"".join(frames)))
    odd = [
        *(frame(b"{}", opcode) for opcode in (0, 3, 7, 11, 15)),  # unasked for, or unknown
        *(frame(b"x" * 126, opcode) for opcode in (8, 9, 10)),  # of control, and too long
        *(frame(b"\xff\xfe"), frame(b"", 8), frame(b"\x00", 8), frame(b"{", last=False)),
        *(frame(b"{}", n=n) for n in (1, 3, 10**6 + 1, 2**63, 2**64 - 1)),
        *(b"\x81\x02{}", b"\xf1\x82\0\0\0\0{}"),  # without a mask, with bits that are reserved
    ]
    frames.insert(draw(st.integers(0, len(frames))), draw(st.sampled_from(odd)))
    return HANDSHAKE + b"".join(frames)


@cases(6)
@given(wires(), st.booleans())
def test_a_client_that_sends_any_bytes_is_left_or_served(hasty, sent, leaves):
    with watched(), no_errors():
        status, body = answer(hasty, sent, leaves=leaves)
        event(f"status {status}")
        assert status < 500, body
        until(lambda: not hasty.sessions)
        until(lambda: is_well(hasty))
    assert not hasty.worker.streams
