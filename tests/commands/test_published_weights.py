"""Published weights by their name on the hub, from a hub on this machine."""

import hashlib
import tempfile
from pathlib import Path

import peft
import published_toys
import pytest
import torch
from chunkformer_tiny import tiny_folder as tiny_chunkformer
from native_tiny import nemotron_folder
from published_toys import CARD, CHUNKFORMER, COMMIT, WHISPERRT, only_hub
from tiny import tiny_folder
from transformers import WhisperForConditionalGeneration

from streaming_asr.commands import get
from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.errors import UserError
from streaming_asr.methods.chunkformer.load import load
from streaming_asr.models.hub import DETECTORS, Reference, cached, fetch, published, reference
from streaming_asr.models.native import KINDS
from streaming_asr.run import command, obtain
from streaming_asr.run.obtain import obtain_models
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub, an empty cache, and no token."""
    with only_hub(tmp_path, monkeypatch) as served:
        yield served


def checkpoint(**dims):
    return published_toys.checkpoint(tiny_folder(), **dims)


@pytest.fixture
def whisperrt(hub):
    """The authors' repository with two checkpoints."""
    files = {"README.md": CARD, "base_300.pt": checkpoint(), "base_rcs.pt": checkpoint()}
    hub.repositories[WHISPERRT] = files
    return files


def settings(weights):
    model = f"model.path={tiny_folder()}"
    return ["method=whisperrt", "model=whisper", model, f"method.weights={weights}", "chunk=300ms"]


@pytest.mark.parametrize(
    "answer",
    [
        "[]",
        "[1]",
        "null",
        "3",
        '"text"',
        "{}",
        '{"id": 1, "siblings": 5}',
        '{"id": "a/b", "sha": "c", "siblings": [1]}',
        '{"id": "a/b", "sha": "c", "siblings": [{"name": "x"}]}',
        '{"id": "a/b", "sha": "c", "siblings": [{"rfilename": 1}]}',
        '{"id": "a/b", "sha": [], "siblings": null}',
        "<html>",
        "[" * 5000,
    ],
)
@pytest.mark.parametrize("name", ["whisperrt-base-300ms", "chunkformer-en", "a/b"])
def test_a_mirror_that_answers_in_another_form_is_named(hub, whisperrt, name, answer, capsys):
    hub.repositories |= {CHUNKFORMER: {}, "a/b": {}}
    hub.answer = answer
    assert get.main([name]) != 0
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "Traceback" not in error
    assert str(reference(name)) in error


@pytest.mark.parametrize("name", ["whisperrt-base-300ms", f"{WHISPERRT}/base_300.pt"])
def test_a_checkpoint_is_downloaded_by_its_name_and_merged(hub, whisperrt, name, tmp_path, capsys):
    first = compose(settings(name))
    assert first.method.weights == name
    assert hub.requests == []  # a configuration is settled without the hub
    assert obtain_models([first])
    assert capsys.readouterr().err.splitlines()[-1] == f"{name}: licence cc-by-nc-4.0"
    second = compose(settings(name))
    assert Path(second.method.weights).read_bytes() == whisperrt["base_300.pt"]
    assert COMMIT in second.method.weights
    assert not obtain_models([second])
    merged = load_whisper(tiny_folder(), adapter=second.method.weights).model
    file = tmp_path / "same.pt"
    file.write_bytes(whisperrt["base_300.pt"])
    state = load_whisper(tiny_folder(), adapter=file).model.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in merged.state_dict().items())
    plain = load_whisper(tiny_folder()).model.model.encoder.layers[0].self_attn.q_proj.weight
    assert not torch.equal(merged.model.encoder.layers[0].self_attn.q_proj.weight, plain)


def test_a_method_built_in_python_downloads_its_weights(hub, whisperrt):
    build(compose(settings("whisperrt-base-any_chunk")).method)
    assert hub.ranges("base_rcs.pt") == [None]


def test_a_chunkformer_is_used_by_the_name_of_its_repository(hub, tmp_path):
    folder = tiny_chunkformer()
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    hub.repositories[CHUNKFORMER] = {"README.md": CARD, "logo.png": b"x", **files}
    for name in ("chunkformer-en", CHUNKFORMER):
        line = ["method=chunkformer", f"model.path={name}"]
        config = compose(line)
        assert obtain_models([config]) == (name == "chunkformer-en")
        config = compose(line)
        assert Path(config.method.weights, "config.yaml").is_file()
        assert compose([*line, "model=chunkformer"]).method.weights == config.method.weights
    build(config.method)
    theirs, ours = load(CHUNKFORMER), load(folder)
    assert theirs.tokens == ours.tokens
    state = ours.network.state_dict()
    assert all(torch.equal(value, state[k]) for k, value in theirs.network.state_dict().items())
    assert hub.ranges("logo.png") == []


def test_get_prints_place_licence_and_use(hub, whisperrt, capsys):
    assert get.main(["whisperrt-base-300ms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("whisperrt-base-300ms: ")
    assert lines[0].endswith("base_300.pt")
    assert lines[1:] == [
        f"  from the hub, {WHISPERRT}/base_300.pt",
        "  licence: cc-by-nc-4.0",
        "  use: method=whisperrt model=base method.weights=whisperrt-base-300ms chunk=300ms",
    ]
    del whisperrt["README.md"]
    hub.repositories["me/some"] = {"one.pt": checkpoint()}
    assert get.main(["me/some/one.pt"]) == 0
    assert "licence: none stated; see https://huggingface.co/me/some" in capsys.readouterr().out


def test_a_gated_repository_asks_for_a_token_and_takes_it(hub, whisperrt, monkeypatch, capsys):
    hub.gated.add(WHISPERRT)
    assert get.main(["whisperrt-base-300ms"]) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .endswith(
            f"{WHISPERRT}/base_300.pt: the repository is gated; accept its conditions at "
            f"https://huggingface.co/{WHISPERRT} and log in with `hf auth login`, or set HF_TOKEN"
        )
    )
    monkeypatch.setenv("HF_TOKEN", hub.token)
    assert get.main(["whisperrt-base-300ms"]) == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("me/nothing/x.pt", "me/nothing/x.pt: the hub has no such repository, or it is private; "),
        (f"{WHISPERRT}/base_301.pt", "no such file; did you mean base_300.pt?; it has base_300.pt"),
        (f"{WHISPERRT}@v9/base_300.pt", "the repository has no revision v9; leave it out"),
        (WHISPERRT, "nor a model built for streaming; it has base_300.pt, base_rcs.pt"),
    ],
)
def test_what_the_hub_does_not_have_is_one_sentence(hub, whisperrt, name, message):
    with pytest.raises(UserError) as raised:
        obtain_models([compose(settings(name))])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_unreachable_hub_is_one_sentence(hub, whisperrt, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError) as raised:
        fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert str(raised.value) == (
        f"{WHISPERRT}/base_300.pt: is not on this machine, and 127.0.0.1 cannot be reached "
        f"(Connection refused); where there is a network: `hf download {WHISPERRT} base_300.pt`"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="is not on this machine, and HF_HUB_OFFLINE is set"):
        fetch(Reference(WHISPERRT, file="base_300.pt"))


def test_a_file_of_another_size_than_announced_is_refused(hub, whisperrt):
    hub.lies["base_300.pt"] = 1000
    with pytest.raises(UserError, match=r"could not be downloaded \(.*size") as raised:
        fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert "\n" not in str(raised.value)
    hub.lies.clear()
    place = fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert place.read_bytes() == whisperrt["base_300.pt"]


def test_a_download_that_breaks_off_goes_on_where_it_stopped(hub, whisperrt, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
    whisperrt["base_300.pt"] = bytes(range(256)) * 4096
    hub.breaks["base_300.pt"] = [400_000]
    place = fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert place.read_bytes() == whisperrt["base_300.pt"]
    whole, rest = hub.ranges("base_300.pt")
    assert whole is None
    assert 0 < int(rest.removeprefix("bytes=").rstrip("-")) <= 400_000


def test_a_download_that_fails_for_good_leaves_nothing_that_counts_as_whole(
    hub, whisperrt, monkeypatch
):
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
    whisperrt["base_300.pt"] = bytes(range(256)) * 4096
    hub.breaks["base_300.pt"] = [400_000] + 20 * [0]
    with pytest.raises(UserError, match=r"could not be downloaded .*; run the same command again"):
        fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert compose(settings("whisperrt-base-300ms")).method.weights == "whisperrt-base-300ms"
    hub.breaks.clear()
    hub.requests.clear()
    place = fetch(Reference(WHISPERRT, file="base_300.pt"))
    assert place.read_bytes() == whisperrt["base_300.pt"]
    assert hub.ranges("README.md") == []  # what is whole is not downloaded again


def test_an_adapter_of_peft_is_used_by_the_name_of_its_repository(hub):
    config = peft.LoraConfig(r=4, lora_alpha=4, target_modules=["q_proj"])
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder())
    wrapped = peft.get_peft_model(model, config)
    with torch.no_grad():
        for name, weight in wrapped.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.1)
    with tempfile.TemporaryDirectory() as folder:
        wrapped.save_pretrained(folder)
        files = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
        ours = load_whisper(tiny_folder(), adapter=Path(folder)).model.state_dict()
    hub.repositories["me/lora"] = files | {"optimizer.pt": b"large"}
    obtain_models([compose(settings("me/lora"))])
    weights = compose(settings("me/lora")).method.weights
    state = load_whisper(tiny_folder(), adapter=Path(weights)).model.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in state.items())
    assert hub.ranges("optimizer.pt") == []


def test_a_checkpoint_of_another_vocabulary_is_refused(hub, whisperrt):
    whisperrt["base_300.pt"] = checkpoint(n_vocab=51864)
    with pytest.raises(UserError, match=r"n_vocab=51864, and this model has .*; use the model it"):
        build(compose(settings("whisperrt-base-300ms")).method)


NEMOTRON = KINDS["nemotron"].repository


@pytest.fixture
def nemotron(hub):
    """NVIDIA's repository with a tiny model, and more than that."""
    files = {file.name: file.read_bytes() for file in nemotron_folder().iterdir()}
    hub.repositories[NEMOTRON] = {"README.md": CARD, "model.nemo": b"x", "a/b.json": b"{}", **files}
    return hub.repositories[NEMOTRON]


def test_a_model_built_for_streaming_is_got_and_a_run_ends_with_a_table(
    hub, nemotron, tmp_path, monkeypatch, capsys
):
    assert get.main(["nemotron"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        f"  from the hub, {NEMOTRON}",
        "  licence: cc-by-nc-4.0",
        "  use: method=native model=nemotron",
    ]
    assert get.main([NEMOTRON]) == 0
    assert f"use: method=native model=nemotron model.path={NEMOTRON}" in capsys.readouterr().out
    assert hub.ranges("model.nemo") == hub.ranges("b.json") == []
    assert hub.ranges("model.safetensors") == [None]
    monkeypatch.chdir(tmp_path)
    line = ["method=native", "model=nemotron", "chunk=560ms", "data=mini", "limit=2"]
    assert command.main([*line, "tracker=none", "threads=1"]) == 0
    printed = capsys.readouterr().out
    assert "WER" in printed
    assert hub.ranges("model.safetensors") == [None]  # not downloaded again


def test_a_model_built_for_streaming_that_is_gated_or_missing_is_one_sentence(
    hub, nemotron, capsys
):
    hub.gated.add(NEMOTRON)
    assert get.main(["nemotron"]) == 2
    assert f"{NEMOTRON}: the repository is gated; accept its conditions" in capsys.readouterr().err
    assert get.main(["voxtral_realtime"]) == 2
    assert "the hub has no such repository" in capsys.readouterr().err
    config = compose(["method=native", "model=kyutai_stt", "chunk=560ms"])
    with pytest.raises(UserError, match=r"kyutai/stt-2\.6b-en-trfs: the hub has no such") as raised:
        obtain_models([config])
    assert "\n" not in str(raised.value)


def test_a_whisper_is_refused_before_its_weights_come(hub, capsys):
    files = {file.name: file.read_bytes() for file in tiny_folder().iterdir()}
    hub.repositories["me/whisper"] = files
    assert get.main(["me/whisper"]) == 2
    assert (
        "me/whisper: the repository holds a model of type whisper, which method=native does not "
        "run; give model=whisper model.path=me/whisper"
    ) in " ".join(capsys.readouterr().err.split())
    assert hub.ranges("model.safetensors") == []


def test_a_model_in_parts_is_whole_when_all_are_there(hub, nemotron):
    one = nemotron.pop("model.safetensors")
    parts = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    nemotron.update(dict.fromkeys(parts, one))
    wanted = Reference(NEMOTRON)
    folder = fetch(wanted)
    assert cached(wanted) == folder
    (folder / parts[1]).unlink()
    assert cached(wanted) is None
    assert (fetch(wanted) / parts[1]).is_file()


def test_what_is_a_name_of_the_hub():
    file = Reference("me/some.repo", "v1", "folder/one.pt")
    assert reference("me/some.repo@v1/folder/one.pt") == file
    assert str(file) == "me/some.repo@v1/folder/one.pt"
    assert reference("me/some") == Reference("me/some")
    for name in ("./me/some", "/me/some", "~/me/some", "some", "300ms", "auto", "me/", "me//x", ""):
        assert reference(name) is None, name
    assert reference("whisperrt-large-v2-1000ms") == Reference(WHISPERRT, None, "large-v2_1000.pt")
    assert all(reference(name) == each.reference for name, each in published().items())


@pytest.mark.parametrize("name", sorted(published()))
def test_the_printed_settings_compose(name, hub):
    line = published()[name].use.split()
    config = compose([*line, "chunk=560ms"] if "method=native" in line else line)
    assert config.method.weights == (config.model.path if "method=native" in line else name)


def test_detectors_that_are_not_the_published_ones_are_refused(hub, monkeypatch, capsys):
    def clone(source, wanted, place, name, instead):
        (place / "cif_models").mkdir(parents=True)
        for file in obtain.DETECTORS_SHA256:
            (place / "cif_models" / file).write_bytes(b"one")

    monkeypatch.setattr(obtain, "clone_once", clone)
    assert get.main([DETECTORS]) == 2
    message = capsys.readouterr().err
    assert f"base.pt has the sha256 {hashlib.sha256(b'one').hexdigest()}, not 851fc5f78" in message
    assert "; remove " in message


def test_detectors_are_used_by_their_name(hub, monkeypatch):
    def clone(source, wanted, place, name, instead):
        (place / "cif_models").mkdir(parents=True)
        (place / "cif_models/base.pt").write_bytes(b"one")

    monkeypatch.setattr(obtain, "clone_once", clone)
    digest = hashlib.sha256(b"one").hexdigest()
    monkeypatch.setattr(obtain, "DETECTORS_SHA256", {"base.pt": digest})
    line = ["method=simul_whisper", f"model.path={tiny_folder()}", "method.weights=" + DETECTORS]
    first = compose([*line, "model=base"])
    assert first.method.weights == DETECTORS
    assert obtain_models([first])
    second = compose([*line, "model=base"])
    assert Path(second.method.weights).read_bytes() == b"one"
    assert not obtain_models([second])
    with pytest.raises(UserError, match=r"there is none for model=whisper; take one of base"):
        compose([*line, "model=whisper"])
