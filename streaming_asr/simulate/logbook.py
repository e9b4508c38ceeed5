"""The log of a simulation: each recording is opened, its steps are written, and it is closed, even
where something fails.

A feed decides which audio a step gets; the logbook records the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import SLIP_S, EventWriter, UtteranceLog
from streaming_asr.machine import MemoryMeter, ran_out_of_memory
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.simulate.recordings import InMemory, OnDisk
from streaming_asr.simulate.stepper import StreamRecord
from streaming_asr.utterance import Utterance

log = logging.getLogger(__name__)


class RecordedStream(StreamRecord):
    """A stream of a recording: all of its audio exists before the first step."""

    def __init__(
        self,
        utterance: Utterance,
        audio: InMemory | OnDisk,
        feed: str,
        batch: int,
        lookahead_samples: int,
    ) -> None:
        """batch: the number of streams that share its steps."""
        super().__init__(
            UtteranceLog.of(utterance, feed=feed, batch=batch, lookahead_samples=lookahead_samples)
        )
        self.utterance = utterance
        self.audio = audio
        self.log.duration_samples = audio.n
        self.log.audio_hash = audio.hash

    @property
    def is_complete(self) -> bool:
        """Whether all of the audio has been taken."""
        return self.received == self.audio.n

    def take(self, end: int) -> Samples:
        """Return the next samples, (n,), up to sample `end` of the recording."""
        n_samples = end - self.received
        self.received = end
        return self.audio.read(n_samples)


@dataclass
class Logbook:
    """Opens, writes and closes the streams of a run in its log.

    at_most: the most samples of a step, of all its streams together; None except for a `LongForm`
    method. on_utterance, on_progress: see `feeds.simulate`.
    """

    writer: EventWriter
    feed: str
    lookahead_samples: int
    on_utterance: Callable[[Utterance, str | None], None]
    on_progress: Callable[[Utterance, float], None]
    at_most: int | None = None
    memory: MemoryMeter = field(default_factory=MemoryMeter)

    def opener(self, utterance: Utterance) -> Callable[[], Any] | None:
        """Return the function that opens a recording to be read from disk in pieces; None for one
        that fits into a step, and where its corpus has no such function."""
        n_samples = round(utterance.duration_s * SAMPLE_RATE)
        is_longer = self.at_most is not None and n_samples > self.at_most
        return getattr(utterance.audio, "reader", None) if is_longer else None

    def row(self, utterance: Utterance, batch: int) -> RecordedStream | None:
        """Return the stream of an utterance, which is not opened in the log yet; None for one whose
        audio cannot be read, which is logged as failed."""
        opener, at_most = self.opener(utterance), self.at_most
        try:
            audio = OnDisk(opener, at_most) if opener and at_most else InMemory(utterance.load())
            utterance.check_length(audio.n)
        except Exception as error:
            failure = self.failure_of(utterance, error)
            fields = {"batch": batch, "lookahead_samples": self.lookahead_samples}
            self.writer.open_utterance(UtteranceLog.of(utterance, feed=self.feed, **fields))
            self.writer.close_utterance(utterance.id, error=failure)
            self.on_utterance(utterance, failure)
            return None
        return RecordedStream(utterance, audio, self.feed, batch, self.lookahead_samples)

    def report_progress(self, row: RecordedStream) -> None:
        """Call `on_progress` with the seconds of a stream that were fed, and sample the memory."""
        self.memory.sample()
        self.on_progress(row.utterance, row.received / SAMPLE_RATE)

    def close(self, row: RecordedStream, failure: str | None) -> None:
        """Write the line that closes a stream, as failed where there is a failure."""
        self.writer.close_utterance(
            row.utterance.id,
            error=failure,
            memory_peak_bytes=self.memory.peak_bytes(),
            commit_violations=row.log.commit_violations,
            pacing_slip_s=row.log.pacing_slip_s,
        )
        if (slip_s := row.log.pacing_slip_s or 0.0) > SLIP_S:
            log.warning("%s: was fed %.2f s late; this machine is busy", row.log.utt, slip_s)
        self.on_utterance(row.utterance, failure)

    def failure_of(self, utterance: Utterance, error: Exception) -> str:
        """Return the text of an error for the log. Raises the error where memory ran out."""
        if ran_out_of_memory(error):  # no fault of the utterance, which stays open; the run ends
            raise error
        is_user_error = isinstance(error, UserError)
        log.warning("utterance %s failed: %s", utterance.id, error, exc_info=not is_user_error)
        return str(error) if is_user_error else f"{type(error).__name__}: {error}"
