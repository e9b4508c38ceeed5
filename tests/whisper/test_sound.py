"""Word times without the pauses around a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import fakes
import numpy as np
import pytest
import torch
from oracle import oracle
from tiny import tiny_folder

from streaming_asr import contract
from streaming_asr.config.build import build
from streaming_asr.config.compose import compose_raw
from streaming_asr.config.settle import compose
from streaming_asr.contract import OF_ANY_AUDIO, Setting, committed
from streaming_asr.corpora import Mini
from streaming_asr.errors import UserError
from streaming_asr.method import NULL, SAMPLE_RATE, Samples, Update, Word
from streaming_asr.run.cell import method_of
from streaming_asr.simulate.stepper import Stepper
from streaming_asr.streaming import stream
from streaming_asr.utterance import TimedWord, Utterance
from streaming_asr.whisper.detect import DetectsLanguage, IgnoresLanguage
from streaming_asr.whisper.features import log_mel
from streaming_asr.whisper.gate import SpeechOnly, SpeechOnlyBatched, behind_gate
from streaming_asr.whisper.load import load_whisper
from streaming_asr.whisper.sound import Sound
from streaming_asr.whisper.vad import BLOCK_SAMPLES
from streaming_asr.whisper.words import Emitter

SILENCES_S = (0.4, 0.7, 1.5, 3.0, 9.0)


def tone(*seconds_and_level):
    """Return noise of each level in turn."""
    rng = np.random.default_rng(0)
    pieces = [
        level * rng.standard_normal(round(seconds * SAMPLE_RATE))
        for seconds, level in seconds_and_level
    ]
    return np.concatenate(pieces).astype(np.float32)


@pytest.mark.parametrize(
    ("interval", "times"),
    [
        ((0.0, 1.4), (1.0, 1.4)),  # the pause before it is no part of a word
        ((1.6, 4.0), (1.6, 2.0)),  # nor the pause after it
        ((1.9, 4.4), (4.0, 4.4)),  # of two parts the longer one
        ((1.2, 1.6), (1.2, 1.6)),  # a word in mid-speech stays
        ((2.4, 2.9), (2.0, 2.0)),  # in a pause: to the nearest sound
        ((3.0, 3.5), (4.0, 4.0)),
        ((0.1, 0.5), (1.0, 1.0)),  # where none is before it
        ((2.5, 4.02), (2.0, 2.0)),  # the next word's edge is not the word's own
        ((7.0, 8.0), (7.0, 8.0)),  # nothing is known of audio to come
    ],
)
def test_a_pause_is_no_part_of_a_word(interval, times):
    sound = Sound()
    sound.hear(tone((1.0, 0.0), (1.0, 0.1), (2.0, 0.0), (1.0, 0.1)))
    assert sound.without_pauses(*interval) == pytest.approx(times)


def test_where_no_pause_can_be_seen_times_stay():
    sound = Sound()
    sound.hear(tone((1.0, 0.01), (1.0, 0.02), (1.0, 0.01)))
    assert sound.without_pauses(0.0, 2.5) == (0.0, 2.5)
    assert Sound().without_pauses(0.0, 2.5) == (0.0, 2.5)


def test_a_click_before_a_word_is_not_its_beginning():
    sound = Sound()
    sound.hear(tone((0.5, 0.0), (0.04, 0.1), (0.8, 0.0), (1.0, 0.1)))
    assert sound.without_pauses(0.0, 2.0) == pytest.approx((1.34, 2.0))


def test_the_levels_do_not_depend_on_the_pieces_and_the_memory_is_bounded():
    samples = tone((1.0, 0.0), (1.0, 0.1), (100.0, 0.001), (1.0, 0.1))
    whole, pieces = Sound(), Sound()
    whole.hear(samples)
    for begin in range(0, len(samples), 4567):
        pieces.hear(samples[begin : begin + 4567])
    assert whole.first == pieces.first == len(samples) // 320 - 4500
    np.testing.assert_array_equal(whole.levels_db, pieces.levels_db)
    assert pieces.without_pauses(90.0, 103.0) == pytest.approx((102.0, 103.0))
    assert pieces.without_pauses(1.0, 2.5) == (1.0, 2.5)  # its audio is gone


@pytest.mark.parametrize("noise_db", [None, -50.0])
@pytest.mark.parametrize("silence_s", SILENCES_S)
def test_speech_after_silence_begins_where_the_voice_does(silence_s, noise_db):
    """The path of an alignment without a gap: each word begins where the one before ends."""
    clips = voices()[:4]
    samples, words = with_pauses(clips, [silence_s] * 4, noise_db=noise_db)
    sound = Sound()
    sound.hear(samples)
    ends_s = [0.0, *(word.end for word in words)]
    for word, before_s in zip(words, ends_s, strict=False):
        start_s, end_s = sound.without_pauses(before_s, word.end)
        assert start_s == pytest.approx(word.start, abs=0.3), word
        assert end_s == pytest.approx(word.end, abs=0.3), word
    for word, after in pairwise(words):
        assert sound.without_pauses(word.start, after.start)[1] == pytest.approx(word.end, abs=0.3)


def test_words_that_are_aligned_last_a_frame_and_stay_in_order():
    emitter = Emitter("en", Sound())
    emitter.emit(" a", 0.0, 1.0, 2.0, None)
    words = [emitter.emit(f" {i}", 1.0, 1.0, 2.0, None) for i in range(3)]
    assert [(w.start, w.end) for w in words] == [
        pytest.approx(times) for times in [(1.0, 1.02), (1.02, 1.04), (1.04, 1.06)]
    ]
    last = emitter.emit(" z", 2.5, 2.5, 2.0, None)
    assert (last.start, last.end) == pytest.approx((1.98, 2.0))


@pytest.mark.parametrize("name", ["offline", "hush_word", "u2", "simul_whisper", "star"])
def test_the_first_word_after_a_pause_is_timed_where_it_begins(name):
    clips = sorted(Mini().utterances(), key=lambda each: each.duration_s)[:2]
    samples, reference = with_pauses(clips, [1.0, 3.0])
    config = compose([f"method={name}", "model=mini", "chunk=1s", "gate=speech"])
    words = []
    for update in stream(method_of(config)[0], samples, SAMPLE_RATE, chunk="1s"):
        words += update.committed
    first = reference[len(clips[0].words or ())]
    begin_s, pause_s, again_s = reference[0].start - 0.3, first.start - 3.0, first.start - 0.3
    starts_s = [word.start or 0.0 for word in words]
    # The model's text may be wrong; where there is no voice no word begins.
    assert not [s for s in starts_s if s < begin_s or pause_s < s < again_s]
    assert min(starts_s) < begin_s + 0.6
    assert min(s for s in starts_s if s > pause_s) < again_s + 0.6


# -- The gate: what it lets through, when its words were said, and the contract behind it --


CHUNK = 4800


class LoudIsSpeech:
    """In the place of Silero; half a second counts as silent below a mean level."""

    def stream(self) -> Callable[[Samples], float]:
        return lambda block: float(np.abs(block).mean() > 0.005)


def gated(method, chunk=CHUNK):
    kind = SpeechOnlyBatched if isinstance(method, fakes.BatchedTicker) else SpeechOnly
    return kind(method, chunk, LoudIsSpeech())


def sound(*pieces):
    """("speech" or "pause", seconds) one after the other."""
    made = [fakes.noise(s, seed=i) * (kind == "speech") for i, (kind, s) in enumerate(pieces)]
    return np.concatenate(made)


def heard(method, audio, cuts):
    state = method.start()
    ends = [*cuts, len(audio)]
    return [
        method.step(state, audio[a:b], last=b == len(audio))
        for a, b in zip([0, *cuts], ends, strict=True)
    ]


def steps_of(audio, first=2 * CHUNK):
    return range(first, len(audio), CHUNK)


class Listener(fakes.Ticker):
    """Ticker that remembers what each of its streams heard, and in which language it began."""

    def __init__(self, lag: int = 1) -> None:
        super().__init__(lag)
        self.streams = []
        self.languages = []

    def start(self, *, language=None, recorder=fakes.NULL):
        self.languages.append(language)
        self.streams.append(super().start(language=language, recorder=recorder))
        return self.streams[-1]


@pytest.mark.parametrize("seconds", [0.0, 1 / SAMPLE_RATE, 3.0])
def test_silence_alone_has_no_words_and_the_method_hears_none_of_it(seconds):
    method = Listener()
    audio = np.zeros(round(seconds * SAMPLE_RATE), np.float32)
    updates = heard(gated(method), audio, list(steps_of(audio)))
    assert set(updates) == {Update()}
    assert all(stream.heard.size == 0 for stream in method.streams)


def test_speech_goes_to_a_stream_of_its_own_and_its_words_have_the_times_of_the_whole():
    method = Listener()
    audio = sound(("pause", 3.0), ("speech", 2.0), ("pause", 4.0), ("speech", 1.0))
    updates = heard(gated(method), audio, list(steps_of(audio)))
    # From the multiple of 300 ms that lies half a second or more before, to 500 ms after.
    first, second = method.streams
    assert np.array_equal(first.heard, audio[int(2.4 * SAMPLE_RATE) :][: first.heard.size])
    assert 5.5 <= 2.4 + first.heard.size / SAMPLE_RATE < 5.5 + 2 * BLOCK_SAMPLES / SAMPLE_RATE
    assert np.array_equal(second.heard, audio[int(8.4 * SAMPLE_RATE) :])
    words = committed(updates)
    expected = [*method.words(first.heard), *method.words(second.heard)]
    assert [word.text for word in words] == [word.text for word in expected]
    starts = [word.start for word in words]
    assert starts[0] == pytest.approx(2.4) and starts == sorted(starts)
    assert starts[len(method.words(first.heard))] == pytest.approx(8.4)
    # The step in which 500 ms of silence are full says so; so does the last, with all committed.
    ended = [k for k, update in enumerate(updates) if update.endpoint]
    ends = [*steps_of(audio), len(audio)]
    assert [ends[k] / SAMPLE_RATE for k in ended] == [5.7, 10.0]
    assert updates[ended[0]].partial == () and updates[ended[0]].committed


def test_what_is_shown_stays_while_nothing_new_is_heard_and_goes_with_the_speech():
    audio = sound(("speech", 1.2), ("pause", 2.0))
    method = gated(fakes.Ticker(lag=2))
    state = method.start()
    shown = method.step(state, audio[: 2 * CHUNK], last=False).partial
    assert len(shown) == 2
    assert method.step(state, audio[:0], last=False).partial == shown
    ended = method.step(state, audio[2 * CHUNK :], last=False)
    assert ended.endpoint and ended.partial == () and ended.committed[:2] == shown


def test_a_first_word_of_later_speech_is_written_apart():
    class Unspaced(fakes.Ticker):
        def words(self, heard: Samples) -> tuple[Word, ...]:
            return (Word("well"),) if len(heard) else ()

    audio = sound(("speech", 1.0), ("pause", 2.0), ("speech", 1.0))
    updates = heard(gated(Unspaced()), audio, list(steps_of(audio)))
    assert "".join(word.text for word in committed(updates)) == "well well"


def test_a_language_found_before_speech_ended_stays_and_a_guess_at_its_end_does_not():
    class Finds(Listener):
        def step(self, state, audio, *, last):
            update = super().step(state, audio, last=last)
            found = "de" if self.languages[-1] is None and (last or len(audio) > says_at) else None
            return Update(update.committed, update.partial, language=found)

    audio = sound(("speech", 2.0), ("pause", 2.0), ("speech", 2.0))
    says_at = 0
    method = Finds()
    updates = heard(gated(method), audio, list(steps_of(audio)))
    assert method.languages == [None, "de"]
    assert {update.language for update in updates} == {None, "de"}
    says_at = 10**6
    unsure = Finds()
    heard(gated(unsure), audio, list(steps_of(audio)))
    assert unsure.languages == [None, None]


def test_what_the_gate_computes_is_a_part_of_the_step():
    stepper = Stepper(gated(fakes.Ticker()))
    states = stepper.start()
    made = stepper.step(states, [np.zeros(CHUNK, np.float32)], [False])
    assert made.times_ns["feature"] > 0 and made.counts == {}


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", [fakes.Ticker(2, 200), fakes.BatchedTicker()], ids=["", "many"])
def test_a_method_behind_the_gate_keeps_the_contract(method, check):
    speech = sound(("speech", 1.4), ("pause", 0.9), ("speech", 0.7))
    check(gated(method), contract.Setting(CHUNK, 2 * CHUNK, speech, sound(("speech", 1.7))))


def test_the_method_is_warm_and_silero_decides():
    method = Listener()
    behind = behind_gate(method, CHUNK, 2 * CHUNK)
    assert method.streams[0].heard.size == 3 * CHUNK and type(behind) is SpeechOnly
    quiet = np.zeros(4 * CHUNK, np.float32)
    assert behind.step(behind.start(), quiet, last=True) == Update()
    assert type(behind_gate(fakes.BatchedTicker(), CHUNK, CHUNK)) is SpeechOnlyBatched


def test_a_server_hears_what_it_is_sent():
    class Server(fakes.Ticker):
        def wait(self, state, seconds): ...
        def end(self, state): ...
        def is_done(self, state): ...

    with pytest.raises(UserError, match="gate=none"):
        behind_gate(Server(), CHUNK, CHUNK)


# -- Language detection: Whisper's own answer, from enough of a stream and no more of it --


@pytest.fixture(scope="module")
def whisper():
    return load_whisper(tiny_folder(multilingual=True))


def sounds():
    at = np.arange(16_000) / 16_000
    tones = [np.sin(2 * np.pi * f * at).astype(np.float32) * 0.5 for f in (200, 900, 3000)]
    return [*tones, *(fakes.noise(1.0, seed=seed) for seed in range(5)), np.zeros(16_000, "f4")]


def test_the_language_is_the_one_transformers_finds(whisper):
    found = set()
    for audio in sounds():
        padded = torch.from_numpy(np.pad(audio, (0, 200 * 320 - len(audio))))
        mel = log_mel(padded[None], whisper.n_mels)
        ids = oracle(whisper).detect_language(input_features=mel)
        wanted = whisper.tokenizer.convert_ids_to_tokens([int(ids[0])])[0].strip("<|>")
        assert DetectsLanguage(Listener(), whisper).detect(audio)[0] == wanted
        found.add(wanted)
    assert found <= {"en", "zh", "de"}


class Scripted(DetectsLanguage):
    """Takes from the test how sure it is after each second, and processes no audio."""

    def __init__(self, method: fakes.Ticker, whisper, *sure: float) -> None:
        super().__init__(method, whisper)
        self.sure, self.asked = sure, []

    def detect(self, audio, recorder=NULL):
        self.asked.append(len(audio) / 16_000)
        return "de", self.sure[len(self.asked) - 1]


@pytest.mark.parametrize(
    ("sure", "asked", "decided"),
    [
        ((0.9,), [1.2], 2),  # sure at the first whole second, in the third step
        ((0.5, 0.7, 0.8), [1.2, 2.1, 3.0], 8),
        ((0.5, 0.5, 0.5, 0.5, 0.3), [1.2, 2.1, 3.0, 4.2, 5.1], 15),  # 5 s: the likeliest
    ],
)
def test_a_stream_waits_until_its_language_is_sure_or_5_s_have_passed(
    whisper, sure, asked, decided
):
    method = Listener()
    detecting = Scripted(method, whisper, *sure)
    audio = fakes.noise(6.0, seed=1)
    state = detecting.start()
    ends = [9600, *range(14_400, 96_001, 4800)]
    updates = [
        detecting.step(state, audio[a:b], last=b == 96_000)
        for a, b in zip([0, *ends], ends, strict=False)
    ]
    assert detecting.asked == pytest.approx(asked)
    assert [k for k, update in enumerate(updates) if update.language == "de"] == [decided]
    assert all(update == Update() for update in updates[:decided])
    assert method.languages == ["de"]
    # What was held is heard then: no word is lost.
    said = [word for update in updates for word in update.committed]
    assert said == list(method.words(audio))


def test_a_short_stream_is_decided_at_its_end_and_an_empty_one_has_no_language(whisper):
    method = Listener()
    detecting = Scripted(method, whisper, 0.2)
    audio = fakes.noise(0.5)
    assert detecting.step(detecting.start(), audio, last=True).language == "de"
    assert detecting.step(detecting.start(), audio[:0], last=True).language is None
    assert method.languages == ["de", None]


def test_a_method_that_decodes_at_the_end_is_asked_for_all_of_the_audio(whisper):
    method = Listener()
    method.hears_all = True
    detecting = Scripted(method, whisper, 0.9)
    state, audio = detecting.start(), fakes.noise(3.0)
    assert detecting.step(state, audio[:40_000], last=False) == Update()
    assert detecting.step(state, audio[40_000:], last=True).language == "de"
    assert detecting.asked == [3.0]


def test_long_audio_is_heard_window_by_window_until_one_language_is_sure(whisper):
    class Windows(DetectsLanguage):
        def _probabilities(self, audio, recorder):
            heard.append(len(audio))
            made = torch.zeros(self.whisper.config.vocab_size)
            for name, probability in said[len(heard) - 1].items():
                made[{n: i for i, n in self._codes.items()}[name]] = probability
            return made

    detecting, window = Windows(Listener(), whisper), 200 * 320
    audio = np.zeros(2 * window + window // 2, np.float32)
    # Windows count by their length: en has (0.7 + 0.3 / 2) / 2.5, de (0.3 + 0.4 + 0.7 / 2) / 2.5.
    said = [{"en": 0.7, "de": 0.3}, {"zh": 0.6, "de": 0.4}, {"en": 0.3, "de": 0.7}]
    heard = []
    language, probability = detecting.detect(audio)
    assert (language, probability) == ("de", pytest.approx(0.42))
    assert heard == [window, window, window // 2]
    said, heard = [{"en": 0.85, "de": 0.15}], []
    assert detecting.detect(audio)[0] == "en" and heard == [window]


def test_a_language_that_is_named_is_taken_and_the_corpus_s_is_not_told(whisper):
    method = Listener()
    detecting = Scripted(method, whisper, 0.9)
    audio = fakes.noise(2.0, seed=1)
    assert detecting.step(detecting.start(language="zh"), audio, last=True).language is None
    untold = IgnoresLanguage(detecting)
    assert untold.step(untold.start(language="zh"), audio, last=True).language == "de"
    assert method.languages == ["zh", "de"]


@pytest.mark.parametrize("check", OF_ANY_AUDIO, ids=lambda check: check.__name__)
def test_a_method_that_detects_keeps_the_contract(whisper, check):
    setting = Setting(4800, 9600, fakes.noise(3.0, seed=1), fakes.noise(1.7, seed=2))
    check(DetectsLanguage(fakes.Ticker(2, 200), whisper), setting)


def test_an_english_model_has_nothing_to_detect():
    with pytest.raises(UserError, match="language=detect: this model knows only English"):
        DetectsLanguage(Listener(), load_whisper(tiny_folder()))


# -- Recordings with pauses --


def voices() -> list[Utterance]:
    """Return the clips of `data=voices`, whose word times are exact."""
    return list(build(compose_raw(["data=voices"]).data).utterances())


def with_pauses(
    clips: Sequence[Utterance],
    silences_s: Sequence[float],
    *,
    noise_db: float | None = None,
    seed: int = 0,
) -> tuple[Samples, list[TimedWord]]:
    """Return the clips, each after its silence, and their words with the times in the result.

    noise_db: level of white noise under all of it, in dB of full scale; None: none.
    """
    pieces: list[Samples] = []
    words: list[TimedWord] = []
    n_samples = 0
    for clip, silence_s in zip(clips, silences_s, strict=True):
        n_silent = round(silence_s * SAMPLE_RATE)
        pieces += [np.zeros(n_silent, np.float32), clip.load()]
        begin_s = (n_samples + n_silent) / SAMPLE_RATE
        words += [TimedWord(w.text, begin_s + w.start, begin_s + w.end) for w in clip.words or ()]
        n_samples += n_silent + len(pieces[-1])
    samples = np.concatenate(pieces)
    if noise_db is not None:
        noise = np.random.default_rng(seed).standard_normal(n_samples)
        samples = samples + (10 ** (noise_db / 20) * noise).astype(np.float32)
    return samples, words
