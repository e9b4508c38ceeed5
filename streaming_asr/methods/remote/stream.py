"""The method without a model: the text of a server, when it arrives.

It runs only with `feed=realtime`. a_k is then the audio that was sent and f_k the moment at which
words arrived, both on the wall clock, so the clock that counts computation is what a listener sees,
the network included. What happens inside the server stays unknown.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streaming_asr.config.types import target_of
from streaming_asr.errors import UserError, check_one_of
from streaming_asr.method import (
    FRAME_SAMPLES,
    NULL,
    SAMPLE_RATE,
    Recorder,
    Samples,
    Update,
    Word,
    revise,
)
from streaming_asr.methods.remote.deepgram import Deepgram
from streaming_asr.methods.remote.protocols import Simulstream, WhisperOnline
from streaming_asr.methods.remote.realtime import OpenAIRealtime, VLLMRealtime
from streaming_asr.methods.remote.wire import Change, Wire, check_url

PROTOCOLS = ("openai_realtime", "vllm_realtime", "deepgram", "whisper_online", "simulstream")
TURNS = ("forced", "natural")
TELL_TURNS = ("openai_realtime", "deepgram")  # protocols whose servers report the end of a turn
SILENCE_S = 0.1  # sent at once while the end of a turn is waited for
TOKEN = "STREAMING_ASR_TOKEN"  # an environment variable, since settings are logged


@dataclass
class RemoteState:
    """One stream: its connection, and what came that no step has given yet."""

    wire: Wire
    changed: threading.Condition = field(default_factory=threading.Condition)
    pending: deque[Change] = field(default_factory=deque)
    partial: tuple[str, ...] = ()
    error: Exception | None = None
    ended: bool = False  # all of the recording is sent
    hung_up: bool = False  # and the server knows it
    is_turn_over: bool = False  # the server reported it, and no words have come since
    silence_s: float = 0.0  # sent after the recording
    silence_due_s: float = 0.0  # when the next piece of it is, by the clock
    deadline_s: float = math.inf  # when the wait for the end of the text is over, by the clock
    n_sent: int = 0  # samples
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
        end_of_turn: str = "forced",
        label: str | None = None,
    ) -> None:
        """Check the settings; `start` connects. Raises UserError.

        url: the server's address. protocol: one of PROTOCOLS, or module.Class of a `Wire`. feed:
        that of the run. served: the model to ask for (openai_realtime). rate: Hz of what is sent
        (openai_realtime). patience_s: how long the end of the text is waited for. end_of_turn:
        `forced` informs the server that the turn is over with the last of the audio; `natural` goes
        on with silence until the server ends the turn, for at most patience_s. label: what tables
        call the server.
        """
        self._own_wire: Any = None
        if "." in protocol:
            self._own_wire = target_of(protocol)
        else:
            check_one_of(PROTOCOLS, **{"method.protocol": protocol})
        check_one_of(TURNS, **{"method.end_of_turn": end_of_turn})
        check_url(url, protocol)
        if feed != "realtime":
            raise UserError(
                f"feed={feed}: a server answers by the clock on the wall; give feed=realtime"
            )
        if rate not in (16_000, 24_000):
            raise UserError(f"method.rate={rate}: 16000 or 24000")
        if end_of_turn == "natural" and not (protocol in TELL_TURNS or self._own_wire):
            raise UserError(
                f"method.end_of_turn=natural: {protocol} does not report the end of a turn; give "
                f"forced, or a protocol that does: {', '.join(TELL_TURNS)}"
            )
        self._url, self._protocol, self._served = url, protocol, served
        self._rate, self._patience_s, self._natural = rate, patience_s, end_of_turn == "natural"

    def start(self, *, language: str | None = None, recorder: Recorder = NULL) -> RemoteState:
        """Connect. Raises UserError where the server cannot be reached or refuses."""
        try:
            state = RemoteState(self._connect(language))
        except UserError:
            raise
        except Exception as error:  # as a protocol's client raises where the first message fails
            raise UserError(
                f"method.url={self._url}: closed at once ({error}); see the server's log"
            ) from error
        reader = threading.Thread(target=_read, args=(state,), name="remote", daemon=True)
        reader.start()
        return state

    def _connect(self, language: str | None) -> Wire:
        if self._own_wire is not None:
            wire: Wire = self._own_wire(self._url, language, self._served, os.environ.get(TOKEN))
            return wire
        if self._protocol == "whisper_online":
            return WhisperOnline(self._url)
        if self._protocol == "simulstream":
            return Simulstream(self._url, language)
        token = os.environ.get(TOKEN)
        if self._protocol == "vllm_realtime":
            return VLLMRealtime(self._url, self._served, token)
        if self._protocol == "deepgram":
            return Deepgram(self._url, language, self._served, token)
        return OpenAIRealtime(self._url, language, self._served, self._rate, token, self._natural)

    def step(self, state: RemoteState, audio: Samples, *, last: bool) -> Update:
        """Send the audio and return what has come; the last step waits for the server's end.

        Raises UserError where the connection broke or the server sent what it may not.
        """
        if len(audio):
            try:
                state.wire.send(audio)
                state.n_sent += len(audio)
            except Exception as error:
                state.error = state.error or error
        if last:
            self.end(state)
            while not state.done:
                self._wait(state, lambda: state.done, self._patience_s)
            state.wire.close()
        with state.changed:
            if state.error is not None:
                state.wire.close()
                if isinstance(state.error, UserError):
                    raise state.error
                raise UserError(f"{self._url}: the connection broke: {state.error}")
            changes = list(state.pending)
            state.pending.clear()
        committed: list[str] = []
        n_retracted, is_over = 0, False
        for change in changes:
            # Words of this very step, which no update has had, are taken back first.
            n_of_this_step = min(change.retracted, len(committed))
            revise(committed, n_of_this_step, change.committed)
            n_retracted += change.retracted - n_of_this_step
            state.partial = change.partial
            is_over = is_over or change.endpoint
        if last:  # what never became final does so with the end
            committed += state.partial
            state.partial = ()
        text = "".join((*committed, *state.partial))
        if text.strip() and state.n_sent < FRAME_SAMPLES and not last:
            state.wire.close()
            raise UserError(
                f"{self._url}: the server sent the text {text[:80]!r} before it had any audio"
            )
        words = tuple(map(Word, committed))
        partial = tuple(map(Word, state.partial))
        return Update(words, partial, endpoint=is_over, retracted=n_retracted)

    # -- by the clock on the wall: `method.Paced` ---------------------------------------------

    def wait(self, state: RemoteState, seconds: float) -> bool:
        """Return True once something has come, False after `seconds`.

        Once the server knows that the audio has ended, `patience_s` is the most that all waits take
        together, whatever comes meanwhile: then the stream is done, with an error.
        """
        return self._wait(state, lambda: bool(state.pending) or state.done, seconds)

    def _wait(self, state: RemoteState, is_over: Callable[[], bool], seconds: float) -> bool:
        """Wait until `is_over` or the stream is done, at most `seconds`; return whether they are.

        Meanwhile silence goes to the server where it has to find the end of the turn; then the wait
        is at most until the next piece of it is due. Past the deadline the stream is done.
        """
        if state.ended and not state.hung_up:
            seconds = min(seconds, self._play_silence(state))
        with state.changed:
            rest_s = state.deadline_s - time.monotonic()
            came = state.changed.wait_for(is_over, max(0.0, min(seconds, rest_s)))
            if not state.done and time.monotonic() >= state.deadline_s:
                state.done = True
                state.error = state.error or UserError(
                    f"{self._url}: no end of the text within {self._patience_s:g} s of the "
                    "audio's; give a larger method.patience_s"
                )
            return bool(came) or state.done

    def end(self, state: RemoteState) -> float:
        """End the audio, once; return how long the end of the text is waited for."""
        state.ended = True
        if not self._natural:
            self._hang_up(state)
        return self._patience_s

    def _hang_up(self, state: RemoteState) -> None:
        """Send the end of the audio, once, and set the deadline for the end of the text."""
        if not state.hung_up:
            state.hung_up = True
            state.deadline_s = time.monotonic() + self._patience_s
            try:
                state.wire.end()
            except Exception as error:
                state.error = state.error or error
                state.done = True

    def _play_silence(self, state: RemoteState) -> float:
        """Send the next piece of silence if it is due; return the seconds until the one after it.

        When the turn is over, or there were `patience_s` of silence, the audio is ended instead and
        0 returned.
        """
        if state.is_turn_over or state.silence_s >= self._patience_s:
            self._hang_up(state)
        elif time.monotonic() >= state.silence_due_s:
            # At a steady pace; a delay of more than one piece is not made up for.
            not_before_s = time.monotonic() - SILENCE_S
            state.silence_due_s = max(state.silence_due_s, not_before_s) + SILENCE_S
            state.silence_s += SILENCE_S
            try:
                state.wire.send(np.zeros(round(SILENCE_S * SAMPLE_RATE), np.float32))
            except Exception as error:
                state.error, state.done = state.error or error, True
        return 0.0 if state.hung_up else max(0.0, state.silence_due_s - time.monotonic())

    def is_done(self, state: RemoteState) -> bool:
        """Return whether all of the text has come and been given to a step."""
        return state.done and not state.pending


def _read(state: RemoteState) -> None:
    """Put what the server sends into `pending`, in a thread, until it ends; faults into `error`."""
    try:
        for change in state.wire.changes():
            with state.changed:
                if change.endpoint and not state.hung_up:
                    state.is_turn_over = True
                elif change.endpoint:  # the turn ended because this side ended the audio
                    change = change._replace(endpoint=False)
                elif change.committed or change.partial:
                    state.is_turn_over = False
                state.pending.append(change)
                state.changed.notify_all()
    except UserError as error:
        state.error = state.error or error
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        cause = UserError(f"the server's message is not in the form of method.protocol: {error!r}")
        state.error = state.error or cause
    except Exception as error:
        state.error = state.error or error
    with state.changed:
        if not state.hung_up and state.error is None:
            state.error = UserError("the server ended before the audio did; see its log")
        state.done = True
        state.changed.notify_all()
