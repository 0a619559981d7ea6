import numpy as np
import pytest

from scout_sglang.replay.describe import describe, predictability
from scout_sglang.replay.synthetic import PRESETS, setting, trace
from scout_sglang.replay.timing import schedule
from scout_sglang.replay.topology import (
    TARGET_R,
    matrix_predictability,
    stationary_distribution,
    transition_matrix,
)
from scout_sglang.replay.trace import TraceError


@pytest.mark.parametrize("topology", TARGET_R)
def test_a_topology_has_the_predictability_it_is_solved_for(topology):
    matrix = transition_matrix(topology, 6, np.random.default_rng(0))
    assert matrix.sum(axis=1) == pytest.approx(np.ones(6))
    assert np.diag(matrix) == pytest.approx(np.zeros(6))
    assert matrix_predictability(matrix) == pytest.approx(TARGET_R[topology], abs=1e-6)
    stationary = stationary_distribution(matrix)
    assert stationary @ matrix == pytest.approx(stationary)


@pytest.mark.parametrize("topology", ["selector", "random"])
def test_generated_sessions_follow_their_topology(topology):
    timing, _ = setting(topology)
    facts = describe(lambda: schedule(trace(f"{topology}?sessions=150"), timing, 0), 16)
    assert facts.r_session == pytest.approx(TARGET_R[topology], abs=0.06)
    assert facts.agents == 6


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_yields_the_same_sessions_when_read_again(name):
    def read():
        return [
            (s.name, [(c, s.prompt(c).tolist(), s.output(c).tolist()) for c in s.calls])
            for s in trace(f"{name}?sessions=4")
        ]

    first = read()
    assert len(first) == 4
    assert first == read()
    assert all(calls and all(output for _, _, output in calls) for _, calls in first)


def test_another_seed_says_other_things():
    def head(name):
        return next(iter(trace(name))).segments[0].tolist()

    assert head("mix24?seed=1") != head("mix24?seed=2")


@pytest.mark.parametrize("name", ["nothing", "mix24?sessions=many", "mix24?colour=red"])
def test_a_wrong_name_is_refused(name):
    with pytest.raises(TraceError, match=name.partition("?")[0]):
        trace(name)


def test_thinking_never_returns_in_a_prompt():
    session = next(s for s in trace("thinking?sessions=9") if len(s.calls) > 2)
    spoken = session.output(session.calls[0])
    later = session.prompt(session.calls[1])
    assert not np.isin(spoken[:40], later[-400:]).all()


def test_in_the_drifting_workload_the_second_half_follows_another_order():
    cast = trace("drift").cast
    assert any(not np.allclose(a, b) for a, b in zip(cast.chains, cast.drifted, strict=True))


def test_predictability_of_a_cycle_is_one_and_of_a_coin_is_zero():
    from collections import Counter

    assert predictability(Counter({("a", "b"): 5, ("b", "a"): 5})) == 1.0
    coin = Counter({(i, j): 3 for i in "ab" for j in "ab"})
    assert predictability(coin) == pytest.approx(0.0)
    assert predictability(Counter()) is None
