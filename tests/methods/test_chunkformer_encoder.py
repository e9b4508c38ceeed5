"""The encoder: masked batch, endless decoding and look-ahead against the pass over one audio, and
all of it against what the author's package answered."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from chunkformer_tiny import SHAPE, tiny_network
from places import FIXTURES
from tiny import noise
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from streaming_asr.methods.chunkformer import layers
from streaming_asr.methods.chunkformer.context import SIDE, Context
from streaming_asr.methods.chunkformer.ctc import Greedy, best_path
from streaming_asr.methods.chunkformer.encoder import EndlessCache, Network, Shape, encoder_flops
from streaming_asr.methods.chunkformer.features import StreamingFbank, fbank, n_mel_frames

FIXTURE = FIXTURES / "chunkformer.json"
LENGTHS = (500, 15, 14, 0, 231, 1)
"""Mel frames: three audios with encoder frames, two too short for one, and an empty one."""
CONTEXTS = [
    Context(4, 6, 0),
    Context(4, 6, 3),
    Context(8, 16, 16),
    Context(1, 2, 1),
    Context(3, 5, 9),
]


def mels(lengths=LENGTHS):
    torch.manual_seed(1)
    return [14 + 5 * torch.randn(n, SHAPE.n_mels) for n in lengths]


def frames(encoder, lengths=LENGTHS):
    with torch.inference_mode():
        return encoder.subsample(mels(lengths))


@pytest.fixture(scope="module")
def network():
    return tiny_network().requires_grad_(False)


def largest(a, b):
    assert a.shape == b.shape
    return float((a - b).abs().max()) if a.numel() else 0.0


def delay_frames(context, layers):
    """Frames past a chunk's end that must be known before `advance` gives it out (equation 5).

    A layer's convolution sees up to seven of the right context, its attention all of it, each
    counted from the end of a chunk; equation 5 counts only the attention.
    """
    side = min(context.right, SIDE)
    delay = 0
    for _ in range(layers):
        delay = -(-delay // context.chunk) * context.chunk + side
        delay = -(-delay // context.chunk) * context.chunk + context.right
    return delay


# -- masked batch -------------------------------------------------------------------------------


def test_subsampling_in_groups_is_subsampling_at_once(network, monkeypatch):
    whole = frames(network.encoder, (5000, 80))
    monkeypatch.setattr(layers, "GROUP_ELEMENTS", 1)
    for width in (layers.GROUP_FRAMES, 7):
        monkeypatch.setattr(layers, "GROUP_FRAMES", width)
        for a, b in zip(frames(network.encoder, (5000, 80)), whole, strict=True):
            assert torch.allclose(a, b, rtol=1e-5, atol=1e-4)  # values up to 40


# -- endless decoding ---------------------------------------------------------------------------


def run(encoder, context, parts):
    caches = [EndlessCache.empty(encoder) for _ in parts[0]]
    positions = encoder.positions(context)
    given = [
        encoder.advance(context, positions, caches, part, [i == len(parts) - 1] * len(part))
        for i, part in enumerate(parts)
    ]
    return [list(column) for column in zip(*given, strict=True)]


@pytest.mark.parametrize("window", [1, 16])
@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_windows_with_caches_equal_the_one_pass_result(network, context, window):
    encoder = network.encoder
    whole = frames(encoder)
    one_pass = encoder(whole, context)
    parts = [[part[i : i + window] for part in whole] for i in range(0, 61, window)]
    given = run(encoder, context, parts)
    for pieces, wanted in zip(given, one_pass, strict=True):
        assert largest(torch.cat(pieces), wanted) < 1e-5


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_a_chunk_comes_out_when_all_it_depends_on_is_in(network, context):
    encoder = network.encoder
    whole = frames(encoder, (15 + 8 * 119,))[0]
    given = run(encoder, context, [[frame] for frame in whole.split(1)])
    n_given = torch.tensor([len(part) for part in given[0]]).cumsum(0)
    first = int((n_given > 0).nonzero()[0]) + 1  # frames in at the first that is given out
    assert first == min(context.chunk + delay_frames(context, SHAPE.layers), 120)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_what_is_kept_does_not_grow_with_the_recording(network, context):
    encoder, sizes = network.encoder, []
    part = frames(encoder, (15 + 8 * (4 * context.chunk - 1),))
    cache, positions = EndlessCache.empty(encoder), encoder.positions(context)
    for _ in range(24):
        encoder.advance(context, positions, [cache], part, [False])
        held = [
            part
            for layer in cache.layers
            for part in (layer.waiting, layer.keys_values, layer.attended, layer.gated)
        ]
        sizes.append(sum(part.rows.numel() for part in held))
    assert sizes[-1] == sizes[-2] == max(sizes)


# -- look-ahead ---------------------------------------------------------------------------------


def stream(encoder, context, whole, chunk):
    """Chunk by chunk, the streams together while both last."""
    caches = [EndlessCache.empty(encoder) for _ in whole]
    positions, done = encoder.positions(context), [[] for _ in whole]
    for start in range(0, max(map(len, whole)), chunk):
        active = [i for i, part in enumerate(whole) if len(part) > start]
        parts = [whole[i][start : start + context.chunk] for i in active]
        again = [max(0, len(part) - chunk) for part in parts]
        mine, last = [caches[i] for i in active], [True] * len(active)
        out = encoder.advance(context, positions, mine, parts, last, again)
        for i, rows in zip(active, out, strict=True):
            done[i].append(rows)
    return [torch.cat(parts) for parts in done]


def test_the_first_chunk_with_look_ahead_is_the_head_of_the_longer_chunk(network):
    encoder = network.encoder
    whole = frames(encoder, (500, 231))
    streamed = stream(encoder, Context(7, 6, 0), whole, 4)
    for got, frame, part in zip(streamed, whole, (4, 4), strict=True):
        head = encoder([frame[:7]], Context(7, 6, 0))[0]
        assert largest(got[:part], head[:part]) < 1e-5
    together = streamed[0]
    assert largest(together, stream(encoder, Context(7, 6, 0), whole[:1], 4)[0]) < 1e-5


# -- against the author's package ---------------------------------------------------------------
# `experiments.chunkformer.parity` of commit 00f21ede made the fixture with chunkformer 1.2.2.

AUTHOR = Shape(d=32, heads=2, layers=4, hidden=64, vocabulary=12)
STORED = 101
"""The fixture keeps every so manieth value."""


def author_network():
    """Random weights, drawn by numpy so that they stay the same in all versions of torch."""
    random = np.random.default_rng(0)
    theirs = Network(AUTHOR)
    with torch.no_grad():
        for name, weight in sorted(theirs.named_parameters()):
            scale = weight[0].numel() ** -0.5 if weight.ndim > 1 else 0.2
            drawn = torch.from_numpy(random.standard_normal(tuple(weight.shape)) * scale).float()
            weight.copy_(drawn + 1 if "norm" in name and name.endswith("weight") else drawn)
        theirs.encoder.global_cmvn.mean += 14
        theirs.encoder.global_cmvn.istd *= 0.2
    return theirs.eval().requires_grad_(False)


@pytest.mark.parametrize(
    "row", json.loads(FIXTURE.read_text())["encoded"], ids=lambda row: str(row["context"])
)
def test_the_encoder_is_that_of_the_authors_package(row):
    encoder, context = author_network().encoder, Context(*row["context"])
    random = np.random.default_rng(2)
    *batch, long = (
        torch.from_numpy(random.normal(14, 5, (n, 80)).astype(np.float32))
        for n in (500, 15, 231, 1500)
    )
    with torch.inference_mode():
        masked = torch.cat(encoder(encoder.subsample(batch), context))
        (pieces,) = run(encoder, context, [[x] for x in encoder.subsample([long])[0].split(24)])
    for name, ours in (("batch", masked), ("endless", torch.cat(pieces))):
        recorded = torch.tensor(row[name])
        assert len(recorded) > 25
        assert largest(ours.flatten()[::STORED], recorded) < 1e-4


def test_the_names_of_the_parameters_are_those_of_the_published_checkpoints(network):
    layer, names = "encoder.encoders.0.", set(network.state_dict())
    own = sorted(name.removeprefix(layer) for name in names if name.startswith(layer))
    modules = "conv_module feed_forward feed_forward_macaron norm_conv norm_ff norm_ff_macaron"
    modules += " norm_final norm_mha self_attn"
    assert {name.partition(".")[0] for name in own} == set(modules.split()) and len(own) == 37
    inner = "depthwise_conv norm pointwise_conv1 pointwise_conv2 w_1 w_2 linear_q linear_k linear_v"
    inner += " linear_out linear_pos pos_bias_u pos_bias_v weight bias"
    assert {name.split(".")[1] for name in own} == set(inner.split())
    assert "self_attn.linear_pos.bias" not in own
    embed = {
        f"encoder.embed.conv.{i}.{kind}" for i in (0, 2, 3, 5, 6) for kind in ("weight", "bias")
    }
    others = {"encoder.global_cmvn.mean", "encoder.global_cmvn.istd", "encoder.embed.out.weight"}
    assert embed | others | {"encoder.after_norm.bias", "ctc.ctc_lo.weight"} <= names


def test_the_flops_are_those_torch_counts(network):
    encoder, context, n = network.encoder, Context(8, 16, 4), 64
    with torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as counted:
            encoder(encoder.subsample(mels((15 + 8 * (n - 1),))), context)
        with FlopCounterMode(display=False) as of_positions:
            encoder.positions(context)
    wanted = counted.get_total_flops() - of_positions.get_total_flops()
    assert wanted > 0
    assert encoder_flops(SHAPE, context, n, n // 8) == pytest.approx(wanted, rel=0.02)


# -- Kaldi's features: against recorded ones, as a stream, at the edges --


def test_the_features_are_those_of_kaldi():
    recorded = torch.tensor(json.loads(FIXTURE.read_text())["features"])
    audio = np.random.default_rng(1).uniform(-0.5, 0.5, 16_000).astype(np.float32)
    ours = fbank(torch.from_numpy(audio))
    assert ours.shape == (98, 80)
    assert len(recorded) > 40
    assert (ours.flatten()[::101] - recorded).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("n_samples", "n_frames"), [(0, 0), (1, 0), (399, 0), (400, 1), (559, 1), (560, 2), (16000, 98)]
)
def test_a_frame_is_a_window_that_lies_wholly_inside(n_samples, n_frames):
    assert n_mel_frames(n_samples) == n_frames
    assert fbank(torch.zeros(n_samples)).shape == (n_frames, 80)


def test_silence_is_the_logarithm_of_the_smallest_float():
    assert torch.allclose(fbank(torch.zeros(800)), torch.tensor(np.log(2.0**-23)).float())


def test_a_stream_gives_the_frames_of_the_whole_recording():
    samples = noise(1.3, seed=3)
    stream = StreamingFbank()
    cuts = [0, 0, 1, 399, 400, 2000, 2001, 9999, len(samples)]
    parts = [stream.push(samples[a:b]) for a, b in pairwise(cuts)]
    assert [len(part) for part in parts][:4] == [0, 0, 0, 1]
    assert torch.allclose(torch.cat(parts), fbank(torch.from_numpy(samples)), atol=1e-4)


# -- Greedy CTC on literal paths: repeats, blanks, words, borders --


TOKENS = ["<blank>", "<unk>", "▁the", "▁fox", "ed", "s", "▁", "<sos/eos>"]


def said(*chunks):
    """The words complete after each chunk, and what is left at the end."""
    greedy = Greedy(TOKENS)
    complete = [[w.text for w in greedy.push(path, [-0.1] * len(path))] for path in chunks]
    return complete, [w.text for w in greedy.finish()]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ([], ""),
        ([0, 0, 0], ""),
        ([2, 2, 2], " the"),
        ([2, 0, 2], " the the"),
        ([2, 2, 0, 3, 5, 5, 0, 5], " the foxss"),
        ([2, 1, 7, 3], " the fox"),  # signs that are no text
        ([6, 5, 0, 6, 4], " s ed"),  # a space of its own
        ([6], ""),
        ([4, 5, 2], "eds the"),  # nothing says that a word begins here
    ],
)
def test_repeats_merge_blanks_part_them_and_signs_drop(path, text):
    complete, left = said(path)
    assert "".join([*complete[0], *left]) == text


@pytest.mark.parametrize("border", range(9))
def test_a_border_anywhere_changes_nothing(border):
    path = [2, 2, 0, 3, 3, 4, 0, 4, 2]
    complete, left = said(path[:border], path[border:])
    assert [*complete[0], *complete[1], *left] == [" the", " foxeded", " the"]


def test_a_word_is_complete_when_the_next_begins():
    assert said([2, 0], [0, 0], [3, 4], [2]) == ([[], [], [" the"], [" foxed"]], [" the"])


def test_the_open_word_is_shown_and_its_times_and_probability_are_of_its_tokens():
    greedy = Greedy(TOKENS)
    assert greedy.push([0, 2, 2], [-9.0, -0.2, -9.0]) == []
    assert greedy.push([0, 5, 0, 0], [-9.0, -0.4, -9.0, -9.0]) == []
    (word,) = greedy.open_word()
    assert word.text == " thes"
    assert (word.start, word.end) == (pytest.approx(0.08), pytest.approx(0.40))
    assert word.probability == pytest.approx(2.718281828 ** ((-0.2 - 0.4) / 2))
    assert greedy.finish() == (word,) and greedy.finish() == () == greedy.open_word()


def test_the_best_path_is_the_likeliest_token_of_each_frame():
    tokens, log_probs = best_path(torch.tensor([[0.0, 2.0, 1.0], [5.0, 0.0, 0.0]]))
    assert tokens == [1, 0]
    assert log_probs == pytest.approx([-0.40760596, -0.01338597], abs=1e-6)
    assert best_path(torch.zeros(0, 3)) == ([], [])
