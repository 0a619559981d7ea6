"""What was seen: who followed whom, where sessions start, end and pause.

Counts of one tenant, indexed by *rows*: an agent's row is a small integer that is reused once the
agent has not been seen for longest and the table is full. No formula lives here; what the counts
mean is in ``passage`` and ``value``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_policy.config import ScoutConfig

RANKS = 10
"""Ranks 0 (the same agent again) to 9; bin 10 counts agents new to the session."""
GAP_BINS = 80
"""Quarter octaves: gaps up to 2**20 dispatches."""
TURNS = 64
"""Turn numbers beyond this one share its end probability."""

Floats = NDArray[np.float64]
_GLOBAL_DECAY = 0.998


def gap_bin(gap: int) -> int:
    """The quarter octave of a gap in dispatches, 0 for a gap of one."""
    return min(GAP_BINS - 1, int(4 * math.log2(max(gap, 1))))


class AgentRows:
    """Agent ids to matrix rows, at most ``limit``; the least recently seen gives way.

    ``on_reuse`` is told the row that another agent takes over, and the agent that gives way.
    """

    def __init__(self, limit: int, on_reuse: Callable[[int, int], None]) -> None:
        self.limit = limit
        self._on_reuse = on_reuse
        self._row: dict[int, int] = {}
        self._agent: list[int] = []

    def __len__(self) -> int:
        return len(self._agent)

    def get(self, agent: int) -> int | None:
        """The agent's row, or None if it has none (any more)."""
        return self._row.get(agent)

    def agents(self) -> list[int]:
        """The agents that have a row, by row."""
        return list(self._agent)

    def agent(self, row: int) -> int:
        """The agent that holds ``row``."""
        return self._agent[row]

    def claim(self, agent: int) -> int:
        """The agent's row, made or taken over if need be; most recently seen from now on."""
        row = self._row.pop(agent, None)
        if row is None:
            if len(self._agent) < self.limit:
                row = len(self._agent)
                self._agent.append(agent)
            else:
                oldest = next(iter(self._row))
                row = self._row.pop(oldest)
                self._agent[row] = agent
                self._on_reuse(row, oldest)
        self._row[agent] = row
        return row


class Counts:
    """Decayed and plain counts by agent row; arrays grow by doubling.

    ``follows`` (n, n): row j ran right after row i. ``ends`` (n,): sessions that ended at i.
    ``seen`` (n,): calls. ``starts`` (n,): sessions begun by i. ``gaps`` (n, GAP_BINS): dispatches
    until the session's next call, by agent; ``all_gaps`` (GAP_BINS,) of all, ``longest_gap`` the
    last bin with any. ``ranks`` and
    ``count_ranks`` (n or RANKS + 1, RANKS + 1): where the next agent stood, by agent and by the
    number of agents in the session. ``mixture`` (n, 2): credit of chain and ranks. ``turn_ends``,
    ``turn_goes`` (TURNS,): sessions that ended after / went on past turn t.
    """

    def __init__(self, config: ScoutConfig) -> None:
        self._config = config
        self.size = 0
        self._room = 8
        self._follows = np.zeros((8, 8), dtype=np.float32)  # whole numbers, exact up to 2^24
        self._flat = {name: np.zeros(8) for name in ("ends", "seen", "starts")}
        self._gaps = np.zeros((8, GAP_BINS))
        self._ranks = np.zeros((8, RANKS + 1))
        self._mixture = np.zeros((8, 2))
        self.all_gaps = np.zeros(GAP_BINS)
        self.longest_gap = 0
        self.all_ranks = np.zeros(RANKS + 1)
        self.count_ranks = np.zeros((RANKS + 1, RANKS + 1))
        self.all_mixture = np.zeros(2)
        self.turn_ends = np.zeros(TURNS)
        self.turn_goes = np.zeros(TURNS)

    follows = property(lambda self: self._follows[: self.size, : self.size])
    ends = property(lambda self: self._flat["ends"][: self.size])
    seen = property(lambda self: self._flat["seen"][: self.size])
    starts = property(lambda self: self._flat["starts"][: self.size])
    gaps = property(lambda self: self._gaps[: self.size])
    ranks = property(lambda self: self._ranks[: self.size])
    mixture = property(lambda self: self._mixture[: self.size])

    def grow(self, size: int) -> None:
        """Make room for rows below ``size``."""
        self.size = max(self.size, size)
        if size <= self._room:
            return
        while self._room < size:
            self._room *= 2
        self._follows = _padded(self._follows, (self._room, self._room))
        self._flat = {k: _padded(v, (self._room,)) for k, v in self._flat.items()}
        self._gaps = _padded(self._gaps, (self._room, GAP_BINS))
        self._ranks = _padded(self._ranks, (self._room, RANKS + 1))
        self._mixture = _padded(self._mixture, (self._room, 2))

    def forget(self, row: int) -> None:
        """Zero all that was learned about ``row``, whose agent gave way to another."""
        self._follows[row, :] = 0
        self._follows[:, row] = 0
        for values in self._flat.values():
            values[row] = 0
        self._gaps[row] = 0
        self._ranks[row] = 0
        self._mixture[row] = 0

    def follow(self, before: int, after: int, gap: int, rank: int, turn: int, count: int) -> None:
        """``after`` ran in a session whose call number ``turn``, by ``before``, was ``gap`` ago.

        ``rank``: where ``after`` stood in the session's move-to-front list, which had ``count``
        distinct agents.
        """
        self._follows[before, after] += 1
        self.turn_goes[min(turn, TURNS - 1)] += 1
        where = gap_bin(gap)
        self.longest_gap = max(self.longest_gap, where)
        keep = self._config.rank_decay
        _add(self._gaps[before], where, self._config.gap_decay)
        _add(self.all_gaps, where, self._config.gap_decay)
        _add(self._ranks[before], rank, keep)
        _add(self.all_ranks, rank, _GLOBAL_DECAY)
        _add(self.count_ranks[min(count, RANKS)], rank, keep)

    def credit(self, before: int, markov: float, rank: float) -> None:
        """Share one observation between the two predictors by what each had given it."""
        total = markov + rank
        if total <= 0:
            return
        share, keep = (markov / total, rank / total), self._config.rank_decay
        own, everyone = self._mixture[before].tolist(), self.all_mixture.tolist()
        self._mixture[before] = [keep * own[k] + share[k] for k in (0, 1)]
        self.all_mixture[:] = [_GLOBAL_DECAY * everyone[k] + share[k] for k in (0, 1)]

    def end(self, row: int, turn: int, weight: float = 1.0) -> None:
        """A session ended at ``row`` after ``turn`` calls; weight -1 takes it back."""
        turn = min(turn, TURNS - 1)
        self._flat["ends"][row] = max(0.0, self._flat["ends"][row] + weight)
        self.turn_ends[turn] = max(0.0, self.turn_ends[turn] + weight)

    def bytes(self) -> int:
        """Memory held by the count arrays."""
        arrays: tuple[NDArray[Any], ...] = (self._follows, self._gaps, self._ranks, self._mixture)
        arrays += tuple(self._flat.values())
        return sum(a.nbytes for a in arrays) + 2 * self.turn_ends.nbytes + self.all_gaps.nbytes


def _add(counts: NDArray[Any], place: int, keep: float) -> None:
    """One more observation; what was seen before decays."""
    counts *= keep
    counts[place] += 1


def _padded(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    grown = np.zeros(shape, dtype=array.dtype)
    grown[tuple(slice(0, n) for n in array.shape)] = array
    return grown
