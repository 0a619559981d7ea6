"""How much of what a call left behind its agent's next call uses again.

A fraction per agent and kind of node, learned without looking at the cache: a call leaves
checkpoints (prefix hashes at a few positions), and the agent's next call in the same session
shows up to which of them it agrees. This is what handles clients that strip thinking, rewrite
their own output or re-plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
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


class _Left(NamedTuple):
    """One segment that a call left: positions inside it and the prefix hash at each."""

    kind: NodeKind
    at: NDArray[np.int64]
    hashes: Hashes


class ReuseRatios:
    """Reuse ratios by agent and kind, and the checkpoints they are learned from.

    O(1) per call; at most ``limit`` (session, agent) pairs are remembered.
    """

    def __init__(self, prior: float, decay: float, limit: int) -> None:
        self._prior = prior
        self._decay = decay
        self._limit = limit
        self._sums: dict[tuple[int, NodeKind], list[float]] = {}
        self._left: OrderedDict[tuple[int, int], list[_Left]] = OrderedDict()

    def ratio(self, agent: int, kind: NodeKind) -> float:
        """r(a, kind) in [0, 1]: share of such a node that the owner's next call reuses."""
        hit, seen = self._sums.get((agent, kind), (0.0, 0.0))
        return (hit + self._prior * PRIOR[kind]) / (seen + self._prior)

    def returned(self, session: int, agent: int, prefix: Hashes) -> None:
        """The agent is back in the session; ``prefix`` are the rolling hashes of its prompt.

        ``prefix``: shape (n + 1,), the hash of the first i tokens at index i.
        """
        for left in self._left.get((session, agent), ()):
            known = left.at < len(prefix)
            same = prefix[left.at[known]] == left.hashes[known]
            share = float(same.sum()) / len(left.at)
            hit, seen = self._sums.get((agent, left.kind), (0.0, 0.0))
            self._sums[agent, left.kind] = [hit * self._decay + share, seen * self._decay + 1.0]

    def leave(self, session: int, agent: int, prefix: Hashes, anchor: int, prompt: int) -> None:
        """The call has ended; ``prefix`` (N + 1,) covers its prompt and its output.

        What the agent's previous call left and this one did not continue becomes stale.
        """
        before = self._left.pop((session, agent), [])
        end = len(prefix) - 1
        spine = self._agreed(before, prefix, anchor)
        spans = (
            (NodeKind.SPINE, anchor, spine),
            (NodeKind.PROMPT, spine, prompt),
            (NodeKind.OUTPUT, prompt, end),
        )
        kept = [_segment(kind, a, b, prefix) for kind, a, b in spans if b > a]
        kept += [_stale(left, prefix) for left in before if left.kind != NodeKind.STALE]
        self._left[session, agent] = [left for left in kept if len(left.at)]
        if len(self._left) > self._limit:
            self._left.popitem(last=False)

    @staticmethod
    def _agreed(before: list[_Left], prefix: Hashes, anchor: int) -> int:
        """The last checkpoint of the previous call that this one passes, else ``anchor``."""
        agreed = anchor
        for left in before:
            if left.kind == NodeKind.STALE:
                continue
            known = left.at < len(prefix)
            same = left.at[known][prefix[left.at[known]] == left.hashes[known]]
            if len(same):
                agreed = max(agreed, int(same.max()))
        return agreed

    def forget_agent(self, agent: int) -> None:
        """Drop what was learned about an agent that no longer has a row."""
        for kind in NodeKind:
            self._sums.pop((agent, kind), None)

    def forget_session(self, session: int, agents: Iterable[int]) -> None:
        """Drop what ``agents`` left in a session that is over, or another one now."""
        for agent in agents:
            self._left.pop((session, agent), None)

    def bytes(self) -> int:
        """Memory held, roughly."""
        return 100 * len(self._sums) + len(self._left) * 3 * (_POINTS * 16 + 120)


def _segment(kind: NodeKind, start: int, end: int, prefix: Hashes) -> _Left:
    points = {start + (end - start) * point // _POINTS for point in range(1, _POINTS + 1)}
    at = np.array(sorted(points), dtype=np.int64)
    return _Left(kind, at, prefix[at])


def _stale(left: _Left, prefix: Hashes) -> _Left:
    known = left.at < len(prefix)
    gone = np.ones(len(left.at), dtype=bool)
    gone[known] = prefix[left.at[known]] != left.hashes[known]
    return _Left(NodeKind.STALE, left.at[gone], left.hashes[gone])
