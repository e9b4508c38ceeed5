"""The hush word's method: cost, paddings, rounds, bad input."""

import functools
import random
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from recipes import settings_of, toy_corpus
from safetensors.torch import save_file
from tiny import fed, noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from experiments.hush_word.tables import reduce_ratio
from streaming_asr.config.build import new_method
from streaming_asr.contract import committed
from streaming_asr.corpora import MINI, Mini
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.methods.hush_word.padding import (
    FILE_NAME,
    PADDINGS,
    PaddedEncoder,
    load_hush,
    make_padding,
)
from streaming_asr.methods.hush_word.recogniser import StreamRecogniser
from streaming_asr.methods.hush_word.search import ReferenceGuide, punctuation
from streaming_asr.methods.hush_word.train import HushExample, HushWordRecipe, TrainedWord
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.training.greedy import greedy
from streaming_asr.whisper.agreement import key
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode, encode_padded
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.flops import encoder_flops
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.search import BeamSearch
from streaming_asr.whisper.together import alone as by_itself

CHUNK, FIRST = 4800, 9600


def tiny():
    """The folder of a tiny Whisper, with a context of 4 s."""
    return str(tiny_folder())


@functools.cache
def whisper():
    return load_whisper(tiny())


@pytest.fixture
def hush(tmp_path):
    """A folder with a made-up hush word of 0.5 s."""
    save_file({"samples": torch.from_numpy(0.02 * noise(0.5, seed=9))}, tmp_path / FILE_NAME)
    return str(tmp_path)


def method_of_folder(folder, **options):
    return new_method("hush_word", folder, **{"padding": "zeros", **options})


# -- cost ---------------------------------------------------------------------------------------

MEDIUM = SimpleNamespace(d_model=1024, encoder_ffn_dim=4096, encoder_layers=24, num_mel_bins=80)


@pytest.mark.parametrize(
    ("n_frames", "printed"), [(1500, 569.4), (465, 152.5), (515, 170.6), (715, 243.8)]
)
def test_whisperflow_s_table_1_counts_multiplications(n_frames, printed):
    """Its "GFLOPS" of the medium encoder; 465 frames are 9.3 s, then with 1 s and 5 s after."""
    assert encoder_flops(MEDIUM, n_frames) / 2e9 == pytest.approx(printed, rel=2e-3)


# -- paddings -----------------------------------------------------------------------------------


def encoder(kind, hush=None):
    adapter = hush if kind == "hush" else None
    return PaddedEncoder(whisper(), make_padding(kind, whisper(), weights=adapter))


def encoded(encoder, mel):
    return encoder.encode_parts([encoder.part(mel)])[0]


@pytest.mark.parametrize("kind", PADDINGS)
def test_frames_are_counted_as_they_are_computed(kind, hush):
    padded = encoder(kind, hush)
    for n in (320, 321, 5000, 48_000, padded.limit_samples):
        mel = padded.mel(noise(4.0)[:n])
        assert mel.shape[-1] <= 2 * whisper().context_frames
        assert mel.shape[-1] == 2 * encoded(padded, mel).shape[1]
        if n == 48_000:
            assert mel.shape[-1] == 2 * {"full": 200, "none": 150}.get(kind, 175)


def test_full_is_the_offline_encoder_and_the_others_append_before_the_features(hush):
    audio, tail = noise(1.0, seed=4), torch.from_numpy(0.02 * noise(0.5, seed=9))
    samples = torch.from_numpy(audio)
    padded = torch.nn.functional.pad(samples, (0, 3 * 16_000))[None]
    offline = encode_padded(whisper().model, log_mel(padded, 80))
    ours = {}
    for kind in PADDINGS:
        one = encoder(kind, hush)
        ours[kind] = encoded(one, one.mel(audio))
    assert torch.allclose(ours["full"], offline, atol=1e-5)
    for kind, joined in (
        ("none", samples),
        ("zeros", torch.cat([samples, torch.zeros(8000)])),
        ("hush", torch.cat([samples, tail])),
    ):
        short = encode(whisper().model, log_mel(joined[None], 80))
        assert torch.allclose(ours[kind], short, atol=1e-5)
    assert not torch.allclose(ours["zeros"], ours["noise"], atol=1e-3)


def test_noise_is_the_same_every_time_and_as_loud_as_a_clamped_word():
    first, second = (make_padding("noise", whisper(), length_s=1.0).samples for _ in range(2))
    assert torch.equal(first, second) and first.numel() == 16_000
    assert 0.019 < float(first.abs().max()) <= 0.02 and abs(float(first.mean())) < 1e-3


# -- rounds -------------------------------------------------------------------------------------


def mini(**options):
    """The method on mini's model: words, where the tiny model has noise."""
    return new_method("hush_word", str(MINI / "model"), **{"padding": "zeros", **options})


@functools.cache
def speech(n):
    """The first `n` utterances of mini, joined, and their texts."""
    utterances = Mini("clean", limit=n).utterances()
    return np.concatenate([u.load() for u in utterances]), [u.text for u in utterances]


def test_a_round_that_hears_the_same_again_is_narrow():
    audio, _ = speech(1)

    def rounds(method):
        stream, found = StreamRecogniser(method._shared), []
        for _ in range(2):
            recorder = StepRecorder()
            said = stream.transcribe(audio, prompt=None, language=None, recorder=recorder)
            counts = recorder.drain()[1]
            text = [word.text for word in said.words]
            found.append((text, counts["beam_sum"] / counts["decode_steps"]))
        return found

    (first, wide), (second, narrow) = rounds(mini(beam=3))
    assert len(first) > 4 and len(second) > 4
    assert 2.5 < wide <= 3
    assert narrow < wide  # by how much, the weights decide
    assert [text for text, _ in rounds(mini(beam=3, prune=False))] == [first, first]


def test_what_two_rounds_agree_on_is_committed():
    audio, _ = speech(1)
    updates = fed(mini(beam=0), audio, CHUNK, 16_000)
    assert not updates[0].committed and updates[0].partial  # one round agrees with nothing
    n_agreed = 0
    for before, now in pairwise(updates[:-1]):
        n_agreed += len(now.committed)
        for word, guess in zip(now.committed, before.partial, strict=False):
            assert key(word.text) == key(guess.text)
    assert n_agreed > 2 and committed(updates[-1:])
    one_round = fed(mini(beam=0, n=1), audio, CHUNK, FIRST)
    assert all(not update.partial for update in one_round) and len(committed(one_round)) > 4


@pytest.mark.parametrize("ends_with_audio", [True, False])
def test_only_the_last_round_searches_on_after_the_beam_has_ended(ends_with_audio, monkeypatch):
    """The words of a round before come again; those that the last one leaves out are lost."""
    stops_early = []

    def passes(self, *arguments):
        stops_early.append(self.early_stopping)
        return original(self, *arguments)

    original = BeamSearch.passes
    monkeypatch.setattr(BeamSearch, "passes", passes)
    method, audio = mini(), speech(1)[0][: FIRST + 2 * CHUNK]
    state = method.start()
    sizes = [FIRST, CHUNK, CHUNK] if ends_with_audio else [FIRST, 2 * CHUNK, 0]
    at = 0
    for i, size in enumerate(sizes):
        method.step(state, audio[at : at + size], last=i == 2)
        at += size
    assert stops_early == [True, True, False]


@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.099])
def test_audio_too_short_for_a_word_has_none(seconds):
    weights = str(MINI / "weights/hush_word/any_chunk")
    method = mini(padding="hush", weights=weights)
    audio, _ = speech(1)
    clip = audio[8000 : 8000 + int(16_000 * seconds)]
    assert np.abs(clip).max() > 0.01
    (only,) = fed(method, clip, CHUNK, FIRST)
    assert only.committed == only.partial == ()


def test_the_text_has_no_more_tokens_than_speech_of_that_length():
    method = method_of_folder(str(tiny_folder(eot_logit=-30.0)), beam=0)
    stream, recorder = StreamRecogniser(method._shared), StepRecorder()
    stream.transcribe(noise(0.5, seed=1), prompt=None, language=None, recorder=recorder)
    assert recorder.drain()[1]["decode_steps"] == 14  # 28 a second


NO_WORDS = [
    ({"samples": torch.zeros(2, 8)}, "is wanted"),
    ({"x": torch.ones(3)}, "is wanted"),
    ("not tensors", "safetensors"),
]


@pytest.mark.parametrize(("content", "answer"), NO_WORDS)
def test_a_file_that_holds_no_hush_word_for_the_model_is_refused(tmp_path, content, answer):
    if isinstance(content, str):
        (tmp_path / FILE_NAME).write_text(content)
    else:
        save_file(content, tmp_path / FILE_NAME)
    with pytest.raises(UserError, match=answer):
        new_method("hush_word", tiny(), weights=str(tmp_path))


# -- Beam pruning --


COMMA, EOT, N_TOKENS = 8, 9, 10


class Rows:
    """A cache that holds the tokens themselves."""

    def __init__(self, n):
        self.rows = [[] for _ in range(n)]

    def reorder(self, parents, n_tokens):
        if list(parents) == list(range(len(parents))):
            return
        self.rows[: len(parents)] = [self.rows[parent][:n_tokens] for parent in parents]


class Table:
    """A decoder whose distributions are written down: text so far -> {token: probability}.

    After a text that is not in the table all tokens are as unlikely, the end most of all.
    """

    max_tokens = 40

    def __init__(self, table):
        self.table = table
        self.n_passes = 0

    def part(self, cache, feed, starts, n_frames, *, take, on_cross, bias, n_next):
        self.n_passes += 1
        texts = []
        for row, tokens, start in zip(cache.rows, feed, starts, strict=False):
            assert len(row) >= start  # tokens of a draft that were not taken are written over
            row[start:] = tokens
            # without the prompt
            texts += [tuple(row[1:stop]) for stop in range(len(row) - n_next + 1, len(row) + 1)]
        return texts

    def next_log_probs(self, parts):
        return [self.of(texts) for texts in parts]

    def of(self, texts):
        probabilities = torch.full((len(texts), N_TOKENS), 1e-6)
        for row, text in zip(probabilities, texts, strict=True):
            for token, probability in self.table.get(text, {EOT: 1e-9}).items():
                row[token] = probability
        return probabilities.log()


class Steps:
    """Counts decoder steps and the narrow ones among them."""

    def __init__(self):
        self.widths = []

    def part(self, name):
        return nullcontext()

    def count(self, *, decode_steps, beam_sum):
        assert decode_steps == 1
        self.widths.append(beam_sum)


def skips(token):
    return token >= COMMA


def decode(table, reference=None, beam=2, early_stopping=True):
    """(text, width of each step, the full ones at the end as one)."""
    best, widths, _ = searched(Table(table), reference, beam, early_stopping=early_stopping)
    while beam > 1 and widths[-2:] == [beam, beam]:
        widths.pop()
    return list(best.tokens), widths


class StepByStep(ReferenceGuide):
    """It feeds one token after another."""

    def draft(self, last):
        return ()


def searched(decoder, reference, beam, *, early_stopping=True, guide=ReferenceGuide):
    """(hypothesis, width of each step, number of passes)."""
    followed = None if reference is None else guide(reference, skips)
    search = BeamSearch(decoder, EOT, beam, early_stopping=early_stopping)
    steps = Steps()
    best = by_itself(search.passes(Rows(beam), [0], 5, 20, steps, followed), NULL)
    return best, steps.widths, decoder.n_passes


# Greedy says 1 2 3; but 1 4 5 is the likelier text: a wide search finds it.
FORKED = {
    (): {1: 0.9},
    (1,): {2: 0.5, 4: 0.45},
    (1, 2): {3: 0.4, 6: 0.35},
    (1, 4): {5: 0.95},
    (1, 2, 3): {EOT: 0.9},
    (1, 4, 5): {EOT: 0.9},
}


def says(*tokens):
    """A table that says these."""
    return {tokens[:n]: {token: 0.9} for n, token in enumerate((*tokens, EOT))}


FOLLOWED = [
    # table, reference, beam -> text, width of each step
    (FORKED, None, 2, [1, 4, 5], [1, 2]),
    (FORKED, None, 1, [1, 2, 3], [1] * 4),
    (FORKED, [1, 2, 3], 2, [1, 2, 3], [1] * 4),  # followed at width one to its end
    (FORKED, [6, 7, 1, 2, 3], 2, [1, 2, 3], [1] * 4),  # its start may be gone
    (FORKED, [2, 3], 2, [1, 4, 5], [1, 2]),  # a first token that it lacks
    (FORKED, [1, 4, 5], 2, [1, 4, 5], [1, 1, 2]),  # a mismatch
    (FORKED, [1], 2, [1, 4, 5], [1, 1, 2]),  # its end is a mismatch
    # 3 after the fallback is in the reference again, and changes nothing.
    (says(1, 2, 3, 4), [1, 5, 3, 4], 2, [1, 2, 3, 4], [1, 1, 2]),
    # Punctuation is skipped on both sides.
    (says(1, COMMA, 2, 3), [1, 2, 3], 2, [1, COMMA, 2, 3], [1] * 5),
    (says(1, COMMA, 2, 3), [1, 2, COMMA, 3], 2, [1, COMMA, 2, 3], [1] * 5),
    # A mark does not move the reference on: a later mismatch is still found.
    (says(1, COMMA, 2, 3), [1, 3], 2, [1, COMMA, 2, 3], [1, 1, 1, 2]),
    ({(): {EOT: 0.9}}, [1, 2], 2, [], [1]),
]


@pytest.mark.parametrize(("table", "reference", "beam", "text", "widths"), FOLLOWED)
def test_the_text_of_the_round_before_is_followed(table, reference, beam, text, widths):
    assert decode(table, reference, beam) == (text, widths)


def test_a_text_without_end_has_the_limit_of_tokens():
    endless = {tuple([1] * n): {1: 0.9} for n in range(50)}
    assert len(decode(endless, [1] * 50)[0]) == len(decode(endless)[0]) == 20


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_unlikely_ends_in_mid_text_do_not_stop_the_search(beam):
    """Each token of the text is as likely as the others and likelier than an end before it."""
    drawn = random.Random(beam)
    n_stopped = 0
    for _ in range(40):
        text = tuple(drawn.choices(range(1, COMMA), k=drawn.randint(3, 12)))
        p = drawn.uniform(0.55, 0.9)
        table = {
            text[:n]: {token: p, EOT: drawn.uniform(0.005, 0.2), drawn.randrange(COMMA): 0.01}
            | {token: p}
            for n, token in enumerate(text)
        }
        table[text] = {EOT: 0.9}
        reference = list(text[: drawn.randint(0, len(text))])
        assert decode(table, reference, beam, early_stopping=False)[0] == list(text)
        n_stopped += decode(table, reference, beam)[0] != list(text)
    assert n_stopped == 0 if beam == 1 else n_stopped > 5


def test_once_enough_have_ended_only_better_hypotheses_go_on():
    table = {
        (): {1: 0.9},
        (1,): {2: 0.9, EOT: 0.05, 3: 0.01},
        (1, 2): {3: 0.9, EOT: 0.05},
        (1, 2, 3): {EOT: 0.9},
    }
    assert decode(table, [1]) == ([1, 2], [1, 1, 2])
    # 1 2 3 goes on by itself: 1 3 and what follows is worse than the end after 1 2.
    assert decode(table, [1], early_stopping=False) == ([1, 2, 3], [1, 1, 2, 1])


@pytest.mark.parametrize(
    ("reference", "n_passes"),
    [
        ([], 5),
        ([1, COMMA, 2, 3], 1),
        ([1, 2, 3], 2),  # and one behind the mark that the reference lacks
        ([6, 7, 1, COMMA, 2, 3], 2),  # and one behind the first token that was found in it
        ([1, COMMA, COMMA, 2, 3], 2),
        ([1, COMMA, 2, 4], 2),  # and one from the mismatch on
    ],
)
def test_the_text_of_the_round_before_is_fed_in_one_pass(reference, n_passes):
    decoder = Table(says(1, COMMA, 2, 3))
    best, widths, n = searched(decoder, reference, 1)
    assert (list(best.tokens), widths, n) == ([1, COMMA, 2, 3], [1] * 5, n_passes)


class RandomTable:
    """A table with three random tokens after every text."""

    def __init__(self, seed):
        self.seed = seed

    def get(self, text, default):
        rng = random.Random(f"{self.seed} {text}")
        return {rng.randrange(1, N_TOKENS): rng.random() for _ in range(3)}


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_a_search_is_the_same_with_and_without_the_draft(beam):
    drawn = random.Random(beam)
    n_passes = [0, 0]
    for _ in range(60):
        table = RandomTable(drawn.random())
        reference = drawn.choices(range(1, EOT), k=drawn.randint(0, 12))
        if drawn.random() < 0.8:  # most texts come again, changed somewhere
            text = searched(Table(table), None, 1)[0].tokens
            at = drawn.randint(0, len(text))
            reference = [*text[:at], *reference[:1], *text[at + drawn.randint(0, 1) :]]
        (a, a_widths, a_passes), (b, b_widths, b_passes) = (
            searched(Table(table), reference, beam, guide=guide)
            for guide in (StepByStep, ReferenceGuide)
        )
        assert (a, a_widths) == (b, b_widths)
        assert b_passes <= a_passes
        n_passes = [n_passes[0] + a_passes, n_passes[1] + b_passes]
    assert n_passes[1] < 0.9 * n_passes[0]


TABLE_4 = [(2.794, 0.552), (2.807, 0.548), (2.852, 0.537), (2.556, 0.611), (2.577, 0.606)]
TABLE_4 += [(None, None), (2.570, 0.608), (2.257, 0.686), (2.374, 0.657), (2.425, 0.644)]


@pytest.mark.parametrize(("mean_beam", "ratio"), TABLE_4)
def test_mean_beam_and_reduce_ratio_of_the_paper_s_table_4(mean_beam, ratio):
    found = reduce_ratio(mean_beam, 5)
    assert found == (ratio and pytest.approx(ratio, abs=0.0015))


# -- on a model ---------------------------------------------------------------------------------


def test_punctuation_has_no_letter_or_digit():
    whisper = load_whisper(tiny_folder(multilingual=True))
    is_skipped = punctuation(whisper)
    ids = {text: whisper.text_tokens(text)[-1] for text in ",.a3 "}
    assert [is_skipped(ids[text]) for text in ",.a3 "] == [True, True, False, False, True]
    assert is_skipped(whisper.eot) and is_skipped(whisper.eot + 5)
    half = whisper.text_tokens("ü")[0]
    if whisper.detokenizer.token_bytes(half) == b"\xc3":
        assert not is_skipped(half)  # a part of a letter


# -- training --


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return toy_corpus(tmp_path_factory.mktemp("corpus"))


def recipe(corpus, **options):
    return HushWordRecipe(**settings_of("hush_word", corpus, tiny_folder(), **options))


def example(whisper, seed=3):
    prompt = whisper.prompt()
    tokens = [*prompt, *range(40, 46), whisper.eot]
    return HushExample(torch.from_numpy(noise(1.013, seed=seed)), tokens, len(prompt))


def word_of():
    return 0.02 * torch.rand(8000, generator=torch.Generator().manual_seed(0))


def test_the_loss_is_transformers_own_on_the_joined_audio_and_the_model_stays_frozen():
    whisper = load_whisper(tiny_folder())
    tail = word_of()
    words = TrainedWord(whisper, tail.clone(), 0.02)
    examples = [example(whisper), example(whisper, seed=4)]
    loss = words(examples)
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder()).eval()
    wanted = 0.0
    for one in examples:
        joined = torch.cat([one.audio, tail])
        joined = torch.nn.functional.pad(joined, (0, -len(joined) % 320))[None]
        mel = log_mel(joined, whisper.n_mels)
        n_frames = mel.shape[-1] // 2
        encoder = model.model.encoder
        x = torch.nn.functional.gelu(encoder.conv1(mel))
        x = torch.nn.functional.gelu(encoder.conv2(x)).transpose(1, 2)
        x = x + encoder.embed_positions.weight[:n_frames]
        for layer in encoder.layers:
            x = layer(x, None)
        labels = torch.tensor([one.tokens[1:]])
        labels[:, : one.n_prompt - 1] = -100
        out = model(
            encoder_outputs=(encoder.layer_norm(x),),
            decoder_input_ids=torch.tensor([one.tokens[:-1]]),
            labels=labels,
        )
        wanted += float(out.loss.detach()) / 2
    assert float(loss.detach()) == pytest.approx(wanted, abs=1e-4)
    loss.backward()
    assert words.tail.grad is not None and float(words.tail.grad.abs().sum()) > 0
    assert [name for name, _ in words.named_parameters()] == ["tail"]
    assert all(p.grad is None for p in whisper.model.parameters())


def test_the_end_weighs_as_much_as_it_is_told():
    whisper = load_whisper(tiny_folder())
    one, two, six = (
        float(TrainedWord(whisper, word_of(), 0.02, weight)([example(whisper)]).detach())
        for weight in (1.0, 2.0, 6.0)
    )
    end = 8 * two - 7 * one  # 6 tokens of text: one = (text + end) / 7, two = (text + 2 end) / 8
    assert six == pytest.approx((7 * one + 5 * end) / 12, rel=1e-4)


def test_dev_is_decoded_without_loops():
    whisper = load_whisper(tiny_folder())
    mel = log_mel(torch.from_numpy(noise(2.0, seed=1))[None], whisper.n_mels)
    frames = encode(whisper.model, mel)
    search = BeamSearch(Decoder(whisper), whisper.eot, 1)
    cache = DecoderCache(search.decoder)
    search.decoder.append_frames(cache, frames, 0)
    passes = search.passes(cache, whisper.prompt(), frames.shape[1], 40, NULL)
    looping = whisper.tokenizer.decode(list(by_itself(passes, NULL).tokens)).strip()
    text = greedy(whisper, frames, whisper.prompt(), 40)
    assert looping.startswith(text) and len(looping) > len(text)


def test_an_example_has_room_for_the_word_and_ends_with_the_text(corpus):
    one = recipe(corpus)
    for step in range(6):
        for each in one.draw(step, rank=0, world=1, progress=0.0):
            assert each.tokens[-1] == one.whisper.eot
            assert each.tokens[each.n_prompt - 1] == one.whisper.prompt()[-1]
            assert each.audio.numel() <= 3.5 * 16_000  # the context of 4 s less the word


def test_the_word_is_the_mean_of_the_best_evaluations(corpus, tmp_path):
    trained = recipe(corpus, clamp="none", average=2)
    wers = iter([5.0, 0, 6.0, 0, 9.0, 2.0])
    trained._wer = lambda word: next(wers)
    for value in (1.0, 2.0, 3.0):
        with torch.no_grad():
            trained.model.tail.fill_(value)
        figures = trained.evaluate()
    assert figures == {"score": 2.0, "best": 5.0}
    trained.save(tmp_path)
    word = load_hush(tmp_path, trained.whisper).samples
    assert word.shape == (8000,)
    assert torch.allclose(word, torch.full((8000,), 1.5))  # of 5.0 and 6.0, not of 9.0
    after = recipe(corpus, start=str(tmp_path))
    assert torch.equal(after.model.tail, word)
    after.model.clamp()
    assert float(after.model.tail.detach().abs().max()) == pytest.approx(0.02)
    with pytest.raises(UserError, match=r"start=.*of another length.*4000 samples"):
        recipe(corpus, length_s=0.25, start=str(tmp_path))
