"""How do the hypotheses differ that U2's second pass chooses from?

    python -m experiments.u2.nbest

Streams the prompts of experiment=real in chunks of 1 s. Of every candidate but the first of its
segment it prints how often it has the first one's words but for case and punctuation, and how many
words it has otherwise (word errors against the first, Whisper's normalisation).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import jiwer
from rich.table import Table

from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.methods.u2.stream import U2, U2State
from streaming_asr.terminal import console, exit_status
from streaming_asr.text.normalise import normaliser
from streaming_asr.utterance import Utterance

SETTINGS = ["method=u2", "model=tiny.en", "data=prompts", "chunk=1s", "tracker=none"]
N_PROMPTS = 60
CHUNK = 16_000  # samples


def compared(texts: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """By candidate but the first of its segment: its word errors against the first, and the
    first's words, both normalised. texts: the candidates of each segment, the likeliest first."""
    normalise = normaliser("en")
    rows = []
    for first, *others in texts:
        reference = normalise(first)
        if reference:
            for other in others:
                counts = jiwer.process_words(reference, normalise(other))
                errors = counts.substitutions + counts.deletions + counts.insertions
                rows.append((errors, len(reference.split())))
    return rows


def candidates(method: U2, utterances: Sequence[Utterance]) -> list[list[str]]:
    """By segment: the texts that the second pass chooses from."""
    texts: list[list[str]] = []
    second_pass = method._second_pass

    def noted(state: U2State):
        hypotheses = map(method._tokenizer.retokenise, state.search.hypotheses(method.rescore))
        words = (
            method._whisper.detokenizer.words(each.tokens, language="en") for each in hypotheses
        )
        texts.append(["".join(word.text for word in each) for each in words])
        return second_pass(state)

    method._second_pass = noted
    for utterance in utterances:
        state, audio = method.start(), utterance.load()
        for begin in range(0, len(audio), CHUNK):
            end = begin + CHUNK
            method.step(state, audio[begin:end], last=end >= len(audio))
    return texts


def main() -> None:
    """Run the command line."""
    config = compose(SETTINGS)
    method, utterances = build(config.method), build(config.data).utterances(N_PROMPTS)
    texts = candidates(method, utterances)
    rows = compared(texts)
    table = Table("segments", "candidates", "same words %", "words that differ, %")
    same = sum(errors == 0 for errors, _ in rows) / len(rows)
    differ = sum(errors for errors, _ in rows) / sum(words for _, words in rows)
    table.add_row(str(len(texts)), str(len(rows)), f"{100 * same:.1f}", f"{100 * differ:.1f}")
    console().print(table)


if __name__ == "__main__":
    sys.exit(exit_status(main))
