"""A line of values per session: what each agent is worth to it, given that it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
NOWHERE = -1


class SessionLines:
    """Lines of n values by session slot, in no order that means anything.

    ``slots`` (k,): whose lines there are. ``place`` (S,): by slot where in the table its line
    stands, NOWHERE if it has none. ``table`` (at least k, n): the lines, an agent's values to
    all sessions lying side by side.
    """

    def __init__(self) -> None:
        self.slots: Ints = np.zeros(0, dtype=np.int64)
        self.place: Ints = np.zeros(0, dtype=np.int64)
        self.table: Floats = np.zeros((0, 0))

    def copy(self) -> SessionLines:
        """The same lines; what happens to either is nothing to the other."""
        other = SessionLines()
        other.slots, other.place = self.slots.copy(), self.place.copy()
        other.table = self.table.copy()
        return other

    def clear(self, agents: int) -> None:
        """No lines, of ``agents`` values each from now on."""
        self.place[self.slots] = NOWHERE
        self.slots = self.slots[:0]
        if self.table.shape[1] != agents:
            self.table = np.zeros((0, agents))

    def choose(self, slots: Ints, changed: Iterable[int]) -> list[int]:
        """Keep the lines of ``slots`` (ascending) only; returns those to ``put``.

        These are the ones without a line, and of the others those in ``changed``. O(S).
        """
        if len(slots) and slots[-1] >= len(self.place):
            room = np.full(2 * int(slots[-1]) + 16, NOWHERE, dtype=np.int64)
            room[: len(self.place)] = self.place
            self.place = room
        at = self.place[slots]
        known = at >= 0
        fresh: list[int] = slots[~known].tolist()
        if len(slots) - len(fresh) < len(self.slots):
            self._drop_all_but(at[known])
        return fresh + sorted(slot for slot in changed if self.at(slot) >= 0)

    def _drop_all_but(self, kept: Ints) -> None:
        gone = np.ones(len(self.slots), dtype=bool)
        gone[kept] = False
        last = len(self.slots)
        for place in np.flatnonzero(gone)[::-1].tolist():
            last -= 1
            moved = self.slots[last]
            self.place[self.slots[place]] = NOWHERE
            if place != last:
                self.slots[place], self.table[place] = moved, self.table[last]
                self.place[moved] = place
        self.slots = self.slots[:last]

    def put(self, slots: list[int], lines: Floats) -> None:
        """Set the lines of ``slots``; shape (len(slots), n)."""
        new = [slot for slot in slots if self.place[slot] < 0]
        if new:
            count = len(self.slots)
            self.place[new] = np.arange(count, count + len(new))
            self.slots = np.append(self.slots, new)
            if len(self.slots) > len(self.table):
                room = np.zeros((2 * len(self.slots), lines.shape[1]), order="F")
                room[:count] = self.table[:count]
                self.table = room
        self.table[self.place[slots]] = lines

    def at(self, slot: int) -> int:
        """Where in the table the line of ``slot`` stands, NOWHERE if it has none."""
        return int(self.place.item(slot)) if slot < len(self.place) else NOWHERE

    def of(self, agents: Sequence[int]) -> Floats:
        """The values of agents to all sessions, a copy of shape (len(agents), k)."""
        return np.asarray(self.table.T[:, : len(self.slots)][agents])

    @property
    def size(self) -> int:
        """Values in all lines."""
        return len(self.slots) * self.table.shape[1]

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self.place.nbytes + self.table.nbytes
