"""A recording longer than a step takes is read from disk as it is heard: the same samples, the same
log, and never more of it in memory."""

from __future__ import annotations

import tracemalloc

import fakes
import numpy as np
import pytest
import soundfile

from streaming_asr import corpora
from streaming_asr.corpora import audio
from streaming_asr.corpora.audio import File, Reader, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, read_log
from streaming_asr.method import Samples, Update
from streaming_asr.simulate.feeds import simulate


class Together(fakes.BatchedTicker):
    samples_together = 32_000


class Deaf(Together):
    """Keeps nothing of what it hears."""

    def step(self, state: fakes.TickerState, audio: Samples, *, last: bool) -> Update:
        return super().step(state, audio[:0], last=last)


def run(folder, utterances, *, method=Together, **options):
    with EventWriter(folder / "events.jsonl", {}) as writer:
        simulate(
            method(),
            utterances,
            writer=writer,
            feed="fixed",
            chunk_samples=4800,
            first_chunk_samples=9600,
            **options,
        )
    return read_log(folder / "events.jsonl")


def recordings(folder, **seconds):
    folder.mkdir()
    for name, length in seconds.items():
        soundfile.write(folder / f"{name}.wav", fakes.noise(length, seed=len(name)), 16_000)
    return corpora.Folder(folder).utterances()


def in_pieces(path, size):
    reader, pieces = Reader(path), []
    while len(piece := reader.read(size)):
        pieces.append(piece)
    return pieces


@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (8000, 1), (22_050, 3)])
@pytest.mark.parametrize("seconds", [0.01, 1.0, 3.0, 3.9, 4.0, 4.0001, 5.0, 7.3, 13.37])
def test_pieces_are_the_samples_of_the_whole_file(tmp_path, monkeypatch, rate, channels, seconds):
    monkeypatch.setattr(audio, "PIECE_S", 3)
    drawn = np.random.default_rng(0).uniform(-1.0, 1.0, (int(seconds * rate), channels))
    soundfile.write(tmp_path / "a.wav", drawn, rate)
    pieces, whole = in_pieces(tmp_path / "a.wav", 12_345), load_audio(tmp_path / "a.wav")
    assert [len(piece) for piece in pieces[:-1]] == [12_345] * (len(pieces) - 1)
    np.testing.assert_array_equal(np.concatenate(pieces), whole)


def test_what_is_no_audio_is_refused_where_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr(audio, "PIECE_S", 3)
    samples = fakes.noise(9.0)
    samples[-5] = np.nan
    soundfile.write(tmp_path / "a.wav", samples, 16_000, "FLOAT")
    reader = Reader(tmp_path / "a.wav")
    assert len(reader.read(16_000)) == 16_000
    with pytest.raises(UserError, match=r"a\.wav: holds NaN"):
        reader.read(200_000)
    (tmp_path / "b.wav").write_bytes(b"RIFF")
    with pytest.raises(UserError, match=r"b\.wav: not readable"):
        Reader(tmp_path / "b.wav").read(1)


def test_the_log_is_the_one_of_the_recording_in_memory(tmp_path, monkeypatch):
    utterances = recordings(tmp_path / "talks", a=1.5, b=0.4, c=4.5, d=4.0, e=0.3)
    logs = [run(tmp_path / "disk", utterances)]
    monkeypatch.delattr(File, "reader")
    logs.append(run(tmp_path / "memory", utterances))
    disk, memory = (
        {
            u.utt: (
                *(u.status, u.duration_samples, u.audio_hash),
                *((s.kind, s.audio_samples, s.committed, s.words) for s in u.steps),
            )
            for u in log.utterances
        }
        for log in logs
    )
    assert disk == memory
    assert [s.audio_samples for s in logs[0].utterances[2].steps] == [32_000, 64_000, 72_000]
    assert [u.batch for u in logs[0].utterances] == [2, 2, 1, 1, 2]


def test_no_more_of_a_recording_is_held_than_a_step_takes(tmp_path, monkeypatch):
    monkeypatch.setattr(audio, "PIECE_S", 1)
    long, longer = recordings(tmp_path / "talks", long=30.0, longer=90.0)
    run(tmp_path / "warm", [long], method=Deaf)  # what is imported late counts for nothing
    peaks = []
    for utterance in (long, longer):
        tracemalloc.start()
        assert run(tmp_path / utterance.id, [utterance], method=Deaf).utterances[0].status == "ok"
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0] < 4 * longer.duration_s * 16_000 / 2


def test_a_recording_that_breaks_off_in_the_middle_is_reported_and_the_rest_is_done(tmp_path):
    talks = tmp_path / "talks"
    recordings(talks, a=1.0, c=2.5, d=5.0)
    samples = fakes.noise(8.0)
    samples[100_000] = np.inf
    soundfile.write(talks / "b.wav", samples, 16_000, "FLOAT")
    log = run(tmp_path, corpora.Folder(talks).utterances())
    found = {u.utt: (u.status, len(u.steps)) for u in log.utterances}
    assert found == {"a": ("ok", 1), "b": ("failed", 0), "c": ("ok", 2), "d": ("ok", 3)}


def test_what_was_heard_is_told_as_it_is_heard(tmp_path):
    told = []
    utterances = recordings(tmp_path / "talks", a=0.5, b=1.0, c=4.5)
    run(tmp_path, utterances, on_progress=lambda u, s: told.append((u.id, s)))
    assert told == [("a", 0.5), ("b", 1.0), ("c", 2.0), ("c", 4.0), ("c", 4.5)]
