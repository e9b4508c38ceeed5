"""The gate: what it lets through, when its words were said, and the contract behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import fakes
import numpy as np
import pytest

from streaming_asr import contract
from streaming_asr.contract import committed
from streaming_asr.errors import UserError
from streaming_asr.method import SAMPLE_RATE, Samples, Update, Word, display_text
from streaming_asr.simulate.stepper import Stepper
from streaming_asr.whisper.gate import SpeechOnly, SpeechOnlyBatched, behind_gate
from streaming_asr.whisper.vad import BLOCK_SAMPLES

CHUNK = 4800


class LoudIsSpeech:
    """In the place of Silero; half a second counts as silent below a mean level."""

    def stream(self) -> Callable[[Samples], float]:
        return lambda block: float(np.abs(block).mean() > 0.005)


def gated(method: fakes.Ticker, chunk: int = CHUNK) -> SpeechOnly:
    kind = SpeechOnlyBatched if isinstance(method, fakes.BatchedTicker) else SpeechOnly
    return kind(method, chunk, LoudIsSpeech())


def sound(*pieces: tuple[str, float]) -> Samples:
    """("speech" or "pause", seconds) one after the other."""
    made = [fakes.noise(s, seed=i) * (kind == "speech") for i, (kind, s) in enumerate(pieces)]
    return np.concatenate(made)


def heard(method: SpeechOnly, audio: Samples, cuts: Sequence[int]) -> list[Update]:
    state = method.start()
    ends = [*cuts, len(audio)]
    return [
        method.step(state, audio[a:b], last=b == len(audio))
        for a, b in zip([0, *cuts], ends, strict=True)
    ]


def steps_of(audio: Samples, first: int = 2 * CHUNK) -> range:
    return range(first, len(audio), CHUNK)


class Listener(fakes.Ticker):
    """Ticker that remembers what each of its streams heard, and in which language it began."""

    def __init__(self, lag: int = 1) -> None:
        super().__init__(lag)
        self.streams: list[fakes.TickerState] = []
        self.languages: list[str | None] = []

    def start(self, *, language=None, recorder=fakes.NULL):  # type: ignore[no-untyped-def]
        self.languages.append(language)
        self.streams.append(super().start(language=language, recorder=recorder))
        return self.streams[-1]


@pytest.mark.parametrize("seconds", [0.0, 1 / SAMPLE_RATE, 3.0])
def test_silence_alone_has_no_words_and_the_method_hears_none_of_it(seconds: float) -> None:
    method = Listener()
    audio = np.zeros(round(seconds * SAMPLE_RATE), np.float32)
    updates = heard(gated(method), audio, list(steps_of(audio)))
    assert set(updates) == {Update()}
    assert all(stream.heard.size == 0 for stream in method.streams)


def test_speech_goes_to_a_stream_of_its_own_and_its_words_have_the_times_of_the_whole() -> None:
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


def test_the_text_is_the_same_in_whatever_pieces_the_audio_comes() -> None:
    audio = sound(("speech", 1.3), ("pause", 0.8), ("speech", 0.7), ("pause", 2.0), ("speech", 1.1))
    rng = np.random.default_rng(5)
    ways = [
        [],
        list(steps_of(audio)),
        [1, 1, 700],
        sorted(rng.integers(0, len(audio), 40).tolist()),
    ]
    texts = {display_text(committed(heard(gated(fakes.Ticker()), audio, cuts))) for cuts in ways}
    assert len(texts) == 1 and len(texts.pop().split()) >= 12


def test_what_is_shown_stays_while_nothing_new_is_heard_and_goes_with_the_speech() -> None:
    audio = sound(("speech", 1.2), ("pause", 2.0))
    method = gated(fakes.Ticker(lag=2))
    state = method.start()
    shown = method.step(state, audio[: 2 * CHUNK], last=False).partial
    assert len(shown) == 2
    assert method.step(state, audio[:0], last=False).partial == shown
    ended = method.step(state, audio[2 * CHUNK :], last=False)
    assert ended.endpoint and ended.partial == () and ended.committed[:2] == shown


def test_a_first_word_of_later_speech_is_written_apart() -> None:
    class Unspaced(fakes.Ticker):
        def words(self, heard: Samples) -> tuple[Word, ...]:
            return (Word("well"),) if len(heard) else ()

    audio = sound(("speech", 1.0), ("pause", 2.0), ("speech", 1.0))
    updates = heard(gated(Unspaced()), audio, list(steps_of(audio)))
    assert "".join(word.text for word in committed(updates)) == "well well"


def test_a_language_found_before_speech_ended_stays_and_a_guess_at_its_end_does_not() -> None:
    class Finds(Listener):
        def step(self, state, audio, *, last):  # type: ignore[no-untyped-def]
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


def test_what_the_gate_computes_is_a_part_of_the_step() -> None:
    stepper = Stepper(gated(fakes.Ticker()))
    states = stepper.start()
    made = stepper.step(states, [np.zeros(CHUNK, np.float32)], [False])
    assert made.times_ns["feature"] > 0 and made.counts == {}


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", [fakes.Ticker(2, 200), fakes.BatchedTicker()], ids=["", "many"])
def test_a_method_behind_the_gate_keeps_the_contract(method: fakes.Ticker, check) -> None:  # type: ignore[no-untyped-def]
    speech = sound(("speech", 1.4), ("pause", 0.9), ("speech", 0.7))
    check(gated(method), contract.Setting(CHUNK, 2 * CHUNK, speech, sound(("speech", 1.7))))


def test_the_method_is_warm_and_silero_decides() -> None:
    method = Listener()
    behind = behind_gate(method, CHUNK, 2 * CHUNK)
    assert method.streams[0].heard.size == 3 * CHUNK and type(behind) is SpeechOnly
    quiet = np.zeros(4 * CHUNK, np.float32)
    assert behind.step(behind.start(), quiet, last=True) == Update()
    assert type(behind_gate(fakes.BatchedTicker(), CHUNK, CHUNK)) is SpeechOnlyBatched


def test_a_server_hears_what_it_is_sent() -> None:
    class Server(fakes.Ticker):
        def wait(self, state, seconds): ...  # type: ignore[no-untyped-def]
        def end(self, state): ...  # type: ignore[no-untyped-def]
        def is_done(self, state): ...  # type: ignore[no-untyped-def]

    with pytest.raises(UserError, match="gate=none"):
        behind_gate(Server(), CHUNK, CHUNK)
