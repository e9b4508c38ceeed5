"""After a live session: the times of its words, its scores, and the paths of its logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming_asr.align.heard import timed, timed_header
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
) -> int:
    """Write and score the logs, print their metrics and paths, and return the exit status: 1 where
    a method failed.

    source: the file, or `mic`. samples: the audio of a microphone, (n,) at 16 kHz, which is written
    next to the logs; None for a file. reference: the text that was spoken. aligns: whether words
    get times by alignment.
    """
    audio = Path(source)
    if samples is not None:
        import soundfile

        audio = cells[0].folder.parent / "audio.wav"
        soundfile.write(audio, samples, SAMPLE_RATE)
    text, words, source_of_times = reference or "", None, None
    if aligns:
        hypotheses = [(cell.title, cell.log) for cell in cells]
        text, words, source_of_times = timed(hypotheses, audio, reference, print)
    for cell in cells:
        cell.log.audio_path = str(audio.absolute())
        cell.log.text, cell.log.words = text, words
        path = cell.write(timed_header(cell.header, reference, source_of_times))
        print(f"{_summary(cell.title, [cell.log], path, reference)} · {path}")
    return 1 if any(cell.log.error is not None for cell in cells) else 0


def _summary(
    title: str, utterances: Sequence[UtteranceLog], path: Path, reference: str | None
) -> str:
    """Score a log's folder and return a line with its words, WER, median latencies and real-time
    factor. Without a reference, the latencies are those of the aligned hypothesis."""
    from streaming_asr.score import score_folder

    metrics = score_folder(path.parent, experiment=path.parent.parent.name)["metrics"]
    errors = [utterance.error for utterance in utterances if utterance.error is not None]
    if len(errors) == len(utterances):
        return f"{title}: failed: {errors[0] if errors else 'no audio came'}"
    n_words = sum(len(committed_words(utterance.steps)) for utterance in utterances)
    parts = [f"{title}: {n_words} words"]
    if not n_words:
        audio_s = sum(utterance.duration_samples for utterance in utterances) / SAMPLE_RATE
        parts = [f"{title}: no speech found in {audio_s:.0f} s"]
    if metrics.get("wer") is not None:
        parts.append(f"WER {metrics['wer']:.1f} %")
    display_s = metrics.get("word_latency_shown_p50_ca_s")
    commit_s = metrics.get("word_latency_committed_p50_ca_s")
    if display_s is not None and commit_s is not None:
        note = "" if reference is not None else " of the aligned hypothesis"
        parts.append(
            f"shown after {display_s:.2f} s, committed after {commit_s:.2f} s (medians{note})"
        )
    parts.append(f"RTF {rtf(utterances):.2f}")
    return " · ".join(parts)
