"""Log-mel: equal to transformers offline, equal to itself as a stream."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import noise
from transformers import WhisperFeatureExtractor

from streaming_asr.whisper.features import (
    StreamingLogMel,
    clamp_running,
    log_mel,
    log_mel_raw,
    log_mel_windows,
    mel_block_ends,
)


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


def test_the_clamp_in_one_call_equals_one_call_per_block():
    raw = torch.randn(2, 3, 10) * 6
    whole, peak = clamp_running(raw, [4, 7, 10])
    parts, before = [], None
    for start, end in ((0, 4), (4, 7), (7, 10)):
        part, before = clamp_running(raw[..., start:end], [end - start], before)
        parts.append(part)
    assert torch.equal(whole, torch.cat(parts, -1))
    assert torch.equal(peak, before)


def test_the_floor_of_a_block_is_the_maximum_so_far_minus_eight():
    raw = torch.tensor([[[-9.0, 0.0, -9.0, 4.0, -9.0]]])
    frames, peak = clamp_running(raw, [1, 3, 5])
    assert frames.tolist() == [[[-1.25, 1.0, -1.0, 2.0, 0.0]]]
    assert peak.tolist() == [4.0]


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
