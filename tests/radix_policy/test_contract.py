"""The contract that every policy passes, under random programs."""

from __future__ import annotations

import numpy as np
import pytest
from contracts import AGENTS, World, forget_text, programs, scout
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.call import Dispatch, NodeKind
from radix_policy.config import POLICIES
from radix_policy.tags import SHARED, NodeClass, Tag

every_policy = pytest.mark.parametrize("policy", POLICIES)
labelled = st.booleans()


@every_policy
@settings(deadline=None, max_examples=25)
@given(programs, labelled)
def test_whatever_happens_nothing_raises_and_values_lie_between_zero_and_one(
    policy, program, named
):
    world = World(scout(policy, max_agents=3, max_sessions=4), named)
    for seen in world.run(program):
        nodes, predictions, plan, beta = seen
        assert all(0.0 <= worth <= 1.0 for worth, _ in nodes)
        assert not any(np.isnan(order) for _, order in nodes)
        for chances in predictions:
            assert not chances or sum(p for _, p in chances) == pytest.approx(1.0)
        assert 0.0 <= beta <= 1.0
        assert plan is None or 0 == plan[-2] < plan[-1]


@every_policy
@settings(deadline=None, max_examples=15)
@given(programs, labelled)
def test_the_same_calls_lead_to_the_same_decisions_wherever_objects_lie_in_memory(
    policy, program, named
):
    first = World(scout(policy), named)
    one = first.run(program)
    ballast = [[World(scout(policy), named)] for _ in range(3)]
    assert World(scout(policy), named).run(program) == one
    assert len(ballast) == 3


@every_policy
@settings(deadline=None, max_examples=20)
@given(programs, st.permutations(range(AGENTS)))
def test_neither_the_names_of_agents_nor_their_ids_matter(policy, program, order):
    one, other = World(scout(policy)), World(scout(policy))
    one.run(program)
    other.run([(what, session, order[agent]) for what, session, agent in program])
    a, b = one.worths(), other.worths()
    assert {(order[agent], kind) for agent, kind in a} == set(b)
    for (agent, kind), worth in a.items():
        assert b[order[agent], kind] == pytest.approx(worth, abs=1e-9)


@every_policy
@settings(deadline=None, max_examples=25)
@given(programs, st.integers(0, AGENTS - 1), st.integers(0, AGENTS - 1))
def test_a_step_seen_once_more_is_predicted_no_less(policy, program, before, after):
    world = World(scout(policy))
    world.run(program)
    world.quiet()
    world.start = 100
    world._arrive(0, after, ends=False)
    world._arrive(1, before, ends=False)
    world._arrive(2, before, ends=False)
    asked = world.under_way[-1][0]
    target = world.agent_ids[after]
    chance = world.scout.predict(asked)[target]
    world._arrive(1, after, ends=False)
    assert world.scout.predict(asked)[target] >= chance - 1e-12


@every_policy
@settings(deadline=None, max_examples=25)
@given(programs, programs, labelled, st.sampled_from([1, 16]))
def test_a_restored_policy_decides_as_the_one_that_was_saved(policy, before, after, named, refresh):
    config = {"refresh": refresh} if "refresh" in POLICIES[policy].__dataclass_fields__ else {}
    saved = World(scout(policy, max_agents=4, max_sessions=5, **config), named)
    saved.run(before)
    saved.quiet()
    restored = World(scout(policy, max_agents=4, max_sessions=5, **config), named)
    restored.scout.restore(saved.scout.snapshot())
    restored.said, restored.turn = dict(saved.said), saved.turn
    restored.agent_ids = dict(saved.agent_ids)
    forget_text(saved.scout)
    saved.nodes.clear()
    assert restored.seen() == saved.seen()
    assert restored.worths() == saved.worths()
    assert restored.run(after) == saved.run(after)
    assert restored.worths() == saved.worths()


@every_policy
def test_what_belongs_to_an_unknown_tenant_is_worth_nothing_and_does_no_harm(policy):
    known = scout(policy, max_namespaces=1)
    world = World(known)
    world.step("call", 0, 0)
    gone = Dispatch(77, 0, 0, 1, 0, True)
    tag = Tag(77, 0, (0,), NodeKind.PROMPT)
    before = world.seen()
    known.admit(gone)
    known.start(gone, 10, 0)
    known.touch(tag, gone, 10)
    known.abandon(gone)
    known.end_session(("nobody",), 0)
    assert known.score(NodeClass(77, SHARED, (0,), NodeKind.PROMPT, 0)) == 0.0
    assert known.priority(tag, 10) < min(order for _, order in before[0])
    assert known.predict(gone) == {}
    assert world.seen() == before
