"""Who runs next in a session: a Markov and a rank prediction, mixed by how well each has done.

The Markov one knows agents by name; the rank one by their place in the session's move-to-front
list ("the same again", "the one before", "one that is new here"), which carries over to agents
that were hardly seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radix_policy import passage
from radix_policy.config import ScoutConfig
from radix_policy.live import LiveSessions
from radix_policy.transitions import RANKS, Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_TRUST_PRIOR = 4.0
_FEW = 4
"""Sessions up to which a line each is faster than arrays of them."""


class Seen(NamedTuple):
    """What the predictions for one session are made of.

    ``before``: the row that spoke last. ``total``: calls of all agents. ``follows`` (n,): who came
    after ``before``, ``went``: how many in all. ``listed``: the move-to-front list of rows.
    ``ranks``: chance of each place in it.
    """

    before: int
    total: float
    follows: NDArray[np.float32]
    went: float
    listed: list[int]
    ranks: list[float]


class NextAgent:
    """Predictions from the counts for the sessions of a table; n agent rows, k session slots."""

    def __init__(self, config: ScoutConfig, counts: Counts, sessions: LiveSessions) -> None:
        self._config = config
        self._counts = counts
        self._sessions = sessions

    def distribution(self, slot: int) -> Floats:
        """Chance of every row to run next in the session; shape (n,), sum 1."""
        weights = self.weights(self.look(slot))
        return np.asarray(weights / np.add.reduce(weights))

    def weights(self, seen: Seen) -> Floats:
        """The same but for a common factor."""
        if not self._config.prediction:
            return self._counts.seen + 0.0
        trust = self._trust_in(seen.before)
        scale = (1 - trust) / (seen.went + self._config.prior_weight)
        prior = self._config.prior_weight / max(seen.total, 1e-9)
        calls, follows = self._counts.seen, seen.follows
        others = seen.total
        known, mine = [], []
        for place, other in enumerate(seen.listed):
            if other >= 0:
                called = calls.item(other)
                others -= called
                known.append(other)
                markov = follows.item(other) + prior * called
                mine.append(scale * markov + trust * seen.ranks[place])
        newcomer = trust * seen.ranks[RANKS] / max(others, 1e-12)
        mixed = scale * follows + (scale * prior + newcomer) * calls
        mixed[known] = mine
        return np.asarray(mixed)

    def likeliest(self, seen: Seen) -> list[int]:
        """The rows of which none is more probable to run next."""
        weights = self.weights(seen)
        rows: list[int] = np.flatnonzero(weights == np.maximum.reduce(weights)).tolist()
        return rows

    def chances(self, seen: Seen, row: int) -> tuple[float, float]:
        """What the Markov and the rank prediction give ``row`` as the session's next call."""
        calls, prior = self._counts.seen, self._config.prior_weight
        mine, went = calls.item(row), 0.0
        if self._config.prediction:
            went = seen.follows.item(row)
        markov = (went + prior * mine / max(seen.total, 1e-9)) / (seen.went + prior)
        if row in seen.listed:
            return markov, seen.ranks[seen.listed.index(row)]
        others = seen.total - sum([calls.item(other) for other in seen.listed if other >= 0])
        return markov, seen.ranks[RANKS] * mine / max(others, 1e-12)

    def look(self, slot: int) -> Seen:
        """What ``weights`` and ``chances`` need, until the counts or the session change."""
        before, count = self._sessions.row.item(slot), self._sessions.count.item(slot)
        follows = self._counts.follows[before]
        went = float(np.add.reduce(follows)) if self._config.prediction else 0.0
        total = float(np.add.reduce(self._counts.seen))
        ranks = self._ranks_of(before, count, self._ranks_by_count(count))
        return Seen(before, total, follows, went, self._sessions.agents(slot), ranks)

    def lines(
        self, slots: Sequence[int], G: Floats, q: Floats, gamma: float, mean_end: float
    ) -> Floats:
        """D_s(a): value of every agent to each session, given that it goes on; shape (k, n).

        ``G`` (n, n): first passage. ``q`` (n,): end probabilities, ``mean_end`` their mean.
        """
        if len(slots) <= _FEW:
            found = np.empty((len(slots), len(G)))
            for k, slot in enumerate(slots):
                found[k] = self._line(slot, G, q, gamma, mean_end)
            return found
        row = self._sessions.row[slots]
        # In place where it can be: fresh pages for such arrays cost more than the arithmetic.
        markov = G[row]
        markov /= np.maximum(gamma * (1 - q[row]), 1e-9)[:, None]
        np.minimum(markov, 1.0, out=markov)
        if not self._config.prediction:
            return markov
        trust = self._trust(row)[:, None]
        ranked = self._rank_lines(np.asarray(slots), gamma * (1 - mean_end))
        markov *= 1 - trust
        ranked *= trust
        markov += ranked
        return markov

    def _line(self, slot: int, G: Floats, q: Floats, gamma: float, mean_end: float) -> Floats:
        """``lines`` of one session, faster than numpy's calls on a handful of ranks."""
        row = self._sessions.row.item(slot)
        markov = G[row] * (1 / max(gamma * (1 - q.item(row)), 1e-9))
        np.minimum(markov, 1.0, out=markov)
        if not self._config.prediction:
            return markov
        trust = self._trust_in(row)
        markov *= 1 - trust
        markov += trust * self._rank_line(slot, row, gamma * (1 - mean_end))
        return markov

    def _rank_line(self, slot: int, row: int, gamma: float) -> Floats:
        count = self._sessions.count.item(slot)
        later = self._ranks_by_count(count)
        first = self._ranks_of(row, count, later)
        f = passage.rank_line_first_step(first, passage.rank_line(later, gamma))
        share = self._counts.seen.copy()
        listed = self._sessions.agents(slot)
        known = [other for other in listed if other >= 0]
        share[known] = 0.0
        share /= max(float(share.sum()), 1e-12)
        once, again = first[RANKS] * share, later[RANKS] * share
        line = once + (1 - once) * (gamma * again) / (1 - gamma + gamma * again)
        line[known] = [f[place] for place, other in enumerate(listed) if other >= 0]
        return np.asarray(line)

    def _ranks_of(self, row: int, count: int, by_count: list[float]) -> list[float]:
        """p_r of the session's next call, from its current agent and its number of agents."""
        weight = self._config.rank_weight
        own = self._counts.ranks[row].tolist()
        return _possible_ranks([o + weight * c for o, c in zip(own, by_count, strict=True)], count)

    def _ranks_by_count(self, count: int) -> list[float]:
        """p_r of a session with ``count`` distinct agents, whoever speaks."""
        everyone = self._counts.all_ranks.tolist()
        own = self._counts.count_ranks[min(count, RANKS)].tolist()
        weight = self._config.rank_weight / (sum(everyone) + 1)
        prior = weight / (RANKS + 1)
        return _possible_ranks(
            [o + weight * e + prior for o, e in zip(own, everyone, strict=True)], count
        )

    def _trust_in(self, row: int) -> float:
        chain, ranks = self._counts.all_mixture.tolist()
        own_chain, own_ranks = self._counts.mixture[row].tolist()
        whole = (ranks + 1) / (chain + ranks + 2)
        return float((own_ranks + _TRUST_PRIOR * whole) / (own_chain + own_ranks + _TRUST_PRIOR))

    def _rank_lines(self, slots: Ints, gamma: float) -> Floats:
        first = self._rank_rows(slots)
        counts, line = np.unique(self._sessions.count[slots], return_inverse=True)
        later = self._by_count(counts)
        f = passage.rank_first_step(first, passage.rank_passage(later, gamma)[line])
        later = later[line]
        share = self._newcomer_lines(slots)
        once = first[:, RANKS:] * share
        again = np.multiply(later[:, RANKS:], share, out=share)
        lines = 1 - once
        lines *= gamma
        lines *= again
        np.subtract(1, again, out=again)
        again *= gamma
        lines /= np.subtract(1, again, out=again)
        lines += once
        listed = self._sessions.listed[slots]
        where, place = np.nonzero(listed >= 0)
        lines[where, listed[where, place]] = f[where, place]
        return np.asarray(lines)

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

    def _newcomer_lines(self, slots: Ints) -> Floats:
        """How calls by agents new to each session share out among them; shape (k, n)."""
        share = np.tile(self._counts.seen, (len(slots), 1))
        listed = self._sessions.listed[slots]
        where, place = np.nonzero(listed >= 0)
        share[where, listed[where, place]] = 0.0
        share /= np.maximum(share.sum(axis=1, keepdims=True), 1e-12)
        return share

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


def _possible_ranks(ranks: list[float], count: int) -> list[float]:
    """``_possible`` of one session."""
    if count < RANKS:
        ranks[count:RANKS] = [0.0] * (RANKS - count)
    total = sum(ranks)
    return [r / total for r in ranks]
