"""The two value rules on small worlds whose right answer is plain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import value as module
from radix_policy.call import NodeKind
from radix_policy.config import ScoutConfig
from radix_policy.horizon import Horizon
from radix_policy.reuse import ReuseRatios
from radix_policy.value import ScoutValue

PLANNER, CODER, TESTER, WRITER = 10, 11, 12, 13


def scout_value(capacity: int = 40_000, **config) -> ScoutValue:
    horizon = Horizon(capacity)
    horizon.filled(1000)
    return ScoutValue(ScoutConfig(**config), horizon)


def run_pipeline(value, sessions: int, start: int = 0, agents=(PLANNER, CODER, TESTER)) -> int:
    """Sessions one after another, each agent once in turn; returns the clock."""
    now = start * len(agents)
    for session in range(start, start + sessions):
        for agent in agents:
            now += 1
            value.arrive(session, agent, now)
            value.admit(session, agent, now)
            value.depart(session, agent)
        value.end(session)
    return now


def test_the_agent_that_follows_is_worth_more_than_the_one_that_ran() -> None:
    value = scout_value()
    now = run_pipeline(value, 30)
    value.arrive(99, PLANNER, now + 1)
    value.depart(99, PLANNER)
    expected = value.expected(now + 1)
    assert expected[CODER] > expected[TESTER]
    assert value.predict(99)[CODER] > 0.8


def test_without_prediction_the_follower_is_not_preferred() -> None:
    value = scout_value(prediction=False)
    now = run_pipeline(value, 30)
    value.arrive(99, PLANNER, now + 1)
    value.depart(99, PLANNER)
    expected = value.expected(now + 1)
    assert expected[CODER] <= expected[TESTER]


def test_an_ended_sessions_history_is_worth_nothing_and_a_live_ones_is() -> None:
    value = scout_value()
    now = run_pipeline(value, 20, agents=(PLANNER, CODER, PLANNER))
    for session in (500, 501):
        now += 1
        value.arrive(session, PLANNER, now)
        value.admit(session, PLANNER, now)
        value.depart(session, PLANNER)
    value.end(500)
    gone = value.worth(500, (PLANNER,), NodeKind.PROMPT, now, now)
    live = value.worth(501, (PLANNER,), NodeKind.PROMPT, now, now)
    assert gone == 0.0 < live


def test_a_call_in_the_queue_makes_its_agents_nodes_as_good_as_certain() -> None:
    value = scout_value()
    now = run_pipeline(value, 10)
    value.arrive(99, TESTER, now + 1)
    assert value.expected(now + 1)[TESTER] > 0.99


def test_a_branch_that_the_latest_call_passed_by_is_worth_a_tenth_of_the_spine() -> None:
    value = scout_value()
    value.arrive(1, CODER, 1)
    value.admit(1, CODER, 1)
    value.depart(1, CODER)
    value.arrive(1, CODER, 2)
    value.admit(1, CODER, 2)
    stale = value.worth(1, (CODER,), NodeKind.SPINE, 1, 2)
    spine = value.worth(1, (CODER,), NodeKind.SPINE, 2, 2)
    assert stale == pytest.approx(spine * 0.1 / 0.95)


def test_a_silent_session_is_presumed_over_and_its_return_takes_that_back() -> None:
    value = scout_value()
    now = run_pipeline(value, 40)
    value.arrive(99, PLANNER, now + 1)
    value.depart(99, PLANNER)
    now = run_pipeline(value, 8, start=41)
    assert value.worth(99, (PLANNER,), NodeKind.PROMPT, now, now) == 0.0
    ends = value.counts.ends.sum()
    value.arrive(99, CODER, now + 1)
    value.depart(99, CODER)
    assert value.counts.ends.sum() == pytest.approx(ends - 1)
    assert value.worth(99, (CODER,), NodeKind.PROMPT, now + 1, now + 1) > 0.0


def test_a_flood_of_agents_and_sessions_keeps_the_tables_at_their_bounds() -> None:
    value = scout_value(max_agents=16, max_sessions=32)
    for now in range(1, 2000):
        value.arrive(now, now % 100, now)
        value.depart(now, now % 100)
        if now % 50 == 0:
            value.expected(now)
    assert len(value.rows) == 16
    assert len(value.sessions) <= 32
    assert value.bytes() < 300_000


def test_sessions_beyond_the_first_table_are_valued_between_two_refreshes() -> None:
    value = scout_value(refresh=10_000)
    calls = 2000
    for now in range(calls):
        value.arrive(0, PLANNER, now)
    value.expected(calls)
    for session in range(1, 40):
        value.arrive(session, PLANNER, calls + session)
    now = calls + 39
    assert value.worth(39, (PLANNER,), NodeKind.PROMPT, now, now) > 0.0


program = st.lists(
    st.tuples(
        st.sampled_from(["call", "call", "call", "end", "abort", "merge"]),
        st.integers(0, 6),
        st.integers(0, 5),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=60)
@given(program)
def test_values_stay_in_the_unit_interval_and_repeat_exactly(steps) -> None:
    first, second = (run_program(steps) for _ in range(2))
    assert first == second
    assert all(0.0 <= v <= 1.0 for v in first)


def run_program(steps) -> list[float]:
    value = scout_value(max_agents=4, max_sessions=5)
    seen: list[float] = []
    for now, (what, session, agent) in enumerate(steps, start=1):
        if what == "end":
            value.end(session)
        elif what == "merge":
            if session:
                value.merge(session, session - 1)
        else:
            value.arrive(session, agent, now)
            if what == "call":
                value.admit(session, agent, now)
                value.depart(session, agent)
        seen.append(value.shared((agent,), now))
        seen.extend(value.worth(session, (agent,), kind, now, now) for kind in NodeKind)
        seen.extend(value.predict(session).values())
    return seen


def test_reuse_ratios_move_from_the_prior_towards_what_is_seen() -> None:
    reuse = ReuseRatios(prior=4.0, decay=0.99, limit=100)
    rng = np.random.default_rng(0)
    for session in range(40):
        hashes = rng.integers(0, 1 << 60, size=301, dtype=np.uint64)
        reuse.leave(session, CODER, hashes, anchor=50, prompt=200)
        kept = hashes.copy()
        kept[201:] = 0
        reuse.returned(session, CODER, kept)
    assert reuse.ratio(CODER, NodeKind.PROMPT) > 0.95
    assert reuse.ratio(CODER, NodeKind.OUTPUT) < 0.15
    assert reuse.ratio(TESTER, NodeKind.OUTPUT) == 0.8
    reuse.forget_agent(CODER)
    assert reuse.ratio(CODER, NodeKind.PROMPT) == reuse.ratio(CODER, NodeKind.OUTPUT) == 0.8


def test_the_branch_that_a_call_left_is_stale_and_teaches_how_often_one_is_taken_up_again() -> None:
    reuse = ReuseRatios(prior=1e-9, decay=1.0, limit=100)
    first = np.arange(1, 302, dtype=np.uint64)
    reuse.leave(1, CODER, first, anchor=0, prompt=240)
    other = first.copy()
    other[121:] += 1000
    reuse.leave(1, CODER, other, anchor=0, prompt=240)
    reuse.returned(1, CODER, first)
    assert reuse.ratio(CODER, NodeKind.SPINE) == pytest.approx(1.0)
    assert reuse.ratio(CODER, NodeKind.PROMPT) == pytest.approx(0.0, abs=1e-6)
    assert reuse.ratio(CODER, NodeKind.STALE) == pytest.approx(1.0)


def test_what_an_agent_left_in_a_session_that_is_over_teaches_nothing() -> None:
    reuse = ReuseRatios(prior=4.0, decay=0.99, limit=100)
    hashes = np.arange(1, 302, dtype=np.uint64)
    for agent in (CODER, TESTER):
        reuse.leave(1, agent, hashes, anchor=0, prompt=200)
    reuse.forget_session(1, [CODER, WRITER])
    for agent in (CODER, TESTER):
        reuse.returned(1, agent, hashes)
    assert reuse.ratio(CODER, NodeKind.PROMPT) == 0.8 < reuse.ratio(TESTER, NodeKind.PROMPT)


def test_half_of_a_segment_reused_counts_as_half() -> None:
    reuse = ReuseRatios(prior=1e-9, decay=1.0, limit=100)
    hashes = np.arange(1, 302, dtype=np.uint64)
    reuse.leave(1, CODER, hashes, anchor=0, prompt=300)
    prompt = hashes.copy()
    prompt[151:] = 0
    reuse.returned(1, CODER, prompt)
    assert reuse.ratio(CODER, NodeKind.PROMPT) == pytest.approx(0.5)


def test_remembered_checkpoints_are_bounded() -> None:
    reuse = ReuseRatios(prior=4.0, decay=0.99, limit=10)
    for session in range(1000):
        reuse.leave(session, CODER, np.arange(100, dtype=np.uint64), anchor=10, prompt=50)
    assert reuse.bytes() < 10_000


def test_of_more_sessions_than_are_valued_the_longest_silent_are_worth_nothing(monkeypatch) -> None:
    monkeypatch.setattr(module, "_VALUED_SESSIONS", 4)
    monkeypatch.setattr(module, "_VALUED", 1)
    value = ScoutValue(ScoutConfig(), Horizon(20_000))
    for session in range(10):
        value.arrive(session, session % 3, session + 1)
        if session != 1:
            value.depart(session, session % 3)
    worth = [value.worth(s, (s % 3,), NodeKind.PROMPT, used=s + 1, now=11) for s in range(10)]
    assert worth[0] == 0.0 and worth[2:6] == [0.0] * 4
    assert worth[1] > 0.5 and min(worth[6:]) > 0.0
    value.arrive(0, 0, 12)
    assert value.worth(0, (0,), NodeKind.PROMPT, used=1, now=12) > 0.5


def test_the_guess_that_is_judged_is_the_likeliest_by_the_prediction() -> None:
    value, rng = ScoutValue(ScoutConfig(), Horizon(20_000)), np.random.default_rng(0)
    right = 0
    for now in range(1, 400):
        session = int(rng.integers(12))
        agent = int((rng.integers(3) + session) % 7)
        chances = value.predict(session)
        guess = value.arrive(session, agent, now, judge=True)
        value.depart(session, agent)
        assert (guess is None) == (not chances)
        if guess is not None and agent in chances:
            assert chances[guess] == max(chances.values())
            right += guess == agent
    assert right > 100
