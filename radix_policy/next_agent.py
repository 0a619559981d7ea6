"""Who runs next in a session: a Markov and a rank prediction, mixed by how well each has done.

The Markov one knows agents by name; the rank one by their place in the session's move-to-front
list ("the same again", "the one before", "one that is new here"), which carries over to agents
that were hardly seen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from radix_policy import passage
from radix_policy.config import ScoutConfig
from radix_policy.live import LiveSessions
from radix_policy.transitions import RANKS, Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_TRUST_PRIOR = 4.0


class NextAgent:
    """Predictions from the counts for the sessions of a table; n agent rows, k session slots."""

    def __init__(self, config: ScoutConfig, counts: Counts, sessions: LiveSessions) -> None:
        self._config = config
        self._counts = counts
        self._sessions = sessions

    def distribution(self, slot: int) -> Floats:
        """Chance of every row to run next in the session; shape (n,), sum 1."""
        row = int(self._sessions.row[slot])
        if not self._config.prediction:
            return self._markov_row(row)
        rank = self._rank_row(slot)
        spread = rank[RANKS] * self._newcomer_lines(np.array([slot]))[0]
        for place, other in enumerate(self._sessions.listed[slot]):
            if other >= 0:
                spread[other] = rank[place]
        trust = self._trust(np.array([row]))[0]
        mixed = (1 - trust) * self._markov_row(row) + trust * spread
        return np.asarray(mixed / mixed.sum())

    def chances(self, slot: int, row: int) -> tuple[float, float]:
        """What the Markov and the rank prediction give ``row`` as the session's next call."""
        rank = self._sessions.rank(slot, row)
        by_rank = self._rank_row(slot)[rank]
        if rank == RANKS:
            by_rank = by_rank * self._newcomer_lines(np.array([slot]))[0, row]
        return float(self._markov_row(int(self._sessions.row[slot]))[row]), float(by_rank)

    def lines(self, slots: Ints, G: Floats, q: Floats, gamma: float, mean_end: float) -> Floats:
        """D_s(a): value of every agent to each session, given that it goes on; shape (k, n).

        ``G`` (n, n): first passage. ``q`` (n,): end probabilities, ``mean_end`` their mean.
        """
        row = self._sessions.row[slots]
        certain = np.maximum(gamma * (1 - q[row]), 1e-9)
        markov = np.minimum(G[row] / certain[:, None], 1.0)
        if not self._config.prediction:
            return markov
        trust = self._trust(row)[:, None]
        ranked = self._rank_lines(slots, gamma * (1 - mean_end))
        return np.asarray((1 - trust) * markov + trust * ranked)

    def _rank_lines(self, slots: Ints, gamma: float) -> Floats:
        first = self._rank_rows(slots)
        counts, line = np.unique(self._sessions.count[slots], return_inverse=True)
        later = self._by_count(counts)
        f = passage.rank_first_step(first, passage.rank_passage(later, gamma)[line])
        later = later[line]
        share = self._newcomer_lines(slots)
        once, again = first[:, RANKS:] * share, later[:, RANKS:] * share
        lines = once + (1 - once) * gamma * again / (1 - gamma * (1 - again))
        listed = self._sessions.listed[slots]
        where, place = np.nonzero(listed >= 0)
        lines[where, listed[where, place]] = f[where, place]
        return np.asarray(lines)

    def _markov_row(self, row: int) -> Floats:
        counts, prior = self._counts, self._config.prior_weight
        marginal = counts.seen / max(counts.seen.sum(), 1e-9)
        follows = counts.follows[row] * self._config.prediction
        return np.asarray((follows + prior * marginal) / (follows.sum() + prior))

    def _everyone(self) -> Floats:
        ranks = self._counts.all_ranks + 1.0 / (RANKS + 1)
        return np.asarray(ranks / ranks.sum())

    def _rank_rows(self, slots: Ints) -> Floats:
        """p_r of the session's next call, from its current agent and its number of agents."""
        count = self._sessions.count[slots]
        ranks = self._counts.ranks[self._sessions.row[slots]]
        return _possible(ranks + self._config.rank_weight * self._by_count(count), count)

    def _by_count(self, count: Ints) -> Floats:
        """p_r of sessions with that many distinct agents, whoever speaks."""
        ranks = self._counts.count_ranks[np.minimum(count, RANKS)]
        return _possible(ranks + self._config.rank_weight * self._everyone(), count)

    def _rank_row(self, slot: int) -> Floats:
        return self._rank_rows(np.array([slot]))[0]

    def _newcomer_lines(self, slots: Ints) -> Floats:
        """How calls by agents new to each session share out among them; shape (k, n)."""
        share = np.tile(self._counts.seen, (len(slots), 1))
        listed = self._sessions.listed[slots]
        where, place = np.nonzero(listed >= 0)
        share[where, listed[where, place]] = 0.0
        return np.asarray(share / np.maximum(share.sum(axis=1, keepdims=True), 1e-12))

    def _trust(self, row: Ints) -> Floats:
        """Weight of the rank prediction against the Markov one, by agent that spoke last."""
        whole = (self._counts.all_mixture[1] + 1) / (self._counts.all_mixture.sum() + 2)
        own = self._counts.mixture[row]
        return np.asarray((own[:, 1] + _TRUST_PRIOR * whole) / (own.sum(axis=1) + _TRUST_PRIOR))


def _possible(ranks: Floats, count: Ints) -> Floats:
    """Ranks beyond the session's agents can't come up; lines sum to one."""
    masked = ranks.copy()
    masked[:, :RANKS][np.arange(RANKS) >= count[:, None]] = 0.0
    return masked / masked.sum(axis=1, keepdims=True)
