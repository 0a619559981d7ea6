"""A small web server with the page and answers of the tests' making, behind a path prefix."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from scout_sglang.ui import page

PREFIX = "/some/prefix"


class Served:
    """``with Served(answer) as served:`` answers ``answer``; set it, ``key`` or ``broken`` anew.

    ``broken``: answers break off, as those of a server that is gone. ``polls`` counts requests.
    """

    def __init__(self, answer: Any) -> None:
        self.answer, self.key, self.broken = answer, "", False
        self.polls = 0

    def __enter__(self) -> Served:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}{PREFIX}/scout/ui"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == f"{PREFIX}/scout/ui":
                self._send(200, "text/html; charset=utf-8", page().encode())
                return
            if self.path != f"{PREFIX}/scout":
                self._send(404, "text/plain", b"nothing here")
                return
            served.polls += 1
            if served.broken:
                self.close_connection = True
                self.connection.close()
            elif served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
                self._send(401, "application/json", b"{}")
            else:
                answer = served.answer() if callable(served.answer) else served.answer
                self._send(200, "application/json", json.dumps(answer).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
