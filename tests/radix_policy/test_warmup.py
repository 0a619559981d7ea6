"""The planner: what it brings back, what it leaves alone, and when it stops."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import Memory, World, scout, text
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import warmup
from radix_policy.call import Call
from radix_policy.config import POLICIES, parse_config
from radix_policy.prefix_store import Prefix
from radix_policy.tags import SHARED
from radix_policy.warmup import BACK_OFF, FORGIVEN, Budget, PieceSize, Wanted, WarmupPlanner

COST = 0.25


def planner(page: int = 1, longest: int = 1000, **config) -> WarmupPlanner:
    config = {"warmup_cost": COST, **config}
    return WarmupPlanner(parse_config("scout", config), page, longest)


def wanted(agent: int, value: float, size: int = 100, kept: bool = False, tenant: int = 0):
    tokens = np.zeros(size, dtype=np.int32)
    return Wanted(Prefix(tenant, agent, SHARED, 0, size, tokens), ("space",), value, kept)


def planned(able, memory=None, clock=0, worth=lambda tag: 0.0, **config):
    """Agent, start and stop of the plan, None without one."""
    plan = planner(**config).plan(able, memory or Memory(), clock, worth)
    return None if plan is None else (plan.prefix.agent, plan.start, plan.stop)


def test_the_greatest_expected_saving_comes_first_and_ties_go_to_the_lowest_agent():
    assert planned([wanted(1, 0.9, 50), wanted(2, 0.6, 100)]) == (2, 0, 100)
    assert planned([wanted(2, 0.9), wanted(1, 0.9)]) == (1, 0, 100)


def test_what_is_worth_no_more_than_it_costs_stays_out():
    assert planned([wanted(1, COST)]) is None
    assert planned([wanted(1, COST + 0.01)]) == (1, 0, 100)


def test_only_what_is_missing_is_planned_in_whole_pages():
    assert planned([wanted(1, 0.9)], Memory(cached=50)) == (1, 50, 100)
    assert planned([wanted(1, 0.9)], Memory(cached=100)) is None
    assert planned([wanted(1, 0.9)], Memory(cached=50), page=16) == (1, 48, 96)
    assert planned([wanted(1, 0.9)], Memory(cached=97), page=16) is None


def test_an_anchor_longer_than_a_prompt_may_be_is_brought_back_as_far_as_it_goes():
    assert planned([wanted(1, 0.9, 5000)], longest=700) == (1, 0, 700)
    assert planned([wanted(1, 0.9, 5000)], Memory(cached=700), longest=700) is None


def test_only_so_much_comes_back_as_fits_beside_what_is_worth_as_much():
    leaves = [(0.1, 30), (0.2, 30), (0.8, 500)]
    assert planned([wanted(1, 0.9)], Memory(spare=10, leaves=leaves)) == (1, 0, 70)
    assert planned([wanted(1, 0.3)], Memory(spare=10, leaves=leaves)) == (1, 0, 10)
    assert planned([wanted(1, 0.9)], Memory(spare=0, leaves=[(0.8, 500)])) is None


def test_where_leaves_go_whole_one_goes_only_if_all_of_its_room_is_needed():
    leaves = [(0.1, 60), (0.2, 60)]
    memory = Memory(spare=10, leaves=leaves, whole=True)
    assert planned([wanted(1, 0.9, 100)], memory) == (1, 0, 70)
    assert planned([wanted(1, 0.9, 60)], memory) == (1, 0, 10)
    assert planned([wanted(1, 0.9, 60)], Memory(leaves=leaves, spare=0, whole=True)) == (1, 0, 60)


def test_without_values_of_what_would_go_only_free_memory_is_used():
    leaves = [(0.0, 500)]
    assert planned([wanted(1, 0.9)], Memory(spare=40, leaves=leaves), worth=None) == (1, 0, 40)
    assert planned([wanted(1, 0.9)], Memory(spare=0, leaves=leaves), worth=None) is None


def test_a_kept_anchor_comes_before_any_other():
    assert planned([wanted(1, 0.99, 900), wanted(2, 0.5, 100, kept=True)]) == (2, 0, 100)


leaf_lists = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 40)), max_size=12)
wanted_lists = st.lists(
    st.tuples(st.integers(0, 9), st.floats(0, 1), st.integers(0, 300), st.booleans()), max_size=12
)


@settings(deadline=None)
@given(wanted_lists, leaf_lists, st.integers(0, 200), st.integers(0, 90), st.sampled_from([1, 16]))
def test_nothing_worth_as_much_is_ever_displaced_and_every_plan_is_page_aligned_and_missing(
    wants, leaves, spare, cached, page
):
    able = [wanted(*w) for w in wants]
    leaves = sorted(leaves)
    memory = Memory(cached, spare, leaves)
    plan = planner(page).plan(able, memory, 0, lambda tag: 0.0)
    assert len(memory.asked) <= warmup.PROBED
    if plan is None:
        return
    assert plan.start % page == plan.stop % page == 0
    assert cached // page * page <= plan.start or plan.start <= cached
    assert plan.start < plan.stop <= len(plan.prefix.tokens)
    need = plan.stop - plan.start - spare
    for value, tokens in leaves:
        if need <= 0:
            break
        assert value < plan.value - COST
        need -= tokens
    assert need <= 0


# -- back-off ------------------------------------------------------------------------------


def test_an_agent_whose_warm_ups_go_unused_waits_twice_as_long_each_time():
    one, clock, waits = planner(), 0, []
    for _ in range(FORGIVEN):
        one.settled((0, 1, False), used=False, clock=clock)
        assert one.plan([wanted(1, 0.9)], Memory(), clock, None) is not None
    for _ in range(4):
        one.settled((0, 1, False), used=False, clock=clock)
        began = clock
        while one.plan([wanted(1, 0.9)], Memory(), clock, None) is None:
            clock += 1
        waits.append(clock - began)
    assert waits == [BACK_OFF, 2 * BACK_OFF, 4 * BACK_OFF, 8 * BACK_OFF]
    one.settled((0, 1, False), used=True, clock=clock)
    assert one.plan([wanted(1, 0.9)], Memory(), clock, None) is not None
    assert one.waiting == 0


def test_who_waits_is_that_agent_of_that_tenant_alone_and_never_a_kept_one():
    one = planner()
    for _ in range(FORGIVEN + 1):
        one.settled((0, 1, False), used=False, clock=0)
    assert one.plan([wanted(1, 0.9)], Memory(), 1, None) is None
    assert one.plan([wanted(2, 0.9)], Memory(), 1, None) is not None
    assert one.plan([wanted(1, 0.9, tenant=1)], Memory(), 1, None) is not None
    assert one.plan([wanted(1, 0.9, kept=True)], Memory(), 1, None) is not None


def test_flooded_with_disappointing_agents_it_remembers_a_bounded_number():
    one = planner()
    for agent in range(3 * warmup._REMEMBERED):
        one.settled((0, agent, False), used=False, clock=agent)
    assert one.waiting == warmup._REMEMBERED


# -- budget --------------------------------------------------------------------------------


ticks = st.lists(
    st.tuples(st.floats(0, 30), st.booleans(), st.integers(1, 400), st.floats(0, 2)), max_size=60
)


@given(ticks, st.floats(0, 1), st.integers(0, 3000))
def test_neither_the_share_of_idle_time_nor_the_tokens_a_minute_are_overdrawn(ticks, share, most):
    budget = Budget(share, most)
    now = idle_time = seconds = tokens = 0.0
    budget.pass_time(now, False)
    for passed, idle, size, took in ticks:
        now += passed
        idle_time += passed if idle else 0.0
        budget.pass_time(now, idle)
        if budget.allows(size) and size <= most:
            seconds, tokens = seconds + took, tokens + size
            budget.spend(size, took)
        # One piece may be under way when the share runs out.
        assert seconds <= share * (idle_time + Budget.BURST) + 2.0 + 1e-6
        assert tokens <= most * (1 + now / 60) + 1e-6


def test_a_share_of_nothing_allows_nothing():
    for budget in (Budget(0.0, 1000), Budget(1.0, 0)):
        budget.pass_time(0.0, True)
        budget.pass_time(100.0, True)
        assert not budget.allows(10)


# -- with a model behind it ----------------------------------------------------------------


def taught(policy: str, agents=(0, 1), sessions: int = 8, **config) -> World:
    """A World that has seen its agents take turns, in sessions that are over."""
    world = World(scout(policy, **config))
    for session in range(sessions):
        world.start = session
        for turn in range(6):
            world.step("call", 0, agents[turn % len(agents)])
        world.step("end", 0, agents[0])
    return world


every_policy = pytest.mark.parametrize("policy", POLICIES)


@every_policy
def test_the_next_agents_anchor_is_planned_and_what_is_planned_was_observed(policy):
    world = taught(policy)
    world.start = 50
    world.step("call", 0, 0)
    plan = world.scout.act(Memory())
    assert plan.prefix.agent in world.agent_ids.values()
    agent = next(a for a, number in world.agent_ids.items() if number == plan.prefix.agent)
    assert plan.prefix.tokens[:90].tolist() == text(agent, 90).tolist()
    assert plan.namespace == ("tenant",)


@every_policy
def test_where_everyone_may_follow_everyone_the_gate_is_closed(policy):
    world = World(scout(policy))
    order = np.random.default_rng(0).integers(0, 4, 400)
    for turn, agent in enumerate(order):
        world.start = turn // 8
        world.step("call", 0, int(agent))
        assert world.scout.act(Memory()) is None


@every_policy
def test_planning_leaves_no_trace_in_any_decision(policy):
    asked, other = World(scout(policy)), World(scout(policy))
    order = np.random.default_rng(1).integers(0, 3, 120)
    for turn, agent in enumerate(order):
        step = ("call", turn % 5, int(agent))
        for world in (asked, other):
            world.planned = lambda: None
            world.step(*step)
        for _ in range(turn % 3):
            asked.scout.act(Memory(spare=0, leaves=[(0.0, 10)]))
        assert asked.seen() == other.seen()


def test_prompts_that_are_more_than_their_token_ids_are_not_remembered():
    one = scout("scout")
    for session in range(4):
        prompt = np.concatenate([text(1, 80), text(100 + session, 30)])
        call = one.observe(Call(prompt, (), "a", f"s{session}", plain=False))
        one.finish(call, prompt, len(prompt), 40)
    assert len(one.anchors) == len(one.prompts) == 0


def test_switched_off_it_remembers_nothing_and_plans_nothing():
    world = taught("scout", warmup=False)
    assert len(world.scout.anchors) == len(world.scout.prompts) == 0
    assert world.scout.act(Memory()) is None


def test_a_forgotten_namespace_takes_its_prompts_along():
    one = scout("scout", max_namespaces=2)
    for tenant in range(3):
        for session in range(3):
            prompt = np.concatenate([text(1, 80), text(100 + session, 30)])
            call = one.observe(Call(prompt, (f"t{tenant}",), "a", f"s{session}"))
            one.finish(call, prompt, len(prompt), 40)
    assert {prefix.tenant for prefix in (*one.anchors, *one.prompts)} == {1, 2}


# -- keep-list -----------------------------------------------------------------------------


@every_policy
def test_a_kept_anchor_is_scored_as_always_expected_and_planned_in_spite_of_the_gate(policy):
    world = World(scout(policy))
    for session in range(3):
        world.step("call", session, 0)
    key = (0, world.agent_ids[0])
    before = world.worths()[0, -1]
    world.scout.keep([key])
    assert world.worths()[0, -1] == pytest.approx(max(before, world.scout.KEPT))
    assert world.scout.act(Memory()).prefix.agent == key[1]
    world.scout.keep([])
    assert world.worths()[0, -1] == before


# -- after a restart -----------------------------------------------------------------------


def restarted(namespace: tuple, sessions: int, **config):
    """A Scout that was restored from one with so many sessions of agents a and b."""
    one = scout("scout", **config)
    for session in range(sessions):
        for turn in range(6):
            prompt = np.concatenate([text(turn % 2, 80), text(100 + session, 30 + turn)])
            call = one.observe(Call(prompt, namespace, "ab"[turn % 2], f"s{session}"))
            one.finish(call, prompt, len(prompt), 40)
    other = scout("scout", **config)
    other.restore(one.snapshot())
    return other


def test_hot_anchors_are_planned_before_the_first_call():
    other = restarted((None, None, None), 6)
    plan = other.act(Memory())
    assert plan.prefix.tokens.tolist() in (text(0, 80).tolist(), text(1, 80).tolist())
    assert plan.namespace == (None, None, None)


def test_those_of_a_salted_namespace_wait_for_its_first_call():
    other = restarted((None, "salt", None), 6)
    assert len(other.anchors) == 2
    assert other.act(Memory()) is None
    other.abandon(other.observe(Call(text(7, 40), (None, "salt", None), "a", "new")))
    assert other.act(Memory()).namespace == (None, "salt", None)


def test_what_fewer_than_three_sessions_began_with_is_not_in_the_state():
    assert len(restarted((None, None, None), 2).anchors) == 0


def test_the_state_holds_no_more_tokens_of_anchors_than_it_may():
    assert restarted((None, None, None), 6, warm_start=100).anchors.tokens == 80
    assert restarted((None, None, None), 6, warm_start=0).anchors.tokens == 0


# -- pieces --------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0.0, 1.0), max_size=40), st.sampled_from([1, 16, 64]), st.integers(16, 512)
)
def test_pieces_are_whole_pages_and_never_larger_than_the_most_or_a_page(times, page, most):
    size = PieceSize(page, most, 0.02)
    for seconds in times:
        assert size.tokens % page == 0 and page <= size.tokens <= max(most, page)
        size.took(seconds)


@pytest.mark.parametrize("per_token,expected", [(0.001, 20), (0.00001, 128), (0.1, 16)])
def test_a_piece_takes_about_as_long_as_it_may(per_token, expected):
    size = PieceSize(1, 128, 0.02)
    for _ in range(30):
        size.took(size.tokens * per_token)
    assert size.tokens == pytest.approx(expected, abs=1)
