"""A WebSocket session in the wire format of OpenAI's Realtime transcription.

The client sends `session.update`, `input_audio_buffer.append` (base64 of PCM16, or of G.711's
mu-law or A-law) and `input_audio_buffer.commit`. Committed words go out as
`conversation.item.input_audio_transcription.delta` as soon as they are final, and `.completed`
follows the commit. With several methods each has an item of its own, `<item>.<method>`.

Deltas only ever grow, so the guess after the committed text has no place in them. A client that
puts STEPS into `session.include` also gets an event of that type for each step: method, delta,
partial (the guess), retracted (words), audio_s, behind_s, step_s and queued_s; and one of type
LOGGED once an item's logs can be fetched, with what was `kept`: the text, the sound.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import logging
import secrets
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from streaming_asr.corpora.audio import Resampler
from streaming_asr.live.cells import LiveCell
from streaming_asr.method import SAMPLE_RATE, Samples, display_text
from streaming_asr.serve.service import Refused, Service

STEPS = "streaming_asr.steps"
LOGGED = "streaming_asr.logged"
USUAL_HZ = 24_000
G711_HZ = 8_000
G711 = {"audio/pcmu": "ULAW", "audio/pcma": "ALAW"}  # libsndfile's names
RATES = {"audio/pcm": range(8_000, 48_001)} | dict.fromkeys(G711, range(G711_HZ, G711_HZ + 1))
# The flat fields of OpenAI's beta, by what they are called in audio.input.
FLAT = {
    "input_audio_format": "format",
    "input_audio_transcription": "transcription",
    "turn_detection": "turn_detection",
}
BETA_FORMATS = {
    "pcm16": {"type": "audio/pcm", "rate": USUAL_HZ},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
# What the server itself reports of a session; a client may send it back.
REPORTED = frozenset({"id", "object", "extensions", "expires_at", "client_secret"})
MAX_UNSENT = 512  # events
MAX_ERRORS = 50  # of a client, which is no client of this format then
SEND_S = 10.0  # for one event
TRANSCRIPTION = "conversation.item.input_audio_transcription"

log = logging.getLogger("streaming_asr.serve")


@dataclass(frozen=True)
class AudioFormat:
    """What the bytes of a session's audio are."""

    kind: str = "audio/pcm"  # or audio/pcmu, audio/pcma
    rate: int = USUAL_HZ

    @property
    def sample_bytes(self) -> int:
        return 1 if self.kind in G711 else 2

    def samples(self, data: bytes) -> Samples:
        """Return whole samples' bytes as float32 in [-1, 1], (n,), at `rate` Hz."""
        if self.kind in G711:
            return _g711(self.kind)[np.frombuffer(data, np.uint8)]
        return np.frombuffer(data, "<i2").astype(np.float32) / np.float32(32768)


@cache
def _g711(kind: str) -> Samples:
    """Return the sample of each byte of G.711, (256,) in [-1, 1], as libsndfile decodes it."""
    import soundfile

    samples: Samples
    samples, _ = soundfile.read(
        io.BytesIO(bytes(range(256))),
        format="RAW",
        subtype=G711[kind],
        samplerate=G711_HZ,
        channels=1,
        dtype="float32",
    )
    return samples


class ConversationItem:
    """The audio between two commits, transcribed by each of the session's methods."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.cells: dict[str, LiveCell] = {}
        self.n_received = 0  # samples, at the client's rate
        self.cut: bytes = b""  # the begin of a sample whose end comes with the next piece
        self.heard: list[Samples] | None = None  # where it is to be kept
        self.n_open = 0
        self.is_logged = True
        self.resampler: Resampler | None = None
        self.done = asyncio.Event()

    def feed(self, samples: Samples) -> None:
        if self.heard is not None:
            self.heard.append(samples)
        for cell in self.cells.values():
            cell.stream.feed(samples)

    def end(self) -> None:
        if self.resampler is not None:
            self.feed(self.resampler.of_frame(None))
            self.resampler = None
        for cell in self.cells.values():
            cell.stream.end()

    @property
    def queued_s(self) -> float:
        return max((cell.stream.queued_s for cell in self.cells.values()), default=0.0)


class RealtimeSession:
    """One client. `run` returns when it is gone or has been closed."""

    def __init__(self, service: Service, socket: WebSocket, name: str, models: list[str]) -> None:
        self.id, self.service, self.socket, self.models = name, service, socket, models
        self.language: str | None = None
        self.format, self.tells_steps = AudioFormat(), False
        self.item: ConversationItem | None = None
        self.unfinished: set[ConversationItem] = set()
        self._n_items = self._n_errors = 0
        self._event_id: str | None = None  # of the client's event that is being taken
        self._heard_s = 0.0
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_UNSENT)
        self._closing = asyncio.Event()
        self._reason = (1001, "the server is stopping")
        self._unread = False
        self._writing: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        self._closing.set()

    async def run(self) -> None:
        """Serve the client to its end."""
        sender = asyncio.create_task(self._send_all())
        closing = asyncio.create_task(self._closing.wait())
        is_there = False
        try:
            self._emit("session.created", session=self._described())
            is_there = await self._listen(sender, closing)
            if is_there:
                await self._settle()
            else:  # nobody would read the rest, so it is not computed
                for cell in self._left():
                    await asyncio.to_thread(_log, cell)
            if is_there and not sender.done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._outgoing.join(), SEND_S)
        finally:
            for task in (sender, closing):
                task.cancel()
            await asyncio.gather(sender, closing, return_exceptions=True)
            for cell in self._left():  # the server stops and waits no longer
                _log(cell)
            if is_there:
                with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                    await asyncio.wait_for(self.socket.close(*self._reason), SEND_S)

    async def _listen(self, sender: asyncio.Task[None], closing: asyncio.Task[Any]) -> bool:
        """Take messages until the session ends; return whether the client is still there."""
        limits = self.service.settings
        while True:
            receive = asyncio.create_task(self.socket.receive())
            done, _ = await asyncio.wait(
                {receive, sender, closing},
                timeout=limits.idle_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if receive not in done:
                receive.cancel()
                await asyncio.gather(receive, return_exceptions=True)
            if sender in done:
                log.warning("%s: does not read what it is sent; dropped", self.id)
                return False
            if closing in done:
                return True
            if not done:
                self._fail("session_idle", f"nothing came for {limits.idle_s:g} s; closed")
                self._reason = (1000, "idle")
                return True
            message = receive.result()
            if message["type"] == "websocket.disconnect":
                if message.get("code") == 1009:
                    log.warning(
                        "%s: a message of more than %d bytes", self.id, limits.max_message_bytes
                    )
                return False
            try:
                self._take(message.get("text"))
            except Refused as error:
                self._fail(error.code, str(error), self._event_id)
                self._n_errors += 1
            if self._n_errors > MAX_ERRORS:
                self._reason = (1008, "too many errors")
                return True
            if self._heard_s > limits.max_session_s:
                self._fail(
                    "session_expired", f"{limits.max_session_s} s of audio came, which is the most"
                )
                self._reason = (1000, "session expired")
                return True
            # Nothing more is read meanwhile: the client's own sending waits for the network.
            while sum(item.queued_s for item in self._open) > limits.max_queued_s and not (
                sender.done() or closing.done()
            ):
                await asyncio.sleep(0.05)

    @property
    def _open(self) -> set[ConversationItem]:
        return {*self.unfinished, *filter(None, [self.item])}

    def _left(self) -> list[LiveCell]:
        """Abandon the streams that have not ended and return their cells, marked as failed."""
        open_cells = (cell for item in self._open for cell in item.cells.values())
        cells = [cell for cell in open_cells if not cell.done.is_set()]
        for cell in cells:
            cell.stream.abandon()
            cell.done.set()
            cell.log.status, cell.log.error = "failed", "the session was left before its end"
        return cells

    async def _settle(self) -> None:
        """End the open item and wait until all audio is transcribed and logged."""
        if self.item is not None:
            self._commit()
        for item in tuple(self.unfinished):
            await item.done.wait()

    # -- what the client sends ----------------------------------------------------------------

    def _take(self, text: str | None) -> None:
        self._event_id = None
        if text is None:
            raise Refused(400, "invalid_message", "binary frames are not taken; send JSON text")
        try:
            event = msgspec.json.decode(text)
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid_json", f"not JSON: {str(error)[:100]}") from error
        if not isinstance(event, dict):
            raise Refused(400, "invalid_message", "an event is a JSON object with a `type`")
        kind, name = event.get("type"), event.get("event_id")
        self._event_id = name[:100] if isinstance(name, str) else None
        if kind == "input_audio_buffer.append":
            self._append(event.get("audio"))
        elif kind == "input_audio_buffer.commit":
            if self.item is None or not self.item.n_received:
                raise Refused(400, "input_audio_buffer_commit_empty", "no audio since the last")
            self._commit()
        elif kind == "input_audio_buffer.clear":
            if self.item is not None:
                for cell in self.item.cells.values():
                    cell.stream.abandon()
                self.item = None
            self._emit("input_audio_buffer.cleared")
        elif kind == "session.update":
            self._update(event.get("session"))
            self._emit("session.updated", session=self._described())
        elif kind == "transcription_session.update":
            reason = "transcription_session.update: is called session.update now, with"
            raise Refused(
                400, "unknown_event", f'{reason} {{"session": {{"type": "transcription", ...}}}}'
            )
        else:
            reason = f"type={str(kind)[:100]!r}: no such event; there are session.update and"
            raise Refused(
                400, "unknown_event", f"{reason} input_audio_buffer.append, .commit and .clear"
            )

    def _append(self, audio: Any) -> None:
        try:
            data = base64.b64decode(audio, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise Refused(400, "invalid_audio", f"audio: not base64 ({error})") from error
        if self.item is None:
            self.item = self._begin()
        data = self.item.cut + data
        whole = len(data) - len(data) % self.format.sample_bytes
        self.item.cut = data[whole:]
        samples, rate = self.format.samples(data[:whole]), self.format.rate
        self.item.n_received += len(samples)
        self._heard_s += len(samples) / rate
        resampler = self.item.resampler
        self.item.feed(samples if resampler is None else resampler.of_samples(samples, rate))

    def _begin(self) -> ConversationItem:
        self._n_items += 1
        item = ConversationItem(f"item_{self._n_items}_{secrets.token_hex(4)}")
        if self.format.rate != SAMPLE_RATE:
            item.resampler = Resampler()
        for name in self.models:
            item.cells[name] = self.service.open(
                self.id,
                name,
                f"{self.id}-{self._n_items}",
                language=self.language,
                grows=True,
                on_step=partial(self._step, item),
                on_end=partial(self._ended, item),
            )
        item.n_open = len(item.cells)
        item.heard = [] if self.service.settings.keep_audio else None
        return item

    def _commit(self) -> None:
        item, self.item = self.item, None
        assert item is not None
        if item.cut:
            log.warning("%s: half a sample at the end of %s is left out", self.id, item.id)
        self.unfinished.add(item)
        for name in item.cells:
            self._emit("input_audio_buffer.committed", item_id=self._name(item, name))
        item.end()

    def _update(self, session: Any) -> None:
        """Take settings as a client of OpenAI's gives them, flat ones of its beta too; what is not
        named stays. Raises Refused, changing nothing, by name for what is not supported."""
        session = _object(session, "session")
        _check_keys(session, "", {"type", "audio", "include", *FLAT, *REPORTED})
        if session.get("type") not in (None, "transcription"):
            reason = (
                f"session.type={str(session['type'])[:100]}: this server transcribes only; give"
            )
            raise Refused(400, "invalid_session", f"{reason} transcription")
        audio = _object(session.get("audio"), "audio")
        _check_keys(audio, "audio.", {"input"})
        fields = dict(_object(audio.get("input"), "audio.input"))
        _check_keys(fields, "audio.input.", {"format", "transcription", "turn_detection"})
        for flat, key in FLAT.items():
            if flat in session and key in fields:
                reason = f"{flat}: is in audio.input.{key} too; give it once"
                raise Refused(400, "invalid_session", reason)
            if flat in session:
                fields[key] = session[flat]
        if fields.get("turn_detection") is not None:
            raise Refused(400, "no_turn_detection", "turn_detection: null; commit ends an item")
        if fields.get("transcription", {}) is None:
            reason = "transcription=null: this server transcribes only; leave it out"
            raise Refused(400, "invalid_session", reason)
        models, language = self._transcription(fields.get("transcription"))
        form = self._format(fields.get("format"))
        include = session.get("include", [STEPS] * self.tells_steps) or []
        if not isinstance(include, list):
            raise Refused(400, "invalid_session", "include: is a list of names")
        if others := [each for each in include if each != STEPS]:
            reason = f"include: {str(others[0])[:100]} is not supported here; leave it out"
            raise Refused(400, "unknown_parameter", reason)
        settings = (form, models, language)
        if self.item is not None and settings != (self.format, self.models, self.language):
            raise Refused(400, "session_busy", "commit before changing format, model or language")
        self.format, self.models, self.language = settings
        self.tells_steps = STEPS in include

    def _transcription(self, fields: Any) -> tuple[list[str], str | None]:
        """Return the methods and the language, None for the server's own."""
        fields, place = _object(fields, "transcription"), "audio.input.transcription."
        _check_keys(fields, place, {"model", "language", "prompt"})
        model, language = fields.get("model"), fields.get("language", self.language)
        if not isinstance(language, str | None) or not isinstance(model, str | None):
            raise Refused(400, "invalid_session", "model and language are texts")
        models = self.service.chosen(model) if model else self.models
        if fields.get("prompt"):
            raise self.service.no_prompt(f"{place}prompt", models)
        return models, self.service.language(models, language)

    def _format(self, fields: Any) -> AudioFormat:
        if fields is None:
            return self.format
        if isinstance(fields, str):
            fields = BETA_FORMATS.get(fields, {"type": fields})
        fields = _object(fields, "format")
        _check_keys(fields, "audio.input.format.", {"type", "rate"})
        kind, rate = fields.get("type"), fields.get("rate")
        kind = self.format.kind if kind is None else kind
        rates = RATES.get(kind, ()) if isinstance(kind, str) else ()
        if rate is None and rates:
            same = kind == self.format.kind
            rate = self.format.rate if same else USUAL_HZ if USUAL_HZ in rates else rates[0]
        if not isinstance(rate, int) or rate not in rates:
            reason = (
                f"format {str(kind)[:99]}, {str(rate)[:99]} Hz: taken are audio/pcm, 16 bit, at"
            )
            pcm = RATES["audio/pcm"]
            reason = f"{reason} {pcm[0]} to {pcm[-1]} Hz, audio/pcmu and audio/pcma at {G711_HZ} Hz"
            raise Refused(400, "invalid_format", reason)
        return AudioFormat(kind, rate)

    def _described(self) -> dict[str, Any]:
        return {
            "object": "realtime.transcription_session",
            "type": "transcription",
            "id": self.id,
            "audio": {
                "input": {
                    "format": {"type": self.format.kind, "rate": self.format.rate},
                    "transcription": {"model": ",".join(self.models), "language": self.language},
                    "turn_detection": None,
                }
            },
            "include": [STEPS] * self.tells_steps,
            "extensions": [STEPS],
        }

    # -- what it is sent ----------------------------------------------------------------------

    def _name(self, item: ConversationItem, method: str) -> str:
        return item.id if len(item.cells) == 1 else f"{item.id}.{method}"

    def _step(self, item: ConversationItem, cell: LiveCell) -> None:
        # One event each, in the order of the steps, whatever has happened since.
        step = cell.take_unsent()
        if step is None:
            return
        seen, is_first = step
        delta = "".join(seen.step.committed)
        where: dict[str, Any] = {"item_id": self._name(item, cell.title), "content_index": 0}
        if delta:
            text = delta.lstrip() if is_first else delta
            self._emit(f"{TRANSCRIPTION}.delta", **where, delta=text)
        if self.tells_steps:
            self._emit(
                STEPS,
                **where,
                method=cell.title,
                delta=delta,
                partial="".join(seen.step.partial),
                retracted=seen.step.retracted,
                audio_s=round(seen.step.audio_s, 3),
                behind_s=round(seen.behind_s, 4),
                step_s=round(seen.step.compute_s, 4),
                queued_s=round(seen.queued_s, 3),
                language=cell.language,
                notice=cell.notice,
            )

    def _ended(self, item: ConversationItem, cell: LiveCell) -> None:
        where: dict[str, Any] = {"item_id": self._name(item, cell.title), "content_index": 0}
        if cell.log.error is None:
            self._emit(
                f"{TRANSCRIPTION}.completed",
                **where,
                transcript=display_text(cell.committed),
                usage={"type": "duration", "seconds": round(cell.log.duration_s, 3)},
            )
        else:
            error = {"type": "server_error", "code": "failed", "message": cell.log.error}
            self._emit(f"{TRANSCRIPTION}.failed", **where, error=error)
        task = asyncio.create_task(self._write(item, cell))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, item: ConversationItem, cell: LiveCell) -> None:
        """Log one method's text. The last method of an item also keeps its sound, sends what was
        kept and closes the item."""
        is_logged = await asyncio.to_thread(_log, cell)
        item.is_logged &= is_logged
        item.n_open -= 1
        if not item.n_open:
            sound = item.heard is not None and await asyncio.to_thread(
                self.service.keep, cell, np.concatenate(item.heard)
            )
            if self.tells_steps:
                storage = {"text": item.is_logged, "sound": sound}
                self._emit(LOGGED, item_id=item.id, session=self.id, kept=storage)
            self.unfinished.discard(item)
            item.done.set()

    def _fail(self, code: str, message: str, event_id: str | None = None) -> None:
        self.service.refused.labels(code).inc()
        log.warning("%s: %s", self.id, message)
        kind = "invalid_request_error"
        error = {"type": kind, "code": code, "message": message, "param": None}
        self._emit("error", error=error | {"event_id": event_id})

    def _emit(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": f"event_{secrets.token_hex(8)}", **fields}
        try:
            self._outgoing.put_nowait(event)
        except asyncio.QueueFull:  # the sender notices
            self._unread = True

    async def _send_all(self) -> None:
        """Send events in turn; return where the client does not take them."""
        while not self._unread:
            event = await self._outgoing.get()
            try:
                text = json.dumps(event, ensure_ascii=False)
                await asyncio.wait_for(self.socket.send_text(text), SEND_S)
            except (TimeoutError, RuntimeError, WebSocketDisconnect):
                return
            self._outgoing.task_done()


def _log(cell: LiveCell) -> bool:
    try:
        cell.write()
    except Exception as error:  # a full disk ends the logging, not the session
        log.error("%s: %s", cell.folder, error)
        return False
    return True


def _object(value: Any, name: str) -> Mapping[str, Any]:
    """Return what is an object, or nothing. Raises Refused for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        reason = f"{name}: is {str(value)[:100]!r}, and must be an object"
        raise Refused(400, "invalid_session", reason)
    return value


def _check_keys(settings: Mapping[str, Any], place: str, names: Set[str]) -> None:
    """Raise Refused for a setting that is not among `names`; null and empty ones ask nothing."""
    for key, setting in settings.items():
        if key not in names and setting not in (None, "", [], {}):
            reason = f"session.{place}{key[:100]}: is not supported here; leave it out"
            raise Refused(400, "unknown_parameter", reason)
