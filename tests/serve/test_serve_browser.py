"""The server's page in a real browser: a microphone of a file, a dropped file, the keyboard."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
import soundfile
from browser import CHROMIUM, DRIVER, browser, microphone
from fakes import BatchedTicker, Ticker
from served import served, until

from streaming_asr.config.command_line import CommandLine
from streaming_asr.corpora.manifest import read_manifest
from streaming_asr.corpora.noise import KINDS
from streaming_asr.events.log import read_log
from streaming_asr.files import HERE
from streaming_asr.live.cells import cells_of
from streaming_asr.models.find import find_here
from streaming_asr.run.obtain import planned

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium or chromedriver here"),
]
TEXT = "document.querySelector('[data-method=%s] p').innerText"


DROP = """((name, text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const moved = new DataTransfer();
  moved.items.add(new File([bytes], name));
  document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: moved, bubbles: true }));
})"""


def wave(level, seconds):
    """A WAV file whose samples are all `level`, in base64."""
    held = io.BytesIO()
    soundfile.write(held, np.full(round(seconds * 16_000), level), 16_000, format="WAV")
    return base64.b64encode(held.getvalue()).decode()


class Loud(Ticker):
    """Says `loud` for each quarter of a second that is."""

    def words(self, heard: Any) -> Any:
        n = len(heard) // self.word_samples
        pieces = heard[: n * self.word_samples].reshape(n, self.word_samples)
        spoken = [w for w, piece in zip(super().words(heard), pieces, strict=True)
                  if np.abs(piece).mean() > 0.05]  # fmt: skip
        return tuple(type(w)(" loud", w.start, w.end) for w in spoken)


METHODS = {"loud": Loud(), "late": Loud(3)}
MODEL = {"model": {"name": "tiny.en"}}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page"), METHODS, MODEL) as made:
        yield made


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    tone = 0.5 * np.sin(np.arange(48_000) / 48_000 * 2 * np.pi * 300)
    soundfile.write(folder / "mic.wav", np.concatenate([tone, 0 * tone, tone]), 48_000)
    with browser(folder / "profile", microphone(folder / "mic.wav")) as made:
        yield made


@pytest.fixture(autouse=True)
def opened(page, service):
    page.console()
    page.open(service.address)
    page.until("document.querySelectorAll('#methods input').length === 2")
    yield
    assert page.console() == []


def test_what_is_spoken_is_shown_by_both_methods_and_the_log_can_be_fetched(page, service):
    page.value("document.getElementById('microphone').focus()")
    page.keys("Enter")
    page.until(f"({TEXT % 'loud'}.match(/loud/g) || []).length >= 3")
    page.until("document.querySelector('[data-method=late] .guess').innerText.includes('loud')")
    assert page.value("document.querySelectorAll('#lag polyline[points]').length") == 2
    labels = page.value(
        "[...document.querySelectorAll('#lag text')].map((each) => each.textContent)"
    )
    seconds = [float(each.removesuffix(" s")) for each in labels]
    of_x = seconds.index(0, 1)
    for axis in (seconds[:of_x], seconds[of_x:]):  # multiples of 1, 2 or 5 times a power of ten
        assert f"{axis[1]:.2e}"[:4] in ("1.00", "2.00", "5.00")
        assert axis == pytest.approx([k * axis[1] for k in range(len(axis))])
    page.value("document.getElementById('stop').focus()")
    page.keys("Space")
    page.until("document.querySelectorAll('#logs button').length === 6")
    shown = {name: page.value(TEXT % name).split() for name in ("loud", "late")}
    assert shown["loud"] == shown["late"] and set(shown["loud"]) == {"loud"}
    assert "behind · step" in page.value("document.querySelector('output').innerText")
    assert page.value("document.querySelector('.guess').innerText") == ""
    page.value("""HTMLAnchorElement.prototype.click = async function () {
      window.saved = await (await fetch(this.href)).text(); }""")
    page.value("document.querySelector('#logs [data-file=\"events.jsonl\"]').click()")
    saved = page.until("window.saved")
    (log,) = service.root.glob("sess_*/method=loud/events.jsonl")
    assert saved == log.read_text()
    (said,) = read_log(log).utterances
    words = "".join(word for step in said.steps for word in step.committed)
    assert words.split() == shown["loud"]
    for file, told in (("text.txt", "loud loud"), ("subtitles.srt", "00:00:0")):
        page.value("window.saved = ''")
        page.value(f"document.querySelector('#logs [data-file=\"{file}\"]').click()")
        assert told in page.until("window.saved")
    page.value("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.value("document.querySelector('[data-method=loud] button').click()")
    assert page.until("window.copied").split() == shown["loud"]


def test_a_pause_is_heard_by_nobody_and_what_was_kept_is_told(page, service):
    page.value("document.getElementById('microphone').click()")
    page.until("document.getElementById('level').value > -20")  # a tone of half the scale: -9 dB
    page.value("document.getElementById('pause').click()")
    page.until("document.getElementById('status').innerText.startsWith('Paused')")
    assert page.value("document.getElementById('level').value") == -60
    page.value("document.getElementById('pause').click()")
    page.until("document.getElementById('status').innerText === 'Listening.'")
    page.until(f"{TEXT % 'loud'}.includes('loud')")
    page.value("document.getElementById('pause').click()")
    page.value("document.getElementById('stop').click()")  # while it rests
    page.until("document.querySelectorAll('#logs button').length === 6")
    told = page.value("document.getElementById('status').innerText")
    assert told == "Done. The server has kept the text and the times, not the sound."
    assert "tiny.en · English" in page.value("document.querySelector('.panel .head').innerText")


def test_a_dropped_file_is_played_and_one_that_is_no_audio_is_named(page, service):
    page.value(f"{DROP}('talk.wav', '{wave(0.3, 0.75)}')")
    page.until("document.querySelectorAll('#logs button').length === 6")
    assert page.value(TEXT % "loud").split() == ["loud"] * 3
    page.value(f"{DROP}('notes.txt', 'AAAA')")
    page.until("document.getElementById('status').className === 'bad'")
    assert "notes.txt: is no audio" in page.value("document.getElementById('status').innerText")
    until(lambda: not service.sessions)
    assert not page.value("document.getElementById('microphone').disabled")


def test_a_recording_without_speech_is_reported_by_its_length(page, service):
    page.value(f"{DROP}('silent.wav', '{wave(0.0, 2.2)}')")
    page.until("document.querySelectorAll('#logs button').length === 6")
    notices = "[...document.querySelectorAll('.panel small')].map((each) => each.innerText)"
    assert page.value(notices) == ["No speech found in 2 s."] * 2
    page.value(f"{DROP}('talk.wav', '{wave(0.3, 0.75)}')")
    page.until(f"{TEXT % 'loud'}.split(' ').length === 3")
    page.until("document.querySelectorAll('#logs button').length === 6")
    assert page.value(notices) == ["", ""]


def test_a_server_that_stops_is_reported_and_keeps_the_text(page, tmp_path):
    with served(tmp_path, {"loud": Loud()}, MODEL) as service:
        page.open(service.address)
        page.until("document.querySelectorAll('#methods input').length === 1")
        page.value("document.getElementById('microphone').click()")
        page.until(f"{TEXT % 'loud'}.includes('loud')")
        service.terminate()
        status = page.until("document.querySelector('#status.bad')?.innerText")
    assert status == (
        "The server stopped and ended the session. "
        "The server has kept the text and the times, not the sound."
    )
    assert not page.value("document.getElementById('microphone').disabled")
    (path,) = tmp_path.rglob("events.jsonl")
    (log,) = read_log(path).utterances
    words = "".join(word for step in log.steps for word in step.committed)
    assert page.value(TEXT % "loud").split() == words.split() and words


def test_light_dark_and_a_narrow_screen(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    page.value("document.getElementById('theme').click()")
    assert page.value(ground) == "rgb(255, 255, 255)"
    page.value("document.getElementById('theme').click()")
    assert page.value(ground) == "rgb(20, 23, 28)"
    page.resize(390, 844)
    assert page.value("document.documentElement.scrollWidth <= 390")
    page.resize(1200, 800)


def test_a_server_that_is_full_says_so(page, tmp_path):
    with served(tmp_path, {"loud": BatchedTicker()}, max_sessions=1) as service:
        service.sessions["taken"] = None
        page.open(service.address)
        page.until("document.querySelectorAll('#methods input').length === 1")
        page.value("document.getElementById('microphone').click()")
        page.until("document.getElementById('status').innerText.includes('sessions are taken')")
        service.sessions.clear()


REAL = pytest.mark.skipif(
    find_here("openai/whisper-tiny.en") is None,
    reason="tiny.en is not here: streaming-asr get tiny.en",
)


def microphone_file(path):
    """Write a sentence, 10 s of digital silence and 10 s of room tone; return where speech ends."""
    clip = read_manifest(HERE / "data" / "voices" / "voices.jsonl")[0]
    speech = clip.load()
    tone = KINDS["pink"](160_000, np.random.default_rng(0))
    tone *= 1e-3 / np.sqrt(np.mean(tone**2))  # -60 dB of full scale
    soundfile.write(path, np.concatenate([speech, np.zeros(160_000), tone]), 16_000)
    return len(speech) / 16_000


@pytest.mark.parametrize("model", ["mini", pytest.param("tiny.en", marks=REAL)])
def test_silence_and_room_tone_after_speech_add_no_word(tmp_path, monkeypatch, model):
    """The page hears a sentence from its microphone, then nobody for 20 s, as serve sets it."""
    ends_s = microphone_file(tmp_path / "mic.wav")
    line = CommandLine([f"model={model}", "method=whisperrt", "gate=speech", "tracker=none"])
    line.default(name="page")
    monkeypatch.chdir(tmp_path)  # the logs come to lie there
    with (
        served(tmp_path, cells=cells_of(planned(line))) as service,
        browser(tmp_path / "profile", microphone(tmp_path / "mic.wav")) as page,
    ):
        page.open(service.address)
        page.until("document.querySelectorAll('#methods input').length === 1")
        page.value("document.getElementById('microphone').click()")
        heard_s = "parseFloat([...document.querySelectorAll('#lag text')].at(-1)?.textContent)"
        page.until(f"{heard_s} > {ends_s + 20}")  # the axis ends with the audio heard
        page.value("document.getElementById('stop').click()")
        page.until("document.querySelectorAll('#logs button').length === 3")
        assert page.console() == []
    (path,) = tmp_path.rglob("events.jsonl")
    (log,) = read_log(path).utterances
    n_words, n_shown = 0, {False: 0, True: 0}  # by whether the speaker was long silent
    for step in log.steps:
        n_words += len(step.committed) - step.retracted
        late = step.audio_s > ends_s + 1.5
        n_shown[late] = max(n_shown[late], n_words + len(step.partial))
    assert 0 < n_shown[True] <= n_shown[False], log.steps[-1]
