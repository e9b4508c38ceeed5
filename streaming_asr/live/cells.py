"""What `live` and `serve` share: the methods a command line names, and a session's log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
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
from streaming_asr.live.engine import Engine, LiveStep
from streaming_asr.live.streams import LiveStream
from streaming_asr.live.worker import Worker
from streaming_asr.method import SAMPLE_RATE, Word, revise
from streaming_asr.metrics import METRICS_VERSION
from streaming_asr.run.method import method_of
from streaming_asr.run.plan import Plan, Planned
from streaming_asr.terminal import loading
from streaming_asr.text.subtitles import add_timed


@dataclass
class LiveCell:
    """One method of a session and its text so far."""

    folder: Path
    engine: Engine
    header: dict[str, Any]
    title: str
    stream: LiveStream = field(init=False)
    language: str | None = None  # that the settings name, or that was found out
    notice: str | None = None  # what a person should know of that language
    committed: list[Word] = field(default_factory=list)
    partial: list[Word] = field(default_factory=list)
    latest: LiveStep | None = None
    is_paced: bool = True  # the audio comes as it is spoken, and not as fast as it goes
    unsent: deque[tuple[LiveStep, bool]] = field(default_factory=deque)
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        named = self.header["config"].get("language")
        if named != "detect":
            self.hears(named)

    def hears(self, language: str | None) -> None:
        """Note the language, if any, that the stream is in."""
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
        on_step: Callable[[LiveCell], None] = lambda cell: None,
        on_end: Callable[[LiveCell], None] = lambda cell: None,
    ) -> None:
        """Open the stream, in the language of the settings where none is given; the callbacks run
        in the inference thread."""
        self.hears(language or self.language)
        self.is_paced = grows

        def seen(_: LiveStream, each: LiveStep) -> None:
            self.unsent.append((each, not self.committed))
            revise(self.committed, each.step.retracted, map(Word, each.step.committed))
            self.partial, self.latest = list(map(Word, each.step.partial)), each
            if each.step.language is not None:
                self.hears(each.step.language)
            on_step(self)

        def ended(*_: object) -> None:
            self.partial = []
            self.done.set()
            on_end(self)

        self.stream = worker.open(
            self.engine, name, language=self.language, grows=grows, on_step=seen, on_end=ended
        )

    def take_unsent(self) -> tuple[LiveStep, bool] | None:
        """Return the oldest step that was not taken yet, and whether it opens the text."""
        return self.unsent.popleft() if self.unsent else None

    @property
    def model(self) -> str:
        return str(self.header["config"].get("model", {}).get("name", ""))

    @property
    def default_language(self) -> str:
        """Return the language of a stream that names none: Whisper's own, or `detect`."""
        return self.header["config"].get("language") or "en"

    @property
    def log(self) -> UtteranceLog:
        return self.stream.log

    def figures(self) -> str:
        """Return seconds behind, the time of the last step and the RTF, in words."""
        if self.log.error is not None:
            return f"failed: {self.log.error}"
        if self.latest is None:
            return "listening"
        step_ms = self.latest.step.compute_s * 1000
        behind_s, cost = self.latest.behind_s, rtf([self.log])
        text = f"{behind_s:.2f} s behind · " if self.is_paced else ""
        text += f"step {step_ms:.0f} ms · RTF {cost:.2f}"
        return text if self.language is None else f"{self.language} · {text}"

    def write(self, header: dict[str, Any] | None = None) -> Path:
        """Write the log and return its path."""
        path = self.folder / EVENTS
        with EventWriter(path, header or self.header) as writer:
            writer.write_utterance(self.log)
        return path


def timed_words(log: UtteranceLog) -> list[Word]:
    """Return the committed words, each with its times: `add_timed` for those without."""
    words: list[Word] = []
    for step in log.steps:
        times = step.words or [[]] * len(step.committed)
        committed = [Word(text, *each) for text, each in zip(step.committed, times, strict=True)]
        add_timed(words, step.retracted, committed, step.audio_s)
    return words


def rtf(logs: Iterable[UtteranceLog]) -> float:
    """Return compute per second of the audio of these streams so far; 0 before the first step."""
    each_log = [steps for log in logs if (steps := list(log.steps))]
    audio_s = sum(steps[-1].audio_s for steps in each_log)
    return sum(step.compute_s for steps in each_log for step in steps) / audio_s if audio_s else 0.0


def cells_of(plan: Plan) -> list[LiveCell]:
    """Return a live cell for each one of the plan, its method loaded and warm.

    Raises UserError for weights or a folder that cannot be had, before any weights load.
    """
    for each in plan.cells:
        if each.config is None:
            raise UserError(f"{each.folder.name}: has no trained weights; add method.weights=none")
        check_writable(each.folder)
    cells = []
    for each in plan.cells:
        name = each.folder.name.partition(",")[0].removeprefix("method=")
        loading(f"{name} on {each.config.model.name}")  # type: ignore[union-attr]
        cells.append(_cell(each))
    return cells


def _cell(planned: Planned) -> LiveCell:
    config = planned.config
    assert config is not None
    name = planned.folder.name.partition(",")[0].removeprefix("method=")
    detect_by_default(config)
    time_words_by_default(config)
    method, synchronise = method_of(config)
    chunk, first = (
        parse_duration(text) * SAMPLE_RATE // 1000 for text in (config.chunk, config.first_chunk)
    )
    engine = Engine(name, method, chunk, first, synchronise)
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
