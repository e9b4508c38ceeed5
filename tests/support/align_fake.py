"""An aligner whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import ClassVar

import pytest
from omegaconf import OmegaConf

from streaming_asr.align.result import Aligned, words_of
from streaming_asr.utterance import TimedWord, Utterance


class FakeAligner:
    """Splits the audio evenly; fails on texts with "bad", dies at "kill". Counts what it did."""

    name = "fake"
    asked: ClassVar[list[str]] = []

    def align(self, utterances: Sequence[Utterance]) -> Iterator[Aligned]:
        for each in utterances:
            self.asked.append(each.id)
            if "kill" in each.text:
                raise KeyboardInterrupt
            if "bad" in each.text:
                yield Aligned(each, None, f"{each.id}: bad")
                continue
            written = words_of(each)
            step = each.duration_s / len(written)
            yield Aligned(
                each,
                tuple(TimedWord(w, i * step, (i + 1) * step) for i, w in enumerate(written)),
            )


def choose_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `FakeAligner` be the aligner that is chosen where none is named."""
    node = OmegaConf.create({"aligner": {"_target_": "align_fake.FakeAligner"}})
    monkeypatch.setattr(
        "streaming_asr.align.auto.AutoAligner.choose",
        lambda wanted, languages: SimpleNamespace(config=node, name="fake"),
    )
