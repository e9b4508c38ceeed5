"""What a newcomer gets wrong, and the remedy he is told, each before weights load."""

import random
import re
import sys
from dataclasses import fields, replace

import pytest
from run_fakes import Phrases, arguments, errors_of

from streaming_asr import align, serve, train
from streaming_asr.commands import compare, export, transcribe
from streaming_asr.config.build import by_hydra
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.schema import RunConfig
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Folder
from streaming_asr.data import command as data
from streaming_asr.errors import UserError
from streaming_asr.files import HERE
from streaming_asr.live import command as live
from streaming_asr.run import command as run
from streaming_asr.terminal import exit_status


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def status(program, *arguments):
    """The exit status of a program, which Hydra may end by itself."""
    try:
        return program(*arguments)
    except SystemExit as ended:
        return ended.code


TEXTS = [each for each in fields(RunConfig) if "str" in str(each.type)]


@pytest.mark.parametrize("field", TEXTS, ids=lambda each: each.name)
def test_a_setting_of_one_value_takes_neither_a_list_nor_a_mapping(field):
    for value, shown in (("[a,b]", "['a', 'b']"), ("{x: 1}", "{'x': 1}")):
        with pytest.raises(UserError) as refusal:
            compose_raw([f"{field.name}={value}"])
        rule = f"{field.name}={shown}: must be one value, no list and no mapping"
        assert str(refusal.value) == rule
    if "None" not in str(field.type):
        with pytest.raises(UserError, match=f"^{field.name}=null: must have a value; leave it out"):
            compose_raw([f"{field.name}=null"])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["method.beam=abc"], "beam=abc: must be a whole number"),
        *(([f"data.snr_db={n}"], f"{n}: must be a finite number") for n in ("inf", "-inf", "nan")),
        *(
            ([f"data.split={split}"], ": data=voices has one split, test; leave data.split out")
            for split in ("dev", "nonsense", "null")
        ),
        (["feed=best_effort", "batch=8"], "use batch=1"),
        (["model=whisper", "model.path=./nowhere"], "there is no such folder"),
        (["data.snr_db=loud"], "snr_db=loud: must be a number or null"),
        (["format=srt"], "format=srt: a form is --srt, --vtt or --json of transcribe and report"),
        (["language=xx"], "language=xx: no language that Whisper knows"),
        (["language=englisch"], "language=englisch: no language that Whisper knows"),
        (["language=xx", "method=ufal", "model=base"], "no language that Whisper knows"),
        (["language=de"], "knows English only"),
        (["language=detect"], "nothing to detect; leave language out, or take"),
        (["gate=always"], "one of none, speech"),
        (["language=yue", "model=base"], "model=base: does not know yue"),
        (["data=folder", "data.path=.", "data.language=xx"], "data.language=xx: no language"),
        (["chunk=0"], "chunk=0: must be positive; the least is chunk=20ms"),
        (["chunk=300s"], "chunk=300s: Whisper takes 30 s at once"),
        (["--chunk", "300ms"], "settings are written key=value; write chunk=300ms"),
        (["chunk=300", "ms"], "chunk=300 ms: holds a blank; write chunk=300ms"),
        (["--chunk=300ms"], "write chunk=300ms"),
        (["--method.beam", "3"], "write method.beam=3"),
        (["--first-chunk", "1s"], "write first_chunk=1s"),
        (["modle.path=x"], "modle.path=x: no modle to set; did you mean model?"),
        (["beem=3"], "beem=3: no such key; did you mean method.beam?"),
        (["data.limit=3"], "data.limit=3: no such key; did you mean limit?"),
        (["method.beams=3"], "method.beams=3: no such key; did you mean method.beam?"),
        (["method", "ufal"], "method: settings are written key=value; write method=ufal"),
        (["limit=2", "method"], "write method=<value>"),
        (
            ["method=ufal,", "limit=2"],
            "a comma joins two values, without blanks; write",
        ),
        (["-m", "method=ufal,", "offline"], "write method=ufal,offline"),
        (["method=,ufal"], "write method=ufal"),
        (["-m", "chunk=1s,,3s"], "write chunk=1s,3s"),
        (["-cd", "nodir"], "-cd nodir: no such folder"),
        (["-cd"], "-cd: no such folder"),
        (["name=../../etc"], "name=../../etc: must be a folder within that of output"),
        (["name=a/.."], "name=a/..: must be a folder within that of output"),
        (["name=/etc"], "name=/etc: must be a folder within that of output"),
        (["data.path="], "data.path=: is empty; name a file or a folder"),
        (["model.path="], "model.path=: is empty"),
        (["method.weights="], "method.weights=: is empty"),
        (["output="], "output=: is empty"),
        (["-m", "method=offline,offline"], "method=offline: is there twice; a sweep names each"),
        (["-m", "chunk=1s,300ms,1s"], "chunk=1s: is there twice"),
        (["name="], "name=: must be a folder within that of output"),
        (["data=voices", "data.path=x.wav"], "x.wav: is a recording, which data=voices does not"),
        (["data=folder", "data.path=x.jsonl"], "x.jsonl: is a manifest, and data=folder reads"),
        (
            ["model=small"],
            "model=small: has no trained weights of whisperrt; the package has",
        ),
        (["method.weights=400ms"], "train method=whisperrt chunk=400ms"),
        (["data.path=none.wav", "model=mini"], "none.wav: no such folder or file"),
        (["beam=3"], "beam=3: no such key; did you mean method.beam?"),
        (["snr_db=10"], "snr_db=10: no such key; did you mean data.snr_db?"),
        (["metod=ufal"], "metod=ufal: no such key; did you mean method?"),
        (["limit=abc"], "limit=abc: must be a whole number"),
        (["hydra.job.chdir=true"], "hydra.job.chdir=true: paths are relative to where"),
        (["+method.extra=" + "[" * 2000 + "]" * 2000], "not key=value (nested too deep)"),
        (["method=U2"], "method=U2: no such method; did you mean u2?"),
        (["method=AlignAtt"], "no such method; did you mean simul_whisper?"),
        (["method=local-agreement"], "no such method; did you mean ufal?"),
        (["method=WhisperFlow"], "no such method; did you mean hush_word?"),
        (["model=large-v3-turbo"], "no such model; did you mean turbo?"),
        (["model=openai/whisper-small"], "model=whisper model.path=openai/whisper-small"),
        (
            ["data=a/b"],
            "data=a/b: no such data; a set of the hub is data=huggingface data.path=a/b",
        ),
        (["talk.wav"], "talk.wav: settings are written key=value; a recording is"),
        (["--port", "8124"], "write port=8124"),
        (["data.path=my [talk].wav"], """as well: "data.path='my [talk].wav'\""""),
        (["method._target_=my.Own"], "(No module named 'my'); give"),
        (["method._target_=streaming_asr.methods.ufal.Own"], "whose folder PYTHONPATH names"),
        (["data=folder"], "data.path: has no default; give data.path=<value>, as data.path=talks"),
        (["method=remote"], "as method.url=ws://127.0.0.1:8000/v1/realtime"),
        (["experiment=[1,2]"], "experiment=[1,2]: experiment is one name of conf/experiment/"),
        (["~hydra/launcher"], "~hydra/launcher: a group of Hydra's own cannot be left out"),
        (
            ["data.path=talks/a,b.wav"],
            "quote a path that holds a comma: \"data.path='talks/a,b.wav'\"",
        ),
        ([f"data.path=/tmp/{'a' * 300}.wav"], "whose parts have at most 255 bytes"),
        ([f"data.alignments=/tmp/{'a' * 300}"], "whose parts have at most 255 bytes"),
        ([f"model.path=/tmp/{'a' * 300}"], "whose parts have at most 255 bytes"),
        ([f"method.weights=/tmp/{'a' * 300}"], "whose parts have at most 255 bytes"),
        (["model=whisper-tiny"], "model=whisper-tiny: no such model; did you mean tiny?"),
        (["model=tiny"], "method=ufal"),
        (["model=Tiny.EN"], "model=Tiny.EN: no such model; did you mean tiny.en?"),
    ],
)
def test_a_wrong_command_of_run_is_told_its_remedy(command, message, capsys):
    assert status(run.main, ["tracker=none", *command]) == 2
    told = capsys.readouterr().err
    told = errors_of(told)
    assert told.startswith("error: ") and message in told and "Traceback" not in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("key", ["data.path", "method.weights", "output", "name"])
def test_a_nul_in_a_file_of_the_configuration_is_named(tmp_path, key):
    (tmp_path / "experiment").mkdir()
    group, _, last = key.rpartition(".")
    line = f'{last}: "a\\0b"\n'
    content = f"{group}:\n  {line}" if group else line
    (tmp_path / "experiment" / "nul.yaml").write_text(f"# @package _global_\n{content}")
    with pytest.raises(UserError, match=f"^{key}: holds a NUL character"):
        compose_raw(["experiment=nul"], config_dir=str(tmp_path))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("builtins.print", "_target_=builtins.print: cannot be built"),
        ("builtins.int", "_target_=builtins.int: cannot be built"),
        ("os.system", "_target_=os.system: cannot be built (Target 'os.system' is blocklisted"),
        ("posix.system", "_target_=posix.system: cannot be built (Target 'os.system'"),
        ("subprocess.run", "_target_=subprocess.run: cannot be built"),
        ("pickle.loads", "_target_=pickle.loads: cannot be built"),
        ("streaming_asr.files.shutil.rmtree", "cannot be built (Target 'shutil.rmtree'"),
        ("streaming_asr.corpora.prompts._run", "cannot be built (its name is private)"),
        ("collections.Counter", "_target_=collections.Counter: makes no method"),
    ],
)
def test_a_target_that_is_no_method_is_refused(target, message, tmp_path, capsys):
    assert run.main(arguments(tmp_path, f"method._target_={target}")) == 2
    told = capsys.readouterr().err
    assert message in told and "Traceback" not in told


PROTOCOL = "lookahead_samples = 0\n    def start(self, **_): return 1\n    def step"
NO_UPDATE = f"{PROTOCOL}(self, *_, **__): return None"
NO_UPDATES = (
    f"{PROTOCOL}(self, *_, **__): return Update()\n"
    "    def start_many(self, n, **_): return [1] * n\n"
    "    def step_many(self, *_, **__): return []"
)


@pytest.mark.parametrize(
    ("command", "members", "message"),
    [
        ("run", "def start(self, **_): return 1", "lacks step, lookahead_samples"),
        ("run", "lookahead_samples = 0", "lacks start, step"),
        ("run", NO_UPDATE, ": returned None; it returns a streaming_asr.method.Update"),
        ("transcribe", NO_UPDATE, ": returned None; it returns a streaming_asr.method.Update"),
        ("live", NO_UPDATE, ": returned None; it returns a streaming_asr.method.Update"),
        (
            "run",
            f"{PROTOCOL}(self, *_, **__): return Update(('a',))",
            ": returned ('a',); it returns an Update whose committed and partial words are tuples",
        ),
        ("run", NO_UPDATES, ": returned []; it returns a list with one Update for each of its "),
        ("live", NO_UPDATES, ": returned []; it returns a list with one Update for each of its "),
    ],
)
def test_the_error_of_a_method_that_breaks_the_protocol_names_class_rule_and_file(
    members, message, command, tmp_path, monkeypatch, capsys
):
    """transcribe and live put the method behind the gate, run does not."""
    name = f"own_{command}_{abs(hash(members))}"
    head = "from streaming_asr.method import Update\n\n\n"
    (tmp_path / f"{name}.py").write_text(f"{head}class Own:\n    {members}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = arguments(tmp_path, "method=own")
    if command != "run":
        settings = [s for s in settings if not s.startswith(("data=", "tracker="))]
    (tmp_path / "conf" / "method" / "own.yaml").write_text(f"_target_: {name}.Own\n")
    talk = str(HERE / "data" / "voices" / "audio" / "af_river-2.ogg")
    main, *more = {
        "run": (run.main, "batch=2"),
        "transcribe": (transcribe.main, talk),
        "live": (live.main, f"audio={talk}", "speed=0"),
    }[command]
    assert main([*more, *settings]) == 2
    told = capsys.readouterr().err
    assert message in told and name in told and "Traceback" not in told
    if message.startswith(":"):
        assert f"{name}.Own.step" in told and str(tmp_path / f"{name}.py") in told
    assert not list(tmp_path.rglob("failed.json"))


@pytest.mark.parametrize(
    ("main", "line", "first"),
    [
        (train.main, ["train"], "loading the recipe, its model and speech ..."),
        (align.main, ["align", "data=mini"], "loading the corpus and the aligner ..."),
        (lambda: export.main(["out", "model=mini"]), ["export"], "loading the model of model=mini"),
    ],
)
def test_a_long_command_prints_a_line_before_it_reads_its_settings(
    main, line, first, monkeypatch, capsys
):
    def stop(*_, **__):
        raise UserError("the settings are read")

    monkeypatch.setattr("streaming_asr.config.build.compose_raw", stop)
    monkeypatch.setattr("streaming_asr.config.settle.compose_raw", stop)
    monkeypatch.setattr(sys, "argv", line)
    assert main() == 2
    told = capsys.readouterr().err
    assert told.startswith(first) and told.endswith("\nerror: the settings are read\n")


@pytest.mark.parametrize(
    ("group", "text", "message"),
    [
        ("method", "beam: 3\n", "method=own: its _target_ is None, and must name a class"),
        ("data", "_target_: 3\n", "data=own: its _target_ is 3, and must name a class"),
        (
            "data",
            "_target_: run_fakes.Phrases\nsplitt: a\n",
            "{conf}/data/own.yaml: data.splitt=a: Phrases has no such setting; did you mean split?",
        ),
        (
            "data",
            "_target_: run_fakes.Phrases\n_partial_: true\n",
            "{conf}/data/own.yaml:2: _partial_ is a key of Hydra's own; leave it out",
        ),
        ("experiment", "method: offline\n", "experiment=own: its file must begin with `# @package"),
    ],
)
def test_a_file_that_lacks_what_its_group_needs_is_named(group, text, message, tmp_path, capsys):
    command = arguments(tmp_path, f"{group}=own")
    (tmp_path / "conf" / group).mkdir(exist_ok=True)
    (tmp_path / "conf" / group / "own.yaml").write_text(text)
    assert run.main(command) == 2
    told = capsys.readouterr().err
    message = message.replace("{conf}", str(tmp_path / "conf"))
    assert told.startswith(f"error: {message}") and told.count("\n") == 1


@pytest.mark.parametrize("name", ["method/offline", "model/tiny.en", "run"])
def test_an_own_file_with_the_name_of_the_package_s_is_refused(name, tmp_path):
    file = tmp_path / "conf" / f"{name}.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("a: 1\n")
    with pytest.raises(UserError) as refusal:
        compose_raw(["method=offline"], config_dir=str(tmp_path / "conf"))
    group = name.rpartition("/")[0]
    remedy = f"{group}/my_{file.name}" if group else "experiment/mine.yaml"
    rule = "has the name of a file of the package, which would be taken"
    assert str(refusal.value) == f"{file}: {rule}; rename it, as {remedy}"


@pytest.mark.parametrize("text", ["a: 1\n  b: [1\n", "a: 1\n\tb: 2\n", "a: 1\na: 2\n"])
def test_a_file_that_is_no_yaml_is_named_with_its_line(text, tmp_path, capsys):
    command = arguments(tmp_path, "method=own")
    (tmp_path / "conf" / "method" / "own.yaml").write_text(text)
    assert run.main(command) == 2
    told = capsys.readouterr().err
    assert "method/own.yaml:2: is no YAML (" in told and told.count("\n") == 1


@pytest.mark.parametrize(
    "command", [["data.path=none.wav"], ["data=folder", "data.path=."], ["data.snr_db=900"]]
)
def test_a_mistyped_run_leaves_no_row(command, tmp_path):
    ran = arguments(tmp_path)
    assert run.main(ran) == 0
    before = sorted(tmp_path.rglob("*"))
    assert run.main([*arguments(tmp_path), "model=mini", "method=whisperrt", *command]) == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_a_configuration_that_is_nested_too_deep_is_refused(tmp_path, capsys):
    command = arguments(tmp_path, "method=deep")
    (tmp_path / "conf" / "method" / "deep.yaml").write_text("a: " + "[" * 50_000)
    assert run.main(command) == 2
    assert "a setting is nested too deep; write it flat" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("program", "command", "message"),
    [
        (train, ["method=ufal"], "method=ufal: needs no training"),
        (train, ["method=ufall"], "method=ufall: no such method; did you mean ufal?"),
        (train, ["--chunk", "300ms"], "write chunk=300ms"),
        (train, ["fit.max_steps=3"], "no fit to set; did you mean recipe.fit.max_steps?"),
        (align, ["talk.wav"], "data=folder data.path=talk.wav for the others"),
        (align, ["data=mni"], "data=mni: no such data; did you mean mini?"),
        (align, ["data.path=none.wav"], "none.wav: no such folder or file"),
        (live, ["audio=a.wav", "data.snr_db=0"], "data.snr_db=0: has no effect in live; leave"),
        (serve, ["limit=2"], "limit=2: has no effect in serve; leave it out"),
        (compare, ["audio=a.wav", "data=mini"], "data=mini: has no effect in compare, whose"),
    ],
)
def test_a_wrong_command_of_the_others_is_told_its_remedy(
    program, command, message, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["program", *command])
    assert status(program.main) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("program", [run, train, align])
@pytest.mark.parametrize(
    "options", [["-m", "--cfg", "job"], ["--multirun", "--info"], ["--cfg=job", "-r"]]
)
def test_options_that_exclude_each_other_are_refused_in_a_line(
    program, options, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["program", *options])
    assert status(program.main) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "give one of them" in line


@pytest.mark.parametrize("program", [run, train, align])
def test_help_lists_the_choices_of_its_own_command_without_the_experiments(
    program, monkeypatch, capsys
):
    monkeypatch.setattr(sys, "argv", ["program", "--help"])
    assert status(program.main) == 0
    told = capsys.readouterr().out
    assert "\nmodel: base, base.en," in told and "\nTry\n" in told
    assert "table1_mask_alone" not in told
    assert ("\nmethod: " in told) == (program in (run, train))


def test_a_method_without_a_recipe_of_ours_takes_one_from_elsewhere(monkeypatch, capsys, tmp_path):
    (tmp_path / "recipe").mkdir()
    recipe = "target: {_target_: my.Recipe}\nfit: {max_steps: 1, max_minutes: 1}\n"
    (tmp_path / "recipe" / "offline.yaml").write_text(recipe)
    told = ["program", f"hydra.searchpath=[{tmp_path}]", "method=offline", "--cfg", "job"]
    monkeypatch.setattr(sys, "argv", told)
    assert status(train.main) == 0
    assert "my.Recipe" in capsys.readouterr().out


def test_a_recording_that_cannot_be_read_is_named_and_makes_the_status_1(
    tmp_path, monkeypatch, capsys
):
    made = Phrases.utterances

    def unreadable():
        raise UserError("phrase-1.wav: not readable as audio")

    def one_broken(self, limit=None):
        return [
            replace(each, audio=unreadable) if each.id == "phrase-1" else each
            for each in made(self, limit)
        ]

    monkeypatch.setattr(Phrases, "utterances", one_broken)
    assert run.main(arguments(tmp_path)) == 1
    told = capsys.readouterr().err
    assert "1 of 5 recordings failed:" in told
    assert "  phrase-1: phrase-1.wav: not readable as audio" in told
    assert run.main(arguments(tmp_path)) == 1  # skipped as finished, and still said


def test_no_ending_that_can_be_read_is_passed_over_in_a_folder(tmp_path):
    for name in ("a.wav", "b.m4a", "c.mp4", "d.webm", "e.mov", "f.mp3"):
        (tmp_path / name).write_bytes(b"")
    assert [file.name[0] for file in Folder(tmp_path).files()] == list("abcdef")


# -- Wrong lines --


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


def asked(*options):
    """The program of `run` that answers `options`."""
    return lambda argv: exit_status(
        lambda: by_hydra("run", lambda _: None, [*options, *argv], "run")
    )


def composed(argv):
    """As transcribe, advise, audit, load and export take their settings."""
    return exit_status(lambda: compose(argv) and None)


COMMANDS = {
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


def check(name, wrong, capsys, monkeypatch):
    main, before = COMMANDS[name]
    monkeypatch.setattr("sys.argv", ["streaming-asr", *before, wrong])
    try:
        status = main([*before, wrong])
    except SystemExit as ended:
        status = ended.code
    told = errors_of(capsys.readouterr().err)
    assert status == 2, wrong
    assert told.startswith("error: ") and told.count("\n") == 1, (wrong, told)
    assert not FOREIGN.search(told), (wrong, told)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_line_is_refused_in_one_line_of_our_words(name, tmp_path, capsys, monkeypatch):
    """Each command gets a third of the lines, drawn by its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.wav").write_bytes(b"")
    lines = [*KEYS, *(f"limit={value}" for value in VALUES)]
    for wrong in random.Random(name).sample(lines, len(lines) // 3):
        if "${" not in wrong or not name.startswith("--"):  # these fill nothing in
            check(name, wrong, capsys, monkeypatch)
