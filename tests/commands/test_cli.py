"""The console script: what it prints, what it refuses, what it does not import."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields

import pytest
from places import HANG_S
from run_fakes import arguments, program

from streaming_asr import __version__
from streaming_asr.commands import cli, doctor
from streaming_asr.commands import list as listing
from streaming_asr.commands.doctor import Check, examine
from streaming_asr.config.schema import RunConfig
from streaming_asr.files import CONF_DIR

HEAVY = ("torch", "transformers", "peft", "matplotlib", "wandb", "faster_whisper", "jiwer")


def test_help_teaches_the_commands(capsys):
    assert cli.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "streaming-asr method=whisperrt chunk=300ms" in out
    for command in cli.COMMANDS:
        assert f"  {command} " in out


@pytest.mark.parametrize(
    "question",
    [
        ["--help"],
        ["--cfg", "job"],
        ["run", "--help"],
        ["train", "--cfg", "job"],
        ["live", "--help"],
        ["serve", "--help"],
    ],
)
def test_a_question_imports_nothing_heavy(question, tmp_path):
    code = (
        "import json, sys\n"
        "from streaming_asr.commands.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    asked = program(tmp_path, code, *question)
    assert asked.returncode == 0, asked.stderr
    assert len(asked.stdout) > 200
    loaded = json.loads(asked.stderr.splitlines()[-1])
    assert "streaming_asr.commands.cli" in loaded
    assert not set(HEAVY) & set(loaded)
    assert not list(tmp_path.iterdir())  # asking leaves nothing behind


INTERRUPT = """
import os, signal, sys

class Interrupt:
    # What Ctrl-C does while a module is being imported.
    def find_spec(self, name, *rest):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupt())
from streaming_asr.commands.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["numpy", "datetime", "streaming_asr.terminal", "streaming_asr.score"]
)
def test_ctrl_c_during_the_imports_is_one_line(module, tmp_path):
    asked = program(tmp_path, INTERRUPT, "score", ".", AT=module)
    assert (asked.returncode, asked.stdout, asked.stderr) == (130, "", "stopped by SIGINT\n")


def test_the_handler_of_ctrl_c_is_back_after_the_imports():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert cli.main(["--version"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background
        assert cli.main(["--version"]) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_configuration_names_the_defaults_and_the_choices(tmp_path):
    code = "import sys; from streaming_asr.commands.cli import main; sys.exit(main())"
    asked = program(tmp_path, code, "--cfg", "job")
    assert "_target_: streaming_asr.methods.whisperrt.WhisperRT" in asked.stdout
    asked = program(tmp_path, code, "run", "--help")
    methods = sorted(file.stem for file in (CONF_DIR / "method").glob("*.yaml"))
    assert f"method: {', '.join(methods)}" in " ".join(asked.stdout.split())
    for setting in fields(RunConfig):  # each explained, but for the choices
        line = rf"^  {setting.name}: .*# \w"
        is_choice = (CONF_DIR / setting.name).is_dir() or setting.name == "output"
        assert is_choice or re.search(line, asked.stdout, re.M), setting.name
    assert "${" not in asked.stdout
    asked = program(tmp_path, code, "run", "--help", "method=ufal")
    assert "  trim_s: null # 15 s, or half" in asked.stdout


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("none.wav", "none.wav: no such folder or file; give a recording"),
        ("compare none.wav", "audio=none.wav: no such file"),
        ("compare a.wav b.wav", "audio=a.wav audio=b.wav: name one recording"),
        ("serve --port 8124", "settings are written key=value; write port=8124"),
        ("live --port=8124", "settings are written key=value; write port=8124"),
        *(
            (f"{command} -cd nowhere", "nowhere: no such folder")
            for command in ("advise", "audit ws://x", "compare", "export out", "list")
        ),
        ("run --list", "`streaming-asr list` shows methods"),
        ("transcribe a.wav --format srt", "--srt, --vtt or --json"),
        ("run --chunk 1s", "write chunk=1s"),
        ("reprot outputs", "reprot: no such command; did you mean report?"),
        ("retime outputs/demo", "a command of score; write streaming-asr score retime"),
        ("method=whispert", "error: method=whispert: no such method; did you mean whisperrt?"),
        ("chunk=300", "error: chunk=300: a duration needs a unit (ms or s); write chunk=300ms"),
        ("get large-v3", "large-v3: no package carries it; the first run with model=large-v3 "),
        ("get tinyen", "tinyen: nothing to get of that name; did you mean tiny.en?"),
        *((f"check {words}", "method: name one") for words in ("", "method=a,b")),
        ("check method=remote", "method=remote: a server keeps no contract"),
    ],
)
def test_a_wrong_command_is_refused(command, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    try:
        status = cli.main(command.split())
    except SystemExit as end:  # argparse's
        status = int(str(end.code))
    assert status == (1 if command == "none.wav" else 2)
    shown = capsys.readouterr().err
    assert message in shown and "Traceback" not in shown


def test_sync_without_a_login_says_how_to_log_in(tmp_path, monkeypatch, capsys):
    (tmp_path / "wandb" / "offline-run-1").mkdir(parents=True)
    (tmp_path / "wandb" / "offline-run-1" / "run.wandb").touch()
    (tmp_path / "metrics.json").touch()
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    assert cli.main(["sync", str(tmp_path)]) == 2
    assert "there is no login of W&B; give `wandb login`" in capsys.readouterr().err


def test_the_version_is_ours(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"streaming_asr {__version__}\n"


def test_list_and_doctor_answer_in_json(capsys):
    assert cli.main(["list", "methods", "--json"]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    assert set(methods) == {file.stem for file in (CONF_DIR / "method").glob("*.yaml")}
    assert cli.main(["doctor", "--offline", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["broken"] == []
        and {"name": "Python", "state": "ok"}.items() <= told["checks"][0].items()
    )


def test_list_has_experiments_and_a_users_own_files(tmp_path, capsys):
    assert cli.main(["list", "experiments", "--json"]) == 0
    experiments = json.loads(capsys.readouterr().out)["experiments"]
    assert set(experiments) == {file.stem for file in (CONF_DIR / "experiment").glob("*.yaml")}
    assert not any("@package" in text for text in experiments.values())
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("# My own way.\n_target_: mine.Mine\n")
    assert cli.main(["list", "methods", "-cd", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert re.search("mine +My own way", printed) and "whisperrt" in printed


def test_bare_settings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flag, conf, *settings = arguments(tmp_path, "limit=1")
    assert cli.main([*settings, flag, conf]) == 0
    assert list((tmp_path / "outputs").glob("*/*/metrics.json"))


def test_every_command_that_is_offered_exists():

    for module, _ in cli.COMMANDS.values():
        assert importlib.util.find_spec(f"streaming_asr.{module}"), module


def test_the_callers_arguments_are_left_as_they_were():
    before = list(sys.argv)
    cli.main(["chunk=300"])
    assert sys.argv == before


# -- Completion in a shell --


SCRIPT = f"""#!{sys.executable}
import sys
from streaming_asr.commands.cli import main
sys.exit(main())
"""
BASH = shutil.which("bash")

# What readline does on a tab: the function of the command, with the line and the cursor.
TAB = """
eval "$(streaming-asr -sc install=bash)"
COMP_LINE="$1"; COMP_POINT=${#1}; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p streaming-asr >&2
hydra_bash_completion
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="no bash here: apt install bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("streaming-asr method=whi", {"method=whisperrt"}),
        ("streaming-asr data.sn", {"data.snr_db="}),
    ],
)
def test_bash_completes_choices_and_settings(line, offered, tmp_path):
    script = tmp_path / "bin" / "streaming-asr"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    script.chmod(0o755)
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(BASH), "--norc", "-c", TAB, "bash", line],
        env={**os.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert "-F hydra_bash_completion streaming-asr" in done.stderr
    assert {word.strip() for word in done.stdout.split()} == offered, done.stderr


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_each_shell_has_its_script(shell, capfd):
    from streaming_asr.run import command as run

    assert run.main(["-sc", f"install={shell}"]) == 0
    assert "streaming-asr" in capfd.readouterr().out


# -- `check`: own methods in a folder outside the clone, one fault each --


FAULTS = {  # a class that breaks the contract, and a part of the sentence
    "fakes.Peeks": "it uses future audio",
    "fakes.Retracting": "takes 1 final words back",
    "fakes.TimesRunAhead": "times ahead of the audio",
    "fakes.TimesRunBackwards": "times go back",
    "fakes.OneStreamOnly": "two streams in turns: one changes the other",
    "fakes.Remembers": "the same audio a second time",
    "fakes.CountsPieces": "other text in other pieces",
    "fakes.LeavesPartial": "partial words are left after the last step",
    "fakes.NoBlanks": "have no blank between them; a word begins with it",
    "fakes.Draws": "with another seed",
    "fakes.BatchMatters": "a stream in a batch differs",
    "fakes.InventsWords": "an empty stream gives",
    "fakes.FailsOnEmpty": "it fails on empty audio: ArithmeticError",
    "fakes.FailsOnOneSample": "it fails on one sample: ArithmeticError",
    "fakes.CountsItsOwn": "it fails: ValueError: count 'seconds_spoken' is none of frames_real",
    "fakes.FailsAtTheEnd": "it fails: ArithmeticError",
}


def own(folder, target):
    (folder / "method").mkdir(exist_ok=True)
    (folder / "method" / "mine.yaml").write_text(f"_target_: {target}\n")
    return ["check", "method=mine", "-cd", str(folder)]


@pytest.mark.parametrize("target", FAULTS)
def test_a_planted_fault_is_a_sentence(target, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(own(tmp_path, target)) == 1
    shown = capsys.readouterr().out
    assert FAULTS[target] in shown and "mine: breaks " in shown


def test_a_method_that_keeps_the_contract_passes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(own(tmp_path, "fakes.BatchedTicker")) == 0
    assert "mine: keeps the contract" in capsys.readouterr().out


# -- doctor and list --


def by_name(checks):
    return {check.name: check for check in checks}


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine with no programs, no login and no hub cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("WANDB_API_KEY", "NETRC", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)


def test_what_is_not_there_is_absent_and_says_what_it_is_for(bare, monkeypatch):
    checks = by_name(examine(offline=True))
    assert checks["MFA"].state == "absent" and checks["MFA"].remedy
    assert checks["torch"].state == checks["mini"].state == "ok"
    assert (checks["W&B"].state, checks["W&B"].seen) == ("absent", "no login")
    assert "not tried" in checks["model hub"].seen
    monkeypatch.setenv("WANDB_API_KEY", "x")
    assert by_name(examine(offline=True))["W&B"].state == "ok"


def test_only_what_is_needed_decides_the_exit_status(monkeypatch, capsys):
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


def test_a_needed_package_that_is_missing_is_broken():
    check = doctor._package("no-such-package")
    assert (check.state, check.remedy) == ("broken", "pip install -e .")


def test_list_shows_every_configuration_with_what_it_is(capsys):
    from streaming_asr.files import CONF_DIR

    assert listing.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert listing.main(["experiments"]) == 0
    lines += capsys.readouterr().out.splitlines()
    for group in listing.GROUPS.values():
        for file in (CONF_DIR / group).glob("*.yaml"):
            named = [line for line in lines if line.startswith(f"{file.stem} ")]
            assert named and all(len(line.split()) > 3 for line in named), file.stem
    assert "metrics: streaming-asr score --list" in lines


def test_list_takes_one_kind_and_refuses_others(capsys):
    assert listing.main(["models"]) == 0
    out = capsys.readouterr().out
    assert "whisper" in out and "methods" not in out
    with pytest.raises(SystemExit):
        listing.main(["mehtods"])


def test_a_description_ends_with_its_first_sentence(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("# One thing,\n# told in two lines.\n# More.\nkey: 1\n# not this\n")
    assert listing.about(file) == "One thing, told in two lines."


def test_a_missing_package_is_named_though_other_checks_need_it(bare, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # its import now fails
    monkeypatch.delitem(sys.modules, "huggingface_hub.constants", raising=False)
    last = doctor.examine(offline=True)[-1]
    assert (last.name.partition(".")[0], last.state) == ("huggingface_hub", "broken")
