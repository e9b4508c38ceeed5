"""Language detection: Whisper's own answer, made once a stream, from the first audio alone."""

from __future__ import annotations

import fakes
import numpy as np
import pytest
import torch
from contract import CHECKS, Setting
from tiny import tiny_folder

from streaming_asr.errors import UserError
from streaming_asr.method import NULL, Update
from streaming_asr.whisper.detect import DetectsLanguage
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper


class Notes(fakes.Ticker):
    """Ticker that remembers which language its streams began with."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[str | None] = []

    def start(self, *, language=None, recorder=NULL):
        self.began.append(language)
        return super().start(language=language, recorder=recorder)


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder(multilingual=True))


def sounds() -> list[np.ndarray]:
    at = np.arange(16_000) / 16_000
    tones = [np.sin(2 * np.pi * f * at).astype(np.float32) * 0.5 for f in (200, 900, 3000)]
    return [*tones, *(fakes.noise(1.0, seed=seed) for seed in range(5)), np.zeros(16_000, "f4")]


def test_the_language_is_the_one_transformers_finds(whisper) -> None:
    found = set()
    for audio in sounds():
        padded = torch.from_numpy(np.pad(audio, (0, 200 * 320 - len(audio))))
        mel = log_mel(padded[None], whisper.n_mels)
        ids = whisper.model.detect_language(input_features=mel)
        wanted = whisper.tokenizer.convert_ids_to_tokens(int(ids[0])).strip("<|>")
        assert DetectsLanguage(Notes(), whisper).detect(audio) == wanted
        found.add(wanted)
    assert found <= {"en", "zh", "de"}


def test_a_stream_begins_in_the_language_of_its_first_audio(whisper) -> None:
    method = Notes()
    detecting = DetectsLanguage(method, whisper)
    audio = fakes.noise(2.0, seed=1)
    state = detecting.start(language="klingon")
    assert detecting.step(state, audio[:0], last=False) == Update()
    assert method.began == []
    detecting.step(state, audio[:9600], last=False)
    detecting.step(state, audio[9600:], last=True)
    assert method.began == [detecting.detect(audio[:9600])]
    detecting.step(detecting.start(), audio[:0], last=True)  # an empty stream
    assert method.began[1:] == [None]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_method_that_detects_keeps_the_contract(whisper, check) -> None:
    setting = Setting(4800, 9600, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2))
    check(DetectsLanguage(fakes.Ticker(2, 200), whisper), setting)


def test_an_english_model_has_nothing_to_detect() -> None:
    with pytest.raises(UserError, match="language=detect: this model knows English alone"):
        DetectsLanguage(Notes(), load_whisper(tiny_folder()))
