"""The log of a simulation: recordings opened, their steps written, and each closed, whatever fails.

A feed decides what is fed when; the logbook keeps what came of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import SLIP_S, EventWriter, Step, UtteranceLog
from streaming_asr.machine import MemoryMeter, ran_out_of_memory
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.simulate.recordings import InMemory, OnDisk
from streaming_asr.simulate.stepper import StreamRecord
from streaming_asr.utterance import Utterance

log = logging.getLogger(__name__)


class RecordedStream(StreamRecord):
    """A stream whose audio is all there."""

    def __init__(
        self, utterance: Utterance, audio: InMemory | OnDisk, feed: str, batch: int, ahead: int
    ) -> None:
        """batch: streams that share its steps. ahead: samples of the method's look-ahead."""
        super().__init__(
            UtteranceLog.of(utterance, feed=feed, batch=batch, lookahead_samples=ahead)
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
        """Return the samples (n,) that follow, up to sample `end` of the recording."""
        begin, self.received = self.received, end
        return self.audio.read(end - begin)


@dataclass
class Logbook:
    """Where the rows of a run are opened, written and closed.

    at_most: samples of a step of all streams together; None outside of long form.
    """

    writer: EventWriter
    feed: str
    lookahead_samples: int
    on_utterance: Callable[[Utterance, str | None], None]
    on_progress: Callable[[Utterance, float], None]
    at_most: int | None = None
    memory: MemoryMeter = field(default_factory=MemoryMeter)

    def opener(self, utterance: Utterance) -> Callable[[], Any] | None:
        """Return what reads a recording longer than a step from disk; None for all others."""
        n_samples = round(utterance.duration_s * SAMPLE_RATE)
        longer = self.at_most is not None and n_samples > self.at_most
        return getattr(utterance.audio, "reader", None) if longer else None

    def row(self, utterance: Utterance, batch: int) -> RecordedStream:
        """Return the row of an utterance. Raises what reading the audio raises."""
        opener, at_most = self.opener(utterance), self.at_most
        audio = OnDisk(opener, at_most) if opener and at_most else InMemory(utterance.load())
        utterance.check_length(audio.n)
        return RecordedStream(utterance, audio, self.feed, batch, self.lookahead_samples)

    def open(self, row: RecordedStream) -> None:
        """Begin the row in the log."""
        self.writer.open_utterance(row.log)

    def write(self, row: RecordedStream, step: Step) -> None:
        """Write a step of a row that is open."""
        self.writer.step(row.utterance.id, step)

    def write_all(self, row: RecordedStream, failure: str | None) -> None:
        """Write a row whose steps were kept until its end."""
        self.open(row)
        for step in row.log.steps:
            self.write(row, step)
        self.close(row, failure)

    def heard(self, row: RecordedStream) -> None:
        """Report how much of the row has been fed, and look at the memory."""
        self.memory.sample()
        self.on_progress(row.utterance, row.received / SAMPLE_RATE)

    def close(self, row: RecordedStream, failure: str | None) -> None:
        """End the row in the log, as failed where there is a failure."""
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

    def fail_unopened(self, utterance: Utterance, error: Exception, batch: int) -> None:
        """Log an utterance that could not be begun as failed."""
        failure = self.failure_of(utterance, error)
        fields = {"batch": batch, "lookahead_samples": self.lookahead_samples}
        self.writer.open_utterance(UtteranceLog.of(utterance, feed=self.feed, **fields))
        self.writer.close_utterance(utterance.id, error=failure)
        self.on_utterance(utterance, failure)

    def failure_of(self, utterance: Utterance, error: Exception) -> str:
        """Return the text of an error for the log. Raises the error where memory ran out."""
        if ran_out_of_memory(error):  # no fault of the utterance, which stays open; the run ends
            raise error
        expected = isinstance(error, UserError)
        log.warning("utterance %s failed: %s", utterance.id, error, exc_info=not expected)
        return str(error) if expected else f"{type(error).__name__}: {error}"
