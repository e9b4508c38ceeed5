"""Other tools' logs, and their figures for ours."""

import json
from pathlib import Path

import pytest
from places import FIXTURES
from traces import a_trace

from streaming_asr.errors import UserError
from streaming_asr.events.log import read_log
from streaming_asr.metrics import METRICS, compute, trace
from streaming_asr.metrics.longform import long_yaal, stream_laal
from streaming_asr.metrics.table import EVERYTHING, unmeasured
from streaming_asr.score.command import main
from streaming_asr.score.formats import readers
from streaming_asr.score.formats.foreign import meet, reference
from streaming_asr.score.imports import references

FIXTURES = FIXTURES / "formats"
LOG = FIXTURES / "events.jsonl"


def the_log():
    return read_log(LOG)


def parity():
    found = json.loads((FIXTURES / "parity.json").read_text(encoding="utf-8"))
    return found


def figures(streams, given):
    imported = meet(streams, given, Path("theirs"))
    return compute([trace(utterance) for utterance in imported])


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


def test_simulevals_elapsed_is_taken_apart_into_audio_and_compute(tmp_path):
    # Four chunks of 1 s with 1.5 s of compute each, a word from each: elapsed adds all compute to
    # the audio, 2.5 5.0 7.5 10.0; the queue shows the words at 2.5 4.0 5.5 7.0.
    row = {
        "index": 0,
        "prediction": "a b c d",
        "delays": [1000, 2000, 3000, 4000],
        "elapsed": [2500, 5000, 7500, 10000],
        "reference": "a b c d",
        "source": ["/data/talk 1.wav", "samplerate: 16000 Hz"],
        "source_length": 4000,
    }
    streams, known = readers.simuleval(a_file(tmp_path, "instances.log", json.dumps(row) + "\n"))
    (utterance,) = meet(streams, None, tmp_path)
    assert utterance.utt == "talk 1" and known == {"audio clock", "compute clock", "commits"}
    assert [step.finished_s for step in trace(utterance).steps] == [2.5, 4.0, 5.5, 7.0]
    assert [step.kind for step in utterance.steps] == ["audio", "audio", "audio", "flush"]


def test_an_instances_log_without_compute_has_no_compute_clock(tmp_path):
    row = {"prediction": "ab", "delays": [500, 700], "reference": "ab", "source_length": 900}
    streams, known = readers.simuleval(a_file(tmp_path, "i.log", json.dumps(row) + "\n"))
    assert known == {"audio clock", "commits"}
    (utterance,) = meet(streams, None, tmp_path)
    # Latency unit char: two delays for one word.
    assert [step.committed for step in utterance.steps] == [["a"], ["b"], []]
    assert utterance.steps[-1].kind == "flush" and utterance.duration_samples == 14_400


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
    streams, known = readers.simulstream(a_file(tmp_path, "log.jsonl", text))
    assert "commits" not in known  # nothing says which words are final before the end
    emissions = streams[0].emissions
    assert [each.partial for each in emissions] == [(" the", " ga"), (" the", " garden", " is"), ()]
    assert emissions[-1].committed == (" the", " garden", " was", " red")


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
    row = {"prediction": "the cat", "delays": [400, 900], "source": "u1.wav"}
    streams, _ = readers.simuleval(a_file(tmp_path, "their.log", json.dumps(row)))
    imported = meet(streams, given, tmp_path / "their.log")
    assert [(u.utt, u.status, u.error) for u in imported] == [
        ("u1", "ok", None),
        ("u2", "failed", "absent from their.log"),
    ]
    assert figures(streams, given)["wer"] == 50.0  # two deletions of four words
    with pytest.raises(UserError, match=r"'u1\.wav' is in none of the 1 references"):
        meet(streams, given[1:], tmp_path)
    with pytest.raises(UserError, match=r"no reference text for 'u1\.wav'; give --manifest"):
        meet(streams, None, tmp_path)
    with pytest.raises(UserError, match=r"'u1\.wav' is in it twice"):
        meet([*streams, *streams], given, tmp_path)


def test_recordings_of_one_stem_are_named_by_their_paths(tmp_path):
    row = {"prediction": "the cat", "delays": [500, 900], "elapsed": [500, 900]}
    row |= {"reference": "the cat", "source_length": 1000}
    rows = [row | {"index": i, "source": [f"{s}/1.wav"]} for i, s in enumerate(("p1", "p2"))]
    path = a_file(tmp_path, "instances.log", "".join(json.dumps(r) + "\n" for r in rows))
    streams, _ = readers.simuleval(path)
    assert [each.utt for each in meet(streams, None, path)] == ["p1/1.wav", "p2/1.wav"]
    with pytest.raises(UserError, match=r"'p1/1\.wav' and 'p2/1\.wav' both fit the reference '1'"):
        meet(streams, [reference("1", "the cat", 1.0)], path)
    given = [reference(f"{s}/1", "the cat", 1.0) for s in ("p2", "p1")]
    assert [each.utt for each in meet(streams, given, path)] == ["p2/1", "p1/1"]


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
    row = {"prediction": "twelve", "delays": [900], "source": ["u1.wav"]}
    log = a_file(tmp_path, "instances.log", json.dumps(row))
    stm = a_file(tmp_path, "test.stm", "u1 1 bob 0.0 1.5 one two\n")
    found = {}
    for kind in ("whisper", "identity"):
        end = ["--manifest", str(stm), "--into", str(tmp_path / kind), "--normaliser", kind]
        assert main(["import", "simuleval", str(log), *end, "--name", "rival"]) == 0
        found[kind] = json.loads((tmp_path / kind / "metrics.json").read_text("utf-8"))
    assert "1 utterances; knows audio clock, commits; WER" in capsys.readouterr().out
    # Whisper's normaliser makes "12" of both.
    assert [each["metrics"]["wer"] for each in found.values()] == [0.0, 100.0]
    assert found["identity"]["normaliser"] == ["identity 1"]
    assert found["whisper"]["config"]["method"] == {"name": "rival"}
    metrics = found["whisper"]["metrics"]
    for name in ("laal_ca_ms", "rtf_total", "queue_max_s", "normalised_erasure", "rwer"):
        assert metrics[name] is None, name
    assert metrics["laal_cu_ms"] == 900.0
    cell = tmp_path / "whisper"
    (line,) = map(json.loads, (cell / "utterances.jsonl").read_text("utf-8").splitlines())
    assert line["compute_s"] is None
    # Scored again it has the same figures, and it is not overwritten.
    assert main([str(cell)]) == 0
    assert json.loads((cell / "metrics.json").read_text("utf-8"))["metrics"] == metrics
    assert main(["import", "simuleval", str(log), "--into", str(cell)]) == 2
    assert "is there already; remove it" in capsys.readouterr().err
    assert main(["import", "simuleval", str(tmp_path / "none.log")]) == 2
    assert "no such file" in capsys.readouterr().err
