"""What all sessions share: the methods, the inference thread, the limits."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from streaming_asr.cells.folder import EVENTS
from streaming_asr.config.settle import check_known
from streaming_asr.errors import UserError
from streaming_asr.live.cells import LiveCell
from streaming_asr.live.streams import LiveStep
from streaming_asr.live.worker import Worker
from streaming_asr.serve.settings import ServerSettings
from streaming_asr.text.languages import LANGUAGES, language_code

SESSION_ID = re.compile(r"sess_[\w-]{22}")
# The names of OpenAI's models for transcription and realtime; each means the first method.
OPENAI_MODEL = re.compile(r"whisper-1|gpt-[\w.-]*(transcribe|realtime)[\w.-]*")

log = logging.getLogger("streaming_asr.serve")


class Refused(Exception):
    """A client cannot be served; `status` is HTTP's."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    @property
    def body(self) -> dict[str, Any]:
        """Return the error in the form of OpenAI's."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"type": kind, "code": self.code, "message": str(self), "param": None}


class Service:
    """The server's state: the methods by name, and the open sessions, each with its own streams."""

    def __init__(self, settings: ServerSettings, cells: Sequence[LiveCell], worker: Worker) -> None:
        """cells: the methods; those of which several have the same name get their folder's."""
        self.settings, self.worker = settings, worker
        names = [cell.engine.name for cell in cells]
        self.cells = {
            cell.engine.name if names.count(cell.engine.name) == 1 else cell.folder.name: cell
            for cell in cells
        }
        self.aliases = {cell.model: name for name, cell in reversed(self.cells.items())}
        self.started_s = int(time.time())  # since 1970
        self.root = cells[0].folder.parent
        # What lets each open session finish the audio it has and then closes it.
        self.sessions: dict[str, Callable[[], object]] = {}
        self.draining = False

    def chosen(self, text: str | None) -> list[str]:
        """Return the names of the methods that a client asks for, each once; the first served one
        where it asks for none.

        text: names as `method_of` takes them, with commas. Raises Refused for one that is not
        served.
        """
        names = [name.strip() for name in (text or "").split(",") if name.strip()]
        methods: dict[str, None] = {}  # a set in order
        for name in names:
            method = self.method_of(name)
            if method is None:
                served = ", ".join(self.cells)
                raise Refused("model_not_found", f"model={name[:100]}: served are {served}")
            methods[method] = None
        return list(methods) or [next(iter(self.cells))]

    def method_of(self, name: str) -> str | None:
        """Return the method with this name, else the first one with a model of this name, else the
        first of all for the name of a model of OpenAI; None for any other name."""
        if name in self.cells:
            return name
        if name in self.aliases:
            return self.aliases[name]
        return next(iter(self.cells)) if OPENAI_MODEL.fullmatch(name) else None

    def model(self, name: str, method: str) -> dict[str, Any]:
        """Return the description of a method under a name, in the form of OpenAI's models."""
        cell = self.cells[method]
        description = {
            "id": name,
            "object": "model",
            "created": self.started_s,
            "owned_by": "local",
        }
        return description | {"model": cell.model, "language": cell.default_language}

    def language(self, names: Sequence[str], language: str | None) -> str | None:
        """Return Whisper's code of the language that a client names in any usual spelling; None,
        which means the server's setting, for no language and for `auto`. Raises Refused where one
        of the methods `names` cannot transcribe it."""
        code = language_code(language or "")
        if code in ("", "auto", "detect"):
            return None
        reason = f"language={str(language)[:100]}"
        if code not in LANGUAGES:
            raise Refused("invalid_language", f"{reason}: give a code such as en, de or fr")
        for name in names:
            try:
                check_known(OmegaConf.create(self.cells[name].header["config"]), {code})
            except UserError as error:
                raise Refused("invalid_language", f"{reason}: {error}") from error
        return code

    def prompt(self, setting: str, names: Sequence[str], text: Any) -> str | None:
        """Return the prompt of a session, None for no text. Raises Refused, which begins with
        `setting`, where one of the methods `names` takes none."""
        if not isinstance(text, str | None):
            raise Refused("invalid_session", f"{setting}: is a text")
        for name in names if text else ():
            if "prompt" not in self.cells[name].header["config"].get("method", {}):
                reason = f"{setting}: {name} takes no prompt; leave it out"
                raise Refused("unsupported_parameter", reason)
        return text or None

    def admit(self, close: Callable[[], object] = lambda: None) -> str:
        """Return the id of a new session, which counts as open and which `close` closes; without
        it the session ends by itself. Raises Refused where the server stops or has the most
        sessions."""
        most = self.settings.max_sessions
        if self.draining:
            raise Refused("server_stopping", "the server is stopping; connect again later", 503)
        if len(self.sessions) >= most:
            raise Refused("too_many_sessions", f"all {most} sessions are taken", 503)
        session = f"sess_{secrets.token_urlsafe(16)}"
        self.sessions[session] = close
        return session

    def leave(self, session: str) -> None:
        """Remove a session from the open ones."""
        self.sessions.pop(session, None)

    def open(
        self,
        session: str,
        name: str,
        utterance: str,
        *,
        language: str | None,
        prompt: str | None,
        grows: bool,
        on_step: Callable[[LiveCell, LiveStep], None],
        on_end: Callable[[LiveCell], None],
    ) -> LiveCell:
        """Start a stream of the method `name` for a session, and return its cell.

        utterance: the id of the stream in the log. grows: whether a step takes all audio that has
        arrived (see `LiveStream`). on_step, on_end: called with the cell in the event loop.
        """
        shared, loop = self.cells[name], asyncio.get_running_loop()
        folder = self.root / session / shared.folder.name
        cell = LiveCell(folder, shared.engine, shared.header, name)

        def call_in_loop(callback: Callable[..., None], *arguments: Any) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it all sessions
                loop.call_soon_threadsafe(callback, *arguments)

        cell.begin(
            self.worker,
            utterance,
            grows=grows,
            language=language,
            prompt=prompt,
            on_step=partial(call_in_loop, on_step),
            on_end=partial(call_in_loop, on_end),
        )
        return cell

    @property
    def privacy(self) -> str:
        """Return a sentence for clients: where their audio is sent, and what is stored."""
        methods = [cell.header["config"].get("method", {}) for cell in self.cells.values()]
        urls = sorted({method["url"] for method in methods if "url" in method})
        receivers = f"from it to {', '.join(urls)}" if urls else "nowhere else"
        stored = "it keeps the text and the times, not the sound"
        return f"The sound goes to this server and {receivers}; {stored}."

    async def drain(self, seconds: float = 20.0) -> None:
        """Refuse new sessions, and wait until the open ones have ended, `seconds` at most."""
        self.draining = True
        for close in tuple(self.sessions.values()):
            close()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds
        while self.sessions and loop.time() < deadline_s:
            await asyncio.sleep(0.05)

    def log_of(self, session: str, name: str) -> Path | None:
        """Return the log of a session and method; None where there is none."""
        if not SESSION_ID.fullmatch(session) or name not in self.cells:
            return None
        path = self.root / session / self.cells[name].folder.name / EVENTS
        return path if path.is_file() else None
