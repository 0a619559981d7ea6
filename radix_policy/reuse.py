"""How much of what a call left behind its agent's next call uses again.

A fraction per agent and kind of node, learned without looking at the cache: a call leaves
checkpoints (prefix hashes at a few positions), and the agent's next call in the same session
shows up to which of them it agrees. This is what handles clients that strip thinking, rewrite
their own output or re-plan.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import eq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radix_policy.call import NodeKind

Hashes = NDArray[np.uint64]
PRIOR: dict[NodeKind, float] = {
    NodeKind.PROMPT: 0.8,
    NodeKind.OUTPUT: 0.8,
    NodeKind.SPINE: 0.95,
    NodeKind.STALE: 0.1,
}
_POINTS = 6
_COUNT = 16
_HALF = 0xFFFFFFFF
_KINDS = tuple(NodeKind)


class _Left(NamedTuple):
    """One segment that a call left: positions inside it and half of the prefix hash at each."""

    kind: NodeKind
    at: list[int]
    hashes: list[int]


class ReuseRatios:
    """Reuse ratios by agent and kind, and the checkpoints they are learned from.

    O(1) per call; at most ``limit`` (session, agent) pairs are remembered. Two hashes are taken
    for one with a chance of 2**-31.
    """

    def __init__(self, prior: float, decay: float, limit: int) -> None:
        self._prior = prior
        self._decay = decay
        self._limit = limit
        self._sums: dict[tuple[int, NodeKind], list[float]] = {}
        self._left: dict[int, array[int]] = {}

    def ratio(self, agent: int, kind: NodeKind) -> float:
        """r(a, kind) in [0, 1]: share of such a node that the owner's next call reuses."""
        hit, seen = self._sums.get((agent, kind), (0.0, 0.0))
        return (hit + self._prior * PRIOR[kind]) / (seen + self._prior)

    def returned(self, session: int, agent: int, prefix: Hashes) -> None:
        """The agent is back in the session; ``prefix`` are the rolling hashes of its prompt.

        ``prefix``: shape (n + 1,), the hash of the first i tokens at index i.
        """
        packed = self._left.get(_pair(session, agent))
        before = [] if packed is None else list(_unpacked(packed))
        for left, now in zip(before, _read([left.at for left in before], prefix), strict=True):
            share = sum(map(eq, left.hashes, now)) / len(left.at)
            hit, seen = self._sums.get((agent, left.kind), (0.0, 0.0))
            self._sums[agent, left.kind] = [hit * self._decay + share, seen * self._decay + 1.0]

    def leave(self, session: int, agent: int, prefix: Hashes, anchor: int, prompt: int) -> None:
        """The call has ended; ``prefix`` (N + 1,) covers its prompt and its output.

        What the agent's previous call left and this one did not continue becomes stale.
        """
        pair = _pair(session, agent)
        packed = self._left.pop(pair, array("I"))
        before = [left for left in _unpacked(packed) if left.kind != NodeKind.STALE]
        now = _read([left.at for left in before], prefix)
        spine = max(
            [anchor, *(_agreed(left, here) for left, here in zip(before, now, strict=True))]
        )
        spans = (
            (NodeKind.SPINE, anchor, spine),
            (NodeKind.PROMPT, spine, prompt),
            (NodeKind.OUTPUT, prompt, len(prefix) - 1),
        )
        fresh = [(kind, _points(a, b)) for kind, a, b in spans if b > a]
        read = _read([at for _, at in fresh], prefix)
        kept = [_Left(kind, at, here) for (kind, at), here in zip(fresh, read, strict=True)]
        stale = [_gone(left, here) for left, here in zip(before, now, strict=True)]
        self._left[pair] = _packed(kept + [left for left in stale if left.at])
        if len(self._left) > self._limit:
            del self._left[next(iter(self._left))]

    def forget_agent(self, agent: int) -> None:
        """Drop what was learned about an agent that no longer has a row."""
        for kind in NodeKind:
            self._sums.pop((agent, kind), None)

    def forget_session(self, session: int, agents: Iterable[int]) -> None:
        """Drop what ``agents`` left in a session that is over, or another one now."""
        for agent in agents:
            self._left.pop(_pair(session, agent), None)

    def bytes(self) -> int:
        """Memory held: numbers, and what Python adds for a pair and a ratio."""
        numbers = sum(map(len, self._left.values()))
        return 4 * numbers + 180 * len(self._left) + 300 * len(self._sums)


def _pair(session: int, agent: int) -> int:
    return session << 32 | agent


def _packed(segments: Sequence[_Left]) -> array[int]:
    """Segments one behind the other: kind and number of points, the points, their hashes."""
    numbers: list[int] = []
    for kind, at, hashes in segments:
        numbers += [kind * _COUNT + len(at), *at, *hashes]
    return array("I", numbers)


def _unpacked(numbers: array[int]) -> Iterator[_Left]:
    start = 0
    while start < len(numbers):
        kind, count = divmod(numbers[start], _COUNT)
        middle, end = start + 1 + count, start + 1 + 2 * count
        yield _Left(
            _KINDS[kind], numbers[start + 1 : middle].tolist(), numbers[middle:end].tolist()
        )
        start = end


def _points(start: int, end: int) -> list[int]:
    """A few positions from after ``start`` to ``end``, evenly spread."""
    return sorted({start + (end - start) * k // _POINTS for k in range(1, _POINTS + 1)})


def _agreed(left: _Left, now: list[int]) -> int:
    """The last point of a segment that the prompt with the hashes ``now`` passes, else 0."""
    return max((at for at, h, new in zip(*left[1:], now, strict=True) if h == new), default=0)


def _gone(left: _Left, now: list[int]) -> _Left:
    """What of a segment the prompt with the hashes ``now`` left behind."""
    gone = [k for k, known in enumerate(left.hashes) if known != now[k]]
    return _Left(NodeKind.STALE, [left.at[k] for k in gone], [left.hashes[k] for k in gone])


def _read(segments: Sequence[list[int]], prefix: Hashes) -> list[list[int]]:
    """The half hashes that a prompt has at the points of segments; -1 beyond its end."""
    at = [point for points in segments for point in points]
    last = len(prefix) - 1
    found: list[int] = [prefix.item(min(point, last)) & _HALF for point in at]
    if at and max(at) > last:
        found = [-1 if point > last else value for point, value in zip(at, found, strict=True)]
    values = iter(found)
    return [list(islice(values, len(points))) for points in segments]
