"""The value of a class of radix nodes: the discounted chance that it is used again.

One instance per tenant. Counts are folded in at once; what follows from them (the first-passage
matrix, a line per session) is worked out when an eviction asks: the matrix when the evidence has
grown by 3 % or ``refresh`` dispatches are over, a session's line when it spoke or the matrix
changed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from radix_policy import passage
from radix_policy.call import NodeKind
from radix_policy.config import ScoutConfig
from radix_policy.horizon import Horizon
from radix_policy.live import LiveSessions, Session
from radix_policy.next_agent import NextAgent
from radix_policy.reuse import ReuseRatios
from radix_policy.tags import SHARED, NodeClass
from radix_policy.transitions import GAP_BINS, TURNS, AgentRows, Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CERTAIN = 0.999
NOT_YET = -(1 << 60)
_WORTHLESS = 2.0**-60
_SWEEP = 8
_VALUED = 1 << 18
_VALUED_SESSIONS = 256
_MOST_MOVED = 4096
_END_PRIOR = 0.1
_EVIDENCE = 32
"""The chain is inverted anew when the calls seen have grown by one part in so many."""
_EDGES = 2.0 ** (np.arange(GAP_BINS + 1) / 4)
_SPREAD_GAPS = np.where(np.arange(GAP_BINS) < 24, 1.0 / 24, 0.0)


class ScoutValue:
    """Learns from arrivals and departures, answers with values in [0, 1].

    Costs: O(1) per arrival; per valued dispatch O(S n) for S live sessions and n agents, of which
    at most 2^18 pairs are valued: with many agents the longest silent sessions are worth nothing.
    Every ``refresh`` dispatches O(n^3 + S n).
    """

    def __init__(self, config: ScoutConfig, horizon: Horizon) -> None:
        self.config = config
        self.horizon = horizon
        self.counts = Counts(config)
        self.sessions = LiveSessions()
        self.rows = AgentRows(config.max_agents, self._row_reused)
        self._next = NextAgent(config, self.counts, self.sessions)
        self.reuse = ReuseRatios(config.reuse_prior, config.reuse_decay, config.max_sessions)
        self._refreshed = NOT_YET
        self._valued = NOT_YET
        self._changed: set[int] = set()
        self._busy: dict[int, Session] = {}
        self._moved: dict[int, None] = {}
        self._outdated = True
        self._slots: Ints = np.zeros(0, dtype=np.int64)
        self._lines: Floats = np.zeros((0, 0))
        self._scratch: Floats = np.empty((2, 0))
        self._mean_end = _END_PRIOR
        self._q: Floats = np.zeros(0)
        self._q_turn: Floats = np.full(TURNS, _END_PRIOR)

    # -- what happens ------------------------------------------------------------------

    def arrive(self, session: int, agent: int, now: int) -> None:
        """A call of ``agent`` enters the queue at dispatch ``now``."""
        known = len(self.rows)
        row = self.rows.claim(agent)
        self.counts.grow(row + 1)
        self._outdated |= len(self.rows) != known
        entry = self.sessions.get(session)
        if entry is None:
            entry = self._add(session)
            self.counts.starts[row] += 1
        elif self.sessions.row[entry.slot] >= 0:
            self._follow(entry.slot, row, now)
            if entry.over:
                self.counts.end(int(self.sessions.row[entry.slot]), self._turn(entry.slot), -1.0)
        self.counts.seen[row] += 1
        self.sessions.speak(session, row, now)
        entry.waiting.append(agent)
        self._busy[session] = entry
        self._changed.add(entry.slot)
        self._valued = NOT_YET
        self._move(session)
        self._sweep(now)

    def admit(self, session: int, agent: int, number: int) -> None:
        """The call has matched the tree: what it did not use is stale from now on."""
        entry = self.sessions.get(session)
        if entry is not None:
            self._move(session)
            entry.calls[agent] = max(number, entry.calls.pop(agent, 0))
            if len(entry.calls) > self.config.max_agents:
                del entry.calls[next(iter(entry.calls))]

    def depart(self, session: int, agent: int) -> None:
        """The call is done, well or not; the session waits for its next one."""
        entry = self.sessions.get(session)
        self._move(session)
        if entry is not None and agent in entry.waiting:
            entry.waiting.remove(agent)
            if not entry.waiting:
                self._busy.pop(session, None)
            if entry.ended and not entry.waiting:
                self._close(session)
        self._valued = NOT_YET

    def end(self, session: int) -> None:
        """The client says that the session ends (with the call under way, if there is one)."""
        entry = self.sessions.get(session)
        if entry is None or entry.over:
            return
        entry.ended = True
        if not entry.waiting:
            self._close(session)

    def merge(self, absorbed: int, survivor: int) -> None:
        """Two sessions turned out to be one: what the absorbed one had is the survivor's."""
        gone = self.sessions.get(absorbed)
        if gone is None:
            return
        self.reuse.forget_session(absorbed, gone.calls)
        self.counts.starts[self.sessions.row[gone.slot]] -= 1
        np.maximum(self.counts.starts, 0.0, out=self.counts.starts)
        kept = self.sessions.get(survivor)
        if kept is not None:
            for agent, number in gone.calls.items():
                kept.calls[agent] = max(number, kept.calls.get(agent, 0))
            kept.waiting.extend(gone.waiting)
            if kept.waiting:
                self._busy[survivor] = kept
        self._forget(absorbed)

    def moved(self) -> dict[int, None]:
        """Sessions of which more than time has changed the value since this was last asked.

        The oldest are left out when there are very many.
        """
        moved, self._moved = self._moved, {}
        return moved

    def _move(self, session: int) -> None:
        if len(self._moved) >= _MOST_MOVED:
            del self._moved[next(iter(self._moved))]
        self._moved[session] = None

    # -- what it is worth --------------------------------------------------------------

    def worth(self, node: NodeClass, now: int) -> float:
        """V of a node class, in [0, 1]."""
        if node.session == SHARED:
            return self.shared(node.agents, now)
        return self.private(node.session, node.agents, node.kind, node.used, now)

    def order(self, worth: float, age: int, size: int) -> float:
        """log2 V in quarter octaves, so that float noise can't reorder ranks.

        Neither age nor size enter: recency is in V, and benefit and cost both grow with size.
        """
        return float(math.floor(4 * math.log2(max(worth, _WORTHLESS))))

    def private(
        self, session: int, agents: Iterable[int], kind: NodeKind, used: int, now: int
    ) -> float:
        """V = sum over the node's agents of U_s(a) r(a, kind); 0 if the session is gone.

        ``used``: the dispatch that used the node last; a later call of the same agent has
        passed it by and made it stale.
        """
        entry = self.sessions.get(session)
        if entry is None or not self.sessions.alive[entry.slot]:
            return 0.0
        self._value(now)
        if self._place[entry.slot] < 0:
            return 0.0
        total = 0.0
        for agent in agents:
            row = self.rows.get(agent)
            if row is None:
                continue
            left = NodeKind.STALE if entry.calls.get(agent, 0) > used else kind
            total += self._at(entry.slot, row) * self.reuse.ratio(agent, left)
        return min(total, 1.0)

    def shared(self, agents: Iterable[int], now: int) -> float:
        """V = O / (1 + O), O the odds of all live sessions and of sessions yet to come."""
        self._value(now)
        total = 0.0
        for agent in agents:
            row = self.rows.get(agent)
            if row is not None:
                total += self._odds.item(row)
        return total / (1 + total)

    def expected(self, now: int) -> dict[int, float]:
        """The value of every known agent's anchor, by agent id."""
        self._value(now)
        return {
            self.rows.agent(row): float(self._odds[row] / (1 + self._odds[row]))
            for row in range(len(self.rows))
        }

    def peek(self) -> ScoutValue:
        """A reader as of now whose answers leave no trace here.

        One rank of several may be asked what the others are not: when values are worked out anew
        must not depend on it.
        """
        reader = copy.copy(self)
        reader._changed = set(self._changed)
        reader._scratch = np.empty((2, 0))
        return reader

    def evident_predictability(self) -> float:
        """R (Eq. 2), as far as the evidence goes."""
        return passage.evident_predictability(self.counts.follows, self.config.prior_weight)

    def predict(self, session: int) -> dict[int, float]:
        """Who calls next in the session, if it goes on: probability by agent id, sum 1."""
        n = len(self.rows)
        entry = self.sessions.get(session)
        if n == 0 or entry is None:
            return {}
        mixed = self._next.distribution(entry.slot)
        return {self.rows.agent(r): float(mixed[r]) for r in range(n)}

    def _add(self, session: int) -> Session:
        if len(self.sessions) >= self.config.max_sessions:
            self._forget(self.sessions.oldest())
        return self.sessions.add(session)

    # -- learning ----------------------------------------------------------------------

    def _follow(self, slot: int, row: int, now: int) -> None:
        before = int(self.sessions.row[slot])
        rank = self.sessions.rank(slot, row)
        self.counts.credit(before, *self._next.chances(slot, row))
        gap = now - int(self.sessions.last[slot])
        count = int(self.sessions.count[slot])
        self.counts.follow(before, row, gap, rank, self._turn(slot), count)

    def _close(self, session: int) -> None:
        entry = self.sessions.by_id[session]
        row = int(self.sessions.row[entry.slot])
        if row >= 0:
            self.counts.end(row, self._turn(entry.slot))
        self.reuse.forget_session(session, entry.calls)
        self.sessions.close(session)
        self._move(session)
        self._valued = NOT_YET

    def _sweep(self, now: int) -> None:
        limit = self._idle_limit()
        for session in self.sessions.silent(now - limit, _SWEEP):
            self._close(session)
        for session in self.sessions.forgettable(
            now - int(limit * self.config.forget_factor), _SWEEP
        ):
            self._forget(session)

    def _forget(self, session: int) -> None:
        self._move(session)
        self._busy.pop(session, None)
        self.sessions.remove(session)

    def _idle_limit(self) -> int:
        gaps = self.counts.all_gaps
        total = gaps.sum()
        if total < 1:
            return 1 << 20
        bin_99 = int(np.searchsorted(gaps.cumsum(), 0.99 * total))
        return int(max(self.config.idle_min, self.config.idle_factor * _EDGES[bin_99 + 1]))

    def _row_reused(self, row: int, gone: int) -> None:
        self.counts.forget(row)
        self.reuse.forget_agent(gone)
        for session in self.sessions.forget_row(row):
            self._forget(session)
        self._outdated = True

    # -- refresh -----------------------------------------------------------------------

    def _value(self, now: int) -> None:
        """Bring session lines and anchor odds up to this dispatch."""
        if self._valued == now:
            return
        self._valued = now
        if self._outdated or now - self._refreshed >= self._patience():
            self._refresh(now)
            self._lines = self._lines[:0]
            self._slots = self._slots[:0]
        self._update_lines()
        alive, recency = self._survival(self._slots, now)
        values, odds = self._room(len(self._slots))
        np.multiply((alive * recency)[:, None], self._lines, out=values)
        np.minimum(values, CERTAIN, out=values)
        self._place = self._places()
        for entry in self._busy.values():
            for agent in entry.waiting:
                row = self.rows.get(agent)
                if row is not None and self._place[entry.slot] >= 0:
                    values[self._place[entry.slot], row] = CERTAIN
        self._values = values
        newborn = self.horizon.turnover * self.horizon.births * self._from_start
        self._odds = passage.odds(values, out=odds).sum(axis=0) + newborn

    def _room(self, sessions: int) -> tuple[Floats, Floats]:
        """Two (sessions, n) arrays to write into: fresh ones of that size cost page faults."""
        size = sessions * len(self.rows)
        if self._scratch.shape[1] < size:
            self._scratch = np.empty((2, 2 * size))
        first, second = self._scratch[:, :size].reshape(2, sessions, len(self.rows))
        return first, second

    def _patience(self) -> int:
        """Dispatches between two refreshes: few while each call still changes much."""
        calls = int(self.counts.seen.sum())
        return min(self.config.refresh, 1 + calls // _EVIDENCE)

    def _session_lines(self, slots: Ints) -> Floats:
        lines = self._next.lines(slots, self._G, self._q, self._gamma, self._mean_end)
        turn = np.minimum(self.sessions.turn[slots], TURNS - 1)
        return passage.ends_by_turn(lines, turn, self._q_turn, self._gamma, self._mean_end)

    def _update_lines(self) -> None:
        """Lines of the sessions to be valued: kept where known and still true, else worked out."""
        n = len(self.rows)
        most = max(_VALUED_SESSIONS, _VALUED // max(n, 1))
        slots = self.sessions.latest_slots(most, self._busy.values())
        place = self._places()
        place[list(self._changed)] = -1
        at = place[slots]
        known = at >= 0
        lines = np.empty((len(slots), n))
        if known.any():
            lines[known] = self._lines[at[known]]
        if not known.all():
            lines[~known] = self._session_lines(slots[~known])
        self._slots, self._lines = slots, lines
        self._changed.clear()

    def _places(self) -> Ints:
        """Where each slot's line stands, -1 for slots without one."""
        place = np.full(len(self.sessions.row), -1, dtype=np.int64)
        place[self._slots] = np.arange(len(self._slots))
        return place

    def _at(self, slot: int, row: int) -> float:
        return float(self._values.item(self._place.item(slot), row))

    def _refresh(self, now: int) -> None:
        counts, n = self.counts, len(self.rows)
        self._refreshed, self._outdated = now, False
        goes = counts.follows.sum(axis=1)
        ends = counts.ends.copy()
        turn_ends, turn_goes = counts.turn_ends.copy(), counts.turn_goes.copy()
        self._q = np.concatenate([self._q, np.full(n - len(self._q), self._mean_end)])
        slots = self.sessions.alive_slots()
        if len(slots):
            alive, _ = self._survival(slots, now)
            np.add.at(ends, self.sessions.row[slots], 1 - alive)
            np.add.at(goes, self.sessions.row[slots], alive)
            turn = np.minimum(self.sessions.turn[slots], TURNS - 1)
            np.add.at(turn_ends, turn, 1 - alive)
            np.add.at(turn_goes, turn, alive)
        mean = (ends.sum() + 4 * _END_PRIOR) / (ends.sum() + goes.sum() + 4)
        self._mean_end = float(mean)
        self._q = passage.end_probability(ends, goes, mean, self.config.prior_weight)
        self._q_turn = passage.end_probability(turn_ends, turn_goes, mean, self.config.turn_prior)
        self._gamma = self.horizon.discount(self._mean_gap())
        self._marginal = counts.seen / counts.seen.sum()
        follows = counts.follows if self.config.prediction else np.zeros((n, n))
        P = passage.transition_matrix(follows, self._marginal, self.config.prior_weight)
        self._G = passage.first_passage(P, self._q, self._gamma)
        starts = (counts.starts + self.config.prior_weight * self._marginal) / (
            counts.starts.sum() + self.config.prior_weight
        )
        self._from_start = passage.from_start(starts, self._G)

    def _mean_gap(self) -> float:
        gaps = self.counts.all_gaps
        total = gaps.sum()
        centres = np.sqrt(_EDGES[:-1] * _EDGES[1:])
        return float((gaps @ centres + 8.0) / (total + 1))

    def _survival(self, slots: Ints, now: int) -> tuple[Floats, Floats]:
        """A_s and phi_s of the sessions in ``slots``."""
        row = self.sessions.row[slots]
        age = (now - self.sessions.last[slots]).astype(float)
        everyone = self.counts.all_gaps + _SPREAD_GAPS
        everyone = everyone / everyone.sum()
        # A gap histogram belongs to the agent that spoke last, not to the session: few lines.
        spoke, line = np.unique(row, return_inverse=True)
        gaps = self.counts.gaps[spoke] + self.config.gap_shrink * everyone
        tail, recency = passage.gap_tail(
            gaps, line, _EDGES, np.maximum(age, 1.0), self.horizon.turnover
        )
        turn = np.minimum(self.sessions.turn[slots], TURNS - 1)
        q = passage.combine_ends(self._q[row], self._q_turn[turn], self._mean_end)
        return passage.liveness(q, tail), recency

    # -- snapshots ---------------------------------------------------------------------

    def resume(self) -> None:
        """Go on from a restored state; no call is under way."""
        for session, entry in list(self.sessions.by_id.items()):
            if entry.ended and not entry.over:
                self._close(session)

    def _turn(self, slot: int) -> int:
        return int(min(self.sessions.turn[slot], TURNS - 1))

    def bytes(self) -> int:
        """Memory held by what was learned, without the tree's own records."""
        return (
            self.counts.bytes()
            + self.sessions.bytes()
            + self.reuse.bytes()
            + 2 * self._lines.nbytes
        )
