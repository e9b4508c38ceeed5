"""The order in which mini is rebuilt: what is skipped, done anew, and copied into the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.mini import plot_curve, rebuild
from experiments.mini.rebuild import Places, Step


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        out=tmp_path / "mini",
        trained=tmp_path / "train",
        training=tmp_path / "training",
        package=tmp_path / "package",
    )


def writes(path: Path, name: str = "step") -> Step:
    """Appends a line to a file beside its result, so that one sees how often it ran."""
    code = (
        f"from pathlib import Path; p = Path({str(path)!r}); "
        "p.parent.mkdir(parents=True, exist_ok=True); "
        "(p.parent.parent / 'log').open('a').write('x'); p.write_text('made')"
    )
    return Step(name, ("-c", code), path, (path.parent,), 0.01)


def test_a_step_runs_once_and_leaves_its_command_and_time(places: Places, tmp_path: Path) -> None:
    step = writes(tmp_path / "made/result")
    assert rebuild.run([step], places) == 0
    assert rebuild.run([step], places) == 0
    assert (tmp_path / "log").read_text() == "x"
    record = json.loads(places.record("step").read_text())
    assert record["command"].startswith("python -c ")
    assert set(record) == {"command", "seconds", "ended"}


def test_a_step_done_anew_loses_its_old_results_first(places: Places, tmp_path: Path) -> None:
    step = writes(tmp_path / "made/result")
    rebuild.run([step], places)
    (tmp_path / "made/stale").write_text("old")
    assert rebuild.run([step], places, anew=True) == 0
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["result"]
    assert (tmp_path / "log").read_text() == "xx"


def test_an_unfinished_step_keeps_what_it_has(places: Places, tmp_path: Path) -> None:
    """A training that was stopped has a checkpoint and no result yet."""
    step = writes(tmp_path / "made/result")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/checkpoint").write_text("half")
    assert rebuild.run([step], places, anew=True) == 0
    assert (tmp_path / "made/checkpoint").exists()


def test_a_link_to_data_elsewhere_is_removed_and_the_data_stay(
    places: Places, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/result").write_text("theirs")
    (tmp_path / "made").symlink_to(tmp_path / "elsewhere")
    assert rebuild.run([writes(tmp_path / "made/result")], places, anew=True) == 0
    assert (tmp_path / "elsewhere/result").read_text() == "theirs"
    assert (tmp_path / "made/result").read_text() == "made"


def test_a_step_that_fails_ends_the_rebuild_with_its_status(
    places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Step("broken", ("-c", "raise SystemExit(3)"), tmp_path / "never", (), 0.01)
    after = writes(tmp_path / "made/result")
    assert rebuild.run([broken, after], places) == 3
    assert not after.done.exists() and not places.record("broken").exists()
    assert "broken: failed with status 3" in capsys.readouterr().err


def test_a_step_that_makes_nothing_is_an_error(places: Places, tmp_path: Path) -> None:
    assert rebuild.run([Step("idle", ("-c", "pass"), tmp_path / "never", (), 0.01)], places) == 1


def test_each_step_reads_what_one_before_it_makes(places: Places) -> None:
    made: list[str] = []
    below = str(places.out.parent)
    for step in rebuild.steps(places):
        for part in step.command:
            path = part.partition("=")[2] or part
            if path.startswith(below) and not any(path == str(r) for r in step.results):
                assert any(path == m or path.startswith(m + "/") for m in made), (step.name, path)
        made += [str(result) for result in step.results]
    assert len({step.name for step in rebuild.steps(places)}) == len(rebuild.steps(places))


def test_every_training_command_composes() -> None:
    import streaming_asr.train  # noqa: F401 (each registers its schema)
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


def built(places: Places) -> None:
    for folder in (places.model, *(places.trained / "whisperrt" / e for e in rebuild.ADAPTERS)):
        folder.mkdir(parents=True)
        (folder / "weights").write_text(folder.name)
    places.record("align").parent.mkdir(parents=True)
    places.record("align").write_text("{}")


def test_installing_replaces_model_and_adapters_and_leaves_the_splits(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    built(places)
    (places.package / "model").mkdir(parents=True)
    (places.package / "model/stale").write_text("old")
    (places.package / "clean.jsonl").write_text("committed")
    (places.package / "weights/other/old").mkdir(parents=True)
    (places.out / "splits").mkdir()
    (places.out / "splits/clean.jsonl").write_text("built")
    assert rebuild.install(places) == 0
    assert [path.name for path in (places.package / "model").iterdir()] == ["weights"]
    assert (places.package / "weights/whisperrt/300ms/weights").read_text() == "300ms"
    assert (places.package / "clean.jsonl").read_text() == "committed"
    assert "train them again" in capsys.readouterr().out


def test_the_splits_are_replaced_when_asked_for(places: Places) -> None:
    built(places)
    splits = places.out / "splits"
    (splits / "audio/clean").mkdir(parents=True)
    (splits / "audio/clean/0.ogg").write_text("new")
    for name in ("clean", "long600"):
        (splits / f"{name}.jsonl").write_text("built")
    assert rebuild.install(places, splits=True) == 0
    assert (places.package / "clean.jsonl").read_text() == "built"
    assert (places.package / "audio/clean/0.ogg").read_text() == "new"


def test_nothing_is_installed_while_something_is_missing(
    places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    built(places)
    places.record("align").unlink()
    assert rebuild.install(places) == 1
    assert not places.package.exists()
    assert "nothing installed" in capsys.readouterr().err


def test_an_unknown_step_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        rebuild.main(["--only", "bases"])
    assert end.value.code == 2
    assert "no such step; there are train, finance" in capsys.readouterr().err


def test_the_learning_curve_is_drawn_and_a_repeated_step_counts_once(tmp_path: Path) -> None:
    rows = [
        {"step": 50, "minutes": 1.0, "token_loss": 4.0, "frame_loss": 4.4, "dev/wer": 99.0},
        {"step": 100, "minutes": 2.0, "token_loss": 9.0, "frame_loss": 9.0},
        {"step": 100, "minutes": 2.1, "token_loss": 2.0, "frame_loss": 3.0, "dev/wer": 40.0},
    ]
    path = tmp_path / "curve.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert plot_curve.read_curve(path) == [rows[0], rows[2]]
    plot_curve.draw(plot_curve.read_curve(path), tmp_path / "a.svg")
    plot_curve.draw(plot_curve.read_curve(path), tmp_path / "b.svg")
    assert "WER on dev, padded (%)" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
