"""Warm-ups work in the modes of a real server."""

from __future__ import annotations

import json

import pytest

from tests.server import support
from tests.server.pair import ANCHOR, TURNS, Pair, settle, warmup

pytestmark = pytest.mark.server

CONFIG = {"warmup_per_minute": 1 << 20, "warmup_idle_share": 1.0}
SMALL = ["--radix-eviction-policy-config", json.dumps(CONFIG), "--max-total-tokens", "1000"]
MODES = {
    # The other files' servers overlap, sleep, and serve in order of arrival.
    "no overlap, small chunks, longest prefix first": (
        *("--disable-overlap-schedule", "--chunked-prefill-size", "64"),
        *("--schedule-policy", "lpm"),
    ),
    "priority scheduling": ("--enable-priority-scheduling",),
}


@pytest.mark.parametrize("mode", MODES)
def test_warm_ups_work_in_this_mode(mode, logs):
    path = logs / f"{mode}.log"
    with support.server("scout", path, *SMALL, *MODES[mode]) as server:
        assert_warm(server.url)
        state = support.at_rest(server.url)
        support.assert_books_balance(state)
        assert state["testing"]["pieces_amid"] == 0
        assert state["scout"]["faults"] == {}


def assert_warm(url: str) -> None:
    """Once the server has learned who follows whom, the next agent's anchor is there."""
    Pair(url).calls(3 * TURNS)
    pair = Pair(url, start=100)
    pair.call()
    settle(url)
    pair.calls(TURNS)
    assert min(pair.cached["B"]) >= ANCHOR
    assert warmup(url)["tokens_used"] >= ANCHOR
