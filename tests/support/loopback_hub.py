"""A hub on this machine: it answers as the real one does, for files that a test puts in."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c" * 40


@dataclass
class Hub:
    """Repositories by name, each a dictionary of files; what a test makes of them, and a log.

    gated: their files need a token. lies: files whose announced size is so many bytes too large.
    breaks: files whose first answers end after so many bytes, one entry an answer. answer: what a
    mirror answers about a repository in place of the hub's JSON.
    """

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    token: str = "hf_secret"
    lies: dict[str, int] = field(default_factory=dict)
    breaks: dict[str, list[int]] = field(default_factory=dict)
    answer: str | None = None
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)

    def ranges(self, name: str) -> list[str | None]:
        """Return the range that each GET of a file asked for; None for all of it."""
        return [r for method, path, r in self.requests if method == "GET" and path.endswith(name)]


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a hub for the duration of the context."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, *, body: bool) -> None:
            path = self.path.partition("?")[0]
            hub.requests.append((self.command, path, self.headers.get("Range")))
            parts = path.strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            owner_name, rest = parts[2:4] if is_api else parts[:2], parts[4:] if is_api else parts
            name = "/".join(owner_name)
            if name not in hub.repositories:
                self._refuse(401, "RepoNotFound", "Invalid username or password.")
            elif is_api and rest[:1] == ["revision"] and rest[1] not in ("main", COMMIT):
                self._refuse(404, "RevisionNotFound", f"Invalid rev id: {rest[1]}")
            elif is_api:
                siblings = [{"rfilename": file} for file in hub.repositories[name]]
                content = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}
                text = json.dumps(content) if hub.answer is None else hub.answer
                self._send(text.encode(), body, {"Content-Type": "application/json"})
            else:
                self._file(name, "/".join(parts[4:]), body)

        def _file(self, name: str, file: str, body: bool) -> None:
            if name in hub.gated and self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
                return
            content = hub.repositories[name].get(file)
            if content is None:
                self._refuse(404, "EntryNotFound", "Entry not found")
                return
            headers = {
                "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                "X-Repo-Commit": COMMIT,
                "Accept-Ranges": "bytes",
            }
            if file in hub.lies:
                headers["X-Linked-Size"] = str(len(content) + hub.lies[file])
            self._send(content, body, headers, file)

        def _send(
            self, content: bytes, body: bool, headers: dict[str, str], file: str = ""
        ) -> None:
            start, status = 0, 200
            if asked := self.headers.get("Range"):
                start, status = int(asked.removeprefix("bytes=").partition("-")[0]), 206
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if body:
                lengths = hub.breaks.get(file)
                length = lengths.pop(0) if lengths else len(content)
                self.wfile.write(content[start : start + length])
                if start + length < len(content):
                    self.close_connection = True

        def _refuse(self, status: int, code: str, message: str) -> None:
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("X-Error-Message", message)
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
