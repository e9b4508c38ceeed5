"""Runs beside their baseline: paired differences, and what cannot be compared."""

import json

import pytest

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.metrics.table import unmeasured
from streaming_asr.score import score_folder
from streaming_asr.score.command import main
from streaming_asr.score.compare import compare, read_runs, table
from streaming_asr.utterance import TimedWord


def a_cell(
    folder,
    *,
    wrong=0,
    late_s=0.0,
    n=36,
    n_speakers=12,
    cpu="abacus",
    chunk="300ms",
    n_expected=None,
    **fields,
):
    """`n` utterances of "big fish swim home"; every `wrong`-th has an error, words come `late_s`
    later."""
    text = "big fish swim home"
    folder.mkdir(parents=True)
    header = {"config": {"chunk": chunk}, "machine": {"cpu": cpu}}
    if n_expected is not None:
        header["n_utterances"] = n_expected
    with EventWriter(folder / "events.jsonl", header) as writer:
        for k in range(n):
            heard = text.replace("fish", "dish") if wrong and k % wrong == 0 else text
            words = [TimedWord(w, 0.5 * i, 0.5 * i + 0.4) for i, w in enumerate(text.split())]
            wall = round((0.1 + late_s + 0.01 * (k % 7)) * 1e9)
            steps = [Step("flush", 32_000, {"wall": wall}, committed=[heard])]
            log = UtteranceLog(f"u{k}", text, 32_000, words, f"s{k % n_speakers}", steps=steps)
            log.audio_hash = f"hash {k}"
            for name, value in fields.items():
                setattr(log, name, value)
            writer.write_utterance(log)
    return folder


def rows_of(*folders, against=None):
    runs = read_runs([str(folder) for folder in folders])
    return {(row["metric"], row["run"]): row for row in table(compare(runs, against))}


def test_a_difference_is_run_minus_baseline_and_paired_over_speakers(tmp_path):
    rows = rows_of(a_cell(tmp_path / "a", wrong=1), a_cell(tmp_path / "b", wrong=3, late_s=0.3))
    wer = rows["wer", "b"]
    assert wer["difference"] == pytest.approx(100 * (12 - 36) / 144)
    assert wer["interval"][0] < wer["difference"] < wer["interval"][1] < 0
    # Speakers 0, 3, 6 and 9 are as wrong in both; of the other eight's signs all agree.
    assert (wer["n_differ"], wer["n_drawn"], wer["drawn"]) == (8, 12, "12 speakers")
    assert wer["p_value"] == 2 / 2**8
    for q in ("p50", "p90"):
        late = rows[f"word_latency_committed_{q}_ca_s", "b"]
        assert late["difference"] == pytest.approx(0.3, abs=0.03)  # of the right words
        assert late["n_differ"] == 12


def test_where_few_speakers_differ_there_is_no_p_and_it_is_said(tmp_path, capsys):
    cells = [a_cell(tmp_path / name, wrong=wrong) for name, wrong in (("a", 2), ("b", 6))]
    row = rows_of(*cells)["wer", "b"]
    assert row["difference"] == pytest.approx(100 * (6 - 18) / 144)
    assert (row["n_differ"], row["interval"], row["p_value"], row["p_holm"]) == (4, *[None] * 3)
    assert main(["compare", *map(str, cells)]) == 0
    printed = capsys.readouterr().out
    assert "4 of 12" in printed and "no interval, no p: fewer than 6 differ" in printed


def test_p_values_are_corrected_for_all_runs_of_the_table(tmp_path):
    folders = [
        a_cell(tmp_path / name, wrong=w) for name, w in zip("abcd", (1, 3, 3, 3), strict=True)
    ]
    rows = rows_of(*folders)
    alone = rows_of(*folders[:2])["wer", "b"]
    assert alone["p_holm"] == alone["p_value"]
    assert rows["wer", "b"]["p_holm"] == 3 * alone["p_value"] == 6 / 2**8


def test_below_ten_speakers_it_draws_utterances_and_says_so(tmp_path, capsys):
    cells = [a_cell(tmp_path / name, wrong=3, n_speakers=4) for name in "ab"]
    assert main(["compare", *map(str, cells)]) == 0
    printed = capsys.readouterr().out
    assert "36 utterances (4 speakers, fewer than 10: too few to draw)" in printed
    result = score_folder(cells[0])["intervals"]
    assert (result["drawn"], result["n_drawn"]) == ("utterance", 36)
    assert "4 speakers" in result["note"]


def test_failed_and_silent_utterances_stay_in_n(tmp_path):
    whole = a_cell(tmp_path / "a")
    half = a_cell(tmp_path / "b", status="failed", error="out of memory")
    rows = rows_of(whole, half)
    assert rows["wer", "b"]["difference"] == 100.0
    # No word of b is timed, so there is no latency to compare, not one of 0.
    assert "difference" not in rows["word_latency_committed_p50_ca_s", "b"]


def test_streaming_minus_offline_finds_the_baseline_of_each_corpus(tmp_path):
    for n in (24, 36):
        for method, wrong in (("offline", 6), ("whisperrt", 3)):
            a_cell(tmp_path / f"method={method},n={n}", wrong=wrong, n=n)
    rows = rows_of(tmp_path, against="method=offline")
    assert {(row["run"], row["baseline"]) for row in rows.values()} == {
        (f"method=whisperrt,n={n}", f"method=offline,n={n}") for n in (24, 36)
    }


def test_a_baseline_of_several_chunks_is_paired_at_the_run_s_own(tmp_path):
    for chunk, late_s in (("300ms", 0.5), ("1s", 2.0)):
        a_cell(tmp_path / f"method=reencode,chunk={chunk}", chunk=chunk, late_s=late_s)
        a_cell(tmp_path / f"method=ufal,chunk={chunk}", chunk=chunk)
    rows = rows_of(tmp_path, against="method=reencode")
    earlier = {
        run: row["difference"] for (name, run), row in rows.items() if name.endswith("p50_ca_s")
    }
    assert earlier == {
        "method=ufal,chunk=300ms": pytest.approx(-0.5),
        "method=ufal,chunk=1s": pytest.approx(-2.0),
    }


def test_the_command_prints_and_writes_the_comparison(tmp_path, capsys):
    a, b = a_cell(tmp_path / "a", wrong=2), a_cell(tmp_path / "b", wrong=6, cpu="slide rule")
    out = tmp_path / "out.json"
    assert main(["compare", str(a), str(b), "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "baseline: a" in printed and "drawn: 12 speakers, 10000 times, paired" in printed
    assert "b was measured on another machine (slide rule) than a (abacus)" in printed
    rows = json.loads(out.read_text())["rows"]
    assert rows[0]["metric"] == "wer" and len(rows) == 3


def test_a_batched_run_is_compared_in_wer_alone(tmp_path):
    rows = rows_of(a_cell(tmp_path / "a"), a_cell(tmp_path / "b", wrong=4, batch=8))
    assert {metric for metric, _ in rows} == {"wer"}


def test_logs_of_other_corpora_are_refused(tmp_path):
    a = a_cell(tmp_path / "a")
    for name, fields, said in (
        ("fewer", {"n": 30}, "36, of which both have 30|30 and 36, of which both have 30"),
        ("text", {"text": "big fish swam home"}, "another reference for utterance u0"),
        ("noise", {"audio_hash": "other"}, "another audio for utterance u0"),
    ):
        with pytest.raises(UserError, match=said):
            rows_of(a, a_cell(tmp_path / name, **fields))


def test_what_cannot_be_compared_is_answered_with_a_remedy(tmp_path, capsys):
    a = a_cell(tmp_path / "sweep" / "a")
    assert main(["compare", str(a)]) == 2
    assert "give two runs or more" in capsys.readouterr().err
    assert main(["compare", str(a), str(a)]) == 2
    assert "given twice" in capsys.readouterr().err
    b = a_cell(tmp_path / "sweep" / "b", n=30)
    assert main(["compare", str(tmp_path), "--against", "offline"]) == 2
    assert "no cell is named so; there are a, b" in capsys.readouterr().err
    assert main(["compare", str(tmp_path), "--against", "b"]) == 2
    assert "run the baseline on the same corpus" in capsys.readouterr().err
    with open(b / "events.jsonl", "a") as log:
        log.write(b"".join((a / "events.jsonl").read_bytes().splitlines(True)[1:]).decode())
    assert main(["compare", str(a), str(b)]) == 2
    assert "utterance 'u0' is in the log already" in capsys.readouterr().err
    (b / "events.jsonl").write_text('{"kind":"header","schema":2}\n')
    assert main(["compare", str(a), str(b)]) == 2
    assert "written in schema 2" in capsys.readouterr().err


def test_a_latency_that_an_imported_log_cannot_tell_is_not_compared(tmp_path, capsys):
    cells = [a_cell(tmp_path / name, wrong=3) for name in "ab"]
    log = cells[1] / "events.jsonl"
    header, _, rest = log.read_text().partition("\n")
    lost = unmeasured(["audio clock", "commits"])
    log.write_text(json.dumps(json.loads(header) | {"unmeasured": lost}) + "\n" + rest)
    assert {metric for metric, _ in rows_of(*cells)} == {"wer"}
    by_audio = compare(read_runs([str(cell) for cell in cells], clock="cu"))
    assert "word_latency_committed_p50_cu_s" in by_audio[0].differences
    assert main(["compare", *map(str, cells)]) == 0
    assert "b: no latency" in capsys.readouterr().out


def test_a_run_that_was_broken_off_says_how_far_it_came(tmp_path, capsys):
    a = a_cell(tmp_path / "a", n=30, n_expected=40)
    b = a_cell(tmp_path / "b", n=30, wrong=2, n_expected=40)
    whole = a_cell(tmp_path / "whole", n=30, n_expected=30)
    assert main(["compare", str(a), str(b), str(whole), "--json", str(tmp_path / "o.json")]) == 0
    printed = capsys.readouterr().out
    for name in "ab":
        assert f"{name}: broken off after 30 of 40 recordings" in printed
    assert "whole: broken off" not in printed
    remarks = json.loads((tmp_path / "o.json").read_text())["remarks"]
    assert "a: broken off after 30 of 40 recordings" in remarks


def test_other_speakers_of_the_same_utterances_are_refused(tmp_path, capsys):
    a = a_cell(tmp_path / "a", n_speakers=12)
    b = a_cell(tmp_path / "b", n_speakers=9, wrong=2)
    unknown = a_cell(tmp_path / "unknown", speaker=None)
    assert main(["compare", str(a), str(b)]) == 2
    assert "have another speaker for utterance u9" in capsys.readouterr().err
    assert main(["compare", str(a), str(b), "--other-task"]) == 0
    printed = capsys.readouterr().out
    assert "drawn: 12 speakers" in printed
    assert "b has other speakers than a, whose are drawn" in printed
    assert main(["compare", str(a), str(unknown)]) == 0  # an imported log may name none
    assert "drawn: 12 speakers" in capsys.readouterr().out
