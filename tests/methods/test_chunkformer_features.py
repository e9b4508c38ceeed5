"""Kaldi's features: against recorded ones, as a stream, at the edges."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from places import FIXTURES
from tiny import noise

from streaming_asr.methods.chunkformer.features import StreamingFbank, fbank, n_mel_frames

FIXTURE = FIXTURES / "chunkformer.json"


def test_the_features_are_those_of_kaldi() -> None:
    recorded = torch.tensor(json.loads(FIXTURE.read_text())["features"])
    audio = np.random.default_rng(1).uniform(-0.5, 0.5, 16_000).astype(np.float32)
    ours = fbank(torch.from_numpy(audio))
    assert ours.shape == (98, 80)
    assert len(recorded) > 40
    assert (ours.flatten()[::101] - recorded).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("n_samples", "n_frames"), [(0, 0), (1, 0), (399, 0), (400, 1), (559, 1), (560, 2), (16000, 98)]
)
def test_a_frame_is_a_window_that_lies_wholly_inside(n_samples: int, n_frames: int) -> None:
    assert n_mel_frames(n_samples) == n_frames
    assert fbank(torch.zeros(n_samples)).shape == (n_frames, 80)


def test_silence_is_the_logarithm_of_the_smallest_float() -> None:
    assert torch.allclose(fbank(torch.zeros(800)), torch.tensor(np.log(2.0**-23)).float())


def test_a_stream_gives_the_frames_of_the_whole_recording() -> None:
    samples = noise(1.3, seed=3)
    stream = StreamingFbank()
    cuts = [0, 0, 1, 399, 400, 2000, 2001, 9999, len(samples)]
    parts = [stream.push(samples[a:b]) for a, b in pairwise(cuts)]
    assert [len(part) for part in parts][:4] == [0, 0, 0, 1]
    assert torch.allclose(torch.cat(parts), fbank(torch.from_numpy(samples)), atol=1e-4)
