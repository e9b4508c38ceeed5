"""The encoder's forms against each other, against transformers, and its cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import noise, tiny_folder
from torch.utils.flop_counter import FlopCounterMode
from transformers import WhisperFeatureExtractor

import streaming_asr.whisper.encoder as encoder_module
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.models import shared
from streaming_asr.whisper.adapters import merge_adapter, with_lora
from streaming_asr.whisper.batched import (
    _encode_padded,
    decode_windows,
    encode_together,
    encode_windows,
)
from streaming_asr.whisper.encoder import (
    StreamingEncoder,
    encode,
    encode_masked,
    encode_padded,
    encode_parts,
    of_rows,
    part_of,
)
from streaming_asr.whisper.features import (
    StreamingLogMel,
    clamp_running,
    log_mel,
    log_mel_raw,
    log_mel_windows,
    mel_block_ends,
)
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.masks import block_ends, mask_from_ends
from streaming_asr.whisper.together import MOST_TOGETHER, Wanted, run_together


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


def test_the_mask_equals_the_ceilings_of_the_paper():
    n, tau, tau0 = 47, 5, 15
    mask = mask_from_ends(block_ends(n, tau, tau0))
    for i in range(1, n + 1):
        for j in range(1, n + 1):
            visible = -(-i // tau) >= -(-j // tau) or (i <= tau0 and j <= tau0)
            assert mask[i - 1, j - 1].item() == visible


def test_blocks_cover_the_frames_and_the_last_may_be_short():
    assert block_ends(50, 15, 30) == [30, 45, 50]
    assert block_ends(30, 15, 30) == [30]
    assert block_ends(7, 15, 30) == [7]
    assert block_ends(0, 15, 30) == []


def test_padded_encoding_equals_transformers(whisper):
    mel = torch.randn(2, whisper.n_mels, 2 * whisper.context_frames)
    with torch.inference_mode():
        expected = oracle(whisper).model.encoder(mel).last_hidden_state
        torch.testing.assert_close(encode_padded(whisper.model, mel), expected, atol=1e-5, rtol=0)


def test_one_block_over_the_context_equals_transformers(whisper):
    mel = torch.randn(1, whisper.n_mels, 2 * whisper.context_frames)
    with torch.inference_mode():
        expected = oracle(whisper).model.encoder(mel).last_hidden_state
        masked = encode_masked(whisper.model, mel, ends=[whisper.context_frames])
    torch.testing.assert_close(masked, expected, atol=1e-5, rtol=0)


def append(encoder, mel, start, ends):
    """The frames of a pass over one part."""
    with torch.inference_mode():
        return encode_parts(encoder._model, [encoder.part(mel, start, ends)])[0]


@pytest.mark.parametrize(("chunk", "first"), [(2, 30), (15, 30), (5, 5), (7, 11)])
def test_block_by_block_from_samples_equals_the_masked_pass(whisper, chunk, first):
    ends = block_ends(60, chunk, first)
    audio = torch.from_numpy(noise(2.0))[None]
    mel_stream = StreamingLogMel(whisper.n_mels)
    encoder = StreamingEncoder(whisper.model)
    mels, hidden, start, taken = [], [], 0, 0
    for end in ends:
        upto = end * 320 + 200
        mels.append(mel_stream.push(audio[:, taken:upto]))
        taken = upto
        mel = torch.cat(mels, dim=-1)
        hidden.append(append(encoder, mel[..., max(0, 2 * start - 2) :], start, [end]))
        start = end
    one_shot_mel = log_mel(audio, whisper.n_mels, block_ends=ends)
    torch.testing.assert_close(torch.cat(mels, -1), one_shot_mel, atol=1e-5, rtol=0)
    with torch.inference_mode():
        one_shot = encode_masked(whisper.model, one_shot_mel, ends=ends)
    assert one_shot.shape == (1, 60, 32)
    assert one_shot.std() > 0.1
    torch.testing.assert_close(torch.cat(hidden, 1), one_shot, atol=1e-5, rtol=0)


def test_the_future_does_not_reach_a_finished_block(whisper):
    mel = torch.randn(1, whisper.n_mels, 81)
    other = mel.clone()
    other[..., 2 * 20 + 1 :] += 1.0
    with torch.inference_mode():
        a, b = (encode_masked(whisper.model, m, ends=[20, 30, 40]) for m in (mel, other))
        short_a, short_b = (encode(whisper.model, m) for m in (mel, other))
    assert torch.equal(a[:, :20], b[:, :20])
    assert not torch.allclose(a[:, 20:], b[:, 20:])
    assert not torch.allclose(short_a[:, :20], short_b[:, :20])


def test_a_wrong_length_names_the_remedy(whisper):
    with pytest.raises(UserError, match="pad the audio"):
        encode_padded(whisper.model, torch.zeros(1, 80, 100))


def test_counted_flops_equal_torchs_counter(whisper):
    config = whisper.config
    # The projections and convolutions are counted by torch; its count of fused attention is
    # absent on CPU, so attention is forced onto the plain path.
    mel = torch.randn(1, whisper.n_mels, 2 * 50 + 1)
    with (
        torch.inference_mode(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as one_shot,
    ):
        encode(whisper.model, mel)
    assert one_shot.get_total_flops() > 0
    assert one_shot.get_total_flops() == pytest.approx(encoder_flops(config, 50), rel=0.02)
    streaming = StreamingEncoder(whisper.model)
    append(streaming, mel[..., :61], 0, [30])
    with (
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as chunk,
    ):
        append(streaming, mel[..., 58:], 30, [50])
    assert chunk.get_total_flops() > 0
    assert chunk.get_total_flops() == pytest.approx(encoder_flops(config, 20, 50), rel=0.02)


@torch.inference_mode()
def test_windows_and_blocks_of_a_shared_pass_are_what_each_is_alone(whisper):
    mels = [torch.randn(rows, whisper.n_mels, 2 * n) for rows, n in ((1, 30), (2, 75), (1, 200))]
    mask = mask_from_ends([10, 30])
    alone, shared = StreamingEncoder(whisper.model), StreamingEncoder(whisper.model)
    first, then = torch.randn(1, whisper.n_mels, 61), torch.randn(1, whisper.n_mels, 33)
    expected = [
        encode(whisper.model, mels[0], mask),
        append(alone, first, 0, [20, 30]),
        *(encode(whisper.model, mel) for mel in mels[1:]),
        append(alone, then, 30, [45]),
    ]
    got = encode_parts(
        whisper.model,
        [
            part_of(whisper.model, mels[0], mask),
            shared.part(first, 0, [20, 30]),
            *(part_of(whisper.model, mel) for mel in mels[1:]),
        ],
    )
    got += encode_parts(whisper.model, [shared.part(then, 30, [45])])
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@pytest.mark.parametrize("intel", [True, False])
def test_rows_just_below_16_are_multiplied_as_16_and_only_theirs_come_back(monkeypatch, intel):
    monkeypatch.setattr(encoder_module, "is_intel", lambda: intel)
    seen = []

    def product(rows):
        seen.append(rows.flatten(0, -2).shape[0])
        return 2 * rows + 1

    for shape in ((1, 7, 4), (8, 1, 4), (3, 5, 4), (1, 16, 4), (4, 4, 4)):
        x = torch.randn(shape)
        assert torch.equal(of_rows(product, x), 2 * x + 1)
    assert seen == [7, 16 if intel else 8, 16, 16, 16]


# -- Log-mel: equal to transformers offline, equal to itself as a stream --


@pytest.mark.parametrize("n_mels", [80, 128])
def test_offline_frames_equal_the_feature_extractor(n_mels):
    audio = noise(3.3)
    extractor = WhisperFeatureExtractor(feature_size=n_mels, chunk_length=4)
    expected = extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features
    padded = torch.zeros(1, 64_000)
    padded[0, : len(audio)] = torch.from_numpy(audio)
    torch.testing.assert_close(log_mel(padded, n_mels), expected, atol=1e-5, rtol=0)


def test_audio_that_fills_the_context_is_reflected_at_its_end_too():
    audio = noise(2.0)
    extractor = WhisperFeatureExtractor(feature_size=80, chunk_length=2)
    expected = extractor(audio, sampling_rate=16_000, return_tensors="pt").input_features[0]
    ours = log_mel(torch.from_numpy(audio), 80)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("sizes", [[4800], [1], [199, 3], [9800, 4800, 320]])
def test_raw_frames_do_not_depend_on_how_the_samples_arrive(sizes):
    audio = torch.from_numpy(noise(0.06 if sizes == [1] else 1.0))
    stream, frames, start, turn = StreamingLogMel(80), [], 0, 0
    peaks = []
    while start < len(audio):
        n = sizes[turn % len(sizes)]
        frames.append(stream.push(audio[None, start : start + n]))
        peaks += [stream.running_max] * frames[-1].shape[-1]
        start, turn = start + n, turn + 1
    streamed = torch.cat(frames, -1)[0]
    n_complete = (len(audio) - 200) // 160 + 1
    assert streamed.shape == (80, n_complete)
    raw = log_mel_raw(audio, 80, n_complete)
    floor = torch.stack(peaks)[:, 0] - 8.0
    torch.testing.assert_close(streamed, (torch.maximum(raw, floor) + 4) / 4, atol=1e-5, rtol=0)


def test_the_floor_of_a_block_is_the_maximum_so_far_minus_eight():
    raw, peak, frames = torch.tensor([[[-9.0, 0.0, -9.0, 4.0, -9.0]]]), None, []
    for begin, end in ((0, 1), (1, 3), (3, 5)):
        block, peak = clamp_running(raw[..., begin:end], peak)
        frames += block.flatten().tolist()
    assert (frames, peak.tolist()) == ([-1.25, 1.0, -1.0, 2.0, 0.0], [4.0])


def test_digital_silence_is_minus_one_and_a_half():
    assert log_mel(torch.zeros(3200), 80).unique().tolist() == [-1.5]


def test_a_block_that_ends_at_frame_e_knows_2e_plus_1_mel_frames():
    assert mel_block_ends([30, 45, 50], 101) == [61, 91, 101]


def test_frames_of_a_batch_are_each_clamped_at_their_own_maximum():
    audio = torch.from_numpy(np.stack([noise(0.5, 1), 0.01 * noise(0.5, 2)]))
    both = log_mel(audio, 80, block_ends=[10, 20])
    for row in range(2):
        torch.testing.assert_close(both[row], log_mel(audio[row], 80, block_ends=[10, 20]))


@pytest.mark.parametrize("n_mels", [80, 128])
def test_windows_in_one_pass_have_the_features_that_each_has_by_itself(n_mels):
    blocks = [[5, 10, 12], [30, 45, 60, 75], [50], [10, 20]]
    sizes = [
        12 * 320 + 57,
        70 * 320,
        50 * 320 + 200,
        150,
    ]  # as long, shorter, a little longer, tiny
    windows = [noise(size / 16_000 + 0.1, seed=i)[:size] for i, size in enumerate(sizes)]
    windows[1][: 45 * 320] *= 1e-4  # a loud end: the maximum runs
    audio = torch.zeros(len(windows), max(sizes))
    for row, window in zip(audio, windows, strict=True):
        row[: len(window)] = torch.from_numpy(window)
    found = log_mel_windows(audio, n_mels, blocks)
    for window, own, mel in zip(windows, blocks, found, strict=True):
        expected = log_mel(torch.from_numpy(window), n_mels, block_ends=own)
        assert mel.shape == expected.shape == (n_mels, 2 * own[-1] + 1)
        torch.testing.assert_close(mel, expected, atol=1e-5, rtol=0)


# -- Windows of unequal lengths in one pass: the numbers of one pass for each --


ENDS = [[30, 45, 60], [75], [30, 60, 90, 120, 150, 180, 200]]  # the last fills the context


def mels(whisper):
    return [
        log_mel(torch.from_numpy(noise(ends[-1] * 0.02 + 0.02, seed=i)), whisper.n_mels,
                block_ends=ends)
        for i, ends in enumerate(ENDS)
    ]  # fmt: skip


@pytest.mark.parametrize("encode", [encode_together, _encode_padded])
def test_windows_in_one_pass_are_encoded_as_each_alone_and_so_are_their_gradients(whisper, encode):
    given = mels(whisper)
    weight = whisper.model.model.encoder.layers[0].fc1.weight.requires_grad_(True)
    found = {}
    for padded in (True, False):
        if padded:
            rows = encode(whisper.model, given, ENDS)
            encoded = [own[: ends[-1]] for own, ends in zip(rows, ENDS, strict=True)]
        else:
            encoded = encode_windows(whisper.model, given, ENDS)
        weight.grad = None
        torch.cat(encoded).square().sum().backward()
        found[padded] = encoded, weight.grad.clone()
    for (mel, ends), one in zip(zip(given, ENDS, strict=True), found[True][0], strict=True):
        alone = encode_masked(whisper.model, mel[None], ends=ends)[0]
        assert torch.allclose(one, alone, atol=1e-5)
    scale = float(found[False][1].abs().max())
    assert torch.allclose(found[True][1], found[False][1], atol=1e-5 * scale)
    weight.requires_grad_(False)


def test_windows_longer_than_a_slice_attend_as_the_mask_says(whisper, monkeypatch):
    monkeypatch.setattr("streaming_asr.whisper.batched.SLICE", 40)
    given = mels(whisper)
    with torch.no_grad():
        rows = encode_together(whisper.model, given, ENDS)
        for own, mel, ends in zip(rows, given, ENDS, strict=True):
            alone = encode_masked(whisper.model, mel[None], ends=ends)[0]
            assert torch.allclose(own[: ends[-1]], alone, atol=1e-5)
            with torch.autocast("cpu", torch.bfloat16):
                half = encode_together(whisper.model, [mel], [ends])[0]
            assert torch.nn.functional.cosine_similarity(half.float(), alone).min() > 0.99


def test_padded_texts_are_decoded_as_each_alone(whisper):
    texts = [[5, 6, 7, 8], [9], [10, 11, 12]]
    with torch.no_grad():
        encoded = encode_windows(whisper.model, mels(whisper), ENDS)
        together = decode_windows(whisper.model, texts, encoded)
        for text, frames, logits in zip(texts, encoded, together, strict=True):
            hidden = (
                oracle(whisper)
                .model.decoder(input_ids=torch.tensor([text]), encoder_hidden_states=frames[None])
                .last_hidden_state
            )
            assert torch.allclose(logits, whisper.model.proj_out(hidden)[0], atol=1e-5)


# -- What the cells of a sweep share --


class Loader:
    """Loads strings; `loaded` names them in order."""

    def __init__(self) -> None:
        self.loaded = []

    def __call__(self, name: str, n_bytes: int = 1) -> str:
        def load():
            self.loaded.append(name)
            return name

        return shared.shared(name, load, lambda _: n_bytes)


def test_a_sweep_loads_what_its_cells_ask_for_once_and_keeps_nothing_behind_it():
    ask = Loader()
    with shared.sharing():
        assert [ask(name) for name in ("a", "b", "a", "b")] == ["a", "b", "a", "b"]
        assert ask.loaded == ["a", "b"]
    ask("a")
    ask("a")
    assert ask.loaded == ["a", "b", "a", "a"]


def test_changed_files_are_loaded_again():
    ask = Loader()
    with shared.sharing():
        for stamp in ("old", "new", "new"):
            shared.of_files(stamp)
            ask("a")
    assert ask.loaded == ["a", "a"]


def test_a_large_model_makes_room_for_the_next_and_a_failure_for_all():
    ask = Loader()
    with shared.sharing():
        ask("large", shared.MOST_BYTES + 1)
        ask("large")
        ask("small")  # drops the large one
        ask("other")
        ask("small")
        ask("large")
        assert ask.loaded == ["large", "small", "other", "large"]
        shared.forget()
        ask("small")
    assert ask.loaded == ["large", "small", "other", "large", "small"]


def test_cells_share_a_whisper_of_the_same_settings():
    folder = tiny_folder()
    with shared.sharing():
        one = load_whisper(folder)
        assert load_whisper(str(folder)) is one
        assert load_whisper(folder, dtype="bfloat16") is not one
    assert load_whisper(folder) is not one


def test_a_merged_adapter_draws_no_random_numbers_so_that_the_second_cell_draws_as_the_first(
    tmp_path,
):
    folder = tiny_folder()
    model = load_whisper(folder).model
    with_lora(model, rank=2, target_modules=["q_proj"]).save_pretrained(tmp_path)
    model = load_whisper(folder).model
    before = torch.get_rng_state()
    merge_adapter(model, str(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


# -- Steps that share passes: which are answered together, and what each is told --


def step(name, wishes, passes):
    """Ask for one pass after another; return all answers."""
    told = ""
    for at, what in enumerate(wishes):

        def run(parts, what=what):
            passes.append((what, parts))
            return [torch.tensor(ord(part[0])) for part in parts]

        told += chr(int((yield Wanted(what, run, f"{name}{at}"))))
    return told


def test_steps_that_wait_for_the_same_share_a_pass_and_each_is_told_its_own():
    passes = []
    wishes = {"a": ["encode", "decode", "decode"], "b": ["encode"], "c": ["decode", "decode"]}
    steps = [step(name, wished, passes) for name, wished in wishes.items()]
    assert run_together([*steps, step("d", [], passes)], NULL) == ["aaa", "b", "cc", ""]
    assert passes == [
        ("encode", ["a0", "b0"]),
        ("decode", ["c0", "a1"]),
        ("decode", ["c1", "a2"]),
    ]


def test_a_pass_holds_no_more_parts_than_fit():
    passes = []
    names = [chr(ord("A") + i) for i in range(MOST_TOGETHER + 3)]
    assert run_together([step(name, ["encode"], passes) for name in names], NULL) == names
    assert [len(parts) for _, parts in passes] == [MOST_TOGETHER, 3]
