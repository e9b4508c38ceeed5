"""Other tools' logs: written as they are known, read back, and scored as those tools score them."""

import json
import shutil
from pathlib import Path

import pytest
from places import FIXTURES
from traces import a_trace

from streaming_asr.errors import UserError
from streaming_asr.events.log import Log, Step, UtteranceLog, read_log
from streaming_asr.metrics import METRICS, compute, trace
from streaming_asr.metrics.longform import long_yaal, stream_laal
from streaming_asr.metrics.table import EVERYTHING, unmeasured
from streaming_asr.score.command import main
from streaming_asr.score.exchange import references
from streaming_asr.score.formats import FORMATS, readers, writers
from streaming_asr.score.formats.foreign import meet, reference

FIXTURES = FIXTURES / "formats"
LOG = FIXTURES / "events.jsonl"
LAGGING = [f"{name}_{clock}" for name in ("al", "laal", "dal") for clock in ("cu_ms", "ca_ms")]
TIMES = [name for name in METRICS if name.startswith(("word_latency_committed_", "finalise_last"))]


def the_log():
    return read_log(LOG)


def references_of(log):
    return [
        reference(
            u.utt, u.text, u.duration_s, words=u.words, speaker=u.speaker, language=u.language
        )
        for u in log.utterances
    ]


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


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_is_written_to_the_letter(name, tmp_path):
    written = FORMATS[name].write(the_log(), tmp_path)
    expected = {path.stem: path for path in (FIXTURES / "written" / name).iterdir()}
    assert {path.stem for path in written} == expected.keys()
    for path in written:
        assert path.read_text(encoding="utf-8") == expected[path.stem].read_text(encoding="utf-8")


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


def test_a_log_that_went_through_simuleval_keeps_its_scores():
    log = the_log()
    streams, known = readers.simuleval(FIXTURES / "written" / "simuleval" / "instances.jsonl")
    assert known == {"audio clock", "compute clock", "commits"}
    # Failed and silent look alike in instances.log: both are silent when read back.
    ours = compute([trace(utterance) for utterance in log.utterances])
    theirs = figures(streams, references_of(log))
    for name in ["wer", "cer", "word_latency_coverage", "ap_cu", *LAGGING, *TIMES]:
        if name not in unmeasured(known):
            assert theirs[name] == pytest.approx(ours[name]), name
    # Without a manifest the log's own references do; then there are no word times.
    alone = figures(streams, None)
    assert alone["wer"] == ours["wer"] and alone["laal_ca_ms"] == ours["laal_ca_ms"]
    assert alone["word_latency_committed_p50_cu_s"] is None


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
    log = the_log()
    streams, known = readers.simulstream(FIXTURES / "written" / "simulstream" / "metrics.jsonl")
    assert known == EVERYTHING - {"method"}
    imported = meet(streams, references_of(log), LOG)
    traces = [trace(utterance) for utterance in imported]
    theirs = parity()["simulstream"]
    assert {t.utt: t.hypothesis for t in traces} == theirs["final_text"]
    figures = compute(traces)
    assert figures["normalised_erasure"] == pytest.approx(theirs["normalized_erasure"])
    # It counts the audio of the failed utterance, 2 of 17 s, which we leave out.
    assert figures["rtf_total"] == pytest.approx(theirs["real_time_factor"] * 17 / 15)
    of_commits = {"cu": "stream_laal_of_commits_s", "fbk": "stream_laal_ca_of_commits_s"}
    assert stream_laal(traces, ["cu", "fbk"]) == pytest.approx(
        {clock: theirs[name] * 1000 for clock, name in of_commits.items()}
    )


def test_a_log_that_went_through_simulstream_has_each_figure_as_before_or_none_with_the_reason(
    tmp_path,
):
    cell = tmp_path / "ours"
    cell.mkdir()
    shutil.copy(LOG, cell)
    assert main([str(cell)]) == 0 and main(["export", "simulstream", str(cell)]) == 0
    file, into = cell / "simulstream" / "metrics.jsonl", tmp_path / "theirs"
    rivals = tmp_path / "rivals.jsonl"  # the same without the key that simulstream does not write
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row.pop("committed_tokens", None)
    rivals.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ours = json.loads((cell / "metrics.json").read_text(encoding="utf-8"))["metrics"]
    lost = []
    for log in (file, rivals):
        command = ["import", "simulstream", str(log), "--manifest", str(cell)]
        assert main([*command, "--into", str(into / log.stem)]) == 0
        header = read_log(into / log.stem / "events.jsonl").header
        reasons = header["unmeasured"]
        theirs = json.loads((into / log.stem / "metrics.json").read_text("utf-8"))["metrics"]
        for name, value in ours.items():
            if name in reasons:
                assert theirs[name] is None and reasons[name] in ("method", "commits"), name
            else:
                assert theirs[name] == (value if value is None else pytest.approx(value)), name
        lost.append(set(reasons))
    commits = {"al_cu_ms", "laal_ca_ms", "word_latency_committed_mean_ca_s", "rwer_committed"}
    assert not commits & lost[0] and commits < lost[1]
    shown = {"normalised_erasure", "rwer", "word_latency_shown_p50_ca_s", "rtf_total", "wer"}
    assert not shown & lost[1]


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


@pytest.mark.parametrize("comp_unaware", [False, True])
def test_a_log_that_went_through_whisper_online_keeps_one_clock(comp_unaware, tmp_path):
    log = the_log()
    writers.whisper_online(log, tmp_path, comp_unaware=comp_unaware)
    streams, known = readers.whisper_online(tmp_path, comp_unaware=comp_unaware)
    lost = unmeasured(known)
    ours = compute([trace(utterance) for utterance in log.utterances])
    theirs = figures(streams, references_of(log))
    kept = [name for name in [*LAGGING, *TIMES, "wer"] if name not in lost]
    assert ("laal_cu_ms" in kept, "laal_ca_ms" in kept) == (comp_unaware, not comp_unaware)
    for name in kept:
        assert theirs[name] == pytest.approx(ours[name]), name


def test_whisper_onlines_own_lines_are_read(tmp_path):
    text = "2691.4399 300 1380  And so, my\n6914.5501 1940 4960  fellow Americans.\n"
    a_file(tmp_path, "jfk.txt", text)
    streams, known = readers.whisper_online(tmp_path)
    assert known == {"compute clock", "commits"}
    given = [reference("jfk", "And so, my fellow Americans.", 5.0)]
    (utterance,) = meet(streams, given, tmp_path)
    seen = trace(utterance)
    assert seen.hypothesis == "And so, my fellow Americans."
    assert [step.finished_s for step in seen.steps] == pytest.approx([2.6914399, 6.9145501])
    # The audio had ended before the second line came.
    assert [step.audio_samples for step in utterance.steps] == [43_063, 80_000]


def test_lines_without_the_words_blank_are_joined_by_one(tmp_path):
    a_file(tmp_path, "a.txt", "100.0000 0 90 And so\n200.0000 90 180 my\n")
    streams, _ = readers.whisper_online(tmp_path / "a.txt", comp_unaware=True)
    given = [reference("a", "And so my", 0.2)]
    (utterance,) = meet(streams, given, tmp_path)
    assert [step.committed for step in utterance.steps] == [[" And", " so"], [" my"]]


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


def test_import_scores_a_rivals_log_and_leaves_null_what_it_does_not_tell(tmp_path, capsys):
    cell = tmp_path / "ours"
    cell.mkdir()
    shutil.copy(LOG, cell)
    assert main(["export", "whisper_online", str(cell)]) == 0
    into = tmp_path / "rivals" / "ufal"
    command = ["import", "whisper_online", str(cell / "whisper_online"), "--manifest", str(cell)]
    assert main([*command, "--into", str(into), "--name", "ufal"]) == 0
    assert "4 utterances; knows commits, compute clock; WER" in capsys.readouterr().out.replace(
        "\n", " "
    )
    result = json.loads((into / "metrics.json").read_text(encoding="utf-8"))
    assert result["config"]["method"] == {"name": "ufal"}
    metrics = result["metrics"]
    assert metrics["laal_ca_ms"] == pytest.approx(3031.004901960784)
    for name in ("laal_cu_ms", "rtf_total", "queue_max_s", "normalised_erasure", "rwer"):
        assert metrics[name] is None, name
    line = json.loads((into / "utterances.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert line["latency"]["committed_p50_cu_s"] is None and line["compute_s"] is None
    assert line["latency"]["committed_p50_ca_s"] is not None
    # What is there is not overwritten.
    assert main([*command, "--into", str(into)]) == 2
    assert "is there already; remove it" in capsys.readouterr().err
    # Scoring it again changes nothing, and what it does not know cannot be exported.
    assert main([str(into)]) == 0
    assert json.loads((into / "metrics.json").read_text(encoding="utf-8"))["metrics"] == metrics
    assert main(["export", "simuleval", str(into)]) == 2
    assert "export it as whisper_online" in capsys.readouterr().err


def test_export_goes_into_another_folder_cell_by_cell(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "all" / name).mkdir(parents=True)
        shutil.copy(LOG, tmp_path / "all" / name)
    command = ["export", "simuleval", str(tmp_path / "all"), "--into", str(tmp_path / "out")]
    assert main(command) == 0
    assert (tmp_path / "out" / "a" / "simuleval" / "instances.log").is_file()
    assert (tmp_path / "out" / "b" / "simuleval" / "instances.log").is_file()
    assert not (tmp_path / "all" / "a" / "simuleval").exists()


def test_a_recording_the_references_lack_and_one_the_file_lacks(tmp_path):
    given = [reference("u1", "the cat", 1.0), reference("u2", "the dog", 1.0)]
    streams, _ = readers.whisper_online(
        a_file(tmp_path, "u1.txt", "400 100 400 the\n900 400 900 cat\n")
    )
    imported = meet(streams, given, tmp_path / "u1.txt")
    assert [(u.utt, u.status, u.error) for u in imported] == [
        ("u1", "ok", None),
        ("u2", "failed", "absent from u1.txt"),
    ]
    assert figures(streams, given)["wer"] == 50.0  # two deletions of four words
    with pytest.raises(UserError, match="'u1' is in none of the 1 references"):
        meet(streams, given[1:], tmp_path)
    with pytest.raises(UserError, match="holds no reference text for 'u1'; give --manifest"):
        meet(streams, None, tmp_path)
    with pytest.raises(UserError, match="'u1' is in it twice"):
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


def test_what_a_format_cannot_say_is_refused(tmp_path):
    step = Step("flush", 16_000, {"wall": 0}, committed=[" a"])
    batched = Log({}, [UtteranceLog("u", "a", 16_000, batch=4, steps=[step])])
    with pytest.raises(UserError, match="batch=1"):
        writers.simulstream(batched, tmp_path)
    with pytest.raises(UserError, match="add --comp-unaware"):
        writers.whisper_online(batched, tmp_path)
    (path,) = writers.simuleval(batched, tmp_path)
    assert "elapsed" not in path.read_text(encoding="utf-8")
    back = Step("flush", 16_000, {"wall": 0}, committed=[" b"], retracted=1)
    with pytest.raises(UserError, match="takes committed words back"):
        writers.whisper_online(
            Log({}, [UtteranceLog("u", "b", 16_000, steps=[step, back])]), tmp_path
        )


def test_a_flag_that_means_nothing_for_a_format_is_refused(tmp_path, capsys):
    shutil.copy(LOG, tmp_path)
    assert main(["export", "simuleval", str(tmp_path), "--comp-unaware"]) == 2
    assert "have one meaning" in capsys.readouterr().err
    assert main(["import", "simuleval", str(tmp_path / "none.log")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_every_metric_is_measured_by_a_log_that_knows_everything():
    assert unmeasured(EVERYTHING) == {}
    assert set().union(*(metric.needs for metric in METRICS.values())) == EVERYTHING
    # A trace of nothing but text leaves exactly the metrics of text and of what a log counts.
    left = set(METRICS) - set(unmeasured([]))
    assert {"wer", "cer", "wer_formatted", "word_latency_coverage"} <= left
    timed = {name for name in left if METRICS[name].unit in ("s", "ms")}
    assert timed == set()
    assert compute([a_trace("a", [(1.0, 0.0, "a", "")])])["wer"] == 0.0


def test_the_normaliser_of_an_import_stands_in_its_result(tmp_path):
    said = a_file(tmp_path, "u1.txt", "400 100 400 twelve\n")
    stm = a_file(tmp_path, "test.stm", "u1 1 bob 0.0 1.5 one two\n")
    found = {}
    for kind in ("whisper", "identity"):
        end = ["--manifest", str(stm), "--into", str(tmp_path / kind), "--normaliser", kind]
        assert main(["import", "whisper_online", str(said), *end]) == 0
        found[kind] = json.loads((tmp_path / kind / "metrics.json").read_text("utf-8"))
    # Whisper's normaliser makes "12" of both.
    assert [each["metrics"]["wer"] for each in found.values()] == [0.0, 100.0]
    assert found["identity"]["normaliser"] == ["identity 1"]
