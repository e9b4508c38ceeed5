"""Facts in the docs that the code states too: messages, what methods support, versions."""

import ast
import json
import re
import sys
import tarfile
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import fakes
import pytest
import yaml
from places import ROOT
from report_cells import embedded
from tiny import tiny_folder

from experiments.claims import counts
from experiments.example import LOGS, pack, page
from streaming_asr.config.build import build
from streaming_asr.config.defaults import CHUNKS
from streaming_asr.config.settle import compose
from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.errors import UserError

SEPARATOR = "\0"  # where an f-string puts a value


def rows_of(page, heading):
    """The cells of the tables below a heading, without their headers; "": of the whole page."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if heading:
        text = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    at = {i for i, row in enumerate(rows) if set(row[0]) <= {"-", ":"}}
    return [row for i, row in enumerate(rows) if not {i, i + 1} & at]


def strings():
    """Every string of the package, the parts of an f-string joined."""
    for file in (ROOT / "streaming_asr").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            elif isinstance(node, ast.JoinedStr):
                yield "".join(
                    str(part.value) if isinstance(part, ast.Constant) else SEPARATOR
                    for part in node.values
                )


def test_every_message_that_troubleshooting_explains_is_one_of_the_code():
    messages = [row[0].strip("`") for row in rows_of("troubleshooting.md", "")]
    text = "\n".join(strings())
    assert len(messages) > 15
    assert [message for message in messages if message not in text] == []


SUPPORT = {
    row[0].strip("`"): row[1:] for row in rows_of("reference.md", "What each method supports")
}


def test_the_table_of_support_has_every_method():
    names = {file.stem for file in (ROOT / "conf" / "method").glob("*.yaml")}
    assert set(SUPPORT) == names - {"remote"}


@pytest.mark.parametrize("name", SUPPORT)
def test_a_method_supports_what_the_table_says(name):
    beam, _, _, batching, *_ = SUPPORT[name]
    settings = yaml.safe_load((ROOT / "conf" / "method" / f"{name}.yaml").read_text("utf-8"))
    module, _, target = settings["_target_"].rpartition(".")
    assert (beam != "no") == ("beam" in settings)
    assert (batching == "yes") == hasattr(getattr(import_module(module), target), "step_many")


def test_nothing_installs_the_package_from_an_index_that_does_not_have_it():
    pages = [page.read_text(encoding="utf-8") for page in ROOT.glob("docs/**/*.md")]
    pages.append((ROOT / "README.md").read_text(encoding="utf-8"))
    for text in (*strings(), *pages):
        assert not re.search(r"pip install ['\"]?streaming-asr", text), text


def test_the_table_of_extras_has_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    rows = rows_of("getting_started.md", "Install")
    named = [name for row in rows for name in re.findall(r"`([\w-]+)`", row[0])]
    assert sorted(named) == sorted(project["optional-dependencies"])


def test_the_tables_of_the_server_and_of_remote_have_the_code_s_values():
    from streaming_asr.methods.remote.stream import PROTOCOLS
    from streaming_asr.serve.settings import ServerSettings

    rows = {row[0].strip("`"): row[1] for row in rows_of("live.md", "Measure another server")}
    assert {name.split("`")[0] for name in rows} == set(PROTOCOLS)
    limits = {
        row[0].strip("`"): row[1].replace(",", "") for row in rows_of("live.md", "The server")
    }
    settings = vars(ServerSettings())
    named = {name: float(limits[name]) for name in limits if name.startswith(("max_", "idle_"))}
    assert len(named) == 6 and all(settings[name] == value for name, value in named.items())


def test_the_page_on_choosing_names_the_default_chunks():
    row = rows_of("choosing.md", "The defaults")[0][2]
    named = set(re.findall(r"`(\w+)`", row.partition(", 560 ms")[0]))
    assert named == {name for name, chunk in CHUNKS.items() if chunk == "1s"}
    assert f"{CHUNKS['native'].removesuffix('ms')} ms for `native`" in row


def test_the_citation_has_the_project_s_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert re.search(r"version = \{(.*)\}", page)[1] == project["version"]


def test_the_error_below_a_table_is_the_one_that_was_measured():
    from streaming_asr.config.defaults import ALIGNER_ERRORS_MS

    lines = (ROOT / "docs" / "align.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    begin = [row[0] for row in rows].index("the 60 of `data=voices`")
    measured = {row[1].split(",")[0]: (row[3], row[5]) for row in rows[begin : begin + 2]}
    errors = {name.split("-")[0]: pair for name, pair in ALIGNER_ERRORS_MS.items()}
    assert {name: tuple(f"{ms} ms" for ms in pair) for name, pair in errors.items()} == measured


# -- numbers that come from experiments/real/results.jsonl ---------------------------------

MEASURED = ROOT / "experiments" / "real" / "results.jsonl"
ROWS = [json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines()]


def results(table):
    """By (system, chunk): the figures of a table, without their intervals."""
    return {
        (row["labels"]["system"], row["labels"].get("chunk", "")): {
            name: figure[0] if isinstance(figure, list) else figure
            for name, figure in row["figures"].items()
        }
        for row in ROWS
        if row["table"] == table
    }


FINAL, LATE, CPU = "final after p50 s", "final after p90 s", "CPU s per s"
HUSH, GREEDY, BEAM = "hush word", "WhisperRT, greedy", "WhisperRT, beam 3"
SIMUL, DROPPED = "Simul-Whisper, no detector", "Simul-Whisper, last word always dropped"


def number(system, column="WER %", block="real_other", at=1000):
    """A number of the results, at a chunk in ms."""
    return results(block)[system, f"{at} ms"][column]


def times_the_cpu(system):
    """The hush word's CPU time over that of `system`, measured on one machine."""
    rows = MEASURED.with_name("differences.tsv").read_text(encoding="utf-8").splitlines()
    (found,) = (row for row in rows if row.startswith(f"\thush word, over {system}: "))
    return float(found.split("\t")[2])


WORDS = {"third": 3, "quarter": 4, "five": 5}
PAGE = "docs/choosing.md"
PROSE = {  # a sentence and what its number is by the results
    (PAGE, r"as final within ([\d.]+) s, but"): lambda: number(HUSH, FINAL, at=300),
    (PAGE, r"but one in ten after ([\d.]+) s"): lambda: number(HUSH, LATE, at=300),
    (PAGE, r"within ([\d.]+) s, one in ten after"): lambda: number(BEAM, FINAL, at=300),
    (PAGE, r"s, one in ten after ([\d.]+) s, for"): lambda: number(BEAM, LATE, at=300),
    (PAGE, r"for ([\d.]+) of the computing"): lambda: (
        number(BEAM, CPU, at=300) / number(HUSH, CPU, at=300)
    ),
    (PAGE, r"needs a (\w+) of its computing"): lambda: times_the_cpu(BEAM),
    (PAGE, r"end: ([\d.]+) %"): lambda: number("short encoder, zeros", block="real_variants"),
    (PAGE, r"instead of ([\d.]+) %"): lambda: number(HUSH, block="real"),
    (PAGE, r"([\d.]+) % on speech"): lambda: number(GREEDY, block="real_speechocean762"),
    (PAGE, r"early: ([\d.]+) %"): lambda: number(SIMUL, block="real_detector", at=300),
    (PAGE, r"always` ([\d.]+) %"): lambda: number(DROPPED, block="real_detector", at=300),
}


def is_right(figure, value):
    """Whether a figure, in digits or as a word, is a value to the figure's digits."""
    if figure in WORDS:
        return WORDS[figure] == round(value)
    return float(figure) == round(value, len(figure.partition(".")[2]))


@pytest.mark.parametrize(("page", "sentence"), PROSE)
def test_a_number_in_prose_is_that_of_the_results(page, sentence):
    text = (ROOT / page).read_text(encoding="utf-8")
    (figure,) = re.findall(sentence, text)
    assert is_right(figure, PROSE[page, sentence]())


def test_a_wrong_figure_is_found():
    assert is_right("five", 5.22) and is_right("17.9", 17.92)
    assert not is_right("17.9", 7.5) and not is_right("quarter", 4.6)


# Each number of prose about errors or latency is in a data file, in a row that names the method and
# the speech that the sentence names. So two pages cannot state different numbers of one row.
METHOD_NAMES = ("hush word", "whisperrt", "simul whisper", "ufal", "u2", "star", "offline")
SPEECH = {  # the name of a set in prose, and that of its table
    "other 100": "real other",
    "test other": "real other",
    "clean 10 150": "real clean",
    "cv native 2": "real native",
    "clean dev 100": "clean dev 100",
    "cv dev 2": "cv dev 2",
    "speechocean762": "speechocean762",
    "": "",
}
BLOCKS = r"^(```+).*?^\1|^ {4}.*$|<!-- (\w+):begin -->.*?<!-- \2:end -->"
NUMBER = r"(-?\d+\.\d+)"
FIGURE = rf"(?<![\w.=[-]){NUMBER}(?![\d.]|-?\w| (?:h|M|[kMG]B|hours|minutes)\b)"
FIGURE += rf"(?:[ %a-z]*\[{NUMBER}, {NUMBER}\])?"


def plain(text):
    """Text without case, hyphens and quotes, so that names of prose and data are equal."""
    return re.sub(r"[-_`]", " ", text).lower()


@cache
def measured_rows():
    """Of each row of data its text and its numbers, without signs."""
    pairs = []
    for file in sorted([*ROOT.glob("experiments/*/*"), *ROOT.glob("docs/*.tsv")]):
        if file.name == "test_runs.tsv" or file.suffix not in {".tsv", ".jsonl", ".yaml"}:
            continue
        head, *lines = file.read_text(encoding="utf-8").splitlines()
        for line in [head, *lines]:
            text = line.partition('"dates"')[0] if file.suffix == ".jsonl" else f"{head} {line}"
            numbers = re.findall(r"\d+\.?\d*", line if file.suffix != ".jsonl" else text)
            pairs.append((plain(f"{file.parent.name}: {text}"), set(map(float, numbers))))
    return pairs


def unfounded(text, folder):
    """The numbers in the prose of a page of `folder` that no row of data has."""
    found = []
    for line in re.sub(BLOCKS, "", text, flags=re.DOTALL | re.MULTILINE).splitlines():
        for sentence in re.split(r"(?<=[.:;])\s", line):
            if not re.search(r"%|points|WER|error| s\b", sentence):
                continue
            near = plain(sentence), plain(line)
            methods = next(filter(None, ([m for m in METHOD_NAMES if m in t] for t in near)), [""])
            speech = next(filter(None, ([n for n in SPEECH if n and n in t] for t in near)), [""])
            own = f"{plain(folder)}:"
            for match in re.finditer(FIGURE, sentence):
                figures = [each for each in match.groups() if each]  # with its interval's ends
                if not any(
                    (row.startswith(own) and folder not in {"docs", "real"})
                    or (
                        any(m in row for m in methods)
                        and any(n in row or SPEECH[n] in row for n in speech)
                    )
                    for row, numbers in measured_rows()
                    if all(
                        any(is_right(each.lstrip("-"), number) for number in numbers)
                        for each in figures
                    )
                ):
                    found.append(f"{match[0]}: {sentence}")
    return found


DEFINED = {"metrics.md", "new_method.md", "statistics.md"}  # examples by which they explain


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/*.md"))
        if page.name not in DEFINED | {"CHANGELOG.md"} and page.parent.name != "mini"
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_number_of_prose_is_in_the_data(page):
    assert unfounded(page.read_text(encoding="utf-8"), page.parent.name) == []


@pytest.mark.parametrize(
    ("page", "right", "wrong"),
    [
        ("docs/ordinary.md", "hush word has 11.4 %", "hush word has 12.9 %"),
        ("experiments/real/results.md", "16.2 on cv-native-2", "15.9 on cv-native-2"),
        ("experiments/u2/README.md", "28.7 % on `clean-dev-100`", "27.8 % on `clean-dev-100`"),
        (
            "experiments/real/results.md",
            "3.5 points [1.1, 6.1] behind",
            "3.5 points [0.9, 6.1] behind",
        ),
    ],
)
def test_a_contradiction_between_two_pages_is_found(page, right, wrong):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert right in text
    assert len(unfounded(text.replace(right, wrong), Path(page).parent.name)) == 1


def test_commits_of_this_project_are_in_the_changelog_only():
    named = re.findall(r"[0-9a-f]{8}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"))
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/*.md"), ROOT / "README.md"]
    assert len(named) > 2
    assert [p.name for p in pages if any(n in p.read_text("utf-8") for n in named)] == []


def test_the_shares_of_the_claims_are_those_of_their_table():
    page = (ROOT / "docs" / "statistics.md").read_text("utf-8")
    (row,) = [line for line in counts().splitlines() if line.startswith("| all |")]
    n, held, limited, *_, missing, _ = map(int, row.strip("| ").split(" | ")[1:])
    assert "Less than a third of the claims hold" in page and 3 * (held + limited) < n
    assert "Almost a third were not measured" in page and 0.28 < missing / n < 1 / 3


# -- names in prose ---------------------------------------------------------------------------

SOURCES = ("streaming_asr", "experiments", "conf", "tests", "docs")
SUFFIXES = {".py", ".yaml", ".tsv", ".js", ".json", ".jsonl", ".toml", ".txt"}
ADDED = r"my_corpus|my_chunks|hold"  # what the pages on adding things add
OTHERS = {"multi_gpu", "gpu_batch", "visible_after_p50"}
"""A flag of accelerate, a name of a run, a short name that the code puts together."""


def source():
    """All code, settings and data, with the names of the files."""
    files = [
        file
        for folder in SOURCES
        for file in (ROOT / folder).rglob("*")
        if file.suffix in SUFFIXES and file.stat().st_size < 200_000
    ]
    files.append(ROOT / "pyproject.toml")
    return "\n".join(f"{file}\n{file.read_text(encoding='utf-8')}" for file in files)


def names(text):
    """The names of a page's prose, in backticks, that look like this project's."""
    prose = re.sub(r"^(```+).*?^\1", "", text, flags=re.DOTALL | re.MULTILINE)
    spans = set(re.findall(r"`([^`\n]+)`", prose))
    places = {span for span in spans if re.fullmatch(r"(?:streaming_asr|conf|tests)/[\w./]+", span)}
    words = re.findall(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", " ".join(spans - places))
    return {name for name in {*places, *words} if not re.search(ADDED, name)} - OTHERS


def test_a_name_in_prose_exists():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]
    pages += [*ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/*.md")]
    text, missing = source(), {}
    for each in pages:
        here = names(each.read_text(encoding="utf-8"))
        lacking = {n for n in here if not ((ROOT / n).exists() if "/" in n else n in text)}
        missing |= {each.name: lacking} if lacking else {}
    assert missing == {}


def test_a_name_that_nothing_has_is_seen():
    text = "Call `write_nothing_at_all()` of `streaming_asr/none.py`.\n\n```\nin_code\n```\n"
    assert names(text) == {"write_nothing_at_all", "streaming_asr/none.py"}


# -- The example --


METHODS = {"hush_word", "ufal", "simul_whisper", "u2", "star", "whisperrt"}
MOST_BYTES = 3_000_000  # of the logs, and of the page


@pytest.mark.slow
def test_the_page_has_every_method_and_all_the_sound(tmp_path):
    written = page(tmp_path / "example.html")
    html = written.read_text(encoding="utf-8")
    data = embedded(written)
    runs = {(cell["method"], cell["chunk"]) for cell in data["cells"]}
    shorter = {(method, "300 ms") for method in ("whisperrt", "hush_word")}
    assert runs == {(m, "1000 ms") for m in METHODS} | shorter | {("offline", "whole")}
    assert not any(cell["error"] for cell in data["cells"])
    lines = (ROOT / "docs" / "example" / "clips.jsonl").read_text("utf-8").splitlines()
    clips = [json.loads(line)["id"] for line in lines]
    assert len(clips) == 5
    for at, cell in enumerate(data["cells"]):
        lines = [line for line in data["timelines"] if line["cell"] == at]
        assert sorted(line["utt"] for line in lines) == sorted(clips)
        assert all(line["audio"] for line in lines)
        assert cell["metrics"]["rtf_cpu"] == pytest.approx(cell["metrics"]["rtf_total"])
    assert data["clock"] == "ca"
    assert len(set(re.findall(r'data-audio="([^"$]+)"', html))) == 5
    assert str(ROOT) not in html
    assert max(len(html.encode()), LOGS.stat().st_size) < MOST_BYTES


def test_the_stored_logs_have_cpu_times_and_no_path_of_a_machine(tmp_path):
    with tarfile.open(LOGS) as archive:
        texts = {
            member.name: archive.extractfile(member).read().decode()
            for member in archive.getmembers()
        }
    assert len(texts) == len(METHODS) + 3
    for text in texts.values():
        assert not re.search(r'"/|"memory_(peak_)?bytes"', text)
        lines = [json.loads(line) for line in text.splitlines()]
        times = [line["compute_ns"] for line in lines if "compute_ns" in line]
        assert times and all(each["wall"] == each["cpu"] for each in times)


def test_packing_takes_cpu_times_and_drops_paths_and_the_second_offline_run(tmp_path):
    header = {
        "kind": "header",
        "config": {"output": "/home/me", "data": {"path": f"{ROOT}/streaming_asr/data/x.jsonl"}},
        "machine": {"cpu": "abacus", "cores": 2, "threads": 1, "platform": "Linux-6"},
    }
    step = {"kind": "flush", "compute_ns": {"wall": 8, "cpu": 6, "encoder": 4}}
    step |= {"memory_bytes": 5}
    for method in ("offline", "ufal"):
        for chunk in ("300ms", "1s"):
            cell = tmp_path / f"method={method},chunk={chunk},threads=1"
            cell.mkdir()
            (cell / "events.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(step)}\n")
    pack(tmp_path, tmp_path / "logs.tar.xz")
    first = (tmp_path / "logs.tar.xz").read_bytes()
    pack(tmp_path, tmp_path / "logs.tar.xz")
    assert (tmp_path / "logs.tar.xz").read_bytes() == first
    with tarfile.open(tmp_path / "logs.tar.xz") as archive:
        assert archive.getnames() == [
            "method=offline,chunk=1s/events.jsonl",
            "method=ufal,chunk=1s/events.jsonl",
            "method=ufal,chunk=300ms/events.jsonl",
        ]
        content = archive.extractfile(archive.getnames()[0])
        assert content is not None
        lines = [json.loads(line) for line in content.read().splitlines()]
    assert lines[0]["config"] == {"data": {"path": "streaming_asr/data/x.jsonl"}}
    assert lines[0]["machine"] == {"cpu": "abacus", "cores": 2, "threads": 1}
    assert lines[1] == {"kind": "flush", "compute_ns": {"wall": 6, "encoder": 3, "cpu": 6}}


def test_a_folder_without_logs_leaves_the_stored_ones_as_they_are(tmp_path):
    stored = tmp_path / "logs.tar.xz"
    stored.write_bytes(b"logs")
    with pytest.raises(UserError, match=r"no \*/events\.jsonl in it"):
        pack(tmp_path / "--help", stored)
    assert stored.read_bytes() == b"logs"


# -- The page of a new method --


NEW_METHOD = ROOT / "docs" / "new_method.md"
CHUNK, FIRST_CHUNK = 4800, 9600  # 300 ms, 600 ms


@pytest.fixture(scope="module")
def conf(tmp_path_factory):
    """A folder of configuration with the page's YAML, its class importable next to it."""
    folder = tmp_path_factory.mktemp("mine")
    text = NEW_METHOD.read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    (settings,) = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    (folder / "mine_hold.py").write_text(code, encoding="utf-8")
    (folder / "method").mkdir()
    target = "_target_: streaming_asr.methods.hold.Hold"
    assert target in settings
    settings = settings.replace(target, "_target_: mine_hold.Hold")
    (folder / "method" / "hold.yaml").write_text(settings, encoding="utf-8")
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("mine_hold", None)


def made(conf, *overrides):
    overrides = (
        "method=hold",
        "model=mini",
        f"model.path={tiny_folder()}",
        "tracker=none",
        *overrides,
    )
    return build(compose(overrides, config_dir=str(conf)).method)


@pytest.fixture(scope="module")
def hold(conf):
    return made(conf)


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
def test_the_printed_method_keeps_the_contract(hold, check):
    check(hold, Setting(CHUNK, FIRST_CHUNK, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2)))


def test_it_holds_n_words_back_and_commits_past_the_window(hold, conf):
    audio = fakes.noise(9.0, seed=3)  # the tiny model's window is 4 s
    state = hold.start()
    updates = [
        hold.step(state, audio[at : at + 16_000], last=at + 16_000 >= len(audio))
        for at in range(0, len(audio), 16_000)
    ]
    assert any(update.committed for update in updates[:-1])
    assert {len(update.partial) for update in updates[:-1]} <= {0, 1, 2}
    assert any(len(update.partial) == 2 for update in updates)
    none_held = made(conf, "method.n=0")
    assert none_held.step(none_held.start(), audio[:32_000], last=False).partial == ()


def test_its_settings_are_checked(conf):
    with pytest.raises(UserError, match="n=-1: the number of words held back"):
        made(conf, "method.n=-1")
