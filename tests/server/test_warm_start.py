"""A server that restarts with what it had learned prefills the hot anchors before any call."""

from __future__ import annotations

import json

import pytest

from tests.server import support
from tests.server.pair import ANCHOR, TURNS, Pair, settle

pytestmark = pytest.mark.server


def test_after_a_restart_the_first_call_of_each_agent_finds_its_anchor(logs, tmp_path):
    config = {
        "state_path": str(tmp_path / "state"),
        "warmup_idle_share": 1.0,
        "warmup_per_minute": 1 << 20,
    }
    more = ["--radix-eviction-policy-config", json.dumps(config), "--max-total-tokens", "4000"]
    with support.server("scout", logs / "before.log", *more) as server:
        Pair(server.url).calls(4 * TURNS)
    with support.server("scout", logs / "after.log", *more) as server:
        state = settle(server.url)
        assert support.inside(server.url)["scout"]["underway"] == 0
        assert state["tokens_prefilled"] == state["tokens_resident"] == 2 * ANCHOR
        pair = Pair(server.url, start=100)
        pair.calls(2)
        assert pair.cached == {"A": [ANCHOR], "B": [ANCHOR]}
        support.assert_books_balance(support.at_rest(server.url))
