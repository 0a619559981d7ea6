"""The paper's rule: survival by hops in the agent graph, times recency, times size.

CacheScout (arXiv 2608.14624), the reference that *scout* is measured against. Eq. numbers are the
paper's; it gives no constants, so ours are stated in ``config``. Two variants: *literal* keeps one
global current agent and scores every node; *per-session* keeps one per session and scores shared
nodes only, a session's private history going before them, the least recently used first.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from radix_policy.call import NodeKind
from radix_policy.config import CacheScoutConfig
from radix_policy.passage import evident_predictability, predictability
from radix_policy.tags import SHARED
from radix_policy.transitions import AgentRows

Floats = NDArray[np.float64]
_REFRESH = 16
_GAP_KEEP = 0.99
_SILENT = 8.0
_EVERYONE = -2
_SCORED = 1e-9


class CacheScoutValue:
    """C_ij, the agent graph and the current agents. O(1) per arrival, O(n^2) per refresh."""

    def __init__(self, config: CacheScoutConfig) -> None:
        self.config = config
        self._own_sessions = config.variant == "per-session"
        self.rows = AgentRows(config.max_agents, self._row_reused)
        self._follows: Floats = np.zeros((8, 8))
        self._current: OrderedDict[int, tuple[int, int]] = OrderedDict()
        self._gap = 8.0
        self._now = 0
        self._refreshed = -_REFRESH
        self._hops: dict[int, Floats] = {}
        self._survival: Floats | None = None

    # -- what happens ------------------------------------------------------------------

    def arrive(self, session: int, agent: int, now: int, judge: bool = False) -> int | None:
        """Eq. 3: one more i -> j. With ``judge``, see ``ScoutValue.arrive``."""
        chances = self.predict(session) if judge else {}
        guess = min(chances, key=lambda a: (-chances[a], a)) if chances else None
        row = self.rows.claim(agent)
        if row >= len(self._follows):
            grown = np.zeros((2 * len(self._follows),) * 2)
            grown[: len(self._follows), : len(self._follows)] = self._follows
            self._follows = grown
        key = session if self._own_sessions else _EVERYONE
        before = self._current.pop(key, None)
        if before is not None:
            self._follows[before[0], row] += 1
            self._gap = _GAP_KEEP * self._gap + (1 - _GAP_KEEP) * (now - before[1])
        self._current[key] = (row, now)
        if len(self._current) > self.config.max_sessions:
            self._current.popitem(last=False)
        self._now = now
        self._survival = None
        return guess

    def admit(self, session: int, agent: int, number: int) -> None:
        """The paper's rule does not look at what a call passed by."""

    def depart(self, session: int, agent: int) -> None:
        """Nor at when it ended."""

    def end(self, session: int) -> None:
        """A session that is said to have ended has no current agent."""
        self._current.pop(session, None)
        self._survival = None

    def merge(self, absorbed: int, survivor: int) -> None:
        """The survivor's current agent stands."""
        self.end(absorbed)

    # -- what it is worth --------------------------------------------------------------

    def worth(
        self, session: int, agents: Iterable[int], kind: NodeKind, used: int, now: int
    ) -> float:
        """Survival of the node's agent (Eq. 8), the highest of them if several pass it.

        Zero means not scored: a private node of the per-session variant.
        """
        if session != SHARED and self._own_sessions:
            return 0.0
        survival = self._survivals(now)
        rows = (self.rows.get(agent) for agent in agents)
        highest = max((survival.item(row) for row in rows if row is not None), default=0.0)
        return max(highest, _SCORED)

    def order(self, worth: float, age: int, size: int) -> float:
        """Eq. 9: (p + delta)(e^(-lambda age) + delta)|b|; the lowest is evicted first.

        Zero for what is not scored, so that recency alone orders it.
        """
        if worth == 0.0:
            return 0.0
        delta = self.config.delta
        return float((worth + delta) * (np.exp(-self.config.decay * age) + delta) * size)

    def expected(self, now: int) -> dict[int, float]:
        """Survival by agent id."""
        survival = self._survivals(now)
        return {self.rows.agent(row): float(survival[row]) for row in range(len(self.rows))}

    def peek(self) -> CacheScoutValue:
        """A reader as of now whose answers leave no trace here (see ``ScoutValue.peek``)."""
        reader = copy.copy(self)
        reader._hops = dict(self._hops)
        return reader

    def predict(self, session: int) -> dict[int, float]:
        """P(a | current agent), Eq. 3, by agent id; empty for a session without a call.

        With prediction off every agent is as likely as the other.
        """
        key = session if self._own_sessions else _EVERYONE
        if key not in self._current:
            return {}
        P = self._transitions()[self._current[key][0]]
        if not self.config.prediction:
            P = np.full(len(P), 1 / len(P))
        return {self.rows.agent(row): float(P[row]) for row in range(len(self.rows))}

    def predictability(self) -> float:
        """R (Eq. 2)."""
        n = len(self.rows)
        return predictability(self._follows[:n, :n])

    @property
    def follows(self) -> Floats:
        """C_ij, shape (n, n): agent row j ran right after row i."""
        n = len(self.rows)
        return self._follows[:n, :n]

    @property
    def live(self) -> int:
        """Sessions that spoke not too long ago."""
        since = self._now - _SILENT * self._gap
        return sum(last >= since for _, last in self._current.values())

    def evident_predictability(self) -> float:
        """R, as far as the evidence goes."""
        n = len(self.rows)
        return evident_predictability(self._follows[:n, :n], 1.0)

    def bytes(self) -> int:
        """Memory held by what was learned."""
        return self._follows.nbytes + 100 * len(self._current)

    # -- the agent graph ---------------------------------------------------------------

    def _transitions(self) -> Floats:
        n = len(self.rows)
        C = self._follows[:n, :n] + self.config.epsilon
        return np.asarray(C / C.sum(axis=1, keepdims=True))

    def _survivals(self, now: int) -> Floats:
        if self._survival is not None and len(self._survival) == len(self.rows):
            return self._survival
        n = len(self.rows)
        if not self.config.prediction:
            self._survival = np.ones(n)
            return self._survival
        if now - self._refreshed >= _REFRESH or any(len(h) != n for h in self._hops.values()):
            self._hops.clear()
            self._refreshed = now
        survival = np.zeros(n)
        for row in self._current_rows():
            np.maximum(survival, 1 - self._hops_from(row) / self.config.e_max, out=survival)
        self._survival = survival
        return survival

    def _current_rows(self) -> list[int]:
        """Rows of the sessions' current agents, ascending, the long silent ones left out."""
        since = self._now - _SILENT * self._gap
        return sorted({row for row, last in self._current.values() if last >= since})

    def _hops_from(self, row: int) -> Floats:
        """min(E[a], E_max) for every agent: breadth first over edges P >= tau (Eq. 7)."""
        if row not in self._hops:
            edges = self._transitions() >= self.config.tau
            hops = np.full(len(edges), float(self.config.e_max))
            reached = np.zeros(len(edges), dtype=bool)
            reached[row] = True
            for hop in range(self.config.e_max):
                fresh = reached & (hops > hop)
                if not fresh.any():
                    break
                hops[fresh] = hop
                reached = reached | edges[fresh].any(axis=0)
            self._hops[row] = hops
        return self._hops[row]

    def _row_reused(self, row: int, gone: int) -> None:
        self._follows[row, :] = 0
        self._follows[:, row] = 0
        self._current = OrderedDict((s, c) for s, c in self._current.items() if c[0] != row)
        self._hops.clear()
