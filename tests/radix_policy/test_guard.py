from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.guard import GRID, Guard, ShadowLRU


def prefix(*parts: int) -> np.ndarray:
    """Grid hashes of a prompt made of blocks; equal prefixes have equal hashes."""
    chain, hashes = 7, []
    for part in parts:
        chain = (chain * 1_000_003 + part + 1) % (1 << 61)
        hashes.append(chain)
    return np.array(hashes, dtype=np.uint64)


def test_the_shadow_finds_the_longest_prefix_that_was_inserted() -> None:
    shadow = ShadowLRU(100 * GRID)
    shadow.insert(prefix(1, 2, 3, 4))
    assert shadow.lookup(prefix(1, 2, 9)) == 2 * GRID
    assert shadow.lookup(prefix(1, 2, 3, 4, 5)) == 4 * GRID
    assert shadow.lookup(prefix(8)) == 0


def test_the_shadow_evicts_the_least_recently_used_leaf_whole() -> None:
    shadow = ShadowLRU(6 * GRID)
    shadow.insert(prefix(1, 2, 3))
    shadow.insert(prefix(4, 5))
    shadow.insert(prefix(1))
    shadow.insert(prefix(6, 7))
    assert shadow.lookup(prefix(1, 2, 3)) == GRID
    assert shadow.lookup(prefix(4, 5)) == 2 * GRID


def test_the_shadow_keeps_what_running_calls_hold() -> None:
    shadow = ShadowLRU(4 * GRID)
    held = shadow.insert(prefix(1, 2))
    shadow.pin(held, +1)
    shadow.insert(prefix(3, 4))
    shadow.insert(prefix(5, 6))
    assert shadow.lookup(prefix(1, 2)) == 2 * GRID
    shadow.pin(held, -1)
    shadow.insert(prefix(7, 8, 9))
    assert shadow.lookup(prefix(1, 2)) == 0


def test_a_prompt_larger_than_the_cache_is_no_hit_the_second_time() -> None:
    shadow = ShadowLRU(3 * GRID)
    for _ in range(2):
        shadow.insert(prefix(1, 2, 3, 4))
    assert shadow.lookup(prefix(1, 2, 3, 4)) == 0


blocks = st.lists(st.integers(0, 3), min_size=1, max_size=6)


@settings(deadline=None, max_examples=80)
@given(st.lists(blocks, max_size=40), st.integers(1, 12))
def test_the_shadow_never_holds_more_than_its_capacity(prompts, capacity) -> None:
    shadow = ShadowLRU(capacity * GRID)
    for prompt in prompts:
        before = shadow.lookup(prefix(*prompt))
        shadow.insert(prefix(*prompt))
        assert before <= shadow.lookup(prefix(*prompt)) or len(prompt) > capacity
        held = sum(n.end - n.start for n in shadow._nodes.values())
        assert held == shadow.held <= capacity


@settings(deadline=None, max_examples=60)
@given(st.lists(blocks, max_size=40))
def test_with_room_for_all_the_shadow_hits_what_an_infinite_cache_hits(prompts) -> None:
    shadow, seen = ShadowLRU(10_000 * GRID), set()
    for prompt in prompts:
        longest = 0
        for length in range(1, len(prompt) + 1):
            if tuple(prompt[:length]) in seen:
                longest = length
        assert shadow.lookup(prefix(*prompt)) == longest * GRID
        shadow.insert(prefix(*prompt))
        seen.update(tuple(prompt[:length]) for length in range(1, len(prompt) + 1))


def test_recency_counts_more_while_lru_would_hit_more_and_less_once_it_does_not() -> None:
    guard = Guard(capacity=64 * GRID, page_size=1, rate=0.01)
    assert guard.beta == 0.0
    prompt = prefix(*range(16))
    for _ in range(8):
        last = guard.admitted(prompt, 16 * GRID, hit=0)
        guard.ended(last, None)
    assert guard.beta == 1.0
    worst = guard.bucket
    for _ in range(600):
        guard.ended(guard.admitted(prompt, 16 * GRID, hit=16 * GRID - 1), None)
    assert guard.bucket > worst
    assert guard.beta < 1.0
    assert guard.switches >= 1


@settings(deadline=None)
@given(st.lists(st.tuples(blocks, st.integers(0, 96)), max_size=60))
def test_the_bucket_stays_within_its_walls(calls) -> None:
    guard = Guard(capacity=10 * GRID, page_size=1, rate=0.003)
    for prompt, hit in calls:
        tokens = len(prompt) * GRID
        last = guard.admitted(prefix(*prompt), tokens, min(hit, tokens))
        guard.ended(last, prefix(*prompt, 99))
        assert -guard.cap <= guard.bucket <= guard.cap
        assert 0.0 <= guard.beta <= 1.0
    assert all(node.pins == 0 for node in guard.shadow._nodes.values())
    assert guard.real_hits <= sum(len(p) * GRID for p, _ in calls)


@settings(deadline=None)
@given(st.lists(st.tuples(blocks, st.integers(0, 96)), max_size=60), st.floats(0.0, 0.5))
def test_no_policy_regrets_more_than_the_bound_whatever_it_hits(calls, rate) -> None:
    guard, asked = Guard(capacity=4 * GRID, page_size=1, rate=rate), 0
    for prompt, hit in calls:
        tokens = len(prompt) * GRID
        asked += tokens
        guard.ended(guard.admitted(prefix(*prompt), tokens, min(hit, tokens)), None)
        assert guard.regret <= 1.5 * guard.cap + rate * asked + guard.forgiven + 1e-6


class Adversary(ShadowLRU):
    """A cache whose victims are chosen by ``choose`` unless the guard says: by recency."""

    def __init__(self, capacity: int, guard: Guard, choose) -> None:
        super().__init__(capacity)
        self.guard, self.choose = guard, choose

    def _victim(self) -> int | None:
        if self.guard.beta >= 1:
            return super()._victim()
        leaves = [node for node in self._recency if self._evictable(node)]
        return self.choose(leaves) if leaves else None


NEWEST, OLDEST = -1, 0


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(blocks, st.sampled_from([NEWEST, NEWEST, OLDEST, 1, 2])), max_size=150),
    st.integers(6, 12),
    st.integers(1, 5),
)
def test_an_adversary_is_forgiven_one_prompt_at_most_each_time_recency_takes_over(
    calls, capacity, times
) -> None:
    guard = Guard(capacity * GRID, page_size=1, rate=0.003)
    which = [NEWEST]
    cache = Adversary(capacity * GRID, guard, lambda leaves: leaves[which[0] % len(leaves)])
    longest = spells = asked = 0
    for prompt, victim in calls * times:
        which[0] = victim
        hashes, tokens = prefix(*prompt), len(prompt) * GRID
        before = guard.bucket
        last = guard.admitted(hashes, tokens, min(cache.lookup(hashes), tokens - 1))
        cache.insert(hashes)
        guard.ended(last, None)
        asked, longest = asked + tokens, max(longest, tokens)
        spells += before > 0 >= guard.bucket
        assert guard.forgiven <= longest * spells
        assert guard.regret <= 1.5 * guard.cap + guard.rate * asked + longest * spells


def test_another_size_of_cache_keeps_the_bucket_as_full() -> None:
    guard = Guard(capacity=1000, page_size=1, rate=0.0)
    guard.bucket = 300.0
    guard.resize(4000.0)
    assert (guard.bucket, guard.cap, guard.beta) == (1200.0, 4000.0, 0.4)


def test_the_state_shows_weight_regret_and_cost() -> None:
    guard = Guard(capacity=64 * GRID, page_size=1, rate=0.0)
    prompt = prefix(*range(16))
    for hit in (0, 16, 100, 255):
        guard.ended(guard.admitted(prompt, 16 * GRID, hit), None)
    assert guard.state() == {
        "beta": round((255 - 16 + 255 - 100) / 512, 3),
        "guard_switches": 1,
        "guard_regret": 3 * 255 - (16 + 100 + 255),
        "guard_forgiven": 0,
        "guard_bytes": 8 * 16 + 400 * 2,
    }


def test_the_grid_is_the_page_where_pages_are_larger() -> None:
    assert Guard(1000, page_size=64, rate=0.0).grid == 64
    assert Guard(1000, page_size=1, rate=0.0).grid == pytest.approx(GRID)
