"""A WebSocket session in the wire format of OpenAI's Realtime transcription.

The client sends `session.update`, `input_audio_buffer.append` (base64 of PCM16, or of G.711's
mu-law or A-law) and `input_audio_buffer.commit`. Committed words go out as
`conversation.item.input_audio_transcription.delta` as soon as they are final, and `.completed`
follows the commit. With several methods each has an item of its own, `<item>.<method>`.
With `turn_detection` an item is a stretch of speech that the server finds, and ends by itself.

The text of deltas only grows, so the partial words after it are not in them. A client that has
STEPS in `session.include` also gets an event of that type for each step: method, delta, partial
(text), retracted (words), audio_s, behind_s, step_s and queued_s; and one of type LOGGED when an
item's logs can be fetched, with `kept`: whether the text was stored.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import io
import json
import logging
import secrets
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
from starlette.websockets import WebSocket, WebSocketDisconnect

from streaming_asr.corpora.audio import Resampler
from streaming_asr.live.cells import LiveCell
from streaming_asr.live.streams import LiveStep
from streaming_asr.method import SAMPLE_RATE, Samples, display_text
from streaming_asr.serve.service import Refused, Service
from streaming_asr.serve.turns import SAMPLES_PER_MS, Turns, turn_detection
from streaming_asr.whisper.vad import Stretch

STEPS = "streaming_asr.steps"
LOGGED = "streaming_asr.logged"
USUAL_HZ = 24_000
G711_HZ = 8_000
G711 = {"audio/pcmu": "ULAW", "audio/pcma": "ALAW"}  # libsndfile's names
RATES = {"audio/pcm": range(8_000, 48_001)} | dict.fromkeys(G711, range(G711_HZ, G711_HZ + 1))
# What the server itself reports of a session; a client may send it back.
REPORTED = frozenset({"id", "object", "extensions", "expires_at", "client_secret"})
MAX_UNSENT = 512  # events
MAX_ERRORS = 50  # of a client; one with more does not use this format
SEND_S = 10.0  # for one event
TRANSCRIPTION = "conversation.item.input_audio_transcription"

log = logging.getLogger("streaming_asr.serve")


@dataclass(frozen=True)
class AudioFormat:
    """The encoding of a session's audio; rate in Hz."""

    kind: str = "audio/pcm"  # or audio/pcmu, audio/pcma
    rate: int = USUAL_HZ

    @property
    def sample_bytes(self) -> int:
        return 1 if self.kind in G711 else 2

    def samples(self, data: bytes) -> Samples:
        """Return the samples of `data`, (n,) float32 in [-1, 1] at `rate` Hz. data: whole samples,
        n * sample_bytes."""
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
        self.n_open = 0  # methods that have not ended
        self.is_logged = True  # whether the logs of all methods that have ended were written
        self.done = asyncio.Event()

    def feed(self, samples: Samples) -> None:
        """Add audio, (n,) at 16 kHz, for all methods."""
        for cell in self.cells.values():
            cell.stream.feed(samples)

    def end(self) -> None:
        """End the audio of all methods."""
        for cell in self.cells.values():
            cell.stream.end()

    @property
    def queued_s(self) -> float:
        return max((cell.stream.queued_s for cell in self.cells.values()), default=0.0)


class RealtimeSession:
    """The session of one client. `run` returns when the client has left or is disconnected."""

    def __init__(self, service: Service, socket: WebSocket, models: list[str]) -> None:
        """Raises Refused where the service takes no more sessions."""
        self.service, self.socket, self.models = service, socket, models
        self.language: str | None = None
        self.prompt: str | None = None
        self.format, self.sends_steps = AudioFormat(), False
        self.item: ConversationItem | None = None
        self.unfinished: set[ConversationItem] = set()
        self._n_items = self._n_errors = 0
        self._event_id: str | None = None  # of the client's event that is handled now
        self._received_s = 0.0  # audio
        self._incomplete = b""  # the first bytes of a sample whose end is still to come
        self._resampler: Resampler | None = Resampler()  # None: the audio is at 16 kHz
        self._turns: Turns | None = None  # finds the items; None: the client commits them
        self._outgoing: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_UNSENT)
        self._closing = asyncio.Event()
        self.id = service.admit(self._closing.set)
        self._close_reason = (1001, "the server is stopping")  # of the WebSocket
        self._is_full = False  # the client has left MAX_UNSENT events unread
        self._writing: set[asyncio.Task[None]] = set()  # a task without a reference may vanish

    async def run(self) -> None:
        """Serve the client until it leaves or the session ends; then finish its audio, write the
        logs and close the connection."""
        sender = asyncio.create_task(self._send_all())
        closing = asyncio.create_task(self._closing.wait())
        is_connected = False
        try:
            self._emit("session.created", session=self._described())
            is_connected = await self._listen(sender, closing)
            if is_connected:
                await self._settle()
            else:  # nobody would read the rest, so it is not computed
                for cell in self._abandon_streams():
                    await asyncio.to_thread(_log, cell)
            if is_connected and not sender.done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._outgoing.join(), SEND_S)
        finally:
            for task in (sender, closing):
                task.cancel()
            await asyncio.gather(sender, closing, return_exceptions=True)
            for cell in self._abandon_streams():  # where the server stops and cancels this task
                _log(cell)
            if is_connected:
                with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
                    await asyncio.wait_for(self.socket.close(*self._close_reason), SEND_S)

    async def _listen(self, sender: asyncio.Task[None], closing: asyncio.Task[Any]) -> bool:
        """Handle the client's messages until the session ends; return whether the client is still
        connected. sender: sends events, and ends where the client does not read them. closing: ends
        when the server stops."""
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
                self._close_reason = (1000, "idle")
                return True
            message = receive.result()
            if message["type"] == "websocket.disconnect":
                if message.get("code") == 1009:  # uvicorn has closed it
                    log.warning(
                        "%s: a message of more than %d bytes", self.id, limits.max_message_bytes
                    )
                return False
            try:
                await self._take(message.get("text"))
            except Refused as error:
                self._fail(error.code, str(error), self._event_id)
                self._n_errors += 1
            if self._n_errors > MAX_ERRORS:
                self._close_reason = (1008, "too many errors")
                return True
            if self._received_s > limits.max_session_s:
                self._fail(
                    "session_expired", f"{limits.max_session_s} s of audio came, which is the most"
                )
                self._close_reason = (1000, "session expired")
                return True
            # While nothing is read, the network makes the client wait with further audio.
            while self._queued_s > limits.max_queued_s and not (sender.done() or closing.done()):
                await asyncio.sleep(0.05)

    @property
    def _open_items(self) -> set[ConversationItem]:
        """Return the items of which a method has not ended."""
        return {*self.unfinished, *filter(None, [self.item])}

    @property
    def _queued_s(self) -> float:
        """Return the seconds of audio that wait to be processed."""
        return sum(item.queued_s for item in self._open_items)

    def _abandon_streams(self) -> list[LiveCell]:
        """Abandon the streams that have not ended, and return their cells, marked as failed."""
        cells = [cell for item in self._open_items for cell in item.cells.values()]
        cells = [cell for cell in cells if not cell.done.is_set()]
        for cell in cells:
            cell.stream.abandon()
            cell.done.set()
            cell.log.status, cell.log.error = "failed", "the session was left before its end"
        return cells

    async def _settle(self) -> None:
        """End the open item and wait until all audio is transcribed and logged."""
        await self._end_turn()
        if self.item is not None:
            self._commit()
        for item in tuple(self.unfinished):
            await item.done.wait()

    # -- what the client sends ----------------------------------------------------------------

    async def _take(self, text: str | None) -> None:
        """Handle one event of the client; None is a binary message. Raises Refused."""
        self._event_id = None
        if text is None:
            raise Refused("invalid_message", "binary frames are not taken; send JSON text")
        try:
            event = msgspec.json.decode(text)
        except (ValueError, RecursionError) as error:
            raise Refused("invalid_json", f"not JSON: {str(error)[:100]}") from error
        if not isinstance(event, dict):
            raise Refused("invalid_message", "an event is a JSON object with a `type`")
        kind, name = event.get("type"), event.get("event_id")
        self._event_id = name[:100] if isinstance(name, str) else None
        if kind == "input_audio_buffer.append":
            await self._append(event.get("audio"))
        elif kind == "input_audio_buffer.commit":
            is_ended = await self._end_turn()
            if not is_ended and (self.item is None or not self.item.n_received):
                raise Refused("input_audio_buffer_commit_empty", "no audio since the last")
            if self.item is not None:
                self._commit()
        elif kind == "input_audio_buffer.clear":
            if self.item is not None:
                for cell in self.item.cells.values():
                    cell.stream.abandon()
                self.item = None
            rest, self._incomplete = self._rest(), b""
            if self._turns is not None:
                await asyncio.to_thread(self._turns.end, rest)
            self._emit("input_audio_buffer.cleared")
        elif kind == "session.update":
            self._update(event.get("session"))
            self._emit("session.updated", session=self._described())
        else:
            reason = f"type={str(kind)[:100]!r}: no such event; there are session.update and"
            raise Refused(
                "unknown_event", f"{reason} input_audio_buffer.append, .commit and .clear"
            )

    async def _append(self, audio: Any) -> None:
        """Add base64 audio to the open item, or to a new one. A piece may end within a sample.
        Raises Refused for what is not base64."""
        try:
            data = base64.b64decode(audio, validate=True)
        except (TypeError, ValueError, binascii.Error) as error:
            raise Refused("invalid_audio", f"audio: not base64 ({error})") from error
        data = self._incomplete + data
        n_bytes = len(data) - len(data) % self.format.sample_bytes  # of complete samples
        self._incomplete = data[n_bytes:]
        samples, rate = self.format.samples(data[:n_bytes]), self.format.rate
        n_samples = len(samples)
        self._received_s += n_samples / rate
        if self._resampler is not None:
            samples = self._resampler.of_samples(samples, rate)
        if self._turns is not None:  # in a thread: a minute of audio takes a quarter of a second
            self._add_turns(await asyncio.to_thread(self._turns.push, samples))
            return
        if self.item is None:
            self.item = self._begin()
        self.item.n_received += n_samples
        self.item.feed(samples)

    def _rest(self) -> Samples:
        """Return the samples, (n,), that the resampler still holds; the next audio follows no
        other."""
        resampler = self._resampler
        self._resampler = None if self.format.rate == SAMPLE_RATE else Resampler()
        return np.zeros(0, np.float32) if resampler is None else resampler.of_frame(None)

    def _add_turns(self, stretches: Sequence[Stretch]) -> None:
        """Begin, continue and end items with the speech that was found."""
        for stretch in stretches:
            if stretch.begins:
                self.item = self._begin()
                begin_ms = stretch.start // SAMPLES_PER_MS
                self._emit_speech("started", self.item, audio_start_ms=begin_ms)
            assert self.item is not None
            self.item.n_received += len(stretch.audio)
            self.item.feed(stretch.audio)
            if stretch.ends:
                end_ms = (stretch.start + len(stretch.audio)) // SAMPLES_PER_MS
                self._emit_speech("stopped", self.item, audio_end_ms=end_ms)
                self._commit()

    def _emit_speech(self, change: str, item: ConversationItem, **time_ms: int) -> None:
        for name in item.cells:
            kind = f"input_audio_buffer.speech_{change}"
            self._emit(kind, item_id=self._name(item, name), **time_ms)

    async def _end_turn(self) -> bool:
        """End the open turn, if the server finds the turns and one is open; return whether it
        did."""
        if self._turns is None or self.item is None:
            return False
        self._add_turns(await asyncio.to_thread(self._turns.end, self._rest()))
        return True

    def _begin(self) -> ConversationItem:
        """Return a new item, with a stream of each of the session's methods."""
        self._n_items += 1
        item = ConversationItem(f"item_{self._n_items}_{secrets.token_hex(4)}")
        for name in self.models:
            item.cells[name] = self.service.open(
                self.id,
                name,
                f"{self.id}-{self._n_items}",
                language=self.language,
                prompt=self.prompt,
                grows=True,
                on_step=partial(self._step, item),
                on_end=partial(self._ended, item),
            )
        item.n_open = len(item.cells)
        return item

    def _commit(self) -> None:
        """End the audio of the open item, which is finished in the background."""
        item, self.item = self.item, None
        assert item is not None
        if self._turns is None:
            item.feed(self._rest())
            if self._incomplete:
                log.warning("%s: half a sample at the end of %s is left out", self.id, item.id)
            self._incomplete = b""
        self.unfinished.add(item)
        for name in item.cells:
            self._emit("input_audio_buffer.committed", item_id=self._name(item, name))
        item.end()

    def _update(self, session: Any) -> None:
        """Change the session's settings, in the form of OpenAI's API; settings that are not there
        stay. Raises Refused, before any change, for a wrong value and for a setting that is not
        supported."""
        session = _object(session, "session")
        _check_keys(session, "", {"type", "audio", "include", *REPORTED})
        if session.get("type") not in (None, "transcription"):
            reason = (
                f"session.type={str(session['type'])[:100]}: this server transcribes only; give"
            )
            raise Refused("invalid_session", f"{reason} transcription")
        audio = _object(session.get("audio"), "audio")
        _check_keys(audio, "audio.", {"input"})
        fields = _object(audio.get("input"), "audio.input")
        _check_keys(fields, "audio.input.", {"format", "transcription", "turn_detection"})
        # A field that is not there stays; null ends the server's detection.
        detection = self._turns.settings if self._turns is not None else None
        if "turn_detection" in fields:
            detection = turn_detection(_object(fields["turn_detection"], "turn_detection"))
        if fields.get("transcription", {}) is None:
            reason = "transcription=null: this server transcribes only; leave it out"
            raise Refused("invalid_session", reason)
        models, language, prompt = self._transcription(fields.get("transcription"))
        form = self._format(fields.get("format"))
        include = session.get("include", self._include) or []
        if not isinstance(include, list):
            raise Refused("invalid_session", "include: is a list of names")
        if others := [name for name in include if name != STEPS]:
            reason = f"include: {str(others[0])[:100]} is not supported here; leave it out"
            raise Refused("unknown_parameter", reason)
        settings = (form, models, language, prompt, detection)
        before = self._turns.settings if self._turns is not None else None
        old = (self.format, self.models, self.language, self.prompt, before)
        if self.item is not None and settings != old:
            raise Refused("session_busy", "commit before changing the settings of the audio")
        if (form, detection) != (self.format, before):
            self._turns = Turns(detection) if detection is not None else None
        self.format, self.models, self.language, self.prompt = form, models, language, prompt
        if self.item is None:
            self._rest()
        self.sends_steps = STEPS in include

    def _transcription(self, fields: Any) -> tuple[list[str], str | None, str | None]:
        """Return (methods, language, prompt) of the object `transcription`, the session's where it
        has none; a language or prompt of None is the server's. Raises Refused."""
        fields, place = _object(fields, "transcription"), "audio.input.transcription."
        _check_keys(fields, place, {"model", "language", "prompt"})
        model, language = fields.get("model"), fields.get("language", self.language)
        if not isinstance(language, str | None) or not isinstance(model, str | None):
            raise Refused("invalid_session", "model and language are texts")
        models = self.service.chosen(model) if model else self.models
        prompt = fields.get("prompt", self.prompt)
        prompt = self.service.prompt(f"{place}prompt", models, prompt)
        return models, self.service.language(models, language), prompt

    def _format(self, fields: Any) -> AudioFormat:
        """Return the audio format of an object `format`; the session's for None. Raises Refused
        for one that is not supported."""
        if fields is None:
            return self.format
        fields = _object(fields, "format")
        _check_keys(fields, "audio.input.format.", {"type", "rate"})
        kind, rate = fields.get("type"), fields.get("rate")
        kind = self.format.kind if kind is None else kind
        rates = RATES.get(kind, ()) if isinstance(kind, str) else ()
        if rate is None and rates:
            rate = USUAL_HZ if USUAL_HZ in rates else rates[0]
            if kind == self.format.kind:
                rate = self.format.rate
        if not isinstance(rate, int) or rate not in rates:
            pcm = RATES["audio/pcm"]
            raise Refused(
                "invalid_format",
                f"format {str(kind)[:99]}, {str(rate)[:99]} Hz: taken are audio/pcm, 16 bit, at "
                f"{pcm[0]} to {pcm[-1]} Hz, audio/pcmu and audio/pcma at {G711_HZ} Hz",
            )
        return AudioFormat(kind, rate)

    @property
    def _include(self) -> list[str]:
        return [STEPS] if self.sends_steps else []

    def _described(self) -> dict[str, Any]:
        """Return the session's settings in the form of OpenAI's API."""
        return {
            "object": "realtime.transcription_session",
            "type": "transcription",
            "id": self.id,
            "audio": {
                "input": {
                    "format": {"type": self.format.kind, "rate": self.format.rate},
                    "transcription": {
                        "model": ",".join(self.models),
                        "language": self.language,
                        "prompt": self.prompt,
                    },
                    "turn_detection": self._turns and self._turns.settings.described,
                }
            },
            "include": self._include,
            "extensions": [STEPS],
        }

    # -- what the server sends ----------------------------------------------------------------

    def _name(self, item: ConversationItem, method: str) -> str:
        """Return the id of a method's part of an item for the client."""
        return item.id if len(item.cells) == 1 else f"{item.id}.{method}"

    def _step(self, item: ConversationItem, cell: LiveCell, live_step: LiveStep) -> None:
        """Send the events of a step, maybe after later steps were made."""
        step = live_step.step
        part: dict[str, Any] = {"item_id": self._name(item, cell.title), "content_index": 0}
        delta = "".join(step.committed)
        if delta:
            self._emit(f"{TRANSCRIPTION}.delta", **part, delta=live_step.text)
        if self.sends_steps:
            self._emit(
                STEPS,
                **part,
                method=cell.title,
                delta=delta,
                partial="".join(step.partial),
                retracted=step.retracted,
                audio_s=round(step.audio_s, 3),
                behind_s=round(live_step.behind_s, 4),
                step_s=round(step.compute_s, 4),
                queued_s=round(live_step.queued_s, 3),
                language=cell.language,
                notice=cell.notice,
            )

    def _ended(self, item: ConversationItem, cell: LiveCell) -> None:
        """Send the final text of a method that has ended an item, or its error, and write its
        log."""
        part: dict[str, Any] = {"item_id": self._name(item, cell.title), "content_index": 0}
        if cell.log.error is None:
            self._emit(
                f"{TRANSCRIPTION}.completed",
                **part,
                transcript=display_text(cell.committed),
                usage={"type": "duration", "seconds": round(cell.log.duration_s, 3)},
            )
        else:
            error = {"type": "server_error", "code": "failed", "message": cell.log.error}
            self._emit(f"{TRANSCRIPTION}.failed", **part, error=error)
        task = asyncio.create_task(self._write(item, cell))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, item: ConversationItem, cell: LiveCell) -> None:
        """Write the log of one method. After the last method of an item, also send the event LOGGED
        and close the item."""
        is_logged = await asyncio.to_thread(_log, cell)
        item.is_logged = item.is_logged and is_logged
        item.n_open -= 1
        if item.n_open:
            return
        if self.sends_steps:
            self._emit(LOGGED, item_id=item.id, session=self.id, kept={"text": item.is_logged})
        self.unfinished.discard(item)
        item.done.set()

    def _fail(self, code: str, message: str, event_id: str | None = None) -> None:
        """Log and send an error. event_id: of the client's event with the fault."""
        log.warning("%s: %s", self.id, message)
        kind = "invalid_request_error"
        error = {"type": kind, "code": code, "message": message, "param": None}
        self._emit("error", error=error | {"event_id": event_id})

    def _emit(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": f"event_{secrets.token_hex(8)}", **fields}
        try:
            self._outgoing.put_nowait(event)
        except asyncio.QueueFull:  # `_send_all` ends
            self._is_full = True

    async def _send_all(self) -> None:
        """Send events in turn; return when the client has left or does not read them."""
        while not self._is_full:
            event = await self._outgoing.get()
            try:
                text = json.dumps(event, ensure_ascii=False)
                await asyncio.wait_for(self.socket.send_text(text), SEND_S)
            except (TimeoutError, RuntimeError, WebSocketDisconnect):
                return
            self._outgoing.task_done()


def _log(cell: LiveCell) -> bool:
    """Write a method's log; return whether that succeeded."""
    try:
        cell.write()
    except Exception as error:  # a full disk ends the logging, not the session
        log.error("%s: %s", cell.folder, error)
        return False
    return True


def _object(value: Any, name: str) -> Mapping[str, Any]:
    """Return a JSON object, {} for None. Raises Refused, which begins with `name`, for any other
    value."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused("invalid_session", f"{name}: is {str(value)[:100]!r}, and must be an object")
    return value


def _check_keys(settings: Mapping[str, Any], place: str, names: Set[str]) -> None:
    """Raise Refused for a setting that is not among `names`, unless its value is null or empty,
    which asks for nothing."""
    for key, setting in settings.items():
        if key not in names and setting not in (None, "", [], {}):
            reason = f"session.{place}{key[:100]}: is not supported here; leave it out"
            raise Refused("unknown_parameter", reason)
