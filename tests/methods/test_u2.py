"""U2: tokens and times between the passes, rescoring, endpoints, and streams that lose no word.

The last are tried on a recogniser of beeps: a Whisper whose layers are switched off, with a CTC
head fitted to tell tones apart, so that what was said is known and long streams are cheap.
"""

from __future__ import annotations

import itertools
import json
import lzma
import math

import numpy as np
import pytest
import torch
from branches import head_folder
from oracle import oracle
from tiny import fed, noise, tiny_folder
from torch import nn

from streaming_asr.config.build import new_method
from streaming_asr.errors import UserError
from streaming_asr.method import NULL, display_text
from streaming_asr.methods.u2.ctc import CtcHypothesis, PrefixBeamSearch
from streaming_asr.methods.u2.endpoint import EndpointRules, Reason
from streaming_asr.methods.u2.head import embedding_head, save_head
from streaming_asr.methods.u2.rescoring import attention_log_probs, rescore
from streaming_asr.methods.u2.tokenizer import Candidate, CtcTokenizer
from streaming_asr.models.tensors import save_half
from streaming_asr.whisper.decoder import Decoder, DecoderCache
from streaming_asr.whisper.encoder import encode
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.ngram import Fusion, vocabulary_hash

TEXT = " she had 3 Stück Käse für $12.50 — 不过 the quick fox"


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder(multilingual=True))


# -- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_tokens", [256, 262, 300, None])
def test_a_prefix_of_the_vocabulary_spells_any_text(whisper, n_tokens):
    tokenizer = CtcTokenizer(whisper, n_tokens)
    ids = tokenizer.encode(TEXT)
    assert max(ids) < tokenizer.n_tokens
    assert tokenizer._spell(ids)[0] == TEXT
    assert len(ids) == {256: 60, 262: 57, 300: 43, None: 36}[n_tokens]
    if n_tokens is None:
        assert ids == whisper.tokenizer(TEXT, add_special_tokens=False).input_ids
        assert tokenizer.single and tokenizer.blank == whisper.eot


def test_bytes_that_form_no_whole_character_are_held_back(whisper):
    tokenizer = CtcTokenizer(whisper, 256)
    ids = tokenizer.encode(" Käse")
    assert [tokenizer._spell(ids[:n])[0] for n in range(1, 7)] == [
        " ",
        " K",
        " K",
        " Kä",
        " Käs",
        " Käse",
    ]
    assert tokenizer._spell([ids[2], *ids[1:]])[0] == "Käse"  # half a character that nothing ends


def test_retokenising_keeps_the_score_and_gives_each_token_the_frames_of_its_bytes(whisper):
    tokenizer = CtcTokenizer(whisper, 256)
    full = whisper.tokenizer(" the Kä", add_special_tokens=False).input_ids
    ids = tokenizer.encode(" the Kä")
    half = tokenizer.encode("ä")[0]  # a last byte alone: not a character yet
    spans = tuple((10 * i, 10 * i + 3) for i in range(len(ids) + 1))
    found = tokenizer.retokenise(CtcHypothesis((*ids, half), -7.5, spans))
    assert found.tokens == tuple(full) and found.ctc_score == -7.5
    assert len(full) < len(ids)
    at = 0
    for token, (start, end) in zip(found.tokens, found.spans, strict=True):
        n_bytes = len(whisper.detokenizer.token_bytes(token))
        assert (start, end) == (10 * at, 10 * (at + n_bytes - 1) + 3)
        at += n_bytes


# -- rescoring ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def heard(whisper):
    """Encoder frames, a decoder and its cache for six texts about them."""
    mel = log_mel(torch.from_numpy(noise(1.6)), whisper.n_mels)[None]
    with torch.no_grad():
        hidden = encode(whisper.model, mel)
    decoder = Decoder(whisper)
    cache = DecoderCache(decoder, rows=6)
    decoder.append_frames(cache, hidden, 0)
    return hidden, decoder, cache


def test_all_texts_in_one_pass_equal_one_full_pass_each_behind_the_whole_prompt(whisper, heard):
    hidden, decoder, cache = heard
    prompt = whisper.prompt("de")
    assert len(prompt) == 4
    texts = [(5, 9, 300), (), (44,), (7, 8, 9, 10, 11)]
    found = attention_log_probs(decoder, cache, prompt, texts, hidden.shape[1], NULL)
    for text, mine in zip(texts, found, strict=True):
        with torch.no_grad():
            out = (
                oracle(whisper)
                .model.decoder(
                    input_ids=torch.tensor([[*prompt, *text]]), encoder_hidden_states=hidden
                )
                .last_hidden_state
            )
            log_probs = whisper.model.proj_out(out)[0, 3:].log_softmax(-1)
        wanted = [float(log_probs[i, u]) for i, u in enumerate((*text, whisper.eot))]
        assert mine == pytest.approx(wanted, abs=1e-4)


def test_the_weights_decide_between_the_two_scores(whisper, heard):
    hidden, decoder, cache = heard
    prompt, n = whisper.prompt(), hidden.shape[1]
    texts = [(5,), (9,), (12,)]
    scores = [sum(each) for each in attention_log_probs(decoder, cache, prompt, texts, n, NULL)]
    order = np.argsort(scores).tolist()  # the worst for the decoder first
    candidates = [
        Candidate(texts[i], ((0, 1),), ctc)
        for i, ctc in zip(order, (-1.0, -2.0, -9.0), strict=True)
    ]

    def best(attention, ctc):
        weights = {"attention": attention, "ctc": ctc}
        return rescore(decoder, cache, prompt, candidates, n, NULL, **weights)

    assert best(0.0, 1.0).candidate is candidates[0]
    assert best(1.0, 0.0).candidate is candidates[2]
    assert best(1.0, 0.0).score == pytest.approx(max(scores), abs=1e-4)
    assert best(2.0, 0.5).score == pytest.approx(
        max(2 * scores[i] + 0.5 * c.ctc_score for i, c in zip(order, candidates, strict=True)),
        abs=1e-3,
    )


def test_a_text_longer_than_the_decoder_is_left_to_the_first_pass(whisper, heard):
    hidden, decoder, cache = heard
    long = Candidate((5,) * 64, ((0, 1),) * 64, 0.0)
    short = Candidate((5,) * 60, ((0, 1),) * 60, -50.0)
    arguments = (decoder, cache, whisper.prompt())
    rest, weights = (hidden.shape[1], NULL), {"attention": 1.0, "ctc": 0.5}
    assert rescore(*arguments, [long, short], *rest, **weights).candidate is short
    assert rescore(*arguments, [long], *rest, **weights) is None


# -- endpoints ----------------------------------------------------------------------------------


def rules(**changed):
    settings = {"trailing_silence_s": 0.5, "no_speech_s": 5.0, "max_delay_s": None}
    return EndpointRules.of(1500, 50, **{**settings, "blank_threshold": 0.8, **changed})


def test_the_rules_are_the_papers():
    found = rules()
    assert (found.trailing, found.no_speech, found.max_delay) == (25, 250, 600)
    assert found.reason(100, 24, True) is None
    assert found.reason(100, 25, True) is Reason.PAUSE
    assert found.reason(249, 249, False) is None
    assert found.reason(250, 250, False) is Reason.SILENCE
    assert found.reason(599, 3, True) is None
    assert found.reason(600, 3, True) is Reason.DELAY
    half = EndpointRules.of(750, 50, 0.5, 5.0, None, 0.8)
    assert half.max_delay == 300  # 12 s of 30 is 6 s of 15


def test_silence_is_counted_over_chunks_and_broken_by_one_spoken_frame():
    blank = torch.tensor([0.9, 0.79, 0.81, 0.95]).log()
    assert rules().silent_run(blank, 7) == 2
    assert rules().silent_run(blank[2:], 7) == 9
    assert rules().silent_run(blank[:2], 7) == 0


# -- streams ------------------------------------------------------------------------------------

N_BEEPS = 8
BEEP_S, GAP_S = 0.22, 0.12
CHUNK, FIRST = 4800, 9600


def beeps(which, gaps_s):
    pieces = []
    for i, gap_s in zip(which, gaps_s, strict=True):
        t = np.arange(round(BEEP_S * 16_000)) / 16_000
        swell = np.clip(np.minimum(t, BEEP_S - t) / 0.04, 0, 1)  # no click, which is all tones
        pieces.append(0.4 * swell * np.sin(2 * np.pi * 300 * 1.4**i * t))
        pieces.append(np.zeros(round(gap_s * 16_000)))
    return np.concatenate(pieces).astype(np.float32)


@pytest.fixture(scope="module")
def beeper(tmp_path_factory):
    """(model folder, U2 folder, the word of each beep)."""
    folder = tmp_path_factory.mktemp("beeper")
    whisper = load_whisper(tiny_folder(d_model=64, layers=1, context_frames=200))
    encoder = whisper.model.model.encoder
    with torch.no_grad():
        encoder.embed_positions.weight.zero_()
        for layer in encoder.layers:
            for linear in (layer.self_attn.out_proj, layer.fc2):
                linear.weight.zero_()
                linear.bias.zero_()
    tokens = [i for i in range(256, whisper.eot) if whisper.detokenizer.token_bytes(i)[:1] == b" "]
    tokens = tokens[:N_BEEPS]
    which = list(range(N_BEEPS)) * 3
    audio = beeps(which, [GAP_S + 0.05 * (i % 4) for i in which])
    audio = audio[: len(audio) // 320 * 320]
    with torch.no_grad():
        mel = log_mel(torch.from_numpy(audio), whisper.n_mels)
        frames = torch.cat([encode(whisper.model, m[None])[0] for m in mel.split(300, 1)])
    labels = torch.full((len(frames),), whisper.eot)
    at = 0.0
    for i in which:
        labels[round(at * 50) : round((at + BEEP_S) * 50)] = tokens[i]
        at += BEEP_S + GAP_S + 0.05 * (i % 4)
    head = nn.Linear(64, whisper.eot + 1)
    nn.init.zeros_(head.weight)
    optimiser = torch.optim.LBFGS(head.parameters(), max_iter=80, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(head(frames), labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    whisper.save(folder / "model")
    save_head(head, folder / "u2")
    return folder / "model", folder / "u2", [whisper.tokenizer.decode([t]) for t in tokens]


def method_of(beeper, **options):
    model, trained, _ = beeper
    settings = {"rescore": 0, "word_times": "ctc", **options}
    return new_method("u2", str(model), weights=str(trained), **settings)


@pytest.mark.parametrize("chunk_s", [0.1, 0.5])
def test_two_minutes_without_a_pause_lose_no_word_and_gain_none(beeper, chunk_s):
    seconds = 120 if chunk_s == 0.5 else 20
    random = np.random.default_rng(5)
    n = round(seconds / (BEEP_S + GAP_S))
    which = random.integers(0, N_BEEPS, n).tolist()
    audio = beeps(which, [GAP_S] * n)
    method = method_of(beeper, chunk_s=chunk_s, first_chunk_s=0.6)
    updates = fed(method, audio, round(chunk_s * 16_000), FIRST)
    words = [word for update in updates for word in update.committed]
    assert [word.text for word in words] == [beeper[2][i] for i in which]
    for i, word in enumerate(words):
        start = i * (BEEP_S + GAP_S)
        assert word.start == pytest.approx(start, abs=0.06)
        assert word.end == pytest.approx(start + BEEP_S, abs=0.06)
    assert sum(update.endpoint for update in updates) > seconds / 3


def test_a_word_cut_by_the_longest_delay_is_heard_whole_in_the_next_segment(beeper):
    # Segments end after 80 frames at the earliest, in chunks of 10: here within the fifth beep.
    which = [0, 1, 2, 3, 4, 5, 6]
    audio = beeps(which, [0.18] * 7)
    method = method_of(beeper, chunk_s=0.2, first_chunk_s=0.6)
    assert 4 * (BEEP_S + 0.18) < 80 * 0.02 + 0.1 < 4 * (BEEP_S + 0.18) + BEEP_S
    state = method.start()
    update = method.step(state, audio[: round(1.7 * 16_000)], last=False)
    assert update.endpoint
    said = display_text([*update.committed, *update.partial])
    assert (
        len(update.committed) == 3
        and said.split() == [w.strip() for w in beeper[2][:5]][: len(said.split())]
    )
    assert state.window_start == round(update.committed[-1].end * 50)
    rest = method.step(state, audio[round(1.7 * 16_000) :], last=True)
    words = [*update.committed, *rest.committed]
    assert [word.text for word in words] == [beeper[2][i] for i in which]


def test_a_pause_commits_what_was_shown_and_the_next_word_may_begin_in_the_same_chunk(beeper):
    which = [0, 1, 2, 3, 4, 5]
    for gap_s in (0.55, 0.8, 1.1):
        audio = beeps(which, [GAP_S, GAP_S, gap_s, GAP_S, GAP_S, 0.1])
        updates = fed(method_of(beeper), audio, CHUNK, FIRST)
        closing = next(i for i, update in enumerate(updates) if update.endpoint)
        assert all(update.committed == () for update in updates[:closing])
        shown = display_text(updates[closing - 1].partial).split()
        after = updates[closing]
        final = display_text([*after.committed, *after.partial]).split()
        assert final[: len(shown)] == shown and len(after.committed) == 3
        words = [word.text for update in updates for word in update.committed]
        assert words == [beeper[2][i] for i in which]


def test_silence_alone_gives_no_word_and_windows_that_stay_short(beeper):
    method = method_of(beeper)
    state = method.start()
    audio = np.zeros(16_000 * 13, np.float32)
    audio[: 16_000 // 4] = beeps([0], [0.03])  # so that the silence is heard as one
    updates = fed(method, audio, CHUNK, state=state)
    assert [w.text for u in updates for w in u.committed] == [beeper[2][0]]
    assert updates[-1].partial == ()
    assert state.window_start > 11 * 50


def test_int8_keeps_the_words_of_the_beeps(beeper):
    small = new_method("u2", str(tiny_folder()), weights=head_folder(tiny_folder()), dtype="int8")
    assert small._first_pass.head.weight().dtype == torch.qint8
    which = [3, 1, 4, 1, 5]
    updates = fed(
        method_of(beeper, dtype="int8", rescore=6), beeps(which, [GAP_S] * 5), CHUNK, FIRST
    )
    words = [word for update in updates for word in update.committed]
    assert [word.text for word in words] == [beeper[2][i] for i in which]
    assert all(word.probability is not None for word in words)


# -- with a language model ----------------------------------------------------------------------


def language_model(folder, method, unlikely):
    """A model of single classes, all alike but for the word `unlikely`, which has 1e-30."""
    (ill,) = method._tokenizer.encode(unlikely)
    n = method._tokenizer.n_tokens
    rows = "".join(f"{-30.0 if token == ill else -1.0}\t{token}\n" for token in range(n))
    arpa = (
        f"\\data\\\nngram 1={n + 3}\nngram 2=1\n\n\\1-grams:\n-9\t<unk>\n-99\t<s>\n-1\t</s>\n"
        f"{rows}\n\\2-grams:\n-1.0\t0 0\n\n\\end\\\n"
    )
    folder.mkdir()
    (folder / "lm.arpa.xz").write_bytes(lzma.compress(arpa.encode()))
    card = {"vocabulary": vocabulary_hash(method._tokenizer.spellings())}
    (folder / "lm.json").write_text(json.dumps(card))
    return folder


def test_a_language_model_ranks_the_first_pass_in_chunks_of_any_size(beeper, tmp_path):
    which = [0, 1, 2, 3, 4, 5]
    audio = beeps(which, [GAP_S, GAP_S, 0.8, GAP_S, GAP_S, 0.1])
    plain = method_of(beeper)
    folder = language_model(tmp_path / "lm", plain, beeper[2][3])
    # The bonus makes up for the probability of every other word; the frames are very sure.
    settings = {"lm": str(folder), "lm_weight": 100.0, "lm_bonus": 230.2585}
    said = {}
    for chunk_s in (0.1, 0.3, 1.0):
        method = method_of(beeper, chunk_s=chunk_s, first_chunk_s=1.0, **settings)
        updates = fed(method, audio, round(chunk_s * 16_000), 16_000)
        said[chunk_s] = [word.text for update in updates for word in update.committed]
    assert said[0.1] == said[0.3] == said[1.0]
    assert beeper[2][3] not in said[1.0]
    # In its place stand others, which the frames of that beep are less sure of.
    assert said[1.0][:3] == beeper[2][:3] and said[1.0][-2:] == beeper[2][4:6]
    words = [word.text for update in fed(plain, audio, CHUNK, FIRST) for word in update.committed]
    assert words == [beeper[2][i] for i in which]
    none = method_of(beeper, lm="none", lm_weight=9.0, lm_bonus=9.0)
    assert fed(none, audio, CHUNK, FIRST) == fed(plain, audio, CHUNK, FIRST)


def test_a_language_model_gets_a_wider_search_unless_one_is_set(beeper, tmp_path):
    folder = str(language_model(tmp_path / "lm", method_of(beeper), beeper[2][0]))

    def search(**options):
        made = method_of(beeper, **{"rescore": None, **options})
        return made._beam, made._rescore

    assert search() == (10, 6)
    assert search(beam=4) == (4, 4)
    assert search(lm=folder) == (32, 32)
    assert search(lm=folder, beam=10, rescore=6) == (10, 6)
    assert search(lm=folder, beam=16) == (16, 16)
    assert search(lm=folder, rescore=0) == (32, 0)


def test_a_language_model_of_another_head_is_refused(beeper, tmp_path):
    folder = language_model(tmp_path / "lm", method_of(beeper), beeper[2][0])
    with pytest.raises(UserError, match="another vocabulary than the 256 classes"):
        new_method(
            "u2", str(tiny_folder()), weights=head_folder(tiny_folder(), 256), lm=str(folder)
        )
    with pytest.raises(UserError, match=r"there is no .*lm\.json"):
        method_of(beeper, lm="auto")


# -- refusals -----------------------------------------------------------------------------------


def test_a_folder_without_a_head_or_with_that_of_another_model_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no ctc_head.safetensors there; train one"):
        new_method("u2", str(tiny_folder()), weights=str(tmp_path))
    save_head(
        embedding_head(load_whisper(tiny_folder(d_model=64, layers=1)), 300),
        tmp_path,
    )
    with pytest.raises(UserError, match="use the model that the head was trained on"):
        new_method("u2", str(tiny_folder()), weights=str(tmp_path))
    width = load_whisper(tiny_folder()).config.d_model
    shapes = [((300, width), (299,)), ((300, width), (300, 1)), ((300,), (300,)), ((), (300,))]
    for weight, bias in shapes:
        tensors = {"weight": torch.zeros(weight), "bias": torch.zeros(bias)}
        save_half(tensors, tmp_path / "ctc_head.safetensors")
        with pytest.raises(UserError, match="use the model that the head was trained on"):
            new_method("u2", str(tiny_folder()), weights=str(tmp_path))
    (tmp_path / "ctc_head.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="truncated or damaged"):
        new_method("u2", str(tiny_folder()), weights=str(tmp_path))


# -- Prefix beam search against a plain dictionary form and against all alignments written out --


INF = math.inf


def posteriors(n_frames, n_classes, seed):
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.normal(0, 2.0, (n_frames, n_classes))).log_softmax(-1)


def add(a, b):
    if max(a, b) == -INF:
        return -INF
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


def plain_search(log_probs, blank, beam, top):
    """`PrefixBeamSearch` in its plain form, one prefix at a time: (tokens, score, spans) each."""
    # prefix -> (sum in blank, sum in token, best alignment in blank, best in token)
    beams = {(): [0.0, -INF, (0.0, ()), (-INF, ())]}
    for t, row in enumerate(log_probs):
        tried = np.argpartition(-row, min(top, len(row) - 1))[:top]
        grown = {}
        for prefix, (in_blank, in_token, best_blank, best_token) in beams.items():
            total, best = add(in_blank, in_token), max(best_blank, best_token)
            for u, lp in ((int(u), float(row[u])) for u in tried):
                if u == blank:
                    moves = [(prefix, 0, total, (best[0] + lp, best[1]))]
                elif prefix and u == prefix[-1]:
                    spans = best_token[1]
                    longer = (*spans[:-1], (spans[-1][0], t + 1)) if spans else ()
                    again = (best_blank[0] + lp, (*best_blank[1], (t, t + 1)))
                    moves = [
                        (prefix, 1, in_token, (best_token[0] + lp, longer)),
                        ((*prefix, u), 1, in_blank, again),
                    ]
                else:
                    after = (best[0] + lp, (*best[1], (t, t + 1)))
                    moves = [((*prefix, u), 1, total, after)]
                for new, where, mass, path in moves:
                    entry = grown.setdefault(new, [-INF, -INF, (-INF, ()), (-INF, ())])
                    entry[where] = add(entry[where], mass + lp)
                    entry[where + 2] = max(entry[where + 2], path)
        ranked = sorted(grown.items(), key=lambda item: -add(item[1][0], item[1][1]))
        beams = dict(ranked[:beam])
    return [
        (prefix, add(sums[0], sums[1]), max(sums[2], sums[3])[1]) for prefix, sums in beams.items()
    ]


def collapse(path, blank):
    return tuple(u for u, _ in itertools.groupby(path) if u != blank)


def spans_of(path, blank):
    spans, t = [], 0
    for u, run in itertools.groupby(path):
        n = len(list(run))
        if u != blank:
            spans.append((t, t + n))
        t += n
    return tuple(spans)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("beam", "top"), [(1, 1), (3, 3), (10, 10), (10, 4)])
def test_the_search_equals_the_plain_one(seed, beam, top):
    log_probs = posteriors(60, 12, seed)
    search = PrefixBeamSearch(blank=11, beam=beam, top=top)
    search.advance(log_probs)
    found = search.hypotheses()
    wanted = plain_search(log_probs.numpy(), 11, beam, top)
    assert [h.tokens for h in found] == [tokens for tokens, _, _ in wanted]
    assert [h.score for h in found] == pytest.approx([score for _, score, _ in wanted], abs=1e-9)
    assert [h.spans for h in found] == [spans for _, _, spans in wanted]
    assert search.best_tokens() == wanted[0][0]


def test_a_minute_of_certain_blank_stays_the_empty_text():
    log_probs = torch.full((3000, 4), -1e4)
    log_probs[:, 3] = 0.0
    search = PrefixBeamSearch(blank=3)
    search.advance(log_probs)
    assert search.best_tokens() == ()
    assert search.hypotheses(1)[0].score == 0.0


# -- with a language model ------------------------------------------------------------------------


class Table:
    """Stands for an n-gram model: p(token | the last one), by a table."""

    def __init__(self, probabilities: dict[tuple[int | None, int], float]) -> None:
        self.probabilities = probabilities

    def start(self) -> None:
        return None

    def score(self, state: int | None, token: int) -> float:
        return math.log(self.probabilities[state, token])

    def after(self, state: int | None, token: int) -> int:
        return token


def random_table(seed):
    random = np.random.default_rng(seed)
    rows = {state: random.dirichlet(np.ones(2)) for state in (None, 0, 1)}
    return Table({(state, u): float(row[u]) for state, row in rows.items() for u in (0, 1)})


def added(table, tokens, weight, bonus):
    pairs = itertools.pairwise((None, *tokens))
    return sum(weight * table.score(state, token) + bonus for state, token in pairs)


@pytest.mark.parametrize(
    ("weight", "bonus", "best"),
    [
        # One frame: a 0.5, b 0.4, blank 0.1; the model gives a 0.1 and b 0.9.
        (0.0, 0.0, (0,)),  # a: 0.5
        (1.0, 0.0, (1,)),  # b: 0.4 * 0.9 = 0.36, blank 0.1, a 0.05
        (20.0, 0.0, ()),  # blank: 0.1, b: 0.4 * 0.9 ** 20 = 0.05
        (20.0, 1.0, (1,)),  # blank: 0.1, b: 0.05 * e = 0.13
    ],
)
def test_the_model_ranks_and_the_score_stays_that_of_the_alignments(weight, bonus, best):
    table = Table({(None, 0): 0.1, (None, 1): 0.9})
    search = PrefixBeamSearch(2, beam=3, fusion=Fusion(table, weight, bonus))
    search.advance(torch.tensor([[0.5, 0.4, 0.1]]).log())
    assert search.best_tokens() == best
    scores = {h.tokens: math.exp(h.score) for h in search.hypotheses()}
    assert scores == pytest.approx({(0,): 0.5, (1,): 0.4, (): 0.1}, rel=1e-6)


def test_the_model_sees_what_stands_before_a_token():
    # Behind a stands b, behind b a: "ab" beats "aa" that the frames prefer.
    table = Table(
        {(None, 0): 0.5, (None, 1): 0.5, (0, 0): 0.1, (0, 1): 0.9, (1, 0): 0.9, (1, 1): 0.1}
    )
    frames = torch.tensor([[0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.6, 0.35, 0.05]]).log()
    plain, ranked = PrefixBeamSearch(2), PrefixBeamSearch(2, fusion=Fusion(table, 1.0, 0.0))
    for search in (plain, ranked):
        search.advance(frames)
    assert plain.best_tokens() == (0, 0)
    assert ranked.best_tokens() == (0, 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("weight", "bonus"), [(0.0, 0.0), (0.7, 0.4)])
def test_without_pruning_scores_are_sums_over_all_alignments(seed, weight, bonus):
    n_frames, n_classes, blank = 5, 3, 2
    log_probs, table = posteriors(n_frames, n_classes, seed), random_table(seed)
    sums = {}
    best = {}
    for path in itertools.product(range(n_classes), repeat=n_frames):
        log_prob = sum(float(log_probs[t, u]) for t, u in enumerate(path))
        tokens = collapse(path, blank)
        sums[tokens] = add(sums.get(tokens, -INF), log_prob)
        best[tokens] = max(best.get(tokens, (-INF, ())), (log_prob, spans_of(path, blank)))
    search = PrefixBeamSearch(blank, 1000, n_classes, Fusion(table, weight, bonus))
    search.advance(log_probs)
    hypotheses = search.hypotheses()
    order = sorted(sums, key=lambda u: -(sums[u] + added(table, u, weight, bonus)))
    assert [h.tokens for h in hypotheses] == order
    assert {h.tokens: h.score for h in hypotheses} == pytest.approx(sums, abs=1e-9)
    assert all(h.spans == best[h.tokens][1] for h in hypotheses)
