"""ChunkFormer as a method: latency as declared, long form equal to one pass, folders, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import contract
import numpy as np
import pytest
import soundfile
import torch
from chunkformer_tiny import TOKENS, tiny_folder
from contract import CHECKS, Setting
from tiny import noise

from streaming_asr.config.build import new_method
from streaming_asr.corpora.audio import File, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.method import Word, display_text
from streaming_asr.methods.chunkformer import ChunkFormer
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.ctc import Greedy, best_path
from streaming_asr.methods.chunkformer.features import fbank
from streaming_asr.methods.chunkformer.load import load
from streaming_asr.run import command as run
from streaming_asr.simulate.recorder import StepRecorder

SHORT = {"mode": "longform", "chunk_frames": 4, "left_frames": 8, "right_frames": 5}


def method(**options) -> ChunkFormer:
    return new_method("chunkformer", **{"weights": str(tiny_folder()), "chunk_s": 0.32, **options})


def setting() -> Setting:
    return Setting(5120, 10_240, noise(3.0, seed=1), noise(1.7, seed=2))


def words_of(audio: np.ndarray, context: Context) -> list[Word]:
    """One pass over the whole recording."""
    (logits,) = load(tiny_folder()).network([fbank(torch.from_numpy(audio))], context)
    greedy = Greedy(TOKENS)
    return [*greedy.push(*best_path(logits)), *greedy.finish()]


def committed(updates) -> list[Word]:
    return [word for update in updates for word in update.committed]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "options",
    [{"right_frames": 3}, SHORT, SHORT | {"total_duration_s": 0.4}],
    ids=["look-ahead", "longform", "small-passes"],
)
def test_the_contract_holds_in_other_modes(check, options) -> None:
    check(method(**options), setting())


# -- streaming ----------------------------------------------------------------------------------


def test_streaming_equals_one_pass_without_right_context() -> None:
    given = contract.run(method(), setting().audio, setting())
    wanted = words_of(setting().audio, Context(4, 50, 0))
    assert len(wanted) > 5
    assert contract.same_words(committed(given), wanted)


def test_what_is_shown_after_a_step_is_what_the_frames_heard_say() -> None:
    audio, heard, shown = setting().other, 0, []
    chunked = method()
    for piece, update in zip(
        contract.chunks(chunked, audio, setting()),
        contract.run(chunked, audio, setting()),
        strict=True,
    ):
        heard += len(piece)
        shown += update.committed
        n = (heard - 1360) // 5120 * 5120 + 1360 if heard < len(audio) else heard
        wanted = words_of(audio[:n], Context(4, 50, 0))
        assert display_text([*shown, *update.partial]) == display_text(wanted)


@pytest.mark.parametrize("right", [0, 2, 5])
def test_a_chunk_is_decoded_with_the_sample_that_the_declared_latency_names(right: int) -> None:
    chunked = method(right_frames=right)
    assert chunked.lookahead_samples == 1360 + 1280 * right  # 85 ms and 80 a frame
    recorder = StepRecorder()
    state = chunked.start(recorder=recorder)
    audio, done = noise(2.0), []
    for end in (
        0,
        *(k * 5120 + chunked.lookahead_samples + late for k in (1, 2, 3) for late in (-1, 0)),
    ):
        begin = sum(n for n, _ in done)
        chunked.step(state, audio[begin:end], last=False)
        done.append((end - begin, int(recorder.drain()[1].get("frames_real", 0))))
    assert [n for _, n in done] == [0, 0, 4, 0, 4, 0, 4]


def test_frames_past_the_chunk_are_counted_as_computed_not_as_real() -> None:
    chunked, recorder = method(right_frames=2), StepRecorder()
    state = chunked.start(recorder=recorder)
    chunked.step(state, noise(1.0), last=True)  # 98 mel frames: 11 encoder frames
    parts, counts = recorder.drain()
    assert set(parts) == {"feature", "encode", "decode", "finalise"}
    assert (counts["frames_real"], counts["frames_computed"]) == (11, 6 + 6 + 3)
    assert counts["encoder_flops"] > 0


@pytest.mark.parametrize(
    ("chunk_s", "frames"), [(0.02, 1), (0.3, 3), (0.32, 4), (0.24, 3), (1.0, 12)]
)
def test_a_chunk_is_the_frames_that_fit_into_it(chunk_s: float, frames: int) -> None:
    recorder = StepRecorder()
    chunked = method(chunk_s=chunk_s)
    state = chunked.start(recorder=recorder)
    chunked.step(state, noise(frames * 0.08 + 0.085 + 0.01), last=False)
    assert recorder.drain()[1]["frames_real"] == frames


# -- long form ----------------------------------------------------------------------------------


@pytest.mark.parametrize("total_duration_s", [0.4, 1800.0])
def test_long_form_equals_one_pass_whatever_the_deliveries(total_duration_s: float) -> None:
    recordings = [
        noise(6.0, seed=5),
        noise(0.1, seed=6),
        noise(2.5, seed=7),
        np.zeros(0, np.float32),
    ]
    chunked = method(**SHORT, total_duration_s=total_duration_s)
    states = chunked.start_many(4)
    n = [[0, 0, 0, 0], [30_000, 1600, 4, 0], [96_000, 1600, 40_000, 0]]
    said: list[list[Word]] = [[], [], [], []]
    for k in (1, 2):
        parts = [audio[a:b] for audio, a, b in zip(recordings, n[k - 1], n[k], strict=True)]
        for row, update in enumerate(chunked.step_many(states, parts, last=[k == 2] * 4)):
            said[row] += update.committed
    for words, audio in zip(said, recordings, strict=True):
        assert contract.same_words(words, words_of(audio, Context(4, 8, 5)))
    assert [len(words) > 0 for words in said] == [True, False, True, False]


def test_a_folder_is_transcribed_and_files_that_cannot_be_read_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, float]] = []  # to the progress bar
    monkeypatch.setattr(
        "streaming_asr.run.progress.Progress.heard", lambda _, u, s: told.append((u.id, s))
    )
    whole: list[str] = []  # what was in memory whole
    monkeypatch.setattr(File, "__call__", lambda f: whole.append(f.path.stem) or load_audio(f.path))
    data = tmp_path / "talks"
    data.mkdir()
    seconds = {"a": 4.0, "b": 0.05, "d": 1.0, "e": 0.0, "f": 0.16}  # f: one frame
    for name, length in seconds.items():
        soundfile.write(data / f"{name}.wav", noise(length, seed=len(name)), 16_000)
    (data / "c.wav").write_bytes(b"no audio")
    command = [
        *("method=chunkformer", "method.mode=longform", "method.total_duration_s=2"),
        *("method.chunk_frames=4", "method.right_frames=4", "tracker=none"),
        *("data=folder", f"data.path={data}", f"output={tmp_path / 'outputs'}"),
        *("model=chunkformer", f"model.path={tiny_folder()}"),
    ]
    assert run.main(command) == 1  # two of six could not be read
    out = capsys.readouterr().out
    (cell,) = (tmp_path / "outputs" / "default").iterdir()
    log = {u.utt: u for u in read_log(cell / "events.jsonl").utterances}
    failed = {utt for utt, u in log.items() if u.status == "failed"}
    assert failed == {"c", "e"} and set(log) == {*"abcdef"}
    assert "c.wav" in (log["c"].error or "") and "0 samples" in (log["e"].error or "")
    assert json.loads((cell / "metrics.json").read_text())["n_failed"] == 2

    heard = soundfile.read(data / "a.wav", dtype="float32")[0]
    words = words_of(heard, Context(4, 128, 4))
    assert [w for step in log["a"].steps for w in step.committed] == [w.text for w in words] != []
    # The one longer than the total duration comes in pieces, the others in one.
    assert [step.audio_samples for step in log["a"].steps] == [32_000, 64_000]
    assert [len(log[utt].steps) for utt in "bdf"] == [1, 1, 1]
    assert sorted(whole) == [*"bcdef"]
    assert [s for utt, s in told if utt == "a"] == [2.0, 4.0, 4.0]  # two pieces, the end
    rows = [row.split("\t") for row in (cell / "segments.tsv").read_text().splitlines()]
    assert rows[0] == ["utterance", "start_s", "end_s", "text"]
    assert "".join(row[3] for row in rows if row[0] == "a").replace(" ", "") == "".join(
        w.text for w in words
    ).replace(" ", "")
    first = next(row for row in rows if row[0] == "a")
    assert float(first[1]) == pytest.approx(words[0].start) and float(first[2]) <= 4.0
    assert "\t".join(first) in out and "/segments.tsv (2)" in out


def test_streaming_writes_no_segments(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    command = ["method=chunkformer", "chunk=320ms", "data=folder", f"data.path={tmp_path}"]
    command += ["tracker=none", f"output={tmp_path}", f"method.weights={tiny_folder()}"]
    assert run.main(command) == 0
    assert not list(tmp_path.glob("default/*/segments.tsv"))
    assert list(tmp_path.glob("default/*/metrics.json"))


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "batch"}, "mode='batch': one of stream, longform"),
        ({"chunk_frames": 0}, "chunk_frames=0: 1 or more"),
        ({"left_frames": -1}, "left_frames=-1"),
        ({"mode": "longform", "total_duration_s": 5.0}, "less than one chunk of 64 frames, 5.12 s"),
    ],
)
def test_settings_out_of_range_are_refused(options, text: str) -> None:
    with pytest.raises(UserError) as refusal:
        method(**options)
    assert text in str(refusal.value)


def test_without_a_network_the_refusal_says_how_to_train_one() -> None:
    with pytest.raises(UserError, match=r"streaming_asr\.train method=chunkformer"):
        new_method("chunkformer")


def test_the_tiny_network_hears_enough_to_tell_mistakes_apart() -> None:
    said = {word.text for word in words_of(noise(6.0, seed=5), Context(4, 50, 0))}
    assert len(said) >= 4
