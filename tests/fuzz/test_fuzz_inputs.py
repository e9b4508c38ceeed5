"""Fuzz: recordings, manifests and configurations."""

import functools
import io
import json
import shutil
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import run_fakes
import soundfile
import yaml
from containers import drawn_recordings
from fuzzing import assert_finite, cases, fielded, spoiled, spoiled_lines, watched
from fuzzing import run as command
from hypothesis import example, given
from hypothesis import strategies as st
from line import Line, settings
from safetensors.numpy import save
from tiny import tiny_folder

from streaming_asr.config.build import new_method
from streaming_asr.config.compose import CONF_DIR
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Manifest
from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter
from streaming_asr.models.hash import weights_hash
from streaming_asr.run import command as run
from streaming_asr.score import score_folder
from streaming_asr.simulate.feeds import simulate
from streaming_asr.training.loop import fit
from streaming_asr.whisper.load import load_whisper

pytestmark = pytest.mark.slow

FORMS = {
    "a.wav": {"subtype": "PCM_16"},
    "b.wav": {"subtype": "FLOAT"},
    "c.flac": {},
    "d.ogg": {"format": "OGG", "subtype": "OPUS"},
    "e.mp3": {"format": "MP3"},
}


@functools.cache
def recording(name):
    file = io.BytesIO()
    samples = np.sin(np.arange(8000) / 20) / 2
    soundfile.write(file, samples, 16_000, **{"format": name[2:].upper()} | FORMS[name])
    return file.getvalue()


def run_and_score(corpus, folder):
    """What `run` does with a corpus, with a fake method and without Hydra."""
    with EventWriter(folder / "events.jsonl", {"config": {}, "versions": {}}) as writer:
        simulate(
            run_fakes.Parrot(0.3, 0.6),
            corpus.utterances(),
            writer=writer,
            feed="fixed",
            chunk_samples=4800,
            first_chunk_samples=9600,
            warm_up=False,
        )
    score_folder(folder)
    return assert_finite(folder / "metrics.json")


# -- recordings ---------------------------------------------------------------------------------


@st.composite
def recordings(draw):
    """The name and the spoiled content of a recording, of a usual form or of any kind."""
    if draw(st.booleans()):
        name = draw(st.sampled_from(sorted(FORMS)))
        return name, draw(st.one_of(spoiled(recording(name)), st.binary(max_size=100)))
    with tempfile.TemporaryDirectory() as place:
        path = draw(drawn_recordings()).write(Path(place))
        content = path.read_bytes()
    return path.name, draw(st.one_of(spoiled(content), fielded(content)))


@cases(25)
@given(recordings())
def test_a_spoiled_recording_is_audio_or_an_error(made):
    name, content = made
    with tempfile.TemporaryDirectory() as place, watched():
        path = Path(place) / name
        path.write_bytes(content)
        assert 0 <= duration_s(path) < 1e9
        try:
            audio = load_audio(path)
        except UserError as error:
            audio = None
            assert "\n" not in str(error)
        else:
            assert (audio.dtype, audio.ndim) == (np.float32, 1)
            assert len(audio)
            assert np.isfinite(audio).all()
            np.testing.assert_array_equal(Reader(path).read(len(audio) + 1), audio)
        row = {"id": "a", "audio_filepath": name, "text": "a word"}
        (Path(place) / "m.jsonl").write_text(json.dumps(row) + "\n")
        try:
            result = run_and_score(Manifest(str(Path(place) / "m.jsonl")), Path(place) / "cell")
        except UserError:
            return
        assert result["n_utterances"] == 1
        assert result["n_failed"] == (audio is None)


# -- manifests ----------------------------------------------------------------------------------

ROWS = [
    {
        "id": f"u{i}",
        "audio_filepath": "a.wav",
        "duration": 0.5,
        "text": "hello world",
        "speaker": "s",
        "language": "en",
        "words": [["hello", 0.0, 0.2], ["world", 0.2, 0.5]],
    }
    for i in range(2)
]
MANIFEST = "".join(json.dumps(row) + "\n" for row in ROWS)


@cases(30)
@given(spoiled_lines(MANIFEST))
@example(b'"\\ud800"\n')
@example(b"[" * 100_000)
def test_a_spoiled_manifest_is_a_corpus_or_an_error(content):
    with tempfile.TemporaryDirectory() as place, watched():
        (Path(place) / "a.wav").write_bytes(recording("a.wav"))
        path = Path(place) / "m.jsonl"
        path.write_bytes(content)
        with suppress(UserError):
            corpus = Manifest(str(path))
            corpus.data_hash()
            run_and_score(corpus, Path(place) / "cell")


# -- configurations -----------------------------------------------------------------------------

TOP = ("method", "model", "data", "tracker", "name", "chunk", "first_chunk", "limit", "batch")
TOP += ("feed", "language", "device", "dtype", "seed", "threads", "foo", "model.path", "data.n")
FAKE = ("method.wrong_every", "method.chunk_s", "method.kill_at", "method._target_", "data.split")
VALUES = ("null", "true", "-1", "0", "1", "1e308", "nan", "inf", "abc", "''", "[1]", "{a:1}")
VALUES += ("300ms", "1s", "0s", "1e9s", str(2**70), "${name}", "${oc.env:NOPE}", "${nope}", "???")
VALUES += ("a,b", "a=b", "[", "'", "\\", "日本", "../x", "\ud800", "a\x00b", "x" * 300, "cuda:99")


def overrides(keys):
    one = st.tuples(
        st.sampled_from(("", "", "+", "++", "~")), st.sampled_from(keys), st.sampled_from(VALUES)
    )
    return st.lists(
        one.map(lambda parts: f"{parts[0]}{parts[1]}={parts[2]}"), min_size=1, max_size=2
    )


@cases(20)
@given(overrides(TOP + FAKE))
def test_a_configuration_of_any_values_runs_or_is_refused(given_):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch, watched():
        patch.chdir(place)
        command = run_fakes.arguments(Path(place), "limit=1", *given_)
        try:
            status = run.main(command)
        except SystemExit as left:
            status = left.code
        assert status in (0, 1, 2), command
        for path in Path(place).rglob("metrics.json"):
            assert_finite(path)
        for path in Path(place).rglob("failed.json"):
            assert "Error: " not in json.loads(path.read_text())["error"]


METHODS = sorted(file.stem for file in (CONF_DIR / "method").glob("*.yaml"))


@cases(15)
@given(st.sampled_from(METHODS), st.data())
def test_any_setting_of_a_method_is_settled_or_refused(method, data):
    keys = tuple(
        f"method.{key}"
        for key in yaml.safe_load((CONF_DIR / "method" / f"{method}.yaml").read_text())
    )
    given_ = data.draw(overrides((*keys, *TOP)))
    with watched(), suppress(UserError):
        compose([f"method={method}", "model=mini", *given_])


# -- own files ----------------------------------------------------------------------------------

OWN = {
    "method/mine.yaml": "_target_: streaming_asr.methods.offline.Offline\nbeam: 2\n",
    "data/mine.yaml": "_target_: streaming_asr.corpora.Folder\npath: .\nlanguage: en\n",
    "experiment/mine.yaml": "# @package _global_\ndefaults:\n  - override /method: offline\n"
    "model:\n  name: mini\nchunk: 1s\n",
}


@cases(5)
@given(st.sampled_from(sorted(OWN)), st.data())
def test_an_own_file_of_settings_is_read_or_refused(name, data):
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch, watched():
        patch.chdir(place)
        path = Path(place) / "own" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data.draw(spoiled(OWN[name].encode())))
        asks = f"{path.parent.name}=mine"
        status, text = command(run.main, "-cd", "own", asks, "model=mini", "--cfg", "job")
        assert status == 0 or text.count("error: ") == 1, text


# -- Weights --


FILES = ("tokenizer.json", "config.json", "model.safetensors")


@st.composite
def damaged_files(draw):
    name = draw(st.sampled_from(FILES))
    content = (tiny_folder() / name).read_bytes()
    return name, draw(spoiled(content))


@cases(10)
@given(damaged_files())
def test_a_damaged_model_says_words_or_is_refused(made):
    name, content = made
    with tempfile.TemporaryDirectory() as place, watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns of settings it does not know
        folder = Path(place) / "model"
        shutil.copytree(tiny_folder(), folder)
        (folder / name).write_bytes(content)
        with suppress(UserError):
            load_whisper(folder)
            method = new_method("offline", str(folder))
            method.step(method.start(), np.zeros(8000, np.float32), last=True)


@functools.cache
def tensors():
    return save({"a.weight": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float16)})


@cases(10)
@given(st.deferred(lambda: spoiled(tensors())))
def test_damaged_weights_are_read_as_numbers_or_refused(content):
    with tempfile.TemporaryDirectory() as place, watched():
        (Path(place) / "config.json").write_text('{"model_type": "whisper"}')
        (Path(place) / "model.safetensors").write_bytes(content)
        with suppress(UserError):
            weights_hash(place)


def train(out, n_steps):
    fit(Line(), settings(out, max_steps=n_steps, log_every=1))


@functools.cache
def trained():
    out = Path(tempfile.mkdtemp(prefix="trained-"))
    train(out, 2)
    return out


@st.composite
def damaged(draw):
    name = draw(st.sampled_from(("checkpoint.pt", "curve.jsonl")))
    return name, draw(spoiled((trained() / name).read_bytes()))


@cases(10)
@given(st.deferred(damaged))
def test_a_damaged_checkpoint_goes_on_or_is_refused(made):
    name, content = made
    with tempfile.TemporaryDirectory() as place, watched():
        out = Path(place) / "run"
        shutil.copytree(trained(), out)
        (out / name).write_bytes(content)
        with suppress(UserError):
            train(out, 4)
            rows = (out / "curve.jsonl").read_text().splitlines()
            assert [json.loads(row)["step"] for row in rows][-1:] in ([4], [])
