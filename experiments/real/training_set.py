"""What `train recipe=whisperrt_real` learns from: shards of synthetic and human speech, and dev.

    python -m experiments.real.training_set --speech outputs/real/speech/manifest.jsonl \\
        --speechocean762 mispeech/speechocean762 --alignments FOLDER --out outputs/real/train

OUT/shards: the clips of --speech (manifests with word times) whose voices are not held out, and
the train speakers of speechocean762, its word times from `python -m streaming_asr.align`.
OUT/dev.jsonl: a recording of some 15 s of each of the 20 dev speakers, and 8 clips of the dev
voices.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.real.speech import HELD_OUT, held_out
from streaming_asr.data import read_manifest
from streaming_asr.data.corpora.speechocean762 import Speechocean762
from streaming_asr.data.join import join
from streaming_asr.data.manifest import write_manifest
from streaming_asr.data.shards import write_shards
from streaming_asr.utterance import TimedWord, Utterance

JOIN_S = 15.0
N_CLIPS = 8  # of the dev voices
CLIP_S = (5.0, 13.0)
LONGEST_WORD_S = 2.0  # of an alignment that can be right


def as_sentence(utterance: Utterance) -> Utterance:
    """The utterance with its lower-case text as Whisper writes: a capital, I, a full stop."""
    words = [re.sub(r"^i(?=$|')", "I", word) for word in utterance.text.split()]
    words[0] = words[0][0].upper() + words[0][1:]
    words[-1] += "" if words[-1][-1] in ".?!" else "."
    timed = utterance.words
    if timed is not None:
        timed = tuple(TimedWord(w, a, b) for w, (_, a, b) in zip(words, timed, strict=True))
    return replace(utterance, text=" ".join(words), words=timed)


def well_aligned(utterance: Utterance) -> bool:
    """Whether no word lasts longer than a word can."""
    return all(b - a <= LONGEST_WORD_S for _, a, b in utterance.words or ())


def voices_of(utterance: Utterance) -> set[str]:
    """The voices in a name such as `am_puck*0.65+bm_daniel`."""
    return set(re.findall(r"[abe][fm]_[a-z]+", utterance.speaker or ""))


def training(manifests: Sequence[Path], human: str, alignments: str | None) -> Iterator[Utterance]:
    """The utterances to train on."""
    for manifest in manifests:
        yield from (u for u in read_manifest(manifest) if not voices_of(u) & held_out())
    corpus = Speechocean762(path=Path(human), split="train", alignments=alignments)
    yield from filter(well_aligned, map(as_sentence, corpus.utterances(None)))


def dev(manifests: Sequence[Path], human: str) -> Iterator[Utterance]:
    """The utterances that choose a recipe and a checkpoint."""
    names = json.loads(HELD_OUT.read_text("utf-8"))
    clips = Speechocean762(path=Path(human), split="dev").utterances(None)
    yield from (u for u in join([as_sentence(c) for c in clips], JOIN_S) if u.id.endswith("-00"))
    spoken = [u for manifest in manifests for u in read_manifest(manifest)]
    fit = [
        u
        for u in spoken
        if CLIP_S[0] < u.duration_s < CLIP_S[1]
        and voices_of(u) & set(names["dev"])
        and not voices_of(u) & set(names["test"])
    ]
    yield from sorted(fit, key=lambda u: hashlib.sha256(u.id.encode()).digest())[:N_CLIPS]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--speech", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--speechocean762", required=True, help="folder, or name on the hub")
    parser.add_argument("--alignments", help="its train speakers' word times")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    for_dev = dev(options.speech, options.speechocean762)
    print(f"{write_manifest(for_dev, options.out / 'dev.jsonl')} recordings in dev.jsonl")
    train = training(options.speech, options.speechocean762, options.alignments)
    written, without, _ = write_shards(train, options.out / "shards", max_s=30)
    print(f"{written} utterances in shards, {without} without word times left out")


if __name__ == "__main__":
    main()
