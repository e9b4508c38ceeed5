"""Our methods and the programs of others: the same weights and clips, CPU time and texts.

Both sides of a pair run in one process on one thread and take turns on each clip, the one that
begins changing with the clip, so that other load hits both. Loading and each side's first clip are
not counted. What is not installed is named and left out.
"""

from __future__ import annotations

import io
import logging
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from experiments import parity
from experiments.bench.frame import table, threads
from streaming_asr.config.build import build, new_method
from streaming_asr.config.compose import compose_raw
from streaming_asr.errors import UserError
from streaming_asr.machine import machine, versions
from streaming_asr.metrics.accuracy import count, total
from streaming_asr.models.find import find
from streaming_asr.terminal import console
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import Utterance
from streaming_asr.whisper.from_ctranslate2 import locate
from streaming_asr.whisper.load import Whisper, load_whisper

Said = Callable[[np.ndarray], str]
"""The text of one recording, 16 kHz float32."""


@dataclass(frozen=True)
class Pair:
    """One program of others and the method of ours that does the same."""

    peer: str
    version: str
    method: str
    chunk_s: float | None
    theirs: Said
    ours: Said


def of_method(
    name: str, chunk_s: float | None = None, first_s: float | None = None, **rest: Any
) -> Said:
    """Our method with its defaults of conf/, except `rest`; without a chunk it gets all at once."""
    if chunk_s is not None:
        rest |= {"chunk_s": chunk_s, "first_chunk_s": first_s or chunk_s}
    return partial(_ours, new_method(name, parity.MODEL, **rest), chunk_s, first_s)


def _ours(method: Any, chunk_s: float | None, first_s: float | None, audio: np.ndarray) -> str:
    state = method.start(language="en")
    heard: Iterable[tuple[np.ndarray, bool]] = [(audio, True)]
    if chunk_s is not None:
        heard = parity.pieces(audio, chunk_s, first_s, getattr(method, "lookahead_samples", 0))
    words = [
        w.text for piece, last in heard for w in method.step(state, piece, last=last).committed
    ]
    return " ".join(words)


@cache
def weights() -> Whisper:
    return load_whisper(parity.MODEL, trainable=True)


def faster_whisper(_: Path) -> Pair:
    from faster_whisper import WhisperModel

    model = WhisperModel(
        str(find(parity.MODEL).folder), device="cpu", compute_type="float32", cpu_threads=1
    )

    def transcribe(audio: np.ndarray) -> str:
        segments, _ = model.transcribe(
            audio, language="en", beam_size=1, temperature=0.0, word_timestamps=True
        )
        return "".join(segment.text for segment in segments)

    return Pair(
        "faster-whisper",
        version("faster-whisper"),
        "offline",
        None,
        transcribe,
        of_method("offline"),
    )


def transformers(_: Path) -> Pair:
    from transformers import WhisperFeatureExtractor

    whisper = weights()
    features = WhisperFeatureExtractor.from_pretrained(locate(parity.MODEL))

    def transcribe(audio: np.ndarray) -> str:
        heard = features(
            audio, sampling_rate=16000, return_tensors="pt", return_attention_mask=True
        )
        tokens = whisper.model.generate(**heard)
        text: str = whisper.tokenizer.batch_decode(tokens, skip_special_tokens=True)[0]
        return text

    return Pair(
        "transformers", version("transformers"), "offline", None, transcribe, of_method("offline")
    )


def whisper_streaming(checkouts: Path) -> Pair:
    from faster_whisper import WhisperModel

    from experiments.ufal.parity import Run, load_reference, reference_asr, run_reference

    folder = checkout(checkouts, "whisper_streaming")
    module = load_reference(folder)
    model = WhisperModel(
        str(find(parity.MODEL).folder), device="cpu", compute_type="float32", cpu_threads=1
    )
    asr = reference_asr(module, model, [0.0])

    def transcribe(audio: np.ndarray) -> str:
        run = Run("", 1.0, 15.0)
        run_reference(module, asr, audio, run)
        words = [w for each in run.rounds for w in each["committed"]] + run.finished
        return "".join(word[0] for word in words)

    commit = parity.commit_of(folder)
    return Pair("whisper_streaming", commit, "ufal", 1.0, transcribe, of_method("ufal", 1.0))


def simulstreaming(checkouts: Path) -> Pair:
    from experiments.simul_whisper import parity as simul

    folder = checkout(checkouts, "SimulStreaming")
    whisper = weights()
    model = simul.reference(folder, whisper, 1.0, mend=False)

    def transcribe(audio: np.ndarray) -> str:
        steps = simul.their_tokens(model, audio, 1.0, ())
        return _text(whisper, [token for step in steps for token in step])

    # The reference's threshold at the end loses last words; ours has the same here.
    ours = partial(_ours, simul.our_method(1.0), 1.0, None)
    return Pair("SimulStreaming", parity.commit_of(folder), "simul_whisper", 1.0, transcribe, ours)


def whisperrt(checkouts: Path, chunk_s: float) -> Pair:
    from experiments.whisperrt import parity as rt
    from streaming_asr.whisper.features import FRAMES_PER_S

    folder = checkout(checkouts, "WhisperRT-Streaming")
    whisper, first_s = weights(), rt.CHUNKS_S[chunk_s]
    chunk, first = (round(s * FRAMES_PER_S) for s in (chunk_s, first_s))
    author = rt.Author(folder, whisper, chunk, first, ())

    def transcribe(audio: np.ndarray) -> str:
        return _text(whisper, author.tokens(audio)[-1])

    ours = partial(_ours, rt.our_method(chunk_s, first_s), chunk_s, first_s)
    return Pair(
        "authors' WhisperRT", parity.commit_of(folder), "whisperrt", chunk_s, transcribe, ours
    )


def whisperlivekit(checkouts: Path) -> Pair:
    parity.stand_in("librosa", "torchaudio")  # for reading files, which is not done here
    from whisperlivekit.simul_whisper import backend  # type: ignore[import-not-found]

    # It tells by the folder's name that a model is English-only.
    named = checkouts / "tiny.en"
    if not named.exists():
        checkouts.mkdir(parents=True, exist_ok=True)
        named.symlink_to(Path(locate(parity.MODEL)).resolve())
    unset = (
        *("model_path", "lora_path", "cif_ckpt_path", "init_prompt", "static_init_prompt"),
        *("max_context_tokens", "custom_alignment_heads", "warmup_file", "model_cache_dir"),
    )
    asr = backend.SimulStreamingASR(
        **dict.fromkeys(unset),
        model_size="tiny.en",
        decoder_model_path=str(named),
        encoder_model_path=str(find(parity.MODEL).folder),
        backend="faster-whisper",
        lan="en",
        decoder_type="greedy",
        beams=1,
        min_chunk_size=1.0,
        frame_threshold=25,  # its default
        audio_max_len=20.0,
        audio_min_len=0.0,
        never_fire=False,
        direct_english_translation=False,
        disable_fast_encoder=False,
    )

    def transcribe(audio: np.ndarray) -> str:
        online, words, n = backend.SimulStreamingOnlineProcessor(asr), [], 0
        for piece, last in parity.pieces(audio, 1.0):
            n += len(piece)
            online.insert_audio_chunk(piece, n / 16000)
            words += online.process_iter(is_last=last)[0]
        return "".join(word.text for word in words)

    ours = of_method("simul_whisper", 1.0)
    return Pair("WhisperLiveKit", version("whisperlivekit"), "simul_whisper", 1.0, transcribe, ours)


PEERS: dict[str, Sequence[Callable[[Path], Pair]]] = {
    "faster_whisper": (faster_whisper,),
    "transformers": (transformers,),
    "whisper_streaming": (whisper_streaming,),
    "simulstreaming": (simulstreaming,),
    "whisperrt": (partial(whisperrt, chunk_s=0.3), partial(whisperrt, chunk_s=1.0)),
    "whisperlivekit": (whisperlivekit,),
}


def checkout(checkouts: Path, name: str) -> Path:
    if not (checkouts / name).is_dir():
        raise FileNotFoundError(f"no folder {checkouts / name}")
    return (checkouts / name).resolve()


def _text(whisper: Whisper, tokens: Sequence[int]) -> str:
    text: str = whisper.tokenizer.decode(list(tokens), skip_special_tokens=True)
    return text


def side_by_side(pair: Pair, clips: Sequence[tuple[np.ndarray, str]]) -> dict[str, Any]:
    """CPU seconds and texts of both sides of a pair over clips (audio, reference)."""
    normalise = normaliser("en")
    sides = {"theirs": pair.theirs, "ours": pair.ours}
    for transcribe in sides.values():
        transcribe(clips[0][0])
    cpu_s: dict[str, list[float]] = {"theirs": [], "ours": []}
    texts: dict[str, list[Sequence[str]]] = {"theirs": [], "ours": []}
    for i, (audio, _) in enumerate(clips):
        for side in sorted(sides, reverse=i % 2 == 0):
            begin = time.process_time()
            text = sides[side](audio)
            cpu_s[side].append(time.process_time() - begin)
            texts[side].append(normalise.words(text))
    audio_s = sum(len(audio) for audio, _ in clips) / 16000
    row: dict[str, Any] = {
        "peer": pair.peer,
        "version": pair.version,
        "method": pair.method,
        "chunk_s": pair.chunk_s,
        "equal": sum(a == b for a, b in zip(*texts.values(), strict=True)),
    }
    for side in sides:
        pairs = zip(clips, texts[side], strict=True)
        errors = total([count(normalise.words(text), words) for (_, text), words in pairs])
        row[side] = {"rtf": sum(cpu_s[side]) / audio_s, "wer": errors.percent()}
    quotients = [a / b for a, b in zip(cpu_s["ours"], cpu_s["theirs"], strict=True)]
    row["quotient"] = {
        "all": row["ours"]["rtf"] / row["theirs"]["rtf"],
        "of_a_clip": [min(quotients), statistics.median(quotients), max(quotients)],
    }
    return row


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what the others print and log of each chunk."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def voices(limit: int) -> list[Utterance]:
    """The first recordings of `data=voices`: synthetic, so that no frozen list is read."""
    return build(compose_raw(["data=voices"]).data).utterances(limit)


def bench(*, checkouts: str, limit: int, only: Sequence[str]) -> dict[str, Any]:
    """All pairs that are installed, over the first recordings of `data=voices`."""
    folder = Path(checkouts)
    clips = [(clip.load(), clip.text) for clip in voices(limit)]
    rows, absent = [], {}
    with threads(1), quiet():
        for name in only:
            for make in PEERS[name]:
                try:
                    pair = make(folder)
                except (ImportError, FileNotFoundError) as error:
                    absent[name] = str(error)
                    continue
                print(f"{pair.peer}: {len(clips)} clips", file=sys.stderr, flush=True)
                rows.append(side_by_side(pair, clips))
    if not rows:
        raise UserError(
            f"--checkouts {checkouts}: none of {', '.join(only)} is there "
            f"({next(iter(absent.values()))}); docs/bench.md explains how to get them"
        )
    return {
        "machine": machine(),
        "versions": versions(),
        "clips": len(clips),
        "audio_s": sum(len(audio) for audio, _ in clips) / 16000,
        "rows": rows,
        "absent": absent,
    }


def show(result: dict[str, Any]) -> None:
    """A row for each pair; below it what was not there."""
    title = (
        f"{result['clips']} voices, {result['audio_s']:.0f} s, tiny.en, one thread of "
        f"{result['machine']['cpu']}; CPU seconds per second of audio"
    )
    headings = ("theirs", "ours", "chunk", "theirs", "ours", "ours / theirs", "of a clip")
    grid = table(title, (*headings, "equal texts", "WER % theirs", "ours"), n_text=2)
    for row in result["rows"]:
        least, _, most = row["quotient"]["of_a_clip"]
        grid.add_row(
            f"{row['peer']} {row['version']}",
            row["method"],
            "whole" if row["chunk_s"] is None else f"{row['chunk_s']:g} s",
            f"{row['theirs']['rtf']:.3f}",
            f"{row['ours']['rtf']:.3f}",
            f"{row['quotient']['all']:.2f}",
            f"{least:.2f} to {most:.2f}",
            f"{row['equal']} of {result['clips']}",
            f"{row['theirs']['wer']:.1f}",
            f"{row['ours']['wer']:.1f}",
        )
    console(150).print(grid)
    for name, why in result["absent"].items():
        print(f"not there: {name} ({why})")
