"""Durations, the first chunk, refusals, adapters, and every YAML against its constructor."""

import inspect
import json
import re
from dataclasses import fields

import numpy as np
import pytest
from hydra.utils import get_object
from omegaconf import MISSING, OmegaConf
from run_fakes import arguments
from safetensors.numpy import save_file

from streaming_asr.chunking import first_chunk_ms, format_duration, parse_duration
from streaming_asr.config import settle
from streaming_asr.config.build import build
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.defaults import CHUNK, CHUNKS
from streaming_asr.config.naming import cell_name
from streaming_asr.config.schema import RunConfig
from streaming_asr.config.settle import compose
from streaming_asr.config.types import check_arguments
from streaming_asr.config.weights import find_weights, unheard, weights_folders
from streaming_asr.corpora import MINI
from streaming_asr.errors import UserError
from streaming_asr.files import CONF_DIR
from streaming_asr.models.hash import weights_hash

GROUPS = [
    pytest.param(group, path.stem, id=f"{group}-{path.stem}")
    for group in ("method", "data")
    for path in sorted((CONF_DIR / group).glob("*.yaml"))
]


def settled(folder, *overrides):
    _, conf, *rest = arguments(folder, *overrides)
    return compose(rest, config_dir=conf)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("300ms", 300), ("1.2s", 1200), ("0.04s", 40), ("1s", 1000), ("20ms", 20), (" 300 ms", 300)],
)
def test_a_duration_is_a_number_and_a_unit(text, ms):
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("300", "write chunk=300ms"),
        ("0.3", "write chunk=0.3s"),
        ("1", "write chunk=1s"),
        ("0ms", "must be positive"),
        ("-300ms", "must be positive"),
        ("310ms", "use chunk=300ms or 320ms"),
        ("10ms", "use chunk=20ms"),
        ("0.3333s", "use chunk=320ms or 340ms"),
        ("300min", "the unit is ms or s"),
        ("fast", "not a duration"),
        ("", "not a duration"),
    ],
)
def test_a_wrong_duration_is_refused_with_its_remedy(text, remedy):
    with pytest.raises(UserError) as refusal:
        parse_duration(text)
    assert remedy in str(refusal.value)
    assert f"chunk={text}" in str(refusal.value)


@pytest.mark.parametrize(
    ("chunk", "first"),
    [("40ms", 600), ("100ms", 600), ("280ms", 840), ("300ms", 600), ("600ms", 600), ("1s", 1000)],
)
def test_the_first_chunk_is_the_least_multiple_of_the_chunk_from_600_ms(chunk, first):
    assert first_chunk_ms(chunk) == first


def test_a_given_first_chunk_is_taken_as_it_is():
    assert first_chunk_ms("300ms", "0.4s") == 400
    with pytest.raises(UserError, match="first_chunk=500: a duration needs a unit"):
        first_chunk_ms("300ms", "500")


def test_one_duration_has_one_spelling():
    assert [format_duration(ms) for ms in (300, 1000, 1200, 2000)] == [
        "300ms",
        "1s",
        "1200ms",
        "2s",
    ]


def test_the_settled_configuration_is_resolved(tmp_path):
    config = settled(tmp_path, "chunk=1000ms")
    assert (config.chunk, config.first_chunk) == ("1s", "1s")
    assert (config.method.chunk_s, config.method.first_chunk_s) == (1.0, 1.0)
    assert "hydra" not in config


@pytest.mark.parametrize(
    ("override", "answer"),
    [
        ("method=parot", "did you mean parrot?"),
        ("chnk=100ms", "did you mean chunk?"),
        ("method.wrong_evry=2", "did you mean method.wrong_every?"),
        ("data.splt=other", "did you mean data.split?"),
        ("feed=best-effort", "did you mean best_effort?"),
        ("dtype=float8", "one of float32, float16, bfloat16, int8; did you mean float"),
        ("device=gpu", "the device is cpu, cuda"),
        ("limit=0", "limit=0: must be 1 or more"),
        ("batch=two", "batch=two: must be a whole number"),
        ("chunk=300", "write chunk=300ms"),
        ("first_chunk=610ms", "use first_chunk=600ms or 620ms"),
        ("experiment=gird", "did you mean grid?"),
        ("~method", "method: none chosen"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_loads(tmp_path, override, answer):
    with pytest.raises(UserError) as refusal:
        settled(tmp_path, override)
    assert answer in str(refusal.value)


def test_a_chunkformers_folder_is_a_model_and_its_own_adapter(tmp_path):
    (tmp_path / "config.yaml").write_text("encoder_conf: {}")
    config = compose(["method=chunkformer", "model=chunkformer", f"model.path={tmp_path}"])
    assert config.method.weights == str(tmp_path)
    (tmp_path / "config.json").write_text("{}")  # of neither kind
    with pytest.raises(UserError, match=r"no config\.json that names a model_type"):
        compose(["method=chunkformer", "model=chunkformer", f"model.path={tmp_path}"])


# -- adapters -------------------------------------------------------------------------------


def adapters(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "adapter_config.json").write_text("{}")
    return folder


def test_the_adapter_of_exactly_the_chunk_comes_before_the_random_one(tmp_path):
    folder = adapters(tmp_path / "a", "300ms", "1s", "any_chunk")
    assert find_weights("m", 300, "auto", [folder]) == folder / "300ms"
    assert find_weights("m", 1000, "auto", [folder]) == folder / "1s"
    assert find_weights("m", 200, "auto", [folder]) == folder / "any_chunk"


def test_a_trained_adapter_of_the_chunk_comes_before_the_models_random_one(tmp_path):
    shipped = adapters(tmp_path / "shipped", "any_chunk")
    trained = adapters(tmp_path / "trained", "100ms", "any_chunk")
    assert find_weights("m", 100, "auto", [shipped, trained]) == trained / "100ms"
    assert find_weights("m", 300, "auto", [shipped, trained]) == shipped / "any_chunk"


def test_what_was_trained_here_comes_before_what_the_model_brings(tmp_path):
    config = compose(["method=whisperrt", "model=mini", f"output={tmp_path}"])
    trained, brought = weights_folders(config, "whisperrt")
    assert trained == tmp_path / "train" / "mini" / "whisperrt"
    assert brought == MINI / "weights" / "whisperrt"


def test_auto_passes_over_an_adapter_of_other_weights(tmp_path):
    folder = adapters(tmp_path / "a", "300ms", "any_chunk")
    ours, theirs, another = (tmp_path / name for name in ("ours", "theirs", "another"))
    for number, model in enumerate((ours, theirs, another)):
        model.mkdir()
        (model / "config.json").write_text('{"model_type": "whisper"}')
        save_file({"x": np.array([number], "f4")}, model / "model.safetensors")
    for name, base in (("300ms", theirs), ("any_chunk", ours)):
        told = json.dumps({"base": weights_hash(base)})
        (folder / name / "training.json").write_text(told)
    assert find_weights("m", 300, "auto", [folder], model=ours) == folder / "any_chunk"
    assert find_weights("m", 300, "auto", [folder], model=theirs) == folder / "300ms"
    assert find_weights("m", 300, "auto", [folder]) == folder / "300ms"
    assert find_weights("m", 300, "300ms", [folder], model=ours) == folder / "300ms"
    assert find_weights("m", 300, "auto_or_none", [folder], model=another) is None
    with pytest.raises(UserError, match=r"There are: none \(trained on other weights: .*300ms, "):
        find_weights("m", 300, "auto", [folder], model=another)


def test_minis_adapters_name_the_weights_they_were_trained_on():
    base = weights_hash(MINI / "model")
    found = {
        str(file.parent.relative_to(MINI / "weights")): json.loads(file.read_text()).get("base")
        for file in (MINI / "weights").glob("*/*/training.json")
    }
    assert found == {
        **dict.fromkeys(("whisperrt/100ms", "whisperrt/300ms", "whisperrt/any_chunk"), base),
        **dict.fromkeys(("hush_word/any_chunk", "simul_whisper/any_chunk", "star/any_chunk"), base),
        **dict.fromkeys(("chunkformer/any_chunk", "u2/any_chunk")),  # whole networks
    }


def test_an_adapter_can_be_named_or_given_as_a_folder_or_left_out(tmp_path):
    folder = adapters(tmp_path / "a", "300ms", "any_chunk")
    assert find_weights("m", 300, "any_chunk", [folder]) == folder / "any_chunk"
    assert find_weights("m", 100, "0.3s", [folder]) == folder / "300ms"
    assert find_weights("m", 100, str(folder / "300ms"), []) == folder / "300ms"
    assert find_weights("m", 100, "none", [folder]) is None


def test_an_adapter_that_a_method_can_do_without_is_taken_where_there_is_one(tmp_path):
    folder = adapters(tmp_path / "a", "any_chunk")
    assert find_weights("m", 100, "auto_or_none", [folder]) == folder / "any_chunk"
    assert find_weights("m", 100, "auto_or_none", [tmp_path / "nowhere"]) is None


def test_without_an_adapter_the_refusal_says_what_exists_and_how_to_train_one(tmp_path):
    folder = adapters(tmp_path / "a", "300ms")
    (folder / "empty").mkdir()
    with pytest.raises(UserError) as refusal:
        find_weights("whisperrt", 100, "auto", [folder, tmp_path / "nowhere"])
    text = str(refusal.value)
    assert "chunk=100ms: no such weights" in text
    assert f"There are: {folder / '300ms'}." in text
    assert "python -m streaming_asr.train method=whisperrt chunk=100ms" in text
    with pytest.raises(UserError, match=r"method\.weights=gone: no such weights"):
        find_weights("whisperrt", 100, "gone", [folder])


# -- every file in conf/ --------------------------------------------------------------------


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_a_configuration_file_binds_to_its_constructor(group, name):
    """Nothing it does not take, nothing it needs left out, nothing a method offers hidden."""
    full = compose_raw([f"{group}={name}"])
    node = OmegaConf.to_container(full[group], resolve=True)
    check_arguments({key: value for key, value in node.items() if value != "???"})
    parameters = inspect.signature(get_object(node.pop("_target_"))).parameters
    assert set(node) <= set(parameters)
    required = {n for n, p in parameters.items() if p.default is inspect.Parameter.empty}
    assert required <= set(node)
    if group == "method":
        assert set(parameters) == set(node)


IN_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "Sequence[float]": "a list",
}
WRONG = {
    "int": [1.5, "x", True, [1], {"x": 1}],
    "float": ["x", False, [1.0], {"x": 1}],
    "bool": [1, "x", [True], {"x": 1}],
    "str": [True, ["a"], {"x": 1}],
    "Sequence[float]": ["x", 1.0, ["a"], [True], [[1.0]]],
}


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_a_value_of_another_type_is_refused_in_every_configuration(group, name):
    node = OmegaConf.to_container(compose_raw([f"{group}={name}"])[group], resolve=True)
    node = {key: value for key, value in node.items() if value != "???"}
    for key, parameter in inspect.signature(get_object(node["_target_"])).parameters.items():
        stated = str(parameter.annotation).removesuffix(" | None")
        for value in WRONG.get(stated, ()):
            rule = re.escape(IN_WORDS[stated])
            with pytest.raises(UserError, match=f"{key}=.*: must be {rule}"):
                check_arguments(node | {key: value})
        if stated == "str":  # `data.version=2` of a command line
            assert check_arguments(node | {key: 2})[key] == "2"
        if stated == "float":
            assert check_arguments(node | {key: 2})[key] == 2


@pytest.mark.parametrize(
    "method", ["hush_word", "offline", "reencode", "simul_whisper", "ufal", "whisperrt"]
)
def test_a_guard_that_is_none_is_refused_before_the_model_loads(method, monkeypatch):
    def load(*_, **__):
        raise AssertionError("loads")

    for place in ("load_whisper", "OnWhisper.load"):
        monkeypatch.setattr(f"streaming_asr.whisper.settings.{place}", load)
    config = compose([f"method={method}", "model=mini", "data=mini", "method.guard=x"])
    with pytest.raises(UserError, match="guard='x': one of repeats, none"):
        build(config.method)


@pytest.mark.parametrize("group", ["model", "tracker"])
def test_every_option_of_a_group_composes(group):
    names = [path.stem for path in (CONF_DIR / group).glob("*.yaml")]
    assert names
    for name in names:
        OmegaConf.to_container(compose_raw([f"{group}={name}"])[group], resolve=True)


@pytest.mark.parametrize("name", sorted(p.stem for p in (CONF_DIR / "experiment").glob("*.yaml")))
def test_every_experiment_settles_and_names_model_and_data(name, monkeypatch):
    # Checked without weights: a model that is not built yet must not hide a typo.
    monkeypatch.setattr(settle, "_check_model", lambda _: None)
    monkeypatch.setattr(settle, "find_weights", lambda *_, **__: None)
    full = compose_raw([f"experiment={name}"])
    settle.settle(full, full.hydra)
    text = (CONF_DIR / "experiment" / f"{name}.yaml").read_text()
    if "\n  - real\n" not in text:
        assert "override /model: " in text and "override /data: " in text


def test_mini_by_itself_takes_its_own_speech_and_nothing_named_is_real():
    cells = {
        given: compose_raw(list(given)).hydra.runtime.choices
        for given in ((), ("model=mini",), ("model=mini", "data=folder"), ("experiment=fig6",))
    }
    assert [(cell.model, cell.data) for cell in cells.values()] == [
        ("tiny.en", "voices"),
        ("mini", "mini"),
        ("mini", "folder"),
        ("mini", "mini"),
    ]


@pytest.mark.parametrize("path", sorted((CONF_DIR / "recipe").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_recipe_composes_with_the_training_program(path):
    import streaming_asr.train  # noqa: F401 (registers its schema)

    full = compose_raw([f"recipe={path.stem}", "model=base"], config_name="train")
    recipe = OmegaConf.to_container(full.recipe, resolve=True)
    assert recipe["fit"]["max_steps"] > 0
    assert get_object(recipe["target"]["_target_"])


def test_a_model_or_a_chunk_that_the_paper_has_not_is_refused_by_name(monkeypatch, capsys):
    from streaming_asr import train

    paper, places = "recipe=whisperrt_paper", ["train_data=x", "dev_manifest=y"]
    for given, wrong in (("model=medium", "medium"), ("chunk=1s model=base", "1s")):
        for rest in (places, ["--cfg", "job", "--resolve"]):
            monkeypatch.setattr("sys.argv", ["train", paper, *given.split(), *rest])
            assert train.main() == 2
            told = capsys.readouterr().err
            assert f"error: recipe.paper: the paper has no settings for {wrong}, only for " in told


@pytest.mark.parametrize(
    "recipe",
    ["whisperrt_paper", "u2_paper", "hush_word_paper", "star_paper", "chunkformer_paper"],
)
def test_a_recipe_without_its_corpus_says_how_to_make_it(recipe, tmp_path, monkeypatch, capsys):
    from streaming_asr import train

    def told(*given):
        command = ["train", f"recipe={recipe}", "model=base", f"output={tmp_path}", *given]
        monkeypatch.setattr("sys.argv", command)
        assert train.main() == 2
        return capsys.readouterr().err

    assert "train_data: has no default for model=base" in told()
    places = [f"train_data={tmp_path}/none", f"dev_manifest={tmp_path}/none.jsonl"]
    makes = "make it with `streaming-asr data"
    refused = told(*places)
    assert f"none: no such folder; {makes} shards data=... out={tmp_path}/none`" in refused
    (tmp_path / "none").mkdir()
    assert f"none.jsonl: no such manifest; {makes} manifest" in told(*places)
    assert not (tmp_path / "training").exists()


def test_build_raises_what_the_constructor_raises():
    with pytest.raises(RuntimeError, match="broken"):
        build({"_target_": "run_fakes.Parrot", "chunk_s": 1, "first_chunk_s": 1, "fail": "broken"})


def test_a_language_that_trained_weights_never_heard_is_said_in_one_sentence(tmp_path):
    def told(weights, *languages):
        return unheard({"method": {"weights": weights}}, set(languages))

    assert told(str(tmp_path), "de") is None  # training.json does not say what they heard
    (tmp_path / "training.json").write_text('{"languages": ["en", "fr"]}')
    assert told(str(tmp_path), "en", "fr") is None
    sentence = told(str(tmp_path), "en", "de", "ru")
    assert sentence is not None and "trained on en, fr and not on de, ru" in sentence
    assert told("none", "de") is told(None, "de") is unheard({"method": {}}, {"de"}) is None


def test_a_method_that_takes_no_model_has_none():
    remote = ["method=remote", "method.url=ws://127.0.0.1:1/x", "feed=realtime"]
    config = compose([*remote, "language=de", "chunk=40s"])
    assert (config.model, config.language) == ({"name": "unknown", "path": None}, "de")
    assert compose([*remote, "method.served=large-v3"]).model.name == "large-v3"
    assert compose(["method=offline", "model=mini", "data=mini"]).model.name == "mini"


@pytest.mark.parametrize(
    "wrong",
    ["fit.lr=inf", "fit.lr=ten", "fit.lr=0", "fit.max_steps=0", "fit.max_steps=1.5",
     "fit.evaluate_every=0", "fit.max_minutes=-1", "fit.accumulate=0", "fit.nope=1",
     "target.n_dev=0"],
)  # fmt: skip
def test_a_training_s_limits_are_checked(wrong):
    from streaming_asr.train import check_fit

    recipe = ["recipe=whisperrt", "model=base"]
    check_fit(compose_raw(recipe, config_name="train").recipe)
    config = compose_raw([*recipe, f"++recipe.{wrong}"], config_name="train")
    with pytest.raises(UserError, match=f"^recipe.{wrong.partition('=')[0]}="):
        check_fit(config.recipe)


# -- Defaults --


def test_the_chunks_are_of_methods_and_the_usual_one_is_that_of_a_run():
    assert {path.stem for path in (CONF_DIR / "method").glob("*.yaml")} > set(CHUNKS)
    assert OmegaConf.load(CONF_DIR / "run.yaml").chunk == CHUNK


def test_the_defaults_of_a_run_are_in_conf_only():
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
        (["method=mine,native"], "560ms"),
        (["experiment=real"], None),
    ],
)
def test_a_command_takes_the_chunk_of_its_methods(settings, chunk):
    line = CommandLine(settings)
    line.default_methods(1)
    assert line.get("chunk") == chunk


# -- Names --


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], ""),
        (["model=tiny.en"], ""),
        (["model=tiny.en", "data=voices", "tracker=none"], ""),
        (["model=base"], ",model=base"),
        (["model=mini"], ",model=mini"),
        (["model=mini", "data=mini"], ",model=mini"),  # mini takes its own corpus by itself
        (["model=mini", "data=mini", "data.split=clean"], ",model=mini"),
        (["limit=4", "data=voices"], ",limit=4"),
        (["limit=null", "batch=1", "seed=0", "dtype=float32"], ""),
        (["method.beam=0", "method.n=2"], ""),
        (["method.beam=3"], ",method.beam=3"),
        # The default is another setting's value, which may be given as well.
        (["guard=none", "method.guard=repeats"], ",guard=none,method.guard=repeats"),
        # An experiment has defaults of its own.
        (["experiment=real_base", "model=tiny.en"], ",model=tiny.en"),
        (["experiment=real_base", "model=base"], ""),
        (["model=of_the_users", "data=voices"], ",data=voices,model=of_the_users"),
        (["data=folder", "data.path=/a/b=c,d.wav"], ",data=folder,data.path=_a_b_c_d.wav"),
        (["+method.x=1"], ",method.x=1"),
    ],
)  # fmt: skip
def test_a_cell_is_named_by_what_differs_from_the_defaults(overrides, name):
    for each in (overrides, overrides[::-1]):
        assert cell_name("whisperrt", "300ms", each) == f"method=whisperrt,chunk=300ms{name}"


def test_defaults_are_those_of_the_method_that_is_chosen():
    beam = ["method=hush_word", "method.beam=5"]
    assert cell_name("hush_word", "1000ms", beam) == "method=hush_word,chunk=1s"
    beam = ["method=whisperrt", "method.beam=5"]
    assert cell_name("whisperrt", "1s", beam) == "method=whisperrt,chunk=1s,method.beam=5"


def test_a_piece_lies_in_its_cell():
    name = cell_name("whisperrt", "1s", ["limit=8", "pieces=2"], 2, 1)
    assert name == "method=whisperrt,chunk=1s,limit=8/pieces/1-of-2"
