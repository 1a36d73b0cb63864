"""A real browser for tests: headless Chromium, driven over its DevTools protocol."""

import json
import shutil
import subprocess
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE_SECONDS = 60.0

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
]


class Chromium:
    """One browser with one page. Nothing of it is left when the block ends but its profile in `directory`."""

    def __init__(self, directory: Path, *flags: str) -> None:
        """`flags` are added to the command line."""
        self._directory = directory
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self._open = ExitStack()
        self._page: ClientConnection | None = None
        self._number = 0

    @staticmethod
    def found() -> str | None:
        """The browser's command, if there is one on this machine."""
        return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

    def __enter__(self) -> "Chromium":
        command = self.found()
        assert command is not None, "chromium is not installed; `make system-deps` installs it"
        self._process = subprocess.Popen(
            [command, *FLAGS, *self._flags, f"--user-data-dir={self._directory}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = self._debugging_port()
            self._page = self._open.enter_context(connect(self._page_url(port), compression=None, max_size=None))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)

    def go_to(self, url: str) -> None:
        """Returns when the page is there."""
        self._ask("Page.navigate", url=url)
        self.wait_for(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    def run(self, script: str) -> Any:
        """What the script evaluates to, as JSON would carry it; a promise is waited for."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until the script is true in the page."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never came true in the page: {condition}")
            time.sleep(0.02)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        assert self._page is not None
        self._number += 1
        self._page.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._page.recv(PATIENCE_SECONDS))
            if message.get("id") == self._number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _debugging_port(self) -> int:
        assert self._process is not None
        port_file = self._directory / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not port_file.exists() or "\n" not in port_file.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the browser did not start")
            time.sleep(0.02)
        return int(port_file.read_text().split("\n")[0])

    def _page_url(self, port: int) -> str:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                for target in json.load(answer):
                    if target["type"] == "page":
                        url: str = target["webSocketDebuggerUrl"]
                        return url
            time.sleep(0.02)
        raise AssertionError("the browser has no page")
