"""Other tools' logs, and their figures for ours."""

import json

import pytest
from places import FIXTURES
from traces import a_trace

from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.metrics import METRICS, compute, trace
from streaming_asr.metrics.longform import long_yaal, stream_laal
from streaming_asr.metrics.table import EVERYTHING, unmeasured
from streaming_asr.score.command import main
from streaming_asr.score.imports import references
from streaming_asr.score.simulstream import meet, read, reference

FIXTURES = FIXTURES / "formats"
LOG = FIXTURES / "events.jsonl"


def the_log():
    return read_log(LOG)


def parity():
    found = json.loads((FIXTURES / "parity.json").read_text(encoding="utf-8"))
    return found


def a_file(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_simuleval_and_omnisteval_give_our_lagging_for_the_exported_log():
    ours = compute([trace(utterance) for utterance in the_log().utterances])
    theirs = parity()
    for name in ("AL", "LAAL", "DAL"):
        assert ours[f"{name.lower()}_cu_ms"] == pytest.approx(theirs["simuleval"][name])
        assert ours[f"{name.lower()}_cu_ms"] == pytest.approx(theirs["omnisteval"][name.lower()])
        # OmniSTEval was given elapsed_fifo, our compute clock; SimulEval can only read elapsed.
        queued = theirs["omnisteval"][f"ca_{name.lower()}"]
        assert ours[f"{name.lower()}_ca_ms"] == pytest.approx(queued)
        assert theirs["simuleval"][f"{name}_CA"] > queued
    assert ours["ap_cu"] == pytest.approx(theirs["simuleval"]["AP"])


def test_simulstream_gives_our_figures_for_the_exported_log():
    traces = [trace(utterance) for utterance in the_log().utterances]
    theirs = parity()["simulstream"]
    assert {t.utt: t.hypothesis for t in traces} == theirs["final_text"]
    figures = compute(traces)
    assert figures["normalised_erasure"] == pytest.approx(theirs["normalized_erasure"])
    # It counts the audio of the failed utterance, 2 of 17 s, which we leave out.
    assert figures["rtf_total"] == pytest.approx(theirs["real_time_factor"] * 17 / 15)
    of_commits_ms = theirs["stream_laal_of_commits_s"] * 1000
    assert stream_laal(traces, ["cu"]) == pytest.approx({"cu": of_commits_ms})


def test_omnistevals_yaal_is_ours_and_so_are_its_figures_of_long_recordings():
    traces = [trace(utterance) for utterance in the_log().utterances]
    theirs, ours = parity()["omnisteval"], compute(traces)
    assert ours["yaal_cu_ms"] == pytest.approx(theirs["yaal"])
    assert ours["yaal_ca_ms"] == pytest.approx(theirs["ca_yaal"])
    for name, long_form in (("YAAL", long_yaal), ("LAAL", stream_laal)):
        expected = {"cu": theirs[f"Long{name} (CU)"], "ca": theirs[f"Long{name} (CA)"]}
        assert long_form(traces) == pytest.approx(expected, abs=1e-4)


def test_simulstreams_subwords_become_whole_words(tmp_path):
    rows = [
        {"id": 7, "metadata": {"wav_name": "talk.wav"}},
        {"model_loading_time": 2.0},
        _chunk(1.0, ["▁the", "▁ga"], []),
        _chunk(2.0, ["rden", "▁is"], []),
        _chunk(3.0, ["▁was", "▁red"], ["▁is"]),
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = a_file(tmp_path, "log.jsonl", text)
    recordings, known = read(path)
    assert "commits" not in known  # nothing says which words are final before the end
    ((log,), _) = meet(recordings, [reference("talk", "the garden was red", 3.0)], path)
    partial = [[" the", " ga"], [" the", " garden", " is"], []]
    assert [step.partial for step in log.steps] == partial
    assert log.steps[-1].committed == [" the", " garden", " was", " red"]
    assert [step.kind for step in log.steps] == ["audio", "audio", "flush"]
    assert [step.compute_ns for step in log.steps] == [{"wall": 100_000_000}] * 3


def a_log(path, texts):
    """A log of recordings of a second, each with one chunk."""
    rows = []
    for k, (name, text) in enumerate(texts.items()):
        rows.append({"id": k, "metadata": {"wav_name": name}})
        rows.append(_chunk(1.0, text.split(), []) | {"id": k})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _chunk(audio_s, new, gone):
    return {
        "id": 7,
        "total_audio_processed": audio_s,
        "computation_time": 0.1,
        "generated_tokens": new,
        "deleted_tokens": gone,
    }


def test_an_stm_gives_references_without_comments_and_labels(tmp_path):
    stm = (
        ";; made by hand\n"
        "a 1 bob 2.5 4.0 <o,f0,male> sat down\n"
        "a 1 bob 0.0 2.0 <o,f0,male> the cat\n"
        "a 1 bob 2.0 2.5 IGNORE_TIME_SEGMENT_IN_SCORING\n"
    )
    assert references(a_file(tmp_path, "r.stm", stm)) == [
        reference("a", "the cat sat down", 4.0, speaker="bob")
    ]
    for line, told in (("2.0 1.0 text", "ends at 1.0 s before"), ("0 1 { a / b }", "alternatives")):
        with pytest.raises(UserError, match=f"line 1: .*{told}"):
            references(a_file(tmp_path, "r.stm", f"a 1 bob {line}\n"))
    both = a_file(tmp_path, "r.stm", "a 1 bob 0 1 hello\nb 2 eve 0 1 hm\na 2 eve 1 2 yes\n")
    with pytest.raises(UserError, match="line 3: channel 2 of a, whose first line is of channel 1"):
        references(both)


def test_a_recording_the_references_lack_and_one_the_file_lacks(tmp_path):
    given = [reference("u1", "the cat", 1.0), reference("u2", "the dog", 1.0)]
    recordings, _ = read(a_log(tmp_path / "metrics.jsonl", {"u1.wav": "the cat"}))
    imported, _ = meet(recordings, given, tmp_path / "their.log")
    assert [(u.utt, u.status, u.error) for u in imported] == [
        ("u1", "ok", None),
        ("u2", "failed", "absent from their.log"),
    ]
    # Two deletions of four words.
    assert compute([trace(utterance) for utterance in imported])["wer"] == 50.0
    with pytest.raises(UserError, match=r"'u1\.wav' is in none of the 1 references"):
        meet(recordings, given[1:], tmp_path)
    with pytest.raises(UserError, match=r"'u1\.wav' is in it twice"):
        meet([*recordings, *recordings], given, tmp_path)


def test_recordings_of_one_stem_are_found_by_their_paths(tmp_path):
    path = a_log(tmp_path / "metrics.jsonl", {f"{s}/1.wav": "the cat" for s in ("p1", "p2")})
    recordings, _ = read(path)
    with pytest.raises(UserError, match=r"'p1/1\.wav' and 'p2/1\.wav' both fit the reference '1'"):
        meet(recordings, [reference("1", "the cat", 1.0)], path)
    given = [reference(f"{s}/1", "the cat", 1.0) for s in ("p2", "p1")]
    imported, _ = meet(recordings, given, path)
    assert [each.utt for each in imported] == ["p2/1", "p1/1"]


def test_every_metric_is_measured_by_a_log_that_knows_everything():
    assert unmeasured(EVERYTHING) == {}
    assert set().union(*(metric.needs for metric in METRICS.values())) == EVERYTHING
    # A trace of nothing but text leaves exactly the metrics of text and of what a log counts.
    left = set(METRICS) - set(unmeasured([]))
    assert {"wer", "cer", "wer_formatted", "word_latency_coverage"} <= left
    timed = {name for name in left if METRICS[name].unit in ("s", "ms")}
    assert timed == set()
    assert compute([a_trace("a", [(1.0, 0.0, "a", "")])])["wer"] == 0.0


def test_an_import_has_its_normaliser_and_leaves_null_what_the_file_does_not_tell(tmp_path, capsys):
    log = a_log(tmp_path / "metrics.jsonl", {"u1.wav": "twelve"})
    stm = a_file(tmp_path, "test.stm", "u1 1 bob 0.0 1.5 one two\n")
    found = {}
    for kind in ("whisper", "identity"):
        end = ["--manifest", str(stm), "--into", str(tmp_path / kind), "--normaliser", kind]
        assert main(["import", "simulstream", str(log), *end, "--name", "rival"]) == 0
        found[kind] = json.loads((tmp_path / kind / "metrics.json").read_text("utf-8"))
    knows = "1 utterances; knows audio clock, compute clock, display, steps; WER"
    assert knows in capsys.readouterr().out
    # Whisper's normaliser makes "12" of both.
    assert [each["metrics"]["wer"] for each in found.values()] == [0.0, 100.0]
    assert found["identity"]["normaliser"] == ["identity 1"]
    assert found["whisper"]["config"]["method"] == {"name": "rival"}
    metrics = found["whisper"]["metrics"]
    commits = ("laal_cu_ms", "al_ca_ms", "word_latency_committed_p50_ca_s", "rwer_committed")
    for name in (*commits, "encoder_gflops_per_s", "memory_peak_mib"):
        assert metrics[name] is None, name
    for name in ("rtf_total", "queue_max_s", "normalised_erasure", "rwer"):
        assert metrics[name] is not None, name
    cell = tmp_path / "whisper"
    header = read_log(cell / "events.jsonl").header
    assert header["unmeasured"]["laal_cu_ms"] == "commits"
    (line,) = map(json.loads, (cell / "utterances.jsonl").read_text("utf-8").splitlines())
    assert line["latency"].get("committed_p50_ca_s") is None
    # Scored again it has the same figures, and it is not overwritten.
    assert main([str(cell)]) == 0
    assert json.loads((cell / "metrics.json").read_text("utf-8"))["metrics"] == metrics
    command = ["import", "simulstream", str(log), "--manifest", str(stm)]
    assert main([*command, "--into", str(cell)]) == 2
    assert "is there already; remove it" in capsys.readouterr().err
    assert main(["import", "simulstream", str(tmp_path / "none.log")]) == 2
    assert "no such file" in capsys.readouterr().err
