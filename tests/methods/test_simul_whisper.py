"""Simul-Whisper: the policy against its plain form, truncation, the sliding window, bad input."""

import functools
import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from recipes import settings_of, toy_corpus
from tiny import fed, noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from streaming_asr.config.build import new_method
from streaming_asr.contract import committed
from streaming_asr.errors import UserError
from streaming_asr.method import NULL
from streaming_asr.methods.simul_whisper.alignatt import (
    LEAST_DEVIATION,
    AlignAtt,
    AlignAttPolicy,
    HeadRows,
    RunningRows,
)
from streaming_asr.methods.simul_whisper.state import LATE_FRAMES, SimulWhisperState
from streaming_asr.methods.simul_whisper.train import (
    TruncationRecipe,
    count_words,
    cuts_a_word,
    dev_clips,
)
from streaming_asr.methods.simul_whisper.truncation import (
    fires_at_the_end,
    load_detector,
)
from streaming_asr.whisper.alignment import median_filter
from streaming_asr.whisper.decoder import DecoderCache
from streaming_asr.whisper.encoder import encode_padded
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.search import BeamSearch, Hypothesis, Verdict
from streaming_asr.whisper.together import alone
from streaming_asr.whisper.transcribe import window_pass
from streaming_asr.whisper.words import TokenWord

FRAME = 320
CHUNK = 4800


def tiny():
    """The folder of a tiny Whisper."""
    return str(tiny_folder())


def method(folder=None, **options):
    return new_method("simul_whisper", folder or tiny(), **options)


def text(updates):
    return "".join(word.text for word in committed(updates)).strip()


# -- AlignAtt -----------------------------------------------------------------------------------


def rebuilt(rows, n_frames):
    """AlignAtt's decision by its definition: the frame, of `n_frames`, that the last row looks at.

    All rows, (heads, 1, frames) each, are joined and standardised; two or fewer stay as they are.
    """
    weights = torch.cat(list(rows), dim=1)
    if weights.shape[1] > 2:
        deviation, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
        weights = (weights - mean) / deviation.clamp(min=LEAST_DEVIATION)
    smooth = median_filter(weights)
    return int(smooth.mean(0)[-1, :n_frames].argmax())


def attention(n_rows, n_heads, n_frames, context_frames, seed):
    """Made-up attention (heads, rows, context): a ridge that moves on, noise, and a sink at 0."""
    random = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_heads, n_rows, context_frames, generator=random)
    frames = torch.arange(context_frames)
    centre = torch.linspace(3, n_frames - 2, n_rows)[:, None]
    scores += 6.0 * torch.exp(-(((frames - centre) / 4.0) ** 2))
    scores[..., 0] += 5.0
    return scores.softmax(-1)


@pytest.mark.parametrize("seed", range(2))
def test_carried_moments_decide_as_rebuilding_all_rows(seed):
    weights = attention(70, 5, 300, 400, seed)
    prompt, *rows = weights.split([9, *[1] * 61], dim=1)
    running = RunningRows(prompt[None, ..., :303])
    decided = running.attended(300)
    wanted = [rebuilt([prompt], 300)]
    for i, row in enumerate(rows):
        running.add(row[None, ..., :303])
        decided += running.attended(300)
        wanted.append(rebuilt([prompt, *rows[: i + 1]], 300))
    assert decided == wanted
    assert len(set(decided)) > 30  # the ridge is followed


def test_before_the_third_row_the_attention_itself_decides():
    """Standardised, both rows would score 1 or -1 in every frame: ties, the first of which wins."""
    rows = torch.full((1, 1, 2, 40), 0.01)
    rows[0, 0, 1] = 0.02
    rows[0, 0, 1, 18:25] = 0.1
    assert RunningRows(rows).attended(40) == [18]
    assert RunningRows(rows[:, :, 1:]).attended(40) == [18]
    assert rebuilt([rows[0]], 40) == 18


def test_rows_go_with_their_hypotheses():
    first = torch.rand(2, 3, 4, 50, generator=torch.Generator().manual_seed(0))
    more = torch.rand(2, 3, 1, 50, generator=torch.Generator().manual_seed(1))
    running = RunningRows(first)
    running.reorder([1, 0])
    running.add(more)
    expected = [rebuilt([first[parent], more[i]], 50) for i, parent in enumerate([1, 0])]
    assert running.attended(50) == expected
    assert expected != [rebuilt([first[i], more[i]], 50) for i in range(2)]


@pytest.mark.parametrize(
    ("frame", "last_attended", "options", "verdict"),
    [
        (87, None, {}, Verdict.TAKE),
        (88, None, {}, Verdict.WAIT),  # 100 - 88 <= 12
        (95, None, {"last": True}, Verdict.TAKE),
        (96, None, {"last": True}, Verdict.WAIT),
        (40, 60, {}, Verdict.TAKE),
        (39, 60, {}, Verdict.REWIND),  # more than 20 back
        (39, 60, {"last": True}, Verdict.TAKE),
        (39, 60, {"after_text": False}, Verdict.TAKE),
    ],
)
def test_the_rules_of_the_policy(frame, last_attended, options, verdict):
    policy = AlignAttPolicy(frame_threshold=12, last_frame_threshold=4, rewind_frames=20)
    said = {"after_text": True, "last": False, **options}
    assert policy.judge(frame, 100, last_attended, **said) is verdict


@pytest.mark.parametrize(
    ("frames", "verdict"), [((33, 319), Verdict.TAKE), ((310, 319), Verdict.REWIND)]
)
def test_one_look_far_ahead_is_no_place_to_rewind_from(frames, verdict):
    """The guide looks at frame 57: back to where it was before one far look, or far back."""
    rows = torch.full((1, 1, 4, 400), 0.01)
    rows[0, 0, 3, 54:61] = 0.1
    rows[0, 0, 3, 57] = 0.2
    heads = SimpleNamespace(rows=lambda: rows)
    guide = AlignAtt(
        AlignAttPolicy(4, 0, 100), heads, 390, after_text=True, last_attended=None, last=False
    )
    live = [Hypothesis((7, 8), (-0.1, -0.1), frames, frames[-1])]
    assert guide.judge(live) == [(verdict, 54)]


# -- the search against transformers ------------------------------------------------------------


def encoded(simul, audio):
    """State with `audio` in its window, encoded."""
    state = simul.start()
    state.take_in(audio)
    state.slide(len(audio), simul._buffer_samples)
    passes = window_pass(simul._whisper, simul._decoder, state.cache, state.window, NULL)
    return state, alone(passes, NULL)[0]


def search(simul, state, forced, max_new, *, after_text=True, last_attended=None, last=False):
    """What follows `forced` in 95 frames of audio."""
    rows = HeadRows(simul._decoder, state.cache, simul._heads, simul._whisper.context_frames)
    guide = AlignAtt(
        simul._policy, rows, 95, after_text=after_text, last_attended=last_attended, last=last
    )
    context = simul._whisper.context_frames
    return alone(simul._search.passes(state.cache, forced, context, max_new, NULL, guide), NULL)


@functools.cache
def transformers_model():
    loaded = WhisperForConditionalGeneration.from_pretrained(tiny(), attn_implementation="eager")
    return loaded.eval()


def full_rows(hidden, tokens):
    """By transformers: attention rows (heads, n, context) and logits of the last position."""
    with torch.inference_mode():
        out = transformers_model()(
            encoder_outputs=(hidden[None],),
            decoder_input_ids=torch.tensor([tokens]),
            output_attentions=True,
        )
    return out.cross_attentions[1][0], out.logits[0, -1]  # the alignment heads are layer 1's


def plain_greedy(simul, hidden, forced, n_frames, policy, max_new):
    """AlignAtt as the paper has it: everything is computed again for each token."""
    tokens, frames = [], []
    while len(tokens) < max_new:
        rows, logits = full_rows(hidden, [*forced, *tokens])
        token = int((logits + simul._whisper.suppressed).argmax())
        if token == simul._whisper.eot:
            break
        frame = rebuilt([rows], n_frames)
        if frames and min(frames[-2:]) - frame > policy.rewind_frames:
            return [], []
        if n_frames - frame <= policy.frame_threshold:
            break
        tokens, frames = [*tokens, token], [*frames, frame]
    return tokens, frames


@pytest.mark.parametrize(("frame_threshold", "rewind_frames"), [(2, 200), (10, 200), (1, 40)])
def test_greedy_search_equals_the_plain_form_on_transformers(frame_threshold, rewind_frames):
    simul = method(frame_threshold=frame_threshold, rewind_frames=rewind_frames)
    policy = simul._policy
    lengths = set()
    for seed in (3, 4):
        state, hidden = encoded(simul, noise(1.9, seed=seed))
        forced = [*simul._whisper.prompt(), *range(40, 48)]
        found = search(simul, state, forced, 9, after_text=True, last_attended=None, last=False)
        wanted = plain_greedy(simul, hidden, forced, 95, policy, 9)
        assert (list(found.tokens), list(found.frames)) == wanted
        lengths.add(len(found.tokens))
    assert max(lengths) > 0


class Spy(DecoderCache):
    """Remembers whether hypotheses changed places."""

    mixed = False

    def reorder(self, parents, n_tokens):
        self.mixed |= len(set(parents)) > 1 and list(parents) != sorted(set(parents))
        super().reorder(parents, n_tokens)


def test_in_beam_search_each_hypothesis_has_its_own_attention_rows():
    simul = method(beam=3, frame_threshold=0, rewind_frames=1000)
    mixed = False
    for seed in range(6):
        state, hidden = encoded(simul, noise(1.9, seed=seed))
        state.cache.__class__ = Spy
        forced = [*simul._whisper.prompt(), *range(40, 48)]
        found = search(simul, state, forced, 8, after_text=True, last_attended=None, last=False)
        rows, _ = full_rows(hidden, [*forced, *found.tokens])
        for i, frame in enumerate(found.frames):
            assert frame == rebuilt([rows[:, : len(forced) + i]], 95)
        mixed |= state.cache.mixed and len(found.frames) > 2
    assert mixed


def grow(beam, live, verdicts, tokens, log_probs, ended):
    judged = [(verdict, 5) for verdict in verdicts]
    return BeamSearch(None, 0, beam)._grow(live, ended, judged, tokens, log_probs)


def test_a_hypothesis_that_has_ended_is_set_aside_and_not_stripped_of_a_token():
    live = [Hypothesis((7,), (-0.1,), (3,)), Hypothesis((8,), (-0.2,), (4,))]
    ended = []
    take = [Verdict.TAKE] * 2
    parents, grown = grow(2, live, take, [[0, 9], [6, 0]], [[-0.1, -9.0], [-0.3, -9.0]], ended)
    assert ended == [Hypothesis((7,), (-0.1, -0.1), (3,))]
    assert parents == [1, 0]
    assert [one.tokens for one in grown] == [(8, 6), (7, 9)]
    assert grown[0].frames == (4, 5) and grown[0].last_attended == 5


def test_the_policy_ends_one_hypothesis_and_throws_another_away():
    live = [Hypothesis((7,), (-0.1,), (3,), 3), Hypothesis((8,), (-0.2,), (4,), 4)]
    ended = []
    verdicts = [Verdict.WAIT, Verdict.REWIND]
    parents, grown = grow(2, live, verdicts, [[5, 6], [5, 6]], [[-0.1, -0.2]] * 2, ended)
    assert (parents, grown) == ([], [])
    assert ended == [Hypothesis((7,), (-0.1, -0.1), (3,), 5)]


# -- the stream ---------------------------------------------------------------------------------


@pytest.mark.parametrize("beam", [0, 3])
def test_all_audio_in_one_step_is_decoded_as_offline(beam):
    """By default nothing waits at the end of the stream: there is nothing to wait for."""
    audio = noise(1.9, seed=5)
    simul = method(beam=beam)
    offline = new_method("offline", tiny(), beam=beam)
    (one,) = fed(simul, audio, len(audio))
    (other,) = fed(offline, audio, len(audio))
    assert [w.text for w in one.committed] == [w.text for w in other.committed] != []
    assert one.partial == ()


def test_the_end_of_the_stream_is_decoded_even_when_nothing_could_be_said_before():
    simul = method(frame_threshold=1000)
    state = simul.start()
    audio = noise(1.5, seed=5)
    before = [simul.step(state, audio[i : i + CHUNK], last=False) for i in range(0, 24000, CHUNK)]
    assert not committed(before) and not any(update.partial for update in before)
    final = simul.step(state, audio[:0], last=True)
    assert final.committed and final.partial == ()
    assert final.committed[-1].end <= 1.5


def test_a_word_is_committed_with_its_successor_and_shown_before():
    simul = method(frame_threshold=2)
    state = simul.start()
    said = ""
    for i in range(0, 48_000, CHUNK):
        update = simul.step(state, noise(3.0, seed=1)[i : i + CHUNK], last=False)
        said += "".join(word.text for word in update.committed)
        shown = said + "".join(word.text for word in update.partial)
        whole = "".join(w.text for w in simul._whisper.detokenizer.words(state.tokens))
        assert shown.endswith(whole) and len(update.partial) <= 1
    assert said


def test_a_rewind_drops_the_new_text_and_the_next_step_may_say_it():
    simul = method(str(tiny_folder(eot_logit=-30.0)), frame_threshold=1, rewind_frames=0)
    forced = simul._whisper.prompt()
    state, _ = encoded(simul, noise(1.9, seed=4))
    found = search(simul, state, [*forced, 40], 1, last_attended=200)
    assert found == Hypothesis()
    again = search(simul, state, [*forced, 40], 1, last_attended=None)
    assert len(again.tokens) == 1


# -- truncation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "fires"),
    [
        ([0.9, 0.0, 0.0, 0.0, 0.55, 0.55], True),  # the second word ends with the clip
        ([0.9, 0.6, 0.5, 0.0, 0.0, 0.0], False),  # it has ended before
        ([0.9, 0.0, 0.0, 0.2, 0.4, 0.4], False),  # a part of it is heard
        ([0.0] * 6, False),
        ([0.3, 0.1], False),  # less than half a word
        ([0.9], False),
    ],
)
def test_the_detector_fires_when_the_last_word_ends_with_the_clip(weights, fires):
    assert fires_at_the_end(torch.tensor(weights)) is fires


class Fixed:
    """A detector that always says the same."""

    def __init__(self, answer):
        self.answer = answer

    def ends_with_a_word(self, hidden):
        assert hidden.ndim == 2
        return self.answer


def first_tokens(truncation, detector=None):
    simul = method(truncation=truncation, frame_threshold=2)
    if detector is not None:
        simul._detector, simul._truncation = detector, "cif"
    state = simul.start()
    simul.step(state, noise(1.2, seed=1), last=False)
    return state.tokens, simul._whisper


def test_never_keeps_the_last_word_and_always_drops_it_and_cif_asks_the_detector():
    kept, whisper = first_tokens("never")
    dropped, _ = first_tokens("always")
    last = whisper.detokenizer.words(kept)[-1]
    assert dropped == kept[: last.start] != kept
    assert first_tokens("never", Fixed(True))[0] == kept
    assert first_tokens("never", Fixed(False))[0] == dropped


def test_the_end_of_the_stream_is_never_truncated():
    audio = noise(1.5, seed=5)
    (never,) = fed(method(), audio, len(audio))
    (always,) = fed(method(truncation="always"), audio, len(audio))
    assert never == always and never.committed


def published(path, d_model):
    generator = torch.Generator().manual_seed(0)
    tensors = {
        "weight": torch.randn(1, d_model, generator=generator),
        "bias": torch.randn(1, generator=generator),
    }
    torch.save(tensors, path)
    return tensors


def test_a_published_one_layer_file_is_loaded_and_used(tmp_path):
    tensors = published(tmp_path / "small.pt", 32)
    detector = load_detector(tmp_path / "small.pt", 32, "cpu")
    hidden = torch.randn(7, 32, generator=torch.Generator().manual_seed(1))
    expected = torch.sigmoid(hidden @ tensors["weight"][0] + tensors["bias"])
    torch.testing.assert_close(detector(hidden), expected)
    simul = method(truncation="cif", weights=str(tmp_path / "small.pt"))
    assert fed(simul, noise(1.5, seed=1), CHUNK)[-1].partial == ()


def test_by_default_a_detector_that_is_there_is_asked_and_without_one_nothing_is_dropped(tmp_path):
    published(tmp_path / "small.pt", 32)
    with_one = method(weights=str(tmp_path / "small.pt"))
    assert with_one._truncation == "cif" and with_one._detector is not None
    assert method(weights=None)._truncation == method()._truncation == "never"
    never = method(weights=str(tmp_path / "small.pt"), truncation="never")
    assert never._detector is None


def test_a_detector_of_another_width_or_form_is_refused(tmp_path):
    published(tmp_path / "base.pt", 512)
    with pytest.raises(UserError, match=r"for a model of width 32 .*512"):
        method(truncation="cif", weights=str(tmp_path / "base.pt"))
    with pytest.raises(UserError, match=r"no detector\.safetensors there; give the folder"):
        method(truncation="cif", weights=str(tmp_path))
    torch.save({"linear1.weight": torch.ones(1, 32), "c": torch.ones(1)}, tmp_path / "two.pt")
    with pytest.raises(UserError, match="not one linear layer"):
        method(truncation="cif", weights=str(tmp_path / "two.pt"))
    (tmp_path / "text.pt").write_text("nothing")
    with pytest.raises(UserError, match="is not a plain file of tensors"):
        method(truncation="cif", weights=str(tmp_path / "text.pt"))


# -- the window ---------------------------------------------------------------------------------


class Letters:
    """Spells token 1 as " a", 2 as " b" ...; from 101 on without a space."""

    def words(self, ids, *, language=None):
        words = []
        for i, token in enumerate(ids):
            if words and token > 100:
                last = words[-1]
                words[-1] = TokenWord(last.text + chr(token - 4), last.start, i + 1)
            else:
                spelling = chr(token - 4) if token > 100 else " " + chr(96 + token)
                words.append(TokenWord(spelling, i, i + 1))
        return words


def window(seconds=0.0):
    state = SimulWhisperState(language=None, recorder=NULL, detokenizer=Letters(), cache=None)
    state.take_in(np.ones(int(16_000 * seconds), np.float32))
    return state


def test_word_times_are_right_after_any_number_of_dropped_seconds():
    state = window(2.0)
    state.slide(32_000, 32_000)
    state.add([1, 2, 3], [-1.0] * 3, [10, 40, 70])
    # A word begins where the one before ended, at most a second before its first token's frame.
    words = [(w.text, w.start, w.end) for w in state.commit(everything=False)]
    late_s = LATE_FRAMES * 0.02
    ends = [pytest.approx(frame * 0.02 - late_s) for frame in (11, 41)]
    assert words == [(" a", 0.0, ends[0]), (" b", ends[0], ends[1])]
    for _ in range(3):  # seven seconds more, in three calls that drop several chunks each
        state.take_in(np.ones(37_333, np.float32))
        state.slide(37_333, 32_000)
    assert state.window.size <= 32_000 < state.window.size + FRAME
    assert state.window_start * FRAME + state.window.size == 32_000 + 3 * 37_333
    state.add([4, 5], [-1.0] * 2, [20, 50])
    (word,) = state.commit(everything=False)
    assert word.text == " d"
    assert word.start == pytest.approx((state.window_start + 20) * 0.02 - late_s - 1.0)
    assert word.end == pytest.approx((state.window_start + 21) * 0.02 - late_s)


def test_words_whose_audio_has_gone_are_forgotten_and_committed_at_the_latest_then():
    state = window(2.0)
    state.slide(32_000, 32_000)
    state.add([1, 2, 103], [-1.0] * 3, [10, 40, 45])  # the third token goes on with the second word
    assert [w.text for w in state.commit(everything=False)] == [" a"]
    state.take_in(np.ones(8_000, np.float32))
    assert state.slide(8_000, 32_000) == []
    assert (state.tokens, state.n_committed) == ([2, 103], 0)
    state.take_in(np.ones(8_000, np.float32))
    (word,) = state.slide(8_000, 32_000)
    start, end = ((frame - LATE_FRAMES) * 0.02 for frame in (11, 46))
    assert (word.text, word.start, word.end) == (" bc", pytest.approx(start), pytest.approx(end))
    assert state.tokens == []
    state.add([104], [-1.0], [90])  # what follows is a word of its own
    assert [w.text for w in state.commit(everything=True)] == [" d"]


def test_a_stream_far_beyond_the_context_stays_in_bounds():
    simul = method(str(tiny_folder(eot_logit=-30.0)), frame_threshold=3, rewind_frames=999)
    state = simul.start()
    audio = noise(30.0, seed=6)
    words, last_start = [], 0.0
    for i in range(0, len(audio), 16_000):
        update = simul.step(state, audio[i : i + 16_000], last=i + 16_000 >= len(audio))
        words += update.committed
        assert state.window.size <= 64_000
        assert len(state.tokens) <= 64
        for word in update.committed:
            assert last_start <= word.start <= word.end <= (i + 16_000) / 16_000
            last_start = word.start
    assert words[-1].start > 25.0 and len(words) > 10
    assert all(word.text.startswith(" ") for word in words[1:])


# -- models and settings ------------------------------------------------------------------------


def test_where_words_have_no_spaces_the_last_character_is_what_is_dropped():
    simul = method(str(tiny_folder(multilingual=True)))
    state = simul.start(language="zh")
    tokens = simul._whisper.tokenizer("语音", add_special_tokens=False).input_ids
    assert len(tokens) == 6  # three bytes each
    assert state.n_kept_without_last_word(tokens) == 3
    assert state.n_kept_without_last_word(tokens[:5]) == 3  # the second one is not whole
    state.add(tokens[:4], [-1.0] * 4, [1] * 4)
    assert state.n_kept_without_last_word(tokens[4:]) == 0


def test_of_a_word_that_had_begun_only_the_new_part_is_dropped():
    state = window()
    state.add([1, 2], [-1.0] * 2, [10, 20])
    assert state.n_kept_without_last_word([103, 104]) == 0
    assert state.n_kept_without_last_word([103, 3, 104]) == 1
    assert state.n_kept_without_last_word([]) == 0


# -- training the truncation detector --


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """6 utterances by 2 voices and 2 of dev, all with word times."""
    folder = toy_corpus(tmp_path_factory.mktemp("corpus"), n=6, n_lengths=6)
    words = [["the", 0.2, 0.6], ["quick", 0.6, 1.0], ["fox", 1.1, 1.4]]
    rows = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(row | {"words": words}) + "\n" for row in rows)
    (folder / "dev.jsonl").write_text(text)
    return folder


def recipe(corpus, **options):
    options = {"batch": 4, **options}
    return TruncationRecipe(**settings_of("simul_whisper", corpus, tiny(), **options))


def test_a_word_counts_when_all_of_it_is_in_the_clip():
    spans = [(0.1, 0.4), (0.4, 0.95), (1.0, 1.302)]
    assert count_words(spans, 0, 66) == 3  # 1.302 s ends in the 66th frame
    assert count_words(spans, 0, 65) == 2
    assert count_words(spans, 0, 47) == 1
    assert count_words(spans, 5, 66) == 3
    assert count_words(spans, 6, 66) == 2


def test_a_clip_that_ends_in_a_word_cuts_it_and_one_that_ends_in_a_pause_does_not():
    spans = [(0.1, 0.4), (0.5, 0.95)]
    cut = [stop for stop in range(60) if cuts_a_word(spans, stop)]
    assert cut == [*range(7, 20), *range(27, 48)]  # one frame is too short for a word


def test_a_clip_that_ends_with_a_word_does_not_cut_the_next_one_that_begins_in_its_last_frame():
    spans = [(0.1, 0.405), (0.405, 0.95)]  # the first ends in the 21st frame, so does the clip
    assert not cuts_a_word(spans, 21)
    assert cuts_a_word(spans, 22)
    contiguous = [(0.3 * i + 0.007, 0.3 * i + 0.307) for i in range(9)]
    labels = [dev_clips(random.Random(seed), contiguous, 140) for seed in range(20)]
    assert all(len(clips) == 2 and clips[0][1] and not clips[1][1] for clips in labels)


def test_the_loss_is_that_of_the_sum_and_of_the_last_two_frames(corpus):
    trained, papers = recipe(corpus), recipe(corpus, boundary_weight=0.0)
    batch = trained.draw(0, rank=0, world=1, progress=0.0)
    with torch.no_grad():
        weights = trained._weights(trained.model, batch)
        loss, logs = trained.loss(trained.model, batch)
        sum_alone, _ = papers.loss(papers.model, batch)
    error = weights.sum(-1) - batch["n_words"]
    assert float(sum_alone) == pytest.approx(float(error.square().mean().sqrt()))
    rate = float(weights.max())  # untrained, every frame has the same weight
    expected = -np.mean([np.log(rate if whole else 1 - rate) for whole in batch["whole"]])
    assert logs["boundary"] == pytest.approx(expected, rel=1e-4)
    assert float(loss) == pytest.approx(float(sum_alone) + 3 * expected, rel=1e-4)


def test_clips_are_padded_and_weighed_as_a_stream_does(corpus):
    trained = recipe(corpus)
    torch.nn.init.normal_(trained.model.linear.weight)
    clip = noise(1.3, seed=9)[: 65 * FRAME]
    batch = trained._pack([clip, noise(2.0, seed=8)])
    whisper = load_whisper(tiny())
    padded = np.zeros((1, whisper.context_frames * FRAME), np.float32)
    padded[0, : len(clip)] = clip
    with torch.inference_mode():
        hidden = encode_padded(whisper.model, log_mel(torch.from_numpy(padded), whisper.n_mels))[0]
    weights = trained._weights(trained.model, batch)
    with torch.no_grad():
        torch.testing.assert_close(weights[0, :65], trained.model(hidden[:65]), atol=1e-5, rtol=0)
    assert not weights[0, 65:].any()


def test_half_of_the_clips_end_with_a_word(corpus):
    trained = recipe(corpus)
    spans = [(0.1 + 0.3 * j, 0.4 + 0.3 * j) for j in range(5)]
    ends = [trained._cut(random.Random(i), 90, spans)[1] for i in range(400)]
    share = np.mean([end in {20, 35, 50, 65, 80} for end in ends])
    assert 0.45 < share < 0.65
    assert min(ends) >= 15 and max(ends) <= 90


def test_dev_counts_right_decisions_and_what_is_saved_is_the_layer(corpus, tmp_path):
    trained = recipe(corpus)
    torch.nn.init.normal_(trained.model.linear.weight)
    figures = trained.evaluate()
    assert set(figures) == {"score", "whole_words_kept", "cut_words_dropped", "rmse_words"}
    assert 0 <= figures["score"] <= 100 and figures["rmse_words"] > 0
    trained.save(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"detector.safetensors", "training.json"}
    loaded = load_detector(tmp_path, 32, "cpu")
    assert torch.equal(loaded.linear.weight, trained.model.linear.weight)


def test_training_without_word_times_is_refused(corpus, tmp_path):
    row = {"audio_filepath": str(corpus / "dev0.wav"), "text": "the quick fox"}
    (tmp_path / "dev.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(UserError, match="no utterance with word times; clips are cut by them"):
        recipe(corpus, dev_manifest=str(tmp_path / "dev.jsonl"))
