"""The committed splits of `mini`: dev, clean, other, finance (test), long and long600.

    python -m experiments.mini.splits --out streaming_asr/data/mini

Audio is Ogg Opus at 16 kHz, stored clean; the noise of `other` is a specification that the loader
follows, and `long` names the recordings that the loader joins. README.md in this folder describes
the splits. Their audio is the reference: one rebuild gave the same samples, other versions of the
synthesisers may not.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import soundfile

from experiments.mini import text, voices
from experiments.mini.corpus import (
    HELD_OUT_SHARE,
    JOINED_SHARE,
    SAMPLE_RATE,
    Made,
    make,
    reserved,
    spoken_sentences,
)

COMPRESSION = 0.92  # about 26 kbit/s of Opus; libsndfile maps 0..1 to 256..6 kbit/s
N_DEV, N_FINANCE = 200, 120
N_LONG = 8  # speakers of `clean` with the utterances for a minute
PER_SPEAKER, PER_LONG_SPEAKER = 8, 18
OTHER_PER_SPEAKER = 11
LONG_S, MEMORY_S = 60.0, 600.0
NOISES = ("white", "pink", "babble", "hum")


class _Drawer:
    """Draws unused, reserved sentences and speaks them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.used: set[str] = set()
        self.rejected: collections.Counter[str] = collections.Counter()

    def _sentence(self, rng: random.Random, domain: str):
        heldout = domain == "general" and rng.random() < HELD_OUT_SHARE
        joined = rng.random() < JOINED_SHARE
        while True:
            sentence = text.sentence(rng, domain=domain, heldout=heldout)
            parts = spoken_sentences(sentence.units)
            if ("+" in sentence.template) != joined or self.used.intersection(parts):
                continue
            if all(reserved(part) for part in parts):
                return sentence, parts

    def draw(self, split: str, speakers: Sequence[str], domain: str = "general") -> list[Made]:
        """One utterance by each of ``speakers``, in their order."""
        clips = []
        for i, speaker in enumerate(speakers):
            rng = random.Random(f"{split}/{self.seed}/{i}")
            spoken = None
            while spoken is None:
                sentence, parts = self._sentence(rng, domain)
                spoken = make(sentence, speaker, f"{split}/{self.seed}/{i}", self.rejected)
            self.used.update(parts)
            clips.append(spoken)
        return clips


def _store(out: Path, split: str, clips: Sequence[Made], seed: int) -> list[dict]:
    """Writes audio and manifest. Returns the manifest's rows."""
    folder = out / "audio" / split
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.ogg"):
        old.unlink()
    rng, rows = random.Random(f"noise/{seed}"), []
    for i, one in enumerate(clips):
        name = f"{split}-{i:03d}"
        path = folder / f"{name}.ogg"
        soundfile.write(
            path,
            one.samples,
            SAMPLE_RATE,
            format="OGG",
            subtype="OPUS",
            compression_level=COMPRESSION,
        )
        if soundfile.info(path).frames != len(one.samples):
            raise RuntimeError(f"{path}: the codec changed the number of samples")
        row = {
            "id": name,
            "audio_filepath": f"audio/{split}/{path.name}",
            "duration": len(one.samples) / SAMPLE_RATE,
            "text": one.text,
            "sentences": one.sentences,  # as they are spoken
            "speaker": one.speaker,
            "language": "en",
            "heldout": one.heldout,
            "words": one.words,
        }
        if split == "other":
            row["noise"] = {
                "kind": NOISES[i % len(NOISES)],
                "snr_db": round(rng.uniform(5, 15), 1),
                "seed": i,
            }
        rows.append(row)
    _write(out / f"{split}.jsonl", rows)
    return rows


def _write(path: Path, rows: Sequence[dict]) -> None:
    text_ = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text(text_, "utf-8")


def compose(name: str, rows: Sequence[dict], at_least_s: float, rng: random.Random) -> dict:
    """Joins utterances, each followed by 0.2-2 s of silence. Returns the recording's row.

    Raises ValueError when the utterances do not fill ``at_least_s``.
    """
    parts, words, texts = [], [], []
    time_s, speakers = 0.0, set()
    for row in rows:
        if time_s >= at_least_s:
            break
        gap_s = round(rng.uniform(0.2, 2.0), 2)
        parts.append({"audio_filepath": row["audio_filepath"], "gap_s": gap_s})
        words += [[w, round(a + time_s, 4), round(b + time_s, 4)] for w, a, b in row["words"]]
        texts.append(row["text"])
        speakers.add(row["speaker"])
        time_s += row["duration"] + gap_s
    if time_s < at_least_s:
        raise ValueError(f"{name}: {time_s:.1f} s of utterances, {at_least_s:.0f} s wanted")
    return {
        "id": name,
        "parts": parts,
        "duration": time_s,
        "text": " ".join(texts),
        "speaker": speakers.pop() if len(speakers) == 1 else "several",
        "language": "en",
        "words": words,
    }


def _long(out: Path, clean: Sequence[dict], seed: int) -> None:
    rng = random.Random(f"long/{seed}")
    by_speaker: dict[str, list[dict]] = {}
    for row in clean:
        by_speaker.setdefault(row["speaker"], []).append(row)
    enough = [s for s, rows in by_speaker.items() if len(rows) == PER_LONG_SPEAKER]
    _write(
        out / "long.jsonl",
        [compose(f"long-{i:02d}", by_speaker[s], LONG_S, rng) for i, s in enumerate(enough)],
    )
    mixed = rng.sample(list(clean), len(clean))
    _write(out / "long600.jsonl", [compose("long600", mixed, MEMORY_S, rng)])


def build(out: Path, seed: int = 0) -> None:
    """Write all splits below ``out``."""
    began = time.time()
    drawer, rng = _Drawer(seed), random.Random(f"speakers/{seed}")
    speakers = [
        speaker
        for i, speaker in enumerate(voices.CLEAN)
        for _ in range(PER_LONG_SPEAKER if i % 2 == 0 and i < 2 * N_LONG else PER_SPEAKER)
    ]
    clean = _store(out, "clean", drawer.draw("clean", speakers), seed)
    speakers = [s for s in voices.OTHER for _ in range(OTHER_PER_SPEAKER)]
    _store(out, "other", drawer.draw("other", speakers), seed)
    speakers = [rng.choice(voices.CLEAN) for _ in range(N_FINANCE)]
    _store(out, "finance", drawer.draw("finance", speakers, "finance"), seed)
    heard = (*voices.ESPEAK_HEARD, *voices.FLITE_HEARD, *voices.FLITE_HEARD)
    heard += voices.FESTIVAL_FAST + voices.FESTIVAL_SLOW
    speakers = [rng.choice(heard) for _ in range(N_DEV)]
    _store(out, "dev", drawer.draw("dev", speakers), seed)
    _long(out, clean, seed)
    n_bytes = sum(p.stat().st_size for p in (out / "audio").rglob("*.ogg"))
    print(f"{n_bytes / 1e6:.2f} MB of audio in {time.time() - began:.0f} s")
    print("rejected:", dict(drawer.rejected))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(arguments)
    build(args.out)


if __name__ == "__main__":
    main()
