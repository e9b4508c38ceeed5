"""The page on adding a method: its two files, as printed, are a method that keeps the contract."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import fakes
import pytest
from places import ROOT
from tiny import tiny_folder

from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.errors import UserError

PAGE = ROOT / "docs" / "new_method.md"
CHUNK, FIRST_CHUNK = 4800, 9600  # 300 ms, 600 ms


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory):
    """A folder of configuration with the page's YAML, its class importable beside it."""
    folder = tmp_path_factory.mktemp("mine")
    text = PAGE.read_text(encoding="utf-8")
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


def made(conf: Path, *overrides: str):
    overrides = (
        "method=hold",
        "model=mini",
        f"model.path={tiny_folder()}",
        "tracker=none",
        *overrides,
    )
    return build(compose(overrides, config_dir=str(conf)).method)


@pytest.fixture(scope="module")
def hold(conf: Path):
    return made(conf)


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
def test_the_printed_method_keeps_the_contract(hold, check) -> None:
    check(hold, Setting(CHUNK, FIRST_CHUNK, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2)))


def test_it_holds_n_words_back_and_commits_past_the_window(hold, conf: Path) -> None:
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


def test_its_settings_are_checked(conf: Path) -> None:
    with pytest.raises(UserError, match="n=-1: the number of words held back"):
        made(conf, "method.n=-1")
