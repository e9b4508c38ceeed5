"""STAR as a method: a stream in chunks equals one pass, options, windows, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from star_tiny import model_folder, star_folder
from tiny import noise, tiny_folder
from traces import a_step

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.methods.star.decoder import AnchorDecoder, seen
from streaming_asr.methods.star.network import load_star
from streaming_asr.metrics import Trace, compute, queued
from streaming_asr.simulate.recorder import StepRecorder

AUDIO = noise(3.1, seed=4)


def method(folder=None, **options):
    chunks = {"chunk_s": 0.1, "first_chunk_s": 0.2}
    weights = folder and str(folder)
    return new_method("star", str(model_folder()), weights=weights, **chunks, **options)


def stream(star, audio, samples=None, recorder=None):
    """(words, state) of the audio in deliveries of so many samples, or in one."""
    samples = samples or max(1, len(audio))
    state = star.start() if recorder is None else star.start(recorder=recorder)
    words = []
    starts = range(0, max(1, len(audio)), samples)
    for start in starts:
        update = star.step(
            state, audio[start : start + samples], last=start + samples >= len(audio)
        )
        words += update.committed
    assert update.partial == ()
    return [w.text for w in words], state


def test_words_on_silence_are_anchors_that_want_a_token_and_may_not_have_the_end():
    """Where the model finds that nothing was said, an anchor has its next best token."""
    folder = tiny_folder(seed=3, eot_logit=60.0)
    star = new_method("star", str(folder), chunk_s=0.1, first_chunk_s=0.2, wait_k=1)
    words, state = stream(star, np.zeros(48_000, np.float32), 1600)
    assert state.cache.n_anchors > 5 and words


NETWORKS = {
    "star": {},
    "residual": {"carry": True},
    "cif": {"compressor": "cif"},
    "cnn": {"compressor": "cnn", "rate": 12.0},
    "none": {"compressor": "none"},
    "copies": {"copies": True, "layers": 1},
}
SETTINGS = {
    "wait 1": {"wait_k": 1},
    "fixed": {"stride_s": 0.2},
    "all": {"stride_s": 0.2, "keep_all": True},
    "top k": {"rate": 12.0},
}


@pytest.mark.parametrize(
    ("network", "options"),
    [*((n, {}) for n in NETWORKS.values()), *(({}, s) for s in SETTINGS.values())],
    ids=[*NETWORKS, *SETTINGS],
)
def test_a_stream_in_chunks_equals_the_same_audio_at_once(network, options):
    star = method(star_folder(**network), **options)
    words, state = stream(star, AUDIO)
    assert len(state.tokens) > 2 and np.std(state.log_probs) > 1e-2
    for samples in (1600, 777, 16_000):
        again, other = stream(star, AUDIO, samples)
        assert (again, other.tokens, other.ends) == (words, state.tokens, state.ends)
        assert other.log_probs == pytest.approx(state.log_probs, abs=1e-4)


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("wait_k", [1, 3])
def test_a_stream_equals_one_teacher_forced_pass_over_everything(network, wait_k):
    folder = star_folder(**network)
    star = method(folder, wait_k=wait_k)
    _, state = stream(star, AUDIO, 1600)
    whisper, built = load_star(str(model_folder()), folder)
    n_frames = -(-len(AUDIO) // 320)
    ends = [10, *range(15, n_frames + 5, 5)]
    padded = np.pad(AUDIO, (0, ends[-1] * 320 + 200 - len(AUDIO)))
    with torch.inference_mode():
        x = built.extractor.windows([torch.from_numpy(padded)], [ends])[0][:n_frames]
        found = built.compressor.compress(x)
        ids = [*state.prompt, *state.tokens]
        n_prompt = len(state.prompt)
        limits = [seen(i, n_prompt, wait_k, found.ready) for i in range(len(ids))]
        decoder = AnchorDecoder(whisper.model)
        hidden = decoder.forward(ids, found.vectors, found.scores, limits)
        logits = decoder.logits(hidden[n_prompt - 1 :]) + whisper.suppressed
    logits = logits.clone()
    assert found.ends == state.ends and len(state.tokens) > 5
    n_streamed = max(0, len(found.ready) - wait_k)  # the last anchor came with the end
    for i, token in enumerate(state.tokens):
        if i < n_streamed:
            logits[i, whisper.eot] = -torch.inf  # not before the end of the audio
        assert int(logits[i].argmax()) == token, i


def test_one_token_for_every_anchor_after_wait_k():
    for wait_k in (1, 3, 5):
        star = method(star_folder(), wait_k=wait_k)
        state = star.start()
        for start in range(0, 40_000, 1600):
            star.step(state, AUDIO[start : start + 1600], last=False)
            assert len(state.tokens) == max(0, len(state.ready) - wait_k + 1)
        assert len(state.tokens) > 3


def test_keys_of_anchors_are_appended_and_never_change():
    star, state = method(star_folder()), None
    state = star.start()
    star.step(state, AUDIO[:16_000], last=False)
    before = [k.clone() for k in state.cache.cross_keys]
    star.step(state, AUDIO[16_000:], last=True)
    for old, now in zip(before, state.cache.cross_keys, strict=True):
        assert now.shape[1] > old.shape[1] > 2 and torch.equal(now[:, : old.shape[1]], old)


def test_a_window_is_cut_and_the_stream_goes_on_the_same_however_it_arrives():
    audio = noise(11.0, seed=8)  # the model hears 4 s
    for options in ({}, {"wait_k": 1}, {"rate": 10.0}):
        star = method(star_folder(), **options)
        words, state = stream(star, audio)
        assert state.window_start > 200 and state.position <= 200 and len(words) > 10
        for samples in (1600, 5000):
            again, other = stream(star, audio, samples)
            assert again == words and other.window_start == state.window_start


def test_short_silent_and_empty_audio():
    for options in ({}, {"rate": 1000.0}, {"stride_s": 10.0}):
        star = method(star_folder(), **options)
        assert stream(star, np.zeros(0, np.float32))[0] == []
        for audio in (AUDIO[:1], AUDIO[:300], np.zeros(16_000, np.float32)):
            _, state = stream(star, audio)  # shorter than an anchor: its end is one
            assert state.ends[-1] == max(1, -(-len(audio) // 320)) and state.cache.n_anchors >= 1
    assert stream(method(star_folder(), rate=1000.0), AUDIO)[1].cache.n_anchors == 1


def test_a_network_of_another_compressor_or_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="was trained as compressor=cif"):
        method(star_folder(compressor="cif"), compressor="star")
    with pytest.raises(UserError, match=r"no star\.json.*method\.weights=none"):
        method(tmp_path)
    with pytest.raises(UserError, match="does not fit this model"):
        new_method("star", str(model_folder(64)), weights=str(star_folder()))
    with pytest.raises(UserError, match="compressor=cnn: leave out stride_s"):
        method(star_folder(compressor="cnn", rate=12.0), keep_all=True)
    (tmp_path / "star.json").write_text(json.dumps({"compressor": "star", "layers": 2}))
    with pytest.raises(UserError, match="not a file of tensors"):
        method(tmp_path)
    (tmp_path / "star.json").write_text("{")
    with pytest.raises(UserError, match="not readable"):
        method(tmp_path)


def test_the_steps_tell_their_anchors_tokens_and_cache():
    recorder = StepRecorder()
    _, state = stream(method(star_folder()), AUDIO, None, recorder)
    counts = recorder.drain()[1]
    assert counts["anchors"] == state.cache.n_anchors
    assert counts["tokens"] == len(state.tokens)
    assert counts["decoder_cache_bytes"] == state.cache.n_bytes
    assert counts["frames_real"] == -(-len(AUDIO) // 320)
    _, whole = stream(method(star_folder(compressor="none")), AUDIO, None, recorder)
    plain = recorder.drain()[1]
    assert plain["anchors"] == plain["frames_real"] > 2 * counts["anchors"]
    assert plain["decoder_cache_bytes"] == whole.cache.n_bytes
    # What is not of the tokens said is as large as the anchors are many.
    of_anchors = [
        state.cache.n_bytes - sum(part.nbytes for part in (*state.cache.keys, *state.cache.values))
        for state in (state, whole)
    ]
    assert of_anchors[0] * whole.cache.n_anchors == of_anchors[1] * state.cache.n_anchors > 0


def test_compression_cache_and_dal_over_tokens_are_among_a_cells_figures():
    steps = [
        a_step(1.0, 0.0, "a", "a", frames_real=50, anchors=5, tokens=1, decoder_cache_bytes=512),
        a_step(2.0, 0.0, "a b", "a b", frames_real=50, anchors=3, tokens=3,
                  decoder_cache_bytes=2048),
    ]  # fmt: skip
    figures = compute([Trace("u", "a b", 2.0, queued(steps))])
    assert figures["compression"] == 100 / 8 and figures["decoder_cache_kib"] == 2.0
    # four tokens at 500 ms each: 1000; then 2000, 2500, 3000, less 500, 1000, 1500
    assert figures["dal_tokens_cu_ms"] == (1000 + 1500 + 1500 + 1500) / 4
    assert compute([])["compression"] is None and compute([])["decoder_cache_kib"] is None
