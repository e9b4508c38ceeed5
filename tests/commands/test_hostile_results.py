"""A stranger's folder of results under every command: nothing runs or is written elsewhere."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from report_cells import tone, write_cell

from streaming_asr.commands import cli

SECRET = "the-value-of-a-variable"
NAME = "method=mine,chunk=300ms"
COMMANDS = {
    "audit": ["audit", f"got/{NAME}"],
    "audit of two": ["audit", f"got/{NAME}", "--batch", "got/other"],
    "report": ["report", "got", "--json", "report.json"],
    "score": ["score", "got"],
    "compare": ["score", "compare", f"got/{NAME}", "got/other"],
    "sync": ["sync", "got"],
    "advise": ["advise", "got/other"],
    "resume": ["run", "method=offline", "model=mini", "data=mini", "limit=1", "tracker=none",
               "output=.", "name=got", f"hydra.run.dir='got/{NAME}'"],
}  # fmt: skip


class Payload:
    """What writes a file as it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch WRITTEN",)


def hostile(folder):
    """A cell whose every file tries to run a command, to read a variable, or to write elsewhere."""
    node = {"_target_": "os.system", "_args_": ["touch WRITTEN"], "command": "touch WRITTEN"}
    secret = "${oc.env:SECRET}"
    write_cell(folder / "other")
    cell = write_cell(folder / NAME, audio_path=tone(Path("private.ogg")))
    log = [json.loads(line) for line in (cell / "events.jsonl").read_text().splitlines()]
    log[0]["config"] |= {"method": node | {"name": "mine"}, "name": secret, "data": node}
    log[0]["config"] |= {"tracker": node, "output": "elsewhere"}
    (cell / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in log))
    result = json.loads((cell / "metrics.json").read_text())
    result["config"] = log[0]["config"]
    (cell / "metrics.json").write_text(json.dumps(result))
    saved = cell / ".hydra"
    saved.mkdir(exist_ok=True)
    (saved / "overrides.yaml").write_text(
        json.dumps([f"data={json.dumps(node)}", "output=elsewhere"])
    )
    (saved / "config.yaml").write_text("a: !!python/object/apply:os.system [touch WRITTEN]\n")
    for name in ("code.json", "x.npy", "x.pt", "adapter_model.bin"):
        (saved / name).write_bytes(pickle.dumps(Payload()))
        (cell / name).write_bytes(pickle.dumps(Payload()))
    for name in ("mine.py", "sitecustomize.py", "conftest.py", "__init__.py"):
        (cell / name).write_text("import os; os.system('touch WRITTEN')")
    (folder / "failing").mkdir()
    (folder / "failing" / "failed.json").write_text(json.dumps({"error": secret}))
    (folder / "failing" / ".hydra").symlink_to(saved.absolute())
    run = cell / "wandb" / "offline-run-1-x"
    run.mkdir(parents=True)
    (run / "run-x.wandb").write_bytes(b"")
    (run / "files").symlink_to(Path("elsewhere").absolute())
    for place in (folder, cell):
        (place / "report.html").symlink_to(Path("elsewhere/mine.txt").absolute())


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_strangers_results_run_nothing_and_write_nowhere_else(
    command, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SECRET", SECRET)
    monkeypatch.setenv("WANDB_MODE", "offline")
    Path("elsewhere").mkdir()
    Path("elsewhere/mine.txt").write_text("mine")
    hostile(Path("got"))
    status = cli.main(command)
    said = "".join(capfd.readouterr())
    assert status in (0, 1, 2) and "Traceback" not in said, said
    assert not list(tmp_path.rglob("WRITTEN"))
    assert {p.name: p.read_text() for p in Path("elsewhere").iterdir()} == {"mine.txt": "mine"}
    sound = Path("private.ogg").read_bytes()
    assert sound and SECRET not in said
    for file in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert SECRET.encode() not in file.read_bytes(), file
        assert file.suffix != ".html" or b"data:audio" not in file.read_bytes(), file
