"""One adapter of two: which part is whose, and what another rank keeps."""

import json
import lzma
import math
import re

import numpy as np
import pytest
import soundfile
import torch
from safetensors.torch import load_file, save_file

from experiments import parity
from experiments.real import dev_score, language_model
from experiments.real.dev_score import dev_set, offline_errors, word_errors
from experiments.real.joined_adapter import program
from experiments.real.language_model import PROSE, Texts, ngrams, of_books
from experiments.simul_whisper import parity as simul_whisper
from experiments.whisperrt import parity as whisperrt
from streaming_asr.corpora import prompts
from streaming_asr.errors import UserError
from streaming_asr.method import Update, Word
from streaming_asr.models.find import find_here
from streaming_asr.whisper.ngram import load_ngram

ENCODER, DECODER, FEED = (
    f"base_model.model.model.{name}" for name in ("encoder.q", "decoder.q", "decoder.fc1")
)


def adapter(folder, rank, layers, alpha=None):
    folder.mkdir()
    weights = {}
    for name, value in layers.items():
        weights[f"{name}.lora_A.weight"] = torch.full((rank, 6), value)
        weights[f"{name}.lora_B.weight"] = torch.full((5, rank), value)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"r": rank, "lora_alpha": alpha or rank, "target_modules": ["q"]}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_the_encoder_is_the_first_ones_and_the_decoder_the_second_ones(tmp_path):
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0, DECODER: 2.0, FEED: 3.0})
    second = adapter(tmp_path / "b", 4, {ENCODER: 5.0, DECODER: 0.5})
    given = ["--encoder", str(first), "--decoder", str(second), "--rank", "3"]
    program([*given, "--out", str(tmp_path / "c")])
    found = load_file(tmp_path / "c" / "adapter_model.safetensors")
    change = {
        name: found[f"{name}.lora_B.weight"].float() @ found[f"{name}.lora_A.weight"].float()
        for name in (ENCODER, DECODER, FEED)
    }
    assert {each.shape for name, each in found.items() if "lora_A" in name} == {(3, 6)}
    # B A of r columns of x and rows of x is r x^2; the decoder's has rank 1, so nothing is lost
    assert torch.allclose(change[ENCODER], torch.full((5, 6), 2.0))
    assert torch.allclose(change[DECODER], torch.full((5, 6), 1.0), atol=2e-3)
    assert torch.allclose(change[FEED], torch.full((5, 6), 18.0))
    config = json.loads((tmp_path / "c" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (3, 3)


def test_what_is_no_adapter_or_scales_its_change_is_refused(tmp_path):
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0})
    scaled = adapter(tmp_path / "b", 2, {DECODER: 1.0}, alpha=4)
    rest = ["--rank", "2", "--out", str(tmp_path / "c"), "--encoder", str(first), "--decoder"]
    with pytest.raises(UserError, match="lora_alpha is not r"):
        program([*rest, str(scaled)])
    with pytest.raises(UserError, match=r"no adapter_model.safetensors there"):
        program([*rest, str(tmp_path)])


def test_a_mean_is_of_each_matrix_and_only_of_adapters_with_the_same_layers(tmp_path):
    first = adapter(tmp_path / "a", 2, {ENCODER: 1.0, DECODER: 2.0})
    second = adapter(tmp_path / "b", 2, {ENCODER: 4.0, DECODER: -2.0})
    program(["--mean", str(first), str(second), "--out", str(tmp_path / "c")])
    result = load_file(tmp_path / "c" / "adapter_model.safetensors")
    assert set(result) == set(load_file(first / "adapter_model.safetensors"))
    assert torch.equal(result[f"{ENCODER}.lora_A.weight"].float(), torch.full((2, 6), 2.5))
    assert torch.equal(result[f"{DECODER}.lora_B.weight"].float(), torch.zeros(5, 2))
    other_rank = adapter(tmp_path / "d", 3, {ENCODER: 1.0, DECODER: 2.0})
    for arguments in (["--mean", str(first), str(other_rank)], ["--encoder", str(first)]):
        with pytest.raises(UserError, match=r"went on from the same one|or --mean"):
            program([*arguments, "--out", str(tmp_path / "e")])
    assert not (tmp_path / "e").exists()


# -- The score on the dev sets: which utterances, whose errors, and their mean --


class Says:
    """Says one word for each delivery of audio."""

    lookahead_samples = 0

    def __init__(self, word):
        self.word = word

    def start(self, *, language=None, recorder=None):
        return None

    def step(self, state, audio, *, last):
        return Update((Word(f" {self.word}"),), ())


@pytest.fixture
def manifest(tmp_path):
    rows = []
    for name, text, seconds in (("a", "so so so", 0.9), ("b", "so it", 0.6)):
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(int(seconds * 16_000)), 16_000)
        rows.append({"audio_filepath": f"{name}.wav", "text": text, "duration": seconds})
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_errors_are_those_of_all_utterances_together(manifest, monkeypatch):
    one = dev_set(f"mine={manifest}")
    assert [u.id for u in one.utterances] == ["b", "a"] and one.n_words == 5
    for together in (1, 25):
        monkeypatch.setattr(dev_score, "TOGETHER", together)
        # two deliveries of `b` and three of `a`: "it" is the one word that is not "so"
        assert word_errors(Says("so"), one, 300, 300) == 1
        assert word_errors(Says("no"), one, 300, 300) == 5
        assert word_errors(Says("so"), one, 900, 900) == 3


def test_offline_is_heard_once_for_a_model_and_a_text(manifest, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(dev_score, "new_method", lambda *given: made.append(given) or Says("so"))
    monkeypatch.setattr("streaming_asr.models.hash.weights_hash", lambda path: "base")
    kept = tmp_path / "offline.json"
    one = dev_set(f"mine={manifest}")
    assert offline_errors(tmp_path, [one], kept) == [3]
    assert offline_errors(tmp_path, [one], kept) == [3] and len(made) == 1
    manifest.write_text(manifest.read_text().replace("so it", "so so"))
    assert offline_errors(tmp_path, [dev_set(f"mine={manifest}")], kept) == [3]
    assert len(made) == 2


def test_a_frozen_list_takes_its_own_utterances_alone(manifest):
    with pytest.raises(UserError, match="cv-dev-2: 95 of its utterances"):
        dev_set(f"cv-dev-2={manifest}")


def test_a_recording_that_arrives_at_once_is_decoded_once(manifest, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(dev_score, "new_method", lambda *args, **settings: Says("so"))
    monkeypatch.setattr(dev_score, "offline_errors", lambda *args: [1])
    found = []
    settings = ["--weights", "w", "--sets", f"mine={manifest}", "--chunks", "300ms"]
    for flags in ([], ["--at-once"]):
        dev_score.program([*settings, *flags, "--offline", str(tmp_path / "offline.json")])
        row = next(line for line in capsys.readouterr().out.splitlines() if "mine" in line)
        found.append(float(row.split()[3]))
    # the first chunk of 600 ms, then one of 300: "so" for "so it", "so so" for "so so so"; 2 of 5
    # words are wrong. At once: "so" for each, 3 of 5.
    assert found == [40.0, 60.0]


# -- The language model's texts, what is left out of them, and what Kaldingram makes of them --


def test_each_sentence_is_taken_once_and_none_of_dev():
    texts = Texts(["So it goes.", "He came. She saw, and left!"])
    first = texts.of("one", "CC0", ["So it goes", "All is well.", "He came.", "All is, well"])
    assert list(first) == ["All is well."]
    second = texts.of("two", "free", ["All is well!", "she saw, and left", "They left.", "..."])
    assert list(second) == ["They left."]
    frozen = "Both of Newman's children are pursuing acting careers."  # of the list cv-dev
    third = texts.of("three", "free", ["We met. She saw, and left. He slept.", frozen])
    assert list(third) == []
    assert texts.rows == [
        {"name": "one", "licence": "CC0", "sentences": 1, "left_out": 2},
        {"name": "two", "licence": "free", "sentences": 1, "left_out": 1},
        {"name": "three", "licence": "free", "sentences": 0, "left_out": 2},
    ]


def test_books_give_sentences_without_headings(tmp_path):
    for name in PROSE:
        (tmp_path / f"{name}.txt").write_text("")
    text = '[A Book 1816]\n\nCHAPTER I.\n\nI\n\nSo it\nwas--and is. "Yes?" Mr. Low\nasked.'
    (tmp_path / "austen-emma.txt").write_text(text)
    assert list(of_books(tmp_path)) == ["So it was and is.", '"Yes?" Mr Low asked.']
    (tmp_path / "carroll-alice.txt").unlink()
    with pytest.raises(UserError, match=r"carroll-alice\.txt[\s\S]*--books"):
        list(of_books(tmp_path))


def model_of(lines, folder, threshold=0.0):
    arpa = folder / "lm.arpa"
    ngrams(lines, 4, 3, threshold, arpa)
    (folder / "lm.json").write_text('{"vocabulary": "of a test"}')
    (folder / "lm.arpa.xz").write_bytes(lzma.compress(arpa.read_bytes()))
    return load_ngram(str(folder), None)


def test_what_was_seen_is_likelier_and_every_class_possible(tmp_path, capfd):
    model = model_of(["0 1 2", "0 1 2", "0 1 0", "1 2 0"], tmp_path)
    start = model.start()
    behind = model.after(model.after(start, 0), 1)
    given = [model.score(behind, token) for token in range(4)]
    assert given[2] == max(given)
    assert given[3] > math.log(1e-3)  # never seen in a sentence
    assert sum(math.exp(log_prob) for log_prob in given) < 1
    assert capfd.readouterr().err == ""


def test_pruning_keeps_a_model_of_fewer_ngrams(tmp_path):
    lines = ["0 1 2 3", "1 0 3 2", "0 1 3", "2 0 1", "3 1 0 2"]
    sizes = []
    for threshold in (0.0, 0.01):
        folder = tmp_path / str(threshold)
        folder.mkdir()
        model_of(lines, folder, threshold)
        sizes.append((folder / "lm.arpa").stat().st_size)
    assert sizes[1] < sizes[0]


def test_without_kaldingram_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(language_model, "KALDINGRAM", "no_such_package.cli")
    with pytest.raises(UserError, match=r"pip install -e '\.\[lm\]'"):
        ngrams(["0"], 2, 2, 0.0, tmp_path / "lm.arpa")


# -- Parity with the authors' programs --


N_CLIPS = 3
FIXTURES = {path.stem: json.loads(path.read_text()) for path in parity.FIXTURES.glob("*.json")}


@pytest.fixture(scope="module")
def clips():
    """The prompts by their ids, where they and tiny.en are on this machine."""
    if find_here(parity.MODEL) is None:
        pytest.skip("tiny.en is not here; streaming-asr get tiny.en")
    if not (prompts.place_of("en") / prompts.MANIFEST).is_file():
        pytest.skip("the English prompts are not here; streaming-asr get prompts")
    corpus = parity.Prompts(language="en")
    if corpus.data_hash() != FIXTURES["whisperrt"]["data"]:
        pytest.skip("the prompts here are not those of asterisk-core-sounds-en 1.6.1-1")
    return {clip.id: clip for clip in parity.prompts(20)}


def shortest(name, **wanted):
    rows = [r for r in FIXTURES[name]["clips"] if all(r[k] == v for k, v in wanted.items())]
    assert len(rows) >= N_CLIPS
    return sorted(rows, key=lambda row: row["n_samples"])[:N_CLIPS]


def expected(row):
    return row.get("ours", row["reference"])


@pytest.mark.slow
def test_simul_whisper_adds_the_tokens_of_simulstreaming_with_the_same_chunk(clips):
    method = simul_whisper.our_method()
    for row in shortest("simul_whisper"):
        steps = simul_whisper.our_tokens(method, clips[row["id"]].load())
        assert parity.summary(steps) == expected(row)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_s", list(whisperrt.CHUNKS_S))
def test_whisperrt_has_the_tokens_of_the_authors_code_after_every_chunk(clips, chunk_s):
    first_s = whisperrt.CHUNKS_S[chunk_s]
    method = whisperrt.our_method(chunk_s, first_s)
    for row in shortest("whisperrt", chunk_s=chunk_s):
        steps = whisperrt.our_tokens(method, clips[row["id"]].load(), chunk_s, first_s)
        assert whisperrt.text_row(steps.values()) == expected(row)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simul_whisper", "whisperrt"])
def test_a_fixture_holds_hashes_and_counts_and_names_every_difference(name):
    fixture = FIXTURES[name]
    assert re.fullmatch(r"[\w-]+/\w+[\w-]*@[0-9a-f]{7}", fixture["reference"])
    assert fixture["counts"] == parity.counts(fixture["clips"])
    for row in fixture["clips"]:
        for side in ("reference", "ours"):
            for key, value in row.get(side, {}).items():
                assert key == "n" or re.fullmatch("[0-9a-f]{16}", value), (row["id"], key)
        differs = row.get("ours", row["reference"]) != row["reference"]
        assert differs == ("cause" in row) and row.get("cause") != "unnamed"
