"""What the recipes of real Whisper learn from: shards of synthetic and human speech.

    python -m experiments.real.training_set --speech outputs/real/speech/manifest.jsonl \\
        --speechocean762 mispeech/speechocean762 --alignments FOLDER... --out outputs/real/train
        [--sound MANIFEST...]

OUT/shards: the clips of --speech whose voices are not held out, and where it is named the train
speakers of speechocean762. Word times are in the manifests or in --alignments, which
`streaming-asr align` leaves. Texts are cleaned of what is not spoken; those without
capitals, or only in capitals, become sentences.

OUT/sound, with --sound: all these, timed or not, and the recordings of --sound, which need no text:
what an encoder learns from (`recipe.target.learn=encoder`).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from experiments.real.spoken_text import spoken
from streaming_asr.corpora.alignments import Alignments, with_words
from streaming_asr.corpora.lists import OF_READER, without_listed
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.shards import write_shards
from streaming_asr.corpora.speechocean762 import Speechocean762
from streaming_asr.terminal import exit_status
from streaming_asr.utterance import TimedWord, Utterance

HELD_OUT = Path(__file__).parent / "held_out.json"
LONGEST_WORD_S = 2.0  # of an alignment that can be right


def held_out() -> set[str]:
    """The voices of Kokoro that nothing is trained on: those of data=voices and those of dev."""
    return {name for names in json.loads(HELD_OUT.read_text("utf-8")).values() for name in names}


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


def ready(utterance: Utterance) -> Utterance:
    """The utterance as a recipe learns it: only spoken words, a sentence, in a language."""
    result = spoken(utterance)
    if result.text.islower() or result.text.isupper():
        lower = tuple(TimedWord(w.lower(), a, b) for w, a, b in result.words or ())
        result = as_sentence(
            replace(result, text=result.text.lower(), words=None if result.words is None else lower)
        )
    return replace(result, language=result.language or "en")


@dataclass
class TrainingSet:
    """The speech of several sources, in turn; `rows` has what was taken of each.

    Of LibriSpeech's recordings of one id, which several sources may hold, the first is taken."""

    manifests: Sequence[Path]
    human: str | None  # speechocean762's folder or name on the hub
    alignments: Sequence[Path]
    rows: list[str] = field(default_factory=list)
    _readings: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Utterance]:
        times = [Alignments(path) for path in self.alignments]
        for manifest in self.manifests:
            utterances = (u for u in read_manifest(manifest) if not voices_of(u) & held_out())
            yield from self._source(str(manifest), utterances, times)
        if self.human is not None:
            corpus = Speechocean762(path=Path(self.human), split="train")
            yield from self._source("speechocean762", corpus.utterances(None), times)

    def _source(
        self, name: str, utterances: Iterable[Utterance], times: Sequence[Alignments]
    ) -> Iterator[Utterance]:
        taken, bad, seconds, again = 0, 0, 0.0, 0
        speakers = set()
        for utterance in without_listed(utterances):
            if utterance.id in self._readings:
                again += 1
                continue
            if utterance.words is None:
                source = next((each for each in times if each.of(utterance)), None)
                utterance = with_words(utterance, source) if source else utterance
            utterance = ready(utterance)
            if utterance.words and not well_aligned(utterance):
                bad += 1
                continue
            if utterance.words:
                taken, seconds = taken + 1, seconds + utterance.duration_s
                speakers.add(utterance.speaker)
            if OF_READER.fullmatch(utterance.id):  # another corpus's id may name other recordings
                self._readings.add(utterance.id)
            yield utterance
        self.rows.append(
            f"{name}: {taken} utterances with word times, {seconds / 3600:.2f} h of sound, "
            f"{len(speakers - {None})} speakers; left out: {bad} with a word above "
            f"{LONGEST_WORD_S:g} s" + (f", {again} that an earlier source holds" if again else "")
        )


def program(argv: Sequence[str] | None = None) -> None:
    """Run the command line. Raises UserError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--speech", type=Path, nargs="+", required=True, help="manifests")
    parser.add_argument("--speechocean762", help="folder, or name on the hub")
    parser.add_argument("--alignments", type=Path, nargs="+", default=[], help="word times")
    parser.add_argument("--sound", type=Path, nargs="+", default=[], help="manifests, text or not")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    train = TrainingSet(options.speech, options.speechocean762, options.alignments)
    written, without, long = write_shards(train, options.out / "shards", max_s=30)
    print("\n".join(train.rows))
    print(
        f"{written} utterances in shards; left out: {without} without word times, {long} of more "
        "than 30 s"
    )
    if options.sound:
        heard = TrainingSet(
            [*options.speech, *options.sound], options.speechocean762, options.alignments
        )
        written, _, long = write_shards(heard, options.out / "sound", max_s=30, timed=False)
        print(f"{written} utterances in the shards of sound; left out: {long} of more than 30 s")


if __name__ == "__main__":
    sys.exit(exit_status(program))
