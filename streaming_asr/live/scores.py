"""After a live session: the times of its words, its scores, and where its logs lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streaming_asr.errors import UserError
from streaming_asr.events.log import UtteranceLog, committed_words
from streaming_asr.live.cells import Cell, rtf
from streaming_asr.method import SAMPLE_RATE, Samples, Word, display_text
from streaming_asr.metrics import METRICS
from streaming_asr.metrics.table import EVERYTHING
from streaming_asr.utterance import TimedWord, Utterance

ALIGNED_S = 20.0  # of a recording at once, below Whisper's context
# What no text can be held against, where the reference is the hypothesis itself.
ACCURACY = ("wer", "cer", "rwer", "arwer", "word_latency_coverage")


def finish(cells: Sequence[Cell], source: str, samples: Samples | None, *, aligns: bool) -> int:
    """Write and score the logs, print what they tell and where they lie; return the exit status.

    samples: those of a microphone, which are kept beside the logs; None for a file.
    """
    audio = Path(source)
    if samples is not None:
        import soundfile

        audio = cells[0].folder.parent / "audio.wav"
        soundfile.write(audio, samples, SAMPLE_RATE)
    text, words, aligned_by = _timed(cells, audio) if aligns else ("", None, None)
    for cell in cells:
        cell.log.audio_path = str(audio.absolute())
        cell.log.text, cell.log.words = text, words
        path = cell.write(_header(cell.header, aligned_by))
        print(f"{_summary(cell)} · {path}")
    return 1 if any(cell.log.error is not None for cell in cells) else 0


def _summary(cell: Cell) -> str:
    """Score a cell's log and return the line that tells of it."""
    from streaming_asr.score import score_folder

    metrics = score_folder(cell.folder, experiment=cell.folder.parent.name)["metrics"]
    if cell.log.error is not None:
        return f"{cell.title}: failed: {cell.log.error}"
    told = [f"{cell.title}: {len(committed_words(cell.log.steps))} words"]
    shown, committed = (
        metrics.get(f"word_latency_{name}_p50_ca_s") for name in ("shown", "committed")
    )
    if shown is not None and committed is not None:
        against = "(of the aligned hypothesis)"
        told.append(f"shown after {shown:.2f} s, committed after {committed:.2f} s {against}")
    told.append(f"RTF {rtf(cell.log):.2f}")
    return " · ".join(told)


def _header(header: dict[str, Any], word_times: str | None) -> dict[str, Any]:
    """Return the header that says where the words' times are from, and what they cannot tell."""
    if word_times is None:
        return header
    config = header["config"]
    data = config["data"] | {"word_times": word_times}
    unmeasured = {name: "reference" for name in METRICS if name.startswith(ACCURACY)}
    known = {"unmeasured": unmeasured, "knows": sorted(EVERYTHING)}
    return header | known | {"config": config | {"data": data}}


def _timed(cells: Sequence[Cell], audio: Path) -> tuple[str, list[TimedWord] | None, str | None]:
    """Return what stands for the reference, its words with their times, and what they are from.

    That is the text of the first method that has one, for all methods, so that their latencies are
    of the same words and can be compared.
    """
    from streaming_asr.align.auto import AutoAligner
    from streaming_asr.config.build import build
    from streaming_asr.corpora.audio import load_audio

    heard = [cell for cell in cells if cell.log.error is None and committed_words(cell.log.steps)]
    if not heard:
        return "", None, None
    log = heard[0].log
    try:
        chosen = AutoAligner.choose("auto", {log.language or "en"})
        aligner = build(chosen.config.aligner)
        recording = load_audio(audio)
        words: list[TimedWord] = []
        for text, begin_s, end_s in _pieces(log):
            cut = recording[round(begin_s * SAMPLE_RATE) : round(end_s * SAMPLE_RATE)]
            utterance = Utterance(log.utt, text, cut.copy, end_s - begin_s, language=log.language)
            (result,) = aligner.align([utterance])
            if result.words is None:
                raise UserError(result.reason)
            words += [
                TimedWord(w, begin_s + start, begin_s + end) for w, start, end in result.words
            ]
    except UserError as error:
        print(f"no word times, so no latency of words: {error}")
        return "", None, None
    text = display_text(Word(text) for text, _ in committed_words(log.steps))
    return text, words, f"{chosen.name}, of the text of {heard[0].title}: errors are not counted"


def _pieces(log: UtteranceLog) -> list[tuple[str, float, float]]:
    """Return what to align: (text, begin, end in seconds) in turn.

    The text is cut between words, by the method's own times, so that long sessions fit the aligner;
    words without times are one piece.
    """
    pieces: list[tuple[str, float, float]] = []
    text, begin_s, last_end_s = "", 0.0, 0.0
    for word, (start, end, _) in committed_words(log.steps):
        if text and start is not None and start - begin_s > ALIGNED_S:
            cut_s = (last_end_s + max(start, last_end_s)) / 2
            pieces.append((text.strip(), begin_s, cut_s))
            text, begin_s = "", cut_s
        text += word
        last_end_s = last_end_s if end is None else end
    return [*pieces, (text.strip(), begin_s, log.duration_s)]
