"""The settings of a server on its command line, and who may connect to it."""

from __future__ import annotations

import hmac
import ipaddress
import re
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

    @classmethod
    def of(cls, line: CommandLine) -> ServerSettings:
        """Take the server's settings off the command line and return them, with defaults for the
        others. Raises UserError for a wrong value, and for another address without a token."""
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
        for url in settings.pages:
            name = parts_of_url(url, f"origins={url}").hostname
            if not name or "*" in name:
                raise UserError(
                    f"origins={url}: must be addresses of pages with commas between them, as "
                    "https://example.org"
                )
        return settings

    @property
    def pages(self) -> list[str]:
        """Return the URLs of `origins`."""
        return [url.rstrip("/") for url in self.origins.split(",") if url]

    @property
    def own_names(self) -> set[str]:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return {"127.0.0.1", "localhost", "[::1]", host}

    def answers(self, host: str) -> bool:
        """Return whether this server answers a request whose Host header is `host`.

        Without this check, a foreign page could reach a server on this machine by a name of its own
        that resolves to this address (DNS rebinding). Such a page has no token, so a server that
        asks for one answers any name.
        """
        names = {*self.own_names, *(urlsplit(url).hostname or "" for url in self.pages)}
        return bool(self.token) or re.sub(r":\d*$", "", host.lower()) in names

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def refusal(self, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return (HTTP status, reason) if a request with these headers is refused, else None.

        A browser sends the origin of its page, which must be `pages` or this server's own. The
        latter is not compared with the Host header, which a foreign page can choose (`answers`).
        """
        origin = headers.get("origin")
        origins = [*self.pages, *(f"http://{name}:{self.port}" for name in self.own_names)]
        if origin is not None and origin not in origins:
            # Every file and every sandboxed frame has the origin `null`: it names nobody.
            remedy = f"start with origins={origin}" if "://" in origin else "serve the page by http"
            return 403, f"the origin {origin} may not connect; {remedy}"
        if self.token and not hmac.compare_digest(_token(headers).encode(), self.token.encode()):
            return 401, "wrong or no token; send Authorization: Bearer <token>"
        return None


def _token(headers: Mapping[str, str]) -> str:
    """Return the token that a client sends, as `Authorization: Bearer` or, from a browser's
    WebSocket, in the name of a subprotocol; "" for none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    for protocol in headers.get("sec-websocket-protocol", "").split(","):
        if KEY_PROTOCOL in protocol:
            return protocol.strip().removeprefix(KEY_PROTOCOL)
    return ""
