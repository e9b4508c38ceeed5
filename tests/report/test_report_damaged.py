"""The report of results that were damaged after they were written: a row that says so."""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from report_cells import amend, write_cell, write_failed

from streaming_asr.errors import UserError
from streaming_asr.report import build
from streaming_asr.report.page import HERE, SCRIPT, script
from streaming_asr.score.results import read_results

DEEP = "[" * 100_000
NAME = "method=ufal,chunk=300ms"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return write_cell(tmp_path_factory.mktemp("whole") / NAME)


@pytest.fixture
def cell(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "results" / NAME))


def shown(cell):
    assert build(cell.parent).is_file()
    (result,) = read_results(cell.parent)
    return result


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[1]",
        DEEP,
        '{"utt": "u1", "hypothesis": "a", "audio_s": "long"}',
        '{"utt": "u1", "hypothesis": "a", "audio_s": 1, "wer": "high"}',
        '{"utt": "u1", "hypothesis": "a", "audio_s": 1, "latency": [1]}',
        '{"utt": 7}',
        "\udcff",
    ],
    ids=lambda line: ascii(line[:30]),
)
def test_damaged_lines_of_utterances_leave_the_numbers(cell, line):
    (cell / "utterances.jsonl").write_bytes(os.fsencode(line + "\n"))
    assert shown(cell).metrics["wer"] is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"wer": -1.0}}, "wer is -1, which is not from 0 to 1e+06"),
        ({"metrics": {"wer": True}}, "must be `float | null`"),
        ({"metrics": {"wer": "7"}}, "must be `float | null`"),
        ({"metrics": {"word_latency_coverage": 100.5}}, "not from 0 to 100"),
        ({"metrics": {"word_latency_committed_p50_ca_s": 1e7}}, "not from -1e+06 to 1e+06"),
        ({"metrics": {"memory_peak_mib": -1}}, "memory_peak_mib is -1"),
        ({"n_failed": 3}, "of 2 utterances"),
        ({"n_utterances": -1}, "n_utterances must be `int` >= 0"),
        ({"n_failed": "none"}, "n_failed must be `int"),
        ({"intervals": {"metrics": {"wer": [9.0, 1.0]}}}, "the interval of wer is from 9 to 1"),
        ({"intervals": {"metrics": {"wer": [-5.0, 1.0]}}}, "wer is -5"),
        ({"intervals": {"drawn": None, "n_drawn": []}, "invalid": [1]}, "invalid[0] must be `str`"),
        ({"config": {"feed": ["fixed"]}}, "config.feed must be `str"),
    ],
)
def test_what_no_run_can_have_is_a_row_without_numbers(cell, change, said):
    result = shown(amend(cell, **change))
    assert not result.metrics and said in str(result.error)
    assert "metrics.json is unreadable" in str(result.error) and "score again" in str(result.error)


@pytest.mark.parametrize(
    "config",
    [
        "a: [",
        DEEP,
        "- 1",
        "method: ufal",
        "data: [1]",
        "data: {snr_db: loud}",
        "model: 7",
        "\udcff",
    ],
    ids=lambda config: ascii(config[:20]),
)
@pytest.mark.parametrize("failed", ['{"error": "no weights"}', DEEP, "7", '{"error": 1}'])
def test_a_failed_cell_is_a_row_whatever_is_left_of_it(tmp_path, config, failed):
    cell = write_failed(tmp_path / NAME, "")
    (cell / ".hydra" / "config.yaml").write_bytes(os.fsencode(config))
    (cell / "failed.json").write_text(failed)
    assert shown(cell).error and not shown(cell).metrics


@pytest.mark.parametrize(
    "name", ["metrics.json", "utterances.jsonl", "events.jsonl", "failed.json"]
)
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(cell, name):
    (cell / name).unlink(missing_ok=True)
    os.mkfifo(cell / name)
    assert bool(shown(cell).error) == (name == "metrics.json")


def test_a_cell_whose_name_is_no_text_is_refused(cell):
    cell.rename(cell.with_name(os.fsdecode(b"method=u\xff")))
    with pytest.raises(UserError, match=r"its name is no UTF-8 text; rename it"):
        build(cell.parent)


def test_a_disk_that_fills_leaves_the_page_as_it_was(cell):
    page = build(cell.parent)
    before = page.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(UserError, match="cannot be written"):
            build(cell.parent)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert page.read_bytes() == before and [page] == list(cell.parent.glob("*report*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here: Linux has it")
@pytest.mark.parametrize(
    ("to", "command", "status", "told"),
    [
        ("full", "report", 2, "error: the output: cannot be written (No space left on device)"),
        ("full", "list", 2, "error: the output: cannot be written (No space left on device)"),
        ("full", "--help", 2, "error: the output: cannot be written (No space left on device)"),
        ("closed", "list", 141, ""),  # as `list | head -1`
    ],
)
def test_an_output_that_takes_no_more_ends_the_program(cell, to, command, status, told):
    line = [sys.executable, "-m", "streaming_asr", command]
    line += [str(cell.parent)] if command == "report" else []
    read, write = os.pipe()
    os.close(read)
    with open("/dev/full", "w") as full, os.fdopen(write, "w") as closed:
        out = full if to == "full" else closed
        ended = subprocess.run(line, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.partition(";")[0]) == (status, told)


# -- The page's script --


ROOT = Path(__file__).parents[2]
OXLINT = shutil.which("oxlint", path=str(Path(sys.executable).parent))


@pytest.mark.skipif(not OXLINT, reason="no oxlint here: pip install -e '.[dev]'")
def test_the_parts_of_the_script_join_without_an_error(tmp_path):
    """No two parts define one name, and none takes a name that is not there."""
    assert OXLINT
    file = tmp_path / "page.js"
    file.write_text(script(), encoding="utf-8")
    command = [OXLINT, "--config", str(ROOT / ".oxlintrc.json"), "--format", "unix", str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_joined_script_has_every_part_and_imports_nothing():
    text = script()
    assert {file.stem for file in (HERE / "script").iterdir()} == set(SCRIPT)
    assert not re.search(r"^(import|export)\b", text, re.MULTILINE)
    heads = [(HERE / "script" / f"{name}.js").read_text("utf-8").splitlines()[0] for name in SCRIPT]
    assert [text.index(head) for head in heads] == sorted(text.index(head) for head in heads)
