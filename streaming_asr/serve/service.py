"""What all sessions share: the methods, the inference thread, the limits, what is measured."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from omegaconf import OmegaConf
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streaming_asr.cells.folder import EVENTS
from streaming_asr.config.settle import check_known
from streaming_asr.errors import UserError
from streaming_asr.live.cells import LiveCell
from streaming_asr.live.worker import Worker
from streaming_asr.machine import give_back_memory
from streaming_asr.method import SAMPLE_RATE, Samples
from streaming_asr.serve.settings import ServerSettings
from streaming_asr.text.languages import LANGUAGES, language_code

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 2.0, 5.0, 10.0)
IDLE_S = 2.0
SESSION_ID = re.compile(r"sess_[\w-]{22}")
# What OpenAI calls its models of transcription and realtime; each means the first method.
OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]*(transcribe|realtime)[\w.-]*")

log = logging.getLogger("streaming_asr.serve")


class Drained(Protocol):
    """An open session."""

    id: str

    def close(self) -> None:
        """Let the session finish the audio it has, then close it."""


class Refused(Exception):
    """A client cannot be served; `status` is HTTP's."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI has it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"type": kind, "code": self.code, "message": str(self), "param": None}


class Service:
    """The server's state. Of the methods only what is shared: streams are the sessions' own."""

    def __init__(self, settings: ServerSettings, cells: Sequence[LiveCell], worker: Worker) -> None:
        self.settings, self.worker = settings, worker
        names = [cell.engine.name for cell in cells]
        self.cells = {
            cell.engine.name if names.count(cell.engine.name) == 1 else cell.folder.name: cell
            for cell in cells
        }
        self.aliases = {cell.model: name for name, cell in reversed(self.cells.items())}
        self.started_s = int(time.time())  # since 1970
        self.root = cells[0].folder.parent
        self.sessions: dict[str, Drained] = {}
        self.draining = False
        self.registry = CollectorRegistry()
        options: dict[str, Any] = {"registry": self.registry, "namespace": "streaming_asr"}
        Gauge("sessions", "open sessions", **options).set_function(lambda: len(self.sessions))
        Gauge("queued_seconds", "audio that has arrived and waits", **options).set_function(
            lambda: sum(stream.queued_s for stream in tuple(worker.streams))
        )
        self.refused = Counter("refused", "clients that were refused", ["code"], **options)
        settings_of = {"labelnames": ["method"], "buckets": SECONDS, **options}
        self.behind = Histogram(
            "behind_seconds", "from the arrival of a step's newest audio to its text", **settings_of
        )
        self.step = Histogram("step_seconds", "compute of a step, shared or not", **settings_of)

    def chosen(self, text: str | None) -> list[str]:
        """Return the names of the methods that a client asks for, the first where it names none.

        text: names with commas; a model's name means the first method that has it, one of
        OpenAI's for the first of all. Raises Refused for one that is not served.
        """
        names = [name.strip() for name in (text or "").split(",") if name.strip()]
        methods = [self.method_of(name) for name in names]
        for name, method in zip(names, methods, strict=True):
            if method is None:
                served = ", ".join(self.cells)
                raise Refused(400, "model_not_found", f"model={name[:100]}: served are {served}")
        return list(dict.fromkeys(filter(None, methods))) or [next(iter(self.cells))]

    def method_of(self, name: str) -> str | None:
        """Return the method that a name means; None where it is not served."""
        if name in self.cells:
            return name
        first = next(iter(self.cells)) if OPENAI_MODEL.fullmatch(name) else None
        return self.aliases.get(name, first)

    def model(self, name: str, method: str) -> dict[str, Any]:
        """Return a method under a name, as OpenAI describes a model."""
        cell = self.cells[method]
        description = {
            "id": name,
            "object": "model",
            "created": self.started_s,
            "owned_by": "local",
        }
        return description | {"model": cell.model, "language": cell.default_language}

    def language(self, names: Sequence[str], language: str | None) -> str | None:
        """Return Whisper's code of a language that a client names, in any usual spelling; None, the
        server's own, where it names none or `auto`. Raises Refused for one that one of these
        methods cannot transcribe."""
        code = language_code(language or "")
        if code in ("", "auto", "detect"):
            return None
        reason = f"language={str(language)[:100]}"
        if code not in LANGUAGES:
            raise Refused(400, "invalid_language", f"{reason}: give a code such as en, de or fr")
        for name in names:
            try:
                check_known(OmegaConf.create(self.cells[name].header["config"]), {code})
            except UserError as error:
                raise Refused(400, "invalid_language", f"{reason}: {error}") from error
        return code

    def no_prompt(self, setting: str, names: Sequence[str]) -> Refused:
        """Return the error for a prompt, which no method takes."""
        reason = f"{setting}: {', '.join(names)} takes no prompt; leave it out"
        return Refused(400, "unsupported_parameter", reason)

    def admit(self, make: Callable[[str], Drained]) -> Drained:
        """Return the session that `make` makes of its id, counted. Raises Refused."""
        most = self.settings.max_sessions
        try:
            if self.draining:
                raise Refused(503, "server_stopping", "the server is stopping; connect again later")
            if len(self.sessions) >= most:
                raise Refused(503, "too_many_sessions", f"all {most} sessions are taken")
        except Refused as error:
            self.refused.labels(error.code).inc()
            raise
        session = make(f"sess_{secrets.token_urlsafe(16)}")
        self.sessions[session.id] = session
        return session

    def leave(self, session: str) -> None:
        """Remove a session from the count; where none is open after a while, give memory back.

        A step that is under way as its client vanishes holds memory for a moment.
        """
        self.sessions.pop(session, None)
        asyncio.get_running_loop().call_later(IDLE_S, self._give_back)

    def _give_back(self) -> None:
        if not self.sessions:
            asyncio.get_running_loop().run_in_executor(None, give_back_memory)

    def open(
        self,
        session: str,
        name: str,
        utterance: str,
        *,
        language: str | None,
        grows: bool,
        on_step: Callable[[LiveCell], None],
        on_end: Callable[[LiveCell], None],
    ) -> LiveCell:
        """Return a cell with its stream begun; the callbacks run in the event loop."""
        shared, loop = self.cells[name], asyncio.get_running_loop()
        folder = self.root / session / shared.folder.name
        cell = LiveCell(folder, shared.engine, shared.header, name)

        def tell(callback: Callable[[LiveCell], None], cell: LiveCell) -> None:
            with suppress(RuntimeError):  # the loop has ended, and so has every client
                loop.call_soon_threadsafe(callback, cell)

        def step(cell: LiveCell) -> None:
            assert cell.latest is not None
            self.behind.labels(name).observe(cell.latest.behind_s)
            self.step.labels(name).observe(cell.latest.step.compute_s)
            tell(on_step, cell)

        cell.begin(
            self.worker,
            utterance,
            grows=grows,
            language=language,
            on_step=step,
            on_end=lambda cell: tell(on_end, cell),
        )
        if self.settings.keep_audio:
            cell.log.audio_path = str((self.root / session / f"{utterance}.wav").absolute())
        return cell

    def keep(self, cell: LiveCell, samples: Samples) -> bool:
        """Keep a stream's audio, (n,), at the path in its log; return whether that succeeded.

        Nothing is raised.
        """
        if cell.log.audio_path is None:
            return False
        import soundfile

        try:
            soundfile.write(cell.log.audio_path, samples, SAMPLE_RATE, subtype="FLOAT")
        except (OSError, soundfile.SoundFileError) as error:  # as a full disk
            log.error("%s: %s", cell.log.audio_path, error)
            return False
        return True

    @property
    def privacy(self) -> str:
        """Return a sentence on where the sound of a client goes and what is kept of it."""
        methods = [cell.header["config"].get("method", {}) for cell in self.cells.values()]
        urls = sorted({method["url"] for method in methods if "url" in method})
        goes = f"from it to {', '.join(urls)}" if urls else "nowhere else"
        keeps = (
            "the text, the times and the sound (keep_audio=true)"
            if self.settings.keep_audio
            else "the text and the times, not the sound"
        )
        return f"The sound goes to this server and {goes}; it keeps {keeps}."

    async def drain(self, seconds: float = 20.0) -> None:
        """Refuse new sessions and let the open ones end, for at most so long."""
        self.draining = True
        for session in tuple(self.sessions.values()):
            session.close()
        end = asyncio.get_running_loop().time() + seconds
        while self.sessions and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)

    def log_of(self, session: str, name: str) -> Path | None:
        """Return the log of a session and method; None where there is none."""
        if not SESSION_ID.fullmatch(session) or name not in self.cells:
            return None
        path = self.root / session / self.cells[name].folder.name / EVENTS
        return path if path.is_file() else None
