"""A headless Chromium over its DevTools protocol, for pages that need a microphone of a file."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import HANG_S
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--mute-audio"),
    *("--autoplay-policy=no-user-gesture-required", "--remote-debugging-port=0"),
)
KEYS = {"Tab": 9, "Enter": 13, "Space": 32}


class Tab:
    """One page. `console` holds what it wrote there and the errors that nothing caught."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._n = socket, 0
        self.console: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._n += 1
        self._socket.send(json.dumps({"id": self._n, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=HANG_S))
            if message.get("id") == self._n:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(json.dumps(message["params"]))

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of an expression, as after a click of the user."""
        told = self.call(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, expression: str) -> Any:
        """The first truthy value of the expression."""
        end = time.monotonic() + HANG_S
        while not (value := self.run(expression)):
            assert time.monotonic() < end, f"did not come true: {expression}"
            time.sleep(0.05)
        return value

    def press(self, key: str) -> None:
        code = KEYS[key]
        name, text = (" ", " ") if key == "Space" else (key, "\r" if key == "Enter" else "")
        common = {"key": name, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextmanager
def tab(profile: Path, arguments: Sequence[str] = ()) -> Iterator[Tab]:
    """A page of a browser of its own; `profile` is an empty folder for what it keeps."""
    assert CHROMIUM
    command = [CHROMIUM, *ARGUMENTS, f"--user-data-dir={profile}", *arguments, "about:blank"]
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        told = profile / "DevToolsActivePort"
        end = time.monotonic() + HANG_S
        while not told.exists() or len(told.read_text().splitlines()) < 2:
            assert program.poll() is None and time.monotonic() < end, "chromium did not start"
            time.sleep(0.05)
        port = told.read_text().splitlines()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=HANG_S) as answer:
            pages = [each for each in json.load(answer) if each["type"] == "page"]
        with connect(
            pages[0]["webSocketDebuggerUrl"],
            max_size=None,
            compression=None,
            open_timeout=HANG_S,
            ping_interval=None,
        ) as socket:
            yield Tab(socket)
    finally:
        program.terminate()
        program.wait()


def microphone(recording: Path) -> list[str]:
    """The switches for a microphone that plays a WAV file once."""
    return [
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}%noloop",
    ]
