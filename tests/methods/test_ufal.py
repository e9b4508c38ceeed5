"""UFAL's online policy on a recogniser that reads its words off the samples, and its backends."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from ct2 import converted as ct2_folder
from tiny import fed, noise, tiny_folder
from transformers import WhisperForConditionalGeneration

from streaming_asr.config.build import new_method
from streaming_asr.corpora import MINI
from streaming_asr.method import NULL, SAMPLE_RATE, Recorder, Samples, Word
from streaming_asr.methods.ufal import convert, stream
from streaming_asr.models.find import find
from streaming_asr.simulate.recorder import StepRecorder
from streaming_asr.text.numerals import readings, spoken
from streaming_asr.whisper.agreement import LocalAgreement, key, n_repeated, words_after
from streaming_asr.whisper.online import OnlineBuffer, OnlinePolicy
from streaming_asr.whisper.recogniser import BufferTranscript, sentence_ends_s
from streaming_asr.whisper.vad import BLOCK_SAMPLES, Silero

WORD_S = 0.5
HEARD_S = 0.3  # of a word, from when on it is recognised
SCALE = 0.001


def sound(words):
    """Half a second each; word i > 0 sounds as i thousandths, 0 is silence."""
    levels = np.asarray(words, np.float32) * SCALE
    return np.repeat(levels, round(WORD_S * SAMPLE_RATE)).astype(np.float32)


def spell(i):
    """A word of its own for every number."""
    return " w" + "".join("abcdefghij"[int(digit)] for digit in str(i))


def sentence(words):
    return "".join(spell(i) for i in words if i).strip()


@dataclass
class Reader:
    """Reads words off the samples, `spelled` as the number and the round say."""

    spelled: Callable[[int, int], str] = lambda i, round_: spell(i)
    words_per_segment: int = 8
    context_s: float = 30.0
    heard: list[tuple[int, str | None]] = field(default_factory=list)
    """Samples and prompt of each round."""

    def check_language(self, language: str | None) -> None:
        pass

    def transcribe(
        self, audio: Samples, *, prompt: str | None, language: str | None, recorder: Recorder
    ) -> BufferTranscript:
        self.heard.append((audio.size, prompt))
        levels = np.rint(audio / SCALE).astype(int)
        borders = [0, *(np.flatnonzero(np.diff(levels)) + 1), len(levels)]
        words = [
            Word(self.spelled(int(levels[a]), len(self.heard)), a / SAMPLE_RATE, b / SAMPLE_RATE)
            for a, b in pairwise(borders)
            if b - a >= HEARD_S * SAMPLE_RATE and levels[a] > 0
        ]
        ends = [w.end for w in words[self.words_per_segment - 1 :: self.words_per_segment] if w.end]
        if words and words[-1].end and words[-1].end not in ends:
            ends.append(words[-1].end)
        return BufferTranscript(tuple(words), tuple(ends))


def method_of(monkeypatch, reader, **options):
    """The method with `reader` in the place of Whisper."""
    monkeypatch.setattr(stream.Ufal, "_load_recogniser", lambda method: reader)
    return new_method("ufal", "", **{"chunk_s": 0.6, "first_chunk_s": 0.6} | options)


def feed(method, audio, chunk_s=0.6):
    return fed(method, audio, round(chunk_s * SAMPLE_RATE))


def committed(updates):
    return "".join(word.text for update in updates for word in update.committed).strip()


# ---- buffer, trimming, prompt ---------------------------------------------------------------


@pytest.mark.parametrize("chunk_s", [0.2, 0.6, 3.0])
def test_all_that_is_said_is_committed_once(monkeypatch, chunk_s):
    words = [*range(1, 30), 0, *range(30, 80)]
    dot = lambda i, _: spell(i) + ("." if i % 7 == 0 else "")  # noqa: E731
    method = method_of(monkeypatch, Reader(dot), chunk_s=chunk_s, first_chunk_s=chunk_s)
    updates = feed(method, sound(words), chunk_s)
    assert committed(updates).replace(".", "") == sentence(words)
    assert updates[-1].partial == ()


def test_word_times_count_from_the_start_of_the_stream(monkeypatch):
    words = range(1, 101)
    method = method_of(monkeypatch, Reader(), trim_s=4.0)
    found = [w for update in feed(method, sound(words)) for w in update.committed]
    assert len(found) == 100
    for i, word in enumerate(found):
        assert word.start == pytest.approx(i * WORD_S, abs=1e-3)
        assert word.end is not None and i * WORD_S < word.end <= (i + 1) * WORD_S + 1e-3


def test_the_unconfirmed_tail_is_shown(monkeypatch):
    method = method_of(monkeypatch, Reader(), chunk_s=0.5, first_chunk_s=0.5)
    first, second, third = feed(method, sound([1, 2, 3]), 0.5)
    assert first.committed == () and [w.text for w in first.partial] == [spell(1)]
    assert [w.text for w in second.committed] == [spell(1)]
    assert [w.text for w in second.partial] == [spell(2)]
    assert [w.text for w in third.committed] == [spell(2), spell(3)] and third.partial == ()


def test_a_buffer_of_one_segment_is_trimmed_too(monkeypatch):
    words, reader = range(1, 121), Reader(words_per_segment=1000)  # a minute
    assert committed(feed(method_of(monkeypatch, reader), sound(words))) == sentence(words)
    assert max(n for n, _ in reader.heard) / SAMPLE_RATE <= 15.0 + 0.6


@pytest.mark.parametrize("context_s", [30.0, 15.0, 4.0])
def test_a_buffer_in_which_nothing_is_ever_agreed_stays_inside_the_context(monkeypatch, context_s):
    never = lambda i, r: f"{spell(i)}{r % 7}"  # noqa: E731
    reader = Reader(never, words_per_segment=1000, context_s=context_s)
    updates = feed(method_of(monkeypatch, reader), sound(range(1, 101)))
    assert max(n for n, _ in reader.heard) <= (0.8 * context_s + 0.6) * SAMPLE_RATE
    spelled = [word[:-1] for word in committed(updates).split()]
    assert spelled == sentence(range(1, 101)).split()


@pytest.mark.parametrize("words", [[0] * 1200, [*range(1, 600), *range(1, 600)]])
def test_ten_minutes_take_no_more_memory_than_one(monkeypatch, words):
    reader = Reader()
    method = method_of(monkeypatch, reader, chunk_s=5.0, first_chunk_s=5.0)
    state = method.start()
    audio = sound(words)
    for begin in range(0, len(audio), 5 * SAMPLE_RATE):
        method.step(state, audio[begin : begin + 5 * SAMPLE_RATE], last=False)
        buffer = state.buffer
        assert buffer.audio.size <= 24 * SAMPLE_RATE and buffer.audio.base is None
        assert len(buffer._committed) <= 250 and len(buffer._agreement.committed) <= 60


def test_the_prompt_is_text_whose_audio_is_gone_two_hundred_characters_of_it(monkeypatch):
    reader = Reader()
    feed(method_of(monkeypatch, reader), sound(range(1, 201)))
    assert reader.heard[0][1] is None
    assert all(prompt is None for n, prompt in reader.heard[:20])
    n, prompt = reader.heard[-1]
    assert prompt is not None
    gone = sentence(range(1, 201 - n // 8000))
    assert gone.endswith(prompt.strip())
    # A word's length counts with one more; the word that reaches 200 is the last one taken.
    counted = sum(len(" " + word) + 1 for word in prompt.split())
    assert 200 <= counted < 200 + 7


def test_the_last_committed_word_is_in_the_prompt():
    buffer = OnlineBuffer(Reader(), OnlinePolicy(2, 0.9, 30.0), None, NULL)
    buffer.insert(sound([1, 2]))
    buffer.process()
    buffer.process()
    buffer._cut(1.0)
    assert buffer.prompt() == " wb wc"


def test_the_end_of_the_stream_is_heard(monkeypatch):
    words = [1, 2, 3, 4]
    audio = sound(words)[: -round(0.1 * SAMPLE_RATE)]
    assert committed(feed(method_of(monkeypatch, Reader()), audio)) == sentence(words)
    state = (method := method_of(monkeypatch, Reader())).start()
    method.step(state, audio, last=False)
    ended = method.step(state, np.zeros(0, np.float32), last=True)
    assert committed([ended]) == sentence(words)


def test_a_late_delivery_is_heard_in_one_round(monkeypatch):
    reader = Reader()
    method = method_of(monkeypatch, reader)
    state = method.start()
    for n in (4000, 40_000, 9599, 1):
        method.step(state, np.zeros(n, np.float32), last=False)
    assert [n for n, _ in reader.heard] == [44_000, 53_600]


def test_the_first_word_after_a_cut_gets_the_space_it_lacks(monkeypatch):
    first = {"n": -1}

    def bare(i, round_):  # the first word of a round has no space before it
        is_first, first["n"] = first["n"] != round_, round_
        return spell(i).strip() if is_first else spell(i)

    updates = feed(method_of(monkeypatch, Reader(bare), trim_s=3.0), sound(range(1, 41)))
    assert committed(updates) == sentence(range(1, 41))


def test_pieces_of_a_word_are_one_word(monkeypatch):
    def pieces(i, round_):  # " 5" and ":43" are pieces of one word
        return spell(i) if i % 2 else ":" + spell(i).strip()

    updates = feed(method_of(monkeypatch, Reader(pieces)), sound(range(1, 21)))
    words = [word for update in updates for word in update.committed]
    assert len(words) == 10
    assert "".join(w.text for w in words) == "".join(pieces(i, 0) for i in range(1, 21))
    joined = BufferTranscript(
        (Word(" 5", 1.0, 1.2, 0.9), Word(":43", 1.2, 1.9, 0.4), Word(" a", 2, 3))
    )
    assert joined.in_whole_words("en").words == (Word(" 5:43", 1.0, 1.9, 0.4), Word(" a", 2, 3))
    assert joined.in_whole_words("ja") == joined


def test_sentences_end_at_their_signs_and_with_the_text():
    words = [Word(" a.", 0, 1), Word(" b", 1, 2), Word(' c?"', 2, 3), Word(" d", 3, 4)]
    assert sentence_ends_s(words) == (1, 3, 4)


def test_silero_block_by_block_equals_the_whole_recording():
    from silero_vad import load_silero_vad

    audio = noise(2.0, seed=4)
    audio = audio[: len(audio) // BLOCK_SAMPLES * BLOCK_SAMPLES]
    whole = load_silero_vad(onnx=True).audio_forward(torch.from_numpy(audio), SAMPLE_RATE)
    wanted = np.ravel(whole.numpy())
    probability = Silero().stream()
    got = [probability(block) for block in audio.reshape(-1, BLOCK_SAMPLES)]
    np.testing.assert_allclose(got, wanted, atol=1e-4)


# ---- backends -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("ctranslate2"))


BACKENDS = ["faster_whisper", "torch"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_backends_answer_for_any_length_and_a_prompt_longer_than_the_context(backend, cache):
    method = new_method("ufal", str(tiny_folder()), backend=backend, cache=cache, beam=2)
    audio = noise(4.5, seed=2)  # the model's context is 4 s
    for n in (0, 1, 319, 400, len(audio)):
        found = method._recogniser.transcribe(
            audio[:n], prompt="the quick brown fox " * 100, language=None, recorder=NULL
        )
        assert n >= 320 or found == BufferTranscript()
        for word in found.words:
            assert word.start is not None and word.end is not None and word.probability is not None
            assert 0 <= word.start <= word.end


def test_a_model_is_converted_once_and_again_when_it_changes(tmp_path, monkeypatch):
    made = []

    def fake(model, target):
        made.append(model.folder)
        shutil.copytree(ct2_folder(), target)

    monkeypatch.setattr(convert, "convert", fake)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "whisper"}')
    first = convert.converted(find(model), tmp_path / "cache")
    assert convert.converted(find(model), tmp_path / "cache") == first and len(made) == 1
    (model / "config.json").write_text('{"model_type":  "whisper"}')
    assert convert.converted(find(model), tmp_path / "cache") != first and len(made) == 2


def words_of(folder, cache, audio):
    method = new_method("ufal", str(folder), backend="faster_whisper", cache=cache, beam=2)
    options = {"prompt": None, "language": None, "recorder": NULL}
    return method._recogniser.transcribe(audio, **options).words


def test_faster_whisper_suppresses_what_the_model_names(cache, tmp_path, monkeypatch):
    from faster_whisper import WhisperModel

    asked = []

    def spy(self, audio, **options):
        asked.append(options["suppress_tokens"])
        return iter(()), None

    monkeypatch.setattr(WhisperModel, "transcribe", spy)
    named = tiny_folder(seed=3)
    for tokens in ([5, 6], []):
        folder = tmp_path / f"names-{len(tokens)}"
        shutil.copytree(named, folder)
        settings = json.loads((folder / "generation_config.json").read_text())
        settings["suppress_tokens"] = tokens
        (folder / "generation_config.json").write_text(json.dumps(settings))
        words_of(folder, cache, noise(1.0, seed=1))
    settings.pop("suppress_tokens")
    (folder / "generation_config.json").write_text(json.dumps(settings))
    words_of(folder, cache, noise(1.0, seed=1))
    assert asked == [[5, 6], [], [-1]]


def test_faster_whisper_is_prompted_for_no_timestamps_where_the_model_has_none(
    cache, tmp_path, monkeypatch
):
    from streaming_asr.methods.ufal.faster import Model

    model = WhisperForConditionalGeneration.from_pretrained(tiny_folder())
    shutil.copytree(tiny_folder(), tmp_path / "model")
    model.resize_token_embeddings(model.generation_config.no_timestamps_token_id + 1)
    model.save_pretrained(tmp_path / "model")
    asked = []
    search = Model.generate_with_fallback

    def spy(self, encoded, prompt, *rest):
        asked.append(prompt)
        return search(self, encoded, prompt, *rest)

    monkeypatch.setattr(Model, "generate_with_fallback", spy)
    audio = noise(2.0, seed=1)
    without = words_of(tmp_path / "model", cache, audio)
    words_of(tiny_folder(), cache, audio)
    no_timestamps = model.generation_config.no_timestamps_token_id
    assert without and asked[0][-1] == no_timestamps
    assert no_timestamps not in asked[-1]


def test_a_round_of_silence_is_one_window_however_long(cache):
    """Of silence mini says a timestamp alone, behind which faster-whisper goes on."""
    method = new_method("ufal", str(MINI / "model"), cache=cache)
    state = method.start(recorder=StepRecorder())
    for seconds in range(1, 7):
        update = method.step(state, np.zeros(SAMPLE_RATE, np.float32), last=False)
        _, counts = state.recorder.drain()
        assert update.committed == update.partial == ()
        assert counts["frames_computed"] == 750 and counts["decode_steps"] < 10
        assert counts["frames_real"] == 50 * seconds


@pytest.mark.parametrize(
    ("no_speech", "compression", "n_kept"), [(0.8, 10.0, 0), (0.3, 10.0, 9), (0.8, 1.5, 9)]
)
def test_a_phrase_said_without_end_into_silence_is_no_text(
    monkeypatch, cache, no_speech, compression, n_kept
):
    """tiny.en ended two of 60 prompts so, in a window of the 0.3 s after the last timestamp."""
    from streaming_asr.methods.ufal import faster

    model = faster.FasterWhisper(str(tiny_folder()), cache=cache).model
    said = SimpleNamespace(sequences_ids=[[5, 6, 7] * 3], no_speech_prob=no_speech)
    monkeypatch.setattr(
        faster.WhisperModel, "generate_with_fallback", lambda *_: (said, -0.2, 0.0, compression)
    )
    options = SimpleNamespace(beam_size=5, compression_ratio_threshold=2.4, no_speech_threshold=0.6)
    tokenizer = SimpleNamespace(timestamp_begin=100)
    result, *rest = model.generate_with_fallback(None, [], tokenizer, options)
    assert len(result.sequences_ids[0]) == n_kept and rest == [-0.2, 0.0, compression]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("no no no no no I said", "no no no I said"),
        ("one two three four five " * 3 + "six", "one two three four five " * 2),
        ("I said no", "I said no"),
    ],
)
def test_the_guard_takes_short_copies_out_and_cuts_the_text_before_a_long_one(said, kept):
    from faster_whisper.transcribe import Segment
    from faster_whisper.transcribe import Word as Found

    from streaming_asr.methods.ufal.faster import FasterWhisper
    from streaming_asr.whisper.guard import GUARDS

    texts = [f" {word}" for word in said.split()]
    ids = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    names = {i: text for text, i in ids.items()}
    tokenizer = SimpleNamespace(
        token_to_id=lambda text: 99, decode=lambda tokens: "".join(names[i] for i in tokens)
    )
    model = SimpleNamespace(model=SimpleNamespace(hf_tokenizer=tokenizer), _guard=GUARDS["repeats"])
    segment = Segment(
        0, 0, 0.0, 30.0, said, [ids[t] for t in texts], 0.0, 0.0, 0.0,
        [Found(0.0, 1.0, text, 1.0) for text in texts], 0.0,
    )  # fmt: skip
    guarded = FasterWhisper._guarded(model, segment)
    assert "".join(word.word for word in guarded.words).split() == kept.split()


# -- LocalAgreement-n without a recogniser --


def say(text, start_s=0.0):
    """Words of a second, one right after the other."""
    return [Word(" " + word, start_s + i, start_s + (i + 1)) for i, word in enumerate(text.split())]


def text(words):
    return "".join(word.text for word in words).strip()


def hear(agreement, *hypotheses):
    """What each hypothesis made final."""
    return [text(agreement.observe(hypothesis)) for hypothesis in hypotheses]


def untimed(words):
    return [Word(word.text) for word in say(words)]


GROWS = [say("a b x"), say("a b c d"), say("a b c d e")]
FLIPS = [say("Hello world"), say("hello, world"), say("Hello world")]
AGAIN = [say("the the"), say("the the"), *2 * [say("the the cat", start_s=1.95)]]
DRIFTS = [say("a b"), say("a b"), *2 * [say("a b c", start_s=3.5)]]
TWICE = [say("no"), say("no"), *2 * [[*say("no"), Word(" no", 1.2, 2.0), Word(" way", 2.0, 3.0)]]]
AGREES = [
    (LocalAgreement(2), GROWS, ["", "a b", "c d"]),
    (LocalAgreement(3), [*2 * [say("a b")], *3 * [say("a b c")]], ["", "", "a b", "", "c"]),
    (LocalAgreement(1), [say("a"), say("a b")], ["a", "b"]),
    # Another hypothesis between two that agree: the count starts again.
    (LocalAgreement(2), [say("a"), say("b"), say("a"), say("a")], ["", "", "", "a"]),
    # Punctuation and case do not count; a word without letters is compared whole.
    (LocalAgreement(2), FLIPS, ["", "hello, world", ""]),
    (LocalAgreement(2), [say("a - b"), say("a & b")], ["", "a"]),
    # A repeated word, and words that drift by more than a second, come once.
    (LocalAgreement(2), AGAIN, ["", "the the", "", "cat"]),
    (LocalAgreement(2), DRIFTS, ["", "a b", "", "c"]),
    # A word said twice keeps its second half.
    (LocalAgreement(2), TWICE, ["", "no", "", "no way"]),
    (
        LocalAgreement(2),
        [untimed("a b"), untimed("a b c"), untimed("a x c d"), untimed("a b c d")],
        ["", "a b", "c", "d"],
    ),
]


@pytest.mark.parametrize(("agreement", "hypotheses", "final"), AGREES)
def test_what_hypotheses_agree_on_is_final(agreement, hypotheses, final):
    assert hear(agreement, *hypotheses) == final


def test_the_end_of_the_stream_makes_the_rest_final():
    agreement = LocalAgreement(2)
    hear(agreement, *GROWS)
    assert text(agreement.partial) == text(agreement.finish()) == "e"
    assert agreement.partial == ()
    assert key(" Don't!") == "dont" and key(" -") == "-" and key(" Ärger") == "ärger"


@pytest.mark.parametrize(
    ("hypothesis", "committed", "n"),
    [
        (say("a b c d"), say("a b c"), 3),
        (say("a b"), say("a b c"), 2),  # shorter than what was committed
        (say("a x c d"), say("a b c"), 3),  # a word changed
        (say("a b b2 c d"), say("a b c"), 4),  # a word was added in the middle
        (say("b c d", 1.0), say("a b c"), 2),  # the first one is gone
        (say("no no no"), say("no"), 1),
        (say("no no no"), say("no no"), 2),
        (say("a b x"), say("a b c"), 3),  # the last one changed: time says it is the same
        ([], say("a b"), 0),
        (say("x y z w"), say("a b c"), 3),  # nothing is the same: time decides
    ],
)
def test_the_committed_words_are_found_at_the_hypothesis_start(hypothesis, committed, n):
    assert n_repeated(hypothesis, committed) == n


@pytest.mark.parametrize(
    ("committed", "hypothesis", "rest"),
    [
        ("one thousand two", "$1,234.50 more", "hundred thirty four dollars fifty more"),
        ("four nine zero", "4, 9, 0, 4, 3", "4, 3"),  # as a hush word of tiny.en transcribed it
        ("490", "four nine oh four", "four"),
        ("5, 7,", "573 by", "3 by"),
        ("in nineteen ninety", "in 1990 we", "we"),
        ("twenty", "25 people", "five people"),
        ("one hundred and five", "105 people", "people"),
        ("thirty-four", "34 of", "of"),
        ("1,002", "one thousand two people", "people"),
        ("five percent", "5% of", "of"),
        ("two point", "2.5 of", "five of"),
        ("a 7 b", "a seven b c", "c"),
        # Not a number in another notation: the place is that of the plain comparison.
        ("one two", "1 3 4", "4"),
        ("a b", "a x 7", "7"),
    ],
)
def test_a_number_in_another_notation_is_not_said_twice(committed, hypothesis, rest):
    assert text(words_after(say(hypothesis), say(committed))) == rest
    plain = [Word(word.text) for word in say(hypothesis)]
    assert text(words_after(plain, [Word(word.text) for word in say(committed)])) == rest


def test_numerals_are_read_in_words_digits_and_pairs():
    assert readings("573,") == [
        ["five", "hundred", "seventy", "three"], ["five", "seven", "three"]
    ]  # fmt: skip
    assert readings("1990")[2] == ["nineteen", "ninety"]
    assert readings("10,000,000")[0] == ["ten", "million"]
    assert readings("$2.50")[0] == ["two", "dollars", "fifty"]
    assert readings("0") == [["zero"], ["zero"]]
    for text_ in ("word", "8th", "1A", "1,23", "", "-", "12:30", "½"):
        assert readings(text_) == []
    assert readings("٣")[0] == ["three"]
    assert spoken(" Thirty-four.") == ["thirty", "four"] and spoken("well-known") == ["wellknown"]


def test_words_that_left_the_buffer_are_not_looked_for():
    agreement = LocalAgreement(2)
    hear(agreement, say("a b c"), say("a b c"))
    agreement.forget(2.0)
    assert text(agreement.committed) == "c"
    assert hear(agreement, say("c d", 2.0), say("c d", 2.0)) == ["", "d"]


def test_unconfirmed_words_can_be_made_final_up_to_a_time():
    agreement = LocalAgreement(2)
    agreement.observe(say("a b c"))
    assert text(agreement.commit_until(2.0)) == "a b"
    assert text(agreement.partial) == "c"
    assert hear(agreement, say("a b c d")) == ["c"]
