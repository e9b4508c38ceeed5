"""OpenAI's own clients, for Python and JavaScript, pointed at a server on loopback."""

import base64
import io
import json
import os
import re
import shutil
import socket
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile
from containers import EVERY_S, Track, write_recording
from fakes import BatchedTicker, noise
from places import HANG_S, ROOT
from served import pcm, post, served, until, wav

from streaming_asr.serve import turns


# The client opens its connection in a way that websockets is about to drop.
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_the_official_client_transcribes_live_and_recorded_speech(tmp_path):
    from openai import BadRequestError, NotFoundError, OpenAI

    with served(tmp_path, {"whisperrt": BatchedTicker()}, token="secret") as service:
        client = OpenAI(api_key="secret", base_url=f"{service.address}/v1", max_retries=0)
        with client.realtime.connect(model="whisperrt") as connection:
            assert connection.recv().type == "session.created"
            form = {"type": "audio/pcm", "rate": 24_000}
            connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": form,
                            "transcription": {"model": "whisperrt", "language": "en"},
                            "turn_detection": None,
                        }
                    },
                }
            )
            data = pcm(noise(3.0))  # 2 s at 24 kHz
            for begin in range(0, len(data), 9600):
                audio = base64.b64encode(data[begin : begin + 9600]).decode()
                connection.input_audio_buffer.append(audio=audio)
            connection.input_audio_buffer.commit()
            deltas, text = [], None
            while text is None:
                event = connection.recv()
                assert event.type != "error", event
                if event.type == "conversation.item.input_audio_transcription.delta":
                    deltas.append(event.delta)
                if event.type == "conversation.item.input_audio_transcription.completed":
                    text = event.transcript
        assert "".join(filter(None, deltas)) == text
        assert len(text.split()) == 8

        file = io.BytesIO()
        soundfile.write(file, noise(1.5), 16_000, format="WAV")
        sent = ("talk.wav", file.getvalue())
        whole = client.audio.transcriptions.create(model="whisperrt", file=sent)
        assert len(whole.text.split()) == 6
        events = list(client.audio.transcriptions.create(model="whisperrt", file=sent, stream=True))
        assert [event.type for event in events][-1] == "transcript.text.done"
        assert events[-1].text == whole.text
        verbose = client.audio.transcriptions.create(
            model="whisper-1",
            file=sent,
            response_format="verbose_json",
            timestamp_granularities=["word"],
        )
        assert (verbose.text, verbose.duration) == (whole.text, 1.5)
        assert [word.end for word in verbose.words or []] == [0.25 * i for i in range(1, 7)]
        srt = client.audio.transcriptions.create(
            model="whisper-1", file=sent, response_format="srt", language="English", temperature=0
        )
        assert srt == f"1\n00:00:00,000 --> 00:00:01,500\n{whole.text}\n"
        assert client.models.retrieve("whisper-1").id == "whisper-1"
        assert [model.id for model in client.models.list()] == ["whisperrt"]
        with pytest.raises(NotFoundError, match="served are whisperrt"):
            client.models.retrieve("whisper-9")
        for fault, wrong in (
            ("prompt: whisperrt takes no prompt", {"file": sent, "prompt": "Hello."}),
            ("not readable as audio", {"file": ("talk.wav", b"no sound" * 99)}),
        ):
            with pytest.raises(BadRequestError, match=fault):
                client.audio.transcriptions.create(model="whisper-1", **wrong)
        client.close()


class LoudIsSpeech:
    """In the place of Silero."""

    def stream(self):
        return lambda block: float(np.abs(block).mean() > 0.005)


@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_the_server_finds_turns_for_the_official_client(tmp_path, monkeypatch):
    """Two turns of 1.024 s, 32 blocks of the gate; the client never commits the first."""
    from openai import OpenAI

    monkeypatch.setattr(turns, "silero", LoudIsSpeech)
    speech, pause = noise(1.024), np.zeros(16_384, np.float32)
    audio = pcm(np.concatenate([pause, speech, pause, speech]))
    with served(tmp_path, {"whisperrt": BatchedTicker()}) as service:
        client = OpenAI(api_key="any", base_url=f"{service.address}/v1")
        with client.realtime.connect(model="whisperrt") as connection:
            wanted = {"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 320}
            wanted["silence_duration_ms"] = 640
            form = {"type": "audio/pcm", "rate": 16_000}
            detection = {"format": form, "turn_detection": wanted}
            connection.session.update(
                session={"type": "transcription", "audio": {"input": detection}}
            )
            for begin in range(0, len(audio), 6401):  # a piece may end within a sample
                piece = base64.b64encode(audio[begin : begin + 6401]).decode()
                connection.input_audio_buffer.append(audio=piece)
            connection.input_audio_buffer.commit()
            seen, texts = [], []
            while len(texts) < 2:
                event = connection.recv()
                assert event.type != "error", event
                if event.type == "session.updated":
                    shown = event.session.audio.input.turn_detection
                    assert shown.model_dump(exclude_unset=True) == wanted
                if event.type.startswith("input_audio_buffer.speech_"):
                    seen.append(getattr(event, "audio_start_ms", getattr(event, "audio_end_ms", 0)))
                if event.type == "input_audio_buffer.committed":
                    seen.append(event.item_id)
                if event.type.endswith(".completed"):
                    texts.append((event.item_id, len(event.transcript.split())))
        client.close()
    (first, n_first), (second, n_second) = texts
    # 0.32 s before each; 0.64 s after the first, and the end of the audio after the second.
    assert seen == [704, 2688, first, 2752, 4096, second]
    assert (n_first, n_second) == (7, 5)  # a word each whole 0.25 s of 1.984 and 1.344 s


@contextmanager
def node(folder, *arguments, **environment):
    """A Node process in a folder, which ends with the block."""
    process = subprocess.Popen(
        ["node", *arguments],
        cwd=folder,
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        return port


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.slow
def test_the_javascript_client_works_by_the_manual_s_proxy(tmp_path):
    for program in ("node", "npm", "openssl"):
        if shutil.which(program) is None:
            pytest.skip(f"needs {program}")
    install = ["npm", "install", "--no-audit", "--no-fund", "openai@6", "ws@8"]
    done = subprocess.run(install, cwd=tmp_path, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"npm installs nothing here: {done.stderr[-300:]}")
    shutil.copy(ROOT / "tests/fixtures/openai_client.mjs", tmp_path / "client.mjs")
    manual = (ROOT / "docs/live.md").read_text(encoding="utf-8")
    (proxy,) = re.findall(r"```js\n(.*?)```", manual, re.DOTALL)
    (certificate,) = re.findall(r"`(openssl req [^`]*)`", manual)
    subprocess.run(certificate.split(), cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "talk.wav").write_bytes(wav(noise(1.5)))
    mulaw = tmp_path / "talk.ulaw"
    soundfile.write(mulaw, noise(1.0), 8000, format="RAW", subtype="ULAW")  # 2 s
    port = free_port()
    with served(tmp_path / "served", {"whisperrt": BatchedTicker()}) as service:
        there = str(urlsplit(service.address).port)
        (tmp_path / "proxy.mjs").write_text(
            proxy.replace("8000", there).replace("8443", str(port)), encoding="utf-8"
        )
        secure, plain = f"https://localhost:{port}/v1", f"{service.address}/v1"
        with node(tmp_path, "proxy.mjs") as proxying:
            until(lambda: is_open(port) or proxying.poll() is not None)
            assert proxying.poll() is None, proxying.communicate()[1]
            call = ("client.mjs", secure, plain, "talk.wav", str(mulaw))
            with node(tmp_path, *call, NODE_EXTRA_CA_CERTS="cert.pem") as client:
                out, complaint = client.communicate(timeout=HANG_S)
    assert client.returncode == 0, complaint
    answers = json.loads(out)
    text = answers["json"]["text"]
    assert len(text.split()) == 6
    assert answers["srt"] == f"1\n00:00:00,000 --> 00:00:01,500\n{text}\n"
    assert answers["vtt"] == f"WEBVTT\n\n00:00:00.000 --> 00:00:01.500\n{text}\n"
    assert [each["text"] for each in answers["verbose"]["segments"]] == [text]
    assert "words" not in answers["verbose"]
    assert [len(answers["words"][part]) for part in ("segments", "words")] == [1, 6]
    assert answers["stream"][-1] == {"type": "transcript.text.done", "text": text}
    assert (answers["model"]["id"], answers["models"]) == ("whisper-1", ["whisperrt"])
    status, message = answers["refused"]
    assert status == 400 and "prompt: whisperrt takes no prompt" in message
    assert "".join(answers["live"]["deltas"]) == answers["live"]["text"]
    assert len(answers["live"]["text"].split()) == 8


# -- Recordings of any format, by POST --


@pytest.fixture
def service(tmp_path):
    with served(tmp_path / "served") as made:
        yield made


@pytest.mark.parametrize(
    ("ending", "form", "codec"),
    [("m4a", "ipod", "aac"), ("webm", "webm", "libopus"), ("mp3", "mp3", "libmp3lame"),
     ("aac", "adts", "aac"), ("flac", "flac", "flac")],
)  # fmt: skip
def test_the_content_of_a_recording_tells_its_format(service, tmp_path, ending, form, codec):
    track = Track(codec, 44_100 if codec != "libopus" else 48_000)
    path = write_recording(tmp_path / f"a.{ending}", [track], form=form)
    for name in ("talk", "talk.wav", "talk.mp4"):
        answer = post(service, path.read_bytes(), name=name, response_format="verbose_json")
        assert answer.status_code == 200, answer.text
        assert answer.json()["duration"] == pytest.approx(4 * EVERY_S, abs=0.1)


def test_a_recording_whose_rate_changes_is_transcribed_to_its_end(service, tmp_path):
    joined = b""
    for n, (rate, channels) in enumerate(((44_100, 1), (24_000, 2))):
        track = Track("aac", rate, channels=channels)
        joined += write_recording(tmp_path / f"{n}.aac", [track], form="adts").read_bytes()
    answer = post(service, joined, response_format="verbose_json")
    assert answer.status_code == 200
    assert answer.json()["duration"] == pytest.approx(8 * EVERY_S, abs=0.2)
