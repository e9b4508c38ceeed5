"""What a server is told on its command line, and who may connect to it."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from streaming_asr.config.command_line import CommandLine
from streaming_asr.errors import UserError

KEY_PROTOCOL = "openai-insecure-api-key."  # a browser sends its token as a WebSocket subprotocol


@dataclass(frozen=True)
class Settings:
    """See `streaming_asr.serve` for what each means."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    origins: tuple[str, ...] = ()
    max_sessions: int = 16
    max_session_s: int = 3600
    max_message_bytes: int = 1_000_000
    max_file_bytes: int = 100_000_000
    idle_s: float = 60.0
    max_queued_s: float = 20.0

    @classmethod
    def of(cls, line: CommandLine) -> Settings:
        """Return the server's settings, which are taken off the command line. Raises UserError."""
        made = cls()
        known = {field.name: getattr(made, field.name) for field in fields(cls)}
        for key in known:
            if (text := line.pop(key)) is None:
                continue
            value: Any = text
            if key == "origins":
                value = tuple(each.rstrip("/") for each in text.split(",") if each)
            elif isinstance(known[key], int | float):
                value = _number(key, text, type(known[key]))
            made = replace(made, **{key: value})
        if made.port > 65_535:
            raise UserError(f"port={made.port}: from 1 to 65535")
        if not made.is_loopback and not made.token:
            raise UserError(
                f"host={made.host}: anybody who reaches this machine could connect; give "
                "token=<secret>, or leave host out to serve this machine alone"
            )
        return made

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the HTTP status and the reason to refuse a request of these headers, or None.

        A browser tells the page's origin. Pages of this server are known by its own addresses, not
        by the Host header, which a page of a stranger can make point here.
        """
        origin = headers.get("origin")
        own = {f"http://{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        if origin is not None and origin not in own | set(self.origins):
            return 403, f"the origin {origin} may not connect; start with origins={origin}"
        if self.token and not hmac.compare_digest(_token(headers).encode(), self.token.encode()):
            return 401, "wrong or no token; send Authorization: Bearer <token>"
        return None


def _number(key: str, text: str, kind: type) -> float:
    try:
        number: float = kind(text)
    except ValueError:
        number = -1
    if not 0 < number < 1e12:
        raise UserError(f"{key}={text}: must be a {'whole ' * (kind is int)}number above 0")
    return number


def _token(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return next((p.strip().removeprefix(KEY_PROTOCOL) for p in offered if KEY_PROTOCOL in p), "")
