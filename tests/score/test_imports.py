"""What importers require, what they cap, and what they warn of (fuzz draws more of each kind)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.score import command
from streaming_asr.score.folder import score_folder

TEXT = "the cat sat on the mat"
WORDS = [[word, 0.5 * i + 0.1, 0.5 * i + 0.4] for i, word in enumerate(TEXT.split())]
LENGTH_S = 3.3


def a_manifest(place: Path) -> Path:
    (place / "a.wav").touch()
    row = {"audio_filepath": "a.wav", "duration": LENGTH_S, "text": TEXT, "words": WORDS}
    (place / "m.jsonl").write_text(json.dumps(row))
    return place / "m.jsonl"


def an_import(place: Path, form: str, content: str, references: Path | None = None) -> int:
    (place / "a.txt").write_text(content)
    arguments = ["import", form, str(place / "a.txt"), "--into", str(place / "cell")]
    if references is not None:
        arguments += ["--manifest", str(references)]
    return command.main(arguments)


def result(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "cell/metrics.json").read_text())
    return found


def simuleval(delays: list[float], **fields: Any) -> str:
    row = {"index": 0, "prediction": TEXT, "delays": delays, "source": ["a.wav"]}
    row |= {"reference": TEXT, "source_length": 1000 * LENGTH_S}
    return json.dumps(row | fields) + "\n"


def simulstream(chunks: list[float], **fields: Any) -> str:
    rows: list[dict[str, Any]] = [{"id": 0, "metadata": {"wav_name": "a.wav"}}]
    said = TEXT.split()
    for k, audio_s in enumerate(chunks):
        last = k == len(chunks) - 1
        new = said[2 * k :] if last else said[2 * k : 2 * k + 2]
        row = {"id": 0, "total_audio_processed": audio_s, "computation_time": 0.1}
        row |= {"generated_tokens": new, "deleted_tokens": [], **fields}
        rows.append({key: value for key, value in row.items() if value is not None})
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("chunks_s", "is_taken"),
    [
        ([1.0, 2.0, 3.0, 4.0], True),  # whole chunks of 1 s: the last is cut at 3.3 s
        ([1.0, 2.0, 4.0], True),
        ([0.96, 1.92, 2.88, 3.84], True),
        ([1.0, 2.0, 3.0, 5.0], False),  # a chunk more than the recording has
        ([1.0, 2.0, 3.0, 3.9], False),  # no whole chunk
        ([1.0, 2.0, 3.0, 3.5], True),  # rounded, as before
    ],
)
@pytest.mark.parametrize("form", ["simuleval", "simulstream"])
def test_audio_counted_in_whole_chunks_is_cut_at_the_end(
    form: str,
    chunks_s: list[float],
    is_taken: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if form == "simuleval":
        delays = [1000 * s for s in chunks_s]
        content = simuleval((delays + [delays[-1]] * 6)[:6])
    else:
        content = simulstream(chunks_s)
    status = an_import(tmp_path, form, content, a_manifest(tmp_path))
    assert status == (0 if is_taken else 2)
    if is_taken and chunks_s[-1] > LENGTH_S + 0.5:
        told = f"a: {chunks_s[-1]:g} s of audio are counted, in whole chunks, of 3.3 s"
        assert told in capsys.readouterr().out
        assert told in result(tmp_path)["warnings"][0]
    if is_taken:
        assert result(tmp_path)["metrics"]["wer"] == 0.0


@pytest.mark.parametrize(
    ("heard_s", "status"), [(4.0, 0), (30.0, 0), (2.6, 0), (1.5, 2), (4000.0, 2)]
)
def test_an_stm_does_not_tell_how_long_a_recording_is(
    heard_s: float, status: int, tmp_path: Path
) -> None:
    stm = tmp_path / "r.stm"
    stm.write_text(f"a 1 s 0.5 3.0 {TEXT}\n")
    content = simulstream([heard_s / 4, heard_s / 2, heard_s])
    assert an_import(tmp_path, "simulstream", content, stm) == status


def test_a_log_without_compute_has_no_compute_clock(tmp_path: Path) -> None:
    content = simulstream([1.0, 2.0, LENGTH_S], computation_time=None)
    assert an_import(tmp_path, "simulstream", content, a_manifest(tmp_path)) == 0
    metrics = result(tmp_path)["metrics"]
    assert metrics["rtf_total"] is None and metrics["arwer_grid_ca"] is None
    assert metrics["arwer_grid_cu"] is not None


@pytest.mark.parametrize("field", ["total_audio_processed", "generated_tokens", "deleted_tokens"])
def test_a_chunk_without_what_it_needs_is_refused(
    field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = simulstream([1.0, 2.0, LENGTH_S], **{field: None})
    assert an_import(tmp_path, "simulstream", content, a_manifest(tmp_path)) == 2
    assert f"a.txt, line 2: no `{field}`" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["Ġcat", "##at", "ca@@", "cat</w>"])
@pytest.mark.parametrize("form", ["simuleval", "simulstream", "whisper_online"])
def test_tokens_that_are_no_words_are_refused_by_name(
    form: str, token: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = {
        "simuleval": simuleval([1000.0] * 6, prediction=TEXT.replace("cat", token)),
        "simulstream": simulstream([1.0, LENGTH_S], generated_tokens=[token]),
        "whisper_online": f"1000.0 0 900 the {token}\n",
    }[form]
    assert an_import(tmp_path, form, content, a_manifest(tmp_path)) == 2
    assert repr(token) in capsys.readouterr().err


def test_a_log_without_a_length_says_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert an_import(tmp_path, "simuleval", simuleval([1000.0] * 6, source_length=None)) == 2
    assert "holds no `source_length` for" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "warning"),
    [
        ("".join(f"{400 + i} 0 1 {w}\n" for i, w in enumerate(TEXT.split())), "before they begin"),
        (f"3300 0 3000 {TEXT}", "has no line end"),
    ],
)
def test_what_is_doubtful_is_remarked_and_kept(
    content: str, warning: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert an_import(tmp_path, "whisper_online", content, a_manifest(tmp_path)) == 0
    assert warning in capsys.readouterr().out
    again = score_folder(tmp_path / "cell")
    assert len(again["warnings"]) == 1 and warning in again["warnings"][0]


def test_times_in_microseconds_contradict_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = f"3300000.0 100000 3100000 {TEXT}\n"
    assert an_import(tmp_path, "whisper_online", content, a_manifest(tmp_path)) == 2
    assert "a word ends at 3100 s of a recording of 3.3 s" in capsys.readouterr().err


def test_delays_in_frames_are_remarked_without_word_times_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert an_import(tmp_path, "simuleval", simuleval([50.0 * i for i in range(2, 8)])) == 0
    assert "final in the first quarter of the audio" in capsys.readouterr().out


def test_a_log_cut_short_says_how_many_recordings_were_promised(tmp_path: Path) -> None:
    step = Step("flush", 16_000, {"wall": 0}, committed=["yes"])
    with EventWriter(tmp_path / "events.jsonl", {"n_utterances": 3}) as writer:
        writer.write_utterance(UtteranceLog("u", "yes", 16_000, steps=[step]))
    (warning,) = score_folder(tmp_path)["warnings"]
    assert warning == "the log has 1 of the 3 recordings that its header promises"


def test_only_these_counts_only_the_recordings_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest of three recordings, and the log of one, with every word right."""
    references = a_manifest(tmp_path)
    row = json.loads(references.read_text())
    rows = [row | {"audio_filepath": f"{name}.wav"} for name in "abc"]
    for each in rows:
        (tmp_path / each["audio_filepath"]).touch()
    references.write_text("".join(json.dumps(each) + "\n" for each in rows))
    content = simulstream([1.0, 2.0, 3.3])
    assert an_import(tmp_path, "simulstream", content, references) == 0
    printed = capsys.readouterr().out
    assert "3 utterances, 2 of them absent from the file (--only-these leaves them out)" in printed
    assert "WER 66.67 %" in printed
    arguments = ["import", "simulstream", str(tmp_path / "a.txt"), "--only-these", "--into"]
    manifest = ["--manifest", str(references)]
    assert command.main([*arguments, str(tmp_path / "only"), *manifest]) == 0
    printed = capsys.readouterr().out
    assert "1 utterances; knows" in printed and "WER 0.00 %" in printed
    assert command.main([*arguments, str(tmp_path / "none")]) == 2
    assert "--only-these: the references are those of FILE" in capsys.readouterr().err
    row["audio_filepath"] = "z.wav"
    (tmp_path / "z.wav").touch()
    references.write_text(json.dumps(row))
    assert command.main([*arguments, str(tmp_path / "other"), *manifest]) == 2
    assert "is in none of the 1 references (such as 'z')" in capsys.readouterr().err


def test_an_import_without_word_times_shows_its_lagging(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delays = [1000.0, 1000.0, 2000.0, 2000.0, 3000.0, 3300.0]
    assert an_import(tmp_path, "simuleval", simuleval(delays)) == 0
    # Six words in 3.3 s: (1000 + 450 + 900 + 350 + 800 + 550) / 6, with 550 ms a word.
    assert "; AL 675 ms; LAAL 675 ms" in capsys.readouterr().out
    assert command.main([str(tmp_path / "cell")]) == 0
    note = "no word times, so no latency of words; score --metrics al_ca_ms,laal_ca_ms"
    assert note in " ".join(capsys.readouterr().out.split())
