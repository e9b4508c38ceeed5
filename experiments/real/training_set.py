"""What `train recipe=whisperrt_real` learns from: shards of synthetic and human speech.

    python -m experiments.real.training_set --speech outputs/real/speech/manifest.jsonl \\
        --speechocean762 mispeech/speechocean762 --alignments FOLDER --out outputs/real/train

OUT/shards: the clips of --speech (manifests with word times) whose voices are not held out, and
where it is named the train speakers of speechocean762, its word times from
`python -m streaming_asr.align`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from experiments.real.speech import held_out
from streaming_asr.data import read_manifest
from streaming_asr.data.corpora.speechocean762 import Speechocean762
from streaming_asr.data.shards import write_shards
from streaming_asr.utterance import TimedWord, Utterance

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


def training(
    manifests: Sequence[Path], human: str | None, alignments: str | None
) -> Iterator[Utterance]:
    """The utterances to train on."""
    for manifest in manifests:
        yield from (u for u in read_manifest(manifest) if not voices_of(u) & held_out())
    if human is None:
        return
    corpus = Speechocean762(path=Path(human), split="train", alignments=alignments)
    yield from filter(well_aligned, map(as_sentence, corpus.utterances(None)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--speech", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--speechocean762", help="folder, or name on the hub")
    parser.add_argument("--alignments", help="its train speakers' word times")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    train = training(options.speech, options.speechocean762, options.alignments)
    written, without, _ = write_shards(train, options.out / "shards", max_s=30)
    print(f"{written} utterances in shards, {without} without word times left out")


if __name__ == "__main__":
    main()
