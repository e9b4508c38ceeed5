"""score join and score show: what a reader would see of logs, shown in other ways. No model.

join  A fast recogniser's words are the guess, an accurate one's are final. Both run on one device,
      step by step in the order in which their audio arrives, the draft first. Behind the final
      words stands what the draft has behind them: behind that beginning of its text which is
      nearest to the final words (Levenshtein distance; of several the longest).
show  Guesses are held back: the last words of each, or what has not stood for some time on the
      audio clock. With a reading speed, words come no faster than that; the last step has the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from streaming_asr.chunking import parse_duration
from streaming_asr.errors import UserError, check_range
from streaming_asr.events.invariants import TOLERANCE
from streaming_asr.events.log import Log, Step, UtteranceLog, read_log
from streaming_asr.files import give_json
from streaming_asr.method import SAMPLE_RATE, revise
from streaming_asr.metrics import METRICS_VERSION, compute, traces
from streaming_asr.score.compare import check_same, read_runs
from streaming_asr.score.folder import EVENTS, find_cells, write_cell
from streaming_asr.score.retime import own_times
from streaming_asr.terminal import add_json, command_parser, format_number, show_table
from streaming_asr.text.normalise import light_key
from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import unit_of, unit_pieces

COLUMNS = {
    "wer": "WER\n%",
    "first_token_start_{clock}_s": "first\ntext s",
    "word_latency_shown_p50_{clock}_s": "shown\np50 s",
    "word_latency_committed_p50_{clock}_s": "commit\np50 s",
    "word_latency_committed_p90_{clock}_s": "commit\np90 s",
    "normalised_erasure": "erasure",
    "unstable_words_per_word": "unstable",
    "rtf_total": "RTF",
}
ANCHOR = 50  # final words behind which the draft's place is not looked for again
Entry: TypeAlias = tuple[str, list[float | None]]  # a committed piece, its times and probability
Figures: TypeAlias = dict[str, float | None]


# -- the screen of a log --------------------------------------------------------------------------


def _entries(step: Step) -> list[Entry]:
    times = step.words or [[None, None, None] for _ in step.committed]
    return list(zip(step.committed, times, strict=True))


class _Rewriter:
    """Makes steps of what stands on the screen after each."""

    def __init__(self) -> None:
        self._committed: list[Entry] = []

    def step(self, step: Step, committed: Sequence[Entry], partial: Sequence[str]) -> Step:
        """Return `step` with this text in place of its own."""
        n_same = common_prefix(self._committed, committed)
        retracted = len(self._committed) - n_same
        new = list(committed[n_same:])
        self._committed[n_same:] = new
        has_times = any(value is not None for _, times in new for value in times)
        return structs.replace(
            step,
            committed=[text for text, _ in new],
            words=[times for _, times in new] if has_times else None,
            partial=list(partial),
            retracted=retracted,
        )


def _rewritten(log: UtteranceLog, steps: list[Step], **changes: Any) -> UtteranceLog:
    violations = sum(step.retracted > 0 for step in steps)
    return replace(log, steps=steps, commit_violations=violations, **changes)


# -- join -----------------------------------------------------------------------------------------


def join(draft: UtteranceLog, final: UtteranceLog) -> UtteranceLog:
    """Return two logs of one recording as one stream; failed where one of them failed.

    Raises UserError where their lengths differ.
    """
    if abs(draft.duration_samples - final.duration_samples) > TOLERANCE:
        raise UserError(
            f"{draft.utt}: lasts {draft.duration_s:g} s in the draft and {final.duration_s:g} s in "
            "the final log; join logs of the same audio"
        )
    for name, each in (("draft", draft), ("final", final)):
        if each.status != "ok":
            error = f"{name}: {each.error or 'unknown error'}"
            return replace(final, steps=[], status="failed", error=error, commit_violations=0)
    *guesses, last = [(step, False) for step in draft.steps]
    *others, flush = [(step, True) for step in final.steps]
    both = sorted([*guesses, last, *others], key=lambda each: each[0].audio_samples)
    end = max(last[0].audio_samples, flush[0].audio_samples)
    steps: list[Step] = []
    rewriter, place = _Rewriter(), _Place()
    text: list[str] = []  # committed by the draft
    guess: list[str] = []  # all that the draft shows
    committed: list[Entry] = []
    memory: dict[bool, int | None] = {False: None, True: None}
    unit = unit_of(final.language)
    for step, is_final in [*both, flush]:
        memory[is_final] = step.memory_bytes
        if is_final:
            revise(committed, step.retracted, _entries(step))
        else:
            revise(text, step.retracted, step.committed)
            guess = list(unit_pieces("".join([*text, *step.partial]), unit))
        is_last = step is flush[0]
        rest = [] if is_last else guess
        if rest and committed:
            words = unit_pieces("".join(piece for piece, _ in committed), unit)
            rest = rest[place.of(list(map(light_key, words)), list(map(light_key, rest))) :]
            if rest and unit == "word" and not rest[0][0].isspace():
                rest[0] = f" {rest[0]}"
        kind = (
            "flush" if is_last else "audio" if step.kind == "flush" or not is_final else step.kind
        )
        sizes = [size for size in memory.values() if size is not None]
        changed = structs.replace(
            step,
            kind=kind,
            audio_samples=end if is_last else step.audio_samples,
            memory_bytes=sum(sizes) if len(sizes) == 2 else None,
            language=step.language if is_final else None,
        )
        steps.append(rewriter.step(changed, committed, rest))
    peaks = (draft.memory_peak_bytes, final.memory_peak_bytes)
    peak = None if None in peaks else sum(each or 0 for each in peaks)
    no_schedule = {"chunk_samples": None, "first_chunk_samples": None, "lookahead_samples": 0}
    return _rewritten(final, steps, memory_peak_bytes=peak, **no_schedule)


class _Place:
    """How much of the draft the final words stand for, looked for behind an anchor."""

    def __init__(self) -> None:
        self._final = self._draft = 0  # the anchor

    def of(self, final: Sequence[str], draft: Sequence[str]) -> int:
        if len(final) < self._final:  # words were taken back
            self._final = self._draft = 0
        while len(final) - self._final > 2 * ANCHOR:
            until = self._final + ANCHOR
            self._draft += nearest_beginning(final[self._final : until], draft[self._draft :])
            self._final = until
        return self._draft + nearest_beginning(final[self._final :], draft[self._draft :])


def nearest_beginning(words: Sequence[str], text: Sequence[str]) -> int:
    """Return how many of the first words of `text` are nearest to `words` by Levenshtein distance,
    the most of several."""
    near = np.array(text[: 2 * len(words)], dtype=object)  # of more, no word at all is nearer
    columns = np.arange(len(near) + 1)
    row = columns
    for word in words:
        new = row + 1
        new[1:] = np.minimum(new[1:], row[:-1] + (near != word))
        row = np.minimum.accumulate(new - columns) + columns
    return len(near) - int(np.argmin(row[::-1]))


def join_command(argv: Sequence[str]) -> int:
    """Run `score join`. Raises UserError for logs that cannot be joined."""
    about = "One stream of two logs: DRAFT's words are the guess, FINAL's are final."
    epilog = """\
Both ran with feed=fixed and batch=1 on the same recordings. Both run on one device, in the order
in which their audio arrives. A recording that failed in one of them is failed.

example
  streaming-asr score join outputs/a/method=whisperrt outputs/a/method=offline"""
    parser = command_parser("streaming-asr score join", about, epilog)
    parser.add_argument("draft", metavar="DRAFT", help="the cell whose words are shown at once")
    parser.add_argument("final", metavar="FINAL", help="the cell whose words are final")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="outputs/joined/DRAFT+FINAL")
    parser.add_argument("--clock", choices=("ca", "cu"), default="ca", help="of the latency")
    add_json(parser)
    arguments = parser.parse_args(argv)
    runs = read_runs([arguments.draft, arguments.final])
    logs = [own_times(Path(each)) for each in (arguments.draft, arguments.final)]
    check_same(runs[0], runs[1])
    (draft, _), (final, _) = logs
    names = [_label(run.folder) for run in runs]
    folder = arguments.into or Path("outputs", "joined", "+".join(names))
    drafts = {each.utt: each for each in draft.utterances}
    utterances = [join(drafts[each.utt], each) for each in final.utterances]
    result = write_cell(folder, _header(runs[0].cpu, names, draft, final, logs), utterances, "")
    rows = {name: compute(traces(log)) for name, log in (("draft", draft), ("final", final))} | {
        "joined": result["metrics"]
    }
    _give(rows, arguments.json, arguments.clock)
    if arguments.json != "-":
        for warning in result["warnings"]:
            print(f"warning: {warning}")
        if result["n_failed"]:
            print(f"{result['n_failed']} of {result['n_utterances']} recordings failed")
        print(f"joined: {folder}")
    return 0


def _label(folder: Path) -> str:
    """Return a short name of a cell: its method, else its folder's name."""
    name = folder.resolve().name
    method = re.search(r"method=([\w-]+)", name)
    return method[1] if method else name


def _header(
    cpu: str, names: Sequence[str], draft: Log, final: Log, logs: Sequence[tuple[Log, list[str]]]
) -> dict[str, Any]:
    of_final = final.header.get("config") or {}
    shared = ("data", "model", "language", "normaliser", "device", "threads", "feed", "batch")
    config = {key: of_final[key] for key in shared if key in of_final}
    config["method"] = {"name": "+".join(names)}
    config["joined"] = {"draft": names[0], "final": names[1]}
    header: dict[str, Any] = {
        "config": config,
        "versions": final.header.get("versions") or {},
        "machine": final.header.get("machine") or {},
        "metrics_version": METRICS_VERSION,
        "n_utterances": len(final.utterances),
    }
    if unmeasured := sorted({name for _, lacking in logs for name in lacking}):
        tells = [set(log.header["knows"]) for log, _ in logs if "knows" in log.header]
        header |= {"unmeasured": unmeasured}
        header |= {"knows": sorted(set.intersection(*tells))} if tells else {}
    other = str((final.header.get("machine") or {}).get("cpu"))
    if cpu != other:
        header["warnings"] = [f"draft measured on {cpu}, final on {other}: the cost is of neither"]
    return header


# -- show -----------------------------------------------------------------------------------------


class Policy(NamedTuple):
    """How guesses are shown. words: the last ones that are held back. samples: of audio, for which
    a guess must have stood. reading: words per second at most, None for any."""

    words: int = 0
    samples: int = 0
    reading: float | None = None
    name: str = "0"


def show(log: UtteranceLog, policy: Policy) -> UtteranceLog:
    """Return a log as it would have been shown; final words change only in when they come."""
    if log.status != "ok":
        return log
    rewriter = _Rewriter()
    steps = [rewriter.step(*each) for each in _held_back(log, policy)]
    return _rewritten(log, steps)


def _held_back(log: UtteranceLog, policy: Policy) -> Iterator[tuple[Step, list[Entry], list[str]]]:
    committed: list[Entry] = []
    keys: list[str] = []  # of all that the method shows
    since: list[int] = []  # of each word: since when it and all before it are as they are
    n_shown = 0
    read_s = 0.0  # when the reader was done with what is shown
    for step in log.steps:
        revise(committed, step.retracted, _entries(step))
        pieces = [*(text for text, _ in committed), *step.partial]
        is_last = step.kind == "flush"
        now = [light_key(piece) for piece in pieces]
        n_same = common_prefix(keys, now)
        since[n_same:] = [step.audio_samples] * (len(now) - n_same)
        keys = now
        n_stood = sum(at <= step.audio_samples - policy.samples for at in since)
        n = max(min(n_stood, len(pieces) - policy.words), len(committed))
        if policy.reading is not None and not is_last:
            n_new = int((step.audio_s - read_s) * policy.reading + 1e-9)
            n_new = max(min(n_new, n - n_shown), 0)
            is_waiting = n > n_shown + n_new
            read_s = read_s + n_new / policy.reading if is_waiting else step.audio_s
            n = min(n, n_shown + n_new)
        n_shown = n
        n_final = min(n, len(committed))
        yield step, committed[:n_final], pieces[n_final:n]


def _policies(holds: str, readings: str | None) -> list[Policy]:
    """Return the policies of `0,1,500ms` at each reading speed. Raises UserError."""
    policies = []
    for text in (part.strip() for part in holds.split(",")):
        if re.fullmatch(r"\d{1,4}", text):
            policies.append(Policy(words=int(text), name=text))
        else:
            if re.fullmatch(r"[+-]?[\d.]*", text):
                raise UserError(f"--hold {text}: a whole number of words, or a time as in 500ms")
            policies.append(
                Policy(samples=parse_duration(text, "--hold") * SAMPLE_RATE // 1000, name=text)
            )
    if readings is None:
        return policies
    paces = []
    for text in readings.split(","):
        try:
            paces.append(float(text))
        except ValueError:
            raise UserError(
                f"--reading {text}: no number; give words per second, as in --reading 4"
            ) from None
    check_range(0, 100, above=True, **{"--reading": paces})
    return [
        each._replace(reading=pace, name=f"{each.name}, {pace:g} words/s")
        for pace in paces
        for each in policies
    ]


def show_command(argv: Sequence[str]) -> int:
    """Run `score show`. Raises UserError for bad settings and a log that cannot be read."""
    about = "Flicker against delay: a log with its guesses held back."
    epilog = """\
Only guesses are held back; final words are shown at once, unless there is a reading speed.

examples
  streaming-asr score show outputs/a/method=ufal --hold 0,1,2,3,500ms,1s
  streaming-asr score show outputs/a/method=ufal --hold 1 --reading 3,4"""
    parser = command_parser("streaming-asr score show", about, epilog)
    parser.add_argument("cell", metavar="CELL", type=Path, help="a cell, imported ones too")
    parser.add_argument(
        "--hold", default="0,1,2", metavar="LIST", help="words or times that guesses are held back"
    )
    parser.add_argument("--reading", metavar="LIST", help="words per second, at most")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="also write each as a cell")
    parser.add_argument("--clock", choices=("ca", "cu"), default="ca", help="of the latency")
    add_json(parser)
    arguments = parser.parse_args(argv)
    policies = _policies(arguments.hold, arguments.reading)
    (cell, *others) = find_cells(arguments.cell)
    if others:
        raise UserError(f"{arguments.cell}: holds {len(others) + 1} cells; name one, {cell} say")
    log = read_log(cell / EVENTS)
    rows: dict[str, Figures] = {}
    for policy in policies:
        utterances = [show(each, policy) for each in log.utterances]
        lost = dict.fromkeys(log.header.get("unmeasured") or ())
        rows[policy.name] = compute(traces(Log(log.header, utterances))) | lost
        if arguments.into is not None:
            name = policy.name.replace(", ", ",reading=").replace(" words/s", "")
            place = arguments.into / f"hold={name},{cell.resolve().name}"
            write_cell(place, log.header, utterances, f"{place}: no valid log")
    _give(rows, arguments.json, arguments.clock, "held back")
    return 0


def _give(rows: dict[str, Figures], place: str | None, clock: str, head: str = "") -> None:
    """Print the rows as a table, or as JSON."""
    names = [name.format(clock=clock) for name in COLUMNS]
    if place is not None:
        give_json({name: {key: row[key] for key in names} for name, row in rows.items()}, place)
    if place != "-":
        texts = [
            [name, *(format_number(row[key], 2) for key in names)] for name, row in rows.items()
        ]
        show_table([head, *COLUMNS.values()], texts)
