"""Times of the words that a method transcribed, where there is no reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from streaming_asr.align.auto import AutoAligner
from streaming_asr.cells.folder import EVENTS, is_set_aside
from streaming_asr.config.build import build
from streaming_asr.corpora.audio import load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, UtteranceLog, committed_words, read_log
from streaming_asr.method import SAMPLE_RATE, Word, display_text
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.table import EVERYTHING
from streaming_asr.references import problems
from streaming_asr.score.folder import score_folder
from streaming_asr.score.results import TEXT_OF, Result, read_results
from streaming_asr.terminal import wrapped
from streaming_asr.utterance import TimedWord, Utterance

LONGEST_PIECE_S = 20.0  # of a recording that is aligned at once, below Whisper's context
# Metrics that compare with the reference: undefined where the hypothesis is the reference.
ACCURACY = ("wer", "cer", "rwer", "arwer", "word_latency_coverage")

NamedLog: TypeAlias = tuple[str, UtteranceLog]  # the name of a method and its log


def _time_logs(folder: Path, cells: Sequence[Path]) -> list[Path]:
    """Rewrite the logs below `folder` with word times, and return their paths.

    The words of a recording are those of the first method that has any: first of `cells`, in their
    order, then by name. A recording whose audio is missing is reported.
    """
    order = {cell.absolute(): i for i, cell in enumerate(cells)}

    def place(path: Path) -> tuple[int, Path]:
        return order.get(path.parent.absolute(), len(order)), path

    sessions: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob(EVENTS), key=place):
        if not is_set_aside(path.relative_to(folder)):
            sessions[path.parent.parent].append(path)
    for paths in sessions.values():
        logs = {path: read_log(path) for path in paths}
        by_recording: dict[str, list[NamedLog]] = defaultdict(list)
        for path, log in logs.items():
            for utterance in log.utterances:
                by_recording[utterance.utt].append((path.parent.name, utterance))
        times_from = None
        for recording, named_logs in by_recording.items():
            if all(utterance.error is not None for _, utterance in named_logs):
                continue
            audio = Path(named_logs[0][1].audio_path or "")
            if not audio.is_file():
                _say(f"{recording}: its audio is missing, so its words get no times")
                continue
            text, words, aligner = timed(named_logs, audio, None, _say)
            times_from = times_from or aligner
            for _, utterance in named_logs:
                utterance.text, utterance.words = text, words
        for path, log in logs.items():
            rewritten = path.with_suffix(".timed")
            rewritten.unlink(missing_ok=True)
            with EventWriter(rewritten, timed_header(log.header, None, times_from)) as writer:
                for utterance in log.utterances:
                    writer.write_utterance(utterance)
            rewritten.replace(path)
    return [path for paths in sessions.values() for path in paths]


def _say(text: str) -> None:
    print(wrapped(text))


def time_results(folder: Path, cells: Sequence[Path] = ()) -> list[Result]:
    """Return the results below `folder`; where none has a reference, the words get times first, and
    the logs are scored again. cells: whose words are taken, as in `_time_logs`."""
    if not any(result.is_labelled for result in read_results(folder)):
        for path in _time_logs(folder, cells):
            score_folder(path.parent)
    return read_results(folder)


def timed_header(
    header: dict[str, Any], reference: str | None, word_times: str | None
) -> dict[str, Any]:
    """Return a log's header with the source of the word times, `word_times`, and without a
    reference also the metrics that cannot be measured; unchanged where there are no times."""
    if word_times is None:
        return header
    config = header["config"]
    data = config["data"] | {"word_times": word_times}
    header = header | {"config": config | {"data": data}}
    if reference is None:
        unmeasured = {name: "reference" for name in METRICS if name.startswith(ACCURACY)}
        header |= {"unmeasured": unmeasured, "knows": sorted(EVERYTHING)}
    return header


def timed(
    named_logs: Sequence[NamedLog], audio: Path, reference: str | None, say: Callable[[str], None]
) -> tuple[str, list[TimedWord] | None, str | None]:
    """Return the reference of a recording, its words with their times, and the source of the times;
    None for both where it has no words or `say` reports why they cannot be aligned.

    Without a reference the text of the first method that has one replaces it, for all methods,
    so that their latencies are of the same words and can be compared. audio: the recording's file.
    """
    with_text = [
        (name, log) for name, log in named_logs if log.error is None and committed_words(log.steps)
    ]
    if reference is None and not with_text:
        return "", None, None
    method, log = (with_text or named_logs)[0]
    hypothesis = committed_words(log.steps)
    try:
        chosen = AutoAligner.choose("auto", {log.language or "en"})
        aligner = build(chosen.config.aligner)
        recording = load_audio(audio)
        words: list[TimedWord] = []
        for text, begin_s, end_s in _pieces(hypothesis, log.duration_s, reference):
            cut = recording[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            utterance = Utterance(log.utt, text, cut.copy, end_s - begin_s, language=log.language)
            (result,) = aligner.align([utterance])
            if result.words is None:
                raise UserError(result.reason)
            words += [
                TimedWord(w, begin_s + start, begin_s + end) for w, start, end in result.words
            ]
        hypothesis_text = display_text(Word(text) for text, _ in hypothesis)
        utterance = Utterance(
            log.utt,
            reference or hypothesis_text,
            recording.copy,
            log.duration_s,
            words=tuple(words),
            language=log.language,
        )
        problem = next(problems(utterance), None)
        if problem:  # as of a text that nobody spoke
            raise UserError(problem)
    except UserError as error:
        say(f"no word times, so no latency of words: {error}")
        return reference or "", None, None
    if reference is not None:
        return reference, words, chosen.name
    times_from = f"{chosen.name}{TEXT_OF}{method}: errors are not counted"
    return hypothesis_text, words, times_from


def _pieces(
    hypothesis: Sequence[tuple[str, list[float | None]]], duration_s: float, reference: str | None
) -> list[tuple[str, float, float]]:
    """Return the pieces of a recording to align, in order: (text, begin_s, end_s).

    A reference is one piece. A hypothesis, (text, [start_s, end_s, probability]) of each word, is
    cut about every 20 s between words, by the method's own times, so that long sessions fit the
    aligner; words without times are one piece too.
    """
    if reference is not None:
        return [(reference, 0.0, duration_s)]
    pieces: list[tuple[str, float, float]] = []
    text, begin_s, last_end_s = "", 0.0, 0.0
    for word, (start, end, _) in hypothesis:
        if text and start is not None and start - begin_s > LONGEST_PIECE_S:
            cut_s = (last_end_s + max(start, last_end_s)) / 2
            pieces.append((text.strip(), begin_s, cut_s))
            text, begin_s = "", cut_s
        text += word
        last_end_s = last_end_s if end is None else end
    return [*pieces, (text.strip(), begin_s, duration_s)]
