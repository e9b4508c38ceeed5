"""OpenAI's own client, pointed at a server on loopback."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
import soundfile
from fakes import BatchedTicker, noise
from openai import BadRequestError, OpenAI
from served import pcm, served


# The client opens its connection in a way that websockets is about to drop.
@pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager:DeprecationWarning")
def test_the_official_client_transcribes_live_and_recorded_speech(tmp_path: Path) -> None:
    with served(tmp_path, {"whisperrt": BatchedTicker()}, token="secret") as service:
        client = OpenAI(api_key="secret", base_url=f"{service.address}/v1")
        with client.realtime.connect(model="whisperrt") as connection:
            assert connection.recv().type == "session.created"
            form = {"type": "audio/pcm", "rate": 24_000}
            connection.session.update(
                session={
                    "type": "transcription",
                    "audio": {
                        "input": {
                            "format": form,  # type: ignore[typeddict-item]
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
        with pytest.raises(BadRequestError, match="prompt: whisperrt takes no prompt"):
            client.audio.transcriptions.create(model="whisper-1", file=sent, prompt="Hello.")
        client.close()
