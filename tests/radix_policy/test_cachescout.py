"""The paper's rule on small worlds whose right answer is plain."""

from __future__ import annotations

import numpy as np
import pytest

from radix_policy.cachescout import CacheScoutValue
from radix_policy.call import NodeKind
from radix_policy.config import CacheScoutConfig
from radix_policy.tags import SHARED, NodeClass

PLANNER, CODER, TESTER = 10, 11, 12


def pipeline(value: CacheScoutValue, sessions: int) -> int:
    """Sessions one after another, each agent once in turn; returns the clock."""
    now = 0
    for session in range(sessions):
        for agent in (PLANNER, CODER, TESTER):
            now += 1
            value.arrive(session, agent, now)
        value.end(session)
    return now


def cachescout(**config) -> CacheScoutValue:
    return CacheScoutValue(CacheScoutConfig(**config))


def test_survival_falls_with_hops_from_the_current_agent() -> None:
    value = cachescout(tau=0.1, e_max=4)
    now = pipeline(value, 30)
    value.arrive(99, PLANNER, now + 1)
    expected = value.expected(now + 1)
    assert expected[PLANNER] == 1.0
    assert expected[CODER] == pytest.approx(0.75)
    assert expected[TESTER] == pytest.approx(0.5)


def test_per_session_gives_private_history_no_survival() -> None:
    value = cachescout()
    value.arrive(1, PLANNER, 1)
    private = NodeClass(0, 1, (PLANNER,), NodeKind.PROMPT, 1)
    shared = NodeClass(0, SHARED, (PLANNER,), NodeKind.PROMPT, 0)
    assert value.worth(*private[1:], 1) == 0.0
    assert value.worth(*shared[1:], 1) == 1.0


def test_literal_follows_one_global_agent_through_interleaved_sessions() -> None:
    value = cachescout(variant="literal")
    for now in range(1, 41):
        value.arrive(now % 2, PLANNER if now % 2 else CODER, now)
    assert value.predict(0)[PLANNER] > 0.9


def test_scores_by_equation_9() -> None:
    value = cachescout(delta=0.05, decay=0.01)
    assert value.order(0.5, 100, 200) == pytest.approx(0.55 * (np.exp(-1) + 0.05) * 200)


def test_knows_no_agents_beyond_its_bound() -> None:
    value = cachescout(max_agents=8, max_sessions=8)
    for now in range(1, 500):
        value.arrive(now, now % 50, now)
    assert len(value.expected(500)) == 8


def test_transitions_are_smoothed_by_equation_3() -> None:
    value = cachescout(epsilon=0.5)
    for session in range(4):
        value.arrive(session, PLANNER, 2 * session + 1)
        value.arrive(session, CODER if session else PLANNER, 2 * session + 2)
    value.arrive(9, PLANNER, 10)
    assert value.predict(9) == {PLANNER: pytest.approx(1.5 / 5), CODER: pytest.approx(3.5 / 5)}
    assert value.predict(77) == {}


def test_an_edge_needs_tau_and_nothing_more() -> None:
    value = cachescout(epsilon=1.0, tau=0.5, e_max=4)
    for now, agent in enumerate((PLANNER, CODER), 1):
        value.arrive(1, agent, now)
    value.arrive(2, CODER, 3)
    value.end(1)
    # Nothing follows the coder: either agent is as likely, one half.
    assert value.expected(3) == {PLANNER: 0.75, CODER: 1.0}


def test_more_agents_than_the_first_table_holds_keep_what_was_counted() -> None:
    value = cachescout(epsilon=1e-6)
    for now in range(1, 60):
        value.arrive(0, now % 20, now)
    assert value.predict(0)[0] == pytest.approx(1.0, abs=1e-3)
    assert value.predictability() == pytest.approx(1.0)


def test_a_session_that_has_ended_or_was_absorbed_has_no_current_agent() -> None:
    value = cachescout()
    value.arrive(1, PLANNER, 1)
    value.arrive(2, CODER, 2)
    value.merge(1, 2)
    assert value.predict(1) == {} != value.predict(2)
    value.end(2)
    value.end(3)
    assert value.predict(2) == {}
    assert value.expected(2) == {PLANNER: 0.0, CODER: 0.0}


def test_a_session_silent_for_eight_gaps_counts_no_more() -> None:
    value = cachescout(epsilon=1e-6, e_max=1)
    for now in range(1000):
        value.arrive(1 + now % 6, CODER, now)
    value.arrive(0, PLANNER, 1000)
    for now in range(1001, 1060):
        value.arrive(1 + now % 6, CODER, now)
        assert value.expected(now)[CODER] == 1.0
        silent = now - 1000
        if silent < 7 * 6 or silent > 9 * 6 + 3:
            assert value.expected(now)[PLANNER] == float(silent < 7 * 6)


def test_the_literal_variant_keeps_one_current_agent_whoever_it_was() -> None:
    value = cachescout(variant="literal", epsilon=1e-6, e_max=1)
    for now, (session, agent) in enumerate([(1, PLANNER), (2, CODER)], 1):
        value.arrive(session, agent, now)
    assert value.expected(2) == {PLANNER: 0.0, CODER: 1.0}


def test_hops_are_worked_out_anew_after_sixteen_dispatches_and_no_sooner() -> None:
    value = cachescout(epsilon=1e-6, e_max=2, tau=0.4)
    for now, agent in enumerate((PLANNER, CODER, PLANNER, TESTER, PLANNER), 1):
        value.arrive(1, agent, now)
    assert value.expected(5) == {PLANNER: 1.0, CODER: 0.5, TESTER: 0.5}
    for now in range(6, 26, 2):
        value.arrive(1, CODER, now)
        value.arrive(1, PLANNER, now + 1)
        tester = value.expected(now + 1)[TESTER]
        assert tester == (0.5 if now + 1 < 21 else 0.0)


def test_an_agent_that_takes_over_a_row_has_none_of_its_history() -> None:
    value = cachescout(max_agents=2, epsilon=0.5)
    for now in range(1, 21):
        value.arrive(1, PLANNER if now % 2 else CODER, now)
    value.arrive(2, CODER, 21)
    value.arrive(3, TESTER, 22)
    assert value.predict(3) == {CODER: 0.5, TESTER: 0.5}
    assert value.predict(2) == {CODER: 0.5, TESTER: 0.5}
    value.arrive(3, CODER, 23)
    value.arrive(4, TESTER, 24)
    assert value.predict(4)[CODER] == pytest.approx(1.5 / 2)


def test_a_session_whose_current_agent_lost_its_row_has_none() -> None:
    value = cachescout(max_agents=1)
    value.arrive(1, PLANNER, 1)
    value.arrive(2, CODER, 2)
    assert value.predict(1) == {} != value.predict(2)


def test_what_is_not_scored_is_ordered_by_recency_alone_and_what_is_never_falls_to_that() -> None:
    value = cachescout()
    assert value.order(0.0, 5, 900) == value.order(0.0, 7, 3) == 0.0
    assert value.order(1.0, 0, 10) == pytest.approx(1.05 * 1.05 * 10)
    value.arrive(1, PLANNER, 1)
    unknown = NodeClass(0, SHARED, (TESTER,), NodeKind.PROMPT, 0)
    assert 0.0 < value.worth(*unknown[1:], 1) < 1e-6


def test_with_prediction_off_every_anchor_survives_alike() -> None:
    value = cachescout(prediction=False)
    now = pipeline(value, 5)
    value.arrive(9, PLANNER, now + 1)
    assert set(value.expected(now + 1).values()) == {1.0}
    assert set(value.predict(9).values()) == {1 / 3}
