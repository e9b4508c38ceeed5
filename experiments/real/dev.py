"""The speech that recipes and checkpoints are chosen on: 40 clips and 10 recordings of people.

    python -m experiments.real.dev --speechocean762 mispeech/speechocean762 --out outputs/real/dev

OUT/dev.jsonl holds
- 20 clips of each of the two dev voices of `held_out.json`, whose sentences are kept for tests by
  the same hash as those of data=voices, and are not among them: two example sentences of WordNet
  with a pause, or a sentence of an address on the State of the Union since 1961. Every fourth clip
  passes a telephone line, every fourth in a room.
- a recording of some 15 s of each of 10 of speechocean762's dev speakers, the first by a hash.

Texts and sound of the clips depend only on this file and on the packages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.real.packages import WORDNET, cache_root, obtain_all
from experiments.real.sentences import examples, words_of
from experiments.real.synthesis import Speaker, write
from experiments.real.training_set import as_sentence
from experiments.real.voices import HELD_OUT, YearAndSentence, of_late, ordered, spoken
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.audio import File
from streaming_asr.corpora.join import join
from streaming_asr.corpora.manifest import write_manifest
from streaming_asr.corpora.noise import in_room, telephone_band
from streaming_asr.corpora.speechocean762 import Speechocean762
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import TimedWord, Utterance

SALT = "dev 1"
N_CLIPS = 20  # of a voice
ADDRESS = (1, 10, 18)  # sentences, the least and the most words of each
EXAMPLES = (2, 5, 12)
REVERBERATION_S = (0.15, 0.6)
N_SPEAKERS = 10
JOIN_S = 15.0


def people(path: str) -> list[Utterance]:
    """A recording of each of the speakers. `path`: speechocean762's folder or name on the hub."""
    clips = [as_sentence(u) for u in Speechocean762(path=Path(path), split="dev").utterances(None)]
    firsts = [u for u in join(clips, JOIN_S) if u.id.endswith("-00")]
    return sorted(firsts, key=lambda u: hashlib.sha256(f"{SALT} {u.speaker}".encode()).digest())[
        :N_SPEAKERS
    ]


def sentences(root: Path) -> tuple[list[YearAndSentence], list[YearAndSentence]]:
    """Those of addresses and those of WordNet, without those of data=voices."""
    texts = [u.text for u in build(compose_raw(["data=voices"]).data).utterances()]
    heard = " ".join(map(words_of, texts))
    of_addresses = ordered(of_late(root), SALT)
    of_wordnet = ordered({0: examples(root / WORDNET.folder)}, SALT)
    return (
        [each for each in of_addresses if words_of(each[1]) not in heard],
        [each for each in of_wordnet if words_of(each[1]) not in heard],
    )


def surroundings(i: int, rng: random.Random) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """What the i-th clip passes through: its name, and what that does to samples at 16 kHz."""
    if i % 4 == 1:
        return "telephone", telephone_band
    if i % 4 == 3:
        reverberation_s = rng.uniform(*REVERBERATION_S)
        return "room", partial(in_room, reverberation_s=reverberation_s, seed=i)
    return "near", lambda samples: samples


def voices(out: Path) -> Iterator[Utterance]:
    """The clips of the dev voices, written to out/audio."""
    root = cache_root()
    speaker, (of_addresses, of_wordnet) = Speaker(root), sentences(root)
    (out / "audio").mkdir(parents=True, exist_ok=True)
    names = json.loads(HELD_OUT.read_text("utf-8"))["dev"]
    rngs = {voice: random.Random(f"{SALT} {voice}") for voice in names}
    for i in range(N_CLIPS):
        sentences_left, shape = (of_addresses, ADDRESS) if i // 4 % 2 else (of_wordnet, EXAMPLES)
        for voice in names:
            text, samples, words = spoken(speaker, sentences_left, voice, rngs[voice], shape)
            where, heard_through = surroundings(i, rngs[voice])
            file = out / f"audio/{voice}-{i:02d}-{where}.ogg"
            duration_s, words = write(samples, words, file, heard_through)
            print(f"{file.stem}: {duration_s:.1f} s", flush=True)
            yield Utterance(
                file.stem,
                text.text,
                File(file),
                duration_s,
                speaker=voice,
                language="en",
                words=tuple(TimedWord(*word) for word in words),
            )


def program(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--speechocean762", required=True, help="folder, or name on the hub")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the speech")
    options = parser.parse_args(arguments)
    recordings = people(options.speechocean762)
    obtain_all(cache_root())

    def all_of_it() -> Iterator[Utterance]:
        yield from recordings
        yield from voices(options.out)

    path = options.out / "dev.jsonl"
    print(f"{write_manifest(all_of_it(), path)} recordings in {path}")


if __name__ == "__main__":
    sys.exit(exit_status(program))
