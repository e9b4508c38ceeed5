"""Decoding in another process: what it fails at is an error of one recording."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
from containers import Track, assert_words, write_recording
from decoders import FAULTS, broken_decoder

from streaming_asr.corpora import decoder
from streaming_asr.corpora.audio import Reader, duration_s, load_audio
from streaming_asr.errors import UserError

TRACK = Track("libmp3lame", 16_000)


@pytest.fixture
def mp3(tmp_path):
    return write_recording(tmp_path / "a.mp3", [TRACK])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_an_error_and_the_next_recording_is_read(mp3, tmp_path, monkeypatch, fault):
    with broken_decoder(tmp_path, monkeypatch, fault):
        for read in (load_audio, lambda path: Reader(path, is_apart=True).read(100)):
            with pytest.raises(UserError, match=rf"a\.mp3: {FAULTS[fault]}"):
                read(mp3)
        assert duration_s(mp3) == 0.0
        soundfile.write(tmp_path / "b.wav", np.full(1600, 0.25), 16_000)
        assert load_audio(tmp_path / "b.wav").tolist() == 1600 * [0.25]
    assert_words(load_audio(mp3), TRACK)


def test_one_process_serves_all_and_a_reader_that_is_left_gives_it_back(mp3):
    whole = load_audio(mp3)
    (process,) = decoder._idle
    for _ in range(3):
        np.testing.assert_array_equal(load_audio(mp3), whole)
        assert duration_s(mp3) > 0
        Reader(mp3).read(10)
    assert decoder._idle == [process]
    readers = [Reader(mp3), Reader(mp3)]  # at the same time
    pieces = [[reader.read(5000) for reader in readers] for _ in range(len(whole) // 5000 + 1)]
    for one in zip(*pieces, strict=True):
        np.testing.assert_array_equal(np.concatenate(one), whole)


def test_a_process_that_is_killed_in_mid_recording_is_an_error(tmp_path):
    path = write_recording(tmp_path / "a.mp3", [Track("libmp3lame", 16_000, n_words=150)])
    decoder.end()
    reader = Reader(path)
    reader.read(1)
    (child,) = psutil.Process().children()
    child.kill()
    with pytest.raises(UserError, match=r"a\.mp3: is damaged: it makes a decoder crash"):
        reader.read(10**7)
    assert len(load_audio(path)) > 10**6


def test_a_relative_path_is_of_the_folder_that_is_current(mp3, tmp_path, monkeypatch):
    whole = load_audio(mp3)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(load_audio("a.mp3"), whole)
    Path("b.mp3").write_bytes(b"no audio \0")
    with pytest.raises(UserError, match=r"^b\.mp3: not readable as audio"):
        load_audio("b.mp3")


def test_a_forked_process_has_a_decoder_of_its_own(mp3):
    whole = load_audio(mp3)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for heard in pool.map(load_audio, 6 * [mp3]):
            np.testing.assert_array_equal(heard, whole)
    np.testing.assert_array_equal(load_audio(mp3), whole)


def test_a_name_of_any_bytes_and_a_decoder_that_cannot_start(mp3, tmp_path, monkeypatch):
    odd = mp3.rename(tmp_path / os.fsdecode(b'caf\xe9 \n"x".mp3'))
    assert_words(load_audio(odd), TRACK)
    decoder.end()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="no process to decode it can be started"):
        load_audio(odd)


def test_the_process_ends_with_its_parent(mp3):
    program = (
        "import os, psutil; from streaming_asr.corpora.audio import load_audio\n"
        f"load_audio({str(mp3)!r}); print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    with_pid = int(told.stdout)
    assert told.stderr == ""
    psutil.wait_procs([psutil.Process(with_pid)] if psutil.pid_exists(with_pid) else [], 60)
    assert not psutil.pid_exists(with_pid)
