"""Servers of other people: recorded conversations, ends of turns, and servers that are broken."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from places import HANG_S
from remote_fakes import Answered, heard, lines, remote, replay, text, websocket
from websockets.sync.server import ServerConnection

from streaming_asr.errors import UserError
from streaming_asr.methods.remote import Remote, wire

CONVERSATIONS = Path(__file__).parents[1] / "fixtures" / "remote"
PREFIX = "conversation.item.input_audio_transcription."


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "CONNECT_S", HANG_S)


# -- conversations ----------------------------------------------------------------------------


def test_vllm_is_told_its_model_and_its_deltas_become_whole_words(tmp_path: Path) -> None:
    with websocket(replay(CONVERSATIONS / "vllm.txt")) as url:
        method = Answered(
            url, "vllm_realtime", {2: 5}, served="mistralai/Voxtral-Mini-4B-Realtime-2602"
        )
        said = heard(tmp_path, method, seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " The harbour opens at nine."
    assert said.commit_violations == 0
    first = next(step for step in said.steps if step.committed)
    assert (first.committed, first.partial) == ([" The", " harbour"], [" opens"])


def test_of_deepgrams_results_the_final_ones_count_and_late_guesses_do_not(tmp_path: Path) -> None:
    with websocket(replay(CONVERSATIONS / "deepgram.txt")) as url:
        said = heard(tmp_path, Answered(url, "deepgram", {2: 3}), seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " the cat sat"
    assert [" sad"] in [step.partial for step in said.steps]
    # It was told that the audio had ended, so no turn ended by itself.
    assert {step.kind for step in said.steps} == {"audio", "flush"}


def test_deepgram_is_asked_in_its_address() -> None:
    asked = []

    def handler(connection: ServerConnection) -> None:
        asked.append(connection.request.path if connection.request else "")

    with websocket(handler) as url:
        method = remote(f"{url}/v1/listen?endpointing=300", "deepgram", served="tiny.en")
        method.start(language="en").wire.close()
    (path,) = asked
    assert path.startswith("/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true")
    assert path.endswith("&language=en&model=tiny.en&endpointing=300")


# -- the end of a turn ------------------------------------------------------------------------


def result(words: str, start: float, duration: float, **fields: Any) -> str:
    said = {"alternatives": [{"transcript": words}]}
    told = {"type": "Results", "start": start, "duration": duration, "channel": said}
    return json.dumps(told | fields)


def deepgram_that_ends_a_turn_after(n_messages: int) -> Callable[[ServerConnection], None]:
    def handler(connection: ServerConnection) -> None:
        n = 0
        for message in connection:
            n += isinstance(message, bytes)
            if isinstance(message, str):
                assert json.loads(message) == {"type": "CloseStream"}
                return
            if n == n_messages:
                connection.send(result("the cat", 0.0, 0.5, is_final=True, speech_final=True))

    return handler


def openai_that_ends_a_turn_after(n_messages: int) -> Callable[[ServerConnection], None]:
    def handler(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": {"id": "s"}}))
        n = 0
        for message in connection:
            event = json.loads(message)
            if event["type"] == "session.update":
                turns = event["session"]["audio"]["input"]["turn_detection"]
                assert turns == {"type": "server_vad"}
            n += event["type"].endswith("append")
            assert not event["type"].endswith("commit")
            if n == n_messages:
                n += 1
                connection.send(json.dumps({"type": "input_audio_buffer.speech_stopped"}))
                done = {"type": f"{PREFIX}completed", "transcript": "the cat"}
                connection.send(json.dumps(done))

    return handler


@pytest.mark.parametrize(
    "protocol, server",
    [
        ("deepgram", deepgram_that_ends_a_turn_after),
        ("openai_realtime", openai_that_ends_a_turn_after),
    ],
)
def test_a_natural_end_is_waited_for_in_silence(tmp_path: Path, protocol: str, server: Any) -> None:
    with websocket(server(8)) as url:  # 5 pieces of 100 ms are sound
        method = remote(url, protocol, end_of_turn="natural")
        said = heard(tmp_path, method, seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " the cat"
    (over,) = [step for step in said.steps if step.kind == "endpoint"]
    assert over.committed == [" the", " cat"]
    assert over.audio_samples == 8000 and over.compute_s > 0.1  # 300 ms of silence after it


def test_a_natural_end_that_never_comes_is_waited_for_no_longer_than_told(tmp_path: Path) -> None:
    with websocket(deepgram_that_ends_a_turn_after(1000)) as url:
        method = remote(url, "deepgram", end_of_turn="natural", patience_s=0.3)
        said = heard(tmp_path, method, seconds=0.3)
    assert said.status == "ok", said.error
    assert "endpoint" not in {step.kind for step in said.steps}


def test_a_turn_that_ends_within_the_recording_is_logged_there(tmp_path: Path) -> None:
    with websocket(deepgram_that_ends_a_turn_after(2)) as url:
        said = heard(tmp_path, Answered(url, "deepgram", {2: 1}), seconds=0.5)
    (over,) = [step for step in said.steps if step.kind == "endpoint"]
    assert over.audio_samples < 8000


def test_a_protocol_without_turns_has_no_natural_end() -> None:
    with pytest.raises(UserError, match="simulstream does not report the end of a turn; give"):
        remote("ws://x", "simulstream", end_of_turn="natural")
    with pytest.raises(UserError, match="one of forced, natural"):
        remote("ws://x", "deepgram", end_of_turn="sometimes")


# -- broken servers ---------------------------------------------------------------------------


def says(*messages: str | bytes) -> Callable[[ServerConnection], None]:
    """A server that greets, says its messages with the first audio, and stays until it is left."""

    def handler(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": {"id": "s"}}))
        left: Sequence[str | bytes] = messages
        for message in connection:
            if isinstance(message, bytes) or json.loads(message)["type"].endswith("append"):
                for each in left:
                    connection.send(each)
                left = ()

    return handler


DELTA = json.dumps({"type": f"{PREFIX}delta", "delta": "hello"})


@pytest.mark.parametrize(
    "protocol, messages, told",
    [
        ("openai_realtime", ["<html><body>It works!</body></html>"], "no JSON object: '<html>"),
        ("openai_realtime", ["[1]"], "no JSON object"),
        ("openai_realtime", [b"\xff\x00"], "no JSON object"),
        (
            "openai_realtime",
            [json.dumps({"type": f"{PREFIX}delta"})],
            "missing required field `delta`",
        ),
        ("openai_realtime", [json.dumps({"type": "error"})], "the server reports: None"),
        (
            "vllm_realtime",
            ['{"type": "error", "error": "no such model"}'],
            "reports: no such model",
        ),
        ("deepgram", ['{"type": "Error", "description": "16000 only"}'], "reports: 16000 only"),
        ("deepgram", ['{"type": "Results"}'], "not in the form of"),
        ("deepgram", [result("a", 0.0, 1.0).replace("1.0", '"soon"')], "not in the form of"),
        (
            "deepgram",
            [result("b", 4.0, 2.0, is_final=True), result("a", 1.0, 1.0, is_final=True)],
            "times go back: a text from 1 to 2 s after one that ended at 6 s",
        ),
        ("deepgram", ["x" * 10_000_000], "1009"),
    ],
)
def test_what_a_broken_server_says_fails_the_utterance_with_a_reason(
    tmp_path: Path, protocol: str, messages: list[str | bytes], told: str
) -> None:
    with websocket(says(*messages)) as url:
        said = heard(tmp_path, remote(url, protocol), seconds=0.3)
    assert said.status == "failed" and told in str(said.error), said.error
    assert text(said) == "" or "back" in told


def test_text_after_the_final_one_is_not_heard(tmp_path: Path) -> None:
    def handler(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": {"id": "s"}}))
        for message in connection:
            if json.loads(message)["type"].endswith("commit"):
                done = {"type": f"{PREFIX}completed", "transcript": "hello"}
                for each in (DELTA, json.dumps(done), DELTA, json.dumps(done)):
                    connection.send(each)

    with websocket(handler) as url:
        said = heard(tmp_path, remote(url, "openai_realtime"), seconds=0.2)
    assert said.status == "ok", said.error
    assert text(said) == " hello"


def test_a_server_that_never_answers_is_given_up_with_its_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ws://127.0.0.1:{silent.getsockname()[1]}"
        said = heard(tmp_path / "handshake", remote(url, "deepgram"), seconds=0.1)
    assert said.status == "failed" and f"{url}: cannot be reached" in str(said.error)
    over = threading.Event()
    with websocket(lambda connection: (over.wait(), None)[1]) as url:
        try:
            said = heard(tmp_path / "greeting", remote(url, "vllm_realtime"), seconds=0.1)
        finally:
            over.set()
    assert said.status == "failed" and f"method.url={url}: " in str(said.error)


def test_a_server_that_closes_within_the_audio_fails_the_utterance(tmp_path: Path) -> None:
    def handler(connection: ServerConnection) -> None:
        connection.send(json.dumps({"type": "session.created", "session": {"id": "s"}}))
        connection.recv()

    with websocket(handler) as url:
        said = heard(tmp_path / "within", remote(url, "openai_realtime"), seconds=0.5)
    assert said.status == "failed" and said.error
    with websocket(lambda connection: None) as url:
        said = heard(tmp_path / "at once", remote(url, "vllm_realtime"), seconds=0.1)
    assert said.status == "failed" and "closed at once" in str(said.error)


def test_a_page_in_place_of_a_server_is_named_as_such(tmp_path: Path) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>"

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(page)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        url = f"ws://127.0.0.1:{listening.getsockname()[1]}"
        said = heard(tmp_path, remote(url, "vllm_realtime"), seconds=0.1)
        thread.join()
    assert said.status == "failed" and "cannot be reached" in str(said.error)
    assert "HTTP 200" in str(said.error)


@pytest.mark.parametrize(
    "sent, told",
    [
        (b"3000 4000 and so\n0 900 my\n", "times go back: a text from 0 to 0.9 s"),
        (b'{"start": 2, "end": 1, "text": "x"}\n', "times go back"),
        (b"{not JSON}\n", "no JSON object"),
        (b"0 100 " + b"x" * 10_000_000 + b"\n", "a line of 1,000,000 bytes or more"),
    ],
)
def test_lines_that_no_server_may_send_fail_the_utterance(
    tmp_path: Path, sent: bytes, told: str
) -> None:
    with lines(sent) as url:
        said = heard(tmp_path, remote(url, "whisper_online"), seconds=0.5)
    assert said.status == "failed" and told in str(said.error), said.error


def test_every_protocol_is_a_choice_of_the_configuration() -> None:
    from streaming_asr.files import CONF_DIR
    from streaming_asr.methods.remote.stream import PROTOCOLS

    line = (CONF_DIR / "method" / "remote.yaml").read_text()
    assert all(protocol in line for protocol in PROTOCOLS)
    assert Remote.lookahead_samples == 0
