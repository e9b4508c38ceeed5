"""CTranslate2 folders as models: exact against CTranslate2 itself, and what is refused."""

import json
import os
import shutil
import struct
import tempfile
import time
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch
from ct2 import KINDS, converted
from ctranslate2.converters import TransformersConverter
from oracle import oracle
from tiny import noise, tiny_folder

from streaming_asr import files as cache
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.models.hash import weights_hash
from streaming_asr.models.packages import find_packaged, packaged
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def greedy(whisper, eot, frames, prompt, n_tokens, suppressed):
    ids = list(prompt)
    for _ in range(n_tokens):
        logits = whisper(encoder_outputs=(frames,), decoder_input_ids=torch.tensor([ids])).logits[
            0, -1
        ]
        logits[suppressed] = -torch.inf
        if (token := int(logits.argmax())) == eot:
            break
        ids.append(token)
    return ids[len(prompt) :]


@torch.inference_mode()
def compared(folder, clips, n_tokens, language=None):
    """Largest encoder difference, and the token ids of both for each clip."""
    whisper = load_whisper(folder)
    by_transformers = oracle(whisper)
    model = ctranslate2.models.Whisper(str(folder), compute_type="float32", intra_threads=1)
    suppressed = list(range(whisper.eot + 1, whisper.config.vocab_size))
    suppressed += whisper.generation.suppress_tokens or []
    prompt = whisper.prompt(language)
    worst, texts = 0.0, []
    for clip in clips:
        padded = np.zeros(whisper.context_frames * 320, np.float32)
        padded[: clip.size] = clip
        mel = log_mel(torch.from_numpy(padded), whisper.n_mels)[None]
        ours = by_transformers.model.encoder(mel).last_hidden_state
        torch.testing.assert_close(encode_padded(whisper.model, mel), ours, atol=1e-5, rtol=1e-5)
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(mel.numpy()))
        theirs = np.array(model.encode(view))
        worst = max(worst, float(np.abs(ours.numpy() - theirs).max()))
        found = model.generate(
            view,
            [prompt],
            beam_size=1,
            max_length=2 * n_tokens,  # it takes half of that for the text
            suppress_blank=False,
            suppress_tokens=suppressed,
        )[0].sequences_ids[0]
        texts.append(
            (greedy(by_transformers, whisper.eot, ours, prompt, n_tokens, suppressed), list(found))
        )
    return worst, texts


@pytest.mark.parametrize(
    ("kind", "form"),
    [*((kind, "tiny") for kind in KINDS), ("float16", "large-v3"), ("int8", "turbo")],
)
def test_a_folder_of_each_type_and_size_computes_what_ctranslate2_computes(kind, form):
    clips = [noise(2.0, seed) for seed in range(3)]
    worst, texts = compared(converted(kind, form), clips, 20, None if form == "tiny" else "de")
    assert worst < 2e-3
    assert [ours for ours, _ in texts] == [theirs for _, theirs in texts]
    assert max(len(set(ours)) for ours, _ in texts) > 1


def test_settings_and_tokens_come_through():
    made = load_whisper(converted())
    first = load_whisper(tiny_folder(seed=2))
    assert made.tokenizer.get_vocab() == first.tokenizer.get_vocab()
    assert made.tokenizer.get_vocab()["<|0.02|>"] == made.config.vocab_size - 200
    assert made.alignment_heads == first.alignment_heads
    assert made.context_frames == 200 and made.max_tokens == 64 and not made.multilingual
    text = " the quick brown fox"
    assert made.text_tokens(text) == first.text_tokens(text)


def test_a_multilingual_vocabulary_brings_its_languages():
    folder = Path(tempfile.mkdtemp()) / "many"
    source = tiny_folder(multilingual=True, vocabulary_size=51866)
    TransformersConverter(str(source)).convert(str(folder), quantization="float16")
    shutil.copy(source / "tokenizer.json", folder)
    made = load_whisper(folder)
    assert made.multilingual and made.generation.lang_to_id.keys() == {"<|en|>", "<|zh|>", "<|de|>"}
    assert made.prompt("de") == load_whisper(source).prompt("de")
    with pytest.raises(UserError, match="this model knows de, en, zh"):
        made.prompt("fr")


def test_the_folder_is_read_as_it_is_now_and_nothing_is_written(tmp_path):
    folder = shutil.copytree(converted(), tmp_path / "mine")
    assert load_whisper(folder).generation.suppress_tokens is None
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(told | {"suppress_ids": [3]}))
    assert load_whisper(folder).generation.suppress_tokens == [3]
    assert not (tmp_path / "cache").exists()


def test_all_forms_of_one_model_have_one_hash():
    """The tiny weights are rounded first, as OpenAI's are: their files hold float16."""
    folder = Path(tempfile.mkdtemp())
    for name in ("float32", "float16"):
        load_whisper(converted("float16"), dtype=name).save(folder / name)
    hashes = {
        weights_hash(place)
        for place in (
            converted("float16"),
            folder / "float32",
            folder / "float16",
            tiny_folder(seed=2),
        )
    }
    assert len(hashes) == 1 and None not in hashes
    assert weights_hash(converted("int8")) not in hashes
    assert weights_hash(tiny_folder(seed=8)) not in hashes


def test_local_agreement_takes_the_folder_as_it_is(tmp_path):
    load_whisper(converted("float16")).save(tmp_path / "same")
    method = new_method("ufal", converted("float16"), cache=str(tmp_path / "unused"), beam=1)
    same = new_method("ufal", tmp_path / "same", cache=str(tmp_path / "used"), beam=1)
    assert not (tmp_path / "unused").exists() and (tmp_path / "used").exists()
    updates = [each.step(each.start(), noise(4.0, seed=3), last=True) for each in (method, same)]
    texts = [[word.text for word in update.committed] for update in updates]
    assert texts[0] == texts[1] != []


def damaged(tmp_path, change):
    folder = shutil.copytree(converted("int8"), tmp_path / "damaged")
    change(folder)
    return folder


def without(name):
    return lambda folder: (folder / name).unlink()


def renamed(old, new):
    def change(folder):
        data = (folder / "model.bin").read_bytes()
        assert old in data and len(old) == len(new)
        (folder / "model.bin").write_bytes(data.replace(old, new, 1))

    return change


def token_out(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"] = [t for t in content["added_tokens"] if "notime" not in t["content"]]
    (folder / "tokenizer.json").write_text(json.dumps(content))


def token_more(folder):
    content = json.loads((folder / "tokenizer.json").read_text())
    content["added_tokens"].append(content["added_tokens"][-1] | {"id": 9999, "content": "<|x|>"})
    (folder / "tokenizer.json").write_text(json.dumps(content))


def zero_scale(folder):
    """The first scale of int8 rows becomes 0."""
    data = bytearray((folder / "model.bin").read_bytes())
    at = data.index(b"linear_0/weight_scale\0") + len("linear_0/weight_scale\0")
    rank = data[at]
    struct.pack_into("<f", data, at + 1 + 4 * rank + 1 + 4, 0.0)
    (folder / "model.bin").write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("tokenizer.json"), "a CTranslate2 folder without tokenizer.json"),
        (without("config.json"), "a CTranslate2 folder without config.json"),
        (renamed(b"layer_1/ffn/linear_0/bias\0", b"layer_1/ffn/linear_0/biaS\0"),
         r"its files lack model\.decoder\.layers\.1\.fc1\.bias"),
        (renamed(b"ffn/linear_0/weight_scale\0", b"ffn/linear_0/weight_scalE\0"), "no variable"),
        (renamed(b"\x06\x00\x00\x00\x0c\0WhisperSpec", b"\x09\x00\x00\x00\x0c\0WhisperSpec"),
         "WhisperSpec of version 9"),
        (zero_scale, "scales, which must be one or one a row, and positive"),
        (token_out, r"no token <\|notimestamps\|>"),
        (token_more, "has token 9999, but the model has"),
    ],
)  # fmt: skip
def test_a_damaged_folder_is_one_sentence(tmp_path, change, message):
    with pytest.raises(UserError, match=message) as told:
        load_whisper(damaged(tmp_path, change))
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"a.wav": ""}, "no config.json that names a model_type"),
        ({"config.json": '{"model_type": "wav2vec2"}'}, "Hugging Face model of type wav2vec2"),
        ({"model.bin": "\6\0\0\0\x10\0TransformerSpec\0"}, r"another kind \(TransformerSpec\)"),
    ],
)
def test_a_folder_that_is_no_whisper_says_what_it_is(tmp_path, files, what):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    with pytest.raises(UserError, match=what):
        load_whisper(folder)


def test_a_file_and_nothing_at_all_are_refused_as_well(tmp_path):
    (tmp_path / "tiny.pt").write_text("x")
    with pytest.raises(UserError, match="it is a file, not a folder"):
        load_whisper(tmp_path / "tiny.pt")
    with pytest.raises(UserError, match="there is no such folder"):
        load_whisper(tmp_path / "gone")


def test_no_space_in_the_cache_is_one_sentence_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(UserError, match=r"no place for .*No space left.*XDG_CACHE_HOME"):
        new_method("ufal", tiny_folder())
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="the disk is full"):
        cache.make_once(tmp_path / "a" / "b", half_written)
    assert list((tmp_path / "a").iterdir()) == []


def half_written(folder):
    folder.mkdir()
    (folder / "half").write_text("x")
    raise RuntimeError("Error while serializing: I/O error: No space left (os error 28)")


# -- real weights, where the package is installed or was obtained ----------------------------


@pytest.fixture
def tiny_en():
    with pytest.MonkeyPatch.context() as theirs:
        theirs.delenv("XDG_CACHE_HOME")
        found = find_packaged(packaged()["openai/whisper-tiny.en"])
    if found is None:
        pytest.skip("tiny.en is not here; streaming-asr get tiny.en")
    return found[0]


@pytest.mark.slow
def test_the_packages_tiny_en_computes_what_ctranslate2_computes(tiny_en):
    from streaming_asr.corpora import MINI
    from streaming_asr.corpora.audio import load_audio

    files = sorted((MINI / "audio" / "dev").glob("*.ogg"))[:2]
    clips = [load_audio(file, 0, 10) for file in files]
    worst, texts = compared(tiny_en, clips, 40)
    assert worst < 2e-3
    assert [ours for ours, _ in texts] == [theirs for _, theirs in texts]
    assert all(len(ours) > 3 for ours, _ in texts)


def test_what_a_killed_process_was_making_is_removed_a_day_later(tmp_path):
    old, new = tmp_path / ".making-old", tmp_path / ".making-new"
    for folder in (old, new):
        (folder / "made").mkdir(parents=True)
    yesterday = time.time() - cache.STALE_S - 60
    os.utime(old, (yesterday, yesterday))
    cache.make_once(tmp_path / "model", lambda path: path.mkdir())
    assert {path.name for path in tmp_path.iterdir()} == {".making-new", "model"}
