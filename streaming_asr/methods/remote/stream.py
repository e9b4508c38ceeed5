"""The method that has no model: what a server says, when it says it.

It runs with `feed=realtime` alone. a_k is then the audio that was sent and f_k the moment at which
words arrived, both on the wall clock, so the clock that counts computation is what a listener sees,
the network included. What happens inside the server cannot be told.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import dataclass, field

from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import FRAME_SAMPLES, NULL, Recorder, Samples, Update, Word, revise
from streaming_asr.methods.remote.protocols import (
    Change,
    OpenAIRealtime,
    Simulstream,
    WhisperOnline,
    Wire,
    check_url,
)

PROTOCOLS = ("openai_realtime", "whisper_online", "simulstream")
TOKEN = "STREAMING_ASR_TOKEN"  # an environment variable: what stands in a setting is logged


@dataclass
class RemoteState:
    """One stream: its connection, and what came that no step has told yet."""

    wire: Wire
    changed: threading.Condition = field(default_factory=threading.Condition)
    untold: deque[Change] = field(default_factory=deque)
    partial: tuple[str, ...] = ()
    error: Exception | None = None
    n_sent: int = 0  # samples
    ended: bool = False  # no more audio is sent
    done: bool = False  # no more text comes


class Remote:
    """See the module's docstring."""

    lookahead_samples = 0

    def __init__(
        self,
        *,
        url: str,
        protocol: str,
        feed: str,
        served: str | None,
        rate: int,
        patience_s: float,
    ) -> None:
        """Check the settings; `start` connects. Raises UserError.

        url: the server's address. protocol: one of PROTOCOLS. feed: that of the run. served: the
        model to ask for (openai_realtime). rate: Hz of what is sent (openai_realtime). patience_s:
        how long the end of the text is waited for.
        """
        check_one_of(PROTOCOLS, **{"method.protocol": protocol})
        check_url(url, protocol)
        if feed != "realtime":
            raise UserError(
                f"feed={feed}: a server answers by the clock on the wall; give feed=realtime"
            )
        if rate not in (16_000, 24_000):
            raise UserError(f"method.rate={rate}: 16000 or 24000")
        self._url, self._protocol, self._served = url, protocol, served
        self._rate, self._patience_s = rate, patience_s

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> RemoteState:
        """Connect. Raises UserError where the server cannot be reached or refuses."""
        state = RemoteState(self._connect(language))
        reader = threading.Thread(target=_read, args=(state,), name="remote", daemon=True)
        reader.start()
        return state

    def _connect(self, language: str | None) -> Wire:
        if self._protocol == "whisper_online":
            return WhisperOnline(self._url)
        if self._protocol == "simulstream":
            return Simulstream(self._url, language)
        token = os.environ.get(TOKEN)
        return OpenAIRealtime(self._url, language, self._served, self._rate, token)

    def step(self, state: RemoteState, audio: Samples, *, last: bool) -> Update:
        """Send the audio and return what has come; the last step waits for the server's end."""
        if len(audio):
            try:
                state.wire.send(audio)
                state.n_sent += len(audio)
            except Exception as error:
                state.error = state.error or error
        if last:
            self.end(state)
            while not state.done:
                self.wait(state, self._patience_s)
            state.wire.close()
        with state.changed:
            if state.error is not None:
                state.wire.close()
                if isinstance(state.error, UserError):
                    raise state.error
                raise UserError(f"{self._url}: the connection broke: {state.error}")
            changes = list(state.untold)
            state.untold.clear()
        committed: list[str] = []
        retracted = 0
        for change in changes:
            # Words of this very step are taken back silently; older ones were given out.
            here = min(change.retracted, len(committed))
            revise(committed, here, change.committed)
            retracted += change.retracted - here
            state.partial = change.partial
        if last:  # what never became final does so with the end
            committed += state.partial
            state.partial = ()
        said = "".join((*committed, *state.partial))
        if said.strip() and state.n_sent < FRAME_SAMPLES and not last:
            state.wire.close()
            raise UserError(f"{self._url}: the server said {said[:80]!r} before it heard anything")
        words = tuple(map(Word, committed))
        return Update(words, tuple(map(Word, state.partial)), retracted=retracted)

    # -- by the clock on the wall: `method.Paced` ---------------------------------------------

    def wait(self, state: RemoteState, seconds: float) -> bool:
        """Return True once something has come, False after `seconds`."""
        with state.changed:
            came = state.changed.wait_for(lambda: state.untold or state.done, seconds)
            if not came and state.ended and seconds >= self._patience_s:
                state.done = True
                state.error = UserError(
                    f"{self._url}: no end of the text within {self._patience_s:g} s of the audio's"
                )
            return bool(came)

    def end(self, state: RemoteState) -> float:
        """Say that no more audio comes, once; return how long the end of the text is waited for."""
        if not state.ended:
            state.ended = True
            try:
                state.wire.end()
            except Exception as error:
                state.error = state.error or error
                state.done = True
        return self._patience_s

    def is_done(self, state: RemoteState) -> bool:
        """Return whether all of the text has come and been told."""
        return state.done and not state.untold


def _read(state: RemoteState) -> None:
    try:
        for change in state.wire.changes():
            with state.changed:
                state.untold.append(change)
                state.changed.notify_all()
    except Exception as error:
        state.error = state.error or error
    with state.changed:
        if not state.ended and state.error is None:
            state.error = UserError("the server ended before the audio did")
        state.done = True
        state.changed.notify_all()
