"""Which sessions go on, and how soon: what ends, turns and silences say of each.

A session ends after a call with a probability that depends on the agent that made it and on how
many calls there were before; one that has been silent for longer than such pauses last has ended
more likely still.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from radix_policy import passage
from radix_policy.config import ScoutConfig
from radix_policy.horizon import Horizon
from radix_policy.live import LiveSessions
from radix_policy.transitions import GAP_BINS, TURNS, Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_END_PRIOR = 0.1
_FEW_ROWS = 256
"""Agents up to which it is cheaper to look at the gaps of all than to find those that spoke."""
_EDGES = 2.0 ** (np.arange(GAP_BINS + 1) / 4)
_BINS = passage.GapBins.of(_EDGES)
_SPREAD_BINS = 24
_SPREAD_GAPS = np.where(np.arange(GAP_BINS) < _SPREAD_BINS, 1.0 / _SPREAD_BINS, 0.0)


class Survival:
    """End probabilities by agent row (``q``) and by turn (``q_turn``), and silences.

    ``refresh`` brings the end probabilities up to date, O(sessions); the weights of sessions are
    worked out anew each time, since silences grow: O(sessions + agents x gap bins).
    """

    def __init__(
        self, config: ScoutConfig, horizon: Horizon, counts: Counts, sessions: LiveSessions
    ) -> None:
        self._config = config
        self._horizon = horizon
        self._counts = counts
        self._sessions = sessions
        self.mean_end = _END_PRIOR
        self.q: Floats = np.zeros(0)
        self.q_turn: Floats = np.full(TURNS, _END_PRIOR)
        self.turns_ahead = passage.turns_ahead(self.q_turn)

    def refresh(self, now: int) -> None:
        """End probabilities from the counts; sessions not over count as ended in part."""
        counts, n = self._counts, self._counts.size
        goes = counts.follows.sum(axis=1)
        ends = counts.ends.copy()
        turn_ends, turn_goes = counts.turn_ends.copy(), counts.turn_goes.copy()
        self.q = np.concatenate([self.q, np.full(n - len(self.q), self.mean_end)])
        slots = self._sessions.alive_slots()
        if len(slots):
            alive, _ = self.survival(slots, now)
            row = self._sessions.row[slots]
            np.add.at(ends, row, 1 - alive)
            np.add.at(goes, row, alive)
            turn = np.minimum(self._sessions.turn[slots], TURNS - 1)
            np.add.at(turn_ends, turn, 1 - alive)
            np.add.at(turn_goes, turn, alive)
        mean = (ends.sum() + 4 * _END_PRIOR) / (ends.sum() + goes.sum() + 4)
        self.mean_end = float(mean)
        self.q = passage.end_probability(ends, goes, mean, self._config.prior_weight)
        self.q_turn = passage.end_probability(turn_ends, turn_goes, mean, self._config.turn_prior)
        self.turns_ahead = passage.turns_ahead(self.q_turn)

    def survival(self, slots: Ints, now: int) -> tuple[Floats, Floats]:
        """A_s and phi_s of the sessions in ``slots`` (k,): alive at all, and in time."""
        row = self._sessions.row[slots]
        age = now - self._sessions.last[slots]
        gaps, line = self._gaps(row)
        tail, recency = passage.gap_tail(gaps, line, _BINS, age, self._horizon.turnover)
        turn = np.minimum(self._sessions.turn[slots], TURNS - 1)
        q = passage.combine_ends(self.q[row], self.q_turn[turn], self.mean_end)
        return passage.liveness(q, tail), recency

    def _gaps(self, row: Ints) -> tuple[Floats, Ints]:
        """Gap histograms of agents, shrunk to everyone's, and which of them each row has.

        A histogram belongs to the agent that spoke last, not to the session: there are few.
        """
        counts = self._counts
        used = max(_SPREAD_BINS, counts.longest_gap + 1)
        everyone = counts.all_gaps[:used] + _SPREAD_GAPS[:used]
        everyone *= self._config.gap_shrink / float(everyone.sum())
        if counts.size <= _FEW_ROWS:
            return counts.gaps[:, :used] + everyone, row
        spoke, line = np.unique(row, return_inverse=True)
        return counts.gaps[spoke, :used] + everyone, line

    def idle_limit(self) -> int:
        """Dispatches of silence after which a session is presumed over."""
        gaps = self._counts.all_gaps
        total = gaps.sum()
        if total < 1:
            return 1 << 20
        bin_99 = int(gaps.cumsum().searchsorted(0.99 * total))
        return int(max(self._config.idle_min, self._config.idle_factor * _EDGES[bin_99 + 1]))

    def mean_gap(self) -> float:
        """Dispatches between two calls of a session, on average."""
        gaps = self._counts.all_gaps
        return float((gaps @ _BINS.centres + 8.0) / (gaps.sum() + 1))
