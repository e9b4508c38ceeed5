"""What `run` says of a corpus's word times, licence and language; texts with strange characters."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from align_fake import FakeAligner
from corpora_layouts import sound, write
from run_fakes import arguments
from tiny import tiny_folder

from streaming_asr.align import auto
from streaming_asr.corpora import Manifest
from streaming_asr.errors import UserError
from streaming_asr.run import command as run
from streaming_asr.train import _choose_data


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    FakeAligner.asked.clear()


def speech(folder, **fields):
    """The overrides of a manifest of one recording, read twice."""
    sound(folder / "a.wav", 2.0)
    row = {"audio_filepath": "a.wav", "text": "one\u2028two three", **fields}
    rows = [json.dumps({"id": name, **row}, ensure_ascii=False) for name in ("u1", "u2")]
    return f"data.path={write(folder / 'm.jsonl', *rows)}"


def result(folder):
    (found,) = folder.glob("outputs/default/*/metrics.json")
    return dict(json.loads(found.read_text()))


def test_a_run_without_word_times_says_why_latency_is_empty(tmp_path, capsys):
    assert run.main(arguments(tmp_path, "data=manifest", speech(tmp_path))) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "have no times, so latency columns stay empty; data.align=auto makes" in out
    # a line separator within a text went through manifest, log, scores and report
    assert result(tmp_path)["n_utterances"] == 2


def test_a_run_that_times_words_itself_names_the_aligner(tmp_path, monkeypatch, capsys):
    from streaming_asr.align.command import fill

    fake = {"_target_": "align_fake.FakeAligner"}
    monkeypatch.setattr(auto, "fill", lambda c, u, node, *rest: fill(c, u, fake, *rest))
    align = f"data.align={tiny_folder()}"
    command = arguments(tmp_path, "data=manifest", speech(tmp_path), align)
    assert run.main(command) == 0
    assert "have no times" not in capsys.readouterr().out
    config = result(tmp_path)["config"]
    assert str(config["data"]["word_times"]).startswith("whisper-")
    assert run.main(command) == 0
    assert "finished earlier, skipped" in capsys.readouterr().out
    assert FakeAligner.asked == ["u1", "u2"]


def test_a_cell_with_another_aligners_times_is_set_aside(tmp_path, monkeypatch, capsys):
    from streaming_asr.align.command import fill

    fake = {"_target_": "align_fake.FakeAligner"}
    monkeypatch.setattr(auto, "fill", lambda c, u, node, *rest: fill(c, u, fake, *rest))
    monkeypatch.setattr(auto, "find", lambda path: SimpleNamespace(folder=tiny_folder()))
    monkeypatch.setattr(auto.english, "branch_folder", lambda path: None)
    command = arguments(tmp_path, "data=manifest", speech(tmp_path), "data.align=auto")
    with monkeypatch.context() as earlier:
        earlier.setattr(auto, "aligner_of", lambda languages: ("whisper", "tiny.en"))
        assert run.main(command) == 0
    capsys.readouterr()
    assert run.main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "config (data.word_times whisper-tiny.en " in out
    assert " -> ctc-tiny.en " in out and "changed; the old results are now " in out
    assert FakeAligner.asked == ["u1", "u2", "u1", "u2"]  # none of the old times is read


def test_without_the_aligners_model_everything_but_latency_is_measured(tmp_path, capsys):
    overrides = ["data=manifest", speech(tmp_path), "data.align=/nowhere/model"]
    assert run.main(arguments(tmp_path, *overrides)) == 0
    assert "no word times, so latency columns stay empty. data.align=" in capsys.readouterr().out
    assert "wer" in result(tmp_path)["metrics"]


def test_licences_stand_in_the_result_and_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(Manifest, "licence", lambda self: "CC-BY-9 <A>", raising=False)
    told = f"{tmp_path.name}: CC-BY-9 <A>"
    assert run.main(arguments(tmp_path, "data=manifest", speech(tmp_path))) == 0
    assert result(tmp_path)["config"]["data"]["licence"] == told
    from streaming_asr.report.page import page_data

    assert page_data(tmp_path / "outputs" / "default")["licences"] == [told]


@pytest.mark.parametrize("name", ["tiny.en", "fine-tuned.en"])
def test_an_english_model_is_refused_other_languages_before_it_loads(tmp_path, name, capsys):
    model = ["model=whisper", f"model.name={name}", f"model.path=hub/whisper-{name}"]
    overrides = ["data=manifest", speech(tmp_path, language="fr"), *model]
    runs_it = ["method.fail=loaded", "method.counter=${model.path}"]
    assert run.main(arguments(tmp_path, *overrides, *runs_it)) == 2
    err = capsys.readouterr().err
    assert f"model={name}: knows English only, and the utterances are in fr" in err


def test_an_argument_that_is_no_utf_8_is_refused(capsys):
    assert run.main(["data=manifest", "data.path=b\udcff.jsonl"]) == 2
    assert "is no UTF-8 text; rename the file" in capsys.readouterr().err


def test_only_mini_has_speech_to_train_on_by_default():
    from omegaconf import OmegaConf

    unset = {"train_data": None, "dev_manifest": None}
    mini = OmegaConf.create({"model": {"name": "mini"}, **unset})
    _choose_data(mini)
    assert mini.train_data == "outputs/mini/train" and Path(mini.dev_manifest).is_file()
    other = OmegaConf.create({"model": {"name": "tiny.en"}, **unset, "train_data": "shards"})
    with pytest.raises(UserError, match=r"dev_manifest: has no default for model=tiny\.en"):
        _choose_data(other)
