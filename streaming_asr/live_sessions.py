"""What `live` and `serve` share: the methods a command line names, a session's log, its scores."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from streaming_asr import cells as planned_cells
from streaming_asr import machine
from streaming_asr.durations import parse_duration
from streaming_asr.engine import Engine, Seen
from streaming_asr.errors import UserError
from streaming_asr.events import EventWriter, UtteranceLog, committed_words
from streaming_asr.formats.stream import EVERYTHING
from streaming_asr.method import SAMPLE_RATE, Samples, Word, display_text
from streaming_asr.metrics import METRICS, METRICS_VERSION
from streaming_asr.run import method_of
from streaming_asr.sessions import Stream, Worker
from streaming_asr.utterance import TimedWord, Utterance

ALIGNED_S = 20.0  # of a recording at once, below Whisper's context
# What no text can be held against, where the reference is the hypothesis itself.
ACCURACY = ("wer", "cer", "rwer", "arwer", "word_latency_coverage")


@dataclass
class Cell:
    """One method of a session and what it has said so far."""

    folder: Path
    engine: Engine
    header: dict[str, Any]
    title: str
    stream: Stream = field(init=False)
    committed: list[Word] = field(default_factory=list)
    partial: list[Word] = field(default_factory=list)
    latest: Seen | None = None
    unsent: deque[tuple[Seen, bool]] = field(default_factory=deque)
    done: threading.Event = field(default_factory=threading.Event)

    def begin(
        self,
        worker: Worker,
        name: str,
        *,
        grows: bool,
        language: str | None = None,
        on_step: Callable[[Cell], None] = lambda cell: None,
        on_end: Callable[[Cell], None] = lambda cell: None,
    ) -> None:
        """Open the stream; the callbacks run in the inference thread."""

        def seen(_: Stream, each: Seen) -> None:
            step = each.step
            self.unsent.append((each, not self.committed))
            del self.committed[len(self.committed) - step.retracted :]
            self.committed += map(Word, step.committed)
            self.partial, self.latest = list(map(Word, step.partial)), each
            on_step(self)

        def ended(*_: object) -> None:
            self.partial = []
            self.done.set()
            on_end(self)

        self.stream = worker.open(
            self.engine, name, language=language, grows=grows, on_step=seen, on_end=ended
        )

    def take_unsent(self) -> tuple[Seen, bool] | None:
        """Return the oldest step that was not taken yet, and whether it opens the text."""
        return self.unsent.popleft() if self.unsent else None

    @property
    def log(self) -> UtteranceLog:
        return self.stream.log

    def rtf(self) -> float:
        """Return compute per second of audio so far; 0 before the first step."""
        steps = list(self.log.steps)
        return sum(s.compute_s for s in steps) / steps[-1].audio_s if steps else 0.0

    def figures(self) -> str:
        """Return seconds behind, the time of the last step and the RTF, in words."""
        if self.log.error is not None:
            return f"failed: {self.log.error}"
        if self.latest is None:
            return "listening"
        step_ms = self.latest.step.compute_s * 1000
        return f"{self.latest.behind_s:.2f} s behind · step {step_ms:.0f} ms · RTF {self.rtf():.2f}"

    def write(self, header: dict[str, Any] | None = None) -> Path:
        """Write the log and return its path."""
        path = self.folder / "events.jsonl"
        with EventWriter(path, header or self.header) as writer:
            writer.write_utterance(self.log)
        return path


def cells_of(overrides: Sequence[str]) -> list[Cell]:
    """Return a cell for each combination of the settings, checked, its method loaded and warm.

    `-cd FOLDER` among them names a folder of further configuration, as for `run`. Raises UserError
    as `run` does, before any weights load.
    """
    overrides, config_dir = list(overrides), None
    if "-cd" in overrides:
        at = overrides.index("-cd")
        config_dir = overrides[at + 1]
        del overrides[at : at + 2]
    settings = [*overrides, "tracker=none"]
    plans = planned_cells.plan(settings, multirun=True, config_dir=config_dir)
    for plan in plans:
        if plan.config is None:
            raise UserError(f"{plan.folder.name}: has no trained weights; add method.weights=none")
        planned_cells.check_writable(plan.folder)
    return [_cell(plan) for plan in plans]


def _cell(plan: planned_cells.Planned) -> Cell:
    config = plan.config
    assert config is not None
    name = plan.folder.name.partition(",")[0].removeprefix("method=")
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
    return Cell(plan.folder, engine, header, f"{name} {config.chunk} · {config.model.name}")


# -- after a session ------------------------------------------------------------------------


def finish(
    cells: Sequence[Cell],
    source: str,
    samples: Samples | None,
    reference: str | None,
    *,
    aligns: bool,
    say: Callable[[str], None] = print,
) -> int:
    """Write and score the logs, say what they tell and where they lie, and return the exit status.

    samples: those of a microphone, which are kept beside the logs; None for a file.
    """
    from streaming_asr.score import score_folder

    audio = Path(source)
    if samples is not None:
        import soundfile

        audio = cells[0].folder.parent / "audio.wav"
        soundfile.write(audio, samples, SAMPLE_RATE)
    text, words, told = reference or "", None, None
    if aligns:
        text, words, told = _timed(cells, audio, reference, say)
    n_failed = 0
    for cell in cells:
        cell.log.audio_path = str(audio.absolute())
        cell.log.text, cell.log.words = text, words
        path = cell.write(_header(cell.header, reference, told))
        metrics = score_folder(cell.folder, experiment=cell.folder.parent.name)["metrics"]
        n_failed += cell.log.error is not None
        say(f"{_summary(cell, metrics, reference)} · {path}")
    return 1 if n_failed else 0


def _summary(cell: Cell, metrics: dict[str, Any], reference: str | None) -> str:
    if cell.log.error is not None:
        return f"{cell.title}: failed: {cell.log.error}"
    told = [f"{cell.title}: {len(cell.committed)} words"]
    if metrics.get("wer") is not None:
        told.append(f"WER {metrics['wer']:.1f} %")
    shown, committed = (
        metrics.get(f"word_latency_{name}_p50_ca_s") for name in ("shown", "committed")
    )
    if shown is not None and committed is not None:
        against = "" if reference is not None else " (of the aligned hypothesis)"
        told.append(f"shown after {shown:.2f} s, committed after {committed:.2f} s{against}")
    told.append(f"RTF {cell.rtf():.2f}")
    return " · ".join(told)


def _header(
    header: dict[str, Any], reference: str | None, word_times: str | None
) -> dict[str, Any]:
    """Return the header that says where the words' times are from, and what they cannot tell."""
    if word_times is None:
        return header
    config = header["config"]
    data = config["data"] | {"word_times": word_times}
    header = header | {"config": config | {"data": data}}
    if reference is None:
        lacking = {name: "reference" for name in METRICS if name.startswith(ACCURACY)}
        header |= {"unmeasured": lacking, "knows": sorted(EVERYTHING)}
    return header


def _timed(
    cells: Sequence[Cell], audio: Path, reference: str | None, say: Callable[[str], None]
) -> tuple[str, list[TimedWord] | None, str | None]:
    """Return the reference, its words with their times, and what they are from.

    Without a reference the text of the first method that has one stands for it, for all methods,
    so that their latencies are of the same words and can be compared.
    """
    from streaming_asr.align.auto import AutoAligner
    from streaming_asr.config import build
    from streaming_asr.data.audio import load_audio

    said = [cell for cell in cells if cell.log.error is None and cell.committed]
    if reference is None and not said:
        return "", None, None
    log = (said or cells)[0].log
    hypothesis = committed_words(log.steps)
    try:
        chosen = AutoAligner.choose("auto", {log.language or "en"})
        aligner = build(chosen.config.aligner)
        recording = load_audio(audio)
        words: list[TimedWord] = []
        for text, begin_s, end_s in _pieces(hypothesis, log.duration_s, reference):
            cut = recording[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            utterance = Utterance(log.utt, text, cut.copy, 0.0, language=log.language)
            (result,) = aligner.align([utterance])
            if result.words is None:
                raise UserError(result.reason)
            words += [
                TimedWord(w, begin_s + start, begin_s + end) for w, start, end in result.words
            ]
    except UserError as error:
        say(f"no word times, so no latency of words: {error}")
        return reference or "", None, None
    if reference is not None:
        return reference, words, chosen.name
    text = display_text(Word(text) for text, _ in hypothesis)
    return text, words, f"{chosen.name}, of the text of {said[0].title}: errors are not counted"


def _pieces(
    hypothesis: Sequence[tuple[str, list[float | None]]], duration_s: float, reference: str | None
) -> list[tuple[str, float, float]]:
    """Return what to align: (text, begin, end in seconds) in turn.

    A reference is one piece. A hypothesis is cut between words, by the method's own times, so that
    long sessions fit the aligner; words without times are one piece too.
    """
    if reference is not None:
        return [(reference, 0.0, duration_s)]
    pieces: list[tuple[str, float, float]] = []
    text, begin_s, last_end_s = "", 0.0, 0.0
    for word, (start, end, _) in hypothesis:
        if text and start is not None and start - begin_s > ALIGNED_S:
            cut_s = (last_end_s + max(start, last_end_s)) / 2
            pieces.append((text.strip(), begin_s, cut_s))
            text, begin_s = "", cut_s
        text += word
        last_end_s = last_end_s if end is None else end
    return [*pieces, (text.strip(), begin_s, duration_s)]
