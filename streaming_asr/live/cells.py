"""What `live` and `serve` share: the methods that a command line names, and a session's log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from streaming_asr import machine
from streaming_asr.cells.folder import EVENTS, check_writable
from streaming_asr.chunking import parse_duration
from streaming_asr.config.settle import detect_by_default, time_words_by_default
from streaming_asr.config.weights import unheard
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, UtteranceLog
from streaming_asr.live.streams import Engine, LiveStep, LiveStream
from streaming_asr.live.worker import Worker
from streaming_asr.method import SAMPLE_RATE, Word
from streaming_asr.metrics import METRICS_VERSION
from streaming_asr.run.method import method_of
from streaming_asr.run.plan import Plan, Planned
from streaming_asr.terminal import loading
from streaming_asr.text.subtitles import add_timed


@dataclass
class LiveCell:
    """One method of a session and its stream."""

    folder: Path
    engine: Engine
    header: dict[str, Any]
    title: str
    stream: LiveStream = field(init=False)
    language: str | None = None  # of the settings, or as the method detected it
    notice: str | None = None  # a warning for the user about that language
    latest: LiveStep | None = None
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        language = self.header["config"].get("language")
        if language != "detect":
            self.set_language(language)

    def set_language(self, language: str | None) -> None:
        """Set the language of the stream, None for an unknown one, and the notice about it."""
        self.language = language
        if language is not None and "method" in self.header["config"]:
            self.notice = unheard(self.header["config"], {language})

    def begin(
        self,
        worker: Worker,
        name: str,
        *,
        grows: bool,
        language: str | None = None,
        prompt: str | None = None,
        on_step: Callable[[LiveCell, LiveStep], None] = lambda cell, live_step: None,
        on_end: Callable[[LiveCell], None] = lambda cell: None,
    ) -> None:
        """Open the stream `name` of the log.

        language, prompt: None takes that of the settings. grows: see `LiveStream`. on_step, on_end:
        called in the inference thread.
        """
        self.set_language(language or self.language)

        def take_step(_: LiveStream, live_step: LiveStep) -> None:
            self.latest = live_step
            if live_step.step.language is not None:
                self.set_language(live_step.step.language)
            on_step(self, live_step)

        def end(*_: object) -> None:
            self.done.set()
            on_end(self)

        self.stream = worker.open(
            self.engine, name, language=self.language, prompt=prompt, grows=grows,
            on_step=take_step, on_end=end,
        )  # fmt: skip

    @property
    def committed(self) -> Sequence[Word]:
        return self.stream.committed

    @property
    def model(self) -> str:
        return str(self.header["config"].get("model", {}).get("name", ""))

    @property
    def default_language(self) -> str:
        """Return the language of a stream that names none: that of the settings, maybe `detect`, or
        English."""
        return self.header["config"].get("language") or "en"

    @property
    def log(self) -> UtteranceLog:
        return self.stream.log

    def figures(self) -> str:
        """Return a line for the user: the language, the seconds behind the audio, the time of the
        last step and the real-time factor; before the first step or after an error, that."""
        if self.log.error is not None:
            return f"failed: {self.log.error}"
        if self.latest is None:
            return "listening"
        step_ms = self.latest.step.compute_s * 1000
        behind_s, cost = self.latest.behind_s, rtf([self.log])
        # Audio that comes as fast as possible is never late.
        text = f"{behind_s:.2f} s behind · " if self.stream.grows else ""
        text += f"step {step_ms:.0f} ms · RTF {cost:.2f}"
        return text if self.language is None else f"{self.language} · {text}"

    def write(self, header: dict[str, Any] | None = None) -> Path:
        """Write the log and return its path."""
        path = self.folder / EVENTS
        with EventWriter(path, header or self.header) as writer:
            writer.write_utterance(self.log)
        return path


def timed_words(log: UtteranceLog) -> list[Word]:
    """Return the committed words, each with its times; `add_timed` estimates those that the method
    does not give."""
    words: list[Word] = []
    for step in log.steps:
        times = step.words or [[]] * len(step.committed)  # [start, end, probability]
        committed = [Word(text, *time) for text, time in zip(step.committed, times, strict=True)]
        add_timed(words, step.retracted, committed, step.audio_s)
    return words


def rtf(logs: Iterable[UtteranceLog]) -> float:
    """Return the real-time factor of these streams so far: seconds of compute per second of audio;
    0 before the first step."""
    audio_s = compute_s = 0.0
    for log in logs:
        steps = list(log.steps)  # the inference thread may append meanwhile
        if steps:
            audio_s += steps[-1].audio_s
            compute_s += sum(step.compute_s for step in steps)
    return compute_s / audio_s if audio_s else 0.0


def cells_of(plan: Plan) -> list[LiveCell]:
    """Return a live cell for each planned one. Its method is loaded and warmed up.

    Raises UserError for missing weights and a folder that cannot be written, before any load.
    """
    for planned in plan.cells:
        if planned.config is None:
            problem = "has no trained weights; add method.weights=none"
            raise UserError(f"{planned.folder.name}: {problem}")
        check_writable(planned.folder)
    return [_cell(planned) for planned in plan.cells]


def _cell(planned: Planned) -> LiveCell:
    """Load the method of a planned cell, warm it up, and return the live cell."""
    config = planned.config
    assert config is not None
    name = planned.folder.name.partition(",")[0].removeprefix("method=")
    loading(f"{name} on {config.model.name}")
    detect_by_default(config)
    time_words_by_default(config)
    method, synchronise = method_of(config)
    chunk_samples = parse_duration(config.chunk) * SAMPLE_RATE // 1000
    first_chunk_samples = parse_duration(config.first_chunk) * SAMPLE_RATE // 1000
    engine = Engine(name, method, chunk_samples, first_chunk_samples, synchronise)
    engine.warm_up()
    plain: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    plain["method"] = {"name": name} | plain["method"]
    plain["data"] = {"name": "live"}
    header = {
        "config": plain,
        "versions": machine.versions(),
        "machine": machine.machine(device=config.device),
        "metrics_version": METRICS_VERSION,
    }
    return LiveCell(planned.folder, engine, header, f"{name} {config.chunk} · {config.model.name}")
