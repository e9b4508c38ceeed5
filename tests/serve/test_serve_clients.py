"""What clients send: audio in every format, the settings of a session, the fields of a form."""

import hashlib
import io
import json
import re
import socket as socket_module
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest
import soundfile
from containers import Track, write_recording
from decoders import FAULTS, broken_decoder
from fakes import BatchedTicker, Ticker, noise
from places import HANG_S
from served import append, client, events, get, pcm, post, send, served, set_up, until, wav
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from streaming_asr.corpora.audio import Resampler
from streaming_asr.events.log import read_log
from streaming_asr.method import Update, Word
from streaming_asr.serve.realtime import STEPS

RAW = {"audio/pcm": "PCM_16", "audio/pcmu": "ULAW", "audio/pcma": "ALAW"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    model = {"name": "base", "path": "openai/whisper-base"}
    with served(tmp_path_factory.mktemp("serve"), config={"model": model}) as made:
        yield made


def update(socket, session):
    """The session after an update, or the error that it gave."""
    send(socket, "session.update", session=session)
    (event,) = [e for e in events(socket, "") if e["type"] != "session.created"] or events(
        socket, ""
    )
    answer = event.get("session") or event["error"]
    return answer


def raw(samples, kind, rate):
    """The samples' bytes without a header, as libsndfile encodes them."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="RAW", subtype=RAW[kind], endian="LITTLE")
    return file.getvalue()


def at_16_khz(data, kind, rate):
    """What a server should transcribe of the bytes, decoded and resampled at once."""
    samples, _ = soundfile.read(
        io.BytesIO(data), samplerate=rate, channels=1, format="RAW", subtype=RAW[kind],
        endian="LITTLE", dtype="float32",
    )  # fmt: skip
    if rate == 16_000:
        return samples
    once = Resampler()
    return np.concatenate([once.of_samples(samples, rate), once.of_frame(None)])


@pytest.mark.parametrize(
    "given",
    [
        *({"type": kind} for kind in RAW),
        {"type": "audio/pcmu", "rate": 8000},
        *(
            {"type": "audio/pcm", "rate": rate}
            for rate in (8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
        ),
    ],
    ids=str,
)
def test_each_format_in_any_pieces_is_what_was_sent(service, given):
    with client(service) as socket:
        session = events(socket, "created")[0]["session"]["id"]
        wanted = {"audio": {"input": {"format": given}}, "include": [STEPS]}
        send(socket, "session.update", session=wanted)
        form = events(socket, "updated")[-1]["session"]["audio"]["input"]["format"]
        kind, rate = form["type"], form["rate"]
        data = raw(noise(1.3)[: round(1.1 * 8000)], kind, rate)
        rng = np.random.default_rng(rate)
        cuts = np.sort(rng.choice(len(data), 9, replace=False))  # odd ones among them
        for piece in np.split(np.frombuffer(data, np.uint8), [1, *cuts]):
            append(socket, piece.tobytes())
        send(socket, "input_audio_buffer.commit")
        events(socket, "logged")
    (log,) = read_log(service.log_of(session, "ticker")).utterances
    whole = at_16_khz(data, kind, rate)
    assert len(whole) > 2900
    assert log.audio_hash == hashlib.sha256(whole.tobytes()).hexdigest()


def test_a_sample_s_half_at_the_end_of_an_item_does_not_reach_the_next(service):
    with client(service) as socket:
        update(socket, {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}})
        texts = []
        for data in (pcm(noise(0.5)) + b"\x01", pcm(noise(0.5))):
            append(socket, data)
            send(socket, "input_audio_buffer.commit")
            texts.append(events(socket, "completed")[-1]["transcript"])
        assert texts[0] == texts[1] and len(texts[0].split()) == 2
        append(socket, b"\x01")  # no sample yet
        send(socket, "input_audio_buffer.commit")
        assert events(socket, "error")[-1]["error"]["code"] == "input_audio_buffer_commit_empty"


def test_little_audio_that_the_resampler_still_holds_is_audio(service):
    with client(service) as socket:
        append(socket, pcm(noise(0.001)))  # 16 samples at 24 kHz
        send(socket, "input_audio_buffer.commit")
        assert events(socket, "completed")[-1]["transcript"] == ""


def test_an_update_changes_what_it_names_and_keeps_the_rest(service):
    with client(service) as socket:
        first = events(socket, "created")[0]["session"]
        given = {
            "format": {"type": "audio/pcmu"},
            "transcription": {"model": "slow", "language": "German", "prompt": ""},
            "noise_reduction": None,
            "turn_detection": None,
        }
        after = update(socket, {"audio": {"input": given}, "include": [STEPS]})
        wanted = {
            "format": {"type": "audio/pcmu", "rate": 8000},
            "transcription": {"model": "slow", "language": "de", "prompt": None},
            "turn_detection": None,
        }
        assert (after["audio"]["input"], after["include"]) == (wanted, [STEPS])
        after = update(socket, {"type": "transcription", "audio": {}})
        assert (after["audio"]["input"], after["include"]) == (wanted, [STEPS])
        after = update(socket, {"audio": {"input": {"transcription": {"language": "auto"}}}})
        wanted = {"model": "slow", "language": None, "prompt": None}
        assert after["audio"]["input"]["transcription"] == wanted
        after = update(socket, first)  # what the server reports may be sent back
        assert after == first


PLACES = [
    {},
    {"audio": {}},
    {"audio": {"input": {}}},
    {"audio": {"input": {"format": {}}}},
    {"audio": {"input": {"transcription": {}}}},
]


def _with(key, setting, place):
    if not place:
        return {key: setting}
    ((outer, inner),) = place.items()
    return {outer: _with(key, setting, inner)}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("setting", ["x", 7, True, ["x"], {"a": 1}], ids=str)
def test_an_unknown_setting_is_rejected_by_name_and_changes_nothing(service, place, setting):
    with client(service) as socket:
        before = events(socket, "created")[0]["session"]
        error = update(socket, _with("sped", setting, place))
        assert error["code"] == "unknown_parameter"
        path = ".".join(filter(None, ["session", *_keys(place), "sped"]))
        assert error["message"] == f"{path}: is not supported here; leave it out"
        assert update(socket, {}) == before


def _keys(place):
    return [key for outer, inner in place.items() for key in (outer, *_keys(inner))]


def _input(key, **settings):
    return {"audio": {"input": {key: settings}}}


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"prompt": "Names."}, "session.prompt: is not supported"),
        ({"instructions": "Be brief."}, "session.instructions: is not supported"),
        ({"type": "realtime"}, "session.type=realtime: this server transcribes only; give tran"),
        ({"input_audio_format": "pcm16"}, "session.input_audio_format: is not supported here"),
        ({"audio": {"output": {"voice": "alloy"}}}, "session.audio.output: is not supported"),
        ({"audio": {"input": {"noise_reduction": {}, "nois": 1}}}, "session.audio.input.nois: is"),
        (_input("transcription", prompt="A."), "prompt: ticker takes no prompt"),
        ({"include": ["item.input_audio_transcription.logprobs"]}, "include: item.input_audio_tr"),
        ({"include": STEPS}, "include: is a list of names"),
        ({"audio": {"input": {"transcription": None}}}, "transcription=null: this server transcri"),
        (_input("turn_detection", type="vad"), "turn_detection.type=vad: give server_vad; or turn"),
        (_input("turn_detection", threshold=0.5), "turn_detection.type=None: give server_vad"),
        *(
            (_input("turn_detection", type="server_vad", **wrong), f"turn_detection.{rule}")
            for wrong, rule in (
                ({"threshold": 2}, "threshold=2: must be 0.05 to 0.95"),
                ({"silence_duration_ms": 500.5}, "silence_duration_ms=500.5: must be 100 to 10000"),
                ({"eagerness": "low"}, "eagerness: is not supported here"),
            )
        ),
        (_input("format", type="opus"), "format opus, None Hz: taken are audio/pcm, 16 bit, at 8"),
        (_input("format", type="audio/pcmu", rate=16_000), "audio/pcmu, 16000 Hz"),
        (_input("format", rate=7999), "format audio/pcm, 7999 Hz"),
        ({"audio": {"input": {"transcription": "whisper-1"}}}, "transcription: is 'whisper-1', an"),
        ({"audio": ["pcm16"]}, "audio: is \"['pcm16']\", and must be an object"),
    ],
)
def test_a_setting_that_cannot_be_met_is_rejected(service, given, rule):
    with client(service) as socket:
        assert rule in update(socket, given)["message"]


def test_an_unknown_event_names_those_that_exist(service):
    with client(service) as socket:
        send(socket, "response.create", event_id="mine")
        error = events(socket, "error")[-1]["error"]
        assert (error["event_id"], error["param"]) == ("mine", None)
        message = error["message"]
        assert "there are session.update and input_audio_buffer.append, .commit" in message


LANGUAGES = {
    "en": "en", "EN": "en", "English": "en", "en-US": "en", "en_GB": "en", "eng": "en",
    "zh-CN": "zh", "Chinese": "zh", "cmn": "zh", "pt-BR": "pt", "auto": None, "": None,
}  # fmt: skip


def test_a_language_is_taken_in_any_spelling(service):
    with client(service) as socket:
        for spelling, code in LANGUAGES.items():
            given = {"transcription": {"language": spelling}}
            after = update(socket, {"audio": {"input": given}})
            assert (spelling, after["audio"]["input"]["transcription"]["language"]) == (
                spelling,
                code,
            )
    for spelling, code in LANGUAGES.items():
        answer = post(service, wav(noise(0.5)), response_format="verbose_json", language=spelling)
        assert (spelling, answer.json()["language"]) == (spelling, code or "en")


# -- models -----------------------------------------------------------------------------------

OPENAI = [
    "whisper-1",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-mini-transcribe-2025-12-15",
    "gpt-4o-transcribe-diarize",
    "gpt-transcribe",
    "gpt-live-transcribe",
    "gpt-realtime-whisper",
    "gpt-realtime",
    "gpt-4o-realtime-preview",
    "gpt-4o-mini-realtime-preview-2024-12-17",
]


@pytest.mark.parametrize("name", ["ticker", "base", *OPENAI])
def test_a_name_of_openai_s_stands_for_the_first_method(service, name):
    assert service.chosen(name) == ["ticker"]
    assert service.chosen(f"slow,{name}") == ["slow", "ticker"]
    shown = get(f"{service.address}/v1/models/{name}").json()
    assert (shown["id"], shown["object"], shown["model"]) == (name, "model", "base")
    assert isinstance(shown["created"], int)


@pytest.mark.parametrize("name", ["whisper-9", "gpt-4o", "tts-1", "a/b", "%00", "gpt-4o-search"])
def test_another_name_is_no_model(service, name):
    answer = get(f"{service.address}/v1/models/{name}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert "served are ticker, slow" in answer.json()["error"]["message"]
    assert post(service, wav(noise(0.5)), model=name).json()["error"]["code"] == "model_not_found"


# -- the answers of an upload -----------------------------------------------------------------


def form(service, *fields):
    files = [(key, (None, text)) for key, text in fields]
    files.append(("file", ("talk.wav", wav(noise(1.5)))))
    return httpx.post(f"{service.address}/v1/audio/transcriptions", files=files, timeout=HANG_S)


@pytest.mark.parametrize("key", ["{}[]", "{}", "{}[0]"])
@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        ([], {"segments"}),
        (["segment"], {"segments"}),
        (["word"], {"words"}),
        (["word", "segment"], {"words", "segments"}),
    ],
)
def test_verbose_json_has_what_is_asked_for(service, key, wanted, parts):
    name = key.format("timestamp_granularities")
    fields = [(name, each) for each in wanted]
    answer = form(service, ("response_format", "verbose_json"), *fields).json()
    assert set(answer) == {"task", "language", "duration", "text", *parts}
    if "segments" in parts:
        (segment,) = answer["segments"]
        assert (segment["id"], segment["start"], segment["end"]) == (0, 0.0, 1.5)
        assert segment["text"] == answer["text"]
        assert set(segment) == {
            "id", "seek", "start", "end", "text", "tokens", "temperature", "avg_logprob",
            "compression_ratio", "no_speech_prob",
        }  # fmt: skip
    if "words" in parts:
        assert " ".join(word["word"] for word in answer["words"]) == answer["text"]


def test_subtitles_are_answered_as_text(service):
    text = form(service).json()["text"]
    answer = form(service, ("response_format", "srt"))
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text == f"1\n00:00:00,000 --> 00:00:01,500\n{text}\n"
    assert form(service, ("response_format", "vtt")).text == (
        f"WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n{text}\n"
    )


class Prompted(Ticker):
    """A ticker whose only word is the prompt of its stream."""

    def start(self, *, prompt="none", **options):
        state = super().start(**options)
        state.prompt = prompt
        return state

    def step(self, state, audio, *, last):
        return Update((Word(f" {state.prompt}"),) if last else ())


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    with served(
        tmp_path_factory.mktemp("prompted"),
        {"prompted": Prompted()},
        config={"method": {"prompt": None}},
    ) as made:
        yield made


def test_an_upload_s_prompt_reaches_its_stream_and_its_log(prompted):
    assert form(prompted, ("prompt", "Ada")).json() == {"text": "Ada"}
    assert form(prompted).json() == {"text": "none"}
    logs = [
        log for path in prompted.root.rglob("events.jsonl") for log in read_log(path).utterances
    ]
    assert {log.prompt for log in logs} == {"Ada", None}


def test_a_session_s_prompt_is_that_of_its_items_until_it_changes(prompted):
    texts = []
    with client(prompted) as socket:
        for prompt in ({"prompt": "Ada"}, {}, {"prompt": None}):
            session = update(socket, {"audio": {"input": {"transcription": prompt}}})
            wanted = prompt.get("prompt", "Ada" if prompt == {} else None)
            assert session["audio"]["input"]["transcription"]["prompt"] == wanted
            append(socket, pcm(noise(0.5)))
            send(socket, "input_audio_buffer.commit")
            texts.append(events(socket, "completed")[-1]["transcript"])
        answer = update(socket, {"audio": {"input": {"transcription": {"prompt": 5}}}})
        assert "prompt: is a text" in answer["message"]
    assert texts == ["Ada", "Ada", "none"]


@pytest.mark.parametrize("zero", ["0", "0.0", "0e0", "-0"])
def test_a_temperature_of_zero_is_what_every_method_has(service, zero):
    assert form(service, ("temperature", zero)).status_code == 200


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ([("temperature", "0.2")], "temperature=0.2: only 0 is supported; leave it out"),
        ([("temperature", "nan")], "temperature=nan: only 0"),
        ([("temperature", "warm")], "temperature=warm: only 0"),
        ([("prompt", "Names.")], "prompt: ticker takes no prompt; leave it out"),
        ([("include[]", "logprobs")], "include[]: is not supported here; leave it out"),
        ([("known_speaker_names[]", "A")], "known_speaker_names[]: is not supported here"),
        ([("response_format", "diarized_json")], "one of json, text, srt, vtt, verbose_json"),
        ([("response_format", "srt"), ("stream", "true")], "stream=true: comes as json"),
        ([("timestamp_granularities[]", "word")], "needs response_format=verbose_json"),
        (
            [("timestamp_granularities[]", "letter"), ("response_format", "verbose_json")],
            "timestamp_granularities='letter'",
        ),
        ([("language", "Klingon")], "language=Klingon: give a code such as en, de or fr"),
        ([("model", "whisper-9")], "served are ticker, slow"),
        ([("stream", "perhaps")], "stream='perhaps'"),
        ([("stream", "true"), ("response_format", "verbose_json")], "leave response_format out"),
    ],
)
def test_a_field_that_cannot_be_met_is_rejected_by_name(service, fields, rule):
    answer = form(service, *fields)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert rule in message and len(message) < 200


@pytest.mark.parametrize("content", [b"no sound at all" * 100, b""])
def test_what_is_no_recording_is_rejected(service, content):
    answer = post(service, content)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("talk.wav: ")
    assert not service.sessions


def test_the_log_has_no_long_name_and_no_traceback(service, caplog):
    assert post(service, b"no audio", 4000 * "n" + ".wav").status_code == 400
    with client(service) as socket:
        events(socket, "created")
        with socket.protocol_mutex:
            socket.protocol.send_text(b'{"type": "\xff\xfe"')
            socket.send_data()
        assert events(socket, "error")[-1]["error"]["code"] == "invalid_json"
        set_up(socket)
        assert events(socket, "updated")
    assert not [each for each in caplog.records if each.exc_info]
    assert max(len(each.getMessage()) for each in caplog.records) < 400


# -- errors have one form ---------------------------------------------------------------------


def test_a_decoder_that_crashes_disturbs_no_session(service, tmp_path, monkeypatch):
    mp3 = write_recording(tmp_path / "a.mp3", [Track("libmp3lame", 16_000)]).read_bytes()
    speech = noise(3.0)
    texts = []
    broken = broken_decoder(tmp_path, monkeypatch, "crash")
    with broken, client(service) as one, client(service) as two:
        for socket in (one, two):
            events(socket, "created")
            set_up(socket)
        for begin in range(0, len(speech), 4800):
            for socket in (one, two):
                append(socket, pcm(speech[begin : begin + 4800]))
            answer = post(service, mp3, "talk.mp3")
            assert answer.status_code == 400
            message = rf"talk\.mp3: {FAULTS['crash']}"
            assert re.fullmatch(message, answer.json()["error"]["message"])
            until(lambda: len(service.sessions) == 2)
        assert form(service).status_code == 200  # libsndfile reads it
        for socket in (one, two):
            send(socket, "input_audio_buffer.commit")
            texts.append(events(socket, "completed")[-1]["transcript"])
    whole = np.frombuffer(pcm(speech), "<i2").astype(np.float32) / 32768
    assert texts == 2 * ["".join(word.text for word in Ticker().words(whole)).strip()]
    assert post(service, mp3, "talk.mp3").status_code == 200


def test_a_fault_of_the_server_is_told_in_json_and_the_connection_lives(
    service, monkeypatch, caplog
):
    def fails(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(service, "model", fails)
    with httpx.Client(base_url=service.address, timeout=HANG_S) as one:
        answer = one.get("/v1/models")
        assert answer.status_code == 500
        assert answer.json()["error"] == {
            "type": "server_error",
            "code": "internal_error",
            "message": "a fault of this server, see its log (ZeroDivisionError)",
            "param": None,
        }
        assert one.get("/healthz").status_code == 200
    (logged,) = [each for each in caplog.records if each.exc_info]
    assert logged.getMessage() == "GET /v1/models"


def is_error(answer):
    error = answer.json()["error"]
    assert answer.headers["content-type"] == "application/json"
    assert int(answer.headers["content-length"]) == len(answer.content)
    return set(error) == {"type", "code", "message", "param"} and "\n" not in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/v2", "localhost", 404),
        ("GET", "/v1/sessions/a/b/c", "localhost", 404),
        ("DELETE", "/v1/models", "localhost", 405),
        ("GET", "/v1/audio/transcriptions", "localhost", 405),
        ("POST", "/v1/audio/transcriptions", "localhost", 400),
        ("GET", "/v1/models", "stranger.example", 400),
        ("GET", "/v1/models", "", 400),
    ],
)
def test_every_error_is_json(service, method, path, host, status):
    answer = httpx.request(method, service.address + path, headers={"Host": host}, timeout=HANG_S)
    assert answer.status_code == status and is_error(answer)
    assert ("allow" in answer.headers) == (status == 405)


def test_a_websocket_at_another_place_is_told_where_it_is(service):
    address = service.address.replace("http", "ws")
    with pytest.raises(InvalidStatus) as refused, connect(f"{address}/v1/other"):
        pass
    response = refused.value.response
    assert response.status_code == 404 and response.body is not None
    assert json.loads(response.body)["error"]["message"] == "the WebSocket is at /v1/realtime"


HEAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=X\r\n"
UPGRADE = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def exchange(service, *sent):
    """What comes back, to the end of the connection, when each piece is sent once the server has
    answered the one before."""
    place = urlsplit(service.address)
    received = b""
    with socket_module.create_connection((place.hostname, place.port), timeout=HANG_S) as made:
        for i, piece in enumerate(sent):
            if i:
                received += made.recv(65_536)
            try:
                made.sendall(piece)
            except ConnectionError:
                break
        try:
            while more := made.recv(65_536):
                received += more
        except ConnectionError:
            pass
    return received


@pytest.mark.parametrize(
    "sent",
    [
        (b"\x00\x01 no HTTP\r\n\r\n",),
        (b"GET / HTTP/1.1\r\n\r\n",),  # without a host
        (HEAD + b"Content-Length: -5\r\n\r\n",),
        (HEAD + FORM + CHUNKED + b"ZZ\r\n",),  # a body in bad pieces
        (HEAD + b"Content-Type: multipart/form-data\r\n" + CHUNKED + b"ZZ\r\n",),
        # And after the answer, which did not wait for the body.
        (HEAD + b"Content-Type: multipart/form-data\r\n" + CHUNKED, b"ZZ\r\n"),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED, b"ZZ\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x00\x01\r\n\r\n"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3 + b"\x00\x01\r\n\r\n",),
        (b"POST /v1/realtime HTTP/1.1\r\n" + UPGRADE + b"Content-Length: 2\r\n\r\nab",),
        (b"GET /v1/realtime HTTP/1.1\r\n" + UPGRADE + CHUNKED + b"0\r\n\r\n",),
        (b"GET /v1/realtime HTTP/1.1\r\n" + UPGRADE.replace(b": 13", b": 8") + b"\r\n",),
        (b"GET /v1/realtime HTTP/1.1\r\nOrigin: http://evil\r\n" + UPGRADE + b"\r\n",),
    ],
    ids=lambda sent: repr(sent[-1][-60:]),
)
def test_what_is_no_request_is_answered_and_leaves_no_traceback(tmp_path, caplog, sent):
    with served(tmp_path, {"ticker": BatchedTicker()}) as service:
        answer = exchange(service, *sent)
        assert answer.startswith(b"HTTP/1.1 ")
        until(lambda: not service.sessions)
        assert get(f"{service.address}/healthz").status_code == 200
    assert not [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
