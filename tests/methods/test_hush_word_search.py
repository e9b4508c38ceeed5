"""Beam pruning: WhisperFlow's rules on made-up distributions, and against the plain beam search."""

from __future__ import annotations

import math
import random
from contextlib import nullcontext

import pytest
import torch
from tiny import noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from experiments.hush_word.tables import reduce_ratio
from streaming_asr.method import NULL
from streaming_asr.methods.hush_word.search import ReferenceGuide, punctuation
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.search import BeamSearch
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import WindowDecoder

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
    best = alone(search.passes(Rows(beam), [0], 5, 20, steps, followed), NULL)
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


def test_without_a_reference_it_is_the_plain_beam_search():
    assert decode(FORKED) == ([1, 4, 5], [1, 2])
    assert decode(FORKED, beam=1) == ([1, 2, 3], [1, 1, 1, 1])


def test_the_text_of_the_round_before_is_followed_at_width_one_to_its_end():
    assert decode(FORKED, [1, 2, 3]) == ([1, 2, 3], [1, 1, 1, 1])


def test_the_start_of_the_reference_may_be_gone():
    assert decode(FORKED, [6, 7, 1, 2, 3]) == ([1, 2, 3], [1, 1, 1, 1])


def test_a_first_token_that_the_reference_lacks_falls_back_at_once():
    assert decode(FORKED, [2, 3]) == ([1, 4, 5], [1, 2])


def test_a_mismatch_falls_back_and_the_search_stays_wide():
    assert decode(FORKED, [1, 4, 5]) == ([1, 4, 5], [1, 1, 2])
    # 3 after the fallback is in the reference again, and changes nothing.
    assert decode(says(1, 2, 3, 4), [1, 5, 3, 4]) == ([1, 2, 3, 4], [1, 1, 2])


def test_the_reference_s_end_is_a_mismatch():
    assert decode(FORKED, [1]) == ([1, 4, 5], [1, 1, 2])


def test_punctuation_is_skipped_on_both_sides():
    said = says(1, COMMA, 2, 3)
    for reference in ([1, 2, 3], [1, 2, COMMA, 3]):
        assert decode(said, reference) == ([1, COMMA, 2, 3], [1] * 5)
    # A mark does not move the reference on: a later mismatch is still found.
    assert decode(said, [1, 3])[1] == [1, 1, 1, 2]


def test_empty_text_and_the_limit_of_tokens():
    assert decode({(): {EOT: 0.9}}, [1, 2]) == ([], [1])
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
TABLE_4 += [(2.570, 0.608), (2.257, 0.686), (2.374, 0.657), (2.425, 0.644)]


@pytest.mark.parametrize(("mean_beam", "ratio"), TABLE_4)
def test_mean_beam_and_reduce_ratio_of_the_paper_s_table_4(mean_beam, ratio):
    assert reduce_ratio(mean_beam, 5) == pytest.approx(ratio, abs=0.0015)


def test_a_ratio_needs_two_widths():
    assert reduce_ratio(None, 5) is None and reduce_ratio(1.0, 1) is None


# -- on a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoded():
    """(whisper, cache with a window's frames, the windows' decoder), beam 3."""
    whisper = load_whisper(tiny_folder())
    windows = WindowDecoder(whisper, beam=3, max_tokens=20)
    found = {}
    for seed in (1, 2, 3):
        window = windows.decode(noise(3.0, seed=seed), None, NULL)
        found[seed] = window
    return whisper, windows, found


def search(whisper, windows, window, reference=None, max_tokens=20):
    cache = DecoderCache(windows.decoder, rows=3)
    cache.cross_keys, cache.cross_values = window.cache.cross_keys, window.cache.cross_values
    steps = Steps()
    followed = None
    if reference is not None:
        followed = ReferenceGuide(reference, punctuation(whisper))
    n_frames = whisper.context_frames
    passes = windows.search.passes(cache, window.prompt, n_frames, max_tokens, steps, followed)
    return alone(passes, steps), steps.widths


def plain(whisper, model, hidden, prompt, beam, max_tokens):
    """Beam search on transformers' own model, everything anew for each token."""
    live, ended = [([], [])], []
    while live and len(ended) < beam:
        options = []
        for tokens, log_probs in live:
            ids = torch.tensor([[*prompt, *tokens]])
            with torch.inference_mode():
                logits = model(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[0, -1]
            all_ = (logits + whisper.suppressed).log_softmax(-1)
            options += [
                ([*tokens, token], [*log_probs, value])
                for value, token in zip(*map(torch.Tensor.tolist, all_.topk(50)), strict=True)
            ]
        options.sort(key=lambda option: -sum(option[1]))
        live = []
        for tokens, log_probs in options:
            if tokens[-1] == whisper.eot:
                ended.append((tokens[:-1], log_probs))
            else:
                live.append((tokens, log_probs))
            if len(live) == beam or len(ended) == beam:
                break
        if len(live[0][0]) == max_tokens:
            ended = ended or live
            break
    return max(ended, key=lambda option: sum(option[1]) / len(option[1]))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_unpruned_it_finds_what_a_plain_search_on_transformers_finds(encoded, seed):
    whisper, windows, found = encoded
    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder()).eval()
    samples = torch.from_numpy(noise(3.0, seed=seed))[None]
    padded = torch.nn.functional.pad(samples, (0, whisper.context_frames * 320 - 48_000))
    with torch.inference_mode():
        hidden = model.model.encoder(log_mel(padded, whisper.n_mels)).last_hidden_state
    tokens, log_probs = plain(whisper, model, hidden, found[seed].prompt, 3, 8)
    ours, widths = search(whisper, windows, found[seed], max_tokens=8)
    assert list(ours.tokens) == tokens
    assert list(ours.log_probs) == pytest.approx(log_probs, abs=1e-4)
    assert set(widths) <= {1, 3} and widths[0] == 1


def test_following_the_greedy_text_is_greedy_and_mean_beam_fits_the_ratio(encoded):
    whisper, windows, found = encoded
    greedy_search = BeamSearch(windows.decoder, whisper.eot, 1)
    for window in found.values():
        cache = DecoderCache(windows.decoder, rows=1)
        cache.cross_keys, cache.cross_values = window.cache.cross_keys, window.cache.cross_values
        passes = greedy_search.passes(cache, window.prompt, whisper.context_frames, 20, Steps())
        greedy = alone(passes, NULL)
        text = [token for token in greedy.tokens if not punctuation(whisper)(token)]
        if len(text) < 3:
            continue
        ours, widths = search(whisper, windows, window, text)
        # Where a token comes twice the first is found, so the start must be unlike the rest.
        if text.index(text[0]) == 0:
            assert ours.tokens == greedy.tokens and set(widths) == {1}
        cut, widths = search(whisper, windows, window, text[:2])
        mean = sum(widths) / len(widths)
        assert reduce_ratio(mean, 3) == pytest.approx(widths.count(1) / len(widths))
        assert math.isfinite(cut.mean_log_prob)
        return
    raise AssertionError("no text long enough to follow")


def test_punctuation_has_no_letter_or_digit():
    whisper = load_whisper(tiny_folder(multilingual=True))
    is_skipped = punctuation(whisper)
    ids = {text: whisper.text_tokens(text)[-1] for text in ",.a3 "}
    assert [is_skipped(ids[text]) for text in ",.a3 "] == [True, True, False, False, True]
    assert is_skipped(whisper.eot) and is_skipped(whisper.eot + 5)
    half = whisper.text_tokens("ü")[0]
    if whisper.detokenizer.token_bytes(half) == b"\xc3":
        assert not is_skipped(half)  # a part of a letter
