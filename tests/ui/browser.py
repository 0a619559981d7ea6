"""Drives Debian's headless Chromium over its DevTools protocol: open, look, type, photograph.

The protocol is JSON over a web socket (https://chromedevtools.github.io/devtools-protocol), which
aiohttp speaks; nothing else is needed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
START_SECONDS = 60
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
KEYS |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def program() -> str | None:
    """Path of a Chromium that is installed here, or None."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class PageError(AssertionError):
    """A script failed in the page, or what was waited for did not come."""


class Browser:
    """``with Browser(folder) as browser:`` is one tab of a Chromium with a profile of its own.

    Messages that the page writes to its console as errors, and exceptions that nobody caught,
    gather in ``errors``; addresses that it asked for in ``requests``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Browser:
        path = program()
        assert path is not None, "apt-get install chromium-headless-shell"
        self.process = subprocess.Popen(
            [
                path,
                "--headless",
                "--no-sandbox",  # the tests may run as root
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "--remote-debugging-port=0",
                f"--user-data-dir={self.folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._loop.run_until_complete(self._connect())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("_socket", "_session"):
            if hasattr(self, name):
                self._loop.run_until_complete(getattr(self, name).close())
        # Debian's program is a shell script around the browser: end its whole group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._loop.close()

    async def _connect(self) -> None:
        announced = self.folder / "DevToolsActivePort"
        deadline = time.monotonic() + START_SECONDS
        while not (announced.exists() and len(announced.read_text().split()) == 2):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise PageError(f"Chromium did not start (status {self.process.poll()})")
            await asyncio.sleep(0.05)
        port = announced.read_text().split()[0]
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json") as answer:
            tab = next(t for t in await answer.json() if t["type"] == "page")
        self._socket = await self._session.ws_connect(
            tab["webSocketDebuggerUrl"], max_msg_size=1 << 28
        )
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self._send(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """A command of the protocol and its result."""
        return self._loop.run_until_complete(self._send(method, **params))

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        while True:
            message = json.loads((await asyncio.wait_for(self._socket.receive(), 60)).data)
            if message.get("id") == number:
                if "error" in message:
                    raise PageError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            said = [a.get("description") or str(a.get("value")) for a in params["args"]]
            self.errors.append(" ".join(said))
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def view(self, width: int = 1440, height: int = 1000, dark: bool = False) -> None:
        """Size of the window and the colour scheme that the system prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, motion])

    def open(self, url: str) -> None:
        """Load a page with nothing remembered from earlier ones."""
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.run("sessionStorage.clear()")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise PageError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> None:
        """Until an expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > deadline:
                raise PageError(f"never became true: {condition}; errors: {self.errors}")
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        for key in keys:
            code = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"Enter": "\r", " ": " "}.get(key)
            typed = {"text": text} if text else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **code, **typed)
            self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def type(self, text: str) -> None:
        """Enter text where the focus is."""
        self.call("Input.insertText", text=text)

    def photograph(self, selector: str | None = None) -> Image.Image:
        """The whole page, or the box of one element."""
        box = (
            "document.documentElement"
            if selector is None
            else f"document.querySelector({selector!r})"
        )
        size = self.run(
            f"(() => {{ const r = {box}.getBoundingClientRect();"
            " return [r.left + scrollX, r.top + scrollY, r.width, r.height]; })()"
        )
        clip = dict(zip(("x", "y", "width", "height"), size, strict=True)) | {"scale": 1}
        taken = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")
