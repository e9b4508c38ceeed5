"""Training speech from recordings without texts: the offline model transcribes them.

`python -m streaming_asr.train method=whisperrt model=tiny.en data=folder data.path=DIR`. Each
recording is decoded greedily, with timestamps, in windows of the model's context, cut where a
segment ends; what is doubtful is left out by Whisper's own rule (Radford et al. 2023, section
4.5). The words get their times as with `data.align=auto`. One piece in twenty is dev.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from omegaconf import DictConfig

from streaming_asr.align.auto import AutoAligner
from streaming_asr.align.command import safe
from streaming_asr.cells import folder as cells
from streaming_asr.config.build import build
from streaming_asr.corpora.audio import Cut, File
from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.corpora.rows import drop_torn_line, json_rows
from streaming_asr.corpora.shards import write_shards
from streaming_asr.errors import UserError
from streaming_asr.files import replacing
from streaming_asr.method import NULL, SAMPLE_RATE, Samples
from streaming_asr.models.find import is_english_only
from streaming_asr.models.hash import model_hash
from streaming_asr.utterance import Utterance

LEAST_LOG_PROB = -1.0  # mean over the tokens of a piece
MOST_COMPRESSION = 2.4  # of its text by zlib: a loop is short when compressed
DEV_SHARE = 20  # one piece in so many
LITTLE_MIN = 60.0


class Piece(NamedTuple):
    """A stretch of a recording in samples, the model's text of it, and why that is doubtful."""

    start: int
    stop: int
    text: str
    doubt: str | None


class Teacher:
    """The offline model of `path`, greedy."""

    def __init__(self, path: str) -> None:
        from streaming_asr.whisper.load import load_whisper
        from streaming_asr.whisper.transcribe import WindowDecoder

        self._windows = WindowDecoder(load_whisper(path))

    def pieces(self, samples: Samples, language: str) -> Iterator[Piece]:
        """Yield the pieces of `samples`, (n,) float32 at 16 kHz, in order, a window long at most.

        A piece ends where a segment ends, the last one with the samples.
        """
        start, limit = 0, self._windows.limit_samples
        while start < len(samples):
            window = self._decode(samples[start : start + limit], language)
            n_samples, n_words = len(samples) - start, len(window.words)
            if n_samples > limit:
                n_samples, n_words = self._windows.seam(self._windows.times(window), window.end)
            text = " ".join("".join(word.text for word in window.words[:n_words]).split())
            yield Piece(start, start + n_samples, text, doubtful(text, window.log_probs))
            start += n_samples

    def _decode(self, samples: Samples, language: str) -> Any:
        from streaming_asr.whisper.together import alone

        return alone(self._windows.decoding_segments(samples, language, NULL), NULL)

    def estimate(self, recordings: Sequence[Utterance], samples: Samples, language: str) -> str:
        """Return a sentence on how long `pieces` and the aligner take for the recordings, estimated
        from one window of `samples`, which is decoded for it."""
        limit = self._windows.limit_samples
        began = time.perf_counter()
        self._decode(np.resize(samples, limit), language)
        window_s = time.perf_counter() - began
        n_windows = sum(1 + int(each.duration_s * SAMPLE_RATE / limit) for each in recordings)
        total_min = 2 * n_windows * window_s / 60  # the aligner takes about as long again
        return (
            f"{len(recordings)} recordings, {minutes(recordings):.1f} min: to transcribe them and "
            f"to time the words takes some {total_min:.1f} min"
        )


def minutes(recordings: Sequence[Utterance]) -> float:
    """Return the total length of the recordings in minutes."""
    return sum(each.duration_s for each in recordings) / 60


def doubtful(text: str, log_probs: Sequence[float]) -> str | None:
    """Return why a model should not learn this text, None if it should (the rule of Whisper).

    log_probs: natural, of the text's tokens.
    """
    if not text:
        return "without words"
    if sum(log_probs) / len(log_probs) < LEAST_LOG_PROB:
        return "unsure"
    raw = text.encode()
    if len(raw) / len(zlib.compress(raw)) > MOST_COMPRESSION:
        return "repeating"
    return None


def prepare(data: DictConfig, model: DictConfig, output: Path) -> tuple[Path, Path]:
    """Make training shards and a manifest of dev from the recordings of `data`; return their paths.

    They lie below `output`/teacher, with the transcripts so far, so that a command that was killed
    can be repeated. Raises UserError, before weights load, for recordings with texts, in a language
    that the model lacks, or without an aligner's model; and where too few usable pieces remain.
    """
    corpus = build(data)
    recordings: list[Utterance] = corpus.utterances()
    language = _language(recordings, model)
    for each in recordings:
        if each.text or not isinstance(each.audio, File):
            raise UserError(
                f"data: {each.id} {'has a text' if each.text else 'is no file of its own'}; the "
                "model transcribes files without texts here. Transcribed speech is trained on "
                "with train_data=: `streaming-asr data shards data=... data.align=auto "
                "out=FOLDER`"
            )
    aligner = AutoAligner.choose(data.get("align") or "auto", {language})
    key = f"{corpus.data_hash()} {model_hash({'model': {'path': model.path}, 'method': {}})}"
    name = f"{corpus.name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    folder = output / "teacher" / safe(str(model.get("name", "model"))) / safe(name)
    timed_by = folder / safe(aligner.name)  # another aligner's times are other shards
    shards, dev = timed_by / "shards", timed_by / "dev.jsonl"
    if minutes(recordings) < LITTLE_MIN:
        print(
            f"warning: {minutes(recordings):.1f} min of recordings; an hour or more of several "
            "voices is what an adapter learns from, less makes it worse for all others",
            file=sys.stderr,
        )
    with cells.lock(folder, on_wait=lambda: print(f"waiting for {folder}", flush=True)):
        if shards.is_dir():
            return shards, dev
        pieces = list(_transcribed(recordings, str(model.path), language, folder))
        usable = [piece for piece, doubt in pieces if doubt is None]
        doubts = Counter(doubt for _, doubt in pieces if doubt)
        left_out = ", ".join(f"{n} {doubt}" for doubt, n in doubts.most_common())
        ending = f"; left out: {left_out}" if left_out else ""
        print(f"{len(usable)} pieces transcribed{ending}", flush=True)
        timed = [piece for piece in aligner.time(corpus, usable) if piece.words]
        # In an order that does not depend on the recordings' order.
        shuffled = sorted(timed, key=lambda piece: hashlib.sha256(piece.id.encode()).digest())
        n_dev = -(-len(shuffled) // DEV_SHARE)
        if n_dev == len(shuffled):
            raise UserError(
                f"data: {len(shuffled)} pieces are left of {len(recordings)} recordings, and two "
                f"are needed ({left_out or 'no words could be timed'}); give recordings of clear "
                "speech in the model's language"
            )
        if not dev.is_file():
            write_manifest(shuffled[:n_dev], dev)
        with replacing(shards) as scratch:
            write_shards(shuffled[n_dev:], scratch, max_s=float("inf"))
    return shards, dev


def _language(recordings: Sequence[Utterance], model: DictConfig) -> str:
    """Return the recordings' language: English for an English-only model, else the one that the
    recordings name. Raises UserError where they name another one, several or none."""
    name = model.get("name", "model")
    languages = sorted({each.language for each in recordings if each.language})
    if is_english_only(model.path):
        others = [code for code in languages if code != "en"]
        if others:
            raise UserError(
                f"model={name}: knows English only, and the recordings are in {', '.join(others)}; "
                "take a multilingual model, as model=base"
            )
        return "en"
    if len(languages) != 1:
        raise UserError(
            f"data.language: model={name} knows several languages; name that of the recordings, as "
            "data.language=fr"
        )
    return languages[0]


def _transcribed(
    recordings: Sequence[Utterance], model: str, language: str, folder: Path
) -> Iterator[tuple[Utterance, str | None]]:
    """Yield the pieces of the recordings, each with why it is doubtful, None if it is not.

    Recordings whose transcript is not in `folder` are transcribed and added there. A recording that
    cannot be read is reported and left out.
    """
    path = folder / "transcripts.jsonl"
    rows: dict[str, list[Any]] = {}
    if path.is_file():
        drop_torn_line(path)
        rows = {row["id"]: row["pieces"] for _, row in json_rows(path)}
    teacher = None
    with path.open("a", encoding="utf-8") as file:
        for i, recording in enumerate(recordings):
            if recording.id not in rows:
                try:
                    samples = recording.load()
                except UserError as error:
                    print(f"left out: {error}", flush=True)
                    continue
                if teacher is None:
                    teacher = Teacher(model)
                    print(teacher.estimate(recordings[i:], samples, language), flush=True)
                rows[recording.id] = list(teacher.pieces(samples, language))
                row = {"id": recording.id, "pieces": rows[recording.id]}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                file.flush()
            assert isinstance(recording.audio, File)
            for k, (start, stop, text, doubt) in enumerate(rows[recording.id]):
                begin_s, end_s = start / SAMPLE_RATE, stop / SAMPLE_RATE
                audio = Cut(recording.audio.path, begin_s, end_s)
                piece_id, length_s = f"{recording.id}-{k:03d}", end_s - begin_s
                speaker = recording.speaker or recording.id
                yield Utterance(piece_id, text, audio, length_s, speaker, language), doubt
