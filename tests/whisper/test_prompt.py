"""`prompt=`: what the decoder of each method is given before its text, and what is refused."""

import pytest

from streaming_asr.config.build import build
from streaming_asr.config.settle import compose
from streaming_asr.corpora import Mini
from streaming_asr.errors import UserError
from streaming_asr.whisper.decoder import Decoder

METHODS = ("hush_word", "offline", "reencode", "simul_whisper", "u2", "whisperrt")


def settled(*settings):
    return compose(["model=mini", "data=mini", "chunk=1s", "tracker=none", *settings])


@pytest.fixture
def fed(monkeypatch):
    """The rows of tokens that decoders are fed from position 0 on."""
    rows, part = [], Decoder.part

    def spy(self, cache, tokens, starts, n_frames, **options):
        rows.extend(list(row) for row, start in zip(tokens, starts, strict=True) if start == 0)
        return part(self, cache, tokens, starts, n_frames, **options)

    monkeypatch.setattr(Decoder, "part", spy)
    return rows


@pytest.mark.parametrize("settings", [*((m,) for m in METHODS), ("ufal", "method.backend=torch")])
def test_the_decoder_is_given_the_names_and_a_stream_may_have_its_own(settings, fed):
    from streaming_asr.whisper.load import load_whisper

    config = settled(f"method={settings[0]}", "prompt='Ada, Grace'", *settings[1:])
    whisper, method = load_whisper(config.model.path), build(config.method)
    audio = Mini("clean", limit=1).utterances()[0].load()
    for own, text in ((None, "Ada, Grace"), ("Emmy", "Emmy")):
        fed.clear()
        method.step(method.start(prompt=own), audio, last=True)
        names = whisper.text_tokens(f" {text}")
        before = [whisper._id("<|startofprev|>"), *names, whisper.sot]
        assert fed
        assert all(row[: len(before)] == before for row in fed)


def test_the_last_tokens_count_and_no_text_is_no_prompt():
    from streaming_asr.whisper.load import load_whisper

    whisper = load_whisper(settled().model.path)
    tokens = whisper.text_tokens(" " + "Ada, " * 200)
    assert (
        whisper.tokens_before("Ada, " * 200)
        == whisper.text_tokens(" " + ("Ada, " * 200).strip())[-223:]
    )
    assert len(tokens) > 223
    assert whisper.tokens_before(" ") == whisper.tokens_before(None) == []


def test_ufal_s_own_context_follows_the_names():
    from streaming_asr.method import NULL, Word
    from streaming_asr.whisper.online import OnlineBuffer, OnlinePolicy

    policy = OnlinePolicy(2, 15.0, 30.0)
    buffer = OnlineBuffer(None, policy, None, NULL, "Ada, Grace")
    assert buffer.prompt() == "Ada, Grace"
    buffer._committed, buffer.start_s = [Word(" she"), Word(" wrote", 0.0, 1.0)], 2.0
    buffer._committed[0] = Word(" she", 0.0, 0.5)
    assert buffer.prompt() == "Ada, Grace she wrote"


def test_a_file_of_names_is_its_text_and_null_changes_no_hash(tmp_path, capsys):
    from omegaconf import OmegaConf

    from streaming_asr.cells.hashes import config_hash

    file = tmp_path / "names.txt"
    file.write_text("Ada\n\n Grace \n")
    config = settled("method=offline", f"prompt={file}")
    assert config.prompt == config.method.prompt == "Ada, Grace"
    plain = OmegaConf.to_container(settled("method=offline"))
    without = {key: value for key, value in plain.items() if key != "prompt"}
    without["method"] = {k: v for k, v in plain["method"].items() if k != "prompt"}
    assert config_hash(plain) == config_hash(without)
    assert config_hash(plain) != config_hash(OmegaConf.to_container(config))
    file.write_text("Grace\n" * 200)
    settled("method=offline", f"prompt={file}")
    assert "of which the decoder is given the last 223" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("method=star", "prompt=Ada"), "prompt=Ada: method=star has no decoder of Whisper's"),
        (("method=chunkformer", "prompt=Ada"), "prompt=Ada: method=chunkformer has no decoder"),
        (
            ("method=remote", "method.url=ws://x", "feed=realtime", "prompt=Ada"),
            "prompt=Ada: method=remote has no decoder",
        ),
        (("method=ufal", "prompt=none/names.txt"), "none/names.txt: cannot be read"),
        (("method=ufal", "prompt=' '"), "prompt= : has no text"),
    ],
)
def test_what_cannot_act_is_refused_before_a_model_loads(settings, message):
    with pytest.raises(UserError, match=message):
        settled(*settings)


def test_a_model_without_the_token_is_refused(tmp_path):
    import shutil

    folder = tmp_path / "model"
    shutil.copytree(settled().model.path, folder)
    file = folder / "tokenizer.json"
    file.write_text(file.read_text().replace("<|startofprev|>", "<|startofnext|>"))
    with pytest.raises(UserError, match=r"has no token <\|startofprev\|>"):
        settled("method=ufal", f"model.path={folder}", "prompt=Ada")
