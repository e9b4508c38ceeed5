"""What is shipped: the wheel holds the configuration and the embedded data, and runs by itself."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from pathlib import Path
from threading import Thread

import pytest

import install
from streaming_asr.models.packages import packaged

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = place.glob("*.whl")
    return built


def test_the_wheel_holds_every_configuration_file_and_the_embedded_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for file in (ROOT / "conf").rglob("*.yaml"):
        assert f"streaming_asr/conf/{file.relative_to(ROOT / 'conf').as_posix()}" in names
    for file in (ROOT / "streaming_asr").rglob("*"):
        if file.suffix in (".py", ".tsv", ".json", ".jsonl", ".ogg", ".safetensors", ".j2", ".css"):
            assert f"streaming_asr/{file.relative_to(ROOT / 'streaming_asr').as_posix()}" in names


def test_the_wheel_holds_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"streaming_asr"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_answers_from_another_folder_without_the_checkout(wheel, tmp_path):
    package = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(package)
    code = "import sys; from streaming_asr.commands.cli import main; sys.exit(main())"
    asked = subprocess.run(
        [sys.executable, "-P", "-c", code, "model=mini", "--cfg", "job", "--resolve"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr
    assert f"path: {package}/streaming_asr/data/mini/model" in asked.stdout


def names_of(requirements):
    return {
        re.split(r"[<>=\[ ]", requirement)[0].lower().replace("_", "-")
        for requirement in requirements
    }


def test_dependencies_have_lower_bounds_and_no_exact_pins():
    extras = dict(PROJECT["optional-dependencies"])
    pinned = [r for model in packaged().values() for r in extras.pop(model.extra)]
    wheels = [wheel for model in packaged().values() for wheel in model.wheels]
    assert pinned == [f"{wheel.name}=={wheel.version}" for wheel in wheels]
    included = {r for extra in extras.values() for r in extra if r.startswith("streaming-asr[")}
    assert not {model.extra for model in packaged().values()} & set(
        re.findall(r"[\w-]+", " ".join(included))
    )
    for requirement in [*PROJECT["dependencies"], *(r for extra in extras.values() for r in extra)]:
        if not requirement.startswith("streaming-asr["):
            assert ">=" in requirement
        assert "==" not in requirement


def test_the_constraints_name_every_core_dependency_without_a_local_version():
    lines = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)  # no +cpu
    assert names_of(PROJECT["dependencies"]) <= names_of(lines)


def test_what_the_package_imports_is_what_it_depends_on():
    """An import that only another package brings along would break with that package."""
    extras = PROJECT["optional-dependencies"]
    declared = names_of(
        [
            *PROJECT["dependencies"],
            *extras["train"],
            *extras["longform"],
            *extras["corpora"],
            *extras["live"],
            *extras["lm"],
            "hydra-core",
        ]
    )
    packages = metadata.packages_distributions()
    undeclared = {}
    for file in (ROOT / "streaming_asr").rglob("*.py"):
        for match in re.finditer(r"^\s*(?:import|from) ([a-z]\w*)", file.read_text(), re.M):
            module = match[1]
            if module in sys.stdlib_module_names or module == "streaming_asr":
                continue
            owners = {name.lower().replace("_", "-") for name in packages.get(module, [])}
            if owners and not owners & declared:
                undeclared[module] = file.name
    assert undeclared == {}


def test_the_makefile_helps_with_each_of_its_targets():
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    for target in ("run", "test", "check", "bench", "debug", "sweep", "report"):
        assert f"make {target} " in told.stdout


def test_make_refuses_another_python_before_it_makes_an_environment(tmp_path):
    python = tmp_path / "python2"
    python.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 2.7.18 || exit 1\n')
    python.chmod(0o755)
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    made = subprocess.run(
        ["make", "run", f"PYTHON={python}"], cwd=tmp_path, capture_output=True, text=True
    )
    assert made.returncode != 0 and not (tmp_path / ".venv").exists()
    assert "Python 2.7.18\nPython 3.11 to 3.13 is needed" in made.stdout


@pytest.fixture
def fake_index():
    """The address of an index that has PyTorch, and below /empty none; the paths it was asked."""
    asked = []

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            has = self.path == "/cpu/torch/"
            self.send_response(200 if has or self.path.startswith("/empty") else 404)
            self.end_headers()
            self.wfile.write(b'<a href="torch-2.13.0%2Bcpu-cp311.whl">' if has else b"nothing")

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.fixture
def pip_alone(monkeypatch):
    """No index of pip but its own default."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)


def test_pytorch_for_cpus_is_taken_where_its_index_has_it(fake_index, pip_alone):
    address, asked = fake_index
    of_index = ["--extra-index-url", f"{address}/cpu"]
    arguments = ["-c", "constraints.txt", "-e", "."]
    assert install.for_cpus(arguments, driver=False, index=f"{address}/cpu") == of_index
    for other in ("empty", "missing"):
        assert install.for_cpus(arguments, driver=False, index=f"{address}/{other}") == []
    assert asked == ["/cpu/torch/", "/empty/torch/", "/missing/torch/"]


def test_pytorch_is_taken_as_before_where_its_index_does_not_answer(pip_alone):
    with socket.socket() as closed:  # bound and not listening: who connects is refused
        closed.bind(("127.0.0.1", 0))
        index = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert install.for_cpus([], driver=False, index=index) == []


@pytest.mark.parametrize(
    ("arguments", "variable", "driver"),
    [
        ([], None, True),
        (["--index-url=https://example.org/simple"], None, False),
        (["-i", "https://example.org/simple"], None, False),
        ([], ("PIP_INDEX_URL", "https://example.org/simple"), False),
        ([], ("PIP_EXTRA_INDEX_URL", "https://example.org/simple"), False),
        ([], ("PIP_NO_INDEX", "1"), False),
    ],
)
def test_a_driver_or_an_index_of_ones_own_decides_where_pytorch_comes_from(
    arguments, variable, driver, fake_index, pip_alone, monkeypatch
):
    address, asked = fake_index
    if variable:
        monkeypatch.setenv(*variable)
    assert install.for_cpus(arguments, driver=driver, index=f"{address}/cpu") == []
    assert asked == []


def test_a_file_of_pip_that_names_an_index_decides_too(
    tmp_path, fake_index, pip_alone,
    monkeypatch
):  # fmt: skip
    address, asked = fake_index
    (tmp_path / "pip.conf").write_text("[install]\nextra-index-url = https://example.org/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert install.for_cpus([], driver=False, index=f"{address}/cpu") == [] == asked
