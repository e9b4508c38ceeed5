"""The table of defaults: what the commands take of it, and that conf/ agrees with it."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest
from omegaconf import MISSING, OmegaConf

from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.defaults import METHODS, Defaults, defaults_of
from streaming_asr.config.schema import RunConfig
from streaming_asr.files import CONF_DIR

ALL = sorted(path.stem for path in (CONF_DIR / "method").glob("*.yaml"))


@pytest.mark.parametrize("name", ALL)
def test_a_method_s_settings_in_conf_have_the_table_s_values(name: str) -> None:
    settings = OmegaConf.load(CONF_DIR / "method" / f"{name}.yaml")
    for key in ("padding", "prune"):
        assert settings.get(key) == asdict(METHODS[name])[key]


def test_the_table_has_every_method_and_no_other() -> None:
    assert sorted(METHODS) == ALL


def test_a_method_without_a_row_has_the_defaults_of_a_run() -> None:
    row, run = defaults_of(["one_of_the_user_s_own"]), OmegaConf.load(CONF_DIR / "run.yaml")
    assert (row.chunk, row.threads) == (run.chunk, run.threads)


def test_the_defaults_of_a_run_are_in_conf_only() -> None:
    run = OmegaConf.load(CONF_DIR / "run.yaml")
    assert {field.name: field.default for field in fields(RunConfig) if field.name in run} == {
        name: MISSING for name in run if name not in ("defaults", "hydra")
    }


@pytest.mark.parametrize(
    ("settings", "chunk"),
    [
        ([], "1s"),
        (["method=whisperrt"], "300ms"),
        (["method=ufal"], "1s"),
        (["method=simul_whisper"], "1s"),
        (["method=hush_word"], "1s"),
        # What is compared has one chunk: the longest.
        (["method=whisperrt,ufal"], "1s"),
        (["method=whisperrt,u2"], "300ms"),
        (["method=ufal", "chunk=500ms"], "500ms"),
        (["chunk=500ms"], "500ms"),
        (["experiment=real"], None),
    ],
)
def test_a_command_takes_the_chunk_of_its_methods(settings: list[str], chunk: str | None) -> None:
    line = CommandLine(settings)
    line.default_methods(1)
    assert line.get("chunk") == chunk


def test_threads_are_set_where_all_methods_have_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "ufal", Defaults(threads=2))
    for methods, threads in (("ufal", "2"), ("ufal,whisperrt", None)):
        line = CommandLine([f"method={methods}"])
        line.default_methods(1)
        assert line.get("threads") == threads
