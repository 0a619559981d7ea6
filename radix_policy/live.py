"""The sessions that are alive, as arrays: who spoke last, when, and after whom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_policy.transitions import RANKS

Ints = NDArray[np.int64]
NEVER = -1
_LOOKED_AT = 256


@dataclass(slots=True)
class Session:
    """One session of the table.

    ``slot``: its line in the arrays. ``calls``: per agent id, the dispatch number of its latest
    call that was admitted. ``waiting``: agent ids of its calls that are queued or running.
    ``over``: presumed or said to have ended. ``ended``: said so, the call under way being last.
    """

    slot: int
    calls: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    over: bool = False
    ended: bool = False


class LiveSessions:
    """Sessions by id, oldest first; the caller keeps their number bounded.

    Arrays by slot: ``row`` (S,) the agent row that spoke last, ``last`` (S,) the dispatch of that
    call, ``turn`` (S,) calls so far, ``listed`` (S, RANKS) the move-to-front list of agent rows,
    padded with NEVER, ``count`` (S,) distinct agents so far, ``alive`` (S,) not over.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Session] = {}
        self._awake: OrderedDict[int, None] = OrderedDict()
        self._asleep: OrderedDict[int, None] = OrderedDict()
        self._free: list[int] = []
        self._used = 0
        self._allocate(16)

    def __len__(self) -> int:
        return len(self.by_id)

    def _allocate(self, room: int) -> None:
        def grown(name: str, fill: int, kind: Any = np.int32, *more: int) -> NDArray[Any]:
            fresh = np.full((room, *more), fill, dtype=kind)
            old = getattr(self, name, None)
            if old is not None:
                fresh[: len(old)] = old
            return fresh

        self.row = grown("row", NEVER)
        self.last = grown("last", 0, np.int64)
        self.turn = grown("turn", 0)
        self.listed = grown("listed", NEVER, np.int32, RANKS)
        self.count = grown("count", 0)
        self.alive = grown("alive", False, np.bool_)

    def get(self, session: int) -> Session | None:
        """The session, or None if it was never seen or is forgotten."""
        return self.by_id.get(session)

    def oldest(self) -> int:
        """The session to forget first: the longest over, else the longest silent."""
        return next(iter(self._asleep or self._awake))

    def add(self, session: int) -> Session:
        """A new session in a free slot."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._used
            self._used += 1
            if slot >= len(self.row):
                self._allocate(2 * len(self.row))
        self.row[slot] = NEVER
        self.turn[slot] = 0
        self.count[slot] = 0
        self.listed[slot] = NEVER
        entry = self.by_id[session] = Session(slot)
        return entry

    def remove(self, session: int) -> None:
        """Forget the session and free its slot."""
        entry = self.by_id.pop(session)
        self._awake.pop(session, None)
        self._asleep.pop(session, None)
        self.alive[entry.slot] = False
        self._free.append(entry.slot)

    def agents(self, slot: int) -> list[int]:
        """The session's move-to-front list of agent rows, RANKS long, padded with NEVER."""
        listed: list[int] = self.listed[slot].tolist()
        return listed

    def speak(self, session: int, row: int, now: int) -> None:
        """``row`` makes a call in the session: to the front of its list, and of all sessions."""
        entry = self.by_id[session]
        slot = entry.slot
        listed = self.agents(slot)
        if row in listed:
            listed.remove(row)
        else:
            self.count[slot] += 1
            listed.pop()
        self.listed[slot] = [row, *listed]
        self.row[slot] = row
        self.last[slot] = now
        self.turn[slot] += 1
        self.alive[slot] = True
        entry.over = entry.ended = False
        self._asleep.pop(session, None)
        self._awake[session] = None
        self._awake.move_to_end(session)

    def close(self, session: int) -> None:
        """The session is over, as far as anyone can tell; ``speak`` brings it back."""
        entry = self.by_id[session]
        entry.over = True
        self.alive[entry.slot] = False
        self._awake.pop(session, None)
        self._asleep[session] = None

    def silent(self, since: int, most: int) -> list[int]:
        """Sessions not over, without a call under way, whose last call is before ``since``.

        Of the longest silent only, so that a long queue of calls costs no more than a short one.
        """
        found: list[int] = []
        for session in islice(self._awake, _LOOKED_AT):
            entry = self.by_id[session]
            if self.last[entry.slot] >= since or len(found) == most:
                break
            if not entry.waiting:
                found.append(session)
        return found

    def forgettable(self, since: int, most: int) -> list[int]:
        """Sessions that are over and whose last call is before ``since``, longest over first."""
        found: list[int] = []
        for session in self._asleep:
            if self.last[self.by_id[session].slot] >= since or len(found) == most:
                break
            found.append(session)
        return found

    def forget_row(self, row: int) -> list[int]:
        """Take an agent row out of every list; returns the sessions that it spoke in last."""
        self.listed[self.listed == row] = NEVER
        if not (self.row == row).any():
            return []
        return [s for s, entry in self.by_id.items() if self.row[entry.slot] == row]

    def alive_slots(self) -> Ints:
        """Slots of the sessions that are not over, ascending."""
        return np.flatnonzero(self.alive)

    def latest_slots(self, most: int, busy: Iterable[Session]) -> Ints:
        """Of those, the ``most`` that spoke last and the ``busy`` ones, ascending."""
        if len(self._awake) <= most:
            return self.alive_slots()
        slots = {self.by_id[name].slot for name in islice(reversed(self._awake), most)}
        slots |= {entry.slot for entry in busy if self.alive[entry.slot]}
        return np.array(sorted(slots), dtype=np.int64)

    def bytes(self) -> int:
        """Memory held by the arrays and, roughly, by the entries. O(S)."""
        arrays = (self.row, self.last, self.turn, self.listed, self.count, self.alive)
        calls = sum(len(entry.calls) for entry in self.by_id.values())
        return sum(a.nbytes for a in arrays) + 300 * len(self.by_id) + 60 * calls
