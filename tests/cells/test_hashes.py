"""The code's hash: what it follows, what it ignores, and that every Python makes the same one."""

import importlib.util
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from places import ROOT

from streaming_asr.cells import hashes
from streaming_asr.cells.hashes import digest
from streaming_asr.files import CONF_DIR

TARGETS = {
    file.stem: yaml.safe_load(file.read_text())["_target_"]
    for file in sorted((CONF_DIR / "method").glob("*.yaml"))
}
ALL = frozenset(TARGETS)

PROGRAM = '''
"""A docstring."""
from __future__ import annotations
import os.path as p, sys
from . import near
T = u"text" "joined", b"a".decode()
class A(B, metaclass=M):
    """Another."""
    x: int = 1_000; y: "str"; z = 1e3, 2j, ..., None, True, b"\\xff", "\\u00e9\\U0001f600"
    @property
    async def f(self, a, /, b=1, *c, d: int = 2, **e) -> int:
        async with a as b, c: await d
        async for i in range(3): yield i
def g(*, w):
    match w:
        case {"k": [1, *rest], **more} if rest: return f"{w!r:>{w}}{w=}{'q'}{{}}" f"{w:%H}" "end"
        case A(x=1) | None: pass
        case _: raise E from e
    try: lambda: (yield)
    except* E as e: del x[1:2, ::3]
    finally: global q
    return [i for i in w if i if not i], {**w}, {i: i for i in w}, (n := 3), a if b else -a**~b
'''
STORED = "1850ebdfd3ed09df"


def test_the_digest_is_the_same_on_every_python():
    assert hashes.digest(PROGRAM) == STORED


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_another_python_makes_the_stored_digest(version, tmp_path):
    python = shutil.which(f"python{version}")
    if python is None:
        pytest.skip(f"there is no python{version} here")
    source = tmp_path / "source.txt"
    source.write_text(PROGRAM, encoding="utf-8")
    code = "import sys; from streaming_asr.cells.hashes import digest; "
    code += "print(digest(open(sys.argv[1], encoding='utf-8').read()))"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [python, "-c", code, str(source)], capture_output=True, text=True, env=environment
    )
    if ended.returncode and "No module named" not in ended.stderr:
        pytest.skip(f"python{version} does not start here")  # a shim without its Python
    assert ended.stdout.strip() == STORED, ended.stderr


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ("x = 1\n", "# why\nx = 1  # here\n", True),
        ("x = 1\n", "\n\n\nx = (\n    1\n)\n", True),
        ('def f():\n  "Old."\n  f()\n', 'def f():\n  """New,\n  longer."""\n  f()\n', True),
        ('def f():\n    "Only this."\n', "def f():\n    pass\n", True),
        ("x = 'a'\n", 'x = u"a"\n', True),
        ("x = 1\n", "x = 2\n", False),
        ("x = 1\n", "x = True\n", False),
        ("x = 1\n", "x = 1.0\n", False),
        ("x = 'a'\n", "x = b'a'\n", False),
        ("f(a)\n", "f(*a)\n", False),
        ("f'{a}'\n", "f'{a!r}'\n", False),
        ("x = f('a')\n", "x = f('b')\n", False),
        ("def f(a, b=1): g()\n", "def f(a, *, b=1): g()\n", False),
        ("for i in a:\n    b()\nelse:\n    c()\n", "for i in a:\n    b()\nc()\n", False),
    ],
)  # fmt: skip
def test_a_digest_is_of_the_program_not_of_its_text(before, after, is_same):
    assert (hashes.digest(before) == hashes.digest(after)) == is_same


# -- this package ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "package"
    shutil.copytree(hashes.HERE, copy, ignore=shutil.ignore_patterns("data", "__pycache__"))
    return copy


@pytest.fixture
def changed(package, monkeypatch):
    """A function that adds text to a module and returns the methods whose hash it changes."""
    monkeypatch.setattr(hashes, "HERE", package)
    before = {name: hashes.modules(target) for name, target in TARGETS.items()}
    originals = {}

    def change(module, text):
        file = package / module
        originals.setdefault(file, file.read_text())
        file.write_text(originals[file] + text)
        return {name for name, each in TARGETS.items() if hashes.modules(each) != before[name]}

    yield change
    for file, source in originals.items():
        file.write_text(source)


WHISPERS = ALL  # language detection loads Whisper before any method


@pytest.mark.parametrize(
    ("module", "methods"),
    [
        ("chunking.py", ALL),
        ("method.py", ALL),
        ("simulate/stepper.py", ALL),
        ("corpora/audio.py", ALL),
        ("corpora/join.py", ALL),
        ("corpora/noise.py", ALL),
        ("whisper/gate.py", ALL),
        ("whisper/vad.py", ALL),
        ("whisper/detect.py", ALL),
        ("whisper/masks.py", WHISPERS),
        ("models/ctranslate2.py", WHISPERS),
        ("text/tokens.py", ALL),
        ("run/method.py", ALL),
        ("config/weights.py", {"whisperrt"}),
        ("whisper/agreement.py", {"hush_word", "ufal"}),
        ("methods/whisperrt/commit.py", {"whisperrt"}),
        ("methods/remote/realtime.py", {"remote"}),
        # Training makes weights, which have a hash of their own.
        ("methods/u2/branch_train.py", ()),
        ("methods/whisperrt/train.py", ()),
        ("training/loop.py", ()),
        # What happens before and after a method's answer.
        ("align/ctc.py", ()),
        ("cells/folder.py", ()),
        ("commands/transcribe.py", ()),
        ("config/schema.py", ()),
        ("corpora/published.py", ()),
        ("errors.py", ()),
        ("events/log.py", ()),
        ("files.py", ()),
        ("live/cells.py", ()),
        ("metrics/latency.py", ()),
        ("models/hash.py", ()),
        ("report/page.py", ()),
        ("run/cell.py", ()),
        ("score/folder.py", ()),
        ("serve/app.py", ()),
        ("text/normalise.py", ()),
        ("track/tracker.py", ()),
    ],
)
def test_a_statement_changes_the_methods_that_reach_it_and_a_comment_none(module, methods, changed):
    assert changed(module, "\n# a comment\n") == set()
    assert changed(module, "\n_ADDED = 1\n") == set(methods)


def test_every_folder_of_code_has_a_row_above():
    (mark,) = test_a_statement_changes_the_methods_that_reach_it_and_a_comment_none.pytestmark
    in_rows = {Path(module).parts[0] for module, _ in mark.args[1]}
    folders = {file.parent.name for file in hashes.HERE.glob("*/__init__.py")}
    assert folders - in_rows == {"data"}


IMPORTS = """
import sys
import numpy as np
from streaming_asr.files import HERE
from streaming_asr.config.build import new_method
from streaming_asr.simulate import feeds
from streaming_asr.run import method
import streaming_asr.corpora.join, streaming_asr.corpora.noise, streaming_asr.corpora.audio
from streaming_asr.whisper import detect, gate

before = set(sys.modules)
name = sys.argv[1]
if name == "remote":
    import streaming_asr.methods.remote
elif name == "native":
    from streaming_asr.methods.native import kyutai, moonshine, nemotron, qwen3, voxtral
else:
    settings = {"backend": "torch"} if name == "ufal" else {}
    model = HERE / "data" / "mini" / "model"
    if name in ("u2", "star", "chunkformer", "hush_word"):
        settings["weights"] = str(HERE / "data" / "mini" / "weights" / name / "any_chunk")
    method = gate.behind_gate(new_method(name, model, **settings), 16000, 16000)
    state = method.start()
    sound = np.random.default_rng(0).normal(0, 0.1, 48000).astype(np.float32)
    for k in range(3):
        method.step(state, sound[k * 16000 : (k + 1) * 16000], last=k == 2)
print(*sorted(m for m in sys.modules if m.partition(".")[0] == "streaming_asr"), sep="\\n")
"""


HARMLESS = {
    "streaming_asr.references": "imported by corpora; checks references, which texts ignore",
    "streaming_asr.run": "an empty file",
    "streaming_asr.schemas": "refuses lines of manifests and logs, and changes none",
    "streaming_asr.corpora.": "imported by corpora/__init__; the data hash holds their answers",
    "streaming_asr.text.": "imported by a corpus only, or hashed",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ALL))
def test_what_a_method_imports_is_hashed_or_harmless(name):
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTS, name], capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr
    hashed = hashes.modules(TARGETS[name])
    missing = []
    for module in ended.stdout.split():
        file = Path(importlib.util.find_spec(module).origin)
        is_harmless = any(
            module == each or (each.endswith(".") and module.startswith(each)) for each in HARMLESS
        )
        if module not in hashed and not hashes.is_outside(file) and not is_harmless:
            missing.append(module)
    assert missing == []


# -- the cache ------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "no JSON", "a folder", "read-only"])
def test_the_cache_of_programs_changes_no_digest(damage, own, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "cache" / "streaming_asr" / "hashes" / "programs.json"
    target = "my_methods.parrot.Parrot"

    def fresh():  # as another process
        hashes._programs.cache_clear()
        return hashes.modules(target)

    if damage == "read-only":
        (tmp_path / "cache").write_text("a file, so nothing can be written below it")
        assert fresh() == fresh()
        return
    before = fresh()
    stored = file.read_bytes()
    if damage == "a folder":
        file.unlink()
        file.mkdir()
    elif damage != "none":
        flipped = stored.replace(before["my_helpers"].encode(), b"0" * 16)
        damaged = {"cut": stored[:-100], "flipped": flipped, "no JSON": b"\xff{"}
        file.write_bytes(damaged[damage])
    parsed = []
    monkeypatch.setattr(hashes, "digest", lambda text: parsed.append(text) or digest(text))
    assert fresh() == before
    assert (parsed == []) == (damage == "none")
    module = own / "my_helpers.py"
    module.write_text(module.read_text() + "\nADDED = 1\n")
    assert fresh()["my_helpers"] != before["my_helpers"]


# -- a user's own method --------------------------------------------------------------------


@pytest.fixture
def own(tmp_path, monkeypatch):
    files = {
        "my_methods/__init__.py": "",
        "my_methods/parrot.py": """
            import numpy
            from . import words
            from my_helpers import late
            class Parrot:
                def step(self):
                    from my_methods.lazy import answer
            """,
        "my_methods/words.py": "from .deep import depth\n",
        "my_methods/deep/__init__.py": "",
        "my_methods/deep/depth.py": "",
        "my_methods/lazy.py": "",
        "my_methods/other.py": "",
        "my_helpers.py": "late = 'streaming_asr.metrics.latency'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [each for each in sys.modules if each.partition(".")[0].startswith("my_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("my_methods/parrot.py", True),
        ("my_methods/words.py", True),
        ("my_methods/deep/depth.py", True),
        ("my_methods/lazy.py", True),
        ("my_helpers.py", True),
        ("my_methods/__init__.py", True),
        ("my_methods/other.py", False),
    ],
)
def test_the_modules_next_to_a_users_method_count_where_it_imports_them(name, counts, own):
    target = "my_methods.parrot.Parrot"
    before = hashes.modules(target)
    assert {"numpy", "my_methods.other"}.isdisjoint(before)
    assert "streaming_asr.metrics.latency" in before  # a string names it
    file = own / name
    file.write_text(file.read_text() + "\nADDED = 1\n")
    assert (hashes.modules(target) != before) == counts


def test_targets_of_a_configuration_are_found_at_any_depth():
    node = {"_target_": "a.A", "inner": {"_target_": "b.B"}, "list": [{"_target_": "c.C"}, 1]}
    assert hashes.targets_of(node) == ["a.A", "b.B", "c.C"]


def test_a_change_of_settings_is_named():
    before = {"chunk": "1s", "method": {"beam": 0, "n": 2}, "name": "a", "limit": 3}
    now = {"chunk": "1s", "method": {"beam": 3, "n": 2, "x": None}, "name": "b", "limit": None}
    assert hashes.changed_settings(before, now) == ["method.beam 0 -> 3", "limit 3 -> null"]
