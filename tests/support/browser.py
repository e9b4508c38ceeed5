"""A headless Chromium driven by chromedriver (the W3C WebDriver protocol): real clicks and keys."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from places import HANG_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--mute-audio"),
    *("--autoplay-policy=no-user-gesture-required", "--window-size=1280,900"),
)
KEYS = {"Tab": "\ue004", "Enter": "\ue007", "Space": " ", "Right": "\ue014", "End": "\ue010",
        "Shift": "\ue008"}  # fmt: skip
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    """One page at a time. Every method raises RuntimeError where the browser refuses."""

    def __init__(self, address: str, session: str) -> None:
        self._root = f"{address}/session/{session}"

    def open(self, page: Path | str, fragment: str = "") -> None:
        """Shows a file, or what is at an address."""
        address = page.as_uri() if isinstance(page, Path) else page
        self.call("POST", "/url", {"url": "about:blank"})
        self.call("POST", "/url", {"url": f"{address}{fragment and '#' + fragment}"})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the script returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str) -> Any:
        """The first truthy value that the script returns."""
        end = time.monotonic() + HANG_S
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise RuntimeError(f"did not come true: {script}")
            time.sleep(0.05)
        return value

    def value(self, expression: str) -> Any:
        """The value of an expression; of a promise what it comes to."""
        return self.run(f"return {expression}")

    def until(self, expression: str) -> Any:
        """The first truthy value of the expression."""
        return self.wait(f"return {expression}")

    def click(self, selector: str) -> None:
        found = self.call("POST", "/element", {"using": "css selector", "value": selector})
        self.call("POST", f"/element/{found[ELEMENT]}/click", {})

    def keys(self, *names: str) -> None:
        """Presses and lets go of each key in turn; `Shift+Tab` holds the first."""
        actions = []
        for name in names:
            held = [KEYS.get(part, part) for part in name.split("+")]
            actions += [{"type": "keyDown", "value": key} for key in held]
            actions += [{"type": "keyUp", "value": key} for key in reversed(held)]
        keyboard = {"type": "key", "id": "keyboard", "actions": actions}
        self.call("POST", "/actions", {"actions": [keyboard]})

    def resize(self, width: int, height: int = 900) -> None:
        """Gives the page a screen of this size; the window itself has a least width."""
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": screen}
        self.call("POST", "/goog/cdp/execute", command)

    def console(self) -> list[str]:
        """What the page wrote to its console since the last call."""
        return [each["message"] for each in self.call("POST", "/se/log", {"type": "browser"})]

    def call(self, verb: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return _ask(verb, self._root + path, body)


def _ask(verb: str, address: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        address, data, {"Content-Type": "application/json"}, method=verb
    )
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return json.load(answer)["value"]
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(json.load(error)["value"]["message"].splitlines()[0]) from error


def _is_ready(address: str) -> bool:
    try:
        return bool(_ask("GET", f"{address}/status")["ready"])
    except urllib.error.URLError:
        return False


@contextmanager
def browser(profile: Path, arguments: Sequence[str] = ()) -> Iterator[Browser]:
    """A browser of its own; `profile` is an empty folder for what it keeps."""
    assert CHROMIUM and DRIVER
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + HANG_S
        while not _is_ready(address):
            assert driver.poll() is None and time.monotonic() < end, "chromedriver did not start"
            time.sleep(0.05)
        options = {
            "binary": CHROMIUM,
            "args": [*ARGUMENTS, f"--user-data-dir={profile}", *arguments],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        begun = _ask("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
        made = Browser(address, begun["sessionId"])
        try:
            yield made
        finally:
            made.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait()


def microphone(recording: Path) -> list[str]:
    """The switches for a microphone that plays a WAV file once."""
    return [
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={recording}%noloop",
    ]
