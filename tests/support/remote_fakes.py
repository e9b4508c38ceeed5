"""Servers of other people as stubs, and what `method=remote` hears of them."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fakes import utterance
from places import HANG_S
from served import until
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from streaming_asr.events.log import EventWriter, UtteranceLog, committed_words, read_log
from streaming_asr.method import Samples, Update
from streaming_asr.methods.remote import Remote
from streaming_asr.methods.remote.wire import Change
from streaming_asr.simulate.feeds import simulate

CHUNK = 1600  # 100 ms
GREETING = json.dumps({"type": "session.created", "session": {"id": "s"}})


def remote(url: str, protocol: str, **settings: Any) -> Remote:
    wanted: dict[str, Any] = {"served": None, "rate": 16_000, "patience_s": HANG_S, **settings}
    return Remote(url=url, protocol=protocol, feed="realtime", **wanted)


class Arrived(deque[Change]):
    """Counts what came in."""

    n = 0

    def append(self, change: Change) -> None:
        super().append(change)
        self.n += 1


class Answered(Remote):
    """Goes on from its k-th delivery once `answers[k]` changes have come in all, so that what is
    said during the audio is heard during the audio, however busy the machine is."""

    n_sent = 0

    def __init__(self, url: str, protocol: str, answers: dict[int, int], **settings: Any) -> None:
        super().__init__(
            url=url, protocol=protocol, feed="realtime", rate=16_000, patience_s=HANG_S,
            **{"served": None, **settings},
        )  # fmt: skip
        self.answers = answers

    def start(self, **settings: Any) -> Any:
        state = super().start(**settings)
        state.pending = Arrived()
        return state

    def step(self, state: Any, audio: Samples, *, last: bool) -> Update:
        update = super().step(state, audio, last=last)
        self.n_sent += len(audio) > 0
        until(lambda: state.pending.n >= self.answers.get(self.n_sent, 0))
        return update


def heard(folder: Path, method: Any, seconds: float = 1.5, chunk: int = CHUNK) -> UtteranceLog:
    with EventWriter(folder / "events.jsonl", {}) as writer:
        simulate(
            method,
            [utterance(seconds=seconds)],
            writer=writer,
            feed="realtime",
            chunk_samples=chunk,
            first_chunk_samples=chunk,
            warm_up=False,
        )
    (said,) = read_log(folder / "events.jsonl").utterances
    return said


def text(said: UtteranceLog) -> str:
    return "".join(word for word, _ in committed_words(said.steps))


@contextmanager
def websocket(handler: Callable[[ServerConnection], None]) -> Iterator[str]:
    with serve(handler, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def lines(*sent: bytes, apart: bool = False) -> Iterator[str]:
    """A TCP server that sends its lines once it has 100 ms of audio, and ends with the audio.
    apart: one line for each 100 ms."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            connection, _ = listening.accept()
            with connection:
                n, waiting = 0, [*sent] if apart else [b"".join(sent)]
                n_parts = len(waiting)
                while data := connection.recv(65_536):
                    n += len(data)
                    while waiting and n >= 3200 * (n_parts - len(waiting) + 1):
                        with suppress(OSError):  # who has heard enough leaves
                            connection.sendall(waiting.pop(0))

        thread = threading.Thread(target=run)
        thread.start()
        yield f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        thread.join()


class Scripted:
    """A server that sends `first`, then `after[n]` with the n-th piece of audio, and `end` when the
    client reports the end of the audio; `messages` has what the client sent."""

    ENDS = ("input_audio_buffer.commit", "CloseStream", "end_of_stream")

    def __init__(
        self,
        after: Mapping[int, Sequence[str | bytes]] = {},
        end: Sequence[str] = (),
        *,
        first: str | None = GREETING,
    ) -> None:
        self.after, self.end, self.first = after, end, first
        self.messages: list[Any] = []
        self.n_audio = 0

    def __call__(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            if self.first is not None:
                connection.send(self.first)
            for message in connection:
                answers: Sequence[str | bytes] = ()
                if isinstance(message, bytes) or "input_audio_buffer.append" in message:
                    self.n_audio += 1
                    answers = self.after.get(self.n_audio, ())
                else:
                    self.messages.append(json.loads(message))
                    ends = any(end in message for end in self.ENDS)
                    answers = self.end if ends else ()
                    if ends and "CloseStream" in message:
                        return
                for each in answers:
                    connection.send(each)


def replay(conversation: Path) -> Callable[..., None]:
    """A server that takes its part in a recorded conversation: `<` it says, `>` it must be told,
    without the sound. What it is told otherwise closes the connection."""

    def handler(connection: ServerConnection) -> None:
        for line in conversation.read_text(encoding="utf-8").splitlines():
            side, said = line[0], line[2:]
            if side == "<":
                connection.send(said)
                continue
            told = connection.recv(timeout=HANG_S)
            if isinstance(told, bytes):
                assert said == "audio", said
                continue
            event = json.loads(told)
            if "audio" in event:
                event["audio"] = "..."
            assert event == json.loads(said)

    return handler
