"""Lines of values: kept for the sessions asked for, worked out alike alone and together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import value as module
from radix_policy.config import ScoutConfig
from radix_policy.horizon import Horizon
from radix_policy.lines import SessionLines
from radix_policy.next_agent import _FEW
from radix_policy.value import ScoutValue

steps = st.lists(
    st.tuples(st.sets(st.integers(0, 40), max_size=12), st.sets(st.integers(0, 40), max_size=4)),
    max_size=20,
)


@settings(deadline=None, max_examples=80)
@given(steps)
def test_the_lines_held_are_those_of_the_sessions_last_chosen_as_last_put(program) -> None:
    lines, model = SessionLines(), {}
    lines.clear(3)
    for number, (slots, changed) in enumerate(program):
        chosen = np.array(sorted(slots), dtype=np.int64)
        fresh = lines.choose(chosen, changed)
        assert sorted(fresh) == [s for s in sorted(slots) if s not in model or s in changed]
        model = {slot: model.get(slot) for slot in slots} | dict.fromkeys(fresh, number)
        lines.put(fresh, np.full((len(fresh), 3), float(number)))
        held = {slot: lines.table[lines.at(slot), 0] for slot in lines.slots.tolist()}
        assert held == model
        assert [lines.at(slot) >= 0 for slot in range(60)] == [slot in model for slot in range(60)]


def busy() -> ScoutValue:
    """Ten agents in thirty sessions, some calls still waiting."""
    rng = np.random.default_rng(3)
    value = ScoutValue(ScoutConfig(), Horizon(40_000))
    for now in range(1, 400):
        session, agent = int(rng.integers(30)), int(rng.integers(10))
        value.arrive(session, agent, now)
        value.admit(session, agent, now)
        if now % 50:
            value.depart(session, agent)
    return value


def test_a_sessions_line_is_the_same_alone_and_among_many() -> None:
    value = busy()
    value.expected(400)
    slots = value.sessions.alive_slots().tolist()
    assert len(slots) > _FEW
    known = (value._G, value.survival.q, value._gamma, value.survival.mean_end)
    together = value._next.lines(slots, *known)
    for slot, line in zip(slots, together, strict=True):
        assert value._next.lines([slot], *known)[0] == pytest.approx(line, rel=1e-9)


def test_the_odds_of_an_agent_are_the_same_alone_and_with_all_others(monkeypatch) -> None:
    together = busy().expected(400)
    monkeypatch.setattr(module, "_AT_ONCE", 0)
    assert busy().expected(400) == pytest.approx(together, rel=1e-12)
