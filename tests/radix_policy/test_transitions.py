"""Counts by agent row: what decays, what is taken back, what is forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from radix_policy.config import ScoutConfig
from radix_policy.transitions import GAP_BINS, RANKS, TURNS, AgentRows, Counts, gap_bin


def counts(size: int = 3, **config) -> Counts:
    made = Counts(ScoutConfig(**config))
    made.grow(size)
    return made


def test_gaps_fall_into_quarter_octaves() -> None:
    assert [gap_bin(g) for g in (0, 1, 2, 4, 5, 6, 1024)] == [0, 0, 4, 8, 9, 10, 40]
    assert gap_bin(1 << 40) == GAP_BINS - 1


def test_a_step_is_counted_by_agent_gap_rank_turn_and_number_of_agents() -> None:
    made = counts()
    made.follow(before=1, after=2, gap=4, rank=3, turn=5, count=4)
    assert made.follows.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert np.argwhere(made.gaps).tolist() == [[1, 8]]
    assert np.flatnonzero(made.all_gaps).tolist() == [8]
    assert np.argwhere(made.ranks).tolist() == [[1, 3]]
    assert np.flatnonzero(made.all_ranks).tolist() == [3]
    assert np.argwhere(made.count_ranks).tolist() == [[4, 3]]
    assert np.flatnonzero(made.turn_goes).tolist() == [5]


def test_old_gaps_and_ranks_fade_and_whole_counts_do_not() -> None:
    made = counts(gap_decay=0.5, rank_decay=0.25)
    for gap, rank in ((1, 0), (2, 1)):
        made.follow(before=0, after=1, gap=gap, rank=rank, turn=1, count=2)
    assert made.gaps[0, [0, 4]].tolist() == made.all_gaps[[0, 4]].tolist() == [0.5, 1.0]
    assert made.ranks[0, :2].tolist() == made.count_ranks[2, :2].tolist() == [0.25, 1.0]
    assert made.all_ranks[:2].tolist() == pytest.approx([0.998, 1.0])
    assert made.follows[0, 1] == 2.0


def test_late_turns_and_crowded_sessions_share_the_last_line() -> None:
    made = counts()
    made.follow(before=0, after=1, gap=1, rank=RANKS, turn=TURNS + 9, count=RANKS + 9)
    made.end(0, TURNS + 9)
    assert made.turn_goes[-1] == made.turn_ends[-1] == made.count_ranks[-1, -1] == 1.0


def test_a_prediction_is_credited_by_its_share_and_earlier_credit_fades() -> None:
    made = counts(rank_decay=0.5)
    made.credit(1, markov=0.2, rank=0.6)
    made.credit(1, markov=0.9, rank=0.1)
    made.credit(1, markov=0.0, rank=0.0)
    assert made.mixture[1].tolist() == pytest.approx([0.125 + 0.9, 0.375 + 0.1])
    assert made.all_mixture.tolist() == pytest.approx([0.25 * 0.998 + 0.9, 0.75 * 0.998 + 0.1])
    assert not made.mixture[[0, 2]].any()


def test_an_end_that_is_taken_back_leaves_no_negative_count() -> None:
    made = counts()
    made.end(1, 4)
    made.end(1, 4, weight=-1.0)
    made.end(1, 4, weight=-1.0)
    assert made.ends.tolist() == [0, 0, 0] and not made.turn_ends.any()
    made.end(2, 3, weight=2.0)
    assert made.ends[2] == made.turn_ends[3] == 2.0


def test_growing_keeps_every_count_and_forgetting_a_row_empties_that_row_alone() -> None:
    made = counts(8)
    for row in range(8):
        made.follow(before=row, after=7 - row, gap=2 + row, rank=row, turn=1, count=3)
        made.credit(row, 0.5, 0.5)
        made.end(row, 2)
        made.seen[row] += row + 1
        made.starts[row] += 1
    before = {name: getattr(made, name).copy() for name in ("gaps", "ranks", "mixture", "ends")}
    made.grow(20)
    assert made.follows.dtype == np.float32
    assert made.follows.shape == (20, 20) and made.follows.sum() == 8
    for name, values in before.items():
        assert np.array_equal(getattr(made, name)[:8], values)
        assert not getattr(made, name)[8:].any()
    made.forget(3)
    assert made.follows[3].sum() == made.follows[:, 3].sum() == 0
    assert made.follows.sum() == 6
    for name in ("gaps", "ranks", "mixture", "ends", "seen", "starts"):
        assert not getattr(made, name)[3].any()
        assert getattr(made, name)[4].any()


def test_the_agent_not_seen_for_longest_gives_its_row_to_a_new_one() -> None:
    told = []
    rows = AgentRows(2, lambda row, gone: told.append((row, gone)))
    assert [rows.claim(agent) for agent in (10, 11, 10, 12)] == [0, 1, 0, 1]
    assert told == [(1, 11)]
    assert rows.get(11) is None and rows.get(12) == 1 and rows.agent(1) == 12
    assert len(rows) == 2


def test_the_bytes_are_those_of_the_arrays() -> None:
    made = counts()
    held = 8 * 8 * 4 + 8 * 8 * (3 + GAP_BINS + RANKS + 1 + 2) + 8 * (2 * TURNS + GAP_BINS)
    assert made.bytes() == held
