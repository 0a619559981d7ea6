"""What ``/server_info`` says of the policy."""

from __future__ import annotations

import pytest

from scout_sglang.server_state import describe
from tests.scout_sglang.lab import Lab


@pytest.mark.parametrize("guard", [True, False])
def test_the_guards_weight_regret_and_memory_are_shown_where_there_is_one(guard: bool) -> None:
    lab = Lab("scout", 256, guard=guard)
    for session in range(3):
        lab.call(f"r{session}", [*range(60), 100 + session], [1, 2, 3, 4])
    shown = describe(lab.cache)
    assert shown is not None
    guards = {"guard_regret", "guard_forgiven", "guard_bytes"}
    assert shown.keys() >= {"beta", "guard_switches"}
    assert guards & shown.keys() == (guards if guard else set())
    if guard:
        # The shadow compares 16 tokens at a time, the cache each one: LRU would not have had more.
        assert shown["guard_regret"] < 0 < shown["guard_bytes"]
    assert shown["memory"]["capacity"] == 256
