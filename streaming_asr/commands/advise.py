"""Which method, model and chunk serve these recordings on this machine? It measures, then answers.

First every setting transcribes some seconds: those that cannot keep up are left out. The rest
transcribe as much of the recordings as the minutes allow. Results of `run` are judged as they are.
"""

from __future__ import annotations

import argparse
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streaming_asr.cells import folder as folders
from streaming_asr.chunking import parse_duration
from streaming_asr.config.command_line import CommandLine, data_of
from streaming_asr.corpora.loader import in_order_of_limit
from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import read_log
from streaming_asr.files import give_json
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.metrics import traces
from streaming_asr.metrics.accuracy import total
from streaming_asr.metrics.intervals import LEAST
from streaming_asr.score.compare import read_runs
from streaming_asr.score.document import lines_of
from streaming_asr.score.judge import STREAMS, Figure, Limit, judge
from streaming_asr.score.results import BUSY, Result, read_results
from streaming_asr.score.retime import recordings_of
from streaming_asr.score.sample import Sample, difference, intervals
from streaming_asr.score.streams import capacity, serve
from streaming_asr.terminal import (
    Grid,
    add_config_dir,
    add_json,
    command_parser,
    console,
    end_if_stopped,
    exit_status,
    format_number,
    wrapped,
)

if TYPE_CHECKING:
    from streaming_asr.utterance import Utterance

TRIED = {
    "method": "hush_word,whisperrt,simul_whisper,ufal",
    "model": "tiny.en",
    "chunk": "300ms,1s",
    "gate": "speech",  # as live and serve have it
    "threads": "1",
}
EPILOG = f"""\
what to measure
  AUDIO    a recording or a folder of them, in any format that a media player
           plays. One to three minutes suffice; {LEAST} recordings or more give an
           interval. To record yourself, speak into
             streaming-asr live audio=mic
           and press q; the sound is in outputs/live/.../audio.wav.
  voices   synthetic voices of the package
  RESULTS  folders that `run` wrote with batch=1: they are judged, and nothing
           is measured
With a text next to each recording (talk.txt) it counts errors, without one the
words in which a setting differs from the offline pass.

KEY=VALUE is what to try, or a budget; these are tried where you name no others:
  method={TRIED["method"]}
  model={TRIED["model"]}  chunk={TRIED["chunk"]}    (`streaming-asr list` shows what there is)
  gate=speech  only stretches with speech are transcribed, as by `live` and
               `serve`; gate=none: all audio
A budget:
  lag=2s       nine of ten words must be final within it, computing included;
               needs no text
  streams=8    so many streams at once; 95 % of their steps must end within a
               chunk and 1 s

The exit status is 1 where nothing is within the budget, 2 for bad input.

examples
  streaming-asr advise talk.m4a lag=2s
  streaming-asr advise voices model=tiny.en,base --minutes 3
  streaming-asr advise outputs/one outputs/again streams=8"""
LAG = "word_latency_committed_p90_ca_s"
COST_S = 5.0  # of audio that show what a setting costs
SHORTEST_S = 2.0  # of audio that can be measured
LEAST_S = 20.0  # of audio that are transcribed, whatever the minutes
KEEPS_UP = 1.0  # seconds of computing per second of audio
# With and without reference texts: the heading of the errors and what it means.
ERRORS = {
    True: ("WER\n%", "WER: word errors per 100 words"),
    False: ("from\noffline %", "from offline: words per 100 that differ from the offline pass"),
}
LEGEND = (
    f"95 % interval: needs {LEAST} recordings and some errors. lag p90: nine of ten words are "
    "final within it. RTF: computing per second of audio. streams: how many at once one device "
    "carries, 95 % of their steps within a chunk and 1 s"
)
COMMAND = "  streaming-asr "
USES = {
    "live": "It transcribes the microphone; add audio=talk.wav for a file. `streaming-asr "
    "transcribe talk.wav` with the same settings prints the text of a file.",
    "serve": "It serves a page and programs at http://127.0.0.1:8000.",
}
GATES = {
    "speech": "Only stretches with speech are transcribed (gate=speech, the default there).",
    "none": "gate=none: all audio is transcribed, not only speech.",
}
# What a measurement sets itself, and what the offline pass does not take.
OURS = re.compile(r"(data|limit|name|output|tracker)(\.|=)")
STREAMED = re.compile(r"(method|chunk|first_chunk|gate|feed)(\.|=)")


class Budget(NamedTuple):
    """The lag in seconds that nine of ten words may have, None for any, and the streams at once."""

    lag_s: float | None
    n_streams: int

    def __str__(self) -> str:
        streams = f"{self.n_streams} stream{'s' * (self.n_streams > 1)}"
        return streams if self.lag_s is None else f"{streams} within a lag of {self.lag_s:g} s"

    def holds(self, choice: Choice) -> bool:
        """Return whether a choice is within the budget: by its values, as these are of the
        recordings that it is asked for."""
        limits = [Limit("streams", STREAMS, self.n_streams)]
        if self.lag_s is not None:
            limits.append(Limit("lag", LAG, self.lag_s))
        return all(each.state == "within" for each in judge(choice.figure, limits))


class Choice(NamedTuple):
    """What a setting has on these recordings.

    result: its errors are those of `sample`, against the reference or the offline pass, and its
    real-time factor is the median of its runs. bounds: of the errors. n_streams: how many streams
    each of its runs carries, the fewest first.
    """

    result: Result
    sample: Sample
    bounds: Sequence[float] | None
    n_streams: list[int]
    is_labelled: bool  # the errors are counted against a reference

    def figure(self, metric: str) -> Figure:
        """Return what the budget limits, to be judged (`score.judge`)."""
        n = self.n_streams[0]
        return Figure(n if metric == STREAMS else self.result.metrics.get(metric))

    @property
    def lag(self) -> str:
        """Return the lag in seconds, as it is shown."""
        return format_number(self.result.metrics.get(LAG), 2)

    @property
    def gate(self) -> str:
        """Return the gate of the run."""
        return str(self.result.config.get("gate") or "none")

    @property
    def settings(self) -> str:
        """Return the settings as `live` and `serve` take them, all but those they have anyway."""
        chosen = {
            "method": self.result.method,
            "model": self.result.model,
            "chunk": _chunk(self.result),
            "gate": "" if self.gate == "speech" else self.gate,
        }
        for key, value in folders.settings_of(self.result.folder.name).items():
            if not re.match(r"(data|limit|audio|output|name)\b", key):
                chosen.setdefault(key, value)
        return " ".join(f"{key}={value}" for key, value in chosen.items() if value)

    def cells(self) -> list[str]:
        """Return the numbers of a row of the table."""
        low, high = self.n_streams[0], self.n_streams[-1]
        return [
            format_number(self.result.metrics["wer"], 1),
            "–" if self.bounds is None else f"{self.bounds[0]:.1f} to {self.bounds[1]:.1f}",
            self.lag,
            format_number(self.result.metrics["rtf_total"], 2),
            f"{low}" if low == high else f"{low} to {high}",
        ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, 1 where nothing is within the budget."""
    about = "Which method, model and chunk serve these recordings on this machine?"
    parser = command_parser("streaming-asr advise", about, EPILOG)
    what = "what to measure, what to try, and a budget; default: voices"
    parser.add_argument("what", nargs="*", metavar="AUDIO|voices|RESULTS|KEY=VALUE", help=what)
    minutes = "how long it may measure; default 3"
    parser.add_argument("--minutes", type=float, default=3.0, help=minutes)
    add_config_dir(parser)
    add_json(parser)
    return exit_status(lambda: _advise(parser.parse_intermixed_args(argv)))


def _advise(arguments: argparse.Namespace) -> int:
    check_range(0.1, 600, **{"--minutes": arguments.minutes})
    settings = [each for each in arguments.what if "=" in each]
    line = CommandLine(["-m", *arguments.config_dir, *settings])
    places = [each for each in arguments.what if "=" not in each] or ["voices"]
    budget = _budget(line)
    notes: list[str] = []
    if all(map(_is_results, places)):
        if line.settings:
            raise UserError(f"{line.settings[0]}: results are judged as they are; leave it out")
    elif len(places) > 1:
        raise UserError(f"{' '.join(places)}: name one recording, one folder of them, or results")
    else:
        measurement = Measurement(places[0], line, arguments.minutes, budget.n_streams)
        places, notes = [str(measurement.run())], measurement.notes
    choices, more = judged(places)
    choices.sort(key=lambda each: (each.result.or_last("wer"), each.result.or_last(LAG)))
    names = _short(choices)
    within = [each for each in choices if budget.holds(each)]
    answer = _answer(choices, within, names, budget)
    errors, meaning = ERRORS[any(each.is_labelled for each in choices)]
    heads = ["settings", errors, "95 %\ninterval", "lag p90\ns", "RTF", "streams"]
    rows = [[name, *each.cells()] for name, each in zip(names, choices, strict=True)]
    if arguments.json is not None:
        cells = [dict(zip(heads, row, strict=True)) for row in rows]
        use = within[0].settings if within else None
        content = {"rows": cells, "use": use, "answer": answer, "notes": notes + more}
        give_json(content, arguments.json)
    if arguments.json != "-":
        console(80).print(Grid(heads, rows, legend={0: meaning, 2: LEGEND}), crop=False)
        for text in (*notes, *more, *answer):
            print(text if text.startswith(COMMAND) else wrapped(text))  # a command stays one line
    return 0 if within else 1


def _budget(line: CommandLine) -> Budget:
    """Return the budget of a command line, and take it away there. Raises UserError."""
    lag, streams = line.pop("lag"), line.pop("streams", "1") or ""
    lag_s = None if lag is None else parse_duration(lag, "lag") / 1000
    if not re.fullmatch(r"[1-9]\d{0,3}", streams):
        raise UserError(f"streams={streams}: a whole number from 1, as in streams=8")
    return Budget(lag_s, int(streams))


def _is_results(place: str) -> bool:
    path = Path(place)
    names = (folders.RESULT, folders.EVENTS, folders.FAILED)
    return path.is_dir() and any(next(path.rglob(name), None) for name in names)


def _chunk(result: Result) -> str:
    """Return the chunk as a setting has it."""
    return result.chunk.replace(" ", "").replace("1000ms", "1s")


def _label(result: Result) -> str:
    """Return how notes name a result."""
    return f"{result.label.replace(' gate=speech', '')} {_chunk(result)}".strip()


def _short(choices: Sequence[Choice]) -> list[str]:
    """Return the method, the chunk, and the other settings in which each differs from the rest."""
    results = [each.result for each in choices]
    short = folders.short_names([each.folder.name for each in results])
    names = []
    for each in results:
        name = short[each.folder.name] if len(results) > 1 else each.method
        names.append(name if _chunk(each) in name.split() else f"{name} {_chunk(each)}")
    return names


# -- measuring ------------------------------------------------------------------------------------


class Measurement:
    """Measures on one recording, a folder of them, or voices, the settings of a command line that
    carry `n_streams`, for some minutes.

    notes: what was tried, what is left out, and what speaks against the measurement.
    """

    def __init__(self, what: str, line: CommandLine, minutes: float, n_streams: int) -> None:
        for key in ("data", "limit", "name", "audio"):
            if line.get(key) is not None:
                setting = f"{key}={line.get(key)}"
                raise UserError(f"{setting}: name the recordings by themselves, as talk.wav")
        self._data = ["data=voices"]
        if what != "voices":
            path = Path(what).expanduser()
            if not path.exists():
                raise UserError(f"{what}: no such file; name a recording, a folder, or voices")
            self._data = [*data_of(path), "data.align=auto"]
        line.default(**TRIED, tracker="none", output="outputs")
        self._what, self._line, self._n_streams = what, line, n_streams
        self._minutes = minutes
        self._end = 0.0  # on the monotonic clock
        self._limit = 0  # recordings that are transcribed
        stem = re.sub(r"[^\w.+-]", "_", Path(what).stem)
        self._name = f"advise/{stem}"
        self._place = Path(str(line.get("output")), self._name)
        tried = " ".join(f"{key}={line.get(key)}" for key in TRIED)
        self.notes = [f"tried: {tried}; name others in the same way (`streaming-asr list`)"]

    def run(self) -> Path:
        """Return the folder of results. Raises UserError for recordings that cannot be read, and
        where nothing keeps up."""
        import soundfile

        from streaming_asr.report.page import build as build_page

        length_s = self._lengths()
        readable = [each for each, seconds in length_s.items() if seconds]
        shutil.rmtree(self._place, ignore_errors=True)  # an earlier machine's or hour's
        audio = self._place / "audio"
        audio.mkdir(parents=True)
        soundfile.write(audio / "cost.wav", _loudest(readable, self._what), SAMPLE_RATE)
        self._end = time.monotonic() + self._minutes * 60
        able = self._able([*data_of(audio / "cost.wav"), "data.align=none"])
        if not able:
            why = "; ".join(self.notes[1:])
            raise UserError(f"nothing keeps up with {self._n_streams} streams here: {why}")
        rtf = sum(each.metrics["rtf_total"] or 0.0 for each in able)
        room_s = max(max(self._end - time.monotonic(), 0) / rtf, LEAST_S)
        used_s = self._choose(length_s, room_s)
        self._transcribe(able)
        words = self._place / "words"
        _add_times(words, self._what)
        many = "s" * (len(used_s) > 1)
        self.notes.append(f"transcribed: {len(used_s)} recording{many}, {sum(used_s):.0f} s")
        self.notes.append(
            f"page: {build_page(words, audio_from=[self._place, Path(self._what).expanduser()])}"
        )
        return words

    def _lengths(self) -> dict[Utterance, float]:
        """Return the seconds of each recording, 0 for one that cannot be read."""
        from streaming_asr.config.build import build
        from streaming_asr.config.settle import compose

        utterances = build(compose(self._data[:2]).data).utterances(None)
        length_s = dict.fromkeys(utterances, 0.0)
        for each in utterances:
            try:
                length_s[each] = each.duration_s or len(each.load()) / SAMPLE_RATE
            except UserError as error:
                if len(utterances) == 1:
                    raise
                self.notes.append(f"left out: {error}")
        return length_s

    def _choose(self, length_s: Mapping[Utterance, float], room_s: float) -> list[float]:
        """Choose the recordings that last at most `room_s` together, and return the seconds of
        those that can be read. Of one that lasts longer the beginning is taken."""
        import soundfile

        ranked = in_order_of_limit(list(length_s))
        ends_s = np.cumsum([length_s[each] for each in ranked])
        self._limit = int(np.searchsorted(ends_s, room_s, side="right"))
        used_s = [length_s[each] for each in ranked[: self._limit] if length_s[each]]
        if used_s:
            return used_s
        first = next(each for each in ranked if length_s[each])
        part = self._place / "audio" / "part.wav"
        soundfile.write(part, first.load()[: round(room_s * SAMPLE_RATE)], SAMPLE_RATE)
        self._data, self._limit = data_of(part), 1  # its text cannot be cut with it
        self.notes.append(f"only the first {room_s:.0f} s were used, without their text")
        return [room_s]

    def _able(self, data: Sequence[str]) -> list[Result]:
        """Return the results of what keeps up with the sound of `data`.

        The longest chunk is first: what does not keep up with it is not tried at a shorter one,
        which costs more. Once half of the time is over no shorter chunk is tried.
        """
        able: list[Result] = []
        tried = {key: str(self._line.get(key)).split(",") for key in ("method", "model")}
        chunks = sorted(str(self._line.get("chunk")).split(","), key=parse_duration, reverse=True)
        rest = [
            each for each in self._line.settings if not re.match(r"(method|model|chunk)=", each)
        ]
        for chunk in chunks:
            if able and time.monotonic() > self._end - self._minutes * 30:
                self.notes.append(f"left out: chunk={chunk}: no time; give more --minutes")
                continue
            names = [f"{key}={','.join(values)}" for key, values in tried.items()]
            self._run([*rest, *data, *names, f"chunk={chunk}"], "cost")
            results = read_results(self._place / "cost")
            of_chunk = [each for each in results if each.chunk_s == parse_duration(chunk) / 1000]
            able_now = [each for each in of_chunk if self._keeps_up(each)]
            able += able_now
            if not able_now:
                break
            tried["method"] = list(dict.fromkeys(each.method for each in able_now))
            tried["model"] = list(dict.fromkeys(each.model for each in able_now))
        return able

    def _keeps_up(self, result: Result) -> bool:
        """Return whether a setting keeps up with the streams; if not, note why."""
        rtf = result.metrics.get("rtf_total")
        if rtf is not None and rtf * self._n_streams < KEEPS_UP:
            return True
        why = f": {result.error}"
        if rtf is not None:
            why = f" and shorter: cannot keep up, RTF {rtf:.2f}"
        self.notes.append(f"left out: {_label(result)}{why}")
        return False

    def _transcribe(self, able: Sequence[Result]) -> None:
        """Transcribe the recordings offline and with what keeps up, the cheapest first."""
        ours = [
            *self._data,
            f"limit={self._limit}",
            "tracker=none",
            f"output={self._line.get('output')}",
        ]
        settings = [each for each in self._line.settings if not OURS.match(each)]
        offline = [each for each in settings if not STREAMED.match(each)]
        self._run([*offline, "method=offline", *ours], "words")
        for at, each in enumerate(sorted(able, key=lambda each: each.or_last("rtf_total"))):
            if at > 0 and time.monotonic() > self._end:
                self.notes.append(f"left out: {_label(each)}: no time; give more --minutes")
                continue
            saved = folders.saved_settings(each.folder) or []
            self._run([*(each for each in saved if not OURS.match(each)), *ours], "words")

    def _run(self, settings: Sequence[str], name: str) -> None:
        from streaming_asr.run import command

        further = ["-cd", self._line.config_dir] if self._line.config_dir else []
        argv = ["-m", *further, *settings, f"name='{self._name}/{name}'"]
        end_if_stopped(status := command.main(argv, lambda *_: None))
        if status > 1:
            raise UserError("the measurement ended; the message above has the cause")


def _loudest(utterances: Sequence[Utterance], what: str) -> Samples:
    """Return the COST_S of the first recordings that have most power, by hops of a second.

    Raises UserError for less than SHORTEST_S, whose real-time factor means nothing.
    """
    n = round(COST_S * SAMPLE_RATE)
    samples = np.zeros(0, np.float32)
    for each in utterances:
        if len(samples) < n:
            samples = np.concatenate([samples, each.load()])
    if len(samples) < SHORTEST_S * SAMPLE_RATE:
        raise UserError(
            f"{what}: holds {len(samples) / SAMPLE_RATE:.2f} s of audio, too little to measure; "
            f"name {LEAST_S:g} s or more, or voices"
        )
    begins = range(0, max(len(samples) - n, 0) + 1, SAMPLE_RATE)
    at = max(begins, key=lambda begin: float(np.square(samples[begin : begin + n]).sum()))
    return samples[at : at + n]


def _add_times(words: Path, what: str) -> None:
    """Give the words of the results times where there is no reference. Raises UserError for
    recordings without speech."""
    from streaming_asr.align.heard import time_results

    results = time_results(words)
    offline = [result for result in results if result.method == "offline"]
    if not any(line.hypothesis.strip() for each in offline for line in lines_of(each.folder)):
        raise UserError(f"{what}: no speech was found in it; give recordings with speech")


# -- judging --------------------------------------------------------------------------------------


def judged(places: Sequence[str | Path]) -> tuple[list[Choice], list[str]]:
    """Return what the cells of folders have, and notes on what is left out or failed.

    Cells of the same settings in several folders are runs of one thing. Raises UserError where none
    can be judged.
    """
    runs: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    offline: dict[str, Result] = {}
    notes = []
    for result in (each for place in places for each in read_results(place)):
        if result.error:
            notes.append(f"left out: {_label(result)}: {result.error}")
        elif result.method == "offline":
            offline.setdefault(result.split, result)
        elif result.chunk_s is None:
            notes.append(f"left out: {_label(result)}: its chunk is not known")
        else:
            runs[result.label, result.model, result.chunk, result.split].append(result)
    choices = []
    for cells in runs.values():
        try:
            choices.append(_choice(cells, offline.get(cells[0].split)))
        except UserError as error:
            notes.append(f"left out: {_label(cells[0])}: {error}")
    if not choices:
        raise UserError(f"{places[0]}: no cell can be judged: {'; '.join(notes[:3])}")
    if len({each.result.split for each in choices}) > 1:
        raise UserError(f"{places[0]}: cells of several data; name the folder of one of them")
    for each in choices:
        if n_failed := each.result.document.get("n_failed"):
            of = f"{n_failed} of {each.result.document['n_utterances']} recordings"
            notes.append(f"{_label(each.result)}: {of} failed; they count with an empty text")
    if busy := [_label(each.result) for each in choices if BUSY in each.result.notes]:
        notes.append(f"{', '.join(busy)}: {BUSY}")
    return choices, notes


def _choice(cells: Sequence[Result], offline: Result | None) -> Choice:
    """Return what the runs of one setting have; errors and lag are those of the first run."""
    cell = cells[0]
    steps = [recordings_of(each.folder) for each in cells]
    carried = [capacity(each, cell.chunk_s or 0.0) for each in steps]
    (run,) = read_runs([str(cell.folder)])
    sample = replace(run.sample, latencies=None)
    if not cell.is_labelled and offline is not None:  # errors against the text of the offline pass
        ours, theirs = (traces(read_log(e.folder / folders.EVENTS)) for e in (cell, offline))
        texts = {each.utt: each.hypothesis for each in theirs}
        changes = [replace(each, reference=texts.get(each.utt, ""), words=None) for each in ours]
        sample = Sample.of(changes)
    errors = total(sample.errors).percent()
    rtf = float(np.median([serve(each, 1).load for each in steps]))
    return Choice(
        result=replace(cell, metrics={**cell.metrics, "wer": errors, "rtf_total": rtf}),
        sample=sample,
        bounds=intervals(sample)["metrics"].get("wer"),
        n_streams=sorted(each.n if each else 0 for each in carried),
        is_labelled=cell.is_labelled,
    )


def _answer(
    choices: Sequence[Choice], within: Sequence[Choice], names: Sequence[str], budget: Budget
) -> list[str]:
    """Return the answer in sentences and one command; within: the choices within the budget, names:
    of the choices; the best first."""
    if not within:
        n = budget.n_streams
        near = min(choices, key=lambda each: (each.n_streams[0] < n, each.result.or_last(LAG)))
        carries = f"carries {near.n_streams[0]} with a lag of {near.lag} s"
        rule = "nine of ten words within the lag, 95 % of the steps within a chunk and 1 s"
        return [f"nothing serves {budget} ({rule}); nearest: {near.settings}, which {carries}"]
    best = within[0]
    because = "nothing else that was measured does"
    if len(within) > 1:
        because = (
            f"of the {len(within)} that do, it makes the fewest errors (of equals the least lag)"
        )
    same: list[str] = []
    worse: list[str] = []
    for name, each in zip(names, choices, strict=True):
        if each is not best and each in within:
            group = worse if _is_sure(each, best) else same
            group.append(f"{name} (lag {each.lag} s)")
    command = "live" if budget.n_streams == 1 else "serve"
    return [
        f"use this, because it serves {budget}, and {because}:",
        f"{COMMAND}{command} {best.settings}",
        f"{USES[command]} {GATES.get(best.gate, '')}".strip(),
        *([f"no significant difference in errors: {', '.join(same)}"] if same else []),
        *([f"significantly more errors: {', '.join(worse)}"] if worse else []),
    ]


def _is_sure(one: Choice, best: Choice) -> bool:
    """Return whether the errors of two differ significantly."""
    if sorted(one.sample.utts) != sorted(best.sample.utts):
        return False
    ordered = one.sample.in_order_of(best.sample.utts)
    estimate = difference(best.sample.clusters, ordered, best.sample)["wer"]
    return estimate is not None and estimate.is_sure
