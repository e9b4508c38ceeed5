"""None"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tiny import noise, tiny_folder

from streaming_asr.align import auto, ctc, english
from streaming_asr.align.ctc import CtcAligner, U2Head, grow
from streaming_asr.align.viterbi import ANYTHING, align
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.branch_files import read_branch
from streaming_asr.models.find import Found
from streaming_asr.utterance import Utterance

BLANK = 0


def utterance(text, samples=None, name="u"):
    audio = noise(2.0) if samples is None else samples
    return Utterance(id=name, text=text, audio=lambda: audio, duration_s=len(audio) / 16_000)


# -- the best path --------------------------------------------------------------------------


def collapse(path):
    return [k for k, _ in itertools.groupby(path) if k != BLANK]


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 1], [2, 1, 2], [1, 1, 1], [1, 2, 2]])
def test_the_path_is_the_best_of_all_that_spell_the_text(tokens):
    random = np.random.default_rng(len(tokens))
    for n_frames in (3, 5, 6):
        log_probs = np.log(random.dirichlet(np.ones(3), n_frames)).astype(np.float32)
        every = [
            path
            for path in itertools.product(range(3), repeat=n_frames)
            if collapse(path) == tokens
        ]
        found = align(log_probs, tokens, BLANK)
        if not every:
            assert found is None
            continue
        best = max(every, key=lambda p: sum(log_probs[t, k] for t, k in enumerate(p)))
        spans, t = [], 0
        for token, group in itertools.groupby(best):
            n = len(list(group))
            if token != BLANK:
                spans.append((t, t + n))
            t += n
        assert found == spans


def test_a_blank_that_is_not_class_zero():
    log_probs = np.log(np.array([[0.1, 0.9], [0.8, 0.2], [0.1, 0.9]], np.float32))
    assert align(log_probs, [0], blank=1) == [(1, 2)]


def test_anything_takes_all_sounds_between_its_neighbours():
    """A 1 x x 2 with blanks at the edges: what is not in the alphabet is between 1 and 2."""
    frames = [0, 1, 0, 3, 0, 4, 3, 0, 0, 2, 0]
    log_probs = np.log(np.full((len(frames), 5), 0.01, np.float32))
    log_probs[np.arange(len(frames)), frames] = np.log(0.96)
    assert align(log_probs, [1, ANYTHING, 2], BLANK) == [(1, 2), (3, 7), (9, 10)]


def test_no_text_and_too_much_text():
    log_probs = np.zeros((2, 3), np.float32)
    assert align(log_probs, [], BLANK) == []
    assert align(log_probs, [1, 1], BLANK) is None  # three frames: a blank stands between


# -- words ----------------------------------------------------------------------------------


def test_spikes_grow_over_the_sound_around_them_to_the_middle_at_most():
    samples = np.zeros(16_000, np.float32)
    samples[1600:8000] = 0.5  # 0.1 .. 0.5 s: two words without a pause
    samples[11_200:14_400] = 0.5  # 0.7 .. 0.9 s
    words = grow(["a", "b", "c"], [(0.2, 0.22), (0.4, 0.42), (0.8, 0.82)], samples)
    np.testing.assert_allclose(
        [w[1:] for w in words], [(0.1, 0.31), (0.31, 0.5), (0.7, 0.9)], atol=1e-6
    )


class Known:
    """Emits a and b where a test says."""

    blank = 0

    def __init__(self, frames: Sequence[int]) -> None:
        self.frames = frames

    def log_probs(self, samples: Any) -> tuple[Any, float]:
        found = np.log(np.full((len(self.frames), 3), 0.015, np.float32))
        found[np.arange(len(self.frames)), self.frames] = np.log(0.97)
        return found, len(samples) / 16_000 / len(self.frames)

    def spell(self, word: str) -> list[int]:
        return [{"a": 1, "b": 2}.get(c, ANYTHING) for c in word.lower()]


def aligner(monkeypatch, frames, delay_s=0.0):
    monkeypatch.setattr(ctc, "U2Head", lambda *_: Known(frames))
    return CtcAligner(str(english.HOME), "none", delay_s=delay_s)


def test_a_text_gets_the_times_that_the_model_emits_it_at(monkeypatch):
    tone = np.sin(np.arange(32_000) / 5).astype(np.float32)
    tone[9600:16_000] = 0  # a pause at 0.6 .. 1.0 s
    frames = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]  # of 100 ms
    (result,) = aligner(monkeypatch, frames).align([utterance("Ab, ba", tone)])
    assert result.words is not None
    assert [w.text for w in result.words] == ["Ab,", "ba"]
    np.testing.assert_allclose([w[1:] for w in result.words], [(0.0, 0.6), (1.0, 2.0)], atol=0.021)


def test_what_a_causal_model_emits_late_is_put_back(monkeypatch):
    noise = np.full(32_000, 0.3, np.float32)  # sound everywhere: words meet between their spikes
    frames = [0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0]  # of 100 ms
    late = [0, 0, *frames[:-2]]
    said = [utterance("Ab, ba", noise)]
    (prompt,) = aligner(monkeypatch, frames).align(said)
    (delayed,) = aligner(monkeypatch, late).align(said)
    (put_back,) = aligner(monkeypatch, late, delay_s=0.2).align(said)
    assert prompt.words and put_back.words and delayed.words
    np.testing.assert_allclose([w[1:] for w in put_back.words], [w[1:] for w in prompt.words])
    assert delayed.words[1].start == pytest.approx(prompt.words[1].start + 0.2)
    (early,) = aligner(monkeypatch, frames, delay_s=0.2).align(said)  # its first spike: at 0.1 s
    assert early.words is not None and early.words[0].start == 0.0
    with pytest.raises(UserError, match=r"aligner\.delay_s=-0\.1: 0 or more"):
        aligner(monkeypatch, frames, delay_s=-0.1)


def test_what_cannot_be_aligned_is_named_and_the_rest_goes_on(monkeypatch):
    said = [utterance("aaa", name="long"), utterance("", name="none"), utterance("xyz", name="x")]
    long, none, other, good = aligner(monkeypatch, [0, 1, 0]).align([*said, utterance("a")])
    assert "3 tokens of text for 3 frames of 667 ms" in long.reason
    assert none.reason.startswith("none: has no text")
    assert "the model has no letter of 'xyz'" in other.reason
    assert good.words is not None


# -- the package's model of English ---------------------------------------------------------


def test_the_packages_branch_and_its_adapter_are_the_frozen_ones():
    card = read_branch(english.branch_folder("none"), "none")  # it checks the adapter's sha256
    assert (card.classes, card.adapter[:12]) == (501, "408474e3a4b3")


def test_files_of_another_training_do_not_time_words(tmp_path, monkeypatch):
    copy = tmp_path / "aligner"
    shutil.copytree(english.branch_folder("none"), copy)
    monkeypatch.setattr(english, "HOME", copy)
    assert english.branch_folder("none") == copy
    content = bytearray((copy / "branch.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "branch.safetensors").write_bytes(content)
    with pytest.raises(UserError, match=f"no files with the hash {english.HASH} in .*aligner.path"):
        english.branch_folder("none")
    shutil.rmtree(copy)
    with pytest.raises(UserError, match=f"no files with the hash {english.HASH}"):
        english.branch_folder("none")


def test_the_packages_branch_is_refused_on_another_whisper():
    with pytest.raises(UserError, match=r"runs on tiny.en, and model.path=.* give model=tiny.en"):
        CtcAligner(None, str(tiny_folder()))


def test_the_packages_branch_aligns_no_other_language(monkeypatch):
    monkeypatch.setattr(ctc, "U2Head", lambda *_: Known([0, 1, 0]))
    clips = [replace(utterance("a"), language=language) for language in ("de", "en", None)]
    german, *rest = CtcAligner(None, "none").align(clips)
    assert german.words is None and "knows en only" in german.reason
    assert all(each.words for each in rest)


def test_data_align_ctc_names_the_aligner_and_its_files(monkeypatch):
    monkeypatch.setattr(auto, "find", lambda path: Found(tiny_folder(), False, "here"))
    monkeypatch.setattr(english, "branch_folder", lambda path: None)
    chosen = auto.AutoAligner.choose("ctc", {"en"})
    assert chosen.name.startswith("ctc-tiny.en ") and chosen.config.aligner.path is None
    assert auto.AutoAligner.choose("auto", {"en"}).name == chosen.name
    monkeypatch.setattr(english, "HASH", "0" * 16)
    assert auto.AutoAligner.choose("ctc", set()).name != chosen.name
    with pytest.raises(UserError, match=r"data.align=ctc: .* knows en only, .* has de, fr; take"):
        auto.AutoAligner.choose("ctc", {"fr", "en", "de"})


def test_a_folder_without_a_head_is_refused():
    with pytest.raises(
        UserError, match=r"aligner\.path=\./nowhere: no CTC head or branch there; give"
    ):
        CtcAligner("./nowhere", "none")


# -- our own heads --------------------------------------------------------------------------


def test_the_head_that_training_u2_leaves_aligns(tmp_path):
    from streaming_asr.methods.u2.head import embedding_head, save_head
    from streaming_asr.whisper.load import load_whisper

    model = tiny_folder()
    whisper = load_whisper(model)
    save_head(embedding_head(whisper, whisper.eot), tmp_path)
    made = CtcAligner(str(tmp_path), str(model))
    good, long = made.align(
        [utterance("The quick brown fox 12."), utterance("The fox", noise(4.5), "long")]
    )
    assert good.words is not None
    assert [w.text for w in good.words] == ["The", "quick", "brown", "fox", "12."]
    edges = [edge for word in good.words for edge in word[1:]]
    assert edges == sorted(edges) and edges[-1] <= 2.0
    assert "4.5 s of audio, the model takes 4 s" in long.reason
    head = U2Head(tmp_path, str(model), "cpu", "float32")
    log_probs, frame_s = head.log_probs(noise(1.01))
    assert log_probs.shape == (51, whisper.eot + 1) and frame_s == 0.02
