from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError

import fakes
import pytest

from streaming_asr.method import NULL, Batched, Update, Word, display_text


def test_words_join_as_they_are_and_outer_blanks_go() -> None:
    assert display_text([Word(" It's"), Word(" ten"), Word(" o'clock.")]) == "It's ten o'clock."
    assert display_text([Word("你"), Word("好")]) == "你好"
    assert display_text([]) == ""


def test_an_update_says_nothing_by_default_and_cannot_be_changed() -> None:
    update = Update()
    assert (update.committed, update.partial, update.endpoint, update.retracted) == (
        (),
        (),
        False,
        0,
    )
    with pytest.raises(FrozenInstanceError):
        update.retracted = 1  # type: ignore[misc]


def test_only_a_method_with_step_many_is_batched() -> None:
    assert isinstance(fakes.BatchedTicker(), Batched)
    assert not isinstance(fakes.Ticker(), Batched)


def test_the_null_recorder_takes_everything_and_lets_errors_through() -> None:
    NULL.count(frames_real=1)
    with pytest.raises(ZeroDivisionError), NULL.part("encode"):
        raise ZeroDivisionError


def test_the_light_modules_import_no_heavy_package() -> None:
    modules = "corpora, errors, events.log, machine, method, metrics.clocks, simulate.feeds"
    imports = "; ".join(f"import streaming_asr.{name}" for name in modules.split(", "))
    # The settings of a run are checked, and its weights are hashed, before torch loads.
    imports += "; from streaming_asr.config.settle import compose; compose(['model=mini'])"
    heavy = "'torch', 'transformers', 'matplotlib', 'wandb', 'scipy', 'soundfile'"
    code = f"import sys; {imports}; print(*{{{heavy}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
