"""What recipes share: the score on dev by streaming, chunks, the card."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pytest
from toy_corpus import toy_corpus

from streaming_asr.method import Update, Word
from streaming_asr.training.recipe import (
    CorpusRecipe,
    first_chunk_frames,
    random_chunk,
    stream_dev_wer,
)
from streaming_asr.utterance import Utterance


@dataclass
class Letters:
    """Says `a` for the first delivery, `b` for the second ...; takes one back where it is asked."""

    lookahead_samples: int = 40
    takes_back: bool = False
    heard: list[tuple[int, int, bool]] = field(default_factory=list)

    def start(self, *, language=None, recorder=None):
        self.recorder = recorder
        return [len(self.heard)]

    def step(self, state, audio, *, last):
        self.heard.append((state[0], len(audio), last))
        self.recorder.count(tokens=1)
        state.append(0)
        word = Word(f" {chr(95 + len(state))}")
        return Update((word,), (), retracted=int(self.takes_back and len(state) > 2))


class InPhase(Letters):
    languages: ClassVar[list[tuple[int, str | None]]] = []

    def start_many(self, n, *, language=None, recorder=None):
        self.recorder = recorder
        self.languages.append((n, language))
        return [[row] for row in range(n)]

    def step_many(self, states, audio, *, last):
        return [self.step(s, a, last=e) for s, a, e in zip(states, audio, last, strict=True)]


def dev(*texts_and_lengths):
    return [
        Utterance(str(i), text, lambda n=n: np.zeros(n, np.float32), n / 16_000)
        for i, (text, n) in enumerate(texts_and_lengths)
    ]


def test_dev_is_fed_as_the_simulator_feeds_it_one_stream_after_the_other():
    method = Letters()
    wer, counts = stream_dev_wer(method, dev(("a b c", 640), ("a x", 200)), 320, 240)
    assert method.heard == [(0, 280, False), (0, 320, False), (0, 40, True), (3, 200, True)]
    assert wer == pytest.approx(100 * 1 / 5)  # x is missing
    assert counts["tokens"] == 4  # one in each step


def test_a_method_that_can_advances_all_streams_in_phase():
    method = InPhase()
    stream_dev_wer(method, dev(("a b", 400), ("a b c", 640)), 320, 240)
    assert [(row, n) for row, n, _ in method.heard] == [
        (0, 280), (1, 280), (0, 120), (1, 320), (1, 40)
    ]  # fmt: skip


def test_dev_in_two_languages_is_streamed_and_normalised_in_each():
    spoken = dev(("a b", 400), ("um a b", 400), ("a b", 400))
    mixed = [replace(u, language=each) for u, each in zip(spoken, ("en", "de", "en"), strict=True)]
    method = InPhase()
    method.languages.clear()
    wer, _ = stream_dev_wer(method, mixed, 320, 240)
    assert method.languages == [(1, "de"), (2, "en")]
    assert wer == pytest.approx(100 * 1 / 7)  # um is no word in English alone
    stream_dev_wer(method, mixed, 320, 240, language="fr")
    assert method.languages[2:] == [(3, "fr")]


def test_what_is_taken_back_does_not_count():
    method = Letters(takes_back=True)
    assert stream_dev_wer(method, dev(("c", 640)), 320, 240)[0] == 0


def test_a_random_chunk_lasts_0_1_to_1_s_and_the_first_is_one_chunk_or_a_streams_default():
    drawn = {random_chunk(random.Random(i)) for i in range(2000)}
    assert {chunk for chunk, _ in drawn} == set(range(5, 51))
    assert {first for chunk, first in drawn if chunk == 7} == {7, 35}
    assert [first_chunk_frames(chunk) for chunk in (5, 15, 20, 30, 50)] == [30, 30, 40, 30, 50]


def test_the_card_tells_corpora_seed_and_what_the_recipe_adds(tmp_path):
    toy_corpus(tmp_path)
    made = CorpusRecipe(
        augment=None,
        train_data=str(tmp_path),
        dev_manifest=str(tmp_path / "dev.jsonl"),
        n_dev=1,
        seed=7,
    )
    made.write_card(tmp_path, "of tests", "")
    told = json.loads((tmp_path / "training.json").read_text())
    hours = sum(item.n_samples for item in made.items) / 16_000 / 3600
    assert told == {
        "method": "of tests", "seed": 7, "augment": None, "n_dev": 1, "dev": "dev.jsonl",
        "train_data": tmp_path.name, "train_hours": round(hours, 2), "languages": ["en"],
    }  # fmt: skip
