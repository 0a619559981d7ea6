"""Two agents that take turns on a server, and what its warm-ups did meanwhile."""

from __future__ import annotations

import time
from typing import Any

from tests.server import support

ANCHOR = 600
TURNS = 4


class Pair:
    """Sessions in which agents A and B take turns, and what their calls found cached."""

    def __init__(self, url: str, start: int = 0, anchor: int = ANCHOR, **fields: Any) -> None:
        self.url, self.session, self.turn, self.fields = url, start, 0, fields
        self.anchors = {"A": range(1000, 1000 + anchor), "B": range(20_000, 20_000 + anchor)}
        self.cached: dict[str, list[int]] = {"A": [], "B": []}
        self.ttft: dict[str, list[float]] = {"A": [], "B": []}

    def call(self) -> None:
        agent = "AB"[self.turn % 2]
        tail = [10 + (37 * self.session + 11 * self.turn + n) % 900 for n in range(60)]
        label = {"agent": agent, "session": f"pair {self.session}"}
        began = time.perf_counter()
        stream = support.Stream(self.url, [*self.anchors[agent], *tail], 4, label, **self.fields)
        stream.read(1)
        self.ttft[agent].append(1000 * (time.perf_counter() - began))
        self.cached[agent].append(stream.rest()["cached_tokens"])
        self.turn += 1
        if self.turn == TURNS:
            self.session, self.turn = self.session + 1, 0

    def calls(self, count: int) -> None:
        for _ in range(count):
            self.call()
            settle(self.url)


def warmup(url: str) -> dict[str, float]:
    """The warm-up's numbers; what was prefilled has been used or wasted or waits."""
    state = support.inside(url)["scout"]["warmup"]
    settled = state["tokens_used"] + state["tokens_wasted"] + state["tokens_resident"]
    assert state["tokens_prefilled"] == settled
    return state


def settle(url: str) -> dict[str, float]:
    """Wait until nothing more is planned."""
    deadline = time.monotonic() + 60
    while not (state := warmup(url))["resting"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return state
