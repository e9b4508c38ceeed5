"""The hush word's method: cost, paddings, rounds, the pipeline, bad input."""

from __future__ import annotations

import functools
import math
import random
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny import noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from experiments.hush_word.tables import reduce_ratio
from streaming_asr import contract
from streaming_asr.config.build import new_method
from streaming_asr.contract import committed
from streaming_asr.corpora import MINI, Mini
from streaming_asr.corpora.audio import load_audio
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.methods.hush_word import pipeline
from streaming_asr.methods.hush_word.padding import (
    FILE_NAME,
    PADDINGS,
    PaddedEncoder,
    make_padding,
)
from streaming_asr.methods.hush_word.pipeline import Worker, best_split, splits_of
from streaming_asr.methods.hush_word.recogniser import StreamRecogniser
from streaming_asr.methods.hush_word.search import ReferenceGuide, punctuation
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.streaming import load_method
from streaming_asr.whisper.agreement import key
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import encode, encode_padded, encode_parts
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.search import BeamSearch
from streaming_asr.whisper.together import alone as by_itself
from streaming_asr.whisper.transcribe import WindowDecoder

CHUNK, FIRST = 4800, 9600


def tiny() -> str:
    """The folder of a tiny Whisper, with a context of 4 s."""
    return str(tiny_folder())


@functools.cache
def whisper():
    return load_whisper(tiny())


@pytest.fixture
def hush(tmp_path):
    """A folder with a made-up hush word of 0.5 s."""
    save_file({"samples": torch.from_numpy(0.02 * noise(0.5, seed=9))}, tmp_path / FILE_NAME)
    return str(tmp_path)


def method_of_folder(folder, **options):
    return new_method("hush_word", folder, **{"padding": "zeros", **options})


def steps(method, audio, size=CHUNK, first=FIRST, language=None):
    state = method.start(language=language)
    ends = [*range(first, max(len(audio), 1), size), len(audio)]
    return [
        method.step(state, audio[begin:end], last=end == len(audio))
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


# -- cost ---------------------------------------------------------------------------------------

MEDIUM = SimpleNamespace(d_model=1024, encoder_ffn_dim=4096, encoder_layers=24, num_mel_bins=80)


@pytest.mark.parametrize(
    ("n_frames", "printed"), [(1500, 569.4), (465, 152.5), (515, 170.6), (715, 243.8)]
)
def test_whisperflow_s_table_1_counts_multiplications(n_frames, printed):
    """Its "GFLOPS" of the medium encoder; 465 frames are 9.3 s, then with 1 s and 5 s after."""
    assert encoder_flops(MEDIUM, n_frames) / 2e9 == pytest.approx(printed, rel=2e-3)


def test_a_hush_word_at_10_s_costs_a_third_of_the_padding():
    ratio = encoder_flops(MEDIUM, 1500) / encoder_flops(MEDIUM, 465 + 25)
    assert ratio == pytest.approx(3.5, abs=0.05)


# -- paddings -----------------------------------------------------------------------------------


def encoder(kind, hush=None):
    adapter = hush if kind == "hush" else None
    return PaddedEncoder(whisper(), make_padding(kind, whisper(), weights=adapter))


@pytest.mark.parametrize("kind", PADDINGS)
def test_frames_are_counted_as_they_are_computed(kind, hush):
    padded = encoder(kind, hush)
    for n in (320, 321, 5000, 48_000, padded.limit_samples):
        mel = padded.mel(noise(4.0)[:n])
        assert mel.shape[-1] <= 2 * whisper().context_frames
        assert mel.shape[-1] == 2 * padded.encode(mel).shape[1]
        if n == 48_000:
            assert mel.shape[-1] == 2 * {"full": 200, "none": 150}.get(kind, 175)


def test_full_is_the_offline_encoder_and_the_others_append_before_the_features(hush):
    audio, tail = noise(1.0, seed=4), torch.from_numpy(0.02 * noise(0.5, seed=9))
    samples = torch.from_numpy(audio)
    padded = torch.nn.functional.pad(samples, (0, 3 * 16_000))[None]
    offline = encode_padded(whisper().model, log_mel(padded, 80))
    ours = {}
    for kind in PADDINGS:
        one = encoder(kind, hush)
        ours[kind] = one.encode(one.mel(audio))
    assert torch.allclose(ours["full"], offline, atol=1e-5)
    for kind, joined in (
        ("none", samples),
        ("zeros", torch.cat([samples, torch.zeros(8000)])),
        ("hush", torch.cat([samples, tail])),
    ):
        short = encode(whisper().model, log_mel(joined[None], 80))
        assert torch.allclose(ours[kind], short, atol=1e-5)
    assert not torch.allclose(ours["zeros"], ours["noise"], atol=1e-3)


def test_in_float32_no_convolution_is_compiled_for_every_length(monkeypatch):
    from streaming_asr.methods.hush_word import padding

    seen = []

    def spy(model, parts):
        seen.append(torch.backends.mkldnn.enabled)
        return encode_parts(model, parts)

    monkeypatch.setattr(padding, "encode_parts", spy)
    before = torch.backends.mkldnn.enabled
    one = encoder("zeros")
    one.encode(one.mel(noise(1.0)))
    assert seen == [False] and torch.backends.mkldnn.enabled is before


def test_a_word_of_log_mel_stands_after_the_features(tmp_path):
    tail = torch.linspace(-1, 0.5, 80 * 50).reshape(80, 50)
    save_file({"mel": tail}, tmp_path / FILE_NAME)
    one = PaddedEncoder(whisper(), make_padding("hush", whisper(), weights=str(tmp_path)))
    audio = noise(1.0, seed=4)
    mel = one.mel(audio)
    assert torch.equal(mel[0, :, -50:], tail)
    assert torch.allclose(mel[..., :-50], log_mel(torch.from_numpy(audio)[None], 80))
    assert mel.shape[-1] == 2 * 75 and one.limit_samples == 175 * 320


def test_noise_is_the_same_every_time_and_as_loud_as_a_clamped_word():
    first, second = (make_padding("noise", whisper(), length_s=1.0).samples for _ in range(2))
    assert torch.equal(first, second) and first.numel() == 16_000
    assert 0.019 < float(first.abs().max()) <= 0.02 and abs(float(first.mean())) < 1e-3


# -- rounds -------------------------------------------------------------------------------------


def test_the_recorder_sees_audio_frames_all_frames_and_beams():
    recorder = StepRecorder()
    method = method_of_folder(tiny(), beam=3)
    state = method.start(recorder=recorder)
    method.step(state, noise(1.0), last=False)
    parts, counts = recorder.drain()
    assert (counts["frames_real"], counts["frames_computed"]) == (50, 75)
    assert counts["encoder_flops"] == encoder_flops(whisper().config, 75)
    assert counts["beam_sum"] >= counts["decode_steps"] >= 1
    assert {"feature", "encode", "decode"} <= set(parts)


def mini(**options):
    """The method on mini's model: words, where the tiny model has noise."""
    return new_method("hush_word", str(MINI / "model"), **{"padding": "zeros", **options})


@functools.cache
def speech(n):
    """The first `n` utterances of mini, joined, and their texts."""
    utterances = Mini("clean", limit=n).utterances()
    return np.concatenate([u.load() for u in utterances]), [u.text for u in utterances]


def test_a_round_that_hears_the_same_again_is_narrow():
    audio, _ = speech(1)

    def rounds(method):
        stream, found = StreamRecogniser(method._shared), []
        for _ in range(2):
            recorder = StepRecorder()
            said = stream.transcribe(audio, prompt=None, language=None, recorder=recorder)
            counts = recorder.drain()[1]
            text = [word.text for word in said.words]
            found.append((text, counts["beam_sum"] / counts["decode_steps"]))
        return found

    (first, wide), (second, narrow) = rounds(mini(beam=3))
    assert len(first) > 4 and len(second) > 4
    assert 2.5 < wide <= 3
    assert narrow < wide  # by how much, the weights decide
    assert [text for text, _ in rounds(mini(beam=3, prune=False))] == [first, first]


def test_what_two_rounds_agree_on_is_committed():
    audio, _ = speech(1)
    updates = steps(mini(beam=0), audio, first=16_000)
    assert not updates[0].committed and updates[0].partial  # one round agrees with nothing
    n_agreed = 0
    for before, now in pairwise(updates[:-1]):
        n_agreed += len(now.committed)
        for word, guess in zip(now.committed, before.partial, strict=False):
            assert key(word.text) == key(guess.text)
    assert n_agreed > 2 and committed(updates[-1:])


@pytest.mark.parametrize("ends_with_audio", [True, False])
def test_only_the_last_round_searches_on_after_the_beam_has_ended(ends_with_audio, monkeypatch):
    """The words of a round before come again; those that the last one leaves out are lost."""
    stops_early = []

    def passes(self, *arguments):
        stops_early.append(self.early_stopping)
        return original(self, *arguments)

    original = BeamSearch.passes
    monkeypatch.setattr(BeamSearch, "passes", passes)
    method, audio = mini(), speech(1)[0][: FIRST + 2 * CHUNK]
    state = method.start()
    sizes = [FIRST, CHUNK, CHUNK] if ends_with_audio else [FIRST, 2 * CHUNK, 0]
    at = 0
    for i, size in enumerate(sizes):
        method.step(state, audio[at : at + size], last=i == 2)
        at += size
    assert stops_early == [True, True, False]


def test_with_n_1_nothing_stays_partial():
    updates = steps(mini(beam=0, n=1), speech(1)[0])
    assert all(not update.partial for update in updates) and len(committed(updates)) > 4


def test_a_recording_longer_than_the_context_in_one_delivery_and_in_chunks():
    audio, texts = speech(4)
    n_words = len(" ".join(texts).split())
    duration_s = len(audio) / 16_000
    assert duration_s > 16
    method = mini(beam=0)
    (whole,) = steps(method, audio, first=len(audio))
    state, chunked, longest = method.start(), [], 0
    for begin in range(0, len(audio), 24_000):
        is_last = begin + 24_000 >= len(audio)
        chunked.append(method.step(state, audio[begin : begin + 24_000], last=is_last))
        longest = max(longest, state.buffer.audio.size)
    assert longest <= 15 * 16_000
    for words in (whole.committed, committed(chunked)):
        assert 0.6 * n_words < len(words) < 1.4 * n_words
        ends = [word.end for word in words]
        assert ends == sorted(ends) and method._shared.context_s < ends[-1] <= duration_s


@pytest.mark.parametrize("kind", ["full", "none", "zeros"])
def test_silence_empty_and_tiny_audio(kind):
    method = new_method("hush_word", tiny(), padding=kind, beam=0)
    for audio in (np.zeros(0, np.float32), np.zeros(100, np.float32), np.zeros(30_000, np.float32)):
        assert steps(method, audio)[-1].partial == ()


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.099])
def test_audio_too_short_for_a_word_has_none(seconds):
    weights = str(MINI / "weights/hush_word/any_chunk")
    method = mini(padding="hush", weights=weights)
    audio, _ = speech(1)
    clip = audio[8000 : 8000 + int(16_000 * seconds)]
    assert np.abs(clip).max() > 0.01
    (only,) = steps(method, clip)
    assert only.committed == only.partial == ()


def test_the_text_has_no_more_tokens_than_speech_of_that_length():
    method = method_of_folder(str(tiny_folder(eot_logit=-30.0)), beam=0)
    stream, recorder = StreamRecogniser(method._shared), StepRecorder()
    stream.transcribe(noise(0.5, seed=1), prompt=None, language=None, recorder=recorder)
    assert recorder.drain()[1]["decode_steps"] == 14  # 28 a second


def test_earlier_text_longer_than_the_decoder_is_cut():
    method = method_of_folder(tiny(), beam=0)
    stream = StreamRecogniser(method._shared)
    text = "the quick brown fox " * 40
    found = stream.transcribe(noise(1.5), prompt=text, language=None, recorder=NULL)
    assert all(word.end <= 1.5 for word in found.words)


# -- the pipeline -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pipelined():
    method = method_of_folder(tiny(), beam=2, trim_s=3.0, pipeline="1:1")
    yield method
    method.close()


@pytest.fixture(scope="module")
def alone():
    return method_of_folder(tiny(), beam=2, trim_s=3.0)


def test_pipelined_rounds_say_the_same_one_round_later(pipelined, alone):
    audio = noise(2.9, seed=8)
    ours, theirs = (steps(method, audio)[:-1] for method in (pipelined, alone))
    assert ours[0].partial == ours[0].committed == ()
    assert any(update.partial for update in theirs)
    contract.require_same(ours[1:], theirs[:-1], "a round later")


def test_pipelined_and_alone_end_alike(pipelined, alone):
    """The last step decodes what is on the way and then the whole, as if alone."""
    for seed, duration_s in ((8, 2.9), (2, 1.3), (3, 0.4)):
        audio = noise(duration_s, seed=seed)
        texts = [
            [word.text for word in committed(steps(method, audio))] for method in (pipelined, alone)
        ]
        assert texts[0] == texts[1]


class SameProcess:
    """A pipeline's worker that works at once, in this process. gone: keeps no round; other: gives
    each prefill another prompt, as after words have left the buffer."""

    def __init__(self, method, *, gone=False, other=False):
        self._worker = Worker(method._shared.whisper, method._shared.encoder)
        self.gone, self.other, self.calls = gone, other, []

    def submit(self, audio, prompt):
        self.calls.append("prefill")
        future = Future()
        prefill = self._worker.prefill(len(self.calls), audio, prompt)
        future.set_result(replace(prefill, prompt=(*prompt, 0)) if self.other else prefill)
        return future

    def token_times(self, *arguments):
        times = self._worker.token_times(*arguments)
        self.calls.append(len(times))
        return None if self.gone else times


@functools.cache
def on_mini():
    return load_method("hush_word", model="mini", chunk="1s")


@pytest.mark.parametrize("options", [{}, {"gone": True}, {"other": True}])
def test_the_workers_prompts_and_word_times_change_nothing(options, monkeypatch):
    method = on_mini()
    clip = load_audio(MINI.parent / "voices/audio/af_jessica-0.ogg")
    theirs = steps(method, clip, 16_000, 16_000)
    worker = SameProcess(method, **options)
    monkeypatch.setattr(method, "_worker", worker)
    ours = steps(method, clip, 16_000, 16_000)
    contract.require_same(ours[1:-1], theirs[:-2], "a round later")
    assert [w.text for w in committed(ours)] == [w.text for w in committed(theirs)]
    assert [(w.start, w.end) for w in committed(ours)] == [
        (w.start, w.end) for w in committed(theirs)
    ]
    n_tokens = [call for call in worker.calls if call != "prefill"]
    assert worker.calls.count("prefill") == len(ours) and sum(n_tokens) > 0


def test_the_worker_keeps_the_newest_rounds_and_each_until_it_is_timed():
    method = on_mini()
    worker = Worker(method._shared.whisper, method._shared.encoder)
    prompt = method._shared.prompt_of("en", [])
    for number in range(1, 7):
        worker.prefill(number, noise(0.5), prompt)
    assert worker.token_times(2, prompt, [300], 25) is None
    assert len(worker.token_times(3, prompt, [300], 25)) == 1
    assert worker.token_times(3, prompt, [300], 25) is None


def test_auto_takes_the_split_with_the_shortest_round(monkeypatch):
    assert splits_of(1) == [] and splits_of(2) == [(1, 1)]
    assert splits_of(6) == [(1, 5), (2, 4), (4, 2), (5, 1)]
    worker_s, decoding_s = {1: 8.0, 2: 5.0, 4: 3.0, 5: 2.5}, {5: 1.0, 4: 2.0, 2: 3.5, 1: 6.0}
    assert best_split(splits_of(6), worker_s, decoding_s) == (4, 2)
    assert best_split(splits_of(6), worker_s, dict.fromkeys((1, 2, 4, 5), 5.0)) == (2, 4)
    threads, calls = [], []
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    halves = (lambda: calls.append("worker"), lambda: calls.append("decoding"))
    assert pipeline.profile(halves, 1) == (1, 1) and calls == threads == []
    assert pipeline.profile(halves, 3) in splits_of(3)
    assert threads == [1, 2, 1, 2, 3] and calls == ["worker"] * 4 + ["decoding"] * 4


def test_auto_compares_the_two_halves_of_a_round(monkeypatch, capsys):
    seen = []

    def run(halves, n_threads):
        seen.extend(half() for half in halves)
        return 2, 1

    monkeypatch.setattr("streaming_asr.methods.hush_word.stream.profile", run)
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    method = method_of_folder(tiny(), beam=2, pipeline="auto")
    method.close()
    assert seen[0] is None and seen[1] and seen[2] == 1  # what was decoded, the decoding's threads
    assert "pipeline=auto: 2:1" in capsys.readouterr().err


# The buffer is cut at 3 s, so that rounds are dropped on the way.
PIPED = contract.Setting(CHUNK, FIRST, noise(5.2, seed=1), noise(1.7, seed=2))


@pytest.mark.parametrize(
    "check",
    [
        contract.committed_only_grows,
        contract.interleaved_streams_equal_each_alone,
        contract.no_peeking,
        contract.empty_silent_and_short_audio,
        contract.any_delivery,
        contract.word_times_are_monotone_and_inside_the_audio,
    ],
)
def test_the_pipeline_keeps_the_contract(pipelined, check):
    check(pipelined, PIPED)


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "tensors", [{"samples": torch.zeros(2, 8)}, {"mel": torch.zeros(128, 50)}, {"x": torch.ones(3)}]
)
def test_a_file_that_holds_no_hush_word_for_the_model_is_refused(tmp_path, tensors):
    save_file(tensors, tmp_path / FILE_NAME)
    with pytest.raises(UserError, match="is wanted"):
        new_method("hush_word", tiny(), weights=str(tmp_path))
    (tmp_path / FILE_NAME).write_text("not tensors")
    with pytest.raises(UserError, match="safetensors"):
        new_method("hush_word", tiny(), weights=str(tmp_path))


def test_ten_minutes_in_chunks_keep_no_more_than_the_context():
    folder = str(tiny_folder(eot_logit=60.0, d_model=16))
    method = new_method(
        "hush_word", folder, padding="zeros", beam=0, chunk_s=2.0, first_chunk_s=2.0
    )
    state = method.start()
    piece = noise(2.0, seed=3)
    for _ in range(300):
        method.step(state, piece, last=False)
        buffer = state.buffer
        assert buffer.audio.size <= 4 * 16_000 and buffer.audio.base is None
        assert len(buffer._committed) <= 200 and len(state.recogniser._reference) <= 64


# -- Beam pruning --


COMMA, EOT, N_TOKENS = 8, 9, 10


class Rows:
    """A cache that holds the tokens themselves."""

    def __init__(self, n):
        self.rows = [[] for _ in range(n)]

    def reorder(self, parents, n_tokens):
        if list(parents) == list(range(len(parents))):
            return
        self.rows[: len(parents)] = [self.rows[parent][:n_tokens] for parent in parents]


class Table:
    """A decoder whose distributions are written down: text so far -> {token: probability}.

    After a text that is not in the table all tokens are as unlikely, the end most of all.
    """

    max_tokens = 40

    def __init__(self, table):
        self.table = table
        self.n_passes = 0

    def part(self, cache, feed, starts, n_frames, *, take, on_cross, bias, n_next):
        self.n_passes += 1
        texts = []
        for row, tokens, start in zip(cache.rows, feed, starts, strict=False):
            assert len(row) >= start  # tokens of a draft that were not taken are written over
            row[start:] = tokens
            # without the prompt
            texts += [tuple(row[1:stop]) for stop in range(len(row) - n_next + 1, len(row) + 1)]
        return texts

    def next_log_probs(self, parts):
        return [self.of(texts) for texts in parts]

    def of(self, texts):
        probabilities = torch.full((len(texts), N_TOKENS), 1e-6)
        for row, text in zip(probabilities, texts, strict=True):
            for token, probability in self.table.get(text, {EOT: 1e-9}).items():
                row[token] = probability
        return probabilities.log()


class Steps:
    """Counts decoder steps and the narrow ones among them."""

    def __init__(self):
        self.widths = []

    def part(self, name):
        return nullcontext()

    def count(self, *, decode_steps, beam_sum):
        assert decode_steps == 1
        self.widths.append(beam_sum)


def skips(token):
    return token >= COMMA


def decode(table, reference=None, beam=2, early_stopping=True):
    """(text, width of each step, the full ones at the end as one)."""
    best, widths, _ = searched(Table(table), reference, beam, early_stopping=early_stopping)
    while beam > 1 and widths[-2:] == [beam, beam]:
        widths.pop()
    return list(best.tokens), widths


class StepByStep(ReferenceGuide):
    """It feeds one token after another."""

    def draft(self, last):
        return ()


def searched(decoder, reference, beam, *, early_stopping=True, guide=ReferenceGuide):
    """(hypothesis, width of each step, number of passes)."""
    followed = None if reference is None else guide(reference, skips)
    search = BeamSearch(decoder, EOT, beam, early_stopping=early_stopping)
    steps = Steps()
    best = by_itself(search.passes(Rows(beam), [0], 5, 20, steps, followed), NULL)
    return best, steps.widths, decoder.n_passes


# Greedy says 1 2 3; but 1 4 5 is the likelier text: a wide search finds it.
FORKED = {
    (): {1: 0.9},
    (1,): {2: 0.5, 4: 0.45},
    (1, 2): {3: 0.4, 6: 0.35},
    (1, 4): {5: 0.95},
    (1, 2, 3): {EOT: 0.9},
    (1, 4, 5): {EOT: 0.9},
}


def says(*tokens):
    """A table that says these."""
    return {tokens[:n]: {token: 0.9} for n, token in enumerate((*tokens, EOT))}


def test_without_a_reference_it_is_the_plain_beam_search():
    assert decode(FORKED) == ([1, 4, 5], [1, 2])
    assert decode(FORKED, beam=1) == ([1, 2, 3], [1, 1, 1, 1])


def test_the_text_of_the_round_before_is_followed_at_width_one_to_its_end():
    assert decode(FORKED, [1, 2, 3]) == ([1, 2, 3], [1, 1, 1, 1])


def test_the_start_of_the_reference_may_be_gone():
    assert decode(FORKED, [6, 7, 1, 2, 3]) == ([1, 2, 3], [1, 1, 1, 1])


def test_a_first_token_that_the_reference_lacks_falls_back_at_once():
    assert decode(FORKED, [2, 3]) == ([1, 4, 5], [1, 2])


def test_a_mismatch_falls_back_and_the_search_stays_wide():
    assert decode(FORKED, [1, 4, 5]) == ([1, 4, 5], [1, 1, 2])
    # 3 after the fallback is in the reference again, and changes nothing.
    assert decode(says(1, 2, 3, 4), [1, 5, 3, 4]) == ([1, 2, 3, 4], [1, 1, 2])


def test_the_reference_s_end_is_a_mismatch():
    assert decode(FORKED, [1]) == ([1, 4, 5], [1, 1, 2])


def test_punctuation_is_skipped_on_both_sides():
    said = says(1, COMMA, 2, 3)
    for reference in ([1, 2, 3], [1, 2, COMMA, 3]):
        assert decode(said, reference) == ([1, COMMA, 2, 3], [1] * 5)
    # A mark does not move the reference on: a later mismatch is still found.
    assert decode(said, [1, 3])[1] == [1, 1, 1, 2]


def test_empty_text_and_the_limit_of_tokens():
    assert decode({(): {EOT: 0.9}}, [1, 2]) == ([], [1])
    endless = {tuple([1] * n): {1: 0.9} for n in range(50)}
    assert len(decode(endless, [1] * 50)[0]) == len(decode(endless)[0]) == 20


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_unlikely_ends_in_mid_text_do_not_stop_the_search(beam):
    """Each token of the text is as likely as the others and likelier than an end before it."""
    drawn = random.Random(beam)
    n_stopped = 0
    for _ in range(40):
        text = tuple(drawn.choices(range(1, COMMA), k=drawn.randint(3, 12)))
        p = drawn.uniform(0.55, 0.9)
        table = {
            text[:n]: {token: p, EOT: drawn.uniform(0.005, 0.2), drawn.randrange(COMMA): 0.01}
            | {token: p}
            for n, token in enumerate(text)
        }
        table[text] = {EOT: 0.9}
        reference = list(text[: drawn.randint(0, len(text))])
        assert decode(table, reference, beam, early_stopping=False)[0] == list(text)
        n_stopped += decode(table, reference, beam)[0] != list(text)
    assert n_stopped == 0 if beam == 1 else n_stopped > 5


def test_once_enough_have_ended_only_better_hypotheses_go_on():
    table = {
        (): {1: 0.9},
        (1,): {2: 0.9, EOT: 0.05, 3: 0.01},
        (1, 2): {3: 0.9, EOT: 0.05},
        (1, 2, 3): {EOT: 0.9},
    }
    assert decode(table, [1]) == ([1, 2], [1, 1, 2])
    # 1 2 3 goes on by itself: 1 3 and what follows is worse than the end after 1 2.
    assert decode(table, [1], early_stopping=False) == ([1, 2, 3], [1, 1, 2, 1])


@pytest.mark.parametrize(
    ("reference", "n_passes"),
    [
        ([], 5),
        ([1, COMMA, 2, 3], 1),
        ([1, 2, 3], 2),  # and one behind the mark that the reference lacks
        ([6, 7, 1, COMMA, 2, 3], 2),  # and one behind the first token that was found in it
        ([1, COMMA, COMMA, 2, 3], 2),
        ([1, COMMA, 2, 4], 2),  # and one from the mismatch on
    ],
)
def test_the_text_of_the_round_before_is_fed_in_one_pass(reference, n_passes):
    decoder = Table(says(1, COMMA, 2, 3))
    best, widths, n = searched(decoder, reference, 1)
    assert (list(best.tokens), widths, n) == ([1, COMMA, 2, 3], [1] * 5, n_passes)


class RandomTable:
    """A table with three random tokens after every text."""

    def __init__(self, seed):
        self.seed = seed

    def get(self, text, default):
        rng = random.Random(f"{self.seed} {text}")
        return {rng.randrange(1, N_TOKENS): rng.random() for _ in range(3)}


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_search_is_the_same_with_and_without_the_draft(beam):
    drawn = random.Random(beam)
    n_passes = [0, 0]
    for _ in range(60):
        table = RandomTable(drawn.random())
        reference = drawn.choices(range(1, EOT), k=drawn.randint(0, 12))
        if drawn.random() < 0.8:  # most texts come again, changed somewhere
            text = searched(Table(table), None, 1)[0].tokens
            at = drawn.randint(0, len(text))
            reference = [*text[:at], *reference[:1], *text[at + drawn.randint(0, 1) :]]
        (a, a_widths, a_passes), (b, b_widths, b_passes) = (
            searched(Table(table), reference, beam, guide=guide)
            for guide in (StepByStep, ReferenceGuide)
        )
        assert (a, a_widths) == (b, b_widths)
        assert b_passes <= a_passes
        n_passes = [n_passes[0] + a_passes, n_passes[1] + b_passes]
    assert n_passes[1] < 0.9 * n_passes[0]


TABLE_4 = [(2.794, 0.552), (2.807, 0.548), (2.852, 0.537), (2.556, 0.611), (2.577, 0.606)]
TABLE_4 += [(2.570, 0.608), (2.257, 0.686), (2.374, 0.657), (2.425, 0.644)]


@pytest.mark.parametrize(("mean_beam", "ratio"), TABLE_4)
def test_mean_beam_and_reduce_ratio_of_the_paper_s_table_4(mean_beam, ratio):
    assert reduce_ratio(mean_beam, 5) == pytest.approx(ratio, abs=0.0015)


def test_a_ratio_needs_two_widths():
    assert reduce_ratio(None, 5) is None and reduce_ratio(1.0, 1) is None


# -- on a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoded():
    """(whisper, cache with a window's frames, the windows' decoder), beam 3."""
    whisper = load_whisper(tiny_folder())
    windows = WindowDecoder(whisper, beam=3, max_tokens=20)
    found = {}
    for seed in (1, 2, 3):
        window = windows.decode(noise(3.0, seed=seed), None, NULL)
        found[seed] = window
    return whisper, windows, found


def search(whisper, windows, window, reference=None, max_tokens=20):
    cache = DecoderCache(windows.decoder, rows=3)
    cache.cross_keys, cache.cross_values = window.cache.cross_keys, window.cache.cross_values
    steps = Steps()
    followed = None
    if reference is not None:
        followed = ReferenceGuide(reference, punctuation(whisper))
    n_frames = whisper.context_frames
    passes = windows.search.passes(cache, window.prompt, n_frames, max_tokens, steps, followed)
    return by_itself(passes, steps), steps.widths


def plain(whisper, model, hidden, prompt, beam, max_tokens):
    """Beam search on transformers' own model; everything is computed again for each token."""
    live, ended = [([], [])], []
    while live and len(ended) < beam:
        options = []
        for tokens, log_probs in live:
            ids = torch.tensor([[*prompt, *tokens]])
            with torch.inference_mode():
                logits = model(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[0, -1]
            all_ = (logits + whisper.suppressed).log_softmax(-1)
            options += [
                ([*tokens, token], [*log_probs, value])
                for value, token in zip(*map(torch.Tensor.tolist, all_.topk(50)), strict=True)
            ]
        options.sort(key=lambda option: -sum(option[1]))
        live = []
        for tokens, log_probs in options:
            if tokens[-1] == whisper.eot:
                ended.append((tokens[:-1], log_probs))
            else:
                live.append((tokens, log_probs))
            if len(live) == beam or len(ended) == beam:
                break
        if len(live[0][0]) == max_tokens:
            ended = ended or live
            break
    return max(ended, key=lambda option: sum(option[1]) / len(option[1]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_unpruned_it_finds_what_a_plain_search_on_transformers_finds(encoded, seed):
    whisper, windows, found = encoded
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder()).eval()
    samples = torch.from_numpy(noise(3.0, seed=seed))[None]
    padded = torch.nn.functional.pad(samples, (0, whisper.context_frames * 320 - 48_000))
    with torch.inference_mode():
        hidden = model.model.encoder(log_mel(padded, whisper.n_mels)).last_hidden_state
    tokens, log_probs = plain(whisper, model, hidden, found[seed].prompt, 3, 8)
    ours, widths = search(whisper, windows, found[seed], max_tokens=8)
    assert list(ours.tokens) == tokens
    assert list(ours.log_probs) == pytest.approx(log_probs, abs=1e-4)
    assert set(widths) <= {1, 3} and widths[0] == 1


def test_following_the_greedy_text_is_greedy_and_mean_beam_fits_the_ratio(encoded):
    whisper, windows, found = encoded
    greedy_search = BeamSearch(windows.decoder, whisper.eot, 1)
    for window in found.values():
        cache = DecoderCache(windows.decoder, rows=1)
        cache.cross_keys, cache.cross_values = window.cache.cross_keys, window.cache.cross_values
        passes = greedy_search.passes(cache, window.prompt, whisper.context_frames, 20, Steps())
        greedy = by_itself(passes, NULL)
        text = [token for token in greedy.tokens if not punctuation(whisper)(token)]
        if len(text) < 3:
            continue
        ours, widths = search(whisper, windows, window, text)
        # Where a token comes twice the first is found, so the start must be unlike the rest.
        if text.index(text[0]) == 0:
            assert ours.tokens == greedy.tokens and set(widths) == {1}
        cut, widths = search(whisper, windows, window, text[:2])
        mean = sum(widths) / len(widths)
        assert reduce_ratio(mean, 3) == pytest.approx(widths.count(1) / len(widths))
        assert math.isfinite(cut.mean_log_prob)
        return
    raise AssertionError("no text long enough to follow")


def test_punctuation_has_no_letter_or_digit():
    whisper = load_whisper(tiny_folder(multilingual=True))
    is_skipped = punctuation(whisper)
    ids = {text: whisper.text_tokens(text)[-1] for text in ",.a3 "}
    assert [is_skipped(ids[text]) for text in ",.a3 "] == [True, True, False, False, True]
    assert is_skipped(whisper.eot) and is_skipped(whisper.eot + 5)
    half = whisper.text_tokens("ü")[0]
    if whisper.detokenizer.token_bytes(half) == b"\xc3":
        assert not is_skipped(half)  # a part of a letter
