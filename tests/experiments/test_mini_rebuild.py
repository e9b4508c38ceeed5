"""The order in which mini is rebuilt: what is skipped, and what each step reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.mini import rebuild
from experiments.mini.rebuild import Places, Step


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(out=tmp_path / "mini", trained=tmp_path / "train")


def writes(path: Path, name: str = "step") -> Step:
    """Appends a line to a file beside its result, so that one sees how often it ran."""
    code = (
        f"from pathlib import Path; p = Path({str(path)!r}); "
        "p.parent.mkdir(parents=True, exist_ok=True); "
        "(p.parent.parent / 'log').open('a').write('x'); p.write_text('made')"
    )
    return Step(name, ("-c", code), path, 0.01)


def test_a_step_runs_once_and_leaves_its_command_and_time(places: Places, tmp_path: Path) -> None:
    step = writes(tmp_path / "made/result")
    assert rebuild.run([step], places) == 0
    assert rebuild.run([step], places) == 0
    assert (tmp_path / "log").read_text() == "x"
    record = json.loads(places.record("step").read_text())
    assert record["command"].startswith("python -c ")
    assert set(record) == {"command", "seconds", "ended"}


def test_a_step_that_fails_ends_the_rebuild_with_its_status(
    places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Step("broken", ("-c", "raise SystemExit(3)"), tmp_path / "never", 0.01)
    after = writes(tmp_path / "made/result")
    assert rebuild.run([broken, after], places) == 3
    assert not after.done.exists() and not places.record("broken").exists()
    assert "broken: failed with status 3" in capsys.readouterr().err


def test_a_step_that_makes_nothing_is_an_error(places: Places, tmp_path: Path) -> None:
    assert rebuild.run([Step("idle", ("-c", "pass"), tmp_path / "never", 0.01)], places) == 1


def test_each_step_reads_what_one_before_it_makes(places: Places) -> None:
    made: list[str] = []
    below = str(places.out.parent)
    for step in rebuild.steps(places):
        for part in step.command:
            path = part.partition("=")[2] or part
            if path.startswith(below) and path not in (str(step.done), str(step.done.parent)):
                assert any(path == m or path.startswith(m + "/") for m in made), (step.name, path)
        made += [str(step.done), str(step.done.parent)]
    assert len({step.name for step in rebuild.steps(places)}) == len(rebuild.steps(places))


def test_every_training_command_composes() -> None:
    import experiments.mini.align_heads  # noqa: F401 (each registers its schema)
    import streaming_asr.train  # noqa: F401
    from streaming_asr.config.compose import compose_raw

    composed = 0
    for step in rebuild.steps(Places()):
        if step.command[1] in ("streaming_asr.train", "experiments.mini.align_heads"):
            name = step.command[1].rpartition(".")[2]
            full = compose_raw(list(step.command[2:]), config_name=name)
            if name == "train":
                assert step.done.parent == Path(full.output) / "train" / full.model.name / (
                    full.hydra.runtime.choices.method
                ) / str(full.entry)
            composed += 1
    assert composed == 5
