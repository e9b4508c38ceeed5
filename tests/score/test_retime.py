"""A run on another machine: both clocks again from other compute times."""

import json

import pytest
from report_cells import TEN_WORDS, write_cell
from traces import a_cell

from streaming_asr.errors import UserError
from streaming_asr.events.log import EventWriter, Step, UtteranceLog
from streaming_asr.metrics.table import CA, CU, STEPS, unmeasured
from streaming_asr.score.command import main
from streaming_asr.score.retime import retime


def test_on_a_slower_machine_the_queue_grows_and_the_words_come_later(tmp_path):
    cell = a_cell(tmp_path / "a", 0.5, 0.5, 0.5, 0.5)
    found = retime(cell, slowdown=3)
    # 1.5 s each: the steps end at 2.5, 4.0, 5.5 and 7.0 s.
    assert found.retimed["word_latency_committed_mean_ca_s"] == pytest.approx((3.0 + 4.0) / 2)
    assert found.retimed["queue_max_s"] == pytest.approx(1.5)
    assert found.retimed["rtf_total"] == pytest.approx(1.5)
    assert found.measured["word_latency_committed_mean_ca_s"] == pytest.approx((1.5 + 1.5) / 2)
    assert found.retimed["headroom"] == pytest.approx(
        (found.measured["headroom"] or 0) / 3, rel=1e-3
    )


def test_a_short_last_piece_does_not_decide_and_a_busy_machine_is_named(tmp_path, capsys):
    """Nine steps of 70 ms a second of audio, and a last piece of 11 ms of audio."""
    steps = [
        Step("audio", 16_000 * k, {"wall": 70_000_000, "cpu": 30_000_000}) for k in range(1, 9)
    ]
    steps.append(Step("flush", 128_176, {"wall": 70_000_000, "cpu": 30_000_000}))
    log = UtteranceLog("u1", "", 128_176, steps=steps)
    with EventWriter(tmp_path / "events.jsonl", {}) as writer:
        writer.write_utterance(log)
    found = retime(tmp_path, slowdown=2)
    assert found.measured["headroom"] == pytest.approx(1 / 0.07, rel=1e-3)
    assert found.retimed["headroom"] == pytest.approx(1 / 0.14, rel=1e-3)
    assert main(["retime", str(tmp_path), "--slowdown", "2"]) == 0
    printed = capsys.readouterr().out
    assert "does not keep up" not in printed
    assert "this machine was busy" in printed


def test_what_does_not_depend_on_time_stays(tmp_path):
    found = retime(a_cell(tmp_path / "a", 0.5, 0.5, 0.5, 0.5), slowdown=3)
    for name in ("wer", "arwer_cu", "word_latency_committed_p50_cu_s", "normalised_erasure"):
        assert found.retimed[name] == found.measured[name], name


def test_the_command_prints_the_table_and_writes_all_metrics(tmp_path, capsys):
    cell = a_cell(tmp_path / "a", 0.5, 0.5, 0.5, 0.5)
    out = tmp_path / "out.json"
    assert main(["retime", str(cell), "--slowdown", "4", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "retimed x 4" in printed and "does not keep up" in printed
    # Four steps of 2 s for 1 s of audio each: the last waits for 3 s.
    decides = "decides: its audio waits up to 3.0 s, of 1 s that are allowed, and the wait grows by"
    assert f"{decides} 1.00 s a second" in " ".join(printed.split())
    content = json.loads(out.read_text())
    assert content["retimed"]["rtf_total"] == 2.0
    assert not (cell / "metrics.json").exists()  # what was measured stays what was measured


def untold(cell, *known):
    """The cell as if imported from a file that knows only `known`."""
    path = cell / "events.jsonl"
    header, _, rest = path.read_text().partition("\n")
    path.write_text(
        json.dumps(json.loads(header) | {"knows": known, "unmeasured": unmeasured(known)})
        + "\n"
        + rest
    )
    return cell


def test_what_an_imported_log_cannot_tell_stays_null(tmp_path):
    found = retime(untold(a_cell(tmp_path / "a", 0.5, 0.5, 0.5, 0.5), CU, CA, STEPS), slowdown=3)
    for figures in (found.measured, found.retimed):
        assert figures["normalised_erasure"] is None
    assert found.retimed["rtf_total"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("fields", "known", "slowdown", "said"),
    [
        ({"feed": "best_effort"}, None, 3, "only runs with feed=fixed"),
        ({"batch": 4}, None, 3, "run it again with batch=1"),
        ({}, None, 0, "slowdown=0: more than 0"),
        ({}, [CU, CA], 3, "without steps,"),
        ({}, [CU], 3, "without compute clock and steps,"),
    ],
)
def test_a_run_whose_times_are_not_its_own_is_refused(fields, known, slowdown, said, tmp_path):
    cell = a_cell(tmp_path / "a", 1, 1, 1, 1, **fields)
    if known is not None:
        untold(cell, *known)
    with pytest.raises(UserError, match=said):
        retime(cell, slowdown=slowdown)


def test_of_several_cells_one_is_to_be_named(tmp_path):
    for name in "ab":
        a_cell(tmp_path / name, 1, 1, 1, 1)
    with pytest.raises(UserError, match="holds 2 cells; name one of them"):
        retime(tmp_path)


# -- score compare --worse --


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Cells <n>-<n_wrong>-<ms>: n utterances of one to four sentences with a wrong word in each of
    the first n_wrong, and the compute of a step."""
    root = tmp_path_factory.mktemp("cells")
    names = "20-0-20 20-3-20 20-3-20-b 20-5-20 20-19-20 20-0-400 3-0-20 3-3-20 3-0-40"
    for name in names.split():
        n, n_wrong, ms = map(int, name.removesuffix("-b").split("-"))
        said = {f"u{k:02}": " ".join([TEN_WORDS] * (1 + k % 4)) for k in range(n)}
        texts = {
            utt: (text, text.replace("early", "yearly", 1) if k < n_wrong else text)
            for k, (utt, text) in enumerate(said.items())
        }
        write_cell(root / name, texts=texts, compute_s=ms / 1000)
    return root


LACKS = "cannot be judged: "
THREE = (
    f"{LACKS}3 utterances (1 speaker, fewer than 10: too few to draw), and an interval needs 6: "
)


@pytest.mark.parametrize(
    ("baseline", "run", "margins", "status", "sentence"),
    [
        # 19 errors more in 500 words, in 19 of 20 utterances: 3.8 points.
        ("20-0-20", "20-19-20", "wer=0.5", 1, "wer: WORSE by more than 0.5 %"),
        ("20-0-20", "20-19-20", "wer=20", 0, "wer: not surely worse by more than 20 %"),
        ("20-19-20", "20-0-20", "wer=0", 0, "wer: not surely worse by more than 0 %"),
        ("20-0-20", "20-19-20", "coverage=1", 1, "coverage: WORSE by more than 1 %"),
        ("20-0-20", "20-19-20", "coverage=20", 0, "coverage: not surely worse by more than 20 %"),
        ("20-0-20", "20-0-400", "wer=0 commit_p90=100ms", 1, "commit_p90: WORSE by more than 0.1"),
        ("20-0-20", "20-0-400", "commit_p90=9s", 0, "commit_p90: not surely worse by more than 9"),
        # Runs that do not differ.
        (
            "20-3-20",
            "20-3-20-b",
            "wer=0 commit_p90=0s coverage=0",
            0,
            "wer: not worse by more than",
        ),
        # Too few that differ, or that there are, for an interval.
        ("20-0-20", "20-3-20", "wer=0.5", 1, f"wer: {LACKS}3 utterances differ, and an interval"),
        ("20-0-20", "20-5-20", "wer=20", 1, f"wer: {LACKS}5 utterances differ, and an interval"),
        ("3-0-20", "3-3-20", "wer=0.5", 1, f"wer: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "wer=0.5", 1, f"wer: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "commit_p50=9s", 1, f"commit_p50: {THREE}3 are missing"),
        ("3-0-20", "3-0-40", "commit_p90=9s", 1, f"commit_p90: {THREE}3 are missing"),
        ("20-0-20", "20-19-20", "memory=9MiB", 1, f"memory: {LACKS}it was not measured"),
        # What never has an interval. Steps of 0.3 s take 20 and 40 ms: RTF 0.068 and 0.136,
        # headroom 15 and 7.5.
        ("3-0-20", "3-0-40", "rtf=0.05", 1, "rtf: WORSE by more than 0.05"),
        ("3-0-20", "3-0-40", "rtf=0.08", 0, "rtf: not worse by more than 0.08"),
        ("3-0-40", "3-0-20", "rtf=0.05", 0, "rtf: not worse by more than 0.05"),
        ("3-0-20", "3-0-40", "headroom=7", 1, "headroom: WORSE by more than 7"),
        ("3-0-20", "3-0-40", "headroom=8", 0, "headroom: not worse by more than 8"),
        ("3-0-40", "3-0-20", "headroom=7", 0, "headroom: not worse by more than 7"),
        ("3-0-20", "3-0-40", "step_p50_ms=10ms", 1, "step_p50_ms: WORSE by more than 10 ms"),
        ("3-0-20", "3-0-40", "step_p50_ms=25ms", 0, "step_p50_ms: not worse by more than 25 ms"),
    ],
)
def test_the_gate(baseline, run, margins, status, sentence, cells, capsys):
    pair = [str(cells / baseline), str(cells / run)]
    assert main(["compare", *pair, "--worse", *margins.split()]) == status
    assert f": {sentence}" in capsys.readouterr().out
    assert main(["compare", *pair]) == 0  # without a gate there is none


def test_a_short_name_is_of_the_clock_that_is_compared(cells, capsys):
    runs = [str(cells / "20-0-20"), str(cells / "20-0-400")]
    command = ["compare", *runs, "--worse", "commit_p90=100ms", "--clock"]
    assert main([*command, "ca"]) == 1
    assert main([*command, "cu"]) == 0  # the audio came at the same times
    assert "word_latency_committed_p90_cu_s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        ("wer", "takes a number of 0 or more in %, as in wer=1%"),
        ("mean_beam=1", "mean_beam is not better high or low"),
        ("commit_p90=1", "takes a number of 0 or more in s or ms"),
        ("were=1", "no such metric; did you mean wer?"),
    ],
)
def test_a_wrong_margin_is_refused_before_anything_is_read(margin, message, capsys):
    assert main(["compare", "nowhere", "--worse", margin]) == 2
    assert message in capsys.readouterr().err
