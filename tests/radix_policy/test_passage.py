"""Closed forms against Monte-Carlo on random chains, and the properties a value must have."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from radix_policy import passage

EDGES = 2.0 ** (np.arange(81) / 4)
BINS = passage.GapBins.of(EDGES)
FIRST = np.array([0])


def random_chain(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    P = rng.dirichlet(np.full(n, 0.5), size=n)
    return P, rng.uniform(0.02, 0.4, size=n)


@pytest.mark.parametrize("seed", range(4))
def test_first_passage_equals_simulated_discounted_hitting_times(seed: int) -> None:
    n, gamma, runs = 4, 0.85, 20_000
    P, q = random_chain(seed, n)
    G = passage.first_passage(P, q, gamma)
    rng = np.random.default_rng(100 + seed)
    start, target = seed % n, (seed + 2) % n
    at = np.full(runs, start)
    worth = np.zeros(runs)
    running = np.ones(runs, dtype=bool)
    cumulative = P.cumsum(axis=1)
    for step in range(1, 80):
        running &= rng.random(runs) >= q[at]
        drawn = rng.random(runs)[:, None]
        at = np.where(running, (cumulative[at] < drawn).sum(axis=1).clip(0, n - 1), at)
        hit = running & (at == target)
        worth[hit] = gamma**step
        running &= ~hit
    assert G[start, target] == pytest.approx(worth.mean(), abs=4 * worth.std() / runs**0.5 + 1e-3)


def test_the_value_from_a_start_is_the_mean_over_first_agents() -> None:
    P, q = random_chain(7, 5)
    G = passage.first_passage(P, q, 0.9)
    starts = np.array([0.5, 0.5, 0, 0, 0])
    G0 = passage.from_start(starts, G)
    for a in range(5):
        expected = sum(starts[i] * (1.0 if i == a else G[i, a]) for i in range(5))
        assert G0[a] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_rank_passage_equals_a_simulated_move_to_front_list(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranks, gamma, runs = 5, 0.8, 30_000
    p = rng.dirichlet(np.ones(ranks))
    F = passage.rank_passage(p, gamma)
    for start in range(ranks):
        position = np.full(runs, start)
        worth, running = np.zeros(runs), np.ones(runs, dtype=bool)
        for step in range(1, 60):
            called = rng.choice(ranks, size=runs, p=p)
            hit = running & (called == position)
            worth[hit] = gamma**step
            running &= ~hit
            position = np.where(called > position, np.minimum(position + 1, ranks - 1), position)
        assert F[start] == pytest.approx(worth.mean(), abs=4 * worth.std() / runs**0.5 + 1e-3)


def test_a_first_step_that_is_certain_to_come_is_not_discounted() -> None:
    p = np.array([0.0, 1.0, 0.0])
    F = passage.rank_passage(p, 0.5)
    assert passage.rank_first_step(p, F)[1] == pytest.approx(1.0)


def test_a_first_step_by_the_later_rule_is_the_passage_without_its_first_discount() -> None:
    p = np.random.default_rng(5).dirichlet(np.ones(6), size=3)
    F = passage.rank_passage(p, 0.7)
    assert passage.rank_first_step(p, F) == pytest.approx(F / 0.7)


def test_the_gap_tail_falls_and_the_remaining_discount_rises_towards_the_end_of_a_gap() -> None:
    weights = np.zeros((3, 80))
    weights[:, 16] = 1.0
    age = np.array([1.0, 14.0, 200.0])
    tail, phi = passage.gap_tail(weights, np.arange(len(age)), BINS, age, horizon=20.0)
    centre = 2.0 ** (16.5 / 4)
    assert tail.tolist() == [1.0, 1.0, 0.0]
    assert phi[0] == pytest.approx(np.exp(-(centre - 1) / 20))
    assert phi[1] > phi[0]


@pytest.mark.parametrize("edge", [0, 7, 20, 79])
def test_tail_and_discount_are_the_sums_over_the_bins_that_lie_ahead(edge: int) -> None:
    weights = np.random.default_rng(edge).random((1, 80))
    ahead, centre = weights[0, edge:], np.sqrt(EDGES[:-1] * EDGES[1:])[edge:]
    tail, phi = passage.gap_tail(weights, FIRST, BINS, EDGES[edge : edge + 1], horizon=50.0)
    assert tail[0] == pytest.approx(ahead.sum() / weights.sum())
    worth = ahead @ np.exp(-(centre - EDGES[edge]) / 50)
    assert phi[0] == pytest.approx(min(worth / ahead.sum(), 1.0))


def test_ages_outside_of_the_bins_count_as_the_nearest_one() -> None:
    ages = np.array([0.5, 2.0**21])
    tail, phi = passage.gap_tail(np.ones((1, 80)), np.array([0, 0]), BINS, ages, 1000.0)
    assert tail.tolist() == [1.0, 0.0]
    assert phi[0] > 0.0 == phi[1]


def test_half_of_the_bin_that_holds_the_age_lies_ahead() -> None:
    weights = np.zeros((1, 80))
    weights[0, 16:18] = 3.0
    age = np.array([(EDGES[16] + EDGES[17]) / 2])
    tail, phi = passage.gap_tail(weights, FIRST, BINS, age, horizon=1e9)
    assert tail[0] == pytest.approx(0.75)
    assert phi[0] == pytest.approx(1.0)


@settings(deadline=None)
@given(
    follows=arrays(float, (4, 4), elements=st.floats(0, 50)),
    ends=arrays(float, (4,), elements=st.floats(0, 50)),
    gamma=st.floats(0.01, 0.999),
)
def test_values_are_probabilities_whatever_the_counts(follows, ends, gamma) -> None:
    marginal = np.full(4, 0.25)
    P = passage.transition_matrix(follows, marginal, 1.0)
    q = passage.end_probability(ends, follows.sum(axis=1), 0.1, 1.0)
    G = passage.first_passage(P, q, gamma)
    assert np.allclose(P.sum(axis=1), 1.0)
    assert ((q > 0) & (q < 1)).all()
    assert ((G >= 0) & (G <= 1)).all()


@settings(deadline=None)
@given(seed=st.integers(0, 1000), gamma=st.floats(0.05, 0.99))
def test_the_names_of_agents_do_not_matter(seed: int, gamma: float) -> None:
    P, q = random_chain(seed, 5)
    order = np.random.default_rng(seed).permutation(5)
    G = passage.first_passage(P, q, gamma)
    moved = passage.first_passage(P[np.ix_(order, order)], q[order], gamma)
    assert np.allclose(moved, G[np.ix_(order, order)])


def test_a_longer_silence_makes_a_session_less_likely_alive() -> None:
    q = np.full(3, 0.2)
    alive = passage.liveness(q, np.array([1.0, 0.5, 0.0]))
    assert alive[0] == pytest.approx(0.8)
    assert alive[0] > alive[1] > alive[2] == 0


def test_being_alive_after_a_silence_follows_from_bayes_rule() -> None:
    alive = passage.liveness(np.array([0.5, 0.2, 1.0]), np.array([1.0, 0.5, 1.0]))
    assert alive.tolist() == pytest.approx([0.5, 0.4 / 0.6, 0.0])


def test_neutral_turn_evidence_leaves_the_agents_end_probability() -> None:
    q = passage.combine_ends(np.array([0.3]), np.array([0.1]), 0.1)
    assert q[0] == pytest.approx(0.3)


def test_a_fixed_cycle_is_fully_predictable_and_independence_not_at_all() -> None:
    assert passage.predictability(np.roll(np.eye(4), 1, axis=1)) == pytest.approx(1.0)
    assert passage.predictability(np.ones((4, 4))) == pytest.approx(0.0)


def test_a_few_random_steps_do_not_look_predictable_and_a_few_regular_ones_do():
    rng = np.random.default_rng(0)
    for steps in (8, 16, 40, 200):
        follows = np.zeros((4, 4))
        np.add.at(follows, tuple(rng.integers(0, 4, (2, steps))), 1)
        assert passage.evident_predictability(follows, 1.0) < 0.25
        regular = steps / 4 * np.roll(np.eye(4), 1, axis=1)
        assert passage.evident_predictability(regular, 1.0) > 0.25
    assert passage.evident_predictability(np.zeros((4, 4)), 1.0) == 0.0
    assert passage.predictability(np.zeros((4, 4))) == 0.0


def test_predictability_is_one_less_the_share_of_entropy_that_is_left() -> None:
    follows = np.array([[6.0, 0.0, 2.0], [1.0, 1.0, 1.0], [0.0, 4.0, 0.0]])
    joint = follows / follows.sum()
    before, after = joint.sum(axis=1), joint.sum(axis=0)
    left = sum(
        -joint[i, j] * np.log2(joint[i, j] / before[i])
        for i in range(3)
        for j in range(3)
        if joint[i, j]
    )
    with np.errstate(all="raise"):
        R = passage.predictability(follows)
    assert pytest.approx(1 + left / (after @ np.log2(after))) == R
    assert passage.predictability(np.array([[2.0, 0.0], [1.0, 0.0]])) == 0.0
    assert passage.predictability(np.array([[4.0, 0.0], [0.0, 1.0]])) == pytest.approx(1.0)


def test_with_equal_end_rates_the_turns_ahead_change_nothing() -> None:
    D = np.array([[0.9, 0.5, 1.0, 0.01]])
    same = passage.ends_by_turn(
        D, np.array([3]), passage.turns_ahead(np.full(64, 0.1)), gamma=0.95, mean=0.1
    )
    assert np.allclose(same, D)


def test_what_lies_beyond_a_sure_end_is_worth_next_to_nothing() -> None:
    q = np.full(64, 0.02)
    q[6] = 0.98
    base = 0.95 * 0.98
    D = np.array([[1.0, base, base**4]])
    ahead = passage.turns_ahead(q)
    late = passage.ends_by_turn(D, np.array([5]), ahead, gamma=0.95, mean=0.02)[0]
    early = passage.ends_by_turn(D, np.array([0]), ahead, gamma=0.95, mean=0.02)[0]
    assert late[0] == early[0] == pytest.approx(1.0)
    assert late[2] < 0.05 * early[2]
