"""Published corpora in their real layouts, made of fractions of a second of synthetic sound."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile
from tiny import noise


def sound(path: Path, seconds: float = 0.5, rate: int = 16_000, seed: int = 0) -> Path:
    """A recording in the format its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.3 * noise(seconds * rate / 16_000, seed)[: round(seconds * rate)]
    form = {".sph": "NIST", ".opus": "OGG"}.get(path.suffix)
    soundfile.write(
        path, samples, rate, format=form, subtype="OPUS" if path.suffix == ".opus" else None
    )
    return path


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def text_grid(
    path: Path,
    words: Sequence[tuple[str, float, float]],
    end: float,
    tier: str = "words",
    phones: Sequence[tuple[str, float, float]] | None = None,
    blank: str = "",
) -> Path:
    """A long TextGrid as MFA saves it: intervals without a word included, a tier of phones after.

    phones: as `words` where they are not named. blank: "<eps>" without MFA's clean-up.
    """

    def intervals(name: str, labels: Sequence[tuple[str, float, float]]) -> list[str]:
        rows: list[tuple[str, float, float]] = []
        at = 0.0
        for label, start, stop in labels:
            if start > at:
                rows.append((blank, at, start))
            rows.append((label, start, stop))
            at = stop
        if at < end:
            rows.append((blank, at, end))
        head = [
            '        class = "IntervalTier" ',
            f'        name = "{name}" ',
            "        xmin = 0 ",
            f"        xmax = {end} ",
            f"        intervals: size = {len(rows)} ",
        ]
        for i, (label, start, stop) in enumerate(rows, start=1):
            head += [
                f"        intervals [{i}]:",
                f"            xmin = {start} ",
                f"            xmax = {stop} ",
                f'            text = "{label}" ',
            ]
        return head

    second = tier.replace("words", "phones") if "words" in tier else "phones"
    return write(
        path,
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0 ",
        f"xmax = {end} ",
        "tiers? <exists> ",
        "size = 2 ",
        "item []: ",
        "    item [1]:",
        *intervals(tier, words),
        "    item [2]:",
        *intervals(second, words if phones is None else phones),
    )


def librispeech(root: Path) -> Path:
    """LibriSpeech/test-clean of two chapters, the second with LibriSpeech-Alignments beside it."""
    base = root / "LibriSpeech"
    for speaker, chapter, n in (("1089", "134686", 2), ("121", "121726", 1)):
        folder = base / "test-clean" / speaker / chapter
        for i in range(n):
            sound(folder / f"{speaker}-{chapter}-{i:04d}.flac", seed=i)
        lines = [f"{speaker}-{chapter}-{i:04d} HE HOPED NUMBER {i}X" for i in range(n)]
        write(folder / f"{speaker}-{chapter}.trans.txt", *lines)
    write(base / "SPEAKERS.TXT", "; ID |SEX| SUBSET |MINUTES| NAME")
    words = [("he", 0.05, 0.1), ("hoped", 0.1, 0.2), ("number", 0.25, 0.35), ("0x", 0.35, 0.45)]
    text_grid(base / "test-clean/121/121726/121-121726-0000.TextGrid", words, 0.5)
    return base


def librispeech_pc(root: Path) -> Path:
    rows = [
        {
            "audio_filepath": f"test-clean/1089/134686/1089-134686-{i:04d}.flac",
            "duration": 0.5,
            "text": f"He hoped, number {i}x.",
            "text_raw": f"he hoped number {i}x",
        }
        for i in range(2)
    ]
    write(root / "manifests" / "test-clean.json", *map(json.dumps, rows))
    return root / "manifests"


def tedlium(root: Path) -> Path:
    base = root / "TEDLIUM_release-3"
    talk = "AimeeMullins_2009P"
    sound(base / f"legacy/test/sph/{talk}.sph", 3.0)
    label = "<o,f0,female>"
    write(
        base / f"legacy/test/stm/{talk}.stm",
        f"{talk} 1 inter_segment_gap 0 0.50 <o,,unknown> ignore_time_segment_in_scoring",
        f"{talk} 1 {talk} 0.50 1.25 {label} i 'd like to {{SMACK}} share <unk>",
        f"{talk} 1 inter_segment_gap 1.25 2.00 <o,,unknown> ignore_time_segment_in_scoring",
        f"{talk} 1 {talk} 2.00 2.75 {label} a discovery(2) with you",
    )
    sound(base / "data/sph/Other_2010.sph", 1.0)
    write(base / "data/stm/Other_2010.stm", f"Other_2010 1 Other_2010 0.00 1.00 {label} hello")
    return base


def mls(root: Path) -> Path:
    base = root / "mls_german"
    for split, suffix in (("test", ".flac"), ("dev", ".opus")):
        lines = []
        for speaker, book in (("1054", "1599"), ("252", "3")):
            name = f"{speaker}_{book}_000000"
            sound(base / split / "audio" / speaker / book / f"{name}{suffix}")
            lines.append(f"{name}\tmein sechster sohn")
        write(base / split / "transcripts.txt", *lines)
    return root


def common_voice(root: Path) -> Path:
    base = root / "cv-corpus-17.0" / "de"
    columns = "client_id\tpath\tsentence_id\tsentence\tup_votes\tdown_votes\tage\tlocale\tsegment"
    write(
        base / "test.tsv",
        columns,
        'a1b2\tcommon_voice_de_1.mp3\t77\tEr sagte: "Nein.\t2\t0\t\tde\t',
        "c3d4\tcommon_voice_de_2.mp3\t78\tGuten Tag.\t2\t1\ttwenties\tde\t",
    )
    write(base / "clip_durations.tsv", "clip\tduration[ms]", "common_voice_de_1.mp3\t720")
    write(base / "reported.tsv", "sentence_id\tsentence\tlocale\treason", "77\tx\tde\tother")
    for i in (1, 2):
        sound(base / "clips" / f"common_voice_de_{i}.mp3", 0.72, 32_000, seed=i)
    return base


def nemo(root: Path) -> Path:
    sound(root / "wavs" / "call.wav", 2.0)
    rows = [
        {"audio_filepath": "wavs/call.wav", "offset": 0.5, "duration": 1.0, "text": "hello there"},
        {"audio_filepath": "wavs/call.wav", "offset": 1.5, "duration": 0.5, "text": "bye"},
        {
            "audio_filepath": str(root / "wavs/call.wav"),
            "duration": 2.0,
            "text": "all",
            "lang": "de",
        },
    ]
    return write(root / "train.json", *map(json.dumps, rows))


def kaldi(root: Path) -> Path:
    sound(root / "wav" / "rec1.wav", 2.0)
    sound(root / "sph" / "rec2.sph", 1.0)
    folder = root / "data" / "test"
    write(
        folder / "wav.scp",
        f"rec1 {root / 'wav' / 'rec1.wav'}",
        f"rec2 sph2pipe -f wav -p {root / 'sph' / 'rec2.sph'} |",
    )
    write(
        folder / "segments", "spk1-a rec1 0.50 1.25", "spk1-b rec1 1.25 2.00", "spk2-a rec2 0.0 1.0"
    )
    write(folder / "text", "spk1-a HELLO THERE", "spk1-b BYE", "spk2-a YES")
    write(folder / "utt2spk", "spk1-a spk1", "spk1-b spk1", "spk2-a spk2")
    write(
        folder / "ctm",
        "rec1 1 0.60 0.20 HELLO",
        "rec1 1 0.90 0.30 THERE 0.98",
        "rec1 1 1.40 0.50 BYE",
        "spk2-a 1 0.20 0.50 YES",
    )
    return folder


def samples_of(path: Path, start_s: float, end_s: float) -> np.ndarray:
    data, rate = soundfile.read(path, dtype="float32")
    return data[round(start_s * rate) : round(end_s * rate)]
