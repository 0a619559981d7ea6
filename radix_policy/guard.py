"""Never far below LRU: a shadow of what LRU would hold, and a bucket of regret.

The shadow is a radix tree of prefix hashes instead of tokens, evicted as SGLang evicts under
``lru``: whole leaves, the least recently used first. Each admitted call is looked up in it, and
what LRU would have hit beyond the real hit drains the bucket. The emptier the bucket, the more
recency counts in the order of eviction.

The bound. Over any run of calls let P be the prompt tokens and the *regret* R the sum of (shadow
hit - real hit): what we computed and LRU would not have. The bucket starts at cap/2 and stays in
[-cap, cap]; a call moves it by rate x prompt - (shadow - hit), less what spills over its upper
wall and plus what is *forgiven* at its floor. Summed up,

    R <= 3/2 cap + rate P + forgiven,

whatever the policy and the traffic do, and ``forgiven`` is counted. It stays small because from
bucket 0 on recency alone orders (beta = 1). A cache that evicts by recency holds all that was used
since it began to, as long as LRU would hold it; in one such spell it regrets only what the shadow
held at its beginning, at most cap, each token once. A spell begins at most one prompt below 0, so
at most that prompt is forgiven in it, and the next spell needs cap tokens of rate and of hits that
LRU had not. This half takes both caches to evict page by page, without locks; SGLang's whole
leaves may be cut differently in the two, and the tests measure what an adversary gets there.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from radix_policy.trie import KEY, common

Hashes = NDArray[np.uint64]
Keys = bytes
GRID = 16
"""Tokens between two compared prefix hashes, unless pages are larger."""


@dataclass(slots=True)
class _Leaf:
    """A radix node of the shadow: grid points ``start`` < g <= ``end`` of one prefix."""

    parent: int
    start: int
    end: int
    keys: bytes
    children: dict[bytes, int] = field(default_factory=dict)
    pins: int = 0


class ShadowLRU:
    """What SGLang's ``lru`` would hold of ``capacity`` tokens.

    Works on grid hashes: element g of a call's (G,) array identifies its first (g + 1) x ``grid``
    tokens, namespace included. O(nodes on the path) per call, plus evictions.
    """

    def __init__(self, capacity: int, grid: int = GRID) -> None:
        self.grid = grid
        self.capacity = capacity // grid
        self.clear()

    def lookup(self, hashes: Hashes) -> int:
        """Tokens of the call's prompt that LRU would have had; changes nothing."""
        return self._walk(hashes.tobytes())[1] * self.grid

    def insert(self, hashes: Hashes) -> list[int]:
        """Hold the prefix, as most recently used; returns the ids of its nodes, root first.

        Least recently used leaves give way; if pinned ones leave too little room, the prefix is
        held as far as it fits nowhere: nothing is added.
        """
        keys = hashes.tobytes()
        path, matched = self._walk(keys)
        if path and self._nodes[path[-1]].end > matched:
            path[-1] = self._split(path[-1], matched)
        self._touch(path)
        if matched < len(hashes):
            for node in path:
                self._nodes[node].pins += 1
            fits = self._make_room(len(hashes) - matched)
            for node in path:
                self._nodes[node].pins -= 1
            if fits:
                path.append(self._add(path[-1] if path else 0, matched, keys))
                self._touch(path)
        return path

    def pin(self, path: list[int], by: int) -> None:
        """Keep the nodes of a running call (+1), or let go of them (-1)."""
        for node in path:
            if node in self._nodes:
                self._nodes[node].pins += by

    def ancestors(self, node: int) -> list[int]:
        """The path from below the root to ``node``; empty if it is gone."""
        path: list[int] = []
        while node > 0 and node in self._nodes:
            path.append(node)
            node = self._nodes[node].parent
        return path[::-1]

    def bytes(self) -> int:
        """Memory held, roughly: hashes and nodes."""
        return 8 * self.held + 400 * len(self._nodes)

    def clear(self) -> None:
        """Hold nothing: at the start, and when the real cache was flushed."""
        self.held = 0
        self._nodes: dict[int, _Leaf] = {0: _Leaf(-1, 0, 0, b"")}
        self._recency: OrderedDict[int, None] = OrderedDict()
        self._next = 1

    def _walk(self, keys: Keys) -> tuple[list[int], int]:
        """Nodes that share a prefix with ``keys``, and how many grid points they share."""
        path: list[int] = []
        at = 0
        node = self._nodes[0]
        while at < len(keys):
            child = node.children.get(keys[at : at + KEY])
            if child is None:
                break
            path.append(child)
            node = self._nodes[child]
            if not keys.startswith(node.keys, at):
                at += KEY * common(node.keys, keys, at)
                break
            at += len(node.keys)
        return path, at // KEY

    def _touch(self, path: list[int]) -> None:
        for node in reversed(path):
            self._recency[node] = None
            self._recency.move_to_end(node)

    def _add(self, parent: int, start: int, keys: Keys) -> int:
        node, self._next = self._next, self._next + 1
        end, at = len(keys) // KEY, start * KEY
        self._nodes[node] = _Leaf(parent, start, end, keys[at:])
        self._nodes[parent].children[keys[at : at + KEY]] = node
        self.held += end - start
        return node

    def _split(self, child: int, at: int) -> int:
        """Cut ``child`` at grid point ``at``; returns the new upper half."""
        lower = self._nodes[child]
        upper_id, self._next = self._next, self._next + 1
        cut = (at - lower.start) * KEY
        upper = _Leaf(lower.parent, lower.start, at, lower.keys[:cut], pins=lower.pins)
        lower.parent, lower.start, lower.keys = upper_id, at, lower.keys[cut:]
        upper.children[lower.keys[:KEY]] = child
        self._nodes[upper_id] = upper
        self._nodes[upper.parent].children[upper.keys[:KEY]] = upper_id
        return upper_id

    def _make_room(self, size: int) -> bool:
        if size > self.capacity:
            return False
        while self.held + size > self.capacity:
            victim = self._victim()
            if victim is None:
                return False
            node = self._nodes.pop(victim)
            del self._recency[victim]
            del self._nodes[node.parent].children[node.keys[:KEY]]
            self.held -= node.end - node.start
        return True

    def _victim(self) -> int | None:
        """The leaf to go next, None if all are pinned."""
        return next((n for n in self._recency if self._evictable(n)), None)

    def _evictable(self, node: int) -> bool:
        return not self._nodes[node].pins and not self._nodes[node].children


class Guard:
    """The shadow, the bucket, and how much recency counts.

    ``rate``: regret forgiven per prompt token. The bucket holds up to ``capacity`` tokens, starts
    half full, and beta goes from 0 (half full or more) to 1 (empty). ``forgiven``: regret beyond
    the bucket's floor. ``switches``: how often beta left 0 or came back to it. ``shadow_hits``,
    ``real_hits``: prompt tokens that LRU would have had, that we had.
    """

    def __init__(self, capacity: int, page_size: int, rate: float) -> None:
        self.shadow = ShadowLRU(capacity, max(page_size, GRID))
        self.rate = rate
        self.cap = float(capacity)
        self.bucket = self.cap / 2
        self.forgiven = 0.0
        self.switches = 0
        self.shadow_hits = 0
        self.real_hits = 0

    @property
    def grid(self) -> int:
        """Tokens per element of the hashes that calls are identified by."""
        return self.shadow.grid

    @property
    def beta(self) -> float:
        """Weight of recency in the order of eviction, from 0 to 1."""
        return min(1.0, max(0.0, 1 - self.bucket / (self.cap / 2)))

    @property
    def regret(self) -> int:
        """Tokens that LRU would have hit and we did not, less those that only we hit."""
        return self.shadow_hits - self.real_hits

    def state(self) -> dict[str, float]:
        """What it does and what it costs: tokens but for ``beta``, switches and bytes."""
        return {
            "beta": round(self.beta, 3),
            "guard_switches": self.switches,
            "guard_regret": self.regret,
            "guard_forgiven": round(self.forgiven),
            "guard_bytes": self.shadow.bytes(),
        }

    def resize(self, capacity: float) -> None:
        """The cache has another size than the one that the bucket was filled for."""
        if capacity != self.cap:
            self.bucket *= capacity / self.cap
            self.cap = capacity

    def follow(self, capacity: int) -> None:
        """Compare with an LRU of ``capacity`` tokens from now on."""
        self.shadow.capacity = capacity // self.grid
        self.resize(float(capacity))

    def admitted(self, hashes: Hashes, prompt: int, hit: int) -> int:
        """A call starts with ``hit`` of its ``prompt`` tokens cached; its last shadow node."""
        shadow = min(self.shadow.lookup(hashes), max(prompt - 1, 0))
        before = self.beta
        level = self.bucket + self.rate * prompt - (shadow - hit)
        self.forgiven += max(0.0, -self.cap - level)
        self.bucket = min(self.cap, max(-self.cap, level))
        self.switches += (before == 0) != (self.beta == 0)
        self.shadow_hits += shadow
        self.real_hits += hit
        path = self.shadow.insert(hashes)
        self.shadow.pin(path, +1)
        return path[-1] if path else 0

    def ended(self, last: int, hashes: Hashes | None) -> None:
        """The call is done; ``hashes`` cover prompt and output, None if it was aborted."""
        self.shadow.pin(self.shadow.ancestors(last), -1)
        if hashes is not None:
            self.shadow.insert(hashes)
