"""Samples of 16 bits: what the shards hold comes back, other samples are rounded."""

from __future__ import annotations

import numpy as np

from streaming_asr.training.samples import as_int16, from_int16


def test_samples_of_16_bits_come_back_as_they_were_and_others_are_rounded():
    exact = np.array([-32768, -1, 0, 1, 32767], np.int16)
    samples = exact.astype(np.float32) / np.float32(32768)  # as a shard gives them
    assert as_int16([samples]).tolist() == [exact.tolist()]
    assert np.array_equal(from_int16(as_int16([samples]))[0].numpy(), samples)
    other = np.array([1.0, -1.0, 0.4 / 32768, 0.6 / 32768])
    assert as_int16([other]).tolist() == [[32767, -32768, 0, 1]]


def test_zeros_stand_behind_shorter_windows():
    windows = [np.ones(3, np.float32), -np.ones(1, np.float32)]
    assert as_int16(windows).tolist() == [[32767] * 3, [-32768, 0, 0]]
