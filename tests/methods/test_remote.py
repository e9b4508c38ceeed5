"""Servers as methods: what each format's messages commit and guess, by the clock on the wall."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from fakes import FailsOn, Ticker, utterance
from places import HANG_S
from remote_fakes import (
    CHUNK,
    GREETING,
    Answered,
    Scripted,
    heard,
    lines,
    remote,
    replay,
    text,
    websocket,
)
from served import served
from websockets.exceptions import ConnectionClosed

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, committed_words, read_log
from streaming_asr.method import Samples
from streaming_asr.methods.remote import Remote, realtime, wire
from streaming_asr.methods.remote.wire import Change
from streaming_asr.metrics import trace
from streaming_asr.simulate.feeds import simulate


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(wire, "CONNECT_S", HANG_S)


# -- the feed ---------------------------------------------------------------------------------


def test_in_real_time_the_queue_clock_gives_back_the_wall(tmp_path):
    said = heard(tmp_path, Ticker(), seconds=0.8, chunk=4800)
    assert [s.audio_samples for s in said.steps] == [4800, 9600, 12_800]
    seen = trace(said)
    assert all(ca >= cu for ca, cu in zip(seen.times("ca"), seen.times("cu"), strict=True))
    assert said.feed == "realtime" and said.pacing_slip_s is not None


def test_a_stream_that_was_fed_late_says_by_how_much(tmp_path):
    late = threading.Event()

    def dawdle(audio, everything):
        late.wait(0.5)  # longer than a chunk lasts
        return False

    said = heard(tmp_path, FailsOn(dawdle), seconds=0.3)
    assert said.pacing_slip_s is not None and said.pacing_slip_s > 0.3


# -- our own server ---------------------------------------------------------------------------


def kept(service):
    """What a server has logged; it writes on after its last answer, to its own end."""
    (log,) = service.root.glob("sess_*/*/events.jsonl")
    (there,) = read_log(log).utterances
    return there


def test_ours_served_and_ours_simulated_agree_in_text(tmp_path):
    with served(tmp_path / "served", {"ticker": Ticker(2)}) as service:
        url = service.address.replace("http", "ws") + "/v1/realtime"
        said = heard(tmp_path / "remote", Answered(url, "openai_realtime", {6: 1}, served="ticker"))
    there = kept(service)
    with EventWriter(tmp_path / "events.jsonl", {}) as writer:
        simulate(
            Ticker(2),
            [utterance(seconds=1.5)],
            writer=writer,
            feed="fixed",
            chunk_samples=4800,
            first_chunk_samples=9600,
        )
    (simulated,) = read_log(tmp_path / "events.jsonl").utterances
    assert said.status == "ok", said.error
    # 16 bits on the wire move a sample by 1/32767 at most.
    ours, theirs = (
        np.array([int(word[1:]) for word in text(each).split()]) for each in (simulated, said)
    )
    assert np.abs(ours - theirs).max() <= 1
    assert text(said) == text(there)
    guesses = [step.partial for step in said.steps if step.partial]
    assert guesses and max(map(len, guesses)) == 2


def test_at_24_khz_all_that_was_said_arrives(tmp_path):
    with served(tmp_path / "served", {"ticker": Ticker()}) as service:
        url = service.address.replace("http", "ws") + "/v1/realtime"
        said = heard(tmp_path, remote(url, "openai_realtime", rate=24_000), seconds=0.5)
    there = kept(service)
    assert said.status == "ok", said.error
    assert there.duration_samples == said.duration_samples == 8000


def test_a_server_that_is_not_there_fails_the_utterance_with_its_address(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        for protocol, scheme in (("openai_realtime", "ws"), ("whisper_online", "tcp")):
            url = f"{scheme}://127.0.0.1:{port}"
            said = heard(tmp_path / protocol, remote(url, protocol))
            assert said.status == "failed"
            assert f"{url}: cannot be reached" in str(said.error)


def test_what_the_server_refuses_is_the_reason_of_the_failure(tmp_path):
    with served(tmp_path / "served", token="secret") as service:
        url = service.address.replace("http", "ws") + "/v1/realtime"
        said = heard(tmp_path, remote(url, "openai_realtime"))
        assert said.status == "failed" and "401" in str(said.error)


NO_ADDRESSES = ("ws://[::1", "ws://x:99999", "ws://x:port/a", "ws://x:-1", "ws://x:0", "ws://a b/")


@pytest.mark.parametrize(
    "given, rule",
    [
        ({"protocol": "sip"}, "one of openai_realtime"),
        ({"url": "http://x"}, "goes by ws or wss"),
        *(({"url": url}, "^method.url=.*: is no address") for url in NO_ADDRESSES),
        ({"url": "ws://x", "protocol": "whisper_online"}, "goes by tcp"),
        ({"feed": "fixed"}, "give feed=realtime"),
        ({"rate": 8000}, "16000 or 24000"),
    ],
)
def test_settings_that_no_server_can_meet_are_refused(given, rule):
    settings = {
        "url": "ws://x", "protocol": "simulstream", "feed": "realtime", "served": None,
        "rate": 16_000, "patience_s": 1.0,
    }  # fmt: skip
    with pytest.raises(UserError, match=rule):
        Remote(**{**settings, **given})


# -- the rules of the formats -----------------------------------------------------------------


def transcription(kind, **fields):
    return json.dumps({"type": f"conversation.item.input_audio_transcription.{kind}", **fields})


def test_deltas_of_half_words_are_guesses_until_the_next_word_begins(tmp_path):
    deltas = [transcription("delta", delta=delta) for delta in ("The dan", "ger is", " past")]
    done = transcription("completed", transcript="The danger was past.")
    server = Scripted({2: deltas}, [done])
    with websocket(server) as url:
        said = heard(tmp_path, Answered(url, "openai_realtime", {2: 3}), seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said).strip() == "The danger was past."
    assert said.commit_violations == 1  # `is` had been final
    assert [" past"] in [step.partial for step in said.steps]
    (session,) = [each["session"] for each in server.messages if each["type"] == "session.update"]
    assert session["audio"]["input"]["transcription"] == {"language": "en"}
    assert "include" not in session


def test_simulstream_shows_all_as_a_guess_until_the_end(tmp_path):
    hat, cat, down = (
        json.dumps({"new": new, "deleted": deleted})
        for new, deleted in (("the hat", ""), ("cat sat", "hat"), (" down", ""))
    )
    end = [down, json.dumps({"end_of_processing": True})]
    server = Scripted({2: [hat], 4: [cat]}, end, first=None)
    with websocket(server) as url:
        said = heard(tmp_path, Answered(url, "simulstream", {2: 1, 4: 2}), seconds=0.5)
    assert said.status == "ok", said.error
    about = {"sample_rate": 16_000, "source_lang": "en", "target_lang": "en"}
    assert server.messages[0] == about and server.n_audio == 5
    guesses = [step.partial for step in said.steps if step.partial]
    assert [" the", " hat"] in guesses and [" the", " cat", " sat"] in guesses
    assert text(said) == " the cat sat down"
    assert all(not step.committed for step in said.steps[:-2])


def test_lines_of_whisper_online_are_final_as_they_come(tmp_path):
    sent = (
        b"0 1720  And so\n\0\0",
        b"1720 2000 my\n",
        b'{"start": 2, "end": 3, "text": " fellow"}\n',
    )
    with lines(*sent) as url:
        said = heard(tmp_path, Answered(url, "whisper_online", {1: 3}), seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " And so my fellow"
    assert not any(step.partial for step in said.steps)
    first = next(i for i, step in enumerate(said.steps) if step.committed)
    assert said.steps[first].audio_samples < 8000  # while the audio went on


GROWS = [
    ([" the econ", "omy", ", it is not true", "."], " the economy, it is not true."),
    ([" un", "repentant", " doesn", "'t"], " unrepentant doesn't"),
    ([" the", " cat", None, "", " sat"], " the cat sat"),
    ([" one ", "two", " ", " three ", "."], " one two three ."),
    (["the", " cat"], "the cat"),
    ([None], ""),
]


@pytest.mark.parametrize(("texts", "whole"), GROWS)
@pytest.mark.parametrize("apart", [True, False])
def test_a_json_line_may_go_on_with_the_word_of_the_one_before(tmp_path, texts, whole, apart):
    """Every line arrives in its own step: a word that grows is final once, and never erased."""
    rows = [{"start": k, "end": k + 1, "text": t} for k, t in enumerate(texts)]
    sent = [f"{json.dumps(row)}\n".encode() for row in rows]
    with lines(*sent, apart=apart) as url:
        answers = {k: k for k in range(1, 1 + len(texts))} if apart else {1: len(texts)}
        said = heard(tmp_path, Answered(url, "whisper_online", answers), seconds=1.0)
    assert said.status == "ok", said.error
    assert text(said).rstrip() == whole
    assert not any(step.partial or step.retracted for step in said.steps)
    words = [word for word, _ in committed_words(said.steps)]
    assert [word.strip() for word in words] == whole.split()


def test_plain_lines_of_whisper_online_have_whole_words(tmp_path):
    sent = b'0 900 the\n900 1000 cat\n{"text": " s"}\n{"text": "at"}\n1000 1200 down\n'
    with lines(sent) as url:
        said = heard(tmp_path, Answered(url, "whisper_online", {1: 5}), seconds=0.5)
    assert text(said) == " the cat sat down"


@pytest.mark.parametrize(
    "protocol", ["simulstream", "deepgram", "vllm_realtime", "openai_realtime"]
)
def test_a_server_that_closes_after_the_handshake_is_one_clear_failure(tmp_path, protocol):
    with websocket(lambda connection: connection.close()) as url:
        method = remote(url, protocol)
        for k in range(5):  # the close may be noticed at the first message or later
            said = heard(tmp_path / str(k), method, seconds=0.2)
            assert said.status == "failed" and "Traceback" not in str(said.error)
            assert url in str(said.error) or "ended before the audio" in str(said.error), said.error


class Echo:
    """A protocol of one's own: it counts what it got."""

    def __init__(self, url: str, language: str | None, served: str | None, token: str | None):
        self.settings, self.n, self.over = (url, language, served, token), 0, threading.Event()

    def send(self, samples: Samples) -> None:
        self.n += len(samples)

    def end(self) -> None:
        self.over.set()

    def changes(self) -> Iterator[Change]:
        self.over.wait()
        yield Change((f" {self.n}",))

    def close(self) -> None:
        self.over.set()


def test_a_protocol_may_be_a_class_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMING_ASR_TOKEN", "secret")
    method = remote("xyz://host", f"{__name__}.Echo", served="tiny", label="mine")
    said = heard(tmp_path, method, seconds=0.5)
    assert (said.status, text(said)) == ("ok", " 8000")
    wire = method.start(language="de").wire
    assert isinstance(wire, Echo) and wire.settings == ("xyz://host", "de", "tiny", "secret")
    for wrong, reason in (
        ("os.system", "cannot be built"),
        ("no.such", "cannot be"),
        ("x", "one of"),
    ):
        with pytest.raises(UserError, match=reason):
            remote("ws://host", wrong)


def test_an_end_that_never_comes_is_waited_for_as_long_as_told(tmp_path):
    over = threading.Event()
    with websocket(lambda connection: (over.wait(), None)[1]) as url:
        try:
            said = heard(tmp_path, remote(url, "simulstream", patience_s=0.3), seconds=0.3)
        finally:
            over.set()
    assert said.status == "failed" and "no end of the text within 0.3 s" in str(said.error)


def talks_on(connection):
    """Send one change after another once audio has come, until the client leaves."""
    end = time.monotonic() + HANG_S
    with suppress(ConnectionClosed):
        while isinstance(connection.recv(), str):
            pass
        while time.monotonic() < end:
            connection.send(json.dumps({"new": " a"}))
            time.sleep(0.01)


def test_a_server_that_never_stops_talking_is_given_up_after_the_same_time(tmp_path):
    with websocket(talks_on) as url:
        method = remote(url, "simulstream", patience_s=0.3)
        said = heard(tmp_path, method, seconds=0.3)
        assert said.status == "failed" and "no end of the text within 0.3 s" in str(said.error)
        state = method.start()  # as `live` uses it, whose last step waits
        method.step(state, np.zeros(CHUNK, np.float32), last=False)
        with pytest.raises(UserError, match="no end of the text within"):
            method.step(state, np.zeros(CHUNK, np.float32), last=True)


@pytest.mark.slow
def test_a_server_that_reads_nothing_breaks_the_connection(monkeypatch):
    monkeypatch.setattr(wire, "SEND_S", 0.2)
    monkeypatch.setattr(wire, "CLOSE_S", 0.2)

    def send_on(method):
        state = method.start()
        for _ in range(200):  # 100 MB, which no buffers hold
            method.step(state, np.zeros(250_000, np.float32), last=False)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match="the connection broke"):
            send_on(remote(url, "whisper_online"))
    over = threading.Event()
    with websocket(lambda connection: (over.wait(HANG_S), None)[1]) as url:
        try:
            with pytest.raises(UserError, match="the connection broke"):
                send_on(remote(url, "simulstream"))
        finally:
            over.set()


STEPS = {"type": realtime.STEPS, "delta": " a", "partial": "", "retracted": 0}


# -- Servers of other people --


CONVERSATIONS = Path(__file__).parents[1] / "fixtures" / "remote"
# -- conversations ----------------------------------------------------------------------------


def test_vllm_is_told_its_model_and_its_deltas_become_whole_words(tmp_path):
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


def test_of_deepgrams_results_the_final_ones_count_and_late_guesses_do_not(tmp_path):
    with websocket(replay(CONVERSATIONS / "deepgram.txt")) as url:
        said = heard(tmp_path, Answered(url, "deepgram", {2: 3}), seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " the cat sat"
    assert [" sad"] in [step.partial for step in said.steps]
    # It was told that the audio had ended, so no turn ended by itself.
    assert {step.kind for step in said.steps} == {"audio", "flush"}


def test_deepgram_is_asked_in_its_address():
    asked = []

    def handler(connection):
        asked.append(connection.request.path if connection.request else "")

    with websocket(handler) as url:
        method = remote(f"{url}/v1/listen?endpointing=300", "deepgram", served="tiny.en")
        method.start(language="en").wire.close()
    (path,) = asked
    assert path.startswith("/v1/listen?encoding=linear16&sample_rate=16000&interim_results=true")
    assert path.endswith("&language=en&model=tiny.en&endpointing=300")


# -- the end of a turn ------------------------------------------------------------------------


def result(words, start, duration, **fields):
    said = {"alternatives": [{"transcript": words}]}
    told = {"type": "Results", "start": start, "duration": duration, "channel": said}
    return json.dumps(told | fields)


TURN = result("the cat", 0.0, 0.5, is_final=True, speech_final=True)


def test_a_mark_that_comes_after_its_word_has_no_blank(tmp_path):
    rows = [("this mailbox", 0.26, 3.26), (".", 3.52, 0.0), ("Please try again", 4.34, 0.9)]
    messages = [result(*row, is_final=True) for row in rows]  # of WhisperLiveKit 0.2.26
    with websocket(Scripted({2: messages})) as url:
        said = heard(tmp_path, Answered(url, "deepgram", {2: 3}), seconds=0.5)
    assert text(said) == " this mailbox. Please try again"


TURN_ENDS = {
    "deepgram": [TURN],
    "openai_realtime": [
        json.dumps({"type": "input_audio_buffer.speech_stopped"}),
        transcription("completed", transcript="the cat"),
    ],
}


@pytest.mark.parametrize("protocol", TURN_ENDS)
def test_a_natural_end_is_waited_for_in_silence(tmp_path, protocol):
    server = Scripted({8: TURN_ENDS[protocol]})  # 5 pieces of 100 ms are sound
    with websocket(server) as url:
        method = remote(url, protocol, end_of_turn="natural")
        said = heard(tmp_path, method, seconds=0.5)
    assert said.status == "ok", said.error
    assert text(said) == " the cat"
    (over,) = [step for step in said.steps if step.kind == "endpoint"]
    assert over.committed == [" the", " cat"]
    assert over.audio_samples == 8000 and over.compute_s > 0.1  # 300 ms of silence after it
    for told in server.messages:
        assert not told["type"].endswith("commit")
        if told["type"] == "session.update":
            assert told["session"]["audio"]["input"]["turn_detection"] == {"type": "server_vad"}


def test_a_natural_end_that_never_comes_is_waited_for_no_longer_than_told(tmp_path):
    with websocket(Scripted()) as url:
        method = remote(url, "deepgram", end_of_turn="natural", patience_s=0.3)
        said = heard(tmp_path, method, seconds=0.3)
    assert said.status == "ok", said.error
    assert "endpoint" not in {step.kind for step in said.steps}


def test_a_turn_that_ends_within_the_recording_is_logged_there(tmp_path):
    with websocket(Scripted({2: [TURN]})) as url:
        said = heard(tmp_path, Answered(url, "deepgram", {2: 1}), seconds=0.5)
    (over,) = [step for step in said.steps if step.kind == "endpoint"]
    assert over.audio_samples < 8000


def test_a_protocol_without_turns_has_no_natural_end():
    with pytest.raises(UserError, match="simulstream does not report the end of a turn; give"):
        remote("ws://x", "simulstream", end_of_turn="natural")
    with pytest.raises(UserError, match="one of forced, natural"):
        remote("ws://x", "deepgram", end_of_turn="sometimes")


# -- broken servers ---------------------------------------------------------------------------


WRONG_STEPS = [
    ({"retracted": -1}, "Expected `int` >= 0"),
    ({"retracted": 1}, "took back 1 of 0 final"),
    ({"delta": None}, "`str`, got `null`"),
    ({"delta": "\ud800"}, "is no JSON"),
]


@pytest.mark.parametrize(
    "protocol, messages, told",
    [
        *(("openai_realtime", [json.dumps(STEPS | wrong)], told) for wrong, told in WRONG_STEPS),
        ("simulstream", ['{"new": ["a"]}'], "`str`, got `array`"),
        ("openai_realtime", ["<html><body>It works!</body></html>"], "no JSON object: '<html>"),
        ("openai_realtime", ["[1]"], "no JSON object"),
        ("openai_realtime", [b"\xff\x00"], "no JSON object"),
        (
            "openai_realtime",
            [transcription("delta")],
            "missing required field `delta`",
        ),
        ("openai_realtime", [json.dumps({"type": "error"})], "the server reports: None"),
        (
            "vllm_realtime",
            ['{"type": "error", "error": "no such model"}'],
            "reports: no such model",
        ),
        ("deepgram", ['{"type": "Error", "description": "16000 only"}'], "reports: 16000 only"),
        *(  # of a server that speaks another protocol
            (other, ['{"type": "error", "error": {"message": "send JSON"}}'], "reports: send JSON")
            for other in ("deepgram", "simulstream")
        ),
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
    tmp_path, caplog, protocol, messages, told
):
    first = "{}" if protocol == "simulstream" else GREETING
    with websocket(Scripted({1: messages}, first=first)) as url:
        said = heard(tmp_path, remote(url, protocol), seconds=0.3)
    assert said.status == "failed" and told in str(said.error), said.error
    assert text(said) == "" or "back" in told
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.parametrize(
    ("protocol", "first", "told"),
    [
        ("openai_realtime", "{", "the server sent what is no JSON"),
        ("openai_realtime", "[]", "the server sent what is no JSON object"),
        ("simulstream", '{"new": "early"}', "sent the text ' early' before it had any audio"),
    ],
)
def test_a_greeting_that_is_none_fails_the_utterance(tmp_path, protocol, first, told):
    with websocket(Scripted(first=first)) as url:
        said = heard(tmp_path, remote(url, protocol), seconds=0.3)
    assert said.status == "failed" and told in str(said.error), said.error


def test_text_after_the_final_one_is_ignored(tmp_path):
    done = transcription("completed", transcript="hello")
    late = [transcription("delta", delta="hello"), done]
    with websocket(Scripted(end=2 * late)) as url:
        said = heard(tmp_path, remote(url, "openai_realtime"), seconds=0.2)
    assert said.status == "ok", said.error
    assert text(said) == " hello"


def test_a_server_that_never_answers_is_given_up_with_its_address(tmp_path, monkeypatch):
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


def test_a_server_that_closes_within_the_audio_fails_the_utterance(tmp_path):
    def handler(connection):
        connection.send(GREETING)
        connection.recv()

    with websocket(handler) as url:
        said = heard(tmp_path / "within", remote(url, "openai_realtime"), seconds=0.5)
    assert said.status == "failed" and said.error
    with websocket(lambda connection: None) as url:
        said = heard(tmp_path / "at once", remote(url, "vllm_realtime"), seconds=0.1)
    assert said.status == "failed" and "closed at once" in str(said.error)


def test_a_page_in_place_of_a_server_is_named_as_such(tmp_path):
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>"

    def serve(listening):
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
    assert "HTTP 200); that is no such server; correct the path" in str(said.error)


@pytest.mark.parametrize(
    "sent, told",
    [
        (b"3000 4000 and so\n0 900 my\n", "times go back: a text from 0 to 0.9 s"),
        (b'{"start": 2, "end": 1, "text": "x"}\n', "times go back"),
        (b"{not JSON}\n", "no JSON object"),
        (b"<html>\n", "no line of its"),
        (b"0 100 " + b"x" * 10_000_000 + b"\n", "a line of 1,000,000 bytes or more"),
    ],
)
def test_lines_that_no_server_may_send_fail_the_utterance(tmp_path, sent, told):
    with lines(sent) as url:
        said = heard(tmp_path, remote(url, "whisper_online"), seconds=0.5)
    assert said.status == "failed" and told in str(said.error), said.error
