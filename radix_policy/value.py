"""The value of a class of radix nodes: the discounted chance that it is used again.

One instance per tenant. Counts are folded in at once; what follows from them (the first-passage
matrix, a line per session) is worked out when an eviction asks: the matrix when the evidence has
grown by 3 % or ``refresh`` dispatches are over, a session's line when it spoke or the matrix
changed, the odds of an agent's anchor when they are asked for.
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
from radix_policy.lines import SessionLines
from radix_policy.live import LiveSessions, Session
from radix_policy.next_agent import NextAgent
from radix_policy.reuse import ReuseRatios
from radix_policy.survival import Survival
from radix_policy.tags import SHARED
from radix_policy.transitions import RANKS, TURNS, AgentRows, Counts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CERTAIN = 0.999
NOT_YET = -(1 << 60)
_WORTHLESS = 2.0**-60
_SWEEP = 8
_VALUED = 1 << 18
_VALUED_SESSIONS = 256
_MOST_MOVED = 4096
_AT_ONCE = 4096
"""Pairs of sessions and agents that are weighed faster together than agent by agent."""
_EVIDENCE = 32
"""The chain is inverted anew when the calls seen have grown by one part in so many."""


class ScoutValue:
    """Learns from arrivals and departures, answers with values in [0, 1].

    Costs: O(1) per arrival; per valued dispatch O(S + n) for S live sessions and n agents, and
    O(S) for each agent whose shared nodes are asked for. At most 2^18 pairs of them are valued:
    with many agents the longest silent sessions are worth nothing. Every ``refresh`` dispatches
    O(n^3 + S n).
    """

    def __init__(self, config: ScoutConfig, horizon: Horizon) -> None:
        self.config = config
        self.horizon = horizon
        self.counts = Counts(config)
        self.sessions = LiveSessions()
        self.rows = AgentRows(config.max_agents, self._row_reused)
        self.survival = Survival(config, horizon, self.counts, self.sessions)
        self._next = NextAgent(config, self.counts, self.sessions)
        self.reuse = ReuseRatios(config.reuse_prior, config.reuse_decay, config.max_sessions)
        self._refreshed = NOT_YET
        self._valued = NOT_YET
        self._changed: set[int] = set()
        self._busy: dict[int, Session] = {}
        self._moved: dict[int, None] = {}
        self._outdated = True
        self._lines = SessionLines()
        self._weights: Floats = np.zeros(0)
        self._newborn = 0.0
        self._odds: dict[int, float] = {}

    # -- what happens ------------------------------------------------------------------

    def arrive(self, session: int, agent: int, now: int, judge: bool = False) -> int | None:
        """A call of ``agent`` enters the queue at dispatch ``now``.

        With ``judge``, which agent was held to be the likeliest there, of equals the lowest id;
        None for a session that is not known.
        """
        guess = None
        known = len(self.rows)
        row = self.rows.claim(agent)
        self.counts.grow(row + 1)
        self._outdated |= len(self.rows) != known
        entry = self.sessions.get(session)
        if entry is None:
            entry = self._add(session)
            self.counts.starts[row] += 1
        elif self.sessions.row[entry.slot] >= 0:
            guess = self._follow(entry.slot, row, now, judge)
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
        return guess

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

    def order(self, worth: float, age: int, size: int) -> float:
        """log2 V in quarter octaves, so that float noise can't reorder ranks.

        Neither age nor size enter: recency is in V, and benefit and cost both grow with size.
        """
        return float(math.floor(4 * math.log2(worth if worth > _WORTHLESS else _WORTHLESS)))

    def worth(
        self, session: int, agents: Iterable[int], kind: NodeKind, used: int, now: int
    ) -> float:
        """V of a node class (see ``tags.NodeClass``), in [0, 1].

        A private node's is the sum over its agents of U_s(a) r(a, kind); 0 if the session is gone.
        ``used``: the dispatch that used the node last; a later call of the same agent has passed
        it by and made it stale.
        """
        if session == SHARED:
            return self.shared(agents, now)
        entry = self.sessions.by_id.get(session)
        if entry is None or entry.over:
            return 0.0
        if self._valued != now:
            self._value(now)
        lines = self._lines
        place = lines.at(entry.slot)
        if place < 0:
            return 0.0
        total = 0.0
        for agent in agents:
            row = self.rows.get(agent)
            if row is None:
                continue
            value = CERTAIN
            if agent not in entry.waiting:
                weighed = self._weights.item(place) * lines.table.item(place, row)
                value = weighed if weighed < CERTAIN else CERTAIN
            left = NodeKind.STALE if entry.calls.get(agent, 0) > used else kind
            total += value * self.reuse.ratio(agent, left)
        return total if total < 1.0 else 1.0

    def shared(self, agents: Iterable[int], now: int) -> float:
        """V = O / (1 + O), O the odds of all live sessions and of sessions yet to come."""
        if self._valued != now:
            self._value(now)
        total = 0.0
        for agent in agents:
            row = self.rows.get(agent)
            if row is not None:
                odds = self._odds.get(row)
                if odds is None:
                    self._weigh([row])
                    odds = self._odds[row]
                total += odds
        return total / (1 + total)

    def foresee(self, agents: Iterable[int], now: int) -> None:
        """``shared`` will be asked for these agents: to weigh them together is faster."""
        if self._valued != now:
            self._value(now)
        rows = {row for agent in agents if (row := self.rows.get(agent)) is not None}
        if rows := rows - self._odds.keys():
            self._weigh(sorted(rows))

    @property
    def live(self) -> int:
        """Sessions that are not over."""
        return int(self.sessions.alive.sum())

    def expected(self, now: int) -> dict[int, float]:
        """The value of every known agent's anchor, by agent id."""
        return {agent: self.shared((agent,), now) for agent in self.rows.agents()}

    def peek(self) -> ScoutValue:
        """A reader as of now whose answers leave no trace here.

        One rank of several may be asked what the others are not: when values are worked out anew
        must not depend on it.
        """
        reader = copy.copy(self)
        reader._changed = set(self._changed)
        reader._lines = self._lines.copy()
        reader._odds = dict(self._odds)
        reader.survival = copy.copy(self.survival)
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
        return dict(zip(self.rows.agents(), mixed.tolist(), strict=True))

    def _add(self, session: int) -> Session:
        if len(self.sessions) >= self.config.max_sessions:
            self._forget(self.sessions.oldest())
        return self.sessions.add(session)

    # -- learning ----------------------------------------------------------------------

    def _follow(self, slot: int, row: int, now: int, judge: bool) -> int | None:
        before = self.sessions.row.item(slot)
        listed = self.sessions.agents(slot)
        rank = listed.index(row) if row in listed else RANKS
        seen = self._next.look(slot)
        guess = min(map(self.rows.agent, self._next.likeliest(seen))) if judge else None
        self.counts.credit(before, *self._next.chances(seen, row))
        gap = now - int(self.sessions.last[slot])
        count = int(self.sessions.count[slot])
        self.counts.follow(before, row, gap, rank, self._turn(slot), count)
        return guess

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
        limit = self.survival.idle_limit()
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

    def _row_reused(self, row: int, gone: int) -> None:
        self.counts.forget(row)
        self.reuse.forget_agent(gone)
        for session in self.sessions.forget_row(row):
            self._forget(session)
        self._outdated = True

    # -- refresh -----------------------------------------------------------------------

    def _value(self, now: int) -> None:
        """Bring session lines and weights up to this dispatch."""
        self._valued = now
        if self._due(now):
            self._refresh(now)
            self._lines.clear(len(self.rows))
        self._update_lines()
        alive, recency = self.survival.survival(self._lines.slots, now)
        self._weights = alive * recency
        self._newborn = self.horizon.turnover * self.horizon.births
        self._odds.clear()

    def _weigh(self, rows: list[int]) -> None:
        """O of each of some agents: of all valued sessions, and of those yet to be born."""
        lines = self._lines
        if lines.size <= _AT_ONCE:
            rows = list(range(len(self.rows)))
        values = lines.of(rows)
        values *= self._weights
        np.minimum(values, CERTAIN, out=values)
        for entry in self._busy.values():
            place = lines.at(entry.slot)
            for agent in entry.waiting if place >= 0 else ():
                waited = self.rows.get(agent)
                if waited in rows:
                    values[rows.index(waited), place] = CERTAIN
        newborn = self._newborn
        for row, odds in zip(rows, passage.odds(values).sum(axis=1).tolist(), strict=True):
            self._odds[row] = odds + newborn * self._from_start.item(row)

    def _due(self, now: int) -> bool:
        """Dispatches between two refreshes are few while each call still changes much."""
        waited = now - self._refreshed
        if self._outdated or waited >= self.config.refresh:
            return True
        return waited > int(self.counts.seen.sum()) // _EVIDENCE

    def _update_lines(self) -> None:
        """Lines of the sessions to be valued: kept where known and still true, else worked out."""
        most = max(_VALUED_SESSIONS, _VALUED // max(len(self.rows), 1))
        slots = self.sessions.latest_slots(most, self._busy.values())
        fresh = self._lines.choose(slots, self._changed)
        self._changed.clear()
        if not fresh:
            return
        ends = self.survival
        lines = self._next.lines(fresh, self._G, ends.q, self._gamma, ends.mean_end)
        turn = np.minimum(self.sessions.turn[fresh], TURNS - 1)
        self._lines.put(
            fresh, passage.ends_by_turn(lines, turn, ends.turns_ahead, self._gamma, ends.mean_end)
        )

    def _refresh(self, now: int) -> None:
        counts, n = self.counts, len(self.rows)
        self._refreshed, self._outdated = now, False
        self.survival.refresh(now)
        self._gamma = self.horizon.discount(self.survival.mean_gap())
        marginal = counts.seen / counts.seen.sum()
        prior = self.config.prior_weight
        follows = counts.follows if self.config.prediction else np.zeros((n, n))
        P = passage.transition_matrix(follows, marginal, prior)
        self._G = passage.first_passage(P, self.survival.q, self._gamma)
        starts = (counts.starts + prior * marginal) / (counts.starts.sum() + prior)
        self._from_start = passage.from_start(starts, self._G)

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
        return self.counts.bytes() + self.sessions.bytes() + self.reuse.bytes() + self._lines.nbytes
