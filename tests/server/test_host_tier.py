"""With a host tier a warm-up loads back what the host still has, and computes next to nothing."""

from __future__ import annotations

import json

import pytest

from tests.server import support
from tests.server.pair import ANCHOR, TURNS, Pair, settle
from tests.server.plugins import scout_testing

pytestmark = pytest.mark.server

TIER = [
    *("--enable-hierarchical-cache", "--hicache-ratio", "4"),
    *("--hicache-io-backend", "direct", "--hicache-mem-layout", "layer_first"),
]


def test_an_anchor_that_the_host_has_is_loaded_back_before_its_agents_call(logs):
    config = {"warmup_idle_share": 1.0, "warmup_per_minute": 1 << 20}
    more = ["--radix-eviction-policy-config", json.dumps(config), "--max-total-tokens", "1000"]
    env = {scout_testing.HOST_TIER: "1"}
    with support.server("scout", logs / "host.log", *TIER, *more, **env) as server:
        pair = Pair(server.url)
        pair.calls(4 * TURNS)
        state = settle(server.url)
        assert min(pair.cached["A"][1:] + pair.cached["B"][1:]) >= ANCHOR
        assert state["tokens_loaded"] > 2 * ANCHOR
        assert state["tokens_prefilled"] < 0.2 * state["tokens_loaded"]
        support.assert_books_balance(support.at_rest(server.url))
