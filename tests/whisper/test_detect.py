"""Language detection: Whisper's own answer, from enough of a stream and no more of it."""

from __future__ import annotations

import fakes
import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import tiny_folder

from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.errors import UserError
from streaming_asr.method import NULL, Update
from streaming_asr.whisper.detect import DetectsLanguage, IgnoresLanguage
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
        ids = oracle(whisper).detect_language(input_features=mel)
        wanted = whisper.tokenizer.convert_ids_to_tokens([int(ids[0])])[0].strip("<|>")
        assert DetectsLanguage(Notes(), whisper).detect(audio)[0] == wanted
        found.add(wanted)
    assert found <= {"en", "zh", "de"}


class Scripted(DetectsLanguage):
    """Is told how sure to be after each second, instead of hearing."""

    def __init__(self, method: fakes.Ticker, whisper, *sure: float) -> None:
        super().__init__(method, whisper)
        self.sure, self.asked = sure, []

    def detect(self, audio, recorder=NULL):
        self.asked.append(len(audio) / 16_000)
        return "de", self.sure[len(self.asked) - 1]


@pytest.mark.parametrize(
    ("sure", "asked", "decided"),
    [
        ((0.9,), [1.2], 2),  # sure at the first whole second, in the third step
        ((0.5, 0.7, 0.8), [1.2, 2.1, 3.0], 8),
        ((0.5, 0.5, 0.5, 0.5, 0.3), [1.2, 2.1, 3.0, 4.2, 5.1], 15),  # 5 s: the likeliest
    ],
)
def test_a_stream_waits_until_its_language_is_sure_or_5_s_have_passed(
    whisper, sure, asked, decided
) -> None:
    method = Notes()
    detecting = Scripted(method, whisper, *sure)
    audio = fakes.noise(6.0, seed=1)
    state = detecting.start()
    ends = [9600, *range(14_400, 96_001, 4800)]
    updates = [
        detecting.step(state, audio[a:b], last=b == 96_000)
        for a, b in zip([0, *ends], ends, strict=False)
    ]
    assert detecting.asked == pytest.approx(asked)
    assert [k for k, update in enumerate(updates) if update.language == "de"] == [decided]
    assert all(update == Update() for update in updates[:decided])
    assert method.began == ["de"]
    # What was held is heard then: no word is lost.
    said = [word for update in updates for word in update.committed]
    assert said == list(method.words(audio))


def test_a_short_stream_is_decided_at_its_end_and_an_empty_one_has_no_language(whisper) -> None:
    method = Notes()
    detecting = Scripted(method, whisper, 0.2)
    audio = fakes.noise(0.5)
    assert detecting.step(detecting.start(), audio, last=True).language == "de"
    assert detecting.step(detecting.start(), audio[:0], last=True).language is None
    assert method.began == ["de", None]


def test_a_method_that_decodes_at_the_end_is_asked_for_all_of_the_audio(whisper) -> None:
    method = Notes()
    method.hears_all = True
    detecting = Scripted(method, whisper, 0.9)
    state, audio = detecting.start(), fakes.noise(3.0)
    assert detecting.step(state, audio[:40_000], last=False) == Update()
    assert detecting.step(state, audio[40_000:], last=True).language == "de"
    assert detecting.asked == [3.0]


def test_long_audio_is_heard_window_by_window_until_one_language_is_sure(whisper) -> None:
    class Windows(DetectsLanguage):
        def _probabilities(self, audio, recorder):
            heard.append(len(audio))
            made = torch.zeros(self.whisper.config.vocab_size)
            for name, probability in said[len(heard) - 1].items():
                made[{n: i for i, n in self._codes.items()}[name]] = probability
            return made

    detecting, window = Windows(Notes(), whisper), 200 * 320
    audio = np.zeros(2 * window + window // 2, np.float32)
    # Windows count by their length: en has (0.7 + 0.3 / 2) / 2.5, de (0.3 + 0.4 + 0.7 / 2) / 2.5.
    said = [{"en": 0.7, "de": 0.3}, {"zh": 0.6, "de": 0.4}, {"en": 0.3, "de": 0.7}]
    heard: list[int] = []
    language, probability = detecting.detect(audio)
    assert (language, probability) == ("de", pytest.approx(0.42))
    assert heard == [window, window, window // 2]
    said, heard = [{"en": 0.85, "de": 0.15}], []
    assert detecting.detect(audio)[0] == "en" and heard == [window]


def test_a_language_that_is_named_is_taken_and_the_corpus_s_is_not_told(whisper) -> None:
    method = Notes()
    detecting = Scripted(method, whisper, 0.9)
    audio = fakes.noise(2.0, seed=1)
    assert detecting.step(detecting.start(language="zh"), audio, last=True).language is None
    untold = IgnoresLanguage(detecting)
    assert untold.step(untold.start(language="zh"), audio, last=True).language == "de"
    assert method.began == ["zh", "de"]


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
def test_a_method_that_detects_keeps_the_contract(whisper, check) -> None:
    setting = Setting(4800, 9600, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2))
    check(DetectsLanguage(fakes.Ticker(2, 200), whisper), setting)


def test_an_english_model_has_nothing_to_detect() -> None:
    with pytest.raises(UserError, match="language=detect: this model knows only English"):
        DetectsLanguage(Notes(), load_whisper(tiny_folder()))
