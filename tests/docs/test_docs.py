"""README, docs and the pages of experiments: their commands exist, compose or run; the notebooks
run; the site builds."""

import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest
import soundfile
from containers import Track, write_recording
from pages import expanded
from places import ROOT

from streaming_asr.chunking import parse_duration
from streaming_asr.commands import cli
from streaming_asr.commands.cli import COMMANDS as PROGRAMS
from streaming_asr.config.compose import compose_raw
from streaming_asr.corpora import Mini
from streaming_asr.files import cache_root
from streaming_asr.models.packages import find_packaged, packaged

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "experiments").glob("*/*.md"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
START = re.compile(r"(?:\$ )?(?:OMP_NUM_THREADS=1 )?(python -m \S+|streaming-asr|make) ?(.*)")
CONFIGURED = {  # by command: its configuration, and the module that has its schema
    "run": ("run", "config.schema"),
    "train": ("train", "train"),
    "align": ("align", "align.command"),
    "data": ("data_command", "data.command"),
}


def commands(page):
    """(program, arguments) of the code blocks and of the code within sentences; the program is
    make, a module, or `streaming_asr NAME`, which stands for `streaming-asr NAME` too."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in expanded(block)]
    lines += re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE) + re.findall(r"`([^`\n]+)`", text)
    found = (START.fullmatch(re.sub(r" +#.*", "", line).removesuffix("; done")) for line in lines)
    return [named(match[1].removeprefix("python -m "), match[2]) for match in found if match]


def named(program, arguments):
    if program not in ("streaming-asr", "streaming_asr"):
        return program, arguments
    command, _, rest = arguments.partition(" ")
    return (f"streaming_asr {command}", rest) if command in PROGRAMS else (RUN, arguments)


def name_of(program):
    """The command's name where the program is one of streaming-asr's."""
    return re.sub(r"^streaming_asr[ .]", "", program)


RUN = "streaming_asr run"
ALL = sorted(
    {
        (str(page.relative_to(ROOT)), *command)
        for page in [*PAGES, ROOT / "AGENTS.md"]
        for command in commands(page)
    }
)


def test_the_pages_have_commands():
    assert len(ALL) > 200
    assert ("README.md", "make", "run") in ALL


@pytest.mark.parametrize(
    ("page", "program", "arguments"),
    [pytest.param(*row, marks=[pytest.mark.slow] * (row[0] != "README.md")) for row in ALL],
)
def test_a_command_exists_and_its_settings_compose(page, program, arguments):
    words = [word for word in shlex.split(arguments) if "$" not in word and word != "model=..."]
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert not words or words[0] in targets
        return
    name = name_of(program)
    if " " not in program:
        spec = importlib.util.find_spec(program)
        assert spec, program
        is_package = spec.submodule_search_locations is not None
        assert not is_package or importlib.util.find_spec(f"{program}.__main__"), program
    if name in CONFIGURED and not re.search(r"--help|<TAB>|data=\.", arguments):
        config_name, module = CONFIGURED[name]
        importlib.import_module(f"streaming_asr.{module}")
        compose_every(config_name, words)


def compose_every(name, words):
    """Compose the first cell of a command, and one with each other value of a sweep."""
    settings = [w.partition("=") for w in words if re.match(r"\+?[a-z][\w./]*=[^<]", w)]
    searched = [word.partition("=[")[2].rstrip("]") for word in words if "searchpath" in word]
    searched += [folder for flag, folder in pairwise(words) if flag == "-cd"]
    axes = {key: value for key, _, value in settings if "hydra" not in key}
    if {"hold", "my_chunks"} & set(",".join(axes.values()).split(",")):
        return  # of the pages that add them, which have tests of their own
    if "data.path" in axes and "data" not in axes:  # as the program itself puts it in
        axes = {"data": "folder", **axes}
    values = {key: [v] if v.startswith("[") else v.split(",") for key, v in axes.items()}
    first = {key: each[0] for key, each in values.items()}
    cells = [first, *({**first, key: v} for key, each in values.items() for v in each[1:])]
    folder = str(ROOT / searched[0]) if searched else None
    for cell in cells:
        composed = compose_raw(
            [f"{key}={v}" for key, v in cell.items()], config_name=name, config_dir=folder
        )
        if "$" not in (chunk := cell.get("chunk", "$")) and cell.get("method") != "chunkformer":
            assert parse_duration(chunk) % 20 == 0 and composed.chunk == chunk, cell


# -- those that need nothing but this package are run --------------------------------------


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with what the pages speak of: talk.m4a, talk.wav and its text, folders of such, and
    outputs/sweep, two methods on two recordings of mini."""
    folder = tmp_path_factory.mktemp("desk")
    clip = min(Mini().utterances(), key=lambda each: each.duration_s)
    for within in (folder, folder / "interviews", folder / "recordings"):
        within.mkdir(exist_ok=True)
        soundfile.write(within / "talk.wav", clip.load(), 16_000)
        (within / "talk.txt").write_text(clip.text, encoding="utf-8")
    write_recording(folder / "talk.m4a", [Track("aac", 16_000, sound=tuple(clip.load()))])
    settings = ["model=mini", "limit=2", "tracker=none", f"output={folder}/outputs", "name=sweep"]
    assert cli.main(["run", "-m", "method=offline,whisperrt", *settings]) == 0
    return folder


def call(program, words):
    """Run a command in this process and return its exit status."""
    if program in PROGRAMS:
        try:
            return cli.main([program, *words])
        except SystemExit as ended:  # of Hydra and argparse
            return ended.code or 0
    module = importlib.import_module(MODULES.get(program, program))
    main = getattr(module, "main", None) or importlib.import_module(f"{program}.__main__").main
    return int(main(words) or 0)


MODULES = {"experiments.papers": "experiments.papers.compare"}
READERS = (
    *("report", "score", "list", "doctor"),
    *(f"experiments.{name}" for name in ("papers", "figures")),
)
# Other tools, pages' stand-ins, what a sweep of two methods has not, a server, hours.
ASKS = r"import |\.\.\.|\[|my_chunks|longform|--traces|compare method=|ME$"
READING = sorted(  # each once, whatever folder its page names
    {
        (name_of(program), re.sub(r"outputs/[\w<>]+|FOLDER", "outputs/sweep", given))
        for _, program, given in ALL
        if name_of(program) in READERS and not re.search(ASKS, given)
    }
)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "arguments"), READING)
def test_a_command_that_reads_results_does(program, arguments, desk, tmp_path, monkeypatch):
    shutil.copytree(desk, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    cells = sorted(path.parent for path in tmp_path.rglob("metrics.json"))
    words = shlex.split(arguments.replace("outputs/sweep/", ""))  # before a cell's name
    stands = {"CELL": iter(cells * 2), "BASELINE": iter(cells), "RUN": iter(cells[1:])}
    words = [str(next(stands[word])) if word in stands else word for word in words]
    is_gate = {"--budget", "--worse"} & set(words)  # which two recordings need not pass
    assert call(program, words) in ((0, 1) if is_gate else (0,))


HEARERS = ("transcribe", "compare", "live", "run", "data", "align")
# Corpora, weights and programs that are not here, a microphone, hours, pages with their own tests.
WANTS = (
    r"\.\.\.|/corpora|OWNER/|FOLDER|cuda|=mic|=base|=medium|models/|openai/|experiment=|long600|join_s|=hold|"
    r"remote|=native|hydra/|model\.path=|lm=auto|data=(manifest|shards|prompts|speechocean762)|"
    r"data\.ids|outputs/mini|<"
)
HEARING = sorted(
    {
        (name_of(program), given)
        for _, program, given in ALL
        if name_of(program) in HEARERS and not re.search(WANTS, given)
    }
)


@pytest.mark.slow
@pytest.mark.parametrize(("program", "arguments"), HEARING)
def test_a_command_that_hears_does_on_mini(program, arguments, desk, tmp_path, monkeypatch):
    shutil.copytree(desk, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda place: None)
    words = shlex.split(arguments.replace("$name", "again"))
    words = [word for word in words if not re.match(r"(model|limit|speed)=|data=voices", word)]
    if "--help" not in words:
        words += ["model=mini"] * (program != "data")
        least = "limit=8" if "batch=8" in words else "limit=2"  # each stream hears one
        words += [least] * (program in ("run", "data", "align"))
        words += {"live": ["speed=0"], "run": ["tracker=none"]}.get(program, [])
    assert call(program, words) == 0


# -- what the pages print -------------------------------------------------------------------


def test_the_experiment_that_the_page_adds_composes(tmp_path):
    text = (ROOT / "docs" / "new_protocol.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "my_chunks.yaml").write_text(settings, encoding="utf-8")
    composed = compose_raw(["experiment=my_chunks", "chunk=1s"], config_dir=str(tmp_path))
    assert (composed.name, composed.limit, composed.model.name) == ("my_chunks", 60, "mini")
    assert composed.hydra.sweeper.params["method.beam"] == "0,3"


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), notebook.name, "exec"), names)
    told = {"hear_a_method": " painted a dull pig.", "compare_two": "wer: +", "read_a_log": "wer "}
    assert told[notebook.stem] in capsys.readouterr().out
    kept = [output for cell in cells for output in cell.get("outputs", ())]
    printed = "".join("".join(output.get("text", ())) for output in kept)
    assert told[notebook.stem] in printed and not {"error", "stderr"} & {
        output.get("name", output["output_type"]) for output in kept
    }


def real_is_here():
    """Whether tiny.en and the English prompts lie on this machine."""
    is_model = find_packaged(packaged()["openai/whisper-tiny.en"]) is not None
    return is_model and (cache_root() / "prompts" / "en").is_dir()


def readme_block(first):
    """The lines of the README's indented block that holds `first`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^ {4}.*\n)+", text, re.MULTILINE)
    (block,) = [block for block in blocks if first in block]
    return [line.strip() for line in block.splitlines()]


def elided(line):
    """A printed line with what depends on the machine's speed left out: seconds, real-time factors,
    numbers of notes (a busy machine has a note), and all of a row behind its WER except the
    coverage, the one whole number."""
    line = re.sub(r"in [\d.]+ s,", "in … s,", line.strip())
    line = re.sub(r" \[[\d,]+\]", "", re.sub("─+", "─", line))
    if row := re.match(r"(\S.*?(?:\d+ ms|whole) +[\d.]+)((?: +[\d.…]+)+)$", line):
        rest = [word if word.isdecimal() else "…" for word in row[2].split()]
        line = " ".join([row[1], *rest])
    return " ".join(line.split())


def test_only_what_depends_on_the_speed_is_left_out_of_an_output():
    row = "whisperrt [1]  300 ms  13.7    24.2    1.17    1.59   0.33        87  0.813     0.26"
    assert elided(row) == "whisperrt 300 ms 13.7 … … … … 87 … …"
    assert elided(row) != elided(row.replace("13.7", "10.9"))
    assert elided(row) != elided(row.replace(" 87 ", " 88 "))
    told = "talk.wav: 4.7 s of audio in 2.3 s, hush_word, tiny.en, chunk=1s"
    assert elided(told) == "talk.wav: 4.7 s of audio in … s, hush_word, tiny.en, chunk=1s"


@pytest.mark.slow
@pytest.mark.skipif(not real_is_here(), reason="needs `get tiny.en prompts`")
@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("demo", "prompts dev · model=tiny.en"),
        ("transcribe talk.wav --srt", "wrote talk.srt"),
    ],
)
def test_the_readme_shows_what_its_commands_print(
    command, first, tmp_path, monkeypatch,
    capsys
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    clip = ROOT / "streaming_asr" / "data" / "voices" / "audio" / "af_jessica-0.ogg"
    soundfile.write(tmp_path / "talk.wav", *soundfile.read(clip))
    assert cli.main(shlex.split(command)) == 0
    captured = capsys.readouterr()
    printed = [elided(line) for line in (captured.out + captured.err).splitlines()]
    assert [line for line in map(elided, readme_block(first)) if line not in printed] == []


def test_every_run_of_a_test_set_has_a_date_a_reason_and_its_number():
    text = (ROOT / "docs" / "test_runs.tsv").read_text(encoding="utf-8")
    head, *runs = [line.split("\t") for line in text.splitlines()]
    assert head == ["date", "test set", "method, weights", "why", "run no."]
    assert [run for run in runs if len(run) != 5 or not all(run)] == []
    days = [run[0][:10] for run in runs]
    assert days == sorted(days) and all(re.fullmatch(r"\d{4}-\d\d-\d\d", day) for day in days)
    assert {run[4].removesuffix(" on each") for run in runs} == {"not counted", *"0123"}
    assert len([run for run in runs if run[4] == "3"]) == 1  # the exception that the page names


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 800


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_has_every_page(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", "docs", ".", tmp_path],
        cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    pages = [page.relative_to(ROOT).with_suffix(".html") for page in PAGES]
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    api = (tmp_path / "docs" / "api.html").read_text(encoding="utf-8")
    assert 'id="streaming_asr.method.Update"' in api and 'id="streaming_asr.stream"' in api
    assert "Alias for field number" not in api
    assert "docs/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    first = (tmp_path / "docs" / "index.html").read_text(encoding="utf-8")
    assert 0 < first.count('class="toctree-l1') <= 12
    assert 'href="example.html"' in first and (tmp_path / "docs" / "example.html").is_file()
