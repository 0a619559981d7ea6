"""Agents known by their own words, wherever in the prompt these stand.

A new date, user name or tool order before an agent's system text gives its prompts a new prefix.
The text itself stays: an agent is recognised if most of the windows that only it uses are there.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from radix_policy.hashing import Hashes, HashMap, window_keys

_WIDTH = 8
_LEARNED = 264
_REACH = 1024
_MIN_WINDOWS = 4
_MIN_COVERAGE = 0.7
_DEAD = -2
_MAX_AGENTS = 4096


class Signatures:
    """Window -> the one agent whose fixed text contains it; windows of two agents are dead."""

    def __init__(self, max_bits: int = 19) -> None:
        self._table = HashMap(max_bits)
        self._total: dict[int, int] = {}

    def learn(self, H: Hashes, start: int, stop: int, agent: int) -> None:
        """Tokens [start, stop) of a prompt are fixed text of ``agent``; the first 264 are kept.

        An agent that is known by enough words learns no more.
        """
        if self._total.get(agent, 0) >= _MIN_WINDOWS:
            return
        stop = min(len(H) - 1, stop, start + _LEARNED)
        hashes = np.unique(window_keys(H, start, stop, _WIDTH))
        owner = self._table.get(hashes)
        values = np.full(len(hashes), agent, dtype=np.int32)
        values[(owner != HashMap.MISSING) & (owner != agent)] = _DEAD
        self._table.put(hashes, values)
        for other, lost in zip(*np.unique(owner, return_counts=True), strict=True):
            if int(other) in self._total:
                self._total[int(other)] -= int(lost)
        while len(self._total) >= _MAX_AGENTS:
            del self._total[next(iter(self._total))]
        self._total[agent] = int((self._table.get(hashes) == agent).sum())

    def match(self, H: Hashes, start: int, but: Container[int | None] = ()) -> int | None:
        """The agent, not in ``but``, most of whose windows follow token ``start``, if there is."""
        if not self._total:
            return None
        stop = min(len(H) - 1, start + _REACH)
        hashes = window_keys(H, start, stop, _WIDTH)
        owner = self._table.get(hashes)
        hit = np.flatnonzero(owner >= 0)
        if len(hit) < _MIN_WINDOWS:
            return None
        hit = hit[np.unique(hashes[hit], return_index=True)[1]]
        best, share = None, _MIN_COVERAGE
        for agent, found in zip(*np.unique(owner[hit], return_counts=True), strict=True):
            total = self._total.get(int(agent), 0)
            if found >= max(_MIN_WINDOWS, share * total) and int(agent) not in but:
                best, share = int(agent), found / max(total, 1)
        return best

    def forget(self, agent: int) -> None:
        self._total.pop(agent, None)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes
