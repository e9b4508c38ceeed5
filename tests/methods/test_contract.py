"""The contract, on a fake that keeps it, on fakes that break it, and on every configured method."""

import functools
from collections.abc import Callable
from typing import Any

import fakes
import numpy as np
import pytest
from places import ROOT

from streaming_asr import contract
from streaming_asr.contract import CHECKS, Broken, Setting
from streaming_asr.method import Method

CHECK = Callable[[Method[Any], Setting], None]
CONF = ROOT / "conf" / "method"
WEIGHTS = CONF.parents[1] / "streaming_asr" / "data" / "weights"
CHUNK, FIRST_CHUNK = 4800, 9600  # 300 ms, 600 ms


def setting():
    return Setting(CHUNK, FIRST_CHUNK, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2))


def name(check):
    return check.__name__


@pytest.mark.parametrize("check", CHECKS, ids=name)
@pytest.mark.parametrize(
    "method", [fakes.Ticker(2, 200), fakes.BatchedTicker()], ids=["alone", "batched"]
)
def test_a_method_that_keeps_the_contract_passes(method, check):
    check(method, setting())


BROKEN = [
    (contract.declares_its_lookahead, fakes.Ticker(lookahead_samples=-1)),
    (contract.committed_only_grows, fakes.Retracting()),
    (contract.partial_is_empty_at_the_end, fakes.LeavesPartial()),
    (contract.same_chunks_twice_give_the_same_updates, fakes.Remembers()),
    (contract.interleaved_streams_equal_each_alone, fakes.OneStreamOnly()),
    (contract.step_many_equals_step, fakes.BatchMatters()),
    (contract.streams_out_of_phase_equal_each_alone, fakes.BatchMatters()),
    (contract.no_peeking, fakes.Peeks()),
    (contract.no_peeking, fakes.Remembers()),
    (contract.empty_silent_and_short_audio, fakes.InventsWords()),
    (contract.empty_silent_and_short_audio, fakes.LeavesPartial()),
    (
        contract.word_times_are_monotone_and_inside_the_audio,
        fakes.TimesRunBackwards(),
    ),
    (contract.word_times_are_monotone_and_inside_the_audio, fakes.TimesRunAhead()),
    (contract.same_chunks_twice_give_the_same_updates, fakes.Draws()),
    (contract.text_hardly_depends_on_the_pieces, fakes.CountsPieces()),
    (contract.words_begin_with_their_blank, fakes.NoBlanks()),
]


@pytest.mark.parametrize(
    ("check", "method"), BROKEN, ids=[f"{type(m).__name__}-{c.__name__}" for c, m in BROKEN]
)
def test_each_check_catches_the_method_that_breaks_it(check, method):
    with pytest.raises(Broken):
        check(method, setting())


@pytest.mark.parametrize(
    ("check", "condition"),
    [
        (contract.empty_silent_and_short_audio, lambda audio, heard: len(heard) == 0),
        (
            contract.empty_silent_and_short_audio,
            lambda audio, heard: len(heard) > CHUNK and not heard.any(),
        ),
        (contract.empty_silent_and_short_audio, lambda audio, heard: 0 < len(heard) < CHUNK),
        (contract.any_delivery, lambda audio, heard: len(heard) > CHUNK and len(audio) == 0),
        (contract.any_delivery, lambda audio, heard: len(audio) == 1),
    ],
)
def test_audio_that_a_method_cannot_take_is_found(check, condition):
    with pytest.raises(Broken, match=r"it fails on .*: ArithmeticError: .* \(fakes.py:\d+\)"):
        check(fakes.FailsOn(condition), setting())


@functools.cache
def _speech():
    """Two recordings of mini."""
    from streaming_asr.corpora import Mini

    first, second = (u.load() for u in Mini("clean", limit=2).utterances())
    return first[: 3 * 16_000], second[: 17 * 1600]


@functools.cache
def _with_real_weights(model, method):
    """The method with the package's weights for a real Whisper, where that is on this machine."""
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose
    from streaming_asr.models.find import find_here

    with pytest.MonkeyPatch.context() as theirs:
        theirs.delenv("XDG_CACHE_HOME", raising=False)
        if find_here(f"openai/whisper-{model}") is None:
            pytest.skip(f"{model} is not here; streaming-asr get {model}")
        asked = [f"method={method}", f"model={model}", "chunk=300ms", "tracker=none"]
        return build(compose(asked).method), Setting(CHUNK, FIRST_CHUNK, *_speech())


@functools.cache
def _configured(method, *settings):
    """The method as its YAML describes it, on mini."""
    from streaming_asr.chunking import first_chunk_ms
    from streaming_asr.config.build import build
    from streaming_asr.config.settle import compose

    asked = [f"method={method}", "model=mini", "data=mini", "chunk=300ms", "tracker=none"]
    config = compose([*asked, *settings])
    audio, other = _speech()
    assert not np.array_equal(audio[: len(other)], other)
    first_chunk = first_chunk_ms(config.chunk, config.first_chunk) * 16
    return build(config.method), Setting(CHUNK, first_chunk, audio, other)


METHODS = sorted({path.stem for path in CONF.glob("*.yaml")} - {"native", "remote"})


@pytest.mark.parametrize("check", CHECKS, ids=name)
@pytest.mark.parametrize("method", METHODS)
def test_every_configured_method_keeps_the_contract(method, check):
    check(*_configured(method))


NAMES = "prompt='Ada, Grace'"
PROMPTED = ("hush_word", "offline", "simul_whisper", "u2", "ufal", "whisperrt")
OTHER_SETTINGS = [
    ("whisperrt", "method.beam=3"),
    ("whisperrt", "method.decoder_cache=true"),
    ("ufal", "method.backend=torch"),
    *((method, NAMES) for method in PROMPTED),
]
SEVERAL = [contract.committed_only_grows, contract.no_peeking, contract.step_many_equals_step]


@pytest.mark.parametrize("check", SEVERAL, ids=name)
@pytest.mark.parametrize("settings", OTHER_SETTINGS, ids=str)
def test_other_settings_keep_the_contract(settings, check):
    check(*_configured(*settings))


# What weights can change; the rest is the code's, which the checks above have on mini.
OF_WEIGHTS = (
    contract.committed_only_grows,
    contract.partial_is_empty_at_the_end,
    contract.step_many_equals_step,
    contract.no_peeking,
    contract.empty_silent_and_short_audio,
    contract.word_times_are_monotone_and_inside_the_audio,
)


@pytest.mark.slow
@pytest.mark.parametrize("check", OF_WEIGHTS, ids=name)
@pytest.mark.parametrize(
    ("model", "method"),
    sorted({folder.parts[-3:-1] for folder in WEIGHTS.glob("*/*/any_chunk")}),
)
def test_every_method_keeps_the_contract_with_the_package_s_real_weights(model, method, check):
    check(*_with_real_weights(model, method))


# -- the same audio in other steps ------------------------------------------------------------

# Those whose text depends on where blocks end, or comes after the last step.
SAME_TEXT = ("chunkformer", "offline", "reencode", "star", "u2")
OTHER_TEXT = ("hush_word", "simul_whisper", "ufal", "whisperrt")
MOST_POINTS = 1.0
N_CLIPS = 20


def test_every_method_is_asked_about_its_steps():
    assert sorted(SAME_TEXT + OTHER_TEXT) == METHODS


@pytest.mark.parametrize(
    "settings",
    [*((method,) for method in SAME_TEXT), ("offline", NAMES), ("u2", NAMES)],
    ids=str,
)
def test_where_a_step_ends_changes_nothing(settings):
    streaming, setting = _configured(*settings)
    for audio in (setting.audio, setting.other):
        texts = {contract.text_of(streaming, pieces, setting) for pieces in _steps(audio)}
        assert len(texts) == 1, texts


@pytest.mark.slow
@pytest.mark.parametrize("method", OTHER_TEXT)
def test_larger_steps_lose_no_words(method):
    """A late delivery is heard in one step: it may not make more errors than its chunks do."""
    from streaming_asr.corpora import Mini
    from streaming_asr.training.recipe import dev_wer

    streaming, setting = _configured(method)
    clips = Mini("clean", limit=N_CLIPS).utterances()
    texts = [
        [contract.text_of(streaming, pieces, setting) for pieces in _steps(clip.load(), seed)]
        for seed, clip in enumerate(clips)
    ]
    in_chunks, at_once, at_random = (dev_wer(clips, each) for each in zip(*texts, strict=True))
    assert at_once <= in_chunks + MOST_POINTS
    assert at_random <= in_chunks + MOST_POINTS


def _steps(audio, seed=0):
    """The audio in chunks, in one step, and in steps of 0.1 to 3 s."""
    sizes = np.random.default_rng(seed).integers(1600, 48_000, len(audio) // 1600)
    cuts = [range(FIRST_CHUNK, len(audio), CHUNK), [], np.cumsum(sizes)]
    return [np.split(audio, [cut for cut in each if cut < len(audio)]) for each in cuts]
