"""score join and score show: what a reader would see of logs, shown in other ways. No model.

join  A fast recogniser's words are the guess, an accurate one's are final. Both run on one device,
      step by step in the order in which their audio arrives, the draft first. Behind the final
      words stands what the draft has behind them: behind that beginning of its text which is
      nearest to the final words (Levenshtein distance; of several the longest).
show  Guesses are held back: the last words of each, or what has not stood for some time on the
      audio clock. With a reading speed, words come no faster than that; the last step has the rest.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import structs

from streaming_asr.chunking import parse_duration
from streaming_asr.errors import UserError, check_range
from streaming_asr.events.log import Log, Step, UtteranceLog, read_log
from streaming_asr.files import give_json
from streaming_asr.method import SAMPLE_RATE, revise
from streaming_asr.metrics import METRICS_VERSION, compute, traces
from streaming_asr.metrics.table import EVERYTHING, known_of, unmeasured
from streaming_asr.score.columns import column_of
from streaming_asr.score.compare import Run, check_lengths, check_same, read_runs
from streaming_asr.score.folder import EVENTS, one_cell, write_cell
from streaming_asr.score.retime import own_times
from streaming_asr.terminal import add_json, command_parser, format_number, show_table
from streaming_asr.text.normalise import light_key
from streaming_asr.text.tokens import common_prefix
from streaming_asr.text.units import unit_of, unit_pieces

COLUMNS = (
    "wer",
    "first_token_start_{clock}_s",
    "word_latency_shown_p50_{clock}_s",
    "word_latency_committed_p50_{clock}_s",
    "word_latency_committed_p90_{clock}_s",
    "normalised_erasure",
    "unstable_words_per_word",
    "rtf_total",
)
ANCHOR = 50  # final words behind which the draft's place is not looked for again
Entry: TypeAlias = tuple[str, list[float | None]]  # a committed piece, its times and probability
Screen: TypeAlias = tuple[Step, list[Entry], list[str]]  # after a step: all final text, the guess
Figures: TypeAlias = dict[str, float | None]


# -- the screen of a log --------------------------------------------------------------------------


def _entries(step: Step) -> list[Entry]:
    times = step.words or [[None, None, None] for _ in step.committed]
    return list(zip(step.committed, times, strict=True))


def _rewritten(log: UtteranceLog, screens: Iterable[Screen], **changes: Any) -> UtteranceLog:
    """Return `log` with the steps of `screens`; `changes`: of its other fields."""
    before: list[Entry] = []
    steps = []
    for step, committed, partial in screens:
        n_same = common_prefix(before, committed)
        new = committed[n_same:]
        has_times = any(value is not None for _, times in new for value in times)
        steps.append(
            structs.replace(
                step,
                committed=[text for text, _ in new],
                words=[times for _, times in new] if has_times else None,
                partial=list(partial),
                retracted=len(before) - n_same,
            )
        )
        before = list(committed)
    violations = sum(step.retracted > 0 for step in steps)
    return replace(log, steps=steps, commit_violations=violations, **changes)


# -- join -----------------------------------------------------------------------------------------


def join(draft: UtteranceLog, final: UtteranceLog) -> UtteranceLog:
    """Return two logs of one recording as one stream; failed where one of them failed.

    Raises UserError where their lengths differ.
    """
    check_lengths(draft, final, ("draft", "final log"))
    for name, each in (("draft", draft), ("final", final)):
        if each.status != "ok":
            error = f"{name}: {each.error or 'unknown error'}"
            return replace(final, steps=[], status="failed", error=error, commit_violations=0)
    # The steps of both have no schedule, and what both take together of memory is not known.
    schedule = {"chunk_samples": None, "first_chunk_samples": None, "lookahead_samples": 0}
    return _rewritten(final, _joined(draft, final), memory_peak_bytes=None, **schedule)


def _joined(draft: UtteranceLog, final: UtteranceLog) -> Iterator[Screen]:
    """Yield what is shown after each step of two logs, in the order in which their audio arrives,
    the draft first; the flush of the final log is last."""
    *others, flush = final.steps
    both = [*((step, False) for step in draft.steps), *((step, True) for step in others)]
    both.sort(key=lambda each: each[0].audio_samples)
    end = max(draft.steps[-1].audio_samples, flush.audio_samples)
    place = _Place()
    text: list[str] = []  # committed by the draft
    guess: list[str] = []  # all that the draft shows
    committed: list[Entry] = []
    unit = unit_of(final.language)
    for step, is_final in both:
        if is_final:
            revise(committed, step.retracted, _entries(step))
        else:
            revise(text, step.retracted, step.committed)
            guess = list(unit_pieces("".join([*text, *step.partial]), unit))
        rest = guess
        if rest and committed:
            words = unit_pieces("".join(piece for piece, _ in committed), unit)
            rest = rest[place.of(list(map(light_key, words)), list(map(light_key, rest))) :]
            if rest and unit == "word" and not rest[0][0].isspace():
                rest[0] = f" {rest[0]}"
        kind = step.kind if is_final and step.kind != "flush" else "audio"
        language = step.language if is_final else None
        yield (
            structs.replace(step, memory_bytes=None, kind=kind, language=language),
            committed,
            rest,
        )
    revise(committed, flush.retracted, _entries(flush))
    yield structs.replace(flush, memory_bytes=None, audio_samples=end), committed, []


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
    about = "One stream of two logs: DRAFT's words are shown at once, FINAL's are final."
    epilog = """\
Both are folders that `run` wrote for one method, with feed=fixed and batch=1,
on the same recordings. Both are computed on one device, in the order in which
their audio arrives. A recording that failed in one of them is failed. Every
command reads the new cell as one that ran.

example
  streaming-asr score join outputs/a/method=whisperrt outputs/a/method=offline"""
    parser = command_parser("streaming-asr score join", about, epilog)
    parser.add_argument("draft", metavar="DRAFT", help="the cell whose words are shown at once")
    parser.add_argument("final", metavar="FINAL", help="the cell whose words are final")
    into = "the new cell; default: outputs/joined/DRAFT+FINAL"
    parser.add_argument("--into", type=Path, metavar="FOLDER", help=into)
    _add_how(parser)
    arguments = parser.parse_args(argv)
    cells = [one_cell(each) for each in (arguments.draft, arguments.final)]
    logs = [own_times(cell)[0] for cell in cells]
    runs = read_runs([str(cell) for cell in cells])
    check_same(runs[0], runs[1])
    drafts = {each.utt: each for each in logs[0].utterances}
    utterances = [join(drafts[each.utt], each) for each in logs[1].utterances]
    names = [_label(cell) for cell in cells]
    folder = arguments.into or Path("outputs", "joined", "+".join(names))
    result = write_cell(folder, _header(names, logs, runs), utterances, "")
    rows = {
        f"{what} {name}": compute(traces(log))
        for what, name, log in zip(("draft", "final"), names, logs, strict=True)
    }
    _give(rows | {"joined": result["metrics"]}, arguments)
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


def _header(names: Sequence[str], logs: Sequence[Log], runs: Sequence[Run]) -> dict[str, Any]:
    final = logs[1].header
    of_final = final.get("config") or {}
    shared = ("data", "model", "language", "normaliser", "device", "threads", "feed", "batch")
    config = {key: of_final[key] for key in shared if key in of_final}
    config["method"] = {"name": "+".join(names)}
    config["joined"] = {"draft": names[0], "final": names[1]}
    header: dict[str, Any] = {
        "config": config,
        "versions": final.get("versions") or {},
        "machine": final.get("machine") or {},
        "metrics_version": METRICS_VERSION,
        "n_utterances": len(logs[1].utterances),
    }
    if (knows := known_of(logs[0].header) & known_of(final)) != EVERYTHING:
        header |= {"knows": sorted(knows), "unmeasured": unmeasured(knows)}
    if runs[0].cpu != runs[1].cpu:
        where = f"draft measured on {runs[0].cpu}, final on {runs[1].cpu}"
        header["warnings"] = [f"{where}: the cost is of neither"]
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
    return _rewritten(log, _held_back(log, policy))


def _held_back(log: UtteranceLog, policy: Policy) -> Iterator[Screen]:
    """Yield what is shown after each step of a log."""
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


def _policy(hold: str, reading: str | None) -> Policy:
    """Return a policy of `1` or `500ms`, and of words per second. Raises UserError."""
    policy = Policy(name=hold)
    if re.fullmatch(r"\d{1,4}", hold):
        policy = policy._replace(words=int(hold))
    elif not re.fullmatch(r"[\d.]+ ?m?s", hold):
        raise UserError(f"--hold {hold}: a whole number of words, or a time as in 500ms")
    else:
        policy = policy._replace(samples=parse_duration(hold, "--hold") * SAMPLE_RATE // 1000)
    if reading is None:
        return policy
    try:
        pace = float(reading)
    except ValueError:
        raise UserError(
            f"--reading {reading}: no number; give words per second, as in --reading 4"
        ) from None
    check_range(0, 100, above=True, **{"--reading": pace})
    return policy._replace(reading=pace, name=f"{hold}, {pace:g} words/s")


def show_command(argv: Sequence[str]) -> int:
    """Run `score show`. Raises UserError for bad settings and a log that cannot be read."""
    about = "Flicker against delay: what a reader sees where guesses are held back."
    epilog = """\
CELL is a folder that `run` or `score import` wrote. A row of the table is one
way to show its log. Only guesses are held back; final words are shown at once,
unless there is a reading speed.

examples
  streaming-asr score show outputs/a/method=ufal --hold 0,1,2,3,500ms,1s
      without the last 0 to 3 words of each guess, or without what is newer
      than the time
  streaming-asr score show outputs/a/method=ufal --hold 1 --reading 3,4
      words come no faster than 3 and 4 per second"""
    parser = command_parser("streaming-asr score show", about, epilog)
    parser.add_argument("cell", metavar="CELL", type=Path, help="results of one method")
    hold = "how many words, or for how long, guesses are held back; default 0,1,2"
    parser.add_argument("--hold", default="0,1,2", metavar="LIST", help=hold)
    parser.add_argument("--reading", metavar="LIST", help="at most so many words per second")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write each row as a cell, too")
    _add_how(parser)
    arguments = parser.parse_args(argv)
    paces = arguments.reading.split(",") if arguments.reading is not None else [None]
    holds = [hold.strip() for hold in arguments.hold.split(",")]
    policies = [_policy(hold, pace) for pace in paces for hold in holds]
    cell = one_cell(arguments.cell)
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
    _give(rows, arguments, "held back:\nwords or time")
    return 0


# -- both -----------------------------------------------------------------------------------------


def _add_how(parser: argparse.ArgumentParser) -> None:
    clock = "of the times: ca with computing (default), cu without"
    parser.add_argument("--clock", choices=("ca", "cu"), default="ca", help=clock)
    add_json(parser)


def _give(rows: Mapping[str, Figures], arguments: argparse.Namespace, head: str = "") -> None:
    """Print the rows as a table, or as JSON."""
    names = [name.format(clock=arguments.clock) for name in COLUMNS]
    if arguments.json is not None:
        values = {name: {key: row[key] for key in names} for name, row in rows.items()}
        give_json(values, arguments.json)
    if arguments.json != "-":
        columns = [column_of(name.format(clock="ca")) for name in COLUMNS]
        texts = [
            [name, *(format_number(row[key], 2) for key in names)] for name, row in rows.items()
        ]
        legend = {k: each.meaning for k, each in enumerate(columns, start=1) if each.meaning}
        show_table([head, *(each.heading for each in columns)], texts, legend=legend)
