"""After a live session: the times of its words, its scores, and where its logs lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from streaming_asr.align.heard import time_logs, timed, timed_header
from streaming_asr.events.log import UtteranceLog, committed_words
from streaming_asr.live.cells import LiveCell, rtf
from streaming_asr.method import SAMPLE_RATE, Samples


def finish(
    cells: Sequence[LiveCell],
    source: str,
    samples: Samples | None,
    reference: str | None,
    *,
    aligns: bool,
    say: Callable[[str], None] = print,
) -> int:
    """Write and score the logs, report their metrics and paths, and return the exit status.

    samples: those of a microphone or of a chosen track, which are kept next to the logs; None for a
    file.
    """
    audio = Path(source)
    if samples is not None:
        import soundfile

        audio = cells[0].folder.parent / "audio.wav"
        soundfile.write(audio, samples, SAMPLE_RATE)
    text, words, source_of_times = reference or "", None, None
    if aligns:
        heard = [(cell.title, cell.log) for cell in cells]
        text, words, source_of_times = timed(heard, audio, reference, say)
    for cell in cells:
        cell.log.audio_path = str(audio.absolute())
        cell.log.text, cell.log.words = text, words
        path = cell.write(timed_header(cell.header, reference, source_of_times))
        say(f"{_summary(cell.title, [cell.log], path, reference)} · {path}")
    return 1 if any(cell.log.error is not None for cell in cells) else 0


def add_times(folder: Path, say: Callable[[str], None] = print) -> int:
    """Give the words of served sessions their times, in their logs, and return the exit status.

    folder: a session of `serve keep_audio=true`, or all of a server. Raises UserError where no such
    log is there.
    """
    status, logs = time_logs(folder, say)
    for path, log in logs.items():
        say(f"{_summary(path.parent.name, log.utterances, path, None)} · {path}")
    return status


def _summary(
    title: str, utterances: Sequence[UtteranceLog], path: Path, reference: str | None
) -> str:
    """Score a log's folder and return its summary line."""
    from streaming_asr.score import score_folder

    metrics = score_folder(path.parent, experiment=path.parent.parent.name)["metrics"]
    failed = [each.error for each in utterances if each.error is not None]
    if len(failed) == len(utterances):
        return f"{title}: failed: {failed[0] if failed else 'no audio came'}"
    n_words = sum(len(committed_words(each.steps)) for each in utterances)
    parts = [f"{title}: {n_words} words"]
    if not n_words:
        seconds = sum(each.duration_samples for each in utterances) / SAMPLE_RATE
        parts = [f"{title}: no speech found in {seconds:.0f} s"]
    if metrics.get("wer") is not None:
        parts.append(f"WER {metrics['wer']:.1f} %")
    display_s, committed = (
        metrics.get(f"word_latency_{name}_p50_ca_s") for name in ("shown", "committed")
    )
    if display_s is not None and committed is not None:
        against = "" if reference is not None else " (of the aligned hypothesis)"
        parts.append(f"shown after {display_s:.2f} s, committed after {committed:.2f} s{against}")
    parts.append(f"RTF {rtf(utterances):.2f}")
    return " · ".join(parts)
