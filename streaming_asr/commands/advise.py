"""Which method, model and chunk serve these recordings on this machine? It measures, then answers.

First every cell computes some seconds of audio: those that cannot keep up are left out.
The rest transcribe as much of the recordings as the minutes allow. Results of `run` are judged as
they are.
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
from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import read_log
from streaming_asr.files import give_json
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.metrics import traces
from streaming_asr.metrics.accuracy import count, total
from streaming_asr.metrics.intervals import LEVEL
from streaming_asr.score import score_folder
from streaming_asr.score.compare import read_runs
from streaming_asr.score.document import lines_of
from streaming_asr.score.results import Result, read_results
from streaming_asr.score.retime import recordings_of
from streaming_asr.score.sample import Sample, difference, intervals
from streaming_asr.score.streams import Served, capacity, serve
from streaming_asr.terminal import (
    Grid,
    add_json,
    command_parser,
    console,
    end_if_stopped,
    exit_status,
    format_number,
    wrapped,
)

if TYPE_CHECKING:
    from streaming_asr.config.command_line import CommandLine
    from streaming_asr.utterance import Utterance

EPILOG = """\
AUDIO is a recording or a folder of them; voices are those of the package. With
a text next to each recording (talk.txt) it counts errors, without one the words
in which a setting differs from the offline pass. RESULTS are folders that `run`
wrote with batch=1: they are judged, and nothing is measured.

KEY=VALUE is what to try, as for `run`, or a budget:
  method=hush_word,whisperrt model=tiny.en chunk=300ms,1s
  lag=2s      nine of ten words must be final within it, computing included
  streams=8   so many streams at once; 95 % of their steps must end within a
              chunk and 1 s

The exit status is 1 where nothing is within the budget, 2 for bad input.

examples
  streaming-asr advise talk.m4a lag=2s
  streaming-asr advise voices model=tiny.en,base --minutes 3
  streaming-asr advise outputs/one outputs/again streams=8"""
METHODS = "hush_word,whisperrt,simul_whisper,ufal"
LATE = "word_latency_committed_p90_ca_s"
COST_S = 5.0  # of audio that tell what a cell costs
SHORTEST_S = 2.0  # of audio that can be measured
LEAST_S = 20.0  # of audio that are transcribed, whatever the minutes
KEEPS_UP = 1.0  # seconds of computing per second of audio
LEGEND = (
    "WER: word errors per 100 words. lag p90: nine of ten words are final within it. RTF: "
    "computing per second of audio. streams: how many at once one device carries"
)
COMMAND = "  streaming-asr "
CHANGED = 1.5  # times the cost of the first seconds: the machine's speed changed
# What a measurement sets itself, and what the offline pass does not take.
OURS = re.compile(r"(data|limit|name|output|tracker)(\.|=)")
STREAMED = re.compile(r"(method|chunk|first_chunk|gate|feed)(\.|=)")


class Choice(NamedTuple):
    """A cell, its errors per 100 words with their interval, the 90th percentile of lag in seconds,
    its real-time factor, and the most streams by each of its runs, the fewest first."""

    result: Result
    sample: Sample
    errors: float | None
    bounds: tuple[float, float] | None
    lag: float | None
    rtf: float
    served: list[Served | None]

    @property
    def streams(self) -> int:
        """Return the streams of the run that carried fewest."""
        return self.served[0].n if self.served[0] else 0

    @property
    def chunk(self) -> str:
        """Return the chunk as a setting has it."""
        return self.result.chunk.replace(" ", "").replace("1000ms", "1s")

    @property
    def name(self) -> str:
        """Return the settings as `live` and `serve` take them, all but those they have anyway."""
        settings = {
            "method": self.result.method,
            "model": self.result.model,
            "chunk": self.chunk,
            "gate": str(self.result.config.get("gate") or "none"),
        }
        for key, value in folders.settings_of(self.result.folder.name).items():
            if not re.match(r"(data|limit|audio|output|name)\b", key):
                settings.setdefault(key, value)
        if settings["gate"] == "speech":
            del settings["gate"]
        return " ".join(f"{key}={value}" for key, value in settings.items() if value)

    def texts(self) -> list[str]:
        """Return the row as the table shows it, without its settings."""
        few, many = (each.n if each else 0 for each in (self.served[0], self.served[-1]))
        span = f"{few}" if few == many else f"{few} to {many}"
        bounds = "–" if self.bounds is None else f"{self.bounds[0]:.1f} to {self.bounds[1]:.1f}"
        return [
            format_number(self.errors, 1),
            bounds,
            format_number(self.lag, 2),
            f"{self.rtf:.2f}",
            span,
        ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status, 1 where nothing is within the budget."""
    about = "Which method, model and chunk serve these recordings on this machine?"
    parser = command_parser("streaming-asr advise", about, EPILOG)
    what = "what to measure; default: voices"
    parser.add_argument("what", nargs="*", metavar="AUDIO|voices|RESULTS|KEY=VALUE", help=what)
    minutes = "how long it may measure; default 3"
    parser.add_argument("--minutes", type=float, default=3.0, help=minutes)
    add_json(parser)
    return exit_status(lambda: _advise(parser.parse_args(argv)))


def _advise(arguments: argparse.Namespace) -> int:
    from streaming_asr.config.command_line import CommandLine

    check_range(0.1, 600, **{"--minutes": arguments.minutes})
    line = CommandLine(["-m", *(each for each in arguments.what if "=" in each)])
    places = [each for each in arguments.what if "=" not in each] or ["voices"]
    lag, streams = line.pop("lag"), line.pop("streams", "1") or ""
    lag_s = None if lag is None else parse_duration(lag, "lag") / 1000
    if not re.fullmatch(r"[1-9]\d{0,3}", streams):
        raise UserError(f"streams={streams}: a whole number from 1, as in streams=8")
    n_streams = int(streams)
    notes: list[str] = []
    if all(_is_results(each) for each in places):
        if line.settings:
            raise UserError(f"{line.settings[0]}: results are judged as they are; leave it out")
        choices, notes = judged(places)
    elif len(places) > 1:
        raise UserError(f"{' '.join(places)}: name one recording, one folder of them, or results")
    else:
        place = _measured(places[0], line, arguments.minutes, n_streams, notes)
        choices, more = judged([place])
        notes += more
    choices.sort(key=lambda each: (_or_last(each.errors), _or_last(each.lag)))
    within = [
        each
        for each in choices
        if each.streams >= n_streams and (lag_s is None or _or_last(each.lag) <= lag_s)
    ]
    is_labelled = any(each.result.is_labelled for each in choices)
    errors = "WER\n%" if is_labelled else "from\noffline %"
    heads = ["settings", errors, "95 %\ninterval", "lag p90\ns", "RTF", "streams"]
    names = _short(choices)
    rows = [[name, *each.texts()] for name, each in zip(names, choices, strict=True)]
    answer = _answer(choices, within, lag_s, n_streams, names)
    if arguments.json is not None:
        cells = [dict(zip(heads, row, strict=True)) for row in rows]
        use = within[0].name if within else None
        give_json({"rows": cells, "use": use, "answer": answer, "notes": notes}, arguments.json)
    if arguments.json != "-":
        console(80).print(Grid(heads, rows, legend={0: LEGEND}), crop=False)
        for text in (*notes, *answer):
            print(text if text.startswith(COMMAND) else wrapped(text))  # a command stays one line
    return 0 if within else 1


def _short(choices: Sequence[Choice]) -> list[str]:
    """Return the settings in which each differs from the others."""
    if len(choices) == 1:
        return [f"{choices[0].result.method} {choices[0].chunk}"]
    short = folders.short_names([each.result.folder.name for each in choices])
    return [short[each.result.folder.name] for each in choices]


def _is_results(place: str) -> bool:
    path = Path(place)
    names = (folders.RESULT, folders.EVENTS, folders.FAILED)
    return path.is_dir() and any(next(path.rglob(name), None) for name in names)


# -- measuring ------------------------------------------------------------------------------------


def _measured(
    what: str, line: CommandLine, minutes: float, n_streams: int, notes: list[str]
) -> Path:
    """Measure and return the folder of results; adds to `notes` what is left out and what speaks
    against the measurement. Raises UserError for recordings that cannot be read."""
    import soundfile

    from streaming_asr.align.heard import time_logs
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose
    from streaming_asr.report.page import build as build_page

    data = ["data=voices"]
    if what != "voices":
        if not Path(what).exists():
            raise UserError(f"{what}: no such file; name a recording, a folder of them, or voices")
        data = ["data=folder", _path(Path(what).expanduser()), "data.align=auto"]
    for key in ("data", "limit", "name", "audio"):
        if line.get(key) is not None:
            setting = f"{key}={line.get(key)}"
            raise UserError(f"{setting}: name the recordings by themselves, as talk.wav")
    line.default(method=METHODS, model="tiny.en", chunk="300ms,1s", threads="1", tracker="none")
    line.default(gate="speech", output="outputs")  # the gate as live and serve have it
    stem = re.sub(r"[^\w.+-]", "_", Path(what).stem)
    place = Path(str(line.get("output")), "advise", stem)
    shutil.rmtree(place, ignore_errors=True)  # an earlier machine's or hour's
    utterances, lengths = _readable(build(compose(data[:2]).data).utterances(None), notes)
    audio = place / "audio"
    audio.mkdir(parents=True)
    soundfile.write(audio / "cost.wav", _loudest(utterances, what), SAMPLE_RATE)
    end = time.monotonic() + minutes * 60
    of_cost = ["data=folder", _path(audio / "cost.wav"), "data.align=none"]
    of_cost.append(f"name='advise/{stem}/cost'")
    able = _cost(line, of_cost, place / "cost", n_streams, notes, end - minutes * 30)
    if not able:
        raise UserError(f"nothing keeps up with {n_streams} streams here: {'; '.join(notes)}")
    cost = {_name(each): each.metrics["rtf_total"] or 0.0 for each in able}
    seconds = max(max(end - time.monotonic(), 0) / sum(cost.values()), LEAST_S)
    limit = int(np.searchsorted(np.cumsum(lengths), seconds, side="right"))
    if limit == 0:  # one long recording: its text cannot be cut with it
        part = utterances[0].load()[: round(seconds * SAMPLE_RATE)]
        soundfile.write(audio / "part.wav", part, SAMPLE_RATE)
        data = ["data=folder", _path(audio / "part.wav")]
        notes.append(f"only the first {seconds:.0f} s were used, without their text")
        limit = 1
    ours = [*data, f"limit={limit}", "tracker=none", f"name='advise/{stem}/words'"]
    ours.append(f"output={line.get('output')}")
    rest = [each for each in line.settings if not OURS.match(each)]
    _run([*(each for each in rest if not STREAMED.match(each)), "method=offline", *ours])
    able.sort(key=lambda each: each.or_last("rtf_total"))
    for each in able:
        if each is not able[0] and time.monotonic() > end:
            notes.append(f"left out: {_name(each)}: no time is left of --minutes {minutes:g}")
        else:
            rest = folders.saved_settings(each.folder) or []
            _run([*(each for each in rest if not OURS.match(each)), *ours])
    words = place / "words"
    results = read_results(words)
    if not any(result.is_labelled for result in results):
        for log in time_logs(words, lambda text: print(wrapped(text)))[1]:
            score_folder(log.parent)
        results = read_results(words)
    whole = [result for result in results if result.method == "offline"]
    if not any(line.hypothesis.strip() for each in whole for line in lines_of(each.folder)):
        raise UserError(f"{what}: no speech was found in it; give recordings with speech")
    length_s = min(sum(lengths[:limit]), seconds)
    notes.append(f"transcribed: {limit} recording{'s' * (limit > 1)}, {length_s:.0f} s")
    notes += changed(cost, results)
    notes.append(f"page: {build_page(words)}")
    return words


def _readable(
    utterances: Sequence[Utterance], notes: list[str]
) -> tuple[list[Utterance], list[float]]:
    """Return the recordings that can be read and their seconds. Raises UserError for none."""
    readable: dict[Utterance, float] = {}
    for each in utterances:
        try:
            readable[each] = each.duration_s or len(each.load()) / SAMPLE_RATE
        except UserError as error:
            if len(utterances) == 1:
                raise
            notes.append(f"left out: {error}")
    return list(readable), list(readable.values())


def _path(path: Path) -> str:
    quoted = str(path.absolute()).replace("'", r"\'")
    return f"data.path='{quoted}'"


def _name(result: Result) -> str:
    return f"{result.label} {result.chunk}".strip()


def _cost(
    line: CommandLine,
    data: Sequence[str],
    place: Path,
    n_streams: int,
    notes: list[str],
    end: float,
) -> list[Result]:
    """Return what keeps up.

    The longest chunk is first: what does not keep up with it is not tried at a shorter one, which
    costs more. After `end`, on the monotonic clock, no shorter chunk is tried.
    """
    able: list[Result] = []
    methods, models, chunks = (
        str(line.get(key)).split(",") for key in ("method", "model", "chunk")
    )
    rest = [each for each in line.settings if not re.match(r"(method|model|chunk)=", each)]
    for chunk in sorted(chunks, key=parse_duration, reverse=True):
        if able and time.monotonic() > end:
            notes.append(f"left out: chunk={chunk}: no time to try it; give more --minutes")
            continue
        names = [f"method={','.join(methods)}", f"model={','.join(models)}", f"chunk={chunk}"]
        _run([*rest, *data, *names])
        of_chunk = []
        for result in read_results(place):
            rtf = result.metrics.get("rtf_total")
            if result.chunk_s != parse_duration(chunk) / 1000:
                continue
            if rtf is None:
                notes.append(f"left out: {_name(result)}: {result.error}")
            elif rtf * n_streams >= KEEPS_UP:
                notes.append(
                    f"left out: {_name(result)} and shorter: cannot keep up, RTF {rtf:.2f}"
                )
            else:
                of_chunk.append(result)
        able += of_chunk
        methods = [each for each in methods if any(r.method == each for r in of_chunk)]
        models = [each for each in models if any(r.model == each for r in of_chunk)]
        if not of_chunk:
            break
    return able


def changed(cost: Mapping[str, float], results: Sequence[Result]) -> list[str]:
    """Return which results cost CHANGED times more or less than the first seconds did: their
    real-time factors by label and chunk."""
    notes = []
    for result in results:
        before, now = cost.get(_name(result)), result.metrics.get("rtf_total")
        if before and now and not 1 / CHANGED < now / before < CHANGED:
            notes.append(f"{_name(result)} from RTF {before:.2f} to {now:.2f}")
    if not notes:
        return []
    reason = "the speed of this machine changed during the measurement, or its first seconds are "
    return [f"{reason}unlike the rest: {', '.join(notes)}; ask again when it is quiet"]


def _run(settings: Sequence[str]) -> None:
    from streaming_asr.run import command

    end_if_stopped(status := command.main(["-m", *settings], lambda place: None))
    if status > 1:
        raise UserError("the measurement ended; the message above says why")


def _loudest(utterances: Sequence[Utterance], what: str) -> Samples:
    """Return the COST_S that have most power of the first recordings, by hops of a second.

    Raises UserError for less than SHORTEST_S, whose real-time factor says nothing.
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


# -- judging --------------------------------------------------------------------------------------


def judged(places: Sequence[str | Path]) -> tuple[list[Choice], list[str]]:
    """Return what the cells of folders have, and what is left out or failed. Cells of the same
    settings in several folders are runs of one thing. Raises UserError where none can be judged."""
    runs: dict[tuple[str, ...], list[Result]] = defaultdict(list)
    notes = []
    offline: dict[str, Result] = {}
    for result in (each for place in places for each in read_results(place)):
        if result.error:
            notes.append(f"left out: {_name(result)}: {result.error}")
        elif result.method == "offline":
            offline.setdefault(result.split, result)
        elif result.chunk_s is None:
            notes.append(f"left out: {_name(result)}: its chunk is not known")
        else:
            runs[result.label, result.model, result.chunk, result.split].append(result)
    choices = []
    for cells in runs.values():
        try:
            choices.append(_choice(cells, offline.get(cells[0].split)))
        except UserError as error:
            notes.append(f"left out: {_name(cells[0])}: {error}")
    if not choices:
        raise UserError(f"{places[0]}: no cell can be judged: {'; '.join(notes[:3])}")
    if len({each.result.split for each in choices}) > 1:
        raise UserError(f"{places[0]}: cells of several data; name the folder of one of them")
    for each in choices:
        if n_failed := each.result.document.get("n_failed"):
            of = f"{n_failed} of {each.result.document['n_utterances']} recordings"
            notes.append(f"{_name(each.result)}: {of} failed; they count with an empty text")
    return choices, notes


def _choice(cells: Sequence[Result], offline: Result | None) -> Choice:
    heard = [recordings_of(cell.folder, 1.0) for cell in cells]
    served = [capacity(each, cells[0].chunk_s or 0.0) for each in heard]
    served.sort(key=lambda each: each.n if each else 0)
    rtf = float(np.median([serve(each, 1).load for each in heard]))
    cell = cells[0]
    (run,) = read_runs([str(cell.folder)])
    sample = run.sample
    if not cell.is_labelled and offline is not None:
        sample = _against(cell, offline, sample)
    errors = total(sample.errors)
    bounds = intervals(replace(sample, latencies=None))["metrics"].get("wer")
    lag = cell.metrics.get(LATE)
    return Choice(cell, sample, errors.percent(), bounds and tuple(bounds), lag, rtf, served)


def _against(cell: Result, offline: Result, sample: Sample) -> Sample:
    """Return the errors of a cell against the text of the offline pass."""
    texts = {
        each.utt: each.hypothesis for each in traces(read_log(offline.folder / folders.EVENTS))
    }
    errors = [
        count(each.normalise.words(texts.get(each.utt, "")), each.normalise.words(each.hypothesis))
        for each in traces(read_log(cell.folder / folders.EVENTS))
    ]
    return replace(sample, errors=errors)


def _or_last(value: float | None) -> float:
    return float("inf") if value is None else value


def _answer(
    choices: Sequence[Choice],
    within: Sequence[Choice],
    lag_s: float | None,
    n_streams: int,
    names: Sequence[str],
) -> list[str]:
    """Return the answer in sentences and one command; names: of the choices."""
    budget = f"{n_streams} stream{'s' * (n_streams > 1)}"
    budget += "" if lag_s is None else f" within a lag of {lag_s:g} s"
    if not within:
        near = min(choices, key=lambda each: (each.streams < n_streams, _or_last(each.lag)))
        lag = f"{format_number(near.lag, 2)} s"
        return [f"nothing serves {budget}; nearest: {near.name}, {near.streams} streams, lag {lag}"]
    best = within[0]
    because = "nothing else does"
    if len(within) > 1:
        because = f"of the {len(within)} that do it has the fewest errors, of equals the least lag"
    same: list[str] = []
    apart: list[str] = []
    for name, each in zip(names, choices, strict=True):
        if each is best or each not in within:
            continue
        (apart if _is_sure(each, best) else same).append(
            f"{name} (lag {format_number(each.lag, 2)} s)"
        )
    lines = [f"use this, because it serves {budget}, and {because}:"]
    lines.append(f"{COMMAND}{'live' if n_streams == 1 else 'serve'} {best.name}")
    if same:
        lines.append(f"no significant difference in errors: {', '.join(same)}")
    if apart:
        lines.append(f"surely more errors: {', '.join(apart)}")
    return lines


def _is_sure(one: Choice, best: Choice) -> bool:
    """Return whether the errors of two differ significantly."""
    ours, theirs = replace(one.sample, latencies=None), replace(best.sample, latencies=None)
    if sorted(ours.utts) != sorted(theirs.utts):
        return False
    estimate = difference(theirs.clusters, ours.in_order_of(theirs.utts), theirs)["wer"]
    return estimate is not None and estimate.p_value is not None and estimate.p_value < 1 - LEVEL
