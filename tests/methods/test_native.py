"""Models built for streaming: the contract, chunks equal to one pass, refusals."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from native_tiny import (
    kyutai_folder,
    moonshine_folder,
    nemotron_folder,
    qwen3_folder,
    voxtral_folder,
)
from safetensors.torch import load_file, save_file
from tiny import fed, noise, tiny_folder

from streaming_asr import contract
from streaming_asr.commands import list as list_command
from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.settle import compose
from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.corpora.audio import Resampler
from streaming_asr.errors import UserError
from streaming_asr.methods.native import native
from streaming_asr.methods.native.words import Writer
from streaming_asr.models.native import KINDS
from streaming_asr.run.plan import plan

CHUNK_MS = 560  # one that every kind takes
FOLDERS = {
    "kyutai_stt": kyutai_folder,
    "moonshine_streaming": moonshine_folder,
    "nemotron": nemotron_folder,
    "qwen3_asr": qwen3_folder,
    "voxtral_realtime": voxtral_folder,
}


def method(kind, folder=None, **settings):
    weights = str(folder or FOLDERS[kind]())
    values = {"device": "cpu", "dtype": "float32", "chunk_s": CHUNK_MS / 1000, **settings}
    return native(weights=weights, **values)


def setting(chunk_ms=CHUNK_MS):
    n = 16 * chunk_ms
    return Setting(n, -(-600 // chunk_ms) * n, noise(3.0, seed=1), noise(1.7, seed=2))


def streamed(streaming, audio, *, language=None):
    """The state of a stream after the audio, in pieces of 0.1 s."""
    state = streaming.start(language=language)
    fed(streaming, audio, 1600, state=state)
    return state


@pytest.fixture(scope="module")
def methods():
    """One method of each kind, whose steps the checks share."""
    return {kind: (method(kind), setting()) for kind in KINDS}


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_keeps_the_contract(methods, kind, check):
    check(*methods[kind])


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_where_a_step_ends_changes_nothing(methods, kind):
    streaming, about = methods[kind]
    texts = {
        contract.text_of(streaming, np.array_split(about.audio, n), about) for n in (1, 4, 9, 31)
    }
    (text,) = texts
    assert len(text.split()) > 5


# -- Nemotron ---------------------------------------------------------------------------------


def mel_of(streaming, audio, n):
    """The first `n` frames of the extractor's own pass over the audio and silence after it."""
    extractor = streaming.processor.feature_extractor
    whole = np.pad(audio, (0, n * extractor.hop_length))
    made = extractor(whole, sampling_rate=16_000, return_tensors="pt")["input_features"]
    return made[:, :n]


@pytest.mark.parametrize("multilingual", [False, True])
@pytest.mark.parametrize("chunk_ms", [80, 160, 560])
def test_nemotron_s_chunks_are_its_own_stream(monkeypatch, multilingual, chunk_ms):
    streaming = method(
        "nemotron", nemotron_folder(multilingual=multilingual), chunk_s=chunk_ms / 1000
    )
    frames = []
    own = streaming.model.get_audio_features

    def recorded(*args, **settings):
        made = own(*args, **settings)
        frames.append(made.pooler_output)
        return made

    monkeypatch.setattr(streaming.model, "get_audio_features", recorded)
    state = streamed(streaming, noise(2.0, seed=3), language="de" if multilingual else None)
    monkeypatch.undo()
    ours = torch.cat(frames, 1)
    ahead, n = chunk_ms // 80 - 1, 8 * ours.shape[1] - 7
    mel = mel_of(streaming, noise(2.0, seed=3), n)
    extra = {"prompt_ids": torch.tensor([1])} if multilingual else {}
    with torch.inference_mode():
        whole = streaming.model.get_audio_features(mel, num_lookahead_tokens=ahead, **extra)
        ends = [1 + 8 * ahead, *range(1 + 8 * ahead + 8 * (ahead + 1), n + 1, 8 * (ahead + 1))]
        pieces = (mel[:, a:b] for a, b in zip([0, *ends], ends, strict=False))
        theirs = streaming.model.generate(
            pieces, num_lookahead_tokens=ahead, max_new_tokens=1000, **extra
        ).sequences
    torch.testing.assert_close(ours, whole.pooler_output, atol=2e-5, rtol=1e-5)
    blank = streaming.model.config.blank_token_id
    assert state.tokens == [token for token in theirs[0].tolist() if token != blank]
    assert len(state.tokens) > 10


def test_nemotron_reads_all_audio_and_no_more_blocks_than_that(methods):
    streaming, _ = methods["nemotron"]
    for n_samples in (1, 7 * 8960 - 1, 7 * 8960, 7 * 8960 + 1):
        state = streamed(streaming, noise(4.0)[:n_samples])
        n_mel = 8 * (7 * state.n_blocks - 1) + 1
        assert n_mel - 56 < n_samples // 160 + 1 <= n_mel


def test_streams_that_are_equally_far_share_passes(monkeypatch):
    streaming = method("nemotron")
    own, sizes = streaming.model.get_audio_features, []

    def counted(features, **settings):
        sizes.append(len(features))
        return own(features, **settings)

    monkeypatch.setattr(streaming.model, "get_audio_features", counted)
    states = streaming.start_many(3)
    pieces = [noise(0.56, seed=seed) for seed in range(3)]
    streaming.step_many(states, pieces, last=[False, False, False])
    streaming.step_many(states[:2], pieces[:2], last=[False, False])
    streaming.step_many(states, pieces, last=[False, False, False])
    assert sizes == [3, 2, 2, 1]


# -- Voxtral ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")
@pytest.mark.parametrize("delay_s", [None, 0.24])
def test_voxtral_outputs_what_its_class_generates(delay_s):
    streaming = method("voxtral_realtime", delay_s=delay_s)
    model, audio, delay = streaming.model, noise(2.01, seed=4), 4 if delay_s is None else 3
    state = streamed(streaming, audio)
    n = 5 + 26 + delay + 11  # tokens: silence, 2.01 s, the delay, silence
    padded = np.pad(audio, (5 * 1280, 1280 * n))
    mel = streaming.processor(padded, sampling_rate=16_000, return_tensors="pt")["input_features"]
    mel, n_prompt = mel[..., : 8 * n], 1 + 5 + delay
    ends = [8 * n_prompt, *range(8 * n_prompt + 8, 8 * n + 1, 8)]
    theirs = model.generate(
        input_ids=torch.tensor([[1] + (n_prompt - 1) * [3]]),
        input_features=(mel[..., a:b] for a, b in zip([0, *ends], ends, strict=False)),
        num_delay_tokens=delay,
    )[0, n_prompt:].tolist()
    assert len(theirs) == n - n_prompt + 1
    assert state.tokens == theirs
    assert len(set(theirs)) > 5


def test_voxtral_stops_where_the_model_ends_its_text(monkeypatch):
    streaming = method("voxtral_realtime")
    state = streaming.start()
    monkeypatch.setattr(streaming, "_ends", {streamed(streaming, noise(2.0, seed=4)).tokens[6]})
    streaming.step(state, noise(2.0, seed=4), last=True)
    assert len(state.tokens) <= 6
    assert state.is_done


@pytest.mark.parametrize("delay_s", [0.16, 0.3, 2.48])
def test_a_delay_that_voxtral_does_not_have_is_refused(delay_s):
    with pytest.raises(UserError, match=r"must be 0\.24 to 2\.4 in steps of 0\.08"):
        method("voxtral_realtime", delay_s=delay_s)
    with pytest.raises(UserError, match="only voxtral_realtime has it"):
        method("nemotron", delay_s=0.48)


def test_a_character_of_several_tokens_is_one():
    texts = [b"c", "é".encode()[:1], "é".encode()[1:], b" x"]
    words = Writer(
        lambda ids: b"".join(texts[i] for i in ids).decode(errors="replace"),
        lambda token: texts[token].startswith(b" "),
        None,
    )
    shown = []
    for token in range(3):
        assert words.push(token, 9.0) == []
        shown.append(words.partial(9.0)[0].text)
    assert shown == [" c", " c", " cé"]
    assert [word.text for word in words.push(3, 9.0)] == [" cé"]


# -- Kyutai -----------------------------------------------------------------------------------


def test_kyutai_outputs_what_its_class_generates():
    streaming, audio = method("kyutai_stt"), noise(2.01, seed=5)
    state = streamed(streaming, audio)
    resampler = Resampler(24_000)
    whole = np.concatenate([resampler.of_samples(audio, 16_000), resampler.of_frame(None)])
    assert len(whole) == 48_240
    extractor = streaming.processor.feature_extractor
    inputs = extractor(whole, sampling_rate=24_000, return_tensors="pt")
    theirs = streaming.model.generate(**inputs)[0, 1:].tolist()
    assert len(theirs) == (6_000 + 48_240 + 36_000) // 1920
    assert state.tokens[: len(theirs)] == theirs
    assert len(state.tokens) - len(theirs) <= 2  # the last frames are padded, not dropped
    assert len(set(theirs)) > 5


# -- Moonshine --------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_ms", [80, 560])
def test_moonshine_s_frames_in_chunks_are_one_pass(chunk_ms):
    streaming = method("moonshine_streaming", chunk_s=chunk_ms / 1000)
    audio = noise(3.03, seed=6)
    state = streamed(streaming, audio)
    ours, values = torch.cat(state.frames), torch.from_numpy(audio)[None]
    with torch.inference_mode():
        made = streaming.model.get_encoder()(values, attention_mask=torch.ones_like(values).long())
    assert len(ours) == -(-48_480 // 320)
    torch.testing.assert_close(ours, made.last_hidden_state[0], atol=1e-5, rtol=1e-5)
    assert len(state.audio) < 10_000  # what no frame sees any more is dropped


def test_moonshine_decodes_as_its_class_generates(methods):
    streaming, _ = methods["moonshine_streaming"]
    values = torch.from_numpy(noise(3.0, seed=7))[None]
    mask = torch.ones_like(values).long()
    with torch.inference_mode():
        frames = streaming.model.get_encoder()(values, attention_mask=mask).last_hidden_state[0]
        ours = streaming.decode(frames, [])
    most = int(6.5 * 3.0) + 1
    theirs = streaming.model.generate(values, attention_mask=mask, max_new_tokens=most)[0].tolist()
    ends = streaming.model.config.eos_token_id
    assert ours == [token for token in theirs[1:] if token != ends]
    assert len(set(ours)) > 3
    for k in (1, 4):  # the tokens that are final are where it begins
        assert streaming.decode(frames, ours[:k]) == ours


def test_moonshine_commits_what_two_chunks_agree_on(methods, monkeypatch):
    streaming, _ = methods["moonshine_streaming"]
    decodings = iter([[1, 2, 7], [1, 2, 7, 3], [1, 2, 7, 4], [1, 2, 7, 4, 5]])
    monkeypatch.setattr(streaming, "decode", lambda *_: next(decodings))
    state, said = streaming.start(), []
    for _ in range(4):
        update = streaming.step(state, noise(0.56), last=False)
        said.append([[word.text for word in part] for part in (update.committed, update.partial)])
    assert said == [
        [[], [" the", " foxed"]],
        [[" the"], [" foxed", " runs"]],
        [[], [" foxed", " over"]],
        [[" foxed"], [" over", " a"]],
    ]


def test_a_segment_of_moonshine_ends_at_its_limit(monkeypatch):
    monkeypatch.setattr("streaming_asr.methods.native.moonshine.SEGMENT_S", 1.0)
    streaming, frames = method("moonshine_streaming"), []
    own = streaming.decode
    monkeypatch.setattr(
        streaming, "decode", lambda f, *rest: frames.append(len(f)) or own(f, *rest)
    )
    state = streaming.start()
    for k in range(6):
        update = streaming.step(state, noise(0.56, seed=k), last=False)
        assert sum(map(len, state.frames)) < 50
    assert max(frames) <= 50 + 28
    assert update.committed or update.partial
    monkeypatch.setattr(streaming, "_most", 60)  # positions
    state = streaming.start()
    frames.clear()
    for k in range(6):
        streaming.step(state, noise(0.56, seed=k), last=False)
    assert 30 < max(frames) <= 60
    with pytest.raises(UserError, match=r"positions for 1\.2 s; give a shorter chunk"):
        streaming.hypothesis(streaming.start(), noise(3.0, seed=1))


# -- Qwen3 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", [None, "en"])
def test_qwen3_decodes_as_its_class_generates(methods, language):
    streaming, audio = methods["qwen3_asr"][0], noise(2.0, seed=8)
    inputs = streaming.processor.apply_transcription_request(audio, language=language)
    prompt = inputs["input_ids"].shape[1]
    theirs = streaming.model.generate(**inputs, max_new_tokens=29)[0, prompt:].tolist()
    state = streaming.start(language=language)
    again = streaming.processor(text=[state.prompt], audio=[audio])
    assert torch.equal(again["input_ids"], inputs["input_ids"])
    with torch.inference_mode():
        ours = streaming.decode(again, [], len(audio))
        assert ours == [token for token in theirs if token != streaming.model.config.eos_token_id]
        assert len(set(ours)) > 3
        for k in (1, 7):
            assert streaming.decode(again, ours[:k], len(audio)) == ours


def test_qwen3_rolls_five_tokens_back(methods, monkeypatch):
    streaming, _ = methods["qwen3_asr"]
    mark = streaming.processor.tokenizer.convert_tokens_to_ids("<asr_text>")
    six = [15, mark, *range(1, 7)]
    decodings = iter([[15, 6, mark, 1, 2, 3], six, [*six, 7]])
    begins, said = [], []

    def decode(inputs, final, *_):
        begins.append(list(final))
        return next(decodings, [*six, 7, 8, 1, 2, 3, 4])

    monkeypatch.setattr(streaming, "decode", decode)
    state = streaming.start()
    for _ in range(5):
        update = streaming.step(state, noise(0.56), last=len(begins) == 4)
        said.append([word.text for word in update.committed])
    # Two chunks begin without; then whole words stay but for the newest five tokens.
    assert begins == [[], [], [], [15, mark, 1], [15, mark, 1, 2, 3, 4, 5]]
    rest = [" dogeds", " the", " fox", " runs", " over"]
    assert said == [[], [], [" the"], [" fox", " runs", " over", " a"], rest]


# -- words ------------------------------------------------------------------------------------


def writer(texts, language):
    """A writer whose tokens are the indices of `texts`; a word begins with a blank."""
    return Writer(
        lambda ids: "".join(texts[i] for i in ids).strip(),
        lambda token: texts[token].startswith(" "),
        language,
    )


@pytest.mark.parametrize(
    ("texts", "language", "words"),
    [
        ([" the", " fox", "es", "."], "en", [" the", " foxes."]),
        (["the", " fox"], None, [" the", " fox"]),
        # A language tag is no word, wherever it stands.
        (["<en-US>", " the", " fox", ".", " <en-US>"], None, [" the", " fox."]),
        ([" the.", "<de-DE>", " fox"], None, [" the.", " fox"]),
        (["我", "们"], "zh", ["我", "们"]),
        ([" the", "我"], None, [" the我"]),
    ],
)
def test_words_of_tokens(texts, language, words):
    told = writer(texts, language)
    made = [word for token in range(len(texts)) for word in told.push(token, 9.0)]
    made += told.finish(9.0)
    assert [word.text for word in made] == words
    assert told.partial(9.0) == ()


def test_times_of_words_are_in_order_and_inside_the_audio():
    times = writer([" a", "b", " c", " d"], "en")
    for token, start_s in enumerate((0.0, 0.08, 0.08, 0.96)):
        for word in times.push(token, 1.0, start_s, start_s + 0.08):
            assert (word.start, word.end) == {" ab": (0.0, 0.16), " c": (0.16, 0.16)}[word.text]
    (last,) = times.finish(1.0)
    assert (last.start, last.end) == (0.96, 1.0)


# -- cost -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_sizes_are_those_of_the_class(kind):
    """The class's default configuration is that of the published model."""
    import transformers

    name = next(iter(KINDS[kind].classes.values()))
    config = getattr(transformers, name.split("For")[0] + "Config")
    extra = {"num_key_value_heads": 8, "tie_word_embeddings": True}
    with torch.device("meta"):
        model = getattr(transformers, name)(config(**(extra if "Moon" in name else {})))
    n = sum(parameter.numel() for parameter in model.parameters())
    assert KINDS[kind].parameters == pytest.approx(n, rel=1e-3)


def test_models_are_listed_with_their_size(capsys):
    assert list_command.main(["models"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "617 M parameters, 1.2 GB in bfloat16." in text
    assert text.count("GB in bfloat16") == len(KINDS)


# -- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "folder", "language", "answer"),
    [
        ("nemotron", {}, "de", "this Nemotron knows English only"),
        ("nemotron", {"multilingual": True}, "tlh", "this Nemotron has no such language"),
        ("qwen3_asr", {}, "tlh", "Qwen3-ASR has no such language"),
    ],
)
def test_a_language_that_a_model_does_not_know_is_refused(kind, folder, language, answer):
    with pytest.raises(UserError, match=f"language={language}: {answer}"):
        method(kind, FOLDERS[kind](**folder)).start(language=language)


NORMALISED = ('"do_normalize": false', '"do_normalize": true')
PROCESSORS = [
    ("kyutai_stt", ("24000", "16000"), "takes audio at 16000 Hz, and kyutai_stt is for 24000 Hz"),
    ("moonshine_streaming", NORMALISED, "normalises by the whole recording, so it cannot stream"),
]


@pytest.mark.parametrize(("kind", "changed", "answer"), PROCESSORS)
def test_a_processor_that_does_not_fit_is_refused(tmp_path, kind, changed, answer):
    folder = Path(shutil.copytree(FOLDERS[kind](), tmp_path / "copy"))
    file = folder / "processor_config.json"
    file.write_text(file.read_text().replace(*changed))
    with pytest.raises(UserError, match=answer):
        method(kind, folder)


def test_nemotron_is_prompted_with_its_language():
    many = method("nemotron", nemotron_folder(multilingual=True))
    prompts = [many.start(language=language).prompt.item() for language in ("en", "de", None)]
    assert prompts == [0, 1, 2]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_weights_that_do_not_fit_are_refused(tmp_path, kind):
    folder = Path(shutil.copytree(FOLDERS[kind](), tmp_path / "copy"))
    file = folder / "model.safetensors"
    name, *others = (weights := load_file(file))
    save_file({each: weights[each] for each in others}, file)
    with pytest.raises(UserError, match=r"its weights do not fit its config.json \(missing_keys"):
        method(kind, folder)
    save_file(weights | {name: torch.ones(3)}, file)
    with pytest.raises(UserError, match=r"could not be loaded|do not fit") as refusal:
        method(kind, folder)
    assert "\n" not in str(refusal.value)
    file.write_bytes(b"damaged")
    with pytest.raises(UserError, match="could not be loaded"):
        method(kind, folder)


def settled(*settings):
    return compose(["method=native", "data=mini", "tracker=none", *settings])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model=nemotron"], "chunk=300ms: nemotron was trained with chunks of 80ms, 160ms, 560ms"),
        (["model=nemotron", "chunk=80ms", "dtype=float16"], "on device=cpu takes float32 or bf"),
        (["model=nemotron", "chunk=80ms", "language=detect"], "language=detect: is Whisper's"),
        (["model=base"], "model=base: is not built for streaming, and method=native runs nothing"),
        (["model=mini"], "holds a model of type whisper; method=native runs model=nemotron"),
        (["model=nemotron", "model.path=/nowhere"], "/nowhere: there is no such folder"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_loads(settings, message):
    with pytest.raises(UserError) as refusal:
        settled(*settings)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_sweep_leaves_out_what_cannot_be_paired():
    axes = ["method=ufal,native", "model=base,nemotron", "chunk=560ms", "data=voices"]
    cells = plan(CommandLine(["-m", *axes, "tracker=none"])).cells
    pairs = [(str(cell.full.method._target_).split(".")[2], cell.full.model.name) for cell in cells]
    assert pairs == [("ufal", "base"), ("native", "nemotron")]
    with pytest.raises(UserError, match="model=nemotron: is no Whisper; only method=native runs"):
        plan(CommandLine(["-m", "method=ufal,offline", "model=nemotron", "tracker=none"]))
    with pytest.raises(UserError, match="model=nemotron: is no Whisper; only method=native runs"):
        compose(["method=ufal", "model=nemotron", "tracker=none"])


def test_a_folder_states_its_own_chunks_and_class(tmp_path):
    folder = nemotron_folder()
    with pytest.raises(UserError, match=r"chunks of 80ms, 160ms, 560ms; give one of these"):
        settled("model=nemotron", f"model.path={folder}", "chunk=1120ms")
    settled("model=nemotron", "chunk=1120ms")  # the published one takes it
    with pytest.raises(UserError, match="holds another model; give model=nemotron"):
        settled("model=kyutai_stt", f"model.path={folder}", "chunk=560ms")
    config = settled("model=whisper", f"model.path={folder}", "chunk=560ms")
    assert config.method.weights == str(folder)
    with pytest.raises(UserError, match="no Whisper there; it is a Hugging Face model of type nem"):
        compose(["method=ufal", "model=whisper", f"model.path={folder}"])
    with pytest.raises(UserError, match="holds a model of type whisper"):
        method("nemotron", tiny_folder())
    with pytest.raises(UserError, match=r"has no config\.json with a model_type"):
        method("nemotron", tmp_path)


def test_an_older_transformers_is_named(monkeypatch):
    import transformers

    monkeypatch.delattr(transformers, "NemotronAsrStreamingForRNNT")
    monkeypatch.setattr(transformers, "__version__", "4.48.0")
    monkeypatch.setattr(type(transformers), "__getattr__", object.__getattribute__)
    with pytest.raises(UserError, match=r"transformers 4\.48\.0 has no NemotronAsr.*>=5\.13"):
        method("nemotron")
