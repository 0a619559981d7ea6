"""Which session's words does a prompt quote: windows of outputs and of prompt texts.

Agents of one session share no prefix, but they quote each other: what one agent answered stands,
shifted and re-wrapped, in the next agent's prompt. Every window of eight tokens of an output is
remembered with its output; a prompt belongs to the session whose outputs it holds to a large part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radix_policy.hashing import Hashes, HashMap, counted, distinct, window_keys

WIDTH = 8
_DEAD = -2
_MAX_WINDOWS = 512
_RING = 1 << 13
_NUMBER, _SESSION = 0, 1
_NUMBERS = 1 << 22
_DENSE = 0.8
_RUN = 24
_MIN_WINDOWS = 4
_MIN_COVERAGE = 0.5


class Quote(NamedTuple):
    """An earlier output found in a prompt.

    ``session``: whose output. ``found``, ``total``: windows of it found and kept. ``position``:
    where in the prompt its first window lies.
    """

    session: int
    found: int
    total: int
    position: int


class Windows(NamedTuple):
    """Windows of a prompt's text that no earlier call explains.

    ``hashes``: shape (w,). The first ``head`` of them start at token ``start`` of the prompt and
    follow each other, the others from token ``resumed`` on.
    """

    hashes: Hashes
    start: int
    head: int
    resumed: int

    def position(self, place: int) -> int:
        """Where in the prompt the window at ``place`` starts."""
        first = place < self.head
        return self.start + place if first else self.resumed + place - self.head


def unexplained(H: Hashes, start: int, head: int = 512, tail: int = 8192) -> Windows:
    """Windows of the prompt with hashes ``H`` after token ``start``.

    Work is bounded: of a longer part the first ``head`` and the last ``tail`` tokens count.
    """
    n = len(H) - 1
    if n - start <= head + tail:
        hashes = window_keys(H, start, n, WIDTH)
        return Windows(hashes, start, len(hashes), n)
    first = window_keys(H, start, start + head, WIDTH)
    last = window_keys(H, n - tail, n, WIDTH)
    return Windows(np.concatenate([first, last]), start, len(first), n - tail)


class OutputIndex:
    """Window of an output -> that output -> its session.

    A window that outputs of two sessions contain proves nothing and is dead from then on. An
    output counts as quoted if half of its windows are found, or a dense run of them: clients cut
    answers off, or strip the thinking before them.
    """

    def __init__(self, max_bits: int = 18) -> None:
        self._table = HashMap(max_bits)
        self._ring = np.full((4, 16), -1, dtype=np.int32)
        self._next = 0

    def add(self, hashes: Hashes, session: int, root: Callable[[int], int]) -> None:
        """Remember the windows of one output of ``session``, at most 512 evenly spread ones."""
        step = max(1, -(-len(hashes) // _MAX_WINDOWS))
        hashes = hashes[::step]
        places = np.sort(distinct(hashes)[1])
        hashes = hashes[places]
        value = self._table.get(hashes)
        fresh = value == HashMap.MISSING
        known = np.flatnonzero(value >= 0)
        if len(known):
            slots, current = self._slots(value[known])
            fresh[known[~current]] = True
            sessions = self._ring[_SESSION, slots]
            for other in sorted(set(sessions[current].tolist())):
                if root(other) != session:
                    self._table.put(hashes[known[current & (sessions == other)]], _DEAD)
        count = int(fresh.sum())
        if count < _MIN_WINDOWS:
            return
        number, slot = self._next, self._next % _RING
        self._next = (self._next + 1) % _NUMBERS
        if slot >= self._ring.shape[1]:
            self._ring = np.hstack([self._ring, np.full_like(self._ring, -1)])
        self._ring[:, slot] = number, session, count, step
        values = (number * _MAX_WINDOWS + places[fresh]).astype(np.int32)
        self._table.put(hashes[fresh], values)

    def _slots(self, values: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Ring slots of table values, and which of them still hold that output."""
        numbers = values.astype(np.int64) // _MAX_WINDOWS
        slots = numbers % _RING
        return slots, self._ring[_NUMBER, slots] == numbers

    def quotes(
        self, windows: Windows, root: Callable[[int], int]
    ) -> tuple[list[Quote], NDArray[np.int64]]:
        """Outputs that the prompt quotes, and which of its windows any output knows, ascending."""
        hit, value = self._table.find(windows.hashes)
        alive = value >= 0
        index = hit[alive]
        if len(index) < _MIN_WINDOWS:
            return [], hit
        values, first = distinct(value[alive])
        slots, current = self._slots(values)
        values, first, slots = values[current], first[current], slots[current]
        if len(values) < _MIN_WINDOWS:
            return [], hit
        # Sorted by output and place within it: each output is one run.
        numbers = values // _MAX_WINDOWS
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(values)]
        quotes, places, firsts = [], values.tolist(), first.tolist()
        for a, b in pairwise(starts):
            slot, found = int(slots[a]), b - a
            _, session, total, step = self._ring[:, slot].tolist()
            span = places[b - 1] - places[a] + 1
            dense = found >= _DENSE * span and found * step >= _RUN
            if found >= _MIN_WINDOWS and (found >= _MIN_COVERAGE * total or dense):
                position = windows.position(int(index[min(firsts[a:b])]))
                quotes.append(Quote(root(session), found, total, position))
        return quotes, hit

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._ring.nbytes


class Texts(NamedTuple):
    """Windows of a text that prompts may hold: ``hashes`` (w,), and of these the ``known`` ones,
    ascending places (k,), with the session that has them alone, or a number below zero (k,).
    """

    hashes: Hashes
    known: NDArray[np.int64]
    owner: NDArray[np.int32]

    def votes(self, root: Callable[[int], int]) -> list[tuple[int, int]]:
        """(windows, session) for each session with text of its own here, most windows first."""
        owner, hashes = self.owner, self.hashes[self.known]
        if len(owner) and owner.min() < 0:
            owner, hashes = owner[owner >= 0], hashes[owner >= 0]
        if not len(owner):
            return []
        ranked = np.sort(hashes)
        if (ranked[1:] == ranked[:-1]).any():
            owner = owner[distinct(hashes)[1]]
        votes: Counter[int] = Counter()
        for session, count in counted(owner):
            votes[root(session)] += count
        return sorted(((c, s) for s, c in votes.items()), reverse=True)


class TextIndex:
    """Window of a prompt -> the one session whose prompts hold it.

    Serves twice: an output that echoes its prompt is no evidence, and the task's own wording, as
    long as one session only uses it, hints at the session of an agent that has not spoken yet.
    """

    def __init__(self, max_bits: int = 18) -> None:
        self._table = HashMap(max_bits)

    def find(self, hashes: Hashes) -> Texts:
        """Which of ``hashes`` stood in some prompt, and whose they are."""
        return Texts(hashes, *self._table.find(hashes))

    def add(
        self, texts: Texts, but: NDArray[np.int64], session: int, root: Callable[[int], int]
    ) -> None:
        """Remember windows, looked up just now, as text of ``session``, save those at ``but``.

        What another session had becomes common.
        """
        hashes, known, owner = texts
        fresh = np.ones(len(hashes), dtype=np.bool_)
        fresh[known] = fresh[but] = False
        new = hashes[fresh]
        self._table.put(new, session, len(new))
        foreign = known[(owner != session) & (owner >= 0)]
        if not len(foreign):
            return
        common = np.zeros(len(hashes), dtype=np.bool_)
        for other, _ in counted(owner):
            if other >= 0 and root(other) != session:
                common[known[owner == other]] = True
        common[but] = False
        self._table.put(hashes[common], _DEAD, 0)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes
