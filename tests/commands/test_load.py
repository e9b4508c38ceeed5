"""Paced sessions on a server: the table, the errors, and where no more streams are tried."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from remote_fakes import remote, websocket
from websockets.sync.server import ServerConnection

from streaming_asr.commands.load import main, measure
from streaming_asr.utterance import TimedWord, Utterance

DONE = "conversation.item.input_audio_transcription.completed"


def silence():
    return np.zeros(3200, np.float32)


SPOKEN = Utterance(
    "u1", "hello", silence, 0.2, language="en", words=(TimedWord("hello", 0.05, 0.1),)
)
OTHER = Utterance("u2", "there", silence, 0.2, language="en", words=(TimedWord("there", 0, 0.1),))


class Server:
    """Says `hello` at the end of each session; refuses those beyond `most`."""

    def __init__(self, most: int = 100) -> None:
        self.n_sessions, self.most = 0, most

    def __call__(self, connection: ServerConnection) -> None:
        self.n_sessions += 1
        if self.n_sessions > self.most:
            connection.send(json.dumps({"type": "error", "error": {"message": "full"}}))
            return
        connection.send(json.dumps({"type": "session.created", "session": {"id": "s"}}))
        for message in connection:
            if json.loads(message)["type"].endswith("commit"):
                connection.send(json.dumps({"type": DONE, "transcript": "hello"}))


def test_more_streams_are_tried_while_the_lag_is_within_the_budget():
    server = Server()
    with websocket(server) as url:
        method = remote(url, "openai_realtime")
        rows = list(measure(method, [SPOKEN, OTHER], [1, 2], budget_s=1000.0, chunk=1600))
        assert [(row.n, row.sessions, row.errors) for row in rows] == [(1, 2, []), (2, 4, [])]
        assert server.n_sessions == 1 + 2 + 4  # the first warms the server up
        # "hello" ended at 0.1 s and came after 0.2 s of audio.
        assert all(row.p50 is not None and 0.1 <= row.p50 <= row.p95 for row in rows)
        assert all(row.is_within(1000.0) and not row.is_within(0.05) for row in rows)
        (row,) = measure(method, [SPOKEN], [1, 2], budget_s=0.05, chunk=1600)
        assert row.n == 1
        (row,) = measure(method, [OTHER], [1, 2], budget_s=1000.0, chunk=1600)
        assert row.p95 is None  # no word was right: nothing can be said of lag


def test_a_dead_server_carries_no_stream_and_the_status_says_so(corpus, capsys):
    with websocket(Server(most=0)) as url:
        given = [url, "streams=1,2", "budget=900s", "data=manifest", corpus]
        assert main(given) == 1
    assert "not one stream within a lag p95" in capsys.readouterr().out


def test_sessions_that_a_server_refuses_are_counted_with_their_reason():
    with websocket(Server(most=2)) as url:
        rows = list(
            measure(remote(url, "openai_realtime"), [SPOKEN], [1, 2], budget_s=1000.0, chunk=1600)
        )
    assert [len(row.errors) for row in rows] == [0, 2]
    assert "the server reports: full" in rows[1].errors[0]


@pytest.fixture()
def corpus(tmp_path):
    soundfile.write(tmp_path / "u1.wav", np.zeros(3200), 16_000)
    line = {"id": "u1", "audio_filepath": "u1.wav", "duration": 0.2, "text": "hello",
            "words": [["hello", 0.05, 0.1]]}  # fmt: skip
    (tmp_path / "m.jsonl").write_text(json.dumps(line) + "\n")
    yield f"data.path={tmp_path / 'm.jsonl'}"


def test_the_command_prints_the_table(corpus, capsys):
    with websocket(Server()) as url:
        given = [url, "streams=1,2", "budget=900s", "data=manifest", corpus]
        assert main(given) == 0
    said = capsys.readouterr().out
    assert "2 streams within a lag p95 of 900 s without an error" in said
    rows = [line.split() for line in said.splitlines()]
    table = [row[:3] for row in rows if len(row) == 6 and row[1].isdigit()]
    assert table == [["1", "1", "0"], ["2", "2", "0"]]


@pytest.mark.parametrize(
    "given, told",
    [
        ([], "needs the server's address first"),
        (["streams=1"], "needs the server's address first"),
        (["ws://x", "4"], "4: settings are written key=value"),
        (["ws://x", "streams=4,2"], "numbers from 1, each more than the last"),
        (["ws://x", "streams=0"], "numbers from 1"),
        (["ws://x", "streams=some"], "numbers from 1"),
        (["ws://x", "budget=3"], "3"),
        (["http://x", "data=mini"], "openai_realtime goes by ws or wss"),
        (["ws://[::1", "data=mini"], "method.url=ws://[::1: is no address (Invalid IPv6 URL)"),
        (["ws://x", "method.protocl=deepgram"], "protocol"),
    ],
)
def test_wrong_settings_are_refused(given, told, capsys):
    assert main(given) == 2
    assert told in capsys.readouterr().err


def test_words_without_times_have_no_lag(tmp_path, capsys):
    soundfile.write(tmp_path / "talk.wav", np.zeros(3200), 16_000)
    (tmp_path / "talk.txt").write_text("hello")
    assert main(["ws://x", "data=folder", f"data.path={tmp_path}"]) == 2
    assert "its words have no times" in capsys.readouterr().err
