"""Reads `session.update` as a client of OpenAI's writes it, as far as it is looked at."""

from __future__ import annotations

from typing import Any

import msgspec

from streaming_asr.serve.service import Refused

RATES = (16_000, 24_000)


class Format(msgspec.Struct):
    type: str = "audio/pcm"
    rate: int | None = None


class Transcription(msgspec.Struct):
    model: str | None = None
    language: str | msgspec.UnsetType | None = msgspec.UNSET


class Input(msgspec.Struct):
    format: Format | None = None
    transcription: Transcription | None = None
    turn_detection: Any = None


class Audio(msgspec.Struct):
    input: Input | None = None


class Session(msgspec.Struct):
    audio: Audio | None = None
    include: list[str] | None = None


def read_update(session: Any) -> tuple[Format, Transcription, list[str]]:
    """Return the format, the transcription and the `include` of a session. Raises Refused."""
    try:
        update = msgspec.convert(session, Session)
    except msgspec.ValidationError as error:
        raise Refused(400, "invalid_session", f"session: {error}") from error
    given = (update.audio and update.audio.input) or Input()
    form = given.format or Format()
    if form.type != "audio/pcm" or form.rate not in (*RATES, None):
        raise Refused(
            400,
            "invalid_format",
            f"format {form.type[:100]}, {form.rate} Hz: taken is audio/pcm, 16 bit, at {RATES[0]} "
            f"or {RATES[1]} Hz",
        )
    if given.turn_detection is not None:
        raise Refused(400, "no_turn_detection", "turn_detection: null; commit ends an item")
    return form, given.transcription or Transcription(), update.include or []
