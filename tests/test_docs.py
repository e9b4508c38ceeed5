"""README and docs: their commands exist, compose or run; the notebooks run; the site builds."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streaming_asr.cli import COMMANDS as PROGRAMS
from streaming_asr.config import compose_raw

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
START = re.compile(r"(?:\$ )?(?:OMP_NUM_THREADS=1 )?(python -m \S+|streaming-asr|make) ?(.*)")
CONFIGURED = {  # by program: its configuration, and the module that has its schema
    "run": ("run", "config"),
    "train": ("train", "train"),
    "align": ("align", "align.command"),
    "data": ("data_command", "data_command"),
}


def commands(page: Path) -> list[tuple[str, str]]:
    """(program, arguments) of the code blocks and of the code within sentences."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    lines += re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE) + re.findall(r"`([^`\n]+)`", text)
    found = (START.fullmatch(re.sub(r" +#.*", "", line).removesuffix("; done")) for line in lines)
    return [(match[1].removeprefix("python -m "), match[2]) for match in found if match]


ALL = sorted({(page.name, *command) for page in PAGES for command in commands(page)})


def test_the_pages_have_commands() -> None:
    assert len(ALL) > 80
    assert ("README.md", "make", "test") in ALL


@pytest.mark.parametrize(("page", "program", "arguments"), ALL)
def test_a_command_exists_and_its_settings_compose(page: str, program: str, arguments: str) -> None:
    words = shlex.split(arguments)
    if program == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert not words or words[0] in targets
        return
    if program == "streaming-asr":
        name = words.pop(0) if words and words[0] in PROGRAMS else "run"
    else:
        assert importlib.util.find_spec(program), program
        name = program.removeprefix("streaming_asr.")
    if name in CONFIGURED and not re.search(r"--help|<TAB>|data=\.", arguments):
        config_name, module = CONFIGURED[name]
        importlib.import_module(f"streaming_asr.{module}")
        compose_every(config_name, words)


def compose_every(name: str, words: list[str]) -> None:
    """Compose the first cell of each method that a command names, as Hydra would."""
    settings = [word.partition("=") for word in words if re.match(r"\+?[a-z][\w./]*=", word)]
    axes = {key: value for key, _, value in settings if "hydra" not in key}
    if {"hold", "my_chunks"} & set(",".join(axes.values()).split(",")):
        return  # of the pages that add them, which have tests of their own
    if "data.path" in axes and "data" not in axes:  # as the program itself puts it in
        axes = {"data": "folder", **axes}
    first = [f"{key}={value.split(',')[0]}" for key, value in axes.items()]
    for method in axes["method"].split(",") if "method" in axes else [None]:
        own = [] if method is None else [f"method={method}"]
        compose_raw([*first, *own], config_name=name)


# -- those that need no model are run -------------------------------------------------------

READERS = ("streaming_asr.report", "streaming_asr.score", "streaming_asr.list")
READERS = (*READERS, "streaming_asr.doctor", "experiments.papers", "experiments.figures")
ASKS = re.compile(r"import |\.\.\.|\[|my_chunks|longform|--traces")  # other tools, pages' stand-ins
READING = sorted({(program, given) for _, program, given in ALL if program in READERS
                  and not ASKS.search(given)})  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with outputs/sweep, two methods on two recordings of mini."""
    from streaming_asr import run

    folder = tmp_path_factory.mktemp("reader")
    settings = ["limit=2", "tracker=none", f"output={folder}/outputs", "name=sweep"]
    assert run.main(["-m", "method=offline,whisperrt", *settings]) == 0
    return folder


@pytest.mark.parametrize(("program", "arguments"), READING)
def test_a_command_that_reads_results_does(
    program: str, arguments: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    cells = sorted(path.parent for path in results.rglob("metrics.json"))
    words = shlex.split(re.sub(r"outputs/[\w<>]+|FOLDER", "outputs/sweep", arguments))
    words = [word.removeprefix("outputs/sweep/") for word in words]  # before a cell's name
    stands = {"CELL": iter(cells * 2), "BASELINE": iter(cells), "RUN": iter(cells[1:])}
    words = [str(next(stands[word])) if word in stands else word for word in words]
    moved = {"experiments.papers": "papers.compare", "streaming_asr.score": "score_command"}
    name = moved.get(program, program.partition(".")[2])
    package = program.partition(".")[0]
    module = importlib.import_module(f"{package}.{name}")
    main = getattr(module, "main", None) or importlib.import_module(f"{program}.__main__").main
    assert main(words) in (0, None)


# -- what the pages print -------------------------------------------------------------------


def test_the_experiment_that_the_page_adds_composes(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "new_protocol.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "my_chunks.yaml").write_text(settings, encoding="utf-8")
    composed = compose_raw(["experiment=my_chunks", "chunk=1s"], config_dir=str(tmp_path))
    assert (composed.name, composed.limit, composed.model.name) == ("my_chunks", 60, "mini")
    assert composed.hydra.sweeper.params["method.beam"] == "0,3"


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(
    notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)
    told = {"hear_a_method": " painted a dull pig.", "compare_two": "wer: +", "read_a_log": "wer "}
    assert told[notebook.stem] in capsys.readouterr().out


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1500


def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", "docs", ".", tmp_path],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = [page.relative_to(ROOT).with_suffix(".html") for page in PAGES]
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    api = (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    assert 'id="streaming_asr.method.Update"' in api and 'id="streaming_asr.stream"' in api
