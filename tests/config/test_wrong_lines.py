"""Many wrong command lines for every command that takes settings: one line, in our own words."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from run_fakes import errors_of

from streaming_asr import align, train
from streaming_asr.commands import compare
from streaming_asr.config.build import by_hydra
from streaming_asr.config.settle import compose
from streaming_asr.data import command as data
from streaming_asr.run import command as run
from streaming_asr.terminal import exit_status

VALUES = ["[", "]", "a b", "'300ms", '"', "{", "}", "{a", "{a:}", "(1", "1)", "f(", "f(x)",
          "range(", "range(1,2,3,4)", "int(x)", "extend_list(3)", "${", "${}", "${x", "${x}",
          "${a.b.c}", "${oc.env:NOPE}", "${nope:1}", "a=b", "ä", "300ms;ls", "<1>", "!x", "#x",
          "^", "&", "~", "`x`", "a\nb", "\0", "300ms,,1s", "[1s]", "{a: 1}"]  # fmt: skip
KEYS = ["=3", "+=3", "~=3", "+", "~", "~chunk=9s", "~nope", "~data=nope", "~limit=3", "++",
        "+chunk=1s", "+method=ufal", "+model.path=x", "method@x=ufal", "method@=ufal", "method:x=1",
        "+method@x=ufal", "method=/ufal", "method=ufal/", "method=../ufal", "method=null",
        "model={a:1}", "data=[mini]", "a.b=1", "a..b=1", ".a=1", "a.=1", "model..path=1",
        "chunk.x=1", "model.path.x=1", "model.path=[a,b]", "model.path={a:b}", "model=3", "hydra=1",
        "hydra.nope=1", "hydra.verbose=3", "hydra.sweeper=3", "hydra/launcher=nope",
        "hydra/nope=x", "hydra.mode=X", "defaults=1", "_self_=1", "a b=3", "ä=3",
        "device=[cpu]"]  # fmt: skip
FOREIGN = re.compile(
    "Lexer|ANTLR|NoViable|viable|mismatched|token recog|extraneous|An item is|Could not|full_key|"
    "object_type|mega[cC]onf|Config(Store|Key|Comp)|append to your|[Dd]efaults list|Hydra[A-Z]|"
    "nterpolation|Error (parsing|merging)|EOF|ValueType|ListConfig|Traceback"
)


def asked(*options: str) -> Callable[[list[str]], int]:
    """The program of `run` that answers `options`."""
    return lambda argv: exit_status(
        lambda: by_hydra("run", lambda _: None, [*options, *argv], "run")
    )


def composed(argv: list[str]) -> int:
    """As transcribe, advise, audit, load and export take their settings."""
    return exit_status(lambda: compose(argv) and None)


COMMANDS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "transcribe": (composed, ["model=mini"]),
    "run": (run.main, ["model=mini", "tracker=none"]),
    "run -m": (run.main, ["-m", "model=mini", "tracker=none", "seed=1,2"]),
    "--cfg": (asked("--cfg", "job"), ["model=mini"]),
    "--help": (asked("--help"), ["model=mini"]),
    "train": (lambda _: train.main(), ["model=mini"]),
    "train -m": (lambda _: train.main(), ["-m", "model=mini", "seed=1,2"]),
    "align": (lambda _: align.main(), ["model=mini"]),
    "data": (lambda _: data.main(), ["check", "data=mini"]),
    "compare": (compare.main, ["audio=talk.wav", "model=mini"]),
}


def check(
    name: str, wrong: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main, before = COMMANDS[name]
    monkeypatch.setattr("sys.argv", ["streaming-asr", *before, wrong])
    try:
        status = main([*before, wrong])
    except SystemExit as ended:
        status = ended.code  # type: ignore[assignment]
    told = errors_of(capsys.readouterr().err)
    assert status == 2, wrong
    assert told.startswith("error: ") and told.count("\n") == 1, (wrong, told)
    assert not FOREIGN.search(told), (wrong, told)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_line_is_refused_in_one_line_of_our_words(
    name: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command gets a third of the lines, drawn by its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.wav").write_bytes(b"")
    lines = [*KEYS, *(f"limit={value}" for value in VALUES)]
    for wrong in random.Random(name).sample(lines, len(lines) // 3):
        if "${" not in wrong or not name.startswith("--"):  # these fill nothing in
            check(name, wrong, capsys, monkeypatch)
