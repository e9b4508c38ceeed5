"""Alignment heads: scored on literal attention, selected, and written by the program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import soundfile
import torch
from tiny import noise, tiny_folder

from experiments.align_heads import (
    Example,
    Forced,
    Score,
    distances_s,
    find,
    score_set,
    select,
    write_heads,
)
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.errors import UserError
from streaming_asr.whisper.alignment import alignment_map, standardised
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.load import load_whisper

# Four words of 0.4 s, one token each, 0.4 s = 20 frames; 80 frames in all.
SPANS = torch.tensor([[0.0, 0.4], [0.4, 0.8], [0.8, 1.2], [1.2, 1.6]])
MIDDLES = [10, 30, 50, 70]


def attention(*peaks: list[int]) -> torch.Tensor:
    """(heads, 5 rows, 80 frames): row i of a head looks at five frames around peaks[head][i]."""
    weights = torch.full((len(peaks), 5, 80), 0.002)
    for head, frames in enumerate(peaks):
        for row, frame in enumerate([*frames, 79]):  # the last row predicts the end
            weights[head, row, max(0, frame - 2) : frame + 3] = 0.15
    return weights / weights.sum(-1, keepdim=True)


def example(*peaks: list[int]) -> Example:
    return Example(standardised(attention(*peaks))[:, :-1], SPANS)


BACKWARDS, STUCK = [70, 50, 30, 10], [40, 40, 40, 40]


def test_the_distance_is_zero_inside_the_word_and_counts_from_its_edge() -> None:
    maps = torch.zeros(4, 80)
    for row, frame in enumerate([5, 45, 10, 79]):  # centres 0.11, 0.91, 0.21, 1.59 s
        maps[row, frame] = 1.0
    assert distances_s(maps, SPANS).tolist() == pytest.approx([0.0, 0.11, 0.59, 0.0], abs=1e-6)


def test_a_token_is_right_within_a_fifth_of_a_second() -> None:
    late = [29, 36, 50, 70]  # looks at frames 27 to 31; the first one's centre is 0.55 s
    later = [33, 40, 50, 70]
    assert score_set([example(MIDDLES)], [0]) == Score(100.0, 0.0)
    right, wrong = score_set([example(late)], [0]), score_set([example(later)], [0])
    assert (right.share, right.error_s) == (100.0, pytest.approx(0.15 / 4))
    assert (wrong.share, wrong.error_s) == (75.0, pytest.approx(0.23 / 4))


def test_the_one_perfect_head_is_chosen_and_no_other() -> None:
    examples = [example(BACKWARDS, STUCK, MIDDLES, BACKWARDS)] * 2
    found = select(examples, examples, max_heads=4)
    assert found.heads == [2]
    assert found.scores == [Score(100.0, 0.0)]


def test_heads_that_know_different_words_are_chosen_together() -> None:
    # Each is right about half of the words and, about the others, does not look anywhere.
    weights = attention(MIDDLES, MIDDLES, BACKWARDS)
    weights[0, 2:] = weights[1, :2] = 1 / 80
    examples = [Example(standardised(weights)[:, :-1], SPANS)] * 2
    found = select(examples, examples, max_heads=3)
    assert sorted(found.heads) == [0, 1]
    assert found.scores[0].share < found.scores[1].share == 100.0


def test_selection_ends_where_held_out_speech_does_not_agree() -> None:
    weights = attention(MIDDLES, MIDDLES)
    weights[0, 3] = weights[1, :3] = 1 / 80  # head 1 adds the one word that head 0 misses
    training = [Example(standardised(weights)[:, :-1], SPANS)]
    assert select(training, training, max_heads=2).heads == [0, 1]
    assert select(training, [example(MIDDLES, BACKWARDS)], max_heads=2).heads == [0]


def test_no_more_heads_are_chosen_than_allowed() -> None:
    weights = attention(MIDDLES, MIDDLES)
    weights[0, 2:] = weights[1, :2] = 1 / 80
    examples = [Example(standardised(weights)[:, :-1], SPANS)]
    assert len(select(examples, examples, max_heads=1).heads) == 1


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six recordings of three words each, and a seventh longer than the tiny model's 4 s."""
    folder = tmp_path_factory.mktemp("aligned")
    rows = []
    for i in range(7):
        duration_s = 5.0 if i == 6 else 1.5 + 0.2 * i
        soundfile.write(folder / f"{i}.wav", noise(duration_s, seed=i), 16_000)
        words = [["the", 0.1, 0.4], ["quick", 0.4, 0.9], ["fox", 0.9, 1.4]]
        rows.append({"audio_filepath": f"{i}.wav", "text": "the quick fox", "words": words})
    path = folder / "aligned.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


def settings(model: Path, manifest: Path, *overrides: str):
    import omegaconf

    full = compose_raw(
        ["data=manifest", f"data.path={manifest}", f"model.path={model}", *overrides],
        config_name="align_heads",
    )
    with omegaconf.open_dict(full):
        full.pop("hydra")
    return full


def test_a_map_of_one_head_is_that_of_the_word_times(manifest: Path) -> None:
    """The maps that are scored are the ones that `alignment_map` averages."""
    whisper = load_whisper(tiny_folder())
    utterance = read_manifest(manifest)[0]
    forced = Forced(whisper)
    found = forced.example(utterance)
    assert found is not None
    n_frames = 75  # 1.5 s
    assert found.maps.shape == (4, len(found.spans), n_frames)  # 2 layers of 2 heads
    decoder = Decoder(whisper)
    cache = DecoderCache(decoder)
    audio = torch.from_numpy(utterance.load())
    decoder.append_frames(cache, forced._encode(audio, n_frames), 0)
    tokens = [
        t
        for w in (" the", " quick", " fox")
        for t in whisper.tokenizer(w, add_special_tokens=False).input_ids
    ]
    for heads in ([2], [1, 3]):
        pairs = [(head // 2, head % 2) for head in heads]
        one = alignment_map(decoder, cache, pairs, whisper.prompt(), tokens, n_frames)[:-1]
        torch.testing.assert_close(found.maps[heads].float().mean(0), one, rtol=2e-3, atol=4e-3)


def test_the_program_writes_the_heads_and_leaves_the_rest(
    model: Path, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((model / "generation_config.json").read_text())
    heads = find(settings(model, manifest))
    after = json.loads((model / "generation_config.json").read_text())
    assert after.pop("alignment_heads") == [list(head) for head in heads] != []
    before.pop("alignment_heads")
    assert after == before
    assert load_whisper(model).alignment_heads == heads
    shown = capsys.readouterr().out
    assert "3 utterances to choose on, 3 held out" in shown  # the long one is left out
    assert "all heads of the last half" in shown


def test_write_false_only_prints(model: Path, manifest: Path) -> None:
    before = (model / "generation_config.json").read_text()
    assert find(settings(model, manifest, "write=false"))
    assert (model / "generation_config.json").read_text() == before


def test_a_corpus_without_word_times_is_refused(model: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    path = tmp_path / "untimed.jsonl"
    path.write_text('{"audio_filepath": "a.wav", "text": "the quick fox"}\n')
    with pytest.raises(UserError, match="0 of 1 utterances have word times"):
        find(settings(model, path))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("limit=0", "limit=0: must be 1 or more"),
        ("model.path=./gone", "there is no such folder"),
    ],
)
def test_bad_settings_are_answered_with_a_remedy(
    model: Path, manifest: Path, override: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        find(settings(model, manifest, override))


def test_a_hub_name_cannot_be_written_to() -> None:
    with pytest.raises(UserError, match="write=false"):
        write_heads(Path("openai/whisper-tiny.en"), [(1, 0)])


def test_the_configuration_composes_to_mini_dev() -> None:
    full = compose_raw([], config_name="align_heads")
    assert (full.data.split, full.write) == ("dev", True)
