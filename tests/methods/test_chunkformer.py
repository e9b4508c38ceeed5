"""ChunkFormer as a method: latency as declared, long form equal to one pass, folders, refusals."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import yaml
from chunkformer_tiny import SHAPE, STATISTICS, TOKENS, tiny_folder, tiny_network
from tiny import noise

from streaming_asr import contract
from streaming_asr.config.build import new_method
from streaming_asr.contract import OF_ANY_AUDIO, Setting, committed
from streaming_asr.corpora.audio import File, load_audio
from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.method import Word, display_text
from streaming_asr.methods.chunkformer import ChunkFormer
from streaming_asr.methods.chunkformer.context import Context
from streaming_asr.methods.chunkformer.ctc import Greedy, best_path
from streaming_asr.methods.chunkformer.features import fbank
from streaming_asr.methods.chunkformer.load import load, save
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


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
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


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Six files, two of which cannot be read, after a run in long form."""
    folder = tmp_path_factory.mktemp("talks")
    (folder / "data").mkdir()
    seconds = {"a": 4.0, "b": 0.05, "d": 1.0, "e": 0.0, "f": 0.16}  # f: one frame
    for name, length in seconds.items():
        soundfile.write(folder / f"data/{name}.wav", noise(length, seed=len(name)), 16_000)
    (folder / "data/c.wav").write_bytes(b"no audio")
    command = [
        *("method=chunkformer", "method.mode=longform", "method.total_duration_s=2"),
        *("method.chunk_frames=4", "method.right_frames=4", "tracker=none"),
        *("data=folder", f"data.path={folder / 'data'}", f"output={folder}"),
        *("model=chunkformer", f"model.path={tiny_folder()}"),
    ]
    progress: list[tuple[str, float]] = []
    whole: list[str] = []  # what was in memory whole
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(
            "streaming_asr.run.progress.Progress.heard", lambda _, u, s: progress.append((u.id, s))
        )
        patch.setattr(File, "__call__", lambda f: whole.append(f.path.stem) or load_audio(f.path))
        status = run.main(command)
    (cell,) = (folder / "default").iterdir()
    log = {u.utt: u for u in read_log(cell / "events.jsonl").utterances}
    audio = soundfile.read(folder / "data/a.wav", dtype="float32")[0]
    words = words_of(audio, Context(4, 128, 4))
    return SimpleNamespace(
        status=status, out=out.getvalue(), cell=cell, log=log, progress=progress, whole=whole,
        words_of_a=words,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "error"), [("c", "c.wav"), ("e", "0 samples")])
def test_a_file_that_cannot_be_read_is_reported(talks, name: str, error: str) -> None:
    assert talks.status == 1
    assert talks.log[name].status == "failed" and error in talks.log[name].error


def test_the_other_files_are_transcribed(talks) -> None:
    assert {utt for utt, u in talks.log.items() if u.status == "ok"} == {*"abdf"}
    assert json.loads((talks.cell / "metrics.json").read_text())["n_failed"] == 2
    texts = [word for step in talks.log["a"].steps for word in step.committed]
    assert texts == [word.text for word in talks.words_of_a] != []


def test_only_the_file_longer_than_the_total_duration_comes_in_pieces(talks) -> None:
    assert [step.audio_samples for step in talks.log["a"].steps] == [32_000, 64_000]
    assert [len(talks.log[utt].steps) for utt in "bdf"] == [1, 1, 1]
    assert sorted(talks.whole) == [*"bcdef"]
    assert [s for utt, s in talks.progress if utt == "a"] == [2.0, 4.0, 4.0]  # pieces, the end


def test_long_form_writes_and_prints_segments(talks) -> None:
    rows = [row.split("\t") for row in (talks.cell / "segments.tsv").read_text().splitlines()]
    assert rows[0] == ["utterance", "start_s", "end_s", "text"]
    segments = [row for row in rows if row[0] == "a"]
    texts = ("".join(row[3] for row in segments), "".join(w.text for w in talks.words_of_a))
    assert texts[0].replace(" ", "") == texts[1].replace(" ", "")
    assert float(segments[0][1]) == pytest.approx(talks.words_of_a[0].start)
    assert float(segments[0][2]) <= 4.0
    assert "\t".join(segments[0]) in talks.out and "/segments.tsv (2)" in talks.out


def test_streaming_writes_no_segments(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(1.0), 16_000)
    command = ["method=chunkformer", "chunk=320ms", "data=folder", f"data.path={tmp_path}"]
    command += ["tracker=none", f"output={tmp_path}", f"method.weights={tiny_folder()}"]
    assert run.main(command) == 0
    assert not list(tmp_path.glob("default/*/segments.tsv"))
    assert list(tmp_path.glob("default/*/metrics.json"))


# -- refusals -----------------------------------------------------------------------------------


def test_the_tiny_network_hears_enough_to_tell_mistakes_apart() -> None:
    said = {word.text for word in words_of(noise(6.0, seed=5), Context(4, 50, 0))}
    assert len(said) >= 4


# -- Checkpoint folders: both generations of names, and every way in which one can be wrong --


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(tmp_path / "net", tiny_network(), TOKENS)
    (tmp_path / "net" / "global_cmvn").write_text(json.dumps(STATISTICS))
    return tmp_path / "net"


def edit_config(folder: Path, **encoder: Any) -> dict[str, Any]:
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    config["encoder_conf"] |= encoder
    path.write_text(yaml.safe_dump(config))
    return config


def edit_weights(folder: Path, change: Any, name: str = "pytorch_model.bin") -> None:
    path = folder / "pytorch_model.bin"
    weights = torch.load(path, weights_only=True)
    path.unlink()
    torch.save(change(weights), folder / name)


def logits(folder: Path) -> torch.Tensor:
    torch.manual_seed(0)
    (out,) = load(folder).network([14 + 5 * torch.randn(120, 80)], Context(4, 8, 0))
    return out


def test_what_was_saved_is_loaded(folder: Path) -> None:
    loaded, saved = load(folder), tiny_network()
    assert loaded.tokens == TOKENS and loaded.network.shape == SHAPE
    for name, value in saved.state_dict().items():
        assert torch.allclose(loaded.network.state_dict()[name], value, rtol=1e-3, atol=1e-3), name
    assert not loaded.network.training
    assert (folder / "pytorch_model.bin").stat().st_size < 3 * sum(
        p.numel() for p in saved.parameters()
    )


def test_the_first_generation_of_names_is_read_too(folder: Path) -> None:
    wanted = logits(folder)
    config = edit_config(
        folder,
        input_layer="depthwise",
        pos_enc_layer_type="stream_rel_pos",
        selfattention_layer_type="stream_rel_selfattn",
        use_dynamic_conv=True,
        limited_decoding_chunk_sizes=[64, 128, 256],
        limited_left_chunk_sizes=[128, 256, 128],
        right_context_sizes=[128, 128, 128],
    )
    del config["encoder_conf"]["dynamic_conv"]
    config |= {"is_json_cmvn": True, "cmvn_file": "global_cmvn"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))

    def aliased(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            (f"encoder.{k}" if k.startswith("ctc.") else k): v
            for k, v in weights.items()
            if "global_cmvn" not in k
        }

    edit_weights(folder, aliased)
    assert torch.allclose(logits(folder), wanted, atol=1e-4)


@pytest.mark.parametrize("name", ["pytorch_model.pt", "pytorch_model.ckpt"])
def test_the_weights_may_have_another_ending(folder: Path, name: str) -> None:
    wanted = logits(folder)
    edit_weights(folder, dict, name)
    assert torch.equal(logits(folder), wanted)


def test_an_attention_decoder_in_the_checkpoint_is_passed_over(folder: Path) -> None:
    wanted = logits(folder)
    edit_weights(folder, lambda w: w | {"decoder.left_decoder.embed.0.weight": torch.zeros(3, 3)})
    assert torch.equal(logits(folder), wanted)


def test_without_statistics_the_features_are_taken_as_they_are(folder: Path) -> None:
    (folder / "global_cmvn").unlink()
    edit_weights(folder, lambda w: {k: v for k, v in w.items() if "cmvn" not in k})
    cmvn = load(folder).network.encoder.global_cmvn
    assert not cmvn.mean.any() and bool((cmvn.istd == 1).all())


def refused(folder: Path, *texts: str) -> None:
    with pytest.raises(UserError) as refusal:
        load(folder)
    for text in texts:
        assert text in str(refusal.value)


def test_a_vocabulary_of_another_size_is_refused(folder: Path) -> None:
    with (folder / "vocab.txt").open("a") as file:
        file.write(f"▁more {len(TOKENS)}\n")
    refused(folder, "vocab.txt has 12 tokens, the CTC head 11", "must agree")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("<blank> 0\n▁the 2\n", "without a gap"),
        ("<blank> 0\n▁the 0\n", "without a gap"),
        ("<blank>\n", 'a line is "token id"'),
        ("", "without a gap"),
    ],
)
def test_a_vocabulary_that_is_none_is_refused(folder: Path, lines: str, text: str) -> None:
    (folder / "vocab.txt").write_text(lines)
    refused(folder, "vocab.txt", text)


@pytest.mark.parametrize(
    ("option", "value"),
    [("input_layer", "conv2d"), ("cnn_module_norm", "batch_norm"), ("cnn_module_kernel", 31)],
)
def test_another_architecture_is_refused(folder: Path, option: str, value: Any) -> None:
    edit_config(folder, **{option: value})
    refused(folder, f"encoder_conf.{option} is {value}", "read is only")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("num_blocks", 2, 'Unexpected key(s) in state_dict: "encoder.encoders.2.'),
        ("num_blocks", 4, 'Missing key(s) in state_dict: "encoder.encoders.3.'),
        ("linear_units", 50, "size mismatch for encoder.encoders.0."),
        ("output_size", None, "needs output_size"),
    ],
)
def test_weights_that_do_not_fit_the_configuration_are_refused(
    folder: Path, option: str, value: Any, text: str
) -> None:
    edit_config(folder, **{option: value})
    refused(folder, text)


@pytest.mark.parametrize("name", ["config.yaml", "vocab.txt", "pytorch_model.bin"])
def test_a_file_that_is_absent_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(folder, name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", b"a: [1"),
        ("config.yaml", b"model: whisper"),
        ("pytorch_model.bin", b"not weights"),
        ("global_cmvn", json.dumps({"mean_stat": []}).encode()),
    ],
)
def test_a_file_that_is_broken_is_named(folder: Path, name: str, content: bytes) -> None:
    if name == "global_cmvn":
        edit_weights(folder, lambda w: {k: v for k, v in w.items() if "cmvn" not in k})
    (folder / name).write_bytes(content)
    refused(folder, name)


def test_weights_without_a_ctc_head_and_a_folder_that_is_not_there_are_refused(
    folder: Path,
) -> None:
    edit_weights(folder, lambda w: {k: v for k, v in w.items() if not k.startswith("ctc.")})
    refused(folder, "no CTC head")
    refused(folder / "gone", "no such folder", "streaming_asr.train method=chunkformer")
