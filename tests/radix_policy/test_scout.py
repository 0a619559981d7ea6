"""Scout as the engine sees it: tenants, ends, bounds under floods."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest
from contracts import scout, text

from evals import bench_state
from radix_policy import bounds
from radix_policy.call import Call, Dispatch, NodeKind
from radix_policy.config import POLICIES
from radix_policy.hashing import rolling
from radix_policy.scout import Scout
from radix_policy.tags import SHARED, NodeClass


def run(one: Scout, call: Call) -> Dispatch:
    """A call from its arrival to its end."""
    dispatch = one.observe(call)
    one.admit(dispatch)
    one.start(dispatch, len(call.tokens), 0)
    tokens = np.concatenate([call.tokens, text(9, 20)])
    one.finish(dispatch, tokens, len(call.tokens), 20)
    return dispatch


def private(call: Dispatch) -> NodeClass:
    """What the call left behind."""
    return NodeClass(call.tenant, call.session, (call.agent,), NodeKind.PROMPT, call.number)


def test_a_session_that_is_said_to_end_is_worth_nothing_once_its_last_call_is_done() -> None:
    one = scout("scout")
    run(one, Call(text(1, 50), agent="a", session="s"))
    last = one.observe(Call(text(1, 50), agent="a", session="s", end_of_session=True))
    assert one.score(private(last)) > 0.7
    one.finish(last, text(1, 60), 50, 10)
    assert one.score(private(last)) == 0.0
    anew = one.observe(Call(text(1, 50), agent="a", session="s"))
    assert anew.session != last.session


def test_a_session_can_be_ended_between_its_calls() -> None:
    one = scout("scout")
    call = run(one, Call(text(1, 50), ("t",), "a", "s"))
    other = run(one, Call(text(1, 50), ("t",), "a", "other"))
    assert one.score(private(call)) > 0
    one.end_session(("t",), call.session)
    assert one.score(private(call)) == 0.0 < one.score(private(other))


def test_an_aborted_call_brings_no_tokens_into_the_cache() -> None:
    one = scout("scout")
    before = one.horizon.turnover
    one.abandon(one.observe(Call(text(1, 50))))
    assert one.horizon.turnover == before
    run(one, Call(text(1, 50)))
    assert one.horizon.turnover == one.horizon.capacity / 20


def test_a_node_of_an_absorbed_session_is_worth_what_the_survivors_is() -> None:
    one = scout("scout")
    first, second = (run(one, Call(text(1, 50), agent="a", session=s)) for s in "xy")
    tenant = one._by_number[0]
    tenant.value.merge(*tenant.identity._sessions._merge(first.session, second.session))
    one.clock += 1
    assert one.score(private(second)) == one.score(private(second)._replace(session=0)) > 0
    assert one.predict(second) == one.predict(first) != {}


def test_the_tenant_that_called_least_recently_gives_way_and_its_calls_end_in_peace() -> None:
    one = scout("scout", max_namespaces=2)
    waiting = one.observe(Call(text(1, 50), ("a",), agent="x"))
    run(one, Call(text(1, 50), ("b",), agent="x"))
    run(one, Call(text(1, 50), ("a",), agent="x"))
    kept = run(one, Call(text(1, 50), ("c",), agent="x"))
    run(one, Call(text(1, 50), ("a",), agent="x"))
    run(one, Call(text(1, 50), ("d",), agent="x"))
    assert one.score(private(kept)) == 0.0
    assert one.score(private(waiting)) > 0.0
    one.finish(kept, text(1, 60), 50, 10)
    one.admit(kept)
    one.abandon(kept)
    assert one.state()["tenants"] == 2


def test_the_shadow_takes_equal_prompts_of_two_tenants_for_two() -> None:
    one = scout("scout")
    assert one.guard is not None
    for name in ("a", "b"):
        run(one, Call(text(1, 160), (name,)))
        assert one.guard.shadow_hits == 0
    run(one, Call(text(1, 160), ("a",)))
    assert one.guard.shadow_hits > 100


def test_a_call_that_starts_twice_counts_once() -> None:
    one = scout("scout")
    assert one.guard is not None
    call = one.observe(Call(text(1, 160)))
    for _ in range(2):
        one.start(call, 160, 30)
    assert one.guard.real_hits == 30


def test_a_flush_empties_the_shadow_and_forgets_nothing_that_was_learned() -> None:
    one = scout("scout")
    assert one.guard is not None
    for session in range(4):
        run(one, Call(text(1, 160), agent="a", session=str(session)))
        last = run(one, Call(text(2, 160), agent="b", session=str(session)))
    known = one.predict(last)
    one.flush()
    assert one.guard.shadow.held == 0
    assert one.predict(last) == known


def test_the_paper_s_rule_runs_without_a_guard_and_scout_without_one_if_told_so() -> None:
    assert scout("cachescout").guard is None
    assert scout("scout", guard=False).guard is None
    assert scout("scout", guard=False).state()["beta"] == 0.0


def test_the_state_names_no_client_and_no_token() -> None:
    one = scout("scout")
    run(one, Call(text(1, 50), ("salt",), agent="planner", session="alice"))
    shown = str(one.state())
    assert not any(word in shown for word in ("salt", "planner", "alice", str(text(1, 50)[1])))


# -- floods --------------------------------------------------------------------------------

SMALL = {
    "max_agents": 8,
    "max_sessions": 16,
    "max_namespaces": 3,
    "max_anchor_nodes": 256,
    "warmup_anchors": 2000,
    "warmup_prompts": 2000,
}


def labelled_flood(k: int) -> Call:
    """Nobody comes twice."""
    return Call(text(1, 40), (f"t{k // 50 % 9}",), agent=f"a{k}", session=f"s{k}")


def crowded_session(k: int) -> Call:
    """One session in which ever new agents speak."""
    return Call(text(1, 40), agent=f"a{k}", session="s")


def busy_agent(k: int) -> Call:
    """One agent in ever new sessions, with a routing key each."""
    return Call(text(1, 40), agent="a", session=f"s{k}", routing_key=f"k{k}")


def assert_within_bounds(one: Scout) -> None:
    for tenant in one._by_number.values():
        for held in bounds.held(tenant.identity, tenant.value, one.config):
            assert held.held <= held.most, held


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("flood", [labelled_flood, crowded_session, busy_agent])
def test_a_flood_of_names_takes_no_more_memory_the_longer_it_lasts(policy, flood) -> None:
    one = scout(policy, **SMALL)
    rolling(text(1, 60))  # the tables of the hash are built once
    held, counted = [], []
    tracemalloc.start()
    try:
        for k in range(900):
            run(one, flood(k))
            one.moved()
            if k in (449, 899):
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
                counted.append(one.bytes())
    finally:
        tracemalloc.stop()
    # Some bounds are further off: the agents of a session, what the shadow LRU holds.
    assert held[1] <= 1.05 * held[0] + 30_000
    assert counted[1] <= 1.05 * counted[0] + 20_000
    assert one.state()["tenants"] <= 3
    assert one.state()["agents"] <= 3 * 8


@pytest.mark.parametrize("policy", POLICIES)
def test_a_flood_of_texts_keeps_agents_sessions_and_prefixes_at_their_bounds(policy) -> None:
    one = scout(policy, **SMALL)
    for k in range(400):
        fork = np.concatenate([text(1, 40), text(2 + k % 7, 40), text(100 + k, 60)])
        run(one, Call(fork))
    assert_within_bounds(one)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("flood", [labelled_flood, crowded_session, busy_agent])
def test_a_flood_of_names_keeps_every_table_at_its_bound(policy, flood) -> None:
    one = scout(policy, **SMALL)
    for k in range(200):
        run(one, flood(k))
    assert_within_bounds(one)


def test_the_oldest_agent_and_session_are_the_ones_that_a_flood_evicts() -> None:
    one = scout("scout", max_agents=4, max_sessions=4)
    calls = [run(one, Call(text(1, 40), agent=f"a{k}", session=f"s{k}")) for k in range(8)]
    worth = [one.score(private(call)) for call in calls]
    assert worth[:4] == [0.0] * 4
    assert min(worth[4:]) > 0.0
    shared = [one.score(NodeClass(0, SHARED, (call.agent,), NodeKind.PROMPT, 0)) for call in calls]
    assert shared[:4] == [0.0] * 4
    assert min(shared[4:]) > 0.0


@pytest.mark.parametrize("labelled", [True, False])
def test_the_bytes_reported_are_those_held_give_or_take_a_fourth(labelled) -> None:
    one, _ = bench_state.learned(bench_state.Size(8, 40, 400), labelled, capacity=200_000)
    held = bench_state.memory(one)
    whole = held["all of it"] + held["token ids, apart"] + held["shadow LRU, apart"]
    assert 0.75 * whole < one.bytes() < 1.25 * whole
