"""Ours against what the published code made of Debian's prompts with tiny.en, kept as hashes.

experiments.parity makes tests/fixtures/real; it runs both sides.
"""

from __future__ import annotations

import json
import re

import pytest

from experiments import parity
from experiments.simul_whisper import parity as simul_whisper
from experiments.ufal import parity as ufal
from experiments.whisperrt import parity as whisperrt
from streaming_asr.corpora import prompts
from streaming_asr.models.find import find_here

pytestmark = pytest.mark.slow
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
    if corpus.data_hash() != FIXTURES["ufal"]["data"]:
        pytest.skip("the prompts here are not those of asterisk-core-sounds-en 1.6.1-1")
    return {clip.id: clip for clip in parity.prompts(20)}


def shortest(name, **wanted):
    rows = [r for r in FIXTURES[name]["clips"] if all(r[k] == v for k, v in wanted.items())]
    assert len(rows) >= N_CLIPS
    return sorted(rows, key=lambda row: row["n_samples"])[:N_CLIPS]


def expected(row):
    return row.get("ours", row["reference"])


def test_ufal_compat_commits_the_words_of_the_reference_at_its_times_with_the_same_chunk(clips):
    method = ufal.our_method()
    for row in shortest("ufal"):
        assert ufal.text_row(ufal.our_words(method, clips[row["id"]].load())) == expected(row)


def test_simul_whisper_adds_the_tokens_of_simulstreaming_with_the_same_chunk(clips):
    method = simul_whisper.our_method()
    for row in shortest("simul_whisper"):
        steps = simul_whisper.our_tokens(method, clips[row["id"]].load())
        assert parity.summary(steps) == expected(row)


@pytest.mark.parametrize("chunk_s", list(whisperrt.CHUNKS_S))
def test_whisperrt_has_the_tokens_of_the_authors_code_after_every_chunk(clips, chunk_s):
    first_s = whisperrt.CHUNKS_S[chunk_s]
    method = whisperrt.our_method(chunk_s, first_s)
    for row in shortest("whisperrt", chunk_s=chunk_s):
        steps = whisperrt.our_tokens(method, clips[row["id"]].load(), chunk_s, first_s)
        assert whisperrt.text_row(steps.values()) == expected(row)


@pytest.mark.parametrize("name", ["ufal", "simul_whisper", "whisperrt"])
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
