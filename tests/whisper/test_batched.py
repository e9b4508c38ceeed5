"""Windows of unequal lengths in one pass: the numbers of one pass for each."""

from __future__ import annotations

import pytest
import torch
from oracle import oracle
from tiny import noise, tiny_folder

from streaming_asr.whisper.batched import (
    _encode_padded,
    decode_windows,
    encode_together,
    encode_windows,
)
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper

ENDS = [[30, 45, 60], [75], [30, 60, 90, 120, 150, 180, 200]]  # the last fills the context


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder())


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
