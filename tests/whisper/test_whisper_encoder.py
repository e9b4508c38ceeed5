"""The encoder's forms against each other, against transformers, and its cost."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from oracle import oracle
from tiny import noise, tiny_folder
from torch.utils.flop_counter import FlopCounterMode

import streaming_asr.whisper.encoder as encoder_module
from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.whisper.encoder import (
    Counted,
    StreamingEncoder,
    encode,
    encode_masked,
    encode_padded,
    encode_parts,
    of_rows,
    part_of,
)
from streaming_asr.whisper.features import StreamingLogMel, log_mel
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.masks import block_ends, mask_from_ends


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


def test_the_mask_is_equation_37_written_out():
    assert mask_from_ends(block_ends(6, 2, 4)).int().tolist() == [
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1],
    ]


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


def test_several_blocks_in_one_append_equal_one_append_each(whisper):
    mel = torch.randn(1, whisper.n_mels, 2 * 40 + 1)
    ends = [10, 15, 20, 33, 40]
    together, apart = StreamingEncoder(whisper.model), StreamingEncoder(whisper.model)
    first = append(together, mel[..., :31], 0, ends[:2])
    rest = append(together, mel[..., 28:], 15, ends[2:])
    start, hidden = 0, []
    for end in ends:
        block = mel[..., max(0, 2 * start - 2) : 2 * end + 1]
        hidden.append(append(apart, block, start, [end]))
        start = end
    torch.testing.assert_close(torch.cat([first, rest], 1), torch.cat(hidden, 1))
    with torch.inference_mode():
        one_shot = encode_masked(whisper.model, mel, ends=ends)
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


def test_gradients_flow_through_the_masked_encoder():
    model = load_whisper(tiny_folder()).model.requires_grad_(True)
    encode_masked(model, torch.randn(1, 80, 41), ends=[10, 15, 20]).square().sum().backward()
    assert model.model.encoder.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0


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
def test_rows_just_below_16_are_multiplied_as_16_and_only_theirs_come_back(
    monkeypatch: pytest.MonkeyPatch, intel: bool
) -> None:
    monkeypatch.setattr(encoder_module, "is_intel", lambda: intel)
    seen = []

    def product(rows: torch.Tensor) -> torch.Tensor:
        seen.append(rows.flatten(0, -2).shape[0])
        return 2 * rows + 1

    for shape in ((1, 7, 4), (8, 1, 4), (3, 5, 4), (1, 16, 4), (4, 4, 4)):
        x = torch.randn(shape)
        assert torch.equal(of_rows(product, x), 2 * x + 1)
    assert seen == [7, 16 if intel else 8, 16, 16, 16]


def test_every_fourth_frame_of_the_padding_stands_for_four():
    counted = Counted.of(10, 50)  # 10 frames with audio and 25 of padding stay
    assert counted.indices.tolist() == [*range(35), 36, 40, 44, 48]
    assert counted.counts.tolist() == [*([1] * 35), 4, 4, 4, 3]
    full = Counted.of(40, 50)
    assert full.indices.tolist() == list(range(50)) and full.counts.tolist() == [1] * 50


def test_a_counted_key_weighs_as_much_as_its_copies(whisper):
    counted = Counted.of(3, 40)
    assert counted.counts.tolist() == [*([1] * 28), 4, 4, 4]
    part = part_of(whisper.model, log_mel(torch.from_numpy(noise(0.8))[None], 80))
    assert part.frames.shape[1] == 40
    thin = counted.thinned(part)
    assert torch.equal(thin.frames, part.frames[:, counted.indices])
    q, k, v = torch.randn(3, 1, 2, 31, 8, generator=torch.Generator().manual_seed(1)).unbind()
    copies = [x.repeat_interleave(counted.counts, 2) for x in (k, v)]
    torch.testing.assert_close(thin.attend(0, q, k, v), part.attend(0, q, *copies))
    hidden = torch.arange(31.0)[None, :, None]
    assert counted.widened(hidden)[0, 26:, 0].tolist() == [
        26,
        27,
        *([28] * 4),
        *([29] * 4),
        *([30] * 4),
    ]


@pytest.mark.parametrize("name", ["offline", "reencode", "simul_whisper", "ufal"])
def test_counted_padding_computes_fewer_frames_and_none_fewer_where_there_is_no_padding(name):
    class Frames:
        def __init__(self):
            self.computed = []

        def part(self, name):
            return nullcontext()

        def count(self, **counts):
            self.computed += [counts["frames_computed"]] if "frames_computed" in counts else []

    def run(padding, seconds):
        recorder, own = Frames(), {"backend": "torch"} if name == "ufal" else {}
        method = new_method(name, tiny_folder(), padding=padding, **own)
        state = method.start(recorder=recorder)
        update = method.step(state, noise(seconds), last=True)
        return recorder.computed, [word.text for word in update.committed]

    # The context is 200 frames; 1 s is 50, of the other 150 25 stay whole and 32 stand for 125.
    assert max(run("counted", 1.0)[0]) == 107 and set(run("full", 1.0)[0]) == {200}
    assert run("counted", 3.9)[1] == run("full", 3.9)[1] != []  # 195 frames: nothing to thin out
    with pytest.raises(UserError, match="padding='half': one of full, counted"):
        run("half", 1.0)


def test_counted_padding_is_refused_where_ctranslate2_encodes():
    with pytest.raises(UserError, match="padding=counted with backend=faster_whisper: only torch"):
        new_method("ufal", tiny_folder(), padding="counted")
