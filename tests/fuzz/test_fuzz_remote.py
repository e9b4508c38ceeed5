"""Fuzz: servers that `remote` asks and hubs that models come from, one thing wrong with what each
answers. It is understood, or it is refused or fails the utterance by a line.
"""

import copy
import json
import socket
import tempfile
import threading
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import remote_fakes
from fakes import utterance
from fuzzing import INPUT_S, assert_finite, cases, edited, no_errors, run, spoiled, watched
from hypothesis import event, given
from hypothesis import strategies as st
from published_toys import COMMIT, only_hub
from tiny import tiny_folder
from websockets.exceptions import ConnectionClosed

from streaming_asr.commands import get
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.methods.remote import Remote
from streaming_asr.models.find import find
from streaming_asr.score import score_folder
from streaming_asr.simulate.feeds import simulate

pytestmark = pytest.mark.slow

TOLD = "conversation.item.input_audio_transcription."
SERVERS = {
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
def answers(draw):
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


def _message(row):
    return row.encode() if isinstance(row, str) else json.dumps(row).encode()


@contextmanager
def websocket(sent):
    """A server that sends its first message at once, its last one and its leave with the end of
    the audio, and the others with the first of it."""

    def handler(connection):
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

    with remote_fakes.websocket(handler) as url:
        yield url


@contextmanager
def plain(sent):
    """A TCP server that sends its lines with the first audio, and leaves with the last."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run():
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


def heard(folder, url, protocol):
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
def test_what_any_server_says_is_understood_or_fails_the_utterance_by_a_line(made):
    name, sent = made
    is_plain = name == "whisper_online"
    serving = plain if is_plain else websocket
    protocol = "openai_realtime" if name == "streaming_asr.steps" else name
    with tempfile.TemporaryDirectory() as place, watched(), no_errors(), serving(sent) as url:
        heard(Path(place), url, protocol)
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


# -- The hub --


ANSWER = {"id": "a/b", "modelId": "a/b", "sha": COMMIT, "siblings": [{"rfilename": "config.json"}]}
SMALL = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


@st.composite
def hubs(draw):
    """What is wrong with a hub of one Whisper, or with what it left in the cache, and how."""
    files = {file.name: file.read_bytes() for file in tiny_folder().iterdir()}
    what = draw(st.sampled_from(("answer", "file", "lost", "length", "broken off", "cache", "ref")))
    name = draw(st.sampled_from([*(each for each in SMALL if each in files), "model.safetensors"]))
    if what == "answer":
        answer = draw(
            st.one_of(edited(ANSWER).map(json.dumps), spoiled(json.dumps(ANSWER).encode()))
        )
        return what, name, answer if isinstance(answer, str) else answer.decode("latin-1")
    if what == "length":
        return what, name, draw(st.sampled_from((-1, 1, 10**6)))
    if what == "broken off":
        return what, name, draw(st.lists(st.integers(0, 300), min_size=1, max_size=8))
    if what == "ref":
        return what, name, draw(spoiled(COMMIT.encode()))
    return what, name, None if what == "lost" else draw(spoiled(files[name]))


@cases(10)
@given(hubs())
def test_what_any_hub_answers_is_a_model_or_refused(made):
    what, name, how = made
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
        watched(),
        only_hub(Path(folder), patch) as hub,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # transformers warns of settings it does not know
        files = {file.name: file.read_bytes() for file in tiny_folder().iterdir()}
        hub.repositories["a/b"] = files
        place = Path(folder) / "hub" / "models--a--b"
        if what in ("cache", "ref"):
            find("a/b")
            broken = place / ("refs/main" if what == "ref" else f"snapshots/{COMMIT}/{name}")
            broken.unlink()  # a link to the blob
            broken.write_bytes(how)
        elif what == "answer":
            hub.answer = how
        elif what == "lost":
            del files[name]
        elif what == "file":
            files[name] = how
        elif what == "length":
            hub.lies[name] = how
        else:
            hub.breaks[name] = how
        try:
            method = new_method("offline", "a/b")
            method.step(method.start(), np.zeros(8000, np.float32), last=True)
        except UserError as error:
            event(f"{what}: refused")
            assert str(error)
        else:
            event(f"{what}: read")
        run(get.main, "a/b")
