"""The references: one shot and re-encoding, against transformers."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import fed, noise, tiny_folder
from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

from streaming_asr import contract
from streaming_asr.config.build import new_method
from streaming_asr.contract import Setting, committed
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import load_whisper


def tiny():
    """The folder of a tiny Whisper."""
    return str(tiny_folder(seed=0, max_tokens=256))


def transformers_greedy(method, audio, n_tokens):
    """Token ids by transformers' full forward passes over padded audio."""
    whisper = load_whisper(tiny())
    extractor = WhisperFeatureExtractor.from_pretrained(tiny())
    mel = extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features
    tokens = whisper.prompt()
    with torch.inference_mode():
        hidden = oracle(whisper).model.encoder(mel).last_hidden_state
        for _ in range(n_tokens):
            ids = torch.tensor([tokens])
            logits = oracle(whisper)(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[0, -1]
            best = int((logits + whisper.suppressed).argmax())
            if best == whisper.eot:
                break
            tokens.append(best)
    return tokens[len(whisper.prompt()) :]


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_offline_equals_transformers_greedy(seed):
    method, audio = new_method("offline", tiny(), max_tokens=20), noise(2.5, seed)
    expected = transformers_greedy(method, audio, 20)
    updates = fed(method, audio, 1600)
    assert all(update == type(update)() for update in updates[:-1])
    words = updates[-1].committed
    tokenizer = method._decoder.whisper.tokenizer
    assert "".join(word.text for word in words) == tokenizer.decode(expected)
    assert expected
    edges = [t for word in words for t in (word.start, word.end)]
    assert edges == sorted(edges) and edges[0] >= 0 and edges[-1] <= 2.5


def test_a_beam_finds_the_likeliest_two_tokens_and_scores_them_as_transformers_does():
    folder = str(tiny_folder(seed=0, max_tokens=256, eot_logit=-20.0))
    greedy, beam = (
        new_method("offline", folder, max_tokens=2),
        new_method("offline", folder, max_tokens=2, beam=6),
    )
    whisper, gains = load_whisper(folder), []
    for seed in range(8):
        audio = noise(2.0, seed)
        one, many = (m._decoder.decode(audio, None, NULL) for m in (greedy, beam))
        assert len(one.tokens) == len(many.tokens) == 2
        extractor = WhisperFeatureExtractor.from_pretrained(folder)
        mel = extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features
        ids = torch.tensor([[*whisper.prompt(), *many.tokens]])
        with torch.inference_mode():
            logits = oracle(whisper)(input_features=mel, decoder_input_ids=ids).logits[0]
        expected = (logits + whisper.suppressed).log_softmax(-1)[[-3, -2], many.tokens]
        assert many.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
        gains.append(sum(many.log_probs) - sum(one.log_probs))
    assert min(gains) > -1e-5 and max(gains) > 0.01


def test_reencode_shows_the_offline_text_of_the_prefix_and_commits_at_the_end():
    offline = new_method("offline", tiny(), max_tokens=12)
    reencode = new_method("reencode", tiny(), max_tokens=12)
    audio = noise(2.0, 2)
    state = reencode.start()
    heard, shown = 0, 0
    for size in (9600, 4800, 4800):
        update = reencode.step(state, audio[heard : heard + size], last=False)
        heard += size
        whole = offline.step(offline.start(), audio[:heard], last=True).committed
        assert update.committed == ()
        assert [w.text for w in update.partial] == [w.text for w in whole]
        shown += len(update.partial)
    assert shown > 0
    update = reencode.step(state, audio[heard:], last=True)
    assert update.partial == ()
    assert update.committed == offline.step(offline.start(), audio, last=True).committed


@pytest.mark.parametrize("kind", ["offline", "reencode"])
def test_audio_beyond_the_context_is_taken_in_windows(kind):
    method = (
        new_method("offline", tiny(), max_tokens=12)
        if kind == "offline"
        else new_method("reencode", tiny(), chunk_s=0.5, first_chunk_s=0.5, max_tokens=12)
    )
    updates = fed(method, noise(11.0, 3), 8000)
    words = [word for update in updates for word in update.committed]
    assert updates[-1].partial == ()
    edges = [t for word in words for t in (word.start, word.end)]
    assert edges == sorted(edges) and edges[-1] <= 11.0
    assert edges[-1] > 4.0, "later windows have text too"
    assert all(word.text.startswith(" ") for word in words[1:])


# -- Methods that decode a buffer of audio: Whispers of other kinds, no speech, long audio --


KINDS = {
    "hush_word": {"padding": "zeros", "beam": 0},
    "simul_whisper": {},
    "ufal, faster_whisper": {"backend": "faster_whisper", "beam": 2},
    "ufal, torch": {"backend": "torch", "beam": 2},
}
DECODES_NO_TIMESTAMPS = sorted(set(KINDS) - {"ufal, faster_whisper"})
SETTING = Setting(4800, 9600, noise(2.0, seed=1), noise(1.5, seed=3))

Make = Callable[[str, str | Path], Any]


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("ctranslate2"))

    def make(kind, folder):
        name = kind.partition(",")[0]
        options = {"cache": cache} if name == "ufal" else {}
        return new_method(name, str(folder), **KINDS.get(kind, {}), **options)

    return make


def updates_of(method, audio=SETTING.audio):
    return contract.feed(method, contract.chunks(method, audio, SETTING), SETTING)


@pytest.fixture
def model(tmp_path):
    """A copy of the tiny Whisper."""
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


@pytest.mark.parametrize("kind", [*KINDS, "whisperrt"])
def test_a_language_that_the_model_does_not_know_is_refused(make, kind):
    english, many = make(kind, tiny_folder()), make(kind, tiny_folder(multilingual=True))
    with pytest.raises(UserError, match="language 'de': this model is English-only"):
        english.start(language="de")
    with pytest.raises(UserError, match="language 'fi': this model"):
        many.start(language="fi")
    for method, language in ((english, "en"), (many, "de"), (many, None)):
        method.step(method.start(language=language), SETTING.other, last=True)


WORK = [("hush_word", 1.0, 50, 75), ("simul_whisper", 0.61, 31, 200), ("ufal, torch", 1.0, 50, 200)]


@pytest.mark.parametrize(("kind", "seconds", "n_real", "n_computed"), WORK)
def test_work_is_counted(make, kind, seconds, n_real, n_computed):
    method, recorder = make(kind, tiny_folder()), StepRecorder()
    method.step(method.start(recorder=recorder), noise(seconds), last=False)
    parts, counts = recorder.drain()
    assert {"feature", "encode", "decode"} <= set(parts)
    assert (counts["frames_real"], counts["frames_computed"]) == (n_real, n_computed)
    flops = encoder_flops(load_whisper(tiny_folder()).config, n_computed)
    assert counts["encoder_flops"] == flops
    assert counts["beam_sum"] >= counts["decode_steps"] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_without_alignment_heads_the_last_half_of_the_layers_times_the_words(make, kind, model):
    settings = json.loads((model / "generation_config.json").read_text())
    assert settings.pop("alignment_heads") == [[1, 0], [1, 1]]  # the last of two layers
    (model / "generation_config.json").write_text(json.dumps(settings))
    words = committed(updates_of(make(kind, model)))
    assert words == committed(updates_of(make(kind, tiny_folder()))) != []


@pytest.mark.parametrize("kind", DECODES_NO_TIMESTAMPS)
def test_a_model_without_timestamp_tokens_gives_the_same_words(make, kind, model):
    network = WhisperForConditionalGeneration.from_pretrained(model)
    network.resize_token_embeddings(network.generation_config.no_timestamps_token_id + 1)
    network.save_pretrained(model)
    texts = [
        [word.text for word in committed(updates_of(make(kind, folder)))]
        for folder in (model, tiny_folder())
    ]
    assert texts[0] == texts[1] != []


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_finds_no_speech_commits_nothing(make, kind):
    method = make(kind, tiny_folder(eot_logit=60.0))
    hiss = 0.1 * np.random.default_rng(0).standard_normal(24_000).astype(np.float32)
    for audio in (np.zeros(24_000, np.float32), SETTING.other, hiss):
        updates = updates_of(method, audio)
        assert not committed(updates) and not any(update.partial for update in updates)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_minutes_in_one_delivery_are_encoded_to_the_end(make, kind):
    method = make(kind, tiny_folder(eot_logit=60.0, d_model=16, context_frames=1500))
    recorder = StepRecorder()
    state = method.start(recorder=recorder)
    method.step(state, np.tile(noise(10.0, seed=3), 60), last=True)
    assert recorder.drain()[1]["frames_real"] >= 30_000
