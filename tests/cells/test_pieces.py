"""One cell over several jobs: split, joined, completed, and kept apart from what is not its own."""

import json
import shutil

import pytest
from run_fakes import RUN, arguments, cu_scores, program, texts

from streaming_asr.cells import hashes
from streaming_asr.events.log import read_log
from streaming_asr.run import cell as cell_module
from streaming_asr.run import command as run
from streaming_asr.score import find_cells
from streaming_asr.score.command import main
from streaming_asr.score.results import read_results

CELL = "method=parrot,chunk=300ms,data=phrases,model=none"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def cell(root, name="default"):
    return root / "outputs" / name / CELL


def test_a_cell_in_pieces_equals_one_that_ran_whole(tmp_path):
    assert run.main(arguments(tmp_path, "pieces=3")) == 0
    assert run.main(arguments(tmp_path, "name=whole")) == 0
    ours, whole = cell(tmp_path), cell(tmp_path, "whole")
    assert texts(ours) == texts(whole)
    assert cu_scores(ours) == cu_scores(whole)
    results = [json.loads((f / "metrics.json").read_text()) for f in (ours, whole)]
    assert results[0]["hashes"] == results[1]["hashes"]
    assert results[0]["cell"] == results[1]["cell"] == CELL
    sizes = [
        len(read_log(ours / "pieces" / f"{k}-of-3" / "events.jsonl").utterances) for k in (1, 2, 3)
    ]
    assert sizes == [2, 2, 1]
    assert find_cells(tmp_path) == sorted([ours, whole])
    assert [each.folder.name for each in read_results(tmp_path / "outputs" / "default")] == [CELL]


def test_a_finished_cell_is_skipped_whole_or_in_pieces(tmp_path, capsys):
    counter = tmp_path / "steps"
    command = arguments(tmp_path, f"method.counter={counter}")
    assert run.main([*command, "pieces=2"]) == 0
    n_steps = counter.stat().st_size
    assert run.main([*command, "pieces=2"]) == 0
    assert run.main(command) == 0
    assert run.main([*command, "pieces=3", "name=default"]) == 2  # pieces of 2 lie there
    assert "holds pieces of 2; give pieces=2" in capsys.readouterr().err
    assert counter.stat().st_size == n_steps


def test_a_killed_sweep_in_pieces_is_completed_by_the_same_command(tmp_path):
    command = ["-m", *arguments(tmp_path, "chunk=100ms,300ms", "pieces=3")]
    killed = program(tmp_path, RUN, *command, KILL_AT="60")
    assert killed.returncode == -9
    root = tmp_path / "outputs" / "default"
    unfinished = [each for each in read_results(root) if each.error]
    assert unfinished and all("pieces are finished" in (each.error or "") for each in unfinished)
    assert run.main(command) == 0
    assert run.main(["-m", *arguments(tmp_path, "chunk=100ms,300ms", "name=unbroken")]) == 0
    done = sorted(path.parent for path in root.glob("*/metrics.json"))
    assert len(done) == 2
    for one in done:
        assert texts(one) == texts(tmp_path / "outputs" / "unbroken" / one.name)


def test_a_lost_piece_is_told_and_completed(tmp_path, capsys):
    command = arguments(tmp_path, "pieces=3")
    for k in (1, 3):
        assert run.main([*command, f"piece={k}"]) == 0
    capsys.readouterr()
    assert main([str(tmp_path / "outputs")]) == 2
    assert "2 of 3 pieces are finished; the same command completes" in capsys.readouterr().err
    (row,) = read_results(tmp_path / "outputs")
    assert (row.method, row.chunk_s) == ("parrot", 0.3)
    assert row.error is not None and row.error.startswith("2 of 3 pieces are finished")
    assert run.main(command) == 0
    assert len(read_log(cell(tmp_path) / "events.jsonl").utterances) == 5


def test_score_joins_pieces_that_were_finished_elsewhere(tmp_path):
    command = arguments(tmp_path, "pieces=2")
    assert run.main(command) == 0
    for name in ("events.jsonl", "metrics.json", "utterances.jsonl"):
        (cell(tmp_path) / name).unlink()
    assert main([str(tmp_path / "outputs")]) == 0
    result = json.loads((cell(tmp_path) / "metrics.json").read_text())
    assert result["n_utterances"] == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["pieces=0"], "pieces=0: must be 1 or more"),
        (["pieces=6"], "pieces=6: there are only 5 utterances; give pieces=5 or less"),
        (["pieces=3", "limit=2"], "there are only 2 utterances"),
        (["pieces=2", "piece=3"], "piece=3: must be 1 to 2"),
        (["piece=2"], "piece=2: must be 1 to 1"),
        (["-m", "pieces=2,3"], "pieces=2,3: a command has one number of pieces"),
    ],
)
def test_a_wrong_number_of_pieces_is_refused_before_anything_runs(given, told, tmp_path, capsys):
    assert run.main(arguments(tmp_path, *given)) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


def test_a_worker_with_other_code_is_named_and_its_piece_computed_anew(
    tmp_path, capsys, monkeypatch
):
    command = arguments(tmp_path, "pieces=3")
    with monkeypatch.context() as other:
        other.setattr(cell_module, "modules", lambda *targets: {"my.parrot": "0ther"})
        assert run.main([*command, "piece=2"]) == 0
    assert run.main([*command, "piece=1"]) == 0
    assert run.main([*command, "piece=3"]) == 1
    assert "piece 2 of 3 ran with another code than most" in capsys.readouterr().err
    assert not (cell(tmp_path) / "metrics.json").exists()
    assert run.main(command) == 0
    assert (cell(tmp_path) / "pieces" / "2-of-3.old-1").is_dir()
    header = read_log(cell(tmp_path) / "events.jsonl").header
    assert header["hashes"]["code"] == hashes.hash_of(hashes.modules("run_fakes.Parrot"))


def test_a_piece_of_another_sweep_is_not_joined(tmp_path, capsys):
    command = arguments(tmp_path, "pieces=2")
    assert run.main([*command, "piece=1"]) == 0
    pieces = cell(tmp_path) / "pieces"
    shutil.copytree(pieces / "1-of-2", pieces / "2-of-2")
    assert main([str(cell(tmp_path))]) == 2
    assert "its log is no piece 2 of 2" in capsys.readouterr().err
    shutil.copytree(pieces / "1-of-2", pieces / "2-of-4")
    assert main([str(cell(tmp_path))]) == 2
    assert "holds pieces of 2 and of 4" in capsys.readouterr().err
    assert not (cell(tmp_path) / "events.jsonl").exists()


def test_pieces_of_changed_data_do_not_overwrite_the_cell_that_ran_whole(tmp_path):
    assert run.main(arguments(tmp_path)) == 0
    conf = tmp_path / "conf" / "data" / "phrases.yaml"
    changed = arguments(tmp_path, "pieces=2")
    conf.write_text(conf.read_text().replace("version: '1'", "version: '2'"))
    assert run.main(changed) == 0
    old = cell(tmp_path).with_name(f"{CELL}.old-1")
    assert len(read_log(old / "events.jsonl").utterances) == 5
    result = json.loads((cell(tmp_path) / "metrics.json").read_text())
    assert result["hashes"]["data"] == "2-5-clean"


def test_joined_pieces_name_every_processor(tmp_path):
    assert run.main(arguments(tmp_path, "pieces=2")) == 0
    log = cell(tmp_path) / "pieces" / "2-of-2" / "events.jsonl"
    first, _, rest = log.read_text().partition("\n")
    header = json.loads(first)
    mine = header["machine"]["cpu"]
    header["machine"]["cpu"] = "abacus"
    log.write_text(json.dumps(header) + "\n" + rest)
    (cell(tmp_path) / "events.jsonl").unlink()
    assert find_cells(tmp_path) == [cell(tmp_path)]
    joined = read_log(cell(tmp_path) / "events.jsonl")
    assert joined.header["machine"]["cpu"] == f"{mine} and abacus"


def test_pieces_of_a_number_that_no_split_has_are_refused(tmp_path, capsys):
    folder = tmp_path / "pieces" / "1-of-99999999999"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text("{}")
    assert main([str(tmp_path)]) == 2
    assert "holds a piece of 99999999999, 100000 at most; remove its" in capsys.readouterr().err
    (found,) = read_results(tmp_path)
    assert "holds a piece of 99999999999" in str(found.error)
