"""Methods that decode a buffer of audio: Whispers of other kinds, no speech, long audio."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from streaming_asr import contract
from streaming_asr.config.build import new_method
from streaming_asr.contract import Setting, committed
from streaming_asr.errors import UserError
from streaming_asr.method import Samples, Update
from streaming_asr.simulate.recorder import StepRecorder

KINDS: dict[str, dict[str, Any]] = {
    "hush_word": {"padding": "zeros", "beam": 0},
    "simul_whisper": {},
    "ufal, faster_whisper": {"backend": "faster_whisper", "beam": 2},
    "ufal, torch": {"backend": "torch", "beam": 2},
}
DECODES_NO_TIMESTAMPS = sorted(set(KINDS) - {"ufal, faster_whisper"})
SETTING = Setting(4800, 9600, noise(2.0, seed=1), noise(1.5, seed=3))

Make = Callable[[str, str | Path], Any]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    cache = str(tmp_path_factory.mktemp("ctranslate2"))

    def make(kind: str, folder: str | Path) -> Any:
        name = kind.partition(",")[0]
        options = {"cache": cache} if name == "ufal" else {}
        return new_method(name, str(folder), **KINDS[kind], **options)

    return make


def updates_of(method: Any, audio: Samples = SETTING.audio) -> list[Update]:
    return contract.feed(method, contract.chunks(method, audio, SETTING), SETTING)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the tiny Whisper."""
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_english_model_refuses_another_language(make: Make, kind: str) -> None:
    method = make(kind, tiny_folder())
    with pytest.raises(UserError, match="language 'de': this model is English-only"):
        method.start(language="de")
    method.step(method.start(language="en"), SETTING.other, last=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_multilingual_model_refuses_a_language_it_does_not_know(make: Make, kind: str) -> None:
    method = make(kind, tiny_folder(multilingual=True))
    for language in ("de", None):
        method.step(method.start(language=language), SETTING.other, last=True)
    with pytest.raises(UserError, match="language 'fi': this model"):
        method.start(language="fi")


@pytest.mark.parametrize("kind", KINDS)
def test_without_alignment_heads_the_last_half_of_the_layers_times_the_words(
    make: Make, kind: str, model: Path
) -> None:
    settings = json.loads((model / "generation_config.json").read_text())
    assert settings.pop("alignment_heads") == [[1, 0], [1, 1]]  # the last of two layers
    (model / "generation_config.json").write_text(json.dumps(settings))
    words = committed(updates_of(make(kind, model)))
    assert words == committed(updates_of(make(kind, tiny_folder()))) != []


@pytest.mark.parametrize("kind", DECODES_NO_TIMESTAMPS)
def test_a_model_without_timestamp_tokens_gives_the_same_words(
    make: Make, kind: str, model: Path
) -> None:
    network = WhisperForConditionalGeneration.from_pretrained(model)
    network.resize_token_embeddings(network.generation_config.no_timestamps_token_id + 1)
    network.save_pretrained(model)
    texts = [
        [word.text for word in committed(updates_of(make(kind, folder)))]
        for folder in (model, tiny_folder())
    ]
    assert texts[0] == texts[1] != []


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_finds_no_speech_commits_nothing(make: Make, kind: str) -> None:
    method = make(kind, tiny_folder(eot_logit=60.0))
    hiss = 0.1 * np.random.default_rng(0).standard_normal(24_000).astype(np.float32)
    for audio in (np.zeros(24_000, np.float32), SETTING.other, hiss):
        updates = updates_of(method, audio)
        assert not committed(updates) and not any(update.partial for update in updates)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_minutes_in_one_delivery_are_encoded_to_the_end(make: Make, kind: str) -> None:
    method = make(kind, tiny_folder(eot_logit=60.0, d_model=16, context_frames=1500))
    recorder = StepRecorder()
    state = method.start(recorder=recorder)
    method.step(state, np.tile(noise(10.0, seed=3), 60), last=True)
    assert recorder.drain()[1]["frames_real"] >= 30_000
