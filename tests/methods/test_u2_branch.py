"""U2's CTC branch: chunks equal to one pass, its pieces, its folder, and streams of the method."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from branches import TEXTS, head_folder, random_adapter, random_branch
from tiny import noise, tiny_folder

from experiments.real.language_model import in_classes, tokenizer_of
from streaming_asr import contract
from streaming_asr.align.ctc import U2Head
from streaming_asr.config.build import new_method
from streaming_asr.contract import OF_ANY_AUDIO, Setting
from streaming_asr.errors import UserError
from streaming_asr.methods.u2.branch import Branch, in_pairs
from streaming_asr.methods.u2.branch_files import is_branch, sha256_of
from streaming_asr.methods.u2.ctc import CtcHypothesis, PrefixBeamSearch
from streaming_asr.methods.u2.first_pass import load_first_pass
from streaming_asr.methods.u2.pieces import (
    PieceTokenizer,
    as_sentence,
    has_digits,
    learn_pieces,
    load_pieces,
    plain,
)
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.whisper.encoder import encode, encode_tapped, part_of
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.flops import block_flops, encoder_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.ngram import vocabulary_hash

MODEL = {"context_frames": 400}


@pytest.fixture(scope="module")
def model():
    return str(tiny_folder(**MODEL))


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):
    return random_adapter(model, tmp_path_factory.mktemp("adapter"))


@pytest.fixture(scope="module")
def folder(model, adapter, tmp_path_factory):
    return random_branch(model, adapter, tmp_path_factory.mktemp("branch"))


@pytest.fixture(scope="module")
def whisper(model):
    return load_whisper(model)


@pytest.fixture(scope="module")
def tokenizer(whisper):
    return PieceTokenizer(whisper, learn_pieces(TEXTS, 60), 2)


# -- the network --------------------------------------------------------------------------------


def test_a_new_window_forgets_the_frame_that_waits(model, folder):
    first = load_first_pass(model, folder)
    states = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(0))
    stream = first.start()
    fresh = stream.advance(states, 0, [5])
    assert len(fresh) == 2  # the fifth waits
    assert torch.equal(stream.advance(states, 0, [5]), fresh)
    assert len(stream.advance(states[:, :1], 5, [6])) == 1
    assert len(stream.flush()) == 0
    stream.advance(states, 0, [5])
    assert len(stream.flush()) == 1 and len(stream.flush()) == 0


def test_the_decoder_hears_the_adapted_encoder_untouched(model, adapter, folder):
    first = load_first_pass(model, folder)
    adapted, plain_one = (
        load_whisper(model, adapter=adapter),
        load_whisper(model),
    )
    mel = log_mel(torch.from_numpy(noise(1.0)), 80)[None]
    with torch.inference_mode():
        (heard,) = first.encode([part_of(first.whisper.model, mel)])
        assert torch.equal(heard.frames, encode(adapted.model, mel))
        assert not torch.allclose(heard.frames, encode(plain_one.model, mel), atol=1e-2)
        below = encode_tapped(adapted.model, [part_of(adapted.model, mel)], 1)[0][1]
    assert torch.equal(heard.states, below)


def test_before_it_learns_the_branch_is_the_layers_that_it_copies(model, adapter):
    whisper = load_whisper(model, adapter=adapter)
    branch = Branch(whisper, 1, 4, 10)
    mel = log_mel(torch.from_numpy(noise(1.0)), 80)[None]
    part = part_of(whisper.model, mel)
    branch.eval()
    with torch.no_grad():
        frames, states = encode_tapped(whisper.model, [part], branch.n_below)[0]
        wanted = branch.logits(in_pairs(frames))[0]
        (found,) = branch([type(part)(states, part.attend)])
        assert torch.allclose(found, wanted, atol=1e-5)
        branch.layers[0].fc1.parametrizations.weight[0].lora_B.fill_(0.1)
        (changed,) = branch([type(part)(states, part.attend)])
        branch.merge()
        (merged,) = branch([type(part)(states, part.attend)])
    assert not torch.allclose(changed, wanted, atol=1e-3)
    assert torch.allclose(merged, changed, atol=1e-5)


def test_its_layers_are_counted(model, folder):
    first = load_first_pass(model, folder)
    config = first.whisper.config
    d, ff = config.d_model, config.encoder_ffn_dim
    blocks = [(0, 30), (30, 45)]
    layer = sum(
        2 * (b - a) * (4 * d * d + 2 * d * ff) + 4 * (b - a) * b * d for a, b in blocks
    )  # one layer, then pairs of 2 d to d
    assert first.flops(0, [30, 45]) == pytest.approx(layer + 2 * 45 / 2 * 2 * d * d)
    method = new_method("u2", model, weights=str(folder))
    recorder = StepRecorder()
    method.step(method.start(recorder=recorder), noise(0.7), last=False)
    flops = recorder.drain()[1]["encoder_flops"]
    assert flops == block_flops(config, 0, [30]) + first.flops(0, [30])
    assert flops > encoder_flops(config, 30)


# -- pieces -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Don’t say 'hello', U.S. café-bar!", "don't say hello u s cafe bar"),
        ("the dogs' rock 'n' roll", "the dogs rock n roll"),
        ("$12.50 — 不过", ""),
        ("٣", ""),
        ("  ", ""),
    ],
)
def test_the_plain_form_has_letters_and_apostrophes_within_words(text, wanted):
    assert plain(text) == wanted
    assert has_digits(text) == (text in ("$12.50 — 不过", "٣"))


def test_the_pieces_follow_from_the_texts_whatever_their_order():
    one, other = learn_pieces(TEXTS, 80), learn_pieces(TEXTS[::-1], 80)
    assert one.to_str() == other.to_str()
    assert 30 < one.get_vocab_size() <= 80
    assert learn_pieces([], 80).get_vocab_size() == 28  # the letters, apostrophe and space


def test_pieces_spell_any_plain_text_and_bytes_begin_words_with_a_space(tokenizer):
    for text in (*TEXTS, "Zyx qwv", "a'b"):
        ids = tokenizer.encode(text)
        assert tokenizer.text(ids) == " " + plain(text)
        assert b"".join(tokenizer.spellings()[i] for i in ids).decode() == " " + plain(text)
    assert tokenizer.encode(" the") == tokenizer.encode("the") and tokenizer.encode("12") == []
    assert b" the" in tokenizer.spellings() and tokenizer.blank == tokenizer.n_tokens
    assert len(tokenizer.spellings()) == tokenizer.n_tokens


def test_a_hypothesis_reaches_the_decoder_as_a_sentence(tokenizer, whisper):
    assert as_sentence(" i'm here and i said it") == " I'm here and I said it"
    assert as_sentence(" 'tis i") == " 'Tis I" and as_sentence("") == ""
    ids = tokenizer.encode("the fox and i")
    written = tokenizer.written(ids)
    assert whisper.tokenizer.decode(list(written)) == " The fox and I"


def test_tokens_lie_where_their_letters_were_heard_in_frames_of_20_ms(tokenizer, whisper):
    letters = {c: tokenizer._bpe.token_to_id(c) for c in ("▁", "t", "h", "e", "i")}
    ids = tuple(letters[c] for c in ("▁", "t", "h", "e", "▁", "i"))
    spans = tuple((10 * k, 10 * k + 3) for k in range(6))
    found = tokenizer.retokenise(CtcHypothesis(ids, -2.5, spans))
    assert whisper.tokenizer.decode(list(found.tokens)) == " The I" and found.ctc_score == -2.5
    at = 0
    for token, (start, end) in zip(found.tokens, found.spans, strict=True):
        n = len(whisper.detokenizer.token_bytes(token))
        assert (start, end) == (2 * 10 * at, 2 * (10 * (at + n - 1) + 3))
        at += n
    assert at == 6
    # Spaces that follow one another are one, and none stands at the end; a first one is added.
    odd = tuple(letters[c] for c in ("t", "▁", "▁", "i", "▁"))
    found = tokenizer.retokenise(CtcHypothesis(odd, 0.0, spans[:5]))
    assert whisper.tokenizer.decode(list(found.tokens)) == " T I"
    assert found.spans[0][0] == 0 and found.spans[-1][1] == 2 * 33
    assert tokenizer.retokenise(CtcHypothesis((), 0.0, ())).tokens == ()


def test_a_language_model_s_lines_are_in_pieces_without_sentences_with_digits(folder, whisper):
    tokenizer = tokenizer_of(folder, whisper)
    lines = list(in_classes(tokenizer, ["The FOX.", "She had 3 foxes."]))
    assert lines == [" ".join(map(str, tokenizer.encode("the fox")))]
    assert vocabulary_hash(tokenizer.spellings()) == vocabulary_hash(
        [tokenizer._bpe.id_to_token(i).replace("▁", " ").encode() for i in range(60)]
    )


# -- the folder ---------------------------------------------------------------------------------


@pytest.fixture
def copied(folder, tmp_path):
    return Path(shutil.copytree(folder, tmp_path / "copied"))


def refused(model, folder):
    with pytest.raises(UserError) as refusal:
        new_method("u2", model, weights=str(folder))
    return str(refusal.value)


def test_a_branch_behind_another_adapter_is_refused(model, adapter, copied):
    other = random_adapter(model, copied.parent / "other", seed=3)
    shutil.copy(other / "adapter_model.safetensors", copied)
    answer = refused(model, copied)
    assert sha256_of(other)[:12] in answer and sha256_of(adapter)[:12] in answer


BROKEN = [
    # a file, what it holds (None: it is absent), the answer
    ("adapter_config.json", None, "no adapter_config.json there"),
    ("adapter_model.safetensors", None, "no adapter_model.safetensors there"),
    ("tokenizer.json", "{}", "not a tokenizer"),
    ("tokenizer.json", None, "tokenizer.json: no such file"),
    ("branch.json", None, "branch.json: no such file"),
    ("branch.safetensors", "nothing", "truncated or damaged"),
    ("branch.safetensors", None, "branch.safetensors: no such file"),
]


@pytest.mark.parametrize(("name", "content", "answer"), BROKEN)
def test_a_broken_file_is_refused(model, copied, monkeypatch, name, content, answer):
    from streaming_asr.methods.u2 import first_pass

    if name != "branch.safetensors":  # before weights load
        monkeypatch.setattr(first_pass, "load_whisper", None)
    (copied / name).unlink()
    if content is not None:
        (copied / name).write_text(content)
    assert answer in refused(model, copied) and is_branch(copied)


CARDS = [
    ({"classes": 99}, "tokenizer.json has 60 pieces, the branch 99 classes"),
    ({"width": 384}, "a branch for frames of 384 numbers, but those of model"),
    ({"stride": 3}, "holds no shape that a branch can have"),
    ({"layers": 9}, "a branch of 9 encoder layers, but this model has 2"),
    ({"rank": 8}, "has the shape (4, 32), and branch.json asks for (8, 32)"),
    ({"adapter": "0" * 64}, "was trained behind those with 000000000000"),
    ({"rank": None}, "does not hold the shape of a branch"),
]


@pytest.mark.parametrize(("change", "answer"), CARDS, ids=str)
def test_a_card_that_does_not_fit_is_refused(model, copied, change, answer):
    card = json.loads((copied / "branch.json").read_text())
    card = {key: value for key, value in (card | change).items() if value is not None}
    (copied / "branch.json").write_text(json.dumps(card))
    assert answer in refused(model, copied)


def test_a_tokenizer_of_other_letters_is_refused(copied):
    shutil.copy(Path(tiny_folder(**MODEL)) / "tokenizer.json", copied / "tokenizer.json")
    with pytest.raises(UserError, match="not a tokenizer of only the letters a to z"):
        load_pieces(copied)


# -- streams ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["branch", "head"])
def test_a_stream_s_first_pass_is_that_of_one_pass_and_times_are_in_frames_of_20_ms(
    model, folder, kind
):
    settings = {"max_delay_s": 6.0, "trailing_silence_s": 6.0, "chunk_s": 0.3, "first_chunk_s": 0.6}
    settings["weights"] = str(folder) if kind == "branch" else head_folder(model)
    method = new_method("u2", model, **settings)
    stride = method._first_pass.stride
    audio = noise(2.42)
    state = method.start()
    for a in range(0, len(audio), 1111):
        method.step(state, audio[a : a + 1111], last=False)
    assert state.position == 120 and state.window_start == 0
    mel = log_mel(torch.from_numpy(audio[: 120 * 320 + 200]), 80, block_ends=state.block_ends)
    log_probs = method._first_pass.log_probs(mel, state.block_ends)
    search = PrefixBeamSearch(method._tokenizer.blank, 10)
    search.advance(log_probs)
    wanted, found = search.hypotheses(), state.search.hypotheses()
    assert wanted[0].tokens and found[0].tokens == wanted[0].tokens
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-2)
    blank = log_probs[:, method._tokenizer.blank].exp()
    threshold = 0.99 * float(blank[-3:].min())  # so that three rows are silent at least
    silent = (blank > threshold).tolist()
    assert not all(silent)
    method = new_method("u2", model, blank_threshold=threshold, **settings)
    state = method.start()
    method.step(state, audio, last=False)
    n_silent = silent[::-1].index(False)
    assert state.position == 120 and state.silent_run == stride * n_silent >= 3 * stride


def test_int8_keeps_the_rows_near_and_shares_no_pass(model, folder):
    whole, small = (load_first_pass(model, folder, dtype=d) for d in ("float32", "int8"))
    assert small.branch.layers[0].fc1.weight().dtype == torch.qint8
    assert small.branch.head.weight().dtype == torch.qint8
    mel = log_mel(torch.from_numpy(noise(1.02)), 80)
    ends = [30, mel.shape[1] // 2]
    a, b = (first.log_probs(mel, ends) for first in (whole, small))
    assert 0 < float((a - b).abs().mean()) < 0.15 * float(a.abs().mean())
    method = new_method("u2", model, weights=str(folder), dtype="int8")
    method.step(method.start(), noise(2.0), last=True)


def test_the_aligner_takes_a_branch(model, folder):
    head = U2Head(folder, model, "cpu", "float32")
    log_probs, row_s = head.log_probs(noise(1.02))
    assert row_s == pytest.approx(0.04) and log_probs.shape == (26, 61)
    assert np.allclose(np.exp(log_probs).sum(-1), 1, atol=1e-4)
    assert head.spell("Fox") == head._first.tokenizer.encode("fox")


@pytest.fixture(scope="module")
def streams(model, folder):
    """The method with a random branch, and what it is tried on."""
    setting = Setting(4800, 9600, noise(3.0, seed=1), noise(1.7, seed=2))
    return new_method("u2", model, weights=str(folder)), setting


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
def test_a_branch_keeps_the_contract(streams, check):
    check(*streams)


def test_the_contract_was_kept_by_streams_that_have_text(streams):
    method, setting = streams
    assert type(method._first_pass).__name__ == "BranchPass"
    assert len(contract.committed(contract.run(method, setting.audio, setting))) > 2
