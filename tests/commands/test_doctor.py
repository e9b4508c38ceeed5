"""doctor and list: what they find, and that they never fail over what is optional."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streaming_asr.commands import doctor
from streaming_asr.commands import list as listing
from streaming_asr.commands.doctor import Check, examine
from streaming_asr.metrics import METRICS


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with no programs, no login and no hub cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "NETRC", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def test_what_is_not_there_is_absent_and_says_what_it_is_for(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = by_name(examine(offline=True))
    assert checks["MFA"].state == "absent" and checks["MFA"].remedy
    assert checks["torch"].state == checks["mini"].state == "ok"
    assert (checks["W&B"].state, checks["W&B"].seen) == ("absent", "no login")
    assert "not tried" in checks["model hub"].seen
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert by_name(examine(offline=True))["W&B"].state == "ok"


def test_only_what_is_needed_decides_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks = [
        Check("torch", True, "2", "pip install it", needed=True),
        Check("MFA", False, "not found", "conda install it"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda offline: checks)
    assert doctor.main(["--offline"]) == 0
    assert "absent  MFA    not found: conda install it" in capsys.readouterr().out
    checks.append(Check("mini model", False, "not in x", "install again", needed=True))
    assert doctor.main([]) == 1
    assert "broken: mini model" in capsys.readouterr().out


def test_a_needed_package_that_is_missing_is_broken() -> None:
    check = doctor._package("no-such-package")
    assert (check.state, check.remedy) == ("broken", "pip install -e .")


def test_list_shows_every_configuration_with_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from streaming_asr.files import CONF_DIR

    assert listing.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert listing.main(["experiments"]) == 0
    lines += capsys.readouterr().out.splitlines()
    for group in listing.GROUPS.values():
        for file in (CONF_DIR / group).glob("*.yaml"):
            named = [line for line in lines if line.startswith(f"{file.stem} ")]
            assert named and all(len(line.split()) > 3 for line in named), file.stem
    assert any(line.startswith(f"{len(METRICS)} metrics") for line in lines)


def test_list_takes_one_kind_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert listing.main(["models"]) == 0
    out = capsys.readouterr().out
    assert "whisper" in out and "methods" not in out
    assert listing.main(["metrics"]) == 0
    assert "headroom" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        listing.main(["mehtods"])


def test_a_description_ends_with_its_first_sentence(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("# One thing,\n# told in two lines.\n# More.\nkey: 1\n# not this\n")
    assert listing.about(file) == "One thing, told in two lines."


def test_a_missing_package_is_named_though_other_checks_need_it(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # its import now fails
    monkeypatch.delitem(sys.modules, "huggingface_hub.constants", raising=False)
    last = doctor.examine(offline=True)[-1]
    assert (last.name.partition(".")[0], last.state) == ("huggingface_hub", "broken")
