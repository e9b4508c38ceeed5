"""The settings of a server on its command line, and who may connect to it."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, fields
from urllib.parse import urlsplit

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from streaming_asr.config.command_line import CommandLine
from streaming_asr.config.compose import explain
from streaming_asr.config.schema import check_settings, setting
from streaming_asr.errors import UserError, parts_of_url

KEY_PROTOCOL = "openai-insecure-api-key."  # a browser sends its token as a WebSocket subprotocol


@dataclass(frozen=True)
class ServerSettings:
    """See `streaming_asr.serve` for what each means."""

    host: str = "127.0.0.1"
    port: int = setting(8000, least=1, most=65_535)
    token: str | None = None
    origins: str = ""  # with commas
    max_sessions: int = setting(16, least=1)
    max_session_s: int = setting(3600, least=1)
    max_message_bytes: int = setting(1_000_000, least=1)
    max_file_bytes: int = setting(100_000_000, least=1)
    idle_s: float = setting(60.0, least=0.01)
    max_queued_s: float = setting(20.0, least=0.01)
    keep_audio: bool = False

    @classmethod
    def of(cls, line: CommandLine) -> ServerSettings:
        """Return the server's settings, which are taken off the command line. Raises UserError."""
        values = {field.name: line.pop(field.name) for field in fields(cls)}
        try:
            options = OmegaConf.create({k: v for k, v in values.items() if v is not None})
            merged = OmegaConf.merge(OmegaConf.structured(cls), options)
            settings: ServerSettings = OmegaConf.to_object(merged)  # type: ignore[assignment]
        except OmegaConfBaseException as error:
            raise explain(error) from error
        check_settings(vars(settings), cls)
        if not settings.is_loopback and not settings.token:
            raise UserError(
                f"host={settings.host}: anybody who reaches this machine could connect; give "
                "token=<secret>, or leave host out to serve only this machine"
            )
        for each in settings.pages:
            name = parts_of_url(each, f"origins={each}").hostname
            if not name or "*" in name:
                raise UserError(
                    f"origins={each}: must be addresses of pages with commas between them, as "
                    "https://example.org"
                )
        return settings

    @property
    def pages(self) -> list[str]:
        return [each.rstrip("/") for each in self.origins.split(",") if each]

    @property
    def own_names(self) -> set[str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"127.0.0.1", "localhost", "[::1]", host}

    @property
    def hosts(self) -> list[str]:
        """Return the names in a Host header under which this server answers.

        A page of a stranger whose name is made to point here (DNS rebinding) sends that name. It
        has no token, so where one is asked any name is taken.
        """
        if self.token:
            return ["*"]
        return [*self.own_names, *(urlsplit(each).hostname or "" for each in self.pages)]

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

        A browser sends the page's origin. Pages of this server are known by its own addresses, not
        by the Host header, which a page of a stranger can make point here.
        """
        origin = headers.get("origin")
        origins = [*self.pages, *(f"http://{name}:{self.port}" for name in self.own_names)]
        if origin is not None and origin not in origins:
            return 403, f"the origin {origin} may not connect; start with origins={origin}"
        if self.token and not hmac.compare_digest(_token(headers).encode(), self.token.encode()):
            return 401, "wrong or no token; send Authorization: Bearer <token>"
        return None


def _token(headers: Mapping[str, str]) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    offered = headers.get("sec-websocket-protocol", "").split(",")
    return next((p.strip().removeprefix(KEY_PROTOCOL) for p in offered if KEY_PROTOCOL in p), "")
