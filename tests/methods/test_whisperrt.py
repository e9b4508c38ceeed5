"""WhisperRT against the paper's algorithms run naively, its contract, its options."""

from dataclasses import replace

import pytest
import torch
from oracle import oracle
from tiny import noise, tiny_folder

from streaming_asr.chunking import Schedule
from streaming_asr.config.build import new_method
from streaming_asr.corpora import Mini
from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE
from streaming_asr.methods.whisperrt.beam import _Branch, _without_loops, decode_beam
from streaming_asr.methods.whisperrt.hypothesis import Audio, DecodingSettings, WindowHypothesis
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.streaming import load_method, stream
from streaming_asr.whisper.encoder import encode_masked
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.guard import unsupported
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.seam import Seam

MODELS = [
    {"seed": 7, "eot_logit": 3.0, "max_tokens": 256},
    {"seed": 0, "eot_logit": 4.0, "max_tokens": 256},
    {"seed": 4, "eot_logit": 3.0, "max_tokens": 256},
]


def method(model=MODELS[0], **options):
    options = {"chunk_s": 0.1, "first_chunk_s": 0.2, **options}
    streaming = new_method("whisperrt", str(tiny_folder(**model)), **options)
    streaming._settings = replace(streaming._settings, max_new=3)  # a random model seldom ends
    return streaming


def feed(audio, chunk_s=0.1, first_chunk_s=0.2):
    """Pieces as the simulator delivers them, with their `last`."""
    chunk, first = round(chunk_s * 16_000), round(first_chunk_s * 16_000)
    ends = [*Schedule(chunk, first, 200).ends(len(audio))]
    for a, b in zip([0, *ends], ends, strict=False):
        yield audio[a:b], b == len(audio)


def run(streaming, audio, state=None, **schedule):
    """All updates of a stream, and after each step the tokens of the best hypothesis."""
    state = state or streaming.start()
    updates, tokens = [], []
    for piece, last in feed(audio, **schedule):
        updates.append(streaming.step(state, piece, last=last))
        tokens.append(list(state.hypotheses[0].tokens))
    return updates, tokens


def text(words):
    return [word.text for word in words]


def committed(updates):
    return [word.text for update in updates for word in update.committed]


class Naive:
    """Everything from scratch for every token, by transformers: the reference to be equal to."""

    def __init__(self, model, audio):
        self.whisper = load_whisper(tiny_folder(**model))
        self.oracle = oracle(self.whisper)
        n_frames = -(-len(audio) // 320)
        self.ends = [10, *range(15, n_frames + 5, 5)]
        self.audio = torch.from_numpy(audio)

    def chunks(self):
        for k in range(1, len(self.ends) + 1):
            mel = log_mel(self.audio[None], self.whisper.n_mels, block_ends=self.ends[:k])
            with torch.inference_mode():
                yield encode_masked(self.whisper.model, mel, ends=self.ends[:k])

    def log_probs(self, hidden, tokens):
        """Of every text position, the next one included: (len(tokens) + 1, vocabulary)."""
        prompt = self.whisper.prompt()
        with torch.inference_mode():
            ids = torch.tensor([[*prompt, *tokens]])
            logits = self.oracle(encoder_outputs=(hidden,), decoder_input_ids=ids).logits[0]
        return (logits[len(prompt) - 1 :] + self.whisper.suppressed).log_softmax(-1)

    def greedy(self, n, max_new, stable):
        """Tokens after every chunk by Definition 1 and Algorithm 1, and how often it cropped."""
        eot, tokens, before, floor, n_crops = self.whisper.eot, [], None, 0, 0
        for hidden in self.chunks():
            now = self.log_probs(hidden, tokens)
            for i in range(max(floor, len(tokens) - n, 0), len(tokens)):
                v = tokens[i]
                if now[i, v] < before[i, v] and now[i].argmax() != v:
                    tokens = tokens[:i]
                    n_crops += 1
                    break
            for _ in range(max_new):
                best = int(self.log_probs(hidden, tokens)[-1].argmax())
                if best == eot:
                    break
                tokens = [*tokens, best]
            before = self.log_probs(hidden, tokens)
            if stable:
                floor = max(floor, len(tokens) - n)
            yield list(tokens), n_crops

    def beam(self, n, b, max_new):
        """The hypotheses after every chunk by Definition 3 and Algorithm 2, nothing committed.

        With the last chunk the search goes on until every hypothesis has ended.
        """
        eot, beams, before = self.whisper.eot, [[]], {}
        for k, hidden in enumerate(self.chunks(), start=1):
            ended = []
            for turn in range(max_new):
                candidates = {}
                for tokens in beams:
                    now = self.log_probs(hidden, tokens)
                    stop = len(tokens)
                    if turn == 0:
                        for i in range(max(len(tokens) - n, 0), len(tokens)):
                            v = tokens[i]
                            old = before[tuple(tokens)][i]
                            if v not in now[i].topk(b).indices or now[i, v] < old:
                                stop = i
                                break
                    score = sum(float(now[i, tokens[i]]) for i in range(stop))
                    for v in now[stop].topk(b).indices.tolist():
                        candidates[(*tokens[:stop], v)] = score + float(now[stop, v])
                new = [c for c in candidates if list(c) not in ended]
                ranked = sorted(new, key=candidates.__getitem__, reverse=True)
                kept = ranked[: b - len(ended)]
                if k == len(self.ends):
                    ended += [list(c) for c in kept if c[-1] == eot]
                    kept = [c for c in kept if c[-1] != eot]
                beams = [list(c) for c in kept]
                if not kept or any(c[-1] == eot for c in kept):
                    break
            beams = ended or beams
            texts = [tuple(t for t in beam if t != eot) for beam in beams]
            yield texts
            beams = [list(text) for text in texts]
            before = {}
            for t in texts:
                now = self.log_probs(hidden, list(t))
                before[t] = [float(now[i, v]) for i, v in enumerate(t)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("n", "commit"), [(2, "stable"), (2, "paper"), (5, "paper"), (0, "paper")])
def test_greedy_equals_the_papers_algorithm_run_naively(model, n, commit):
    audio = noise(2.5, 1)
    _, tokens = run(method(model, n=n, commit=commit), audio)
    reference = list(Naive(model, audio).greedy(n, 3, commit == "stable"))
    assert tokens == [expected for expected, _ in reference[: len(tokens)]]
    assert len(reference) == len(tokens)
    assert len(tokens[-1]) > 3
    if n:
        assert reference[-1][1] > 0


def test_the_papers_commitment_takes_words_back_and_counts_them():
    total = 0
    for model in MODELS:
        updates, _ = run(method(model, commit="paper"), noise(4.0, 1))
        kept = []
        for update in updates:
            if update.retracted:
                assert update.retracted <= len(kept)
                del kept[-update.retracted :]
            kept += text(update.committed)
            total += update.retracted
    assert total > 0


def test_a_step_reports_its_frames_and_parts():
    streaming, recorder = method(), StepRecorder()
    run(streaming, noise(1.03, 1), streaming.start(recorder=recorder))
    parts, counts = recorder.drain()
    assert counts["frames_real"] == 52  # 1.03 s
    assert counts["frames_computed"] == 55  # whole blocks of 0.1 s
    assert counts["encoder_flops"] > 0
    assert counts["decode_steps"] == counts["beam_sum"] >= 10
    assert set(parts) == {"feature", "encode", "decode", "policy", "finalise"}


# ---- beam -----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("b", [2, 3])
def test_beam_equals_the_papers_algorithm_run_naively(model, b):
    audio = noise(1.5, 1)
    streaming = method(model, beam=b, commit="paper")
    state = streaming.start()
    reference = Naive(model, audio).beam(2, b, 3)
    for (piece, last), texts in zip(feed(audio), reference, strict=True):
        streaming.step(state, piece, last=last)
        assert sorted(tuple(h.tokens) for h in state.hypotheses) == sorted(texts)
    assert len(state.hypotheses[0].tokens) > 1


class Table:
    """A decoder and its cache in one: log-probabilities are read off a table, by the text so far.

    Token 0 is the end, and the prompt one token long.
    """

    max_tokens = 99

    def __init__(self, table):
        self.table = {text: torch.tensor(row) for text, row in table.items()}
        self.rows = []

    def run(self, cache, sequences, starts, n_frames, *, take=None):
        before = [
            row[:start] for row, start in zip(self.rows or [[]] * len(starts), starts, strict=True)
        ]
        self.rows = [[*row, *fed] for row, fed in zip(before, sequences, strict=True)]
        take = take or [[0]] * len(sequences)
        found = [
            torch.stack([self.table[tuple(row[1 : start + i + 1])] for i in positions])
            for row, start, positions in zip(self.rows, starts, take, strict=True)
        ]
        return torch.nn.utils.rnn.pad_sequence(found, batch_first=True)

    def reorder(self, parents, n_tokens):
        self.rows = [self.rows[parent] for parent in parents]

    def log_probs(self, hidden):
        return hidden


def decoded(table, beams, last, **settings):
    decoder = Table(table)
    settings = DecodingSettings(decoder, 0, max_new=9, beam=2, **settings)
    floor = 0 if settings.n else len(beams[0].tokens)
    return decode_beam(
        settings, decoder, beams, [9], floor, Audio(10, 10, 1), NULL, raise_floor=False, last=last
    )


def searched(*args, **settings):
    return [tuple(h.tokens) for h in decoded(*args, **settings)]


@pytest.mark.parametrize("shared", [(), (3, 3, 3)])
def test_the_most_probable_hypothesis_wins_whatever_stands_before(shared):
    """1 and its end have -1.6 in two tokens; 2 3 3 and its end -1.8 in four, the better mean."""
    table = {
        (): [-6.0, -0.7, -0.9, -5.0],
        (1,): [-0.9, -3.0, -3.0, -3.0],
        (2,): [-5.0, -5.0, -5.0, -0.3],
        (2, 3): [-5.0, -5.0, -5.0, -0.3],
        (2, 3, 3): [-0.3, -5.0, -5.0, -5.0],
    }
    table = {(*shared, *text): row for text, row in table.items()}
    before = WindowHypothesis(list(shared), [-0.1] * len(shared), [0] * len(shared))
    found = searched(table, [before], True, n=0)
    assert found == [(*shared, 1), (*shared, 2, 3, 3)]


def test_a_token_whose_probability_fell_is_unstable_however_little():
    table = {
        (): [-9.0, -0.500001, -0.9, -9.0],
        (1,): [-0.1, -9.0, -3.0, -9.0],
        (2,): [-0.1, -9.0, -9.0, -9.0],
    }
    before = WindowHypothesis([1], [-0.5], [0])
    assert searched(table, [before], False, n=1) == [(1,), (2,)]


def test_a_hypothesis_that_loops_is_left_out_and_the_last_ends_before_its_copy():
    settings = DecodingSettings(None, 0, n=0, max_new=9, beam=2, guard=unsupported)
    audio = Audio(n_frames=1000, end=1000, n_new=1000)

    def branch(token, *before, since=0):
        n = len(before)
        before = WindowHypothesis(list(before), [-0.5] * n, [1000] * n, [since] * n)
        return _Branch(0, before, -1.0, token, -0.5)

    loops, goes_on, ends = branch(1, 2, 1, 1, 1), branch(2, 2, 1, 1, 1), branch(0, 2, 1, 1, 1)
    assert _without_loops(settings, [loops, goes_on, ends], [], 1, 0, audio) == [goes_on, ends]
    (cut,) = _without_loops(settings, [loops, loops], [], 1, 0, audio)
    # Its score lacks the copy: -1.0 for 2 1 1 1, where loops has -1.5 with the fourth 1.
    assert (cut.token, cut.prefix.tokens, cut.total) == (0, [2, 1, 1, 1], -1.0)
    assert _without_loops(settings, [loops], [ends], 1, 0, audio) == []  # its text has ended
    # Three tokens need 24 frames since the first of them can have been spoken.
    for since, token in ((977, 0), (976, 1)):
        (one,) = _without_loops(settings, [branch(1, 2, 1, 1, since=since)], [], 1, 0, audio)
        assert (one.token, one.prefix.tokens) == (token, [2, 1, 1])
    (cut,) = _without_loops(settings, [loops], [], 1, 5, audio)  # committed: all of it stays
    assert (cut.token, cut.prefix.tokens) == (1, [2, 1, 1, 1])


def test_a_text_that_has_ended_is_not_found_again():
    """1 2 ends at once; 1, a hypothesis too, comes to the same end a pass later."""
    table = {
        (): [-9.0, -0.2, -9.0, -9.0],
        (1,): [-3.0, -9.0, -0.3, -0.9],
        (1, 2): [-0.1, -9.0, -9.0, -5.0],
        (1, 2, 3): [-0.1, -9.0, -9.0, -9.0],
    }
    beams = [WindowHypothesis([1, 2], [-1.0] * 2, [0] * 2), WindowHypothesis([1], [-1.0], [0])]
    assert searched(table, beams, True, n=1) == [(1, 2), (1, 2, 3)]


def test_what_a_crop_makes_the_last_token_has_its_probability_under_this_audio():
    """3 fell and goes, so that the next chunk verifies 2: against -0.4, and not against -0.2."""
    table = {
        (1,): [-9.0, -9.0, -0.4, -9.0],
        (1, 2): [-0.1, -9.0, -9.0, -0.9],
        (1, 2, 3): [-0.1, -9.0, -9.0, -9.0],
    }
    best, _ = decoded(table, [WindowHypothesis([1, 2, 3], [-0.3, -0.2, -0.5], [0] * 3)], False, n=1)
    assert best.tokens == [1, 2]
    assert best.log_probs == pytest.approx([-0.3, -0.4])


def test_a_beam_of_one_is_greedy():
    audio = noise(2.0, 1)
    assert run(method(beam=1), audio) == run(method(beam=0), audio)


def test_the_search_pauses_when_any_hypothesis_predicts_the_end():
    model = {"seed": 7, "eot_logit": 30.0, "max_tokens": 256}
    streaming, recorder = method(model, beam=3), StepRecorder()
    run(streaming, noise(0.5, 1), streaming.start(recorder=recorder))
    assert recorder.drain()[1]["decode_steps"] == 4 + 1  # the other two end as well


# ---- the decoder's self-attention cache -----------------------------------------------------


@pytest.mark.parametrize("beam", [0, 3])
def test_the_self_attention_cache_holds_the_tokens_it_says_after_crops(beam):
    """Its cached keys of the first layer depend on tokens and positions alone: check them."""
    streaming = method(MODELS[2], decoder_cache=True, commit="paper", beam=beam)
    state = streaming.start()
    decoder = streaming._decoder
    layer = decoder.layers[0]
    n_crops, before = 0, []
    for piece, last in feed(noise(3.0, 1)):
        streaming.step(state, piece, last=last)
        tokens = state.hypotheses[0].tokens
        n_crops += tokens[: len(before)] != before
        before = list(tokens)
        if last:  # the cache is of no more use
            break
        for row, hypothesis in enumerate(state.hypotheses):
            sequence = [*state.prompt, *hypothesis.tokens]
            assert hypothesis.filled <= len(sequence)
            ids = torch.tensor(sequence[: hypothesis.filled])
            x = decoder.embedding[ids] + decoder.positions[: len(ids)]
            keys = layer.self_attn.k_proj(layer.self_attn_layer_norm(x))
            kept = state.cache.keys[0][row, :, : len(ids)].transpose(0, 1).flatten(1)
            torch.testing.assert_close(kept, keys, atol=1e-5, rtol=0)
    assert n_crops > 2


def test_with_nothing_new_heard_the_cache_is_exact():
    """Where the audio is one block, cached and recomputed passes see the same."""
    audio = noise(1.0, 1)
    schedule = {"chunk_s": 1.0, "first_chunk_s": 1.0}
    cached = run(method(decoder_cache=True, **schedule), audio, **schedule)
    assert cached == run(method(**schedule), audio, **schedule)


# ---- beyond the context ---------------------------------------------------------------------


def test_the_window_is_cut_after_the_last_old_enough_committed_word():
    seam = Seam.of(750, 15, 30)
    assert (seam.limit, seam.age, seam.keep) == (650, 50, 250)
    # Words end at 3, 11, 12.5 s; committed are two; heard 13 s.
    assert seam.cut([3.0, 11.0, 12.5], 2, 650, 15) == (550, 2)
    assert seam.cut([3.0, 11.0, 12.5], 3, 650, 15) == (550, 2)
    # Where none is old enough, or none is there, the last five seconds stay.
    assert seam.cut([12.5], 1, 650, 15) == (400, 0)
    assert seam.cut([], 0, 650, 15) == (400, 0)
    # Cutting after a word of 0.1 s would leave no room: what ended before the five seconds goes.
    assert seam.cut([0.1, 8.1], 1, 650, 15) == (400, 1)
    assert seam.cut([0.1, 7.9], 1, 650, 15) == (400, 2)


def test_a_chunk_too_long_for_the_context_is_refused():
    with pytest.raises(UserError, match="at most 8 s"):
        Seam.of(750, 401, 401)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("beam", [0, 2])
def test_audio_beyond_the_context_keeps_every_committed_word(model, beam):
    streaming = method(model, beam=beam)
    state = streaming.start()
    updates, starts, kept = [], set(), []
    for piece, last in feed(noise(14.0, 1)):
        updates.append(streaming.step(state, piece, last=last))
        kept += text(updates[-1].committed)
        # What is committed and still in the window is the head of the window's text.
        words = [word.text for word in streaming._words.spell(state)]
        assert words[: len(state.emitted)] == state.emitted
        assert kept[len(kept) - len(state.emitted) :] == state.emitted
        assert state.position <= streaming._seam.limit
        starts.add(state.window_start)
    assert len(starts) > 3
    assert updates[-1].partial == () and all(u.retracted == 0 for u in updates)
    assert all(word.startswith(" ") for word in kept[1:])


def test_after_a_cut_the_encoder_equals_one_masked_pass_over_the_kept_frames():
    streaming = method()
    state = streaming.start()
    audio = noise(6.0, 1)
    mel_frames = {}
    for piece, last in feed(audio):
        streaming.step(state, piece, last=last)
        seen = state.mel[:, : state.n_mel]
        for m in range(state.n_mel):
            absolute = 2 * state.window_start + m
            if absolute in mel_frames:
                assert torch.equal(seen[:, m], mel_frames[absolute])
            mel_frames[absolute] = seen[:, m].clone()
    assert state.window_start > 0
    with torch.inference_mode():
        hidden = encode_masked(
            streaming._whisper.model,
            state.mel[None, :, : 2 * state.position + 1],
            ends=state.block_ends,
        )
        attention = streaming._decoder.layers[-1].encoder_attn
        keys = attention.k_proj(hidden)[0]
    kept = state.cache.cross_keys[-1][0, :, : state.position].transpose(0, 1).flatten(1)
    torch.testing.assert_close(kept, keys, atol=1e-5, rtol=0)


def test_a_delivery_of_many_chunks_encodes_the_same_blocks_and_frames():
    streaming, audio = method(), noise(14.0, 1)
    state, one_by_one = (streaming.start(recorder=StepRecorder()) for _ in range(2))
    run(streaming, audio, one_by_one)
    update = streaming.step(state, audio[:9000], last=False)
    assert state.block_ends == [10, 15, 20, 25]
    counts = state.recorder.drain()[1]
    assert counts["frames_computed"] == 25
    assert update.retracted == 0
    # All the rest at once: more than the context holds, so windows are cut on the way.
    update = streaming.step(state, audio[9000:], last=True)
    assert state.window_start > 400 and update.partial == ()
    n_frames = counts["frames_real"] + state.recorder.drain()[1]["frames_real"]
    assert n_frames == one_by_one.recorder.drain()[1]["frames_real"] == 700


def test_a_delivery_of_many_chunks_may_have_as_many_tokens_as_they_have():
    settings = DecodingSettings(Table({}), 0, n=2, max_new=9, chunk_frames=5)
    assert settings.max_passes(Audio(5, 5, 5, n_chunks=1)) == 9
    assert settings.max_passes(Audio(20, 20, 20, n_chunks=4)) == 36
    assert settings.max_passes(Audio(100, 100, 100, n_chunks=20)) == 99 // 2
    # Its first word may have been spoken at its start.
    assert settings.spoken_from(Audio(100, 130, 100, n_chunks=20)) == 30
    assert settings.spoken_from(Audio(100, 130, 2, n_chunks=1)) == 125


@pytest.mark.parametrize("beam", [0, 2])
def test_all_the_text_of_a_late_delivery_is_taken(beam):
    """A model that never ends its text gives three tokens a chunk, however the chunks come."""
    streaming = method({"seed": 7, "eot_logit": -99.0, "max_tokens": 256}, beam=beam)
    audio = noise(2.0, 1)
    for n_chunks in (1, 4, 8):
        state = streaming.start()
        streaming.step(state, audio[: 3200 + 200 + (n_chunks - 1) * 1600], last=False)
        assert len(state.hypotheses[0].tokens) == 3 * n_chunks


def test_word_times_by_alignment_change_neither_text_nor_steps():
    """Neither with a beam nor with a decoder cache that holds older tokens."""
    clip = Mini().utterances()[0].load()
    for options in ({}, {"beam": 3}, {"decoder_cache": True}):
        updates = {}
        for word_times in (None, "chunk", "alignment"):
            method = load_method(
                "whisperrt", model="mini", chunk="1s", word_times=word_times, **options
            )
            updates[word_times] = list(stream(method, clip, SAMPLE_RATE, chunk="1s"))
        assert updates[None] == updates["chunk"]
        texts = [
            [[(word.text, word.probability) for word in u.committed] for u in updates[kind]]
            for kind in ("chunk", "alignment")
        ]
        assert texts[0] == texts[1]
        words = [word for update in updates["alignment"] for word in update.committed]
        assert len(words) > 3 and all(word.end - word.start > 0.019 for word in words)
        edges = [edge for word in words for edge in (word.start, word.end)]
        assert edges == sorted(edges)
        in_chunks = [word for update in updates["chunk"] for word in update.committed]
        assert sum(word.start == word.end for word in in_chunks) > len(words) / 2
    with pytest.raises(UserError, match="word_times='ctc': one of chunk, alignment"):
        load_method("whisperrt", model="mini", chunk="1s", word_times="ctc")
