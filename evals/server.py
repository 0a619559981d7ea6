"""Starts and stops a real SGLang server as a process of its own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

POLL_SECONDS = 0.25
STOP_SECONDS = 15
_PORTS = range(30000, 32000)


class ServerStartError(RuntimeError):
    """The server ended or stayed silent before it was healthy; carries the end of its log."""


def free_port() -> int:
    """A TCP port on the loopback interface that nobody listens on at this moment.

    Ranks open sockets of their own before the server binds its port, so it lies below the ports
    that the system hands out (32768 and up) and above those that SGLang picks (22000-29999).
    """
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port in {_PORTS.start}-{_PORTS.stop - 1}")


def tail(path: Path, lines: int = 30) -> str:
    """The last lines of a text file."""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


class Server:
    """`with Server(args, log_path=...) as server:` runs `python -m scout_sglang.launch args`.

    Healthy when the block begins, gone with all its child processes when it ends, however it
    ends. Both output streams go to `log_path`.

    Args:
        args: arguments of the launcher; host and port are added.
        log_path: file for the server's output, overwritten; its folder is made.
        port: port to listen on; 0 takes a free one.
        env: environment variables to set for the server, on top of the present ones.
        start_seconds: how long the start may take before :class:`ServerStartError`.
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        log_path: Path,
        port: int = 0,
        env: dict[str, str] | None = None,
        start_seconds: float = 240,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = log_path
        self.start_seconds = start_seconds
        self.command = [sys.executable, "-m", "scout_sglang.launch", *args]
        self.command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Server:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("wb") as log:
            # A session of its own: Ctrl-C reaches us alone, and we stop the whole group.
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def exit_code(self) -> int | None:
        """Exit code of the launcher, None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def group(self) -> int:
        """Process group of the running server; raises RuntimeError where none runs."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    def post(self, path: str, body: bytes = b"", timeout: float = 60) -> bytes:
        """POST to the server and return the body of the answer; raises urllib's errors."""
        request = urllib.request.Request(self.url + path, data=body, method="POST")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read()

    def flush_cache(self) -> None:
        """Empty the radix cache, once nothing runs any more."""
        self.post("/flush_cache?timeout=30")

    def stop(self) -> None:
        """End the server and its children: politely, then by force. Safe to call twice."""
        if self._process is None:
            return
        # The launcher alone: it ends its ranks itself, and takes their own end for a crash.
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Children may outlive the launcher; they share its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline:
            if self.exit_code is not None:
                raise ServerStartError(self._complaint(f"ended with exit code {self.exit_code}"))
            if self._is_healthy():
                return
            time.sleep(POLL_SECONDS)
        raise ServerStartError(self._complaint(f"was not healthy in {self.start_seconds:.0f} s"))

    def _is_healthy(self) -> bool:
        # /health answers 503 until the warm-up request of the start has come back.
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def _complaint(self, what: str) -> str:
        return f"The server {what}. The end of {self.log_path}:\n{tail(self.log_path)}"
