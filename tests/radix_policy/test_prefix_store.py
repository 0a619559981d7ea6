"""What calls begin with: kept as observed, by tenant, bounded in tokens."""

from __future__ import annotations

import numpy as np
from contracts import text
from hypothesis import given
from hypothesis import strategies as st

from radix_policy.prefix_store import Prefix, PrefixStore
from radix_policy.tags import SHARED

puts = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(-1, 3), st.integers(0, 60)),
    max_size=60,
)


def prompt(tenant: int, agent: int, session: int, size: int) -> Prefix:
    return Prefix(tenant, agent, session, 1, 0, text(size, size) if size else np.zeros(0, np.int32))


@given(puts, st.integers(0, 100))
def test_it_never_holds_more_tokens_than_it_may_and_counts_what_it_holds(program, most):
    store = PrefixStore(most)
    for put in program:
        store.put(prompt(*put))
        assert store.tokens == sum(len(prefix.tokens) for prefix in store) <= most


def test_flooded_with_prompts_of_ever_new_agents_it_stays_within_its_bound():
    store = PrefixStore(5_000)
    for agent in range(3_000):
        store.put_anchor(agent % 7, agent, text(agent, 90))
    assert store.tokens <= 5_000
    assert store.bytes() < 5_000 * 4 + 60 * 400


def test_what_was_not_seen_for_longest_gives_way():
    store = PrefixStore(100)
    store.put_anchor(0, 1, text(1, 40))
    store.put_anchor(0, 2, text(2, 40))
    store.put_anchor(0, 1, text(1, 40))
    store.put_anchor(0, 3, text(3, 40))
    assert [prefix.agent for prefix in store] == [1, 3]


def test_an_anchor_that_changed_replaces_the_old_one_and_one_that_did_not_is_kept_as_it_is():
    store = PrefixStore(100)
    store.put_anchor(0, 1, text(1, 40))
    first, version = store.anchor(0, 1), store.version
    store.put_anchor(0, 1, text(1, 40))
    assert store.anchor(0, 1) is first and store.version == version
    store.put_anchor(0, 1, text(2, 30))
    assert store.anchor(0, 1).tolist() == text(2, 30).tolist() and store.version > version


def test_it_keeps_copies():
    store, mine = PrefixStore(100), text(1, 40)
    store.put_anchor(0, 1, mine)
    mine[:] = 0
    assert store.anchor(0, 1).tolist() == text(1, 40).tolist()


def test_a_forgotten_tenant_leaves_nothing_behind():
    store = PrefixStore(1000)
    for tenant in (0, 1):
        store.put_anchor(tenant, 5, text(5, 40))
        store.put(prompt(tenant, 5, 2, 60))
    store.forget_tenant(0)
    assert {(prefix.tenant, prefix.session) for prefix in store} == {(1, SHARED), (1, 2)}
    assert store.anchor(0, 5) is None and store.tokens == 100
